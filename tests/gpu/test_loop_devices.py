"""One loop on several CUDA devices, which are one GPU here: rows, generated kernels, results, errors, times."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from benchmarks.loops.devices import run_once
from offload import acc
from tests.conftest import checked
from tests.gpu.conftest import cupy
from tests.loops.device_kernels import check
from tests.loops.programs import PERMUTED
from tests.loops.test_devices import run
from tests.loops.test_filter import ROWS

pytestmark = pytest.mark.gpu

if cupy is not None:
    import tests.gpu.twins  # noqa: F401  # registers the kind


@pytest.fixture(params=["twin:2", "twin:3"])
def twins(request):
    """A current runtime with several devices on one GPU."""
    with checked(request.param) as runtime:
        yield runtime


@pytest.mark.parametrize("exchange", ["lazy", "eager"])
@pytest.mark.parametrize("number", ROWS)
def test_rows(twins, number, exchange):
    """Every row of the table of loops, by equal and by other cuts, has CPython's values."""
    row, n_devices = ROWS[number], len(twins.places)
    filter_ = "always" if row.mode != "single" else "auto"
    for weights in ((1,) * n_devices, (2, *[0] * (n_devices - 2), 1)):
        run(row, row.clauses, weights, exchange=exchange, filter=filter_)


@PERMUTED
def test_generated_kernels(twins):
    """So have kernels that are generated."""
    for seed in range(12):
        check(seed, len(twins.places))


@omp.target_loop(devices="all", filter="always", reduction={"+": ["s"], "max": ["m"]}, lastprivate=["last"])
def sums(x):
    s = 1.0
    m = -1.0
    last = 0.0
    for i in range(x.size):
        s += x[i]
        m = max(m, x[i])
        last = x[i]
    return s, m, last


def test_partial_results_are_combined(twins):
    """Of many blocks on all devices, the same in each run; the last iteration's value comes from the last device."""
    x = np.random.default_rng(1).integers(0, 1000, 1_000_000).astype(float)
    assert sums(x) == (1 + x.sum(), x.max(), x[-1])
    y = np.random.default_rng(1).random(100_000)
    assert sums(y) == sums(y)


@omp.target_loop(devices="all", filter="always", reduction={"+": ["s"]})
def into(x, s):
    for i in range(x.size):
        s[0] += x[i]


def test_a_result_in_place(twins):
    """An array of one element gets what all devices have found."""
    x, s = np.arange(100_000.0), np.ones(1)
    into(x, s)
    assert s[0] == 1 + x.sum()


@omp.target_loop(devices="all", filter="always")
def scatter(p, x, y):
    for i in range(x.size):
        y[p[i]] = x[i]


def test_an_error_names_its_device(twins):
    """An index out of range belongs to the last device; the context is alive afterwards."""
    p = np.arange(1000)
    p[3] = 5000
    with pytest.raises(IndexError) as failed:
        scatter(p, np.ones(1000), np.zeros(1000))
    assert f"device {len(twins.places) - 1}" in "\n".join(failed.value.__notes__)
    p[3], y = 3, np.zeros(1000)
    scatter(p, np.ones(1000), y)
    assert y.all()


def test_ways_are_timed(twins):
    """In the first calls each way is timed by events, and one of them stays."""
    x, y, p = np.ones(1 << 20), np.zeros(1 << 20), np.arange(1 << 20)
    loop = scatter.options(filter="auto")
    with omp.target_data(map=[omp.tofrom(one) for one in (p, x, y)], devices="all"):
        for _ in range(20):
            loop(p, x, y)
        assert "took" in loop.explain(p, x, y).to_dict()["filter"]["why"]
    assert y.all()


@acc.parallel_loop(collapse=2, async_=1)
def smooth(a, b):
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


@pytest.mark.parametrize("devices", ["twin:2", "cuda:0,cuda:1"])
def test_openacc_alone(devices):
    """A program in OpenACC's words uses all devices by a variable, and leaves what it leaves on one."""
    if devices.startswith("cuda") and cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    results, took_part = [], []
    for env in ({}, {"OFFLOAD_LOOP_DEVICES": "all"}):
        a, b = np.random.default_rng(1).random((2, 5000, 5000))  # long enough for a trial of two devices
        with checked(devices, env=env), acc.data(copy=[a, b]):
            tasks = [smooth(*pair) for _ in range(10) for pair in ((a, b), (b, a))]
            acc.update(self_=[a], async_=1)
            acc.wait(1)
            took_part.append({number for task in tasks for number in task.device_nums})
            halfway = a.copy()
        results.append((halfway, a, b))
    assert took_part == [set(), {0, 1}]
    for one, several in zip(*results, strict=True):
        assert (one == several).all()


@omp.target_loop
def plus_one(y):
    for i in range(y.size):
        y[i] += 1


def test_what_is_timed_has_been_filled(gpu, latch):
    """A benchmark's call in a body follows what the program's own stream still has to do for its arrays."""
    y = cupy.zeros(8)
    run_once(lambda: plus_one(y), (y,))  # CUDA loads code when it is first used
    started = threading.Event()

    def call():
        plus_one(y)
        started.set()

    latch.hold(cupy.cuda.get_current_stream())
    y.fill(2)
    thread = threading.Thread(target=run_once, args=(call, (y,)))
    thread.start()
    assert started.wait(20)
    latch.release()
    thread.join(20)
    assert (y.get() == 3).all()
