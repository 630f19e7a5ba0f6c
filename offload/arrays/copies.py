"""How a strided copy can be cut: calls of a driver, chunks; the work of kernels is in `offload.arrays.units`.

`calls` gives the driver as few 1-D, 2-D and 3-D copies as its rules allow. `chunks` cuts a box into boxes of bounded
size or extent, for buffers that are smaller. Each device chooses by its own measurements
(`offload.devices.cuda.methods`).
"""

from __future__ import annotations

import itertools
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from offload.arrays.boxes import Box, collapse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_POWER = 1 << 12

_MAX_PITCH = (1 << 31) - 1  # cudaDevAttrMaxPitch of every device since Fermi


class DriverCopy(NamedTuple):
    """A copy of the driver: ``planes`` of ``rows`` of ``row_nbytes``, from the box's first row on."""

    # Offsets, pitches (of rows) and heights (of planes, in rows) are of destination and source.

    dst_offset_nbytes: int
    src_offset_nbytes: int
    row_nbytes: int
    rows: int
    planes: int
    dst_pitch_nbytes: int
    src_pitch_nbytes: int
    dst_height: int
    src_height: int


def width_of(*numbers: int) -> int:
    """Return the widest element, 16 bytes at most, that divides all of some addresses, strides and lengths."""
    return min(16, power_of(*numbers))


def power_of(*numbers: int) -> int:
    """Return the largest power of two that divides all of some numbers, `MOST_POWER` at most."""
    bits = MOST_POWER
    for number in numbers:
        bits |= number
    return bits & -bits


def calls(box: Box) -> Iterator[DriverCopy]:
    """Yield the driver's copies of a box, as few as its rules allow."""
    # A 2-D copy needs rows that do not overlap, in ascending order on both sides; a 3-D copy also planes that are a
    # whole number of rows apart. Any two axes will do.
    row, inner = box.row_nbytes, _native_axes(box)
    planes, dst_plane, src_plane = box.dims[inner[0]] if len(inner) > 1 else (1, 0, 0)
    count, dst_pitch, src_pitch = box.dims[inner[-1]] if inner else (1, row, row)
    dst_height = dst_plane // dst_pitch if planes > 1 else count
    src_height = src_plane // src_pitch if planes > 1 else count
    for dst, src in offsets(box, tuple([dim for i, dim in enumerate(box.dims) if i not in inner])):
        yield DriverCopy(dst, src, row, count, planes, dst_pitch, src_pitch, dst_height, src_height)


def n_calls(box: Box) -> int:
    """Return the number of `calls`."""
    inner = _native_axes(box)
    return prod([dim[0] for i, dim in enumerate(box.dims) if i not in inner])


def _native_axes(box: Box) -> tuple[int, ...]:
    """Return the axes that go into one copy of the driver: of planes and rows, of rows, or none."""
    dims, row = box.dims, box.row_nbytes
    rows = [i for i, (_, dst, src) in enumerate(dims) if row <= dst <= _MAX_PITCH and row <= src <= _MAX_PITCH]
    if not rows:
        return ()
    best: tuple[int, ...] = (max(rows, key=lambda i: dims[i][0]),)
    most = dims[best[0]][0]
    for j in rows:
        for i in range(len(dims)):
            if i != j and dims[i][0] * dims[j][0] > most and _is_plane(dims[i], dims[j]):
                best, most = (i, j), dims[i][0] * dims[j][0]
    return best


def chunks(box: Box, limit_nbytes: int, side: int = 0) -> Iterator[Box]:
    """Yield boxes of bounded size, which together are ``box``, in the order of its axes."""
    # An axis, or the row, is cut where one step of it fits; the parts are of nearly equal size. A row is cut at
    # multiples of 64 bytes. A part has at most ``limit_nbytes`` >= 64; ``side`` is 0 to bound the bytes copied, 1 or 2
    # to bound the `hull` of the destination or the source.
    inner, level = box.row_nbytes, len(box.dims)
    while level and (grown := _grown(inner, box.dims[level - 1], side)) <= limit_nbytes:
        level -= 1
        inner = grown
    if inner > limit_nbytes:  # the row alone is too long
        n_parts = -(-inner // max(64, limit_nbytes - limit_nbytes % 64))
        step = -(-inner // n_parts)
        step += -step % 64
        for dst, src in offsets(box, box.dims):
            for at in range(0, inner, step):
                yield Box(dst + at, src + at, min(step, inner - at), ())
        return
    if not level:
        yield box
        return
    cut, rest = box.dims[level - 1], box.dims[level:]
    most = 1 + (limit_nbytes - inner) // (abs(cut[side]) if side else inner)
    step = -(-cut[0] // -(-cut[0] // most))
    for dst, src in offsets(box, box.dims[: level - 1]):
        for at in range(0, cut[0], step):
            count = min(step, cut[0] - at)
            dims = ((count, *cut[1:]), *rest) if count > 1 else rest
            yield Box(dst + at * cut[1], src + at * cut[2], box.row_nbytes, dims)


def _grown(nbytes: int, dim: tuple[int, int, int], side: int) -> int:
    """Return the size, in the sense of `chunks`, of as many boxes of ``nbytes`` as an axis has."""
    return nbytes + (dim[0] - 1) * (abs(dim[side]) if side else nbytes)


def ordered_by(box: Box, side: int) -> Box:
    """Return ``box`` with its axes in the order of the destination's (1) or the source's (2) strides."""
    return box._replace(dims=tuple(sorted(box.dims, key=lambda dim: abs(dim[side]), reverse=True)))


def packed(box: Box, side: int) -> Box:
    """Return the copy between packed bytes, instead of the destination (1) or the source (2), and the other side."""
    # The bytes of the box lie one after the other there, in the order of its axes. Axes are merged where that allows
    # it.
    strides, step = [], box.row_nbytes
    for count, _, _ in reversed(box.dims):
        strides.append(step)
        step *= count
    strides.reverse()
    counts, others = [dim[0] for dim in box.dims], [dim[3 - side] for dim in box.dims]
    if side == 1:
        merged = collapse(counts, strides, others, box.row_nbytes)
        return merged._replace(src_offset_nbytes=merged.src_offset_nbytes + box.src_offset_nbytes)
    merged = collapse(counts, others, strides, box.row_nbytes)
    return merged._replace(dst_offset_nbytes=merged.dst_offset_nbytes + box.dst_offset_nbytes)


def is_packed(box: Box, side: int) -> bool:
    """Tell whether the bytes of the destination (1) or the source (2) lie one after the other, in the axes' order."""
    step = box.row_nbytes
    for dim in reversed(box.dims):
        if dim[side] != step:
            return False
        step *= dim[0]
    return True


def offset(box: Box, side: int) -> int:
    """Return where the first row of the destination (1) or the source (2) begins."""
    return box.dst_offset_nbytes if side == 1 else box.src_offset_nbytes


def hull(box: Box, side: int) -> tuple[int, int]:
    """Return offset and length, in bytes, of the destination (1) or the source (2) with all that lies between."""
    low = offset(box, side)
    high = low + box.row_nbytes
    for dim in box.dims:
        reach = (dim[0] - 1) * dim[side]
        low, high = min(low, low + reach), max(high, high + reach)
    return low, high - low


def within_hull(box: Box, side: int) -> Box:
    """Return the box with the offset of one side counted from the beginning of its `hull`."""
    inside = offset(box, side) - hull(box, side)[0]
    return box._replace(dst_offset_nbytes=inside) if side == 1 else box._replace(src_offset_nbytes=inside)


def is_within_region(first: int, end: int, region_of: Callable[[int], tuple[int, int] | None]) -> bool:
    """Tell whether the bytes from ``first`` to before ``end`` > ``first`` lie in one region of memory.

    ``region_of`` returns address and bytes of the region of an address, None if it is in none. If the returned region
    lacks the address, its extent is unknown, and the region of the last byte counts as the same one.
    """
    region = region_of(first)
    if region is None:
        return False
    begin, nbytes = region
    if begin <= first < begin + nbytes:
        return end <= begin + nbytes
    return region_of(end - 1) is not None


def run_of(box: Box, side: int) -> tuple[int, int]:
    """Return the bytes that lie together on one side, and the bytes from one such run to the next one."""
    run = box.row_nbytes
    for dim in sorted(box.dims, key=lambda dim: abs(dim[side])):
        if abs(dim[side]) > run:
            return run, abs(dim[side])
        run = max(run, (dim[0] - 1) * abs(dim[side]) + run)
    return run, run


def _is_plane(outer: tuple[int, int, int], inner: tuple[int, int, int]) -> bool:
    return all(
        stride > 0 and stride % pitch == 0 and stride >= pitch * inner[0]
        for stride, pitch in zip(outer[1:], inner[1:], strict=True)
    )


def offsets(box: Box, dims: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[int, int]]:
    """Yield the offsets of both sides for every index of some axes, in order."""
    if not dims:
        yield box.dst_offset_nbytes, box.src_offset_nbytes
        return
    for index in itertools.product(*[range(dim[0]) for dim in dims]):
        dst, src = box.dst_offset_nbytes, box.src_offset_nbytes
        for i, dim in zip(index, dims, strict=True):
            dst += i * dim[1]
            src += i * dim[2]
        yield dst, src
