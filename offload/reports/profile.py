"""The profile of a run: where its time went, by the names of tasks, by copies, and along the critical path."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from offload.reports.paths import Activity, Pause, critical_path, parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.reports.records import RunRecord, SpanRecord, TaskRecord


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The tasks of one name.

    Attributes
    ----------
    name : str
        Their name.
    count : int
        How many have ended.
    total_s, mean_s, longest_s : float
        How long they took, in seconds. A task on a device took from the beginning of its work there to the end.
    share : float
        The total as a share of the run's wall time. It exceeds 1 if tasks ran at the same time.
    waited_s : float
        How long they were ready and had not begun, in seconds in all.
    path_s : float
        How long the critical path went through them, in seconds.
    failed : int
        How many have not completed.
    """

    name: str
    count: int
    total_s: float
    mean_s: float
    longest_s: float
    share: float
    waited_s: float
    path_s: float
    failed: int = 0


@dataclass(frozen=True, slots=True)
class CopyRow:
    """The copies of one direction on one device: ``"to"`` it, ``"from"`` it, or ``"device"`` between devices."""

    device: int
    direction: str
    count: int
    nbytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second; 0 if the copies took no measurable time."""
        return self.nbytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class PathStep:
    """A stretch of the critical path.

    ``kind`` is one of the parts. ``name`` and ``key`` are the task's. If the stretch ``is_between`` tasks, they belong
    to the task that began at its end, and are empty at the end of the run.
    """

    kind: str
    name: str
    key: str
    start_s: float
    seconds: float
    is_between: bool = False


@dataclass(frozen=True, slots=True)
class RunProfile:
    """The profile of a run: the times of its tasks and copies, and its critical path.

    Attributes
    ----------
    wall_s : float
        The wall time, in seconds.
    rows : tuple of ProfileRow
        One for each name of tasks, the longest total first.
    copies : tuple of CopyRow
        One for each device and direction.
    path : tuple of PathStep
        The critical path, in the order of time. It covers the wall time.
    parts : dict
        The wall time, in seconds, divided along the path into ``"body"`` (host code of tasks), ``"device"``,
        ``"copy"``, ``"wait"`` (a task was ready or detached, or a thread waited) and ``"idle"`` (code outside of
        tasks).
    """

    wall_s: float
    rows: tuple[ProfileRow, ...]
    copies: tuple[CopyRow, ...]
    path: tuple[PathStep, ...]
    parts: dict[str, float]

    def to_json(self) -> str:
        """Return the profile as the text of a JSON object."""
        found = asdict(self)
        for row, copy in zip(found["copies"], self.copies, strict=True):
            row["rate"] = copy.rate
        return json.dumps(found, indent=1)

    def __rich__(self) -> Any:
        from offload.reports.tables import profile_tables  # imports Rich

        return profile_tables(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from offload.reports.tables import bundle_of  # imports Rich

        return bundle_of(self)


def profile(run: RunRecord) -> RunProfile:
    """Return the profile of a run."""
    activities, names, pauses = _activities(run)
    stretches = critical_path(activities, run.begin_s, run.end_s, pauses)
    path_s: dict[str, float] = defaultdict(float)
    steps = []
    for stretch in stretches:
        took_s = stretch.end_s - stretch.start_s
        at = stretch.following if stretch.activity is None else stretch.activity
        name, key = ("", "") if at is None else names[activities[at].task]
        if stretch.activity is not None:
            path_s[name] += took_s
        is_between = stretch.activity is None
        steps.append(PathStep(stretch.kind, name, key, stretch.start_s - run.begin_s, took_s, is_between))
    wall_s = run.end_s - run.begin_s
    return RunProfile(
        wall_s, _rows(run, activities, wall_s, path_s), _copies(run.spans), tuple(steps), parts_of(stretches)
    )


def _activities(run: RunRecord) -> tuple[list[Activity], dict[int, tuple[str, str]], list[Pause]]:
    """Return the activities of a run, the name and key of each task by its number, and the pauses of threads."""
    before: dict[int, list[int]] = defaultdict(list)
    for first, last in run.edges:
        before[last].append(first)
    spans: dict[int, list[SpanRecord]] = defaultdict(list)
    for span in run.spans:
        if span.kind in {"body", "copy", "staged"}:
            spans[span.task].append(span)
    activities: list[Activity] = []
    last_of: dict[int, int] = {}
    names: dict[int, tuple[str, str]] = {}
    pauses = [Pause(thread, start_s, end_s) for _, thread, start_s, end_s in run.waits]
    for task in sorted(run.tasks, key=lambda task: task.created_s):  # in the order in which they were generated
        names[task.number] = task.name, task.key
        follows = tuple([last_of[number] for number in before[task.number] if number in last_of])
        activities += _of_task(task, spans.get(task.number, ()), follows, len(activities))
        last_of[task.number] = len(activities) - 1
        if not task.is_deferred and activities[-1].thread is None:  # its generating thread waited for it
            pauses.append(Pause(task.maker, task.created_s, task.end_s, len(activities) - 1))
    return activities, names, pauses


def _of_task(task: TaskRecord, spans: Sequence[SpanRecord], follows: tuple[int, ...], first: int) -> list[Activity]:
    """Return the activities of a task: those after the first follow the one before."""
    made_s, maker = min(task.created_s, task.start_s), task.maker or None

    def activity(
        kind: str, start_s: float, end_s: float, resources: tuple[Any, ...] = (), thread: int | None = None
    ) -> None:
        follows_own = (first + len(found) - 1,) if found else follows
        found.append(Activity(task.number, kind, made_s, start_s, end_s, resources, follows_own, thread, maker))

    found: list[Activity] = []
    if task.kind == "device":
        for span in sorted(spans, key=lambda span: span.start_s):
            is_copy = span.kind != "body"
            stream = "stream", span.device, span.lane
            copies = (("copies", span.device, span.direction),) if is_copy else ()
            activity("copy" if is_copy else "device", span.start_s, span.end_s, (stream, *copies))
        if not found:
            activity("device", task.start_s, task.end_s, (("stream", task.device, task.lane),))
    elif task.kind == "coroutine":
        activity("body", task.start_s, task.end_s)
    else:
        thread = "thread", task.thread
        left_s = task.end_s if task.left_s is None else min(task.end_s, max(task.start_s, task.left_s))
        activity("body", task.start_s, left_s, (thread,), task.thread)
        if task.left_s is not None:
            activity("wait", left_s, task.end_s)
    return found


def _rows(
    run: RunRecord, activities: Sequence[Activity], wall_s: float, path_s: dict[str, float]
) -> tuple[ProfileRow, ...]:
    begins: dict[int, float] = {}
    ends: dict[int, float] = {}
    ready: dict[int, float] = {}
    for one in activities:
        if one.task not in begins:
            begins[one.task] = one.start_s
            ready[one.task] = max([one.made_s, *[activities[before].end_s for before in one.before]])
        begins[one.task] = min(begins[one.task], one.start_s)
        ends[one.task] = max(ends.get(one.task, one.end_s), one.end_s)
    by_name: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    for task in run.tasks:
        number = task.number
        waited_s = max(0.0, begins[number] - ready[number])
        by_name[task.name].append((ends[number] - begins[number], waited_s, task.state != "complete"))
    rows = []
    for name, found in by_name.items():
        times_s = [time_s for time_s, _, _ in found]
        total_s = sum(times_s)
        rows.append(
            ProfileRow(
                name,
                len(found),
                total_s,
                total_s / len(found),
                max(times_s),
                total_s / wall_s if wall_s > 0 else 0.0,
                sum(waited_s for _, waited_s, _ in found),
                path_s.get(name, 0.0),
                sum(has_failed for *_, has_failed in found),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.total_s, row.name)))


def _copies(spans: Sequence[SpanRecord]) -> tuple[CopyRow, ...]:
    found: dict[tuple[int, str], list[SpanRecord]] = defaultdict(list)
    for span in spans:
        if span.kind in {"copy", "staged"}:
            found[span.device, span.direction].append(span)
    return tuple(
        CopyRow(
            device,
            direction,
            len(group),
            sum(span.nbytes for span in group),
            sum(span.end_s - span.start_s for span in group),
        )
        for (device, direction), group in sorted(found.items())
    )
