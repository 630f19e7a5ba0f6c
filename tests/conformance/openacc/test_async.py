"""The `async` clause and `async_test`: OpenACCV-V section 3.3, acc_async_test and the constructs with async."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc

CONSTRUCTS = [acc.parallel, acc.kernels, acc.serial]
ROUTINES = ["copyin", "create", "copyout", "delete", "copyout_finalize", "delete_finalize"]


def increment(*arrays):
    for array in arrays:
        array[...] = array + 1


def add(result, *terms):
    result[...] = 0
    for term in terms:
        result += term


def step(a, b):
    a += b
    b -= a


# -- async_test --------------------------------------------------------------------------------------
def test_acc_async_test_t1(queues):
    """acc_async_test.c: T1, who polls async_test(1) gets there, and then sees what the region copied out."""
    a, b = np.arange(8.0), np.zeros(8)
    acc.parallel(copyin=[a], copyout=[b], async_=1)(add)(b, a)
    queues.go()
    while not acc.async_test(1):
        pass
    assert (b == a).all()


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_acc_async_test_t2(queues, construct, poll):
    """acc_async_test.c: T2, the same of a chain in one queue, with the copies by enter data and exit data."""
    a = np.zeros(8)
    acc.enter_data(copyin=[a], async_=1)
    for _ in range(3):
        construct(present=[a], async_=1)(increment)(a)
    acc.exit_data(copyout=[a], async_=1)
    queues.go()
    poll(acc.async_test, 1)
    assert (a == 3).all()


def test_acc_async_test_t3(queues):
    """acc_async_test.c: T3, `async` without a value is polled as acc_get_default_async() says, or as True."""
    a = np.zeros(8)
    acc.parallel(async_=True)(increment)(a)
    queues.go()
    while not acc.async_test(acc.get_default_async()):
        pass
    assert (a == 1).all()
    assert acc.async_test()
    assert acc.async_test(acc.async_noval)
    assert acc.async_test(acc.async_default)


def test_async_test_is_false_while_something_is_held(queues, hold, poll):
    """While an operation of a queue is held async_test is False, also of those that follow it; then True."""
    queues.go()
    gate = hold(1)
    acc.parallel(async_=1)(increment)(np.zeros(4))
    assert not acc.async_test(1)
    assert not acc.async_test(1)
    gate.open()
    poll(acc.async_test, 1)
    assert gate.operation.done()


@pytest.mark.parametrize("other", [0, 2, 9, 17, 1_000_003])
def test_async_test_tells_of_one_queue(queues, hold, poll, other):
    """While queue 1 is held, async_test tells of another queue alone, though it may be on the same stream."""
    queues.go()
    a = np.zeros(4)
    gate = hold(1)
    assert acc.async_test(other)
    acc.parallel(async_=other)(increment)(a)
    poll(acc.async_test, other)
    assert (a == 1).all()
    assert not acc.async_test(1)
    gate.open()
    poll(acc.async_test, 1)


def test_async_test_of_nothing(runtime):
    """A queue that was never used, and operations that are synchronous, are complete."""
    assert acc.async_test(5)
    assert acc.async_test(acc.async_sync)
    assert acc.async_test_all()


def test_acc_async_test_all(queues, hold, poll):
    """acc_async_test_all.c: it is True once all queues are complete, whichever is last."""
    queues.go()
    a = np.zeros((3, 4))
    gates = [hold(queue) for queue in range(3)]
    for queue in range(3):
        acc.parallel(async_=queue)(increment)(a[queue])
    for gate in reversed(gates):
        assert not acc.async_test_all()
        gate.open()
    poll(acc.async_test_all)
    assert (a == 1).all()


def test_async_test_all_of_a_device(hold, poll):
    """It tells of the queues of one device, which are not those of another with the same number."""
    with omp.Runtime("sim:2", check=True):
        gate = hold(1, device=1)
        acc.parallel(async_=1, device=0)(increment)(np.zeros(4))
        poll(acc.async_test_all, device=0)
        assert acc.async_test(1)
        assert not acc.async_test_all(device=1)
        assert not acc.async_test(1, device=1)
        gate.open()
        poll(acc.async_test_all, device=1)


# -- order -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_async_constructs(queues, construct):
    """parallel_async.c, kernels_async.c, serial_async.c: two queues feed wait(1, 2) async(3), updates end it."""
    a, b, c, d, e = (np.full(8, float(value)) for value in (1, 2, 3, 0, 0))
    with acc.data(copyin=[a, b, c], create=[d, e], async_=3):
        acc.wait(3, async_=1)
        acc.wait(3, async_=2)
        construct(present=[a, b, d], async_=1)(add)(d, a, b)
        construct(present=[c, e], async_=2)(add)(e, c)
        construct(present=[d, e, a], wait=[1, 2], async_=3)(add)(a, d, e)
        acc.update(host=[d], async_=1)
        acc.update(host=[e], async_=2)
        acc.update(host=[a], async_=3)
        queues.go()
        acc.wait(1)
        assert (d == 3).all()
        acc.wait(2)
        assert (e == 3).all()
        acc.wait(3)
        assert (a == 6).all()
    acc.wait()


@pytest.mark.parametrize("construct", [acc.parallel, acc.serial])
def test_loops_in_one_queue(queues, construct):
    """parallel_loop_async.c, serial_loop_async.c: dependent loops in queue 0 without a wait between are in order."""
    a, b = np.arange(8.0), np.zeros(8)
    acc.enter_data(copyin=[a], create=[b], async_=0)
    construct(present=[a, b], async_=0)(add)(b, a, a)
    for _ in range(10):
        construct(present=[a, b], async_=0)(step)(a, b)
    acc.exit_data(copyout=[a, b], async_=0)
    queues.go()
    acc.wait(0)
    x, y = np.arange(8.0), 2 * np.arange(8.0)
    for _ in range(10):
        x += y
        y -= x
    assert (a == x).all()
    assert (b == y).all()


@pytest.mark.parametrize("name", ROUTINES)
def test_async_routines(queues, name):
    """acc_{copyin,create,copyout,delete,copyout_finalize,delete_finalize}_async.c: each is in order in its queue."""
    a = np.ones(8)
    first = acc.create_async if name == "create" else acc.copyin_async
    tasks = [first(a, 1)]
    if name == "create":
        tasks.append(acc.update_device_async(a, 1))
    tasks.append(acc.parallel(present=[a], async_=1)(increment)(a))
    if name in ("copyin", "create"):
        tasks.append(acc.copyout_async(a, 1))
    else:
        tasks.append(getattr(acc, f"{name}_async")(a, 1))
    queues.go()
    acc.wait(1)
    assert all(isinstance(task, omp.Task) and task.done() for task in tasks)
    assert not acc.is_present(a)
    assert (a == (1 if "delete" in name else 2)).all()


def test_finalize_in_a_queue(queues):
    """acc_{copyout,delete}_finalize_async.c: they undo every copyin before them in the queue, and none after."""
    a, b = np.ones(8), np.ones(8)
    for array in (a, b):
        acc.copyin_async(array, 1)
        acc.copyin_async(array, 1)
        acc.parallel(present=[array], async_=1)(increment)(array)
    acc.copyout_finalize_async(a, 1)
    acc.delete_finalize_async(b, 1)
    queues.go()
    acc.wait(1)
    assert not acc.is_present(a)
    assert not acc.is_present(b)
    assert (a == 2).all()
    assert (b == 1).all()


def test_delete_behind_a_kernel(queues):
    """acc_delete_async.c: data is deleted once the kernel before it in the queue is done with it, and can come back."""
    a, b = np.ones(8), np.zeros(8)
    acc.copyin_async(a, 1)
    acc.parallel(present=[a], copyout=[b], async_=1)(add)(b, a)
    acc.delete_async(a, 1)
    acc.copyin_async(a, 1)
    acc.parallel(present=[a], copy=[b], async_=1)(lambda a, b: b.__iadd__(a) is None)(a, b)
    acc.delete_async(a, 1)
    queues.go()
    acc.wait(1)
    assert (b == 2).all()
    assert not acc.is_present(a)


# -- the argument ------------------------------------------------------------------------------------
@pytest.mark.parametrize("value", [None, False, acc.async_sync])
def test_synchronous(runtime, value):
    """No async-argument, or acc_async_sync: a construct returns its value, when it is complete."""
    a = np.zeros(4)
    assert acc.parallel(async_=value)(lambda a: a.__iadd__(1) is None)(a) is False
    assert (a == 1).all()
    assert acc.enter_data(copyin=[a], async_=value) is None
    assert acc.update(device=[a], async_=value) is None
    assert acc.copyin_async(a, value) is None
    assert acc.exit_data(delete=[a], finalize=True, async_=value) is None
    assert acc.async_test_all()


@pytest.mark.parametrize("value", [True, 0, 3, np.int32(5), np.uint8(200), acc.async_noval, acc.async_default, 2**40])
def test_asynchronous(queues, value):
    """Any number of at least 0, True, acc_async_noval and acc_async_default: a call returns its task."""
    a = np.zeros(4)
    task = acc.parallel(async_=value, name="increments")(lambda a: a.__iadd__(1) is None)(a)
    assert isinstance(task, omp.Task)
    assert task.name == "increments"
    queues.go()
    acc.wait(value)
    assert task.done()
    assert task.result() is False
    assert (a == 1).all()


BAD = [-4, -1000, 1.0, np.float64(2), "1", "async", [1], (1,), {1}, object(), 1j]


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_async_argument(runtime, bad):
    """Numbers that mean nothing, floats, strings and lists are a ClauseError that names the clause; nothing is made."""
    a = np.zeros(4)
    for construct in CONSTRUCTS:
        with pytest.raises(omp.ClauseError, match="async_"):
            construct(async_=bad)(increment)
        with pytest.raises(omp.ClauseError, match="async_"):
            construct(increment).options(async_=bad)
    for call in (
        lambda: acc.enter_data(copyin=[a], async_=bad),
        lambda: acc.exit_data(delete=[a], async_=bad),
        lambda: acc.update(self_=[a], async_=bad),
        lambda: acc.copyin_async(a, bad),
        lambda: acc.update_self_async(a, bad),
        lambda: acc.wait(async_=bad),
        lambda: acc.wait_async(1, bad),
        lambda: acc.wait_all_async(bad),
    ):
        with pytest.raises(omp.ClauseError, match="async_"):
            call()
    with pytest.raises(omp.ClauseError, match="async_"), acc.data(copy=[a], async_=bad):
        pass
    assert not acc.is_present(a)
    for name in ("async_test", "set_default_async", "get_cuda_stream"):
        with pytest.raises(omp.ClauseError, match=name):
            getattr(acc, name)(bad)


@pytest.mark.parametrize("nothing", [None, False])
def test_async_test_needs_an_argument(runtime, nothing):
    """None and False name no queue: async_test and set_default_async refuse them."""
    with pytest.raises(omp.ClauseError, match="async_test"):
        acc.async_test(nothing)
    with pytest.raises(omp.ClauseError, match="set_default_async"):
        acc.set_default_async(nothing)


# -- independence ------------------------------------------------------------------------------------
def test_a_synchronous_operation_waits_for_itself_alone(queues, hold):
    """OpenACCV-V issue 39: without async a construct waits for its own work, and not for other queues."""
    queues.go()
    a = np.zeros(4)
    gate = hold(1)
    acc.parallel(increment)(a)
    with acc.data(copy=[a]):
        acc.update(self_=[a])
        acc.kernels(present=[a])(increment)(a)
    acc.serial(async_=acc.async_sync)(increment)(a)
    assert (a == 3).all()
    assert not acc.async_test(1)
    gate.open()
    acc.wait(1)


def test_values_are_those_at_the_call(queues, hold):
    """Scalars and the choice of arrays are captured when the construct is encountered; contents when its turn comes."""
    queues.go()
    a = np.zeros(4)
    gate = hold(1)

    @acc.parallel(copy=["a"], async_=1)
    def scaled(a, factor):
        a += factor

    factor = 2.0
    scaled(a, factor)
    factor = 100.0
    a[...] = 1
    gate.open()
    acc.wait(1)
    assert (a == 3).all()


def test_a_queue_of_many(queues):
    """A thousand queues share the streams, and the end of a region that follows them all copies what they have done."""
    a = np.zeros(1000)
    with acc.data(copy=[a], async_=0):
        acc.wait(0, async_=1)
        for queue in range(1000):
            acc.parallel(present=[a], async_=queue)(increment)(a[queue : queue + 1])
        acc.wait(async_=0)
    queues.go()
    acc.wait()
    assert (a == 1).all()
