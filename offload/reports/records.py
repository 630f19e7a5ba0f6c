"""The records of a run, made from a `TaskLog`."""

from __future__ import annotations

from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.events.log import TASK_FIELDS
from offload.tasks.task import number_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offload.events.log import TaskLog


_PLAIN = "complete", None, None, "body", None, True
"""The details of most tasks."""


class TaskRecord(NamedTuple):
    """A task that has ended. Times are in seconds of `time.perf_counter`."""

    number: int
    name: str
    directive: str
    location: str
    state: str
    created_s: float
    start_s: float
    end_s: float
    thread: int  # that has run the body, or else noted the end
    device: int | None = None
    lane: int | None = None
    kind: str = "body"  # or "device", "detached", "request", "coroutine"
    left_s: float | None = None  # when the body of a task ended that is detached, or waits for requests of MPI
    is_deferred: bool = True
    maker: int = 0  # the thread that generated it; 0 if that is unknown

    @property
    def key(self) -> str:
        """The key of the task."""
        return f"{self.name}-{self.number}"


class SpanRecord(NamedTuple):
    """Work of a task on a stream, or on a thread that works for a stream.

    The kind is ``"body"``, ``"copy"``, ``"staged"`` (a copy by threads) or ``"launch"`` (the body's run on a thread).
    """

    kind: str
    task: int
    device: int
    lane: int
    start_s: float
    end_s: float
    direction: str = ""
    nbytes: int = 0
    name: str = ""


class RunRecord(NamedTuple):
    """Everything that has been collected of a run."""

    tasks: list[TaskRecord]
    edges: list[tuple[int, int]]
    spans: Sequence[SpanRecord] = ()
    waits: Sequence[tuple[str, int, float, float]] = ()
    maps: Sequence[tuple[float, int, int]] = ()
    threads: Mapping[int, str] = MappingProxyType({})
    devices: Mapping[int, str] = MappingProxyType({})
    begin_s: float = 0.0
    end_s: float = 0.0


def records(log: TaskLog) -> RunRecord:
    """Return the records of everything that a log has collected so far."""
    values = log.tasks.copy()
    details = log.details
    known: dict[Any, tuple[str, str, str]] = {}
    tasks: dict[int, TaskRecord] = {}  # a task whose end could not be carried out at first is noted twice
    columns = [values[at::TASK_FIELDS] for at in range(TASK_FIELDS)]
    for created_s in sorted(columns[1]):
        number_at(created_s)  # in the order in which they were generated
    for what, key_s, start_s, end_s, thread, maker in zip(*columns, strict=True):
        number = number_at(key_s)
        created_s = min(key_s, start_s)  # it may have begun before it was observed
        try:
            name, directive, location = known[what]
        except KeyError:
            name, directive, location = known[what] = _words_of(what)
        state, device, lane, kind, left_s, is_deferred = details.get(key_s, _PLAIN)
        tasks[number] = TaskRecord(
            number, name, directive, location, state, created_s, start_s, end_s, thread, device, lane, kind, left_s,
            is_deferred, maker,
        )  # fmt: skip
    pairs = log.edges.copy()
    columns = [pairs[::2], pairs[1::2]]
    return RunRecord(
        [*tasks.values()],
        [(number_at(before), number_at(after)) for before, after in dict.fromkeys(zip(*columns, strict=True))],
        [*_spans_of(log.spans.copy())],
        log.waits.copy(),
        log.maps.copy(),
        dict(log.threads),
        dict(log.names),
        log.begin_s,
        log.end_s or perf_counter(),
    )


def kinds_of(log: TaskLog) -> list[tuple[int, int, str, str]]:
    """Return the dependences with their kinds and list items, by the numbers of tasks."""
    return [(number_at(before), number_at(after), kind, item) for before, after, kind, item in log.kinds.copy()]


def _words_of(what: Any) -> tuple[str, str, str]:
    """Return name, directive and place of a construct, or of a task with a label of its own."""
    label, site = what if isinstance(what, tuple) else (None, what)
    return str(label or site.name), str(site.directive), str(site.location)


def _spans_of(spans: Iterable[tuple[Any, ...]]) -> Iterable[SpanRecord]:
    for kind, number, device, lane, start_s, end_s, direction, nbytes, name in spans:
        if isinstance(start_s, float) and isinstance(end_s, float):  # else the device never got there
            yield SpanRecord(kind, number, device.number, lane, start_s, end_s, direction, nbytes, name)
