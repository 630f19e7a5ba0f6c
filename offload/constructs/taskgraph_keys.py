"""Keys: which calls of a task graph share a record, and the arguments of the body that is recorded.

Arrays count by their storage, and so do objects that equal only themselves, by identity. Other arguments count by
value, and are copied twice: the body gets one copy; the key keeps the other, to compare later calls with, and to see
whether the first has changed. See docs/design/theory.md, "Keys of task graphs".
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.containers import attributes_of
from offload.arrays.foreign import type_of
from offload.arrays.items import SCALARS, array_section, as_host, is_device_array, is_foreign, layout_of, mapper_of
from offload.constructs.taskgraph_reach import GraphReach, TooMuchError, mapped_by
from offload.interrupts.shields import pass_on

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterator

    from offload.runtime.runtime import Runtime


class Key:
    """The key of a record; it keeps the arguments, so no other object can take the address of their storage.

    Raise `TooMuchError` if the arguments reach too many objects.
    """

    __slots__ = (
        *("_args", "_bound", "_has_copies", "_is_plain", "_layouts", "_pairs", "_reached", "_runtime", "_signed"),
        *("given", "graph_id"),
    )

    def __init__(
        self,
        runtime: Runtime,
        graph_id: Hashable,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bound: tuple[Any, ...] = (),
    ) -> None:
        self._runtime = runtime
        self._bound = bound
        self.graph_id = graph_id
        # the body's arguments, as (args, kwargs): copies of those that may change
        self._args = self.given = args, kwargs
        self._signed = _signed_call(args, kwargs)
        self._layouts: list[Any] = []
        self._pairs: list[tuple[Any, Any]] = []  # of each object that was copied, the body's copy and the kept one
        self._has_copies = self._is_plain = False
        self._reached = self._reach()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return NotImplemented
        return (
            self._runtime is other._runtime
            and self.graph_id == other.graph_id
            and self._signed == other._signed
            and self._reached == other._reached
        )

    __hash__ = None  # type: ignore[assignment]  # arguments need not be hashable

    def keep(self) -> None:
        """Copy the objects that the caller may change: the call is going to be recorded."""
        args, kwargs = self._args
        copies = _Copies()
        kept = copies.of((args, kwargs))
        self._has_copies = kept[0] is not args or any(kept[1][name] is not value for name, value in kwargs.items())
        if self._has_copies:
            given = _Copies()
            self.given = given.of((args, kwargs))
            self._pairs = [*given.beside(copies)]
            self._args = kept
        self._signed = _signed_call(kept[0], kept[1], copies.alone)
        self._layouts = [_layout(value) for value in args]
        self._is_plain = self._reached is None and not (self._has_copies or kwargs)

    def _reach(self) -> GraphReach | None:
        """Return the objects that the arguments reach; None if they hold nothing but arrays and numbers."""
        args, kwargs = self._args
        values = (*args, dict(sorted(kwargs.items()))) if kwargs else args
        if not self._bound and _is_signed_whole(values):
            return None
        return GraphReach(values, self._bound)

    def reaches_the_same(self) -> bool:
        """Tell whether the arguments still reach the arrays that they reached."""
        try:
            return self._reached == self._reach()
        except TooMuchError:
            return False

    def is_as_given(self) -> bool:
        """Tell whether the arguments of the body are unchanged."""
        if not self._has_copies:
            return True
        args, kwargs = self.given
        is_equal = bool(self._signed == _signed_call(args, kwargs))
        return is_equal and all(_have_one_state(*pair) for pair in self._pairs)

    def what_changed(self) -> str:
        """Return which argument is not as it was."""
        args, kwargs = self.given
        kept, named = self._args
        for number, (value, other) in enumerate(zip(args, kept, strict=True)):
            if _signed(value) != _signed(other):
                return f"argument {number}, a {type(value).__name__},"
        name = next((name for name, value in kwargs.items() if _signed(value) != _signed(named[name])), "")
        return f"argument {name}, a {type(kwargs[name]).__name__}," if name else "an argument"

    def is_plainly(self, runtime: Runtime, graph_id: Hashable, args: tuple[Any, ...]) -> bool:
        """Tell whether positional arguments are those of the key, where that can be told without signing them."""
        # Arrays have to be the same objects. Their memory is the same then: this refers to them, so that they cannot be
        # resized.
        mine = self._args[0]
        if runtime is not self._runtime or not self._is_plain or len(args) != len(mine) or graph_id != self.graph_id:
            return False
        if not args:
            return True
        for value, kept, layout in zip(args, mine, self._layouts, strict=True):
            if value.__class__ in SCALARS:
                if value.__class__ is not kept.__class__ or not _is_same(value, kept):
                    return False
            elif value is not kept or layout is None or layout != _layout(value):
                return False
        return True


def _layout(value: Any) -> tuple[Any, ...] | None:
    """Return the properties of an array that may change in place; None for another object."""
    if value.__class__ is not np.ndarray:
        return None
    return value.shape, value.strides, value.dtype, value.flags.writeable


def _is_signed_whole(value: Any) -> bool:
    """Tell whether a value is a number or an array, or holds nothing else; arrays of objects do."""
    kind = value.__class__
    if kind is np.ndarray:
        return not value.dtype.hasobject
    if kind is tuple or kind is list:
        return all(map(_is_signed_whole, value))
    if kind is dict:
        return all(map(_is_signed_whole, (*value, *value.values())))
    return kind in SCALARS or is_device_array(value)


# -- what arguments have in common -------------------------------------------------------------------


def _is_same(value: Any, other: Any) -> bool:
    """Tell whether two values of one class stand for each other: 0.0 and -0.0 do not, NaN and NaN do."""
    if isinstance(value, (float, complex, np.inexact)):
        return repr(value) == repr(other)
    found = value == other
    return isinstance(found, (bool, np.bool_)) and bool(found)


class _Value:
    """An argument that is no array: equal to one of its type that it is identical with, or the same as."""

    # One that is ``alone`` is equal to itself only.

    __slots__ = ("_is_alone", "_value")

    def __init__(self, value: Any, alone: Container[int] = ()) -> None:
        self._value = value
        self._is_alone = id(value) in alone

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Value) or type(self._value) is not type(other._value):
            return False
        if self._value is other._value:
            return True
        return not (self._is_alone or other._is_alone) and _are_equal(self._value, other._value)

    __hash__ = None  # type: ignore[assignment]  # a value need not be hashable


def _are_equal(value: Any, other: Any) -> bool:
    try:
        return _is_same(value, other)
    except Exception as error:  # noqa: BLE001  # whatever a comparison that gives no truth value raises
        pass_on(error)
        return False


def _signed_call(args: tuple[Any, ...], kwargs: dict[str, Any], alone: Container[int] = ()) -> Any:
    """Return a key that is equal for equivalent calls; the order of keywords does not count."""
    return _signed(args, alone), {name: _signed(value, alone) for name, value in kwargs.items()}


def _signed(value: Any, alone: Container[int] = ()) -> Any:
    """Return a key that is equal for equivalent arguments in their present state."""
    # Objects are referred to: of what the caller may change a copy is signed (`Key.keep`). Those whose `id` is in
    # ``alone`` equal nothing but themselves.
    if isinstance(value, np.ndarray):
        address = value.__array_interface__["data"][0]
        return type(value), address, value.shape, value.strides, value.dtype, value.flags.writeable
    if value.__class__ not in SCALARS and (host := as_host(value)) is not value:
        return type(value), type_of(value, host), *layout_of(host)
    if is_device_array(value) and not isinstance(value, type):
        return type(value), array_section(value), value.shape, value.strides, value.dtype
    mapper = mapper_of(value)
    if mapper is not None:
        return type(value), _own(value, alone), *(_signed(item, alone) for item in mapped_by(mapper, value))
    return _own(value, alone)


def _own(value: Any, alone: Container[int]) -> Any:
    """Return the key of an object without regard to a mapper."""
    if isinstance(value, (tuple, list, deque)):
        return type(value), *(_signed(item, alone) for item in value)
    if isinstance(value, dict):
        return type(value), *((key, _signed(item, alone)) for key, item in value.items())  # a body may use the order
    if _is_record(value):
        fields = [field.name for field in dataclasses.fields(value) if field.compare]
        return type(value), *(_signed(getattr(value, name, None), alone) for name in fields)
    return _Value(value, alone)


def _is_record(value: Any) -> bool:
    """Tell whether a value is of a dataclass whose objects are compared by their fields."""
    params = getattr(type(value), "__dataclass_params__", None)
    return params is not None and params.eq


# -- copies ------------------------------------------------------------------------------------------

_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, np.dtype, np.ufunc)


class _Copies:
    """Copies of arguments and of their contents; an object that occurs twice is copied once."""

    def __init__(self) -> None:
        self.alone: set[int] = set()  # ids of objects that cannot be copied, or do not equal their copies
        self._made: dict[int, tuple[Any, Any]] = {}  # with the original, whose id stays its own

    def beside(self, others: _Copies) -> Iterator[tuple[Any, Any]]:
        """Yield the copies made here, each with that of the same original there."""
        for number, (new, original) in self._made.items():
            if new is not original:
                yield new, others._made[number][0]

    def of(self, value: Any) -> Any:
        """Return a copy of a value that is compared by value and may change, else the value itself."""
        kind: Any = type(value)
        if kind is not np.void and (
            kind in SCALARS
            or kind.__eq__ is object.__eq__
            or isinstance(value, (np.ndarray, *_CODE))
            or hasattr(kind, "__del__")
            or is_device_array(value)
            or is_foreign(value)
            or as_host(value) is not value
        ):
            return value
        made = self._made.get(id(value))
        if made is not None:
            return made[0]
        if isinstance(value, tuple):
            items = [*map(self.of, value)]
            is_new = any(item is not other for item, other in zip(items, value, strict=True))
            return tuple.__new__(kind, items) if is_new else value
        is_failed = False
        try:
            new = value.copy() if kind is np.void else copy.copy(value)
            self._made[id(value)] = new, value
            if new is not value:
                self._fill(new, value)
        except Exception as error:  # noqa: BLE001  # whatever a class raises that does not have itself copied
            pass_on(error)
            new, is_failed = value, True
        is_compared = not isinstance(value, (list, dict, deque)) and not _is_record(value)
        if is_failed or (is_compared and not _are_equal(new, value)):
            new = value
            self.alone.add(id(value))
            self._made[id(value)] = value, value
        return new

    def _fill(self, new: Any, value: Any) -> None:
        """Put copies into a copy of an object, which still has the original's members."""
        if isinstance(value, list):
            new[:] = map(self.of, value)
        elif isinstance(value, deque):
            new.clear()
            new.extend(map(self.of, value))
        elif isinstance(value, dict):
            for key, item in value.items():
                new[key] = self.of(item)
        for name, held in attributes_of(value).items():
            if (copied := self.of(held)) is not held:
                object.__setattr__(new, name, copied)


def _have_one_state(one: Any, other: Any) -> bool:
    """Tell whether two copies of one object have the same attributes still."""
    held, kept = attributes_of(one), attributes_of(other)
    return held.keys() == kept.keys() and all(
        value is kept[name] or _signed(value) == _signed(kept[name]) for name, value in held.items()
    )
