"""Settings from the environment, and specifications of devices."""

import pytest

import offload as omp
from offload.devices.kind import parse_nbytes
from offload.errors import ClauseError
from offload.runtime.opening import parse_devices
from offload.runtime.settings import read_settings


def specs(text, count_cuda=3):
    return [(wanted.kind.name, wanted.index) for wanted in parse_devices(text, lambda kind: count_cuda)]


def test_devices():
    """Kinds, indices, counts and lists; a bare number continues a list of indices."""
    assert specs("none") == []
    assert specs("sim") == [("sim", 0)]
    assert specs("sim:3") == [("sim", 0), ("sim", 1), ("sim", 2)]
    assert specs("cuda") == [("cuda", 0), ("cuda", 1), ("cuda", 2)]
    assert specs("cuda", 0) == []
    assert specs("cuda:2,0") == [("cuda", 2), ("cuda", 0)]
    assert specs(" CUDA:1 , sim:2, sim ") == [("cuda", 1), ("sim", 0), ("sim", 1), ("sim", 2)]


@pytest.mark.parametrize(
    "text",
    ["", "gpu", "sim:0", "sim:-1", "sim:x", "cuda:", "cuda:a", "0", "sim,1", "cuda:0,0", "cuda,cuda:1", "none:2", ","],
)
def test_devices_that_mean_nothing(text):
    """What is not understood, or named twice, is an error that shows the text."""
    with pytest.raises(ClauseError, match="devices="):
        specs(text)


@pytest.mark.parametrize(
    "text", ["sim:999999", "sim:1025", "sim:1000,sim:25", "sim:" + "9" * 5000, "sim:1024,sim", "none,sim:" + "1" * 30]
)
def test_too_many_devices(text):
    """There is a limit to the devices that are made, which the message has; nothing is opened."""
    with pytest.raises(ClauseError, match="at most 1,024"):
        omp.Runtime(text)
    with pytest.raises(ClauseError, match="at most 1,024"):
        omp.Runtime(env={"OFFLOAD_DEVICES": text})
    assert len(specs("sim:1024")) == 1024
    assert specs("sim:" + "0" * 5000 + "2") == [("sim", 0), ("sim", 1)]
    assert specs("cuda:" + "9" * 5000)[0][1] > 2**40


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("1", 1), ("64K", 65536), ("1.5 k", 1536), ("2GiB", 2**31), ("3mb", 3 * 2**20), ("1T", 2**40), (" 10 B ", 10)],
)
def test_sizes(text, nbytes):
    """Bytes, with units that are powers of 1024."""
    assert parse_nbytes(text, "X") == nbytes


@pytest.mark.parametrize("text", ["", "0", "-1", "K", "1e3", "10 KK", "0.1", "lots"])
def test_sizes_that_mean_nothing(text):
    """Anything else is an error that names the variable."""
    with pytest.raises(ClauseError, match="X="):
        parse_nbytes(text, "X")


def test_settings(monkeypatch):
    """A mapping stands in for the environment; empty values are none."""
    settings = read_settings({"OFFLOAD_DEVICES": "", "OFFLOAD_SIM_MEMORY": "", "OFFLOAD_HANG_S": "2.5"})
    assert (settings.devices, settings.of_kinds["OFFLOAD_SIM_MEMORY"], settings.hang_s) == (None, None, 2.5)
    monkeypatch.setenv("OFFLOAD_DEVICES", "sim:7")
    assert read_settings(None).devices == "sim:7"
    assert read_settings({}).devices is None


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "soon"])
def test_hang_seconds_that_mean_nothing(text):
    """A time that is no time is an error."""
    with pytest.raises(ClauseError, match="OFFLOAD_HANG_S"):
        read_settings({"OFFLOAD_HANG_S": text})


def test_openacc_settings():
    """The device type stands for a specification where OFFLOAD_DEVICES is not set, in any case of letters."""
    assert read_settings({}).device_spec is None
    assert read_settings({"ACC_DEVICE_TYPE": " "}).acc_device_type is None
    specs = {"NVIDIA": "cuda", "host": "none", " Sim ": "sim", "default": None}
    assert {text: read_settings({"ACC_DEVICE_TYPE": text}).device_spec for text in specs} == specs
    assert read_settings({"ACC_DEVICE_TYPE": "host", "OFFLOAD_DEVICES": "sim:2"}).device_spec == "sim:2"
    assert read_settings({"ACC_DEVICE_NUM": " 3 "}).acc_device_num == 3
    assert read_settings({"ACC_DEVICE_NUM": ""}).acc_device_num is None


@pytest.mark.parametrize(
    ("name", "text"),
    [("ACC_DEVICE_TYPE", "cuda"), ("ACC_DEVICE_TYPE", "sim:2"), ("ACC_DEVICE_NUM", "-1"), ("ACC_DEVICE_NUM", "one")],
)
def test_openacc_settings_that_mean_nothing(name, text):
    """What is no type or number of a device is an error that names the variable and shows the text."""
    with pytest.raises(ClauseError, match=f"{name}={text!r}"):
        read_settings({name: text})


@pytest.mark.parametrize(("text", "level"), [("", 0), ("0", 0), ("1", 1), (" 2 ", 2), ("3", 3)])
def test_notify(text, level):
    """A level from 0, which is nothing, to 3."""
    assert read_settings({"OFFLOAD_NOTIFY": text}).notify == level


@pytest.mark.parametrize("text", ["4", "-1", "1.0", "true", "01", "\u00b2"])
def test_notify_levels_that_mean_nothing(text):
    """Anything else is an error."""
    with pytest.raises(ClauseError, match="OFFLOAD_NOTIFY"):
        read_settings({"OFFLOAD_NOTIFY": text})


@pytest.mark.parametrize(("text", "seed"), [("", None), (" ", None), ("0", 0), (" 12 ", 12), ("-3", -3), ("+7", 7)])
def test_seed(text, seed):
    """An integer of any sign; an empty value is none."""
    assert read_settings({"OFFLOAD_SEED": text}).seed == seed


@pytest.mark.parametrize("text", ["1.5", "one", "0x10", "1_000", "1 2", "\u00b2", "9" * 5000])
def test_seeds_that_mean_nothing(text):
    """Anything else is an error."""
    with pytest.raises(ClauseError, match="OFFLOAD_SEED"):
        read_settings({"OFFLOAD_SEED": text})
