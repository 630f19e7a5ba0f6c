"""Copies to, from and inside of a CUDA device.

Inside of a device, boxes are copied by kernels of ours, which are as fast as a contiguous copy;
``cudaMemcpy2DAsync`` is slower there, forty times at worst. Between pinned memory and a device
`offload.devices.cuda.methods.choose` picks the driver's copies, a kernel on the host's memory, or one copy and a
kernel. Pageable memory is never given to the driver where it would wait: it is staged
(`offload.devices.cuda.staging`), except for a few bytes, which the driver takes at the call.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy.cuda import PinnedMemoryPointer
from cupy.cuda import runtime as cuda

from offload.arrays.boxes import Box, collapse
from offload.arrays.copies import (
    calls,
    chunks,
    hull,
    is_within_region,
    ordered_by,
    packed,
    within_hull,
)
from offload.arrays.hostcopies import HostMemory
from offload.arrays.items import address_of as host_address
from offload.arrays.units import launches
from offload.devices.cuda.copy_kernels import CopyKernels, launch_of, prepare
from offload.devices.cuda.memory import is_open
from offload.devices.cuda.methods import CopyMethod, choose
from offload.devices.cuda.staging import PageableCopy, StagingThreads
from offload.devices.cuda.staging_worker import Driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.devices.cuda.events import EventPool

_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEFAULT = 1, 2, 4  # cudaMemcpyKind
_NOT_READY = 600  # cudaErrorNotReady

# Blocks of a kernel on the host's memory: they fill the link, and leave most of the device to others.
_MAPPED_BLOCKS = 32

# Copies up to here are not counted: a stream's queue is full, and holds up any call, before that buffer is.
_UNCOUNTED_NBYTES = 4 << 10

# Bytes that it may hold so at a time. On an H200 it blocks when it holds some 4 MB (CUDA 13.0).
_AT_CALL_TOTAL_NBYTES = 1 << 20


class Copies:
    """The copies of one device, which has CUDA's ordinal ``index``.

    ``reaches`` tells whether kernels on this device may access memory of another ordinal.
    """

    def __init__(
        self, index: int, name: str, events: EventPool, reaches: Callable[[int], bool] = lambda _: False
    ) -> None:
        self.temporary_nbytes = 32 << 20  # the largest temporary on the device
        # Up to here the driver reads pageable memory at the call, without waiting for the stream.
        self.at_call_nbytes = 64 << 10
        self.staging = StagingThreads(index, name, self._transfer)
        self._index = index
        self._events = events
        self._reaches = reaches
        self._kernels: CopyKernels | None = None
        self._lock = threading.Lock()
        self._at_call: deque[tuple[Any, int]] = deque()
        self._at_call_nbytes = 0

    def load(self) -> CopyKernels:
        """Return the kernels, compiled and loaded; the device must be the calling thread's."""
        if self._kernels is None:
            with self._lock:
                if self._kernels is None:
                    self._kernels = CopyKernels(self._index)
        return self._kernels

    def copy(self, dst: Any, src: Any, stream: Any) -> PageableCopy | None:
        """Enqueue an element-wise copy between two arrays of one shape and dtype, or return it to be staged.

        The device must be the calling thread's.
        """
        to_host = isinstance(dst, np.ndarray)
        if not to_host and not isinstance(src, np.ndarray):
            self._copy_inside(dst, src, stream)
            return None
        host, device = (dst, src) if to_host else (src, dst)
        if _are_dense(host, device):
            nbytes = host.nbytes
            if not nbytes:
                return None
            near, far = host_address(host), device.data.ptr
            to, at = (near, far) if to_host else (far, near)
            if is_in_pinned(host, near, nbytes) or is_within_region(near, near + nbytes, _driver().region_of):
                cuda.memcpyAsync(to, at, nbytes, _DEVICE_TO_HOST if to_host else _HOST_TO_DEVICE, stream.ptr)
                return None
            box = Box(0, 0, nbytes, ())
        else:
            box = collapse(dst.shape, dst.strides, src.strides, dst.itemsize)
            if not box.row_nbytes:
                return None
            to, at = address_of(dst), address_of(src)
            low, nbytes = hull(box, 1 if to_host else 2)
            first = low + (to if to_host else at)
            if is_in_pinned(host, first, nbytes) or is_within_region(first, first + nbytes, _driver().region_of):
                self.enqueue_pinned(to, at, box, stream, to_host=to_host)
                return None
        if not to_host and self._copied_at_call(to, at, box, stream):
            return None
        return PageableCopy(self.staging, to, at, box, stream, to_host=to_host, keep=(dst, src))

    def repeat(
        self, dst: Any, src: Any, lost: Callable[[cuda.CUDARuntimeError], Exception]
    ) -> Callable[[Any], None] | None:
        """Return a function that enqueues a copy between dense arrays on the device and in pinned memory of CuPy.

        ``lost`` makes the error of a device that has failed. None for other copies.
        """
        to_host = isinstance(dst, np.ndarray)
        host, device = (dst, src) if to_host else (src, dst)
        if not isinstance(host, np.ndarray) or not host.nbytes or not _are_dense(host, device):
            return None
        near, far, nbytes, index = host_address(host), device.data.ptr, host.nbytes, self._index
        if not is_in_pinned(host, near, nbytes):
            return None
        to, at, kind = (near, far, _DEVICE_TO_HOST) if to_host else (far, near, _HOST_TO_DEVICE)

        def enqueue(stream: Any) -> None:
            try:
                if cuda.getDevice() == index:
                    cuda.memcpyAsync(to, at, nbytes, kind, stream.ptr)
                    return
                with cupy.cuda.Device(index):
                    cuda.memcpyAsync(to, at, nbytes, kind, stream.ptr)
            except cuda.CUDARuntimeError as error:
                raise lost(error) from error

        return enqueue

    def _copy_inside(self, dst: Any, src: Any, stream: Any) -> None:
        """Enqueue a copy between device arrays."""
        to, at = dst.data, src.data
        if (dst._c_contiguous and src._c_contiguous) or (dst._f_contiguous and src._f_contiguous):  # noqa: SLF001  # as in `copy`
            if dst.nbytes:
                cuda.memcpyAsync(to.ptr, at.ptr, dst.nbytes, _DEFAULT, stream.ptr)
            return
        box = collapse(dst.shape, dst.strides, src.strides, dst.itemsize)
        if box.row_nbytes:
            if box.dims and self._is_reached(dst) and self._is_reached(src):
                self._launch(to.ptr, at.ptr, box, stream)
            else:
                enqueue_calls(to.ptr, at.ptr, box, _DEFAULT, stream)

    def enqueue_pinned(
        self, dst: int, src: int, box: Box, stream: Any, *, to_host: bool, method: CopyMethod | None = None
    ) -> None:
        """Enqueue a copy between pinned memory and the device, by the method that is fastest unless one is given."""
        method = method or choose(box, to_host=to_host)
        if method is CopyMethod.PACKED:
            try:
                self._through_temporary(dst, src, box, stream, to_host=to_host)
            except MemoryError:  # CuPy's own is one, and so are those of other allocators
                method = CopyMethod.CALLS  # what was enqueued before is enqueued again
        if method is CopyMethod.MAPPED:
            self._launch(dst, src, ordered_by(box, 1 if to_host else 2), stream, _MAPPED_BLOCKS)
        elif method is CopyMethod.CALLS:
            enqueue_calls(dst, src, box, _DEVICE_TO_HOST if to_host else _HOST_TO_DEVICE, stream)

    def close(self) -> None:
        """Stop the staging threads; see `StagingThreads.close`."""
        self.staging.close()
        self._at_call.clear()

    def _launch(self, dst: int, src: int, box: Box, stream: Any, max_blocks: int = 0) -> None:
        kernels = self._kernels or self.load()
        over_link = bool(max_blocks)
        launch = launch_of(box, dst, src, keeps_order=over_link)
        if launch is not None:
            kernels.launch(launch, dst, src, stream, max_blocks)
            return
        for part, work in launches(box, dst, src, keeps_order=over_link):
            kernels.launch(prepare(part, work), dst, src, stream, max_blocks)

    def _is_reached(self, array: Any) -> bool:
        """Tell whether kernels of this device may use an array, which may be another device's."""
        index = array.data.device_id
        return index == self._index or (self._reaches(index) and is_open(array))

    def _through_temporary(self, dst: int, src: int, box: Box, stream: Any, *, to_host: bool) -> None:
        """Copy all of the host's bytes at once, and by a kernel between the temporary and the device's layout."""
        side = 1 if to_host else 2
        for part in chunks(ordered_by(box, side), self.temporary_nbytes, side):
            low, nbytes = hull(part, side)
            with stream:
                temporary = cupy.cuda.alloc(nbytes)  # goes back in the order of this stream
            if to_host:
                self._launch(temporary.ptr, src, within_hull(part, side), stream)
                cuda.memcpyAsync(dst + low, temporary.ptr, nbytes, _DEVICE_TO_HOST, stream.ptr)
            else:
                cuda.memcpyAsync(temporary.ptr, src + low, nbytes, _HOST_TO_DEVICE, stream.ptr)
                self._launch(dst, temporary.ptr, within_hull(part, side), stream)
            del temporary  # the next part's is the same memory

    def _transfer(self, device: int, near: int, part: Box, stream: Any, *, to_host: bool, is_pinned: bool) -> None:
        """Enqueue the copy between part of a device array and its bytes, one after the other, in the host's memory."""
        box = packed(part, 1 if to_host else 2)
        dst, src = (near, device) if to_host else (device, near)
        method = None if is_pinned or not box.dims else CopyMethod.PACKED
        self.enqueue_pinned(dst, src, box, stream, to_host=to_host, method=method)

    def _copied_at_call(self, dst: int, src: int, box: Box, stream: Any) -> bool:
        """Give a few bytes of pageable memory to the driver, which takes them now; return False if it might wait."""
        # They are copied first, to memory of our own. Part of them may be registered: the driver refuses an address in
        # memory that is registered in part, and reads later what several registrations have together.
        nbytes = box.nbytes
        if nbytes > self.at_call_nbytes or cuda.streamIsCapturing(stream.ptr):  # a graph would read the bytes later
            return False
        is_counted = nbytes > _UNCOUNTED_NBYTES
        if is_counted:
            with self._lock:
                while self._at_call and cuda.eventQuery(self._at_call[0][0].ptr) != _NOT_READY:
                    self._at_call_nbytes -= self._at_call.popleft()[1]
                if self._at_call_nbytes + nbytes > _AT_CALL_TOTAL_NBYTES:
                    return False
                self._at_call_nbytes += nbytes
        try:
            if not box.dims:
                taken = ctypes.c_char_p(ctypes.string_at(src + box.src_offset_nbytes, nbytes))
                at = ctypes.cast(taken, ctypes.c_void_p).value
                cuda.memcpyAsync(dst + box.dst_offset_nbytes, at, nbytes, _HOST_TO_DEVICE, stream.ptr)
                return True
            order = ordered_by(box, 2)
            buffer = np.empty(nbytes, np.uint8)
            HostMemory(src, box, 2).pack(buffer, order)
            self._transfer(dst, buffer.ctypes.data, order, stream, to_host=False, is_pinned=False)
        finally:
            if is_counted:
                self._at_call.append((self._events.record(stream.ptr), nbytes))
        return True


def is_pinned(host: np.ndarray[Any, Any]) -> bool:
    """Tell whether copies of a host array with elements are asynchronous: its memory is pinned or managed."""
    # All of it, from the first byte to the last, has to be of one allocation or registration. Should the driver not
    # tell how far that reaches, only the first and the last byte are looked at.
    first, end = np.lib.array_utils.byte_bounds(host)
    return is_within_region(first, end, _driver().region_of)


def is_in_pinned(host: np.ndarray[Any, Any], first: int, nbytes: int) -> bool:
    """Tell whether bytes of a host array lie in pinned memory of CuPy's that it keeps; the driver is not asked."""
    # Such memory is pinned for as long as there is a pointer to it, which the array has, or the one that it is a view
    # of.
    owner: Any = host.base
    if owner.__class__ is np.ndarray:
        owner = owner.base
    if owner.__class__ is memoryview:  # in which `np.frombuffer` wraps an object that has to release its buffer
        owner = owner.obj
    if owner.__class__ is not PinnedMemoryPointer:
        return False
    memory = owner.mem
    begin = memory.ptr
    return bool(begin <= first and first + nbytes <= begin + memory.size)


def _are_dense(host: np.ndarray[Any, Any], device: Any) -> bool:
    """Tell whether both arrays of one shape are dense in one order, so that all bytes are copied as they are."""
    flags = host.flags
    # CuPy's own flags, since its `flags` makes an object of three.
    if flags.c_contiguous and device._c_contiguous:  # noqa: SLF001
        return True
    return bool(flags.f_contiguous and device._f_contiguous)  # noqa: SLF001


@cache
def _driver() -> Driver:
    return Driver()


def address_of(array: Any) -> int:
    """Return the address of element ``(0, …, 0)`` of a NumPy or CuPy array."""
    return host_address(array) if isinstance(array, np.ndarray) else int(array.data.ptr)


def enqueue_calls(dst: int, src: int, box: Box, kind: int, stream: Any) -> None:
    """Enqueue a box as copies of the driver."""
    if not box.dims:
        to, at = dst + box.dst_offset_nbytes, src + box.src_offset_nbytes
        cuda.memcpyAsync(to, at, box.row_nbytes, kind, stream.ptr)
        return
    for call in calls(box):
        to, at, row = dst + call.dst_offset_nbytes, src + call.src_offset_nbytes, call.row_nbytes
        if call.planes > 1:
            parameters = _Copy3D(
                src=_Pitched(at, call.src_pitch_nbytes, row, call.src_height),
                dst=_Pitched(to, call.dst_pitch_nbytes, row, call.dst_height),
                extent=(row, call.rows, call.planes),
                kind=kind,
            )
            cuda.memcpy3DAsync(ctypes.addressof(parameters), stream.ptr)
        elif call.rows > 1:
            cuda.memcpy2DAsync(to, call.dst_pitch_nbytes, at, call.src_pitch_nbytes, row, call.rows, kind, stream.ptr)
        else:
            cuda.memcpyAsync(to, at, row, kind, stream.ptr)


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
