"""The elements that an operation accesses, exactly: parts of arrays as arrays.

A slice, a field or a diagonal is a view. The elements that a mask or an index array takes mostly are not. Up to
`MOST_RUNS` runs of them become views. More elements become one `Scattered`: it is a view of the whole array, so that it
serves as a bound everywhere, and it has the address of each element besides. `overlaps` compares arrays of both forms.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from offload.arrays.items import address_of

Storage: TypeAlias = np.ndarray[Any, Any]

MOST_RUNS = 16
"""A few views are cheaper to compare than addresses; a blocked index array rarely has more blocks than this."""

MOST_NBYTES = 1 << 26
"""Two arrays are compared byte by byte over at most so many bytes that both may cover: that takes 50 ms."""

EFFORT = 10_000
"""How long `numpy.shares_memory` may search. It decides slices of three dimensions in fewer steps."""


class Scattered(np.ndarray):
    """Some elements of an array; as an array, it is a view of the whole array.

    Attributes
    ----------
    addresses : numpy.ndarray or None
        The addresses of the elements, sorted, each once, int64; None if they are not known.
    """

    addresses: Storage | None

    def __array_finalize__(self, made_from: Any) -> None:
        self.addresses = None


def unknown_part(array: Storage) -> Storage:
    """Return some elements of an array that are not known."""
    return array.view(Scattered)


def taken(array: Storage, index: Any) -> list[Storage]:
    """Return the elements that ``array[index]`` takes, for any index that NumPy takes."""
    items = index if type(index) is tuple else (index,)
    if all(_is_basic(item) for item in items):
        if isinstance(index, str):
            return [array[index]]
        # NumPy copies the elements if a number of the index is an array.
        items = tuple([int(item) if isinstance(item, np.ndarray) else item for item in items])
        return [array[items if any(item is Ellipsis for item in items) else (*items, ...)]]
    if len(items) == 1 and not isinstance(items[0], tuple) and _is_fields(items[0]):
        return [array[name] for name in items[0]]
    addresses = address_of(array)
    for axis, n in enumerate(array.shape):
        # The coordinates along one dimension, as a view of a vector that has them all: indexing picks them.
        line = np.arange(n, dtype=np.int64).reshape([-1 if at == axis else 1 for at in range(array.ndim)])
        addresses = addresses + np.broadcast_to(line, array.shape)[index] * array.strides[axis]
    return from_addresses(array, np.asarray(addresses, np.int64).reshape(-1))


def selected(array: Storage, mask: Any) -> list[Storage]:
    """Return the elements of an array where a mask, which is broadcast with it, is true."""
    if mask is True or (isinstance(mask, np.generic | bool) and bool(mask)):
        return [array]
    mask = np.asarray(mask)
    shape = np.broadcast_shapes(array.shape, mask.shape)
    wide = np.broadcast_to(array, shape)
    return taken(wide, np.broadcast_to(mask.astype(bool), shape))


def from_addresses(array: Storage, addresses: Storage) -> list[Storage]:
    """Return the elements of ``array`` that lie at these addresses: int64, in any order, also repeated."""
    if not addresses.size:
        return []
    steps = np.diff(addresses)
    if not (steps > 0).all():
        addresses = np.unique(addresses)
        steps = np.diff(addresses)
    if addresses.size == 1 or (steps == steps[0]).all():
        step = int(steps[0]) if steps.size else array.itemsize
        return [_row(array, int(addresses[0]), addresses.size, step)]
    ends = np.flatnonzero(steps != array.itemsize) + 1
    if ends.size < MOST_RUNS:
        bounds = [0, *ends.tolist(), addresses.size]
        return [_row(array, int(addresses[begin]), end - begin, array.itemsize) for begin, end in pairwise(bounds)]
    part = array.view(Scattered)
    part.addresses = addresses
    return [part]


def overlaps(one: Storage, other: Storage) -> bool | None:
    """Tell whether two arrays, each of which may be `Scattered`, share a byte; None if that cannot be decided."""
    if not (one.size and other.size and np.may_share_memory(one, other)):
        return False
    is_scattered = False
    for array in (one, other):
        if isinstance(array, Scattered):
            if array.addresses is None:
                return None
            is_scattered = True
    if not is_scattered:
        try:
            return np.shares_memory(one, other, max_work=EFFORT)  # type: ignore[arg-type]  # the stub lacks numbers
        except np.exceptions.TooHardError:
            pass
    marks = shared_marks(one, other)
    return None if marks is None else bool(marks[1].any())


def shared_marks(one: Storage, other: Storage) -> tuple[int, Storage] | None:
    """Return a bool for each byte from an address on: whether both arrays have it; None if they are too large."""
    bounds = byte_bounds(one), byte_bounds(other)
    low, high = max(lo for lo, _ in bounds), min(hi for _, hi in bounds)
    if low >= high:
        return low, np.zeros(0, bool)
    if max(high - low, one.nbytes, other.nbytes) > MOST_NBYTES:  # a view can have a byte many times
        return None
    return low, covered(one, low, high) & covered(other, low, high)


def byte_bounds(array: Storage) -> tuple[int, int]:
    """Return the address of an array's first byte, and the address after its last byte."""
    if isinstance(array, Scattered) and array.addresses is not None:
        return int(array.addresses[0]), int(array.addresses[-1]) + array.itemsize
    low = high = address_of(array)
    if array.flags.forc:
        return low, low + array.nbytes
    for n, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (n - 1) * stride
        else:
            high += (n - 1) * stride
    return low, high + array.itemsize


def covered(array: Storage, low: int, high: int) -> Storage:
    """Return a bool for each byte from ``low`` to ``high``: whether the array has it."""
    first, end = byte_bounds(array)
    begin, stop = min(first, low), max(end, high)
    marks = np.zeros(stop - begin, bool)
    if isinstance(array, Scattered) and array.addresses is not None:
        at = array.addresses[(array.addresses > low - array.itemsize) & (array.addresses < high)] - begin
        for byte in range(array.itemsize):
            marks[at + byte] = True
    else:
        shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
        np.ndarray(shape, bool, marks, address_of(array) - begin, strides)[...] = True
    return marks[low - begin : high - begin]


def _row(array: Storage, address: int, n: int, step: int) -> Storage:
    """Return a view of ``n`` elements in the memory of ``array``, from an address on."""
    return np.asarray(MemoryAt(address, (n,), (step,), array.itemsize, array))


class MemoryAt:
    """Memory of this process, as the protocol of NumPy describes it: its bytes count, and not their values.

    Attributes
    ----------
    owner : numpy.ndarray or None
        The array that is kept, so that the memory stays.
    """

    __slots__ = ("__array_interface__", "owner")

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        itemsize: int,
        owner: Storage | None = None,
    ) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{itemsize}",
            "data": (address, False),
        }
        self.owner = owner


def _is_basic(item: Any) -> bool:
    """Tell whether an item of an index selects by position, so that elements in a row stay a view."""
    if item is None or item is Ellipsis or isinstance(item, slice | str):
        return True
    if isinstance(item, np.ndarray):
        return not item.ndim and item.dtype.kind in "iu"
    return isinstance(item, int | np.integer) and not isinstance(item, bool)


def _is_fields(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(name, str) for name in item)
