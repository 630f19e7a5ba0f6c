"""Queues in rough weather: failures, threads, interrupts, replays, streams of the program's, and what they leave."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from contextlib import nullcontext

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout
from offload.constructs import queueing
from offload.runtime.queues import Queue
from tests.conftest import checked


@acc.parallel(present=["a"])
def increment(a):
    a += 1


@acc.parallel(present=["a"])
def fail(a):
    raise KeyError("boom")


def held(queue, log=None, mark="held"):
    """Put an operation into a queue that is not complete before its event is fulfilled; return the event."""
    event, token = omp.Event(), object()
    omp.task(detach=event, depend=[inout(token)])(lambda: None)()
    acc.serial(async_=queue, depend=[in_(token)])(lambda: None if log is None else log.append(mark))()
    return event


def entry_of(runtime, a):
    (entry,) = runtime.places[0].table.entries()
    return entry


def failures_of(queue):
    """Return the classes of what has failed in a queue."""
    try:
        acc.wait(queue)
    except ExceptionGroup as group:
        return [type(error) for error in group.exceptions]
    return []


# -- failures ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_failure_does_not_go_along_presence(num_threads):
    """What only needs the same data is ordered behind a failed operation, and runs; cleaning up is possible."""
    a = np.zeros(4)
    with checked("sim:1", num_threads=num_threads):
        acc.enter_data(copyin=[a])
        fail.options(async_=1)(a)
        increment.options(async_=2)(a)
        later = increment.options(async_=1)(a)
        acc.wait(2)
        acc.update(self_=[a])
        assert (a == 1).all()
        acc.exit_data(delete=[a])
        assert failures_of(1) == [KeyError]  # not the errors themselves, which refer to the data of their bodies
        assert later.state == "not run"
        del later  # the same


def test_the_end_of_a_region_runs_after_a_failure(sim):
    """An asynchronous region is left although an operation in its queue has failed, and copies back."""
    a = np.zeros(4)
    with acc.data(copy=[a], async_=1):
        increment.options(async_=1)(a)
        fail.options(async_=1)(a)
    with pytest.raises(ExceptionGroup):
        acc.wait(1)
    assert not acc.is_present(a)
    assert (a == 1).all()


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_construct_that_raises_leaves_the_order(sim, monkeypatch, is_recorded):
    """Where an operation could not be generated, the next one follows the one before it."""
    log = []
    gate = held(1, log)

    def raising(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(*((queueing, "_recorded") if is_recorded else (sim.engine, "submit")), raising)
        with pytest.raises(MemoryError), omp.record() if is_recorded else nullcontext():
            acc.serial(async_=1)(lambda: log.append("lost"))()
    acc.serial(async_=1)(lambda: log.append("next"))()
    assert log == []
    gate.fulfill()
    acc.wait(1)
    assert log == ["held", "next"]


# -- threads and bodies --------------------------------------------------------------------------------
def test_an_operation_follows_those_of_another_thread(sim):
    """Operations of two threads in one queue run in the order of their encounters, without a thread for the bridge."""
    log = []
    gate = held(1, log)
    thread = threading.Thread(target=acc.serial(async_=1)(lambda: log.append("other")))
    thread.start()
    thread.join()
    acc.serial(async_=1)(lambda: log.append("last"))()
    assert log == []
    gate.fulfill()
    acc.wait(1)
    assert log == ["held", "other", "last"]


def test_looking_at_a_queue_that_another_thread_fills(sim):
    """A thread that asks for a queue's operations sees those of another thread, as many as there are by then."""
    event, errors = held(1), []

    def fill():
        try:
            for _ in range(1_000):
                acc.serial(async_=1)(str)()
        except BaseException as error:
            errors.append(error)

    filling = threading.Thread(target=fill)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # the threads take turns within the look-up
    try:
        filling.start()
        while filling.is_alive():
            assert not acc.async_test(1)
    finally:
        sys.setswitchinterval(interval_s)
        filling.join()
        event.fulfill()
    assert errors == []
    acc.wait(1)
    assert acc.async_test(1)


def test_polling_in_a_body():
    """A body that asks async_test for its own operation gets there, though the only worker runs it."""
    a = np.zeros(4)
    with checked("sim:1", num_threads=1):
        acc.enter_data(copyin=[a])

        @omp.task
        def body():
            increment.options(async_=1)(a)
            while not acc.async_test(1):
                pass

        task = body()
        while not task.done():
            time.sleep(0)
        acc.exit_data(copyout=[a])
    assert (a == 1).all()


def test_unmap_data_follows_queued_regions(sim):
    """acc.unmap_data lets operations that need the data come first."""
    a = np.zeros(4)
    d = acc.malloc(a.nbytes)
    acc.map_data(a, d)
    acc.memcpy_to_device(d, a)
    increment.options(async_=1)(a)
    acc.unmap_data(a)
    acc.wait(1)
    assert (d.view("f8").get() == 1).all()
    acc.free(d)


def test_wait_for_the_queues_of_another_device():
    """``wait(1, device=1, async_=3)`` holds queue 3 of the default device until queue 1 of the other is through."""
    with checked("sim:2"):
        log, event, token = [], omp.Event(), object()
        omp.task(detach=event, depend=[inout(token)])(lambda: None)()
        acc.serial(async_=1, device=1, depend=[in_(token)])(lambda: log.append("first"))()
        acc.wait(1, device=1, async_=3)
        acc.serial(async_=3, device=0)(lambda: log.append("second"))()
        assert not acc.async_test(3)
        event.fulfill()
        acc.wait(3)
        assert log == ["first", "second"]


# -- graphs --------------------------------------------------------------------------------------------
def test_replays_of_an_asynchronous_region(sim):
    """Each run of a graph with an asynchronous data region in it leaves what it has entered."""
    a = np.zeros(4)

    @omp.taskgraph(nogroup=True)
    def region(a):
        with acc.data(copy=[a], async_=1):
            increment.options(async_=1)(a)

    for _ in range(8):
        region(a)
    acc.wait(1)
    assert (a == 8).all()
    assert not acc.is_present(a)


def test_recording_while_another_thread_is_in_the_queue(sim):
    """A recorded region waits for an operation of another thread; replays do not, and do not hang."""
    log, gates = [], []
    thread = threading.Thread(target=lambda: gates.append(held(1, log, "other")))
    thread.start()
    thread.join()
    threading.Timer(0.05, gates[0].fulfill).start()

    @omp.taskgraph
    def region():
        acc.serial(async_=1)(lambda: log.append("graph"))()

    for _ in range(3):
        region()
    assert log == ["other", "graph", "graph", "graph"]


def test_what_is_only_recorded_is_in_no_queue(sim):
    """Operations that are recorded without being run neither count nor cut the order of those around them."""
    log = []
    gate = held(1, log)
    with omp.record(execute=False) as graph:
        acc.serial(async_=1)(lambda: log.append("recorded"))()
        acc.serial(async_=1)(lambda: log.append("after it"))()
        with acc.data(copy=[a := np.zeros(4)]), acc.host_data([a]) as (same,):
            assert same is a
    acc.serial(async_=1)(lambda: log.append("next"))()
    gate.fulfill()
    acc.wait(1)
    assert log == ["held", "next"]
    graph.compute()
    assert log == ["held", "next", "recorded", "after it"]


# -- streams -------------------------------------------------------------------------------------------
def test_a_stream_that_is_replaced_is_waited_for(sim):
    """What the program has put on a queue's stream stays part of the queue when that gets another stream."""
    gate, done = threading.Event(), []
    own = sim.places[0].device.new_stream()
    acc.get_cuda_stream(1).launch(lambda: (gate.wait(20), done.append(1)))
    assert not acc.async_test(1)
    acc.set_cuda_stream(1, own)
    assert not acc.async_test(1)
    threading.Timer(0.05, gate.set).start()
    acc.wait(1)
    assert done == [1]


# -- what is remembered --------------------------------------------------------------------------------
def test_an_array_that_is_resized_between_updates(sim):
    """An array that gets other memory and another size is another list item from then on."""
    a = np.zeros(4)
    with acc.data(copyin=[a]):
        acc.update(device=[a], async_=1)
        acc.wait(1)
    a.resize(1 << 20, refcheck=False)
    with acc.data(create=[a]):
        a[:] = 3
        acc.update(device=[a], async_=1)
        increment.options(async_=1)(a)
        acc.update(self_=[a], async_=1)
        acc.wait(1)
    assert (a == 4).all()


def test_an_array_in_the_place_of_another(sim):
    """What is known of the storage of an array that is gone is right for one that has its place with another type."""
    memory = bytearray(64)
    for dtype in ("f8", "f4", "u1"):
        a = np.frombuffer(memory, dtype)
        a[:] = 1
        with acc.data(copyin=[a]):
            increment.options(async_=1)(a)
            acc.update(self_=[a], async_=1)
            acc.wait(1)
        assert (a == 2).all()


def test_an_update_that_is_late_knows_the_name(sim):
    """The message of an update that gets its turn after its function has returned names the variable all the same."""

    def update():
        absent = np.zeros(3)
        acc.update(self_=[absent], async_=1)

    gate = held(1)
    update()
    gate.fulfill()
    with pytest.raises(ExceptionGroup) as caught:
        acc.wait(1)
    assert "absent" in str(caught.value.exceptions[0])


@pytest.mark.parametrize("is_held", [False, True])
def test_updates_keep_no_locals(sim, is_held):
    """An update keeps nothing of the function that it is called in but the array."""

    class Local:
        pass

    def update():
        local = Local()
        acc.update(device=[a], async_=1)
        return weakref.ref(local)

    a = np.zeros(3)
    with acc.data(create=[a]):
        gate = held(1) if is_held else None
        assert update()() is None
        if gate is not None:
            gate.fulfill()


def test_queues_given_by_options(sim):
    """A copy of a region in another queue has the other clauses of the region, and its own queue and wait clause."""
    a, log = np.zeros(4), []
    region = acc.parallel(lambda a: log.append(a.shape), present=["a"], name="named")
    with acc.data(copy=[a]):
        gate = held(2)
        task = region.options(async_=1, wait=2)(a)
        assert task.name == "named"
        assert not task.done()
        gate.fulfill()
        acc.wait(1)
        assert region.options(async_=1).options(async_=None)(a) is None
    assert log == [(4,), (4,)]
    with pytest.raises(omp.ClauseError, match="async_"):
        region.options(async_="1")
    with pytest.raises(ExceptionGroup):
        region.options(async_=1)(a)
        acc.wait(1)


def test_an_operation_that_was_interrupted_stands_for_the_one_before(sim, monkeypatch):
    """What another thread has put behind an operation that then could not be generated follows the one before it."""
    log, threads = [], []
    gate = held(1, log)

    def raising(*_):
        threads.append(threading.Thread(target=acc.serial(async_=1)(lambda: log.append("other"))))
        threads[0].start()
        threads[0].join()
        raise MemoryError

    with monkeypatch.context() as patched:
        submit = sim.engine.submit
        patched.setattr(sim.engine, "submit", lambda *given: submit(*given) if threads else raising())
        with pytest.raises(MemoryError):
            acc.serial(async_=1)(lambda: log.append("lost"))()
    assert log == []
    gate.fulfill()
    acc.wait(1)
    assert log == ["held", "other"]


# -- what is left --------------------------------------------------------------------------------------
@pytest.mark.parametrize("openacc", [True, False])
def test_accesses_of_parts_do_not_pile_up(sim, openacc):
    """However many parts of an array are updated, an entry remembers those under way and a few more."""
    a = np.zeros((500, 8))
    acc.enter_data(copyin=[a])
    entry = entry_of(sim, a)
    for k, row in enumerate(a):
        if openacc:
            acc.update(device=[row], async_=k % 5)
            increment.options(async_=k % 5)(row)
            acc.update(self_=[row], async_=k % 5)
        else:
            omp.target_update(to=[row])
            omp.target_update(from_=[row])
    acc.wait()
    if openacc:
        acc.update(device=[a[0]])
        acc.update(self_=[a[0]])
        assert (a == 1).all()
    assert len(entry.writes) <= entry.writes.limit
    assert len(entry.uses) <= entry.uses.limit
    if not openacc:
        assert entry.writes.limit <= 128
    acc.exit_data(delete=[a])


def test_waits_leave_no_callbacks(sim):
    """wait_any takes its callbacks off the operations that it did not wait for in the end."""
    gate = held(1)
    task = acc.serial(async_=1)(lambda: None)()
    for _ in range(20):
        assert acc.wait_any([1, 2]) == 1
        acc.serial(async_=2)(lambda: None)()
        acc.wait_any([1, 2])
    assert not task.callbacks
    gate.fulfill()
    acc.wait()


def test_a_queue_forgets_its_operations(sim):
    """A queue keeps what is not complete, and no mark keeps a task."""
    a = np.zeros(4)
    acc.enter_data(copyin=[a])
    for _ in range(300):
        increment.options(async_=1)(a)
    acc.wait(1)
    queue = sim.queues[sim.places[0], 1]
    assert isinstance(queue, Queue)
    assert queue.unfinished() == []
    assert queue.tail.before is None
    acc.exit_data(copyout=[a])
    assert (a == 300).all()
