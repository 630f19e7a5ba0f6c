"""The words of all pictures of a task graph: the looks of states, places, durations, the summary.

Each picture is one file; `offload.views.layout` has the geometry that they share. Rich is imported by
`offload.views.terminal` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from offload.tasks.graph import Edge, Graph, Node

Phase = Literal["waiting", "running", "done", "failed", "not run"]

# The engine may name finer states than a picture can colour: this says which of five looks each one takes.
PHASES: dict[str, Phase] = {
    "running": "running",
    "launched": "running",
    "started": "running",
    "detached": "running",
    "done": "done",
    "complete": "done",
    "completed": "done",
    "finished": "done",
    "failed": "failed",
    "error": "failed",
    "not run": "not run",  # a task that it depends on failed
    "poisoned": "not run",
    "skipped": "not run",
    "cancelled": "not run",
}
SYMBOLS: dict[Phase, str] = {"waiting": "·", "running": "»", "done": "✓", "failed": "✗", "not run": "⊘"}

# Above this the n² / 8 bytes of a transitive reduction are not worth it, and nobody can read the picture anyway.
MAX_REDUCED_NODES = 5_000


def phase(node: Node) -> Phase:
    """Return which of the five looks a node takes; a state unknown here waits."""
    return PHASES.get(node.state, "waiting")


def is_copy(node: Node) -> bool:
    """Tell whether a node is a routine that copies, which pictures colour apart from bodies and waits."""
    return node.directive == "copy" or node.directive.startswith("target_memcpy")


def device_label(node: Node) -> str:
    """Return ``"host"``, ``"dev N"``, or ``"dev N+M"`` of several devices."""
    return f"dev {'+'.join(map(str, node.device_nums))}" if node.device_nums else "host"


def place_label(node: Node) -> str:
    """Return where a node runs, and that it is complete only when an event is fulfilled: ``"host, detached"``."""
    return device_label(node) + (", detached" if node.detach else "")


def duration_label(time_s: float | None) -> str:
    """Return a time of `time_s` seconds with three significant digits and its unit; ``""`` for None."""
    if time_s is None:
        return ""
    for unit, size_s in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(time_s) >= 0.9995 * size_s:
            value = time_s / size_s
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{time_s * 1e9:.0f} ns"


def printable(text: str) -> str:
    """Return `text` on one line, with ``�`` for each code that would move the cursor or is not a character."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text).strip()


_LOOK_ALIKES = str.maketrans("×µ²·…–—≤≥→»✓✗⊘●○�", "xu2-~--<>>>+!0*o?")  # noqa: RUF001  # the signs are meant


def look_alike(text: str) -> str:
    """Return `text` in ASCII: a similar character for each sign that the library prints, else ``?``."""
    return text.translate(_LOOK_ALIKES).encode("ascii", "replace").decode()


def drawn_edges(graph: Graph, first: int | None = None) -> list[Edge]:
    """Return the edges that a picture of the first nodes shows: those that no longer path implies."""
    count = len(graph) if first is None else min(first, len(graph))
    if count <= MAX_REDUCED_NODES:
        return graph.transitive_reduction_edges(first)
    return [edge for edge in graph.edges if edge.target.index < count]


def summary(graph: Graph) -> str:
    """Return one line on the size of a graph, how far it has run and its critical path."""
    if not graph.nodes:
        return "empty graph: no tasks were recorded"
    pairs = len({(edge.source.index, edge.target.index) for edge in graph.edges})
    sizes = f"{_count(len(graph), 'task')}, {_count(pairs, 'dependence')}"
    phases = [phase(node) for node in graph.nodes]
    counts = ", ".join(
        f"{phases.count(one)} {one}" for one in ("done", "running", "failed", "not run", "waiting") if one in phases
    )
    path = graph.critical_path()
    time_s = sum(time_s for _, time_s in path)
    longest = f"critical path {_count(len(path), 'task')}" + (f", {duration_label(time_s)}" if time_s else "")
    return "; ".join((sizes, counts, longest) if set(phases) != {"waiting"} else (sizes, longest))


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
