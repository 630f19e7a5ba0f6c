"""Regions that map storage of their own: what is left of them when their launch is over."""

from weakref import ref

import numpy as np
import pytest

from offload.arrays.sections import HOST, section_of
from offload.data.environment import DataEnvironment
from offload.data.items import MapItem
from offload.data.maptypes import MapType
from offload.data.released import Released
from offload.devices.streams import Lane
from tests.null_device import NullDevice


@pytest.fixture
def environment():
    return DataEnvironment(NullDevice(0))


@pytest.fixture
def lane(environment):
    return Lane(environment.device, environment.device.new_stream(), 0)


def item_of(host, map_type):
    address = host.ctypes.data
    section = section_of(HOST, address, host.shape, host.strides, host.itemsize)
    return MapItem(section, address, host.shape, host.strides, host.itemsize, map_type, host=host, label="x")


@pytest.mark.parametrize("map_type", [MapType.ALLOC, MapType.TO, MapType.FROM, MapType.TOFROM])
def test_only_its_buffers_outlive_the_launch(environment, lane, map_type):
    """When a region has ended its entries are gone, and what is held until the stream gets there is their buffers."""
    items = [item_of(np.zeros(n), map_type) for n in (4, 5)]
    plan = environment.enter_region(items, lane, [])
    gone = [ref(entry) for entry in plan.entries]
    buffers = [ref(entry.buffer) for entry in plan.entries]
    held, point = environment.exit_region(plan, lane, [])
    environment.device.calls.clear()
    del plan
    assert [part.__class__ for part in held] == [Released]
    assert (point is not None) == map_type.copies_out
    assert [entry() for entry in gone] == [None, None]
    assert None not in [buffer() for buffer in buffers]
    del held
    assert [buffer() for buffer in buffers] == [None, None]


def test_the_end_is_for_others_where_somebody_uses_an_entry(environment, lane):
    """A region whose entry another construct has counted too does not end it, and nothing changes."""
    items = [item_of(np.zeros(4), MapType.TOFROM)]
    plan = environment.enter_region(items, lane, [])
    environment.enter(items, lane, [])
    environment.device.calls.clear()
    assert environment.exit_region(plan, lane, []) is None
    assert plan.entries[0].count == 2
    assert not environment.device.calls
