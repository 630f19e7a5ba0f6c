"""`Task.elapsed`: what a task's own work took."""

from __future__ import annotations

import asyncio
from time import perf_counter
from weakref import ref

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out, to, tofrom
from tests.conftest import checked
from tests.patience import until_gone


def stamped(stamps, fail=False):
    """Note when a body began and ended."""
    stamps.append(perf_counter())
    sum(range(1000))
    stamps.append(perf_counter())
    if fail:
        raise ArithmeticError("too hot")


# -- host tasks -------------------------------------------------------------------------------------------
def test_the_time_of_a_body(runtime):
    """It is at least what the body sees, and at most what its encounter and the wait for it take."""
    stamps = []
    began_s = perf_counter()
    task = omp.task(stamped)(stamps)
    task.result()
    took_s = perf_counter() - began_s
    assert type(task.elapsed) is float
    assert stamps[1] - stamps[0] <= task.elapsed <= took_s
    assert task.elapsed == task.elapsed


def test_waiting_for_dependences_does_not_count(runtime):
    """A task that waits for another has begun when that has ended, and not when it was generated."""
    first, last = [], []
    event = omp.Event()
    omp.task(lambda: None, detach=event, depend=[out(("x",))])()
    omp.task(stamped, depend=[inout(("x",))])(first)
    task = omp.task(stamped, depend=[in_(("x",))])(last)
    assert task.elapsed is None
    event.fulfill()
    task.result()
    assert last[1] - last[0] <= task.elapsed <= perf_counter() - first[1]


def test_detached_tasks_take_until_their_event(runtime):
    """With detach the time goes on until the event is fulfilled."""
    stamps, event = [], omp.Event()
    task = omp.task(stamped, detach=event)(stamps)
    while task.state != "detached":
        omp.taskyield()
    assert task.elapsed is None
    fulfilled_s = perf_counter()
    event.fulfill()
    task.result()
    assert fulfilled_s - stamps[0] <= task.elapsed


def test_coroutines_take_until_their_return(runtime):
    """The awaits of an async body are part of it."""
    stamps = []

    @omp.task
    async def body():
        stamps.append(perf_counter())
        await asyncio.sleep(0)
        stamps.append(perf_counter())

    task = body()
    task.result()
    assert stamps[1] - stamps[0] <= task.elapsed


def test_tasks_that_fail_or_do_not_run(runtime):
    """A task that failed took until then; one that did not run took nothing, which is None and not 0."""
    stamps = []
    failing = omp.task(stamped, depend=[out(("x",))])(stamps, fail=True)
    after = omp.task(stamped, depend=[in_(("x",))])([])
    assert isinstance(failing.exception(), ArithmeticError)
    assert stamps[1] - stamps[0] <= failing.elapsed
    assert isinstance(after.exception(), omp.DependError)
    assert (after.state, after.elapsed) == ("not run", None)


def test_discarded_tasks():
    """A task that a cancellation has discarded has no time."""
    with checked("none", num_threads=0, env={"OMP_CANCELLATION": "true"}), omp.taskgroup():
        task = omp.task(stamped)([])
        omp.cancel("taskgroup")
    assert (task.state, task.elapsed) == ("cancelled", None)


def test_all_ways_to_generate(runtime):
    """Tasks of taskloop, in taskgroups, in tasks, final and with priorities are timed alike."""
    inner = []
    with omp.taskgroup():
        tasks = omp.taskloop(range(8), list, nogroup=True)
        tasks.append(omp.task(lambda: inner.append(omp.task(stamped)([])))())
        tasks.append(omp.task(stamped, final=True)([]))
        tasks.append(omp.task(stamped, if_=False)([]))
        tasks.append(omp.task(stamped, priority=3, name="named")([]))
    omp.taskwait()
    assert len(tasks) >= 5
    assert all(task.elapsed > 0 for task in (*tasks, *inner))


# -- device work ------------------------------------------------------------------------------------------
def test_device_tasks(runtime):
    """A chain of regions, copies and fills: each took something, and all together at most what the program took."""
    x, d = np.zeros(1000), omp.target_alloc(1000, np.float64)
    add = omp.target(lambda a: a.__iadd__(1.0) is None, nowait=True)
    mapped = omp.target(lambda x: x.__iadd__(1.0) is None, map=[tofrom("x")], nowait=True)
    began_s = perf_counter()
    tasks = [omp.copy(d, x, depend=[in_(x), out(d)], nowait=True)]
    tasks += [add.options(depend=[inout(d)])(d) for _ in range(5)]
    tasks.append(omp.target_memcpy_async(x, d, depend=[in_(d), out(x)]))
    tasks += [mapped.options(depend=[inout(x)])(x) for _ in range(3)]
    tasks.append(omp.target_enter_data([to(x)], depend=[inout(x)], nowait=True))
    tasks.append(omp.target_exit_data([omp.from_(x)], depend=[inout(x)], nowait=True))
    omp.taskwait()
    took_s = perf_counter() - began_s
    assert (x == 8).all()
    assert all(task.elapsed > 0 for task in tasks)
    assert sum(task.elapsed for task in tasks) <= took_s
    omp.target_free(d)


def test_work_behind_other_work_begins_when_that_has_ended(runtime):
    """What waits on its stream takes nothing of that wait, though it was launched before."""
    d, began = omp.target_alloc(8, np.float64), []
    omp.target_memset(d, 0)

    def body(d):
        d += 1
        stamped(began)

    slow = omp.target(body, nowait=True, depend=[inout(d)])(d)
    fast = omp.target_memset_async(d, 1, depend=[inout(d)])
    omp.taskwait()
    assert began[1] - began[0] <= slow.elapsed
    assert fast.elapsed <= perf_counter() - began[1]
    omp.target_free(d)


# -- graphs -----------------------------------------------------------------------------------------------
def test_recorded_tasks(runtime):
    """The time of a task and that of its node agree; a task that is only recorded has none."""
    x = np.zeros(4)
    add = omp.target(lambda x: x.__iadd__(1.0) is None, map=[tofrom("x")], nowait=True)
    with omp.record() as graph:
        tasks = [omp.task(stamped)([]), add(x)]
        omp.taskwait()
    assert [task.elapsed for task in tasks] == [pytest.approx(node.duration_s) for node in graph.tasks[:2]]
    with omp.record(execute=False):
        task = omp.task(stamped)([])
    assert (task.state, task.elapsed) == ("recorded", None)


def test_nodes_outlive_failures(runtime):
    """A node keeps the times of a task whose failure has been seen, and not the task."""
    with omp.record() as graph:
        task = omp.task(stamped)([], fail=True)
        assert isinstance(task.exception(), ArithmeticError)
    node = graph.tasks[0]
    assert (node.state, node.duration_s) == ("failed", task.elapsed)
    reference = ref(task)
    del task
    until_gone(reference)


def test_nodes_of_detached_tasks(runtime):
    """A node whose body has ended has no end before its event is fulfilled."""
    event = omp.Event()
    with omp.record() as graph:
        task = omp.task(stamped, detach=event)([])
        while task.state != "detached":
            omp.taskyield()
        node = graph.tasks[0]
        assert node.start_s > 0
        assert (node.end_s, node.duration_s, task.elapsed) == (None, None, None)
        event.fulfill()
        omp.taskwait()
    assert node.duration_s == task.elapsed > 0


def test_task_graphs(runtime):
    """The tasks that a replay makes are timed too."""
    x, tasks = np.zeros(100), []
    add = omp.target(lambda x: x.__iadd__(1.0) is None, map=[tofrom("x")], nowait=True)

    @omp.taskgraph
    def step(x):
        for _ in range(3):
            add.options(depend=[inout(x)])(x)
            omp.task(lambda: tasks.append(omp.current_task()), depend=[inout(x)])()

    for _ in range(4):
        step(x)
    assert (x == 12).all()
    assert len(set(tasks)) == 12
    assert all(task.elapsed > 0 for task in tasks)


# -- beginnings and ends that are not those of a body -----------------------------------------------------
def test_a_launch_that_fails(runtime):
    """A launch that raises has taken until then, and what depends on it nothing."""
    x = np.zeros(8)
    omp.target_enter_data([to(x[:4])])
    began_s = perf_counter()
    task = omp.target_enter_data([to(x)], depend=[inout(x)], nowait=True)  # extends what is there
    after = omp.task(stamped, depend=[inout(x)])([])
    assert isinstance(task.exception(), omp.MapError)
    assert 0 < task.elapsed <= perf_counter() - began_s
    assert isinstance(after.exception(), omp.DependError)
    assert after.elapsed is None
    omp.target_exit_data([omp.release(x[:4])])


def test_coroutines_that_never_begin(runtime):
    """A body whose loop has ended first took nothing."""

    @omp.task(depend=[in_(("x",))])
    async def body():
        raise AssertionError

    event, tasks = omp.Event(), []

    async def main():
        omp.task(lambda: None, detach=event, depend=[out(("x",))])()
        tasks.append(body())

    asyncio.run(main())
    event.fulfill()
    assert isinstance(tasks[0].exception(), omp.UsageError)
    assert (tasks[0].state, tasks[0].elapsed) == ("failed", None)


def test_detached_coroutines(runtime):
    """With detach an async body takes until its event, too."""
    event, stamps = omp.Event(), []

    @omp.task(detach=event)
    async def body():
        stamps.append(perf_counter())

    task = body()
    while task.state != "detached":
        omp.taskyield()
    assert task.elapsed is None
    fulfilled_s = perf_counter()
    event.fulfill()
    task.result()
    assert fulfilled_s - stamps[0] <= task.elapsed


def test_long_chains(runtime):
    """The times of a chain of launches that are noticed together add up to no more than it took."""
    d = omp.target_alloc(4, np.float64)
    began_s = perf_counter()
    tasks = [omp.target_memset_async(d, 0, depend=[inout(d)]) for _ in range(2000)]
    omp.taskwait()
    took_s = perf_counter() - began_s
    assert all(task.elapsed >= 0 for task in tasks)
    assert sum(task.elapsed for task in tasks) <= took_s
    omp.target_free(d)
