"""Which work goes to which stream of a device.

A `Lane` is a stream with what the runtime knows of it: how many pieces of work have been put there, which
came last, and up to where it has waited for other lanes. A task is launched on the lane of a predecessor if
that predecessor came last there: then nothing has to be waited for. Otherwise it takes the next idle lane.
While a task is being launched its lane is its own, so that two launches never mix on one stream.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.devices.base import Device

POOL_SIZE = 8
"""Lanes over which unrelated tasks are spread: more than the copy engines and queues that overlap in practice."""

POOL_LIMIT = 64
"""Lanes that may be in use at a time, when launches are held up."""


class Point(NamedTuple):
    """A place in a lane: everything put there up to ``sequence``, at whose end ``event`` was recorded."""

    lane: Lane
    sequence: int
    event: Any


class Lane:
    """One stream of a device."""

    __slots__ = ("__weakref__", "_waited", "busy", "device", "lock", "number", "pool", "sequence", "stream")

    def __init__(self, device: Device, stream: Any, number: int, pool: StreamPool | None = None) -> None:
        self.pool = pool
        self.device = device
        self.stream = stream
        self.number = number
        self.sequence = 0
        self.busy = False
        self.lock = threading.RLock()  # a user's lane may be marked by several threads
        self._waited: dict[Lane, int] = {}

    def mark(self) -> Point:
        """Record an event at the tail of the stream and return the place."""
        with self.lock:
            event = self.device.record(self.stream)
            self.sequence += 1
            return Point(self, self.sequence, event)

    def wait_for(self, points: Iterable[Point]) -> None:
        """Hold what follows on this lane until the points have passed; enqueue only the waits that are needed.

        None is for this lane itself, whose work runs in order; of several points on another lane only the
        latest, and none that an earlier wait has covered.
        """
        latest: dict[Lane, Point] = {}
        for point in points:
            known = latest.get(point.lane)
            if known is None or point.sequence > known.sequence:
                latest[point.lane] = point
        for lane, point in latest.items():
            if lane is not self and self._waited.get(lane, 0) < point.sequence:
                self.device.wait_event(self.stream, point.event)
                self._waited[lane] = point.sequence

    def __repr__(self) -> str:
        return f"<Lane {self.number} of {self.device.name}>"


class StreamPool:
    """The lanes of one device."""

    __slots__ = ("_device", "_idle", "_lock", "lanes")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._idle: deque[Lane] = deque()
        self.lanes: list[Lane] = []

    def acquire(self, preferred: Iterable[Point]) -> Lane | None:
        """Take a lane for a launch: one whose tail is a point of ``preferred``, or else the longest idle.

        Returns None while `POOL_LIMIT` lanes are held by launches.
        """
        with self._lock:
            for point in preferred:
                lane = point.lane
                if lane.pool is self and not lane.busy and lane.sequence == point.sequence:
                    self._idle.remove(lane)
                    break
            else:
                if self._idle and len(self.lanes) >= POOL_SIZE:
                    lane = self._idle.popleft()
                elif len(self.lanes) < POOL_LIMIT:
                    lane = self._new()
                else:
                    return None
            lane.busy = True
            return lane

    def release(self, lane: Lane) -> None:
        """Give back a lane after a launch."""
        with self._lock:
            lane.busy = False
            self._idle.append(lane)

    def numbered(self, number: int) -> Lane:
        """Return the lane behind an async queue number."""
        with self._lock:
            while len(self.lanes) <= number % POOL_SIZE:
                self._idle.append(self._new())
            return self.lanes[number % POOL_SIZE]

    def next(self) -> Lane:
        """Return the longest idle lane, without holding it."""
        with self._lock:
            if not self._idle or len(self.lanes) < POOL_SIZE:
                self._idle.append(self._new())
                return self._idle[-1]
            self._idle.rotate(-1)
            return self._idle[-1]

    def _new(self) -> Lane:
        lane = Lane(self._device, self._device.new_stream(), len(self.lanes), self)
        self.lanes.append(lane)
        return lane
