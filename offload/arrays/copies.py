"""How a strided copy can be cut: the work of kernels, calls of a driver, chunks.

Theory of operation
-------------------
A `Box` says which rows of bytes go where. Three things move it, and each is a function from the geometry to numbers:

* `units` gives a *kernel* its work. Counting units, each thread finds its place by dividing the number of
  its unit by the count of each axis. 32-bit numbers and division by multiplication (Granlund and Montgomery,
  PLDI 1994) make that cheaper than the memory traffic, whatever the strides. Rows that are short become single elements
  as wide as the alignment allows (`Kernel.FLAT`); longer ones are cut into segments, each for a group of lanes, which
  align themselves on the destination (`Kernel.ROWS`), so that odd offsets cost next to nothing.
* `calls` gives the *driver* as few 1-D, 2-D and 3-D copies as its rules allow.
* `chunks` cuts a box into boxes of bounded size or extent, for buffers that are smaller than it.

Each device chooses among them by its own measurements (`offload.devices.cuda.methods`).

Rejected: kernels specialised for each number of axes (no faster: the loop over axes is uniform), and 64-bit indices
(a 64-bit division takes longer than the copy of its element).
"""

from __future__ import annotations

import itertools
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from offload.arrays.boxes import Box, collapse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WIDTHS = (16, 8, 4, 2, 1)
"""Bytes that one load or store of a thread moves."""

TILE_LANES = 256
"""Threads of a tile."""


class Tile(NamedTuple):
    """What the threads of a block turn round at once: ``along_src`` x ``along_dst`` squares.

    A square has ``word // width`` elements a side, so that whatever its elements, a thread moves words. The sides are
    along the axis that is contiguous in the source, and the one in the destination.
    """

    word: int
    along_src: int
    along_dst: int


TILES: dict[int, tuple[Tile, ...]] = {
    16: (Tile(16, 64, 32),),
    8: (Tile(8, 64, 32),),
    4: (Tile(4, 64, 32),),
    2: (Tile(4, 32, 32), Tile(2, 64, 32)),
    1: (Tile(4, 32, 32), Tile(1, 64, 32)),
}
"""By the width of an element, the fastest tile first; the last one suits every alignment."""

MAX_UNITS = 1 << 31
"""Units of one launch: what division by multiplication allows."""

MAX_AXES = 12
"""Axes of one launch."""

ALIGNMENT = WIDTHS[0]
"""All that a plan has to know of an address is where it lies between multiples of this."""

_LEAST_EXTENT = 8
"""Elements of a side from which tiles are worth it."""

_MAX_UNITS_NBYTES = MAX_UNITS * _LEAST_EXTENT**2 // TILE_LANES
"""Bytes that never take more than `MAX_UNITS` threads: the smallest tile of single bytes takes the most a byte."""

_MAX_ROW_NBYTES = (1 << 32) - 1
"""Longest row of `Kernel.ROWS`, which counts its bytes with 32 bits."""

_MAX_PITCH = (1 << 31) - 1  # cudaDevAttrMaxPitch of every device since Fermi


class Kernel(Enum):
    """What a unit of a kernel is."""

    FLAT = "flat"
    """An element of `Units.width` bytes, to which every address and stride is aligned."""
    ROWS = "rows"
    """A segment of a row, of `Units.segment_nbytes`, for `Units.lanes` threads; any alignment."""
    TILES = "tiles"
    """A `Tile` of elements of `Units.width` bytes, turned round in shared memory, for `Units.lanes` threads."""


class Axis(NamedTuple):
    """An axis of a kernel's work: ``q = (mulhi(n, multiplier) + n) >> shift`` is ``n // count`` for ``n < 2**31``."""

    count: int  # type: ignore[assignment]  # the tuple's method is not used
    multiplier: int
    shift: int
    dst_stride_nbytes: int
    src_stride_nbytes: int


class Turned(NamedTuple):
    """The two axes of a transposition: first the one that is contiguous in the destination, then that in the source.

    Attributes
    ----------
    tile : Tile
        What is turned round at once.
    extents : (int, int)
        Elements.
    axes : (int, int)
        Their places among the axes of the work.
    """

    tile: Tile
    extents: tuple[int, int]
    axes: tuple[int, int]


class Units(NamedTuple):
    """The work of a kernel.

    Attributes
    ----------
    kernel : Kernel
        What a unit is.
    count : int
        Number of units, 1 to `MAX_UNITS`.
    width : int
        Bytes of an element; 0 for `Kernel.ROWS`.
    lanes, segment_nbytes, row_nbytes : int
        Threads of a unit; bytes of a unit and of a row, 0 unless for `Kernel.ROWS`.
    axes : tuple of Axis
        Innermost first. For `Kernel.ROWS` the first counts the segments of a row and moves nothing.
    turned : Turned or None
        For `Kernel.TILES`, which two axes count tiles.
    """

    kernel: Kernel
    count: int  # type: ignore[assignment]  # same
    width: int
    lanes: int
    segment_nbytes: int
    row_nbytes: int
    axes: tuple[Axis, ...]
    turned: Turned | None


class Call(NamedTuple):
    """A copy of the driver: ``planes`` of ``rows`` of ``row_nbytes``, from the box's first row on.

    Offsets, pitches (of rows) and heights (of planes, in rows) are of destination and source.
    """

    dst_offset_nbytes: int
    src_offset_nbytes: int
    row_nbytes: int
    rows: int
    planes: int
    dst_pitch_nbytes: int
    src_pitch_nbytes: int
    dst_height: int
    src_height: int


def divisor(count: int) -> tuple[int, int]:
    """Return ``(multiplier, shift)`` that divide by ``count``, 1 to ``2**31``; see `Axis`."""
    shift = (count - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - count)) // count + 1, shift


def width_of(*numbers: int) -> int:
    """Return the widest element, 16 bytes at most, that divides all of some addresses, strides and lengths."""
    bits = 0
    for number in numbers:
        bits |= number
    return min(16, bits & -bits) if bits else 16


def units(box: Box, dst: int, src: int) -> Units | None:
    """Return a kernel's work for a box with something in it, or None where it needs more than one launch.

    Parameters
    ----------
    box : Box
        The copy.
    dst, src : int
        Addresses of element ``(0, …, 0)`` on both sides, as `collapse` counts them; only what `ALIGNMENT`
        leaves of them matters.
    """
    row = box.row_nbytes
    if len(box.dims) >= MAX_AXES or row > _MAX_ROW_NBYTES:
        return None
    dst, src = dst + box.dst_offset_nbytes, src + box.src_offset_nbytes
    width = width_of(row, dst, src, *itertools.chain.from_iterable([dim[1:] for dim in box.dims]))
    lanes, segment = _lanes(row, width), 0
    sides = _sides(box, width)
    turned = None
    axes = [_axis(*dim) for dim in reversed(box.dims)]
    if sides is not None:
        kernel, lanes, row = Kernel.TILES, TILE_LANES, 0
        turned = _turned(box, width, sides, dst, src)
        for axis, side in zip(turned.axes, tile_sides(turned.tile, width), strict=True):
            count, to, at = box.dims[-1 - axis]
            axes[axis] = _axis(-(-count // side), side * to, side * at)
    elif lanes == 1:
        kernel, row = Kernel.FLAT, 0
        axes = [_axis(box.row_nbytes // width, width, width), *axes]
        axes = [axis for axis in axes if axis.count > 1]
    else:
        kernel, width, segment = Kernel.ROWS, 0, lanes * 64
        axes = [_axis(-(-row // segment), 0, 0), *axes]
    n_units = prod([axis.count for axis in axes])
    if n_units * lanes > MAX_UNITS:
        return None
    return Units(kernel, n_units, width, lanes, segment, row, tuple(axes), turned)


def tile_sides(tile: Tile, width: int) -> tuple[int, int]:
    """Return the elements of a tile along the axis that is contiguous in the destination, and the one in the source."""
    return tile.along_dst * (tile.word // width), tile.along_src * (tile.word // width)


def launches(box: Box, dst: int, src: int) -> Iterator[tuple[Box, Units]]:
    """Yield boxes, which together are ``box``, each with its work, where `units` says that one launch cannot do it."""
    n_outer = max(0, len(box.dims) - MAX_AXES + 1)
    for dst_offset, src_offset in _offsets(box, box.dims[:n_outer]):
        for part in chunks(Box(dst_offset, src_offset, box.row_nbytes, box.dims[n_outer:]), _MAX_UNITS_NBYTES):
            work = units(part, dst, src)
            assert work is not None, part
            yield part, work


def calls(box: Box) -> Iterator[Call]:
    """Yield the driver's copies of a box, as few as its rules allow.

    A 2-D copy needs rows that do not overlap, in ascending order on both sides; a 3-D copy also planes that are
    a whole number of rows apart. Any two axes will do.
    """
    row, inner = box.row_nbytes, _native_axes(box)
    planes, dst_plane, src_plane = box.dims[inner[0]] if len(inner) > 1 else (1, 0, 0)
    count, dst_pitch, src_pitch = box.dims[inner[-1]] if inner else (1, row, row)
    dst_height = dst_plane // dst_pitch if planes > 1 else count
    src_height = src_plane // src_pitch if planes > 1 else count
    for dst, src in _offsets(box, tuple([dim for i, dim in enumerate(box.dims) if i not in inner])):
        yield Call(dst, src, row, count, planes, dst_pitch, src_pitch, dst_height, src_height)


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
    """Yield boxes of bounded size, which together are ``box``, in the order of its axes.

    An axis, or the row, is cut where what lies inside of it fits; the parts are of nearly equal size. A row is cut
    at multiples of 64 bytes.

    Parameters
    ----------
    box : Box
        The copy.
    limit_nbytes : int
        Most bytes of a part, 64 or more.
    side : int
        0 to bound the bytes that are copied, 1 or 2 to bound the `hull` of the destination or the source.
    """
    inner, level = box.row_nbytes, len(box.dims)
    while level and (grown := _grown(inner, box.dims[level - 1], side)) <= limit_nbytes:
        level -= 1
        inner = grown
    if inner > limit_nbytes:  # the row alone is too long
        n_parts = -(-inner // max(64, limit_nbytes - limit_nbytes % 64))
        step = -(-inner // n_parts)
        step += -step % 64
        for dst, src in _offsets(box, box.dims):
            for at in range(0, inner, step):
                yield Box(dst + at, src + at, min(step, inner - at), ())
        return
    if not level:
        yield box
        return
    cut, rest = box.dims[level - 1], box.dims[level:]
    most = 1 + (limit_nbytes - inner) // (abs(cut[side]) if side else inner)
    step = -(-cut[0] // -(-cut[0] // most))
    for dst, src in _offsets(box, box.dims[: level - 1]):
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
    """Return the copy between packed bytes, instead of the destination (1) or the source (2), and the other side.

    The bytes of the box lie one after the other there, in the order of its axes. Axes are merged where that allows it.
    """
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
    """Tell whether the bytes from ``first`` to before ``end`` lie in one region of memory.

    Parameters
    ----------
    first, end : int
        Addresses, ``first < end``.
    region_of : callable
        Returns address and bytes of the region that an address lies in, None if it lies in none. If what it returns is
        without the address, the extent is unknown, and the region of the last byte is taken for the same one.
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


_EIGHT_LANES_NBYTES = {16: 256, 8: 512, 4: 512, 2: 128, 1: 48}
"""Rows from which 8 threads a row are faster than elements of this width."""


def _lanes(row_nbytes: int, width: int) -> int:
    """Return how many threads share a row: 1 where elements of ``width`` do as well."""
    if row_nbytes >= (1024 if width == 16 else 512):
        return 32
    return 8 if row_nbytes >= _EIGHT_LANES_NBYTES[width] else 1


def _sides(box: Box, width: int) -> tuple[int, int] | None:
    """Return the axes that are contiguous in the destination and in the source, if single elements are turned round."""
    if box.row_nbytes != width:
        return None
    found = []
    for side in (1, 2):
        along = [i for i, dim in enumerate(box.dims) if abs(dim[side]) == width and dim[0] >= _LEAST_EXTENT]
        if not along:
            return None
        found.append(along[0])
    return (found[0], found[1]) if found[0] != found[1] else None


def _turned(box: Box, width: int, sides: tuple[int, int], dst: int, src: int) -> Turned:
    """Return how a transposition is cut, from the axes of `_sides` and the addresses of the first element."""
    to, at = (box.dims[i] for i in sides)
    extents = to[0], at[0]
    strides = [stride for i, dim in enumerate(box.dims) if i not in sides for stride in dim[1:]]
    alignment = width_of(dst, src, to[2], at[1], *strides)
    is_forward = to[1] == at[2] == width
    for tile in TILES[width]:
        square = tile.word // width
        if square == 1 or (is_forward and alignment >= tile.word and not any(n % square for n in extents)):
            break
    last = len(box.dims) - 1
    return Turned(tile, extents, (last - sides[0], last - sides[1]))


def _axis(count: int, dst: int, src: int) -> Axis:
    return Axis(count, *divisor(count), dst, src)


def _is_plane(outer: tuple[int, int, int], inner: tuple[int, int, int]) -> bool:
    return all(
        stride > 0 and stride % pitch == 0 and stride >= pitch * inner[0]
        for stride, pitch in zip(outer[1:], inner[1:], strict=True)
    )


def _offsets(box: Box, dims: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[int, int]]:
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
