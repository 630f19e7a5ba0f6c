"""`taskloop` and reductions over tasks: OpenMP_VV, 4.5 to 5.1."""

from __future__ import annotations

import itertools
import os
import threading

import numpy as np
import pytest

import offload as omp

N = 1024


@pytest.fixture
def env(request):
    """The environment, with ``OMP_CANCELLATION`` where a test says what it is."""
    value = getattr(request, "param", None)
    return None if value is None else {**os.environ, "OMP_CANCELLATION": value}


def test_taskloop_lastprivate(streams):
    """4.5/taskloop/test_taskloop_lastprivate.c: the value of the sequentially last iteration survives; the task
    that has the last element of the range stores it."""
    a, b, last = np.arange(N), np.zeros(N, int), []

    def body(part):
        assert omp.is_initial_device()
        private = None
        for i in part:
            private = int(a[i])
            b[i] = private
        if part[-1] == N - 1:
            last.append(private)

    streams.go()
    omp.taskloop(range(N), body)
    assert (b == a).all()
    assert last == [N - 1]


def test_taskloop_shared(streams):
    """4.5/taskloop/test_taskloop_shared.c: a shared sum under mutual exclusion equals the sequential one, and is
    complete at the next statement."""
    a = np.random.default_rng(45).integers(0, 100, N)
    total, lock = [0], threading.Lock()

    def body(part):
        assert omp.is_initial_device()
        for i in part:
            with lock:
                total[0] += a[i]

    streams.go()
    omp.taskloop(range(N), body)
    assert total[0] == a.sum()


def test_taskloop_collapse(streams):
    """4.5/taskloop/test_taskloop_collapse.c: two loops as one: every pair of iterations once, all before the next
    statement."""
    n, m = 64, 16
    a, b = np.random.default_rng(46).random((2, n, m))
    expected = a + b

    def body(part):
        assert omp.is_initial_device()
        for i, j in part:
            a[i, j] += b[i, j]

    streams.go()
    omp.taskloop(itertools.product(range(n), range(m)), body, grainsize=100)
    assert (a == expected).all()


def test_task_in_reduction(streams):
    """5.0/task/test_task_in_reduction.c: explicit tasks take part in a reduction of the construct around them,
    which adds what they have and what its own tasks have."""
    total = np.zeros((), int)

    @omp.task(in_reduction={"+": ["part"]})
    def inner(value, part):
        assert omp.is_initial_device()
        assert part is not total
        part += value

    def outer(values, part):
        part += 1
        for value in values:
            inner.options(in_reduction={"+": [part]})(value, part)

    streams.go()
    omp.taskloop(range(N), outer, num_tasks=10, reduction={"+": [total]})
    assert total == 10 + sum(range(N))


def test_taskgroup_task_reduction(streams):
    """5.0/taskgroup/test_taskgroup_task_reduction.c: right after the taskgroup, the sum over the tasks generated in it
    equals the sequential one."""
    total = np.array(7)

    @omp.task(in_reduction={"+": [total]})
    def body(i, part):
        assert omp.is_initial_device()
        part += i

    streams.go()
    with omp.taskgroup(task_reduction={"+": [total]}):
        for i in range(N):
            body(i, total)
    assert total == 7 + sum(range(N))


@pytest.mark.parametrize("env", ["true", "false", None], indirect=True)
def test_omp_cancellation_env_true(streams, env):
    """5.0/taskloop/test_omp_cancellation_env_true.c: with OMP_CANCELLATION, cancel taskgroup inside of a taskloop
    leaves less than the full sum; without, it is ignored."""
    a, total = np.ones(N, int), np.zeros((), int)

    def body(part, total):
        assert omp.is_initial_device()
        for i in part:
            if i >= N // 2:
                omp.cancel("taskgroup")
            total += a[i]

    streams.go()
    omp.taskloop(range(N), body, grainsize=1, reduction={"+": [total]})
    is_on = env is not None and env["OMP_CANCELLATION"] == "true"
    assert total <= N // 2 if is_on else total == N


@pytest.mark.parametrize("grainsize", [1, 100, N - 1, N, 2 * N])
def test_taskloop_grainsize_strict(streams, grainsize):
    """5.1/taskloop/test_taskloop_grainsize_strict.c: a strict grainsize loses no iteration, and each task but the
    last has exactly as many."""
    total, sizes = np.zeros((), int), []

    def body(part, total):
        assert omp.is_initial_device()
        sizes.append((part.start, len(part)))
        total += len(part)

    streams.go()
    omp.taskloop(range(N), body, grainsize=grainsize, strict=True, reduction={"+": [total]})
    assert total == N
    assert all(size == grainsize for _, size in sorted(sizes)[:-1])


@pytest.mark.parametrize("num_tasks", [1, 100, N - 1, N, 2 * N])
def test_taskloop_numtask_strict(streams, num_tasks):
    """5.1/taskloop/test_taskloop_numtask_strict.c: a strict number of tasks loses no iteration, and is exact unless
    there are fewer iterations."""
    total, sizes = np.zeros((), int), []

    def body(part, total):
        assert omp.is_initial_device()
        sizes.append((part.start, len(part)))
        total += len(part)

    streams.go()
    omp.taskloop(range(N), body, num_tasks=num_tasks, strict=True, reduction={"+": [total]})
    assert total == N
    assert len(sizes) == min(num_tasks, N)
    assert {size for _, size in sizes} <= {N // len(sizes), -(-N // len(sizes))}
