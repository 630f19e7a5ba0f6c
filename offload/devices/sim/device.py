"""The simulated device: memory of its own, streams on threads, sticky errors. It needs NumPy only.

A program that passes here passes on CUDA: data reaches it by copies alone, its arrays refuse to mix with the
host's, streams run in order and know nothing of each other, and the first operation that fails loses
the device. One thing differs: an array operation in a body runs at once, on the thread of the body, after the body's
work on its stream (`SimDevice.settle`).
"""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from functools import partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.hostcopies import copyto
from offload.arrays.sections import Section, section_of
from offload.devices.retirement import REFERENCES_ALONE
from offload.devices.sim.array import SimArray, apply
from offload.devices.sim.fate import Fate
from offload.devices.sim.kernels import SimKernels
from offload.devices.sim.lane import Free, SimLane, Stepper
from offload.devices.sim.memory import MemoryAccount
from offload.devices.sim.namespace import SimNamespace
from offload.devices.sim.poison import poison
from offload.devices.sim.protocols import StorageUse
from offload.devices.sim.stream import SimEvent, SimStream
from offload.errors import CleanupWarning, DeviceLostError, InternalError
from offload.interrupts.finalizers import catch_up
from offload.interrupts.frames import warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.devices.base import Kernels
    from offload.devices.retirement import Retired
    from offload.events.wakeup import Wakeup

MEMORY_NBYTES = 2 << 30
"""Memory of a simulated device unless told otherwise: small enough to meet the limit in a test."""


class SimDevice:
    """A simulated device; see `offload.devices.base.Device`.

    Parameters
    ----------
    number : int
        Device number within its runtime.
    memory_nbytes : int
        Size of its memory in bytes.
    rng : random.Random, optional
        Given, the order in which streams progress follows from it, one operation at a time.
        One number is drawn, here.
    poisons : bool
        Fill uninitialised memory with a conspicuous pattern, see `offload.devices.sim.poison`.
    close_s : float
        How long closing waits for the streams before it gives them up.
    """

    kind = "sim"
    bodies_block = True  # array operations run on the thread of the body
    waits_look = False  # a lane wakes whoever waits
    wakes_by_driver = False  # a thread of Python posts the wake-up
    kernels: Kernels | None = SimKernels()
    _serial = itertools.count()  # no two devices of a process share an address space

    def __init__(
        self,
        number: int,
        *,
        memory_nbytes: int = MEMORY_NBYTES,
        rng: random.Random | None = None,
        poisons: bool = False,
        close_s: float = 5.0,
    ) -> None:
        self.number = number
        self.close_s = close_s
        self.poisons = poisons
        self.name = f"sim:{number}"
        self.space: object = ("sim", next(self._serial))
        self.memory = MemoryAccount(self.name, memory_nbytes)  # refuses more than there is
        self.fate = Fate(self.name)  # sound, lost or closed
        self._current = _Current()  # the stream that each thread uses
        self._mode: Free | Stepper
        self._mode = Free(self.fate) if rng is None else Stepper(self.fate, random.Random(rng.getrandbits(64)))  # noqa: S311
        self._namespace = SimNamespace(self)

    def __repr__(self) -> str:
        return f"<SimDevice {self.name}>"

    def __del__(self) -> None:
        if hasattr(self, "_mode"):
            self._mode.stop()

    # -- streams ---------------------------------------------------------------------------------
    def new_stream(self) -> SimStream:
        """Make a stream that is not ordered with any other."""
        return SimStream(self)

    def new_lane(self) -> SimLane:
        """Make the queue of operations behind a new stream."""
        return self._mode.new_lane()

    def owns_stream(self, stream: object) -> bool:
        """Tell whether ``stream`` is a stream of this device."""
        return isinstance(stream, SimStream) and stream.device is self

    def adopt(self, stream: Any) -> Any:
        """Return ``stream``, which is native already."""
        return stream

    def record(self, stream: SimStream) -> SimEvent:
        """Record and return an event at the tail of ``stream``; it is done at once if the stream is idle."""
        event = SimEvent(self)
        stream.lane.record(event, 1)
        return event

    def wait_event(self, stream: SimStream, event: SimEvent) -> None:
        """Hold work enqueued on ``stream`` from now on until ``event``, of any simulated device, has passed."""
        stream.wait_event(event)

    def passed(self, event: SimEvent) -> bool:
        """Tell whether ``event`` has passed; raise `DeviceLostError` if it never will."""
        if event.done:
            return True
        fate = event.device.fate
        if fate.error is not None:
            fate.check()
        return False

    def reuse(self, events: list[SimEvent]) -> None:
        """Do nothing: events are made anew."""

    def wake(self, stream: SimStream, wakeup: Wakeup) -> None:
        """Post ``wakeup`` when ``stream`` gets here, at once if it is idle; never, on a lost device."""
        lane = stream.lane
        if lane.tail in (lane.completed, lane.reached) and self.fate.error is None:  # idle, without a call
            wakeup.post()
        else:
            lane.put(wakeup.post, ())

    def use(self, stream: SimStream) -> SimStream | None:
        """Make ``stream`` the one that array operations of this thread wait for; return the one before."""
        current = self._current
        outer, current.stream = current.stream, stream
        return outer

    def restore(self, outer: SimStream | None) -> None:
        """Make the one before so again."""
        self._current.stream = outer

    def current_stream(self) -> SimStream | None:
        """Return the stream in use on this thread."""
        return self._current.stream

    def caller_event(self) -> None:
        """Return None: a thread outside a body uses no stream."""

    apply = staticmethod(apply)  # of array.py: how an operation on arrays is carried out

    def settle(self, storage: Any = None, use: StorageUse = StorageUse.READ, index: tuple[Any, ...] = ()) -> None:
        """Wait for the work that this thread's body has given to its stream; every array operation begins so.

        The arguments say how the operation uses the storage of an array, unless `apply` carries it out. A device whose
        arrays are watched needs them.

        Raises
        ------
        DeviceLostError
            Work on the device has failed.
        """
        stream = self._current.stream
        if stream is not None:
            stream.synchronize()
        elif self.fate.error is not None:
            self.fate.check()

    # -- memory ----------------------------------------------------------------------------------
    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) memory in bytes."""
        catch_up()
        total_nbytes = self.memory.total_nbytes
        return total_nbytes - self.memory.used_nbytes(), total_nbytes

    def live_nbytes(self) -> int:
        """Return the bytes of all arrays alive, temporaries of bodies included, and those that refuse to be used."""
        return self.memory.alive_nbytes()

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: SimStream) -> SimArray:
        """Return an uninitialised C-ordered array; its memory goes back at `retire`, or when the last reference does.

        Raises
        ------
        DeviceMemoryError
            There is not enough memory.
        DeviceLostError
            Work on the device has failed.
        """
        if self.fate.error is not None:
            self.fate.check()
        # The account refuses before NumPy allocates.
        block = self.memory.take(math.prod(shape) * dtype.itemsize)
        storage: np.ndarray[Any, Any] = np.empty(shape, dtype)
        if self.poisons:
            poison(storage, dtype)
        return SimArray(storage, self, block)

    def poison(self, buffer: SimArray, dtype: np.dtype[Any], stream: SimStream) -> None:
        """Fill a ``buffer`` for elements of ``dtype``, after the stream's earlier work: at once if it has none."""
        if stream.lane.is_idle:
            poison(buffer._storage, dtype)  # noqa: SLF001
        else:
            stream.launch(poison, buffer._storage, dtype)  # noqa: SLF001

    def view(
        self,
        buffer: SimArray,
        offset_nbytes: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> SimArray:
        """Return an array over part of a contiguous ``buffer``; see the contract.

        Raises
        ------
        InternalError
            It would reach beyond the buffer, or the buffer is not contiguous.
        """
        storage = buffer._storage  # noqa: SLF001
        if not storage.flags.forc:
            raise InternalError(
                f"view of a buffer with strides {storage.strides} and shape {storage.shape}; it must be contiguous"
            )
        try:
            is_bytes = storage.ndim == 1 and storage.dtype == np.uint8
            memory = storage if is_bytes else storage.reshape(-1, order="A").view(np.uint8)
            part = np.ndarray(shape, dtype, buffer=memory, offset=offset_nbytes, strides=strides)
        except (ValueError, TypeError) as error:
            raise InternalError(
                f"view of shape {shape}, strides {strides}, {dtype} at byte {offset_nbytes} reaches beyond "
                f"the {storage.nbytes} bytes of its buffer on {self.name}"
            ) from error
        return SimArray(part, self, buffer._block)  # noqa: SLF001

    def copy(self, dst: Any, src: Any, stream: SimStream) -> None:
        """Enqueue an element-wise copy; each side is a host array or an array of any simulated device.

        Raises
        ------
        DeviceLostError
            Work on the device has failed.
        InternalError
            Shapes or dtypes differ, or the destination is read-only.
        """
        if self.fate.error is not None:
            self.fate.check()
        to, charge = (dst._storage, dst._block.charge) if dst.__class__ is SimArray else (dst, None)  # noqa: SLF001
        at, other = (src._storage, src._block.charge) if src.__class__ is SimArray else (src, None)  # noqa: SLF001
        if to.shape != at.shape or to.dtype != at.dtype:
            raise InternalError(
                f"copy of {src.dtype}{list(src.shape)} to {dst.dtype}{list(dst.shape)}; they must be the same"
            )
        if not to.flags.writeable:
            raise InternalError(f"copy to a read-only array of shape {dst.shape}")
        if to is not dst:
            dst._block.is_unwritten = False  # noqa: SLF001
        stream.lane.put(_copy, (to, at, charge, other))

    def copy_indexed(self, dst: SimArray, src: SimArray, to: Any, at: Any, stream: SimStream) -> None:
        """Enqueue a copy by tables of offsets; see the contract.

        Raises
        ------
        DeviceLostError
            Work on the device has failed.
        """
        self.fate.check()
        if isinstance(dst, SimArray):  # and not a host array
            dst._block.is_unwritten = False  # noqa: SLF001
        stream.launch(_copy_indexed, dst, src, to, at)

    def fill(self, array: SimArray, value: int, stream: SimStream) -> None:
        """Enqueue setting every element of an array to ``value``.

        Raises
        ------
        DeviceLostError
            Work on the device has failed.
        """
        self.fate.check()
        array._block.is_unwritten = False  # noqa: SLF001
        stream.launch(_storage(array).fill, value)

    def repeat(self, dst: Any, src: Any) -> Callable[[SimStream], None]:
        """Return a function that enqueues a copy: all memory is alike."""
        return partial(self.copy, dst, src)

    def copies_async(self, host: np.ndarray[Any, Any]) -> bool:
        """Return True: every copy is enqueued."""
        return True

    def can_access(self, host: np.ndarray[Any, Any]) -> bool:
        """Return False: data reaches this device by copies alone."""
        return False

    def host_memory(self, nbytes: int) -> None:
        """Return None: every copy is enqueued."""

    def is_array(self, value: object) -> bool:
        """Tell whether ``value`` is an array of this device."""
        return value.__class__ is SimArray and value._device is self  # noqa: SLF001

    def renew(self, buffer: SimArray) -> bool:
        """Make a buffer like a new one; false where somebody has an array over its memory."""
        if getrefcount(buffer._block) > REFERENCES_ALONE:  # noqa: SLF001
            return False
        buffer._block.is_unwritten = True  # noqa: SLF001
        return True

    def retire(self, array: SimArray, retired: Retired) -> None:
        """Mark the allocation that ``array`` lies in as retired: every array there raises from now on.

        Its memory is free again: nothing can use it.
        """
        array._block.retire(retired)  # noqa: SLF001

    def retired(self, array: SimArray) -> Retired | None:
        """Return the mark of the allocation that ``array`` lies in; None while it may be used."""
        return array._block.retired  # noqa: SLF001

    def is_unwritten(self, array: SimArray) -> bool:
        """Tell whether nobody has written an element of the allocation that ``array`` lies in."""
        return array._block.is_unwritten  # noqa: SLF001

    def as_array(self, value: Any) -> Any | None:
        """Return ``value`` if it is an array of this device, else None: no other library has arrays here."""
        return value if self.is_array(value) else None

    def section(self, array: SimArray) -> Section:
        """Return the storage of ``array``."""
        storage = array._storage  # noqa: SLF001
        address = storage.__array_interface__["data"][0]
        return section_of(self.space, address, storage.shape, storage.strides, storage.itemsize)

    def address(self, array: object) -> int | None:
        """Return where the first element of ``array`` lies; see the contract."""
        if not isinstance(array, SimArray) or array._device is not self:  # noqa: SLF001
            return None
        if array._block.retired is not None:  # noqa: SLF001
            raise array._block.retired.error(array)  # noqa: SLF001
        array._block.is_unwritten = False  # noqa: SLF001  # who asks may write there
        return int(array._storage.__array_interface__["data"][0])  # noqa: SLF001

    def namespace(self) -> SimNamespace:
        """Return the namespace whose functions make arrays on this device."""
        return self._namespace

    # -- graphs ----------------------------------------------------------------------------------
    def graph_capture(self) -> None:
        """Return None: its array operations take the thread of the body, each time."""

    # -- life ------------------------------------------------------------------------------------
    def check(self, stream: SimStream) -> None:  # any stream of a lost device tells
        """Raise `DeviceLostError` if work on the device has failed."""
        self.fate.check()

    def synchronize(self) -> None:
        """Block until every stream is idle; raise `DeviceLostError` if one failed."""
        events = []
        for lane in self._mode.busy_lanes():
            event = SimEvent(self)
            lane.record(event, 1)
            events.append(event)
        for event in events:
            event.synchronize()
        self.fate.check()

    def drain(self) -> None:
        """Wait until every stream is idle, but not if the device is lost, and `close_s` at most."""
        end_s = time.monotonic() + self.close_s
        while self.fate.error is None and time.monotonic() < end_s:
            if all(lane.is_idle for lane in self._mode.busy_lanes()):
                return
            time.sleep(0.001)

    def close(self) -> None:
        """Drain the streams and stop the threads. Idempotent.

        Blocks for `close_s` at most; then it warns, drops operations that have not run and goes on.
        """
        with self.fate.lock:
            if self.fate.closed:
                return
            self.fate.closed = True
        stuck = _join(self._mode.stop(), self.close_s)
        if stuck:
            self.fate.lose(DeviceLostError(f"{self.name} was closed while work was still enqueued"))
            left = _join(stuck, 1.0)
            warn(
                f"{self.name} closed while {len(stuck)} of its threads still had work after {self.close_s} s; the "
                "device is abandoned"
                + (f"; {len(left)} of them are in an operation that does not end" if left else "")
                + "; fulfil or fire what the streams wait for before closing",
                CleanupWarning,
            )


class _Current(threading.local):
    stream: SimStream | None = None


def _copy(to: np.ndarray[Any, Any], at: np.ndarray[Any, Any], *_charges: object) -> None:
    copyto(to, at)


def _copy_indexed(dst: SimArray, src: SimArray, to: Any, at: Any) -> None:
    to_host, at_host = _storage(dst), _storage(src)
    if at is None:
        to_host[_storage(to)] = at_host[: to.size]
    elif to is None:
        to_host[: at.size] = at_host[_storage(at)]
    else:
        to_host[_storage(to)] = at_host[_storage(at)]


def _storage(array: Any) -> np.ndarray[Any, Any]:
    return array._storage if isinstance(array, SimArray) else array  # noqa: SLF001


def _join(threads: list[threading.Thread], timeout_s: float) -> list[threading.Thread]:
    """Wait for threads; return those that have not ended in time."""
    deadline_s = time.monotonic() + timeout_s
    others = [thread for thread in threads if thread is not threading.current_thread()]
    for thread in others:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    return [thread for thread in others if thread.is_alive()]
