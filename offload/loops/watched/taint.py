"""Which loops of an iteration may have any number of trips while the elements of some arrays are garbage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.loops.tree import ir
from offload.loops.tree.nodes import walk

if TYPE_CHECKING:
    from collections.abc import Collection

    from offload.loops.tree.ir import Expression, Nest, Statement


def tainted_loops(nest: Nest, arrays: Collection[str]) -> frozenset[int]:
    """Return the loops, by their `id`, whose trips may follow from elements of these arrays.

    A variable assigned in a branch or a loop that follows from them follows from them as well.
    """
    taint = _Taint(arrays)
    size = -1
    while size < taint.size:
        size = taint.size
        taint.block(nest.body, is_tainted=False)
    return frozenset(taint.loops)


class _Taint:
    def __init__(self, arrays: Collection[str]) -> None:
        self.arrays = set(arrays)  # with garbage in them
        self.names: set[str] = set()  # scalars that may be garbage
        self.loops: set[int] = set()  # by `id`

    @property
    def size(self) -> int:
        return len(self.arrays) + len(self.names) + len(self.loops)

    def has(self, *expressions: Expression | None) -> bool:
        """Tell whether one of these follows from the arrays."""
        return any(
            (isinstance(node, ir.Name) and node.name in self.names)
            or (isinstance(node, ir.Load) and node.array in self.arrays)
            for expression in expressions
            if expression is not None
            for node in walk(expression)
        )

    def block(self, statements: tuple[Statement, ...], *, is_tainted: bool) -> None:
        for statement in statements:
            self.statement(statement, is_tainted=is_tainted)

    def statement(self, node: Statement, *, is_tainted: bool) -> None:
        match node:
            case ir.Assign(name=name, value=value) | ir.Reduce(name=name, value=value):
                if is_tainted or self.has(value):
                    self.names.add(name)
            case ir.Store():
                if is_tainted or self.has(node.value, *node.indices):
                    self.arrays.add(node.array)
            case ir.Atomic():
                if is_tainted or self.has(node.value, node.expected, *node.indices):
                    self.arrays.add(node.array)
                if node.result is not None and node.array in self.arrays:
                    self.names.add(node.result)
            case ir.Local(name=name, fill=fill):
                if is_tainted or self.has(fill):
                    self.arrays.add(name)
            case ir.If():
                inside = is_tainted or self.has(node.condition)
                self.block(node.then, is_tainted=inside)
                self.block(node.otherwise, is_tainted=inside)
            case ir.For():
                self.loop(node, is_tainted=is_tainted or self.has(node.start, node.stop, node.step))
                if id(node) in self.loops:
                    self.names.add(node.variable)
            case ir.While():
                self.loop(node, is_tainted=is_tainted or self.has(node.condition))
            case _:
                pass

    def loop(self, node: ir.For | ir.While, *, is_tainted: bool) -> None:
        if is_tainted:
            self.loops.add(id(node))
        self.block(node.body, is_tainted=is_tainted)
