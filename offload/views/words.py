"""The words and signs of all pictures of a task graph: phases, kinds, places, durations.

Each picture is one file. `offload.views.folding` says what is drawn, and `offload.views.layout` where. Rich is imported
by `offload.views.terminal` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.tasks.graph import Node

Phase = Literal["waiting", "running", "done", "failed", "not run"]
TaskKind = Literal["target", "task", "copy", "wait"]

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

# Kinds have a sign each, since not every reader sees colours. The signs are in the usual monospaced fonts.
KIND_SIGNS: dict[TaskKind, str] = {"target": "▣", "task": "□", "copy": "⇄", "wait": "‖"}
KIND_WORDS: dict[TaskKind, str] = {
    "target": "region on a device",
    "task": "host task",
    "copy": "copy or data construct",
    "wait": "wait",
}
CRITICAL_SIGN = "★"

MAX_NAME = 200  # characters of a name or key that a picture keeps


def phase_of(state: str) -> Phase:
    """Return which of the five looks a state takes; an unknown state waits."""
    return PHASES.get(state, "waiting")


def kind_of(node: Node) -> TaskKind:
    """Return what a node is: a wait, a copy or data construct, a region on a device or a host task."""
    directive = node.directive
    if directive == "taskwait":
        return "wait"
    words = directive.replace("_", " ").split()
    if not {"copy", "memcpy", "data", "update", "declare"}.isdisjoint(words):
        return "copy"
    return "task" if node.device_num is None else "target"


def device_label(device_nums: Iterable[int]) -> str:
    """Return ``"host"``, ``"dev N"``, or ``"dev N+M"`` of several devices."""
    return f"dev {'+'.join(map(str, device_nums))}" if device_nums else "host"


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


def short(text: str, most: int = MAX_NAME) -> str:
    """Return printable text of at most `most` characters, cut with an ellipsis."""
    text = printable(text[: most + 1])
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


_LOOK_ALIKES = str.maketrans("×µ²·…–—≤≥→»✓✗⊘●○�★▣□⇄‖Σ", "xu2-~--<>>>+!0*o?*#.=|S")  # noqa: RUF001  # the signs are meant


def look_alike(text: str) -> str:
    """Return `text` in ASCII: a similar character for each sign that the library prints, else ``?``."""
    return text.translate(_LOOK_ALIKES).encode("ascii", "replace").decode()


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``"1 task"``, ``"2,000 tasks"``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
