"""The elements that an index takes, and whether two parts of an array overlap, against brute force."""

from __future__ import annotations

import random

import numpy as np
import pytest

from offload.sanitizer import elements
from offload.sanitizer.elements import Scattered, byte_bounds, covered, overlaps, selected, taken, unknown_part
from tests.profiles import few

SEEDS = few(12, range(60))


def some_array(rng):
    """Return an array of random shape, strides and dtype, and the contiguous array that it lies in."""
    shape = [rng.randint(1, 6) for _ in range(rng.randint(1, 3))]
    whole = np.zeros([2 * n for n in shape], rng.choice(["f8", "f4", "i2", "O", [("x", "i4"), ("y", "i2")]]))
    part = whole[tuple(slice(rng.randint(0, 1), None, rng.choice([1, 2])) for _ in shape)]
    part = part[tuple(slice(n) for n in shape)]
    if rng.random() < 0.3:
        part = part[::-1]
    return (part.T if rng.random() < 0.3 else part), whole


def some_index(rng, shape):
    """Return an index of an array: numbers, slices, masks, arrays, or several of them."""
    numbers = np.random.RandomState(rng.randrange(1000))
    return rng.choice(
        [
            numbers.rand(*shape) < 0.5,
            numbers.randint(-shape[0], shape[0], size=(2, 3)),
            (numbers.randint(0, shape[0], size=4), *(slice(None, None, 2) for _ in shape[1:])),
            tuple(numbers.randint(0, n, size=4) for n in shape),
            (rng.randrange(shape[0]),),
            (..., [0, -1]),
            (None, slice(1, None)),
            (numbers.rand(shape[0]) < 0.5,),
            np.array(rng.randrange(shape[0])),
            [],
        ]
    )


def bytes_of(parts, whole):
    """Return a bool for each byte of a contiguous array: whether one of some arrays has it."""
    low, high = byte_bounds(whole)
    marks = np.zeros(high - low, bool)
    for part in parts:
        if part.size:
            marks |= covered(part, low, high)
    return marks


def bytes_chosen(array, index, whole):
    """Return the bytes of the elements that an assignment changes."""
    chosen = np.zeros(array.shape, bool)
    chosen[index] = True
    low, high = byte_bounds(whole)
    marks = np.zeros(high - low, bool)
    address = array.__array_interface__["data"][0]
    np.ndarray((*array.shape, array.itemsize), bool, marks, address - low, (*array.strides, 1))[chosen] = True
    return marks


@pytest.mark.parametrize("runs", [0, 16])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_index_takes_the_elements_that_an_assignment_changes(seed, runs, monkeypatch):
    """`taken` covers each byte of these elements and no other, as views and as addresses."""
    monkeypatch.setattr(elements, "MOST_RUNS", runs)
    rng = random.Random(seed)
    array, whole = some_array(rng)
    index = some_index(rng, array.shape)
    assert (bytes_of(taken(array, index), whole) == bytes_chosen(array, index, whole)).all()


@pytest.mark.parametrize("runs", [0, 16])
@pytest.mark.parametrize("seed", SEEDS)
def test_parts_overlap_if_they_share_a_byte(seed, runs, monkeypatch):
    """`overlaps` compares views and scattered elements of one array exactly."""
    monkeypatch.setattr(elements, "MOST_RUNS", runs)
    rng = random.Random(seed)
    array, whole = some_array(rng)
    sides = [taken(array, some_index(rng, array.shape)) for _ in range(2)]
    for one in sides[0]:
        for other in sides[1]:
            expected = bool((bytes_of([one], whole) & bytes_of([other], whole)).any())
            assert overlaps(one, other) is expected


def test_fields_of_a_record_are_apart():
    """Two fields of one structured array share no byte, and a list of fields takes each of them."""
    array = np.zeros(5, [("x", "f8"), ("y", "i4"), ("z", "i4")])
    (x,), (y,) = taken(array, "x"), taken(array, "y")
    assert overlaps(x, y) is False
    assert overlaps(x, array) is True
    assert (bytes_of(taken(array, ["x", "z"]), array) == bytes_of([array["x"], array["z"]], array)).all()


def test_many_elements_become_one_part_with_their_addresses():
    """A random half of a large array is one `Scattered`, which is a view of the whole array."""
    array = np.zeros(10_000)
    mask = np.random.RandomState(1).rand(array.size) < 0.5
    (part,) = selected(array, mask)
    assert isinstance(part, Scattered)
    assert part.addresses.size == mask.sum()
    assert overlaps(part, selected(array, ~mask)[0]) is False
    assert overlaps(part, array[mask.argmax() :]) is True


def test_a_mask_is_broadcast_with_its_array():
    """A mask of one row selects in each row, and a mask of more dimensions than the array selects its union."""
    array = np.zeros((3, 4))
    row = np.array([True, False, True, False])
    assert (bytes_of(selected(array, row), array) == bytes_of([array[:, ::2]], array)).all()
    line = np.zeros(4)
    assert (bytes_of(selected(line, np.array([row, ~row])), line)).all()
    assert selected(array, True) == [array] or selected(array, True)[0] is array
    assert selected(array, False) == []


def test_what_cannot_be_decided_is_none():
    """A part whose elements are not known overlaps with another one, or does not: the answer is None."""
    array = np.zeros(8)
    assert overlaps(unknown_part(array), array) is None
    assert overlaps(unknown_part(array), np.zeros(8)) is False


def test_arrays_without_elements_overlap_with_nothing():
    """An empty array shares no byte with the array that it is a view of."""
    array = np.zeros(8)
    assert overlaps(array[:0], array) is False
