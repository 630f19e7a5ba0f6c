"""Arrays of which a clause of a nest names a section: the text keeps the indices of the whole array.

The loop function gets the section. Its indices are shifted: ``a[i]`` becomes ``a[i - a_lower_0]``, and the sizes of
the whole array are parameters. An index in front of the section must not count from the section's end, so the shift has
two forms. The plain one is a difference, which proofs understand; it is right if all indices are in the section. The
guarded one calls `within`, which moves other indices far outside.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from offload.loops.tree.sizes import FAR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WITHIN: Final = "<within>"


@dataclass(frozen=True, slots=True)
class Shift:
    """How the indices of an array are shifted."""

    array: str
    n_dims: int  # dimensions with bounds of their own: the leading ones
    is_guarded: bool

    def lower(self, dimension: int) -> str:
        """Return the parameter for the first index of the section."""
        return f"{self.array}_lower_{dimension}"

    def size(self, dimension: int) -> str:
        """Return the parameter for the size of the whole array."""
        return f"{self.array}_size_{dimension}"

    @property
    def parameters(self) -> list[str]:
        """The parameters for all dimensions, lower bounds and sizes in turn."""
        return [name for number in range(self.n_dims) for name in (self.lower(number), self.size(number))]


def within(index: int, lower: int, size: int) -> int:
    """Return the place in a section of an index of the whole array; far outside if it is in front of the section."""
    place = (index + size if index < 0 else index) - lower
    return place if place >= 0 else place - FAR


class WholeUseError(Exception):
    """The text uses an array of which there is a section without indices. ``args`` has its name."""


def shifted(loop: ast.For, shifts: Iterable[Shift]) -> ast.For:
    """Return a nest whose indices are those of the sections, in place; raise `WholeUseError`."""
    made: ast.For = _Shifter({shift.array: shift for shift in shifts}).visit(loop)
    return ast.fix_missing_locations(made)


class _Shifter(ast.NodeTransformer):
    def __init__(self, shifts: dict[str, Shift]) -> None:
        self._shifts = shifts

    def visit_Name(self, node: ast.Name) -> ast.expr:  # the name that NodeTransformer calls
        if node.id in self._shifts:
            raise WholeUseError(node.id)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:  # as above
        match node.value:
            case ast.Attribute(value=ast.Name(id=name), attr="shape") if name in self._shifts:
                return self._extent(self._shifts[name], node)
        return self._element(node)

    def _element(self, node: ast.Subscript) -> ast.expr:
        """Return an element, or a row, of an array or of anything else."""
        indices: list[ast.expr] = []
        root: ast.expr = node
        while isinstance(root, ast.Subscript):
            parts = root.slice.elts if isinstance(root.slice, ast.Tuple) else [root.slice]
            indices[:0] = parts
            root = root.value
        if not (isinstance(root, ast.Name) and root.id in self._shifts):
            return self.generic_visit(node)  # type: ignore[return-value]  # an expression
        made = self._indices(self._shifts[root.id], indices)
        index = made[0] if len(made) == 1 else ast.Tuple(made, ast.Load())
        return ast.copy_location(ast.Subscript(ast.Name(root.id, ast.Load()), index, node.ctx), node)

    def _indices(self, shift: Shift, indices: Sequence[ast.expr]) -> list[ast.expr]:
        if len(indices) < shift.n_dims or any(isinstance(one, ast.Slice) for one in indices[: shift.n_dims]):
            raise WholeUseError(shift.array)
        made = [self.visit(one) for one in indices]
        return [self._index(shift, at, one) if at < shift.n_dims else one for at, one in enumerate(made)]

    def _index(self, shift: Shift, dimension: int, index: ast.expr) -> ast.expr:
        lower, size = (ast.Name(name, ast.Load()) for name in (shift.lower(dimension), shift.size(dimension)))
        if shift.is_guarded:
            made: ast.expr = ast.Call(ast.Name(WITHIN, ast.Load()), [index, lower, size], [])
        else:
            if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
                index = ast.BinOp(size, ast.Sub(), index.operand)
            made = ast.BinOp(index, ast.Sub(), lower)
        return ast.copy_location(made, index)

    def _extent(self, shift: Shift, node: ast.Subscript) -> ast.expr:
        number = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(number, int) or number < 0:
            raise WholeUseError(shift.array)
        return node if number >= shift.n_dims else ast.copy_location(ast.Name(shift.size(number), ast.Load()), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:  # as above
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr="size") if name in self._shifts:
                if self._shifts[name].n_dims == 1:  # of more dimensions the text would need the others
                    return ast.copy_location(ast.Name(self._shifts[name].size(0), ast.Load()), node)
            case ast.Attribute(value=ast.Name(), attr="ndim"):
                return node
        return self.generic_visit(node)  # type: ignore[return-value]  # an expression

    def visit_Call(self, node: ast.Call) -> ast.expr:  # as above
        match node:
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]) if name in self._shifts:
                return ast.copy_location(ast.Name(self._shifts[name].size(0), ast.Load()), node)
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="atomic")), args=[array, index, *values]):
                element = self._element(ast.Subscript(array, index, ast.Load()))
                assert isinstance(element, ast.Subscript)
                node.args = [element.value, element.slice, *[self.visit(value) for value in values]]
                return node
        return self.generic_visit(node)  # type: ignore[return-value]  # an expression
