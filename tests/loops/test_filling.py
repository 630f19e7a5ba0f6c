"""The steps of a call that has been made before: is it one of the same name, and what is filled in."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.loops.running.memo import name_of
from offload.loops.settled_calls import CallPattern, Filler

SCALARS = st.sampled_from([0, 1, 2, True, 0.0, 1.5, np.float64(1.5), np.int32(1), np.uint8(2)])
ARRAYS = st.sampled_from(
    [np.zeros(4), np.zeros((2, 2)), np.zeros(4, "f4"), np.zeros(8)[::2], np.zeros(0), np.zeros((2, 2)).T, np.array(1.0)]
)
ARGUMENTS = st.lists(SCALARS | ARRAYS, min_size=2, max_size=2).map(tuple)


@given(one=ARGUMENTS, other=ARGUMENTS)
def test_calls_that_match_are_those_of_one_name(one, other):
    """Types, dtypes, shapes, strides and scalars that are no floats tell calls apart."""
    assert CallPattern(one).fits(other) == (name_of(one) == name_of(other))


def test_a_dtype_is_told_by_its_identity():
    """An equal dtype that is another object is not found, which costs a look-up by the name."""
    assert not CallPattern([np.zeros(3)]).fits([np.zeros(3, np.dtype("f8", metadata={"of": "a program"}))])


ADDRESS = st.none() | st.integers(0, 40)


@given(addresses=st.tuples(ADDRESS, ADDRESS), nbytes=st.sampled_from([1, 4, 8]), held=st.booleans())
def test_filled_where_arrays_are_apart_aligned_and_hold_what_they_did(addresses, nbytes, held):
    """Pointers and floats stand in their slots; None where an address is none, or wrong, or the contents are."""
    asked = []

    def holds(of):
        asked.append(of)
        return held

    made = (ctypes.c_int64 * 4)(1, 2, 3, 4)
    pack = struct.Struct("d").pack_into
    fill = Filler([(0, nbytes), (2, 4)], [(0, 0, 7, 1, -4, 3)], [(2, 0), (0, 1)], [(8, 1, pack)], [1]).fill
    found = fill((0, 2.5, 1), addresses.__getitem__, holds, lambda: made)
    x, y = addresses
    is_right = x is not None and y is not None and x % nbytes == 0 and y % 4 == 0
    is_apart = is_right and (x + 7 < y - 4 or y + 3 < x)
    assert asked == ([(y,)] if is_apart else [])
    assert (found is made) == (is_apart and held)
    if found is not None:
        assert (found[2], found[0], found[3]) == (x, y, 4)
        assert struct.unpack_from("d", found, 8) == (2.5,)


@pytest.mark.parametrize("n", [0, 1])
def test_few_arguments(n):
    """A call has any number of arguments."""
    args = (np.zeros(2),) * n
    assert CallPattern(args).fits(args)
    assert Filler([(0, 8)] * n, [], [], [], []).fill(args, lambda _: 16, None, list) == []
