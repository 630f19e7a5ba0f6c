"""Sections in order: if each iteration has its own stretch of an array, a comparison replaces the log.

In ``values[k]`` for ``k in range(pointers[i], pointers[i + 1])`` an iteration touches only the elements between its
least and its greatest index, its *section*. No two sections meet if ::

    max(low(i), high(i) + 1) <= low(i + 1)    for all i but the last

Each iteration tests that for itself, in any order. If the test fails nothing is known, and an exact log is used
(`offload.loops.speculative.log_runs`). The ends must follow from values that the nest does not write. Only indices that
an inner loop moves have sections; a single element, ``y[p[i]]``, has a word.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.loops.proofs.affine import limits_of
from offload.loops.tree import ir
from offload.loops.tree.nodes import (
    can_divide_by_zero,
    constant_step,
    dtype_of,
    expressions_of,
    locals_in,
    mapped,
    names_given,
    walk,
)
from offload.loops.tree.promotion import is_integer
from offload.loops.tree.slices import INT, Slice, as_index, slice_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.numbers import View
    from offload.loops.tree.ir import Expression, Statement
    from offload.loops.tree.nodes import Node
    from offload.loops.watched.cells import Cells
    from offload.loops.watched.needs import Needed

# Ends of a section that are compared: more are not worth it.
_MOST: Final = 6

_MOST_NODES: Final = 64


class LogSection(NamedTuple):
    """The range in which an iteration touches an array of one dimension."""

    # It touches nothing before the least of `lows`, nor behind the greatest of `highs`. Of `INT`; they can be had at
    # the head of the iteration.
    lows: tuple[Expression, ...]
    highs: tuple[Expression, ...]


class _Range(NamedTuple):
    """Bounds of a value, both included; one expression where it is one value."""

    low: Expression  # an expression that can be had at the head of the iteration
    high: Expression

    @property
    def is_point(self) -> bool:
        return self.low is self.high


def sections(
    of: Needed, cells: Mapping[str, Cells], views: Mapping[str, View], modes: Mapping[int, ir.Mode]
) -> dict[str, LogSection]:
    """Return the sections of an iteration, for each storage whose logged accesses all stand in one."""
    if len(of.nest.axes) != 1:
        return {}
    walking = _SectionWalk(of, views, modes)
    walking.block(of.nest.body)
    found: dict[str, LogSection] = {}
    for array, ranges in walking.found.items():
        others = any(one.storage == cells[array].storage for name, one in cells.items() if name != array)
        if not cells[array].are_elements or others or None in ranges or all(one.is_point for one in ranges if one):
            continue
        known = [one for one in ranges if one is not None]
        lows, highs = _different([one.low for one in known]), _different([one.high for one in known])
        if len(lows) <= _MOST and len(highs) <= _MOST:
            found[cells[array].storage] = LogSection(lows, highs)
    return found


def following(expression: Expression, variable: str, step: Expression) -> Expression:
    """Return an expression as it is in the next iteration."""

    def change(node: Node) -> Node:
        if isinstance(node, ir.Name) and node.name == variable:
            return _binary("+", as_index(node), step)
        return node

    return mapped(expression, change)


def _different(expressions: list[Expression]) -> tuple[Expression, ...]:
    """Return expressions without those that say the same, wherever in the text."""
    nowhere = ir.SourceLine("", 0)
    told = {mapped(one, lambda node: _at_none(replace(node, place=nowhere))): one for one in expressions}
    return tuple(told.values())


def _at_none(node: Node) -> Node:
    return replace(node, at=0) if isinstance(node, ir.Load) else node


class _SectionWalk:
    """Goes through an iteration once, with the ranges of scalars; accesses are noted with the range of their index."""

    def __init__(self, of: Needed, views: Mapping[str, View], modes: Mapping[int, ir.Mode]) -> None:
        nest = of.nest
        self._watched = of.loads | of.stores  # accesses that are logged, by `at`
        self._modes = modes  # how accesses are checked
        # of the first dimension
        self._extents = {name: view.extents[0] if view.extents else 1 for name, view in views.items()}
        self._assigned = names_given(*nest.body)  # names that an iteration gives a value
        own = locals_in(nest).keys() | set(nest.privates)
        self._changing = own | set(of.written)  # arrays whose elements may change in the nest
        self._known: dict[str, _Range] = {}  # bounds of scalars, at the statement that is looked at now
        self.found: dict[str, list[_Range | None]] = {}  # the range of each index, by array; None where it has none

    # -- statements --------------------------------------------------------------------------------------

    def block(self, statements: tuple[Statement, ...]) -> None:
        for node in statements:
            self._statement(node)

    def _statement(self, node: Statement) -> None:
        if isinstance(node, ir.While):  # whose condition is asked for in each trip
            self._forget(node)
        for one in walk(*expressions_of(node)):
            if isinstance(one, ir.Load):
                self._note(one)
        match node:
            case ir.Assign(name=name, value=value):
                self._let(name, self._range(value))
            case ir.Store():
                self._note(node)
            case ir.Atomic():
                self._note(node)
                if node.result is not None:
                    self._let(node.result, None)
            case ir.If():
                before = dict(self._known)
                self.block(node.then)
                then, self._known = self._known, before
                self.block(node.otherwise)
                self._known = {name: one for name, one in self._known.items() if then.get(name) is one}
            case ir.For():
                inside = self._trips(node)
                self._forget(node)
                self._let(node.variable, inside)
                self.block(node.body)
                self._forget(node)
            case ir.While():
                self.block(node.body)
                self._forget(node)

    def _let(self, name: str, value: _Range | None) -> None:
        if value is None:
            self._known.pop(name, None)
        else:
            self._known[name] = value

    def _forget(self, loop: ir.For | ir.While) -> None:
        """Forget variables that a loop assigns: their values come from the previous trip, or after it from any."""
        for name in names_given(loop):
            self._known.pop(name, None)

    def _note(self, node: ir.Load | ir.Store | ir.Atomic) -> None:
        if node.at not in self._watched:
            return
        found: _Range | None = None
        if len(node.indices) == 1:
            (index,) = node.indices
            while isinstance(index, ir.Convert) and _bits(index) >= _bits(index.operand) > 0:
                index = index.operand
            if self._extents[node.array] <= limits_of(dtype_of(index))[1]:
                found = self._range(index)
        self.found.setdefault(node.array, []).append(found)

    # -- ranges ------------------------------------------------------------------------------------------

    def _trips(self, loop: ir.For) -> _Range | None:
        """Return the range of the variable of a loop."""
        start, stop, step = self._range(loop.start), self._range(loop.stop), constant_step(loop)
        if start is None or stop is None or step is None:
            return None
        return _Range(start.low, _sum(stop.high, -1)) if step > 0 else _Range(_sum(stop.low, 1), start.high)

    def _range(self, node: Expression) -> _Range | None:
        """Return bounds of an integer, of `INT`, that can be had at the head of the iteration; None if it has none.

        They bound it modulo its type, and exactly where they are numbers of the type.
        """
        if not _bits(node):
            return None
        point = self._point(node)
        if point is not None:
            point = as_index(point)
            return _Range(point, point)
        found: _Range | None = None
        match node:
            case ir.Name(name=name):
                found = self._known.get(name)
            case ir.Convert(operand=operand) if 0 < _bits(node) <= _bits(operand):
                found = self._range(operand)
            case ir.Unary(operator="-", operand=operand):
                inner = self._range(operand)
                found = None if inner is None else _Range(_negative(inner.high), _negative(inner.low))
            case ir.Binary():
                found = self._combined(node)
        if found is None or _size(found.low) + _size(found.high) > _MOST_NODES:
            return None
        return found

    def _combined(self, node: ir.Binary) -> _Range | None:
        left, right = self._range(node.left), self._range(node.right)
        if left is None or right is None:
            return None
        match node.operator, node.right:
            case "+", _:
                return _Range(_binary("+", left.low, right.low), _binary("+", left.high, right.high))
            case "-", _:
                return _Range(_binary("-", left.low, right.high), _binary("-", left.high, right.low))
            case "*", ir.Constant(value=int(value)):
                ends = (left.low, left.high) if value >= 0 else (left.high, left.low)
                return _Range(_binary("*", ends[0], right.low), _binary("*", ends[1], right.low))
            case _:
                return None

    def _point(self, node: Expression) -> Expression | None:
        """Return an expression that is one value in the iteration as it is had at the head; None for another."""
        for one in walk(node):
            if isinstance(one, ir.Trip) or can_divide_by_zero(one):
                return None
            if isinstance(one, ir.Load) and self._modes.get(one.at, "check") == "check":
                return None  # the head is passed where the load may not be
        points = {name: Slice(one.low, frozenset()) for name, one in self._known.items() if one.is_point}
        found = slice_of(node, points, self._assigned, self._changing)
        return None if found is None else found.expression


def _binary(operator: ir.Operator, left: Expression, right: Expression) -> ir.Binary:
    return ir.Binary(place=left.place, operator=operator, left=left, right=right, type=INT)


def _negative(value: Expression) -> ir.Unary:
    return ir.Unary(place=value.place, operator="-", operand=value, type=INT)


def _sum(value: Expression, number: int) -> Expression:
    return _binary("+", value, ir.Constant(place=value.place, value=number, type=INT))


def _bits(node: Expression) -> int:
    """Return how many bits an integer has that `INT` holds; 0 of anything else."""
    dtype = dtype_of(node)
    if not is_integer(dtype) or dtype in ("bool", "uint64"):
        return 0
    return int(dtype.lstrip("uint"))


def _size(expression: Expression) -> int:
    return sum(1 for _ in walk(expression))
