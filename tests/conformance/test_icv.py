"""ICVs and their variables: OpenMP_VV F 89 and E 73, LLVM 2.2 33."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, out, to, tofrom


def environment(**values):
    """Return an environment with these variables alone."""
    return {f"OMP_{name}": value for name, value in values.items()}


def where():
    """Return the number of the device that a region without clauses runs on."""
    return omp.target(omp.get_device_num)()


# -- OMP_TARGET_OFFLOAD -----------------------------------------------------------------------------
@pytest.mark.parametrize("value", ["DISABLED", "disabled", " Disabled\t"])
def test_target_offload_env_disabled(devices, value):
    """5.0/program_control/test_omp_target_offload_env_DISABLED.c: the region is on the host, whatever devices= says."""
    a = np.zeros(4)
    with omp.Runtime(devices, check=True, env=environment(TARGET_OFFLOAD=value)):
        assert omp.get_num_devices() == 0
        assert omp.devices() == []
        with pytest.warns(omp.HostFallbackWarning):
            assert omp.target(lambda a: (a.__iadd__(1), omp.is_initial_device())[1])(a)
        assert (a == 1).all()
        assert omp.get_default_device() == omp.get_initial_device() == 0


@pytest.mark.parametrize("value", ["", "DEFAULT", " default ", "MANDATORY", "mandatory"])
def test_target_offload_env_default_and_mandatory(devices, value):
    """5.0/program_control/test_omp_target_offload_env_{DEFAULT,MANDATORY}.c: where there is a device, it is used."""
    scalar, a = 3, np.zeros(4)
    with omp.Runtime(devices, check=True, env=environment(TARGET_OFFLOAD=value)):

        def body(scalar, a):
            assert not omp.is_initial_device()
            a += scalar

        omp.target(body)(scalar, a)
        assert omp.target(device=omp.initial_device)(omp.is_initial_device)()
    assert (a == 3).all()


def test_default_falls_back_once_with_a_warning():
    """Without a device the host stands in under DEFAULT, and says so once."""
    with omp.Runtime("none", check=True, env={}), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert where() == omp.get_initial_device()
        assert omp.target(device=omp.initial_device)(omp.is_initial_device)()
    assert [warning.category for warning in caught] == [omp.HostFallbackWarning]


def test_naming_the_host_is_no_fall_back():
    """A construct that names the host runs there without a warning, with and without devices."""
    with omp.Runtime("none", check=True, env={}):
        assert omp.target(device=omp.initial_device)(omp.is_initial_device)()
        assert omp.target(device=omp.get_initial_device())(omp.is_initial_device)()


def constructs(a, **device):
    """Return a call of each device construct."""
    return (
        lambda: omp.target(**device)(lambda a: None)(a),
        lambda: omp.target(nowait=True, **device)(lambda a: None)(a),
        lambda: omp.target_data([tofrom(a)], **device).__enter__(),
        lambda: omp.target_enter_data([to(a)], **device),
        lambda: omp.target_exit_data([from_(a)], **device),
        lambda: omp.target_enter_data([to(a)], nowait=True, **device),
    )


@pytest.mark.parametrize("spec", ["none", None])
def test_mandatory_but_no_devices(spec):
    """offload/test/offloading/mandatory_but_no_devices.c: every construct fails, also where it names the host."""
    env = {**environment(TARGET_OFFLOAD="MANDATORY"), "OFFLOAD_DEVICES": "none"}
    with omp.Runtime(spec, check=True, env=env):
        assert omp.get_num_devices() == 0
        assert omp.get_default_device() == omp.invalid_device
        for device in ({}, {"device": omp.get_initial_device()}, {"device": omp.initial_device}):
            for call in constructs(np.zeros(3), **device):
                with pytest.raises(omp.DeviceUnavailableError, match="MANDATORY"):
                    call()
        with pytest.raises(omp.DeviceUnavailableError):
            omp.target_alloc(4)
        omp.target_free(omp.target_alloc(4, device=omp.initial_device))
        omp.set_default_device(omp.get_initial_device())
        with pytest.raises(omp.DeviceUnavailableError):
            where()


@pytest.mark.parametrize("value", ["DEFAULT", "MANDATORY", "DISABLED"])
def test_numbers_out_of_range(devices, value):
    """A device number that does not exist is an error under every value."""
    with omp.Runtime(devices, check=True, env=environment(TARGET_OFFLOAD=value)):
        beyond = omp.get_num_devices() + 1
        for number in (beyond, 1000, omp.invalid_device):
            for call in constructs(np.zeros(3), device=number):
                with pytest.raises(omp.ClauseError, match=str(number)):
                    call()
            with pytest.raises(omp.ClauseError):
                omp.set_default_device(number)


def test_disabled_still_reads_devices():
    """DISABLED needs no CuPy for devices="cuda", and a specification that means nothing is an error all the same."""
    env = environment(TARGET_OFFLOAD="DISABLED")
    with omp.Runtime("cuda:0,1", env=env), pytest.warns(omp.HostFallbackWarning):
        assert where() == 0
    with pytest.raises(omp.ClauseError, match="devices="):
        omp.Runtime("gpu", env=env)


# -- OMP_DEFAULT_DEVICE -----------------------------------------------------------------------------
def test_default_device_env():
    """OMP_DEFAULT_DEVICE is where regions without device= go, from every thread."""
    seen = []
    with omp.Runtime("sim:3", check=True, env=environment(DEFAULT_DEVICE=" 2 ")):
        assert omp.get_default_device() == 2
        assert where() == 2
        thread = threading.Thread(target=lambda: seen.append((omp.get_default_device(), where())))
        thread.start()
        thread.join()
        omp.set_default_device(1)
        assert where() == 1
    assert seen == [(2, 2)]
    with omp.Runtime("sim:3", check=True, env={}):
        assert omp.get_default_device() == 0


@pytest.mark.parametrize("value", ["-1", "2"])
def test_default_device_env_host(value):
    """The host's numbers make it the default device, without a warning, since it was asked for."""
    with omp.Runtime("sim:2", check=True, env=environment(DEFAULT_DEVICE=value)):
        assert omp.get_default_device() == omp.get_initial_device()
        assert where() == omp.get_initial_device()


@pytest.mark.parametrize("value", ["DEFAULT", "MANDATORY"])
def test_default_device_env_out_of_range(value):
    """A default device that does not exist is an error where it is used, and nowhere else."""
    with omp.Runtime("sim:2", check=True, env=environment(DEFAULT_DEVICE="7", TARGET_OFFLOAD=value)):
        assert omp.get_default_device() == 7
        for call in constructs(np.zeros(3)):
            with pytest.raises(omp.ClauseError, match="device 7"):
                call()
        assert omp.target(device=1)(omp.get_device_num)() == 1
        omp.set_default_device(1)
        assert where() == 1


def test_default_device_env_without_devices():
    """Where there is no device at all, the host stands in for any default device."""
    env = environment(DEFAULT_DEVICE="3", TARGET_OFFLOAD="DISABLED")
    with omp.Runtime("sim:4", check=True, env=env), pytest.warns(omp.HostFallbackWarning):
        assert where() == omp.get_default_device() == 0


def test_omp_default_device(runtime):
    """4.5/application_kernels/omp_default_device.c: memory routines do not change the default device."""
    last = omp.get_num_devices() - 1
    for number in (0, last, omp.get_initial_device()):
        omp.set_default_device(number)
        d = omp.target_alloc(8, device=last)
        omp.target_memset(d, 0, device=last)
        omp.target_memcpy(d, np.ones(8, np.uint8), dst_device=last)
        assert omp.get_default_device() == number
        omp.target_free(d)
    omp.set_default_device(omp.initial_device)
    assert omp.get_default_device() == omp.get_initial_device()


def test_children_inherit_at_creation():
    """A task has the default device that its parent had when it was generated; what it sets stays its own."""
    with omp.Runtime("sim:3", check=True, num_threads=2):
        event = omp.Event()
        omp.task(depend=[out(("t",))], detach=event)(lambda: None)()

        def child():
            return omp.get_default_device(), where()

        def parent():
            before = omp.get_default_device()
            omp.set_default_device(2)
            return before, omp.task(child)().result(), omp.get_default_device()

        omp.set_default_device(1)
        task = omp.task(depend=[in_(("t",))])(parent)()
        region = omp.target(depend=[in_(("t",))], nowait=True)(omp.get_default_device)()
        omp.set_default_device(0)
        event.fulfill()
        assert task.result() == (1, (2, 2), 2)
        assert region.result() == 1
        assert omp.get_default_device() == 0


# -- values that mean nothing -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OMP_TARGET_OFFLOAD", "YES"),
        ("OMP_TARGET_OFFLOAD", "DEFAULT,DISABLED"),
        ("OMP_DEFAULT_DEVICE", "gpu"),
        ("OMP_DEFAULT_DEVICE", "1.0"),
        ("OMP_DEFAULT_DEVICE", "-2"),
        ("OMP_DEFAULT_DEVICE", "²"),
        ("OMP_DISPLAY_ENV", "loud"),
    ],
)
def test_values_that_mean_nothing(name, value):
    """Such a value is an error when the runtime is made, and names the variable."""
    with pytest.raises(omp.ClauseError, match=name):
        omp.Runtime("sim", env={name: value})


# -- OMP_DISPLAY_ENV --------------------------------------------------------------------------------
@pytest.mark.parametrize("value", ["", "false", "FALSE", "0"])
def test_display_env_off(capfd, value):
    """Nothing is printed unless asked for."""
    with omp.Runtime("sim", env=environment(DISPLAY_ENV=value)):
        pass
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("value", "is_verbose"), [("true", False), (" TRUE ", False), ("1", False), ("Verbose", True)])
def test_display_env_on(capfd, value, is_verbose):
    """When a runtime is made its ICVs go to stderr; with verbose those of OpenACC and offload too."""
    env = {**environment(DISPLAY_ENV=value, DEFAULT_DEVICE="1"), "OFFLOAD_SIM_MEMORY": "1M"}
    env |= {"ACC_DEVICE_NUM": "0", "ACC_DEVICE_TYPE": "sim"}
    with omp.Runtime("sim:2", env=env):
        printed = capfd.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert (lines[0], lines[-1]) == ("OPENMP DISPLAY ENVIRONMENT BEGIN", "OPENMP DISPLAY ENVIRONMENT END")
    assert {"  _OPENMP = '202111'", "  OMP_TARGET_OFFLOAD = 'DEFAULT'", "  OMP_DEFAULT_DEVICE = '1'"} <= set(lines)
    others = {"OFFLOAD_SIM_MEMORY": "1048576", "OFFLOAD_NOTIFY": "0", "ACC_DEVICE_NUM": "0", "ACC_DEVICE_TYPE": "SIM"}
    assert [f"  {name} = '{text}'" in lines for name, text in others.items()] == [is_verbose] * len(others)


def test_display_env_routine(capfd):
    """display_env prints the same at any time: initial values, of the current runtime."""
    with omp.Runtime("sim:2", env=environment(TARGET_OFFLOAD="mandatory")):
        omp.set_default_device(1)
        omp.display_env()
        brief = capfd.readouterr().err
        omp.display_env(verbose=True)
        verbose = capfd.readouterr().err
    assert "OMP_TARGET_OFFLOAD = 'MANDATORY'" in brief
    assert "OMP_DEFAULT_DEVICE = '0'" in brief
    assert set(brief.splitlines()) < set(verbose.splitlines())


def test_the_process_environment_counts(tmp_path):
    """The default runtime reads os.environ."""
    env = {**os.environ, **environment(TARGET_OFFLOAD="disabled", DISPLAY_ENV="true"), "OFFLOAD_DEVICES": "sim:2"}
    program = "import offload as omp; print(omp.get_num_devices())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert "OMP_TARGET_OFFLOAD = 'DISABLED'" in done.stderr


def test_env_replaces_the_process_environment(monkeypatch):
    """With env= the process's own variables do not count."""
    monkeypatch.setenv("OMP_TARGET_OFFLOAD", "DISABLED")
    monkeypatch.setenv("OMP_DEFAULT_DEVICE", "1")
    with omp.Runtime("sim:2", check=True, env={}):
        assert (omp.get_num_devices(), omp.get_default_device()) == (2, 0)
    with contextlib.ExitStack() as stack:
        stack.enter_context(omp.Runtime("sim:2", check=True))
        assert omp.get_num_devices() == 0


def test_a_region_that_is_asked_to_run_on_the_host_is_no_fall_back():
    """`if_=False` chooses the host: no warning without a device, and the default device need not exist."""

    @omp.target
    def where() -> bool:
        return omp.is_initial_device()

    with omp.Runtime("none"):
        assert where.options(if_=False)()
    with omp.Runtime("sim", env={"OMP_DEFAULT_DEVICE": "5"}):
        assert where.options(if_=False)()
        with pytest.raises(omp.ClauseError):
            where()
        with pytest.raises(omp.ClauseError):
            where.options(if_=False, device=7)()
