"""Plans of strided copies: every kernel's work, driver's call and chunk, executed, moves what an assignment moves."""

from __future__ import annotations

import contextlib
import itertools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.arrays import copies
from offload.arrays.boxes import Box, collapse
from offload.arrays.copies import Kernel
from offload.devices.cuda.methods import choose

SPARE = 64


@st.composite
def sides(draw, shape, itemsize, *, may_repeat=False):
    """Return (nbytes, offset, strides) of an array of ``shape`` that lies anyhow in that many bytes."""
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), itemsize
    for axis in order:
        step += draw(st.sampled_from([0, 0, 0, 1, 4, 16, itemsize]))
        strides[axis] = step
        step *= shape[axis]
    if may_repeat and shape and draw(st.booleans()):
        strides[draw(st.integers(0, len(shape) - 1))] = 0
    strides = [-s if draw(st.booleans()) else s for s in strides]
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True)) + itemsize
    offset = SPARE + draw(st.integers(0, 17)) - low
    return offset + high + SPARE, offset, tuple(strides)


@st.composite
def cases(draw):
    """Return destination and source memory, both arrays as (offset, view), and the box of the copy."""
    ndim = draw(st.integers(0, 8))
    most = {0: 1, 1: 600, 2: 40, 3: 12, 4: 6}.get(ndim, 3)
    shape = tuple(draw(st.lists(st.integers(1, most), min_size=ndim, max_size=ndim)))
    itemsize = draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 100]))
    arrays = []
    for may_repeat in (False, True):
        nbytes, offset, strides = draw(sides(shape, itemsize, may_repeat=may_repeat))
        memory = np.random.default_rng(nbytes).integers(0, 256, nbytes, "u1")
        arrays.append((memory, offset, np.ndarray(shape, f"V{itemsize}", memory, offset, strides)))
    box = collapse(shape, arrays[0][2].strides, arrays[1][2].strides, itemsize)
    return arrays[0], arrays[1], box


def run_tile(work, indices, dst, src, to, at):
    """Do what a block does with the tile of some indices, word by word."""
    tile, extents, places = work.turned
    square = tile.word // work.width
    sides = copies.tile_sides(tile, work.width)
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
        if work.kernel is Kernel.TILES:
            run_tile(work, indices, dst, src, d, s)
            continue
        if work.kernel is Kernel.FLAT:
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


def run_call(call, dst, src, to, at):
    """Do what a 3-D copy of the driver does, under its rules."""
    if call.rows > 1:
        assert min(call.dst_pitch_nbytes, call.src_pitch_nbytes) >= call.row_nbytes
    if call.planes > 1:
        assert min(call.dst_height, call.src_height) >= call.rows
    for plane, row in itertools.product(range(call.planes), range(call.rows)):
        d = to + call.dst_offset_nbytes + (plane * call.dst_height + row) * call.dst_pitch_nbytes
        s = at + call.src_offset_nbytes + (plane * call.src_height + row) * call.src_pitch_nbytes
        dst[d : d + call.row_nbytes] = src[s : s + call.row_nbytes]


def expected(case):
    """Return the destination's memory after the copy, by NumPy."""
    (memory, offset, view), (_, _, source), _ = case
    wanted = memory.copy()
    np.ndarray(view.shape, view.dtype, wanted, offset, view.strides)[...] = source
    return wanted


@given(cases(), st.sampled_from([None, 1, 8, 32]))
def test_units_move_the_box(case, lanes):
    """Every kernel that can be forced, and the one that is chosen, moves exactly the bytes of the box."""
    (memory, to, _), (source, at, _), box = case
    wanted = expected(case)
    with mock.patch.object(copies, "_lanes", return_value=lanes) if lanes else contextlib.nullcontext():
        work = copies.units(box, to, at)
    assert work is not None
    if lanes and work.kernel is not Kernel.TILES:
        assert work.lanes == lanes
    run_units(work, memory, source, to + box.dst_offset_nbytes, at + box.src_offset_nbytes)
    assert (memory == wanted).all()


@given(cases())
def test_calls_move_the_box(case):
    """The driver's calls keep its rules, are as many as announced, and move exactly the bytes of the box."""
    (memory, to, _), (source, at, _), box = case
    wanted = expected(case)
    made = list(copies.calls(box))
    assert len(made) == copies.n_calls(box)
    for call in made:
        run_call(call, memory, source, to, at)
    assert (memory == wanted).all()


@given(cases(), st.integers(64, 5000), st.sampled_from([1, 2]))
def test_chunks_are_the_box(case, limit, side):
    """Chunks in the order of either side are bounded, and together move exactly the bytes of the box, once."""
    (memory, to, _), (source, at, _), box = case
    wanted = expected(case)
    parts = list(copies.chunks(copies.ordered_by(box, side), limit))
    assert sum(part.nbytes for part in parts) == box.nbytes
    for part in parts:
        assert part.nbytes <= limit
        for call in copies.calls(part):
            run_call(call, memory, source, to, at)
    assert (memory == wanted).all()


@given(cases(), st.integers(64, 5000), st.sampled_from([1, 2]), st.sampled_from([1, 2]))
def test_chunks_of_bounded_extent_are_the_box(case, limit, order, side):
    """Chunks bounded by what one side reaches over keep that bound, and together move exactly the bytes of the box."""
    (memory, to, _), (source, at, _), box = case
    wanted = expected(case)
    parts = list(copies.chunks(copies.ordered_by(box, order), limit, side))
    assert sum(part.nbytes for part in parts) == box.nbytes
    for part in parts:
        assert copies.hull(part, side)[1] <= limit
        for call in copies.calls(part):
            run_call(call, memory, source, to, at)
    assert (memory == wanted).all()


@pytest.mark.parametrize(
    "box",
    [
        collapse((1 << 26,), (1,), (64,), 1),
        collapse((2, 16 << 20), (16 << 20, 1), (1 << 30, 1), 1),
        collapse((1 << 10, 1 << 16), (1 << 16, 1), (0, -64), 1),
        collapse((3, 1 << 30), (1 << 30, 1), (3 << 30, 1), 1),
    ],
)
def test_temporaries_of_sparse_memory_are_bounded(box):
    """However far the elements are apart, no part reaches over more than the limit, and parts are not needless."""
    limit = 32 << 20
    parts = list(copies.chunks(copies.ordered_by(box, 2), limit, 2))
    assert sum(part.nbytes for part in parts) == box.nbytes
    reached = [copies.hull(part, 2)[1] for part in parts]
    assert max(reached) <= limit
    assert len(parts) <= 2 * -(-copies.hull(box, 2)[1] // limit)


@given(cases(), st.sampled_from([1 << 12, 1 << 14, 1 << 16]))
def test_launches_move_the_box(case, most):
    """Cut for launches of few threads, whatever kernels they choose, the parts move exactly the bytes of the box."""
    (memory, to, _), (source, at, _), box = case
    wanted = expected(case)
    limit = most * copies._MAX_UNITS_NBYTES // copies.MAX_UNITS
    with (
        mock.patch.object(copies, "MAX_UNITS", most),
        mock.patch.object(copies, "_MAX_UNITS_NBYTES", limit),
        mock.patch.object(copies, "_MAX_ROW_NBYTES", limit),
    ):
        parts = list(copies.launches(box, to, at))
    for part, work in parts:
        assert work.count * work.lanes <= most
        run_units(work, memory, source, to + part.dst_offset_nbytes, at + part.src_offset_nbytes)
    assert (memory == wanted).all()


@given(cases(), st.sampled_from([1, 2]))
def test_through_packed_bytes(case, order):
    """A copy into packed bytes and one out of them, in the order of either side, are the copy."""
    (memory, to, _), (source, at, _), box = case
    wanted = expected(case)
    box = copies.ordered_by(box, order)
    buffer = np.zeros(box.nbytes, "u1")
    gather, scatter = copies.packed(box, 1), copies.packed(box, 2)
    assert copies.hull(gather, 1) == copies.hull(scatter, 2) == (0, box.nbytes)
    for side in (1, 2):
        plain = not copies.packed(box, 3 - side).dims
        assert copies.is_packed(box, side) == plain
    for call in copies.calls(gather):
        run_call(call, buffer, source, 0, at)
    for call in copies.calls(scatter):
        run_call(call, memory, buffer, to, 0)
    assert (memory == wanted).all()


@given(cases())
def test_through_the_hull(case):
    """All bytes that the source reaches over, and a copy out of them, are the copy."""
    (memory, to, _), (source, at, _), box = case
    wanted = expected(case)
    low, nbytes = copies.hull(box, 2)
    buffer = source[at + low : at + low + nbytes].copy()
    assert len(buffer) == nbytes
    for call in copies.calls(copies.within_hull(box, 2)):
        run_call(call, memory, buffer, to, 0)
    assert (memory == wanted).all()
    run, pitch = copies.run_of(box, 2)
    assert box.row_nbytes <= run <= pitch
    assert run <= nbytes


@given(st.integers(1, 1 << 31), st.data())
def test_division_by_multiplication(count, data):
    """Quotients below 2**31 are exact, by numbers that fit 32 bits."""
    multiplier, shift = copies.divisor(count)
    assert 0 <= multiplier < 1 << 32
    assert 0 <= shift < 32
    near = st.integers(0, max(0, (1 << 31) // count)).map(lambda k: k * count)
    for n in (data.draw(st.integers(0, (1 << 31) - 1)), data.draw(near) - 1, data.draw(near)):
        if 0 <= n < 1 << 31:
            assert (((n * multiplier) >> 32) + n) >> shift == n // count


@pytest.mark.parametrize(
    ("box", "n"),
    [
        (Box(0, 0, 64, ()), 1),
        (Box(0, 0, 64, ((4, 64, 128),)), 1),
        (Box(0, 0, 64, ((4, 1024, 2048), (4, 64, 128))), 1),
        (Box(0, 0, 64, ((4, 1000, 2048), (4, 64, 128))), 4),
        (Box(0, 0, 64, ((1000, 1000, 2049), (4, 64, 128))), 4),
        (Box(0, 0, 64, ((5, 8192, 9999), (4, 1024, 2048), (4, 64, 128))), 5),
        (Box(0, 0, 64, ((4, 64, -128),)), 4),
        (Box(0, 0, 64, ((4, 64, 0), (8, 8192, 8192))), 4),
        (Box(0, 0, 64, ((4, 1 << 31, 64),)), 4),
    ],
)
def test_as_few_calls_as_the_driver_allows(box, n):
    """Rows that ascend go into one call, planes too where they are whole rows apart, along the longest axes."""
    assert copies.n_calls(box) == len(list(copies.calls(box))) == n


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
    work = copies.units(box, 0, 0)
    assert (work.turned.extents if work.kernel is Kernel.TILES else None) == extents
    (to, _), (at, _) = hulls = copies.hull(box, 1), copies.hull(box, 2)
    to, at = -(to // 16) * 16, -(at // 16) * 16
    memory = np.zeros(to + sum(hulls[0]), "u1")
    source = np.random.default_rng(1).integers(0, 256, at + sum(hulls[1]), "u1")
    wanted = memory.copy()
    for call in copies.calls(box):
        run_call(call, wanted, source, to, at)
    run_units(work, memory, source, to, at)
    assert (memory == wanted).all()


@pytest.mark.parametrize(("width", "word"), [(1, 4), (2, 4), (1, 1), (2, 2), (4, 4), (8, 8), (16, 16)])
@pytest.mark.parametrize("order", [1, 2])
def test_squares_are_moved_in_words(width, word, order):
    """Small elements are turned round in words where every row begins at one, and one by one elsewhere."""
    shape, odd = (3, 44, 132), 0 if word > width or width > 2 else width
    source = np.random.default_rng(1).integers(0, 256, 1 << 20, "u1")
    strides = (44 * 132 * width, 132 * width + odd, width)
    turned = (44 * 132 * width, width, 44 * width + odd)
    box = copies.ordered_by(collapse(shape, turned, strides, width), order)
    work = copies.units(box, 0, 0)
    assert work.kernel is Kernel.TILES
    assert work.turned.tile.word == word
    memory = np.zeros(3 * 44 * 134 * width, "u1")
    wanted = memory.copy()
    for call in copies.calls(box):
        run_call(call, wanted, source, 0, 0)
    run_units(work, memory, source, 0, 0)
    assert (memory == wanted).all()


def test_launches_bound_their_units():
    """What has too many elements or axes for one launch is cut, and nothing is lost."""
    row = Box(0, 0, 1, ((1 << 33, 1, 2),))
    parts = list(copies.launches(row, 0, 0))
    assert sum(part.nbytes for part, _ in parts) == row.nbytes
    assert all(work.count * work.lanes <= copies.MAX_UNITS for _, work in parts)
    deep = Box(0, 0, 1, tuple((2, 2 * 3**i, 2 * 5**i) for i in range(15, -1, -1)))
    parts = list(copies.launches(deep, 0, 0))
    assert sum(part.nbytes for part, _ in parts) == deep.nbytes
    assert all(len(work.axes) <= copies.MAX_AXES for _, work in parts)
    assert len({(part.dst_offset_nbytes, part.src_offset_nbytes) for part, _ in parts}) == len(parts)


@pytest.mark.parametrize("width", copies.WIDTHS)
@pytest.mark.parametrize("side", [8, 9, 32, 33])
def test_launches_of_many_small_tiles(width, side):
    """A batch of small transpositions has many threads a byte, and is cut by these."""
    n = (3 << 29) // (side * side * width) + 1
    shape, strides = (n, side, side), (side * side * width, side * width, width)
    box = collapse(shape, strides, (strides[0], strides[2], strides[1]), width)
    parts = list(copies.launches(box, 0, 0))
    assert sum(part.nbytes for part, _ in parts) == box.nbytes
    for _, work in parts:
        assert work.kernel is Kernel.TILES
        assert work.count * work.lanes <= copies.MAX_UNITS


@pytest.mark.parametrize("row", [(1 << 32) - 1, 1 << 32, 5 << 30])
@pytest.mark.parametrize("odd", [0, 1])
def test_launches_of_long_rows(row, odd):
    """Rows whose length 32 bits cannot hold are cut, and nothing is lost."""
    box = collapse((2, row), (6 << 30, 1), ((7 << 30) + odd, 1), 1)
    parts = list(copies.launches(box, 0, odd))
    assert sum(part.nbytes for part, _ in parts) == box.nbytes
    assert (copies.units(box, 0, odd) is None) == (row >= 1 << 32)
    at = 0
    for part, work in parts:
        assert work.row_nbytes < 1 << 32
        assert part.dst_offset_nbytes == at // row * (6 << 30) + at % row
        assert part.src_offset_nbytes == at // row * ((7 << 30) + odd) + at % row
        at += part.nbytes


@pytest.mark.parametrize(
    ("regions", "is_within"),
    [
        ([(100, 50)], True),
        ([(0, 1000)], True),
        ([(100, 49)], False),
        ([(101, 49)], False),
        ([(100, 10), (140, 10)], False),
        ([(100, 25), (125, 25)], False),
        ([], False),
    ],
)
def test_memory_of_one_region(regions, is_within):
    """An array whose ends alone are pinned, each by itself, is not pinned."""

    def region_of(address):
        return next(((begin, n) for begin, n in regions if begin <= address < begin + n), None)

    assert copies.is_within_region(100, 150, region_of) == is_within


@pytest.mark.parametrize("is_last_known", [True, False])
def test_memory_of_regions_without_extent(is_last_known):
    """Where extents are unknown, the last byte decides."""
    known = {100, 149} if is_last_known else {100}
    assert copies.is_within_region(100, 150, lambda at: (0, 0) if at in known else None) == is_last_known


@pytest.mark.parametrize(
    ("box", "to_device", "to_host"),
    [
        (Box(0, 0, 1 << 20, ()), "CALLS", "CALLS"),
        (Box(0, 0, 256, ((1 << 12, 256, 512),)), "CALLS", "CALLS"),
        (Box(0, 0, 64, ((1 << 12, 64, 64 << 12),)), "CALLS", "CALLS"),
        (Box(0, 0, 16, ((1 << 20, 32, 32),)), "PACKED", "CALLS"),
        (Box(0, 0, 16, ((1 << 20, 4096, 4096),)), "MAPPED", "CALLS"),
        (Box(0, 0, 8, ((1 << 20, 16, 8),)), "PACKED", "CALLS"),
        (Box(0, 0, 8, ((1 << 20, 8, 16),)), "PACKED", "PACKED"),
        (
            Box(0, 0, 512, ((9, 1 << 20, 999 << 10), (9, 70000, 70001), (9, 5000, 5001), (9, 600, 700))),
            "MAPPED",
            "MAPPED",
        ),
    ],
)
def test_choice(box, to_device, to_host):
    """Long rows go by the driver's calls, short ones through packed bytes where these are dense enough, else mapped."""
    chosen = [choose(box, to_host=to_host).name for to_host in (False, True)]
    assert chosen == [to_device, to_host]
