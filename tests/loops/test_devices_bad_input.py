"""What a loop on several devices refuses, what it says then, and that nothing is left behind."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.loops.running.runs import NestForm
from tests.conftest import checked
from tests.patience import until

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")


@pytest.fixture(autouse=True)
def three():
    """A current runtime with three simulated devices."""
    with checked("sim:3") as runtime:
        yield runtime


@omp.target_loop(devices="all")
def double(x):
    for i in range(x.size):
        x[i] *= 2


@omp.target_loop(devices="all", filter="always")
def draw(c, x, y):
    for i in range(x.size):
        k = omp.atomic.add(c, 0, 1)
        y[k] = x[i]


@omp.target_loop(devices="all")
def scatter(p, x, y):
    for i in range(x.size):
        y[p[i]] = x[i]


@pytest.mark.parametrize(
    ("clauses", "word"),
    [
        ({"devices": "some"}, "all"),
        ({"devices": 1}, "int"),
        ({"devices": []}, "empty"),
        ({"devices": [True]}, "True"),
        ({"devices": [0, 0]}, "once"),
        ({"devices": [0.5]}, "0.5"),
        ({"devices": "all", "device": 0}, "device="),
        ({"filter": "yes"}, "'auto' or 'always' or 'never'"),
        ({"exchange": "soon"}, "'lazy' or 'eager'"),
        ({"devices": "all", "speculate": True}, "speculate"),
    ],
    ids=str,
)
@pytest.mark.parametrize("construct", [omp.target_loop, acc.parallel_loop, acc.kernels_loop])
def test_clauses(construct, clauses, word):
    """A wrong value, and clauses that exclude each other, are a ClauseError of the decorator and of `options`."""
    with pytest.raises(omp.ClauseError, match=word):
        construct(**clauses)(double.python)
    with pytest.raises(omp.ClauseError, match=word):
        construct(double.python).options(**clauses)


@pytest.mark.parametrize(("devices", "word"), [([0, 3], "host"), ([0, 7], "does not exist"), ([-1], "host")])
def test_devices_that_are_none(devices, word):
    """The host, and a number out of range, are a ClauseError of the call, which changes nothing."""
    x = np.ones(6)
    with pytest.raises(omp.ClauseError, match=word):
        double.options(devices=devices)(x)
    assert (x == 1).all()


def test_devices_of_two_kinds():
    """Devices that do not copy to each other are a ClauseError."""
    import tests.null_device  # noqa: F401  # registers the kind

    with omp.Runtime("sim,null"), pytest.raises(omp.ClauseError, match="two kinds"):
        double(np.ones(6))


def test_a_loop_that_cannot_be_split():
    """``filter="always"`` says why, with the line of the draw and that of its use; nothing has changed."""
    c, x, y = np.zeros(1, int), np.ones(6), np.zeros(6)
    first = draw.python.__code__.co_firstlineno
    with pytest.raises(omp.ClauseError, match=rf"cannot be split.*line {first + 3}, is used in line {first + 4}"):
        draw(c, x, y)
    assert (c[0], y.any()) == (0, False)
    draw.options(filter="auto")(c, x, y)
    assert (c[0], y.all()) == (6, True)
    assert draw.options(filter="auto").explain(c, x, y).to_dict()["filter"]["mode"] == "single"


def test_in_a_target_body():
    """``devices=`` is a UsageError there, whose task fails; without it the loop runs on the body's device."""
    x = np.ones(6)

    @omp.target
    def body(x):
        double(x)

    with pytest.raises(omp.UsageError, match="devices="):
        body(x)

    @omp.target
    def plain(x):
        double.options(devices=None)(x)

    plain(x)
    assert (x == 2).all()


def test_an_index_out_of_range_names_the_device():
    """The error is the task's, with the iteration, and a note has the device that found it."""
    p = np.array([0, 1, 9])
    with pytest.raises(IndexError) as failed:
        scatter.options(filter="always")(p, np.ones(3), np.zeros(3))
    assert "device 2" in "\n".join(failed.value.__notes__)


def test_a_replica_that_does_not_fit():
    """A device without memory is a DeviceMemoryError; counts are as before, and the host's array too."""
    with omp.Runtime("sim:3", env={"OFFLOAD_SIM_MEMORY": "64k"}):
        x = np.ones(1 << 14)
        with pytest.raises(omp.DeviceMemoryError):
            double(x)
        assert (x == 1).all()
        assert not any(omp.target_is_present(x, device) for device in range(3))


def test_what_is_present_on_another_device_only():
    """An array that a plain construct has put on another device than the first is a MapError, which changes nothing."""
    x = np.ones(6)
    omp.target_enter_data(map=[omp.to(x)], device=1)
    with pytest.raises(omp.MapError):
        double(x)
    assert [omp.target_is_present(x, device) for device in range(3)] == [False, True, False]
    omp.target_exit_data(map=[omp.release(x)], device=1)


def test_a_dependence_is_refused_as_on_one_device():
    """Iterations that provably depend on each other are a LoopError."""

    @omp.target_loop(devices="all")
    def shift(x):
        for i in range(1, x.size):
            x[i] = x[i - 1] + 1

    with pytest.raises(omp.LoopError) as failed:
        shift(np.ones(6))
    assert failed.value.rule == "dependence"


@pytest.mark.parametrize("is_launched", [True, False])
def test_a_lost_device_is_named(monkeypatch, is_launched):
    """A device that is lost takes the task with it, with the reason where all of the task has been launched by then.

    If the device is lost while the task is launched, the error is the first one of the launch.
    """
    right, may_go = NestForm.run, threading.Event()

    def run(self, grid, one):
        if one.blank.axes[0].start >= 32:
            assert may_go.wait(20)
            raise RuntimeError("the hardware is gone")
        right(self, grid, one)

    monkeypatch.setattr(NestForm, "run", run)
    text = r"sim:1 is lost.*the hardware is gone" if is_launched else "is lost"
    x = np.ones(64)
    with omp.Runtime("sim:2"), pytest.raises(omp.DeviceLostError, match=text):
        task = double.options(filter="always", nowait=True)(x)
        if is_launched:
            until(lambda: task.launched)
        may_go.set()
        task.result()
