"""Arrays that a call of MPI cannot take as they are: device arrays, and views of the host that are not contiguous.

Device arrays are given to a library that is aware of them, else copied through memory of the host.

Theory of operation
-------------------
A staged call stays one task. Its body enqueues copies to page-locked memory of what the call reads; when the device has
got there, the call has arrived at its turn. When its request is complete, what it has written is copied back, and the
task is complete when the device has got there again. No thread is held at any time, and a message is one message,
whatever its size: the other side may be any program of MPI.

A message may be shorter than its buffer, and a collective operation may leave parts of one as they are. Of a message
only what has come is copied back; where else a call may not write all, the array is copied there before.

Each call has memory of its own, as much as it needs: bounded buffers deadlock where both sides have filled theirs with
sends. On CUDA it comes from CuPy's pool of page-locked memory and goes back there.

A library that is aware gets a contiguous array itself. Any other view takes the same way as a staged one, through
memory of the device: one strided copy packs it there. A view of the host that is not contiguous is packed into memory
of the host, and unpacked from it, by the thread that would otherwise enqueue the copies.

Rejected: tasks of their own for the copies. The task that the program has would fail with a `DependError` where with an
aware library it is a `TransportError`, and the graph would not be the same.

MPI 4.1 says how a library tells which kinds of memory it takes ("Memory Allocation Kinds"; section number unchecked).
"""

from __future__ import annotations

import ctypes
import os
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from offload.arrays.hostcopies import copyto
from offload.constructs.hostmemory import empty_pinned
from offload.devices.retirement import refuse_retired
from offload.errors import UsageError
from offload.mpi.methods import BufferAccess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.devices.streams import Lane
    from offload.events.gate import Gate
    from offload.runtime.place import DevicePlace

    Step = Callable[[Lane, list[Any]], None]


class BufferStaging:
    """The arrays of an operation that are copied before its call or after it, if the library does not take them itself.

    Parameters
    ----------
    place : DevicePlace or None
        Where the device arrays are; None where all arrays are the host's.
    buffers : sequence
        Of each the parameter, the array, and what is done with it: `WRITE` where that is all of it, or a message.
    """

    __slots__ = ("buffers", "is_aware", "place")

    def __init__(self, place: DevicePlace | None, buffers: Sequence[tuple[str, Any, BufferAccess]]) -> None:
        self.place = place
        self.buffers = buffers
        self.is_aware = place is not None and place.device.kind == "cuda" and is_gpu_aware()

    def given(self, array: Any) -> Any:
        """Return what the library gets for an array: the array itself, or memory to copy it to or from."""
        if isinstance(array, np.ndarray):
            return np.empty(array.shape, array.dtype)
        assert self.place is not None
        refuse_retired(self.place.device, array)
        if not self.is_aware:
            return empty_pinned(array.shape, array.dtype)
        if array.flags.c_contiguous:
            return array
        return self.place.device.alloc(array.shape, array.dtype, None)


class BufferCopies:
    """The copies of one call.

    Attributes
    ----------
    arrays : dict
        What the call gets for each parameter whose array is staged.
    """

    __slots__ = ("_after", "_gate", "_staging", "arrays")

    def __init__(self, staging: BufferStaging, gate: Gate) -> None:
        self._staging = staging
        self._gate = gate
        place = staging.place
        self._after = place.device.caller_event() if place is not None else None  # the caller's stream may fill them
        self.arrays: dict[str, Any] = {}

    def bring(self, told: Callable[[BaseException | None], None]) -> None:
        """Copy what the call reads, or enqueue that; call ``told`` when it is done, or with what went wrong."""
        staging, copies = self._staging, []
        for parameter, array, access in staging.buffers:
            given = self.arrays[parameter] = staging.given(array)
            if given is not array and access is not BufferAccess.WRITE:
                copies.append((given, array))
        self._copy(copies, told)

    def issue(self, call: Callable[[], Any]) -> Any:
        """Make the call; where the library is aware, with the device of the arrays as the thread's current one."""
        place = self._staging.place
        if place is None or not self._staging.is_aware:
            return call()
        outer = place.device.use(place.user_pool.next().stream)
        try:
            return call()
        finally:
            place.device.restore(outer)

    def bring_back(self, came: Any, told: Callable[[BaseException | None], None]) -> None:
        """Copy back what the call has written; ``told`` as for `bring`, ``came`` is what the request has brought."""
        self._after = None
        copies = []
        for parameter, array, access in self._staging.buffers:
            given = self.arrays[parameter]
            if access is not BufferAccess.READ and given is not array:
                copies.append((array, given))
                if access is BufferAccess.WRITE and isinstance(came, MPI.Status):
                    copies[-1] = _begun(array, given, came.Get_count(MPI.BYTE))
        self._copy([copy for copy in copies if copy[0].size], told)

    def _copy(self, copies: Sequence[tuple[Any, Any]], told: Callable[[BaseException | None], None]) -> None:
        place, steps = self._staging.place, []
        for dst, src in copies:
            if isinstance(dst, np.ndarray) and isinstance(src, np.ndarray):
                copyto(dst, src)
            else:
                assert place is not None
                steps.append(partial(place.copy, dst, src))
        self.enqueue(steps, told)

    def enqueue(self, steps: Sequence[Step], told: Callable[[BaseException | None], None]) -> None:
        """Enqueue steps, each of which takes a lane and a list for staged copies; ``told`` as for `bring`."""
        after, self._after = self._after, None
        place = self._staging.place
        if place is None or (not steps and after is None):
            told(None)
            return
        device, lane = place.device, place.user_pool.next()
        with lane.lock:
            if after is not None:
                device.wait_event(lane.stream, after)
            staged: list[Any] = []
            for step in steps:
                step(lane, staged)
            for copy in staged:  # of memory that is not page-locked
                copy.run()
            point = lane.mark()
        self._gate.add(point, _Told(told), watched=True)


def _begun(array: Any, given: Any, n: int) -> tuple[Any, Any]:
    """Return the first ``n`` bytes of both; all, if so many are more than a library can count."""
    if not 0 <= n < array.nbytes:
        return array, given
    return array.reshape(-1).view("u1")[:n], given.reshape(-1).view("u1")[:n]


class _Told:
    """Calls back when a stream has got to a place."""

    __slots__ = ("_told",)

    is_quiet = False

    def __init__(self, told: Callable[[BaseException | None], None]) -> None:
        self._told = told

    def passed(self, error: BaseException | None) -> None:
        self._told(error)


@cache
def is_gpu_aware() -> bool:
    """Tell whether the MPI library takes device memory.

    ``OFFLOAD_MPI_GPU`` decides, 0 or 1; else what the library says of its kinds of memory (MPI 4.1), or of CUDA by
    ``MPIX_Query_cuda_support``. It is never tried: a send of device memory by a library that does not know it ends the
    process.

    Raises
    ------
    UsageError
        ``OFFLOAD_MPI_GPU`` has another value.
    """
    given = os.environ.get("OFFLOAD_MPI_GPU", "")
    if given not in {"", "0", "1"}:
        raise UsageError(f"OFFLOAD_MPI_GPU={given!r}is not allowed; use 0 or 1, or leave it empty to ask the library")
    if given:
        return given == "1"
    info = MPI.COMM_WORLD.Get_info()
    try:
        kinds = info.Get("mpi_memory_alloc_kinds") or ""
    finally:
        info.Free()
    if any(kind.strip().partition(":")[0] == "cuda" for kind in kinds.split(",")):
        return True
    try:
        query = ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support
    except (OSError, AttributeError):
        return False
    return bool(query())
