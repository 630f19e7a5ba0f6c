"""Which updates of elements may be lost: two iterations read one element, and each stores what it has made of it.

Theory of operation
-------------------
An *update* is a store to an element whose value follows from a load of that element in the same iteration: in the same
statement, by way of scalars and of other elements, or by a condition under which the store, or one of these, stands. A
condition alone makes no update of a store of one number, as in ``if not seen[k]: seen[k] = 1``: whoever stores it, the
element holds the number.

An update may be lost if two iterations may store to one element, which is the test for independence of the store with
itself. If an earlier store of the iteration to that element lies on every path to the load, the load sees what its own
iteration has stored, and nothing of another one is lost.

What follows from what is found without regard to the order of statements. So a scalar that is used for two things may
make an update of a store that is none. Two iterations that store to one element are then a mistake all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offload.loops.proofs.independence import may_repeat
from offload.loops.tree import ir
from offload.loops.tree.nodes import children, names_assigned, names_in, walk
from offload.loops.tree.text import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offload.loops.proofs.reach import Access, Accesses


class _Line(NamedTuple):
    """A statement, the conditions under which it stands, and the stores that lie on every path to it, by `at`."""

    statement: ir.Statement
    conditions: tuple[ir.Expression, ...]
    stored: tuple[int, ...]


def lost_updates(found: Accesses) -> tuple[ir.Store, ...]:
    """Return the updates that may be lost if iterations run at the same time, in the order of the text."""
    listed: dict[int, list[Access]] = {}
    for access in found.listed:
        listed.setdefault(access.at, []).append(access)
    loaded = {access.array for access in found.listed if access.kind == "load"}
    views = found.launch.views

    def is_loaded(array: str) -> bool:
        return array in loaded or any(views[array] == views[one] for one in loaded & views.keys())

    stores = [
        access
        for access in found.listed
        if access.kind == "store" and access.array not in found.own and is_loaded(access.array)
    ]
    repeated = {access.at for access in stores if may_repeat(found, access)}
    if not repeated:
        return ()
    updates = _Updates(found, listed)
    return tuple(
        line.statement
        for line in updates.lines
        if isinstance(line.statement, ir.Store) and line.statement.at in repeated and updates.is_update(line)
    )


class _Updates:
    """Tells which stores of a nest are updates."""

    def __init__(self, found: Accesses, listed: dict[int, list[Access]]) -> None:
        self._found, self._listed = found, listed
        body = found.nest.body
        self.lines = list(_lines(body, _leaving(body), ()))
        self._varying = names_assigned(*body) | {axis.variable for axis in found.nest.axes}
        self._varying |= {node.variable for node in walk(*body) if isinstance(node, ir.For)}
        self._open = {
            load.at for line in self.lines for load in _loads(*_own(line.statement)) if self._is_open(load, line)
        }

    def is_update(self, line: _Line) -> bool:
        """Tell whether the store of a line is an update of an element that other iterations may have changed."""
        store = line.statement
        assert isinstance(store, ir.Store)
        return any(load.at in self._open and self._is_same(load, store) for load in self._sources(line, store))

    def _sources(self, line: _Line, store: ir.Store) -> list[ir.Load]:
        """Return the loads that what is stored follows from."""
        is_number = not names_in(store.value) & self._varying and not _loads(store.value)
        expressions = [store.value] if is_number else [store.value, *line.conditions]
        size = -1
        while size < len(expressions):
            size = len(expressions)
            names, arrays = names_in(*expressions), {load.array for load in _loads(*expressions)}
            for one in self.lines:
                match one.statement:
                    case ir.Assign(name=name, value=value) | ir.Reduce(name=name, value=value) if name in names:
                        new = [value, *one.conditions]
                    case ir.Store(array=array, value=value) if array in arrays and one.statement is not store:
                        new = [value, *one.conditions]
                    case ir.For(variable=name, start=start, stop=stop, step=step) if name in names:
                        new = [start, stop, step]
                    case _:
                        continue
                expressions += [node for node in new if all(node is not known for known in expressions)]
        return _loads(*expressions)

    def _is_same(self, load: ir.Load, store: ir.Store) -> bool:
        """Tell whether a load and a store touch one element in an iteration."""
        if not self._is_one_array(load.array, store.array):
            return False
        if any(node is load for node in walk(store.value)) and _element(load) == _element(store):
            return True  # an index that is read from an array of the nest's has a number of its own each time
        return self._are_equal(load.at, store.at)

    def _is_open(self, load: ir.Load, line: _Line) -> bool:
        """Tell whether a load may see what was there before the iteration."""
        return not any(self._are_equal(load.at, at) for at in line.stored)

    def _are_equal(self, one: int, other: int) -> bool:
        return any(
            self._is_one_array(a.array, b.array) and a.indices == b.indices
            for a in self._listed.get(one, ())
            for b in self._listed.get(other, ())
        )

    def _is_one_array(self, one: str, other: str) -> bool:
        views = self._found.launch.views
        return one == other or (one in views and other in views and views[one] == views[other])


def _lines(
    statements: Iterable[ir.Statement], conditions: tuple[ir.Expression, ...], stored: tuple[int, ...]
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
                stored = (*stored, one.at)
            case _:
                pass


def _leaving(statements: Iterable[ir.Statement]) -> tuple[ir.Expression, ...]:
    """Return the conditions of ``continue`` and ``break``, under which all that follows stands."""
    branches = [node for node in walk(*statements) if isinstance(node, ir.If)]
    return tuple(
        node.condition
        for node in branches
        if any(isinstance(part, (ir.Break, ir.Continue)) for part in walk(*node.then, *node.otherwise))
    )


def _own(statement: ir.Statement) -> list[ir.Expression]:
    """Return the expressions of a statement itself, without the statements that it encloses."""
    return [part for part in children(statement) if isinstance(part, ir.Expression)]


def _loads(*expressions: ir.Expression) -> list[ir.Load]:
    return [node for node in walk(*expressions) if isinstance(node, ir.Load)]


def _element(access: ir.Load | ir.Store) -> list[str]:
    return [text_of(index) for index in access.indices]
