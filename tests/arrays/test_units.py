"""The work of kernels: carried out as they do it, it moves what an assignment moves."""

from __future__ import annotations

import contextlib
import itertools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.arrays import copies, units
from offload.arrays.boxes import Box, collapse
from offload.arrays.units import UnitKind
from tests.arrays.strided import cases, expected, run_call
from tests.profiles import few


def run_tile(work, indices, dst, src, to, at):
    """Do what a block does with the tile of some indices, word by word."""
    tile, extents, places = work.turned
    square = tile.word // work.width
    sides = units.tile_sides(tile, work.width)
    (dst_x, src_y), (dst_y, src_x) = (
        (work.axes[place].dst_stride_nbytes // side, work.axes[place].src_stride_nbytes // side)
        for place, side in zip(places, sides, strict=True)
    )
    ny, nx = (
        min((extent - indices[place] * side) // square, side // square)
        for extent, place, side in zip(extents, places, sides, strict=True)
    )
    for y, x in itertools.product(range(ny), range(nx)):
        words = []
        for j in range(square):
            begin = at + (y * square + j) * src_y + x * square * src_x
            assert begin % tile.word == 0
            words.append(src[begin : begin + tile.word].reshape(square, work.width))
        for i in range(square):
            begin = to + (x * square + i) * dst_y + y * square * dst_x
            assert begin % tile.word == 0
            dst[begin : begin + tile.word] = np.concatenate([word[i] for word in words])


def run_units(work, dst, src, to, at):
    """Do what the kernels do, as ``struct Work`` says it; addresses are offsets in the two memories."""
    for unit in range(work.count):
        n, d, s = unit, to, at
        indices = []
        for axis in work.axes:
            quotient = (((n * axis.multiplier) >> 32) + n) >> axis.shift
            indices.append(n - quotient * axis.count)
            d += indices[-1] * axis.dst_stride_nbytes
            s += indices[-1] * axis.src_stride_nbytes
            n = quotient
        assert n == 0
        if work.kernel is UnitKind.TILES:
            run_tile(work, indices, dst, src, d, s)
            continue
        if work.kernel is UnitKind.FLAT:
            assert d % work.width == s % work.width == 0
            dst[d : d + work.width] = src[s : s + work.width]
            continue
        begin, head = indices[0] * work.segment_nbytes, min(-d % 16, work.row_nbytes)
        if not begin:
            dst[d : d + head] = src[s : s + head]
        begin += head
        end = min(begin + work.segment_nbytes, work.row_nbytes)
        if begin < end:
            assert (d + begin) % 16 == 0
            dst[d + begin : d + end] = src[s + begin : s + end]


@given(cases(), st.sampled_from([None, 1, 8, 32]))
def test_units_move_the_box(case, lanes):
    """Every kernel that can be forced, and the one that is chosen, moves exactly the bytes of the box."""
    (memory, to, _), (source, at, _), box = case
    wanted = expected(case)
    with mock.patch.object(units, "_lanes", return_value=lanes) if lanes else contextlib.nullcontext():
        work = units.units(box, to, at)
    assert work is not None
    if lanes and work.kernel is not UnitKind.TILES:
        assert work.lanes == lanes
    run_units(work, memory, source, to + box.dst_offset_nbytes, at + box.src_offset_nbytes)
    assert (memory == wanted).all()


@contextlib.contextmanager
def nothing_is_near():
    """Take a copy of a few bytes for one whose neighbours in the source are far, and pieces of two rows for long."""
    with (
        mock.patch.object(units, "_FAR_NBYTES", 2),
        mock.patch.object(units, "_NEAR_NBYTES", 4),
        mock.patch.object(units, "_LEAST_NEAR", 2),
    ):
        yield


@given(cases(), st.sampled_from([1 << 12, 1 << 14, 1 << 16]), st.booleans())
def test_launches_move_the_box(case, most, is_far):
    """Cut for launches of few threads, whatever kernels they choose, the parts move exactly the bytes of the box."""
    (memory, to, _), (source, at, _), box = case
    wanted = expected(case)
    limit = most * units._MAX_UNITS_NBYTES // units.MAX_UNITS
    with (
        mock.patch.object(units, "MAX_UNITS", most),
        mock.patch.object(units, "_MAX_UNITS_NBYTES", limit),
        mock.patch.object(units, "_MAX_ROW_NBYTES", limit),
        nothing_is_near() if is_far else contextlib.nullcontext(),
        mock.patch.object(units, "_turned", return_value=None) if is_far else contextlib.nullcontext(),
    ):
        parts = list(units.launches(box, to, at))
    for part, work in parts:
        assert work.count * work.lanes <= most
        run_units(work, memory, source, to + part.dst_offset_nbytes, at + part.src_offset_nbytes)
    assert (memory == wanted).all()


KB, MB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("box", "order"),
    [
        # Columns dealt in 32 bytes to 8 owners: 8 rows to an owner, then the next owner.
        (Box(0, 0, 32, ((8, 32 * MB, 32), (MB, 32, 256))), ((8, 32, 256), (8, 32 * MB, 32), (MB // 8, 256, 2 * KB))),
        # And back: what is near in the source follows after 8 rows as it is.
        (Box(0, 0, 32, ((MB, 256, 32), (8, 32, 32 * MB))), ((8, 32, 32 * MB), (MB, 256, 32))),
        # Pieces of two axes; the neighbours are in the outermost of four.
        (
            Box(0, 0, 12, ((3, 9 * MB, -12), (1000, 8 * KB, 72 * KB), (64, 96, 720), (6, 12, 72))),
            ((6, 12, 72), (4, 96, 720), (3, 9 * MB, -12), (16, 384, 2880), (1000, 8 * KB, 72 * KB)),
        ),
        # An axis that ends before the piece does, all of it.
        (
            Box(0, 0, 96, ((8, 4 * MB, 96), (4000, 288, 768), (3, 96, 48 * MB))),
            ((3, 96, 48 * MB), (8, 4 * MB, 96), (1, 288, 144 * MB), (4000, 288, 768)),
        ),
        # A piece that ends in the second axis.
        (
            Box(0, 0, 48, ((64, 4 * MB, 48), (4000, 200, 12 * KB), (4, 48, 48 * MB))),
            ((4, 48, 48 * MB), (4, 200, 12 * KB), (64, 4 * MB, 48), (1000, 800, 48 * KB)),
        ),
        # Neighbours that share nothing.
        (Box(0, 0, 32, ((8, 32 * MB, 160), (MB, 32, 1280))), ((MB, 32, 1280), (8, 32 * MB, 160))),
        # An axis that does not move in the source.
        (Box(0, 0, 32, ((8, 32 * MB, 0), (MB, 32, 32 * MB))), ((MB, 32, 32 * MB), (8, 32 * MB, 0))),
        # A prime number of rows.
        (Box(0, 0, 32, ((8, 32 * MB, 32), (8191, 32, 256))), None),
    ],
)
def test_neighbours_in_the_source_are_near(box, order):
    """Short rows whose neighbours in the source are far are copied in pieces, each followed by its neighbours."""
    assert units.near(box) == order
    work = units.units(box, 0, 0)
    assert (work is None) == (order is None)
    kept = units.units(box, 0, 0, keeps_order=True)
    assert [axis[0] for axis in kept.axes[-len(box.dims) :]] == [dim[0] for dim in box.dims[::-1]]
    for part in units.even(box):
        assert units.near(part) is not None
    if order is not None:
        assert list(units.even(box)) == [box]


def test_no_launch_has_more_units_than_its_arithmetic_takes():
    """A box of more is left to several launches."""
    box = Box(0, 0, 16, ((1 << 33, 48, 32),))
    assert units.units(box, 0, 0) is None
    parts = list(units.launches(box, 0, 0))
    assert sum(work.count for _, work in parts) == 1 << 33


def test_a_box_is_cut_where_a_piece_does_not_end():
    """What is no multiple of a piece is two launches, the second of what is left."""
    found = list(units.even(Box(-7, 3, 32, ((8, 32 * MB, 32), (8191, -32, 256)))))
    assert found == [
        Box(-7, 3, 32, ((8, 32 * MB, 32), (8184, -32, 256))),
        Box(-7 - 8184 * 32, 3 + 8184 * 256, 32, ((8, 32 * MB, 32), (7, -32, 256))),
    ]
    assert [box.dims for box in units.even(Box(0, 0, 32, ((8, 32 * MB, 32), (8193, 32, 256))))][1] == (
        (8, 32 * MB, 32),
    )


@pytest.mark.parametrize(
    ("box", "extents"),
    [
        (Box(0, 0, 8, ((100, 480, 8), (60, 8, 800))), (60, 100)),
        (Box(0, 0, 8, ((5, 1 << 20, -1 << 20), (100, 480, 8), (60, 8, -800))), (60, 100)),
        (Box(0, 0, 8, ((100, 480, 8), (7, 8, 800))), None),
        (Box(0, 0, 16, ((100, 960, 8), (60, 8, 800))), None),
        (Box(0, 0, 8, ((100, 488, 800), (60, 8, 8 * 100 * 800))), None),
    ],
)
def test_tiles_turn_what_is_transposed(box, extents):
    """Elements whose neighbours differ on both sides go through tiles, others do not."""
    work = units.units(box, 0, 0)
    assert (work.turned.extents if work.kernel is UnitKind.TILES else None) == extents
    (to, _), (at, _) = hulls = copies.hull(box, 1), copies.hull(box, 2)
    to, at = -(to // 16) * 16, -(at // 16) * 16
    memory = np.zeros(to + sum(hulls[0]), "u1")
    source = np.random.default_rng(1).integers(0, 256, at + sum(hulls[1]), "u1")
    wanted = memory.copy()
    for call in copies.calls(box):
        run_call(call, wanted, source, to, at)
    run_units(work, memory, source, to, at)
    assert (memory == wanted).all()


@pytest.mark.parametrize(
    ("width", "word"), few(3, [(2, 4), (2, 2), (16, 16), (1, 4), (1, 1), (4, 4), (8, 8)], are_rows=True)
)
@pytest.mark.parametrize("order", [1, 2])
def test_squares_are_moved_in_words(width, word, order):
    """Small elements are turned round in words where every row begins at one, and one by one elsewhere."""
    shape, odd = (3, 64, 256), 0 if word > width or width > 2 else width
    source = np.random.default_rng(1).integers(0, 256, 1 << 20, "u1")
    strides = (64 * 256 * width, 256 * width + odd, width)
    turned = (64 * 256 * width, width, 64 * width + odd)
    box = copies.ordered_by(collapse(shape, turned, strides, width), order)
    work = units.units(box, 0, 0)
    assert work.kernel is UnitKind.TILES
    assert work.turned.tile.word == word
    memory = np.zeros(3 * 64 * 258 * width, "u1")
    wanted = memory.copy()
    for call in copies.calls(box):
        run_call(call, wanted, source, 0, 0)
    run_units(work, memory, source, 0, 0)
    assert (memory == wanted).all()


def test_launches_bound_their_units():
    """What has too many elements or axes for one launch is cut, and nothing is lost."""
    row = Box(0, 0, 1, ((1 << 33, 1, 2),))
    parts = list(units.launches(row, 0, 0))
    assert sum(part.nbytes for part, _ in parts) == row.nbytes
    assert all(work.count * work.lanes <= units.MAX_UNITS for _, work in parts)
    deep = Box(0, 0, 1, tuple((2, 2 * 3**i, 2 * 5**i) for i in range(15, -1, -1)))
    parts = list(units.launches(deep, 0, 0))
    assert sum(part.nbytes for part, _ in parts) == deep.nbytes
    assert all(len(work.axes) <= units.MAX_AXES for _, work in parts)
    assert len({(part.dst_offset_nbytes, part.src_offset_nbytes) for part, _ in parts}) == len(parts)


@pytest.mark.parametrize("width", units.WIDTHS)
@pytest.mark.parametrize("side", [8, 9, 32, 33])
def test_launches_of_many_small_tiles(width, side):
    """A batch of small transpositions has many threads a byte, and is cut by these; the smallest go one by one."""
    n = (3 << 29) // (side * side * width) + 1
    shape, strides = (n, side, side), (side * side * width, side * width, width)
    box = collapse(shape, strides, (strides[0], strides[2], strides[1]), width)
    parts = list(units.launches(box, 0, 0))
    assert sum(part.nbytes for part, _ in parts) == box.nbytes
    for _, work in parts:
        assert (work.kernel is UnitKind.TILES) == (side >= 32)
        assert work.count * work.lanes <= units.MAX_UNITS


@pytest.mark.parametrize("row", [(1 << 32) - 1, 1 << 32, 5 << 30])
@pytest.mark.parametrize("odd", [0, 1])
def test_launches_of_long_rows(row, odd):
    """Rows whose length 32 bits cannot hold are cut, and nothing is lost."""
    box = collapse((2, row), (6 << 30, 1), ((7 << 30) + odd, 1), 1)
    parts = list(units.launches(box, 0, odd))
    assert sum(part.nbytes for part, _ in parts) == box.nbytes
    assert (units.units(box, 0, odd) is None) == (row >= 1 << 32)
    at = 0
    for part, work in parts:
        assert work.row_nbytes < 1 << 32
        assert part.dst_offset_nbytes == at // row * (6 << 30) + at % row
        assert part.src_offset_nbytes == at // row * ((7 << 30) + odd) + at % row
        at += part.nbytes


@given(st.integers(1, 1 << 31), st.data())
def test_division_by_multiplication(count, data):
    """Quotients below 2**31 are exact, by numbers that fit 32 bits."""
    multiplier, shift = units.divisor(count)
    assert 0 <= multiplier < 1 << 32
    assert 0 <= shift < 32
    near = st.integers(0, max(0, (1 << 31) // count)).map(lambda k: k * count)
    for n in (data.draw(st.integers(0, (1 << 31) - 1)), data.draw(near) - 1, data.draw(near)):
        if 0 <= n < 1 << 31:
            assert (((n * multiplier) >> 32) + n) >> shift == n // count
