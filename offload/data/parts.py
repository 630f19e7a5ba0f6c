"""The indices of a replicated array that a view of it touches: the part that a construct uses, as a box.

Theory of operation
-------------------
An array whose rows do not interleave writes addresses as digits: the offset of a byte, divided by the strides, largest
first, is the index of its element. A step of a view is a difference of digits. As long as the digits stay in range at
both ends of all steps together they do in between, and elements of the view are at the sums: the box is exact. Else the
first and the last byte of the view tell the slab in which it lies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from offload.data.boxes import Box


class ArrayLayout(Protocol):
    """The layout of an array: the address of its element ``(0, …, 0)``, and strides in bytes. A `MapItem` is one."""

    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def itemsize(self) -> int: ...


def box_of(array: ArrayLayout, view: ArrayLayout, part: Box | None = None) -> Box:
    """Return a box of an array's indices that has all elements that a view of it touches, or a part of the view.

    It is the smallest one if slices and transpositions have made the view. For a view that joins dimensions, or has
    elements of another size, it is a slab. For an array whose own elements interleave it is the whole array.
    """
    part = tuple((0, extent) for extent in view.shape) if part is None else part
    steps = [(high - low - 1, stride) for (low, high), stride in zip(part, view.strides, strict=True)]
    if 0 in array.shape or any(n < 0 for n, _ in steps):
        return tuple((0, 0) for _ in array.shape)
    whole = tuple((0, extent) for extent in array.shape)
    order = sorted(range(len(whole)), key=lambda k: (-abs(array.strides[k]), -array.shape[k]))
    origin = array.address + sum(min((array.shape[k] - 1) * array.strides[k], 0) for k in order)
    # Addresses of interleaving rows are no digits.
    if not _is_nested(array, order):
        return whole
    corner = view.address + sum(first * stride for (first, _), stride in zip(part, view.strides, strict=True))
    low = corner + sum(n * stride for n, stride in steps if stride < 0) - origin
    high = low + sum(n * abs(stride) for n, stride in steps) + view.itemsize - 1
    first, rest = _digits(array, order, low)
    last, _ = _digits(array, order, high)
    spans = [(digit, digit) for digit in first]
    is_exact = view.itemsize == array.itemsize and not rest
    for n, stride in steps:
        if not n:
            continue
        place, rest = _digits(array, order, low + abs(stride))
        is_exact = is_exact and not rest
        apart = [n * (digit - base) for digit, base in zip(place, first, strict=True)]
        spans = [(least + min(by, 0), most + max(by, 0)) for (least, most), by in zip(spans, apart, strict=True)]
    ranges = dict(zip(order, [(least, most + 1) for least, most in spans], strict=True))
    if not is_exact or any(ranges[k][0] < 0 or ranges[k][1] > array.shape[k] for k in order):
        # The digits run over somewhere between the two ends, or fall between elements.
        ranges = _slab(array, order, first, last)
    return tuple(
        (extent - ranges[k][1], extent - ranges[k][0]) if array.strides[k] < 0 else ranges[k]
        for k, extent in enumerate(array.shape)
    )


def _is_nested(array: ArrayLayout, order: list[int]) -> bool:
    """Tell whether each stride is at least as wide as the inner dimensions together."""
    width = array.itemsize
    for k in reversed(order):
        if array.shape[k] > 1:
            if abs(array.strides[k]) < width:
                return False
            width = abs(array.strides[k]) * array.shape[k]
    return True


def _digits(array: ArrayLayout, order: list[int], offset: int) -> tuple[list[int], int]:
    """Return the index that an offset has in each dimension, slowest first, and the remainder."""
    digits = []
    for k in order:
        digit, offset = divmod(offset, abs(array.strides[k])) if array.shape[k] > 1 else (0, offset)
        digits.append(digit)
    return digits, offset


def _slab(array: ArrayLayout, order: list[int], first: list[int], last: list[int]) -> dict[int, tuple[int, int]]:
    """Return ranges that hold all between two places: rows of the slowest dimension in which they differ."""
    ranges: dict[int, tuple[int, int]] = {}
    is_same = True
    for k, low, high in zip(order, first, last, strict=True):
        ranges[k] = (max(low, 0), min(high + 1, array.shape[k])) if is_same else (0, array.shape[k])
        is_same = is_same and low == high
    return ranges
