"""Inner loops on workers and vector lanes on the GPU: values, the same bits each time, errors, barriers."""

from __future__ import annotations

import os

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.gpu.test_loops import is_alive
from tests.loops.level_programs import level_program
from tests.loops.oracle import copy_of

pytestmark = pytest.mark.gpu

LENGTHS = [
    {},
    {"vector_length": 1},
    {"vector_length": 1, "num_workers": 5},
    {"vector_length": 64},
    {"vector_length": 128},
    {"vector_length": 1024},
    {"num_gangs": 100},
]


@acc.parallel_loop(copyin=["ptr", "col", "val", "x"], copyout=["y"])
def spmv(ptr, col, val, x, y):
    for i in acc.loop(range(y.size), gang=True):
        s = 0.0
        for k in acc.loop(range(ptr[i], ptr[i + 1]), vector=True, reduction={"+": ["s"]}):
            s += val[k] * x[col[k]]
        y[i] = s


def matrix(rows, most, *, whole=True, seed=1):
    """Return a sparse matrix by rows, of which some are empty, and a vector."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, most + 1, rows)
    lengths[::7] = 0
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    col = rng.integers(0, rows, ptr[-1]).astype("i4")
    val, x = (rng.integers(-9, 9, n).astype("f8") if whole else rng.random(n) for n in (ptr[-1], rows))
    return ptr, col, val, x


def product(ptr, col, val, x):
    y = np.zeros(ptr.size - 1)
    np.add.at(y, np.repeat(np.arange(y.size), np.diff(ptr)), val * x[col])
    return y


@pytest.mark.parametrize("clauses", LENGTHS, ids=str)
@pytest.mark.parametrize(("rows", "most"), [(1, 1), (5, 500), (3000, 90), (20_000, 27)])
def test_sparse_rows_on_gangs_and_lanes(gpu, clauses, rows, most):
    """A sparse product by rows is exact for whole numbers, with rows of any length, also of none."""
    given = matrix(rows, most)
    y = np.full(rows, np.nan)
    spmv.options(**clauses)(*given, y)
    assert (y == product(*given)).all()


def test_sums_have_the_same_bits_each_time(gpu):
    """Sums that round are the same from run to run, and nearly NumPy's."""
    given = matrix(4000, 300, whole=False)
    results = []
    for _ in range(5):
        y = np.zeros(4000)
        spmv(*given, y)
        results.append(y.tobytes())
    assert len(set(results)) == 1
    assert np.allclose(np.frombuffer(results[0]), product(*given), rtol=1e-13)


@pytest.mark.parametrize("clauses", [{}, {"num_workers": 4}, {"num_workers": 32}, {"vector_length": 128}], ids=str)
def test_a_matrix_product_on_three_levels(gpu, clauses):
    """Rows on gangs, columns on workers, the sum on lanes."""

    @acc.parallel_loop(**clauses)
    def multiply(a, b, c):
        for i in acc.loop(range(c.shape[0]), gang=True):
            for j in acc.loop(range(c.shape[1]), worker=True):
                s = 0.0
                for k in acc.loop(range(a.shape[1]), vector=True, reduction={"+": ["s"]}):
                    s += a[i, k] * b[k, j]
                c[i, j] = s

    rng = np.random.default_rng(2)
    a, b = rng.integers(-9, 9, (70, 131)).astype("f8"), rng.integers(-9, 9, (131, 45)).astype("f8")
    c = np.zeros((70, 45))
    multiply(a, b, c)
    assert (c == a @ b).all()


def test_sums_over_workers_and_gangs(gpu):
    """A sum over lanes goes into one over workers, that into an element and into the sum of the nest."""

    @acc.parallel_loop(num_workers=8, reduction={"+": ["total"], "max": ["most"]})
    def sums(a, of_rows):
        total = 0
        most = -1
        for i in acc.loop(range(a.shape[0]), gang=True):
            t = 0
            for j in acc.loop(range(a.shape[1]), worker=True, reduction={"+": ["t"]}):
                for k in acc.loop(range(a.shape[2]), vector=True, reduction={"+": ["t"]}):
                    t += a[i, j, k]
            of_rows[i] = t
            total += t
            most = max(most, t)
        return total, most

    a = np.random.default_rng(3).integers(0, 1000, (300, 13, 77))
    of_rows = np.zeros(300, int)
    expected = a.sum(axis=(1, 2))
    assert sums(a, of_rows) == (expected.sum(), expected.max())
    assert (of_rows == expected).all()


@pytest.mark.parametrize("clauses", LENGTHS, ids=str)
@pytest.mark.parametrize("n", [1, 31, 33, 1000])
def test_what_a_loop_has_written_the_next_one_reads(gpu, clauses, n):
    """Shared loops that pass elements on to each other, and statements between them, are in the order of the text."""

    @acc.parallel_loop(**clauses)
    def smooth(a, b):
        for i in acc.loop(range(a.shape[0]), gang=True):
            for _ in range(5):
                for k in acc.loop(range(a.shape[1]), vector=True):
                    b[i, k] = a[i, k] + a[i, a.shape[1] - 1 - k]
                b[i, 0] += 1
                for k in acc.loop(range(a.shape[1]), vector=True):
                    a[i, k] = b[i, a.shape[1] - 1 - k] % 1000 - b[i, 0]

    a = np.random.default_rng(4).integers(0, 1000, (200, n))
    b, expected = np.zeros_like(a), a.copy()
    smooth.python(expected, np.zeros_like(a))
    smooth(a, b)
    assert (a == expected).all()


@pytest.mark.parametrize(
    "seed", [*range(7000, 7040), *[pytest.param(n, marks=pytest.mark.soak) for n in range(7040, 7400)]]
)
def test_programs_with_levels_give_what_cpython_gives(gpu, seed):
    """Generated nests with shared loops leave and return what CPython makes of them."""
    made = level_program(seed)
    arguments = copy_of(made.arguments)
    returned = acc.parallel_loop(**made.clauses)(made.function())(**arguments)
    made.check(returned, arguments)


@pytest.mark.parametrize("clauses", LENGTHS, ids=str)
def test_an_index_outside_in_a_shared_loop(gpu, clauses):
    """An index out of range in one lane is the task's IndexError; the others go on, and the context lives."""
    ptr, col, val, x = matrix(2000, 90)
    col[ptr[1234]] = 2000
    with pytest.raises(IndexError, match=r"2000.*'x'.*i=1234"):
        spmv.options(**clauses)(ptr, col, val, x, np.zeros(2000))
    assert is_alive()


def test_teams_and_their_threads_of_openmp(gpu):
    """`bind` says the same: teams are blocks, and `thread_limit` are their threads."""

    @omp.target_loop(thread_limit=128)
    def rows(a, y):
        for i in omp.loop(range(y.size), bind="teams"):
            s = 0
            for k in omp.loop(range(a.shape[1]), bind="parallel", reduction={"+": ["s"]}):
                s += a[i, k]
            y[i] = s

    a, y = np.arange(600_000).reshape(600, 1000), np.zeros(600, int)
    rows(a, y)
    assert (y == a.sum(axis=1)).all()
    assert rows.explain(a, y).to_dict()["nests"][0]["launch"] == {"grid": [600, 1, 1], "block": [128, 1, 1]}


@pytest.mark.measures
@pytest.mark.skipif("OFFLOAD_TESTS_UNPOOLED" in os.environ, reason="a tool looks on, which takes its time")
def test_rows_of_500_stream(gpu, record_property):
    """A gang-vector product with rows of 500 reads its matrix at a large part of what memory gives."""
    from tests.gpu.conftest import cupy

    rows = 100_000
    ptr = cupy.arange(rows + 1) * 500
    col = (cupy.arange(rows * 500) % 20_000).astype("i4")
    val, x, y = cupy.ones(rows * 500), cupy.ones(rows), cupy.zeros(rows)

    @acc.parallel_loop(deviceptr=["ptr", "col", "val", "x", "y"], bounds=False)
    def product(ptr, col, val, x, y):
        for i in acc.loop(range(y.size), gang=True):
            s = 0.0
            for k in acc.loop(range(ptr[i], ptr[i + 1]), vector=True, reduction={"+": ["s"]}):
                s += val[k] * x[col[k]]
            y[i] = s

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    took_ms = []

    @omp.target(is_device_ptr=["ptr", "col", "val", "x", "y"])
    def body(ptr, col, val, x, y):
        begin.record()
        for _ in range(10):
            product(ptr, col, val, x, y)
        end.record()

    for _ in range(4):
        body(ptr, col, val, x, y)
        end.synchronize()
        took_ms.append(cupy.cuda.get_elapsed_time(begin, end) / 10)
    assert (y == 500).all()
    rate = rows * 500 * 12 / min(took_ms) / 1e6
    record_property("gigabytes_per_s", round(rate))
    print(f"rows of 500: {min(took_ms):.3f} ms, {rate:.0f} GB/s of the matrix")
    assert rate > 1000
