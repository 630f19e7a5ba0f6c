"""Regions without a device clause go where the device arrays are that they are passed."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc, inout, tofrom


@pytest.fixture(params=["sim:2", pytest.param("cuda", marks=pytest.mark.gpu)])
def two(request):
    """A current runtime with two devices or more."""
    with omp.Runtime(request.param, check=True) as runtime:
        if omp.get_num_devices() < 2:
            pytest.skip("needs two GPUs")
        yield runtime


@pytest.fixture
def arrays(two):
    """A device array of each of the first two devices, zero."""
    found = [omp.target_alloc(4, "f8", device=number) for number in (0, 1)]
    for number, array in enumerate(found):
        omp.target_memset(array, 0, device=number)
    yield found
    for array in found:
        omp.target_free(array)


def where(*arrays, **named):
    for array in (*arrays, *named.values()):
        if hasattr(array, "shape"):
            array[...] += 1
    return omp.get_device_num()


REGIONS = {"target": omp.target, "parallel": acc.parallel, "kernels": acc.kernels, "serial": acc.serial}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("number", [0, 1])
def test_where_the_arrays_are(arrays, region, number):
    """By position or keyword, beside host arrays and scalars: the region goes to the device of the device arrays."""
    host, array = np.zeros(4), arrays[number]
    body = REGIONS[region](where)
    assert body(array) == number
    assert body(host, 3, None, array, k=array) == number
    assert body(host, k=array) == number
    assert body(host) == omp.get_default_device()
    assert (host == 3).all()
    assert (array.get() == 4).all()


def test_deferred(arrays):
    """With nowait too, on the path of regions without clauses and on that of others, and in queues."""
    host = np.zeros(4)
    assert [omp.target(nowait=True)(where)(array).result() for array in arrays] == [0, 1]
    with omp.target_data(map=[tofrom(host)], device=1):
        region = omp.target(where, map=[tofrom("arrays[0]")], depend=[inout("arrays[0]")], nowait=True)
        tasks = [region(host, arrays[1]) for _ in range(3)]
        assert [task.result() for task in tasks] == [1, 1, 1]
        assert [task.device_num for task in tasks] == [1, 1, 1]
    assert (host == 3).all()
    task = acc.parallel(async_=2)(where)(arrays[1])
    acc.wait(2, device=1)
    assert task.done()
    assert task.result() == 1


def test_default_device(arrays):
    """The default device, and the host as such, count for regions without device arrays only."""
    omp.set_default_device(1)
    assert omp.target(where)(arrays[0]) == 0
    assert omp.target(where)(3) == 1
    omp.set_default_device(omp.get_initial_device())
    assert omp.target(where)(arrays[1]) == 1
    assert omp.target(where)(3) == omp.get_initial_device()
    omp.set_default_device(0)


def test_parameters_that_have_their_default(arrays):
    """A device array that is a parameter's default counts as one that is passed."""
    d = arrays[1]
    assert omp.target(lambda x, y=d: where(x, y))(np.zeros(2)) == 1


def test_an_explicit_device(arrays):
    """A device clause is what it says: with the array's device it goes there, with another it is an error."""
    assert omp.target(device=1)(where)(arrays[1]) == 1
    for region in (omp.target, acc.parallel):
        with pytest.raises(omp.MapError, match="not on device 0"):
            region(device=0)(where)(arrays[1])


def test_arrays_of_two_devices(arrays):
    """Without a device clause that is refused at the call, by name."""
    for body in (omp.target(where), omp.target(where, nowait=True), acc.parallel(where), acc.kernels(where, async_=1)):
        with pytest.raises(omp.ClauseError, match="argument 1 is a device array of device 0, and argument k one of"):
            body(3, arrays[0], k=arrays[1])
    with pytest.raises(omp.MapError):
        omp.target(device=0)(where)(*arrays)


def test_on_the_host(arrays):
    """With ``if_=False`` the host is the device, whatever is passed."""
    assert omp.target(lambda d: omp.get_device_num(), if_=False)(arrays[1]) == omp.get_initial_device()
    assert acc.parallel(lambda d: omp.get_device_num(), self_=True)(arrays[1]) == omp.get_initial_device()


def test_replayed(arrays):
    """A record of a task graph is kept for arrays of each device, and its replays go there."""

    @omp.taskgraph
    def steps(d, log):
        omp.target(nowait=True)(where)(d)

    for _ in range(3):
        for array in arrays:
            steps(array, 0)
    assert [(array.get() == 3).all() for array in arrays] == [True, True]
    assert len(steps.records) == 2


def test_arrays_of_another_runtime():
    """A device array that no device of the runtime has is the error that it is with a device clause."""
    with omp.Runtime("sim:1", check=True):
        d = omp.target_alloc(4, "f8")
        with omp.Runtime("sim:2", check=True), pytest.raises(omp.MapError, match="not on device 0 of this runtime"):
            omp.target(where)(d)
        omp.target_free(d)
