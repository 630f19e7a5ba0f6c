"""A simulated device whose array operations are reported: the reports, and that nothing else is different."""

from __future__ import annotations

import numpy as np
import pytest

from offload.devices.sim.device import SimDevice
from offload.devices.sim.watched import WatchedSimDevice
from offload.sanitizer.tracked import DeviceWatch, tracked


class Seen:
    """A sink that keeps the shapes of the arrays, for operations on a device and for those on the host."""

    def __init__(self):
        self.accesses, self.on_host, self.away = [], [], []

    def note(self, reads, writes, device):
        found = [array.shape for array in reads], [array.shape for array in writes]
        (self.on_host if device is None else self.accesses).append(found)

    def given_away(self, storage, device):
        self.away.append(storage.shape)


@pytest.fixture
def sink():
    return Seen()


@pytest.fixture
def device(sink):
    made = WatchedSimDevice(DeviceWatch(sink), 0)
    yield made
    made.close()


@pytest.fixture
def xp(device):
    return device.namespace()


OPERATIONS = {
    "a += b": [([(3, 4), (4,)], [(3, 4)])],
    "a[1] = b": [([(4,)], [(4,)])],
    "a[:, ::2] = 1": [([], [(3, 2)])],
    "a[a > 0] = 0": [([(3, 4)], []), ([(3, 4)], [])],
    "a.sum(axis=0)": [([(3, 4)], [])],
    "float(a[1, 2])": [([()], [])],
    "bool(b[0])": [([()], [])],
    "a.item(1, 2)": [([()], [])],
    "a.get()": [([(3, 4)], [])],
    "a.set(h)": [([], [(3, 4)])],
    "np.dot(a, b)": [([(3, 4), (4,)], [])],
    "np.copyto(a, b)": [([(4,)], [(3, 4)])],
    "np.where(a > 0, a, b)": [([(3, 4)], []), ([(3, 4), (4,)], [])],
    "a.sort()": [([(3, 4)], [(3, 4)])],
    "a.fill(2)": [([], [(3, 4)])],
    "a.T; a[1:]; a.reshape(-1); a.shape; a[0, 0]": [],
    "xp.zeros(3)": [],
    "xp.empty(3)": [],
    "np.zeros_like(a)": [],
    "str(b)": [([(4,)], [])],
    "xp.random.default_rng(1).random(out=b)": [([], [(4,)])],
    "xp.random.seed(1); xp.random.shuffle(b)": [([(4,)], [(4,)])],
    "xp.r_[b, b]": [([(4,), (4,)], [])],
    "np.add.at(b, 1, 1)": [([()], [()])],
    "b.copy()": [([(4,)], [])],
    "xp.asnumpy(b)": [([(4,)], [])],
    "b.tolist()": [([(4,)], [])],
}


@pytest.mark.parametrize("code", OPERATIONS)
def test_an_operation_is_reported_with_its_storage(xp, sink, code):
    """Each operation on device arrays is reported once, with the elements that it reads and writes."""
    names = {"np": np, "xp": xp, "a": xp.zeros((3, 4)), "b": xp.arange(4.0), "h": np.zeros((3, 4))}
    sink.accesses.clear()
    exec(code, names)
    assert [found for found in sink.accesses if found != ([], [])] == OPERATIONS[code]


def test_the_storage_that_leaves_is_given_away(xp, sink):
    """`unwrap` gives the storage to the program."""
    xp.zeros(5).unwrap()
    assert sink.away == [(5,)]


def test_a_host_array_that_is_copied_is_read_on_the_host(xp, sink):
    """`array` of a tracked host array reads the host array, and no device array."""
    xp.array(tracked(np.ones(7)))
    assert sink.on_host == [([(7,)], [])]
    assert sink.accesses == []


def test_an_operation_that_raises_is_not_reported(xp, sink):
    """An operation that NumPy refuses, or the device, accesses nothing."""
    a = xp.zeros(3)
    with pytest.raises(ValueError, match="broadcast"):
        a + xp.zeros(4)
    with pytest.raises(TypeError, match="mixes"):
        a + np.zeros(3)
    assert sink.accesses == []


@pytest.mark.parametrize("code", OPERATIONS)
def test_results_are_those_of_a_device_that_nobody_watches(xp, code):
    """The operations leave the same arrays as on another simulated device."""
    plain = SimDevice(1)
    try:
        found = []
        for namespace in (xp, plain.namespace()):
            a, b = namespace.arange(12.0).reshape(3, 4) - 5, namespace.arange(4.0)
            exec(code, {"np": np, "xp": namespace, "a": a, "b": b, "h": np.ones((3, 4))})
            found.append((a.get().tolist(), b.get().tolist()))
        assert found[0] == found[1]
    finally:
        plain.close()


def test_a_device_without_a_watch_has_the_plain_operations():
    """The class of other devices has `apply` itself, without a step between."""
    from offload.devices.sim.array import apply

    assert SimDevice.__dict__["apply"].__func__ is apply
