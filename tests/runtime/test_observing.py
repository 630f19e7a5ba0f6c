"""`offload.tool`: what an observer is told, and that a program without one has nothing of it."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings

import numpy as np
import pytest

import offload as omp
from offload.errors import ClauseError, CleanupWarning
from offload.events.log import TaskLog
from offload.events.observer import METHODS, NO_CALLS
from offload.runtime import observing
from offload.runtime.place import DevicePlace
from offload.tasks.engine import Engine
from offload.tasks.task import Task


class Told:
    """Keeps what it is told, with the thread."""

    def __init__(self, *names):
        self.lines = []
        for name in names or METHODS[:6]:
            setattr(self, name, self._keeper(name))

    def _keeper(self, name):
        def keep(*args):
            words = [arg.name if isinstance(arg, Task) else arg for arg in args]
            self.lines.append((name, *words))
            self.threads.append(threading.get_ident())

        self.threads = []
        return keep

    def of(self, *names):
        """Return what it has been told by these methods."""
        return [line for line in self.lines if line[0] in names]


def axpy(x, y):
    x += y


def test_tasks_copies_mappings_and_waits():
    """A task that maps tells of its steps in order, with the bytes of each list item."""
    told, x = Told(), np.zeros(10)
    with omp.Runtime("sim:1", check=True), omp.tool(told) as same:
        omp.target(nowait=True)(axpy)(x, 1)
        omp.taskwait()
    assert same is told
    assert told.of("task_created", "task_started", "task_completed") == [
        (name, "axpy") for name in ("task_created", "task_started", "task_completed")
    ]
    assert [line[1:3] for line in told.of("copied")] == [("axpy", "to"), ("axpy", "from")]
    assert [line[3] for line in told.of("copied")] == [80, 80]
    assert [(line[1], line[3], line[4]) for line in told.of("mapped")] == [
        ("axpy", 80, "alloc"),
        ("axpy", 80, "delete"),
    ]
    assert "argument 0" in told.of("mapped")[0][2]
    assert told.of("waited")[0][1] == "taskwait"
    assert told.of("waited")[0][2] >= 0


def test_each_task_is_told_of_once_in_order():
    """Each task is created, started and completed, once and in this order; one that does not run never starts."""
    told = Told("task_created", "task_started", "task_completed")

    def fail():
        raise ValueError

    with omp.Runtime("none", num_threads=2, check=True), omp.tool(told):
        event = omp.Event()
        omp.task(lambda: omp.task(name="inner")(lambda: 1)().result(), name="outer")().result()
        omp.task(lambda: None, name="detached", detach=event)()
        event.fulfill()
        failed = omp.task(fail, name="failed")()
        behind = omp.task(lambda _: None, name="behind")(failed)
        assert isinstance(failed.exception(), ValueError)
        assert behind.exception() is not None
        omp.taskwait()  # for the detached one
    for name in ("inner", "outer", "detached", "failed"):
        assert [line[0] for line in told.lines if line[1] == name] == ["task_created", "task_started", "task_completed"]
    assert [line[0] for line in told.lines if line[1] == "behind"] == ["task_created", "task_completed"]


def test_the_state_is_that_of_the_end():
    """When a task is complete, its state says how it ended."""
    states = {}

    class States:
        def task_completed(self, task):
            states[task.name] = str(task.state), task.done()

    def fail():
        raise ValueError

    with omp.Runtime("sim:1", check=True), omp.tool(States()):
        omp.task(int, name="good")().result()
        omp.task(fail, name="bad")().exception()
        omp.target(name="region")(axpy)(np.zeros(3), 1)
    assert states == {"good": ("complete", True), "bad": ("failed", True), "region": ("complete", True)}


def test_methods_run_where_the_event_happens():
    """The thread that runs a body tells of its beginning."""
    told, threads = Told("task_started"), []
    with omp.Runtime("none", num_threads=2), omp.tool(told):
        for _ in range(20):
            omp.task(lambda: threads.append(threading.get_ident()))()
        omp.taskwait()
    assert sorted(threads) == sorted(told.threads)


def test_every_method_may_be_missing():
    """An observer with one method is told of that alone."""
    for name in METHODS[:6]:
        told, x = Told(name), np.zeros(4)
        with omp.Runtime("sim:1"), omp.tool(told):
            omp.target(axpy)(x, 1)
            omp.task(int)()
            omp.taskwait()
        assert told.lines
        assert {line[0] for line in told.lines} == {name}


def test_runtimes_that_come_later_are_observed_too():
    """An observer sees runtimes that are opened in its block, and those that are open already."""
    told = Told("task_created")
    with omp.Runtime("none"):
        with omp.tool(told):
            omp.task(int, name="first")()
            with omp.Runtime("none"):
                omp.task(int, name="second")()
        omp.task(int, name="third")()
    assert [line[1] for line in told.lines] == ["first", "second"]


def test_several_observers():
    """Each observer is told of everything; one that goes leaves the other."""
    first, second = Told("task_completed"), Told("task_completed")
    with omp.Runtime("none"), omp.tool(first):
        with omp.tool(second):
            omp.task(int, name="a")().result()
        omp.task(int, name="b")().result()
    assert [line[1] for line in first.lines] == ["a", "b"]
    assert [line[1] for line in second.lines] == ["a"]


def test_the_end_of_the_block_waits_for_what_is_being_told(monkeypatch):
    """An observer is told of each task that the program has seen complete, though the observer before it is slow."""
    begun, release = threading.Event(), threading.Event()
    monkeypatch.setattr(observing, "_TELLING_S", 60)  # the timer of a busy machine may be late

    class Slow:
        def task_completed(self, task):
            begun.set()
            release.wait(60)

    told = Told("task_completed")
    with omp.Runtime("none", num_threads=1), omp.tool(Slow()):
        with omp.tool(told):
            task = omp.task(int, name="a")()
            assert begun.wait(20)
            assert task.result() == 0
            threading.Timer(0.05, release.set).start()
        assert [line[1] for line in told.lines] == ["a"]


def test_a_block_may_end_while_its_own_thread_tells(monkeypatch):
    """An observer whose call ends another observer's block waits for nobody, and a failing one still ends."""
    told, pauses = Told("task_completed"), []
    monkeypatch.setattr(observing, "sleep", pauses.append)
    monkeypatch.setattr(observing, "_TELLING_S", 0.1)

    class Ends:
        def task_completed(self, task):
            blocks.close()

    with omp.Runtime("none", num_threads=0), contextlib.ExitStack() as blocks:  # a worker may tell of "a" after "b"
        blocks.enter_context(omp.tool(told))
        with omp.tool(Ends()):
            omp.task(int, name="a")().result()
            omp.task(int, name="b")().result()
    assert not pauses
    assert [line[1] for line in told.lines] == ["a"]


@pytest.mark.parametrize("name", METHODS[:6])
def test_an_observer_that_raises_is_detached(name):
    """The program goes on, and one warning says so; a second observer stays."""

    class Raises:
        def __init__(self):
            def fail(*_):
                raise ValueError("not today")

            setattr(self, name, fail)

    other, x = Told("task_completed"), np.zeros(3)
    with warnings.catch_warnings(record=True) as caught, omp.Runtime("sim:1", check=True):
        warnings.simplefilter("always")
        with omp.tool(other), omp.tool(Raises()):
            for _ in range(3):
                omp.target(axpy)(x, 1)
                omp.task(int)()
                omp.taskwait()
    assert [found.category for found in caught] == [CleanupWarning]
    assert f"{name} raised ValueError('not today')" in str(caught[0].message)
    assert len(other.lines) == 6
    assert (x == 3).all()


def test_a_warning_that_is_an_error_ends_nothing(capfd):
    """Where warnings are errors, the note goes to stderr and the program goes on."""

    class Raises:
        def task_completed(self, task):
            raise KeyError(task.name)

    with warnings.catch_warnings(), omp.Runtime("none", check=True):
        warnings.simplefilter("error")
        with omp.tool(Raises()):
            assert omp.task(lambda: 5)().result() == 5
            assert omp.task(lambda: 6)().result() == 6
    assert capfd.readouterr().err.count("the observer has been detached") == 1


@pytest.mark.parametrize("observer", [None, 3, object()])
def test_an_object_without_methods_is_refused(observer):
    """An observer without any of the methods would never be told of anything."""
    with pytest.raises(ClauseError, match="task_created"), omp.tool(observer):
        pass


def test_an_observer_may_leave_at_an_exception():
    """The end of the block detaches the observer, however it ends."""
    told = Told("task_created")
    with omp.Runtime("none"):
        with pytest.raises(ValueError, match="out"), omp.tool(told):
            raise ValueError("out")
        omp.task(int)().result()
    assert told.lines == []


def test_replays_are_told_of():
    """The tasks of a recorded graph that runs again are told of as those of the recording."""
    told = Told("task_created", "task_completed")

    @omp.taskgraph
    def step(x):
        omp.task(axpy, name="one", depend=[omp.inout("x")])(x, 1)
        omp.task(axpy, name="two", depend=[omp.inout("x")])(x, 1)

    x = np.zeros(3)
    with omp.Runtime("none", check=True), omp.tool(told):
        for _ in range(3):
            step(x)
        omp.taskwait()
    assert (x == 6).all()
    for method in ("task_created", "task_completed"):
        assert sorted(line[1] for line in told.of(method)) == ["one"] * 3 + ["two"] * 3


def test_updates_that_are_known_are_told_of():
    """An update whose copies are stored calls tells of each copy, also after the observer before has gone."""
    x = np.zeros(8)
    with omp.Runtime("sim:1", check=True), omp.target_data(map=[omp.to(x)]):
        for _ in range(3):
            omp.target_update(to=[x])
        for _ in range(2):
            told = Told("copied")
            with omp.tool(told):
                omp.target_update(to=[x])
                omp.target_update(from_=[x])
            assert [line[2:] for line in told.lines] == [("to", 64), ("from", 64)]


def test_nothing_is_left_afterwards():
    """Without an observer, engine, places and tasks are as they were made."""

    def calls_of(operation):
        count = 0

        def profile(_frame, event, _argument):
            nonlocal count
            count += event in {"call", "c_call"}

        for _ in range(40):
            operation()
        omp.taskwait()
        best = None
        for _ in range(60):
            count = 0
            sys.setprofile(profile)
            operation()
            sys.setprofile(None)
            omp.taskwait()
            best = count if best is None else min(best, count)
        return best

    x = np.zeros(100)
    with omp.Runtime("sim:1", num_threads=1) as runtime, omp.target_data(map=[omp.to(x)]):
        task, region = omp.task(int), omp.task(depend=[omp.inout(x)])(axpy)
        before = [calls_of(task), calls_of(lambda: region(x, 1)), vars(Task)["advance"]]
        with omp.tool(Told()):
            assert runtime.engine.__class__ is not Engine
            omp.task(int)().result()
        assert runtime.engine.__class__ is Engine
        assert [place.__class__ for place in runtime.places] == [DevicePlace]
        assert runtime.calls is runtime.notify is runtime.places[0].notify is None
        assert runtime.places[0].calls is runtime.engine.calls is NO_CALLS
        assert [calls_of(task), calls_of(lambda: region(x, 1)), vars(Task)["advance"]] == before


def test_the_methods_of_lines_are_those_of_an_observer():
    """The steps that ``OFFLOAD_NOTIFY`` writes can be had by `tool` too."""
    told = Told(*METHODS[6:])
    with omp.Runtime("sim:1"), omp.tool(told):
        omp.target(axpy)(np.zeros(3), 1)
        omp.taskwait()
    assert [line[0] for line in told.lines] == ["copy", "launch", "copy", "wait"]


def test_observers_come_and_go_while_threads_work():
    """No task, copy or mapping is lost where observers are attached and detached in the middle of an operation."""
    n_turns, is_over = 60, threading.Event()

    def flip(make):
        while not is_over.is_set():
            with omp.tool(make()):
                pass

    def add(array):
        array += 1

    def work(number, found):
        x, y = np.zeros(64), np.zeros(64)
        for _ in range(n_turns):
            omp.target(map=[omp.tofrom(x)], device=number % 2)(add)(x)
            with omp.target_data(map=[omp.tofrom(y)], device=0):
                omp.target_update(to=[y], device=0)
                omp.target(map=[omp.to(y)], device=0, nowait=True, depend=[omp.inout(y)])(add)(y)
                omp.task(depend=[omp.inout(y)])(lambda: None)()
                omp.target_update(from_=[y], device=0)
                omp.taskwait()
        found.append((x.min(), x.max(), y.min(), y.max()))

    found, interval_s = [], sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with omp.Runtime("sim:2", num_threads=2):
            threads = [threading.Thread(target=work, args=(number, found)) for number in range(2)]
            flips = [threading.Thread(target=flip, args=(make,)) for make in (TaskLog, Told)]
            for thread in [*flips, *threads]:
                thread.start()
            for thread in threads:
                thread.join()
            is_over.set()
            for thread in flips:
                thread.join()
    finally:
        is_over.set()
        sys.setswitchinterval(interval_s)
    assert found == [(n_turns,) * 4] * 2
