"""Nodes of the typed IR, made by passes: the few forms of the code that watches a nest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.loops.tree import ir
from offload.loops.tree.slices import INT, TRUTH

if TYPE_CHECKING:
    from offload.loops.tree.ir import AtomicOperator, Expression, Operator, Relation, SourceLine, Statement, Type


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
