"""Which updates of elements may be lost: two iterations read one element, and each stores its own new value.

An *update* is a store whose value follows from a load of that element in the same iteration, or whose condition does. A
conditional store of one constant is not an update. An update may be lost if two iterations may store to one element,
unless an earlier store of its iteration to that element is on every path to the load. For an index from a table,
``h[col[i], j]``, the test is made again with the table's indices, in case the elements of the table all differ.

The order of statements is ignored, so a scalar with two uses may give a false update. Two iterations that store to one
element are a mistake in that case too.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from offload.loops.proofs.independence import may_meet
from offload.loops.proofs.numbers import View
from offload.loops.tree import ir
from offload.loops.tree.nodes import (
    expressions_of,
    names_given,
    names_in,
    walk,
    written_index,
)
from offload.loops.tree.text import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from offload.loops.proofs.affine import IntegerValue
    from offload.loops.proofs.reach import ElementAccess, NestAccesses

    Element: TypeAlias = tuple[str, tuple[IntegerValue, ...]]
    """An array, by its first name, and the values of indices: one element in an iteration, if they are equal."""


# The name of an array that no parameter has.
_PLACES: Final = "?"


class _Line(NamedTuple):
    """A statement, the conditions under which it stands, and the stores that lie on every path to it, by `at`."""

    statement: ir.Statement  # with all that it encloses
    conditions: tuple[ir.Expression, ...]  # of the branches around
    stored: frozenset[int]  # by `at`


class LostUpdate(NamedTuple):
    """An update that may be lost, unless it has tables and the elements of each differ."""

    store: ir.Store  # for messages: its indices are the expressions that its variables are the values of
    tables: tuple[str, ...]  # of indices; nothing is lost if the elements of each differ


def lost_updates(found: NestAccesses) -> tuple[LostUpdate, ...]:
    """Return the updates that may be lost if iterations run at the same time, in the order of the text."""
    loaded = {_same_array(found, access.array) for access in found.listed if access.kind == "load"}
    repeated = {
        access.at
        for access in found.listed
        if access.kind == "store"
        and access.array not in found.own
        and _same_array(found, access.array) in loaded
        and may_meet(found, access, access)
    }
    if not repeated:
        return ()
    updates = _Updates(found)
    lost = [
        line.statement
        for line in updates.lines
        if isinstance(line.statement, ir.Store) and line.statement.at in repeated and updates.is_update(line)
    ]
    tables = _Tables(found)
    return tuple([LostUpdate(tables.shown(store), tables.of(store)) for store in lost])


class _Tables:
    """Tells which stores of a nest are to elements that tables name."""

    def __init__(self, found: NestAccesses) -> None:
        self._found = found
        self._makers: dict[str, list[ir.Statement]] = {}  # the statements that assign a scalar, by name
        self._stores: list[ir.Store] = []  # all of the nest
        for node in walk(*found.nest.body):
            match node:
                case ir.Assign(name=name) | ir.Reduce(name=name) | ir.For(variable=name):
                    self._makers.setdefault(name, []).append(node)
                case ir.Store():
                    self._stores.append(node)
        self._accesses: dict[int, list[ElementAccess]] = {}  # by `at`
        for access in found.listed:
            self._accesses.setdefault(access.at, []).append(access)
        # arrays, by their first names
        self._written = {_same_array(found, access.array) for access in found.listed if access.kind != "load"}
        self._known: dict[str, tuple[str, ...]] = {}  # the tables of each array that was asked about

    def of(self, store: ir.Store) -> tuple[str, ...]:
        """Return the tables that the indices of a store are elements of.

        There are none if two iterations may meet by stores to the array though the elements of each table differ.
        """
        array = _same_array(self._found, store.array)
        if array not in self._known:
            self._known[array] = self._of_array(array)
        return self._known[array]

    def shown(self, store: ir.Store) -> ir.Store:
        """Return a store with the indices that the program wrote: lowering may have put the ``q[i]`` of a row first."""
        return replace(store, indices=tuple(map(self._assigned, store.indices)))

    def _of_array(self, array: str) -> tuple[str, ...]:
        found = self._found
        elements: dict[tuple[IntegerValue, ...], tuple[NestAccesses, ElementAccess]] = {}
        named: dict[int, str] | None = None
        for store in self._stores:
            if _same_array(found, store.array) != array or store.at not in self._accesses:  # it is never carried out
                continue
            tables = self._read(store)
            names = {place: access.array for place, access in tables.items()}
            if not names or (named is not None and names != named):
                return ()
            named = names
            for access in self._accesses[store.at]:
                places, element = _by_place(found, access, tables)
                elements.setdefault(element.indices, (places, element))
        met = combinations_with_replacement(elements.values(), 2)
        if named is None or any(may_meet(places, one, other) for (places, one), (_, other) in met):
            return ()
        return tuple(dict.fromkeys(named.values()))

    def _read(self, store: ir.Store) -> dict[int, ElementAccess]:
        """Return the loads that the indices of a store are, by place, from tables that the nest does not write to."""
        read = {}
        for place, index in enumerate(map(self._assigned, store.indices)):
            loads = {access.indices: access for access in self._accesses.get(getattr(index, "at", -1), ())}
            if isinstance(index, ir.Load) and len(loads) == 1:
                (access,) = loads.values()
                if access.array in self._found.launch.views:
                    read[place] = access
        if any(_same_array(self._found, access.array) in self._written for access in read.values()):
            return {}
        return read

    def _assigned(self, index: ir.Expression) -> ir.Expression:
        """Return the expression that an index is the value of, by way of scalars that are assigned in one place."""
        seen = set()
        while True:
            index = written_index(index)
            if not isinstance(index, ir.Name) or index.name in seen:
                return index
            seen.add(index.name)
            match self._makers.get(index.name, ()):
                case [ir.Assign(value=value)]:
                    index = value
                case _:
                    return index


def _by_place(
    found: NestAccesses, access: ElementAccess, tables: Mapping[int, ElementAccess]
) -> tuple[NestAccesses, ElementAccess]:
    """Return an access to an array that has, in place of each index from a table, the indices of the table's element.

    Two iterations touch one element of it exactly where they touch one of the access, if the elements of tables differ.
    """
    indices: list[IntegerValue] = []
    extents: list[int] = []
    for place, (index, extent) in enumerate(zip(access.indices, found.extents[access.array], strict=True)):
        table = tables.get(place)
        indices += (index,) if table is None else table.indices
        extents += (extent,) if table is None else found.extents[table.array]
    strides = [prod(extents[place + 1 :]) for place in range(len(extents))]
    views = {**found.launch.views, _PLACES: View(tuple(extents), tuple(strides), 1, 0)}
    launch = replace(found.launch, views=views)
    return (
        replace(found, launch=launch, extents={**found.extents, _PLACES: tuple(extents)}),
        replace(access, array=_PLACES, indices=tuple(indices)),
    )


def _same_array(found: NestAccesses, array: str) -> str:
    """Return the first name of an array that may have several."""
    views = found.launch.views
    return next((name for name, view in views.items() if view == views.get(array)), array)


class _Updates:
    """Tells which stores of a nest are updates."""

    def __init__(self, found: NestAccesses) -> None:
        body = found.nest.body
        self.lines = list(_lines(body, _leaving(body), frozenset()))  # all statements of an iteration
        # scalars that may differ from iteration to iteration
        self._varying = names_given(*body) | {axis.variable for axis in found.nest.axes}
        self._elements: dict[int, set[Element]] = {}  # those of an access, by `at`
        self._accesses: dict[Element, set[int]] = {}  # by element: the accesses, by `at`
        for access in found.listed:
            element = _same_array(found, access.array), access.indices
            self._elements.setdefault(access.at, set()).add(element)
            self._accesses.setdefault(element, set()).add(access.at)
        self._open = {  # loads that may see what was there before the iteration
            load.at
            for line in self.lines
            for load in _loads(*expressions_of(line.statement))
            if all(line.stored.isdisjoint(self._accesses[element]) for element in self._elements.get(load.at, ()))
        }
        self._read: dict[int, tuple[list[ir.Load], set[tuple[str, str]]]] = {}  # what an expression reads, by its `id`
        self._makers: dict[tuple[str, str], list[_Line]] = {}  # of a scalar, or of elements of an array
        for line in self.lines:
            match line.statement:
                case ir.Assign(name=name) | ir.Reduce(name=name) | ir.For(variable=name):
                    self._makers.setdefault(("scalar", name), []).append(line)
                case ir.Store(array=array):
                    self._makers.setdefault(("array", array), []).append(line)

    def is_update(self, line: _Line) -> bool:
        """Tell whether the store of a line is an update of an element that other iterations may have changed."""
        store = line.statement
        assert isinstance(store, ir.Store)
        same = {at for element in self._elements[store.at] for at in self._accesses[element]}
        same |= {  # an index that is read from an array of the nest's has a number of its own each time
            load.at for load in _loads(store.value) if load.array == store.array and _texts(load) == _texts(store)
        }
        same &= self._open
        return bool(same) and any(load.at in same for load in self._sources(line, store))

    def _sources(self, line: _Line, store: ir.Store) -> Iterator[ir.Load]:
        """Yield the loads that the stored value depends on."""
        is_number = not names_in(store.value) & self._varying and not _loads(store.value)
        waiting = [store.value] if is_number else [*line.conditions, store.value]
        seen: set[object] = set(map(id, waiting))
        while waiting:
            loads, parts = self._read_by(waiting.pop())
            yield from loads
            for maker in [maker for part in sorted(parts - seen) for maker in self._makers.get(part, ())]:
                more = [one for one in (*maker.conditions, *_values(maker.statement)) if id(one) not in seen]
                waiting += more
                seen.update(map(id, more))
            seen |= parts

    def _read_by(self, expression: ir.Expression) -> tuple[list[ir.Load], set[tuple[str, str]]]:
        """Return the loads of an expression, and the scalars and arrays that it reads."""
        found = self._read.get(id(expression))  # the nest keeps the expression
        if found is None:
            loads = _loads(expression)
            parts = {("scalar", name) for name in names_in(expression)} | {("array", load.array) for load in loads}
            found = self._read[id(expression)] = loads, parts
        return found


def _lines(
    statements: Iterable[ir.Statement], conditions: tuple[ir.Expression, ...], stored: frozenset[int]
) -> Iterator[_Line]:
    """Yield statements, and all that they enclose."""
    for one in statements:
        yield _Line(one, conditions, stored)
        match one:
            case ir.If():
                yield from _lines(one.then, (*conditions, one.condition), stored)
                yield from _lines(one.otherwise, (*conditions, one.condition), stored)
            case ir.While():
                yield from _lines(one.body, (*conditions, one.condition), stored)
            case ir.For():
                yield from _lines(one.body, conditions, stored)
            case ir.Store():
                stored |= {one.at}


def _leaving(statements: Iterable[ir.Statement]) -> tuple[ir.Expression, ...]:
    """Return the conditions of ``continue`` and ``break``, under which all that follows stands."""
    branches = [node for node in walk(*statements) if isinstance(node, ir.If)]
    return tuple(
        node.condition
        for node in branches
        if any(isinstance(part, (ir.Break, ir.Continue)) for part in walk(*node.then, *node.otherwise))
    )


def _values(statement: ir.Statement) -> list[ir.Expression]:
    """Return the expressions that the value of a statement follows from, without those of its indices."""
    match statement:
        case ir.Assign(value=value) | ir.Reduce(value=value) | ir.Store(value=value):
            return [value]
        case _:
            return expressions_of(statement)


def _loads(*expressions: ir.Expression) -> list[ir.Load]:
    return [node for node in walk(*expressions) if isinstance(node, ir.Load)]


def _texts(access: ir.Load | ir.Store) -> list[str]:
    return [text_of(index) for index in access.indices]
