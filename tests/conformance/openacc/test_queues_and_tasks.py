"""Queues are tasks: graphs, replays, waits, dependences, failures, threads and streams see their operations as such."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout, out
from tests.conftest import checked


def increment(*arrays):
    for array in arrays:
        array[...] = array + 1


def double(array):
    array *= 2


def fail(name="body"):
    raise ValueError(name)


def bump(array, queue, **clauses):
    return acc.parallel(async_=queue, **clauses)(increment)(array)


def failures(call, *args):
    """Return the texts of the failures that a wait raises."""
    with pytest.raises(ExceptionGroup) as caught:
        call(*args)
    return sorted(str(error) for error in caught.value.exceptions)


# -- graphs ------------------------------------------------------------------------------------------
def pipeline(a, b):
    """Fill two queues, which meet in a third."""
    acc.enter_data(copyin=[a], async_=1)  # 0
    acc.enter_data(copyin=[b], async_=2)  # 1
    bump(a, 1, present=[a])  # 2
    acc.kernels(present=[b], async_=2)(double)(b)  # 3
    acc.wait(1, 2, async_=3)  # 4
    acc.serial(present=[a, b], async_=3)(lambda a, b: a.__iadd__(b) is None)(a, b)  # 5
    acc.exit_data(copyout=[a, b], async_=3)  # 6
    acc.wait(3)  # 7


def test_record_shows_the_edges(runtime):
    """A recorded graph has a node for each operation, and the edges of queues, waits and presence."""
    a, b = np.ones(4), np.ones(4)
    with omp.record() as graph:
        pipeline(a, b)
    found = {(edge.source.index, edge.target.index) for edge in graph.edges}
    assert {(0, 2), (1, 3), (2, 4), (3, 4), (4, 5), (5, 6), (6, 7)} <= found
    assert not found & {(0, 1), (1, 2), (2, 3), (0, 3)}
    assert [node.directive for node in graph.tasks[:-1]] == [
        "acc enter_data",
        "acc enter_data",
        "acc parallel",
        "acc kernels",
        "acc wait",
        "acc serial",
        "acc exit_data",
    ]
    assert (a == 4).all()
    assert (b == 2).all()


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_graphs_are_computed(runtime, scheduler):
    """What is only recorded runs nothing; compute runs it, as often as it is asked, in the order of the queues."""
    a, b = np.ones(4), np.ones(4)
    with omp.record(execute=False) as graph:
        pipeline(a, b)
    assert (a == 1).all()
    assert acc.async_test_all()
    graph.compute(scheduler=scheduler)
    assert (a == 4).all()
    graph.compute(scheduler=scheduler)
    assert (a == 9).all()
    assert (b == 4).all()
    acc.wait()


def test_taskgraph_replays_in_order(queues):
    """A taskgraph replays the operations of queues in their order, any number of times."""
    queues.go()
    a, b = np.ones(4), np.ones(4)
    n_calls = []

    @omp.taskgraph
    def region(a, b):
        n_calls.append(1)
        pipeline(a, b)

    x, y = 1, 1
    for _ in range(5):
        region(a, b)
        y *= 2
        x += 1 + y
        assert a.tolist() == [x] * 4
        assert b.tolist() == [y] * 4
    assert n_calls == [1]


def test_waits_cover_replays(queues, gates):
    """acc.wait and async_test cover operations that a replay has put into a queue."""
    queues.go()
    a = np.zeros(4)

    @omp.taskgraph(nogroup=True)
    def region(a):
        bump(a, 1, depend=[inout(("x",))])
        bump(a, 1)

    region(a)
    acc.wait(1)
    assert (a == 2).all()
    region(a)
    acc.wait(1)
    assert (a == 4).all()
    region(a)
    while not acc.async_test(1):
        pass
    assert (a == 6).all()


# -- waits of OpenMP ---------------------------------------------------------------------------------
def test_taskwait(queues):
    """taskwait waits for the operations of queues as for all tasks."""
    a = np.zeros((12, 4))
    tasks = [bump(a[queue], queue) for _ in range(3) for queue in range(12)]  # nothing orders those of two queues
    queues.go()
    omp.taskwait()
    assert all(task.done() for task in tasks)
    assert (a == 3).all()
    assert acc.async_test_all()


def test_taskgroup(queues):
    """The end of a taskgroup waits for operations generated in it, and for no others of the queue."""
    queues.go()
    a = np.zeros(4)
    with omp.taskgroup():
        task = bump(a, 1)
        acc.wait(1, async_=2)
        other = bump(a, 2)
    assert task.done()
    assert other.done()
    assert (a == 2).all()


def test_barrier_and_result(queues):
    """So do barrier and result()."""
    a = np.zeros(4)
    bump(a, 1)
    task = acc.parallel(async_=1)(lambda a: float(a.sum()))(a)
    queues.go()
    assert task.result() == 4
    bump(a, 5)
    omp.barrier()
    assert (a == 2).all()


def test_the_runtime_waits_at_its_exit(devices):
    """What queues hold when a runtime ends has run then, and a failure that nobody has seen is raised."""
    a = np.zeros(4)
    with checked(devices):
        bump(a, 1)
        bump(a, 1)
    assert (a == 2).all()
    with pytest.raises(ExceptionGroup) as caught, checked(devices):
        acc.parallel(async_=1)(fail)()
    assert [str(error) for error in caught.value.exceptions] == ["body"]


# -- dependences -------------------------------------------------------------------------------------
def test_an_operation_follows_a_task(queues, gates):
    """`depend` on an operation: it follows tasks and target regions that wrote what it reads."""
    queues.go()
    a, log = np.zeros(4), []
    gate = gates()
    omp.task(depend=[gate.after, out(a)])(lambda: log.append("task") or increment(a))()
    omp.target(depend=[inout(a)], nowait=True)(double)(a)
    task = bump(a, 1, depend=[inout(a)])
    update = acc.update(self_=[a], if_present=True, async_=2, depend=[in_(a)])
    entered = acc.enter_data(copyin=[a], async_=3, depend=[in_(a)])
    left = acc.exit_data(delete=[a], async_=3)
    assert not any(operation.done() for operation in (task, update, entered, left))
    assert log == []
    gate.open()
    acc.wait()
    assert all(operation.done() for operation in (task, update, entered, left))
    assert log == ["task"]
    assert (a == 3).all()
    omp.taskwait()


def test_a_task_follows_an_operation(queues, hold):
    """Tasks and target regions follow an operation that wrote what they read, though its queue is held."""
    queues.go()
    a, log = np.zeros(4), []
    gate = hold(1)
    bump(a, 1, depend=[inout(a)])
    omp.target(depend=[inout(a)], nowait=True)(double)(a)
    task = omp.task(depend=[in_(a)])(lambda: log.append(a.tolist()))()
    assert not task.done()
    assert log == []
    gate.open()
    omp.taskwait(depend=[in_(a)])
    task.result()
    assert log == [[2.0] * 4]


def test_a_chain_through_both(queues, hold):
    """Queue, task, other queue: each follows the one before, and the first queue goes on meanwhile."""
    queues.go()
    a, b, log = np.zeros(4), np.zeros(4), []
    gate = hold(1)
    bump(a, 1, depend=[out(("a",))])
    event = omp.Event()
    middle = omp.task(depend=[inout(("a",))], detach=event)(lambda: log.append(a[0]))()
    last = acc.parallel(async_=2, depend=[in_(("a",))])(double)(a)
    gate.open()
    bump(b, 1)
    acc.wait(1)
    assert (b == 1).all()
    assert not middle.done()
    assert not last.done()
    event.fulfill()
    acc.wait(2)
    assert log == [1]
    assert (a == 2).all()


def test_operations_without_depend_are_followed_by_their_queue_alone(queues, hold):
    """A task that names an array which an operation uses without depend does not wait for it, as in the standard."""
    queues.go()
    a, log = np.zeros(4), []
    gate = hold(1)
    task = bump(a, 1)
    omp.task(depend=[inout(a)])(lambda: log.append(a.tolist()))().result()
    assert log == [[0.0] * 4]
    assert not task.done()
    gate.open()


# -- failures ----------------------------------------------------------------------------------------
WAITS = {
    "wait": lambda: acc.wait(1),
    "wait all": acc.wait,
    "async_test": lambda: [None for _ in iter(lambda: acc.async_test(1), True)],
    "async_test_all": lambda: [None for _ in iter(acc.async_test_all, True)],
    "wait_any": lambda: acc.wait_any([1]),
    "taskwait": omp.taskwait,
    "clause": acc.parallel(wait=[1])(lambda: None),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_failures_surface_once(queues, wait):
    """A failure in a queue is raised by the next wait for it, once, whichever it is; what follows it does not run."""
    a, ran = np.zeros(4), []
    first = bump(a, 1)
    failing = acc.parallel(async_=1)(fail)()
    after = acc.parallel(async_=1)(ran.append)(1)
    update = acc.update(self_=[a], if_present=True, async_=1)
    queues.go()
    assert failures(wait) == ["body"]
    assert ran == []
    assert [task.state for task in (first, failing, after, update)] == ["complete", "failed", "not run", "not run"]
    for again in WAITS.values():
        again()
    with pytest.raises(omp.DependError) as caught:
        after.result()
    assert caught.value.__cause__ is failing.exception()
    bump(a, 1)
    acc.wait(1)
    assert (a == 2).all()


def test_failures_of_other_queues(queues, hold):
    """A wait raises what failed in its queues and leaves the others' failures to theirs."""
    queues.go()
    gate = hold(3)
    for queue in (1, 2, 3):
        acc.parallel(async_=queue)(fail)(str(queue))
    assert failures(acc.wait, 2) == ["2"]
    acc.wait(2)
    gate.open()
    assert failures(acc.wait) == ["1", "3"]
    acc.wait()
    omp.taskwait()


def test_failures_that_have_been_seen(queues):
    """What result() or exception() has shown is not raised again."""
    task = acc.parallel(async_=1)(fail)()
    queues.go()
    assert str(task.exception()) == "body"
    acc.wait(1)
    assert acc.async_test(1)
    omp.taskwait()


def test_failures_go_along_waits(queues):
    """Through `wait(1) async(2)` what comes in queue 2 does not run either, and the failure is raised once for both."""
    ran = []
    acc.parallel(async_=1)(fail)()
    acc.wait(1, async_=2)
    acc.parallel(async_=2)(ran.append)(1)
    acc.parallel(async_=3, wait=[2])(ran.append)(2)
    queues.go()
    assert failures(acc.wait) == ["body"]
    assert ran == []
    acc.wait()


def test_failures_of_tasks_reach_queues(queues):
    """An operation that depends on a task which fails does not run."""
    ran = []
    task = omp.task(depend=[out(("x",))])(fail)()
    operation = acc.parallel(async_=1, depend=[in_(("x",))])(ran.append)(1)
    queues.go()
    assert isinstance(operation.exception(), omp.DependError)
    assert operation.exception().__cause__ is task.exception()
    acc.wait(1)
    assert ran == []


@pytest.mark.parametrize("queue", [1, 2])
def test_the_end_of_a_region_releases(queues, queue):
    """An operation in an async data region fails: its end releases the data all the same, in that queue or another."""
    a, b = np.zeros(4), np.zeros(4)
    with acc.data(copy=[a], create=[b], async_=1):
        acc.wait(1, async_=queue)
        acc.parallel(present=[a], async_=queue)(lambda a: fail("body"))(a)
        acc.wait(queue, async_=1)
    queues.go()
    assert failures(acc.wait) == ["body"]
    assert not acc.is_present(a)
    assert not acc.is_present(b)
    with acc.data(copy=[a], async_=1):
        bump(a, 1, present=[a])
    acc.wait(1)
    assert (a == 1).all()


def test_the_entry_of_a_region_fails(queues):
    """An entry that finds no present data fails at the wait; nothing is mapped, and the end undoes nothing."""
    a, b = np.zeros(4), np.zeros(4)
    with acc.data(present=[a], create=[b], async_=1):
        task = bump(b, 1)
    queues.go()
    with pytest.raises(ExceptionGroup) as caught:
        acc.wait(1)
    assert [type(error) for error in caught.value.exceptions] == [omp.NotPresentError]
    assert task.state == "not run"
    assert not acc.is_present(b)


def test_a_block_that_raises(queues):
    """A block of an async region that raises leaves through the end, and its exception is the one that is raised."""
    a = np.zeros(4)
    with pytest.raises(KeyError, match="block"), acc.data(copy=[a], async_=1):
        bump(a, 1, present=[a])
        raise KeyError("block")
    queues.go()
    acc.wait(1)
    assert (a == 1).all()
    assert not acc.is_present(a)


# -- threads and bodies ------------------------------------------------------------------------------
def test_threads_share_a_queue(queues, hold):
    """Operations of two host threads in one queue are in the order of their calls, and either thread waits for all."""
    queues.go()
    a = np.zeros(4)
    gate = hold(1)
    turn = [threading.Event() for _ in range(2)]
    found = []

    def other():
        for _ in range(3):
            acc.parallel(async_=1)(double)(a)
        turn[0].set()
        turn[1].wait()
        acc.wait(1)
        found.append(a.tolist())

    bump(a, 1)
    thread = threading.Thread(target=other)
    thread.start()
    turn[0].wait()
    last = bump(a, 1)
    turn[1].set()
    assert not last.done()
    gate.open()
    acc.wait(1)
    thread.join()
    assert found == [[9.0] * 4]
    assert (a == 9).all()


def test_threads_at_once(queues):
    """Threads that fill and wait for one queue without order among them lose no operation."""
    queues.go()
    a = np.zeros(4)

    def work():
        for _ in range(20):
            bump(a, 1)
        acc.wait(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    acc.wait(1)
    assert (a == 80).all()


def test_failures_of_another_thread(queues):
    """Whoever waits for the queue is told of a failure, once."""
    queues.go()
    thread = threading.Thread(target=acc.parallel(async_=1)(fail))
    thread.start()
    thread.join()
    assert failures(acc.wait, 1) == ["body"]
    acc.wait(1)


def test_a_queue_in_the_body_of_a_task(queues, hold):
    """Operations that a task's body generates are in the order of the queue, and a wait outside covers them."""
    queues.go()
    a, inner = np.zeros(4), []
    gate = hold(1)
    bump(a, 1)

    def body():
        inner.append(acc.parallel(async_=1)(double)(a))
        assert not inner[0].done()

    omp.task(body)().result()
    last = bump(a, 1)
    assert not last.done()
    gate.open()
    acc.wait(1)
    assert inner[0].done()
    assert (a == 3).all()


def test_waits_in_the_body_of_a_task(queues, hold):
    """A task's body waits for a queue that was filled outside, and for its own."""
    a, log = np.zeros(4), []
    bump(a, 1)
    queues.go()

    def body():
        acc.wait(1)
        log.append(a.tolist())
        bump(a, 2)
        acc.wait(1, async_=2)
        acc.wait(2)
        log.append(a.tolist())
        while not acc.async_test_all():
            pass

    omp.task(body)().result()
    assert log == [[1.0] * 4, [2.0] * 4]


def test_failures_in_the_body_of_a_task(queues):
    """A failure of an operation that a task's body has generated surfaces at the wait outside."""
    queues.go()
    ran = []
    omp.task(lambda: acc.parallel(async_=1)(fail)() and None)().result()
    acc.parallel(async_=1)(ran.append)(1)
    assert "body" in failures(acc.wait, 1)
    acc.wait(1)


# -- without workers, without devices ----------------------------------------------------------------
def test_without_workers(devices):
    """With num_threads=0 waits and polling run what is ready, and other waits do not need workers either."""
    with checked(devices, num_threads=0):
        a = np.zeros(4)
        for wait in (acc.wait, omp.taskwait, omp.barrier, lambda: acc.wait_any([2])):
            with acc.data(copy=[a], async_=1):
                bump(a, 1, present=[a])
                acc.wait(1, async_=2)
                acc.kernels(present=[a], async_=2)(increment)(a)
                acc.wait(2, async_=1)
            omp.task(lambda: None)()
            wait()
            acc.wait(1)
        bump(a, 1)
        while not acc.async_test_all():
            pass
        assert (a == 9).all()


@pytest.mark.filterwarnings("ignore::offload.HostFallbackWarning")
def test_on_the_host():
    """Without a device everything runs on the host, in the order of the queues, which can be waited for and polled."""
    with omp.Runtime("none", check=True):
        a, b, log = np.zeros(4), np.zeros(4), []
        event = omp.Event()
        omp.task(detach=event, depend=[out(("x",))])(lambda: None)()
        with acc.data(copy=[a], async_=1, depend=[in_(("x",))]):
            acc.parallel(present=[a], async_=1)(lambda a: log.append(omp.is_initial_device()) or increment(a))(a)
            acc.update(self_=[a], async_=1)
            acc.wait(1, async_=2)
            acc.kernels(async_=2)(lambda a, b: b.__iadd__(a) is None)(a, b)
        assert not acc.async_test(1)
        assert not acc.async_test_all()
        assert acc.async_test(9)
        event.fulfill()
        acc.wait(2)
        assert log == [True]
        assert (b == 1).all()
        acc.parallel(async_=1)(fail)()
        assert failures(acc.wait) == ["body"]
        assert acc.wait_any([1, 2]) in (0, 1)
        for call in (lambda: acc.get_cuda_stream(1), lambda: acc.set_cuda_stream(1, None)):
            with pytest.raises(omp.ClauseError, match=r"cuda_stream.*host"):
                call()


def test_replays_at_a_time_end_their_own_regions(runtime):
    """The end of a data region unmaps what its own entry has found, also while other threads replay the same graph."""
    x = np.zeros(64)

    @omp.taskgraph(nogroup=True)
    def regions():
        for _ in range(20):
            with acc.data(no_create=[x], async_=1):
                pass
        omp.task(lambda: None)()  # a graph of the device would not bear that x comes and goes

    def replay():
        for _ in range(150):
            regions()
        omp.taskwait()

    def change():
        for _ in range(300):
            acc.enter_data(create=[x], async_=2)
            acc.exit_data(delete=[x], async_=2)
        acc.wait()

    regions()
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns between any two steps
    try:
        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(change), pool.submit(replay), pool.submit(replay)]:
                done.result()
    finally:
        sys.setswitchinterval(interval_s)
    omp.barrier()
    acc.wait()
    assert not acc.is_present(x)
