"""Arrays that a call of MPI cannot take: device arrays, and views of the host that are not contiguous.

A library that is aware of device arrays gets them; others get copies in host memory. A staged call stays one task: its
body enqueues the copies of its input, it arrives at its turn when they are done, and it is complete when its output has
been copied back. Each call has memory of its own. See docs/design/theory.md, "Staged buffers".

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
    """The arrays of an operation that are copied before or after its call, if the library does not take them."""

    __slots__ = ("buffers", "is_aware", "place")

    def __init__(self, place: DevicePlace | None, buffers: Sequence[tuple[str, Any, BufferAccess]]) -> None:
        self.place = place  # of the device arrays; None if all arrays are the host's
        self.buffers = buffers  # each one's parameter, array and use: `WRITE` if that is all of it, or a message
        # the library takes memory of the device
        self.is_aware = place is not None and place.device.kind == "cuda" and is_gpu_aware()

    def given(self, array: Any) -> Any:
        """Return the memory that the library gets for an array: the array itself, or memory to copy it to or from."""
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
    """The copies of one call."""

    __slots__ = ("_after", "_gate", "_staging", "arrays")

    def __init__(self, staging: BufferStaging, gate: Gate) -> None:
        self._staging = staging  # the buffers of the call, and the device that they are on
        self._gate = gate  # finds out when the copies have passed
        place = staging.place
        self._after = place.device.caller_event() if place is not None else None  # the caller's stream may fill them
        self.arrays: dict[str, Any] = {}  # the call's argument for each parameter whose array is staged

    def bring(self, told: Callable[[BaseException | None], None]) -> None:
        """Copy the arrays that the call reads, or enqueue that; then call ``told``, with the error if there is one."""
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
        """Copy back the arrays that the call has written; ``told`` as for `bring`, ``came`` is the request's result."""
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
        self._told = told  # called with an error or None

    def passed(self, error: BaseException | None) -> None:
        self._told(error)


@cache
def is_gpu_aware() -> bool:
    """Tell whether the MPI library accepts device memory.

    If ``OFFLOAD_MPI_GPU`` is 0 or 1, it decides. Otherwise the library's list of memory kinds decides (MPI 4.1), or
    ``MPIX_Query_cuda_support`` for CUDA. offload never tries it: if a library that is not GPU-aware sends device
    memory, the process crashes.

    Returns
    -------
    bool
        True if the library accepts device memory.

    Raises
    ------
    UsageError
        ``OFFLOAD_MPI_GPU`` has another value.

    Examples
    --------
    >>> mpi.is_gpu_aware() in (True, False)
    True
    """
    given = os.environ.get("OFFLOAD_MPI_GPU", "")
    if given not in {"", "0", "1"}:
        raise UsageError(f"OFFLOAD_MPI_GPU={given!r}: give 0 or 1, or leave it empty to ask the library")
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
