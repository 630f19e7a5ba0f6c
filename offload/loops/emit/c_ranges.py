"""Check the indices of an inner loop once, before it.

An index that moves evenly with the loop's variable, or not at all, takes the values between two ends. If both ends are
inside the array, the loop needs no check. Such a loop is written twice: without these checks, and with all of them. The
ends are computed modulo 2**64, as the program's integers are, so the test is exact. In the first form, other indices
may be *tried*: a wrong index is replaced by 0 and sets a flag, and then the second form runs. docs/design/loops.md has
the proof and the gain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from offload.loops.tree import ir
from offload.loops.tree.nodes import can_divide_by_zero, constant_step, names_assigned, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.tree.ir import Expression

# Of a loop that is written twice.
_MOST_NODES: Final = 300

_LOOPS: Final = (ir.For, ir.While)
_UNDONE: Final = (ir.Expression, ir.Assign, ir.Reduce, ir.If, ir.Break, ir.Continue)


class Moving(NamedTuple):
    """An index whose ends tell whether it is in range: it moves by `slope` with the loop's variable: 1, -1 or 0."""

    array: str
    dimension: int  # of the array, which the index is for
    place: Expression  # the index, as an expression
    slope: int  # 1, -1 or 0


class OnceChecked(NamedTuple):
    """The checks that the first form of a loop leaves out."""

    moving: tuple[Moving, ...]  # what is tested before it
    inside: frozenset[int]  # the accesses, by `at`, that need no check if the tests hold
    tried: frozenset[int]  # the loads that are tried
    scalars: tuple[str, ...]  # those that get their values back if a load was missed


def once_checked(loop: ir.For, modes: Mapping[int, ir.Mode]) -> OnceChecked | None:
    """Return the accesses covered by one check before a loop, or None. An access (`at`) not in ``modes`` is checked."""
    nodes = list(walk(*loop.body))
    if len(nodes) > _MOST_NODES or any(isinstance(node, _LOOPS) for node in nodes) or constant_step(loop) is None:
        return None
    changed = names_assigned(*loop.body)
    moving: list[Moving] = []
    inside: set[int] = set()
    others: list[ir.Load | ir.Store | ir.Atomic] = []
    for node in nodes:
        if not isinstance(node, (ir.Load, ir.Store, ir.Atomic)) or not node.indices:
            continue
        slopes = [_slope(index, loop.variable, changed) for index in node.indices]
        if None in slopes:
            others.append(node)
        elif modes.get(node.at) != "off":
            inside.add(node.at)
            ends = zip(node.indices, slopes, strict=True)
            moving += [Moving(node.array, k, index, slope or 0) for k, (index, slope) in enumerate(ends)]
    inside -= {node.at for node in others}
    tried = {node.at for node in others if modes.get(node.at, "check") == "check"}
    plain = [node for node in others if node.at not in tried]
    if not all(isinstance(node, _UNDONE) and not can_divide_by_zero(node) for node in nodes) or any(
        _may_follow(inner, changed, tried) for node in plain for inner in walk(*node.indices)
    ):
        tried = set()
    if not (inside or tried):
        return None
    return OnceChecked(tuple(moving), frozenset(inside), frozenset(tried), tuple(sorted(changed)))


def _slope(index: Expression, variable: str, changed: set[str]) -> int | None:
    """Return by how much an index moves with a loop's variable; None if that is not known, or not by 1, -1 or 0.

    An index that may fail, or reads an element, is not evaluated before the loop: its slope is not known.
    """
    slope: int | None = None
    match index:
        case ir.Constant() | ir.Extent():
            slope = 0
        case ir.Name():
            slope = 1 if index.name == variable else None if index.name in changed else 0
        case ir.Binary(operator="+" | "-" | "*"):
            left, right = _slope(index.left, variable, changed), _slope(index.right, variable, changed)
            if left is not None and right is not None:
                moves = {"+": left + right, "-": left - right, "*": 2 if left or right else 0}[index.operator]
                slope = moves if moves in (1, 0, -1) else None
        case ir.Unary(operator="-"):
            operand = _slope(index.operand, variable, changed)
            slope = None if operand is None else -operand
        case ir.Convert():
            slope = 0 if _slope(index.operand, variable, changed) == 0 else None
        case _:
            pass
    return slope


def _may_follow(node: ir.Expression | ir.Statement, changed: set[str], tried: set[int]) -> bool:
    """Tell whether a part of an index may have another value where a load was missed."""
    return (isinstance(node, ir.Name) and node.name in changed) or (isinstance(node, ir.Load) and node.at in tried)
