"""Blocks of types: row-major, smaller at the far edges, element by element the whole's, also where sub-dimensions do
not add."""

from __future__ import annotations

import itertools

import pytest

from offload.parray import ArrayType, Tile, dim, disp, func, plan, threads, tiles, wrap

A = ArrayType(((3, 3), 2))
CASES = {
    "plain": (ArrayType((4, 5)), (3, 4)),
    "whole": (ArrayType((4, 5)), (None, 2)),
    "larger than the type": (ArrayType((4, 5)), [9, 9]),
    "nested": (A, (4, None)),
    "turned": (ArrayType(((A[0, 1], A[0, 0]), A[1])), (3, 1)),
    "a root with references": (ArrayType(dim((2, 5), disp(3), wrap(10))), (1, 3)),
    "a pure reference": (ArrayType(dim(None, A, disp(2))), (5, 2)),
    "a leaf": (ArrayType(7), 3),
    "a leaf, whole": (ArrayType(7), None),
    "a leaf, in a tuple": (ArrayType(dim(7, disp(2))), (4,)),
    "one sub-dimension": (ArrayType((7,)), 3),
    "a function": (ArrayType((dim(6, func(lambda i: i * i)), 2)), (4, 1)),
    "distributed": (ArrayType((threads(3), 4)), (2, 3)),
}


@pytest.mark.parametrize(("whole", "shape"), CASES.values(), ids=CASES)
def test_elements(whole, shape):
    """Element (i, …) of a tile is element origin + (i, …) of the whole, and the tiles together have each element
    once."""
    sizes = whole.shape or (whole.size,)
    seen = []
    for tile in tiles(whole, shape):
        assert isinstance(tile, Tile)
        assert tile.type.shape == tile.shape
        assert len(tile.index) == len(tile.origin) == len(tile.shape) == len(sizes)
        for at in itertools.product(*map(range, tile.shape)):
            there = tuple(start + i for start, i in zip(tile.origin, at, strict=True))
            assert tile.type(*at) == whole(*there)
            seen.append(there)
    assert sorted(seen) == list(itertools.product(*map(range, sizes)))


def test_order():
    """Tiles come in row-major order, with their index, origin and shape."""
    found = [(tile.index, tile.origin, tile.shape) for tile in tiles(ArrayType((4, 5)), (3, 4))]
    assert found == [
        ((0, 0), (0, 0), (3, 4)),
        ((0, 1), (0, 4), (3, 1)),
        ((1, 0), (3, 0), (1, 4)),
        ((1, 1), (3, 4), (1, 1)),
    ]


def test_nothing():
    """A type without elements has no tiles."""
    assert list(tiles(ArrayType((0, 5)), (3, 2))) == []
    assert list(tiles(ArrayType((0, 5)), (None, None))) == []


def test_a_tile_of_a_large_type():
    """A tile is a window, at any size: one box, and nothing by the element."""
    T = ArrayType((10**6, 10**6))
    tile = next(itertools.islice(tiles(T, (1000, None)), 3, None))
    assert tile.type.nest == (3 * 10**9, ((10**9, 1),))
    assert plan(tile.type, ArrayType((1000, 10**6))).kind == "contiguous"
    inner = next(itertools.islice(tiles(T, (1000, 500)), 2001, None))
    assert inner.type.nest == (10**9 + 500, ((1000, 10**6), (500, 1)))
