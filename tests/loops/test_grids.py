"""Shapes of launches on CUDA."""

from __future__ import annotations

import math

import pytest

from offload.loops.emit.grids import (
    COPIES_NBYTES,
    MOST_THREADS,
    Shape,
    blocks_with_copies,
    copies_of,
    grid_of,
    index_bits,
    shape_of,
)
from offload.loops.proofs.numbers import Trips, View


def covered(grid, trips):
    """Tell whether a grid has a thread for each iteration, and no block without one."""
    along = (trips[-1], trips[-2] if len(trips) > 1 else 1, math.prod(trips[:-2]))
    return all(
        (blocks - 1) * threads < n <= blocks * threads
        for n, blocks, threads in zip(along, grid.blocks, grid.threads, strict=True)
    )


@pytest.mark.parametrize(
    "trips", [(1,), (255,), (256,), (257,), (2**27,), (7, 5), (8192, 8190), (3, 9, 33), (2, 3, 4, 5)]
)
def test_a_grid_has_exactly_the_blocks_that_it_needs(trips):
    """Every iteration has its thread, and no block is without iterations."""
    grid = grid_of(trips)
    assert covered(grid, trips)
    assert not grid.is_strided
    assert grid.threads == ((256, 1, 1) if len(trips) == 1 else (32, 8, 1))


def test_the_innermost_loop_lies_along_x():
    """Threads side by side have iterations of the innermost loop, those of all but two loops are along z."""
    assert grid_of((3, 5, 80, 640)).blocks == (20, 10, 15)


@pytest.mark.parametrize("trips", [(1_000_000, 32), (70_000, 8, 32), (300, 300, 8, 32)])
def test_where_the_hardware_ends_threads_go_on(trips):
    """More than 65,535 blocks along y or z become a strided loop, along x there may be more."""
    grid = grid_of(trips)
    assert grid.is_strided
    assert max(grid.blocks[1:]) == 65_535
    assert not grid_of((2**30,)).is_strided


@pytest.mark.parametrize("trips", [(10_000,), (100, 100), (10, 100, 100)])
@pytest.mark.parametrize("most", [1, 7, 32])
def test_clauses_bound_the_blocks(trips, most):
    """``num_teams`` is the most blocks that there are, and threads go on to further iterations."""
    grid = grid_of(trips, Shape(most_blocks=most))
    assert grid.n_blocks <= most
    assert grid.is_strided


def test_enough_blocks_are_no_bound():
    """Where there are as many blocks as iterations need, nothing is strided."""
    assert not grid_of((1000,), Shape(most_blocks=4)).is_strided


@pytest.mark.parametrize(("n_threads", "expected"), [(1, 32), (64, 64), (100, 96), (512, 512), (5000, 1024)])
def test_blocks_have_whole_warps(n_threads, expected):
    """``thread_limit`` is rounded to whole warps, at most to what the hardware has."""
    shape = shape_of((("thread_limit", n_threads),), ())
    assert grid_of((10_000,), shape).threads == (expected, 1, 1)
    assert grid_of((100, 100), shape).threads == (32, expected // 32, 1)


@pytest.mark.parametrize(("workers", "threads"), [(1, (1, 1, 1)), (4, (4, 1, 1)), (32, (32, 1, 1))])
def test_rows_of_one_lane(workers, threads):
    """With ``vector_length=1`` a block has a thread for each worker, along the innermost loop."""
    shape = shape_of((("vector_length", 1), ("num_workers", workers)), ())
    for trips in ((100,), (100, 100), (3, 4, 5)):
        grid = grid_of(trips, shape)
        assert grid.threads == threads
        assert math.prod(grid.blocks) * workers >= math.prod(trips)


def test_a_tile_is_a_block():
    """``tile=(b0, b1)`` gives blocks of b0 rows of b1 threads; one that is no block of whole warps is left."""
    assert grid_of((100, 100), Shape(tile=(16, 16))).threads == (16, 16, 1)
    assert grid_of((100,), Shape(tile=(64,))).threads == (64, 1, 1)
    assert grid_of((100, 100), Shape(tile=(3, 5))).threads == (32, 8, 1)
    assert grid_of((100, 100), Shape(tile=(64, 64))).threads == (32, 8, 1)


def test_iterations_in_order_have_one_thread():
    """A loop that is `seq` has one block, of one warp."""
    grid = grid_of((10_000, 10_000), is_ordered=True)
    assert (grid.n_blocks, grid.n_threads, grid.is_strided) == (1, 32, False)


def test_words_of_clauses():
    """Blocks are ``num_teams``, ``num_gangs`` or ``gang=``; threads a limit, or workers times vectors."""
    assert shape_of((), ()) == Shape()
    assert shape_of((("num_gangs", 8), ("gang", 4)), ()) == Shape(4, None, ())
    assert shape_of((("num_workers", 4), ("vector_length", 64)), (8, 8)) == Shape(None, 256, (8, 8))
    assert shape_of((("vector_length", 128),), ()) == Shape(None, 128, ())
    assert shape_of((("num_workers", 4),), ()) == Shape(None, 128, ())
    assert shape_of((("thread_limit", 512), ("num_workers", 4)), ()) == Shape(None, 512, ())


# -- the width of indices --------------------------------------------------------------------------------


def bits(trips, views=(), start=0, step=1):
    axes = [Trips(start, step, n) for n in trips]
    return index_bits(axes, views, grid_of(trips))


def test_small_numbers_need_32_bits():
    """An ordinary launch has 32-bit indices."""
    assert bits((8192, 8192), [View((8192, 8192), (65536, 8), 8, 0)]) == 32


@pytest.mark.parametrize(
    ("trips", "view", "start", "step"),
    [
        ((2**31,), View((1,), (8,), 8, 0), 0, 1),
        ((2**31 - 100,), View((1,), (8,), 8, 0), 0, 1),  # the last block ends beyond
        ((10,), View((2**28,), (8,), 8, 0), 0, 1),  # bytes
        ((10,), View((2**31,), (1,), 1, 0), 0, 1),
        ((10,), View((2**20, 2**11), (0, 0), 8, 0), 0, 1),  # elements, of which all are one
        ((10,), View((2**28, 2), (-8, 8), 8, 0), 0, 1),
        ((10,), View((10,), (8,), 8, 0), 2**31, 1),
        ((10,), View((10,), (8,), 8, 0), -(2**40), 2**37),
        ((2**11, 2**11, 2**11, 1, 1), View((10,), (8,), 8, 0), 0, 1),  # all but two loops are one axis
    ],
)
def test_what_does_not_fit_needs_64_bits(trips, view, start, step):
    """A number beyond 2**31 that has to do with places makes indices 64 bits wide."""
    assert bits(trips, [view], start, step) == 64


# -- copies in shared memory -----------------------------------------------------------------------------


def test_small_arrays_are_copied_for_long_loops():
    """An array of atomics is copied if it fits, and iterations are 16 times its elements."""
    assert copies_of({"h": (256, 8)}, 4096).places == {"h": 0}
    assert copies_of({"h": (256, 8)}, 4095).places == {}
    assert copies_of({"h": (4096, 8)}, 2**20).nbytes == COPIES_NBYTES
    assert copies_of({"h": (4097, 8)}, 2**20).places == {}
    assert copies_of({"h": (0, 8)}, 2**20).places == {}


def test_copies_lie_beside_each_other():
    """Each begins at a word of 8 bytes, and all together fit."""
    copies = copies_of({"a": (3, 1), "b": (5, 4), "c": (4096, 8)}, 2**20)
    assert copies.places == {"a": 0, "b": 1}
    assert copies.nbytes == 32


def test_blocks_with_copies_have_iterations_for_them():
    """A block has 16 iterations an element that it copies, and there are no more blocks than a GPU runs at a time."""
    assert blocks_with_copies([256], 2**26, 512) == 528
    assert blocks_with_copies([256], 2**26, 1024) == 264
    assert blocks_with_copies([256], 2**16, 512) == 16
    assert blocks_with_copies([8, 256], 100, 512) == 1


def test_every_block_fits_the_hardware():
    """No clause makes a block of more than 1,024 threads."""
    for n_threads in range(1, 3000, 97):
        assert grid_of((10, 10), Shape(n_threads=n_threads)).n_threads <= MOST_THREADS
