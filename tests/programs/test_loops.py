"""Loops among all else that a program does: many in flight, threads, graphs, seeds, processes, Ctrl-C."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out, to, tofrom
from tests.conftest import checked

CONSTRUCTS = (omp.target_loop, omp.parallel_loop)


def gather(p, x, y):
    for i in range(p.size):
        y[i] = x[p[i]]


def double(y):
    for i in range(y.size):
        y[i] *= 2


def update(p, y):
    for i in range(p.size):
        y[p[i]] += i


def total(x):
    s = 0.0
    for i in range(x.size):
        s += x[i]
    return s


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_of_a_thousand_calls_in_flight_those_fail_that_are_wrong(sim, construct):
    """Of many deferred calls exactly those with an index out of range raise IndexError; the others have run."""
    loop = construct(gather, nowait=True)
    x, wrong = np.arange(10.0), {3, 500, 998}
    calls = []
    for number in range(1000):
        p, y = np.arange(10), np.zeros(10)
        if number in wrong:
            p[4] = 10
        calls.append((loop(p, x, y), y))
    failed = set()
    for number, (task, y) in enumerate(calls):
        try:
            task.result()
        except IndexError:
            failed.add(number)
        else:
            assert (y == x).all()
    assert failed == wrong


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_what_depends_on_a_failed_loop_does_not_run(sim, construct):
    """A host task behind a loop that fails is a DependError, and the loop's error can be pickled."""
    y = np.zeros(2)
    loop = construct(gather, nowait=True, depend=[out("y")])(np.array([0, 99]), np.arange(3.0), y)
    behind = omp.task(depend=[in_(y)])(y.sum)()
    with pytest.raises(omp.DependError):
        behind.result()
    with pytest.raises(IndexError, match="i=1") as caught:
        loop.result()
    copied = pickle.loads(pickle.dumps(caught.value))
    assert type(copied) is IndexError
    assert copied.args == caught.value.args


def test_the_errors_of_loops_can_be_pickled(sim):
    """A LoopError keeps its fields."""
    with pytest.raises(omp.LoopError) as caught:
        omp.parallel_loop(double)(None)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (copied.file, copied.line, copied.rule) == (caught.value.file, caught.value.line, caught.value.rule)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_threads_that_call_one_loop_have_their_own_errors(sim, construct):
    """Threads call one loop function at once: each call has its own result, or its own error."""
    loop = construct(gather)
    unexpected = []

    def work(shift):
        for number in range(40):
            p, y = np.arange(100), np.zeros(100)
            is_wrong = (number + shift) % 3 == 0
            if is_wrong:
                p[number] = 100
            try:
                loop(p, np.arange(100.0), y)
            except IndexError:
                if not is_wrong:
                    unexpected.append((shift, number))
            else:
                if is_wrong or (y != p).any():
                    unexpected.append((shift, number))

    threads = [threading.Thread(target=work, args=(shift,)) for shift in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not unexpected


def test_loops_in_a_target_body(sim):
    """Several loops in one body run in its order, and their results are device arrays; an error is the region's."""
    gathered, doubled = omp.target_loop(gather), omp.target_loop(double)
    summed = omp.target_loop(total, reduction={"+": ["s"]})

    @omp.target(map=[to("p", "x"), tofrom("y", "s")])
    def body(p, x, y, s):
        gathered(p, x, y)
        doubled(y)
        s[...] = summed(y)

    p, x, y, s = np.array([2, -1, 0]), np.arange(3.0), np.zeros(3), np.zeros(())
    body(p, x, y, s)
    assert y.tolist() == [4, 4, 0]
    assert s == 8
    with pytest.raises(IndexError, match="i=1"):
        body(np.array([0, 7, 1]), x, y, s)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_a_recorded_loop_reads_what_arrays_hold_then(sim, construct):
    """A replayed loop has the arrays' contents of the replay, fails by them, and runs again after a failure."""
    x, y, p = np.arange(5.0), np.zeros(5), np.arange(5)
    gathered, doubled = (construct(f, nowait=True, depend=[inout("y")]) for f in (gather, double))

    @omp.taskgraph
    def graph():
        gathered(p, x, y)
        doubled(y)

    for shift in range(4):
        p[:] = np.roll(np.arange(5), shift)
        graph()
        omp.taskwait()
        assert (y == 2 * np.roll(x, shift)).all()
    p[2] = 9
    with pytest.raises(ExceptionGroup) as caught:
        graph()
    assert caught.group_contains(IndexError)
    p[2] = 0
    graph()
    omp.taskwait()
    assert y[2] == 0


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_iterations_does_not_matter(seed):
    """With a seed, iterations on a simulated device run in another order, and results stay as they are."""
    values = np.random.default_rng(seed)
    p, x = values.permutation(500), values.integers(0, 100, 1000).astype(float)
    with checked("sim:1", seed=seed):
        for construct in CONSTRUCTS:
            y = np.zeros(500)
            construct(update, independent=True)(p, y)
            assert (y[p] == np.arange(500)).all()
            assert construct(total, reduction={"+": ["s"]})(x) == x.sum()


PROGRAM = """
import math, os, signal, sys, threading
import numpy as np
sys.path.insert(0, {tests!r})
import offload as omp

def long(x, n):
    for i in range(x.size):
        s = 0.0
        for j in range(n):
            s += math.sin(s + j)
        x[i] = s

signal.signal(signal.SIGINT, signal.default_int_handler)
with omp.Runtime("sim:1"):
    loops = [construct(long) for construct in (omp.parallel_loop, omp.target_loop)]
    for loop in loops:
        loop(np.zeros(8), 2)
    {body}
print("end", flush=True)
"""

INTERRUPTED = """
    for loop in loops:
        try:
            threading.Timer(0.1, lambda: signal.raise_signal(signal.SIGINT)).start()
            while True:
                loop(np.zeros(64), 1000)
        except KeyboardInterrupt:
            y = np.zeros(8)
            loop(y, 1)
            assert (y == 0).all() and not math.isnan(y[0])
            print("interrupted", flush=True)
"""

FORKED = """
    pid = os.fork()
    if not pid:
        signal.alarm(30)
        with omp.Runtime("sim:1"):
            for loop in loops:
                y = np.zeros(200)
                loop(y, 200)
                assert y.all()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    for loop in loops:
        loop(np.zeros(200), 200)
"""


def python(tmp_path, body, **env):
    """Run a program in a process of its own, and return what it printed."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(tests=str(Path(omp.__file__).parents[1]), body=body.strip()))
    done = subprocess.run(
        [sys.executable, "-Wignore", str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("env", [{}, {"OFFLOAD_CC": "none"}], ids=str)
def test_an_interrupt_arrives_when_the_loop_at_hand_has_run(tmp_path, env):
    """Ctrl-C ends a program's loops with KeyboardInterrupt, and leaves a runtime that runs loops."""
    assert python(tmp_path, INTERRUPTED, **env) == ["interrupted", "interrupted", "end"]


def test_a_forked_child_runs_loops_of_its_own(tmp_path):
    """A child that is forked after a loop runs loops in a runtime of its own, and so does the parent further on."""
    assert python(tmp_path, FORKED) == ["end"]
