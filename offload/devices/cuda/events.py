"""CUDA events without timing, which are reused: to make and destroy one costs twice as much as to record it.

An event may be recorded again as soon as nobody refers to it, or once it has passed. A wait already enqueued refers to
the event's earlier record. A wait enqueued too late holds its stream a little longer than needed.
"""

from __future__ import annotations

from contextlib import suppress

from cupy.cuda import runtime as cuda

_DISABLE_TIMING = 2  # cudaEventDisableTiming


class EventPool:
    """The events of one device."""

    __slots__ = ("_free", "_index", "_is_closed", "passed")

    def __init__(self, index: int) -> None:
        self._index = index
        self._free: list[int] = []  # addresses of events that nobody refers to
        self.passed: list[PooledEvent] = []  # these may be recorded again; the thread that takes one out owns it
        self._is_closed = False

    def record(self, stream: int) -> PooledEvent:
        """Record and return an event at the tail of a stream of the device, given by its address."""
        try:
            event = self.passed.pop()
        except IndexError:
            event = self.new()
        cuda.eventRecord(event.ptr, stream)
        return event

    def reuse(self, events: list[PooledEvent]) -> None:
        """Record these, which have passed, anew."""
        if not self._is_closed:
            self.passed += events

    def new(self) -> PooledEvent:
        """Return another event, which has not been recorded."""
        try:
            return PooledEvent(self, self._free.pop())
        except IndexError:
            return PooledEvent(self, self._make())

    def _make(self) -> int:
        current = cuda.getDevice()
        try:
            if current != self._index:
                cuda.setDevice(self._index)
            return int(cuda.eventCreateWithFlags(_DISABLE_TIMING))
        finally:
            if current != self._index:
                cuda.setDevice(current)

    def take_back(self, ptr: int) -> None:
        """Keep an event that nobody refers to any more."""
        self._free.append(ptr)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Destroy the events; one that somebody refers to goes when nobody does."""
        self._is_closed = True
        self.passed.clear()
        while self._free:
            try:
                ptr = self._free.pop()
            except IndexError:  # another thread has taken the last
                return
            _destroy(ptr)


class PooledEvent:
    """A point in a stream; `cupy.cuda.Stream.wait_event` takes it as it takes CuPy's own."""

    __slots__ = ("_pool", "ptr")

    def __init__(self, pool: EventPool, ptr: int) -> None:
        self._pool = pool
        self.ptr = ptr

    def __del__(self) -> None:
        self._pool.take_back(self.ptr)

    @property
    def done(self) -> bool:
        """Whether the stream has passed it."""
        return bool(cuda.eventQuery(self.ptr) == 0)

    def synchronize(self) -> None:
        """Block until the stream has passed it."""
        cuda.eventSynchronize(self.ptr)


class CallerEvents:
    """Points in several streams; `offload.devices.cuda.device.CudaDevice.wait_event` waits for each."""

    __slots__ = ("events",)

    def __init__(self, *events: PooledEvent | CallerEvents) -> None:
        self.events = events

    def synchronize(self) -> None:
        """Block until each stream has passed its point."""
        for event in self.events:
            event.synchronize()


def together(
    one: PooledEvent | CallerEvents | None, other: PooledEvent | CallerEvents | None
) -> PooledEvent | CallerEvents | None:
    """Return an event that has passed when both have. None stands for an event that has passed."""
    if one is None or other is None:
        return one or other
    return CallerEvents(one, other)


def _destroy(ptr: int) -> None:
    with suppress(cuda.CUDARuntimeError):  # a lost device, or a driver that has shut down, has no events left
        cuda.eventDestroy(ptr)
