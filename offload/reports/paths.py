"""The critical path of a run: the chain of work that held up the end.

Theory of operation
-------------------
The run is a list of *activities*: a body on a thread, or a copy or a body on a stream. Three things allow an activity
to begin: the activities that it depends on have ended, its task has been generated, and its resource is free. (The
resource is a thread, a stream, or a copy engine.) The path is walked back from the activity that ended last. Each step
goes to the one of the three that came last, because nothing else can have held the activity up longer.

If the generation came last, the path goes back along the thread that generated the task. That thread ran code, inside a
body or outside of all tasks, or it was in a *pause*: it waited for tasks. A pause leads to the activity that ended last
in it, as that one let the thread go on. A body on the path is walked in the same way, as it may have pauses too.

The time between is divided as well. An activity is *ready* when its task is generated and its dependences are over.
From then on it waits. Before that, the time is the body's of the generating task, or idle if the thread was in none. So
the parts of the path cover the whole run without a gap, and sum to its wall time.

A longest path over durations was rejected: its length has nothing to do with the wall time, as it knows no resources.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

PARTS = ("body", "device", "copy", "wait", "idle")
"""The parts into which the wall time of a run is divided."""


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
    thread: int | None = None  # that ran it, if it is a body
    maker: int | None = None  # the thread that generated its task, if that is known


class Pause(NamedTuple):
    """The time in which a thread waited: for one activity, whose position is given, or for any tasks."""

    thread: int
    start_s: float
    end_s: float
    activity: int | None = None


class Stretch(NamedTuple):
    """A part of the run's time.

    ``activity`` is the position of the activity that took it; None between activities. ``following`` is the activity
    that comes next on the path.
    """

    kind: str
    start_s: float
    end_s: float
    activity: int | None = None
    following: int | None = None


def critical_path(
    activities: Sequence[Activity], begin_s: float, end_s: float, pauses: Sequence[Pause] = ()
) -> list[Stretch]:
    """Return the stretches of the critical path, in the order of time: they cover the time from beginning to end."""
    if not activities:
        return [Stretch("idle", begin_s, end_s)]
    walk = _Walk(activities, pauses, begin_s, end_s)
    last = max(range(len(activities)), key=lambda position: (activities[position].end_s, -position))
    stretches = walk.back_from(last)
    return [
        stretch for stretch in reversed(stretches) if stretch.end_s > stretch.start_s or stretch.activity is not None
    ]


class _Walk:
    """A walk along the path, from the end of the run to its beginning."""

    def __init__(self, activities: Sequence[Activity], pauses: Sequence[Pause], begin_s: float, end_s: float) -> None:
        self._activities = activities
        self._begin_s = begin_s
        self._until_s = end_s  # the walk has come back to this time
        self._stretches: list[Stretch] = []
        self._former = _Former(activities)
        self._ended = set[int]()  # activities whose ends the walk has passed,
        self._begun = set[int]()  # and whose beginnings
        self._threads = _timelines(activities, pauses)

    def back_from(self, last: int) -> list[Stretch]:
        """Walk back from the end of an activity; return the stretches, the last one first."""
        self._back("idle", self._activities[last].end_s)
        at: int | None = last
        is_begun = False
        while at is not None:
            if is_begun:
                self._begun.add(at)
                at, is_begun = self._before(at)
            else:
                self._ended.add(at)
                at, is_begun = self._through(at)
        return self._stretches

    def _back(self, kind: str, to_s: float, activity: int | None = None, following: int | None = None) -> None:
        to_s = min(self._until_s, max(self._begin_s, to_s))
        self._stretches.append(Stretch(kind, to_s, self._until_s, activity, following))
        self._until_s = to_s

    def _through(self, at: int) -> tuple[int | None, bool]:
        """Walk from the end of an activity towards its beginning; return where that led, and whether to a beginning."""
        one = self._activities[at]
        if one.thread is None:
            self._back(one.kind, one.start_s, at)
            return at, True
        timeline = self._threads[one.thread]
        return self._along(timeline, timeline.ends[at] - 1, at)

    def _before(self, at: int) -> tuple[int | None, bool]:
        """Walk from the beginning of an activity to the activity that held it up, or to the code that generated it."""
        one, start_s = self._activities[at], self._until_s
        ends = {before: min(self._activities[before].end_s, start_s) for before in one.before}
        ready_s = max(one.made_s, *ends.values()) if ends else one.made_s
        for before in self._former(at):
            ends.setdefault(before, self._activities[before].end_s)
        following = max(
            (before for before in ends if before not in self._ended),
            key=lambda before: (ends[before], -before),
            default=None,
        )
        until_s = self._begin_s if following is None else ends[following]
        if one.maker in self._threads and one.made_s > until_s:
            timeline = self._threads[one.maker]
            self._back("wait", one.made_s, None, at)
            return self._along(timeline, timeline.place(one.made_s, at), at)
        self._back("wait", max(until_s, ready_s), None, at)
        self._back("idle", until_s, None, at)
        return following, False

    def _along(self, timeline: _Timeline, place: int, following: int) -> tuple[int | None, bool]:
        """Walk back along a thread, from a mark on."""
        while place >= 0:
            mark = timeline.marks[place]
            self._back("idle" if mark.inside is None else "body", mark.at_s, mark.inside, following)
            place -= 1
            if isinstance(mark.of, Pause):
                if mark.is_end:
                    let_go = self._let_go(mark.of)
                    if let_go is not None:
                        self._back("wait", self._activities[let_go].end_s, None, following)
                        return let_go, False
                    self._back("wait", mark.of.start_s, None, following)
                    place = timeline.starts[place + 1] - 1
            elif mark.is_end and mark.of not in self._ended:
                return mark.of, False
            elif not mark.is_end and mark.of not in self._begun:
                return mark.of, True
        self._back("idle", self._begin_s, None, following)
        return None, False

    def _let_go(self, pause: Pause) -> int | None:
        """Return the activity whose end let a thread go on; None if it waited for something else."""
        if pause.activity is not None:
            return None if pause.activity in self._ended else pause.activity
        return self._former.last_in(pause.start_s, min(pause.end_s, self._until_s), self._ended)


class _ThreadMark(NamedTuple):
    """The beginning or end of a body or pause on a thread, and the body that the thread is inside of after that."""

    at_s: float
    is_end: bool
    of: int | Pause
    inside: int | None


class _Timeline:
    """The bodies and pauses of a thread, which nest."""

    def __init__(self) -> None:
        self.marks: list[_ThreadMark] = []
        self.ends: dict[int, int] = {}  # by activity, the place of the mark
        self.starts: dict[int, int] = {}  # by the place of the mark at an end
        self._times_s: list[float] = []
        self._open: list[tuple[float, int | Pause, int]] = []  # until when, what, the place of its beginning

    def add(self, start_s: float, end_s: float, what: int | Pause) -> None:
        """Add a body or pause; each begins no earlier than the one before."""
        self.close(start_s)
        if self._open:
            end_s = min(end_s, self._open[-1][0])
        self._open.append((end_s, what, len(self.marks)))
        self._mark(start_s, False, what)

    def close(self, until_s: float) -> None:
        """Mark the ends that come until a time."""
        while self._open and self._open[-1][0] <= until_s:
            end_s, what, start = self._open.pop()
            self.starts[len(self.marks)] = start
            if isinstance(what, int):
                self.ends[what] = len(self.marks)
            self._mark(end_s, True, what)

    def _mark(self, at_s: float, is_end: bool, what: int | Pause) -> None:
        inside = next((one for _, one, _ in reversed(self._open) if isinstance(one, int)), None)
        self.marks.append(_ThreadMark(at_s, is_end, what, inside))
        self._times_s.append(at_s)

    def place(self, at_s: float, own: int) -> int:
        """Return the place of the last mark until a time that is not of an activity itself; -1 if there is none."""
        place = bisect_right(self._times_s, at_s) - 1
        while place >= 0 and self.marks[place].of == own:
            place -= 1
        return place


def _timelines(activities: Sequence[Activity], pauses: Sequence[Pause]) -> dict[int | None, _Timeline]:
    found: list[tuple[float, float, int, int | Pause]] = [
        (one.start_s, -one.end_s, one.thread, at) for at, one in enumerate(activities) if one.thread is not None
    ]
    found += [(pause.start_s, -pause.end_s, pause.thread, pause) for pause in pauses]
    timelines: dict[int | None, _Timeline] = defaultdict(_Timeline)
    for start_s, minus_end_s, thread, what in sorted(found, key=lambda one: one[:2]):
        timelines[thread].add(start_s, max(start_s, -minus_end_s), what)
    for timeline in timelines.values():
        timeline.close(float("inf"))
    return dict(timelines)


class _Former:
    """Finds the activity that ended last: on a resource before an activity began, or in a time."""

    def __init__(self, activities: Sequence[Activity]) -> None:
        self._activities = activities
        self._ends: dict[Hashable, list[tuple[float, int]]] = defaultdict(list)
        for position, one in enumerate(activities):
            for resource in one.resources:
                self._ends[resource].append((one.end_s, -position))
        for ends in self._ends.values():
            ends.sort()
        self._all = sorted([(one.end_s, -position) for position, one in enumerate(activities)])

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

    def last_in(self, start_s: float, end_s: float, known: set[int]) -> int | None:
        """Return the activity that ended last between two times, of those that are not known."""
        place = bisect_right(self._all, (end_s, 1)) - 1
        while place >= 0 and self._all[place][0] > start_s:
            if -self._all[place][1] not in known:
                return -self._all[place][1]
            place -= 1
        return None


def parts_of(stretches: Sequence[Stretch]) -> dict[str, float]:
    """Return how long each kind of time on a path is."""
    parts = dict.fromkeys(PARTS, 0.0)
    for stretch in stretches:
        parts[stretch.kind] += stretch.end_s - stretch.start_s
    return parts
