"""`detach` and events: LLVM kmp_detach, bug_taskwait_detach, libgomp task-detach-7 and -13, Examples task_detach."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, inout, out, to


class Fulfiller:
    """Fulfils an event before the body, in it, or after it from a foreign thread once the body has ended."""

    def __init__(self, moment):
        self.moment = moment
        self.event = omp.Event()
        self.go = threading.Event()
        self.thread = threading.Thread(target=self._later)
        self.task = None

    def _later(self):
        self.go.wait()
        while self.task is None or self.task.state != "detached":
            pass
        self.event.fulfill()

    def start(self):
        if self.moment == "before":
            self.event.fulfill()

    def inside(self):
        if self.moment == "during":
            self.event.fulfill()

    def after(self, task):
        self.task = task
        if self.moment == "after":
            self.thread.start()
            self.go.set()

    def end(self):
        if self.moment == "after":
            self.thread.join()


@pytest.mark.parametrize("wait", ["taskwait", "taskwait depend", "taskgroup", "barrier", "result"])
def test_kmp_detach_tasks_t1(streams, moment, wait):
    """openmp/…/kmp_detach_tasks_t1.c: every wait covers the event, whenever it is fulfilled."""
    fulfiller, ran = Fulfiller(moment), []
    fulfiller.start()
    region = omp.taskgroup() if wait == "taskgroup" else contextlib.nullcontext()
    with region:
        detachable = omp.task(detach=fulfiller.event, depend=[out(("x",))])
        task = detachable(lambda: ran.append(fulfiller.inside()))()
        streams.go()
        fulfiller.after(task)
        if wait == "taskwait":
            omp.taskwait()
        elif wait == "taskwait depend":
            omp.taskwait(depend=[in_(("x",))])
        elif wait == "barrier":
            omp.barrier()
        elif wait == "result":
            task.result()
    assert fulfiller.event.is_fulfilled
    assert ran == [None]
    assert task.done()
    fulfiller.end()


def test_kmp_detach_tasks_t3(streams, moment):
    """openmp/…/kmp_detach_tasks_t3.c: fulfilled while the task is blocked by a dependence, it runs all the same."""
    fulfiller, log, gate = Fulfiller(moment), [], omp.Event()
    omp.task(depend=[out(("x",))], detach=gate)(lambda: log.append("first"))()

    def body():
        log.append("second")
        fulfiller.inside()

    task = omp.task(depend=[inout(("x",))], detach=fulfiller.event)(body)()
    after = omp.task(depend=[in_(("x",))])(lambda: log.append("third"))()
    fulfiller.start()
    assert not task.done()
    fulfiller.after(task)
    streams.go()
    gate.fulfill()
    omp.taskwait()
    assert log == ["first", "second", "third"]
    assert after.done()
    fulfiller.end()


def test_bug_taskwait_detach(streams, moment):
    """openmp/…/bug_taskwait_detach.cpp: a thread that the body started fulfils; taskwait outside any region waits."""
    event, checker, threads = omp.Event(), [], []

    def later():
        checker.append(1)
        event.fulfill()

    def body():
        threads.append(threading.Thread(target=later))
        threads[0].start()
        if moment == "during":
            threads[0].join()

    if moment == "before":
        later()
        omp.task(detach=event)(lambda: None)()
    else:
        omp.task(detach=event)(body)()
    streams.go()
    omp.taskwait()
    assert checker == [1]
    for thread in threads:
        thread.join()


def test_task_detach_13(streams, moment):
    """libgomp/…/task-detach-13.c: a fulfil from a foreign thread releases a dependent, on the host and on a device."""
    fulfiller, log, a = Fulfiller(moment), [], np.zeros(4)
    fulfiller.start()

    def body():
        a.fill(1)
        fulfiller.inside()

    task = omp.task(detach=fulfiller.event, depend=[out(a)])(body)()
    omp.target(depend=[inout(a)], nowait=True)(lambda a: a.__iadd__(omp.get_device_num() + 1) is None)(a)
    omp.task(depend=[in_(a)])(lambda: log.append(a.sum()))()
    fulfiller.after(task)
    streams.go()
    omp.taskwait()
    assert log == [8]
    fulfiller.end()


def test_task_detach_7(streams):
    """libgomp/…/task-detach-7.c: on each of several threads the third task fulfils the second's event, the second the
    first's; each thread waits for its own."""
    found = []

    def chain():
        first, second = omp.Event(), omp.Event()
        tasks = [omp.task(detach=first)(lambda: None)(), omp.task(detach=second)(first.fulfill)()]
        tasks.append(omp.task(second.fulfill)())
        omp.taskwait()
        found.append(all(task.done() for task in tasks) and first.is_fulfilled and second.is_fulfilled)

    streams.go()
    threads = [threading.Thread(target=chain) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_detach_without_workers(alone, moment):
    """Where the only thread is the one that waits, it runs the body, and whoever fulfils is not on it."""
    fulfiller, log = Fulfiller(moment), []
    fulfiller.start()
    task = omp.task(detach=fulfiller.event, depend=[out(("x",))])(lambda: log.append(1) or fulfiller.inside())()
    omp.target(depend=[inout(("x",))], nowait=True)(lambda: log.append(2))()
    omp.task(depend=[in_(("x",))])(lambda: log.append(3))()
    assert not task.done()
    fulfiller.after(task)
    alone.go()
    omp.taskwait()
    assert log == [1, 2, 3]
    fulfiller.end()


def test_what_comes_after_a_detached_task(streams, moment):
    """A detached task leaves nothing behind: later tasks, groups, waits and detached tasks do as ever (llvm#56307)."""
    streams.go()
    for _ in range(20):
        fulfiller, log = Fulfiller(moment), []
        fulfiller.start()
        task = omp.task(detach=fulfiller.event)(fulfiller.inside)()
        fulfiller.after(task)
        with omp.taskgroup():
            for number in range(5):
                omp.task(depend=[inout(("x",))])(log.append)(number)
        omp.taskwait()
        assert log == list(range(5))
        assert task.done()
        fulfiller.end()


def test_device_tasks_follow_the_event(streams, moment):
    """A region, an update and an exit that depend on a detached task move what it has written by its end."""
    fulfiller, a = Fulfiller(moment), np.zeros(8)
    fulfiller.start()
    omp.target_enter_data(map=[to(a)], nowait=True, depend=[out(a)])

    def body():
        a.fill(3)
        fulfiller.inside()

    task = omp.task(detach=fulfiller.event, depend=[inout(a)])(body)()
    omp.target_update(to=[a], nowait=True, depend=[inout(a)])
    omp.target(nowait=True, depend=[inout(a)])(lambda a: a.__imul__(2) is None)(a)
    omp.target_exit_data(map=[from_(a)], nowait=True, depend=[inout(a)])
    streams.go()
    fulfiller.after(task)
    omp.taskwait()
    assert (a == 6).all()
    fulfiller.end()


def test_detach_if0(streams, moment):
    """Examples task_detach.2, llvm#192276: undeferred, the call returns when the body has run; a dependent waits for
    the event; the thread that is to fulfil it is not blocked."""
    event, log = omp.Event(), []
    streams.go()
    if moment == "before":
        event.fulfill()

    def body():
        log.append("body")
        if moment == "during":
            event.fulfill()

    task = omp.task(detach=event, if_=False, depend=[out(("x",))])(body)()
    assert log == ["body"]
    after = omp.task(depend=[in_(("x",))])(lambda: log.append("after"))()
    if moment == "after":
        assert task.state == "detached"
        assert not after.done()
        event.fulfill()
    omp.taskwait()
    assert log == ["body", "after"]


def test_early_fulfil_does_not_release_before_the_body(streams):
    """Dependents of a task whose event was fulfilled early still wait for its body."""
    event, gate, log = omp.Event(), omp.Event(), []
    event.fulfill()
    omp.task(depend=[out(("x",))], detach=gate)(lambda: None)()
    omp.task(depend=[inout(("x",)), out(("y",))], detach=event)(lambda: log.append("body"))()
    omp.task(depend=[in_(("y",))])(lambda: log.append("after"))()
    omp.target(depend=[in_(("y",))], nowait=True)(lambda: log.append("device"))()
    streams.go()
    assert log == []
    gate.fulfill()
    omp.taskwait()
    assert log[0] == "body"
    assert sorted(log[1:]) == ["after", "device"]


def test_no_worker_is_held(streams):
    """Tasks that only wait for their events hold no worker: as many as one likes may."""
    events = [omp.Event() for _ in range(50)]
    tasks = [omp.task(detach=event)(lambda: None)() for event in events]
    streams.go()
    assert omp.task(lambda: 5)().result() == 5
    for event in reversed(events):
        event.fulfill()
    omp.taskwait()
    assert all(task.done() for task in tasks)


def test_failed_body_with_an_open_event(streams):
    """A task whose body fails completes at once; one later fulfil is accepted and ignored, a second is an error."""
    event = omp.Event()
    task = omp.task(detach=event)(lambda: 1 / 0)()
    streams.go()
    assert isinstance(task.exception(), ZeroDivisionError)
    event.fulfill()
    with pytest.raises(omp.EventError):
        event.fulfill()


@pytest.mark.parametrize("devices", ["sim:1"], indirect=True)
def test_fulfil_on_a_stream(streams):
    """What a body enqueued on a stream is part of the task; a device task follows on its stream, a host task by the
    gate."""
    a, event = np.zeros(4), omp.Event()

    def body():
        stream = omp.current_stream()
        stream.launch(np.add, a, 1, a)
        event.fulfill_on(stream)

    omp.task(detach=event, depend=[inout(a)])(body)()
    omp.target(depend=[inout(a)], nowait=True)(lambda a: a.__imul__(10) is None)(a)
    task = omp.task(depend=[in_(a)])(a.sum)()
    streams.go()
    assert task.result() == 40


@pytest.mark.parametrize("devices", ["sim:1"], indirect=True)
def test_a_stream_that_fails_fails_its_task(devices):
    """If the stream fails, the task fails with its error, its dependents do not run, and nothing hangs."""
    event, ran = omp.Event(), []
    runtime = omp.Runtime(devices, num_threads=1)
    with pytest.raises(ExceptionGroup) as caught, runtime:

        def body():
            stream = omp.current_stream()
            stream.launch(lambda: 1 / 0)
            event.fulfill_on(stream)

        task = omp.task(detach=event, depend=[inout(("x",))])(body)()
        omp.task(depend=[in_(("x",))])(lambda: ran.append("host"))()
        omp.target(depend=[in_(("x",))], nowait=True)(lambda a: ran.append("device"))(np.zeros(3))
        with pytest.raises(omp.DeviceLostError) as lost:
            task.result()
        assert "ZeroDivisionError" in str(lost.value) or isinstance(lost.value.__cause__, ZeroDivisionError)
    assert ran == []
    assert all(isinstance(error, (omp.DependError, omp.DeviceLostError)) for error in caught.value.exceptions)
    assert runtime.places[0].table.entries() == ()
