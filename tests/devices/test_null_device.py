"""The device that does nothing: everything is done at once, and remembered."""

import gc

import numpy as np

from offload.devices import base
from offload.devices.streams import using
from tests.null_device import NullDevice


class Flag:
    posted = False

    def post(self):
        self.posted = True

    def wait(self, timeout_s):
        """Nothing to wait for."""


def test_fulfils_the_contract():
    """The device has every method of the contract; streams and events those of CuPy's."""
    device = NullDevice(2)
    for name in vars(base.Device):
        if not name.startswith("_"):
            assert callable(getattr(device, name)), name
    assert (device.kind, device.name, device.number, device.bodies_block) == ("null", "null:2", 2, False)
    stream = device.new_stream()
    assert isinstance(stream, base.Stream)
    assert isinstance(device.record(stream), base.DeviceEvent)
    assert device.owns_stream(stream)
    assert not NullDevice(2).owns_stream(stream)
    assert device.caller_event() is None
    assert device.copies_async(np.zeros(1))
    assert repr(device) == "<NullDevice null:2>"


def test_everything_is_done_at_once():
    """Events have passed, wake-ups are posted and callbacks run when they are enqueued."""
    device, flag, ran = NullDevice(0), Flag(), []
    stream = device.new_stream()
    event = device.record(stream)
    assert event.done
    assert stream.done
    assert device.passed(event)
    assert stream.record(event) is event
    device.wake(stream, flag)
    assert flag.posted
    stream.launch_host_func(ran.append, 1)
    assert ran == [1]
    event.synchronize()
    stream.synchronize()


def test_calls_are_remembered_in_order():
    """calls lists what a device would have acted on, with the arguments."""
    device = NullDevice(0)
    stream = device.new_stream()
    event = stream.record()
    stream.wait_event(event)
    dtype = np.dtype("f4")
    buffer = device.alloc((8,), np.dtype("u1"), stream)
    part = device.view(buffer, 4, (1,), (4,), dtype)
    device.copy(part, part, stream)
    with using(device, stream):
        device.calls.append(("inside",))
    device.synchronize()
    device.close()
    assert device.calls == [
        ("new_stream", stream),
        ("record", stream, event),
        ("wait_event", stream, event),
        ("alloc", (8,), np.dtype("u1"), stream),
        ("view", buffer, 4, (1,), (4,), dtype),
        ("copy", part, part, stream),
        ("use", stream),
        ("inside",),
        ("restore",),
        ("synchronize",),
        ("close",),
    ]


def test_arrays_have_addresses_but_no_memory():
    """Arrays know their shape, dtype, strides and section; no two share a byte unless one is a view."""
    device = NullDevice(0)
    stream = device.new_stream()
    a = device.namespace().empty((2, 3), np.dtype("f8"))
    b = device.alloc((10_000,), np.dtype("u1"), stream)
    c = device.alloc((1,), np.dtype("u1"), stream)
    assert (a.strides, a.ndim, a.size, a.itemsize, a.nbytes) == ((24, 8), 2, 6, 8, 48)
    assert device.is_array(a)
    assert not device.is_array(np.zeros(1))
    assert a.address + a.nbytes <= b.address
    assert b.address + b.nbytes <= c.address
    part = device.view(a, 24, (3,), (8,), np.dtype("f8"))
    assert device.section(part).address == device.section(a).address + 24
    assert device.section(part).run_nbytes == 24


def test_memory_counts_arrays_alive():
    """live_nbytes counts the buffers alive, views aside."""
    device = NullDevice(0, memory_nbytes=1000)
    a = device.alloc((100,), np.dtype("u1"), device.new_stream())
    view = device.view(a, 0, (10,), (1,), np.dtype("u1"))
    assert device.live_nbytes() == 100
    assert device.memory_info() == (900, 1000)
    device.calls.clear()
    del a
    assert device.live_nbytes() == 100
    del view
    gc.collect()
    assert device.live_nbytes() == 0
