"""CUDA devices, through CuPy.

Streams and events are CuPy's own, non-blocking, so that a body's ``current_stream()`` fits any library. A stream
wakes the host by libc's ``sem_post`` as host function, given to the driver through ctypes: no Python runs in a
thread of the driver, where it would dead-lock between the GIL and the driver's lock.

Copies between host and device go through ``cudaMemcpyAsync``, ``2DAsync`` and ``3DAsync``, one call for a box wherever
its strides allow; inside of a device, strided copies are CuPy's, of elements as wide as the alignment allows, which is
two to forty times faster than ``cudaMemcpy2DAsync`` there.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy.cuda import runtime as cuda

from offload.data.rect import Box, collapse
from offload.errors import DeviceLostError, DeviceMemoryError, UnsupportedError
from offload.storage import Section, section_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEFAULT = 1, 2, 4  # cudaMemcpyKind
_NOT_READY = 600  # cudaErrorNotReady
_PAGEABLE = 0  # cudaMemoryTypeUnregistered
_PAGEABLE_MEMORY_ACCESS = 88  # cudaDevAttrPageableMemoryAccess
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_WIDTHS = {16: np.dtype("c16"), 8: np.dtype("u8"), 4: np.dtype("u4"), 2: np.dtype("u2"), 1: np.dtype("u1")}


def device_count() -> int:
    """Return the number of CUDA devices; 0 where there is no driver."""
    try:
        return int(cuda.getDeviceCount())
    except cuda.CUDARuntimeError:
        return 0


class CudaDevice:
    """A CUDA device; see `offload.devices.base.Device`.

    Parameters
    ----------
    number : int
        Device number within its runtime.
    index : int
        CUDA's device ordinal.
    """

    kind = "cuda"
    bodies_block = False

    def __init__(self, number: int, index: int) -> None:
        self.number = number
        self.index = index
        self.space: object = ("cuda", index)
        self._device = cupy.cuda.Device(index)
        self.name = f"cuda:{index} ({cuda.getDeviceProperties(index)['name'].decode()})"
        self._live: dict[int, tuple[weakref.ref[Any], int]] = {}
        launch = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc
        launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._launch_host_func = launch

    def __repr__(self) -> str:
        return f"<CudaDevice {self.name}>"

    # -- streams ---------------------------------------------------------------------------------
    def new_stream(self) -> Any:
        """Make a stream that is not ordered with any other."""
        with self._on():
            return cupy.cuda.Stream(non_blocking=True)

    def owns_stream(self, stream: object) -> bool:
        """Tell whether ``stream`` is a stream of this device: CuPy's, or anything with ``__cuda_stream__``."""
        if not hasattr(stream, "__cuda_stream__"):
            return False
        index = getattr(stream, "device_id", self.index)
        return index in (self.index, -1)

    def adopt(self, stream: Any) -> Any:
        """Return CuPy's view of a stream of this device."""
        if isinstance(stream, cupy.cuda.stream._BaseStream):  # noqa: SLF001  # the base of Stream and ExternalStream
            return stream
        return cupy.cuda.ExternalStream(stream.__cuda_stream__()[1])

    def record(self, stream: Any) -> Any:
        """Record and return an event at the tail of ``stream``."""
        try:
            if cuda.getDevice() == self.index:  # the usual case, without the cost of a context manager
                return stream.record(cupy.cuda.Event(disable_timing=True))
            with self._on():
                return stream.record(cupy.cuda.Event(disable_timing=True))
        except cuda.CUDARuntimeError as error:
            raise self._lost(error) from error

    def wait_event(self, stream: Any, event: Any) -> None:
        """Hold what is enqueued on ``stream`` from now on until ``event``, of any CUDA device, has passed."""
        try:
            stream.wait_event(event)
        except cuda.CUDARuntimeError as error:
            raise self._lost(error) from error

    def passed(self, event: Any) -> bool:
        """Tell whether ``event`` has passed; raise `DeviceLostError` if it never will."""
        status = cuda.eventQuery(event.ptr)  # returns the status, where CuPy's other calls raise
        if status not in (0, _NOT_READY):
            error = cuda.CUDARuntimeError(status)
            raise self._lost(error) from error
        return bool(status == 0)

    def wake(self, stream: Any, wakeup: Any) -> None:
        """Have the driver post ``wakeup``, a `SemaphoreWakeup`, when ``stream`` gets here."""
        status = self._launch_host_func(stream.ptr, wakeup.post_function, wakeup.address)
        if status:
            raise DeviceLostError(f"{self.name}: cuLaunchHostFunc failed with CUDA error {status}")

    @contextmanager
    def using(self, stream: Any) -> Iterator[None]:
        """Make ``stream`` the one that CuPy's operations of this thread go to."""
        with self._on(), stream:
            yield

    def caller_event(self) -> Any:
        """Record an event on the calling thread's current stream of this device, unless it is idle."""
        with self._on():
            stream = cupy.cuda.get_current_stream()
            return None if cuda.streamQuery(stream.ptr) == 0 else self.record(stream)

    # -- memory ----------------------------------------------------------------------------------
    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) memory in bytes, under the limit of CuPy's pool if it has one."""
        with self._on():
            pool = cupy.get_default_memory_pool()
            free_nbytes, total_nbytes = cuda.memGetInfo()
            free_nbytes += pool.free_bytes()
            limit_nbytes = pool.get_limit()
            if limit_nbytes:
                return min(free_nbytes, limit_nbytes - pool.used_bytes()), min(total_nbytes, limit_nbytes)
            return free_nbytes, total_nbytes

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        """Return an uninitialised C-ordered array from CuPy's pool, in the order of ``stream``.

        Raises
        ------
        DeviceMemoryError
            There is not enough memory, also after the pool's unused blocks were given back.
        UnsupportedError
            CuPy has no arrays of this dtype.
        """
        with self.using(stream), self._errors():
            try:
                array = cupy.ndarray(shape, dtype)
            except cupy.cuda.memory.OutOfMemoryError:
                cupy.get_default_memory_pool().free_all_blocks()
                try:
                    array = cupy.ndarray(shape, dtype)
                except cupy.cuda.memory.OutOfMemoryError:
                    raise self._out_of_memory(shape, dtype) from None
            except ValueError as error:
                raise UnsupportedError(
                    f"{self.name}: CuPy makes no arrays of {dtype}; allocate the bytes, as dtype 'u1'"
                ) from error
        key = id(array)  # arrays cannot be hashed, nor can weak references to them
        self._live[key] = (weakref.ref(array, lambda _: self._live.pop(key, None)), array.nbytes)
        return array

    def _out_of_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceMemoryError:
        asked_nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        free_nbytes, total_nbytes = self.memory_info()
        return DeviceMemoryError(
            f"{self.name} has no room for {asked_nbytes:,} bytes: {free_nbytes:,} of {total_nbytes:,} are free",
            asked_nbytes,
            free_nbytes,
        )

    def view(
        self, buffer: Any, offset_nbytes: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Any:
        """Return an array over part of ``buffer``; see the contract."""
        return cupy.ndarray(shape, dtype, memptr=buffer.data + offset_nbytes, strides=strides)

    def copy(self, dst: Any, src: Any, stream: Any) -> None:
        """Enqueue an element-wise copy between two arrays of one shape and dtype; see the contract."""
        box = collapse(dst.shape, dst.strides, src.strides, dst.dtype.itemsize)
        if not box.row_nbytes:
            return
        to_host, from_host = isinstance(dst, np.ndarray), isinstance(src, np.ndarray)
        with self._errors():  # each copy names its stream, so that the thread's device does not matter
            if not to_host and not from_host and box.dims and dst.device.id == src.device.id:
                self._copy_inside(dst, src, box, stream)
                return
            kind = _DEVICE_TO_HOST if to_host else _HOST_TO_DEVICE if from_host else _DEFAULT
            _copy_box(
                _address(dst) + box.dst_offset_nbytes,
                _address(src) + box.src_offset_nbytes,
                box.row_nbytes,
                box.dims,
                kind,
                stream.ptr,
            )

    def _copy_inside(self, dst: Any, src: Any, box: Box, stream: Any) -> None:
        """Copy between strided arrays of this device by a kernel, in elements as wide as alignment allows."""
        steps = [box.row_nbytes, _address(dst) + box.dst_offset_nbytes, _address(src) + box.src_offset_nbytes]
        steps += [abs(stride) for _, dst_stride, src_stride in box.dims for stride in (dst_stride, src_stride)]
        width = next(width for width in _WIDTHS if not any(step % width for step in steps))
        shape = (*(count for count, _, _ in box.dims), box.row_nbytes // width)
        wide = _WIDTHS[width]
        with self._on(), stream:
            target = cupy.ndarray(shape, wide, dst.data + box.dst_offset_nbytes, (*(dim[1] for dim in box.dims), width))
            source = cupy.ndarray(shape, wide, src.data + box.src_offset_nbytes, (*(dim[2] for dim in box.dims), width))
            cupy.copyto(target, source)

    def fill(self, array: Any, value: int, stream: Any) -> None:
        """Enqueue setting every element of an array of bytes to ``value``."""
        if array.size:
            with self._on(), self._errors():
                cuda.memsetAsync(array.data.ptr, value, array.nbytes, stream.ptr)

    def copies_async(self, host: np.ndarray[Any, Any]) -> bool:
        """Tell whether ``host`` lies in pinned or managed memory, so that copies return at once."""
        return not host.size or cuda.pointerGetAttributes(host.__array_interface__["data"][0]).type != _PAGEABLE

    def can_access(self, host: np.ndarray[Any, Any]) -> bool:
        """Tell whether ``host`` lies in pinned or managed memory, or the device reaches all memory (HMM, ATS)."""
        if cuda.deviceGetAttribute(_PAGEABLE_MEMORY_ACCESS, self.index):
            return True
        first, end = np.lib.array_utils.byte_bounds(host)
        return all(cuda.pointerGetAttributes(address).type != _PAGEABLE for address in (first, end - 1))

    def is_array(self, value: object) -> bool:
        """Tell whether ``value`` is a CuPy array on this device."""
        return isinstance(value, cupy.ndarray) and value.device.id == self.index

    def as_array(self, value: Any) -> Any | None:
        """Return ``value`` as a CuPy array on this device: itself or a view; None if it is not on this device."""
        if isinstance(value, cupy.ndarray):
            array = value
        elif hasattr(value, "__cuda_array_interface__"):
            with self._on(), self._errors():
                array = cupy.asarray(value)  # a view on whichever device its address is of
        elif hasattr(value, "__dlpack_device__"):
            kind, index = value.__dlpack_device__()
            if int(kind) not in _DLPACK_CUDA or index != self.index:
                return None
            with self._on(), self._errors():
                array = cupy.from_dlpack(value)
        else:
            return None
        return array if array.device.id == self.index else None

    def section(self, array: Any) -> Section:
        """Return the storage of an array of this device."""
        return section_of(self.space, array.data.ptr, array.shape, array.strides, array.itemsize)

    def namespace(self) -> ModuleType:
        """Return CuPy."""
        return cupy  # type: ignore[no-any-return]  # CuPy is not typed

    # -- life ------------------------------------------------------------------------------------
    def check(self, stream: Any) -> None:
        """Raise `DeviceLostError` if work on the device is known to have failed; such an error sticks to every call."""
        status = cuda.streamQuery(stream.ptr)
        if status not in (0, _NOT_READY):
            error = cuda.CUDARuntimeError(status)
            raise self._lost(error) from error

    def synchronize(self) -> None:
        """Block until every stream of the device is idle."""
        with self._errors():
            self._device.synchronize()

    def live_nbytes(self) -> int:
        """Return the bytes of arrays made by `alloc` that are alive."""
        return sum(nbytes for _, nbytes in list(self._live.values()))

    def close(self) -> None:
        """Wait for the device; a lost one has nothing to wait for."""
        try:
            self.synchronize()
        except DeviceLostError:
            return

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
        except cuda.CUDARuntimeError as error:
            raise self._lost(error) from error

    def _lost(self, error: BaseException) -> DeviceLostError:
        return DeviceLostError(f"{self.name}: {error}")


class _Pitched(ctypes.Structure):  # cudaPitchedPtr
    _fields_ = (
        ("ptr", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
        ("xsize", ctypes.c_size_t),
        ("ysize", ctypes.c_size_t),
    )


class _Copy3D(ctypes.Structure):  # cudaMemcpy3DParms
    _fields_ = (
        ("src_array", ctypes.c_void_p),
        ("src_pos", ctypes.c_size_t * 3),
        ("src", _Pitched),
        ("dst_array", ctypes.c_void_p),
        ("dst_pos", ctypes.c_size_t * 3),
        ("dst", _Pitched),
        ("extent", ctypes.c_size_t * 3),
        ("kind", ctypes.c_int),
    )


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr)


def _copy_box(
    dst: int, src: int, row_nbytes: int, dims: tuple[tuple[int, int, int], ...], kind: int, stream: int
) -> None:
    """Enqueue the copy of a box in as few calls as CUDA's copies allow: rows, planes of rows, stacks of planes."""
    if not dims:
        cuda.memcpyAsync(dst, src, row_nbytes, kind, stream)
        return
    inner = dims[-1]
    if min(inner[1:]) < row_nbytes:  # rows in descending or interleaved order: one by one
        inner_count = 0
    elif len(dims) > 1 and all(
        outer > 0 and outer % pitch == 0 and outer >= pitch * inner[0]
        for outer, pitch in zip(dims[-2][1:], inner[1:], strict=True)
    ):
        inner_count = 2
    else:
        inner_count = 1
    outer_dims = dims[: len(dims) - inner_count]
    for index in itertools.product(*(range(count) for count, _, _ in outer_dims)):
        to = dst + sum(i * dim[1] for i, dim in zip(index, outer_dims, strict=True))
        at = src + sum(i * dim[2] for i, dim in zip(index, outer_dims, strict=True))
        if inner_count == 0:
            cuda.memcpyAsync(to, at, row_nbytes, kind, stream)
        elif inner_count == 1:
            cuda.memcpy2DAsync(to, inner[1], at, inner[2], row_nbytes, inner[0], kind, stream)
        else:
            planes = dims[-2]
            parameters = _Copy3D(
                src=_Pitched(at, inner[2], row_nbytes, planes[2] // inner[2]),
                dst=_Pitched(to, inner[1], row_nbytes, planes[1] // inner[1]),
                extent=(row_nbytes, inner[0], planes[0]),
                kind=kind,
            )
            cuda.memcpy3DAsync(ctypes.addressof(parameters), stream)
