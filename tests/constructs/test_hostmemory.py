"""`empty_pinned`: host arrays in memory that the devices copy by themselves."""

from __future__ import annotations

import gc
import mmap
import pickle

import numpy as np
import pytest

import offload as omp
from offload import tofrom


@pytest.fixture(params=["none", "sim:1", pytest.param("cuda", marks=pytest.mark.gpu)])
def anywhere(request):
    """A current runtime without a device, with a simulated one, and with CUDA devices."""
    with omp.Runtime(request.param, check=True) as runtime:
        yield runtime


def is_locked(array):
    """Tell whether every CUDA device of the runtime copies an array by itself."""
    return all(place.device.copies_async(array) for place in omp.current_runtime().places)


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i1", "?", "S3", "i4,f8", np.int64])
@pytest.mark.parametrize("shape", [7, (3, 4), (2, 0, 3), (), np.int64(5), [2, 2]])
def test_arrays(anywhere, shape, dtype):
    """Shape, dtype and layout are those asked for; the memory can be written, and an ordinary one begins at a page."""
    a = omp.empty_pinned(shape, dtype)
    like = np.empty(shape, dtype)
    assert type(a) is np.ndarray
    assert (a.shape, a.dtype, a.strides) == (like.shape, like.dtype, like.strides)
    assert a.flags.writeable
    assert a.flags.aligned
    if a.size:
        kinds = {device.kind for device in omp.devices()}
        assert a.ctypes.data % (64 if "cuda" in kinds else mmap.PAGESIZE) == 0
        assert is_locked(a)
    a[...] = np.zeros(shape, dtype)
    assert a.tobytes() == bytes(a.nbytes)


def test_defaults_and_order(anywhere):
    """Elements are floats in C order; order="F" makes a Fortran one."""
    assert omp.empty_pinned(3).dtype == np.float64
    a = omp.empty_pinned((30, 40), order="F")
    assert a.flags.f_contiguous
    assert not a.flags.c_contiguous
    assert is_locked(a)
    assert is_locked(a[::2, 3:5])


def test_regions_map_it(anywhere):
    """It is a host array like any other: mapped, copied, in depend, and to be pickled."""
    a = omp.empty_pinned((50, 20))
    a.fill(1)
    add = omp.target(lambda x: x.__iadd__(1.0) is None, map=[tofrom("x")], nowait=True)
    add = add.options(device=omp.get_default_device())  # the host where there is no device, which is no fall-back
    for _ in range(3):
        add.options(depend=[omp.inout(a)])(a)
    omp.taskwait()
    assert (a == 4).all()
    assert (pickle.loads(pickle.dumps(a)) == a).all()


def test_the_memory_lives_as_long_as_a_view(anywhere):
    """A view keeps the memory, after the array and after the runtime."""
    a = omp.empty_pinned((100, 100), "i4")
    a[...] = np.arange(10_000).reshape(100, 100)
    view = a[10:20, ::3].T[1:]
    expected = view.copy()
    del a
    gc.collect()
    others = [omp.empty_pinned((100, 100), "i4") for _ in range(10)]  # would take the place
    for other in others:
        other.fill(-1)
    anywhere.close()
    assert (view == expected).all()


def test_inside_bodies(anywhere):
    """Tasks and target regions may make such arrays."""
    make = lambda: omp.empty_pinned(10).fill(1)  # noqa: E731
    assert omp.task(make)().result() is None
    assert omp.target(make, device=omp.initial_device)() is None
    if omp.get_num_devices():
        assert omp.target(make)() is None


@pytest.mark.parametrize(
    ("shape", "dtype", "order", "what"),
    [
        (-1, float, "C", "shape -1"),
        ((3, -2), float, "C", "shape"),
        (2.5, float, "C", "shape 2.5"),
        ("x", float, "C", "shape"),
        ((1,) * 65, float, "C", "shape"),
        (3, "no such", "C", "dtype"),
        (3, object, "C", "Python objects"),
        (3, float, "K", "order='K'"),
        (3, float, None, "order=None"),
    ],
)
def test_arguments_that_mean_nothing(anywhere, shape, dtype, order, what):
    """Such an argument is an error that names the routine and the value."""
    with pytest.raises(omp.ClauseError, match=f"^empty_pinned: .*{what}"):
        omp.empty_pinned(shape, dtype, order)


@pytest.mark.parametrize("shape", [1 << 45, (1 << 40, 1 << 40)])
def test_too_much(anywhere, shape):
    """Memory that there is not is a MemoryError that says how much was asked for, and nothing is left."""
    with pytest.raises(omp.DeviceMemoryError, match=r"empty_pinned: .*bytes") as caught:
        omp.empty_pinned(shape)
    assert isinstance(caught.value, MemoryError)
    assert omp.empty_pinned(3).shape == (3,)


def test_disabled_devices():
    """Where OMP_TARGET_OFFLOAD disables the devices an ordinary array is made."""
    with omp.Runtime("cuda", check=True, env={"OMP_TARGET_OFFLOAD": "DISABLED"}):
        assert omp.empty_pinned(4).shape == (4,)
