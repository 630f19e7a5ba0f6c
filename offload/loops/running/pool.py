"""The loop threads of this process: a compiled loop, chunk by chunk, on a few threads that Python knows nothing of."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any

from offload.loops.running.build import builder

if TYPE_CHECKING:
    from collections.abc import Callable


def run(entry: int, arguments: int, trips: int, n_chunks: int, n_threads: int, bounds: Any = None) -> int:
    """Run a compiled loop, and return the nanoseconds that it would take one thread, judged by the caller's share.

    ``entry`` is the address of ``void entry(const void *arguments, int64_t begin, int64_t end, int64_t chunk, int64_t
    worker)``. Chunk c is trips ``trips * c // n_chunks`` to ``trips * (c + 1) // n_chunks`` of the outermost loop,
    unless ``bounds`` (an array of int64) has the beginning of each chunk and the end of the last one. ``n_chunks`` is
    below 2**32. At most ``n_threads`` and `n_cores` threads work, the caller included. If another loop has the threads,
    the caller does everything.

    *Blocks* until all chunks have ended, without the GIL. *Costs* 1 µs with one thread, and 1 µs more if helpers worked
    lately. Waking sleeping helpers takes 5 µs each; in a sandbox with slow system calls, 50 µs were measured.
    """
    return _function()(entry, arguments, trips, n_chunks, min(n_threads, n_cores()), bounds)


@functools.cache
def n_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _function() -> Callable[..., int]:
    function = builder.pool.offload_pool_run
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.POINTER(ctypes.c_int64))
    function.restype = ctypes.c_int64
    return function
