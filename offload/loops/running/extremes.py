"""The least and the greatest element of an array of integers, in one pass on the loop threads."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any, Final

import numpy as np

from offload.arrays.items import address_of
from offload.loops.running import pool
from offload.loops.running.build import builder
from offload.loops.running.compilers import HostFailure
from offload.runtime.current import here

# Smaller arrays lie in a core's cache, where NumPy's passes take less time than it takes to start threads.
_LEAST_NBYTES: Final = 1 << 20

# As for loops: enough that threads which are late or slow even out.
_CHUNKS: Final = 64


def extremes(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the least and the greatest element of a non-empty array of integers or truth values.

    *Costs* one pass over memory, on as many threads as the runtime has. NumPy makes two passes on one thread if the
    array is small, if its elements are not evenly spaced, or if there is no compiler.
    """
    row = _row(array) if array.nbytes >= _LEAST_NBYTES else None
    entry = 0 if row is None or builder.compiler is None else _entry(row.dtype.name)
    if row is None or not entry:
        return int(array.min()), int(array.max())
    found = np.empty((_CHUNKS, 2), row.dtype)
    arguments = np.array((address_of(row), row.strides[0], address_of(found)), np.int64)
    n_threads = 1 + len(here().runtime.engine.threads)
    pool.run(entry, address_of(arguments), row.size, _CHUNKS, n_threads)
    return int(found[:, 0].min()), int(found[:, 1].max())


def _row(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return the elements as one dimension of the same memory, in any order; None where they are not that."""
    flags = array.flags
    if not flags.aligned or not array.dtype.isnative:
        return None
    row = array.view(np.uint8) if array.dtype == np.bool_ else array
    if row.ndim == 1:
        return row
    return row.reshape(-1, order="A") if flags.forc else None


@functools.cache
def _entry(dtype: str) -> int:
    """Return the address of the kernel for a type; 0 where it cannot be compiled now."""
    source = resources.files("offload.loops.running").joinpath("extremes.c").read_text(encoding="utf-8")
    try:
        return builder.load(source, f"extremes_{dtype}")
    except HostFailure:
        return 0
