"""`host_data`: OpenACCV-V section 3.1, host_data, and what `use_device` gives for absent data."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.arrays.items import MAPPERS
from tests.conformance.openacc.looking import bump, counters, fill

N = 32


def test_host_data(runtime):
    """host_data.c: use_device gives the device's array, with which device code computes; the host sees it after."""
    a, b = np.arange(N, dtype=float) % 5, np.zeros(N)
    with acc.data(copyin=[a], copyout=[b]), acc.host_data(use_device=[a, b]) as (d_a, d_b):
        assert not isinstance(d_a, np.ndarray)
        acc.parallel(deviceptr=["x", "y"])(lambda x, y: y.__setitem__(..., x + 1))(d_a, d_b)
        assert (b == 0).all()
    assert (b == a + 1).all()
    assert (b <= 5).all()


def test_what_it_gives(runtime):
    """The device arrays have shape and dtype of their items, and are those of acc_deviceptr; counters stay."""
    a = np.zeros((8, 4), "f4")
    acc.enter_data(copyin=[a])
    with acc.host_data(use_device=[a, a[2:5, ::2], a.T]) as (whole, part, turned):
        assert (whole.shape, whole.dtype) == ((8, 4), np.float32)
        assert part.shape == (3, 2)
        assert turned.shape == (4, 8)
        fill(part, 1)
        assert acc.hostptr(whole) is a
        assert counters(runtime, a) == (0, 1)
    with acc.host_data(use_device=a) as (whole,):
        assert whole.shape == a.shape
    acc.exit_data(copyout=[a])
    expected = np.zeros((8, 4))
    expected[2:5, ::2] = 1
    assert (a == expected).all()


def test_absent_data(runtime):
    """Absent data, and data present in part, is a NotPresentError that names clause and variable."""
    x, other = np.zeros(N), np.zeros(N)
    acc.enter_data(copyin=[other, x[:4]])
    for _ in range(2):
        with (
            pytest.raises(omp.NotPresentError, match=r"use_device\(x.*not present"),
            acc.host_data(use_device=[other, x]),
        ):
            pytest.fail("the block was entered")
        acc.exit_data(delete=[other, x[:4]], finalize=True)
        acc.enter_data(copyin=[other])
    acc.exit_data(delete=[other])


def test_if_present(runtime):
    """With if_present what is absent stands for itself, and so does what is present in part."""
    a, b, c = np.zeros(N), np.zeros(N), np.zeros(N)
    with (
        acc.data(create=[a, c[:4]]),
        acc.host_data(use_device=[a, b, c], if_present=True) as (d_a, d_b, d_c),
    ):
        assert acc.hostptr(d_a) is a
        assert d_b is b
        assert d_c is c


def test_if(runtime):
    """With if_=False every item stands for itself, present or not."""
    a, b = np.zeros(N), np.zeros(N)
    with acc.data(create=[a]), acc.host_data(use_device=[a, b], if_=False) as found:
        assert found[0] is a
        assert found[1] is b


def test_device_arrays_and_empty_ones(runtime):
    """A device array stands for itself, and so does an array without elements."""
    d, empty = acc.malloc(8), np.zeros((0, 3))
    with acc.host_data(use_device=[d, empty]) as found:
        assert found[0] is d
        assert found[1] is empty
    acc.free(d)


def test_data_of_openmp(runtime):
    """use_device finds what OpenMP has mapped, and use_device_addr what acc has."""
    a = np.zeros(N)
    with omp.target_data(map=[omp.tofrom(a)]):
        bump(a)
        with acc.host_data(use_device=[a]) as (d,):
            fill(d, 2)
    assert (a == 2).all()
    with acc.data(copy=[a]), omp.target_data(use_device_addr=[a]) as (d,):
        fill(d, 3)
    assert (a == 3).all()


def test_each_device(runtime):
    """It gives the array of the device that is asked for."""
    a = np.zeros(N)
    for number in range(omp.get_num_devices()):
        acc.copyin(a, device=number)
        with acc.host_data(use_device=[a], device=number) as (d,):
            assert acc.deviceptr(a, device=number).shape == d.shape
            assert acc.hostptr(d, device=number) is a
        acc.delete(a, device=number)
    with pytest.raises(omp.ClauseError), acc.host_data(use_device=[a], device=omp.get_num_devices() + 1):
        pass


class Pair:
    def __init__(self):
        self.data = np.zeros(N)


def test_what_it_refuses(runtime):
    """No item, strings, numbers, objects with a mapper and arrays of Python objects are errors that name the clause."""
    before = dict(MAPPERS)
    omp.declare_mapper(Pair, lambda pair: [omp.tofrom(pair.data)])
    try:
        for wrong in ("x", 1.0, object(), [[1.0]], Pair(), {"x": 1}):
            with pytest.raises(omp.ClauseError, match="use_device"), acc.host_data(use_device=[wrong]):
                pytest.fail("the block was entered")
    finally:
        MAPPERS.clear()
        MAPPERS.update(before)
    with pytest.raises(omp.ClauseError), acc.host_data(use_device=[np.array([None])]):
        pytest.fail("the block was entered")
    with pytest.raises(omp.ClauseError, match="use_device"), acc.host_data(use_device=[]):
        pytest.fail("the block was entered")


@pytest.mark.usefixtures("host")
def test_host_data_on_the_host():
    """Without a device every item stands for itself, as there is nothing else."""
    a, b = np.zeros(N), np.zeros(N)
    with acc.data(copy=[a]), acc.host_data(use_device=[a, b]) as (d, e):
        assert d is a
        assert e is b
        d[...] = 1
    assert (a == 1).all()
    with pytest.raises(omp.ClauseError, match="use_device"), acc.host_data(use_device=["a"]):
        pass
