"""Regions that map storage of their own: what is left of them when their launch is over."""

from weakref import ref

import numpy as np
import pytest

from offload.arrays.sections import HOST, section_of
from offload.data.entries import Counter
from offload.data.environment import DataEnvironment
from offload.data.items import MapItem
from offload.data.ledger import PutOffError
from offload.data.maptypes import MapType
from offload.data.released import Released
from offload.devices.streams import Lane
from offload.errors import ExtensionError
from tests.null_device import NullDevice


class Names(list):
    """Names of calls, without what they were given: that would be references to arrays."""

    def append(self, call):
        super().append(call[0])


@pytest.fixture
def environment():
    device = NullDevice(0)
    device.calls = Names()
    return DataEnvironment(device)


@pytest.fixture
def lane(environment):
    return Lane(environment.device, environment.device.new_stream(), 0)


def item_of(host, map_type):
    address = host.ctypes.data
    section = section_of(HOST, address, host.shape, host.strides, host.itemsize)
    return MapItem(section, address, host.shape, host.strides, host.itemsize, map_type, host=host, label="x")


@pytest.mark.parametrize("map_type", [MapType.ALLOC, MapType.TO, MapType.FROM, MapType.TOFROM])
def test_only_what_is_held_outlives_the_launch(environment, lane, map_type):
    """When a region has ended its buffers are held until the stream gets there, and all goes when they are retired."""
    items = [item_of(np.zeros(n), map_type) for n in (4, 5)]
    plan = environment.enter_region(items, lane, [])
    gone = [ref(entry) for entry in plan.entries]
    buffers = [ref(entry.buffer) for entry in plan.entries]
    held, point = environment.exit_region(plan, lane, [])
    environment.device.calls.clear()
    del plan
    assert [part.__class__ for part in held] == [Released]
    assert (point is not None) == map_type.copies_out
    assert None not in [buffer() for buffer in buffers]
    held[0].retire()
    assert environment.device.calls == ["retire", "retire"]
    environment.device.calls.clear()
    del held
    assert [thing() for thing in (*gone, *buffers)] == [None] * 4


def acts(environment):
    """Return what the device was asked to do since the last time."""
    calls, environment.device.calls = environment.device.calls, Names()
    return [call for call in calls if call in ("alloc", "wait_event", "copy")]


def once(environment, lane, items, during=None):
    """Carry out a region; return what it has left, and its entries."""
    plan = environment.enter_region(items, lane, [])
    entries = list(plan.entries)
    if during is not None:
        during(plan)
    held, _ = environment.exit_region(plan, lane, [])
    return held[0], entries


@pytest.mark.parametrize("map_type", [MapType.TO, MapType.TOFROM])
def test_the_next_region_on_the_lane_uses_the_buffers(environment, lane, map_type):
    """A region of the same items has the entries and buffers of the one before, which has nothing left to retire."""
    items = [item_of(np.zeros(n), map_type) for n in (4, 5)]
    copies = ["copy"] * 2 * (1 + map_type.copies_out)
    left, entries = once(environment, lane, items)
    assert acts(environment) == ["alloc", "alloc", *copies]
    for _ in range(3):
        generations = [entry.generation for entry in entries]
        items = [item_of(item.host, map_type) for item in items]  # of another construct, for all that
        before, (left, again) = left, once(environment, lane, items)
        assert again == entries
        assert all(entry.generation > generation for entry, generation in zip(again, generations, strict=True))
        assert acts(environment) == copies
        before.retire()
        assert before.plan is None
        assert not environment.device.calls
        assert not environment.table.live()
    left.retire()
    assert once(environment, lane, items)[1] != entries


def test_arrays_that_somebody_keeps_are_not_used_again(environment, lane):
    """Where a body has kept an array the next region has another buffer, and the one before retires its own."""
    items, kept = [item_of(np.zeros(4), MapType.TOFROM)], []
    left, _ = once(environment, lane, items, lambda plan: kept.append(plan.views[0]))
    acts(environment)
    once(environment, lane, items)
    assert acts(environment) == ["alloc", "copy", "copy"]
    left.retire()
    assert environment.device.calls == ["retire"]


@pytest.mark.parametrize("other", ["lane", "array", "part", "type", "label", "more", "counter"])
def test_another_region_has_buffers_of_its_own(environment, lane, other):
    """On another lane, with other items, or in another counter nothing is used again."""
    host = np.zeros(4)
    items = [item_of(host, MapType.TOFROM)]
    once(environment, lane, items)
    acts(environment)
    if other == "lane":
        lane = Lane(environment.device, environment.device.new_stream(), 1)
    elif other == "array":
        items = [item_of(np.zeros(4), MapType.TOFROM)]
    elif other == "part":
        items = [item_of(host[:3], MapType.TOFROM)]
    elif other == "type":
        items = [item_of(host, MapType.TO)]
    elif other == "label":
        items = [item_of(host, MapType.TOFROM)]
        items[0].label = "y"
    elif other == "more":
        items = [*items, item_of(np.zeros(2), MapType.TO)]
    counter = Counter.STRUCTURED if other == "counter" else Counter.DYNAMIC
    environment.enter_region(items, lane, [], counter)
    assert "alloc" in acts(environment)


def test_what_threads_copy_is_not_used_again(environment, lane):
    """Where copies to the device are staged, and so have arrays for a while, the next region has another buffer."""
    items = [item_of(np.zeros(4), MapType.TO)]
    staged = [object()]
    plan = environment.enter_region(items, lane, staged)
    environment.settle(lane)
    environment.exit_region(plan, lane, [])
    acts(environment)
    once(environment, lane, items)
    assert acts(environment) == ["alloc", "copy"]


def test_what_others_have_used_is_not_used_again(environment, lane):
    """An entry that another construct has copied from goes with the region."""
    items = [item_of(np.zeros(4), MapType.TOFROM)]
    update = [item_of(items[0].host, MapType.FROM)]
    once(environment, lane, items, lambda _: environment.update(update, lane, []))
    acts(environment)
    once(environment, lane, items)
    assert acts(environment) == ["alloc", "copy", "copy"]


def test_what_is_present_meanwhile_is_found(environment, lane):
    """Where the array, or part of it, is present by then, that is used, or refused; what is left is retired as ever."""
    host = np.zeros(4)
    items = [item_of(host, MapType.TOFROM)]
    left, _ = once(environment, lane, items)
    acts(environment)
    outer = environment.enter([item_of(host[1:3], MapType.TO)], lane, [])
    with pytest.raises(ExtensionError):
        environment.enter_region(items, lane, [])
    environment.undo(outer, lane)
    acts(environment)
    once(environment, lane, items)
    assert acts(environment) == ["copy", "copy"]
    assert left.plan is None


def test_a_region_that_is_put_off_leaves_what_is_left(environment, lane):
    """A region that has to follow what is open takes nothing."""
    items = [item_of(np.zeros(4), MapType.TOFROM)]
    left, _ = once(environment, lane, items)
    environment.ledger.open(Lane(environment.device, None, 1), back=[items[0].section])
    with pytest.raises(PutOffError):
        environment.enter_region(items, lane, [])
    assert left.plan is not None
    assert not environment.table.live()


def test_the_end_is_for_others_where_somebody_uses_an_entry(environment, lane):
    """A region whose entry another construct has counted too does not end it, and nothing changes."""
    items = [item_of(np.zeros(4), MapType.TOFROM)]
    plan = environment.enter_region(items, lane, [])
    environment.enter(items, lane, [])
    environment.device.calls.clear()
    assert environment.exit_region(plan, lane, []) is None
    assert plan.entries[0].count == 2
    assert not environment.device.calls
