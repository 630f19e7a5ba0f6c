"""Scans and loops that carry scalars on the GPU: values, orders, replays, failures."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from tests.gpu.conftest import cupy
from tests.loops.carried_programs import carried
from tests.loops.test_carrying import agrees
from tests.loops.test_scans import FUNCTIONS, both, in_place, inclusive, packed, smoothed, with_sum

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::offload.DirectiveWarning")]

SIZES = [1, 31, 4095, 4096, 4097, 32 * 4096 + 1, 5_000_000, 70_000_001]


@pytest.fixture(autouse=True)
def on_gpu(gpu):
    """All tests run on the GPU."""


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_sums_of_integers(n, dtype):
    """At the ends of tiles, groups, and groups of groups; integers of any width wrap."""
    x = cupy.random.default_rng(n).integers(0, 100, n).astype(dtype)
    y = cupy.zeros(n, dtype)
    omp.target_loop(inclusive)(x, y)
    assert bool((y == cupy.cumsum(x, dtype=dtype)).all())


@pytest.mark.parametrize("n", [2048 * 1024, 9_000_001])
def test_two_scalars_in_many_tiles(n):
    """Sums of 64 and of 32 bits pass through groups of groups, their upper halves too."""

    def summed(x, z, y, w):
        s = 1 << 40
        m = z[0]
        for i in range(x.size):
            y[i] = s
            s -= x[i]
            m = max(m, z[i])
            w[i] = m

    rng = cupy.random.default_rng(n)
    x, z = rng.integers(0, 1 << 50, n), rng.integers(-(1 << 31), 1 << 30, n).astype("int32")
    y, w = cupy.zeros_like(x), cupy.zeros_like(z)
    omp.target_loop(summed)(x, z, y, w)
    assert bool((y == (1 << 40) + x - cupy.cumsum(x)).all())
    assert np.array_equal(w.get(), np.maximum.accumulate(z.get()))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sums_of_floats(dtype):
    """With permission they are close to the exact sums, and the same in every run."""
    x = cupy.random.default_rng(1).random(3_000_000, dtype=dtype)
    loop, found = omp.target_loop(inclusive, reassociate=True), []
    for _ in range(20):
        y = cupy.zeros_like(x)
        loop(x, y)
        found.append(y)
    assert all(bool((one == found[0]).all()) for one in found)
    assert bool(cupy.allclose(found[0], cupy.cumsum(x, dtype="float64"), rtol=1e-4 if dtype == "float32" else 1e-10))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__name__)
def test_recurrences(function):
    """Sums before and after, in place, of rows, of two scalars."""
    assert both(omp.target_loop(function), function, *FUNCTIONS[function])


@pytest.mark.parametrize(
    ("function", "clauses"), [(packed, {"lastprivate": ["k"]}), (with_sum, {"reduction": {"+": ["t"]}})]
)
def test_scans_with_other_clauses(function, clauses):
    """Elements are packed, and a reduction is computed besides; also by few blocks, each of which has several tiles."""
    x = np.random.default_rng(8).integers(0, 9, 200_000)
    for shape in ({}, {"num_teams": 3}):
        loop = omp.target_loop(function, independent=True, **clauses, **shape)
        assert both(loop, function, x, np.zeros_like(x))


@pytest.mark.parametrize("seed", range(40))
def test_generated_programs(seed):
    """Recurrences in parallel, and any other in order, in one thread."""
    program = carried(seed, is_recurrence=seed % 2 == 0)
    order = {} if seed % 2 == 0 else {"seq": True}
    agrees(program, lambda f, arguments: omp.target_loop(f, lastprivate=program.last, **order)(**arguments))


def test_one_thread_in_order():
    """A recurrence that is no scan."""
    x = np.random.default_rng(2).random(20_000)
    assert both(omp.target_loop(smoothed, seq=True), smoothed, x, np.zeros_like(x))


def test_a_replay_starts_anew():
    """What tiles publish is cleared in each replay of a captured region."""
    x, y = (np.zeros(100_000, np.int64) for _ in range(2))
    loop = omp.target_loop(inclusive, nowait=True)
    with omp.target_data(map=[omp.to(x), omp.to(y)]):

        @omp.taskgraph
        def region():
            loop.options(depend=[omp.inout("y")])(x, y)

        for step in range(4):
            x[:] = np.arange(100_000) % 7 + step
            omp.target_update(to=[x])
            region()
            omp.target_update(from_=[y])
            assert np.array_equal(y, x.cumsum())


def test_a_failure_leaves_the_device_alive():
    """An index out of range is the task's error, and no block waits for ever."""

    def gathered(p, x, y):
        s = 0
        for i in range(p.size):
            s += x[p[i]]
            y[i] = s

    p, x, y = np.arange(100_000), np.ones(100_000, np.int64), np.zeros(100_000, np.int64)
    p[50_000] = 1 << 40
    with pytest.raises(IndexError, match="i=50000"):
        omp.target_loop(gathered)(p, x, y)
    assert np.array_equal(y[:50_000], np.arange(1, 50_001))
    assert both(omp.target_loop(in_place), in_place, x)
