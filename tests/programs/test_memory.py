"""What tasks cost in memory, and how the producer of very many is held back: little, and never for long."""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out
from offload.tasks.engine import MANY_LIVE
from tests.patience import until_gone
from tests.profiles import few

N_BEHIND = 20_000
STATM = Path("/proc/self/statm")


def nothing():
    pass


def resident_nbytes():
    """Return what the process has in memory."""
    return int(STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def uncollected():
    """Whatever goes, goes without the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# -- one task -------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", few(1, ["fan", "independent", "chain"]))
def test_a_live_task_costs_at_most_1_kb(uncollected, shape):
    """Tasks that wait behind an event take 1,024 bytes each, with what the runtime keeps of their dependences."""
    gate, items = np.zeros(1), [np.zeros(1) for _ in range(8)]
    clauses = {
        "independent": [[in_(gate)]],
        "chain": [[in_(gate), inout(items[0])]],
        "fan": [[in_(gate), in_(items[number], items[number - 1]), inout(items[number - 2])] for number in range(8)],
    }[shape]
    event = omp.Event()
    with omp.Runtime("none", num_threads=1):
        omp.task(depend=[out(gate)], detach=event)(nothing)()
        task = omp.task(nothing)
        tracemalloc.start()
        try:
            for number in range(N_BEHIND):
                task.options(depend=clauses[number % len(clauses)])()
            nbytes = tracemalloc.get_traced_memory()[0] / N_BEHIND
        finally:
            tracemalloc.stop()
            event.fulfill()
        print(f"{shape}: {nbytes:.0f} bytes")
        assert nbytes <= 1024


@pytest.mark.parametrize("num_threads", [0, 1, 4])
@pytest.mark.parametrize("construct", ["task", "detach", "target", "failed", "value", "nested", "set"])
def test_a_finished_task_is_freed_at_once(uncollected, num_threads, construct):
    """A task that nobody holds is gone when it is complete, also as the last writer of a location."""
    x = np.zeros(4)
    event = omp.Event()

    def fails():
        raise ArithmeticError

    def nested():
        omp.task(depend=[inout(x)])(nothing)()
        omp.taskwait()

    with omp.Runtime("sim", num_threads=num_threads):
        make = {
            "task": omp.task(nothing, depend=[inout(x)]),
            "detach": omp.task(event.fulfill, depend=[inout(x)], detach=event),
            "target": omp.target(lambda: None, depend=[inout(x)], nowait=True),
            "failed": omp.task(fails, depend=[inout(x)]),
            "value": omp.task(lambda: bytearray(10), depend=[inout(x)]),
            "nested": omp.task(nested, depend=[inout(x)]),
            "set": omp.task(nothing, depend=[omp.mutexinoutset(x)]),
        }[construct]
        reference = weakref.ref(make())
        try:
            omp.taskwait()
        except ExceptionGroup:
            assert construct == "failed"
        until_gone(reference)


@pytest.mark.parametrize("num_threads", [0, 4])
def test_a_finished_member_of_a_chain_is_freed_before_the_end(uncollected, num_threads):
    """Of a chain, what is complete is gone while the rest still waits."""
    x = np.zeros(1)
    event = omp.Event()
    with omp.Runtime("none", num_threads=num_threads):
        chain = [weakref.ref(omp.task(depend=[inout(x)])(nothing)()) for _ in range(100)]
        held = weakref.ref(omp.task(depend=[inout(x)], detach=event)(nothing)())
        omp.task(depend=[inout(x)])(nothing)()
        while held().state != "detached":
            omp.taskyield()
        until_gone(*chain)
        assert held() is not None
        event.fulfill()
        omp.taskwait()
        until_gone(held)


# -- very many ------------------------------------------------------------------------------------
def chain_with_waits(n_tasks):
    x = np.zeros(1)
    link = omp.task(depend=[inout(x)])(nothing)
    for number in range(n_tasks):
        link()
        if number % 10_000 == 9_999:
            omp.taskwait()
        yield


def fresh_arrays(n_tasks):
    task = omp.task(nothing)
    for _ in range(n_tasks):
        x = np.zeros(8)
        task.options(depend=[inout(x)])()
        yield


def fresh_tokens(n_tasks):
    task = omp.task(nothing)
    for number in range(n_tasks):
        task.options(depend=[inout(("token", number))])()
        yield


def readers_of_one(n_tasks):
    x = np.zeros(1)
    task = omp.task(depend=[in_(x)])(nothing)
    for _ in range(n_tasks):
        task()
        yield


PROGRAMS = (chain_with_waits, fresh_arrays, fresh_tokens, readers_of_one)


def growth_nbytes(program, n_tasks, num_threads):
    """Return by how much the process outgrows what it has had when 40,000 tasks have been there.

    So many fresh locations are more than the tracker keeps before it first looks for those that are past.
    """
    most = {False: 0, True: 0}
    with omp.Runtime("none", num_threads=num_threads):
        for number, _ in enumerate(program(n_tasks)):
            if number % 1_000 == 0:
                is_settled = number > 40_000
                most[is_settled] = max(most[is_settled], resident_nbytes())
        omp.taskwait()
    return most[True] - most[False]


@pytest.mark.skipif(not STATM.exists(), reason="memory of the process as Linux tells it")
@pytest.mark.parametrize("num_threads", few(1, [2, 0]))
@pytest.mark.parametrize("program", few(1, PROGRAMS))
def test_100_000_tasks_in_constant_memory(program, num_threads):
    """Chains with a wait now and then, and fresh locations without any, do not make the process grow."""
    assert growth_nbytes(program, 100_000, num_threads) < 8 << 20


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.skipif(not STATM.exists(), reason="memory of the process as Linux tells it")
@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_million_tasks_in_constant_memory(program, num_threads):
    """The same for a million."""
    growth = growth_nbytes(program, 1_000_000, num_threads)
    print(f"{program.__name__}, {num_threads} threads: {growth / 2**20:.1f} MiB")
    assert growth < 8 << 20


# -- the throttle ---------------------------------------------------------------------------------
@pytest.fixture
def attempts(monkeypatch):
    """Count how often a runtime's producer looks for something to run when it is throttled."""
    found = []

    def count(runtime):
        helps = runtime.engine.help

        def counted(scope, frame, n_tasks):
            found.append(helped := helps(scope, frame, n_tasks))
            return helped

        monkeypatch.setattr(runtime.engine, "help", counted)
        return found

    return count


@pytest.mark.parametrize("num_threads", [0, 1, 4])
@pytest.mark.parametrize("construct", ["task", "target"])
def test_tasks_behind_an_event_are_not_throttled(attempts, num_threads, construct):
    """20,000 tasks behind an event that the same thread fulfils later are generated with a few looks for work."""
    event = omp.Event()
    x = np.zeros(1)
    with omp.Runtime("sim", num_threads=num_threads) as runtime:
        tried = attempts(runtime)
        omp.task(depend=[out(x)], detach=event)(nothing)()
        if construct == "task":
            behind = omp.task(depend=[in_(x)])(nothing)
        else:
            behind = omp.target(depend=[in_(x)], nowait=True)(nothing)
        for _ in range(N_BEHIND if construct == "task" else N_BEHIND // 10):
            last = behind()
        n_tried = len(tried)
        event.fulfill()
        omp.taskwait()
        assert last.state == "complete"
    assert 0 < n_tried < 100


def test_others_that_are_busy_do_not_slow_the_producer(attempts):
    """Tasks behind an event are generated without waiting for tasks of another thread, which come and go."""
    event, stop = omp.Event(), threading.Event()
    x = np.zeros(1)
    with omp.Runtime("none", num_threads=1) as runtime:

        def other():
            while not stop.is_set():
                omp.task(nothing)()
                omp.taskwait()

        thread = threading.Thread(target=other)
        thread.start()
        try:
            omp.task(depend=[out(x)], detach=event)(nothing)()
            tried = attempts(runtime)
            behind = omp.task(depend=[in_(x)])(nothing)
            for _ in range(N_BEHIND):
                behind()
            n_vain = tried.count(False)
        finally:
            stop.set()
            thread.join()
            event.fulfill()
        omp.taskwait()
    assert n_vain < 100


def test_a_producer_without_workers_has_few_live_tasks():
    """Where nobody else runs tasks, the producer runs one for each that it generates beyond the limit."""
    with omp.Runtime("none", num_threads=0) as runtime:
        most = 0
        live = runtime.scope().region.children.live
        for _ in range(5 * MANY_LIVE):
            omp.task(nothing)()
            most = max(most, len(live))
        assert MANY_LIVE <= most <= MANY_LIVE + 1
        omp.taskwait()


def test_a_body_that_is_throttled_helps_with_its_own_only():
    """Inside of a task the throttle runs tasks that the body generated, and none that it might deadlock with."""
    lock = threading.Lock()  # held across the generation of tasks, as in a body it may be
    ran = []

    def foreign():
        with lock:
            ran.append("foreign")

    def body():
        with lock:
            for _ in range(4 * MANY_LIVE):
                omp.task(ran.append)("own")
            assert ran.count("own") > MANY_LIVE
            assert "foreign" not in ran

    with omp.Runtime("none", num_threads=0):
        for _ in range(10):
            omp.task(foreign)()
        omp.task(if_=False)(body)()
        omp.taskwait()
    assert ran.count("foreign") == 10
    assert ran.count("own") == 4 * MANY_LIVE


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_task_that_the_throttle_runs_may_generate_tasks(num_threads):
    """Tasks of tasks of tasks, each generation beyond the limit, all run."""
    n = MANY_LIVE + 100
    ran = []

    def generates(depth):
        ran.append(depth)
        for number in range(n):
            omp.task(generates if depth and not number else ran.append)(depth - 1)

    with omp.Runtime("none", num_threads=num_threads):
        for _ in range(3):
            generates(2)
        omp.barrier()
    assert sorted(set(ran)) == [-1, 0, 1, 2]
    assert len(ran) == 3 * (1 + 3 * n)


@pytest.mark.parametrize("memcpy", [omp.target_memcpy, omp.target_memcpy_async])
def test_a_read_only_device_array_is_no_destination(memcpy):
    """A whole copy to a device array that has been made read-only is refused at the call, and nothing fails later."""
    with omp.Runtime("sim:1", check=True):
        d = omp.target_alloc(4, np.float64)
        d.flags.writeable = False
        with pytest.raises(omp.ClauseError, match="read-only"):
            memcpy(d, np.ones(4))
        omp.target_free(d)
