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
    """Run a compiled loop, and return the nanoseconds that it takes one thread, as far as the caller's share tells.

    Parameters
    ----------
    entry : int
        Address of ``void entry(const void *arguments, int64_t begin, int64_t end, int64_t chunk, int64_t worker)``.
    arguments : int
        Address of its structure.
    trips : int
        Of the outermost loop. Chunk c is trips ``trips * c // n_chunks`` to ``trips * (c + 1) // n_chunks``, unless
        there are ``bounds``.
    n_chunks : int
        Below 2**32.
    n_threads : int
        How many may work, the caller included; at most `n_cores` do. ``worker`` is below both. Where another loop has
        the threads, the caller does all of it.

    bounds : array of ctypes.c_int64, optional
        Where each chunk begins, and where the last one ends.

    Notes
    -----
    *Blocks* until all chunks have ended, without the GIL.
    *Costs* a microsecond where one thread works, and another one where helpers were lately at work. To wake those that
    sleep takes some 5 µs each; in a sandbox, where a system call is dear, 50 µs were measured.
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
