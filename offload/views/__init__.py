"""Pictures of a recorded task graph: in the terminal, as SVG, as Graphviz source.

Each view is one file; what they share in wording stands here, what they share in geometry in `layout`.
Nothing here imports Rich: that is `offload.views.terminal` alone.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from offload.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

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


def visualize(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a picture of `graph` to `path`, in the format that its suffix names.

    Parameters
    ----------
    graph : Graph
        What to draw.
    path : str or path-like
        A name ending in ``.svg`` (a picture on its own) or ``.dot`` (source for Graphviz). An existing file
        is replaced, and only once the new one is complete.

    Raises
    ------
    UnsupportedError
        Any other suffix; nothing is written.
    OSError
        The file cannot be written, for one since it is there and read-only; an existing one is as it was.
    """
    target = Path(path)
    text = _writer(target)(graph)
    try:
        # Replace what a link points to, not the link.
        _write_atomically(Path(os.path.realpath(target)), text)
    except OSError as error:
        error.filename, error.filename2 = str(target), None  # not the temporary file beside it
        raise


def _writer(path: Path) -> Callable[[Graph], str]:
    match path.suffix.lower():
        case ".svg":
            from offload.views.svg import to_svg

            return to_svg
        case ".dot":
            from offload.views.dot import to_dot

            return to_dot
        case suffix:
            raise UnsupportedError(
                f"no picture of a graph has the suffix {suffix!r} of {str(path)!r}; allowed are '.dot' and '.svg'"
            )


def _write_atomically(path: Path, text: str) -> None:
    if path.exists() and not os.access(path, os.W_OK):  # to replace it takes no more than a writable directory
        raise PermissionError(errno.EACCES, "it is read-only; make it writable or name another file", str(path))
    # Not tempfile: it makes files private, and the umask cannot be read without changing it for all threads.
    part = path.with_name(f".{path.name[:64]}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with part.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def phase(node: Node) -> Phase:
    """Return which of the five looks a node takes; a state unknown here waits."""
    return PHASES.get(node.state, "waiting")


def is_copy(node: Node) -> bool:
    """Tell whether a node is a routine that copies, which pictures colour apart from bodies and waits."""
    return node.directive.startswith("target_memcpy")


def device_label(node: Node) -> str:
    """Return ``"host"`` or ``"dev N"``."""
    return "host" if node.device_num is None else f"dev {node.device_num}"


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
    """Return `text` on one line, with ``�`` for whatever would move the cursor or is no character."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text).strip()


_LOOK_ALIKES = str.maketrans("×µ²·…–—≤≥→»✓✗⊘●○�", "xu2-~--<>>>+!0*o?")  # noqa: RUF001  # the signs are meant


def look_alike(text: str) -> str:
    """Return `text` in ASCII, one character for one: what looks like each sign that the library prints, else ``?``."""
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
