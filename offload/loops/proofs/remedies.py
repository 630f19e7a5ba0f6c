"""Messages about loops whose iterations depend on each other: the dependence, proved or seen, and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.errors import LoopError
from offload.loops.proofs.reports import iteration
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.text import element_text, text_of
from offload.loops.tree.uses import numbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.loops.proofs.findings import Findings, Observed
    from offload.loops.proofs.independence import DependenceKind, Verdict
    from offload.loops.proofs.lost_updates import LostUpdate
    from offload.loops.proofs.numbers import Trips

_ORDER: tuple[DependenceKind, ...] = "flow", "anti", "output"
_UPDATES = frozenset({"+", "-", "*", "&", "|", "^"})


def proved_text(verdict: Verdict) -> str:
    """Return the result of the test for independence, for a message."""
    if not verdict.dependences:
        return "it is not proved that iterations are independent"
    found = verdict.dependences[0]
    arrays = " and ".join(repr(name) for name in dict.fromkeys((found.source.array, found.sink.array)))
    distance = found.distance[0] if len(found.distance) == 1 else found.distance
    return (
        f"iterations depend on each other by {arrays}: {found.kind} dependence of distance {distance}, from line "
        f"{found.source.place.line} to line {found.sink.place.line}"
    )


def proved_error(name: str, nest: ir.Nest, verdict: Verdict) -> LoopError:
    """Return the error of a nest of the function `name` of which a dependence is proved."""
    sink = verdict.dependences[0].sink
    remedy = _for_updates(nest, sink.array) or "private= for an array that each iteration fills for itself"
    return _error(name, sink.place, proved_text(verdict), f"use seq=True, or {remedy}")


def lost_text(updates: Sequence[LostUpdate]) -> str:
    """Return the fault of updates that may be lost, and the remedy."""
    lines: dict[str, int] = {}
    stores = [update.store for update in updates]
    for one in stores:
        lines.setdefault(element_text(one.array, one.indices), one.place.line)
    elements = " and ".join(f"{element} (line {line})" for element, line in lines.items())
    arrays = ", ".join(f'"{name}"' for name in dict.fromkeys(one.array for one in stores))
    return (
        f"several iterations may update {elements} at the same time, and updates are then lost; add atomic=[{arrays}], "
        "reduction= if it is one element, check=True to look for such iterations, or independent=True if there are none"
    )


def seen_error(name: str, nest: ir.Nest, axes: Sequence[Trips], findings: Findings) -> LoopError:
    """Return the error of a nest of the function `name` in a run of which dependences were seen."""
    found = min(findings.found.values(), key=lambda seen: _ORDER.index(seen.kind))
    first, last = found.example.trips
    source, sink = (numbered(nest)[at].place for at in found.example.accesses)
    element = ", ".join(map(str, found.example.element)) or "()"
    text = (
        f"iterations depend on each other by {found.array!r}: {found.kind} dependence of distance "
        f"{_distances(found)}, from line {source.line} at {iteration(nest, axes, first)} to line {sink.line} at "
        f"{iteration(nest, axes, last)}, by {found.array}[{element}]"
    )
    kinds = {kind for array, kind in findings.found if array == found.array}
    is_own = "flow" not in kinds and found.array not in findings.exposed
    return _error(name, sink, text, _remedy(nest, found.array, is_own=is_own))


def _distances(found: Observed) -> str:
    if found.min_distance == found.max_distance:
        return str(found.min_distance)
    return f"{found.min_distance} to {found.max_distance}"


def _remedy(nest: ir.Nest, array: str, *, is_own: bool) -> str:
    """Return the remedy for the dependences by an array, which may be one that each iteration fills for itself."""
    if is_own:
        return f'use private=["{array}"], or lastprivate= where its contents are used afterwards'
    return _for_updates(nest, array) or "the loop is not parallel: use seq=True"


def _for_updates(nest: ir.Nest, array: str) -> str:
    """Return the remedy for an array that is only updated; empty for others."""
    return f'use atomic=["{array}"], or reduction= if it is one element' if is_updated(nest, array) else ""


def is_updated(nest: ir.Nest, array: str) -> bool:
    """Tell whether a nest only updates an array: ``a[e] = a[e] + v``."""
    stores = [node for node in walk(*nest.body) if isinstance(node, ir.Store) and node.array == array]
    loads = {node.at for node in walk(*nest.body) if isinstance(node, ir.Load) and node.array == array}
    updated = {_updated(store) for store in stores}
    return bool(stores) and updated == loads


def _updated(store: ir.Store) -> int | None:
    """Return the load, by its number, of the element that a store updates; None if it is no update."""
    value: ir.Expression = store.value
    while isinstance(value, ir.Convert):
        value = value.operand
    if not isinstance(value, ir.Binary) or value.operator not in _UPDATES:
        return None
    sides = (value.left,) if value.operator == "-" else (value.left, value.right)
    for side in sides:
        operand: ir.Expression = side
        while isinstance(operand, ir.Convert):
            operand = operand.operand
        if isinstance(operand, ir.Load) and operand.array == store.array:
            same = [text_of(index) for index in operand.indices] == [text_of(index) for index in store.indices]
            return operand.at if same else None
    return None


def _error(name: str, place: ir.SourceLine, text: str, remedy: str) -> LoopError:
    message = f"{place.file}:{place.line}, {name}: {text}; iterations may not run in parallel: {remedy}"
    return LoopError(message, place.file, place.line, "dependence")
