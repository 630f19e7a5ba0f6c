"""The loop threads of this process, which Python knows nothing of, and the chunks that they take."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any, Final

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


# -- chunks -------------------------------------------------------------------------------------------
#
# Chunks follow from the number of trips alone, so results do not depend on how many threads there are. The next free
# thread always takes the next chunk; kinds of schedules differ in the chunks. `static` has some of equal length, few
# enough to combine in no time; `dynamic` many, for trips that are unequally long; `guided` long ones first, each a
# share of the rest. A given size is the size of chunks, or of the shortest.


# Chunks of a loop: enough that threads which are late or slow even out, few enough to combine in no time.
CHUNKS: Final = 64

_MANY: Final = 16 * CHUNKS
# Where `schedule` gives the size of a chunk: 512 KB of partial results for each item of a reduction.
_MOST: Final = 1 << 16

# The part of what is left that a guided chunk has: half of what each of 16 threads would have.
_SHARE: Final = 32


def n_chunks(trips: int, rows: int, schedule: tuple[str, int | None] | None, *, shuffles: bool) -> int:
    """Return the number of chunks of the outermost loop's trips; many if they are to be shuffled.

    A chunk boundary falls between ``rows``, which are fewer than the trips if loops are tiled.
    """
    kind, size = schedule or ("static", None)
    if kind == "guided" and rows == trips:
        return max(len(guided(trips, size or 1)) - 1, 0)
    if size is not None:
        return min(-(-trips // size), _MOST)
    return min(rows, _MANY if shuffles or kind == "dynamic" else CHUNKS)


def guided(trips: int, least: int) -> list[int]:
    """Return where guided chunks begin, and where the last one ends."""
    bounds = [0]
    least = max(least, -(-trips // _MOST))
    while bounds[-1] < trips:
        left = trips - bounds[-1]
        bounds.append(bounds[-1] + min(left, max(least, -(-left // _SHARE))))
    return bounds
