"""Indices of array types: the check of an index, the number of an element and its indices, and where elements are."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.errors import LayoutError
from offload.parray import seams
from offload.parray.dimensions import abridged
from offload.parray.references import BOTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.parray.references import Index


class Place(NamedTuple):
    """The place of an element of a distributed type.

    Attributes
    ----------
    thread : int, or array of int64
        The number of the thread.
    offset : int, or array of int64
        The offset in the memory of the thread.

    Examples
    --------
    >>> P = parray.threads(2)
    >>> D = parray.ArrayType((P, 3))  # three elements on each of two threads
    >>> D(4)
    Place(thread=1, offset=1)
    """

    thread: Any  # int, or an array of int64
    offset: Any  # of the same shape


def checked(array_type: Any, index: Any) -> Index:
    """Return an index of an element, or an array of them, in range."""
    try:
        at = operator.index(index)
    except TypeError:
        if getattr(getattr(index, "dtype", None), "kind", "") not in {"i", "u"}:
            raise TypeError(
                f"an index of {abridged(str(array_type))} is {index!r}, {type(index).__name__}; it must be an integer "
                "or an array of integers"
            ) from None
        low, high = (int(index.min()), int(index.max())) if index.size else (0, -1)  # none is out of range
        at = index.astype(seams.namespace.int64)
    else:
        low = high = at
    if low < 0 or high >= array_type.size:
        raise IndexError(
            f"index {low if low < 0 else high} is out of range for {abridged(str(array_type))} "
            f"of size {array_type.size}"
        )
    return at


def number_of(array_type: Any, indices: tuple[Any, ...]) -> Index:
    """Return the number of an element; beyond 64 bits in an array of Python's integers."""
    dims = array_type.dims
    if len(indices) != (len(dims) or 1) or (not dims and isinstance(indices[0], tuple)):
        wanted = f"{len(dims)} indices, one for each sub-dimension" if dims else "one index, not a tuple"
        raise IndexError(f"{abridged(str(array_type))} takes {wanted}; these are {len(indices)}: {indices}")
    if not dims:
        return checked(array_type, indices[0])
    number: Any = 0  # Horner's rule, from the outermost on
    for sub, given in zip(dims, indices, strict=True):
        at = number_of(sub, given if sub.dims else (given,)) if isinstance(given, tuple) else checked(sub, given)
        number = number * sub.size + (at if isinstance(at, int) or not array_type.size >> 63 else at.astype(object))
    return number


def unravelled(array_type: Any, index: Any) -> Any:
    """Return the indices of an element by its number, which is in range."""
    found: list[Any] = []
    for sub in reversed(array_type.dims):
        if sub.size >> 63 and not isinstance(index, int):  # of 64 bits no number is so large
            at, index = index, 0 * index
        else:
            at, index = index % sub.size, index // sub.size
        found.insert(0, unravelled(sub, at))
    return tuple(found) if found else index


def one_by_one(array_type: Any, index: Index) -> tuple[Index, Index]:
    """Return places of many indices, computed with Python's integers, in arrays."""
    found = [array_type.places(at) for at in index.reshape(-1).tolist()]
    return (
        integers(array_type, [memory for memory, _ in found]).reshape(index.shape),
        integers(array_type, [thread for _, thread in found]).reshape(index.shape),
    )


def integers(array_type: Any, values: Sequence[int]) -> Any:
    """Return values in an array of int64; raise `LayoutError` if one does not fit."""
    try:
        return seams.namespace.asarray(values, dtype=seams.namespace.int64)
    except OverflowError:
        raise too_wide(array_type) from None


def too_wide(array_type: Any) -> LayoutError:
    """Return the error of offsets that an array of int64 cannot hold."""
    return LayoutError(
        f"offsets of {abridged(str(array_type))} are beyond 64 bits; ask for them one by one, with integers"
    )


def leaf_sizes(array_type: Any) -> list[int]:
    """Return the sizes of the leaves, in order."""
    return [size for sub in array_type.dims for size in leaf_sizes(sub)] if array_type.dims else [array_type.size]


def axes_of(loops: Sequence[tuple[int, int]], counts: Sequence[int]) -> tuple[tuple[int, int], ...] | None:
    """Divide a loop nest among leaves of these sizes, in order; None if a leaf gets no single stride."""
    left = [(count, step) for count, step in loops]  # the last one is the innermost that is left
    axes = []
    for count in reversed(counts):
        if count == 1:
            axes.append((1, 0))
            continue
        whole, step = left.pop()  # the loops have as many elements as the leaves
        if whole % count:
            return None
        axes.append((count, step))
        if whole > count:
            left.append((whole // count, step * count))
    return tuple(reversed(axes))


def refuse_both(array_type: Any, what: str) -> None:
    """Raise `LayoutError` for a distributed type."""
    if array_type.counts == BOTH:
        raise LayoutError(
            f"{what} is not defined for the distributed type {abridged(str(array_type))}; its elements are in several "
            "memories: ask a sub-dimension that counts only memory"
        )
