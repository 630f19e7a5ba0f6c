"""The runtime's data routines and addresses: OpenACCV-V section 3.2."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conformance.openacc.looking import bump, counters, fill

N = 32
ENTERS = [acc.copyin, acc.create]
LEAVES = [acc.copyout, acc.delete, acc.copyout_finalize, acc.delete_finalize]
ROUTINES = [*ENTERS, *LEAVES, acc.update_device, acc.update_self]
ASYNC = [
    acc.copyin_async,
    acc.create_async,
    acc.copyout_async,
    acc.delete_async,
    acc.copyout_finalize_async,
    acc.delete_finalize_async,
    acc.update_device_async,
    acc.update_self_async,
]


# -- copyin, create, copyout, delete -----------------------------------------------------------------
def test_acc_create(runtime):
    """acc_create.c: T5, on present data it counts alone: after a copyout and a delete the host has its own values."""
    a = np.zeros(N)
    acc.copyin(a)
    acc.create(a)
    assert counters(runtime, a) == (0, 2)
    bump(a)
    a[...] = 1
    bump(a)
    acc.copyout(a)
    assert (a == 1).all()
    acc.delete(a)
    assert (a == 1).all()
    assert not acc.is_present(a)


@pytest.mark.parametrize("enter", ENTERS)
def test_acc_is_present(runtime, enter):
    """acc_is_present.c: False before, True after acc_copyin or acc_create, False after acc_delete."""
    a = np.zeros(N)
    assert acc.is_present(a) is False
    enter(a)
    assert acc.is_present(a) is True
    assert acc.is_present(a[3:5])
    assert acc.is_present(a[::2])
    acc.delete(a)
    assert acc.is_present(a) is False


def test_what_they_return(runtime):
    """acc_copyin and acc_create return the device array, those that end a mapping nothing."""
    a = np.arange(12.0).reshape(3, 4)
    d = acc.copyin(a)
    assert (d.shape, d.dtype) == (a.shape, a.dtype)
    assert acc.hostptr(d) is a
    part = acc.create(a[1:, ::2])
    assert part.shape == (2, 2)
    fill(part, 1)
    assert acc.copyout(a) is None
    assert acc.delete(a[0]) is None
    assert not acc.is_present(a)


@pytest.mark.parametrize("leave", LEAVES)
def test_leaving(runtime, leave):
    """One reference, or all of them with finalize, goes; the last one copies back if it is a copyout."""
    a = np.zeros(N)
    finalizes = leave in (acc.copyout_finalize, acc.delete_finalize)
    copies = leave in (acc.copyout, acc.copyout_finalize)
    acc.copyin(a)
    acc.copyin(a)
    bump(a)
    leave(a)
    assert acc.is_present(a) is not finalizes
    assert (a == (finalizes and copies)).all()
    leave(a)
    assert not acc.is_present(a)
    assert (a == copies).all()
    leave(a)
    assert (a == copies).all()


@pytest.mark.parametrize("value", [acc.async_sync, None, False])
def test_async_forms_without_a_queue(runtime, value):
    """With acc_async_sync the async forms do what the others do, and return None."""
    a = np.zeros(N)
    assert acc.copyin_async(a, value) is None
    assert acc.create_async(a, async_=value) is None
    assert counters(runtime, a) == (0, 2)
    bump(a)
    assert acc.update_self_async(a, value) is None
    assert (a == 1).all()
    a[...] = 5
    assert acc.update_device_async(a, value) is None
    assert acc.copyout_async(a, value) is None
    bump(a)
    assert acc.copyout_finalize_async(a, value) is None
    assert (a == 6).all()
    assert not acc.is_present(a)
    for leave in (acc.delete_async, acc.delete_finalize_async):
        acc.copyin(a)
        assert leave(a, value) is None
        assert not acc.is_present(a)


@pytest.mark.parametrize("routine", [*ROUTINES, *ASYNC, acc.is_present, acc.deviceptr], ids=lambda f: f.__name__)
def test_what_routines_refuse(runtime, routine):
    """Strings, numbers, lists, device arrays and arrays of Python objects are errors that name routine or clause."""
    d = acc.malloc(8)
    for wrong in ("x", 1.0, None, [1.0], d, np.float64(1)):
        name = routine.__name__.removesuffix("_async")
        with pytest.raises(omp.ClauseError, match=rf"acc {name}.*not a host array"):
            routine(wrong)
    with pytest.raises(omp.ClauseError, match="Python objects"):
        routine(np.array([None]))
    with pytest.raises(omp.ClauseError):
        routine(np.zeros(1), device=omp.get_num_devices() + 1)
    acc.free(d)


def test_names_in_messages(runtime):
    """What fails names the variable of the caller, and a note the caller's file."""
    x = np.zeros(N)
    with pytest.raises(omp.NotPresentError, match=r"update self\(x") as caught:
        acc.update_self(x)
    assert "test_memory.py" in "".join(caught.value.__notes__)
    with pytest.raises(omp.NotPresentError, match=r"update device\(x"):
        acc.update_device(x)
    acc.copyin(x[:4])
    with pytest.raises(omp.MapError, match=r"copyin\(x.*extends"):
        acc.copyin(x)
    acc.delete(x[:4])


def test_each_device(runtime):
    """device= names the device, the default device where it is left out."""
    a = np.zeros(N)
    last = omp.get_num_devices() - 1
    acc.copyin(a, device=last)
    assert acc.is_present(a, device=last)
    assert acc.is_present(a) == (last == 0)
    omp.set_default_device(last)
    assert acc.is_present(a)
    bump(a)
    acc.copyout(a)
    assert (a == 1).all()
    omp.set_default_device(0)
    assert acc.is_present(a, device=omp.get_initial_device())
    assert acc.deviceptr(a, device=omp.initial_device) is a


# -- addresses ---------------------------------------------------------------------------------------
def test_deviceptr_and_hostptr(runtime, memory):
    """They are the inverse of each other, also for views; what is absent, and memory that is no data, gives None."""
    a = np.arange(N, dtype=float)
    assert acc.deviceptr(a) is None
    acc.copyin(a[: N // 2])
    assert acc.deviceptr(a) is None
    d = acc.deviceptr(a[: N // 2])
    assert np.shares_memory(acc.hostptr(d), a)
    for at in (np.s_[2:5], np.s_[::3], np.s_[::-1]):
        host = acc.hostptr(d[at])
        assert (host == a[: N // 2][at]).all()
        assert np.shares_memory(host, a)
        assert acc.hostptr(acc.deviceptr(a[: N // 2][at])).shape == host.shape
    assert acc.hostptr(memory()) is None
    acc.delete(a[: N // 2])
    assert acc.deviceptr(a[: N // 2]) is None
    assert acc.hostptr(d) is None


def test_hostptr_of_packed_data(runtime):
    """Data with gaps gives the view that was mapped."""
    a = np.arange(24.0).reshape(4, 6)
    view = a[:, 1:4]
    d = acc.copyin(view)
    assert acc.hostptr(d) is view
    assert acc.hostptr(acc.deviceptr(view)) is view
    assert acc.hostptr(d[::-1]) is None
    acc.delete(view)
    turned = a[::-1]
    assert acc.hostptr(acc.copyin(turned)) is turned
    assert (acc.hostptr(acc.deviceptr(a)) == a).all()
    acc.delete(a)


def test_hostptr_writes_the_host(runtime):
    """What hostptr gives is the host's memory, which can be written, and cannot where the host's array cannot."""
    a = np.zeros(N)
    d = acc.copyin(a)
    acc.hostptr(d[4:8])[...] = 3
    assert a.sum() == 12
    acc.delete(a)
    a.flags.writeable = False
    d = acc.copyin(a)
    assert not acc.hostptr(d[4:8]).flags.writeable
    acc.delete(a)


@pytest.mark.parametrize("wrong", [np.zeros(3), "x", 1.0, None])
def test_what_hostptr_refuses(runtime, wrong):
    """What is no device array is a ClauseError."""
    with pytest.raises(omp.ClauseError, match=r"hostptr.*not a device array"):
        acc.hostptr(wrong)


# -- map_data ----------------------------------------------------------------------------------------
def test_acc_map_data(runtime, memory):
    """acc_map_data.c, acc_unmap_data.c: T1 and T2, mapped memory is present data, moved by update, until unmapped."""
    a, d = np.arange(N, dtype=float), memory()
    acc.map_data(a, d)
    assert acc.is_present(a)
    acc.memcpy_to_device(d, a)
    with acc.data(copy=[a]):
        bump(a)
    assert (a == np.arange(N)).all()
    acc.update(host=[a])
    assert (a == np.arange(N) + 1).all()
    acc.unmap_data(a)
    assert not acc.is_present(a)
    found = np.zeros(N)
    acc.memcpy_from_device(found, d)
    assert (found == a).all()


def test_acc_map_data_halves(runtime, memory):
    """acc_map_data.c: T3, two host arrays are mapped onto the halves of one allocation."""
    a, b, d = np.zeros(N), np.zeros(N), memory(2 * N)
    acc.map_data(a, d[:N])
    acc.map_data(b, d[N:])
    fill(d, 4)
    bump(b)
    acc.update(self_=[a, b])
    assert (a == 4).all()
    assert (b == 5).all()
    assert acc.hostptr(d[N:]) is b
    acc.unmap_data(a)
    assert acc.is_present(b)
    acc.unmap_data(b)


def test_nothing_but_unmap_ends_it(runtime, memory):
    """No exit of any kind takes mapped memory away or copies; unmap_data does, whatever was counted."""
    a, d = np.zeros(N), memory()
    fill(d, 3)
    acc.map_data(a, d)
    acc.copyin(a)
    for leave in (*LEAVES, lambda a: acc.exit_data(copyout=[a], finalize=True)):
        leave(a)
        assert acc.is_present(a)
    assert (a == 0).all()
    acc.unmap_data(a)
    assert not acc.is_present(a)
    acc.map_data(a, d)
    acc.unmap_data(a)


def test_map_data_of_present_data(runtime, memory):
    """To map what is present, wholly, in part or by map_data itself, is a MapError that says so; nothing changes."""
    x, d = np.zeros(N), memory()
    acc.copyin(x[:4])
    with pytest.raises(omp.MapError, match=r"float64.*present on device"):
        acc.map_data(x, d)
    with pytest.raises(omp.MapError, match=r"map_data\((\w+: )?float64.*present on device"):
        acc.map_data(x[:4], d)
    assert counters(runtime, x[:4]) == (0, 1)
    acc.delete(x[:4])
    acc.map_data(x, d)
    for again in (x, x[3:5]):
        with pytest.raises(omp.MapError, match=r"map_data\((\w+: )?float64.*present on device"):
            acc.map_data(again, d)
    acc.unmap_data(x)
    with acc.data(create=[x]), pytest.raises(omp.MapError, match=r"map_data.*present"):
        acc.map_data(x, d)


def test_unmap_data_of_what_was_not_mapped(runtime, memory):
    """unmap_data of absent data, of what another construct mapped, of a part, and in a region of it is a MapError."""
    a, d = np.zeros(N), memory()
    with pytest.raises(omp.MapError, match=r"unmap_data\((\w+: )?float64"):
        acc.unmap_data(a)
    acc.copyin(a)
    with pytest.raises(omp.MapError, match=r"unmap_data\((\w+: )?float64"):
        acc.unmap_data(a)
    assert counters(runtime, a) == (0, 1)
    acc.delete(a)
    acc.map_data(a, d)
    with pytest.raises(omp.MapError, match=r"unmap_data\((\w+: )?float64"):
        acc.unmap_data(a[:4])
    with acc.data(present=[a]), pytest.raises(omp.MapError, match=r"unmap_data\((\w+: )?float64"):
        acc.unmap_data(a)
    assert acc.is_present(a)
    acc.unmap_data(a)
    with pytest.raises(omp.MapError, match=r"unmap_data\((\w+: )?float64"):
        acc.unmap_data(a)


def test_what_map_data_refuses(runtime, memory):
    """Too little memory, host memory, strings and another device are ClauseErrors; nothing is mapped."""
    a, d = np.zeros(N), memory()
    for wrong in ((a, d[: N - 1]), (a, d[::2]), (a, a.copy()), (a, "d"), (a, None), ("a", d), (d, d), (a[:0], d)):
        with pytest.raises(omp.ClauseError):
            acc.map_data(*wrong)
    for number in range(1, omp.get_num_devices()):
        with pytest.raises(omp.ClauseError, match=f"device {number}"):
            acc.map_data(a, d, device=number)
    with pytest.raises(omp.ClauseError):
        acc.unmap_data("a")
    with pytest.raises(omp.ClauseError):
        acc.unmap_data(a, device=omp.get_initial_device())
    assert not acc.is_present(a)


# -- on the host -------------------------------------------------------------------------------------
@pytest.mark.usefixtures("host")
def test_memory_on_the_host():
    """Without a device arrays are their own data, memory is the host's, and what is wrong stays wrong."""
    a, b = np.arange(N, dtype=float), np.zeros(N)
    assert acc.copyin(a) is a
    assert acc.create(b) is b
    assert acc.is_present(a)
    assert acc.deviceptr(a) is a
    assert acc.hostptr(a) is a
    memory = acc.malloc(8 * N)
    acc.memcpy_to_device(memory, a)
    acc.memcpy_from_device(b, memory)
    assert (b == a).all()
    b[...] = 0
    acc.memcpy_d2d(b, a)
    assert (b == a).all()
    acc.memcpy_device(memory, b[::-1].copy())
    assert (memory.view("f8") == a[::-1]).all()
    for leave in LEAVES:
        leave(a)
    with pytest.raises(omp.ClauseError, match=r"map_data|associate"):
        acc.map_data(a, memory)
    with pytest.raises(omp.ClauseError):
        acc.unmap_data(a)
    with pytest.raises(omp.ClauseError, match="copyin"):
        acc.copyin("a")
    acc.free(memory)
