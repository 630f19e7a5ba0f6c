"""Arrays of the host in memory that the devices copy from and to by themselves."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from offload.arrays import given
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
    """Return an uninitialised host array in page-locked memory, if the current runtime has CUDA devices.

    Copies between such memory and a device need no staging, and the host can continue at once. In a runtime without
    CUDA devices the array is an ordinary one that begins at a page. Therefore a program need not know where it runs.

    Parameters
    ----------
    shape : int or tuple of int
        The number of elements of each dimension.
    dtype : dtype-like
        Any dtype without Python objects.
    order : {"C", "F"}
        Whether the last or the first index changes fastest in memory.

    Returns
    -------
    numpy.ndarray
        The memory lives as long as the array or any view of it. It may outlive the runtime.

    Raises
    ------
    ClauseError
        A wrong shape, dtype or order.
    DeviceMemoryError
        There is too little memory, or the system refuses to lock that much.

    Notes
    -----
    The call blocks while the system locks new pages. On CUDA the memory comes from CuPy's pool of pinned memory, in
    blocks whose size is a power of two. A later array reuses the block.
    ``cupy.get_default_pinned_memory_pool().free_all_blocks()`` returns unused blocks to the system. Elsewhere the array
    takes one extra page. In OpenMP this is an allocator with the trait ``pinned`` (5.2, ch. 6 "Memory Management";
    section number unchecked).

    Examples
    --------
    >>> x = omp.empty_pinned((2, 3), np.float32)
    >>> x[:] = 1
    >>> x.shape, x.dtype
    ((2, 3), dtype('float32'))
    """
    dims, kind = extent(shape, dtype, "empty_pinned")
    if order not in ("C", "F"):
        raise ClauseError(f"empty_pinned: order={order!r:.60} is not an element order; use 'C' or 'F'")
    nbytes = check_nbytes(dims, kind, "empty_pinned")
    if not nbytes:
        return given.namespace.empty(dims, kind, order)  # type: ignore[no-any-return]
    catch_up()  # a finalizer may have something to give back
    try:
        memory = _memory(current_runtime(), nbytes)
    except MemoryError as error:
        raise DeviceMemoryError(
            f"empty_pinned: the host cannot allocate {nbytes:,} bytes of pinned memory for "
            f"{kind}[{', '.join(map(str, dims))}]; ask for less, or use pageable memory from numpy.empty",
            nbytes,
        ) from error
    return given.namespace.ndarray(dims, kind, buffer=memory, order=order)  # type: ignore[no-any-return]


def _memory(runtime: Runtime, nbytes: int) -> np.ndarray[Any, Any]:
    """Return memory as an array of bytes, of which there may be more; raise `MemoryError`."""
    for place in runtime.places:
        memory = place.device.host_memory(nbytes)
        if memory is not None:
            return np.frombuffer(memory, np.uint8, nbytes)
    whole = np.empty(nbytes + mmap.PAGESIZE, np.uint8)
    return whole[-whole.__array_interface__["data"][0] % mmap.PAGESIZE :]
