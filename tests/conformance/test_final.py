"""`final`, included tasks, `priority`, and where a body runs: OpenMP 5.2, 12.3, 12.4; OpenMP_VV group I."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, inout, out, to

N = 8
X = ("x",)


def nothing(*arrays):
    pass


# -- final --------------------------------------------------------------------------------------------
def test_final_tasks_run_in_order_on_the_encountering_thread(streams, gates):
    """A final task, and all that is generated in it, run at once, depth first, on the thread that encounters them."""
    log, threads = [], set()
    streams.go()

    def body(name, depth=0):
        threads.add(threading.get_ident())
        assert omp.in_final()
        assert omp.in_explicit_task()
        log.append(name)
        if depth:
            for number in range(2):
                task = omp.task(final=False)(body)(f"{name}{number}", depth - 1)
                assert task.done()
        log.append(f"-{name}")

    assert not omp.in_final()
    task = omp.task(final=True)(body)("a", 2)
    assert task.done()
    assert not omp.in_final()
    assert threads == {threading.get_ident()}
    order = ["a", "a0", "a00", "-a00", "a01", "-a01", "-a0", "a1", "a10", "-a10", "a11", "-a11", "-a1", "-a"]
    assert log == order


def test_final_false(streams):
    """`final=False` is no final task; what it generates is deferred."""
    streams.go()
    found = []

    def body():
        found.append(omp.in_final())

    omp.task(final=False)(body)()
    omp.taskwait()
    assert found == [False]


def test_regions_in_a_final_task_are_included(streams):
    """Regions, entries, updates, exits, copies and edges with nowait in a final task are complete when they return."""
    a, b, done = np.zeros(N), np.zeros(N), {}
    streams.go()

    def body():
        d = omp.target_alloc(N, np.float64)
        tasks = {
            "target": omp.target(nowait=True)(lambda a: a.fill(1))(a),
            "enter": omp.target_enter_data(map=[to(b)], nowait=True),
        }
        omp.target(nowait=True)(lambda b: b.fill(2))(b)
        tasks["update"] = omp.target_update(from_=[b], nowait=True)
        tasks["copy"] = omp.target_memcpy_async(d, b)
        tasks["fill"] = omp.target_memset_async(d, 0)
        tasks["edges"] = omp.taskwait(depend=[in_(X)], nowait=True)
        tasks["exit"] = omp.target_exit_data(map=[from_(b)], nowait=True)
        done.update((name, task.done()) for name, task in tasks.items())
        omp.taskwait()
        omp.target_free(d)

    omp.task(final=True)(body)()
    assert (a == 1).all()
    assert (b == 2).all()
    assert done == dict.fromkeys(("target", "enter", "update", "copy", "fill", "edges", "exit"), True)


def test_final_tasks_follow_their_predecessors(alone):
    """A final task waits for the siblings that it depends on, and those after it follow it."""
    log = []
    alone.go()
    omp.task(depend=[out(X)])(lambda: log.append(1))()
    omp.task(depend=[inout(X)], final=True)(lambda: log.append(2))()
    assert log == [1, 2]

    def body():
        for number in (3, 4, 5):
            omp.task(depend=[inout(X)])(log.append)(number)
        assert log == [1, 2, 3, 4, 5]

    omp.task(final=True)(body)()
    assert log == [1, 2, 3, 4, 5]


def test_detach_in_a_final_task(streams):
    """A detachable task generated in a final one is a ClauseError, and takes no event; a final task may be detached
    itself, and is left when its body has run."""
    event, errors = omp.Event(), []
    streams.go()

    def body():
        try:
            omp.task(detach=event)(nothing)()
        except omp.ClauseError as error:
            errors.append(error)

    try:
        omp.task(final=True)(body)()
        assert len(errors) == 1
        task = omp.task(detach=event, final=True)(nothing)()
        assert task.state == "detached"
    finally:
        event.fulfill()
    omp.taskwait()
    assert task.done()


def test_failures_of_included_tasks(streams):
    """An included task that fails raises where it is encountered, as every synchronous construct does."""
    streams.go()
    caught = []

    def body():
        try:
            omp.task(lambda: 1 / 0)()
        except ZeroDivisionError as error:
            caught.append(error)

    omp.task(final=True)(body)()
    assert len(caught) == 1
    with pytest.raises(KeyError):
        omp.task(final=True)(lambda: {}[0])()
    omp.taskwait()


def test_in_explicit_task(streams):
    """5.2/runtime_calls/test_omp_in_explicit_task.c: true in an explicit task, nested ones too, false outside."""
    streams.go()
    assert not omp.in_explicit_task()
    found = []

    def body():
        found.append(omp.in_explicit_task())
        found.append(omp.task(omp.in_explicit_task)().result())

    omp.task(body)()
    omp.taskwait()
    omp.task(if_=False)(body)()
    assert found == [True] * 4
    assert not omp.in_explicit_task()


# -- priority -----------------------------------------------------------------------------------------
PRIORITIES = (0, 5, 42, 1, 100, 5, 0, 7)


@pytest.fixture(params=[0, 1])
def held(request, devices):
    """Give a function that makes a runtime whose only thread is held until what is generated may run.

    Without workers that is the calling thread, which runs nothing before it waits.
    """

    def run(env, generate):
        with omp.Runtime(devices, num_threads=request.param, env={**os.environ, **env}, check=True):
            begun, goes_on = threading.Event(), threading.Event()

            def latch():
                begun.set()
                assert goes_on.wait(60)

            if request.param:
                omp.task(latch)()
                assert begun.wait(60)
            try:
                tasks = generate()
            finally:
                goes_on.set()
            if request.param:
                for task in tasks:
                    task.result(timeout=60)  # with a timeout this thread runs nothing
            omp.taskwait()

    return run


def test_priority(held):
    """Of ready tasks those of higher priority begin first, up to OMP_MAX_TASK_PRIORITY; equal ones in any order."""
    log = []

    def generate():
        assert omp.get_max_task_priority() == 42
        return [omp.task(priority=priority)(log.append)(min(priority, 42)) for priority in PRIORITIES]

    held({"OMP_MAX_TASK_PRIORITY": "42"}, generate)
    assert log == [42, 42, 7, 5, 5, 1, 0, 0]


def test_priority_of_what_becomes_ready(held):
    """Tasks that one predecessor makes ready begin by priority too, and before waiting ones of a lower one."""
    log = []

    def generate():
        omp.task(priority=9, depend=[out(X)])(lambda: log.append("first"))()
        tasks = [omp.task(priority=n, depend=[in_(X)])(log.append)(n) for n in (1, 8, 3)]
        return [*tasks, omp.task(priority=2)(log.append)(2)]

    held({"OMP_MAX_TASK_PRIORITY": "9"}, generate)
    assert log == ["first", 8, 3, 2, 1]


def test_priority_of_regions(held):
    """Regions have priorities as other tasks do: their bodies on the host begin by them, also among host tasks."""
    log = []

    def generate():
        return [
            omp.task(priority=priority)(log.append)(priority)
            if priority % 2
            else omp.target(nowait=True, if_=False, priority=priority)(log.append)(priority)
            for priority in (0, 3, 1, 4, 2)
        ]

    held({"OMP_MAX_TASK_PRIORITY": "9"}, generate)
    assert log == [4, 3, 2, 1, 0]


def test_priority_of_regions_on_a_device(held):
    """Regions that one host task makes ready are launched by priority."""
    log = []

    def generate():
        omp.task(depend=[out(X)])(nothing)()
        region = omp.target(nowait=True, depend=[in_(X)])(log.append)
        return [region.options(priority=priority)(priority) for priority in (0, 3, 1, 4, 2)]

    held({"OMP_MAX_TASK_PRIORITY": "9"}, generate)
    assert log == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("env", [{}, {"OMP_MAX_TASK_PRIORITY": "0"}], ids=["unset", "zero"])
def test_priority_is_ignored_by_default(held, env):
    """Without OMP_MAX_TASK_PRIORITY the clause says nothing: the tasks begin as they do without it."""
    orders = []
    for priorities in (PRIORITIES, (0,) * len(PRIORITIES)):
        log = []

        def generate(log=log, priorities=priorities):
            assert omp.get_max_task_priority() == 0
            return [omp.task(priority=priority)(log.append)(n) for n, priority in enumerate(priorities)]

        held(env, generate)
        orders.append(log)
    assert orders[0] == orders[1]


@pytest.mark.parametrize("value", [-1, 1.5, "high", None])
def test_priority_is_a_number(runtime, value):
    """A priority is an int of at least 0."""
    with pytest.raises(omp.ClauseError):
        omp.task(priority=value)(nothing)
    with pytest.raises(omp.ClauseError):
        omp.target(priority=value)(nothing)


def test_priority_never_overrides_dependences(streams):
    """A high priority does not get a task past its predecessor."""
    log = []
    for number in range(20):
        omp.task(priority=number, depend=[inout(X)])(log.append)(number)
    streams.go()
    omp.taskwait()
    assert log == list(range(20))
