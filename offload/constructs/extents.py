"""The meaning of the shape and dtype of an allocation."""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np

from offload.constructs.copying import MAX_DIMENSIONS
from offload.errors import ClauseError, DeviceMemoryError

_NBYTES_LIMIT = 1 << 63
"""No address space has more; the arithmetic of NumPy and CuPy overflows there."""


def extent(shape: Any, dtype: Any, what: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the checked shape and dtype of an allocation; raise `ClauseError`, which begins with ``what``."""
    try:
        dims = (index(shape),) if hasattr(shape, "__index__") else tuple([index(size) for size in shape])
        kind = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise ClauseError(
            f"{what}: shape {shape!r:.60} with dtype {dtype!r:.60} is not valid ({error}); give a number of elements "
            "or a tuple of them, and a NumPy dtype such as np.float32"
        ) from None
    if min(dims, default=0) < 0 or len(dims) > MAX_DIMENSIONS or kind.hasobject:
        raise ClauseError(
            f"{what}: shape {shape!r:.60} with dtype {kind} cannot be allocated; sizes must be at least 0, at most "
            f"{MAX_DIMENSIONS} dimensions are allowed, and elements must not be Python objects"
        )
    return dims, kind


def check_nbytes(dims: tuple[int, ...], kind: np.dtype[Any], what: str) -> int:
    """Return the bytes of an allocation; raise `DeviceMemoryError` where no memory has so many."""
    nbytes = math.prod(dims, start=kind.itemsize)
    if nbytes >= _NBYTES_LIMIT:
        raise DeviceMemoryError(f"{what}: {nbytes:,} bytes are more than any memory can hold; ask for less", nbytes)
    return nbytes
