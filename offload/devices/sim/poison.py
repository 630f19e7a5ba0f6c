"""The contents of uninitialised memory of a simulated device, if reads of it are to be conspicuous.

On a GPU such memory holds the values of another array. On the host it holds mostly zeros, fresh from the system, so a
program that reads before it writes seems to work. A poisoned device fills each new allocation with values that no
program takes for a result: NaN, or bytes that are none of 0, 1 and -1.

One byte repeated makes each pattern, so that a buffer of bytes can be filled for the elements that it will be used
as, however these are packed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_BYTES = {"f": 0xFF, "c": 0xFF, "b": 0x01}
"""By kind of dtype: all bits set are a NaN of each width; a bool that is neither 0 nor 1 breaks NumPy's operations."""

_OTHERWISE = 0xCB


def poison(storage: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """Fill memory that nobody has written yet.

    Parameters
    ----------
    storage : numpy.ndarray
        Any shape, strides and dtype; one of Python objects is left alone.
    dtype : numpy.dtype
        The elements that the memory is for. Floating-point and complex ones become NaN, bools true; all bytes
        of others, structured ones as a whole, become 0xCB.
    """
    own = storage.dtype
    if own.hasobject or not own.itemsize:
        return
    byte = _BYTES.get(dtype.base.kind, _OTHERWISE)
    np.copyto(storage, np.frombuffer(bytes([byte]) * own.itemsize, own).reshape(()))
