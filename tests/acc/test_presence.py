"""The order of what needs data and what maps it: on a device whose work is done when it has been enqueued."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout
from offload.devices.sim.device import SimEvent
from offload.runtime.current import here
from tests import eager_device
from tests.conftest import checked

assert eager_device.EagerKind.name == "eager"


@acc.parallel(present=["a"])
def increment(a):
    a += 1


@pytest.fixture
def runtime():
    """A runtime with a device that launches within the call, as CUDA does; under a seed it would not always."""
    with checked("eager", num_threads=1, env={**os.environ, "OFFLOAD_SEED": ""}) as runtime:
        yield runtime


def held():
    """Return a token that operations can depend on, and the event that lets them go."""
    event, token = omp.Event(), object()
    omp.task(detach=event, depend=[inout(token)])(lambda: None)()
    return token, event


def test_what_has_been_launched_leaves_nothing(runtime):
    """Operations that are launched within their call are entered nowhere by what they need or map, in any queue."""
    a = np.zeros(4)
    tracker = here().frame("the test").tracker
    acc.enter_data(copyin=[a], async_=1)
    for queue in range(4):
        increment.options(async_=queue)(a)
        acc.update(self_=[a], async_=queue, wait=True)
    acc.exit_data(copyout=[a], async_=2, wait=True)
    assert not tracker.ordered
    assert len(tracker) == 0
    acc.wait()
    assert (a == 4).all()
    assert not acc.is_present(a)


def test_what_needs_data_follows_what_maps_it(runtime):
    """Operations behind a mapping that has not had its turn wait for it, in whichever queue; later ones do not."""
    a = np.zeros(4)
    token, event = held()
    acc.enter_data(copyin=[a], async_=1, depend=[in_(token)])
    task = increment.options(async_=2)(a)
    update = acc.update(self_=[a], async_=3, wait=2)
    assert not task.launched
    event.fulfill()
    acc.wait()
    assert task.done()
    assert update.done()
    assert (a == 1).all()
    assert increment.options(async_=2)(a).launched
    assert not here().frame("the test").tracker.ordered
    acc.exit_data(delete=[a])


def test_what_unmaps_data_follows_what_needs_it(runtime):
    """The end of a mapping comes behind an operation that has not had its turn, and what comes then behind that."""
    a = np.zeros(4)
    acc.enter_data(copyin=[a])
    token, event = held()
    task = increment.options(async_=1, depend=[in_(token)])(a)
    end = acc.exit_data(copyout=[a], async_=2)
    begin = acc.enter_data(copyin=[a], async_=3)
    assert not any(each.launched for each in (task, end, begin))
    event.fulfill()
    acc.wait()
    assert (a == 1).all()
    acc.exit_data(delete=[a])


def test_other_arrays_are_not_held_up(runtime):
    """An operation on other data goes on while one has not had its turn."""
    a, b = np.zeros(4), np.zeros(4)
    acc.enter_data(copyin=[a, b])
    token, event = held()
    task = increment.options(async_=1, depend=[in_(token)])(a)
    assert increment.options(async_=2)(b).launched
    assert not task.launched
    event.fulfill()
    acc.exit_data(copyout=[a, b])
    assert (a == b).all()


def test_a_failure_in_the_first_operation_of_a_queue_goes_along_it(runtime):
    """An operation behind one that has failed does not run, though nothing else held that up."""
    a = np.zeros(4)
    increment.options(async_=1)(a)
    behind = acc.update(self_=[a], async_=1)
    with pytest.raises(ExceptionGroup) as caught:
        acc.wait(1)
    assert [type(error) for error in caught.value.exceptions] == [omp.NotPresentError]
    assert behind.state == "not run"


def test_routines_wait_for_launches():
    """A routine waits until a worker has put the operations before on their stream, and not for the stream."""
    a, go, token = np.zeros(4), threading.Event(), object()
    with checked("sim:1", num_threads=1):
        stream = acc.get_cuda_stream(1)
        latch = SimEvent(stream.device)
        stream.wait_event(latch)
        omp.task(depend=[inout(token)])(go.wait)(60)
        enter = acc.enter_data(copyin=[a], async_=1, depend=[in_(token)])
        threading.Timer(0.01, go.set).start()
        assert acc.is_present(a)
        assert not enter.done()
        latch.fire()
        acc.exit_data(delete=[a], async_=1)
        acc.wait()


@pytest.mark.parametrize("seed", range(8))
def test_an_update_in_another_queue_finds_nothing_that_a_region_creates(seed):
    """A region that copies nothing begins and ends in one step, in whichever order the two have their turns."""
    a = np.zeros(4)
    region = acc.parallel(create=["a"])(lambda a: a.fill(7))
    with omp.Runtime("sim:1", num_threads=0, seed=seed):
        region.options(async_=1)(a)
        acc.update_device_async(a, 2)
        with pytest.raises(ExceptionGroup) as raised:
            acc.wait()
    assert [type(error) for error in raised.value.exceptions] == [omp.NotPresentError]
