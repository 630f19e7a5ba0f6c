"""Constructs on a device that does nothing, against the rules of the standard and of the ledger, byte by byte.

The model keeps every access there has ever been. A construct has to follow each one that conflicts with it, by its own
waits or by those of what it waits for, and waits for nothing else.
"""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.arrays.sections import HOST, section_of
from offload.data.environment import DataEnvironment
from offload.data.items import MapItem
from offload.data.ledger import is_open
from offload.data.maptypes import MapType
from offload.devices.streams import Lane
from offload.errors import DeviceLostError, DeviceMemoryError
from tests.data.test_present_rules import (
    ENTRY_TYPES,
    EXIT_TYPES,
    check,
    expected_entry,
    expected_exit,
    holder,
    storage_of,
)
from tests.null_device import NullDevice

ORDER = re.compile(r"(alloc )*(wait_event )*((copy )*record )?(fill )*(copy )*(record )?")
ACTS = {"alloc", "wait_event", "copy", "fill", "record"}


class Device(NullDevice):
    """A device whose call of some number fails."""

    fails_at = -1
    failure: BaseException

    def act(self):
        self.fails_at -= 1
        if self.fails_at == -1:
            raise self.failure

    def alloc(self, *args):
        self.act()
        return super().alloc(*args)

    def wait_event(self, *args):
        self.act()
        super().wait_event(*args)

    def copy(self, *args):
        self.act()
        super().copy(*args)

    def fill(self, *args):
        self.act()
        super().fill(*args)

    def record(self, *args):
        self.act()
        return super().record(*args)


PLACES = [
    *[(0, (8,), (1,))] * 4,
    (0, (4,), (1,)),
    (2, (4,), (1,)),
    (4, (4,), (1,)),
    (1, (3,), (2,)),
    (8, (4,), (1,)),
    *[(16, (3, 2), (8, 1))] * 2,
    (17, (2, 1), (8, 1)),
    (0, (0,), (1,)),
]
"""Address, shape and strides of items: few, so that most meet what an earlier construct has done."""


@st.composite
def constructs(draw):
    """Return a construct, and its items."""
    name = draw(st.sampled_from(["enter", "enter", "exit", "update", "update", "kernel"]))
    types = {"exit": EXIT_TYPES, "update": (MapType.TO, MapType.FROM)}.get(name, ENTRY_TYPES)
    found = []
    for address, shape, strides in draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=2)):
        section, map_type = section_of(HOST, address, shape, strides, 1), draw(st.sampled_from(types))
        host = np.lib.stride_tricks.as_strided(np.zeros(64, np.uint8), shape, strides)
        item = MapItem(section, address, shape, strides, 1, map_type, host=host, always=draw(st.booleans()))
        item.present = draw(st.sampled_from([False] * 9 + [True]))
        item.zeroes = name == "enter" and draw(st.booleans())
        if name == "kernel":
            item.always = False
        found.append(item)
    if name == "update":  # as the construct has it: an item is copied one way, and those to the device come first
        found.sort(key=lambda item: item.map_type is MapType.FROM)
        coming = [storage_of(item) for item in found if item.map_type is MapType.TO]
        found = [i for i in found if i.map_type is MapType.TO or not any(storage_of(i) & bytes_ for bytes_ in coming)]
    return name, found


class World:
    """A data environment, the model of its table, and all accesses."""

    def __init__(self):
        self.device = Device(0)
        self.environment = DataEnvironment(self.device)
        self.environment.ledger.may_query = False  # events of this device are over at once
        self.model = {}
        self.writes = defaultdict(list)  # by the entry's storage, its number, and the byte
        self.uses = defaultdict(list)
        self.backs = defaultdict(list)  # by the byte
        self.number = defaultdict(int)
        self.follows = {}

    def expected(self, name, found):
        """Return the error that is due, or the next model and the bytes that are copied."""
        if name == "exit":
            return expected_exit(self.model, found)
        if name == "update":
            hits = [(item, holder(self.model, item)[0]) for item in found]
            absent = any(item.present and key is None for item, key in hits)
            return expected_exit(self.model, found) if absent else (self.model, None)
        return expected_entry(self.model, found)

    def run(self, name, found):
        """Carry a construct out on a lane of its own; return what the device was asked to do."""
        environment = self.environment
        self.device.calls.clear()
        lane = Lane(self.device, self.device.new_stream(), 0)
        if name == "exit":
            environment.exit(found, lane, [])
        elif name == "update":
            environment.update(found, lane, [])
        else:
            plan = environment.enter(found, lane, [], is_region=name == "kernel")
            if name == "kernel":
                for item in found:
                    item.present = False
                environment.exit(found, lane, [], region=plan, ends_region=True)
        return [call for call in self.device.calls if call[0] in ACTS]

    def at(self, entry, storage):
        """Return the keys of the accesses of bytes of an entry."""
        return [(entry, self.number[entry], byte) for byte in storage]


def closed(world, events):
    """Return events and all that these follow."""
    return set(events).union(*[world.follows[event] for event in events])


def checked(world, name, found, calls):
    """Hold what a construct has done against the model, and enter its accesses there."""
    after, copied = world.expected(name, found)
    assert ORDER.fullmatch("".join(f"{call[0]} " for call in calls))
    waits = [call[2] for call in calls if call[0] == "wait_event"]
    marks = [call[2] for call in calls if call[0] == "record"]
    new = [entry for entry in after if entry not in world.model]
    gone = [entry for entry in world.model if entry not in after]
    assert sum(call[0] == "alloc" for call in calls) == len(new)
    if len(found) == 1:
        assert sum(call[0] == "fill" for call in calls) == len(new) * found[0].zeroes
    hosts = {id(item.host): item for item in found}
    moved = [hosts[id(array)] for call in calls if call[0] == "copy" for array in call[1:3] if id(array) in hosts]
    direct, read, written, back = set(), [], [], []
    hits = [(item, holder(world.model, item)[0], storage_of(item)) for item in found]
    for item, entry, storage in hits:
        if entry is None or not storage:
            continue
        if name == "enter":
            direct.update(e for key in world.at(entry, storage) for e in world.writes[key])
            if item.always and item.map_type.copies_in:
                written += world.at(entry, storage)
        elif name == "exit":
            if entry in gone or (item.always and item.map_type.copies_out):
                direct.update(e for key in world.at(entry, entry) for e in world.writes[key] + world.uses[key])
            if entry in gone:
                back += storage if item.map_type.copies_out else ()
            else:
                read += world.at(entry, storage)
        else:
            (written if item.map_type is MapType.TO else read).extend(world.at(entry, storage))
            direct.update(e for key in world.at(entry, storage) for e in world.writes[key])
    direct.update(event for key in written for event in world.writes[key] + world.uses[key])
    direct.update(event for entry in new for byte in entry for event in world.backs[byte])
    assert set(waits) <= direct <= closed(world, waits)
    if copied is None:
        copied = set().union(*[storage for _, entry, storage in hits if entry is not None])
    assert set().union(*[storage_of(item) for item in moved]) == copied
    for entry in new:
        world.number[entry] += 1
        written += world.at(entry, entry)
    before = closed(world, waits)
    for mark in marks:
        world.follows[mark] = before
        before = before | {mark}
    assert len(marks) == (bool(read and name == "exit") + bool(back) if name == "exit" else bool(read or written))
    for key in written:
        world.writes[key].append(marks[-1])
    for key in read:
        world.uses[key].append(marks[0])
    for byte in back:
        world.backs[byte].append(marks[-1])
    world.model = after
    check(world.environment.table, after)


@given(st.lists(constructs(), min_size=10, max_size=40))
def test_constructs_do_what_they_have_to(sequence):
    """After any constructs: each follows all that conflicts with it, and copies and marks no more than it has to."""
    world = World()
    for name, found in sequence:
        expected = world.expected(name, found)
        if isinstance(expected, type):
            with pytest.raises(expected):
                world.run(name, found)
            assert not [call for call in world.device.calls if call[0] in ACTS]
        elif name == "kernel":
            if any(holder(world.model, item)[0] is None or item.always for item in found):
                continue
            calls = world.run(name, found)
            (mark,) = [call[2] for call in calls if call[0] == "record"] or [None]
            waits = [call[2] for call in calls if call[0] == "wait_event"]
            keys = [key for item in found for key in world.at(holder(world.model, item)[0], storage_of(item))]
            assert {event for key in keys for event in world.writes[key]} <= closed(world, waits)
            if mark is not None:
                world.follows[mark] = closed(world, waits)
                for key in keys:
                    world.uses[key].append(mark)
        else:
            checked(world, name, found, world.run(name, found))


@given(st.lists(constructs(), min_size=5, max_size=10), constructs(), st.integers(0, 5))
def test_a_device_that_fails(sequence, last, fails_at):
    """Whichever call fails, an entry or update has changed nothing, an exit nothing or all; nothing is left open."""
    world = World()
    for name, found in sequence:
        expected = world.expected(name, found)
        if name != "kernel" and not isinstance(expected, type):
            world.run(name, found)
            world.model = expected[0]
    name, found = last
    expected = world.expected(name, found)
    if name == "kernel" or isinstance(expected, type):
        return
    world.device.fails_at = fails_at
    world.device.failure = (DeviceMemoryError if fails_at == 0 else DeviceLostError)("it fails")
    failed = True
    with suppress(DeviceMemoryError, DeviceLostError):
        world.run(name, found)
        failed = False
    world.device.fails_at = -1
    table = world.environment.table
    if not failed:
        check(table, expected[0])
    elif name != "exit":
        check(table, world.model)
    else:
        try:
            check(table, world.model)
        except AssertionError:  # then all of it
            check(table, expected[0])
    assert not any(is_open(entry) for entry in table.entries())
    for section in {item.section for item in found}:
        world.environment.ledger.acquire(fresh=[section])
