"""Device memory and copies of bytes: OpenACCV-V section 3.2, acc_memcpy_d2d."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conformance.openacc.looking import fill, increment, on_device

N = 32


# -- malloc and memcpy -------------------------------------------------------------------------------
def test_acc_malloc(runtime):
    """acc_malloc gives bytes on a device; acc_free takes them once, and None."""
    for number in range(omp.get_num_devices()):
        d = acc.malloc(8 * N, device=number)
        assert (d.shape, d.dtype) == ((8 * N,), np.uint8)
        acc.parallel(device=number)(increment)(d)
        acc.free(d)
        with pytest.raises(omp.UsageError):
            acc.free(d)
    acc.free(None)
    empty = acc.malloc(0)
    assert empty.size == 0
    acc.free(empty)
    for wrong in (-1, 1.5, "8", None, [8]):
        with pytest.raises(omp.ClauseError, match="malloc"):
            acc.malloc(wrong)
    for wrong in (np.zeros(3), "d", 5):
        with pytest.raises(omp.UsageError):
            acc.free(wrong)


def test_memcpy(runtime, memory):
    """Bytes go to a device, between its arrays, and back; nbytes says how many."""
    a, b, d, e = np.arange(N, dtype=float), np.zeros(N), memory(), memory()
    fill(e, -1)
    acc.memcpy_to_device(d, a)
    acc.memcpy_device(e, d, 8 * 4)
    acc.memcpy_from_device(b, e)
    assert (b == np.where(np.arange(N) < 4, a, -1)).all()
    acc.memcpy_to_device(d[4:], a, nbytes=16)
    acc.memcpy_from_device(b[:8], d)
    assert (b[:8] == [0, 1, 2, 3, 0, 1, 6, 7]).all()
    acc.memcpy_device(d, e, 0)
    acc.memcpy_from_device(b, d, 8)
    assert b[0] == 0


@pytest.mark.parametrize("value", [acc.async_sync, None, False])
def test_memcpy_async_forms_without_a_queue(runtime, memory, value):
    """With acc_async_sync the async forms copy at once, and return None."""
    a, b, d, e = np.arange(N, dtype=float), np.zeros(N), memory(), memory()
    assert acc.memcpy_to_device_async(d, a, None, value) is None
    assert acc.memcpy_device_async(e, d, async_=value) is None
    assert acc.memcpy_from_device_async(b, e, 8 * N, value) is None
    assert (b == a).all()


@pytest.mark.parametrize("suffix", ["", "_async"])
def test_what_memcpy_refuses(runtime, memory, suffix):
    """Arrays on the wrong side, too many bytes, gaps and read-only arrays are ClauseErrors that name the routine."""
    a, d, e = np.zeros(N), memory(), memory()
    fixed = np.zeros(N)
    fixed.flags.writeable = False
    wrong = {
        "memcpy_to_device": [(a, d), (a, a), (d, d[:]), (d, e), (d, "a"), (d, None), (d, a, 8 * N + 1), (d, a, -1)],
        "memcpy_from_device": [(d, a), (a, a), (d, e), (fixed, d), (a[::2], d), (a, d, 8.0), ("a", d), (None, d)],
        "memcpy_device": [(d, a), (a, d), (d, d), (d, e[::2]), (d, e, 8 * N + 1)],
    }
    for name, calls in wrong.items():
        for args in calls:
            with pytest.raises(omp.ClauseError, match=name):
                getattr(acc, name + suffix)(*args)


def test_memcpy_device_of_two_devices():
    """memcpy_device copies on one device; arrays of two are an error that says what to use."""
    with omp.Runtime("sim:2", check=True):
        d, e = acc.malloc(8), acc.malloc(8, device=1)
        with pytest.raises(omp.ClauseError, match="target_memcpy"):
            acc.memcpy_device(d, e)
        acc.free(d)
        acc.free(e)


def test_acc_memcpy_d2d(runtime):
    """acc_memcpy_d2d.c: it takes host arrays and copies their data between devices: 4 a after doubling on both."""
    a, b = np.arange(N, dtype=float), np.zeros(N)
    last = omp.get_num_devices() - 1
    acc.copyin(a, device=0)
    acc.create(b, device=last)
    acc.parallel(present=[a], device=0)(lambda a: a.__imul__(2) is None)(a)
    acc.memcpy_d2d(b, a, a.nbytes, last, 0)
    acc.parallel(present=[b], device=last)(lambda b: b.__imul__(2) is None)(b)
    assert (b == 0).all()
    acc.copyout(b, device=last)
    acc.delete(a, device=0)
    assert (b == 4 * np.arange(N)).all()
    assert (a == np.arange(N)).all()


def test_memcpy_d2d_of_parts(runtime):
    """nbytes counts from the beginning of both, sections are present as their arrays are; async_sync copies at once."""
    a, b = np.arange(N, dtype=float), np.zeros(N)
    acc.enter_data(copyin=[a, b])
    acc.memcpy_d2d(b[4:], a, 16)
    assert acc.memcpy_d2d_async(b, a[8:10], async_=acc.async_sync) is None
    assert (on_device(b)[:8] == [8, 9, 0, 0, 0, 1, 0, 0]).all()
    assert (b == 0).all()
    acc.exit_data(delete=[a, b])


def test_what_memcpy_d2d_refuses(runtime, memory):
    """Absent data is a NotPresentError, device arrays and too many bytes a ClauseError; both name the routine."""
    a, b, d = np.zeros(N), np.zeros(N), memory()
    acc.copyin(a)
    with pytest.raises(omp.NotPresentError, match=r"memcpy_d2d\(float64.*not present"):
        acc.memcpy_d2d(a, b)
    with pytest.raises(omp.NotPresentError, match=r"memcpy_d2d\(float64.*not present"):
        acc.memcpy_d2d_async(b, a, async_=acc.async_sync)
    for wrong in ((a, d), (d, a), ("a", a), (a, None), (a, a[4:], 8 * N), (a, a)):
        with pytest.raises(omp.ClauseError, match="memcpy_d2d"):
            acc.memcpy_d2d(*wrong)
    with pytest.raises(omp.ClauseError):
        acc.memcpy_d2d(a, b, None, omp.get_num_devices() + 1)
    acc.delete(a)
