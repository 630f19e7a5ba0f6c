"""The `wait` directive, the `wait` clause and their routines: OpenACCV-V section 3.3."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from offload import acc

CONSTRUCTS = [acc.parallel, acc.kernels, acc.serial]


def increment(*arrays):
    for array in arrays:
        array[...] = array + 1


def add(result, *terms):
    result[...] = 0
    for term in terms:
        result += term


def bump(array, queue=None, **clauses):
    return acc.parallel(async_=queue, **clauses)(increment)(array)


class Opener:
    """Opens gates from another thread once ``ready`` says so, to end a wait that has begun."""

    def __init__(self, *gates):
        self._thread = threading.Thread(target=lambda: [gate.open() for gate in gates])

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._thread.join()


# -- the host waits ----------------------------------------------------------------------------------
@pytest.mark.parametrize("wait", [acc.wait, lambda queue: acc.wait(queue, queue), lambda queue: acc.wait([3, queue])])
def test_acc_wait(queues, hold, wait):
    """acc_wait.c: the host goes on when all that the queue holds is complete."""
    queues.go()
    a = np.zeros(4)
    gate = hold(1)
    task = bump(a, 1)
    with Opener(gate):
        wait(1)
    assert task.done()
    assert gate.operation.done()
    assert (a == 1).all()


@pytest.mark.parametrize("wait", [acc.wait, acc.wait_all, lambda: acc.wait(True)])
def test_acc_wait_all(queues, hold, wait):
    """acc_wait_all.c: without a list the host waits for all queues."""
    queues.go()
    a = np.zeros((5, 4))
    gates = [hold(queue) for queue in (0, 3)]
    tasks = [bump(a[queue], queue) for queue in range(5)]
    with Opener(*gates):
        wait()
    assert all(task.done() for task in tasks)
    assert (a == 1).all()


def test_wait_with_streams_that_start_late(queues):
    """Whatever holds a queue's work, what it has copied out is there after the wait."""
    a, b = np.zeros(4), np.zeros(4)
    bump(a, 1)
    bump(b, 9)
    queues.go()
    acc.wait(1)
    assert (a == 1).all()
    acc.wait(9)
    assert (b == 1).all()


def test_a_wait_is_for_its_queues_alone(queues, hold):
    """While queue 1 is held, a wait for others returns, also for one on the same stream."""
    queues.go()
    a = np.zeros((3, 4))
    gate = hold(1)
    for row, queue in enumerate((0, 2, 9)):
        bump(a[row], queue)
    acc.wait(0, 2)
    acc.wait(9)
    assert (a == 1).all()
    assert not gate.operation.done()
    gate.open()
    acc.wait()


def test_wait_for_what_was_never_used(runtime):
    """A queue that was never used holds nothing, nor do synchronous operations."""
    acc.wait(77)
    acc.wait(acc.async_sync)
    acc.wait()
    acc.wait(5, 6, async_=7)
    acc.wait(async_=8)
    acc.wait_all()
    acc.wait(8, 7, 5)
    assert all(acc.async_test(queue) for queue in (5, 6, 7, 8, 77))
    assert acc.async_test_all()


def test_wait_of_a_device():
    """A wait concerns the queues of one device."""
    with omp.Runtime("sim:2", check=True):
        event = omp.Event()
        omp.task(detach=event, depend=[omp.out(("x",))])(lambda: None)()
        held = acc.parallel(async_=1, device=1, depend=[omp.in_(("x",))])(lambda: None)()
        acc.wait(1)
        acc.wait()
        acc.wait(1, device=0)
        assert not held.done()
        event.fulfill()
        acc.wait(1, device=1)
        assert held.done()


# -- wait with if ------------------------------------------------------------------------------------
def test_wait_if_t1(queues, hold):
    """wait_if.c: T1 and T2, with if(0) the directive waits for nothing, with if(1) it does."""
    queues.go()
    a = np.zeros(4)
    gate = hold(1)
    bump(a, 1)
    acc.wait(1, if_=False)
    acc.wait(if_=False)
    acc.wait(1, async_=2, if_=False)
    acc.wait(2, if_=True)  # no marker stands there
    assert not gate.operation.done()
    gate.open()
    acc.wait(1, if_=True)
    assert (a == 1).all()


@pytest.mark.parametrize("queue", [None, 2])
def test_wait_if_t3(queues, queue):
    """wait_if.c: T3 and T4, `update … wait(q) if(0)` transfers nothing; with if(1) it transfers what q has made."""
    queues.go()
    a = np.zeros(4)
    with acc.data(create=[a]):
        acc.parallel(present=[a], async_=1)(lambda a: a.fill(7))(a)
        acc.update(self_=[a], wait=1, if_=False, async_=queue)
        acc.wait()
        assert (a == 0).all()
        acc.update(self_=[a], wait=[1], if_=True, async_=queue)
        acc.wait()
        assert (a == 7).all()


# -- a queue waits -----------------------------------------------------------------------------------
def test_wait_async_does_not_block(queues, hold):
    """`wait(1) async(2)`: the host goes on, and what comes in queue 2 follows what queue 1 held then."""
    queues.go()
    a, b = np.zeros(4), np.zeros(4)
    gate = hold(1)
    first = bump(a, 1)
    assert acc.wait(1, async_=2) is None
    second = acc.parallel(async_=2)(add)(b, a)
    assert not first.done()
    assert not second.done()
    assert not acc.async_test(2)
    gate.open()
    acc.wait(2)
    assert first.done()
    assert (b == 1).all()


def test_wait_async_covers_what_is_held_now(queues, hold):
    """What queue 1 is given after `wait(1) async(2)` does not hold queue 2."""
    queues.go()
    a, b = np.zeros(4), np.zeros(4)
    bump(a, 1)
    acc.wait_async(1, 2)
    gate = hold(1)
    bump(b, 2)
    acc.wait(2)
    assert (a == 1).all()
    assert (b == 1).all()
    assert not gate.operation.done()
    gate.open()
    acc.wait(1)


@pytest.mark.parametrize("other", [1, 9, 17])
def test_a_queue_does_not_wait_for_itself(queues, other):
    """`wait(1) async(1)` adds nothing, nor does a wait for a queue on the same stream hold itself up."""
    a, b = np.zeros(4), np.zeros(4)
    bump(a, 1)
    acc.wait(1, async_=other)
    acc.wait(other, async_=1)
    acc.wait(1, other, async_=other)
    bump(b, other)
    queues.go()
    acc.wait(other)
    assert (a == 1).all()
    acc.wait(1)
    assert (b == 1).all()


def test_acc_wait_all_async(queues, hold):
    """acc_wait_all_async.c: queue 4 follows all others twice, and not what they are given after the first marker."""
    queues.go()
    a, b = np.zeros((3, 4)), np.zeros((2, 4))
    for queue in (1, 2, 3):
        bump(a[queue - 1], queue)
    acc.wait_all_async(4)
    gates = [hold(queue) for queue in (1, 2, 3)]
    first = acc.parallel(copyin=["a"], async_=4)(lambda a, b: add(b, a[0], a[1], a[2]))(a, b[0])
    acc.wait(4)
    assert first.done()
    assert (b[0] == 3).all()
    for queue in (1, 2, 3):
        bump(a[queue - 1], queue)
    acc.wait_all_async(4)
    second = acc.parallel(copyin=["a"], async_=4)(lambda a, b: add(b, a[0], a[1], a[2]))(a, b[1])
    for gate in gates:
        assert not second.done()
        gate.open()
    acc.wait(4)
    assert (b[1] == 6).all()


def test_wait_async_without_a_value(queues, hold):
    """The waiting queue may be the default one, and `wait async` is for all others."""
    queues.go()
    a = np.zeros(4)
    gates = [hold(1), hold(2)]
    acc.wait(async_=True)
    acc.wait_async(1)
    acc.wait_all_async()
    task = bump(a, acc.async_default)
    for gate in gates:
        assert not task.done()
        gate.open()
    acc.wait(acc.get_default_async())
    assert task.done()


def test_wait_async_sync(queues, hold):
    """`wait(1) async(acc_async_sync)` is a wait of the host."""
    queues.go()
    gate = hold(1)
    with Opener(gate):
        acc.wait(1, async_=acc.async_sync)
    assert gate.operation.done()


# -- the clause --------------------------------------------------------------------------------------
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_parallel_wait_queue(queues, construct):
    """parallel_wait_queue.c: `wait(1, 2) async(3)` on a construct, in which the results of both queues meet."""
    a, b, c, d = np.full(8, 1.0), np.full(8, 2.0), np.zeros(8), np.zeros(8)
    acc.enter_data(copyin=[a], create=[c], async_=1)
    acc.enter_data(copyin=[b], create=[d], async_=2)
    construct(present=[a, c], async_=1)(add)(c, a)
    construct(present=[b, d], async_=2)(add)(d, b)
    task = construct(present=[c, d], wait=[1, 2], async_=3)(lambda c, d: c.__iadd__(d) is None)(c, d)
    acc.exit_data(copyout=[c], delete=[a, b, d], async_=3)
    queues.go()
    acc.wait(3)
    assert task.done()
    assert (c == 3).all()


@pytest.mark.parametrize("wait", [1, [1], (1, 2), True, np.int64(1)])
def test_wait_clause_in_a_queue(queues, hold, wait):
    """With async the queue waits and the host goes on."""
    queues.go()
    a = np.zeros(4)
    gate = hold(1)
    tasks = [
        bump(a, 3, wait=wait),
        acc.enter_data(copyin=[a], wait=wait, async_=4),
        acc.update(self_=[a], if_present=True, wait=wait, async_=5),
        acc.exit_data(delete=[a], wait=wait, async_=6),
    ]
    with acc.data(create=[a], wait=wait, async_=7):
        assert not any(task.done() for task in tasks)
        assert not acc.async_test(7)
    gate.open()
    acc.wait()
    assert all(task.done() for task in tasks)


@pytest.mark.parametrize("wait", [1, [2, 1], True])
@pytest.mark.parametrize("construct", ["parallel", "enter_data", "exit_data", "update", "data"])
def test_wait_clause_on_the_host(queues, hold, wait, construct):
    """Without async the host waits for the queues before the construct."""
    queues.go()
    a, b = np.zeros(4), np.zeros(4)
    gate = hold(1)
    bump(a, 1)
    with Opener(gate):
        if construct == "parallel":
            acc.parallel(wait=wait)(add)(b, a)
        elif construct == "enter_data":
            acc.enter_data(copyin=[a], wait=wait)
            acc.parallel(present=[a])(add)(b, a)
        elif construct == "exit_data":
            acc.exit_data(copyout=[a], wait=wait)
        elif construct == "update":
            acc.update(self_=[a], if_present=True, wait=wait)
        else:
            with acc.data(copyin=[a], wait=wait):
                acc.parallel(present=[a])(add)(b, a)
    assert gate.operation.done()
    assert (a == 1).all()
    if construct in ("parallel", "enter_data", "data"):
        assert (b == 1).all()
    acc.exit_data(delete=[a])


def test_the_wait_clause_of_a_region_is_its_entrys(queues, hold):
    """The end of a data region does not wait for what the queues of its wait clause have been given in between."""
    queues.go()
    a = np.zeros(4)
    with acc.data(copy=[a], wait=[1]):
        gate = hold(1)
    assert not gate.operation.done()
    gate.open()
    acc.wait()


# -- wait_any ----------------------------------------------------------------------------------------
def test_acc_wait_any(queues, hold):
    """acc_wait_any.c: it returns the position of a queue that is complete."""
    queues.go()
    gates = [hold(queue) for queue in (3, 5)]
    bump(np.zeros(4), 7)
    assert acc.wait_any([3, 7, 5]) == 1
    gates[1].open()
    acc.wait(5)
    assert acc.wait_any([3, 5]) == 1
    with Opener(gates[0]):
        assert acc.wait_any([3]) == 0
    assert gates[0].operation.done()


def test_wait_any_of_queues_that_are_held(queues, hold):
    """It waits until the first of them is complete, and leaves the other alone."""
    queues.go()
    gates = [hold(queue) for queue in (1, 9)]
    task = bump(np.zeros(4), 9)
    with Opener(gates[1]):
        assert acc.wait_any((1, 9)) == 1
    assert task.done()
    assert not gates[0].operation.done()
    gates[0].open()
    acc.wait()


def test_wait_any_of_nothing(runtime, hold):
    """Of an empty list it is -1; a queue never used and what is synchronous are complete."""
    assert acc.wait_any([]) == -1
    assert acc.wait_any([4]) == 0
    gate = hold(1)
    assert acc.wait_any([1, 4]) == 1
    assert acc.wait_any([1, acc.async_sync]) == 1
    gate.open()
    assert acc.wait_any(1) == 0


def test_wait_any_raises_what_failed_in_that_queue(queues, hold):
    """It raises the failures of the queue that it returns for, once, and those of no other."""
    queues.go()

    def fail(name):
        raise ValueError(name)

    gate = hold(2)
    acc.parallel(async_=2)(fail)("two")
    acc.parallel(async_=1)(fail)("one")
    with pytest.raises(ExceptionGroup) as caught:
        acc.wait_any([2, 1])
    assert [str(error) for error in caught.value.exceptions] == ["one"]
    assert acc.wait_any([2, 1]) == 1
    gate.open()
    with pytest.raises(ExceptionGroup) as caught:
        acc.wait(2)
    assert [str(error) for error in caught.value.exceptions] == ["two"]


# -- arguments ---------------------------------------------------------------------------------------
BAD = [-4, -99, 1.0, "1", [[1]], object()]


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_wait_argument(runtime, bad):
    """Numbers that mean nothing, floats, strings and nested lists are a ClauseError; nothing is made."""
    a = np.zeros(4)
    for call in (
        lambda: acc.wait(bad),
        lambda: acc.wait(1, bad),
        lambda: acc.wait(bad, async_=1),
        lambda: acc.wait_async(bad, 1),
        lambda: acc.wait_any([1, bad]),
        lambda: acc.parallel(wait=[bad]),
        lambda: acc.kernels(wait=[1, bad]),
        lambda: acc.serial(increment).options(wait=[bad]),
        lambda: acc.enter_data(copyin=[a], wait=[bad]),
        lambda: acc.exit_data(delete=[a], wait=[bad]),
        lambda: acc.update(self_=[a], wait=[bad]),
        lambda: acc.data(copy=[a], wait=[bad]).__enter__(),
    ):
        with pytest.raises(omp.ClauseError, match="wait"):
            call()
    assert not acc.is_present(a)


@pytest.mark.parametrize("nothing", [None, False])
def test_nothing_in_a_list_of_queues(runtime, nothing):
    """None and False are no async-arguments where a list of them stands; a clause that is None is not there."""
    for call in (
        lambda: acc.wait(1, nothing),
        lambda: acc.wait_any([nothing]),
        lambda: acc.parallel(wait=[1, nothing]),
        lambda: acc.update(self_=[np.zeros(4)], wait=[nothing]),
    ):
        with pytest.raises(omp.ClauseError, match="wait"):
            call()
    assert acc.parallel(wait=nothing)(lambda: 3)() == 3


def test_an_empty_list_names_no_queue(runtime, hold):
    """A list that a program has computed may be empty, and then nothing is waited for."""
    gate = hold(1)
    acc.wait([])
    assert acc.parallel(wait=[])(lambda: 3)() == 3
    assert not gate.operation.done()
    gate.open()


@pytest.mark.parametrize("bad", [2, -2, "0", 1.5])
def test_devices_of_a_wait(runtime, bad):
    """A device that there is not is a ClauseError, also where nothing would be waited for."""
    n = omp.get_num_devices()
    number = n + bad if bad == 2 else bad
    for call in (
        lambda: acc.wait(1, device=number),
        lambda: acc.wait(device=number, if_=False),
        lambda: acc.wait_all(device=number),
        lambda: acc.wait_any([], device=number),
        lambda: acc.async_test(1, device=number),
        lambda: acc.async_test_all(device=number),
        lambda: acc.get_cuda_stream(1, device=number),
    ):
        with pytest.raises(omp.ClauseError):
            call()


def test_waits_in_a_body_on_a_device(runtime):
    """In a compute region there is nothing that could wait: a UsageError."""
    for call in (acc.wait, lambda: acc.wait(1, async_=2), lambda: acc.async_test(1), lambda: acc.wait_any([1])):
        with pytest.raises(omp.UsageError):
            acc.parallel(call)()
