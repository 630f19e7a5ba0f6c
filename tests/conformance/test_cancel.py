"""`cancel` and `cancellation point`: the rules of OpenMP 5.2, 11.2 and 11.3 for taskgroups.

`OMP_CANCELLATION` is on for the runtimes of this file, where a test does not say otherwise.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, inout, mutexinoutset, out, to, tofrom

N = 64
X, Y = ("x",), ("y",)


@pytest.fixture
def env():
    return {**os.environ, "OMP_CANCELLATION": "true"}


def nothing(*arrays):
    pass


def cancel_in_a_task():
    """Cancel the group that the caller's tasks belong to; return when that has been done."""

    def body():
        omp.cancel("taskgroup")
        raise AssertionError("cancel leaves the body")

    task = omp.task(body)()
    assert task.result() is None
    return task


# -- what is discarded --------------------------------------------------------------------------------
def test_tasks_that_have_not_begun_are_discarded(streams, gates):
    """They do not run, say that they are cancelled, their result raises CancelledError; the group's end raises nothing.
    The task that cancels is complete."""
    gate, ran = gates(), []
    streams.go()
    with omp.taskgroup():
        tasks = [omp.task(depend=[gate.after])(lambda: ran.append("host"))() for _ in range(3)]
        tasks.append(omp.target(nowait=True, depend=[gate.after])(lambda: ran.append("device"))())
        canceller = cancel_in_a_task()
        gate.open()
    assert ran == []
    assert canceller.state == "complete"
    for task in tasks:
        assert task.done()
        assert task.state == "cancelled"
        with pytest.raises(CancelledError):
            task.result()
        with pytest.raises(CancelledError):
            task.exception()
    omp.taskwait()
    assert omp.task(lambda: 5)().result() == 5  # nothing is cancelled outside


def test_tasks_generated_later_are_discarded(streams):
    """A task that has begun goes on; what it generates after the cancel does not run."""
    ran, begun, goes_on, children = [], threading.Event(), threading.Event(), []
    streams.go()

    def body():
        begun.set()
        assert goes_on.wait(60)
        children.append(omp.task(lambda: ran.append("child"))())
        children.append(omp.target(nowait=True)(lambda: ran.append("device"))())
        ran.append("end")
        return 3

    with omp.taskgroup():
        task = omp.task(body)()
        assert begun.wait(60)
        try:
            omp.cancel("taskgroup")
        finally:
            goes_on.set()
    assert ran == ["end"]
    assert task.result() == 3
    assert [child.state for child in children] == ["cancelled", "cancelled"]


def test_dependents_are_released(streams, gates):
    """What depends on a discarded task runs as if that had completed, and still follows what came before it."""
    gate, log = gates(out(X)), []
    streams.go()
    with omp.taskgroup():
        omp.task(depend=[inout(X), out(Y)])(lambda: log.append("discarded"))()
        cancel_in_a_task()
        gate.open()
    omp.task(depend=[in_(Y)])(lambda: log.append("host"))()
    omp.target(nowait=True, depend=[in_(Y)])(lambda: log.append("device"))()
    omp.taskwait()
    assert sorted(log) == ["device", "host"]


def test_dependents_that_wait_are_released(streams, gates):
    """Those that were generated in time wait for the discarded task no longer than for its predecessors: a chain of
    discarded tasks ends, and none of them is a failure to the next."""
    gate = gates()
    streams.go()
    with omp.taskgroup():
        chain = [omp.task(depend=[inout(X), gate.after])(nothing)() for _ in range(5)]
        chain += [omp.target(nowait=True, depend=[inout(X)])(nothing)() for _ in range(3)]
        cancel_in_a_task()
        gate.open()
    assert {task.state for task in chain} == {"cancelled"}


def test_discarded_target_tasks_map_nothing(streams, gates):
    """A discarded region, enter, exit or update has no effect on the data environment or on the data."""
    gate, a, b = gates(), np.zeros(N), np.zeros(N)
    streams.go()
    omp.target_enter_data(map=[to(b)])
    with omp.taskgroup():
        tasks = [
            omp.target(nowait=True, map=[tofrom("a")], depend=[gate.after])(lambda a: a.fill(1))(a),
            omp.target_enter_data(map=[to(a)], nowait=True, depend=[gate.after]),
            omp.target_exit_data(map=[from_(b)], nowait=True, depend=[gate.after]),
            omp.target_update(from_=[b], nowait=True, depend=[gate.after]),
        ]
        b.fill(7)
        cancel_in_a_task()
        gate.open()
    assert {task.state for task in tasks} == {"cancelled"}
    assert not omp.target_is_present(a)
    assert omp.target_is_present(b)
    assert (a == 0).all()
    assert (b == 7).all()
    omp.target_exit_data(map=[from_(b)])
    assert (b == 0).all()
    assert not omp.target_is_present(b)


def test_events_of_discarded_tasks_are_not_required(streams, gates):
    """A discarded task is complete without its event; one fulfil that comes later is ignored, a second is an error."""
    gate, event = gates(), omp.Event()
    streams.go()
    with omp.taskgroup():
        task = omp.task(depend=[gate.after], detach=event)(nothing)()
        cancel_in_a_task()
        gate.open()
    assert task.state == "cancelled"
    event.fulfill()
    with pytest.raises(omp.EventError):
        event.fulfill()


def test_detached_tasks_are_waited_for(streams, gates):
    """A task that has begun keeps its event: the end of the group waits for it."""
    log = []
    streams.go()
    with omp.taskgroup():
        gate = gates().shut()

        def fulfil():
            canceller.result()
            log.append("fulfilled")
            gate.open()

        canceller = cancel_in_a_task()
        thread = threading.Thread(target=fulfil)
        thread.start()
    log.append("end")
    thread.join()
    assert log == ["fulfilled", "end"]
    assert gate.task.state == "complete"


def test_discarded_members_exclude_nobody(streams, gates):
    """A member of a mutexinoutset that is discarded gives nobody anything to wait for."""
    log = []
    holder = gates(mutexinoutset(X)).shut()
    streams.go()
    with omp.taskgroup():
        for _ in range(3):
            omp.task(depend=[mutexinoutset(X, Y)])(lambda: log.append("discarded"))()
        cancel_in_a_task()
        holder.open()
    omp.task(depend=[mutexinoutset(X)])(lambda: log.append("x"))()
    omp.task(depend=[mutexinoutset(Y)])(lambda: log.append("y"))()
    omp.taskwait()
    assert sorted(log) == ["x", "y"]


def test_failures_are_still_raised(streams, gates):
    """What failed in a cancelled group is raised at its end; discarded tasks are no failures."""
    gate = gates()
    streams.go()
    with pytest.raises(ExceptionGroup) as caught, omp.taskgroup():
        failing = omp.task(lambda: 1 / 0)()
        while not failing.done():
            omp.taskyield()
        omp.task(depend=[gate.after])(nothing)()
        try:
            omp.cancel("taskgroup")
        finally:
            gate.open()
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]


# -- who is left, and where ---------------------------------------------------------------------------
def test_cancel_in_the_block(streams, gates):
    """`cancel` in the taskgroup's own block leaves the block, and what follows it goes on."""
    gate, log = gates(), []
    streams.go()
    with omp.taskgroup():
        task = omp.task(depend=[gate.after])(lambda: log.append("discarded"))()
        try:
            omp.cancel("taskgroup")
            log.append("after the cancel")
        finally:
            gate.open()
    assert log == []
    assert task.state == "cancelled"
    with omp.taskgroup():
        omp.task(lambda: log.append("next group"))()
    assert log == ["next group"]


def test_cancellation_point(streams):
    """A task that has begun leaves at its next cancellation point once the group is cancelled, not before."""
    log, begun, goes_on = [], threading.Event(), threading.Event()
    streams.go()

    def body():
        omp.cancellation_point("taskgroup")
        log.append("before")
        begun.set()
        assert goes_on.wait(60)
        log.append("goes on")
        omp.cancellation_point("taskgroup")
        log.append("after")

    with omp.taskgroup():
        task = omp.task(body)()
        assert begun.wait(60)
        omp.cancellation_point("taskgroup")
        log.append("block")
        try:
            omp.cancel("taskgroup")
        finally:
            goes_on.set()
    assert log == ["before", "block", "goes on"]
    assert task.result() is None


def test_cancellation_point_in_the_block(streams):
    """The block itself leaves at a cancellation point when a task has cancelled the group."""
    log = []
    streams.go()
    with omp.taskgroup():
        cancel_in_a_task()
        log.append("goes on")
        omp.cancellation_point("taskgroup")
        log.append("after")
    assert log == ["goes on"]


def test_cancel_if(streams):
    """`cancel` with a false `if` cancels nothing, but is a cancellation point."""
    log = []
    streams.go()
    with omp.taskgroup():
        omp.cancel("taskgroup", if_=False)
        log.append("not cancelled")
        omp.task(lambda: log.append("task"))().result()
        cancel_in_a_task()
        omp.cancel("taskgroup", if_=False)
        log.append("after")
    assert log == ["not cancelled", "task"]


def test_inner_groups(streams, gates):
    """Cancelling an inner group leaves the outer one alone."""
    gate, log = gates(), []
    streams.go()
    with omp.taskgroup():
        outer = omp.task(depend=[gate.after])(lambda: log.append("outer"))()
        with omp.taskgroup():
            inner = omp.task(depend=[gate.after])(lambda: log.append("inner"))()
            cancel_in_a_task()
            gate.open()
        omp.cancellation_point("taskgroup")
        omp.task(lambda: log.append("later"))()
    assert sorted(log) == ["later", "outer"]
    assert (outer.state, inner.state) == ("complete", "cancelled")


def test_outer_groups(streams, gates):
    """Cancelling an outer group cancels the groups in it, whose blocks are left as well."""
    gate, log = gates(), []
    streams.go()
    with omp.taskgroup():
        outer = omp.task(depend=[gate.after])(lambda: log.append("outer"))()
        goes_on = threading.Event()

        def body():
            assert goes_on.wait(60)
            omp.cancel("taskgroup")

        canceller = omp.task(body)()  # of the outer group
        with omp.taskgroup():
            inner = omp.task(depend=[gate.after])(lambda: log.append("inner"))()
            goes_on.set()
            canceller.result()
            gate.open()
            omp.cancellation_point("taskgroup")
            log.append("inner block")
        log.append("outer block")
    assert log == []
    assert (outer.state, inner.state) == ("cancelled", "cancelled")


def test_descendants_cancel_their_group(streams, gates):
    """A descendant of the group's tasks cancels the group; a taskgroup within a task keeps a cancel to itself."""
    gate, log = gates(), []
    streams.go()

    def within():
        with omp.taskgroup():
            cancel_in_a_task()
            omp.task(lambda: log.append("discarded"))()
        log.append("goes on")

    def deep():
        cancel_in_a_task()

    with omp.taskgroup():
        omp.task(within)().result()
        omp.task(lambda: log.append("runs"))().result()
        task = omp.task(depend=[gate.after])(lambda: log.append("discarded"))()
        omp.task(deep)().result()
        gate.open()
    assert log == ["goes on", "runs"]
    assert task.state == "cancelled"


@pytest.mark.parametrize("leaves", ["block", "task"])
def test_target_data_is_released(streams, leaves):
    """The data region around a cancel is left as at any exception: its end waits, copies back and releases."""
    a, log = np.zeros(N), []
    streams.go()

    def body():
        with omp.target_data(map=[tofrom(a)]):
            omp.target(lambda a: a.fill(1))(a)
            omp.cancel("taskgroup")
            log.append("after")

    with omp.taskgroup():
        if leaves == "block":
            body()
        else:
            omp.task(body)().result()
    assert log == []
    assert (a == 1).all()
    assert not omp.target_is_present(a)


def test_target_data_of_a_task_that_goes_on_is_released(streams):
    """A task that has begun ends its data region although its group has been cancelled meanwhile."""
    a, begun, goes_on = np.zeros(N), threading.Event(), threading.Event()
    streams.go()

    def body():
        with omp.target_data(map=[tofrom(a)]):
            omp.target(lambda a: a.fill(1))(a)
            begun.set()
            assert goes_on.wait(60)

    with omp.taskgroup():
        task = omp.task(body)()
        assert begun.wait(60)
        try:
            omp.cancel("taskgroup")
        finally:
            goes_on.set()
    assert task.exception() is None
    assert (a == 1).all()
    assert not omp.target_is_present(a)


@pytest.mark.parametrize("construct", ["target", "task", "data", "enter", "copy", "wait"])
def test_what_a_task_that_goes_on_would_wait_for(streams, construct):
    """A synchronous construct that a task of a cancelled group meets has no effect, and is no failure of the group."""
    a, log, begun, goes_on = np.zeros(N), [], threading.Event(), threading.Event()
    streams.go()

    def body():
        begun.set()
        assert goes_on.wait(60)
        if construct == "target":
            omp.target(lambda a: a.fill(1))(a)
        elif construct == "task":
            omp.task(if_=False)(lambda: log.append("ran"))()
        elif construct == "data":
            with omp.target_data(map=[tofrom(a)]):
                log.append("block")
        elif construct == "enter":
            omp.target_enter_data(map=[to(a)])
        elif construct == "copy":
            omp.target_memcpy(a, np.ones(N))
        else:
            omp.task(lambda: log.append("ran"))()
            omp.taskwait()

    with omp.taskgroup():
        task = omp.task(body)()
        assert begun.wait(60)
        try:
            omp.cancel("taskgroup")
        finally:
            goes_on.set()
    assert task.exception() is None
    assert log == []
    assert (a == 0).all()
    assert not omp.target_is_present(a)


# -- off, and wrong -----------------------------------------------------------------------------------
@pytest.mark.parametrize("env", [None, {"OMP_CANCELLATION": "false"}], ids=["unset", "false"])
def test_without_cancellation(streams, gates):
    """Where OMP_CANCELLATION is not true, cancel and cancellation points do nothing."""
    gate, log = gates(), []
    streams.go()

    def body():
        omp.cancel("taskgroup")
        omp.cancellation_point("taskgroup")
        log.append("task")

    with omp.taskgroup():
        tasks = [omp.task(depend=[gate.after])(body)() for _ in range(3)]
        omp.cancel("taskgroup")
        omp.cancellation_point("taskgroup")
        log.append("block")
        gate.open()
    assert sorted(log) == ["block", "task", "task", "task"]
    assert [task.state for task in tasks] == ["complete"] * 3


def test_wrong_cancels(streams):
    """A construct that is not there, one that OpenMP does not have, no group around, a target body: errors."""
    streams.go()
    for function in (omp.cancel, omp.cancellation_point):
        with pytest.raises(omp.UsageError):
            function("taskgroup")
        with omp.taskgroup():
            with pytest.raises(omp.UnsupportedError):
                function("parallel")
            with pytest.raises(omp.ClauseError):
                function("task")
            with pytest.raises(omp.UsageError):
                omp.target(lambda function=function: function("taskgroup"))()
        with pytest.raises(omp.UsageError):
            omp.task(lambda function=function: function("taskgroup"))().result()
