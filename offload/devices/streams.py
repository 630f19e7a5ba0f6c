"""The stream on which a piece of work goes.

A task is launched on the lane of a predecessor that no other task has followed there yet, because then it need not
wait. Any other task takes the lane that has been idle longest; a new one is opened only while that is not known to be
done. A launch owns its lane, so two launches never mix on one stream. Copies and kernels of one task share a lane. See
docs/design/theory.md, "Lanes".
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from offload.errors import DeviceLostError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offload.devices.base import Device

# Lanes over which unrelated tasks are spread: more than the copy engines and queues that overlap in practice.
POOL_SIZE = 8

POOL_LIMIT = 64  # Lanes that may be in use at a time, when launches are held up


@contextmanager
def using(device: Device, stream: Any) -> Iterator[None]:
    """Make ``stream`` the one that array operations of this thread go to for a block."""
    outer = device.use(stream)
    try:
        yield
    finally:
        device.restore(outer)


_new = object.__new__


class Point:
    """A place in a lane: everything put there up to ``sequence``."""

    __slots__ = ("event", "is_followed", "item", "lane", "sequence")

    def __init__(self, lane: Lane, sequence: int, event: Any) -> None:
        self.lane = lane
        self.sequence = sequence
        self.event = event  # recorded there; None once the gate has found that the lane has passed it
        self.is_followed = False  # whether a task has been launched on the lane because of this point
        self.item: Any = None  # the gate's


class Lane:
    """One stream of a device.

    ``pool`` is the pool that it belongs to; a user's own stream belongs to none. ``of_queue`` says that launches come
    here because of an async queue. ``end`` is where the last launch on a pool's lane ended, None if that is not known.
    ``passed`` is the sequence of the last launch that was noticed to be complete, and when that was, in seconds of
    `time.perf_counter`. ``joined`` has the lanes of other devices' pools that this one has followed last as parts of a
    task of its own. ``spare`` has the buffers that the last construct here has unmapped, for the next one here.
    """

    __slots__ = (
        "__weakref__", "_free", "_waited", "device", "end", "joined", "lock", "number", "of_queue", "passed", "pool",
        "sequence", "spare", "stream",
    )  # fmt: skip

    def __init__(
        self, device: Device, stream: Any, number: int, pool: StreamPool | None = None, *, of_queue: bool = False
    ) -> None:
        self.pool = pool
        self.of_queue = of_queue
        self._free = [True]  # for a launch; of a pool's lane the pool keeps the books
        self.device = device
        self.stream = stream
        self.number = number
        self.sequence = 0
        self.end: Point | None = None
        self.passed = (0, 0.0)
        self.lock = threading.RLock()  # for who marks a user's lane and has the gate look at it, in one order
        self._waited: dict[Lane, int] = {}
        self.joined: dict[StreamPool, Lane] = {}
        self.spare: Any = None

    def mark(self) -> Point:
        """Record an event at the tail of the stream and return the place."""
        # No lock is taken, which would cost as much as all else here. Where another thread has marked the lane
        # meanwhile, the event is recorded once more, so that events and sequences are in one order.
        point = _new(Point)  # without a call of `Point.__init__`, which takes as long again
        point.lane = self
        point.is_followed = False
        point.item = None
        while True:
            before = self.sequence
            point.event = self.device.record(self.stream)
            if self.sequence == before:  # no thread comes in between this and the next line: there is no call
                self.sequence = point.sequence = before + 1
                return point

    def wait_for(self, points: Iterable[Point]) -> None:
        """Hold later work on this lane until the points have passed; enqueue only the waits that are needed."""
        # This lane's own work runs in order and needs no wait. Of several points on another lane only the latest needs
        # one, unless an earlier wait has covered it.
        latest: dict[Lane, Point] | None = None
        for point in points:
            lane = point.lane
            if lane is not self and self._waited.get(lane, 0) < point.sequence:
                if latest is None:
                    latest = {}
                known = latest.get(lane)
                if known is None or point.sequence > known.sequence:
                    latest[lane] = point
        if latest is None:
            return
        for lane, point in latest.items():
            event = point.event
            if event is None:
                continue
            self.device.wait_event(self.stream, event)
            if lane.pool is not None:  # a user's stream is not kept, and its handle may come to stand for another
                self._waited[lane] = point.sequence

    def take(self) -> bool:
        """Take the lane of a queue for a launch; return whether no other launch has it."""
        try:
            return self._free.pop()  # one step
        except IndexError:
            return False

    def release(self, end: Point | None = None) -> None:
        """Give a lane back after a launch, which ended at ``end`` if that is known."""
        if self.of_queue:
            self._free.append(True)
        elif self.pool is not None:
            self.end = end
            self.pool.idle.append(self)

    @property
    def is_idle(self) -> bool:
        """Whether the stream has nothing left to do; a lost one never gets there."""
        try:
            return bool(self.stream.done)
        except DeviceLostError:
            return False

    def note_passed(self, point: Point | None, start_s: float) -> tuple[float, float]:
        """Note that a launch is complete, to its point; return when it began, at ``start_s`` or later, and ended."""
        # It began when the one before it on the lane had ended, if that was later.
        sequence, ended_s = self.passed
        end_s = perf_counter()  # after those were read, which other threads note
        if point is None or point.sequence < sequence:  # the device is lost, or a later one was noticed before
            return start_s, end_s
        self.passed = point.sequence, end_s
        return ended_s if ended_s > start_s else start_s, end_s  # noqa: FURB136  # `max` would be called

    def __repr__(self) -> str:
        return f"<Lane {self.number} of {self.device.name}>"


class StreamPool:
    """The lanes of one device."""

    __slots__ = ("_device", "_lock", "idle", "lanes")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self.idle: deque[Lane] = deque()  # the longest first
        self.lanes: list[Lane] = []

    def acquire(self, preferred: Iterable[Point]) -> Lane | None:
        """Take a lane for a launch: that of a point of ``preferred`` without a follower, or the longest idle.

        Returns None while `POOL_LIMIT` lanes are held by launches.
        """
        for point in preferred:
            if not point.is_followed and point.lane.pool is self:  # not that of a queue
                lane = point.lane
                try:
                    self.idle.remove(lane)  # one step: whoever takes it out has it
                except ValueError:
                    continue
                point.is_followed = True
                return lane
        if self.idle:
            try:
                lane = self.idle.popleft()
            except IndexError:
                pass  # another thread has taken the last one
            else:
                end = lane.end
                # No question to the device: the gate has asked, or will.
                if (end is not None and end.event is None) or len(self.lanes) >= POOL_SIZE:
                    return lane
                self.idle.appendleft(lane)
        with self._lock:
            return self._new() if len(self.lanes) < POOL_LIMIT else None

    def acquire_joined(self, lane: Lane) -> Lane | None:
        """Take a lane whose work is to follow all that another device's has: if possible the one that has joined that.

        Work of the lane that has joined it is followed in any case, and without an event if the same lane is taken.
        """
        known = lane.joined.get(self)
        if known is not None:
            try:
                self.idle.remove(known)  # as above
            except ValueError:
                pass
            else:
                return known
        return self.acquire(())

    def numbered(self, number: int) -> Lane:
        """Return the lane behind an async queue number."""
        with self._lock:
            while len(self.lanes) <= number % POOL_SIZE:
                self.idle.append(self._new())
            return self.lanes[number % POOL_SIZE]

    def next(self) -> Lane:
        """Return the longest idle lane, without holding it."""
        with self._lock:
            if not self.idle or len(self.lanes) < POOL_SIZE:
                self.idle.append(self._new())
                return self.idle[-1]
            self.idle.rotate(-1)
            return self.idle[-1]

    def close(self) -> None:
        """Let the streams go, also where somebody keeps a lane."""
        for lane in self.lanes:
            lane.stream = lane.end = lane.spare = None
        self.idle.clear()
        self.lanes.clear()

    def _new(self) -> Lane:
        lane = Lane(self._device, self._device.new_stream(), len(self.lanes), self)
        self.lanes.append(lane)
        return lane
