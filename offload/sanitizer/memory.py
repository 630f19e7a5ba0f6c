"""Memory of accesses: the bytes of an array, and arrays over bytes that keep nothing alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import address_of
from offload.arrays.sections import HOST, section_of
from offload.sanitizer.elements import MemoryAt, Scattered, byte_bounds, shared_marks
from offload.sanitizer.states import runs_of

if TYPE_CHECKING:
    from offload.sanitizer.states import Runs

_MOST_ARRAYS = 256
"""The arrays that stand for bytes with gaps of different sizes; bytes in more pieces are not compared with others."""


def array_in(value: Any) -> np.ndarray[Any, Any] | None:
    """Return a host array, or the hidden storage of a device's; None for anything else, and without elements."""
    array = value if isinstance(value, np.ndarray) else getattr(type(value), "_storage", None) and value._storage  # noqa: SLF001  # a device's array
    return array if isinstance(array, np.ndarray) and array.size else None


def runs_of_array(array: np.ndarray[Any, Any]) -> Runs:
    """Return the bytes of an array; none if they are not known."""
    if isinstance(array, Scattered):
        if array.addresses is None:
            return ()
        breaks = np.flatnonzero(np.diff(array.addresses) != array.itemsize) + 1
        firsts = array.addresses[np.concatenate(([0], breaks))]
        lasts = array.addresses[np.concatenate((breaks - 1, [array.addresses.size - 1]))] + array.itemsize
        return [*zip(firsts.tolist(), lasts.tolist(), strict=True)]
    return runs_of(section_of(HOST, address_of(array), array.shape, array.strides, array.itemsize))


def shared_runs(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> Runs:
    """Return the bytes that two arrays have in common; of very large ones the bytes that both may have."""
    found = shared_marks(one, other)
    if found is None:
        (one_low, one_high), (low, high) = byte_bounds(one), byte_bounds(other)
        return ((max(one_low, low), min(one_high, high)),)
    low, marks = found
    cuts = np.flatnonzero(np.diff(marks, prepend=False, append=False)) + low
    return [*zip(cuts[::2].tolist(), cuts[1::2].tolist(), strict=True)]


def arrays_over(runs: Runs) -> list[np.ndarray[Any, Any]]:
    """Return arrays over these bytes, which are only asked for their places; none for too many pieces."""
    if not runs:
        return []
    lo, hi = runs[0]
    if len(runs) > 1:
        step, nbytes = runs[1][0] - lo, hi - lo
        if all(run == (lo + k * step, hi + k * step) for k, run in enumerate(runs)):
            return [layout_at(lo, (len(runs), nbytes), (step, 1))]
    return [layout_at(lo, (hi - lo,), (1,)) for lo, hi in runs] if len(runs) <= _MOST_ARRAYS else []


def layout_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with the same layout, which does not keep the memory."""
    return layout_at(address_of(array), array.shape, array.strides, array.itemsize)


def layout_at(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int = 1
) -> np.ndarray[Any, Any]:
    """Return an array that is only asked for its places."""
    return np.asarray(MemoryAt(address, shape, strides, itemsize))
