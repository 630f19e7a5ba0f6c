"""Lists, dicts and objects of which a data clause of a block names parts: what stands for them in the block.

In the block, ``xs[0]`` of ``map(tofrom: xs[0])`` is a device array. Other elements, and changes of the list, are the
list's own. So a stand-in gives the device arrays in place of the arrays that are mapped, and passes changes on to the
list. For lists and dicts it is a list or a dict, so all of Python takes it; a tuple, which nobody changes, has a copy.
"""

from __future__ import annotations

from operator import is_
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Replacements:
    """The objects that stand for others in a block, by identity."""

    def __init__(self) -> None:
        self._new: dict[int, tuple[Any, Any]] = {}  # the object and what stands for it
        self._old: dict[int, tuple[Any, Any]] = {}  # the other way round
        self._holders: dict[int, tuple[Any, str]] = {}  # what leads to arrays that are mapped, with its text
        self._mapped: set[int] = set()  # what stands for arrays

    def add(self, array: Any, view: Any) -> None:
        """Have an object stand for an array."""
        self._enter(array, view)
        self._mapped.add(id(view))

    def add_holder(self, value: Any, text: str) -> None:
        """Note that a list, a dict or an object leads to an array."""
        self._holders.setdefault(id(value), (value, text))

    def _enter(self, old: Any, new: Any) -> None:
        self._new[id(old)] = old, new
        self._old[id(new)] = new, old

    def known(self, value: Any) -> Any:
        """Return the object that stands for another one, as far as there is one."""
        return self._new.get(id(value), (None, None))[1]

    def of(self, value: Any) -> Any:
        """Return the object that stands for another one in the block: itself for most."""
        found = self._new.get(id(value))
        if found is not None:
            return found[1]
        holder = self._holders.get(id(value))
        if holder is None:
            return value
        self._enter(value, made := self._made(*holder))
        return made

    def _made(self, value: Any, text: str) -> Any:
        kind = value.__class__
        if kind is list:
            return HeldList(value, self, text)
        if kind is dict:
            return HeldDict(value, self, text)
        if isinstance(value, tuple):
            return _tuple_of(kind, map(self.of, value))
        return HeldObject(value, self, text)

    def back(self, value: Any) -> Any:
        """Return the object that another one stands for: itself for most.

        A list, tuple or dict that the block has made of device arrays gets a copy with the arrays themselves.
        """
        found = self._old.get(id(value))
        if found is not None:
            return found[1]
        kind = value.__class__
        if kind is dict:
            parts = [*value.values()]
        elif kind is list or isinstance(value, tuple):
            parts = [*value]
        else:
            return value
        arrays = [self._old.get(id(part), (None, part))[1] for part in parts]
        if all(map(is_, arrays, parts)):
            return value
        if kind is dict:
            return dict(zip(value, arrays, strict=True))
        return arrays if kind is list else _tuple_of(kind, arrays)

    def keep(self, old: Any, new: Any, text: str) -> None:
        """Raise `ClauseError` if a block binds an element or attribute that is mapped to another object."""
        if id(old) in self._mapped and old is not new:
            raise ClauseError(
                f"map: {text} is mapped, but the block binds it to another object, so the array would not change; "
                f"write `{text}[...] = …`"
            )


def _tuple_of(kind: Any, values: Iterable[Any]) -> Any:
    return kind._make(values) if hasattr(kind, "_make") else tuple(values)


class HeldList(list[Any]):
    """A list with device arrays, whose changes change another list."""

    __slots__ = ("_real", "_replaced", "_text")

    def __init__(self, real: list[Any], replaced: Replacements, text: str) -> None:
        super().__init__(map(replaced.of, real))
        self._real, self._replaced, self._text = real, replaced, text

    def __setitem__(self, key: Any, value: Any) -> None:
        back = self._replaced.back
        if isinstance(key, slice):
            value = list(value)
            for old in self[key]:
                if not any(old is new for new in value):
                    self._replaced.keep(old, value, f"{self._text}[…]")
            self._real[key] = map(back, value)
        else:
            self._replaced.keep(self[key], value, f"{self._text}[{key!r}]")
            self._real[key] = back(value)
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        del self._real[key]

    def insert(self, at: Any, value: Any) -> None:
        super().insert(at, value)
        self._real.insert(at, self._replaced.back(value))

    def append(self, value: Any) -> None:
        super().append(value)
        self._real.append(self._replaced.back(value))

    def extend(self, values: Iterable[Any]) -> None:
        given = list(values)
        super().extend(given)
        self._real.extend(map(self._replaced.back, given))

    def pop(self, at: Any = -1) -> Any:
        found = super().pop(at)
        self._real.pop(at)
        return found

    def remove(self, value: Any) -> None:
        del self[self.index(value)]

    def clear(self) -> None:
        super().clear()
        self._real.clear()

    def reverse(self) -> None:
        super().reverse()
        self._real.reverse()

    def sort(self, **order: Any) -> None:
        super().sort(**order)
        self._real[:] = map(self._replaced.back, self)

    def __iadd__(self, values: Iterable[Any]) -> Self:  # type: ignore[misc]  # the same object
        self.extend(values)
        return self

    def __imul__(self, n: Any) -> Self:  # type: ignore[misc]  # as above
        super().__imul__(n)
        self._real *= n
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self._text} has device arrays in this block, which cannot be pickled")


class HeldDict(dict[Any, Any]):
    """A dict with device arrays, whose changes change another dict."""

    __slots__ = ("_real", "_replaced", "_text")

    def __init__(self, real: dict[Any, Any], replaced: Replacements, text: str) -> None:
        super().__init__({key: replaced.of(value) for key, value in real.items()})
        self._real, self._replaced, self._text = real, replaced, text

    def __setitem__(self, key: Any, value: Any) -> None:
        self._replaced.keep(self.get(key), value, f"{self._text}[{key!r}]")
        super().__setitem__(key, value)
        self._real[key] = self._replaced.back(value)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        del self._real[key]

    def pop(self, key: Any, *default: Any) -> Any:
        found = super().pop(key, *default)
        self._real.pop(key, None)
        return found

    def popitem(self) -> tuple[Any, Any]:
        key, value = super().popitem()
        self._real.pop(key, None)
        return key, value

    def clear(self) -> None:
        super().clear()
        self._real.clear()

    def update(self, *values: Any, **named: Any) -> None:
        for key, value in dict(*values, **named).items():
            self[key] = value

    def setdefault(self, key: Any, value: Any = None) -> Any:
        if key not in self:
            self[key] = value
        return self[key]

    def __ior__(self, values: Any) -> Self:  # type: ignore[misc]  # the same object
        self.update(values)
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self._text} has device arrays in this block, which cannot be pickled")


class HeldObject:
    """Any other object, with device arrays in place of some elements or attributes."""

    __slots__ = ("__real", "__replaced", "__text")

    def __init__(self, real: Any, replaced: Replacements, text: str) -> None:
        for name, value in (("real", real), ("replaced", replaced), ("text", text)):
            object.__setattr__(self, f"_HeldObject__{name}", value)

    @property  # type: ignore[misc]  # `object` has an attribute
    def __class__(self) -> Any:  # for `isinstance`
        return self.__real.__class__

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__real, name)
        if isinstance(value, MethodType) and value.__self__ is self.__real:
            return MethodType(value.__func__, self)  # which finds the device arrays, too
        return self.__replaced.of(value)

    def __setattr__(self, name: str, value: Any) -> None:
        old = self.__replaced.of(getattr(self.__real, name, None))
        self.__replaced.keep(old, value, f"{self.__text}.{name}")
        setattr(self.__real, name, self.__replaced.back(value))

    def __delattr__(self, name: str) -> None:
        delattr(self.__real, name)

    def __getitem__(self, key: Any) -> Any:
        return self.__replaced.of(self.__real[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        try:
            old = self[key]
        except LookupError:
            old = None
        self.__replaced.keep(old, value, f"{self.__text}[{key!r}]")
        self.__real[key] = self.__replaced.back(value)

    def __delitem__(self, key: Any) -> None:
        del self.__real[key]

    def __iter__(self) -> Iterator[Any]:
        return map(self.__replaced.of, self.__real)

    def __len__(self) -> int:
        return len(self.__real)

    def __bool__(self) -> bool:
        return bool(self.__real)

    def __contains__(self, value: Any) -> bool:
        return self.__replaced.back(value) in self.__real

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__real(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return bool(self.__real == self.__replaced.back(other))

    def __hash__(self) -> int:
        return hash(self.__real)

    def __repr__(self) -> str:
        return repr(self.__real)
