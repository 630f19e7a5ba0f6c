"""Device routines and variables of OpenACC: OpenACCV-V's acc_get_num_devices, acc_set_device_*, acc_on_device."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.cluster import WORKER_DEVICES
from tests.conftest import checked

TYPES = [acc.device_host, acc.device_not_host, acc.device_nvidia, acc.device_sim, acc.device_default]


@pytest.fixture
def own(devices):
    """The type of the devices of `runtime`."""
    is_cuda = devices == "cuda" or (devices == "dask" and WORKER_DEVICES.startswith("cuda"))
    return acc.device_nvidia if is_cuda else acc.device_sim


def where():
    """Return the number of the device that a compute region without clauses runs on."""
    return acc.parallel(omp.get_device_num)()


def increment(a):
    a += 1


# -- counting ---------------------------------------------------------------------------------------
def test_num_devices(runtime, own):
    """Each type has its devices, of which the default's are the runtime's; there is one host."""
    n = omp.get_num_devices()
    counts = {device_type: acc.get_num_devices(device_type) for device_type in acc.DeviceType}
    other = ({acc.device_nvidia, acc.device_sim} - {own}).pop()
    assert counts == {
        acc.device_none: 0,
        acc.device_default: n,
        acc.device_host: 1,
        acc.device_not_host: n,
        own: n,
        other: 0,
    }
    assert acc.get_num_devices(str(own)) == n


def test_num_devices_without_devices():
    """Where there is no device the host is the default type."""
    with checked("none", env={}):
        assert acc.get_num_devices(acc.device_not_host) == 0
        assert acc.get_num_devices(acc.device_default) == 1
        assert acc.get_device_type() is acc.device_host
        assert acc.get_device_num(acc.device_default) == 0
        acc.set_device_type(acc.device_default)
        with pytest.raises(omp.DeviceUnavailableError, match="not_host"):
            acc.set_device_type(acc.device_not_host)


# -- choosing ---------------------------------------------------------------------------------------
def test_set_device_num(runtime, own):
    """The device that was set is the one that regions run on, and what get_device_num says, in OpenMP as well."""
    n = acc.get_num_devices(own)
    for number in reversed(range(n)):
        acc.set_device_num(number, own)
        assert acc.get_device_num(own) == acc.get_device_num(acc.device_not_host) == number
        assert omp.get_default_device() == where() == number
        assert acc.get_device_type() is own


def test_negative_numbers(runtime, own):
    """A negative number is the first device."""
    acc.set_device_num(acc.get_num_devices(own) - 1, own)
    acc.set_device_num(-1, own)
    assert acc.get_device_num(own) == 0


def test_the_type_stays_for_none(runtime, own):
    """With the type none a number counts within the type in use."""
    last = acc.get_num_devices(own) - 1
    acc.set_device_num(last, acc.device_none)
    assert acc.get_device_type() is own
    assert acc.get_device_num(acc.device_none) == acc.get_device_num(own) == last
    acc.set_device_type(acc.device_none)
    assert acc.get_device_num(own) == last


def test_the_host_as_device(runtime, own):
    """With the host as current device regions run there, without a copy; the first device takes over after it."""
    x = np.zeros(4)
    acc.set_device_type(acc.device_host)
    assert acc.get_device_type() is acc.device_host
    assert acc.get_device_num(acc.device_host) == 0
    assert omp.get_default_device() == where() == omp.get_initial_device()
    assert acc.parallel(lambda a: a is x)(x)
    assert acc.get_device_num(own) == 0
    acc.set_device_type(own)
    assert (acc.get_device_type(), acc.get_device_num(own), where()) == (own, 0, 0)
    acc.set_device_num(0, acc.device_host)
    assert acc.get_device_type() is acc.device_host


def test_the_default_type():
    """The type default is that of the runtime's initial default device, to which set_device_type goes back."""
    with checked("sim:3", env={"OMP_DEFAULT_DEVICE": "1"}):
        assert acc.get_device_num(acc.device_default) == 1
        acc.set_device_num(2, acc.device_sim)
        acc.set_device_type(acc.device_sim)
        assert acc.get_device_num(acc.device_sim) == 2
        acc.set_device_type(acc.device_default)
        assert acc.get_device_num(acc.device_sim) == where() == 1


def test_a_default_device_that_does_not_exist():
    """Such a number of the variable has the type none; the first device can be chosen."""
    with checked("sim:2", env={"OMP_DEFAULT_DEVICE": "7"}):
        assert acc.get_device_type() is acc.device_none
        assert acc.get_num_devices(acc.device_default) == 2
        assert acc.get_device_num(acc.device_default) == 0
        acc.set_device_type(acc.device_default)
        assert where() == 0


def test_the_choice_is_the_tasks():
    """Each host thread has a current device of its own, and a task that of its parent when it was generated."""
    seen = []
    with checked("sim:2", env={}):
        acc.set_device_num(1, acc.device_sim)
        thread = threading.Thread(target=lambda: seen.append(acc.get_device_num(acc.device_sim)))
        thread.start()
        thread.join()

        def child():
            before = acc.get_device_num(acc.device_sim)
            acc.set_device_num(0, acc.device_sim)
            return before, where()

        seen += omp.task(child)().result()
        assert where() == 1
    assert seen == [0, 1, 0]


def test_openmp_sees_what_openacc_sets(runtime, own):
    """The routines of both standards are about one variable."""
    last = omp.get_num_devices() - 1
    omp.set_default_device(last)
    assert acc.get_device_num(own) == last
    acc.set_device_num(0, own)
    assert omp.get_default_device() == 0
    omp.set_default_device(omp.initial_device)
    assert acc.get_device_type() is acc.device_host


@pytest.mark.gpu
def test_numbers_within_a_type():
    """Where there are devices of two types, each type counts its own from 0."""
    with checked("sim:1,cuda:0,sim:1", env={}):
        acc.set_device_num(0, acc.device_nvidia)
        assert (omp.get_default_device(), acc.get_device_num(acc.device_not_host)) == (1, 1)
        acc.set_device_num(1, acc.device_sim)
        assert (omp.get_default_device(), acc.get_device_num(acc.device_sim)) == (2, 1)
        assert acc.get_device_num(acc.device_nvidia) == 0
        assert acc.get_device_type() is acc.device_sim


# -- where a body is --------------------------------------------------------------------------------
@pytest.mark.parametrize("construct", [acc.parallel, acc.kernels, acc.serial, omp.target])
def test_on_device(runtime, own, construct):
    """In a region the device's type and not_host are true; outside, and in one that runs on the host, host is."""

    def true_here():
        return {device_type for device_type in TYPES if acc.on_device(device_type)}

    assert true_here() == {acc.device_host}
    assert construct(true_here)() == {acc.device_not_host, own, acc.device_default}
    assert construct(if_=False)(true_here)() == {acc.device_host}
    assert omp.task(true_here)().result() == {acc.device_host}
    assert acc.on_device(acc.device_none)


def test_routines_in_a_region(runtime, own):
    """A region can ask about devices, and choose none."""

    def body():
        for call in (
            lambda: acc.set_device_num(0, own),
            lambda: acc.set_device_type(own),
            lambda: acc.init(own),
            lambda: acc.shutdown(own),
        ):
            with pytest.raises(omp.UsageError):
                call()
        return acc.get_num_devices(own), acc.get_device_num(own), acc.get_device_type()

    assert acc.parallel(body)() == (omp.get_num_devices(), 0, own)


# -- life -------------------------------------------------------------------------------------------
def test_init(runtime, own):
    """Init chooses the type, keeps the device where it is of that type, and gives declared arrays their storage."""
    last = acc.get_num_devices(own) - 1
    acc.set_device_num(last, own)
    acc.init(own)
    assert acc.get_device_num(own) == last
    acc.init(acc.device_host)
    assert acc.get_device_type() is acc.device_host
    acc.init()
    assert where() == 0


def test_shutdown(runtime, own):
    """Shutdown waits for the queues of all devices of the type; the devices can be used at once."""
    arrays = [np.zeros(4) for _ in range(acc.get_num_devices(own))]
    for number, x in enumerate(arrays):
        acc.parallel(async_=1, device=number)(increment)(x)
    acc.shutdown(own)
    assert all((x == 1).all() for x in arrays)
    acc.parallel(increment)(arrays[0])
    assert (arrays[0] == 2).all()
    acc.shutdown(acc.device_host)
    acc.shutdown()


def test_shutdown_raises_failures(runtime, own):
    """What has failed in a queue and nobody has seen arrives at shutdown."""

    def body():
        raise ZeroDivisionError

    acc.parallel(async_=1)(body)()
    with pytest.raises(BaseExceptionGroup) as caught:
        acc.shutdown(own)
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


# -- properties -------------------------------------------------------------------------------------
def test_properties(runtime, own):
    """Each device, and the host, has a name, a vendor, a driver and memory of which no more is free than there is."""
    for device_type in (own, acc.device_default, acc.device_not_host, acc.device_host):
        for number in range(acc.get_num_devices(device_type)):

            def of(what, number=number, device_type=device_type):
                return acc.get_property(number, device_type, what)

            assert 0 < of(acc.property_free_memory) <= of(acc.property_memory)
            for text in (acc.property_name, acc.property_vendor, acc.property_driver):
                assert isinstance(of(text), str)
                assert of(text)
    assert acc.get_property(0, own, acc.property_vendor) == ("NVIDIA" if own is acc.device_nvidia else "offload")
    assert acc.get_property(0, own, "name") == omp.device(0).name
    assert isinstance(acc.get_property(0, own, acc.property_shared_memory_support), bool)
    assert acc.get_property(0, acc.device_host, acc.property_shared_memory_support) is True


def test_free_memory():
    """What is mapped is no longer free."""
    with checked("sim:2", env={"OFFLOAD_SIM_MEMORY": "1M"}):
        x = np.zeros(1000)
        with acc.data(create=[x], device=1):
            free_nbytes = [acc.get_property(n, acc.device_sim, acc.property_free_memory) for n in range(2)]
        assert acc.get_property(1, acc.device_sim, acc.property_memory) == 2**20
        assert free_nbytes[0] == 2**20
        assert free_nbytes[1] <= 2**20 - x.nbytes
        assert acc.get_property(1, acc.device_sim, acc.property_shared_memory_support) is False


# -- what means nothing -----------------------------------------------------------------------------
@pytest.mark.parametrize("given", ["gpu", "", None, 4, "NVIDIA ", acc.property_name])
@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("get_num_devices", acc.get_num_devices),
        ("get_device_num", acc.get_device_num),
        ("set_device_num", lambda given: acc.set_device_num(0, given)),
        ("set_device_type", acc.set_device_type),
        ("on_device", acc.on_device),
        ("init", acc.init),
        ("shutdown", acc.shutdown),
        ("get_property", lambda given: acc.get_property(0, given, "name")),
    ],
)
def test_types_that_mean_nothing(sim, given, what, call):
    """What is no type of device is an error that names the routine."""
    with pytest.raises(omp.ClauseError, match=f"{what}.*type of device"):
        call(given)


@pytest.mark.parametrize("number", [2, 1000, 1.0, "0", True, None])
def test_numbers_that_mean_nothing(number):
    """A number beyond the last device of the type, or no number, is an error, and the current device stays."""
    with checked("sim:2", env={}):
        acc.set_device_num(1, acc.device_sim)
        with pytest.raises(omp.ClauseError, match="set_device_num"):
            acc.set_device_num(number, acc.device_sim)
        with pytest.raises(omp.ClauseError, match="get_property"):
            acc.get_property(number, acc.device_sim, acc.property_name)
        with pytest.raises(omp.ClauseError):
            acc.get_property(-1, acc.device_sim, acc.property_name)
        with pytest.raises(omp.ClauseError):
            acc.set_device_num(1, acc.device_host)
        assert where() == 1


def test_types_that_are_not_here(sim):
    """A type of which there is no device is an error where a device of it is asked for."""
    for call in (
        lambda: acc.set_device_type(acc.device_nvidia),
        lambda: acc.set_device_num(0, acc.device_nvidia),
        lambda: acc.get_device_num(acc.device_nvidia),
        lambda: acc.init(acc.device_nvidia),
        lambda: acc.get_property(0, acc.device_nvidia, acc.property_name),
        lambda: acc.get_property(0, acc.device_none, acc.property_name),
    ):
        with pytest.raises(omp.DeviceUnavailableError, match=r"nvidia|none"):
            call()
    assert not acc.on_device(acc.device_nvidia)
    acc.shutdown(acc.device_nvidia)


@pytest.mark.parametrize("what", ["colour", "", None, acc.device_host])
def test_properties_that_mean_nothing(sim, what):
    """What is no property is an error that lists those that are."""
    with pytest.raises(omp.ClauseError, match=r"get_property.*driver"):
        acc.get_property(0, acc.device_sim, what)


# -- ACC_DEVICE_NUM, ACC_DEVICE_TYPE ----------------------------------------------------------------
def test_device_num_env():
    """ACC_DEVICE_NUM is the default device, also of OpenMP's constructs; OMP_DEFAULT_DEVICE goes before it."""
    with checked("sim:3", env={"ACC_DEVICE_NUM": " 2 "}):
        assert acc.get_device_num(acc.device_sim) == omp.target(omp.get_device_num)() == where() == 2
    with checked("sim:3", env={"ACC_DEVICE_NUM": "2", "OMP_DEFAULT_DEVICE": "0"}):
        assert where() == 0
    with checked("none", env={"ACC_DEVICE_NUM": "2"}):
        assert omp.get_default_device() == omp.get_initial_device()


@pytest.mark.parametrize("value", ["2", "5"])
def test_device_num_env_out_of_range(value):
    """A number beyond the last device is an error where it is used; it is never the host, as it may be in OpenMP."""
    with checked("sim:2", env={"ACC_DEVICE_NUM": value}):
        with pytest.raises(omp.ClauseError, match="does not exist") as caught:
            where()
        assert f"ACC_DEVICE_NUM={value}" in str(caught.value)
        assert acc.get_device_type() is acc.device_none
        acc.set_device_type(acc.device_sim)
        assert where() == 0


@pytest.mark.parametrize(
    ("text", "n_devices"), [("sim", 1), (" SIM ", 1), ("Host", 0), pytest.param("nvidia", None, marks=pytest.mark.gpu)]
)
def test_device_type_env(text, n_devices):
    """ACC_DEVICE_TYPE says which devices there are, in any case of letters."""
    with checked(None, env={"ACC_DEVICE_TYPE": text}):
        assert acc.get_device_type() == text.strip().lower()
        assert n_devices in (None, omp.get_num_devices())


def test_what_goes_before_the_device_type():
    """`devices=` goes before OFFLOAD_DEVICES, which goes before ACC_DEVICE_TYPE; DEFAULT leaves it open."""
    env = {"ACC_DEVICE_TYPE": "host", "OFFLOAD_DEVICES": "sim:2"}
    with checked(None, env=env):
        assert acc.get_num_devices(acc.device_sim) == 2
    with checked("sim:3", env=env):
        assert acc.get_num_devices(acc.device_sim) == 3
    with checked(None, env={"ACC_DEVICE_TYPE": "default"}):
        assert omp.get_num_devices() > 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACC_DEVICE_NUM", "-1"),
        ("ACC_DEVICE_NUM", "gpu"),
        ("ACC_DEVICE_NUM", "1.0"),
        ("ACC_DEVICE_NUM", "²"),
        ("ACC_DEVICE_TYPE", "gpu"),
        ("ACC_DEVICE_TYPE", "cuda"),
        ("ACC_DEVICE_TYPE", "not_host"),
        ("ACC_DEVICE_TYPE", "nvidia,sim"),
    ],
)
def test_values_that_mean_nothing(name, value):
    """Such a value is an error when the runtime is made, also where another variable goes before it."""
    env = {name: value, "OMP_DEFAULT_DEVICE": "0", "OFFLOAD_DEVICES": "sim"}
    with pytest.raises(omp.ClauseError, match=name):
        omp.Runtime("sim", env=env)
