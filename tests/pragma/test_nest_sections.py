"""Sections in the data clauses of nests: indices are those of the whole array."""

from __future__ import annotations

import numpy as np
import pytest

import offload
from offload.pragma import acc, directives, omp
from tests.conftest import checked
from tests.pragma.programs import made_of


@pytest.fixture(params=["sim:1", "sim:2", "CUDA on the host"], autouse=True)
def runtime(request):
    """Runtimes with one device and with two, and one whose kernels are CUDA's, compiled for the host."""
    if request.param.startswith("CUDA"):
        request.getfixturevalue("cuda")
        yield
    else:
        with checked(request.param):
            yield


@directives
def smooth(x, y, lo, n):
    with omp("target data map(to: x[lo:n]) map(tofrom: y[lo:n])"):  # noqa: SIM117  # as programs have it
        with omp("target teams loop map(to: x[lo:n]) map(tofrom: y[lo:n])"):
            for i in range(lo, lo + n):
                y[i] = x[i] + len(x)
                if i > lo:  # an index that only a branch keeps inside
                    y[i] += x[i - 1] + x.shape[0]


@pytest.mark.parametrize(("lo", "n"), [(2, 4), (0, 3), (5, 3), (0, 8), (7, 1)])
def test_indices_of_the_whole_array(lo, n):
    """A nest on a section that is present gives the results of the loop, and changes nothing else."""
    x, y = np.arange(8.0), np.full(8, -1.0)
    expected = y.copy()
    for i in range(lo, lo + n):
        expected[i] = x[i] + 8 + (x[i - 1] + 8 if i > lo else 0)
    smooth(x, y, lo, n)
    assert y.tolist() == expected.tolist()


def test_chunks_of_an_array_on_several_devices():
    """Deferred nests on chunks of an array copy their chunk alone, in any order."""

    @directives
    def chunks(x, y, n, d):
        for k in range(4):
            lo = k * n
            with omp("target parallel for map(to: x[lo:n]) map(from: y[lo:n]) nowait device(k % d)"):
                for i in range(lo, lo + n):
                    y[i] = 2 * x[i]
        omp("taskwait")

    x, y = np.arange(16.0), np.zeros(16)
    chunks(x, y, 4, offload.get_num_devices())
    assert y.tolist() == (2 * x).tolist()


def test_negative_indices_and_indices_from_arrays():
    """Negative indices count from the end of the whole array, also those that an array holds."""

    @directives
    def gather(x, k, y):
        with omp("target parallel for map(to: x[4:4])"):
            for i in range(k.size):
                y[i] = x[k[i]] + x[-1] + x[i - 4]

    x, y = np.arange(8.0), np.zeros(3)
    gather(x, np.array([-3, 6, -1]), y)
    assert y.tolist() == [5 + 7 + 4, 6 + 7 + 5, 7 + 7 + 6]


def test_several_dimensions_and_atomics():
    """Sections have bounds in each dimension, and updates under `atomic` are shifted as well."""

    @directives
    def update(a, h, r, c):
        with acc("parallel loop collapse(2) copyin(a[r:2][c:3]) copy(h[1:2])"):
            for i in range(r, r + 2):
                for j in range(c, c + 3):
                    with acc("atomic update"):
                        h[i - r + 1] += a[i, j] + a[i][c]

    a, h = np.arange(24.0).reshape(4, 6), np.zeros(4)
    update(a, h, 1, 2)
    assert h.tolist() == [0, a[1, 2:5].sum() + 3 * a[1, 2], a[2, 2:5].sum() + 3 * a[2, 2], 0]


@pytest.mark.parametrize("shift", [-1, 1, 7, -7])
def test_an_index_outside_of_the_section(shift):
    """An index outside of the section is an IndexError that names both."""

    @directives
    def move(x, y, lo, n, shift):
        with omp("target parallel for map(to: x[lo:n])"):
            for i in range(lo, lo + n):
                y[i] = x[i + shift]

    with pytest.raises(IndexError, match=r"index -?\d+ is out of bounds .*x is the section x\[2:3\]"):
        move(np.arange(8.0), np.zeros(8), 2, 3, shift)


def test_a_section_without_indices():
    """An array whose section is not the whole array cannot be used without indices."""

    @directives
    def first(x, y, n):
        with omp("target parallel for map(to: x[0:n])"):
            for i in range(y.size):
                y[i] = summed(x)

    y = np.zeros(2)
    first(np.ones(4), y, 4)
    assert y.tolist() == [4, 4]
    with pytest.raises(offload.PragmaError, match="x is a section"):
        first(np.ones(4), y, 3)


@pytest.mark.parametrize("items", ["x[0:4:2]", "x[0:2], x[2:2]"])
def test_sections_that_have_no_indices(items):
    """Sections with a stride, and two sections of one array, are errors."""
    function = made_of(
        f"""
        @directives
        def f(x):
            with omp("target parallel for map(tofrom: {items})"):
                for i in range(2):
                    x[i] = 1
        """
    )
    with pytest.raises(offload.PragmaError):
        function(np.zeros(8))


def summed(x):
    s = 0.0
    for i in range(x.size):
        s += x[i]
    return s
