"""The work of the kernels that make strided copies.

`units` gives a kernel its work for a `Box`: numbered units, from whose number a thread finds its place by division with
32-bit numbers. Short rows become single elements (`UnitKind.FLAT`), longer ones segments (`UnitKind.ROWS`), and
transpositions tiles (`UnitKind.TILES`). A short piece of the destination is followed by its neighbours in the source
(`near`), because memory is fetched 64 bytes at a time. See docs/design/theory.md, "Kernels of strided copies".
"""

from __future__ import annotations

import itertools
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from offload.arrays.boxes import Box
from offload.arrays.copies import chunks, offsets, power_of, width_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    Dim = tuple[int, int, int]

WIDTHS = (16, 8, 4, 2, 1)  # Bytes that one load or store of a thread moves

SECTOR_NBYTES = 32  # What memory is read and written in

TILE_LANES = 256  # Threads of a tile


class TurnedTile(NamedTuple):
    """The part that the threads of a block transpose at once: ``along_src`` x ``along_dst`` squares."""

    # A square has ``word // width`` elements a side, so that whatever its elements, a thread moves words. The sides are
    # along the axis that is contiguous in the source, and the one in the destination. ``rates`` are about what arrays
    # that it fits reach of a contiguous copy, where each row begins at a sector of memory, and where not.

    word: int
    along_src: int
    along_dst: int
    rates: tuple[float, float]


# By the width of an element (H100, `benchmarks/run.py gpu --section parray` has the figures of what is chosen).
TILES: dict[int, tuple[TurnedTile, ...]] = {
    16: (
        TurnedTile(16, 32, 32, (0.97, 0.98)),
        TurnedTile(16, 16, 16, (0.97, 0.97)),
        TurnedTile(16, 256, 8, (0.95, 0.83)),
        TurnedTile(16, 8, 256, (0.80, 0.80)),
    ),
    8: (
        TurnedTile(8, 32, 64, (0.96, 0.94)),
        TurnedTile(8, 32, 32, (0.96, 0.87)),
        TurnedTile(8, 16, 16, (0.77, 0.77)),
        TurnedTile(8, 256, 8, (0.95, 0.57)),
        TurnedTile(8, 8, 256, (0.70, 0.75)),
    ),
    4: (
        TurnedTile(4, 64, 64, (0.95, 0.83)),
        TurnedTile(4, 16, 128, (0.85, 0.92)),
        TurnedTile(4, 32, 32, (0.94, 0.77)),
        TurnedTile(4, 16, 16, (0.48, 0.50)),
        TurnedTile(4, 256, 8, (0.92, 0.46)),
        TurnedTile(4, 8, 256, (0.70, 0.70)),
    ),
    2: (
        TurnedTile(4, 64, 16, (0.94, 0.60)),
        TurnedTile(4, 16, 64, (0.86, 0.81)),
        TurnedTile(4, 16, 16, (0.72, 0.72)),
        TurnedTile(4, 256, 4, (0.30, 0.30)),
        TurnedTile(4, 4, 256, (0.65, 0.65)),
        TurnedTile(2, 64, 64, (0.91, 0.71)),
        TurnedTile(2, 32, 32, (0.71, 0.72)),
        TurnedTile(2, 256, 8, (0.37, 0.37)),
        TurnedTile(2, 8, 256, (0.73, 0.74)),
    ),
    1: (
        TurnedTile(4, 64, 16, (0.95, 0.61)),
        TurnedTile(4, 16, 64, (0.86, 0.83)),
        TurnedTile(4, 16, 16, (0.90, 0.63)),
        TurnedTile(4, 128, 4, (0.70, 0.70)),
        TurnedTile(4, 4, 128, (0.65, 0.65)),
        TurnedTile(1, 64, 64, (0.67, 0.70)),
        TurnedTile(1, 32, 32, (0.43, 0.46)),
        TurnedTile(1, 256, 8, (0.32, 0.33)),
        TurnedTile(1, 8, 256, (0.36, 0.40)),
    ),
}

_IDLE = 1 / 3  # What part of a tile is used counts with this power: threads without an element cost less than others

_NARROW = 24
# What single elements reach, by their width, where rows of the destination have no more than so many.
_NARROW_RATES = {16: 0.91, 8: 0.91, 4: 0.85, 2: 0.47, 1: 0.24}

MAX_UNITS = 1 << 31  # Units of one launch: what division by multiplication allows

MAX_AXES = 12  # Axes of one launch

ALIGNMENT = SECTOR_NBYTES  # All that a plan has to know of an address is where it lies between multiples of this

_LEAST_EXTENT = 8  # Elements of a side from which tiles are worth it

# Bytes that never take more than `MAX_UNITS` threads: the smallest tile of single bytes takes the most a byte.
_MAX_UNITS_NBYTES = MAX_UNITS * _LEAST_EXTENT**2 // TILE_LANES

_MAX_ROW_NBYTES = (1 << 32) - 1  # Longest row of `UnitKind.ROWS`, which counts its bytes with 32 bits


# About what is written in one piece before the neighbours in the source follow: 128 bytes to 1 KB are as fast.
_NEAR_NBYTES = 256

# Rows of such a piece: with fewer, it begins and ends within what is fetched too often.
_LEAST_NEAR, _MOST_NEAR = 4, 64

# Rows that are this far from each other, in the order of the copy, no longer find what was fetched with the other.
_FAR_NBYTES = 32 << 10

_NEIGHBOUR_NBYTES = 128  # Rows whose beginnings are no farther apart, or twice their length, share what is fetched


class UnitKind(Enum):
    """The kind of a kernel's unit."""

    FLAT = "flat"  # An element of `Units.width` bytes, to which every address and stride is aligned
    ROWS = "rows"  # A segment of a row, of `Units.segment_nbytes`, for `Units.lanes` threads; any alignment
    # A `TurnedTile` of elements of `Units.width` bytes, turned round in shared memory, for `Units.lanes` threads.
    TILES = "tiles"


class Axis(NamedTuple):
    """An axis of a kernel's work: ``q = (mulhi(n, multiplier) + n) >> shift`` is ``n // count`` for ``n < 2**31``."""

    count: int  # type: ignore[assignment]  # the tuple's method is not used
    multiplier: int
    shift: int
    dst_stride_nbytes: int
    src_stride_nbytes: int


class Turned(NamedTuple):
    """The two axes of a transposition: first the one that is contiguous in the destination, then that in the source."""

    tile: TurnedTile  # the block that is transposed at once
    extents: tuple[int, int]  # in elements
    axes: tuple[int, int]  # their places among the axes of the work


class Units(NamedTuple):
    """The work of a kernel."""

    kernel: UnitKind  # the kind of unit
    # number of units, 1 to `MAX_UNITS`
    count: int  # type: ignore[assignment]  # same
    width: int  # bytes of an element; 0 for `UnitKind.ROWS`
    lanes: int  # threads of a unit; 0 unless for `UnitKind.ROWS`
    segment_nbytes: int  # bytes of a unit; 0 unless for `UnitKind.ROWS`
    row_nbytes: int  # 0 unless for `UnitKind.ROWS`
    # innermost first; for `UnitKind.ROWS` the first counts the segments of a row and moves nothing
    axes: tuple[Axis, ...]
    turned: Turned | None  # for `UnitKind.TILES`: which two axes count tiles


def divisor(count: int) -> tuple[int, int]:
    """Return ``(multiplier, shift)`` that divide by ``count``, 1 to ``2**31``; see `Axis`."""
    shift = (count - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - count)) // count + 1, shift


def units(box: Box, dst: int, src: int, *, keeps_order: bool = False) -> Units | None:
    """Return a kernel's work for a box with something in it, or None if it needs more than one launch.

    ``dst`` and ``src`` are addresses of element ``(0, …, 0)``, as `collapse` counts them; only their remainders by
    `ALIGNMENT` matter. ``keeps_order`` copies short rows in the order of the box, even if others are near in the
    source: for a link.
    """
    row = box.row_nbytes
    if len(box.dims) >= MAX_AXES or row > _MAX_ROW_NBYTES:
        return None
    dst, src = dst + box.dst_offset_nbytes, src + box.src_offset_nbytes
    width = width_of(row, dst, src, *itertools.chain.from_iterable([dim[1:] for dim in box.dims]))
    lanes, segment = _lanes(row, width), 0
    axes = [_axis(*dim) for dim in reversed(box.dims)]
    turned = _turned(box, width, dst, src)
    if turned is not None:
        kernel, lanes, row = UnitKind.TILES, TILE_LANES, 0
        for axis, side in zip(turned.axes, tile_sides(turned.tile, width), strict=True):
            count, to, at = box.dims[-1 - axis]
            axes[axis] = _axis(-(-count // side), side * to, side * at)
        first, second = (axes[axis] for axis in turned.axes)
        axes = [first, second, *[axis for i, axis in enumerate(axes) if i not in turned.axes]]
        turned = turned._replace(axes=(0, 1))  # whatever the order of the box: writes fill lines
    elif lanes == 1:
        dims = box.dims[::-1] if keeps_order else near(box)
        if dims is None:
            return None
        kernel, row = UnitKind.FLAT, 0
        axes = [_axis(*dim) for dim in ((box.row_nbytes // width, width, width), *dims) if dim[0] > 1]
    else:
        kernel, width, segment = UnitKind.ROWS, 0, lanes * 64
        axes = [_axis(-(-row // segment), 0, 0), *axes]
    n_units = prod([axis.count for axis in axes])
    if n_units * lanes > MAX_UNITS:
        return None
    return Units(kernel, n_units, width, lanes, segment, row, tuple(axes), turned)


def near(box: Box) -> tuple[Dim, ...] | None:
    """Return the axes of short rows, innermost first, so that neighbours in the source are near; see above."""
    # The result is None if a piece would not end where its axis does: `even` cuts such a box.
    dims = box.dims[::-1]
    found = _piece(box)
    if found is None:
        return dims
    at, k, wanted = found
    count, to, from_ = dims[at]
    step = count if count <= wanted else _divisor_near(count, wanted)
    if not step:
        return None
    inner = (*dims[:at], (step, to, from_), dims[k], (count // step, step * to, step * from_))
    return *inner, *[dim for i, dim in enumerate(dims) if i > at and i != k]


def even(box: Box) -> Iterator[Box]:
    """Yield boxes that are together a box, each of which `near` has an order for."""
    found = _piece(box)
    if found is None or near(box) is not None:
        yield box
        return
    i = len(box.dims) - 1 - found[0]
    count, to, at = box.dims[i]
    whole = count - count % found[2]
    for begin, length in ((0, whole), (whole, count - whole)):
        dims = ((length, to, at),) if length > 1 else ()
        dims = *box.dims[:i], *dims, *box.dims[i + 1 :]
        dst, src = box.dst_offset_nbytes + begin * to, box.src_offset_nbytes + begin * at
        yield from even(Box(dst, src, box.row_nbytes, dims))


def _piece(box: Box) -> tuple[int, int, int] | None:
    """Return in which axis a piece ends, which has the neighbours in the source, and its steps; axes innermost first.

    None where these neighbours are near as it is, or share nothing.
    """
    dims, row = box.dims[::-1], box.row_nbytes
    if not 2 <= len(dims) <= MAX_AXES - 2:  # two axes more are needed
        return None
    k = min(range(len(dims)), key=lambda i: abs(dims[i][2]))
    reach = [row]  # what is written before the next of an axis
    for count, _, _ in dims[:k]:
        reach.append(reach[-1] * count)
    if not k or reach[k] < _FAR_NBYTES or not 0 < abs(dims[k][2]) <= max(_NEIGHBOUR_NBYTES, 2 * row):
        return None
    at = max(i for i in range(k) if not i or reach[i] < _NEAR_NBYTES)
    return at, k, max(_LEAST_NEAR, min(_MOST_NEAR, _NEAR_NBYTES // reach[at]))


def _divisor_near(count: int, wanted: int) -> int:
    """Return a divisor of ``count`` from half of ``wanted`` to twice that, and from `_LEAST_NEAR`; 0: there is none."""
    divisors = [step for step in range(max(_LEAST_NEAR, wanted // 2), 2 * wanted + 1) if not count % step]
    return min(divisors, key=lambda step: abs(step - wanted), default=0)


def tile_sides(tile: TurnedTile, width: int) -> tuple[int, int]:
    """Return the elements of a tile along the axis that is contiguous in the destination, and the one in the source."""
    return tile.along_dst * (tile.word // width), tile.along_src * (tile.word // width)


def launches(box: Box, dst: int, src: int, *, keeps_order: bool = False) -> Iterator[tuple[Box, Units]]:
    """Yield boxes, which together are ``box``, each with its work, where `units` says that one launch cannot do it."""
    n_outer = max(0, len(box.dims) - MAX_AXES + 1)
    for dst_offset, src_offset in offsets(box, box.dims[:n_outer]):
        for part in chunks(Box(dst_offset, src_offset, box.row_nbytes, box.dims[n_outer:]), _MAX_UNITS_NBYTES):
            work = units(part, dst, src, keeps_order=keeps_order)
            for piece in (part,) if work is not None else even(part):
                work = units(piece, dst, src, keeps_order=keeps_order)
                assert work is not None, piece
                yield piece, work


# Rows from which 8 threads a row are faster than elements of this width.
_EIGHT_LANES_NBYTES = {16: 256, 8: 512, 4: 512, 2: 128, 1: 48}


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


def _turned(box: Box, width: int, dst: int, src: int) -> Turned | None:
    """Return how a transposition is cut, from the addresses of its beginnings; None if single elements do as well."""
    sides = _sides(box, width)
    if sides is None:
        return None
    to, at = (box.dims[i] for i in sides)
    extents = to[0], at[0]
    strides = [stride for i, dim in enumerate(box.dims) if i not in sides for stride in dim[1:]]
    alignment = power_of(dst, src, to[2], at[1], *strides)
    is_forward = to[1] == at[2] == width
    is_even = alignment >= SECTOR_NBYTES

    def rate(tile: TurnedTile) -> float:
        along_dst, along_src = tile_sides(tile, width)
        padded = -(-extents[0] // along_dst) * along_dst * (-(-extents[1] // along_src) * along_src)
        used: float = (extents[0] * extents[1] / padded) ** _IDLE
        return tile.rates[not is_even] * used

    possible = [
        tile
        for tile in TILES[width]
        if tile.word == width
        or (is_forward and alignment >= tile.word and not any(n % (tile.word // width) for n in extents))
    ]
    tile = max(possible, key=rate)
    if extents[0] <= _NARROW and rate(tile) < _NARROW_RATES[width]:
        return None
    last = len(box.dims) - 1
    return Turned(tile, extents, (last - sides[0], last - sides[1]))


def _axis(count: int, dst: int, src: int) -> Axis:
    return Axis(count, *divisor(count), dst, src)
