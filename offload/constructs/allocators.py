"""The library whose allocator device memory comes from."""

from __future__ import annotations

from typing import Literal

from offload.devices.cuda.allocators import choose


def use_allocator(name: Literal["offload", "torch", "cupy", "rmm"] | None) -> None:
    """Take the device memory of this process's CUDA devices from a library's allocator from now on.

    Two pools on one GPU keep memory from each other: each holds unused blocks that the other cannot have. If most of
    the memory is PyTorch's, let offload's blocks come from PyTorch, too. The choice covers mapped data, `target_alloc`
    and the memory of captured graphs, in open runtimes and in later ones. Temporary arrays of a body come from the
    library that makes them, as before.

    Parameters
    ----------
    name : {"offload", "torch", "cupy", "rmm"} or None
        ``"torch"`` is PyTorch's caching allocator, ``"cupy"`` CuPy's default memory pool, ``"rmm"`` RMM's current
        memory resource of each GPU. ``"offload"`` or None is the default: a pool of the CUDA driver.

    Raises
    ------
    ClauseError
        There is no such allocator.
    UsageError
        The program has not imported the library. If no CUDA device is open yet, the runtime that opens one raises the
        error.
    UnsupportedError
        PyTorch cannot use a GPU of the runtime.

    Notes
    -----
    The call does not block. Earlier blocks stay where they are, and go back to the pool that they are from. A call that
    raises changes nothing. In a process without CUDA devices, the call only checks the name.

    With ``"torch"`` and ``"cupy"``, ``memory_info()`` of a device counts the blocks that the library holds unused as
    free, and respects the limit that you have set for the library. RMM does not say which blocks it holds unused. With
    all three, copies between GPUs are the driver's. In OpenMP, allocators are in 5.2, ch. 6 "Memory Management"
    (section number unchecked).

    Examples
    --------
    >>> omp.use_allocator("cupy")
    >>> d = omp.target_alloc(1000, "f4")
    >>> omp.target_free(d)
    >>> omp.use_allocator(None)  # the default again
    """
    choose(name)
