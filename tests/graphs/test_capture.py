"""Captured task graphs without a GPU: streams and waits, what is noted of the present table, when there is a graph."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import types
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offload as omp
from offload import alloc, in_, inout, mutexinoutset, out, to, tofrom
from offload.arrays.items import address_of
from offload.arrays.sections import HOST, section_of
from offload.data.items import MapItem
from offload.data.ledger import PutOffError
from offload.data.maptypes import MapType
from offload.data.present_table import PresentTable
from offload.errors import DeviceError, DeviceLostError
from offload.graphs import capture
from offload.graphs.branches import branches
from offload.graphs.rehearsal import NotCapturableError, ShadowTable
from offload.tasks.goals import Until
from offload.tasks.waiting import Wait
from tests.null_device import NullDevice, NullEvent
from tests.patience import until_gone

# -- streams and waits -----------------------------------------------------------------------------

orders = st.integers(1, 25).flatmap(
    lambda n: st.tuples(*(st.sets(st.integers(0, at - 1), max_size=4) if at else st.just(set()) for at in range(n)))
)


def closure(before):
    """Return for each task all that is before it."""
    found = []
    for direct in before:
        found.append(set(direct).union(*(found[at] for at in direct)))
    return found


def imposed(steps, without=None):
    """Return what streams and waits put directly before each task, without one wait."""
    tails, before = {}, []
    for at, step in enumerate(steps):
        waits = {other for other in step.waits if (at, other) != without}
        if step.stream in tails:
            waits.add(tails[step.stream])
        tails[step.stream] = at
        before.append(waits)
    return before


@given(orders, st.integers(1, 6))
def test_streams_and_waits_order_every_dependence(before, limit):
    """Every dependence holds, on no more streams than allowed, and no wait can be left out."""
    steps = branches(before, limit)
    assert {step.stream for step in steps} == set(range(1 + max(step.stream for step in steps)))
    assert max(step.stream for step in steps) < limit
    ordered = closure(imposed(steps))
    assert all(direct <= found for direct, found in zip(before, ordered, strict=True))
    for at, step in enumerate(steps):
        for other in step.waits:
            assert other in before[at]
            less = closure(imposed(steps, without=(at, other)))
            assert not all(direct <= found for direct, found in zip(before, less, strict=True))


@given(orders)
def test_nothing_else_is_ordered(before):
    """With streams enough, two tasks are ordered only if they depend on each other."""
    assert closure(imposed(branches(before, len(before)))) == closure(before)


def test_a_chain_stays_on_a_stream():
    """Chains have a stream each and no waits; what joins them waits for each other one once."""
    before = [[]] * 3 + [[at] for at in range(30)] + [[30, 31, 32], [33], [33, 30], [33]]
    steps = branches(before, 8)
    assert [step.stream for step in steps[:33]] == [0, 1, 2] * 11
    assert not any(step.waits for step in steps[:33])
    assert [len(step.waits) for step in steps[33:]] == [2, 0, 1, 1]
    assert sorted(step.stream for step in steps[34:]) == [0, 1, 2]


# -- what is noted of the present table --------------------------------------------------------------


def x(first, end, map_type=MapType.TOFROM, **more):
    """Return ``x[first:end]`` of a vector of 8-byte elements at address 1000."""
    address = 1000 + 8 * first
    section = section_of(HOST, address, (end - first,), (8,), 8)
    return MapItem(section, address, (end - first,), (8,), 8, map_type, label=f"x[{first}:{end}]", **more)


def place_of(entry):
    return section_of("device", entry.buffer, (entry.nbytes,), (1,), 1)


def present(*items, address=1 << 20):
    """Return a present table that has these items, at addresses from a first one."""
    table = PresentTable(0)
    for number, item in enumerate(items):
        table.commit(table.enter([item]), [address + 4096 * number])
    return table


def enter(table, *items):
    plan = table.enter(items)
    table.commit(plan, [0] * len(plan.created))


def leave(table, *items):
    table.commit(table.exit(items))


def test_shadow_notes_what_it_found():
    """Storage that was there is used, and written where something is copied to it; what is mapped has to be absent."""
    table = present(x(0, 10), x(20, 30), x(30, 40))
    shadow = ShadowTable(table, place_of)
    enter(shadow, x(2, 4), x(50, 60))
    leave(shadow, x(2, 4), x(50, 60))
    assert shadow.update([x(22, 24, MapType.TO), x(70, 80, MapType.FROM)]) != []
    enter(shadow, x(30, 40, always=True))
    leave(shadow, x(30, 40, always=True))
    noted = shadow.noted()
    found = [(use.section, use.writes, use.follows_users) for use in noted.uses]
    assert found == [(x(0, 10).section, False, False), (x(20, 30).section, True, True), (x(30, 40).section, True, True)]
    assert noted.absent == [x(50, 60).section, x(70, 80).section]
    assert noted.holds(table, place_of)
    assert [entry.count for entry in table.entries()] == [1, 1, 1]


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (lambda table: enter(table, x(0, 10)), True),
        (lambda table: enter(table, x(100, 110)), True),
        (lambda table: enter(table, x(55, 65)), False),
        (lambda table: leave(table, x(0, 10)), False),
        (lambda table: (leave(table, x(0, 10)), table.commit(table.enter([x(0, 10)]), [1 << 20])), True),
        (lambda table: (leave(table, x(0, 10)), table.commit(table.enter([x(0, 10)]), [1 << 21])), False),
        (lambda table: (leave(table, x(0, 10)), table.commit(table.enter([x(0, 12)]), [1 << 20])), False),
    ],
)
def test_noted_holds_while_every_look_up_is_the_same(change, holds):
    """Other references and other storage do not matter; storage at the same address is as good as before."""
    table = present(x(0, 10))
    shadow = ShadowTable(table, place_of)
    enter(shadow, x(0, 10), x(50, 60))
    leave(shadow, x(0, 10), x(50, 60))
    noted = shadow.noted()
    assert noted.holds(table, place_of)
    change(table)
    assert noted.holds(table, place_of) is holds
    assert noted.holds(table, place_of) is holds


@pytest.mark.parametrize(
    "region",
    [
        lambda shadow: leave(shadow, x(0, 10)),
        lambda shadow: leave(shadow, x(0, 10, MapType.DELETE)),
        lambda shadow: enter(shadow, x(0, 10)),
        lambda shadow: enter(shadow, x(20, 30)),
        lambda shadow: shadow.update([x(5, 15, MapType.TO)]),
    ],
)
def test_shadow_refuses_what_differs_from_time_to_time(region):
    """A region that ends an outer mapping, leaves one, or meets half of one, cannot be repeated as it was."""
    shadow = ShadowTable(present(x(0, 10)), place_of)
    with pytest.raises(NotCapturableError):
        region(shadow)
        shadow.noted()


# -- a device with graphs ----------------------------------------------------------------------------


class Graph:
    """A graph of `GraphDevice`: the calls that were captured."""

    nbytes = 64

    def __init__(self, device, calls):
        self.device = device
        self.calls = calls

    def launch(self, stream):
        self.device.calls.append(("launch", self, stream))


class GraphCapture:
    def __init__(self, device):
        self.device = device
        self.streams = []

    def begin(self, devices, reached):
        assert not self.device.capturing
        self.reached = reached
        self.device.capturing.append(self)
        self.first = len(self.device.calls)
        self.streams = [device.new_stream() for device in devices]
        return self.streams

    def record(self, stream):
        assert stream in self.streams
        return self.device.record(stream)

    def alloc(self, shape, dtype, stream):
        return self.device.alloc(shape, dtype, stream)

    def end(self):
        if self.device.refuses:
            raise DeviceError(self.device.refuses)
        self.device.capturing.remove(self)
        calls = self.device.calls[self.first :]
        del self.device.calls[self.first :]
        return Graph(self.device, calls)

    def was_disturbed(self, error):
        return "disturbed" in str(error)

    def cancel(self):
        if self in self.device.capturing:
            self.device.capturing.remove(self)
            del self.device.calls[self.first :]


class HeldEvent(NullEvent):
    """An event that is done when its device is held no more."""

    def __init__(self, device):
        self.device = device

    @property
    def done(self):
        return not self.device.is_held


class GraphDevice(NullDevice):
    """A null device that captures what it is asked to do; copies of ``pageable`` arrays are not asynchronous."""

    def __init__(self, number):
        super().__init__(number)
        self.capturing = []
        self.refuses = ""
        self.pageable = []
        self.is_held = False

    def record(self, stream):
        event = HeldEvent(self) if self.is_held and not self.capturing else NullEvent()
        self.calls.append(("record", stream, event))
        return event

    def graph_capture(self):
        return GraphCapture(self)

    def copies_async(self, host):
        return not any(host is array for array in self.pageable)

    @property
    def launches(self):
        return [call for call in self.calls if call[0] == "launch"]


@pytest.fixture
def device(monkeypatch):
    """The one device of a current runtime, at whose end nothing may be left and nothing be captured."""
    device = GraphDevice(0)
    monkeypatch.setattr("offload.runtime.runtime.open_devices", lambda *_, **__: [device])
    with omp.Runtime("null", num_threads=1, check=True):
        yield device
        device.is_held = False  # of a test that has failed
    assert not device.capturing
    device.calls.clear()
    gc.collect()
    assert device.live_nbytes() == 0


@omp.target(nowait=True, depend=[inout("y")])
def kernel(what, y):
    stream = omp.current_stream()
    stream.device.calls.append(("kernel", what, y.address, stream))


def kernels(calls):
    return [call[1] for call in calls if call[0] == "kernel"]


@pytest.fixture
def y():
    return np.zeros(10)


def test_first_replay_captures_and_later_ones_launch(device, y):
    """The body of a region runs once, target bodies twice, and then each replay is one launch, all of one graph."""

    @omp.taskgraph(name="twice")
    def region(y):
        kernel("a", y)
        kernel("b", y)

    with omp.target_data(map=[tofrom(y)]):
        region(y)
        assert kernels(device.calls) == ["a", "b"]
        assert device.launches == []
        for n in range(1, 4):
            region(y)
            assert len(device.launches) == n
        assert kernels(device.calls) == ["a", "b"]
        graphs = {graph for _, graph, _ in device.launches}
        assert [kernels(graph.calls) for graph in graphs] == [["a", "b"]]
        (record,) = region.records
        assert record == type(record)(None, 2, True, "", 1, 64)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_replay_changes_what_its_bodies_may_write(device, y, is_written):
    """Each launch of a graph changes the versions of what its bodies are given, but for what nobody writes to."""
    x, z = np.zeros(10), np.zeros(10)
    x.flags.writeable = is_written

    @omp.taskgraph
    def region(x, y):
        omp.target(map=[to("x"), tofrom("y")], nowait=True)(lambda x, y: None)(x, y)

    with omp.target_data(map=[to(x, z), tofrom(y)]):
        table = omp.current_runtime().places[0].table
        entries = [table.at(section_of(HOST, address_of(array), (10,), (8,), 8)) for array in (x, y, z)]
        region(x, y)
        for n in range(1, 4):
            before = [entry.version for entry in entries]
            region(x, y)
            assert len(device.launches) == n
            assert [entry.version != old for entry, old in zip(entries, before, strict=True)] == [
                is_written,
                True,
                False,
            ]


def test_a_replay_changes_what_it_copies_to(device, y):
    """Each launch of a graph with an update to the device changes the version of what is copied to."""

    @omp.taskgraph
    def region(y):
        omp.target_update(to=[y], nowait=True)

    with omp.target_data(map=[tofrom(y)]):
        (entry,) = omp.current_runtime().places[0].table.entries()
        region(y)
        for n in range(1, 4):
            before = entry.version
            region(y)
            assert len(device.launches) == n
            assert entry.version not in (before, None)


def test_branches_wait_for_each_other_by_events_of_the_capture(device, y):
    """Independent tasks are on streams of their own, and dependences between them are waits inside of the graph."""
    others = [np.zeros(3) for _ in range(3)]

    @omp.taskgraph
    def region(y, *others):
        for other in others:
            kernel("branch", other)
        kernel.options(depend=[in_(*others), out(y)])("join", y)
        omp.taskwait()

    with omp.target_data(map=[tofrom(y), *map(tofrom, others)]):
        region(y, *others)
        region(y, *others)
        (_, graph, _) = device.launches[-1]
        streams = [call[3] for call in graph.calls if call[0] == "kernel"]
        assert len(set(streams)) == 3
        join = [call[0] for call in graph.calls].index("kernel", 0)
        recorded = {call[2] for call in graph.calls if call[0] == "record"}
        waits = [call for call in graph.calls if call[0] == "wait_event" and call[1] is streams[3]]
        assert len(waits) == 2
        assert {event for _, _, event in waits} <= recorded
        assert join >= 0


def test_exclusion_becomes_an_order(device, y):
    """Tasks of a mutexinoutset are on one branch of a graph."""

    @omp.taskgraph
    def region(y):
        for what in "abc":
            kernel.options(depend=[mutexinoutset(y)])(what, y)

    with omp.target_data(map=[tofrom(y)]):
        region(y)
        region(y)
        (_, graph, _) = device.launches[-1]
        assert len({call[3] for call in graph.calls if call[0] == "kernel"}) == 1


def test_captured_again_where_storage_moved(device, y):
    """A region is captured again when storage that it uses is elsewhere; else nothing is asked."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    addresses = []
    for _ in range(3):
        with omp.target_data(map=[tofrom(y)]):
            for _ in range(3):
                region(y)
            addresses.append(omp.get_mapped_ptr(y).address)
    found = [call[2] for _, graph, _ in device.launches for call in graph.calls if call[0] == "kernel"]
    assert found == [addresses[0]] * 2 + [addresses[1]] * 3 + [addresses[2]] * 3
    assert region.records[0].n_captured == 3


def replays_in_regions(region, y, *numbers):
    """Replay so often in one data region each, in each of which y is elsewhere; return the captures until then."""
    for number in numbers:
        with omp.target_data(map=[tofrom(y)]):
            for _ in range(number):
                region(y)
    return region.records[0].n_captured


@pytest.mark.parametrize("number", [1, 2, 15])
def test_tasks_go_to_streams_while_what_a_region_uses_moves(device, y, number):
    """Where graphs serve a few replays each, the region is captured three times and then left to streams."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    assert replays_in_regions(region, y, *[number] * 8) == 3
    (record,) = region.records
    assert not record.is_captured
    assert "mapped elsewhere" in record.why_not
    n_launched = 3 * number - (number > 1)  # the first one records, where the next ones find y in the same place
    assert len(device.launches) == n_launched
    assert kernels(device.calls) == ["a"] * (8 * number - n_launched)


def test_a_graph_comes_back_when_its_maps_are_stable(device, y):
    """A region that was left to streams is a graph again once what it uses has stayed for 16 replays, whatever else."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    replays_in_regions(region, y, *[1] * 8)
    other = np.zeros(3)
    with omp.target_data(map=[tofrom(y)]):
        device.calls.clear()
        for _ in range(16):
            with omp.target_data(map=[to(other)]):  # which the region does not use
                region(y)
        assert kernels(device.calls) == ["a"] * 16
        assert device.launches == []
        for number in range(1, 21):
            region(y)
            assert len(device.launches) == number
        (record,) = region.records
        assert (record.is_captured, record.why_not, record.n_captured) == (True, "", 4)
    with omp.target_data(map=[tofrom(y)]):
        region(y)  # the last one was worth it
        assert region.records[0].n_captured == 5


def test_a_graph_that_came_back_in_vain_waits_again(device, y):
    """Whatever the lengths of data regions, no more than one replay in 17 captures after the first three captures."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    numbers = [*range(1, 24), *[17] * 10]
    n_captured = replays_in_regions(region, y, *numbers)
    assert 4 <= n_captured <= 3 + sum(numbers) // 17
    assert len(device.launches) >= n_captured


def test_storage_that_comes_and_goes_counts_as_moved(device, y):
    """A region that finds its storage present at every other replay is left to streams as well."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    for _ in range(20):
        replays_in_regions(region, y, 1)
        region(y)
    assert region.records[0].n_captured == 3
    assert "mapped elsewhere" in region.records[0].why_not


def test_what_is_mapped_inside_is_the_graphs(device, y):
    """Maps inside of the region are copies of the graph, its storage is not in the present table."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    for _ in range(3):
        region(y)
        assert not omp.target_is_present(y)
    (_, graph, _) = device.launches[-1]
    assert [call[0] for call in graph.calls if call[0] in {"copy", "kernel"}] == ["copy", "kernel", "copy"]
    assert region.records[0].n_captured == 1
    with omp.target_data(map=[tofrom(y)]):
        region(y)  # y is present now
    assert region.records[0].n_captured == 2


def test_a_chain_has_the_memory_of_one_of_its_tasks(device, y, monkeypatch):
    """What a task of a chain has unmapped is the graph's again before the next one maps."""

    class Names(list):
        def append(self, call):
            super().append(call[:1])  # what it was given would keep arrays

    found, allocate = [], GraphCapture.alloc

    def alloc(self, *args):
        found.append(device.live_nbytes())
        return allocate(self, *args)

    def chain(y):
        for name in "abc":
            kernel(name, y)

    monkeypatch.setattr(GraphCapture, "alloc", alloc)
    device.calls = Names()
    region = omp.taskgraph(chain)
    for _ in range(3):
        region(y)
    assert found == [0, 0, 0]


def test_follows_and_is_followed_in_the_data_environment(device, y):
    """A launch waits for the last write of what it uses, and what ends the mapping afterwards waits for it."""
    region = omp.taskgraph(nogroup=True)(lambda y: kernel("a", y))
    omp.target_enter_data(map=[to(y)])
    for _ in range(2):
        region(y)
        omp.taskwait()
    device.is_held = True  # what is over need not be waited for
    omp.target_update(to=[y], nowait=True)
    region(y)
    (_, _, stream) = device.launches[-1]
    at = device.calls.index(device.launches[-1])
    copied = [call[3] for call in device.calls[:at] if call[0] == "copy"][-1]
    assert copied is stream or any(call[0] == "wait_event" and call[1] is stream for call in device.calls[:at])
    n_before = len(device.calls)
    omp.target_exit_data(map=[omp.from_(y)], nowait=True)
    after = device.calls[n_before:]
    back = next(call[3] for call in after if call[0] == "copy")
    assert back is stream or any(call[0] == "wait_event" and call[1] is back for call in after)
    device.is_held = False
    omp.taskwait()


def followed(calls, stream):
    """Return the streams whose events a stream waits for."""
    awaited = {call[2] for call in calls if call[0] == "wait_event" and call[1] is stream}
    return {call[1] for call in calls if call[0] == "record" and call[2] in awaited}


def streams_of(calls, name):
    """Return the stream of each call of a name: the last thing that a copy, a launch or a kernel tells."""
    return [call[-1] for call in calls if call[0] == name]


def test_follows_copies_back_to_what_it_maps(device, y):
    """A launch waits for copies back to host memory that its graph reads, and nothing else of those."""
    other = np.zeros(10)
    region = omp.taskgraph(nogroup=True)(lambda y: kernel("a", y))
    for _ in range(2):
        region(y)
        omp.taskwait()
    device.is_held = True
    kernel("b", other)
    back_other = streams_of(device.calls, "copy")[-1]
    kernel("b", y)
    back = streams_of(device.calls, "copy")[-1]
    region(y)
    (stream,) = streams_of(device.calls[device.calls.index(device.launches[-1]) :], "launch")
    assert len({back, back_other, stream}) == 3
    since = device.calls[device.calls.index(device.launches[0]) :]
    assert followed(since, stream) == {back}
    device.is_held = False
    omp.taskwait()


@pytest.mark.parametrize(("map_type", "follows"), [(tofrom, True), (to, False)])
def test_its_copies_back_are_followed(device, y, map_type, follows):
    """What maps host memory after a launch waits for the graph to copy it back, and only if it does."""

    @omp.target(nowait=True, map=[map_type("y")])
    def body(y):
        stream = omp.current_stream()
        stream.device.calls.append(("kernel", "a", y.address, stream))

    region = omp.taskgraph(nogroup=True)(lambda y: body(y))  # noqa: PLW0108  # a region with a task
    for _ in range(2):
        region(y)
        omp.taskwait()
    device.is_held = True
    region(y)
    (stream,) = streams_of([device.launches[-1]], "launch")
    n_before = len(device.calls)
    kernel("b", y)
    mine = streams_of(device.calls[n_before:], "kernel")[0]
    assert mine is not stream
    assert (stream in followed(device.calls, mine)) is follows
    region(y)  # which the copy back of the task is before
    (last,) = streams_of([device.launches[-1]], "launch")
    assert mine in followed(device.calls[n_before:], last)
    device.is_held = False
    omp.taskwait()
    n_before = len(device.calls)
    region(y)
    assert not [call for call in device.calls[n_before:] if call[0] == "wait_event"]
    omp.taskwait()


# -- which record ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [float, np.float64, np.float32, complex, lambda value: (value,)])
def test_signs_of_zero_and_nans(device, make):
    """0.0 and -0.0 have a record each, which they find again, and NaN finds its own."""
    region = omp.taskgraph(lambda value, y: kernel(value, y))  # noqa: PLW0108  # a region with a task
    y = np.zeros(3)
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            for value in (0.0, -0.0, float("nan"), 1.5):
                region(make(value), y)
                region(make(value), y)
    assert len(region.records) == 4
    assert all(record.n_captured == 1 for record in region.records)


# -- why not -----------------------------------------------------------------------------------------


def with_event(y):
    done = omp.Event()
    omp.task(detach=done)(done.fulfill)()


def fails(y):
    @omp.target(nowait=True)
    def body(y):
        if omp.current_stream().device.capturing:
            raise ZeroDivisionError("under capture")

    body(y)


REASONS = [
    (lambda y: omp.task(lambda: None)(), "host"),
    (omp.target(if_=False)(lambda y: None), "host"),
    (with_event, "event"),
    (lambda y: omp.target_enter_data(map=[alloc(y)], nowait=True), "leaves"),
    (fails, "ZeroDivisionError under capture: under capture"),
]


@pytest.mark.parametrize(("extra", "why"), REASONS)
def test_says_why_not(device, y, extra, why):
    """What cannot be captured is replayed task by task, and the record says why."""

    @omp.taskgraph
    def region(y):
        kernel("a", y)
        extra(y)

    omp.target_enter_data(map=[alloc(y)])
    for _ in range(4):
        region(y)
    omp.target_exit_data(map=[omp.delete(y)])
    assert [name for name in kernels(device.calls) if name == "a"][:4] == ["a"] * 4
    assert device.launches == []
    (record,) = region.records
    assert why in record.why_not
    assert not record.is_captured


@pytest.fixture
def two_devices(monkeypatch):
    """The two devices of a current runtime."""
    devices = [GraphDevice(0), GraphDevice(1)]
    monkeypatch.setattr("offload.runtime.runtime.open_devices", lambda *_, **__: devices)
    with omp.Runtime("null:2", num_threads=1, check=True):
        yield devices


def test_replicas_are_not_captured(two_devices, y):
    """What has replicas on several devices goes to streams, and the record says why; so does what makes them."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    entering = omp.taskgraph(lambda y: omp.target_update(to=[y], devices="all"))
    with omp.target_data(map=[tofrom(y)], devices="all"):
        for _ in range(3):
            region(y)
            entering(y)
    assert kernels(two_devices[0].calls) == ["a"] * 3
    assert "has replicas on several devices, 0, 1" in region.records[0].why_not
    assert "is on several devices, 0, 1" in entering.records[0].why_not


def test_a_graph_of_what_gets_replicas_is_not_launched(two_devices, y):
    """A region that was captured goes to streams once what it uses is in a replica set."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    omp.target_enter_data([to(y)])
    for _ in range(3):
        region(y)
    assert region.records[0].is_captured
    omp.target_exit_data([omp.delete(y)])
    with omp.target_data(map=[tofrom(y)], devices="all"):
        region(y)
        assert not region.records[0].is_captured
        assert "has replicas" in region.records[0].why_not


def test_a_method_is_not_captured(device, y):
    """A region whose body is a bound method goes to streams, and the record says why."""
    model = types.SimpleNamespace(calls=device.calls)

    def step(self, y):
        stream = omp.current_stream()
        stream.device.calls.append(("kernel", "step", y.address, stream))

    region = omp.taskgraph(omp.target(nowait=True)(types.MethodType(step, model)))
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
    assert kernels(device.calls) == ["step"] * 3
    assert "SimpleNamespace" in region.records[0].why_not


def test_nothing_on_a_device(device):
    """A region without device work has no graph, and one without tasks neither."""
    region = omp.taskgraph(lambda: None)
    for _ in range(2):
        region()
    assert "no device work" in region.records[0].why_not


def test_pageable_memory(device, y):
    """Copies of pageable memory are not captured; storage that is present is not copied."""
    device.pageable = [y]
    region = omp.taskgraph(lambda y: kernel("a", y))
    for _ in range(3):
        region(y)
    assert "pageable" in region.records[0].why_not
    region = omp.taskgraph(lambda y: kernel("a", y))
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
        assert region.records[0].is_captured


def test_a_device_without_graphs(y):
    """On a simulated device tasks go to streams, and the record says why."""

    @omp.target(nowait=True)
    def add(y):
        y += 1

    region = omp.taskgraph(add)
    with omp.Runtime("sim:1", check=True):
        for _ in range(3):
            region(y)
        assert "does not support graphs" in region.records[0].why_not
    assert (y == 3).all()


def test_a_device_that_makes_no_graph(device, y):
    """What the device says at the end of the capture is the reason."""
    device.refuses = "something was not permitted"
    region = omp.taskgraph(lambda y: kernel("a", y))
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
    assert "something was not permitted" in region.records[0].why_not
    assert not device.capturing


def test_a_disturbed_capture_is_tried_again(device, y):
    """A capture that another thread has ended is tried again at the next replay, a few times."""
    device.refuses = "disturbed"
    regions = [omp.taskgraph(lambda y: kernel("a", y)) for _ in range(2)]
    with omp.target_data(map=[tofrom(y)]):
        for region, n_disturbed in zip(regions, (2, 4), strict=True):
            device.refuses = "disturbed"
            for n in range(1, 6):
                if n == n_disturbed + 2:
                    device.refuses = ""
                region(y)
        assert [region.records[0].is_captured for region in regions] == [True, False]
        assert "disturbed" in regions[1].records[0].why_not
    assert kernels(device.calls) == ["a"] * (3 + 5)


def test_an_interrupt_ends_the_capture(device, y):
    """Ctrl-C in a body under capture is raised, and the next replay captures."""
    interrupts = False

    @omp.target(nowait=True)
    def body(y):
        if interrupts:
            raise KeyboardInterrupt

    region = omp.taskgraph(body)
    with omp.target_data(map=[tofrom(y)]):
        region(y)
        interrupts = True
        with pytest.raises(KeyboardInterrupt):
            region(y)
        assert not device.capturing
        interrupts = False
        region(y)
        assert region.records[0].is_captured


def test_threads_capture_once(device, y):
    """Of threads that replay first at the same time one captures, and all launch."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    with omp.target_data(map=[tofrom(y)]):
        region(y)
        barrier = threading.Barrier(4)

        def replay():
            barrier.wait()
            for _ in range(25):
                region(y)

        threads = [threading.Thread(target=replay) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(device.launches) == 100
        assert region.records[0].n_captured == 1


def test_a_mapping_ended_during_the_launch_is_an_error(device, y, monkeypatch):
    """A thread that ends a mapping between the look and the launch is told of."""
    region = omp.taskgraph(lambda y: kernel("a", y))
    omp.target_enter_data(map=[to(y)])
    region(y)
    region(y)
    monkeypatch.setattr("offload.graphs.work.GraphWork.is_current", lambda self: True)
    omp.target_exit_data(map=[omp.delete(y)])
    with pytest.raises(ExceptionGroup) as caught:
        region(y)
    assert caught.group_contains(omp.UsageError)


def test_a_graph_keeps_no_mapping(device, y):
    """What was known of an entry at a replay goes with its mapping, not at the next replay."""
    region = omp.taskgraph(lambda: kernel("a", y))
    omp.target_enter_data(map=[to(y)])
    for _ in range(3):
        region()
    (entry,) = omp.current_runtime().places[0].table.entries()
    gone = weakref.ref(entry)
    del entry
    omp.target_exit_data(map=[omp.delete(y)])
    until_gone(gone)


# -- who replays sees the end by itself --------------------------------------------------------------


@pytest.fixture
def region(device, y):
    """A captured region; from here on threads that wait look for completions, as they do with CUDA."""
    region = omp.taskgraph(lambda: kernel("a", y))
    with omp.target_data(map=[tofrom(y)]):
        region()
        region()
        assert region.records[0].is_captured
        runtime = omp.current_runtime()
        runtime.engine.look = runtime.gate.look
        device.calls.clear()
        device.is_held = True
        yield region
        device.is_held = False
        omp.taskwait()


def at_look(device, monkeypatch, number, act):
    """Have the main thread act at its look number so-and-so whether an event has passed."""
    looks = []

    def passed(event):
        if threading.current_thread() is threading.main_thread():
            looks.append(event)
            if len(looks) == number:
                act()
        return event.done

    engine = omp.current_runtime().engine
    monkeypatch.setattr(engine, "attends_s", 60.0)  # a busy machine may not get so far in its moment
    monkeypatch.setattr(device, "passed", passed)


def release(device):
    device.is_held = False


def test_a_replay_that_ends_soon_is_not_waited_for(device, region, monkeypatch):
    """The call looks until the graph has ended, and returns: nothing is listed, and no callback asked for."""
    waits = []
    monkeypatch.setattr(Wait, "_loop", waits.append)
    at_look(device, monkeypatch, 5, lambda: release(device))
    region()
    assert not device.is_held
    assert not waits
    assert "wake" not in [call[0] for call in device.calls]


def test_a_replay_that_takes_long_is_waited_for(device, region):
    """What has not ended in a moment is waited for as anything else."""
    timer = threading.Timer(0.05, release, [device])
    timer.start()
    region()
    assert not device.is_held
    timer.join()


def test_who_looks_runs_what_is_ready(device, region):
    """While no worker is free, the thread that replays runs a host task on which the end of its graph depends."""
    busy, ends = threading.Event(), threading.Event()
    omp.task(lambda: (busy.set(), ends.wait()))()
    busy.wait()
    omp.task(lambda: (release(device), ends.set()))()
    region()
    assert ends.is_set()


def test_an_interrupt_ends_the_look(device, region, monkeypatch):
    """Ctrl-C is raised though the graph goes on, which the next wait is for; the handler is Python's again."""
    at_look(device, monkeypatch, 3, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        region()
    assert device.is_held
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    release(device)
    omp.taskwait()
    region()


def test_a_device_lost_meanwhile_fails_the_replay(device, region, monkeypatch):
    """An event that raises fails the task, which the call raises."""

    def fail():
        monkeypatch.setattr(device, "passed", lose)

    def lose(event):
        raise DeviceLostError("gone")

    at_look(device, monkeypatch, 3, fail)
    with pytest.raises(ExceptionGroup) as caught:
        region()
    assert caught.group_contains(DeviceLostError)
    monkeypatch.undo()


def test_an_interrupt_swallows_no_failure(device, region, monkeypatch):
    """Where Ctrl-C and a failure come together, the call raises the interrupt and the next wait the failure."""

    def lose(event):
        raise DeviceLostError("gone")

    def strike():
        monkeypatch.setattr(device, "passed", lose)
        signal.raise_signal(signal.SIGINT)
        lose(None)

    at_look(device, monkeypatch, 3, strike)
    with pytest.raises(KeyboardInterrupt):
        region()
    with pytest.raises(ExceptionGroup) as caught:
        omp.taskwait()
    assert caught.group_contains(DeviceLostError)
    monkeypatch.undo()


def test_what_was_put_off_is_waited_for_without_a_look(device, region, monkeypatch):
    """Who replays may have to launch the graph itself, so that it does not look for an end before."""
    begin, attend, attended, tries = capture.GraphWork.begin, Wait._attend, [], []

    def put_off_once(self, *args):
        tries.append(args)
        if len(tries) == 1:
            raise PutOffError
        begin(self, *args)

    monkeypatch.setattr(capture.GraphWork, "begin", put_off_once)

    def attend_and_note(self):
        attended.append(len(tries))
        return attend(self)

    monkeypatch.setattr(Wait, "_attend", attend_and_note)
    release(device)
    region()
    assert len(tries) == 2
    assert set(attended) <= {2}


def test_what_cuts_a_launch_short_leaves_nothing_in_flight(device, region, monkeypatch):
    """An exception of a signal handler is raised once the graph that has been launched is over."""
    gate = omp.current_runtime().gate
    add = gate.add

    def cut(*args, **kwargs):
        monkeypatch.undo()
        add(*args, **kwargs)
        raise TimeoutError("a handler's")

    monkeypatch.setattr(gate, "add", cut)
    timer = threading.Timer(0.05, release, [device])
    timer.start()
    with pytest.raises(TimeoutError):
        region()
    assert not device.is_held
    timer.join()


def test_a_replay_with_nogroup_does_not_look(device, region):
    """The call returns while the graph is held."""
    region.options(nogroup=True)()
    assert device.is_held


def test_an_interrupt_before_a_replay_keeps_it_from_beginning(device, region, monkeypatch):
    """Ctrl-C while a replay lets others get on is raised at once, and nothing is launched after it."""
    before = len(device.launches)
    monkeypatch.setattr("offload.graphs.replay.Replay._throttle", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        region.options(nogroup=True)()
    assert len(device.launches) == before


def test_who_looks_leaves_the_gil_to_others(device):
    """Another thread gets on while one looks, though Python itself would make none give way for a minute."""
    runtime = omp.current_runtime()
    runtime.engine.look = lambda: None
    ended = []
    other = threading.Thread(target=lambda: ended.append(sum(range(1000))))
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        other.start()
        runtime.engine.wait(runtime.scope(), Until("the test", lambda: bool(ended)))
    finally:
        sys.setswitchinterval(interval_s)
    other.join()
    assert ended == [499_500]


def test_a_default_device_set_in_a_group_outlasts_it(device):
    """Only the group ends at the end of the group."""
    with omp.taskgroup():
        omp.set_default_device(omp.get_initial_device())
        with omp.taskgroup():
            pass
    assert omp.get_default_device() == omp.get_initial_device()
    with omp.taskgroup():
        omp.set_default_device(0)
    assert omp.get_default_device() == 0
