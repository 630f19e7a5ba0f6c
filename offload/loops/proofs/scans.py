"""The decision whether a nest that carries scalars runs as a scan at a launch.

`offload.loops.tree.recurrences` tells whether the text is a scan. The rest follows from types and numbers: integers are
combined in any order, floats if the program allows it; iterations are independent but for the items of the scan; and no
iteration writes to memory that its own totals are read from later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.loops.tree.promotion import is_float
from offload.loops.tree.recurrences import scan_of

if TYPE_CHECKING:
    from offload.loops.proofs.independence import Verdict
    from offload.loops.proofs.numbers import LaunchNumbers
    from offload.loops.tree import ir


def scan_at(
    typed: ir.Typed, nest: ir.Nest, launch: LaunchNumbers, verdict: Verdict, *, reassociates: bool, is_asserted: bool
) -> ir.Scan | str:
    """Return how a nest runs as a scan at a launch, or why it does not; nothing where it is no scan at all.

    With ``is_asserted``, the program says that iterations are independent where nothing is proved.
    """
    scan = scan_of(nest)
    if scan is None:
        return ""
    floats = [item.name for item in scan.items if is_float(typed.scalars[item.name].dtype)]
    if floats and not reassociates:
        return f"add reassociate=True if {' and '.join(floats)} may be rounded otherwise than in order"
    if verdict.verdict != "parallel" and not (is_asserted and verdict.verdict == "unknown"):
        return "apart from that, it is not proved that iterations are independent"
    views = launch.views
    for one in sorted(scan.loaded):
        for other in sorted(scan.early):
            if one == other or views[one].may_share(views[other]):
                return f"an iteration writes to {other} before it has read all that it needs of {one}"
    return scan
