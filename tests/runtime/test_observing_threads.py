"""Observers that come and go while threads work, runtimes open and close, and processes fork: nothing is lost."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import ref

import numpy as np
import pytest

import offload as omp
from offload.events.log import TaskLog
from offload.reports.records import records
from offload.runtime import observing, registry
from offload.runtime.live import CountLog
from offload.runtime.stamps import settle
from offload.tasks import hooked
from offload.tasks.task import Task
from tests.patience import until_gone
from tests.strict import STRICT

ROOT = Path(__file__).parents[2]


class Keys:
    """Counts what it is told of each task."""

    def __init__(self):
        self.told = Counter()

    def task_created(self, task):
        self.told["created", task.key] += 1

    def task_started(self, task):
        self.told["started", task.key] += 1

    def task_completed(self, task):
        self.told["completed", task.key] += 1

    def of(self, what):
        return {key: count for (one, key), count in self.told.items() if one == what}


class Completed:
    def task_completed(self, task):
        pass


class Waited:
    def waited(self, what, seconds):
        pass


@contextmanager
def often():
    """Have threads take turns very often."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)


@contextmanager
def flipping(*makes):
    """Attach and detach observers on threads of their own, all the time."""
    is_over = threading.Event()

    def flip(make):
        while not is_over.is_set():
            with omp.tool(make()):
                pass

    threads = [threading.Thread(target=flip, args=(make,)) for make in makes]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def add(x):
    x += 1


async def turn():
    return 1


@omp.taskgraph
def step(x):
    omp.task(add, name="in a graph", depend=[omp.inout("x")])(x)
    omp.task(add, name="in a graph", depend=[omp.inout("x")])(x)


def work(n_turns, keys, failures):
    """Generate tasks of every kind, and note their keys."""
    try:
        x, y = np.zeros(64), np.zeros(64)
        for _ in range(n_turns):
            event = omp.Event()
            tasks = [
                omp.target(nowait=True, depend=[omp.inout(x)])(add)(x),
                omp.task(depend=[omp.inout(x)], name="labelled")(add)(x),
                omp.task(detach=event)(int)(),
                omp.task(turn)(),
                omp.task(depend=[omp.mutexinoutset(y)])(add)(y),
            ]
            keys.extend(task.key for task in tasks)
            event.fulfill()
            omp.taskwait()
        assert x.min() == x.max() == 2 * n_turns
        assert y.min() == y.max() == n_turns
    except BaseException as error:  # raised by the test
        failures.append(error)


def on_threads(function, *args):
    threads = [threading.Thread(target=function, args=args) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_an_observer_misses_nothing_while_others_come_and_go():
    """An observer that stays is told of each task once, and a log has each task once, whoever else comes and goes."""
    kept, log, keys, failures = Keys(), TaskLog(), [], []
    others = TaskLog, Completed, Waited, CountLog
    with often(), omp.Runtime("sim:1", num_threads=2), omp.tool(kept), omp.tool(log), flipping(*others):
        on_threads(work, 40, keys, failures)
    assert not failures
    once = dict.fromkeys(keys, 1)
    assert kept.of("created") == kept.of("started") == kept.of("completed") == once
    settle(log)
    assert Counter(task.key for task in records(log).tasks) == once


def test_a_log_misses_nothing_while_others_come_and_go():
    """So does a log that is alone at times, as the engine then has methods that cost less."""
    log, keys, failures = TaskLog(), [], []
    with often(), omp.Runtime("sim:1", num_threads=2), omp.tool(log), flipping(Completed, CountLog):
        on_threads(work, 40, keys, failures)
    assert not failures
    settle(log)
    assert Counter(task.key for task in records(log).tasks) == dict.fromkeys(keys, 1)


def test_replays_while_observers_come_and_go():
    """The tasks of a graph that runs again are all in a log that stays."""
    log, x = TaskLog(), np.zeros(8)
    with often(), omp.Runtime("none", num_threads=2), omp.tool(log), flipping(Keys, CountLog):
        for _ in range(60):
            step(x)
            omp.taskwait()
    assert (x == 120).all()
    found = [task for task in records(log).tasks if task.name == "in a graph"]
    assert len(found) == len({task.number for task in found}) == 120


def test_edges_of_replays():
    """Each run of a graph has its edges in a log, also those of device tasks."""

    @omp.taskgraph
    def mixed(x):
        omp.task(add, name="a", depend=[omp.inout("x")])(x)
        omp.target(add, name="b", depend=[omp.inout("x")], nowait=True)(x)
        omp.target(add, name="c", depend=[omp.inout("x")], nowait=True)(x)
        omp.task(add, name="d", depend=[omp.inout("x")])(x)

    log, x = TaskLog(), np.zeros(8)
    with omp.Runtime("sim:1", num_threads=1), omp.tool(log):
        for _ in range(3):
            mixed(x)
            omp.taskwait()
    run = records(log)
    names = {task.number: task.name for task in run.tasks}
    assert Counter((names[before], names[after]) for before, after in run.edges) == {
        ("a", "b"): 3,
        ("b", "c"): 3,
        ("c", "d"): 3,
    }


def test_runtimes_come_and_go_while_observed():
    """Runtimes that open and close while observers come and go leave nothing behind."""
    log, n_runtimes, plain = TaskLog(), 25, vars(Task)["advance"]
    with often(), omp.tool(log), flipping(Keys, TaskLog):

        def use():
            for _ in range(n_runtimes):
                with omp.Runtime("sim:1", num_threads=1, env={"OFFLOAD_NOTIFY": "0"}):
                    omp.task(int, name="one")().result()
                    omp.target(add)(np.zeros(3))

        on_threads(use)
    assert Counter(task.name for task in records(log).tasks) == {"one": 2 * n_runtimes, "add": 2 * n_runtimes}
    assert not observing._equipped
    assert not observing._attached
    assert vars(Task)["advance"] is plain
    assert not hooked._present


def test_a_runtime_that_ends_is_equipped_no_more():
    """An observer that comes while a runtime ends does not keep it."""
    runtime = omp.Runtime("none", num_threads=0)
    close_for, attached = runtime.engine.close_for, []

    def close(why):
        attached.append(observing.attach(Completed()))
        close_for(why)

    runtime.engine.close_for = close
    runtime.close()
    assert attached
    try:
        assert runtime not in observing._equipped
        assert runtime.calls is None
    finally:
        for one in attached:
            observing.detach(one)


def test_a_closed_runtime_is_let_go():
    """Labels of observed tasks do not keep a runtime that is closed."""
    runtime = omp.Runtime("none", num_threads=0)
    with runtime, omp.tool(Completed()):
        omp.task(int, name="labelled")().result()
    gone = ref(runtime)
    del runtime
    gc.collect()
    assert gone() is None


def test_a_coroutine_that_begins_later_tells_nobody_who_has_left():
    """An observer that has been detached is told of no beginning, though the task was ready before."""
    kept, is_held, may_go = Keys(), threading.Event(), threading.Event()

    async def hold():
        is_held.set()
        assert may_go.wait(30)

    with omp.Runtime("none", num_threads=1):
        with omp.tool(kept):
            first = omp.task(hold)()
            assert is_held.wait(30)
            second = omp.task(turn)()
        may_go.set()
        assert second.result() == 1
        first.result()
        assert kept.of("created") == {first.key: 1, second.key: 1}
        assert kept.of("started") == {first.key: 1}


def test_an_observer_is_not_called_again_after_it_has_raised():
    """A call that is under way on another thread does not reach an observer that has raised."""
    n_calls = []

    class Raises:
        def task_created(self, task):
            n_calls.append(task.key)
            raise ValueError(task.key)

    observer = Raises()
    with omp.Runtime("none", num_threads=0), omp.tool(Completed()):
        attachment = observing.attach(observer)
        calls = next(iter(observing._equipped)).calls
        with pytest.warns(omp.errors.CleanupWarning):
            omp.task(int)().result()
        calls.task_created(omp.task(int)())  # as a thread that has read the calls before
        observing.detach(attachment)
    assert len(n_calls) == 1


def test_tasks_that_had_begun_before():
    """A task that began before it was observed has a beginning and an end, in this order."""
    log, event, is_begun, may_go = TaskLog(), omp.Event(), threading.Event(), threading.Event()

    def wait():
        is_begun.set()
        assert may_go.wait(30)

    with omp.Runtime("none", num_threads=2):
        omp.task(wait, name="body")()
        assert is_begun.wait(30)
        held = omp.task(int, detach=event, name="detached")()
        while str(held.state) != "detached":
            omp.taskyield()
        with omp.tool(log):
            may_go.set()
            event.fulfill()
            omp.taskwait()
    found = {task.name: task for task in records(log).tasks}
    assert set(found) == {"body", "detached"}
    for task in found.values():
        assert task.created_s <= task.start_s <= task.end_s


def test_counts_keep_no_edges():
    """The live view, which only counts, collects nothing of graphs that run again and again."""
    log, x = CountLog(), np.zeros(8)
    with omp.Runtime("none", num_threads=0), omp.tool(log):
        for _ in range(3):
            step(x)
            omp.taskwait()
    assert [log.edges, log.tasks, log.handles, log.spans, log.waits] == [[], [], {}, [], []]


FORKS = """
import os, sys, threading, warnings
import offload as omp
from offload.events.log import TaskLog
from offload.runtime import observing
from offload.tasks import hooked

warnings.simplefilter("ignore", DeprecationWarning)
sys.setswitchinterval(1e-5)

class Told:
    lines = []
    def task_started(self, task):
        self.lines.append(task.name)
    def task_completed(self, task):
        self.lines.append(task.name)

is_over = threading.Event()

def flip(make):
    while not is_over.is_set():
        with omp.tool(make()):
            pass

def hold():
    with hooked._lock, observing._lock:  # as a thread that attaches an observer does
        is_held.set()
        is_forked.wait()

is_held, is_forked = threading.Event(), threading.Event()
threads = [threading.Thread(target=flip, args=(make,)) for make in (Told, TaskLog, Told)]
with omp.Runtime("none", num_threads=1):
    omp.task(int)().result()
for number in range(40):
    if number == 0:
        threads.append(threading.Thread(target=hold))
        threads[-1].start()
        is_held.wait()
    pid = os.fork()
    if pid == 0:
        import signal
        signal.alarm(20)  # a child that hangs is killed
        told = Told()
        told.lines = []
        with omp.Runtime("none", num_threads=0):
            with omp.tool(told):
                omp.task(int, name="of the child")().result()
            omp.task(int)().result()
        os._exit(0 if told.lines == ["of the child"] * 2 else 1)
    _, status = os.waitpid(pid, 0)
    if number == 0:
        is_forked.set()
        for thread in threads[:3]:
            thread.start()
    if status:
        is_over.set()
        sys.exit(f"child {number} ended with {status}")
is_over.set()
for thread in threads:
    thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_forks_while_observers_come_and_go():
    """A child that is forked in the middle of an attachment can attach observers of its own."""
    command = [sys.executable, *STRICT, "-c", FORKS]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as program:
        try:
            _, told = program.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)  # also a child that hangs
    assert (program.returncode, told) == (0, "")


def test_runtimes_are_known():
    """The registry has no runtime of these tests left."""
    assert not [runtime for runtime in registry.runtimes if runtime.calls is not None]


@pytest.mark.parametrize("name", ["task_created", "task_started", "task_completed", "waited", "copied", "mapped"])
def test_an_interruption_is_the_programs(name):
    """Ctrl-C in the middle of a method reaches the program, and the observer stays."""

    class Interrupted:
        n_calls = 0

        def __init__(self):
            setattr(self, name, self.call)

        def call(self, *_):
            self.n_calls += 1
            if self.n_calls == 1:
                signal.raise_signal(signal.SIGINT)

    observer, x = Interrupted(), np.zeros(3)
    with omp.Runtime("sim:1", num_threads=0), omp.tool(observer):
        with pytest.raises(KeyboardInterrupt):
            omp.target(add)(x) if name in {"copied", "mapped"} else omp.task(int)().result()
        with suppress(omp.errors.OffloadError):  # what the interruption has cut short
            omp.taskwait()
        before = observer.n_calls
        omp.target(add)(x) if name in {"copied", "mapped"} else omp.task(int)().result()
        assert observer.n_calls > before


class Temporary:
    """Something that a body holds, and a test can ask after."""


@pytest.mark.parametrize("make", [Keys, TaskLog, Completed])
def test_observers_keep_no_failures(make):
    """After a failure was handled, nothing of its frames is left, without the collector."""
    held, x = [], np.zeros(3)

    def fail():
        work = Temporary()
        held.append(ref(work))
        raise ArithmeticError(type(work))

    def fail_there(_):
        fail()

    gc.collect()
    gc.disable()
    try:
        with omp.Runtime("sim:1", num_threads=2), omp.tool(make()):
            for _ in range(20):
                for task in (omp.task(fail)(), omp.target(nowait=True)(fail_there)(x)):
                    with suppress(ArithmeticError):
                        task.result()
                del task
            until_gone(*held)  # a worker may be at the last line of a failed task
    finally:
        gc.enable()
    assert len(held) == 40
