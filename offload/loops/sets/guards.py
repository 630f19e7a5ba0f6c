"""The nest with tests of ownership, for a device that goes through more iterations than it needs.

Tests are ordinary statements of the IR, ``lower_y <= i and i < upper_y``, with the bounds as two scalar inputs. A term
is tested once, at the head of the iteration or loop in which it varies. Writes get a branch, shared by neighbours with
one demand. Statements that give a value keep their place, and load nothing if the value is not needed: ``x = c[j] if
own_1 else 0``. Arithmetic that cannot fail stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.loops.proofs.feeding import all_points
from offload.loops.tree import ir
from offload.loops.tree.nodes import can_divide_by_zero, walk
from offload.loops.tree.slices import INT, TRUTH, as_index, careful, guarded, joined, zero

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offload.loops.proofs.feeding import Demand, DemandTerm, FlowPoint


class Bound(NamedTuple):
    """A scalar that the guarded nest is given: an end of the range of an array, or of the block if that is ""."""

    name: str
    array: str  # empty for the block of iterations
    is_upper: bool  # it is the end, not the beginning


@dataclass(frozen=True, slots=True)
class Guarded:
    """A nest with tests."""

    body: tuple[ir.Statement, ...]
    scalars: Mapping[str, ir.Type]  # what the nest has more than before
    bounds: tuple[Bound, ...]  # scalars that a device is given


def guarded_body(
    points: tuple[FlowPoint, ...],  # the outermost statements
    demand: Mapping[int, Demand],  # by the numbers of points
    own: Collection[str],  # arrays of which each iteration has its own
    taken: Collection[str],  # names that the function has
    checked: Collection[int],  # the loads, by `at`, that may leave their array
) -> Guarded:
    """Return the body of a nest with tests."""
    going = _Guards(demand, own, set(taken), checked)
    for point in all_points(points):
        going.prepare(point)
    body = (*going.heads[_ITERATION], *going.block(points))
    return Guarded(body, going.scalars, tuple(going.bounds.values()))


def is_guarded(statement: ir.Statement, own: Collection[str]) -> bool:
    """Tell whether a statement has effects that others see, so that it is carried out only where it is needed."""
    match statement:
        case ir.Store(array=array) | ir.Atomic(array=array):
            return array not in own
        case _:
            return isinstance(statement, ir.Reduce)


def value_in(statement: ir.Statement) -> ir.Expression | None:
    """Return the value that a statement gives to a scalar or an element that the iteration has for itself."""
    match statement:
        case ir.Assign(value=value) | ir.Store(value=value) | ir.Local(fill=ir.Expression() as value):
            return value
        case _:
            return None


def is_tested(statement: ir.Statement) -> bool:
    """Tell whether a statement gives a value that is had only where it is needed: others cost less than a test."""
    value = value_in(statement)
    return value is not None and any(isinstance(node, ir.Load) or can_divide_by_zero(node) for node in walk(value))


@dataclass(slots=True)
class _Guards:
    demand: Mapping[int, Demand]  # by the numbers of points
    own: Collection[str]  # arrays of which each iteration has its own
    taken: set[str]  # names that are in use
    checked: Collection[int]  # loads, by `at`, that may leave their array
    scalars: dict[str, ir.Type] = field(default_factory=dict)  # new ones
    bounds: dict[tuple[str, bool], Bound] = field(default_factory=dict)  # by array, and whether it is the upper one
    # tests at the head of a loop, by its number
    heads: dict[int, list[ir.Statement]] = field(default_factory=lambda: defaultdict(list))
    tests: dict[DemandTerm, ir.Name] = field(default_factory=dict)  # the scalar that says whether a term holds

    def block(self, points: tuple[FlowPoint, ...]) -> tuple[ir.Statement, ...]:
        """Return statements with their tests; neighbours with one demand have one."""
        found: list[tuple[Demand, ir.Statement]] = []
        for point in points:
            demand = self.demand[point.number]
            if not demand or not is_guarded(point.statement, self.own):  # or it stands in a loop without trips
                found.append((None, self.plain(point)))
                continue
            found += [(None, one) for term in demand if term.at >= 0 for one in self.test(term)]
            if found and found[-1][0] == demand and isinstance(last := found[-1][1], ir.If):
                found[-1] = demand, replace(last, then=(*last.then, point.statement))
            else:
                place = point.statement.place
                branch = ir.If(place=place, condition=self.condition(demand), then=(point.statement,))
                found.append((demand, branch))
        return tuple([statement for _, statement in found])

    def plain(self, point: FlowPoint) -> ir.Statement:
        """Return a statement without a test around it."""
        node = point.statement
        match node:
            case ir.For() | ir.While():
                return replace(node, body=(*self.heads[point.number], *self.block(point.body)))
            case ir.If():
                return replace(node, then=self.block(point.body), otherwise=self.block(point.otherwise))
        demand, value = self.demand[point.number], value_in(node)
        if demand is None or value is None or not is_tested(node):
            return node
        kept = guarded(value, self.condition(demand)) if demand else zero(value)
        if isinstance(node, ir.Local):
            return replace(node, fill=kept)
        assert isinstance(node, (ir.Assign, ir.Store))
        return replace(node, value=kept)

    def prepare(self, point: FlowPoint) -> None:
        """Add the tests that a point needs to the heads of loops."""
        demand = self.demand[point.number]
        if demand is None or not (is_guarded(point.statement, self.own) or is_tested(point.statement)):
            return
        for term in sorted(demand, key=_order):
            if term not in self.tests and term.at < 0:
                self.heads[max(term.loops, default=_ITERATION)] += self.test(term)

    def condition(self, demand: frozenset[DemandTerm]) -> ir.Expression:
        return joined("or", [self.tests[term] for term in sorted(demand, key=_order)])

    def test(self, term: DemandTerm) -> list[ir.Statement]:
        """Return the statements that test a term, and remember its name."""
        index = as_index(term.text if term.slice is None else careful(term.slice.expression, self.checked))
        found: list[ir.Statement] = []
        if not isinstance(index, ir.Name):
            index = self.kept(index, "place", INT, found)
        if term.value.low < 0 and not term.is_block:
            extent = ir.Extent(place=index.place, array=term.array, dimension=term.dimension, type=INT)
            test = ir.Compare(place=index.place, operator="<", left=index, right=zero(index), type=TRUTH)
            last = ir.Binary(place=index.place, operator="+", left=index, right=extent, type=INT)
            wrapped = ir.Select(place=index.place, condition=test, then=last, otherwise=index, type=INT)
            index = self.kept(wrapped, "place", INT, found)
        lower, upper = (self.bound(term, index.place, is_upper=is_upper) for is_upper in (False, True))
        tests: list[ir.Expression] = [
            ir.Compare(place=index.place, operator="<=", left=lower, right=index, type=TRUTH),
            ir.Compare(place=index.place, operator="<", left=index, right=upper, type=TRUTH),
        ]
        self.tests[term] = self.kept(joined("and", tests), "own", TRUTH, found)
        return found

    def kept(self, value: ir.Expression, word: str, of: ir.Type, found: list[ir.Statement]) -> ir.Name:
        name = self.fresh(word)
        self.scalars[name] = of
        found.append(ir.Assign(place=value.place, name=name, value=value))
        return ir.Name(place=value.place, name=name, type=of)

    def bound(self, term: DemandTerm, place: ir.SourceLine, *, is_upper: bool) -> ir.Name:
        key = term.array, is_upper
        if key not in self.bounds:
            name = self.fresh("_".join(filter(None, ("upper" if is_upper else "lower", term.array))))
            self.scalars[name] = INT
            self.bounds[key] = Bound(name, *key)
        return ir.Name(place=place, name=self.bounds[key].name, type=INT)

    def fresh(self, word: str) -> str:
        name, number = word, 0
        while name in self.taken:
            number += 1
            name = f"{word}_{number}"
        self.taken.add(name)
        return name


# Where what varies in no loop is tested.
_ITERATION: Final = -1


def _order(term: DemandTerm) -> tuple[object, ...]:
    """Return a key that puts terms into the same order in every process."""
    return term.storage, term.index.constant, term.index.terms, term.shifts, term.at
