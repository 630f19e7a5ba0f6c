"""The threads that stage copies: pinned slots, packing, and the driver's part of it."""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from cupy.cuda import runtime as cuda

from offload.data.copies import hull, is_packed, offset, width_of

if TYPE_CHECKING:
    from offload.data.rect import Box
    from offload.devices.cuda.staging import StagedCopy, Staging

SLOT_NBYTES = 4 << 20

_SLOTS = 2
"""Slots of a thread: one is copied while the other is packed."""

_BLOCKING, _DISABLE_TIMING = 1, 2  # cudaEventBlockingSync, cudaEventDisableTiming
_PORTABLE = 1  # cudaHostAllocPortable
_RANGE_START, _RANGE_NBYTES = 11, 12  # CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE
_TYPES = {width: np.dtype(name) for width, name in ((16, "c16"), (8, "u8"), (4, "u4"), (2, "u2"), (1, "u1"))}


class Worker:
    """A staging thread with its slots."""

    __slots__ = ("_driver", "_filling", "_free", "_has_device", "_staging")

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._driver = staging.driver
        self._free = deque(_Slot() for _ in range(_SLOTS))
        self._filling: deque[tuple[_Slot, StagedCopy, Box]] = deque()  # by the driver, oldest first
        self._has_device = False

    def run(self) -> None:
        """Do chunks until the staging is closed."""
        while (taken := self._staging.take(wait=not self._filling)) or self._filling:
            if taken:
                self._begin(*taken)
            if self._filling and not (taken and self._free):
                self._unpack(*self._filling.popleft())
            taken = None
        for slot in self._free:
            slot.free()

    def _begin(self, copy: StagedCopy, part: Box) -> None:
        """Pack a chunk and enqueue its copy to the device, or only enqueue its copy to a slot."""
        slot = self._free.popleft()
        error = None
        try:
            self._prepare(slot)
            if not copy.to_host:
                copy.host.pack(slot.bytes, part)
            self._transfer(slot, copy, part)
        except BaseException as raised:  # noqa: BLE001  # it is the copy's
            error = self._staging.failure(raised)
        if copy.to_host and error is None:
            self._filling.append((slot, copy, part))
            return
        self._free.append(slot)
        self._staging.give_back(copy, error)

    def _prepare(self, slot: _Slot) -> None:
        """Wait until a slot may be used anew."""
        if slot.event:
            self._driver.wait(slot.event)
            return
        if not self._has_device:
            cuda.setDevice(self._staging.index)
            self._has_device = True
        slot.make()

    def _transfer(self, slot: _Slot, copy: StagedCopy, part: Box) -> None:
        """Enqueue the copy between a slot and the device, and the slot's event."""
        stream = copy.stream.ptr
        device_side = 2 if copy.to_host else 1
        if not is_packed(part, device_side):
            self._staging.transfer(copy.device, slot.address, part, copy.stream, to_host=copy.to_host, is_pinned=True)
        else:
            device = copy.device + offset(part, device_side)
            dst, src = (slot.address, device) if copy.to_host else (device, slot.address)
            self._driver.copy(dst, src, part.nbytes, stream)
        self._driver.record(slot.event, stream)

    def _unpack(self, slot: _Slot, copy: StagedCopy, part: Box) -> None:
        """Wait for a slot, and write its bytes to the host's memory."""
        error = None
        try:
            self._driver.wait(slot.event)
            copy.host.unpack(slot.bytes, part)
        except BaseException as raised:  # noqa: BLE001  # it is the copy's
            error = self._staging.failure(raised)
        self._free.append(slot)
        self._staging.give_back(copy, error)


class Driver:
    """Calls of the driver that return at once and keep the GIL.

    To get the GIL back from other threads takes ten times as long as the call, several times a chunk.
    """

    __slots__ = ("_attribute", "_copy", "_query", "_record")

    def __init__(self) -> None:
        library = ctypes.PyDLL("libcuda.so.1")
        self._copy, self._record, self._query = library.cuMemcpyAsync, library.cuEventRecord, library.cuEventQuery
        self._copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        self._record.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._query.argtypes = (ctypes.c_void_p,)
        self._attribute = library.cuPointerGetAttribute
        self._attribute.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)

    def copy(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy between pinned memory and a device."""
        status = self._copy(dst, src, nbytes, stream)
        if status:
            raise cuda.CUDARuntimeError(status)

    def record(self, event: int, stream: int) -> None:
        """Record an event."""
        status = self._record(event, stream)
        if status:
            raise cuda.CUDARuntimeError(status)

    def region_of(self, address: int) -> tuple[int, int]:
        """Return address and bytes of the allocation or registration around an address; (0, 0) if unknown."""
        begin, nbytes = ctypes.c_uint64(), ctypes.c_size_t()
        for value, attribute in ((begin, _RANGE_START), (nbytes, _RANGE_NBYTES)):
            if self._attribute(ctypes.addressof(value), attribute, address):
                return 0, 0
        return begin.value, nbytes.value

    def wait(self, event: int) -> None:
        """Block until an event has passed, without the GIL unless it has already."""
        if self._query(event):
            cuda.eventSynchronize(event)


class _Slot:
    """Pinned memory, and an event at the end of the last copy from or to it; both are null until they are used."""

    __slots__ = ("address", "bytes", "event")

    def __init__(self) -> None:
        self.address = self.event = 0

    def make(self) -> None:
        if not self.address:
            self.address = cuda.hostAlloc(SLOT_NBYTES, _PORTABLE)
            self.bytes = _bytes_at(self.address, SLOT_NBYTES)
        self.event = cuda.eventCreateWithFlags(_BLOCKING | _DISABLE_TIMING)

    def free(self) -> None:
        with suppress(cuda.CUDARuntimeError):  # a lost device has neither any more
            if self.event:
                cuda.eventDestroy(self.event)
            if self.address:
                cuda.freeHost(self.address)


class HostMemory:
    """What one side of a copy covers of the host's memory, to be packed and unpacked piece by piece.

    Parameters
    ----------
    address : int
        Of element ``(0, …, 0)``. The memory is not kept alive.
    box : Box
        The copy.
    side : int
        1 where it is the destination, 2 where it is the source.
    """

    __slots__ = ("_bytes", "_dtype", "_low", "_side", "_width")

    def __init__(self, address: int, box: Box, side: int) -> None:
        self._low, nbytes = hull(box, side)
        self._bytes = _bytes_at(address + self._low, nbytes)
        self._side = side
        strides = [dim[side] for dim in box.dims]
        self._width = width_of(box.row_nbytes, address + offset(box, side), *strides)
        self._dtype = _TYPES[self._width]

    def pack(self, packed: np.ndarray[Any, Any], part: Box) -> None:
        """Copy a part of the box to bytes, one after the other in the order of its axes, at least as aligned."""
        near, far = self._views(packed, part)
        np.copyto(near, far)

    def unpack(self, packed: np.ndarray[Any, Any], part: Box) -> None:
        """Copy the bytes back."""
        near, far = self._views(packed, part)
        np.copyto(far, near)

    def _views(self, packed: np.ndarray[Any, Any], part: Box) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        begin, row, dims = offset(part, self._side) - self._low, part.row_nbytes, part.dims
        if not dims:
            return packed[:row], self._bytes[begin : begin + row]
        dtype, width, side = self._dtype, self._width, self._side
        shape = (*[dim[0] for dim in dims], row // width)
        strides = (*[dim[side] for dim in dims], width)
        return np.ndarray(shape, dtype, packed), np.ndarray(shape, dtype, self._bytes, begin, strides)


class _Memory:
    """Memory of the process for NumPy to look at."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def _bytes_at(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    return np.asarray(_Memory(address, nbytes))
