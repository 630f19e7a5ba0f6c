"""Async queues: numbered activity queues, whose operations are tasks that follow each other.

Theory of operation
-------------------
An operation of a queue is an ordinary deferred task. A *mark*, the queue's tail, makes it an operation of the queue: a
new operation follows the task of the mark before its own (`Engine.submit`). That is an edge between two tasks as a
dependence makes one, but without a location in any table. So a queue is FIFO by the rules that hold for all tasks:
failures go along it, other dependences mix with it. A `wait` that holds one queue for others has an edge from the task
of the last mark of each. Each operation has a new mark: with one mark for a queue, a task that follows it would hold up
later operations.

Edges order siblings. An operation that follows one of another thread, or of another task's body, follows a *bridge* in
place of it: an empty task beside it with an event, which the other's completion fulfils, however that ended: failures
go along a queue among siblings. The mark of a construct that raised stands for the one before it.

A recorded graph has the order among its own operations: for a recorder marks are locations, which an operation writes
and the next one reads. There a task is made any number of times, so that the place in the queue is taken before the
first is, and gets its task then. When the graph runs again it is in no order with operations outside of it, as its
tasks have no dependences on others; waits cover them.

*Streams.* All device work of a queue goes to one stream: `StreamPool.numbered` has a few for all queues, and a
program may give its own. Each queue has a `Lane` of its own over that, as the state of a lane belongs to one sequence
of launches. Queues that share a stream are in more order than was asked for, and nothing else: whether an operation is
complete is asked of its task. Only of a stream that the program has been given is it asked whether all that is on it is
done.

OpenACC 3.3, 2.16 "Asynchronous Behavior".
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from offload.devices.streams import Lane
from offload.tasks.callbacks import run_callbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.runtime.place import DevicePlace
    from offload.tasks.depend import Tracker
    from offload.tasks.region import Region
    from offload.tasks.task import Task

_FEW = 64
"""Operations that a queue counts before it looks for those that are complete; then twice as many as were left."""


class Queue:
    """The operations with one number on one device; ``place`` is None for the host.

    Attributes
    ----------
    lane : Lane or None
        The lane of its device work; None on the host.
    tail : Mark or None
        The mark of the last operation.
    is_exposed : bool
        Whether the program has its stream, and may have put work of its own there.
    """

    __slots__ = (
        "_failed",
        "_given",
        "_limit",
        "_lock",
        "_recorded",
        "_tasks",
        "is_exposed",
        "lane",
        "number",
        "place",
        "tail",
    )

    def __init__(self, place: DevicePlace | None, number: int) -> None:
        self.place = place
        self.number = number
        self.is_exposed = False
        self.tail: Mark | None = None
        self.lane: Lane | None = None
        self._given: Any = None  # a stream of the program's, which has to live as long
        self._lock = threading.Lock()
        self._recorded: WeakKeyDictionary[Any, Mark] = WeakKeyDictionary()  # the tails of regions that only record
        self._tasks: deque[ref[Task]] = deque()  # the regions keep what is live, or has failed and not been seen
        self._failed: list[ref[Task]] = []
        self._limit = _FEW
        self.use(None)

    def __repr__(self) -> str:
        return f"queue {self.number}"

    @property
    def stream(self) -> Any:
        """The native stream; it counts as exposed from now on."""
        self.is_exposed = True
        return self.lane.stream  # type: ignore[union-attr]  # on a device

    def use(self, stream: Any) -> None:
        """Put later work on a stream of the program's, which counts as exposed, or for None on one of the runtime's."""
        place = self.place
        if place is None:
            return
        native = place.stream_of_queue(self.number) if stream is None else place.lane_of(stream).stream
        self._given = stream
        self.is_exposed = self.is_exposed or stream is not None
        pool = place.user_pool if stream is None else None
        self.lane = Lane(place.device, native, self.number, pool, of_queue=True)

    def close(self) -> None:
        """Let the stream go."""
        if self.lane is not None:
            self.lane.stream = None
        self._given = self.tail = None

    def take_lane(self) -> Lane | None:
        """Return the lane for a launch; None while another launch has it."""
        lane = self.lane
        return lane if lane is not None and lane.take() else None

    # -- operations ----------------------------------------------------------------------------------
    def tail_for(self, frame: Region) -> Mark | None:
        """Return the mark of the last operation, as a region has it: one that only records has its own."""
        recorder = frame.recorder
        return self.tail if recorder is None or recorder.executes else self._recorded.get(recorder)

    def append(self, mark: Mark, frame: Region) -> Mark | None:
        """Put a mark behind the last one, and return that; `count` its task unless that is recorded only."""
        recorder = frame.recorder
        if recorder is None or recorder.executes:
            mark.before, self.tail = self.tail, mark  # no thread comes in between: there is no call
            self._tasks.append(mark.task)  # type: ignore[arg-type]  # it has been made
            if len(self._tasks) > self._limit:
                self._sweep()
            return mark.before
        with self._lock:
            before = mark.before = self._recorded.get(recorder)
            self._recorded[recorder] = mark
        return before

    def count(self, task: Task) -> None:
        """Add a task to those that have to be complete before the queue is."""
        self._tasks.append(ref(task))
        if len(self._tasks) > self._limit:
            self._sweep()

    def _sweep(self) -> None:
        """Forget the operations that are complete, as there are many."""
        with self._lock:
            self._prune()
            self._limit = max(_FEW, 2 * len(self._tasks))

    def unfinished(self) -> list[Task]:
        """Return the operations that are not complete, in order; some may be, as of two replays at a time."""
        with self._lock:
            self._prune()
            return _alive(self._tasks)

    def take_failed(self) -> list[Task]:
        """Return the operations that have failed since the last call."""
        with self._lock:
            self._prune()
            failed, self._failed = self._failed, []
        return _alive(failed)

    def _prune(self) -> None:
        tasks = self._tasks
        while tasks and ((task := tasks[0]()) is None or task.finished):
            reference = tasks.popleft()
            if task is not None and task.failure is not None and not task.seen:
                self._failed = [*(ref(other) for other in _alive(self._failed) if not other.seen), reference]


class Mark:
    """The place of one operation in its queue, which a dependence names.

    Attributes
    ----------
    tracker : Tracker
        The tracker of the region that has generated the operation. Only that region knows its troubles.
    before : Mark or None
        The mark of the operation before it, which it stands for if its own task is never made; None once there is a
        task.
    queue : Queue
    task : weakref of Task or None
        The operation; None until it has been made. Weak, since recorders remember marks for long.
    is_void : bool
        Whether it stands for the one before.
    """

    __slots__ = ("_waiting", "before", "is_void", "queue", "task", "tracker")

    def __init__(self, queue: Queue, tracker: Tracker, task: Task | None = None) -> None:
        self.tracker = tracker
        self.before: Mark | None = None
        self.queue = queue
        self.task: ref[Task] | None = None if task is None else ref(task)
        self.is_void = False
        self._waiting: Sequence[Callable[[object], Any]] = ()

    def __repr__(self) -> str:
        return repr(self.queue)

    def real(self) -> Mark | None:
        """Return the nearest mark from here back whose operation there is, or will be."""
        mark: Mark | None = self
        while mark is not None and mark.is_void:
            mark = mark.before
        return mark

    def standing(self) -> Mark | None:
        """Return the nearest mark from here back whose operation there is, or will be, and that is not over."""
        mark = self.real()
        return None if mark is None or mark._is_past() else mark  # noqa: SLF001  # its own kind

    def _is_past(self) -> bool:
        if self.task is None:
            return False
        task = self.task()
        if task is not None:
            return task.past
        trouble = self.tracker.keeper.troubles.get(id(self.task))
        return trouble is None or trouble.unseen() is None

    def set(self, task: Task) -> None:
        """Name the task that has been made for the place; others that are made for it are not asked for."""
        with self.queue._lock:  # noqa: SLF001  # its queue's
            self.task = ref(task)
            waiting, self._waiting = self._waiting, ()
        for callback in waiting:
            task.add_done_callback(callback)

    def void(self) -> None:
        """Stand for the mark before from now on: the construct has raised, and there is no task that will run."""
        with self.queue._lock:  # noqa: SLF001  # the same
            task = self.task() if self.task is not None else None
            self.is_void = True
            waiting, self._waiting = self._waiting, ()
        if task is not None and task.callbacks:
            waiting = (lambda _: run_callbacks(task),)  # of those who have asked meanwhile, on other threads
        for callback in waiting:
            self.when_complete(callback)

    def when_complete(self, callback: Callable[[object], Any]) -> None:
        """Call back when the operation is complete, at once if it is, from whichever thread completes it."""
        with self.queue._lock:  # noqa: SLF001  # the same
            before, task = None, None
            if self.is_void:
                before = self.before
            elif self.task is None:
                self._waiting = (*self._waiting, callback)
                return
            else:
                task = self.task()
        if before is not None:
            before.when_complete(callback)
        elif task is None:
            callback(None)
        else:
            task.add_done_callback(callback)


def _alive(references: deque[ref[Task]] | list[ref[Task]]) -> list[Task]:
    """Return the tasks that there are still; other threads may append to ``references`` meanwhile."""
    # A copy is one step. A tuple that grows may call the collector, which lets another thread append.
    return [task for reference in references.copy() if (task := reference()) is not None]


class Queues(dict[tuple["DevicePlace | None", int], Queue]):
    """The queues of a runtime, by device (None: the host) and number; the first look-up of one makes it.

    Attributes
    ----------
    local : threading.local
        ``default`` is the number of each host thread's default queue, where it has chosen one.
    presences : dict
        The dependences on whether storage is present (`offload.acc.clauses.presence`).
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self.local = threading.local()
        self.presences: dict[Any, Any] = {}

    def __missing__(self, key: tuple[DevicePlace | None, int]) -> Queue:
        with self._lock:
            queue = self.get(key)  # another thread may have been quicker
            if queue is None:
                queue = self[key] = Queue(*key)
        return queue

    def known(self, place: DevicePlace | None) -> list[Queue]:
        """Return the queues of a device that have been used."""
        return [queue for (at, _), queue in self.copy().items() if at is place]

    def close(self) -> None:
        for queue in self.values():
            queue.close()
        self.clear()
        self.presences.clear()
