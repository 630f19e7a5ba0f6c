"""Attributes of which a mapper maps a part: the copy's form of them in a body.

Each step of an expression (an index, a field, a method that makes a view) is carried out on the host's array. A view
inside a mapped part gives the device array, a view with other elements too gives a `PartialView`, and a view without
mapped elements raises `MapError`. A `PartialArray` is for attributes of which one part is mapped; operations on it take
the device array of the part. See docs/design/theory.md, "Views of attributes that are mapped in part".
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter, itemgetter, methodcaller
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.arrays.items import array_section, label
from offload.arrays.sections import covers, overlaps
from offload.errors import MapError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Host = np.ndarray[Any, Any]
    Corresponding = Callable[[Host], Any]
    Step = Callable[[Any], Any]

_BASIC_INDICES = frozenset({int, slice, type(None), type(Ellipsis)})

_VIEW_ATTRIBUTES: Final = ("T", "mT", "real", "imag")
_VIEW_METHODS: Final = ("diagonal", "ravel", "reshape", "squeeze", "swapaxes", "transpose", "view")
_LAYOUT: Final = frozenset({"dtype", "itemsize", "nbytes", "ndim", "shape", "size", "strides"})

# NumPy's functions that make a view of an array, or a list of views.
_VIEW_FUNCTIONS: Final = frozenset(
    (
        *(np.atleast_1d, np.atleast_2d, np.atleast_3d, np.diagonal, np.expand_dims, np.flip, np.fliplr, np.flipud),
        *(np.imag, np.moveaxis, np.ravel, np.real, np.reshape, np.rollaxis, np.rot90, np.squeeze, np.swapaxes),
        *(np.array_split, np.dsplit, np.hsplit, np.split, np.transpose, np.vsplit),
    )
)


class Parts:
    """The mapped parts of an attribute's array.

    ``hosts`` are its parts, as the mapper named them. Messages name the attribute and the class of its ``owner``.
    ``corresponding`` returns the device array of a view of a part.
    """

    __slots__ = ("_corresponding", "_hosts", "_sections", "arrays", "is_measured", "name", "owner", "whole")

    def __init__(self, whole: Host, hosts: Sequence[Host], name: str, owner: str, corresponding: Corresponding) -> None:
        self.whole = whole
        self.name = name  # of the attribute
        self.owner = owner  # the name of the object's class
        self.is_measured = False  # whether the body has asked a `PartialArray` for its shape
        self.arrays = [corresponding(host) for host in hosts]  # while they live, nothing else gets the device's memory
        self._hosts = hosts
        self._sections = [array_section(host) for host in hosts]
        self._corresponding = corresponding  # from a host array to the device's

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            f"the mapper of {self.owner} maps a part of {self.name}, and a body in another process cannot get parts of "
            f"attributes; map all of {self.name}, or pass the part as an argument"
        )

    def find(self, view: Any) -> Any:
        """Return the body's form of a view of the host's array: a device array, or a `PartialView`.

        For a list of views, return a list. A view in it of which no element is mapped is a `PartialView`, too. Raise
        `MapError` if no element of it is mapped, it is not a view, or it is a part of a part, and ``is_measured``.
        """
        if isinstance(view, list):
            return [PartialView(one, self) if (found := self._found(one)) is None else found for one in view]
        found = self._found(view)
        if found is None:
            raise self.error("these elements are not mapped")
        return found

    def _found(self, view: Any) -> Any:
        """Return the body's form of a view; None if no element of it is mapped."""
        if not (isinstance(view, np.ndarray) and np.may_share_memory(view, self.whole)) and np.size(view):
            raise self.error("this operation does not make a view of it")
        section = array_section(view)
        if any(covers(part, section) for part in self._sections):
            if self.is_measured and section not in self._sections:
                raise self.error(
                    f"the body asked for the shape of {self.name}, which is the section's shape, but indices count in "
                    "the host array"
                )
            return self._corresponding(view)
        if any(overlaps(part, section) or not part.run_nbytes for part in self._sections):
            return PartialView(view, self)  # in which a part lies, or may lie that has no elements
        return None

    def error(self, what: str) -> MapError:
        """Return the error for a use of the attribute that is not possible."""
        texts = ", ".join(label(host) for host in self._hosts)
        several = f"{len(self._hosts)} sections" if len(self._hosts) > 1 else "a section"
        return MapError(
            f"the mapper of {self.owner} maps {several} of {self.name} ({texts}), and {what}; in the body use the "
            f"expressions that the mapper names, or map all of {self.name}"
        )


def _basic(index: Any) -> Any | None:
    """Return an index by which NumPy makes a view, also of one element; None for other indices."""
    if isinstance(index, str):
        return index
    items = index if type(index) is tuple else (index,)
    if not all(type(item) in _BASIC_INDICES or isinstance(item, np.integer) for item in items):
        return None
    return items if Ellipsis in items else (*items, Ellipsis)


def _step_of(func: Callable[..., Any], array: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Step | None:
    """Return the step that a call of a function is for one of its arguments; None if it makes no view of that."""
    if func not in _VIEW_FUNCTIONS:
        return None

    def step(other: Any) -> Any:
        named = {name: other if value is array else value for name, value in kwargs.items()}
        return func(*[other if value is array else value for value in args], **named)

    return step


def _as_element(found: Any, index: Any) -> Any:
    """Return a scalar where NumPy gives one for an element of the host's array."""
    is_element = isinstance(found, np.ndarray) and not found.ndim and not isinstance(index, str)
    return found[()] if is_element and Ellipsis not in (index if type(index) is tuple else (index,)) else found


# -- no array -----------------------------------------------------------------------------------------
class PartialView:
    """A view of an attribute's array that is mapped in parts: steps lead to these, and operations are refused."""

    __slots__ = ("_parts", "_view")

    def __init__(self, view: Host, parts: Parts) -> None:
        self._view = view  # of the host's array
        self._parts = parts

    @property
    def __offload_whole__(self) -> Host:
        """The host's view, which `section` takes numbers of."""
        return self._view

    @property
    def parts(self) -> Parts:
        """The parts of it that are mapped."""
        return self._parts

    def __repr__(self) -> str:
        return f"<PartialView of {self._parts.owner}.{self._parts.name}, {label(self._view)}>"

    def __getitem__(self, index: Any) -> Any:
        basic = _basic(index)
        if basic is None:
            raise self._parts.error("an index of it consists of integers, slices and names of fields")
        return _as_element(self._parts.find(self._view[basic]), index)

    def __setitem__(self, index: Any, value: Any) -> None:
        basic = _basic(index)
        target = self._parts.find(self._view[basic]) if basic is not None else self
        if isinstance(target, PartialView):
            raise self._refusal()
        if target is not value:  # as ``f.data[1:-1] += 1`` has it
            target[...] = value

    def __len__(self) -> int:
        return len(self._view)

    def __getattr__(self, name: str) -> Any:
        if name in _LAYOUT:
            return getattr(self._view, name)
        if name in _VIEW_ATTRIBUTES or (name in (self._view.dtype.names or ()) and not hasattr(np.ndarray, name)):
            return self._parts.find(getattr(self._view, name))
        if name in _VIEW_METHODS:
            return lambda *args, **kwargs: self._parts.find(getattr(self._view, name)(*args, **kwargs))
        if hasattr(np.ndarray, name) and not name.startswith("__"):
            raise self._refusal()
        raise AttributeError(f"{type(self._view).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name):  # a field of records, or an error
            getattr(self, name)[...] = value
        else:
            super().__setattr__(name, value)

    def __array_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        step = _step_of(func, self, args, kwargs)
        if step is None:
            raise self._refusal()
        return self._parts.find(step(self._view))

    def _refusal(self) -> MapError:
        return self._parts.error("the device has no single array for all of it")

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._refusal()

    __hash__ = None  # type: ignore[assignment]  # as that of arrays
    __array__ = __array_ufunc__ = __bool__ = __float__ = __int__ = __complex__ = __index__ = __contains__ = _refuse
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = __divmod__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = _refuse
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __rand__ = __ror__ = __rxor__ = __rdivmod__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __pos__ = __abs__ = __invert__ = _refuse


# -- the device array of a part -----------------------------------------------------------------------
def partial_array(part: Any, whole: Host, parts: Parts) -> Any:
    """Return the body's form of an attribute of which one part is mapped.

    ``part`` is the device array of the part, ``whole`` the host's array or a view of all of it. The result is a
    `PartialArray`, or a `PartialView` if the device's arrays cannot be viewed as arrays of a subclass.
    """
    kind: Any = type(part)
    try:
        array = part.view(_class_of(kind))
    except (AttributeError, TypeError):
        return PartialView(whole, parts)
    array.be_part(parts, whole)
    return array


@cache
def _class_of(kind: type) -> type:
    return HostPartialArray if kind is np.ndarray else type(f"Partial{kind.__name__}", (PartialArray, kind), {})


def _attribute(name: str) -> property:
    """Return an attribute that is a view."""
    step = attrgetter(name)

    def get(self: Any) -> Any:
        return self._see(step)

    def put(self: Any, value: Any) -> None:
        get(self)[...] = value

    return property(get, put if name in {"real", "imag"} else None)


def _method(name: str) -> Callable[..., Any]:
    """Return a method that makes a view."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._see(methodcaller(name, *args, **kwargs))

    method.__name__ = name
    return method


class PartialArray:
    """The device array of a mapped part, which takes indices of the attribute's array on the host."""

    # This is a base class; the device's array class is the other one. An array without ``_parts`` behaves as any array
    # of the device: libraries give their results the class of their arguments.

    _parts: Parts | None = None  # None for any other array of this class
    _whole: Any = None  # the host's array, or a view of all of it

    @property
    def __offload_whole__(self) -> Any:
        """The host's array, which `section` takes numbers of; None if this is an array as any other."""
        return self._whole

    def be_part(self, parts: Parts, whole: Host) -> None:
        """Take indices of a host's array from now on."""
        self._parts, self._whole = parts, whole

    def _plain(self) -> Any:
        """Return the device array of the part."""
        return super().view(type(self).__mro__[2])  # type: ignore[misc]  # of the device's class, which comes next

    def __array_finalize__(self, made_from: Any) -> None:
        """Refuse steps if this is a view that a library has made by itself: its place on the host is not known."""
        parts = getattr(made_from, "_parts", None)
        base = getattr(self, "base", made_from)
        if parts is not None and base is not None and (base is made_from or base is made_from.base):
            self._parts = parts

    def _see(self, step: Step) -> Any:
        """Carry out a step that makes a view, on the host's array, and return the body's form of the view."""
        parts = self._parts
        if parts is None:
            return step(self._plain())
        if self._whole is None:
            raise parts.error("a function has made this view of it; use an index or a method")
        view = step(self._whole)
        if isinstance(view, list) or array_section(view) != array_section(self._whole):
            return parts.find(view)
        try:
            return partial_array(step(self._plain()), view, parts)  # the same elements, in another order
        except (IndexError, ValueError):  # as ``reshape`` has it
            return PartialView(view, parts)

    # -- indices -------------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Any:
        parts = self._parts
        if parts is None or _is_mask(index):
            return self._plain()[index]
        basic = _basic(index)
        if basic is None:
            raise parts.error("an index of it consists of integers, slices and names of fields, or is a mask")
        return _as_element(self._see(itemgetter(basic)), index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._parts is None or _is_mask(index):
            self._plain()[index] = value
            return
        basic = _basic(index)
        target = self[index if basic is None else basic]
        if isinstance(target, PartialArray):
            target = target._plain()  # noqa: SLF001  # else for ever
        if target is not value:  # as ``f.data[1:-1] += 1`` has it
            target[...] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._plain())

    def __getattr__(self, name: str) -> Any:
        whole = self._whole
        if whole is not None and name in (whole.dtype.names or ()):
            return self._see(attrgetter(name))
        raise AttributeError(f"{type(self).__mro__[2].__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name):  # a field of records, or an error
            getattr(self, name)[...] = value
        else:
            super().__setattr__(name, value)

    # -- what depends on the shape -------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension of the part."""
        self._measure()
        return super().shape  # type: ignore[misc,no-any-return]

    @shape.setter
    def shape(self, value: Any) -> None:
        super(PartialArray, type(self)).shape.__set__(self, value)  # type: ignore[misc]

    @property
    def size(self) -> int:
        """Number of elements of the part."""
        self._measure()
        return super().size  # type: ignore[misc,no-any-return]

    def __len__(self) -> int:
        self._measure()
        return super().__len__()  # type: ignore[misc,no-any-return]

    def _measure(self) -> None:
        if self._parts is not None:
            self._parts.is_measured = True

    # -- views ---------------------------------------------------------------------------------------
    T, mT, real, imag = map(_attribute, _VIEW_ATTRIBUTES)  # noqa: N815  # NumPy's names
    diagonal, ravel, reshape, squeeze, swapaxes, transpose, view = map(_method, _VIEW_METHODS)

    def __array_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        step = _step_of(func, self, args, kwargs)
        if step is not None and self._parts is not None:
            return self._see(step)
        plain = tuple([value._plain() if isinstance(value, PartialArray) else value for value in args])  # noqa: SLF001
        return super().__array_function__(func, types, plain, kwargs)  # type: ignore[misc]

    def __repr__(self) -> str:
        return repr(self._plain())

    def __str__(self) -> str:
        return str(self._plain())


class HostPartialArray(PartialArray, np.ndarray):  # type: ignore[misc]  # those of NumPy are not declared as these are
    """A `PartialArray` for a body that runs on the host."""

    def __array_wrap__(self, array: Host, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array


def _is_mask(index: Any) -> bool:
    """Tell whether an index is an array of bools: it has the shape of the part, or does not fit."""
    return getattr(index, "dtype", None) == np.bool_ and not isinstance(index, np.generic)
