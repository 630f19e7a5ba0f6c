"""No index leaves an array, whatever it is made of: memory around arrays stays, and CPython's verdict holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from tests.conftest import checked
from tests.profiles import examples, few

GUARD = 64
MARK = 77


def gather(p, x, y, k):
    for i in range(p.size):
        y[i] = x[p[i] + k]


def scatter(p, x, y, k):
    for i in range(p.size):
        y[p[i] * k] = x[i]


def twice(p, x, y, k):
    for i in range(p.size):
        y[i] = x[p[p[i]] - k]


def segments(p, x, y, k):
    for i in range(p.size - 1):
        for j in range(p[i], p[i + 1], k):
            y[i] += x[j]


def searched(p, x, y, k):
    for i in range(y.size):
        j = i
        while x[j] < 3 and j < 50:
            j += 1 + p[j] % 4
        y[i] = j


def computed(p, x, y, k):
    for i in range(p.size):
        y[(p[i] << 3) // k ^ i] = x[abs(p[i]) % k - 1]


def updated(p, x, y, k):
    for i in range(p.size):
        y[p[i] + k] += 1


def guarded(p, x, y, k):
    for i in range(p.size):
        if 0 <= p[i] < k:
            y[p[i]] = x[p[i]]


def local(p, x, y, k):
    for i in range(p.size):
        t = np.zeros(4, np.int64)
        t[p[i] + k] = i
        y[i] = t[p[i]]


FUNCTIONS = [gather, scatter, twice, segments, searched, computed, updated, guarded, local]
LOOPS = {
    (function, where): (omp.parallel_loop if where == "threads" else omp.target_loop)(
        function, seq=function not in {guarded, updated}, atomic=["y"] if function is updated else []
    )
    for function in FUNCTIONS
    for where in ("sim", "threads")
}
INDICES = st.one_of(
    st.integers(-9, 9),
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), 2**62, 2**31, -(2**31), 2**32, 2**61 + 1]),
)


def fenced(values, dtype):
    """Return an array in the midst of memory that is marked, and that memory."""
    memory = np.full(GUARD + np.dtype(dtype).itemsize * len(values) + GUARD, MARK, np.uint8)
    array = memory[GUARD:-GUARD].view(dtype)
    array[:] = values
    return array, memory


def wrapped(index, dtype):
    info = np.iinfo(dtype)
    return (index - info.min) % (info.max - info.min + 1) + info.min


def serial(function, arguments):
    """Run the function as it is, with integers that wrap; return what it raises."""
    with np.errstate(all="ignore"):
        try:
            function(*arguments)
        except (IndexError, ZeroDivisionError, ValueError) as error:
            return type(error)
    return None


@pytest.mark.parametrize("where", few(1, ["sim", "threads"]))
@pytest.mark.parametrize("function", few(5, FUNCTIONS), ids=lambda function: function.__name__)
@settings(max_examples=examples(40, soak=5_000))
@given(
    st.lists(INDICES, min_size=1, max_size=8),
    st.lists(st.integers(0, 5), max_size=8),
    st.integers(1, 8),
    st.sampled_from([1, 2, 3, -1, 5]),
    st.sampled_from(["int8", "int32", "int64"]),
)
def test_no_index_leaves_an_array(function, where, p, x, n, k, dtype):
    """A loop raises where CPython does and gives its results where it does not; memory around arrays is untouched."""
    p = [wrapped(index, dtype) for index in p]
    if function is segments and any(abs(one) > 100 for one in p):
        p = [one % 11 for one in p]  # CPython has to end
    made = [fenced(p, dtype), fenced(x, "int64"), fenced([0] * n, "int64")]
    arrays, memories = [array for array, _ in made], [memory for _, memory in made]
    expected = [array.copy() for array in arrays]
    error = serial(function, (*expected, k))
    loop = LOOPS[function, where]
    with checked("sim:1"):
        if error is None:
            loop(*arrays, k)
        else:
            with pytest.raises((IndexError, ZeroDivisionError, ValueError)):
                loop(*arrays, k)
    if error is None and function is not guarded:
        assert all((array == old).all() for array, old in zip(arrays, expected, strict=True))
    for memory in memories:
        assert (memory[:GUARD] == MARK).all()
        assert (memory[-GUARD:] == MARK).all()
