"""Races on a GPU: generated loops, cupy arrays, Ctrl-C and nowait."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, tofrom
from offload.loops.speculative.competitor import running
from tests.conftest import checked
from tests.gpu.conftest import cupy
from tests.loops.test_race_rules import run

pytestmark = pytest.mark.gpu


@omp.target_loop(speculate="always")
def update(p, x, y):
    for i in range(p.size):
        y[p[i]] = 0.5 * y[p[i]] + x[i]


@omp.target_loop(speculate=True)
def hidden(p, q, x, y, w):
    for i in range(p.size):
        w[p[i]] = q[i]
        y[w[p[i]]] += x[i]


@pytest.mark.parametrize("seed", range(400, 412))
def test_what_is_left_is_what_the_serial_program_leaves(seed):
    """As on a simulated device."""
    run(seed, "cuda:0")


def inputs(n, *, collides):
    rng = np.random.default_rng(n)
    p = rng.permutation(n)
    if collides:
        p[n // 2] = p[n // 3]
    return p, rng.random(n), rng.random(n)


@pytest.mark.parametrize("collides", [False, True])
@pytest.mark.parametrize("n", [1000, 3_000_000])
def test_device_arrays_race(n, collides):
    """Arrays of CuPy's hold the serial result, whoever wins."""
    p, x, y = inputs(n, collides=collides)
    with checked("cuda:0"):
        given = [cupy.asarray(one) for one in (p, x, y)]
        for _ in range(3):
            update(*given)
            update.python(p, x, y) if n <= 1000 else serial(p, x, y)
        assert (given[2].get() == y).all()
    assert not running


def serial(p, x, y):
    """Do the same in NumPy, if no place comes more than twice."""
    before = y.copy()
    y[p] = 0.5 * before[p] + x
    order = np.argsort(p, kind="stable")
    again = order[1:][p[order[1:]] == p[order[:-1]]]  # the later ones
    for i in again:
        first = np.flatnonzero(p == p[i])[0]
        y[p[i]] = 0.5 * (0.5 * before[p[i]] + x[first]) + x[i]


def test_a_call_that_does_not_wait_returns_and_others_follow_it():
    """With nowait a race is run by a worker, and what depends on it comes after it."""
    p, x, y = inputs(500_000, collides=True)
    wanted = y.copy()
    serial(p, x, wanted)
    with checked("cuda:0", num_threads=2), omp.target_data(map=[tofrom(y)]):
        update.options(nowait=True, depend=[inout(y), in_(p)])(p, x, y)
        update.options(nowait=True, depend=[inout(y), in_(p)])(p, x, y)
        omp.taskwait()
        omp.target_update(from_=[y])
    serial(p, x, wanted)
    assert (y == wanted).all()


def test_a_loop_that_computes_its_addresses_races_and_is_remembered_as_wrong():
    """The device wins or loses; a collision is met, the result is right, and later calls run in order."""
    n = 200_000
    rng = np.random.default_rng(1)
    p, x, w = rng.permutation(n), rng.random(n), np.zeros(n, np.int64)
    with checked("cuda:0"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for call in range(8):
            q = rng.permutation(n)
            if call == 5:
                q[n // 2] = q[3]
            y = rng.random(n)
            wanted = y.copy()
            np.add.at(wanted, q, x)
            hidden(p, q, x, y, w)
            assert (y == wanted).all(), call
    assert sum(issubclass(one.category, omp.SpeculationWarning) for one in said) <= 1
