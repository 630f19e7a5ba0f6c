"""CUDA devices, through CuPy.

Streams and events are CuPy's own, non-blocking, so that a body's ``current_stream()`` fits any library. A stream
wakes the host by libc's ``sem_post`` as host function, given to the driver through ctypes: no Python runs in a
thread of the driver, where it would dead-lock between the GIL and the driver's lock.
"""

from __future__ import annotations

import ctypes
import math
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import cupy
from cupy.cuda import runtime as cuda

from offload.arrays.foreign import is_tensor
from offload.arrays.items import add_section_reader
from offload.arrays.sections import Section, section_of
from offload.devices.cuda.copies import Copies, is_pinned
from offload.devices.cuda.events import CallerEvents, EventPool, together
from offload.devices.cuda.forks import check_fork, error_of_fork
from offload.devices.cuda.graphs import CudaGraphCapture
from offload.devices.cuda.kept_streams import KeptStream
from offload.devices.cuda.kernels import CudaKernels
from offload.devices.cuda.libraries import Libraries, device_index, imported, warn_of_late_import
from offload.devices.cuda.memory import CudaBlock, DeviceMemory, block_of, is_alone
from offload.errors import DeviceLostError, DeviceMemoryError, EventError, UnsupportedError, UsageError
from offload.interrupts.finalizers import catch_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    import numpy as np

    from offload.devices.base import Kernels
    from offload.devices.cuda.staging import PageableCopy
    from offload.devices.retirement import Retired

_INVALID_VALUE, _NO_MEMORY = 1, 2  # cudaErrorInvalidValue, cudaErrorMemoryAllocation
_NOT_READY = 600  # cudaErrorNotReady
_CAPTURE_ERRORS = range(900, 909)  # cudaErrorStreamCaptureUnsupported to cudaErrorStreamCaptureWrongThread
_PAGEABLE_MEMORY_ACCESS = 88  # cudaDevAttrPageableMemoryAccess
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged

# Handles up to this one stand for a default stream of the current device: 0, cudaStreamLegacy, cudaStreamPerThread.
_LAST_DEFAULT_STREAM = 2


def _current_device() -> int:
    return int(cuda.getDevice())


def device_count() -> int:
    """Return the number of CUDA devices; 0 where there is no driver. In a forked child `UsageError` may be raised."""
    try:
        return int(cuda.getDeviceCount())
    except cuda.CUDARuntimeError as error:
        forked = error_of_fork(error)
        if forked is not None:
            raise forked from error
        return 0


def _captures(stream: str, name: str) -> UsageError:
    return UsageError(
        f"the current stream of this thread, {stream} of {name}, is capturing a CUDA graph, or waits for a "
        "stream that is, so no task can be ordered after it; end the capture before the construct, or let taskgraph "
        "capture the tasks"
    )


def _section(array: Any) -> Section:
    """Return the storage of a CuPy array, on whichever device, as its interface describes it."""
    data = array.data
    address, strides = data.ptr if array.size else 0, None if array._c_contiguous else array.strides  # noqa: SLF001
    return section_of(("cuda", data.device_id), address, array.shape, strides, array.itemsize)


add_section_reader(cupy.ndarray, _section)


class _Unordered:
    """A tensor of PyTorch for CuPy, which does not wait for PyTorch's stream: a construct follows that by itself."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **given: Any) -> Any:
        return self._tensor.__dlpack__(**given | {"stream": -1})  # DLPack's number for no order


class CudaDevice:
    """A CUDA device with CUDA's ordinal ``index``; see `offload.devices.base.Device`."""

    kind = "cuda"
    bodies_block = False
    waits_look = True
    wakes_by_driver = True
    poisons = False

    def __init__(self, number: int, index: int) -> None:
        self.number = number
        self.index = index
        self.space: object = ("cuda", index)
        self._device = cupy.cuda.Device(index)
        self.capturing = threading.RLock()  # a device cannot be synchronised meanwhile
        self._events = EventPool(index)
        self._passed_events = self._events.passed
        self._events_elsewhere: dict[int, EventPool] = {}  # of streams of the device that is current instead
        self.name = f"cuda:{index} ({cuda.getDeviceProperties(index)['name'].decode()})"
        self.kernels: Kernels | None = CudaKernels(index, self.name)
        self._memory = DeviceMemory(index)
        self._copies = Copies(index, self.name, self._events, self._memory.reaches)
        self._dtypes: set[np.dtype[Any]] = set()  # those that CuPy is known to have arrays of
        self._libraries = Libraries(index)
        launch = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc
        launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._launch_host_func = launch

    def __repr__(self) -> str:
        return f"<CudaDevice {self.name}>"

    # -- streams ---------------------------------------------------------------------------------
    def new_stream(self) -> Any:
        """Make a stream that is not ordered with any other."""
        with self._errors(), self._on():
            self._copies.load()
            return KeptStream(self.index)

    def owns_stream(self, stream: object) -> bool:
        """Tell whether ``stream`` is a stream of this device: CuPy's, or anything with ``__cuda_stream__``."""
        if isinstance(stream, cupy.cuda.stream._BaseStream):  # noqa: SLF001  # the base of all of CuPy's streams
            index = stream.device_id
            return index == self.index if index >= 0 else _current_device() == self.index
        described = getattr(stream, "__cuda_stream__", None)
        if described is None or isinstance(stream, type):
            return False
        try:
            version, handle = described()
        except Exception:  # noqa: BLE001  # whatever another library's object does, it is no stream
            return False
        return type(version) is int and type(handle) is int and device_index(stream) in (None, self.index)

    def adopt(self, stream: Any) -> Any:
        """Return CuPy's view of a stream of this device; raise `EventError` while it captures a CUDA graph."""
        if not isinstance(stream, cupy.cuda.stream._BaseStream):  # noqa: SLF001  # as above
            stream = cupy.cuda.Stream.from_external(stream)
        if self._is_capturing(stream):
            raise EventError(
                f"{stream!r:.60} of {self.name} is capturing a CUDA graph, so work enqueued there does not run; end "
                "the capture first, or launch the graph and then use the stream of the launch"
            )
        return stream

    def _is_capturing(self, stream: Any) -> bool:
        """Tell whether a stream captures a CUDA graph, or cannot be asked because another one does."""
        try:
            if stream.ptr > _LAST_DEFAULT_STREAM:
                return bool(stream.is_capturing())
            with self._on():
                return bool(stream.is_capturing())
        except cuda.CUDARuntimeError as error:
            return error.status in _CAPTURE_ERRORS  # other errors are those of whatever is put there
        except RuntimeError:  # CuPy's, of a capture that is invalid
            return True

    def record(self, stream: Any) -> Any:
        """Record and return an event at the tail of ``stream``."""
        ptr = stream.ptr
        try:
            if ptr <= _LAST_DEFAULT_STREAM:
                with self._on():
                    return self._events.record(ptr)
            try:  # as `EventPool.record` does, whose call each launch would pay for
                event = self._passed_events.pop()
            except IndexError:
                event = self._events.new()
            cuda.eventRecord(event.ptr, ptr)
        except cuda.CUDARuntimeError as error:
            raise self._lost(error) from error
        return event

    def wait_event(self, stream: Any, event: Any) -> None:
        """Hold work enqueued on ``stream`` from now on until ``event``, of any CUDA device, has passed."""
        if event.__class__ is CallerEvents:
            for each in event.events:
                self.wait_event(stream, each)
            return
        ptr = stream.ptr
        try:
            if ptr > _LAST_DEFAULT_STREAM:
                cuda.streamWaitEvent(ptr, event.ptr)
                return
            with self._on():
                cuda.streamWaitEvent(ptr, event.ptr)
        except cuda.CUDARuntimeError as error:
            raise self._lost(error) from error

    def passed(self, event: Any) -> bool:
        """Tell whether ``event`` has passed; raise `DeviceLostError` if it never will."""
        status = cuda.eventQuery(event.ptr)  # returns the status, where CuPy's other calls raise
        if status not in (0, _NOT_READY):
            error = cuda.CUDARuntimeError(status)
            raise self._lost(error) from error
        return bool(status == 0)

    def reuse(self, events: list[Any]) -> None:
        """Take back events that have passed."""
        self._events.reuse(events)

    def wake(self, stream: Any, wakeup: Any) -> None:
        """Have the driver post ``wakeup``, a `SemaphoreWakeup`, when ``stream`` gets here."""
        status = self._launch_host_func(stream.ptr, wakeup.post_function, wakeup.address)
        if status:
            raise DeviceLostError(f"{self.name}: cuLaunchHostFunc failed with CUDA error {status}")

    def use(self, stream: Any) -> tuple[Any, int, Any, int]:
        """Make ``stream`` and its device those of the calling thread, in CuPy and in the libraries that are imported.

        Return the argument of `restore`.
        """
        device, index = cuda.getDevice(), self.index
        if device != index:
            cuda.setDevice(index)
        known, others = imported(), None
        try:
            if known:
                others = self._libraries.enter(stream.ptr)
            outer = cupy.cuda.get_current_stream(index)
            stream.__enter__()  # on CuPy's stack, where a block in a body finds the stream that it ends on
        except BaseException:
            self._leave(others, device)
            raise
        return outer, device, others, known

    def restore(self, outer: tuple[Any, int, Any, int]) -> None:
        """Make the streams and the device before so again: each of them, also if another one cannot be."""
        stream, device, others, known = outer
        index = self.index
        try:
            if cuda.getDevice() != index:
                cuda.setDevice(index)
            stream.__exit__()  # whichever is on top
            stream.use()  # which may not be the one below
        finally:
            self._leave(others, device)
        if imported() & ~known:
            warn_of_late_import(known)

    def _leave(self, others: Any, device: int) -> None:
        """Make the streams of the libraries, and then the device, those from before; the device here is current."""
        try:
            if others:
                self._libraries.leave(others)
        finally:
            if device != self.index:
                cuda.setDevice(device)

    def caller_event(self) -> Any:
        """Record an event on the calling thread's current streams of this device; None if they are idle.

        These are the streams of CuPy, and of PyTorch and Warp where they are imported. If another device is current,
        ask CuPy's stream there too: CuPy enqueues an operation there, wherever the arrays are. Raise `UsageError` if a
        stream captures a CUDA graph, because no task can follow that; the question breaks the capture.
        """
        current = cuda.getDevice()
        stream = cupy.cuda.get_current_stream(current)
        ptr = stream.ptr
        event = self._event_of(ptr, stream, current)
        if current != self.index:
            with self._on():
                return together(event, self.caller_event())
        if imported():
            for label, other in self._libraries.currents():
                if other != ptr:
                    event = together(event, self._event_of(other, f"stream {other:#x} of {label}", current))
        return event

    def _event_of(self, ptr: int, stream: object, current: int) -> Any:
        """Record an event on a stream of the device that is current, which has this ordinal; None if it is idle."""
        status = cuda.streamQuery(ptr)  # as `eventQuery`: returned
        if status == 0:
            return None
        if status in _CAPTURE_ERRORS:
            raise _captures(f"{stream!s:.60}", self.name if current == self.index else f"cuda:{current}")
        pool = self._events
        if current != self.index:
            pool = self._events_elsewhere.get(current) or self._events_elsewhere.setdefault(current, EventPool(current))
        try:
            return pool.record(ptr)
        except cuda.CUDARuntimeError as error:
            raise self._lost(error) from error

    # -- memory ----------------------------------------------------------------------------------
    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) memory in bytes, under the limit of CuPy's pool if it has one."""
        check_fork()
        catch_up()
        with self._errors():
            return self._memory.info()

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:  # no order needed
        """Return an uninitialised C-ordered array, which any stream may use; see `offload.devices.cuda.memory`.

        Raise `DeviceMemoryError` if memory is short even after CuPy's pool has freed its unused blocks, and
        `UnsupportedError` if CuPy has no arrays of this dtype.
        """
        if dtype not in self._dtypes:
            self._check_dtype(dtype)
        try:
            memory = self._memory.alloc(math.prod(shape) * dtype.itemsize)
        except MemoryError:
            raise self._out_of_memory(shape, dtype) from None
        except cuda.CUDARuntimeError as error:
            raise self._lost(error) from error
        return cupy.ndarray(shape, dtype, memory)

    def _check_dtype(self, dtype: np.dtype[Any]) -> None:
        try:
            with self._on():
                cupy.ndarray((0,), dtype)
        except ValueError as error:
            raise UnsupportedError(
                f"{self.name}: CuPy does not support arrays of {dtype}; allocate bytes instead, with dtype 'u1'"
            ) from error
        self._dtypes.add(dtype)

    def _out_of_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceMemoryError:
        asked_nbytes = math.prod(shape) * dtype.itemsize
        free_nbytes, total_nbytes = self.memory_info()
        return DeviceMemoryError(
            f"{self.name} cannot allocate {asked_nbytes:,} bytes: {free_nbytes:,} of {total_nbytes:,} bytes are free; "
            "release device arrays or map less at a time",
            asked_nbytes,
            free_nbytes,
        )

    def poison(self, buffer: Any, dtype: np.dtype[Any], stream: Any) -> None:
        """Do nothing: memory that is used again shows by itself."""

    def view(
        self, buffer: Any, offset_nbytes: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Any:
        """Return an array over part of ``buffer``; see the contract."""
        data = buffer.data + offset_nbytes if offset_nbytes else buffer.data
        return cupy.ndarray(shape, dtype, data, strides)  # by position: by name costs 0.4 µs

    def copy(self, dst: Any, src: Any, stream: Any) -> PageableCopy | None:
        """Enqueue an element-wise copy between two arrays of one shape and dtype, or return it to be staged."""
        try:
            if cuda.getDevice() == self.index:
                return self._copies.copy(dst, src, stream)
            with self._on():
                return self._copies.copy(dst, src, stream)
        except (cuda.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
            raise self._lost(error) from error

    def repeat(self, dst: Any, src: Any) -> Callable[[Any], None] | None:
        """Return a function that enqueues a whole copy of pinned memory that CuPy keeps; None for other copies."""
        return self._copies.repeat(dst, src, self._lost)

    def copy_indexed(self, dst: Any, src: Any, to: Any, at: Any, stream: Any) -> None:
        """Enqueue a copy by tables of offsets; see the contract."""
        try:
            with self._on():
                self._copies.load().launch_indexed(dst, src, to, at, stream)
        except (cuda.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
            raise self._lost(error) from error

    def fill(self, array: Any, value: int, stream: Any) -> None:
        """Enqueue setting every element of an array of bytes to ``value``."""
        if not array.size:
            return
        try:
            if cuda.getDevice() == self.index:
                cuda.memsetAsync(array.data.ptr, value, array.nbytes, stream.ptr)
                return
            with self._on():
                cuda.memsetAsync(array.data.ptr, value, array.nbytes, stream.ptr)
        except cuda.CUDARuntimeError as error:
            raise self._lost(error) from error

    def copies_async(self, host: np.ndarray[Any, Any]) -> bool:
        """Tell whether ``host`` lies in pinned or managed memory, so that copies return at once."""
        return not host.size or is_pinned(host)

    def can_access(self, host: np.ndarray[Any, Any]) -> bool:
        """Tell whether ``host`` lies in pinned or managed memory, or the device reaches all memory (HMM, ATS)."""
        if cuda.deviceGetAttribute(_PAGEABLE_MEMORY_ACCESS, self.index):
            return True
        return is_pinned(host)

    def host_memory(self, nbytes: int) -> Any:
        """Return pinned memory of CuPy's pool, where a block goes back to without waiting for the device."""
        check_fork()
        try:
            with self._on():
                return cupy.cuda.alloc_pinned_memory(nbytes)
        except cuda.CUDARuntimeError as error:
            if error.status in (_INVALID_VALUE, _NO_MEMORY):  # the former for more than there are addresses
                raise MemoryError(str(error)) from error
            raise self._lost(error) from error

    def is_array(self, value: object) -> bool:
        """Tell whether ``value`` is a CuPy array on this device."""
        return isinstance(value, cupy.ndarray) and value.data.device_id == self.index

    def renew(self, buffer: Any) -> bool:
        """Tell whether nobody has an array over the memory of a buffer; then it is as good as a new one."""
        return is_alone(buffer)

    def retire(self, array: Any, retired: Retired) -> None:
        """Mark the allocation that ``array`` lies in as retired; CuPy's own operations do not check the mark."""
        block = block_of(array)
        if block is not None:
            block.retired = retired

    def retired(self, array: Any) -> Retired | None:
        """Return the mark of the allocation that ``array`` lies in; None while it may be used."""
        owner = getattr(array.data.mem, "_owner", None)  # as `block_of`, whose call takes as long: each launch asks
        return owner.retired if type(owner) is CudaBlock else None

    def as_array(self, value: Any) -> Any | None:
        """Return ``value`` as a CuPy array on this device: itself or a view; None if it is not on this device."""
        if isinstance(value, cupy.ndarray):
            array = value
        elif hasattr(value, "__dlpack_device__"):
            kind, index = value.__dlpack_device__()
            if int(kind) not in _DLPACK_CUDA or index != self.index:
                return None
            # CuPy's current stream, which the construct follows, waits for the library that computes the array.
            array = self._viewed(cupy.from_dlpack, value)
        elif hasattr(value, "__cuda_array_interface__"):
            array = self._viewed(cupy.asarray, value)  # on whichever device its address is of
        else:
            return None
        return array if array.device.id == self.index else None

    def _viewed(self, convert: Callable[[Any], Any], value: Any) -> Any:
        """Return a view of another library's array by a function of CuPy.

        Raise `UnsupportedError` if CuPy or the library cannot, and `UsageError` if CuPy's stream captures a graph.
        """
        with self._on(), self._errors():
            stream = cupy.cuda.get_current_stream()
            if self._is_capturing(stream):
                raise _captures(f"{stream!s:.60}", self.name)
            try:
                return convert(_Unordered(value.detach()) if is_tensor(value) else value)
            except (BufferError, NotImplementedError, TypeError, ValueError) as error:
                of = f"{type(value).__name__} of dtype {getattr(value, 'dtype', 'unknown')}"
                raise UnsupportedError(
                    f"{self.name}: CuPy has no view of this {of} ({error}); convert it to a dtype of CuPy's"
                ) from error

    def section(self, array: Any) -> Section:
        """Return the storage of an array of this device."""
        return _section(array)

    def address(self, array: object) -> int | None:
        """Return where the first element of a CuPy array on this device lies; see the contract."""
        if not isinstance(array, cupy.ndarray):
            return None
        data: Any = array.data
        if data.device_id != self.index:
            return None
        owner = getattr(data.mem, "_owner", None)  # as `retired`
        if type(owner) is CudaBlock and owner.retired is not None:
            raise owner.retired.error(array)
        return data.ptr  # type: ignore[no-any-return]  # CuPy is not typed

    def namespace(self) -> ModuleType:
        """Return CuPy."""
        return cupy  # type: ignore[no-any-return]  # CuPy is not typed

    # -- graphs ----------------------------------------------------------------------------------
    def graph_capture(self) -> CudaGraphCapture:
        """Return an object that captures work of this device into a CUDA graph."""
        return CudaGraphCapture(self)

    # -- life ------------------------------------------------------------------------------------
    def check(self, stream: Any) -> None:
        """Raise `DeviceLostError` if work on the device is known to have failed; such an error sticks to every call."""
        status = cuda.streamQuery(stream.ptr)
        if status not in (0, _NOT_READY):
            error = cuda.CUDARuntimeError(status)
            raise self._lost(error) from error

    def synchronize(self) -> None:
        """Block until every stream of the device is idle."""
        check_fork()
        with self.capturing, self._errors():
            self._device.synchronize()

    def live_nbytes(self) -> int:
        """Return the bytes of arrays made by `alloc` that are alive."""
        return self._memory.live_nbytes()

    def close(self) -> None:
        """Wait for the device; a lost one has nothing to wait for."""
        self._copies.close()
        with suppress(DeviceLostError):
            self.synchronize()
        for pool in (self._events, *self._events_elsewhere.values()):
            pool.close()
        self._memory.close()

    # -- inside ----------------------------------------------------------------------------------
    @contextmanager
    def _on(self) -> Iterator[None]:
        """Make this the calling thread's CUDA device; costs one query where it is already."""
        current = cuda.getDevice()
        if current == self.index:
            yield
            return
        cuda.setDevice(self.index)
        try:
            yield
        finally:
            cuda.setDevice(current)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (cuda.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
            raise self._lost(error) from error

    def _lost(self, error: BaseException) -> DeviceLostError | UsageError:
        return error_of_fork(error) or DeviceLostError(f"{self.name}: {error}")
