"""The events of a run, collected while it goes on: plain values in flat lists, which other threads may read.

To collect must cost little: for a task of 20 µs, 3 % are 600 ns. So an event costs one call of ``list.extend``, which
is one step under the GIL and takes no lock. Flat lists of numbers and strings are not traversed by the cyclic
collector again and again, as a tuple for each event would be. Everything else is worked out at the end
(`offload.reports.records`).
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import Any

TASK_FIELDS = 6
"""Values for each task in `TaskLog.tasks`."""

EDGE_FIELDS = 2
"""Values for each edge in `TaskLog.edges`."""


class TaskLog:
    """The events of a run.

    Attributes
    ----------
    tasks : list
        For each task that has ended, in the order of the ends: its construct (a device task's with its label, if it has
        one), when it was generated, when it began, when it ended (in seconds of `time.perf_counter`), the thread, and
        the thread that generated it. The time at which it was generated stands for the task elsewhere.
    details : dict
        By tasks, details that few tasks have: the state, the device's number, the stream's number, the kind
        (``"body"``, ``"device"``, ``"detached"``, ``"request"`` or ``"coroutine"``), when the body of a detached task,
        or of one that waits for requests of MPI, ended, and whether the task is deferred.
    edges : list
        For each dependence that was found: both tasks.
    kinds : list of tuple
        For each dependence, if that is wanted: both tasks, the kind, and the list item.
    spans : list of tuple
        Work on streams: what, the number of the task, the device, the stream, the beginning and the end as the device
        notes them, the direction, bytes, the name of a list item.
    maps : list of tuple
        Storage that has come (or gone, negative): when, the device's number, bytes.
    waits : list of tuple
        For each wait of a thread: its goal, the thread, the beginning and the end.
    lanes : dict
        Numbers of streams.
    threads : dict
        Names of threads by their identifiers.
    clocks : dict
        For each device that has been seen, the comparison of its clock with the host's.
    names : dict
        Names of devices by their numbers.
    """

    wants_starts = True
    """Whether the times at which tasks are generated, and their edges, are wanted; else only `done` is kept."""

    wants_kinds = False
    """Whether `kinds` is wanted."""

    def __init__(self) -> None:
        # The tracker's names of tasks with dependences: tasks that have ended may be gone.
        self.handles: dict[Any, float] = {}
        self.kinds: list[tuple[float, float, str, str]] = []
        self.done: list[Any] = []
        self.tasks: list[Any] = []
        self.details: dict[float, tuple[Any, ...]] = {}
        self.edges: list[float] = []
        self.spans: list[tuple[Any, ...]] = []
        self.maps: list[tuple[float, int, int]] = []
        self.waits: list[tuple[str, int, float, float]] = []
        self.threads: dict[int, str] = {}
        self.begin_s = perf_counter()
        self.end_s = 0.0  # when the run ended; 0 before
        self.lanes: dict[Any, int] = {}
        self.clocks: dict[Any, Any] = {}
        self.names: dict[int, str] = {}

    def lane_number(self, lane: Any) -> int:
        """Return the number of a stream in this log."""
        return self.lanes.setdefault(lane, len(self.lanes))

    def name_threads(self) -> None:
        """Note the names of all threads that there are."""
        for thread in threading.enumerate():
            self.name_thread(thread)

    def name_thread(self, thread: threading.Thread) -> None:
        """Note the name of a thread; the identifier may have been another thread's before, that has ended."""
        if thread.ident is not None:
            known = self.threads.get(thread.ident, thread.name)
            more = "" if thread.name in known else f", {thread.name}"
            self.threads[thread.ident] = (known + more)[:200]

    def note_copy(self, device: Any, direction: str, nbytes: int) -> None:
        """Note a copy, if spans are not wanted."""

    def note_end(self, task: Any, failure: BaseException | None, failed: Any) -> None:
        """Note the end of a task of any kind; `offload.runtime.observing` notes the ends of most tasks by itself."""
        what = task.construct
        if task.label is not None and task.label != what.name:
            what = task.label, what
        if not self.wants_starts:
            self.done.append(what)
            return
        now_s = perf_counter()
        start_s = getattr(task, "start_s", now_s)  # it may not have run
        end_s = getattr(task, "end_s", now_s)
        left = task.left
        task.note_number()
        if not hasattr(task, "created_s"):  # it was generated before the runtime was observed
            task.created_s, task.maker = now_s, 0
        created_s = task.created_s
        self.tasks.extend((what, created_s, start_s, end_s, left[1] if left else threading.get_ident(), task.maker))
        place = task.place
        if place is not None:
            kind, lane = "device", None if task.lane is None else self.lane_number(task.lane)
        else:
            kind, lane = "coroutine" if task.is_coroutine else "body", None
            if left is not None:
                kind = left[2]
            elif str(task.state_) == "detached":  # its body ended before the runtime was observed
                kind, left = "detached", (start_s, 0, "")
        end = "complete" if failure is None else str(failed)
        self.details[created_s] = (
            end, None if place is None else place.device.number, lane, kind, left[0] if left else None,
            task.owner is None,
        )  # fmt: skip
