"""The queues behind the streams of the simulated device, and the two modes in which they are served.

In the free-running mode each lane has a thread. In the seeded mode one stepper thread runs the operations
of all lanes, one at a time, and picks the next lane at random among those whose head can run: the interleaving follows
from the seed and from the operations enqueued when it picks, and is as unfair as real streams may be. It repeats
exactly where everything was enqueued behind a latch.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from offload.devices.sim.stream import SimEvent
from offload.errors import RuntimeClosedError
from offload.interrupts.frames import calls_program
from offload.interrupts.shields import Shield, in_one_piece, late

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from offload.devices.sim.fate import Fate

    Operation = tuple[Callable[..., Any] | None, tuple[Any, ...]]

# In the seeded mode one choice in four favours a stream for up to seven operations more. A judgement:
# enough for one stream to run far ahead of another, as happens on a GPU.
BURST_CHANCE = 0.25
BURST_LENGTH = 8


class SimLane(ABC):
    """A FIFO of operations. ``tail`` counts those enqueued, ``completed`` those that have run or were dropped.

    To count takes no lock: there is no call in it, so that no thread comes in between.
    """

    _numbers = itertools.count()

    def __init__(self, fate: Fate, send: Callable[[Operation], None]) -> None:
        self._send = send
        self.number = next(self._numbers)  # in the names of threads
        self.fate = fate
        self.tail = 0  # enqueued
        self.completed = 0  # run, or dropped
        self.reached = 0  # enqueued up to the last event that has passed; ``completed`` may lack that one for a moment

    @property
    def is_idle(self) -> bool:
        """Whether everything enqueued has run, or all but the end of an event's operation, which has passed already."""
        return self.tail in (self.completed, self.reached)

    @in_one_piece
    def put(self, function: Callable[..., Any] | None, args: tuple[Any, ...]) -> None:
        """Enqueue an operation; drop it if the device is lost."""
        if self.fate.error is not None:
            return
        if self.fate.closed:
            raise RuntimeClosedError(f"device {self.fate.name} is closed; no more work can be enqueued there")
        self.tail += 1  # first: an operation that looks must find its stream busy
        self._send((function, args))
        if late.is_due:
            late.deliver()

    @in_one_piece
    def record(self, event: SimEvent, point: int) -> None:
        """Have ``point`` of ``event`` pass when everything enqueued has run: at once if it has."""
        if self.tail not in (self.completed, self.reached):  # `is_idle` without a call
            self.tail += 1
            self._send((SimEvent.fire, (event, point, self)))
        elif self.fate.error is None:  # read after ``completed``, which a failed operation raises last
            event.fire(point)
        if late.is_due:
            late.deliver()

    @calls_program
    def run(self, function: Callable[..., Any] | None, args: tuple[Any, ...]) -> None:
        """Run an operation unless the device is lost."""
        if self.fate.error is not None:
            return
        try:
            if function is None:
                self._hold(*args)
            else:
                function(*args)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the device is lost and keeps it
            del args  # the frames of the traceback refer to this one
            self.fate.lose(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))

    def wait(self, event: SimEvent, point: int) -> None:
        self.put(None, (event, point))

    def _hold(self, event: SimEvent, point: int) -> None:
        fates = (self.fate,) if event.fate is self.fate else (self.fate, event.fate)
        if not event.holds_until(point, fates) and self.fate.error is None:
            raise event.fate.lost()

    @abstractmethod
    def retire(self) -> None:
        """End when empty: the stream is gone, nothing more will come. Takes no lock; finalisers call it."""

    @abstractmethod
    def runs_here(self) -> bool:
        """Tell whether the calling thread is the one that runs the operations."""


class Free:
    """The free-running mode: a thread for each lane."""

    def __init__(self, fate: Fate) -> None:
        self.fate = fate
        self.lanes: set[ThreadLane] = set()
        self.threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def new_lane(self) -> SimLane:
        return ThreadLane(self)

    def busy_lanes(self) -> list[SimLane]:
        return list(self.lanes)

    def stop(self) -> list[threading.Thread]:
        """Have every thread end once its lane is empty; return the threads."""
        with self.fate.lock:
            lanes, threads = list(self.lanes), list(self.threads)
        for lane in lanes:
            lane.retire()
        return threads


class ThreadLane(SimLane):
    """A lane with a thread of its own, which starts with the first operation."""

    def __init__(self, mode: Free) -> None:
        super().__init__(mode.fate, self._start)
        self.thread: threading.Thread | None = None
        self._mode = mode
        self._queue: SimpleQueue[Operation | None] = SimpleQueue()

    def _start(self, operation: Operation) -> None:
        with self.fate.lock:  # so that a close sees the thread, or the thread the close
            if self.fate.closed:
                self.tail -= 1
                raise RuntimeClosedError(f"device {self.fate.name} is closed; no more work can be enqueued there")
            if self.thread is None:  # else another thread has just come first
                name = f"offload-{self.fate.name}-stream-{self.number}"
                thread = threading.Thread(target=Shield.around(self._serve), name=name, daemon=True)
                thread.start()
                self.thread = thread
                self._mode.lanes.add(self)
                self._mode.threads.add(thread)
        # From the second operation on, the queue takes them without a lock of the lane.
        self._send = self._queue.put
        self._send(operation)

    def _serve(self) -> None:
        get = self._queue.get
        while True:
            operation = get()
            if operation is None:
                if self.is_idle:
                    self._mode.lanes.discard(self)
                    return
                self._queue.put(None)
                continue
            self.run(*operation)
            del operation  # what it refers to must not live until the next one comes
            self.completed += 1

    def retire(self) -> None:
        self._queue.put(None)

    def runs_here(self) -> bool:
        return threading.current_thread() is self.thread


class Stepper:
    """The seeded mode: one thread that runs the operations of all lanes, in an order that ``rng`` decides."""

    def __init__(self, fate: Fate, rng: random.Random) -> None:
        self.fate = fate
        self.thread: threading.Thread | None = None
        self.lanes: list[SteppedLane] = []
        self.sleeps = False
        self.changes = 0  # counts what has been enqueued
        self.signal: SimpleQueue[None] = SimpleQueue()  # wakes the stepper
        self._rng = rng
        self._stopping = False
        self._favourite: SteppedLane | None = None  # the lane of the burst
        self._burst = 0  # operations of it that are left
        self._listened: set[Fate] = {fate}

    def new_lane(self) -> SimLane:
        return SteppedLane(self)

    def busy_lanes(self) -> list[SimLane]:
        return list(self.lanes)

    def enter(self, lane: SteppedLane) -> None:
        """Take up a lane that has its first operation."""
        with self.fate.lock:
            self.lanes.append(lane)
            if self.thread is None:
                self.fate.signals.add(self.signal)
                name = f"offload-{self.fate.name}-stepper"
                self.thread = threading.Thread(target=Shield.around(self._serve), name=name, daemon=True)
                self.thread.start()

    def stop(self) -> list[threading.Thread]:
        """Have the thread end once all lanes are empty; return it. Takes no lock; finalisers call it."""
        self._stopping = True
        self.signal.put(None)
        return [] if self.thread is None else [self.thread]

    def _serve(self) -> None:
        while True:
            ready = self._ready()
            if not ready:
                self.sleeps = True
                ready = self._ready()  # again: what was enqueued before ``sleeps`` has not signalled
                if not ready and self._stopping and not any(lane.operations for lane in self.lanes):
                    break
                if not ready:
                    self.signal.get()
                self.sleeps = False
                if not ready:
                    continue
            lane = self._pick(ready)
            lane.run(*lane.operations.popleft())
            lane.completed += 1
            del lane, ready
        for fate in self._listened:
            fate.signals.discard(self.signal)

    def _ready(self) -> list[SteppedLane]:
        """Return the lanes whose head can run, as of one moment: a latch opens for all lanes that wait for it."""
        while True:
            changes = self.changes
            ready = self._scan()
            if changes == self.changes:  # else a lane looked at early may have got, before the latch, what was missed
                return ready

    def _scan(self) -> list[SteppedLane]:
        ready: list[SteppedLane] = []
        closed: set[tuple[int, int]] = set()
        for lane in list(self.lanes):
            if not lane.operations:
                if lane.retired:
                    self.lanes.remove(lane)
                continue
            function, args = lane.operations[0]
            if function is None and self.fate.error is None:  # each event is looked at once
                key = (id(args[0]), args[1])
                if key in closed:
                    continue
                if not self._may_pass(*args):
                    closed.add(key)
                    continue
            ready.append(lane)
        return ready

    def _may_pass(self, event: SimEvent, point: int) -> bool:
        if event.has_passed(point):
            return True
        event.listen(self.signal)
        if event.fate not in self._listened:
            self._listened.add(event.fate)
            event.fate.signals.add(self.signal)
        return event.has_passed(point) or event.fate.error is not None

    def _pick(self, ready: list[SteppedLane]) -> SteppedLane:
        if len(ready) == 1:
            return ready[0]
        if self._burst and self._favourite in ready:
            self._burst -= 1
            return self._favourite
        self._favourite = lane = self._rng.choice(ready)
        self._burst = self._rng.randrange(BURST_LENGTH) if self._rng.random() < BURST_CHANCE else 0
        return lane


class SteppedLane(SimLane):
    """A lane that the stepper serves."""

    def __init__(self, stepper: Stepper) -> None:
        super().__init__(stepper.fate, self._append)
        self.operations: deque[Operation] = deque()  # not yet run
        self.retired = False
        self._stepper = stepper
        self._entered = False  # the stepper knows of it from its first operation on

    def _append(self, operation: Operation) -> None:
        self.operations.append(operation)
        if not self._entered:
            self._entered = True
            self._stepper.enter(self)
        self._stepper.changes += 1
        if self._stepper.sleeps:
            self._stepper.signal.put(None)

    def retire(self) -> None:
        self.retired = True
        self._stepper.signal.put(None)

    def runs_here(self) -> bool:
        return threading.current_thread() is self._stepper.thread
