"""Write a nest as a scan in C: a function for the totals of a chunk, and one for its iterations.

Both take the same arguments. Among the words that a chunk leaves, there is one for each item of the scan. ``totals``
leaves the chunk's total there. The launcher replaces it by the item's value before the chunk, with which the iterations
start. They leave the item's value after the chunk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from offload.loops.emit import c_host
from offload.loops.emit.c_expressions import literal
from offload.loops.emit.c_prelude import C_TYPES
from offload.loops.emit.emit_c import KernelWriter, scope_of
from offload.loops.tree.promotion import identity

if TYPE_CHECKING:
    from offload.loops.emit.c_scope import KernelScope
    from offload.loops.emit.emit_c import CKernel, CVariant
    from offload.loops.tree import ir
    from offload.loops.tree.ir import Nest, Typed

TOTALS: Final = "totals"  # the name of the function


def emit_scan(typed: Typed, nest: Nest, variant: CVariant) -> CKernel:
    """Return a nest as C, called as that of `emit_c.emit` is; the text has a function ``totals`` besides."""
    return _HostScanWriter(typed, nest, variant, scope_of(typed, nest, variant)).emitted()


def of_totals(nest: Nest) -> Nest:
    """Return the nest whose reductions are the totals of a scan."""
    scan = nest.scan
    assert scan is not None
    return replace(nest, body=scan.totals, reductions=scan.items, privates={}, last=(), carried=(), scan=None)


class _HostScanWriter(KernelWriter):
    _entries: ClassVar[tuple[str, ...]] = (c_host.ENTRY, TOTALS)

    def __init__(self, typed: Typed, nest: Nest, variant: CVariant, scope: KernelScope) -> None:
        super().__init__(typed, nest, variant, scope)
        self._totals = TotalsWriter(typed, of_totals(nest), variant, scope)

    def _start_carried(self) -> None:
        """Do nothing: words have the values before the chunk."""

    def _left(self) -> dict[str, str]:
        return super()._left() | {name: f"v_{name}" for name in self._nest.carried}

    def _bodies(self) -> list[list[str]]:
        starts, totals = [], []
        for item in self._nest.scan.items:  # type: ignore[union-attr]  # it has one
            dtype, place = self._scope.dtype(item.name), self._words_at(item.name)
            test = " != 0" if dtype == "bool" else ""
            starts.append(f"{C_TYPES[dtype]} v_{item.name} = {place}{test};")
            totals.append(f"{place} = r_{item.name};")
        (iterations,) = super()._bodies()
        return [[*starts, *iterations], [*self._totals.lines(), *totals]]


class TotalsWriter(KernelWriter):
    """Writes the totals of the iterations of a chunk."""

    def lines(self) -> list[str]:
        """Return the lines that make the totals, as the items of reductions."""
        return [*(total_of(item, self._scope) for item in self._nest.reductions), *self._loops()]

    def iteration(self) -> list[str]:
        """Return the lines of one iteration, which update the totals."""
        return self._iteration()

    def end_at(self, label: str) -> None:
        """Have iterations end at a label of their own, in a function with others."""
        self._statements.end = label


def total_of(item: ir.LoopReduction, scope: KernelScope) -> str:
    """Return the declaration of an item's total, of no iteration so far."""
    dtype = scope.dtype(item.name)
    return f"{C_TYPES[dtype]} r_{item.name} = {literal(identity(item.operator, dtype), dtype)};"
