"""Kinds of devices: those of the package, and one of a program's own, in one file."""

from __future__ import annotations

import ctypes
import sys
from types import MappingProxyType

import numpy as np
import pytest

import offload as omp
from offload import acc, tofrom
from offload.devices import kinds
from offload.devices.kind import Kind
from tests.conftest import checked
from tests.eager_device import EagerDevice, EagerKind
from tests.null_device import NullDevice


@pytest.fixture
def known(monkeypatch):
    """Forget after the test which kinds it has made known."""
    monkeypatch.setattr(kinds, "_kinds", dict(kinds._kinds))


# -- devices of one's own -----------------------------------------------------------------------------
def test_devices_of_ones_own():
    """A specification names them beside others, a count of them too; target regions run there, on mapped arrays."""
    with checked("eager:2, sim", num_threads=1):
        assert [device.kind for device in omp.devices()] == ["eager", "eager", "sim"]
        assert [device.name for device in omp.devices()] == ["eager:0", "eager:1", "sim:2"]
        for number in range(3):
            a = np.arange(8.0)

            @omp.target(map=[tofrom("a")], device=number)
            def double(a):
                assert not isinstance(a, np.ndarray)
                assert omp.get_device_num() == number  # noqa: B023  # called in this turn
                a *= 2

            double(a)
            assert a.tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


def test_devices_that_are_made_by_name_alone():
    """Where a kind is merely registered, and its devices do nothing, a runtime has as many as were asked for."""
    with checked("null:2") as runtime:
        assert [type(place.device) for place in runtime.places] == [NullDevice] * 2
        assert omp.target(omp.get_device_num, device=1)() == 1


@pytest.mark.parametrize("text", ["eager:0", "eager:x", "eager:", "eager:1,2", "mine", "eager sim", "none:2"])
def test_names_that_mean_nothing(text):
    """What names no kind, or not in its way, is an error that says which kinds there are."""
    with pytest.raises(omp.ClauseError, match=r"write cuda, cuda:0,2, sim, sim:4, .*eager, eager:4.*, none or a list"):
        omp.Runtime(text)


def test_a_mistake_is_one_without_devices():
    """OMP_TARGET_OFFLOAD=DISABLED opens nothing, but takes no name that means nothing."""
    env = {"OMP_TARGET_OFFLOAD": "DISABLED"}
    with pytest.raises(omp.ClauseError, match="mine"):
        omp.Runtime("mine", env=env)
    with checked("eager:2", env=env):
        assert omp.get_num_devices() == 0


def test_a_driver_wakes_by_a_semaphore(known):
    """The wake-up that a device is given can be posted by C code where the device says that it does so."""
    posted = []

    class Device(EagerDevice):
        kind = "driven"
        wakes_by_driver = sys.platform == "linux"
        waits_look = False

        def passed(self, event):
            return bool(posted)

        def wake(self, stream, wakeup):
            posted.append(wakeup)
            if self.wakes_by_driver:
                ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(wakeup.post_function)(wakeup.address)
            else:
                wakeup.post()

    class Driven(Kind):
        name = "driven"

        def open(self, opening):
            return Device(opening.number, 1 << 20)

    kinds.register(Driven())
    with checked("driven"):
        assert omp.target(nowait=True)(lambda: 3)().result() == 3
    assert posted


# -- settings -----------------------------------------------------------------------------------------
def test_variables_of_a_kind(capfd):
    """A kind reads its own variables, which are shown with the others; blank ones are not set."""
    env = {"OFFLOAD_EAGER_MEMORY": "64K", "OFFLOAD_SIM_MEMORY": "", "OMP_DISPLAY_ENV": "verbose"}
    with checked("eager", env=env):
        assert omp.device(0).memory_info() == (65536, 65536)
    printed = capfd.readouterr().err
    assert "OFFLOAD_EAGER_MEMORY = '65536'" in printed
    assert "OFFLOAD_SIM_MEMORY = ''" in printed
    with pytest.raises(omp.ClauseError, match="OFFLOAD_EAGER_MEMORY='much'"):
        omp.Runtime("sim", env={"OFFLOAD_EAGER_MEMORY": "much"})


def test_openacc_knows_the_type_of_a_kind():
    """OpenACC's routines and ACC_DEVICE_TYPE know a kind by the word that it gives; without one it is not the host."""
    with checked("sim, eager:2, null"):
        counts = {name: acc.get_num_devices(name) for name in ("sim", "eager", "nvidia", "not_host")}
        assert counts == {"sim": 1, "eager": 2, "nvidia": 0, "not_host": 4}
        acc.set_device_num(1, "eager")
        assert (omp.get_default_device(), acc.get_device_type(), acc.get_device_num("eager")) == (2, "eager", 1)
        assert omp.target(lambda: [acc.on_device(name) for name in ("eager", "sim", "not_host")])() == [
            True,
            False,
            True,
        ]
        assert acc.get_property(0, "eager", acc.property_vendor) == "offload"
        assert acc.get_property(0, "eager", acc.property_driver) == acc.get_property(0, "host", acc.property_driver)
        omp.set_default_device(3)
        assert acc.get_device_type() is acc.device_not_host
        with pytest.raises(omp.ClauseError, match="'null' is not a type of device"):
            acc.get_num_devices("null")
    with checked(None, env={"ACC_DEVICE_TYPE": "Eager"}):
        assert [device.kind for device in omp.devices()] == ["eager"]
    with pytest.raises(omp.ClauseError, match=r"ACC_DEVICE_TYPE='null' .*EAGER"):
        omp.Runtime(env={"ACC_DEVICE_TYPE": "null"})


def test_a_device_says_of_which_kind_it_is(known):
    """A kind whose devices say that they are another's is refused when it opens one."""
    kinds.register(kind())
    with pytest.raises(omp.DeviceUnavailableError, match="'mine' has opened a device of kind 'eager'"):
        omp.Runtime("mine")


# -- what can be registered -----------------------------------------------------------------------------
def kind(**attributes):
    """Return a kind with some attributes."""
    names = {"name": "mine", "acc_type": None, "variables": {}, "open": lambda self, opening: EagerDevice(0, 1)}
    return type("Mine", (EagerKind,), {**names, **attributes})()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (EagerKind, "not a kind"),
        ("sim", "not a kind"),
        (kind(name="Mine"), "'Mine' is not a valid name of a kind"),
        (kind(name="2"), "'2' is not a valid name"),
        (kind(name=None), "None is not a valid name"),
        (kind(name="none"), "'none' is not a valid name"),
        (kind(name="sim"), "'sim' has 'sim' already"),
        (kind(acc_type="host"), "'host' is not a valid name of a type"),
        (kind(acc_type="nvidia"), "'cuda' has 'nvidia of OpenACC' already"),
        (kind(variables={"OFFLOAD_SIM_MEMORY": str}), "'sim' has 'OFFLOAD_SIM_MEMORY' already"),
        (kind(variables={"MEMORY": str}), "'MEMORY' is not a valid name of a variable"),
    ],
)
def test_what_cannot_be_registered(given, words):
    """What is no kind, or has a name that means something else, is refused, and nothing changes."""
    before = list(kinds.known())
    with pytest.raises(omp.ClauseError, match=words):
        kinds.register(given)
    assert list(kinds.known()) == before


# -- entry points -----------------------------------------------------------------------------------------
@pytest.fixture
def installed(known, monkeypatch, tmp_path):
    """Install a distribution with a module and entry points of the group of devices."""

    def install(module, **entry_points):
        info = tmp_path / "of_mine-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: of-mine\nVersion: 1.0\n", "utf-8")
        lines = [f"{name} = {value}" for name, value in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[offload.devices]", *lines, ""]), "utf-8")
        (tmp_path / "of_mine.py").write_text(module, "utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "of_mine", raising=False)

    return install


MODULE = """
from offload.devices.kind import Kind, parse_nbytes
from tests.eager_device import EagerDevice

class MyDevice(EagerDevice):
    kind = "mine"

class MyKind(Kind):
    name = acc_type = "mine"
    variables = {"OFFLOAD_MINE": parse_nbytes}

    def open(self, opening):
        return MyDevice(opening.number, opening.values["OFFLOAD_MINE"] or 1 << 20)
"""


@pytest.mark.parametrize("value", ["of_mine:MyKind", "of_mine:kind"])
def test_a_kind_is_found_by_its_entry_point(installed, value):
    """A name that is not known is looked for among installed packages; the variables of the kind are read then."""
    installed(MODULE + "\nkind = MyKind()\n", mine=value)
    with pytest.raises(omp.ClauseError, match=r"write .*, mine, none or a list"):
        omp.Runtime("yours")
    with checked("mine:2", env={"OFFLOAD_MINE": "1M"}):
        assert [device.memory_info()[1] for device in omp.devices()] == [1 << 20] * 2
    with pytest.raises(omp.ClauseError, match="OFFLOAD_MINE='much'"):
        omp.Runtime("mine", env={"OFFLOAD_MINE": "much"})


def test_a_type_of_openacc_is_found_by_its_entry_point(installed):
    """ACC_DEVICE_TYPE finds a kind that nobody has named yet."""
    installed(MODULE, mine="of_mine:MyKind")
    with checked(None, env={"ACC_DEVICE_TYPE": "MINE"}):
        assert acc.get_num_devices("mine") == 1


def test_a_module_may_register_its_kind_itself(installed):
    """An entry point whose import has registered the kind is as good."""
    installed(MODULE + "\nfrom offload.devices.kinds import register\nregister(MyKind())\n", mine="of_mine")
    with checked("mine"):
        assert omp.get_num_devices() == 1


def test_entry_points_that_do_not_work(installed):
    """One that cannot be imported, and one that is no kind of that name, say so, with where they are."""
    installed(MODULE, broken="of_no_such:Kind", other="of_mine:MyKind", number="of_mine:__name__")
    with pytest.raises(omp.DeviceUnavailableError, match=r"'broken' need 'of_no_such:Kind', which cannot be imported"):
        omp.Runtime("broken")
    for name in ("other", "number"):
        with pytest.raises(omp.ClauseError, match=f"entry point '{name}' .*not a kind of that name"):
            omp.Runtime(name)
    assert "mine" not in [kind.name for kind in kinds.known()]


def test_constants_are_immutable():
    """What a kind says by default cannot be changed for all kinds."""
    assert isinstance(Kind.variables, MappingProxyType)
    assert (Kind.acc_type, Kind.has_indices, EagerKind().count()) == (None, False, 1)
