"""Recurrences ``s = s op e`` in an iteration, and what they need to run as a scan.

A scalar that each iteration only updates by one operator has, before any iteration, the value before the loop combined
with the *totals* of all earlier iterations. A scan computes the totals first, in any order. So a nest is a scan if an
iteration's total follows from nothing that is carried. `scan_of` returns the statements that compute it: an update is a
`Reduce` of the total there, and all that no update needs is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from offload.loops.tree import ir
from offload.loops.tree.nodes import expressions_of, mapped, names_assigned, names_in, walk
from offload.loops.tree.promotion import promote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offload.loops.tree.nodes import Node

_OPERATORS: Final[dict[str, ir.ReductionOperator]] = {"+": "+", "-": "+", "*": "*", "&": "&", "|": "|", "^": "^"}
_MIRRORED: Final = {"min": "max", "max": "min"}
_JUMPS: Final = (ir.Break, ir.Continue)
_NOWHERE: Final = ir.SourceLine("", 0)

# The values that an update combines a scalar with, each with whether it is subtracted.
_Terms = list[tuple[ir.Expression, bool]]


def scan_of(nest: ir.Nest) -> ir.Scan | None:
    """Return how a nest, with types or without, is a scan of all the scalars that it carries; None if it is none."""
    finder = _UpdateFinder(nest.carried)
    body = finder.block(nest.body)
    if not nest.carried or finder.operators.keys() != set(nest.carried) or finder.is_other:
        return None
    slicer = _TotalsSlicer(body, finder.operators)
    totals = slicer.totals()
    changed = {one.array for one in walk(*body) if isinstance(one, ir.Atomic)} | nest.privates.keys()
    loaded = {one.array for one in walk(*totals) if isinstance(one, ir.Load)}
    if slicer.names & set(nest.carried) or loaded & changed or _has_atomic_result(body, slicer.names):
        return None
    own = {one.name for one in walk(*body) if isinstance(one, ir.Local)}
    first = [part for one in body if _is_of_first(one) for part in walk(one)]
    return ir.Scan(
        items=tuple([ir.LoopReduction(finder.operators[name], name) for name in nest.carried]),
        totals=totals,
        started=tuple([name for name in nest.carried if name in finder.started]),
        loaded=frozenset(loaded - own),
        early=frozenset(_stored_before(body, slicer) - own),
        first=frozenset(part.array for part in first if isinstance(part, ir.Load)),
    )


def _is_of_first(statement: ir.Statement) -> bool:
    """Tell whether only the first iteration carries out a statement: lowering has made it, and not the program."""
    return isinstance(statement, ir.If) and any(isinstance(part, ir.Trip) for part in walk(statement.condition))


def reads_items(nest: ir.Nest) -> bool:
    """Tell whether a nest reads each scalar that it carries otherwise than to update it."""
    finder = _UpdateFinder(nest.carried)
    return names_in(*finder.block(nest.body)) >= set(nest.carried)


def with_totals(nest: ir.Nest, names: Mapping[str, str]) -> tuple[ir.Statement, ...]:
    """Return the body of an iteration that is given its totals, as scalars of these names, by item.

    Its update of an item takes the total if it is the only one, and each iteration carries it out.
    """
    assert nest.scan is not None
    body = []
    for statement in nest.body:
        finder = _UpdateFinder(nest.carried)
        made = finder.update(statement)
        name = next(iter(finder.operators), "")
        is_only = sum(name in names_assigned(other) for other in nest.body) == 1
        if not made or name not in names or not is_only:
            body.append(statement)
            continue
        total = ir.Name(place=statement.place, name=names[name], type=made[0].value.type)
        body.append(replace(made[0], value=total, is_taken_away=False))
    return tuple(body)


class _UpdateFinder:
    """Replaces the updates of scalars by `Reduce` statements, and takes note of other assignments."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)  # of the scalars
        self.operators: dict[str, ir.ReductionOperator] = {}  # by scalar
        self.started: set[str] = set()  # scalars that the first iteration gives their values before the loop
        self.is_other = False  # whether a scalar is assigned otherwise, or updated by two operators

    def block(self, statements: tuple[ir.Statement, ...]) -> tuple[ir.Statement, ...]:
        return tuple([made for statement in statements for made in self._made(statement)])

    def _made(self, statement: ir.Statement) -> list[ir.Statement]:
        updates = self.update(statement)
        if updates:
            return [*updates]
        match statement:
            case ir.If() if _is_of_first(statement):
                return [replace(statement, then=tuple(map(self._start, statement.then)))]
            case ir.If():
                return [replace(statement, then=self.block(statement.then), otherwise=self.block(statement.otherwise))]
            case ir.For() | ir.While():
                return [replace(statement, body=self.block(statement.body))]
            case ir.Assign(name=name) | ir.Atomic(result=str(name)) if name in self._names:
                self.is_other = True
        return [statement]

    def _start(self, statement: ir.Statement) -> ir.Statement:
        """Return a statement of the first iteration: a scalar's start is combined with nothing before it."""
        if isinstance(statement, ir.Assign) and statement.name in self._names:
            self.is_other = self.is_other or statement.name in self.started or statement.name in self.operators
            self.started.add(statement.name)
            return ir.Reduce(place=statement.place, name=statement.name, operator="+", value=statement.value)
        return statement

    def update(self, statement: ir.Statement) -> list[ir.Reduce]:
        """Return a statement as updates of a scalar; none if it is something else."""
        match statement:
            case ir.Assign(name=name, value=value) if name in self._names:
                found = self._combined(value, name)
            case ir.If(condition=condition, then=(ir.Assign(name=name, value=value),), otherwise=()) if (
                name in self._names
            ):
                operator = _chosen(condition, value, name)
                found = None if operator is None else (operator, [(value, False)])
            case _:
                return []
        if found is None or not found[1] or any(name in names_in(value) for value, _ in found[1]):
            return []
        operator, terms = found
        self.is_other = self.is_other or self.operators.setdefault(name, operator) != operator
        return [
            ir.Reduce(place=statement.place, name=name, operator=operator, value=_term(value, is_taken_away=less))
            for value, less in terms
        ]

    def _combined(self, value: ir.Expression, name: str) -> tuple[ir.ReductionOperator, _Terms] | None:
        """Return the operator and the terms of an expression that is a scalar combined with others."""
        sides: tuple[ir.Expression, ir.Expression]
        match value:
            case ir.Binary(operator=word) if word in _OPERATORS:
                operator, sides = _OPERATORS[word], (value.left, value.right)
            case ir.FunctionCall(function="min" | "max" as word, arguments=(left, right)):
                operator, sides = cast("ir.ReductionOperator", word), (left, right)
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                for one, other, is_mirrored in ((then, otherwise, False), (otherwise, then, True)):
                    if isinstance(other, ir.Name) and other.name == name:
                        chosen = _chosen(condition, one, name)
                        if chosen is None:
                            return None
                        return cast("ir.ReductionOperator", _MIRRORED[chosen] if is_mirrored else chosen), [
                            (one, False)
                        ]
                return None
            case _:
                return None
        for scalar, term, is_left in ((sides[0], sides[1], True), (sides[1], sides[0], False)):
            is_taken_away = word == "-"
            if is_taken_away and not is_left:
                continue
            if isinstance(scalar, ir.Name) and scalar.name == name:
                return operator, [(term, is_taken_away)]
            inner = self._combined(scalar, name)
            if inner is not None and inner[0] == operator and name not in names_in(term):
                return operator, [*inner[1], (term, is_taken_away)]
        return None


def _term(value: ir.Expression, *, is_taken_away: bool) -> ir.Expression:
    if not is_taken_away:
        return value
    return ir.Unary(place=value.place, operator="-", operand=value, type=value.type)


def _chosen(condition: ir.Expression, value: ir.Expression, name: str) -> ir.ReductionOperator | None:
    """Return whether the less or the greater of a scalar and a value is the value where a condition holds."""
    if not isinstance(condition, ir.Compare):
        return None
    left, right = (_plain(_unwidened(side)) for side in (condition.left, condition.right))
    scalar = ir.Name(place=_NOWHERE, name=name)
    wanted = _plain(_unwidened(value))
    if right == scalar and left == wanted:
        is_left = True
    elif left == scalar and right == wanted:
        is_left = False
    else:
        return None
    if condition.operator in ("<", "<="):
        return "min" if is_left else "max"
    if condition.operator in (">", ">="):
        return "max" if is_left else "min"
    return None


def _unwidened(expression: ir.Expression) -> ir.Expression:
    """Return an expression without the conversions around it that keep each value."""
    while isinstance(expression, ir.Convert):
        operand, to = expression.operand, expression.type
        if to is None or operand.type is None or promote(operand.type, to).dtype != to.dtype:
            break
        expression = operand
    return expression


def _plain(expression: ir.Expression) -> ir.Expression:
    """Return an expression without its place, its accesses' numbers and its types, to be compared with another."""

    def change(node: Node) -> Node:
        node = replace(node, place=_NOWHERE)
        if isinstance(node, ir.Load):
            node = replace(node, at=0)
        return replace(node, type=None) if isinstance(node, ir.Expression) else node

    return mapped(expression, change)


# -- what totals need ---------------------------------------------------------------------------------


class _TotalsSlicer:
    """Leaves out of an iteration all that no update of an item needs."""

    def __init__(self, body: tuple[ir.Statement, ...], operators: Mapping[str, ir.ReductionOperator]) -> None:
        self._body = body
        self._operators = operators  # by item
        self._own = {one.name for one in walk(*body) if isinstance(one, ir.Local)}  # arrays of the iteration
        self.names: set[str] = set()  # the scalars and the local arrays that updates need

    def totals(self) -> tuple[ir.Statement, ...]:
        """Return the statements that are left."""
        while True:
            before = len(self.names)
            kept = self._block(self._body)
            if len(self.names) == before:
                return kept

    def _block(self, statements: tuple[ir.Statement, ...]) -> tuple[ir.Statement, ...]:
        return tuple([made for one in statements if (made := self.kept(one)) is not None])

    def kept(self, statement: ir.Statement) -> ir.Statement | None:
        match statement:
            case ir.Reduce() if statement.name in self._operators:
                made: ir.Statement | None = replace(statement, operator=self._operators[statement.name])
            case ir.Assign() | ir.Local():
                made = statement if statement.name in self.names else None
            case ir.Store():
                made = statement if statement.array in self.names & self._own else None
            case ir.If():
                then, otherwise = self._block(statement.then), self._block(statement.otherwise)
                made = replace(statement, then=then, otherwise=otherwise) if then or otherwise else None
            case ir.For() | ir.While():
                body = self._block(statement.body)
                is_empty = all(isinstance(one, (*_JUMPS, ir.If, ir.Expression)) for one in walk(*body))
                made = None if is_empty else replace(statement, body=body)
            case ir.Break() | ir.Continue():
                made = statement
            case _:
                made = None
        if made is not None:
            self._need(made)
        return made

    def _need(self, statement: ir.Statement) -> None:
        """Need all that a statement itself reads."""
        expressions = expressions_of(statement)
        self.names |= names_in(*expressions)
        self.names |= {one.array for one in walk(*expressions) if isinstance(one, ir.Load)}


def _has_atomic_result(body: tuple[ir.Statement, ...], names: Collection[str]) -> bool:
    return any(isinstance(one, ir.Atomic) and one.result in names for one in walk(*body))


def _stored_before(body: tuple[ir.Statement, ...], slicer: _TotalsSlicer) -> set[str]:
    """Return the arrays that an iteration may write before the last statement that its totals need."""
    last = 0
    for number, statement in enumerate(body):
        if slicer.kept(statement) is not None and not isinstance(statement, _JUMPS):
            last = number + 1
    return {one.array for one in walk(*body[:last]) if isinstance(one, ir.Store)}
