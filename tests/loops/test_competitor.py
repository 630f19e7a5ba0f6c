"""The serial program on a thread of its own: what it leaves, when it is given up, and that no thread is left."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload.loops.running.build import builder
from offload.loops.running.ordered_runs import ordered_runs
from offload.loops.speculative.competitor import Competitor, running
from tests.conftest import checked
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.skipif(builder.compiler is None, reason="there is no C compiler")


@omp.target_loop(seq=True)
def chain(y, p):
    for i in range(1, y.size):
        y[i] = y[i - 1] + p[p[i]] % 7


@omp.target_loop(seq=True, collapse=2)
def wide(y, p):
    for i in range(2):
        for j in range(y.size):
            for k in range(p.size):
                y[j] += k ^ i


@omp.target_loop(seq=True)
def deep(y, p):
    for i in range(2):
        for j in range(y.size):
            for k in range(p.size):
                for m in range(p.size):
                    y[j] += k ^ i ^ m


@omp.target_loop(seq=True)
def endless(y, p):
    for i in range(y.size):
        while p[i] < 3:
            y[i] += 1


def competitor(loop, *arrays):
    values = loop._program.bound(arrays, {})
    (run,) = ordered_runs(loop._program.specialise(values), values)
    return Competitor(run)


def n_threads():
    """Return how many threads of competitors stay: the system lists one for a moment after it has been joined."""
    until_s = time.monotonic() + PATIENCE_S
    while (n := n_listed()) and time.monotonic() < until_s:
        time.sleep(0.001)
    return n


def n_listed():
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # a thread that has just gone
            names.append(path.read_text().strip())
    return names.count("offload-serial")


def waited_for_a_write(y):
    """Wait until the first trip of the thread is under way."""
    until(y.any)


def waited(made):
    until(lambda: made.has_ended)
    made.join()


def test_it_leaves_what_the_serial_program_leaves():
    """All trips are done, in slices, and the thread is gone."""
    p = np.arange(300_000) % 1000
    y, expected = np.zeros(p.size, np.int64), np.zeros(p.size, np.int64)
    expected[1:] = np.cumsum(p[p[1:]] % 7)
    with checked("sim:1"):
        made = competitor(chain, y, p)
        assert made.start()
        waited(made)
        made.join()
        assert made.is_complete
        assert made.run.failure() is None
        assert made.whole_s > 0
        assert n_threads() == 0
    assert (y == expected).all()
    assert not running


def test_a_fault_ends_it():
    """What was wrong is the serial program's exception, and nothing behind it has been written."""
    p = np.arange(50_000)
    p[40_000] = 60_000
    y = np.zeros(p.size, np.int64)
    with checked("sim:1"):
        made = competitor(chain, y, p)
        assert made.start()
        waited(made)
    assert made.is_complete
    with pytest.raises(IndexError, match="i=40000"):
        raise made.run.failure()
    assert y[39_999] > 0
    assert (y[40_000:] == 0).all()


@pytest.mark.parametrize(("loop", "shape"), [(wide, (10**6, 10**6)), (deep, (3, 10**6)), (endless, (3, 3))])
def test_what_never_ends_is_given_up(loop, shape):
    """A trip that would take hours ends when nobody wants it any more."""
    y, p = (np.zeros(n, np.int64) for n in shape)
    with checked("sim:1"):
        made = competitor(loop, y, p)
        assert made.start()
        waited_for_a_write(y)
        assert not made.has_ended
        made.give_up()
        waited(made)
        assert not made.is_complete
        assert n_threads() == 0
    assert not running
