"""Clauses: the values that constructs take, checked when they are made; `depend` has a file of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.foreign import is_model
from offload.arrays.items import host_items, is_device_array, label, mapper_of
from offload.constructs.clauses.names import parse_item
from offload.data.maptypes import MapType
from offload.errors import ClauseError, UsageError
from offload.runtime.keywords import takes_clauses, unknown_clause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class MapClause:
    """One ``map`` clause, or data clause of OpenACC: a map type, modifiers, list items, and a mapper for objects."""

    __slots__ = (
        "always", "close", "if_present", "is_symbolic", "items", "map_type", "mapper", "names", "present", "word",
        "zeroes",
    )  # fmt: skip

    def __init__(
        self,
        map_type: MapType,
        items: tuple[Any, ...],
        *,
        always: bool = False,
        present: bool = False,
        close: bool = False,
        mapper: str | None = None,
        word: str = "",
        if_present: bool = False,
        zeroes: bool = False,
    ) -> None:
        name = map_type.name.lower()
        if not items:
            raise ClauseError(f"{word or f'map({name})'} names no list item; name at least one")
        if mapper is not None and not isinstance(mapper, str):
            raise ClauseError(
                f"map({name}): mapper={mapper!r:.60} is not a name given to declare_mapper; write a string"
            )
        if mapper is None:
            items = host_items(items)
        # Only the items themselves are checked here. The arrays that strings name are known at a call.
        for item in items:
            if isinstance(item, str):
                parse_item(item)
            else:
                check_map_item(item, name, mapper, word=word)
        self.map_type = map_type  # as written: a construct may have it mean another
        self.items = items  # arrays, objects with a mapper, strings of decorators
        self.is_symbolic = any(isinstance(item, str) for item in items)  # whether an item is a string
        self.always = always  # copy at any reference count
        self.present = present  # an absent item is an error
        self.close = close  # a hint that changes nothing
        self.mapper = mapper  # its name; None for the default one
        self.word = word  # for messages; empty for OpenMP's clauses
        self.names: dict[int, str] = {}  # of the items in messages, by `id`
        self.if_present = if_present  # of OpenACC: an absent item is ignored
        self.zeroes = zeroes  # of OpenACC: new storage begins with zeros

    def __repr__(self) -> str:
        return f"{self.word or self.map_type.name.lower()}({', '.join(map(label, self.items))})"


def check_map_item(item: Any, what: str, mapper: str | None = None, *, word: str = "") -> None:
    """Raise `ClauseError` unless ``item`` is a host array that can be mapped, or an object with that mapper."""
    # First: an array subclass or a named tuple may have a mapper.
    if mapper_of(item, mapper) is not None:
        return
    clause = word or f"map({what})"
    if mapper is not None:
        raise ClauseError(
            f"map({what}): {type(item).__name__} {item!r:.60} has no mapper {mapper!r}; "
            f"declare_mapper({type(item).__name__}, fn, {mapper!r}) declares one"
        )
    if is_device_array(item):
        raise ClauseError(f"{clause}: {label(item)} is already a device array; pass it as an argument, without a map")
    if not isinstance(item, np.ndarray):
        raise ClauseError(f"{clause}: {type(item).__name__} {item!r:.60} is not an array; {remedy_of(item)}")
    if item.dtype.hasobject:
        raise ClauseError(
            f"{clause}: an array of dtype {item.dtype} holds Python objects, which a device cannot use; use a numeric "
            "or structured dtype"
        )


def remedy_of(item: object) -> str:
    """Return the end of an error message: the thing to write instead of a list item that is not an array."""
    if is_model(item):
        return "a model needs no map: move it with .to(device), and pass it as an argument"
    return "map arrays, views, section(…) or an object whose class has a mapper (declare_mapper)"


@takes_clauses
def to(
    *items: Any, always: bool = False, present: bool = False, close: bool = False, mapper: str | None = None
) -> MapClause:
    """Make a ``map(to: …)`` clause: copied to the device on entry if not yet present (``always``: in any case).

    Parameters
    ----------
    *items
        Host arrays, views, sections, objects with a mapper; in a decorator also strings that name parameters.
    always : bool
        True: copy each time, also if the item is present.
    present : bool
        True: the item must be present, otherwise the construct raises `NotPresentError`.
    close : bool
        A hint that changes nothing.
    mapper : str, optional
        The name of a mapper of `declare_mapper`.

    Raises
    ------
    ClauseError
        There is no item, or an item is neither a host array of a numeric or structured dtype nor an object with a
        mapper.

    Notes
    -----
    OpenMP 5.2, 5.8.3 "map Clause".

    Examples
    --------
    >>> x, y = np.arange(3.0), np.zeros(3)
    >>> @omp.target(map=[omp.to("x"), omp.from_("y")])
    ... def double(x, y):
    ...     y[:] = 2 * x
    >>> double(x, y)
    >>> y
    array([0., 2., 4.])
    """
    return MapClause(MapType.TO, items, always=always, present=present, close=close, mapper=mapper)


@takes_clauses
def from_(
    *items: Any, always: bool = False, present: bool = False, close: bool = False, mapper: str | None = None
) -> MapClause:
    """Make a ``map(from: …)`` clause: copied back on exit when nothing else maps it. Raises and source: as `to`.

    It takes the parameters of `to`.

    Examples
    --------
    >>> y = np.zeros(3)
    >>> @omp.target(map=[omp.from_("y")])
    ... def fill(y):
    ...     y[:] = 7
    >>> fill(y)
    >>> y
    array([7., 7., 7.])
    """
    return MapClause(MapType.FROM, items, always=always, present=present, close=close, mapper=mapper)


@takes_clauses
def tofrom(
    *items: Any, always: bool = False, present: bool = False, close: bool = False, mapper: str | None = None
) -> MapClause:
    """Make a ``map(tofrom: …)`` clause: `to` on entry and `from_` on exit. Raises and source: as `to`.

    It takes the parameters of `to`.

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> @omp.target(map=[omp.tofrom("x")])
    ... def double(x):
    ...     x *= 2
    >>> double(x)
    >>> x
    array([0., 2., 4.])
    """
    return MapClause(MapType.TOFROM, items, always=always, present=present, close=close, mapper=mapper)


@takes_clauses
def alloc(
    *items: Any, always: bool = False, present: bool = False, close: bool = False, mapper: str | None = None
) -> MapClause:
    """Make a ``map(alloc: …)`` clause: uninitialised storage, no copies. Raises and source: as `to`.

    It takes the parameters of `to`.

    Examples
    --------
    >>> x, work = np.arange(3.0), np.empty(3)
    >>> @omp.target(map=[omp.tofrom("x"), omp.alloc("work")])
    ... def square(x, work):
    ...     work[:] = x  # only on the device
    ...     x *= work
    >>> square(x, work)
    >>> x
    array([0., 1., 4.])
    """
    return MapClause(MapType.ALLOC, items, always=always, present=present, close=close, mapper=mapper)


@takes_clauses
def release(
    *items: Any, always: bool = False, present: bool = False, close: bool = False, mapper: str | None = None
) -> MapClause:
    """Make a ``map(release: …)`` clause of exit data: count down, copy nothing. Raises and source: as `to`.

    It takes the parameters of `to`.

    Examples
    --------
    >>> x = np.ones(3)
    >>> omp.target_enter_data(map=[omp.to(x)])
    >>> omp.target_exit_data(map=[omp.release(x)])
    >>> omp.target_is_present(x)
    False
    """
    return MapClause(MapType.RELEASE, items, always=always, present=present, close=close, mapper=mapper)


@takes_clauses
def delete(
    *items: Any, always: bool = False, present: bool = False, close: bool = False, mapper: str | None = None
) -> MapClause:
    """Make a ``map(delete: …)`` clause of exit data: remove it at any count. Raises and source: as `to`.

    It takes the parameters of `to`.

    Examples
    --------
    >>> x = np.ones(3)
    >>> omp.target_enter_data(map=[omp.to(x)])
    >>> omp.target_enter_data(map=[omp.to(x)])  # the reference count is now 2
    >>> omp.target_exit_data(map=[omp.delete(x)])
    >>> omp.target_is_present(x)
    False
    """
    return MapClause(MapType.DELETE, items, always=always, present=present, close=close, mapper=mapper)


# -- clauses of a construct, by name ---------------------------------------------------------------


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return the values of a list clause; one value, a named tuple with a mapper too, stands for a list of one."""
    return tuple(value) if type(value) in (list, tuple) else (value,)


def check_map(value: Any) -> tuple[Any, ...]:
    """Return the items of a ``map=`` argument: clauses, and bare arrays or strings for the construct's default type."""
    clauses = host_items(as_tuple(value))
    for clause in clauses:
        if isinstance(clause, str):
            parse_item(clause)
        elif not isinstance(clause, MapClause):
            check_map_item(clause, "…")
    return clauses


def check_device(value: Any) -> int | None:
    """Return a device number; whether it exists is checked against the runtime at the call."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ClauseError(f"device: {value!r} is not a device number; use an int, or None for the default device")
    return int(value)


def check_arrays(value: Any) -> str | None:
    """Return the library whose arrays a body receives; None for those that were passed."""
    if value not in (None, "cupy", "torch"):
        raise ClauseError(f'arrays: {value!r:.40} is not allowed; use "cupy" or "torch", or leave the clause out')
    if value == "torch" and "torch" not in sys.modules:
        raise UsageError('arrays: "torch" needs PyTorch, which the program has not imported; import torch before')
    return value  # type: ignore[no-any-return]  # one of these


def check_priority(value: Any) -> int:
    """Return a task priority: an int of at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise ClauseError(f"priority: {value!r} is not allowed; use an int of at least 0")
    return int(value)


def check_count(clause: str, value: Any) -> int | None:
    """Return a number of at least 1; None stands for no such clause."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ClauseError(f"{clause}: {value!r:.40} is not allowed; use a number of at least 1")
    return int(value)


def check_name(value: Any) -> str | None:
    """Return a label for graphs and errors."""
    if value is not None and not isinstance(value, str):
        raise ClauseError(f"name: {value!r} is not a string; pass a str")
    return value


# Clauses whose value is a condition. A string in one is an expression of C's, which nobody would evaluate.
_CONDITIONS = frozenset({"final", "graph_reset", "if_", "nogroup", "nowait", "self_"})


def check_clauses(
    construct: str, given: Mapping[str, Any], checks: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """Return the clauses of a construct, each passed through its check.

    Raise `ClauseError` if the construct has no such clause, or a value is wrong.
    """
    checked = {}
    for name, value in given.items():
        check = checks.get(name)
        if check is None:
            raise unknown_clause(construct, name, checks)
        if name in _CONDITIONS and isinstance(value, str):
            raise ClauseError(
                f"{name}: {value!r} is a string, which is always true; give a condition, for each call by "
                f".options({name}=…)"
            )
        checked[name] = check(value)
    return checked


def string_items(clauses: Iterable[Any]) -> Iterator[str]:
    """Yield the list items of map clauses that are strings."""
    for clause in clauses:
        for item in clause.items if isinstance(clause, MapClause) else (clause,):
            if isinstance(item, str):
                yield item


def worded_items(clauses: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Yield the same, each with the name of its clause for messages."""
    for clause in clauses:
        word = clause.word if isinstance(clause, MapClause) and clause.word else "map"
        yield from ((item, word) for item in string_items((clause,)))


def first_text(clauses: Iterable[Any]) -> str:
    """Return the first list item that is a string, of clauses of which `symbolic` is true."""
    items = (item for clause in clauses for item in (clause.items if isinstance(clause, MapClause) else (clause,)))
    return next(item for item in items if isinstance(item, str))


def symbolic(clauses: Iterable[Any]) -> bool:
    """Tell whether any clause needs the call to find its items."""
    return any(
        isinstance(clause, str) or (not isinstance(clause, np.ndarray) and getattr(clause, "is_symbolic", False))
        for clause in clauses
    )
