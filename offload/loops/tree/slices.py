"""Index slices: indices written anew, so that they can be had before the statement that they stand in.

A test of ownership before a write needs only the parallel iterators, numbers of the launch, variables of inner loops
and elements that the nest does not write. Scalars that are assigned from such are seen through. The head of the
iteration is passed on every path, the statement itself is not: so an element that may be outside of its array, and a
division, are asked for inside of their bounds only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from offload.loops.tree import ir
from offload.loops.tree.nodes import can_divide_by_zero, mapped, walk
from offload.loops.tree.promotion import is_complex, is_float

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offload.loops.tree.ir import AtomicOperator, Expression, Operator, Relation, SourceLine, Statement, Type
    from offload.loops.tree.nodes import Node


INT: Final = ir.Type("int64", is_weak=True)
TRUTH: Final = ir.Type("bool", is_weak=True)

# What is longer is not worth a test of its own, and could double with each assignment.
_MOST_NODES: Final = 64


@dataclass(frozen=True, slots=True)
class Slice:
    """An expression that can be had at the head of the innermost of `loops`, by their numbers, or of the iteration."""

    expression: ir.Expression  # of scalars and elements that the nest does not assign
    loops: frozenset[int]  # in whose trips it varies, by number


def slice_of(
    expression: ir.Expression, known: Mapping[str, Slice], assigned: Collection[str], changing: Collection[str]
) -> Slice | None:
    """Return the slice of an expression, or None if it has none.

    ``known`` has the slices of scalars at the place of the expression. An iteration assigns the scalars in
    ``assigned``. The elements of arrays in ``changing`` may change.
    """
    loops: set[int] = set()

    def seen_through(node: Node) -> Node:
        match node:
            case ir.Name(name=name) if name in assigned:
                if name not in known:
                    raise _NoSliceError
                loops.update(known[name].loops)
                return known[name].expression
            case ir.Load(array=array) if array in changing:
                raise _NoSliceError
            case _:
                return node

    try:
        made = mapped(expression, seen_through)
    except _NoSliceError:
        return None
    return Slice(made, frozenset(loops)) if sum(1 for _ in walk(made)) <= _MOST_NODES else None


class _NoSliceError(Exception):
    pass


def careful(expression: ir.Expression, checked: Collection[int]) -> ir.Expression:
    """Return an expression that is 0 where one of the loads in ``checked`` (by `at`) or a division would fail."""

    def change(node: Node) -> Node:
        match node:
            case ir.Load(indices=indices) if node.at in checked:
                tests = [test for k, index in enumerate(indices) for test in _inside(as_index(index), node.array, k)]
                return guarded(node, joined("and", tests))
            case ir.Binary(right=right) if can_divide_by_zero(node):
                test = ir.Compare(place=node.place, operator="!=", left=right, right=zero(right), type=TRUTH)
                return guarded(node, test)
            case _:
                return node

    return mapped(expression, change)


def as_index(index: ir.Expression) -> ir.Expression:
    """Return an index as ``int64``."""
    assert index.type is not None
    if index.type.dtype == "int64":
        return index
    return ir.Convert(place=index.place, to=INT, operand=index, type=INT)


def zero(like: ir.Expression) -> ir.Constant:
    """Return a zero of an expression's type."""
    assert like.type is not None
    dtype = like.type.dtype
    value = False if dtype == "bool" else 0.0 if is_float(dtype) else 0j if is_complex(dtype) else 0
    return ir.Constant(place=like.place, value=value, type=like.type)


def guarded(value: ir.Expression, condition: ir.Expression) -> ir.Expression:
    """Return ``value if condition else 0``."""
    return ir.Select(place=value.place, condition=condition, then=value, otherwise=zero(value), type=value.type)


def joined(operator: Literal["and", "or"], tests: list[ir.Expression]) -> ir.Expression:
    """Return tests joined by ``and`` or ``or``."""
    made = tests[0]
    for test in tests[1:]:
        made = ir.Logical(place=made.place, operator=operator, left=made, right=test, type=TRUTH)
    return made


def _inside(index: ir.Expression, array: str, dimension: int) -> list[ir.Expression]:
    extent = ir.Extent(place=index.place, array=array, dimension=dimension, type=INT)
    least = ir.Unary(place=index.place, operator="-", operand=extent, type=INT)
    return [
        ir.Compare(place=index.place, operator="<=", left=least, right=index, type=TRUTH),
        ir.Compare(place=index.place, operator="<", left=index, right=extent, type=TRUTH),
    ]


# -- nodes that passes make ---------------------------------------------------------------------------


class Maker:
    """Makes nodes at one place of the program's text."""

    def __init__(self, place: SourceLine) -> None:
        self.place = place

    def number(self, value: int, of: Type = INT) -> ir.Constant:
        return ir.Constant(place=self.place, value=value, type=of)

    def name(self, name: str, of: Type = INT) -> ir.Name:
        return ir.Name(place=self.place, name=name, type=of)

    def binary(self, operator: Operator, left: Expression, right: Expression) -> ir.Binary:
        return ir.Binary(place=self.place, operator=operator, left=left, right=right, type=left.type)

    def plus(self, left: Expression, right: Expression) -> Expression:
        """Return a sum; of a zero the other side."""
        for one, other in ((left, right), (right, left)):
            if isinstance(one, ir.Constant) and not one.value:
                return other
        return self.binary("+", left, right)

    def compare(self, left: Expression, operator: Relation, right: Expression) -> ir.Compare:
        return ir.Compare(place=self.place, operator=operator, left=left, right=right, type=TRUTH)

    def both(self, *tests: Expression) -> Expression:
        """Return tests joined by ``and``."""
        made = tests[0]
        for test in tests[1:]:
            made = ir.Logical(place=self.place, operator="and", left=made, right=test, type=TRUTH)
        return made

    def without(self, test: Expression) -> ir.Unary:
        """Return ``not test``."""
        return ir.Unary(place=self.place, operator="not", operand=test, type=TRUTH)

    def select(self, condition: Expression, then: Expression, otherwise: Expression) -> ir.Select:
        return ir.Select(place=self.place, condition=condition, then=then, otherwise=otherwise, type=then.type)

    def convert(self, value: Expression, to: Type) -> Expression:
        if value.type == to:
            return value
        return ir.Convert(place=self.place, to=to, operand=value, type=to)

    def load(self, array: str, index: Expression, at: int, of: Type) -> ir.Load:
        return ir.Load(place=self.place, array=array, indices=(index,), at=at, type=of)

    def extent(self, array: str, dimension: int) -> ir.Extent:
        return ir.Extent(place=self.place, array=array, dimension=dimension, type=INT)

    def let(self, name: str, value: Expression) -> ir.Assign:
        return ir.Assign(place=self.place, name=name, value=value)

    def store(self, array: str, index: Expression, value: Expression, at: int) -> ir.Store:
        return ir.Store(place=self.place, array=array, indices=(index,), value=value, at=at)

    def step(
        self, operator: AtomicOperator, array: str, index: Expression, value: Expression, at: int, result: str | None
    ) -> ir.Atomic:
        """Return an atomic step; `result` gets the old value."""
        return ir.Atomic(
            place=self.place, array=array, indices=(index,), operator=operator, value=value, at=at, result=result
        )

    def when(self, condition: Expression, *then: Statement, otherwise: tuple[Statement, ...] = ()) -> ir.If:
        return ir.If(place=self.place, condition=condition, then=then, otherwise=otherwise)
