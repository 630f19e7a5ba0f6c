"""The least and the greatest element of arrays that indices are read from."""

import numpy as np
import pytest

import offload as omp
from offload.loops.running.looks import extremes

LONG = 1 << 21  # elements: of a byte each more than lie in a core's cache

TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

VIEWS = {
    "whole": lambda array: array,
    "backwards": lambda array: array[::-1],
    "strided": lambda array: array[5::2],
    "rows": lambda array: array.reshape(128, -1),
    "columns": lambda array: array.reshape(128, -1).T,
    "inner": lambda array: array.reshape(128, -1)[1:, 3:-3],
    "short": lambda array: array[:7],
    "one": lambda array: array[7:8],
    "unaligned": lambda array: np.frombuffer(b"\0" + array.tobytes(), array.dtype, offset=1, count=array.size),
}


def gather(x, places, y):
    """Read elements by places."""
    for i in range(places.size):
        y[i] = x[places[i]]


@pytest.mark.parametrize("dtype", TYPES)
def test_they_are_those_of_numpy(dtype):
    """Whatever the type and the layout, both are NumPy's, as Python's integers; limits of the type among them."""
    array = np.frombuffer(np.random.default_rng(5).bytes(2 * LONG * 8), np.uint64).astype(dtype)
    with omp.Runtime("none", num_threads=2):
        for name, view_of in VIEWS.items():
            view = view_of(array)
            assert extremes(view) == (view.min(), view.max()), name
            assert [type(one) for one in extremes(view)] == [int, int], name


@pytest.mark.parametrize("at", [0, 1, 777_777, LONG - 2, LONG - 1])
@pytest.mark.parametrize("wrong", [-5, 4])
def test_one_place_outside_of_many_is_found(at, wrong):
    """A place out of range, wherever it stands in a long array, is an `IndexError`; with it put right the loop runs."""
    places = np.random.default_rng(6).integers(-4, 4, LONG).astype(np.int32)
    x, y = np.arange(4.0), np.zeros(LONG)
    loop = omp.parallel_loop(gather)
    with omp.Runtime("none", num_threads=2):
        places[at] = wrong
        with pytest.raises(IndexError):
            loop(x, places, y)
        places[at] = 0
        loop(x, places, y)
    assert (y == x[places]).all()
