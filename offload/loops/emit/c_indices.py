"""Indices of accesses as C: places in arrays, of 32 bits where these do.

Theory of operation
-------------------
With ``index_bits`` of 32 a place, an index in its array's range, is a number of 32 bits. It has a sign where it is made
of such numbers by at most one operation: in range the result is exact, and since it cannot overflow a compiler may turn
products into sums and addresses into steps. Any other is taken modulo 2**32 from what has 64 bits, without a sign: what
has been made narrow and wide again costs two shifts if it has one. So have the offsets, sums of products of places and
extents that are at most the number of elements.

An index that may be out of range is *clamped*, and noted in ``fault``, or *tried*: in a loop that `c_ranges` writes
twice a flag is all that is kept of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from offload.loops.tree import ir
from offload.loops.tree.promotion import is_integer, nbytes_of

if TYPE_CHECKING:
    from offload.loops.emit.c_scope import Scope
    from offload.loops.tree.ir import Dtype, Expression

_HELD_BY_INT32: Final = frozenset({"bool", "int8", "int16", "int32", "uint8", "uint16"})


class Indices(ABC):
    """Writes indices.

    Parameters
    ----------
    scope : Scope
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @abstractmethod
    def text(self, node: Expression) -> str:
        """Return an expression as C."""

    def place(self, array: str, dimension: int, index: Expression, mode: ir.Mode) -> str:
        """Return an index that is in range, once it is wrapped if the mode says so."""
        extent = self._scope.extent(array, dimension)
        if self._scope.index_bits == 64:
            text = self.text(index)
            return f"wrapped({text}, {extent})" if mode == "wrap" else f"({text})"
        exact = self._in_one_step(index)
        if mode == "wrap":
            return f"wrapped32({exact or f'(int32_t){self._modulo(index)}'}, {extent})"
        return exact or self._modulo(index)

    def bounded(self, node: ir.Load, dimension: int, index: Expression) -> str:
        """Return a load's index, or 0 where it is out of range, which is noted then."""
        bound = self._scope.bound(node.array, dimension)
        if node.at in self._scope.tried:
            name, before, after = "tried", "&is_missed", ""
        else:
            name, before, after = "clamped", "&fault", f", {node.at}, {dimension}"
        exact = self.held_by_int32(index) if self._scope.index_bits == 32 else None
        if exact is not None:
            return f"{name}32({before}, {exact}, {bound}{after})"
        casts = "(uint32_t)" if self._scope.index_bits == 32 else ""
        return f"{casts}{name}({before}, {self.text(index)}, {bound}{after})"

    def narrow(self, node: Expression) -> str:
        """Return an integer that is known to be one of 32 bits as such."""
        return self._in_one_step(node) or f"(int32_t){self._modulo(node)}"

    def held_by_int32(self, node: Expression) -> str | None:
        """Return an integer in 32 bits if its type, or that of its variable, tells that it fits."""
        match node:
            case ir.Constant() if is_integer(_dtype(node)) and -(2**31) < node.value < 2**31:
                return f"{int(node.value)}" if node.value >= 0 else f"({int(node.value)})"
            case ir.Name() if node.name in self._scope.narrow:
                return self._scope.variable(node.name)
            case ir.Extent() if self._scope.index_bits == 32:
                return self._scope.extent(node.array, node.dimension)
            case ir.Trip() if self._scope.index_bits == 32:
                return f"t{node.axis}"
            case ir.Convert() if _dtype(node) == "int64":
                return self.held_by_int32(node.operand)
            case _ if _dtype(node) in _HELD_BY_INT32:
                text = self.text(node)
                return text if _dtype(node) == "int32" else f"((int32_t){text})"
            case _:
                return None

    def _in_one_step(self, node: Expression) -> str | None:
        """Return an integer whose value fits 32 bits as one operation of such, if it is one."""
        match node:
            case ir.Binary(operator="+" | "-" | "*") if _dtype(node) == "int64":
                left, right = self.held_by_int32(node.left), self.held_by_int32(node.right)
                return f"({left} {node.operator} {right})" if left and right else None
            case ir.Unary(operator="-") if _dtype(node) == "int64":
                operand = self.held_by_int32(node.operand)
                return f"(-{operand})" if operand else None
            case _:
                return self.held_by_int32(node)

    def _modulo(self, node: Expression) -> str:
        """Return an integer modulo 2**32, of which sums and products follow from those of their parts."""
        match node:
            case ir.Binary(operator="+" | "-" | "*") if nbytes_of(_dtype(node)) == 8:
                return f"({self._modulo(node.left)} {node.operator} {self._modulo(node.right)})"
            case ir.Unary(operator="-") if nbytes_of(_dtype(node)) == 8:
                return f"(0u - {self._modulo(node.operand)})"
            case ir.Constant():
                return f"{int(node.value) % 2**32}u"
            case _:
                return f"(uint32_t)({self.text(node)})"


def _dtype(node: Expression) -> Dtype:
    assert node.type is not None
    return node.type.dtype
