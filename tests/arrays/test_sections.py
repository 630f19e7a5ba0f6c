"""Sections: canonical form, overlap, containment, place in a packed copy."""

from __future__ import annotations

from unittest import mock

import pytest

from offload.arrays import sections
from offload.arrays.sections import HOST, Section, c_strides, covers, locate, locate_nbytes, overlaps, section_of

# Items are cut from a C-contiguous 10 by 20 matrix of 8-byte elements at address 1000.
ROW = 160


def cut(first_row, n_rows, first_col, n_cols):
    """Return the section of a tile of the matrix."""
    return section_of(HOST, 1000 + first_row * ROW + first_col * 8, (n_rows, n_cols), (ROW, 8), 8)


@pytest.mark.parametrize("strides", [None, (ROW, 8)])
def test_contiguous(strides):
    """A C-contiguous array is one run."""
    assert section_of(HOST, 1000, (10, 20), strides, 8) == Section(HOST, 1000, (), 1600)


def test_contiguous_of_many_lengths():
    """More layouts than are remembered cost no sorting of axes where they are contiguous."""
    with mock.patch.object(sections, "_merge", side_effect=AssertionError):
        for n in range(2, sections._LAYOUTS + 100):
            assert section_of(HOST, 1000, (n, 1, 3), (72, 5, 24), 24) == Section(HOST, 1000, (), 72 * n)
            assert section_of(HOST, 1000, (n,), (24,), 24) == Section(HOST, 1000, (), 24 * n)
        with pytest.raises(AssertionError):
            section_of(HOST, 1000, (3, n), (24, 72), 24)


@pytest.mark.parametrize(
    ("address", "shape", "strides"),
    [
        (1000, (20, 10), (8, ROW)),
        (1000, (1, 10, 20), (-5, ROW, 8)),
        (1000, (3, 10, 20), (0, ROW, 8)),
        (1000 + 9 * ROW, (10, 20), (-ROW, 8)),
        (1000 + 9 * ROW + 19 * 8, (10, 20), (-ROW, -8)),
        (1000, (2, 5, 20), (5 * ROW, ROW, 8)),
        (1000, (9, 2, 20), (ROW, ROW, 8)),
        (1000, (198, 3), (8, 8)),
    ],
    ids=["transposed", "one", "repeated", "reversed", "all-reversed", "split", "windows", "windows-1d"],
)
def test_same_bytes_dense(address, shape, strides):
    """Every way to look at the same contiguous bytes has the same section."""
    assert section_of(HOST, address, shape, strides, 8) == Section(HOST, 1000, (), 1600)


def test_strided():
    """What stays strided has its dims largest stride first and what is contiguous in the run."""
    expected = Section(HOST, 1000, ((10, ROW),), 64)
    assert cut(0, 10, 0, 8) == expected
    assert section_of(HOST, 1000 + 56, (8, 10), (-8, ROW), 8) == expected
    assert section_of(HOST, 1000, (10, 4), (ROW, 16), 8).dims == ((10, ROW), (4, 16))
    assert section_of(HOST, 1000, (10, 10), (ROW, 16), 8) == Section(HOST, 1000, ((100, 16),), 8)
    assert section_of(HOST, 1000, (3, 4), (16, 16), 8) == Section(HOST, 1000, ((6, 16),), 8)


@pytest.mark.parametrize(
    ("shape", "strides", "itemsize"), [((0,), None, 8), ((3, 0), (0, 8), 8), ((0, 0), (8, 8), 8), ((4,), (0,), 0)]
)
def test_empty(shape, strides, itemsize):
    """An item without bytes has an empty section that overlaps nothing and that everything covers."""
    empty = section_of(HOST, 1000, shape, strides, itemsize)
    whole = cut(0, 10, 0, 20)
    assert empty == (HOST, 1000, (), 0)
    assert empty.nbytes == 0
    assert empty.end == 1000
    assert not overlaps(empty, whole)
    assert not overlaps(whole, empty)
    assert covers(whole, empty)
    assert not covers(empty, whole)


def test_properties():
    """Size, end and shape of a section follow from its rows."""
    tile = cut(1, 3, 2, 4)
    assert (tile.nbytes, tile.end) == (96, 1000 + 3 * ROW + 6 * 8)
    assert tile.is_nested
    assert not section_of(HOST, 0, (3, 2), (2, 3), 1).is_nested


def test_overlap_of_tiles():
    """Tiles of one matrix overlap if and only if they share an element."""
    tile = cut(2, 4, 5, 5)
    assert overlaps(tile, tile)
    assert overlaps(tile, cut(5, 2, 9, 3))
    for other in (cut(2, 4, 10, 5), cut(2, 4, 0, 5), cut(6, 2, 5, 5), cut(0, 2, 5, 5), cut(0, 10, 10, 10)):
        assert not overlaps(tile, other)
        assert not overlaps(other, tile)


def test_overlap_of_others():
    """Rows, columns, every other element and another space are told apart."""
    whole, column = cut(0, 10, 0, 20), cut(0, 10, 3, 1)
    even = section_of(HOST, 1000, (100,), (16,), 8)
    odd = section_of(HOST, 1008, (100,), (16,), 8)
    thirds = section_of(HOST, 1008, (3, 10), (24, ROW), 8)
    assert overlaps(whole, column)
    assert not overlaps(even, odd)
    assert not overlaps(odd, section_of(HOST, 1000, (10, 5), (ROW, 32), 8))
    assert overlaps(odd, thirds)
    assert not overlaps(even, Section(HOST, 1008, ((10, ROW),), 8))
    assert not overlaps(section_of(HOST, 0, (4,), None, 8), section_of(HOST, 32, (4,), None, 8))
    assert not overlaps(whole, whole._replace(space="sim:0"))


def test_search_gives_up():
    """A pair that the bounded search cannot decide overlaps."""
    a = Section(HOST, 0, ((5, 104), (5, 17)), 1)
    b = Section(HOST, 63, ((5, 125), (5, 13)), 1)
    assert not overlaps(a, b)
    assert overlaps(a, b, 8)


def test_covers():
    """A section covers what lies in its rows, and nothing with a byte in a gap."""
    whole, block = cut(0, 10, 0, 20), cut(0, 10, 0, 8)
    assert covers(whole, block)
    assert not covers(block, whole)
    assert covers(block, cut(2, 3, 4, 2))
    assert covers(block, cut(2, 1, 0, 8))
    assert covers(block, section_of(HOST, 1000 + 8, (5, 4), (2 * ROW, 8), 8))
    assert not covers(block, cut(2, 1, 4, 8))
    assert not covers(block, cut(2, 1, 8, 2))
    assert not covers(block, whole._replace(space=0))
    assert not covers(cut(1, 2, 0, 20), cut(2, 2, 0, 20))


def test_locate():
    """A view of a view has the place that slicing the packed copy would give it."""
    outer = ((10, 8), (ROW, 8), 1000)
    assert locate(*outer, 1000, (10, 8), (ROW, 8)) == (0, (8, 1))
    assert locate(*outer, 1000 + 2 * ROW + 24, (3, 2), (3 * ROW, 16)) == (19, (24, 2))
    assert locate(*outer, 1000 + 9 * ROW, (8, 10), (8, -ROW)) == (72, (1, -8))
    assert locate(*outer, 1000 + 56, (8,), (ROW - 8,)) == (7, (7,))
    assert locate(*outer, 1000, (1, 5, 8), (3, 0, 8)) == (0, (1, 0, 1))
    assert locate(*outer, 1000, (), ()) == (0, ())


def test_locate_turned():
    """The array's own axes may be turned round, reordered, repeated or of one element."""
    assert locate((8, 10), (8, ROW), 1000, 1000 + ROW, (2,), (8,)) == (1, (10,))
    assert locate((10, 8), (-ROW, 8), 1000 + 9 * ROW, 1000, (2,), (ROW,)) == (72, (-8,))
    assert locate((1, 4), (99, 16), 1000, 1016, (2,), (32,)) == (1, (2,))
    assert locate((3, 4), (0, 16), 1000, 1016, (2,), (32,)) == (1, (2,))
    assert locate((2, 3, 4), (100, 8, 2), 0, 0, (4,), (6,)) == (0, (3,)), "3 by 4 of stride 2 is one axis of 12"


@pytest.mark.parametrize(
    ("address", "shape", "strides"),
    [
        (1064, (1,), (8,)),
        (992, (1,), (8,)),
        (1000, (9,), (8,)),
        (1000, (11,), (ROW,)),
        (1000, (2, 2), (9 * ROW, ROW)),
        (1000, (2,), (-8,)),
        (1004, (2,), (8,)),
        (1000, (0,), (8,)),
        (1000, (2,), (68,)),
    ],
    ids=["gap", "before", "into-gap", "beyond", "beyond-together", "backwards", "misaligned", "empty", "odd-stride"],
)
def test_locate_absent(address, shape, strides):
    """A view with an element that is not the array's has no place, and one without elements has none either."""
    assert locate((10, 8), (ROW, 8), 1000, address, shape, strides) is None


def test_locate_nbytes():
    """In bytes, views of another element size are found too."""
    block = cut(0, 10, 0, 8)
    assert locate_nbytes(block, 1000 + ROW + 4, (2, 3), (ROW, 4), 4) == (68, (64, 4))
    assert locate_nbytes(block, 1000 + ROW + 60, (1, 1), (ROW, 8), 8) is None


def test_c_strides():
    """The strides of a C-contiguous array are the products of the sizes to the right."""
    assert c_strides((2, 3, 4), 8) == (96, 32, 8)
    assert c_strides(()) == ()
