"""A graph as one picture sees it: every task's words and times, read once, with names that no format can trip over."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from offload.views.words import (
    SYMBOLS,
    Phase,
    TaskKind,
    device_label,
    duration_label,
    kind_of,
    phase_of,
    plural,
    short,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.tasks.graph import EdgeKind, Graph, Node


_MOST_PLACE = 24  # characters of a place or a state


class Look(NamedTuple):
    """One task as it was when the picture was made. All texts are printable, on one line and short."""

    number: int  # in generation order
    key: str
    name: str
    directive: str
    kind: TaskKind
    device: str  # "host", "dev 0"
    place: str  # the device, and whether the task waits for an event
    state: str
    phase: Phase
    time_s: float | None
    location: str
    layer: int  # the tasks on the longest path that leads to it
    is_critical: bool


class Reason(NamedTuple):
    """Why one task waits for another, by their numbers."""

    source: int
    target: int
    kind: EdgeKind
    item: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole graph as one picture sees it."""

    looks: list[Look]
    reasons: list[Reason]
    path: list[int]  # the tasks of the critical path
    summary: str

    @property
    def depth(self) -> int:
        """The number of layers."""
        return max((look.layer for look in self.looks), default=-1) + 1


def see(graph: Graph) -> Snapshot:
    """Read a graph, which may go on growing: later tasks are left out."""
    layer_of = {node.index: depth for depth, layer in enumerate(graph.layers()) for node in layer}
    count = len(layer_of)
    path = [node.index for node, _ in graph.critical_path() if node.index < count]
    critical = set(path)
    texts = _Texts()
    looks = [
        _look(node, texts, layer=layer_of[node.index], is_critical=node.index in critical)
        for node in graph.nodes[:count]
    ]
    reasons = [
        Reason(source.index, target.index, kind, texts[item])
        for source, target, kind, item in list(graph.edges)
        if target.index < count
    ]
    return Snapshot(looks, reasons, path, _summary(looks, reasons, path))


class _Texts(dict[str, str]):
    """Short printable texts by what they were: a graph has few names and many tasks."""

    def __missing__(self, text: str) -> str:
        found = self[text] = short(text)
        return found


def look_at(node: Node) -> Look:
    """Return a task of a critical path as it is now."""
    return _look(node, _Texts(), layer=0, is_critical=True)


def _look(node: Node, texts: _Texts, *, layer: int, is_critical: bool) -> Look:
    state = node.state
    device = short(device_label(node.device_nums), _MOST_PLACE)
    return Look(
        node.index,
        short(node.key),
        texts[node.name] or short(node.key),
        texts[node.directive],
        kind_of(node),
        device,
        f"{device}, detached" if node.detach else device,
        short(state, _MOST_PLACE),
        phase_of(state),
        node.duration_s,
        texts[node.location or ""],
        layer,
        is_critical,
    )


def summary(graph: Graph) -> str:
    """Return one line on the size of a graph, how far it has run and its critical path."""
    return see(graph).summary


def _summary(looks: Sequence[Look], reasons: Sequence[Reason], path: Sequence[int]) -> str:
    if not looks:
        return "empty graph: no tasks were recorded"
    pairs = len({(reason.source, reason.target) for reason in reasons})
    sizes = f"{plural(len(looks), 'task')}, {plural(pairs, 'dependence')}"
    phases = Counter(look.phase for look in looks)
    time_s = sum(looks[index].time_s or 0 for index in path)
    longest = f"critical path {plural(len(path), 'task')}" + (f", {duration_label(time_s)}" if time_s else "")
    if set(phases) == {"waiting"}:
        return f"{sizes}; {longest}"
    counts = ", ".join(f"{phases[one]:,} {one}" for one in _ORDER if phases[one])
    return f"{sizes}; {counts}; {longest}"


_ORDER: tuple[Phase, ...] = ("done", "running", "failed", "not run", "waiting")


def masked(name: str) -> str:
    """Return a name with ``#`` for each number in it."""
    return _NUMBER.sub("#", name)


_NUMBER = re.compile(r"\d+")


class Total(NamedTuple):
    """The totals of the tasks of one name."""

    name: str
    kind: TaskKind
    tasks: int
    phases: str  # "300 done", "299 done, 1 failed"
    time_s: float | None
    longest_s: float | None
    critical: int  # tasks on the critical path
    devices: str


MOST_TOTALS = 20  # names that a reader can take in


def totals(looks: Sequence[Look]) -> list[Total]:
    """Return what the tasks of each name amount to, the longest total first."""
    # If there are many names, those that differ in numbers count as one.
    has_many = len({look.name for look in looks}) > MOST_TOTALS
    groups: dict[tuple[str, TaskKind], list[Look]] = {}
    for look in looks:
        groups.setdefault((masked(look.name) if has_many else look.name, look.kind), []).append(look)
    found = [_total(name, kind, group) for (name, kind), group in groups.items()]
    return sorted(found, key=lambda total: (-(total.time_s or 0), -total.tasks, total.name))


def _total(name: str, kind: TaskKind, group: list[Look]) -> Total:
    times_s = [look.time_s for look in group if look.time_s is not None]
    phases = Counter(look.phase for look in group)
    return Total(
        name,
        kind,
        len(group),
        ", ".join(f"{phases[one]:,} {one}" for one in _ORDER if phases[one]),
        sum(times_s) if times_s else None,
        max(times_s, default=None),
        sum(look.is_critical for look in group),
        ", ".join(sorted({look.device for look in group})),
    )


def state_text(looks: Sequence[Look]) -> str:
    """Return the state of one task or of several: ``"✓ complete"``, ``"✓ 299 ✗ 1"``."""
    states = {(look.phase, look.state) for look in looks}
    if len(states) == 1:
        phase, state = next(iter(states))
        return f"{SYMBOLS[phase]} {state}"
    phases = Counter(look.phase for look in looks)
    return " ".join(f"{SYMBOLS[one]} {phases[one]:,}" for one in _ORDER if phases[one])
