"""Streams, events and the device of the stand-in: ``cupy.cuda``."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

from offload.port.log import NULL

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from offload.port.log import StreamRecord
    from offload.port.machine import ArrayMachine


class CudaSide:
    """The shared state of the streams of a run.

    Parameters
    ----------
    machine : ArrayMachine
        Carries out the operations on arrays.
    cuda : module or None
        ``cupy.cuda`` of CuPy; None on ``sim``.
    """

    def __init__(self, machine: ArrayMachine, cuda: Any) -> None:
        self.machine = machine
        self.recorder = machine.recorder
        self.cuda = cuda
        self._local = threading.local()
        self.stream_class: type[PortStream] = type("Stream", (PortStream,), {"side": self})
        self.event_class: type[PortEvent] = type("Event", (PortEvent,), {"side": self})
        self.device_class: type[PortDevice] = type("Device", (PortDevice,), {"side": self})
        self.stream_class.null = self.null = self.stream_class(null=True)
        machine.current, machine.chosen = self.current, self.chosen
        machine.device = self.device_class()

    @property
    def stack(self) -> list[PortStream]:
        """The streams that this thread has made current, innermost last."""
        try:
            return self._local.stack  # type: ignore[no-any-return]
        except AttributeError:
            self._local.stack = [self.null]
            self._local.depth = []
            return self._local.stack  # type: ignore[no-any-return]

    def current(self, device_id: int = -1) -> PortStream:
        """Return the current stream of this thread."""
        used: PortStream | None = getattr(self._local, "used", None)
        return used or self.stack[-1]

    def push(self, stream: PortStream) -> None:
        """Make a stream current until `pop`."""
        self.stack.append(stream)
        self.recorder.blocks.append((stream.number, self.recorder.place()))
        self._local.used = None

    def chosen(self, stream: PortStream | None) -> PortStream:
        """Return the stream that a call is for: the given one, else the current one."""
        if stream is None:
            return self.current()
        stream.look_for_name()
        return stream

    def pop(self) -> None:
        """Make the stream before it current."""
        self.stack.pop()
        self.recorder.blocks.pop()
        self._local.used = None

    def use(self, stream: PortStream) -> None:
        """Make a stream current."""
        assert self.stack  # made for this thread
        self._local.used = stream

    def elapsed(self, start: PortEvent, end: PortEvent) -> float:
        """Return the time between two events in ms, as ``get_elapsed_time`` does."""
        self.recorder.log.timed.update(event.position for event in (start, end) if event.position is not None)
        if self.cuda is not None:
            return float(self.cuda.get_elapsed_time(start.native, end.native))
        if start.time_s is None or end.time_s is None:
            raise RuntimeError("cudaErrorInvalidResourceHandle: an event was never recorded")
        return (end.time_s - start.time_s) * 1e3

    def synchronize_device(self) -> None:
        """Wait for all streams."""
        self.recorder.add("device wait", "synchronize", NULL)
        if self.cuda is not None:
            self.cuda.runtime.deviceSynchronize()


class PortStream:
    """A stream; ``cupy.cuda.Stream`` is a subclass.

    Parameters
    ----------
    null : bool
        The null stream.
    non_blocking : bool
        Whether the stream is not ordered with the null stream.
    ptds : bool
        Refused.
    priority : int, optional
        Has no effect on the order.
    """

    side: ClassVar[CudaSide]
    null: ClassVar[PortStream]

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ) -> None:
        side = self.side
        if ptds:
            raise side.machine.unsupported("cuda.Stream(ptds=True)")
        self.priority = priority or 0
        self.native: Any = None
        self.record_of: StreamRecord
        if null:
            self.record_of = side.recorder.log.streams[NULL]
            self.native = None if side.cuda is None else side.cuda.Stream.null
            return
        if side.cuda is not None:
            self.native = side.cuda.Stream(non_blocking=non_blocking, priority=priority)
        self.record_of = side.recorder.add_stream(non_blocking=non_blocking)

    @property
    def number(self) -> int:
        """The number in the log."""
        return self.record_of.number

    @property
    def ptr(self) -> int:
        """The handle; on ``sim`` a number that only names the stream."""
        return self.number if self.native is None else int(self.native.ptr)

    @property
    def device_id(self) -> int:
        """The number of the device."""
        return -1 if self.number == NULL else 0

    @property
    def is_non_blocking(self) -> bool:
        """Whether the stream is not ordered with the null stream."""
        return self.record_of.non_blocking

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PortStream) and self.number == other.number

    def __hash__(self) -> int:
        return self.number

    def __repr__(self) -> str:
        return f"<Stream {self.ptr} (device {self.device_id})>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.side.recorder.refuse(f"`Stream.{name}` cannot be expressed by tasks")
        raise self.side.machine.unsupported(f"cuda.Stream.{name}")

    def __enter__(self) -> Self:
        self.look_for_name()
        if self.native is not None:
            self.native.__enter__()
        self.side.push(self)
        return self

    def __exit__(self, *failure: object) -> None:
        self.side.pop()
        if self.native is not None:
            self.native.__exit__(*failure)

    def use(self) -> Self:
        """Make this stream current."""
        self.look_for_name()
        self.side.recorder.refuse("`Stream.use()` makes a stream current without a block")
        if self.native is not None:
            self.native.use()
        self.side.use(self)
        return self

    def look_for_name(self) -> None:
        """Look for the variable of the program that holds this stream."""
        record, recorder = self.record_of, self.side.recorder
        if record.place is not None and not record.variable:
            recorder.name_stream(record, recorder.frame(), _number_of)

    @property
    def done(self) -> bool:
        """Whether all work has been done; on ``sim`` it always has."""
        if self.native is not None and not self.native.done:
            return False
        self.look_for_name()
        self.side.recorder.add("stream wait", "done", self.number, is_query=True)
        return True

    def synchronize(self) -> None:
        """Wait for all work of the stream."""
        self.look_for_name()
        self.side.recorder.add("stream wait", "synchronize", self.number)
        if self.native is not None:
            self.native.synchronize()

    def record(self, event: PortEvent | None = None) -> PortEvent:
        """Record an event on the stream: the given one, or a new one; return it."""
        self.look_for_name()
        event = self.side.event_class() if event is None else event
        event.recorded(self, "stream.record")
        return event

    def wait_event(self, event: PortEvent) -> None:
        """Make later work of the stream wait for an event."""
        self.look_for_name()
        self.side.recorder.add("wait_event", "wait_event", self.number, record=event.position)
        if self.native is not None:
            self.native.wait_event(event.native)

    def launch_host_func(self, callback: Callable[[Any], Any], arg: Any) -> None:
        """Call a function of the host when the stream gets there; on ``sim`` at once."""
        self.look_for_name()
        recorder = self.side.recorder
        recorder.refuse("`launch_host_func` calls host code from a stream")
        operation = recorder.add("callback", "launch_host_func", self.number)

        def run(given: Any) -> None:
            with recorder.callback(operation):
                callback(given)

        if self.native is not None:
            self.native.launch_host_func(run, arg)
        else:
            run(arg)


class PortEvent:
    """An event; ``cupy.cuda.Event`` is a subclass.

    Parameters
    ----------
    block, disable_timing, interprocess : bool
        As CuPy's; they have no effect on the order.
    """

    side: ClassVar[CudaSide]

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        cuda = self.side.cuda
        self.native = None if cuda is None else cuda.Event(block, disable_timing, interprocess)
        self.position: int | None = None  # the operation that recorded it last
        self.time_s: float | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.side.machine.unsupported(f"cuda.Event.{name}")

    def recorded(self, stream: PortStream, call: str = "record") -> None:
        """Note that a stream has recorded the event."""
        self.position = self.side.recorder.add("record", call, stream.number).number
        self.time_s = time.perf_counter()
        if self.native is not None:
            self.native.record(stream.native)

    def record(self, stream: PortStream | None = None) -> None:
        """Record the event on a stream; by default the current one."""
        self.recorded(self.side.chosen(stream))

    @property
    def done(self) -> bool:
        """Whether the work before the event has been done; on ``sim`` it always has."""
        if self.native is not None and not self.native.done:
            return False
        if self.position is not None:
            self.side.recorder.add("event wait", "done", self._stream(), record=self.position, is_query=True)
        return True

    def synchronize(self) -> None:
        """Wait for the work before the event."""
        self.side.recorder.add("event wait", "synchronize", self._stream(), record=self.position)
        if self.native is not None:
            self.native.synchronize()

    def _stream(self) -> int:
        log = self.side.recorder.log
        return NULL if self.position is None else log.operations[self.position].stream


class PortDevice:
    """The device; ``cupy.cuda.Device`` is a subclass.

    Parameters
    ----------
    device : int, optional
        0, the only one.
    """

    side: ClassVar[CudaSide]

    def __init__(self, device: Any = None) -> None:
        if int(device or 0):
            self.side.recorder.refuse("the program uses several devices")
            raise self.side.machine.unsupported(f"cuda.Device({device})", "`offload port` follows one device, number 0")
        self.id = 0

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PortDevice)

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        """Do nothing: there is one device."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.side.cuda is not None and name in _DEVICE_FACTS:
            return getattr(self.side.cuda.Device(0), name)
        raise self.side.machine.unsupported(f"cuda.Device.{name}")

    def use(self) -> Self:
        """Make this device current, which it is."""
        return self

    def synchronize(self) -> None:
        """Wait for all streams."""
        self.side.synchronize_device()


_DEVICE_FACTS = frozenset({"attributes", "compute_capability", "mem_info", "pci_bus_id"})


def _number_of(value: Any) -> int | None:
    """Return the number of a stream; None for another value."""
    return value.number if isinstance(value, PortStream) else None
