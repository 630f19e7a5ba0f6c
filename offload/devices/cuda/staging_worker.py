"""The threads that stage copies: pinned slots, packing, and the driver's part of it."""

from __future__ import annotations

import ctypes
from array import array
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from cupy.cuda import runtime as cuda

from offload.arrays.copies import is_packed, offset
from offload.arrays.hostcopies import HostMemory, bytes_at

if TYPE_CHECKING:
    from offload.arrays.boxes import Box

SLOT_NBYTES = 8 << 20

_SLOTS = 2  # Slots of a thread: one is copied to the device while the other is packed

_BLOCKING, _DISABLE_TIMING = 1, 2  # cudaEventBlockingSync, cudaEventDisableTiming
_PORTABLE = 1  # cudaHostAllocPortable
_PAGEABLE = 0  # cudaMemoryTypeUnregistered, and what the driver says of memory that it does not know
_ATTRIBUTES = (2, 11, 12)  # CU_POINTER_ATTRIBUTE_: MEMORY_TYPE, RANGE_START_ADDR, RANGE_SIZE


class PartTransfer(Protocol):
    """Enqueues the copy between part of a device array and its bytes, one after the other, in the host's memory."""

    def __call__(self, device: int, near: int, part: Box, stream: Any, *, to_host: bool, is_pinned: bool) -> None: ...


class PartCopy(Protocol):
    """The members of a copy that a worker needs; see `offload.devices.cuda.staging.PageableCopy`."""

    host: HostMemory
    device: int
    stream: Any
    to_host: bool


class StagedChunks(Protocol):
    """The members of the owner of the copies that a worker needs; see `offload.devices.cuda.staging.StagingThreads`."""

    index: int
    driver: Driver
    transfer: PartTransfer

    def take(self) -> tuple[Any, Box] | None: ...
    def give_back(self, copy: Any, error: BaseException | None) -> None: ...
    def failure(self, error: BaseException) -> BaseException: ...


class Worker:
    """A staging thread with its slots."""

    __slots__ = ("_driver", "_slots", "_staging")

    def __init__(self, staging: StagedChunks) -> None:
        self._staging = staging
        self._driver = staging.driver
        self._slots = deque(_Slot() for _ in range(_SLOTS))  # the one used last is the last

    def run(self) -> None:
        """Do chunks until the staging is closed."""
        while self._do_next():
            pass
        for slot in self._slots:
            slot.free()

    def _do_next(self) -> bool:
        """Wait for a chunk and do it; return False if there will be none."""
        taken = self._staging.take()
        if taken is None:
            return False
        copy, part = taken
        error = None
        try:
            slot = self._ready_slot()
            if copy.to_host:
                self._transfer(slot, copy, part)
                self._driver.wait(slot.event)
                copy.host.unpack(slot.bytes, part)
            else:
                copy.host.pack(slot.bytes, part)
                self._transfer(slot, copy, part)
        except BaseException as raised:  # noqa: BLE001  # it is the copy's
            error = self._staging.failure(raised)
        self._staging.give_back(copy, error)
        return True

    def _ready_slot(self) -> _Slot:
        """Return a slot that may be used anew; another one is made only where the driver still reads the last."""
        slots = self._slots
        if not slots[-1].event or not self._driver.is_over(slots[-1].event):
            slots.rotate(-1)
        if not slots[-1].event:
            try:
                slots[-1].make(self._staging.index)
                return slots[-1]
            except cuda.CUDARuntimeError:
                slots.rotate(1)
                if not slots[-1].event:
                    raise
        self._driver.wait(slots[-1].event)
        return slots[-1]

    def _transfer(self, slot: _Slot, copy: PartCopy, part: Box) -> None:
        """Enqueue the copy between a slot and the device, and the slot's event."""
        stream = copy.stream.ptr
        device_side = 2 if copy.to_host else 1
        try:
            if not is_packed(part, device_side):
                self._staging.transfer(
                    copy.device, slot.address, part, copy.stream, to_host=copy.to_host, is_pinned=True
                )
            else:
                device = copy.device + offset(part, device_side)
                dst, src = (slot.address, device) if copy.to_host else (device, slot.address)
                self._driver.copy(dst, src, part.nbytes, stream)
        finally:  # half of a copy that fails may be under way; a lost device fails here, too, and whoever waits for it
            self._driver.record(slot.event, stream)


class Driver:
    """Calls of the driver that return at once and keep the GIL."""

    # To get the GIL back from other threads takes ten times as long as the call, several times a chunk.

    __slots__ = ("_attributes", "_copy", "_n_attributes", "_names", "_query", "_questions", "_record")

    def __init__(self) -> None:
        library = ctypes.PyDLL("libcuda.so.1")
        self._copy, self._record, self._query = library.cuMemcpyAsync, library.cuEventRecord, library.cuEventQuery
        self._copy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        self._record.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._query.argtypes = (ctypes.c_void_p,)
        self._attributes = library.cuPointerGetAttributes  # called with values of C: to make them takes as long again
        self._n_attributes = ctypes.c_uint(len(_ATTRIBUTES))
        self._names = (ctypes.c_int * len(_ATTRIBUTES))(*_ATTRIBUTES)
        self._questions: list[_Question] = []  # that nobody is asking

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

    def region_of(self, address: int) -> tuple[int, int] | None:
        """Return address and bytes of the allocation or registration around an address, all in one call.

        Return None for pageable memory, and (0, 0) if the driver does not say. A ``CUDARuntimeError`` means that the
        device is lost.
        """
        try:
            question = self._questions.pop()
        except IndexError:
            question = _Question()
        question.address.value = address
        question.answers[0] = _PAGEABLE
        if self._attributes(self._n_attributes, self._names, question.places, question.address):
            if cuda.pointerGetAttributes(address).type == _PAGEABLE:  # it also gives the thread a context
                return None
            if self._ask(question):
                return 0, 0
        kind, begin, nbytes = question.answers
        self._questions.append(question)
        return None if kind == _PAGEABLE else (begin, nbytes)

    def _ask(self, question: _Question) -> int:
        """Have the driver answer a question; return its status."""
        return self._attributes(self._n_attributes, self._names, question.places, question.address)  # type: ignore[no-any-return]  # ctypes

    def wait(self, event: int) -> None:
        """Block until an event has passed, without the GIL unless it has already."""
        if self._query(event):
            cuda.eventSynchronize(event)

    def is_over(self, event: int) -> bool:
        """Tell whether an event has passed; of one that failed, `wait` says so."""
        return not self._query(event)


class _Question:
    """The memory that the driver reads and writes for a question about `_ATTRIBUTES`; for one caller at a time."""

    __slots__ = ("address", "answers", "places")

    def __init__(self) -> None:
        self.address = ctypes.c_void_p()  # the address in question
        # 64 bits each; the driver writes fewer for some, so the rest stays 0
        self.answers = array("Q", [0] * len(_ATTRIBUTES))
        first, _ = self.answers.buffer_info()
        places = [first + number * self.answers.itemsize for number in range(len(_ATTRIBUTES))]
        self.places = (ctypes.c_void_p * len(_ATTRIBUTES))(*places)  # where the answers go


class _Slot:
    """Pinned memory, and an event at the end of the last copy from or to it; both are null until they are used."""

    __slots__ = ("address", "bytes", "event")

    def __init__(self) -> None:
        self.address = self.event = 0

    def make(self, index: int) -> None:
        cuda.setDevice(index)  # also for the driver's calls that follow on this thread
        if not self.address:
            self.address = cuda.hostAlloc(SLOT_NBYTES, _PORTABLE)
            self.bytes = bytes_at(self.address, SLOT_NBYTES)
        self.event = cuda.eventCreateWithFlags(_BLOCKING | _DISABLE_TIMING)

    def free(self) -> None:
        with suppress(cuda.CUDARuntimeError):  # a lost device has neither any more
            if self.event:
                cuda.eventDestroy(self.event)
            if self.address:
                cuda.freeHost(self.address)
