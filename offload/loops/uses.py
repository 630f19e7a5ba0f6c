"""Which accesses have which number, and which scalars decisions about a nest may follow from."""

from __future__ import annotations

from typing import TypeAlias

from offload.loops import ir
from offload.loops.nodes import walk

Numbered: TypeAlias = ir.Load | ir.Store | ir.Atomic


def numbered(nest: ir.Nest) -> dict[int, Numbered]:
    """Return the accesses of a nest by their number ``at``."""
    return {node.at: node for node in walk(*nest.body) if isinstance(node, (ir.Load, ir.Store, ir.Atomic))}


def deciding_names(typed: ir.Typed) -> tuple[str, ...]:
    """Return the scalars that decisions may follow from: all but floats that only bodies of nests read."""
    parts: list[ir.Statement | ir.Expression] = [
        part for part in typed.function.parts if isinstance(part, ir.Statement)
    ]
    for nest in typed.function.nests:
        parts += [bound for axis in nest.axes for bound in (axis.start, axis.stop, axis.step)]
    outside = {node.name for node in walk(*parts) if isinstance(node, (ir.Name, ir.Assign))}
    return tuple(
        sorted(name for name, kind in typed.scalars.items() if name in outside or not kind.dtype.startswith("float"))
    )
