"""List items and other values of clauses at run time: the namespace that expressions made of directives use.

Theory of operation
-------------------
An expression made of a clause evaluates the clause where the directive stands. Python itself evaluates names, calls and
arithmetic there. For subscripts, the expression calls `part`, because a subscript means OpenMP's lower : length :
stride on an array, and Python's own subscript on anything else. The static part of an item (its text, and for each step
what stands there) is one constant of the code, a *form*; the values follow as arguments.

A form is ``(text, steps)``. A step is a string for ``.name``, or a tuple of entries for a subscript. An entry is
`INDEX`, which takes one value, or `TRIPLE`, which takes lower, length and stride (None for a part that is left out).
`SLICE` is a `TRIPLE` of start, stop and step, as in PyOMP's programs.

In ``depend``, a bare name that holds a number, a string, None or nothing stands for the variable, as in C.
`IS_VARIABLE` decides by the class of the value, and `variable` makes the location.

An element of a list, a dict … or an attribute that holds a number is ambiguous there: in Python the item is the number,
in C it is the storage. It stands for both, the value and the place (`PlaceKey`), so neither reading loses an order.
"""

from __future__ import annotations

import operator
from enum import Enum
from numbers import Number
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offload.arrays.items import MAPPERS, SCALARS, PlaceToken, Token, _slice_of, all_memory, as_host, is_device_array
from offload.constructs.clauses.dependences import in_, inout, inoutset, mutexinoutset, out
from offload.constructs.clauses.maps import alloc, delete, from_, release, to, tofrom
from offload.errors import ClauseError
from offload.events.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    Form = tuple[str, tuple[str | tuple[int, ...], ...]]

# The names that generated expressions look up here.
__all__ = [
    "IS_VARIABLE",
    "UNBOUND",
    "Event",
    "all_memory",
    "alloc",
    "delete",
    "element",
    "event_for",
    "from_",
    "gathered",
    "in_",
    "inout",
    "inoutset",
    "is_mappable",
    "location",
    "mapped_part",
    "mutexinoutset",
    "ndarray",
    "out",
    "own",
    "part",
    "release",
    "section",
    "span",
    "to",
    "tofrom",
    "variable",
    "written",
]

ndarray = np.ndarray
span = range  # under a name that no program hides
INDEX: Final = 0
TRIPLE: Final = 1
SLICE: Final = 2


class Unbound:
    """The type of `UNBOUND`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNBOUND"

    def __reduce__(self) -> str:
        return "UNBOUND"


UNBOUND: Final = Unbound()
"""Stands for the value of a name that has none when a directive is encountered."""


# -- subscripts --------------------------------------------------------------------------------------


def part(value: Any, form: Form, *values: Any) -> Any:
    """Return the object that an item with subscripts names: storage of an array as a view, or what an object holds.

    Raise `ClauseError` if a section is outside of its array; Python's own errors for other objects.
    """
    return _walk(value, form, values).view


def element(value: Any, index: Any, text: str) -> tuple[Any, ...]:
    """Return the objects that ``value[index]`` names in ``depend``: the commonest item with a subscript."""
    kind = value.__class__
    if kind is np.ndarray:
        if index.__class__ is int and value.ndim and 0 <= index < len(value):
            return (value[index, ...],)
    elif kind is list or kind is tuple or kind is dict:
        found = value[index]
        return (
            _located(found, ItemPlace(value, index, is_member=False), text)
            if IS_VARIABLE[found.__class__]
            else (found,)
        )
    return location(value, (text, ((INDEX,),)), index)


def section(value: Any, lower: Any, length: Any, text: str) -> Any:
    """Return the object that ``value[lower:length]`` names in ``depend``."""
    if (
        value.__class__ is np.ndarray
        and lower.__class__ is int
        and length.__class__ is int
        and value.ndim
        and 0 <= lower <= (end := lower + length) <= len(value)
    ):
        return value[lower:end]
    return own(part(value, (text, ((TRIPLE,),)), lower, length, None))


def location(value: Any, form: Form, *values: Any) -> tuple[Any, ...]:
    """Return the objects that an item with subscripts or members names in ``depend``.

    They are the object that `part` returns, and its place if that is a number. A string is a value like any other.
    """
    found = _walk(value, form, values)
    if found.place is not None and IS_VARIABLE[found.view.__class__]:
        return _located(found.view, found.place, form[0])
    return (own(found.view),)


def own(value: Any) -> Any:
    """Return the list item of ``depend`` for the value of an expression: a string stands for itself."""
    return value if value.__class__ is not str else Token(value)


def _located(value: Any, place: ItemPlace, text: str) -> tuple[Any, ...]:
    """Return the list items for a number, a string or None in another object: itself if not None, and its place."""
    if value is None:
        return (Token(PlaceKey(place, text)),)
    return own(value), PlaceToken(PlaceKey(place, text))


class ItemPlace(NamedTuple):
    """An element of an object, or an attribute of it."""

    holder: Any
    key: Any  # the subscript, or the attribute's name
    is_member: bool


class MappedPart(NamedTuple):
    """A list item with subscripts or members, in a data clause of a block."""

    path: str  # the text of the array before its last subscripts: ``a``, ``self.x``
    whole: Any  # that array; the object itself if it is no array
    view: Any  # the list item
    where: tuple[int | slice, ...]  # the item is ``whole[where]``; empty if it has no section
    place: ItemPlace | None = None  # where it stands, if it is no part of an array
    holders: tuple[Any, ...] = ()  # the objects on the way to ``whole``, the first one included


def mapped_part(value: Any, path: str, form: Form, *values: Any) -> MappedPart:
    """Return a list item of a data clause of a block; ``path`` is the name that it begins with."""
    return _walk(value, form, values, path)


def _walk(value: Any, form: Form, values: tuple[Any, ...], path: str = "") -> MappedPart:
    text, steps = form
    whole, index = value, ()  # type: tuple[Any, tuple[int | slice, ...]]
    place: ItemPlace | None = None
    holders: list[Any] = []
    given, at = iter(values), 0
    while at < len(steps):
        step = steps[at]
        at += 1
        if isinstance(step, str):
            place = ItemPlace(value, step, is_member=True)
            holders.append(value)
            value = whole = getattr(value, step)
            path, index = f"{path}.{step}", ()
            continue
        entries = _entries(step, given)
        array = _array(value)
        if array is None:
            keys = tuple([entry if kind == INDEX else slice(*entry) for kind, entry in entries])
            place = ItemPlace(value, keys[0] if len(keys) == 1 else keys, is_member=False)
            holders.append(value)
            value = whole = value[place.key]
            path, index = f"{path}[…]", ()
            continue
        while at < len(steps) and not isinstance(steps[at], str):  # ``a[i][l:n]`` is ``a[i, l:n]``
            entries += _entries(steps[at], given)  # type: ignore[arg-type]  # a subscript
            at += 1
        index = _index(array, entries, text)
        whole, value, place = array, array[(*index, ...)], None  # with `...` a single element is a view, too
    return MappedPart(path, whole, value, index, place, tuple(holders))


def _entries(step: tuple[int, ...], given: Any) -> list[tuple[int, Any]]:
    """Return the entries of a subscript, each with its kind."""
    return [(kind, next(given) if kind == INDEX else (next(given), next(given), next(given))) for kind in step]


def _array(value: Any) -> Any:
    """Return a value as the array whose sections a subscript names; None if it is not an array."""
    kind = value.__class__
    if kind is np.ndarray:
        return value
    if kind in SCALARS or kind in (list, tuple, dict):
        return None
    if is_device_array(value):
        return value
    host = as_host(value)
    return host if isinstance(host, np.ndarray) else None


def _index(array: Any, entries: list[tuple[int, Any]], text: str) -> tuple[int | slice, ...]:
    """Return the index of a section: an int or a slice for each leading dimension."""
    what, shape = f"list item {text!r}", array.shape
    around = [at for at, (_, entry) in enumerate(entries) if entry is ...]
    if len(around) > 1:
        raise ClauseError(f"{what}: it has `...` twice; write it once")
    if around:
        at = around[0]
        missing = len(shape) - len(entries) + 1
        entries = [*entries[:at], *[(TRIPLE, (None, None, None))] * missing, *entries[at + 1 :]]
    if len(entries) > len(shape):
        raise ClauseError(
            f"{what}: it has {len(entries)} dimensions, but the array has {len(shape)}; give at most that many"
        )
    index: list[int | slice] = []
    for axis, ((kind, entry), size) in enumerate(zip(entries, shape, strict=False)):
        if kind == INDEX:
            index.append(_position(entry, size, axis, what))
        else:
            index.append(_slice_of(_triple_of(entry, size, axis, text) if kind == SLICE else entry, shape, axis, text))
    while index and index[-1] == slice(0, shape[len(index) - 1], 1):
        index.pop()  # a whole dimension at the end
    return tuple(index)


def _triple_of(bounds: tuple[Any, Any, Any], size: int, axis: int, text: str) -> tuple[Any, Any, Any]:
    """Return lower, length and stride of a slice; negative bounds count from the end."""
    try:
        start, stop, step = [None if one is None else operator.index(one) for one in bounds]
    except TypeError:
        from offload.arrays.wrong import not_integers  # only errors need it

        raise not_integers(bounds, axis, text, ("start", "stop", "step")) from None
    lower = 0 if start is None else start + size if start < 0 else start
    if stop is None or (step is not None and step < 1):
        return lower, None, step
    length = (stop + size if stop < 0 else stop) - lower
    return lower, -(-length // (step or 1)), step


def _position(value: Any, size: int, axis: int, what: str) -> int:
    try:
        at = operator.index(value)
    except TypeError:
        raise ClauseError(
            f"{what}: the index of dimension {axis} is {type(value).__name__} {value!r:.40}; use an int, or "
            "lower:length:stride"
        ) from None
    if not 0 <= at < size:
        allowed = f"goes from 0 to {size - 1}" if size else "is empty"
        raise ClauseError(f"{what}: index {at} is outside of dimension {axis}, which {allowed}")
    return at


# -- variables in ``depend`` -------------------------------------------------------------------------


class VariableKey:
    """A variable of one activation of a function, as a location in ``depend``."""

    __slots__ = ("_activation", "_name")

    def __init__(self, activation: object, name: str) -> None:
        self._activation = activation  # compared by identity
        self._name = name

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not VariableKey:
            return NotImplemented
        return self._activation is other._activation and self._name == other._name

    def __hash__(self) -> int:
        return hash((id(self._activation), self._name))

    def __repr__(self) -> str:
        return self._name


def variable(activation: object, name: str) -> Hashable:
    """Return the location of a variable of an activation, which messages and graphs show as its name.

    ``activation`` stands for one call of the function, or for its module, by identity.
    """
    return Token(VariableKey(activation, name))


class PlaceKey:
    """An element or an attribute of an object that holds a number, as a location in ``depend``."""

    __slots__ = ("_is_member", "_key", "_object", "_text")

    def __init__(self, place: ItemPlace, text: str) -> None:
        holder, key, self._is_member = place
        if isinstance(holder, (list, tuple)) and not self._is_member and isinstance(key, int) and key < 0:
            key += len(holder)
        self._object = holder  # compared by identity, which holds as long as the object lives
        self._key = key
        self._text = text

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not PlaceKey:
            return NotImplemented
        is_same = self._object is other._object and self._is_member is other._is_member
        return is_same and bool(self._key == other._key)

    def __hash__(self) -> int:
        try:
            return hash((id(self._object), self._key))
        except TypeError:  # a slice
            return id(self._object)

    def __repr__(self) -> str:
        return self._text


class _ByClass(dict[Any, bool]):
    """Whether values of a class are numbers, strings, None or nothing: in ``depend`` their name is a variable."""

    __slots__ = ()

    def __missing__(self, kind: type) -> bool:
        # A `Fraction` is a number; a member of an `IntEnum` is not. The answer is kept: programs have few classes.
        self[kind] = is_number = issubclass(kind, Number) and not issubclass(kind, Enum)
        return is_number


IS_VARIABLE: Final = _ByClass(
    {
        **dict.fromkeys(SCALARS, True),
        Unbound: True,
        bytes: False,  # a value of its own
        np.ndarray: False,
        list: False,
        tuple: False,
        dict: False,
    }
)


# -- other values ------------------------------------------------------------------------------------


def gathered(make: Callable[..., Any], items: list[Any]) -> list[Any]:
    """Return a list of one clause with these items; of none if an iterator has given no item."""
    return [make(*items)] if items else []


def event_for(value: Any) -> Event:
    """Return the event of ``detach(ev)``: the one that the name holds, or a new one, which the name is to hold."""
    return value if isinstance(value, Event) else Event()


def is_mappable(value: Any) -> bool:
    """Tell whether a data clause can map a value: an array of any library, or an object with a mapper."""
    if value.__class__ is np.ndarray:
        return True
    if value.__class__ in SCALARS or value is UNBOUND:
        return False
    classes = type(value).__mro__
    if any(kind in classes for kind, _ in MAPPERS):  # of any name: a clause may name its mapper
        return True
    return is_device_array(value) or isinstance(as_host(value), np.ndarray)


def written(pieces: tuple[str, ...], *values: Any) -> str:
    """Return a list item of a decorated function as the API's string, with the values of its subscripts.

    ``pieces`` is the text of the item, with an empty string for each value.
    """
    given = iter(values)
    return "".join([piece or _written_value(next(given), "".join(pieces)) for piece in pieces])


def _written_value(value: Any, text: str) -> str:
    try:
        return str(operator.index(value))
    except TypeError:
        raise ClauseError(
            f"list item {text!r}: the index is {type(value).__name__} {value!r:.40}; use an int, or lower:length:stride"
        ) from None
