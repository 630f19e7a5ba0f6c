"""Functions with directive strings, whose regions run on the workers of a cluster."""

from __future__ import annotations

import os

import numpy as np
import pytest

import offload
from offload.pragma import acc, directives, omp

SCALE = 3.0
WEIGHTS = np.arange(6.0)


def helper(value):
    return 2 * value


@directives
def pipeline(x, y, n):
    """Have regions and tasks of several kinds, on two devices."""
    total, where = 0.0, []
    with omp("target data map(tofrom: x) device(0)"):
        for i in range(n):
            with omp("target nowait depend(inout: x) device(0)"):
                x += helper(i) * SCALE
        omp("taskwait")
    with omp("target nowait device(1) map(tofrom: y[2:3]) depend(inout: y)"):
        y[2:5] += 1
        y[-2] = 50
    with omp("task depend(inout: y) shared(total)"):
        total = float(y.sum())
    omp("taskwait")
    with omp("target map(to: x) map(tofrom: total) device(1)"):
        total += x.sum()
    with omp("target map(from: pid) device(1)"):
        pid = os.getpid()
    where.append(pid != os.getpid())
    with acc("parallel copyin(x) copy(y)"):
        y[:3] += x[:3]
    with omp("taskloop"):
        for i in range(n):
            x[i] += WEIGHTS[i]
    return total, where


@omp("target map(to: x) map(tofrom: y) nowait depend(inout: y) device(where)")
def saxpy(a, x, y, where):
    y += a * x
    return os.getpid()


@directives
def loops(x, y):
    """Have loops on the device of a worker."""
    total = 0.0
    with omp("target teams distribute parallel for device(1)"):
        for i in range(x.size):
            y[i] = 2 * x[i]
    with omp("target teams distribute parallel for reduction(+: total)"):
        for i in range(y.size):
            total += y[i]
    return total


def outcome(program, *arguments):
    found = program(*arguments)
    offload.taskwait()
    return found


def test_blocks_on_workers(on_workers):
    """The regions of blocks run in the processes of the workers, and leave what they leave on local devices."""
    x, y = np.zeros(6), np.ones(6)
    total, where = outcome(pipeline, x, y, 3)
    assert where == [True]
    expected_x = np.full(6, 2 * (0 + 1 + 2) * SCALE)
    expected_y = np.array([1.0, 1, 2, 2, 50, 1])
    assert total == expected_y.sum() + expected_x.sum()
    expected_y[:3] += expected_x[:3]
    expected_x[:3] += WEIGHTS[:3]
    assert x.tolist() == expected_x.tolist()
    assert y.tolist() == expected_y.tolist()


def test_functions_on_workers(on_workers):
    """A string over a function makes a region that runs on the worker which its clause names."""
    x, y = np.ones(5), np.zeros(5)
    tasks = [saxpy(float(k), x, y, k % 2) for k in range(4)]
    offload.taskwait()
    assert y.tolist() == [6] * 5
    pids = [task.result() for task in tasks]
    assert len(set(pids)) == 2
    assert os.getpid() not in pids


def test_loops_on_workers(on_workers):
    """A nest under a directive runs on a worker, and its result comes back."""
    x, y = np.arange(8.0), np.zeros(8)
    assert outcome(loops, x, y) == 56
    assert (y == 2 * x).all()


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_recorded_blocks_are_computed_by_dask(sim, scheduler):
    """A recorded graph of blocks runs through Dask."""

    @directives
    def program(x, log):
        with omp("target nowait map(tofrom: x) depend(inout: x)"):
            x += 1
        with omp("task depend(in: x)"):
            log.append(float(x[0]))

    x, log = np.zeros(3), []
    with offload.record(execute=False) as graph:
        program(x, log)
    assert log == []
    graph.compute(scheduler)
    assert log == [1]
    graph.compute(scheduler)
    assert log == [1, 2]


def test_functions_are_sent(client):
    """A function with blocks can be sent to a worker, whose own runtime runs it."""

    @directives
    def program(n):
        x = np.zeros(3)
        for i in range(n):
            with omp("target map(tofrom: x) depend(inout: x) nowait"):
                x += i
        omp("taskwait")
        return x.tolist(), os.getpid()

    found, pid = client.submit(program, 4, pure=False).result()
    assert found == [6, 6, 6]
    assert pid != os.getpid()
