"""`array_namespace`, and NumPy's functions with ``like=``, in the bodies of regions: the same on every device."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc

N = 4


def is_on_device(array):
    """Whether an array is on the device that the calling body runs on."""
    return type(array) is type(omp.array_namespace().empty(0)) and not isinstance(array, np.ndarray)


@pytest.mark.parametrize(
    "construct",
    [omp.target, omp.target(nowait=True), acc.parallel, acc.kernels(async_=1), acc.serial],
    ids=["target", "nowait", "parallel", "kernels async", "serial"],
)
def test_without_arrays_it_is_the_regions_device(runtime, construct):
    """In a region array_namespace() is what array_namespace(d) is for an array d of the region."""

    def body(d, out):
        xp = omp.array_namespace()
        assert xp is omp.array_namespace(d)
        assert xp is not np
        out[...] = xp.arange(N)

    a, out = np.zeros(N), np.zeros(N)
    task = construct(body)(a, out)
    if task is not None:
        task.result()
    assert out.tolist() == [0, 1, 2, 3]


def test_it_is_that_of_the_device_named(runtime):
    """With device= the namespace is that device's, on which what it makes is."""
    for number in range(omp.get_num_devices()):
        made = omp.target(device=number)(lambda: omp.array_namespace().ones(N))()
        assert omp.target_is_accessible(made, number)


def test_on_the_host_it_is_numpy(runtime):
    """Outside of regions, in host tasks, and in regions whose device is the host, it is NumPy."""
    assert omp.array_namespace() is np
    assert omp.task(omp.array_namespace)().result() is np
    assert omp.target(if_=False)(omp.array_namespace)() is np
    assert omp.target(device=omp.initial_device)(omp.array_namespace)() is np
    assert omp.array_namespace(np.zeros(N)) is np
    omp.target(lambda: None)()
    assert omp.array_namespace() is np


def test_random_numbers_are_on_the_device(runtime):
    """Generators and functions of random of the namespace give arrays of the device in a body."""

    def body(out):
        random = omp.array_namespace().random
        for made in (
            random.RandomState(1).standard_normal(N),
            random.RandomState(1).rand(N),
            random.default_rng(1).random(N),
            random.Generator(random.XORWOW(1)).uniform(0, 1, N),
            random.random(N),
            random.normal(size=N),
            random.randint(0, 3, N),
            random.permutation(N),
        ):
            assert is_on_device(made)
            out += made.sum() * 0 + 1

    out = np.zeros(N)
    omp.target(body)(out)
    assert (out == 8).all()


def test_like_makes_arrays_where_the_other_is(runtime):
    """np.zeros(…, like=d) and its kin make device arrays in a body.

    NumPy 2.5 passes on the ``device=`` of `ones`, `full` and `eye`, which CuPy 14.2 does not take.
    """

    def body(d):
        for made in (
            np.zeros(N, like=d),
            np.empty(N, like=d),
            np.arange(N, like=d),
            np.array([1, 2, 3, 4], like=d),
            np.asarray([1.0] * N, like=d),
            np.identity(N, like=d)[0],
            np.tri(N, like=d)[0],
            np.zeros_like(d),
            np.full_like(d, 3),
        ):
            assert is_on_device(made)
            made[...] = 1
            d += made

    a = np.zeros(N)
    omp.target(body)(a)
    assert (a == 9).all()
