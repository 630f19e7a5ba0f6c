"""Arrays of the host in memory that the devices copy from and to by themselves."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from offload.constructs.extents import check_nbytes, extent
from offload.errors import ClauseError, DeviceMemoryError
from offload.interrupts.finalizers import catch_up
from offload.runtime.current import current_runtime
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from offload.runtime.runtime import Runtime


@takes_clauses
def empty_pinned(
    shape: int | tuple[int, ...], dtype: Any = float, order: Literal["C", "F"] = "C"
) -> np.ndarray[Any, Any]:
    """Return an uninitialised host array in page-locked memory, where the current runtime has CUDA devices.

    Copies between such memory and a device neither stage nor hold up anything. In a runtime without CUDA devices it is
    an ordinary array, which begins at a page, so that a program need not know where it runs.

    Parameters
    ----------
    shape : int or tuple of int
        Elements.
    dtype : dtype-like
        Without Python objects.
    order : {"C", "F"}
        Whether the last or the first index changes fastest in memory.

    Returns
    -------
    numpy.ndarray
        The memory lives as long as the array or any view of it, and may outlive the runtime.

    Raises
    ------
    ClauseError
        A shape, dtype or order that means nothing.
    DeviceMemoryError
        There is not so much memory, or the system does not lock so much.

    Notes
    -----
    *Blocks* while the system locks pages that are new. *Costs* on CUDA a block of CuPy's pool
    of pinned memory, which is of a power of two bytes, serves a later array when this one is gone, and goes back to the
    system by ``cupy.get_default_pinned_memory_pool().free_all_blocks()``; elsewhere a page more than the elements take.
    OpenMP has it as an allocator with the trait ``pinned`` (5.2, ch. 6 "Memory Management"; section number unchecked).
    """
    dims, kind = extent(shape, dtype, "empty_pinned")
    if order not in ("C", "F"):
        raise ClauseError(f"empty_pinned: order={order!r:.60} is not an element order; use 'C' or 'F'")
    nbytes = check_nbytes(dims, kind, "empty_pinned")
    if not nbytes:
        return np.empty(dims, kind, order)
    catch_up()  # a finalizer may have something to give back
    try:
        memory = _memory(current_runtime(), nbytes)
    except MemoryError as error:
        raise DeviceMemoryError(
            f"empty_pinned: the host cannot allocate {nbytes:,} bytes of pinned memory for "
            f"{kind}[{', '.join(map(str, dims))}]; ask for less, or use pageable memory from numpy.empty",
            nbytes,
        ) from error
    return np.ndarray(dims, kind, buffer=memory, order=order)


def _memory(runtime: Runtime, nbytes: int) -> np.ndarray[Any, Any]:
    """Return memory as an array of bytes, of which there may be more; raise `MemoryError`."""
    for place in runtime.places:
        memory = place.device.host_memory(nbytes)
        if memory is not None:
            return np.frombuffer(memory, np.uint8, nbytes)
    whole = np.empty(nbytes + mmap.PAGESIZE, np.uint8)
    return whole[-whole.__array_interface__["data"][0] % mmap.PAGESIZE :]
