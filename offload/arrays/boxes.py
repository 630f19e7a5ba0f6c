"""The plan of a strided copy: the fewest, longest rows that move it.

A copy may move elements in any order that both sides share. So `collapse` drops axes of one element, reverses axes on
both sides, reorders them, and merges those that continue each other on both sides. The result is a `Box`: rows that are
contiguous on both sides, and the axes over which they repeat. One axis is a native 2-D copy, two a 3-D copy. The order
is the destination's, because scattered writes cost more than scattered reads.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from operator import index
from typing import TYPE_CHECKING, NamedTuple

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Sequence


_BOXES = 1024  # Copies that are remembered: a program makes those of few shapes


class Box(NamedTuple):
    """A strided copy as rows."""

    dst_offset_nbytes: int  # where the first row begins, from element ``(0, …, 0)`` of the array: 0 or negative
    src_offset_nbytes: int
    row_nbytes: int  # contiguous on both sides; 0 if there is nothing to copy
    # ``(count, dst_stride_nbytes, src_stride_nbytes)``, outermost first; every count > 1. A stride is negative only
    # where the other side's is positive.
    dims: tuple[tuple[int, int, int], ...]

    @property
    def nbytes(self) -> int:
        """Return the number of bytes that are copied."""
        return self.row_nbytes * prod([count for count, _, _ in self.dims])


class RectArgs(NamedTuple):
    """Complete arguments of a rectangular copy, in elements, slowest axis first, all of one length."""

    volume: tuple[int, ...]
    dst_offsets: tuple[int, ...]
    src_offsets: tuple[int, ...]
    dst_dimensions: tuple[int, ...]
    src_dimensions: tuple[int, ...]


def collapse(shape: Sequence[int], dst_strides: Sequence[int], src_strides: Sequence[int], itemsize: int) -> Box:
    """Reduce a copy between two arrays of one shape to a box. Strides have any sign, and axes may be empty."""
    return _collapse(tuple(shape), tuple(dst_strides), tuple(src_strides), itemsize)


@lru_cache(_BOXES)
def _collapse(shape: tuple[int, ...], dst_strides: tuple[int, ...], src_strides: tuple[int, ...], itemsize: int) -> Box:
    if not itemsize or 0 in shape:
        return Box(0, 0, 0, ())
    dst_offset = src_offset = 0
    axes = []
    for count, dst, src in zip(shape, dst_strides, src_strides, strict=True):
        if count == 1:
            continue
        if dst <= 0 and src <= 0:
            dst_offset += (count - 1) * dst
            src_offset += (count - 1) * src
            axes.append((count, -dst, -src))
        else:
            axes.append((count, dst, src))
    axes.sort(key=_by_stride, reverse=True)
    dims: list[tuple[int, int, int]] = []
    for count, dst, src in axes:
        if dims and dims[-1][1] == count * dst and dims[-1][2] == count * src:
            dims[-1] = (dims[-1][0] * count, dst, src)
        else:
            dims.append((count, dst, src))
    row = itemsize
    if dims and dims[-1][1] == dims[-1][2] == itemsize:
        row *= dims.pop()[0]
    return Box(dst_offset, src_offset, row, tuple(dims))


def resolve_rect(
    dst_shape: Sequence[int],
    src_shape: Sequence[int],
    volume: Sequence[int] | None = None,
    dst_offsets: Sequence[int] | None = None,
    src_offsets: Sequence[int] | None = None,
    dst_dimensions: Sequence[int] | None = None,
    src_dimensions: Sequence[int] | None = None,
) -> RectArgs:
    """Fill in and check the arguments of ``target_memcpy_rect``; units are elements.

    The number of dimensions is the length of ``volume``, else of the destination's dimensions. Dimensions default to
    the arrays' shapes, offsets to 0, and the volume to the smaller of the two remainders. Entries beyond that number
    are ignored in every argument that was given. A volume with a 0 in it copies nothing.

    Raise `ClauseError` if an argument is too short, negative or not integral; if the sides differ in their number of
    dimensions; if dimensions exceed the array; or if offset and volume exceed the dimensions.
    """
    dst_dims = _numbers("dst_dimensions", dst_dimensions, dst_shape)
    src_dims = _numbers("src_dimensions", src_dimensions, src_shape)
    wanted = None if volume is None else _numbers("volume", volume, ())
    ndim = len(dst_dims if wanted is None else wanted)
    if ndim < 1:
        msg = "a rectangular copy has no dimensions; it needs at least 1; pass volume and dimensions, or reshape(1)"
        raise ClauseError(msg)
    if wanted is None and len(src_dims) != ndim:
        msg = (
            f"the destination has {ndim} dimensions {dst_dims}, the source {len(src_dims)} {src_dims}; "
            "both need the same number; pass volume, dst_dimensions and src_dimensions"
        )
        raise ClauseError(msg)
    dst_dims = _side("dst", dst_dims, dst_shape, ndim, is_given=dst_dimensions is not None)
    src_dims = _side("src", src_dims, src_shape, ndim, is_given=src_dimensions is not None)
    zeros = (0,) * ndim
    dst_offs = _at_least("dst_offsets", _numbers("dst_offsets", dst_offsets, zeros), ndim)
    src_offs = _at_least("src_offsets", _numbers("src_offsets", src_offsets, zeros), ndim)
    if wanted is None:
        sides = zip(dst_dims, dst_offs, src_dims, src_offs, strict=True)
        # An offset beyond its dimension leaves nothing; _check_fits then names it.
        wanted = tuple([max(0, min(dst - dst_off, src - src_off)) for dst, dst_off, src, src_off in sides])
    _check_fits("dst", wanted, dst_offs, dst_dims)
    _check_fits("src", wanted, src_offs, src_dims)
    return RectArgs(wanted, dst_offs, src_offs, dst_dims, src_dims)


def _by_stride(axis: tuple[int, int, int]) -> tuple[int, int]:
    return abs(axis[1]), abs(axis[2])


def _numbers(name: str, values: Sequence[int] | None, default: Sequence[int]) -> tuple[int, ...]:
    """Return ``values`` as Python ints >= 0."""
    if values is None:
        return tuple(default)
    try:
        numbers = tuple(map(index, values))
    except TypeError:
        msg = f"{name} is {values!r}; it must be a sequence of integers, one per dimension, counted in elements"
        raise ClauseError(msg) from None
    if numbers and min(numbers) < 0:
        msg = f"{name} is {numbers}; every entry must be 0 or more; count elements from the first one"
        raise ClauseError(msg)
    return numbers


def _at_least(name: str, numbers: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Cut ``numbers`` to ``ndim`` entries."""
    if len(numbers) < ndim:
        msg = (
            f"{name} is {numbers}, which has {len(numbers)} entries, but the copy has {ndim} dimensions; give one "
            "entry for each dimension"
        )
        raise ClauseError(msg)
    return numbers[:ndim]


def _side(side: str, dims: tuple[int, ...], shape: Sequence[int], ndim: int, *, is_given: bool) -> tuple[int, ...]:
    """Check the dimensions of one side."""
    if not is_given:
        if len(dims) != ndim:
            msg = (
                f"volume has {ndim} entries, but the {side} array has {len(dims)} dimensions {dims}; the numbers must "
                f"be equal; pass {side}_dimensions to give the array another shape"
            )
            raise ClauseError(msg)
        return dims
    dims = _at_least(f"{side}_dimensions", dims, ndim)
    if prod(dims) > prod(shape):
        msg = (
            f"{side}_dimensions {dims} hold {prod(dims)} elements; the array has {prod(shape)}; give dimensions that "
            "fit into it, counted in elements, not in bytes"
        )
        raise ClauseError(msg)
    return dims


def _check_fits(side: str, volume: tuple[int, ...], offsets: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """Refuse a box that reaches beyond the dimensions of its side."""
    for axis, (count, offset, size) in enumerate(zip(volume, offsets, dims, strict=True)):
        if offset + count > size:
            msg = (
                f"{side}_offsets[{axis}] + volume[{axis}] is {offset} + {count}; "
                f"dimension {axis} of {side} has {size} elements; copy less or begin earlier"
            )
            raise ClauseError(msg)
