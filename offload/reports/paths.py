"""The critical path of a run: what held up the end, over dependences and over what tasks shared.

Theory of operation
-------------------
The run is a list of *activities*: a body on a thread, or a copy or a body on a stream. An activity begins when three
things allow it: the activities that it depends on have ended, it has been generated, and its resource is free. (The
resource is a thread, a stream, or a copy engine.) The path is walked back from the activity that ended last. Each step
goes to the one, among the dependences and the former activity of each resource, that ended last: nothing else can have
held the present one up longer. The times between are divided too: before an activity is *ready* (generated, and its
dependences over), nothing of the path could run, and the time is idle; after that it waited. So the parts of the path
cover the whole run without a gap, and sum to its wall time.

A longest path over durations was rejected: its length has nothing to do with the wall time, as it knows no resources.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

PARTS = ("body", "device", "copy", "wait", "idle")
"""What a run's wall time is divided into."""


class Activity(NamedTuple):
    """Something that took time.

    ``kind`` is ``"body"``, ``"device"``, ``"copy"`` or ``"wait"``. ``made_s`` is when it was generated. ``before`` has
    the positions of the activities that it depends on.
    """

    task: int
    kind: str
    made_s: float
    start_s: float
    end_s: float
    resources: tuple[Hashable, ...] = ()
    before: tuple[int, ...] = ()


class Stretch(NamedTuple):
    """A part of the run's time.

    ``activity`` is the position of what took it; None between activities. ``following`` is what began at its end.
    """

    kind: str
    start_s: float
    end_s: float
    activity: int | None = None
    following: int | None = None


def critical_path(activities: Sequence[Activity], begin_s: float, end_s: float) -> list[Stretch]:
    """Return the stretches of the critical path, in the order of time: they cover the time from beginning to end."""
    if not activities:
        return [Stretch("idle", begin_s, end_s)]
    former = _Former(activities)
    at = max(range(len(activities)), key=lambda position: (activities[position].end_s, -position))
    until_s = min(end_s, max(begin_s, activities[at].end_s))
    stretches = [Stretch("idle", until_s, end_s)]
    visited: set[int] = set()
    while True:
        visited.add(at)
        one = activities[at]
        start_s = min(until_s, max(begin_s, one.start_s))
        stretches.append(Stretch(one.kind, start_s, until_s, at))
        ends = {before: min(activities[before].end_s, start_s) for before in one.before}
        ready_s = max(one.made_s, *ends.values()) if ends else one.made_s
        for before in former(at):
            ends.setdefault(before, activities[before].end_s)
        following = max(
            (before for before in ends if before not in visited),
            key=lambda before: (ends[before], -before),
            default=None,
        )
        until_s = begin_s if following is None else max(begin_s, ends[following])
        ready_s = min(start_s, max(until_s, ready_s))
        stretches.append(Stretch("wait", ready_s, start_s, None, at))
        stretches.append(Stretch("idle", until_s, ready_s, None, at))
        if following is None:
            break
        at = following
    return [
        stretch for stretch in reversed(stretches) if stretch.end_s > stretch.start_s or stretch.activity is not None
    ]


class _Former:
    """Finds what ended last on the resources of an activity before it began."""

    def __init__(self, activities: Sequence[Activity]) -> None:
        self._activities = activities
        self._ends: dict[Hashable, list[tuple[float, int]]] = defaultdict(list)
        for position, one in enumerate(activities):
            for resource in one.resources:
                self._ends[resource].append((one.end_s, -position))
        for ends in self._ends.values():
            ends.sort()

    def __call__(self, at: int) -> list[int]:
        one = self._activities[at]
        found = []
        for resource in one.resources:
            ends = self._ends[resource]
            place = bisect_right(ends, (one.start_s, 1)) - 1
            while place >= 0 and -ends[place][1] == at:  # itself, without a duration
                place -= 1
            if place >= 0:
                found.append(-ends[place][1])
        return found


def parts_of(stretches: Sequence[Stretch]) -> dict[str, float]:
    """Return how long each kind of time on a path is."""
    parts = dict.fromkeys(PARTS, 0.0)
    for stretch in stretches:
        parts[stretch.kind] += stretch.end_s - stretch.start_s
    return parts
