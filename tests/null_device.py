"""A device that does nothing and remembers what it was asked: for tests of the scheduler alone."""

from __future__ import annotations

import itertools
import math
import types
import weakref
from typing import TYPE_CHECKING, Any

from offload.arrays.sections import Section, c_strides, section_of
from offload.devices import kinds
from offload.devices.kind import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from offload.devices.kind import Opening
    from offload.devices.retirement import Retired
    from offload.events.wakeup import Wakeup

PAGE_NBYTES = 4096
"""Arrays get addresses that are multiples of this; no two share a byte."""


class NullDevice:
    """A device whose work is done when it is enqueued; see `offload.devices.base.Device`.

    Attributes
    ----------
    calls : list of tuple
        ``(method, *arguments)`` of each call that a real device would act on, in order.
    """

    kind = "null"
    bodies_block = False
    waits_look = False
    wakes_by_driver = False
    poisons = False
    kernels = None
    _serial = itertools.count()

    def __init__(self, number: int, *, memory_nbytes: int = 1 << 40) -> None:
        self.number = number
        self.name = f"null:{number}"
        self.space: object = ("null", next(self._serial))
        self.calls: list[tuple[Any, ...]] = []
        self._memory_nbytes = memory_nbytes
        self._address = PAGE_NBYTES
        self._buffers: weakref.WeakSet[NullArray] = weakref.WeakSet()
        self._views: weakref.WeakSet[NullArray] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<NullDevice {self.name}>"

    # -- streams ---------------------------------------------------------------------------------
    def new_stream(self) -> NullStream:
        """Make a stream."""
        stream = NullStream(self)
        self.calls.append(("new_stream", stream))
        return stream

    def owns_stream(self, stream: object) -> bool:
        """Tell whether ``stream`` is a stream of this device."""
        return isinstance(stream, NullStream) and stream.device is self

    def adopt(self, stream: Any) -> Any:
        """Return ``stream``, which is native already."""
        return stream

    def record(self, stream: NullStream) -> NullEvent:
        """Return an event, which is done."""
        event = NullEvent()
        self.calls.append(("record", stream, event))
        return event

    def wait_event(self, stream: NullStream, event: NullEvent) -> None:
        """Note it."""
        self.calls.append(("wait_event", stream, event))

    def passed(self, event: NullEvent) -> bool:
        """Return True."""
        return event.done

    def reuse(self, events: list[NullEvent]) -> None:
        """Do nothing: events are made anew."""

    def wake(self, stream: NullStream, wakeup: Wakeup) -> None:
        """Post ``wakeup`` at once."""
        self.calls.append(("wake", stream, wakeup))
        wakeup.post()

    def use(self, stream: NullStream) -> None:
        """Note it."""
        self.calls.append(("use", stream))

    def restore(self, outer: None) -> None:
        """Note it."""
        self.calls.append(("restore",))

    def caller_event(self) -> None:
        """Return None: a thread holds nothing."""

    # -- memory ----------------------------------------------------------------------------------
    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) memory in bytes; nothing is ever refused."""
        return self._memory_nbytes - self.live_nbytes(), self._memory_nbytes

    def live_nbytes(self) -> int:
        """Return the bytes of the arrays from `alloc` that are alive."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: NullStream) -> NullArray:
        """Return an array without memory."""
        strides = tuple(dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        array = NullArray(self, self._address, shape, strides, dtype, None)
        self._address += (array.nbytes // PAGE_NBYTES + 1) * PAGE_NBYTES
        self._buffers.add(array)
        self.calls.append(("alloc", shape, dtype, stream))
        return array

    def poison(self, buffer: NullArray, dtype: np.dtype[Any], stream: NullStream) -> None:
        """Do nothing: there is no memory."""

    def view(
        self,
        buffer: NullArray,
        offset_nbytes: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> NullArray:
        """Return an array over part of ``buffer``."""
        self.calls.append(("view", buffer, offset_nbytes, shape, strides, dtype))
        array = NullArray(self, buffer.address + offset_nbytes, shape, strides, dtype, buffer)
        self._views.add(array)
        return array

    def copy(self, dst: Any, src: Any, stream: NullStream) -> None:
        """Note it."""
        self.calls.append(("copy", dst, src, stream))

    def repeat(self, dst: Any, src: Any) -> Callable[[NullStream], None]:
        """Return what notes it."""
        return lambda stream: self.copy(dst, src, stream)

    def copy_indexed(self, dst: NullArray, src: NullArray, to: Any, at: Any, stream: NullStream) -> None:
        """Note it."""
        self.calls.append(("copy_indexed", dst, src, to, at, stream))

    def fill(self, array: NullArray, value: int, stream: NullStream) -> None:
        """Note it."""
        self.calls.append(("fill", array, value, stream))

    def copies_async(self, host: np.ndarray[Any, Any]) -> bool:
        """Return True."""
        return True

    def can_access(self, host: np.ndarray[Any, Any]) -> bool:
        """Return False."""
        return False

    def host_memory(self, nbytes: int) -> None:
        """Return None."""

    def is_array(self, value: object) -> bool:
        """Tell whether ``value`` is an array of this device."""
        return isinstance(value, NullArray) and value.device is self

    def renew(self, buffer: NullArray) -> bool:
        """Tell whether nobody has a view of a buffer."""
        return not any(array.base is buffer for array in list(self._views))

    def retire(self, array: NullArray, retired: Retired) -> None:
        """Note it."""
        self.calls.append(("retire", array, retired))

    def retired(self, array: NullArray) -> None:
        """Return None: there is no memory that could go back."""

    def as_array(self, value: Any) -> Any | None:
        """Return ``value`` if it is an array of this device, else None: no other library has arrays here."""
        return value if self.is_array(value) else None

    def section(self, array: NullArray) -> Section:
        """Return the storage that ``array`` would have."""
        return section_of(self.space, array.address, array.shape, array.strides, array.dtype.itemsize)

    def address(self, array: object) -> int | None:
        """Return where ``array`` would lie."""
        return array.address if isinstance(array, NullArray) and self.is_array(array) else None

    def namespace(self) -> types.SimpleNamespace:
        """Return a namespace with ``empty`` only."""
        stream = NullStream(self)
        return types.SimpleNamespace(empty=lambda shape, dtype: self.alloc(shape, dtype, stream))

    # -- graphs ----------------------------------------------------------------------------------
    def graph_capture(self) -> None:
        """Return None: it repeats nothing by itself."""

    # -- life ------------------------------------------------------------------------------------
    def check(self, stream: Any) -> None:
        """Do nothing: nothing fails here."""

    def synchronize(self) -> None:
        """Note it."""
        self.calls.append(("synchronize",))

    def close(self) -> None:
        """Note it."""
        self.calls.append(("close",))


class NullEvent:
    """An event that has passed."""

    done = True

    def synchronize(self) -> None:
        """Return at once."""


class NullStream:
    """A stream that is always idle; what is enqueued on it is noted in its device's ``calls``."""

    done = True

    def __init__(self, device: NullDevice) -> None:
        self.device = device

    def synchronize(self) -> None:
        """Return at once."""

    def record(self, event: NullEvent | None = None) -> NullEvent:
        """Return ``event``, or a new one."""
        return self.device.record(self) if event is None else event

    def wait_event(self, event: NullEvent) -> None:
        """Note it."""
        self.device.wait_event(self, event)

    def launch_host_func(self, callback: Any, arg: Any) -> None:
        """Call ``callback(arg)`` at once."""
        self.device.calls.append(("launch_host_func", self, callback, arg))
        callback(arg)


class NullFlags:
    """What is asked of the flags of an array."""

    def __init__(self, *, c_contiguous: bool, f_contiguous: bool) -> None:
        self.c_contiguous = c_contiguous
        self.f_contiguous = f_contiguous


class NullArray:
    """What is known of an array, without its memory."""

    def __init__(
        self,
        device: NullDevice,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        base: NullArray | None,
    ) -> None:
        self.device = device
        self.address = address
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.base = base
        self.ndim = len(shape)
        self.size = math.prod(shape)
        self.itemsize = dtype.itemsize
        self.nbytes = self.size * dtype.itemsize

    @property
    def flags(self) -> NullFlags:
        """Return what is asked of the order of its elements."""
        shape, strides, itemsize = self.shape, self.strides, self.itemsize
        return NullFlags(
            c_contiguous=strides == c_strides(shape, itemsize),
            f_contiguous=strides[::-1] == c_strides(shape[::-1], itemsize),
        )

    def __offload_section__(self) -> Section:
        """Return the storage that the array would have."""
        return self.device.section(self)


class NullKind(Kind):
    """Devices ``null``, ``null:2``, …."""

    name = "null"

    def open(self, opening: Opening) -> NullDevice:
        """Return a new device."""
        return NullDevice(opening.number)


kinds.register(NullKind())
