"""The decision whether a nest that carries scalars runs as a scan at a launch.

`offload.loops.tree.recurrences` tells whether the text is a scan. The rest follows from types and numbers: integers are
combined in any order, floats if the program allows it, complex numbers never; iterations are independent but for the
items of the scan; and no iteration writes to memory that its own totals are read from later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.promotion import is_complex, is_float
from offload.loops.tree.recurrences import scan_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from offload.loops.proofs.independence import Verdict
    from offload.loops.proofs.numbers import LaunchNumbers, View


def scan_at(
    typed: ir.Typed, nest: ir.Nest, launch: LaunchNumbers, verdict: Verdict, *, reassociates: bool, is_asserted: bool
) -> ir.Scan | str:
    """Return how a nest runs as a scan at a launch, or why it does not; nothing where it is no scan at all.

    With ``is_asserted``, the program says that iterations are independent where nothing is proved.
    """
    scan = scan_of(nest)
    if scan is None:
        return ""
    if any(is_complex(typed.scalars[item.name].dtype) for item in scan.items):
        return "there are no scans of complex numbers"
    floats = [item.name for item in scan.items if is_float(typed.scalars[item.name].dtype)]
    if floats and not reassociates:
        return f"add reassociate=True if {' and '.join(floats)} may be rounded otherwise than in order"
    if verdict.verdict != "parallel" and not (is_asserted and verdict.verdict == "unknown"):
        return "apart from that, it is not proved that iterations are independent"
    views = launch.views
    written = {one.array for one in walk(*nest.body) if isinstance(one, (ir.Store, ir.Atomic))} & views.keys()
    if verdict.verdict != "parallel" and (shared := _sharing(scan.first, written, views)):
        return f"the loop may write to {shared[1]} where the value before the loop is read, from {shared[0]}"
    if shared := _sharing(scan.loaded, scan.early, views):
        return f"an iteration writes to {shared[1]} before it has read all that it needs of {shared[0]}"
    return scan


def _sharing(read: Iterable[str], written: Iterable[str], views: Mapping[str, View]) -> tuple[str, str] | None:
    """Return an array that is read and one that is written that may share memory, or None."""
    pairs = ((one, other) for one in sorted(read) for other in sorted(written))
    return next((pair for pair in pairs if pair[0] == pair[1] or views[pair[0]].may_share(views[pair[1]])), None)
