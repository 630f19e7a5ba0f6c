"""The exchange log on the GPU: every row of the table, 10**8 random accesses, and what logs cost there."""

from __future__ import annotations

import statistics
from unittest import mock

import numpy as np
import pytest

import offload as omp
from offload.loops.speculative.log_runs import LoggedRun
from offload.loops.speculative.race import alone
from tests.conftest import checked
from tests.gpu.conftest import cupy
from tests.loops.speculation import VECTORS, noted, quiet

pytestmark = pytest.mark.gpu

N = 10**8


def scattered(p, x, y):
    for i in range(p.size):
        y[p[i]] = x[i]


def updated(p, x, y):
    for i in range(p.size):
        y[p[i]] = 0.5 * y[p[i]] + x[i]


def swapped(p, q, y):
    for i in range(p.size):
        y[p[i]] = y[q[i]] + 1.0


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_every_row(vector):
    """A log says of each loop what the table says, and results are the serial ones; twice, with words that are kept."""
    function = vector.function()
    loop = omp.target_loop(function, speculate="always")
    expected = vector.values()
    function(*expected)
    with checked("cuda:0"), noted() as found:
        for _ in range(3):
            arguments = vector.values()
            loop(*arguments)
            for got, right in zip(arguments, expected, strict=True):
                assert np.array_equal(got, right)
    assert [one is None for one in found] == 3 * [vector.is_parallel]


@pytest.mark.parametrize("loop", [scattered, updated])
@pytest.mark.parametrize("n_collisions", [0, 1, N // 1000, N])
def test_a_hundred_million_accesses(loop, n_collisions):
    """Of 10**8 accesses at random no collision is missed, and none invented, be there one pair of them or all."""
    p = cupy.random.permutation(N).astype(cupy.int32)
    if n_collisions == N:
        p = cupy.random.randint(0, N // 8, N).astype(cupy.int32)
    elif n_collisions:
        at = cupy.random.permutation(N)[: 2 * n_collisions]
        p[at[:n_collisions]] = p[at[n_collisions:]]
    x, y = cupy.arange(N, dtype=cupy.float32), cupy.zeros(N, cupy.float32)
    answers = []

    def close(run, of=LoggedRun.close):
        answers.append(run.found())
        of(run)

    with checked("cuda:0"), mock.patch.object(LoggedRun, "close", close), quiet(), alone():
        omp.target_loop(loop, speculate="always")(p, x, y)
    assert [one is None for one in answers] == [not n_collisions]
    if not n_collisions:
        assert bool((y[p] == x).all())


@pytest.mark.parametrize("collides", [False, True])
def test_reads_of_others_are_found(collides):
    """A read of what another iteration writes is found by the pass, one pair of 10**8; reads of nobody's are not."""
    half = N // 2
    places = cupy.random.permutation(N).astype(cupy.int32)
    p, q = places[:half].copy(), places[half:].copy()
    if collides:
        q[half // 3] = p[half // 2]
    y = cupy.zeros(N, cupy.float32)
    with checked("cuda:0"), noted() as found:
        omp.target_loop(swapped, speculate="always")(p, q, y)
    assert [one is None for one in found] == [not collides]


def _stamped(of, stamps):
    """Return a method of a run that notes when the device begins and ends with what it enqueues."""

    def call(run, *args):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(run._stream)
        of(run, *args)
        end.record(run._stream)
        stamps.append((begin, end))

    return call


def _device_times(loop, p, x, y, n=9):
    """Return times of the logged launch with its pass, and of the plain loop, on the device, in ms."""
    stamps, ends, times, plain = [], [], [], []
    logged, asserted = omp.target_loop(loop, speculate="always"), omp.target_loop(loop, independent=True)

    @omp.target
    def body(p, x, y):
        ends[:] = cupy.cuda.Event(), cupy.cuda.Event()
        ends[0].record(omp.current_stream())
        asserted(p, x, y)
        ends[1].record(omp.current_stream())

    methods = {name: _stamped(getattr(LoggedRun, name), stamps) for name in ("launch", "finish")}
    with mock.patch.multiple(LoggedRun, **methods):
        for _ in range(n):
            stamps.clear()
            logged(p, x, y)
            cupy.cuda.Device().synchronize()
            times.append(sum(cupy.cuda.get_elapsed_time(*pair) for pair in stamps))
            body(p, x, y)
            cupy.cuda.Device().synchronize()
            plain.append(cupy.cuda.get_elapsed_time(*ends))
    return times[2:], plain[2:]


@pytest.mark.measures
@pytest.mark.parametrize("loop", [scattered, updated])
@pytest.mark.parametrize("order", ["permutation", "identity"])
def test_device_time(loop, order):
    """A bare loop with its log takes at most 2.2 times as long on the device as without."""
    n = 1 << 26
    p = cupy.random.permutation(n) if order == "permutation" else cupy.arange(n)
    x, y = cupy.ones(n), cupy.zeros(n)
    with checked("cuda:0"), alone():
        times, plain = _device_times(loop, p, x, y)
        assert bool((y > 0.9).all())  # each iteration has been carried out
    ratio = statistics.median(times) / statistics.median(plain)
    print(f"{loop.__name__} {order}: {ratio:.2f} x, {min(times) / min(plain):.2f} to {max(times) / min(plain):.2f}")
    assert ratio <= 2.2
