"""Device numbers: what every construct and routine takes for one, and what none does."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import offload as omp
from offload import acc, release, to, tofrom

NO_NUMBERS = ("0", b"0", [0], (0,), 0.0, np.float64(0), 0j, True, False, np.bool_(True), object())

ARGUMENTS = {"device", "device_num", "dst_device", "src_device"}
"""What public functions call a device number."""

OTHERWISE = {"acc.update.device"}
"""Arguments of such a name that are none: what OpenACC's ``update device`` names is arrays."""


def _entered(region):
    with region:
        pass


def _add_one(a):
    for i in range(a.size):
        a[i] += 1


def _calls(a, d):
    """Return, for each construct and routine that takes a device number, a call with one."""

    def body(x):
        assert x is not None

    calls = {
        "omp.target.device": lambda n: omp.target(device=n)(body)(a),
        "omp.target_loop.device": lambda n: omp.target_loop(device=n)(_add_one)(a),
        "omp.target_data.device": lambda n: _entered(omp.target_data(map=[tofrom(a)], device=n)),
        "omp.target_enter_data.device": lambda n: omp.target_enter_data(map=[to(a)], device=n),
        "omp.target_exit_data.device": lambda n: omp.target_exit_data(map=[release(a)], device=n),
        "omp.target_update.device": lambda n: omp.target_update(to=[a], device=n),
        "omp.interop.device": lambda n: omp.interop(device=n),
        "omp.target_alloc.device": lambda n: omp.target_free(omp.target_alloc(1, device=n)),
        "omp.buffers.device": lambda n: _entered(omp.buffers(1, 1, device=n)),
        "omp.target_is_present.device": lambda n: omp.target_is_present(a, n),
        "omp.target_is_accessible.device": lambda n: omp.target_is_accessible(a, n),
        "omp.get_mapped_ptr.device": lambda n: omp.get_mapped_ptr(a, n),
        "omp.target_associate_ptr.device": lambda n: omp.target_associate_ptr(a, d, n),
        "omp.target_disassociate_ptr.device": lambda n: omp.target_disassociate_ptr(a, n),
        "omp.set_default_device.device": omp.set_default_device,
        "omp.stream.device": lambda n: omp.stream(0, n),
        "omp.set_stream.device": lambda n: omp.set_stream(0, None, n),
        "omp.device.n": omp.device,
        "acc.parallel.device": lambda n: acc.parallel(device=n)(body)(a),
        "acc.kernels.device": lambda n: acc.kernels(device=n)(body)(a),
        "acc.serial.device": lambda n: acc.serial(device=n)(body)(a),
        "acc.parallel_loop.device": lambda n: acc.parallel_loop(device=n)(_add_one)(a),
        "acc.kernels_loop.device": lambda n: acc.kernels_loop(device=n)(_add_one)(a),
        "acc.data.device": lambda n: _entered(acc.data(copy=[a], device=n)),
        "acc.host_data.device": lambda n: _entered(acc.host_data([a], if_present=True, device=n)),
        "acc.enter_data.device": lambda n: acc.enter_data(copyin=[a], device=n),
        "acc.exit_data.device": lambda n: acc.exit_data(delete=[a], device=n),
        "acc.update.device_num": lambda n: acc.update(device=[a], if_present=True, device_num=n),
        "acc.map_data.device": lambda n: acc.map_data(a, d, device=n),
        "acc.unmap_data.device": lambda n: acc.unmap_data(a, device=n),
        "acc.hostptr.device": lambda n: acc.hostptr(d, device=n),
        "acc.malloc.device": lambda n: acc.free(acc.malloc(8, device=n)),
        "acc.set_device_num.n": lambda n: acc.set_device_num(n, "default"),
        "acc.get_property.n": lambda n: acc.get_property(n, "default", "name"),
    }
    for name in ("memcpy", "memcpy_async", "memcpy_rect", "memcpy_rect_async"):
        copy = getattr(omp, f"target_{name}")
        calls[f"omp.target_{name}.dst_device"] = lambda n, copy=copy: copy(d, a, dst_device=n)
        calls[f"omp.target_{name}.src_device"] = lambda n, copy=copy: copy(a, d, src_device=n)
    for name in ("target_memset", "target_memset_async"):
        calls[f"omp.{name}.device"] = lambda n, name=name: getattr(omp, name)(d, 0, device=n)
    for name in ("memcpy_d2d", "memcpy_d2d_async"):
        for side in ("dst_device", "src_device"):
            calls[f"acc.{name}.{side}"] = lambda n, name=name, side=side: getattr(acc, name)(a, a, **{side: n})
    for name in ("async_test", "get_cuda_stream", "wait", "wait_async"):
        calls[f"acc.{name}.device"] = lambda n, name=name: getattr(acc, name)(1, device=n)
    for name in ("async_test_all", "wait_all", "wait_all_async"):
        calls[f"acc.{name}.device"] = lambda n, name=name: getattr(acc, name)(device=n)
    calls["acc.wait_any.device"] = lambda n: acc.wait_any([1], device=n)
    calls["acc.set_cuda_stream.device"] = lambda n: acc.set_cuda_stream(1, None, device=n)
    for name in ("is_present", "deviceptr"):
        calls[f"acc.{name}.device"] = lambda n, name=name: getattr(acc, name)(a, device=n)
    moves = ("copyin", "create", "copyout", "copyout_finalize", "delete", "delete_finalize")
    for name in (*moves, "update_device", "update_self"):
        for routine in (name, f"{name}_async"):
            calls[f"acc.{routine}.device"] = lambda n, routine=routine: getattr(acc, routine)(a, device=n)
    return calls


CALLS = sorted(_calls(None, None))


def test_the_table_is_complete():
    """Every public function with an argument that is a device number is tried here."""
    found = set()
    for module, short in ((omp, "omp"), (acc, "acc")):
        for name in dir(module):  # a signature may import a module, which becomes a name
            function = getattr(module, name)
            if not name.startswith("_") and callable(function) and not isinstance(function, type):
                parameters = inspect.signature(function).parameters
                found |= {f"{short}.{name}.{argument}" for argument in ARGUMENTS & parameters.keys()}
    assert found - OTHERWISE <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_device_number(name):
    """A string, a list, a float or a bool is a ClauseError that shows it, everywhere, and changes nothing."""
    with omp.Runtime("sim:2", check=True):
        a, d = np.arange(4.0), omp.target_alloc(4, "f8")
        call = _calls(a, d)[name]
        for number in NO_NUMBERS:
            with pytest.raises(omp.ClauseError) as caught:
                call(number)
            assert repr(number)[:30] in str(caught.value)
        omp.target_free(d)


@pytest.mark.parametrize("name", ["omp.target_associate_ptr.device", "acc.map_data.device"])
@pytest.mark.parametrize("number", [0, np.int64(0), np.uint8(0)])
def test_numpy_integers_are_device_numbers(name, number):
    """An integer of NumPy is a device number as an int is."""
    with omp.Runtime("sim:2", check=True):
        a, d = np.arange(4.0), omp.target_alloc(4, "f8")
        _calls(a, d)[name](number)
        assert omp.target_is_present(a, 0)
        assert not omp.target_is_present(a, 1)
        _calls(a, d)[name.replace("associate", "disassociate").replace(".map", ".unmap")](number)
        omp.target_free(d)
