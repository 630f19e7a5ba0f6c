"""The default queue: OpenACCV-V set_default_async, acc_set_default_async, acc_get_default_async."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from offload import acc


def increment(array):
    array += 1


def test_acc_get_default_async(runtime):
    """acc_get_default_async.c: the value is at least 0, and to begin with the one that acc_async_default means."""
    assert acc.get_default_async() >= 0
    first = acc.get_default_async()
    acc.set_default_async(first + 1)
    acc.set_default_async(acc.async_default)
    assert acc.get_default_async() == first


@pytest.mark.parametrize("value", [0, 1, 7, 2**33, np.int16(3)])
def test_acc_set_default_async(queues, hold, value):
    """acc_set_default_async.c: bare `async` goes to the queue that was set, and get returns its number."""
    queues.go()
    a = np.zeros(4)
    acc.set_default_async(value)
    assert acc.get_default_async() == value
    gate = hold(int(value))
    task = acc.parallel(async_=True)(increment)(a)
    assert not acc.async_test(value)
    assert not acc.async_test(True)
    assert not task.done()
    gate.open()
    acc.wait(value)
    assert task.done()
    assert (a == 1).all()


def test_set_default_async(queues, hold):
    """set_default_async.c: what was given to the old default queue stays there; what comes goes to the new one."""
    queues.go()
    a, b = np.zeros(4), np.zeros(4)
    acc.set_default_async(1)
    gate = hold(True)
    old = acc.parallel(async_=True)(increment)(a)
    acc.set_default_async(2)
    new = acc.parallel(async_=acc.async_noval)(increment)(b)
    acc.wait(acc.async_noval)
    assert new.done()
    assert (b == 1).all()
    assert not old.done()
    assert not acc.async_test(1)
    gate.open()
    acc.wait(1)
    assert (a == 1).all()


def test_every_form_of_async_without_a_value(queues, hold):
    """Constructs and routines without a value go to the default queue; acc_async_default means the first one."""
    queues.go()
    a = np.zeros(4)
    acc.set_default_async(6)
    gate = hold(6)
    tasks = [
        acc.copyin_async(a),
        acc.enter_data(copyin=[a], async_=True),
        acc.update(device=[a], async_=True),
        acc.update_self_async(a),
        acc.serial(async_=True)(increment)(a),
        acc.exit_data(copyout=[a], async_=acc.async_noval),
        acc.delete_async(a),
    ]
    first = acc.parallel(async_=acc.async_default)(increment)(np.zeros(4))
    acc.wait(acc.async_default)
    assert first.done()
    assert not any(task.done() for task in tasks)
    gate.open()
    acc.wait(acc.async_noval)
    assert all(task.done() for task in tasks)


def test_noval_changes_nothing(runtime):
    """set_default_async(acc_async_noval) leaves the default queue as it is."""
    acc.set_default_async(5)
    acc.set_default_async(acc.async_noval)
    assert acc.get_default_async() == 5
    acc.set_default_async(True)
    assert acc.get_default_async() == 5


def test_sync_as_the_default(runtime):
    """With acc_async_sync as the default queue `async` without a value is synchronous."""
    a = np.zeros(4)
    acc.set_default_async(acc.async_sync)
    assert acc.get_default_async() == acc.async_sync
    assert acc.parallel(async_=True)(lambda a: a.__iadd__(1) is None)(a) is False
    assert (a == 1).all()
    assert acc.async_test(True)
    acc.wait(True)
    acc.wait(acc.async_noval)
    assert acc.wait_any([acc.async_noval]) == 0
    with pytest.raises(omp.ClauseError, match="get_cuda_stream"):
        acc.get_cuda_stream()
    acc.set_default_async(acc.async_default)
    assert isinstance(acc.parallel(async_=True)(increment)(a), omp.Task)
    acc.wait()


def test_each_thread_has_its_own(runtime):
    """The default queue belongs to the host thread that set it."""
    acc.set_default_async(4)
    found = []

    def other():
        found.append(acc.get_default_async())
        acc.set_default_async(8)
        found.append(acc.get_default_async())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [0, 8]
    assert acc.get_default_async() == 4


def test_each_runtime_has_its_own():
    """A runtime begins with the first default queue, and an inner one leaves the outer one's alone."""
    with omp.Runtime("sim:1"):
        acc.set_default_async(4)
        with omp.Runtime("sim:1"):
            assert acc.get_default_async() == 0
            acc.set_default_async(9)
        assert acc.get_default_async() == 4


@pytest.mark.parametrize("bad", [-4, 2.0, "2", None, False, [2]])
def test_what_is_no_default_queue(runtime, bad):
    """Anything but an async-argument is a ClauseError, and the default queue stays what it was."""
    acc.set_default_async(3)
    with pytest.raises(omp.ClauseError, match="set_default_async"):
        acc.set_default_async(bad)
    assert acc.get_default_async() == 3
