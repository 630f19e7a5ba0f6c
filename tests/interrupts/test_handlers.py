"""Constructs in signal handlers of the program, which come anywhere on the main thread."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import signal
from unittest import mock

import numpy as np
import pytest

import offload as omp
from offload import inout, tofrom
from offload.devices.sim.device import SimDevice
from offload.tasks.engine import Engine
from tests.conftest import checked

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")


@omp.target
def increment(a):
    a += 1


def group():
    with omp.taskgroup():
        omp.task(lambda: None)()


def region():
    a = np.zeros(2)
    with omp.target_data(map=[tofrom(a)]):
        increment(a)


BLOCKING = {
    "taskwait": omp.taskwait,
    "barrier": omp.barrier,
    "taskgroup": group,
    "target": functools.partial(increment, np.zeros(2)),
    "target_data": region,
    "target_update": lambda: omp.target_update(to=[np.zeros(2)]),
    "task": omp.task(if_=False)(int),
    "target_memcpy": lambda: omp.target_memcpy(np.zeros(2), np.ones(2)),
}


@contextlib.contextmanager
def handled(handler):
    """Have a handler for SIGALRM."""
    former = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


@contextlib.contextmanager
def struck_in_steps():
    """Have the signal come once, in the middle of what the library does for the next task."""
    submit, left = Engine.submit, [1]

    def submitted(engine, *args):
        found = submit(engine, *args)
        if left:
            left.pop()
            signal.raise_signal(signal.SIGALRM)
        return found

    with mock.patch.object(Engine, "submit", submitted):
        yield


@pytest.mark.parametrize("around", ["target", "task", "data"])
@pytest.mark.parametrize("name", BLOCKING)
def test_a_handler_waits_for_the_steps_that_it_came_in(name, around):
    """It is called once they are over, so that it may block; what it interrupted goes on."""
    seen, a = [], np.zeros(4)

    def handler(number, frame):
        BLOCKING[name]()
        seen.append(name)

    with checked("sim:1", num_threads=1), handled(handler), struck_in_steps():
        if around == "target":
            increment(a)
        elif around == "task":
            omp.task(lambda: increment(a))()
        else:
            with omp.target_data(map=[tofrom(a)]):
                increment(a)
        omp.taskwait()
    assert seen == [name]
    assert (a == 1).all()


def test_what_is_deferred_is_generated_in_the_middle_of_steps():
    """Tasks and regions with nowait are children of the thread like others, and in order."""
    tasks, a = [], np.zeros(4)

    def handler(number, frame):
        tasks.append(omp.task(lambda: 5, depend=[inout(a)])())
        tasks.append(increment.options(nowait=True, depend=[inout(a)])(a))

    with checked("sim:1", num_threads=1), handled(handler), struck_in_steps():
        increment.options(depend=[inout(a)])(a)
        omp.taskwait()
        assert [task.result() for task in tasks] == [5, None]
    assert (a == 2).all()


def test_a_handler_that_comes_in_a_collection_is_as_its_finalizers_are():
    """Its constructs are carried out later, and its waits are refused."""
    a = np.zeros(3)

    def handler(number, frame):
        increment(a)
        with pytest.raises(omp.UsageError, match="taskwait in a finalizer"):
            omp.taskwait()
        assert (a == 0).all()
        came.append(number)

    def strike(phase, info):
        if phase == "start":
            signal.raise_signal(signal.SIGALRM)

    with checked("sim:1", num_threads=1), handled(handler):
        came = []
        gc.callbacks.append(strike)
        try:
            gc.collect()
        finally:
            gc.callbacks.remove(strike)
        assert came == [signal.SIGALRM]
        omp.taskwait()
    assert (a == 1).all()


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_wait_in_a_wait_leaves_the_other_its_wake_up(num_threads):
    """A handler that comes where the thread is parked may wait itself; the wait around it ends as well."""
    event, seen, a = omp.Event(), [], np.zeros(3)

    def handler(number, frame):
        event.fulfill()
        increment(a)
        seen.append(omp.task(lambda: 7)().result())

    with checked("sim:1", num_threads=num_threads), handled(handler):
        omp.task(detach=event)(lambda: None)()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        omp.taskwait()
    assert seen == [7]
    assert (a == 1).all()


@pytest.mark.parametrize("waits_look", [False, True], ids=["sleeps", "looks"])
def test_handlers_at_any_moment(waits_look, monkeypatch):
    """Nothing hangs, and all is done but what target bodies and finalizers may not do either."""
    monkeypatch.setattr(SimDevice, "waits_look", waits_look)
    x, y, is_inside, refused, done = np.zeros(8), np.zeros(8), [], [], []
    later = increment.options(nowait=True, depend=[inout(y)])
    calls = itertools.cycle([increment, lambda _: omp.taskwait(), later])

    def handler(number, frame):
        if is_inside:
            return
        is_inside.append(1)
        try:
            call = next(calls)
            call(y)
            done.append(call)
        except omp.UsageError as error:
            refused.append(str(error))
        finally:
            is_inside.clear()

    with checked("sim:1", num_threads=2), handled(handler):
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for _ in range(300):
            with omp.target_data(map=[tofrom(x)]):
                increment(x)
                omp.task(lambda: None)()
                omp.taskwait()
        signal.setitimer(signal.ITIMER_REAL, 0)
        omp.taskwait()
    assert (x == 300).all()
    assert done
    places = "inside of the target body", "taskwait in a finalizer that the cyclic garbage collector runs"
    assert [text for text in refused if not any(place in text for place in places)] == []
    assert (y == done.count(increment) + done.count(later)).all()
