"""Streams of queues: get_cuda_stream and set_cuda_stream, and the work that a program puts there itself."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.devices.sim.stream import SimEvent, SimStream
from tests.conftest import checked


def increment(array):
    array += 1


def double(array):
    array *= 2


def bump(array, queue):
    return acc.parallel(async_=queue)(increment)(array)


class HeldStream:
    """Work of the program's on the stream of a queue: an entry in ``log``, held by a latch."""

    def __init__(self, stream):
        self.latch = SimEvent(stream.device)
        self.log = []
        stream.wait_event(self.latch)
        stream.launch(self.log.append, "program")

    def __enter__(self):
        self._thread = threading.Thread(target=self.latch.fire)
        self._thread.start()

    def __exit__(self, *_):
        self._thread.join()


@pytest.fixture(params=["get", "set"])
def stream_of(request, sim):
    """Give the stream of a queue: that which it has, or one of the program's that is set."""

    def give(queue):
        if request.param == "set":
            acc.set_cuda_stream(queue, SimStream(acc.get_cuda_stream(queue).device))
        return acc.get_cuda_stream(queue)

    return give


def test_wait_covers_the_programs_work(stream_of):
    """Work that the program has put on the stream of a queue is complete after a wait for that, and follows in it."""
    a = np.zeros(4)
    bump(a, 1)
    held = HeldStream(stream_of(1))
    task = bump(a, 1)
    assert not acc.async_test(1)
    assert not task.done()
    with held:
        acc.wait(1)
    assert held.log == ["program"]
    assert task.done()
    assert (a == 2).all()


@pytest.mark.parametrize("wait", ["async_test", "async_test_all", "wait all", "wait_any", "wait async", "clause"])
def test_every_wait_covers_the_programs_work(stream_of, wait):
    """So do all other forms of wait, with nothing behind the program's work."""
    held = HeldStream(stream_of(1))
    assert not acc.async_test(1)
    assert not acc.async_test_all()
    assert acc.wait_any([1, 2]) == 1
    if wait == "wait async":
        acc.wait(1, async_=2)
        task = acc.parallel(async_=2)(lambda: None)()
        assert not task.done()
    with held:
        if wait == "async_test":
            while not acc.async_test(1):
                pass
        elif wait == "async_test_all":
            while not acc.async_test_all():
                pass
        elif wait == "wait all":
            acc.wait()
        elif wait == "wait_any":
            assert acc.wait_any([1]) == 0
        elif wait == "wait async":
            acc.wait(2)
        else:
            acc.parallel(wait=[1])(lambda: None)()
    assert held.log == ["program"]


def test_set_cuda_stream(sim):
    """A queue's operations go to the stream that it was given, and stay in order with those before; None undoes it."""
    a = np.zeros(4)
    old = acc.get_cuda_stream(1)
    own = SimStream(old.device)
    latch = SimEvent(old.device)
    old.wait_event(latch)
    before = bump(a, 1)
    acc.set_cuda_stream(1, own)
    assert acc.get_cuda_stream(1) is own
    after = acc.parallel(async_=1)(lambda a: (double(a), omp.current_stream())[1])(a)
    assert not before.done()
    assert not after.done()
    latch.fire()
    acc.wait(1)
    assert after.result() is own
    assert (a == 2).all()
    acc.set_cuda_stream(1, None)
    assert acc.get_cuda_stream(1) is old
    assert acc.parallel(async_=1)(omp.current_stream)().result() is old


def test_one_stream_of_two_queues(sim):
    """Two queues may be given one stream; each is still waited for by itself, and neither waits for itself."""
    a = np.zeros((2, 4))
    own = SimStream(acc.get_cuda_stream(1).device)
    for queue in (1, 2):
        acc.set_cuda_stream(queue, own)
    for queue in (1, 2):
        bump(a[queue - 1], queue)
        acc.wait(1, 2, async_=queue)
        bump(a[queue - 1], queue)
    acc.wait(1)
    acc.wait(2)
    assert (a == 2).all()
    assert acc.async_test_all()


def test_default_queue_and_streams(sim):
    """Without an argument it is the default queue's stream; queues have one each, or share it."""
    acc.set_default_async(3)
    assert acc.get_cuda_stream() is acc.get_cuda_stream(3)
    assert acc.get_cuda_stream(3, device=0) is acc.get_cuda_stream(True)
    own = SimStream(acc.get_cuda_stream(3).device)
    acc.set_cuda_stream(True, own)
    assert acc.get_cuda_stream(acc.async_noval) is own


@pytest.mark.parametrize("bad", [3, "stream", object(), np.zeros(2)])
def test_what_is_no_stream(sim, bad):
    """Anything but a stream of the device is a ClauseError, and the queue keeps its own."""
    old = acc.get_cuda_stream(1)
    with pytest.raises(omp.ClauseError, match="set_cuda_stream"):
        acc.set_cuda_stream(1, bad)
    assert acc.get_cuda_stream(1) is old
    with pytest.raises(omp.ClauseError, match="get_cuda_stream"):
        acc.get_cuda_stream(acc.async_sync)


def test_a_stream_of_another_device():
    """A stream belongs to queues of its device."""
    with checked("sim:2"):
        own = SimStream(acc.get_cuda_stream(1, device=1).device)
        with pytest.raises(omp.ClauseError, match=r"set_cuda_stream.*device 0"):
            acc.set_cuda_stream(1, own, device=0)
        acc.set_cuda_stream(1, own, device=1)
        assert acc.get_cuda_stream(1, device=1) is own
        assert acc.get_cuda_stream(1) is not own
