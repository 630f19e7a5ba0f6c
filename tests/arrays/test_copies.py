"""Plans of strided copies: every driver's call and chunk, executed, moves what an assignment moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.arrays import copies
from offload.arrays.boxes import Box, collapse
from offload.devices.cuda.methods import choose
from tests.arrays.strided import cases, expected, run_call


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
