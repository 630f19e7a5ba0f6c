"""Scalars that pass from one iteration to the next, in nests whose iterations run in order.

An iteration finds such a scalar as the one before has left it; the first finds the value before the loop. If that value
is an element of an array, the host does not have it: then the first iteration carries out the statements that give it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from offload.loops.tree import ir
from offload.loops.tree.updates import update_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.loops.tree.updates import Function


def items_started_in(
    body: Sequence[ast.stmt], reductions: Sequence[ir.LoopReduction], function: Function
) -> frozenset[str]:
    """Return the items of ``min`` and ``max`` that statements start: ``t = value``, where the value is not of ``t``.

    In CPython such an item is what the last start, and the updates since, have made of it. So it is no reduction of all
    iterations, but a scalar whose last value is returned.
    """
    names = {one.name for one in reductions if one.operator in ("min", "max")}
    found: set[str] = set()
    pending: list[ast.AST] = list(body) if names else []
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt) and update_of(node, _own_name, function) is not None:
            continue
        if isinstance(node, ast.Assign):
            read = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)} - read
        pending += ast.iter_child_nodes(node)
    return frozenset(found & names)


def _own_name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def at_first(statements: Sequence[ir.Statement], n_axes: int, place: ir.SourceLine) -> ir.If:
    """Return statements that only the first iteration of a nest of ``n_axes`` loops carries out."""
    zero = ir.Constant(place=place, value=0)
    tests = [
        ir.Compare(place=place, operator="==", left=ir.Trip(place=place, axis=axis), right=zero)
        for axis in range(n_axes)
    ]
    condition: ir.Expression = tests[0]
    for test in tests[1:]:
        condition = ir.Logical(place=place, operator="and", left=condition, right=test)
    return ir.If(place=place, condition=condition, then=tuple(statements))
