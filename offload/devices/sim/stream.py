"""Streams and events of the simulated device.

*Theory of operation.* A lane (`offload.devices.sim.lane`) is a FIFO of operations, the native stream is the
handle on one. Operations are a function and its arguments; nothing else is ever run by a lane, and no body is.

The device's `offload.devices.sim.fate.Fate` releases all waits when the device is lost. Waits are two-sided: the
waiter registers its signal and then looks, the other side changes the state and then signals, so that none is missed. A
wait for an event of a device that is lost is an operation that fails: the waiting stream's device is lost with it.

A stream that dies retires its lane, which ends once it is empty. Code run from a finaliser takes reentrant locks only.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from offload.errors import UsageError
from offload.interrupts.forks import in_forked_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.devices.sim.fate import Fate
    from offload.devices.sim.protocols import SimQueue, StreamsDevice


class SimEvent:
    """A point in a stream of a simulated device.

    An event made by hand is a latch: waits for it are held until ``fire()``. Recording it again gives it a new
    point; waits enqueued before keep the old one. It is recorded by one thread at a time.
    """

    __slots__ = ("_armed", "_fired", "_signals", "device")
    _listening = threading.RLock()  # one for all events: few are ever waited for by a thread

    @classmethod
    def after_fork(cls) -> None:
        """Go on in a forked child: another thread of the parent may have had the lock."""
        cls._listening = threading.RLock()

    def __init__(self, device: StreamsDevice) -> None:
        self.device = device
        self._armed = 1  # the latest point
        self._fired = 0  # the last point that has passed
        self._signals: list[SimpleQueue[None]] | None = None  # made when needed: most events are never waited for

    @property
    def done(self) -> bool:
        """True once the stream has passed it; never on a device that was lost before."""
        return self._fired >= self._armed

    @property
    def fate(self) -> Fate:
        """That of its device."""
        return self.device.fate

    def record(self, stream: SimStream | None = None) -> None:
        """Record it at the tail of ``stream``, by default the one in use on this thread."""
        stream = self.device.current_stream() if stream is None else stream
        if stream is None:
            raise UsageError(f"no stream of {self.device.name} is current on this thread; name the stream to record on")
        stream.record(self)

    def synchronize(self) -> None:
        """Block until the stream has passed it.

        Raises
        ------
        DeviceLostError
            The device was lost before.
        """
        if not self.holds_until(self._armed, (self.fate,)):
            raise self.fate.lost()

    def fire(self, point: int | None = None, lane: SimQueue | None = None) -> None:
        """Pass the event: by hand the latest point of it, by its stream's lane the one that was recorded."""
        if point is None:
            point = self._armed
        if point > self._fired:  # noqa: PLR1730  # a call of `max` takes as long as all else here
            self._fired = point
        if lane is not None:  # no thread comes in between: who finds that the event has passed finds the lane idle
            lane.reached = lane.completed + 1
        if self._signals is not None:
            with self._listening:
                signals, self._signals = self._signals, None
            for signal in signals or ():
                signal.put(None)

    def arm(self) -> int:
        """Give it a new point, not yet passed, and return that."""
        self._armed += 1
        return self._armed

    def holds(self) -> int:
        """Return the point that a wait enqueued now waits for; 0 if it has passed."""
        return 0 if self._fired >= self._armed else self._armed

    def has_passed(self, point: int) -> bool:
        """Tell whether the stream has passed that point of it."""
        return self._fired >= point

    def listen(self, signal: SimpleQueue[None]) -> None:
        """Put into ``signal`` when it fires next."""
        with self._listening:
            if self._signals is None:
                self._signals = []
            if signal not in self._signals:
                self._signals.append(signal)

    def ignore(self, signal: SimpleQueue[None]) -> None:
        """Undo `listen`."""
        with self._listening:
            if self._signals is not None and signal in self._signals:
                self._signals.remove(signal)

    def holds_until(self, point: int, fates: tuple[Fate, ...]) -> bool:
        """Block until ``point`` has passed (true) or one of the devices is lost (false)."""
        if self._fired >= point:
            return True
        signal: SimpleQueue[None] = SimpleQueue()
        for fate in fates:
            fate.signals.add(signal)
        try:
            while True:
                # Registered before the look, or a change in between would be missed.
                self.listen(signal)
                if self._fired >= point:
                    return True
                if any(fate.error is not None for fate in fates):
                    return False
                signal.get()
        finally:
            for fate in fates:
                fate.signals.discard(signal)
            self.ignore(signal)


class SimStream:
    """A stream of a simulated device, with the methods of `cupy.cuda.Stream` and `launch`.

    Operations run in order, on a thread of the stream, which starts at the first of them. Enqueueing
    costs about 0.3 µs while the thread is awake. On a lost device operations are dropped.
    """

    __slots__ = ("__weakref__", "_fate", "device", "lane")

    def __init__(self, device: StreamsDevice) -> None:
        self.device = device
        self._fate = device.fate
        self.lane = device.new_lane()

    def __repr__(self) -> str:
        return f"<SimStream {self.lane.number} of {self.device.name}>"

    def __del__(self) -> None:
        lane = getattr(self, "lane", None)
        if lane is not None:
            lane.retire()

    @property
    def done(self) -> bool:
        """True if everything enqueued has run. Raises `DeviceLostError` where that will never be."""
        if self._fate.error is not None:
            self._fate.check()
        return self.lane.is_idle

    def launch(self, fn: Callable[..., Any], *args: Any) -> None:
        """Enqueue ``fn(*args)``, as a library call enqueues work. Its result is dropped.

        If it raises, the device is lost.
        """
        self.lane.put(fn, args)

    def launch_host_func(self, callback: Callable[[Any], Any], arg: Any) -> None:
        """Enqueue ``callback(arg)``."""
        self.lane.put(callback, (arg,))

    def record(self, event: SimEvent | None = None) -> SimEvent:
        """Record ``event``, or a new one, at the tail, and return it. On an idle stream it is done at once."""
        if event is None:
            event = SimEvent(self.device)
            self.lane.record(event, 1)
        else:
            self.lane.record(event, event.arm())
        return event

    def wait_event(self, event: SimEvent) -> None:
        """Hold work enqueued from now on until ``event``, of any simulated device, has passed."""
        point = event.holds()
        if point:
            self.lane.wait(event, point)

    def synchronize(self) -> None:
        """Block until everything enqueued has run.

        Raises
        ------
        DeviceLostError
            An operation of the device has failed.
        UsageError
            Called by an operation of this very stream, which would wait for itself.
        """
        if not self.lane.is_idle:
            if self.lane.runs_here():
                raise UsageError(f"an operation of {self!r} synchronises that stream and would wait for itself")
            self.record().synchronize()
        self._fate.check()


in_forked_child(SimEvent.after_fork)
