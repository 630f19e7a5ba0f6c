"""Memory that a mapping leaves on its lane: who uses it again, and who does not."""

import gc
import threading
import warnings
from weakref import ref

import numpy as np
import pytest

import offload as omp
from offload.arrays.sections import HOST, section_of
from offload.data.environment import DataEnvironment
from offload.data.items import MapItem
from offload.data.ledger import PutOffError, is_open
from offload.data.maptypes import MapType
from offload.data.release import Released
from offload.devices.sim.device import SimEvent
from offload.devices.streams import Lane
from offload.errors import DeviceLostError, DeviceMemoryError, DirectiveWarning, ExtensionError, RegionClosedError
from offload.runtime import observing
from tests.conftest import checked
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


def acts(environment):
    """Return what the device was asked to do since the last time."""
    calls, environment.device.calls = environment.device.calls, Names()
    return [call for call in calls if call in ("alloc", "wait_event", "copy")]


def once(environment, lane, items, during=None):
    """Carry out a region; return what it has left, and its buffers' addresses."""
    plan = environment.enter(items, lane, [], is_region=True)
    addresses = [entry.buffer.address for entry in plan.entries]
    if during is not None:
        during(plan)
    held, _ = environment.exit(items, lane, [], ends_region=True)
    return held[0], addresses


@pytest.mark.parametrize("map_type", [MapType.ALLOC, MapType.TO, MapType.FROM, MapType.TOFROM])
def test_only_what_is_held_outlives_the_launch(environment, lane, map_type):
    """When a region has ended its buffers are held until the stream gets there, and all goes when they are retired."""
    items = [item_of(np.zeros(n), map_type) for n in (4, 5)]
    plan = environment.enter(items, lane, [], is_region=True)
    gone = [ref(entry) for entry in plan.entries]
    buffers = [ref(entry.buffer) for entry in plan.entries]
    held, point = environment.exit(items, lane, [], ends_region=True)
    environment.device.calls.clear()
    del plan
    assert [part.__class__ for part in held] == [Released, np.ndarray, np.ndarray]
    assert (point is not None) == map_type.copies_out
    assert None not in [buffer() for buffer in buffers]
    held[0].retire()
    assert environment.device.calls == ["retire", "retire"]
    environment.device.calls.clear()
    del held
    assert [thing() for thing in (*gone, *buffers)] == [None] * 4


@pytest.mark.parametrize("map_type", [MapType.ALLOC, MapType.TO, MapType.TOFROM])
@pytest.mark.parametrize("is_same", [True, False])
def test_the_next_region_on_the_lane_uses_the_buffers(environment, lane, map_type, is_same):
    """A region has the buffers of the one before where it needs as many bytes, whatever it maps."""
    items = [item_of(np.zeros(n), map_type) for n in (4, 5)]
    copies = ["copy"] * 2 * (map_type.copies_in + map_type.copies_out)
    left, addresses = once(environment, lane, items)
    assert acts(environment) == ["alloc", "alloc", *copies]
    for _ in range(3):
        items = [item_of(item.host if is_same else np.zeros(item.host.size), map_type) for item in items]
        before, (left, again) = left, once(environment, lane, items)
        assert sorted(again) == sorted(addresses)
        assert acts(environment) == copies
        before.retire()
        assert not environment.device.calls
        assert not environment.table.live()
    left.retire()
    assert environment.device.calls == ["retire", "retire"]
    assert not set(once(environment, lane, items)[1]) & set(addresses)


def keeps_a_view(environment, kept):
    return lambda plan: kept.append(environment.view(plan.entries[0], plan.items[0].host))


def updates(environment, kept):
    lane = Lane(environment.device, environment.device.new_stream(), 1)
    return lambda plan: environment.update([item_of(plan.items[0].host, MapType.FROM)], lane, [])


def writes_elsewhere(environment, kept):
    lane = Lane(environment.device, environment.device.new_stream(), 1)
    return lambda plan: environment.update([item_of(plan.items[0].host, MapType.TO)], lane, [])


def exposes(environment, kept):
    return lambda plan: environment.corresponding(plan.items[0].host) and None


@pytest.mark.parametrize("during", [keeps_a_view, updates, writes_elsewhere, exposes])
def test_what_somebody_may_still_have_is_not_used_again(environment, lane, during):
    """A buffer that a body has kept a view of, another lane has used, or the program was given, is retired instead."""
    items, kept = [item_of(np.zeros(4), MapType.TOFROM)], []
    left, (address,) = once(environment, lane, items, during(environment, kept))
    acts(environment)
    _, (other,) = once(environment, lane, items)
    assert other != address
    assert acts(environment) == ["alloc", "copy", "copy"]
    left.retire()
    assert environment.device.calls == ["retire"]


def test_a_view_that_goes_later_frees_the_buffer(environment, lane):
    """What counts is who has an array when the next region begins."""
    items, kept = [item_of(np.zeros(4), MapType.TOFROM)], []
    _, (address,) = once(environment, lane, items, keeps_a_view(environment, kept))
    kept.clear()
    assert once(environment, lane, items)[1] == [address]


@pytest.mark.parametrize("other", ["lane", "size"])
def test_another_region_has_buffers_of_its_own(environment, lane, other):
    """On another lane, which runs at the same time, and for another size nothing is used again."""
    host = np.zeros(4)
    once(environment, lane, [item_of(host, MapType.TOFROM)])
    acts(environment)
    if other == "lane":
        lane = Lane(environment.device, environment.device.new_stream(), 1)
    environment.enter([item_of(host[: 4 if other == "lane" else 3], MapType.TOFROM)], lane, [])
    assert "alloc" in acts(environment)


def test_what_threads_copy_is_not_used_again(environment, lane):
    """Where copies to the host are staged the next region has another buffer."""
    items = [item_of(np.zeros(4), MapType.TO)]
    environment.enter(items, lane, [])
    environment.exit(items, lane, [object()])
    acts(environment)
    once(environment, lane, items)
    assert acts(environment) == ["alloc", "copy"]


def test_a_region_that_is_put_off_leaves_what_is_left(environment, lane):
    """A region that has to follow what is open takes nothing."""
    items = [item_of(np.zeros(4), MapType.TOFROM)]
    left, _ = once(environment, lane, items)
    environment.open((Lane(environment.device, None, 1), (), (), [items[0].section]))
    with pytest.raises(PutOffError):
        environment.enter(items, lane, [], is_region=True)
    assert len(left.buffers) == 1
    assert not environment.table.live()


@pytest.mark.parametrize("is_over", [False, True])
def test_a_region_without_memory_gives_back_what_it_has_taken(environment, lane, monkeypatch, is_over):
    """Where there is no memory for all of an entry, what it has taken goes back with the task that has left it."""
    items = [item_of(np.zeros(4), MapType.TOFROM)]
    left, _ = once(environment, lane, items)
    (buffer,) = [ref(buffer) for _, buffer, *_ in left.buffers.values()]

    def fail(*_):
        if is_over:  # meanwhile
            left.retire()
        raise DeviceMemoryError("none", 1, 0)

    with monkeypatch.context() as patch:
        patch.setattr(environment.device, "alloc", fail)
        with pytest.raises(DeviceMemoryError):
            environment.enter([*items, item_of(np.zeros(3), MapType.TO)], lane, [])
    assert environment.take_kept(lane) is None
    assert not environment.table.live()
    assert len(left.buffers) == (not is_over)
    left.retire()
    assert environment.device.calls[-1] == "retire"
    assert environment.device.calls.count("retire") == 1
    assert buffer() is None


def test_what_is_present_meanwhile_is_found(environment, lane):
    """What is left on a lane changes nothing about what is present."""
    host = np.zeros(4)
    items = [item_of(host, MapType.TOFROM)]
    once(environment, lane, items)
    outer = environment.enter([item_of(host[1:3], MapType.TO)], lane, [])
    with pytest.raises(ExtensionError):
        environment.enter(items, lane, [], is_region=True)
    environment.undo(outer, lane)
    assert once(environment, lane, items)


def test_a_lost_lane_leaves_nothing_open(environment, lane, monkeypatch):
    """Where the end of accesses cannot be marked nobody is put off for ever."""
    plan = environment.enter([item_of(np.zeros(4), MapType.TO)], lane, [])
    (entry,) = plan.entries

    def fail(_):
        raise DeviceLostError("lost")

    environment.open((lane, [(entry, entry.section)], (), ()))
    monkeypatch.setattr(environment.device, "record", fail)
    with pytest.raises(DeviceLostError):
        environment.settle(lane)
    assert not is_open(entry)
    assert environment.settle(lane) is None


# -- on a simulated device ---------------------------------------------------------------------------
N = 1000
NBYTES = 8 * N


class Copies:
    """Hears of copies, and says when those of some arrays have been enqueued, and the bytes in use at the last."""

    def __init__(self, device, *arrays):
        self.device = device
        self.left = {id(array) for array in arrays}
        self.are_done = threading.Event()

    def copy(self, dst, src, *_):
        self.left.discard(id(src))
        if not self.left and not self.are_done.is_set():
            self.nbytes = self.device.live_nbytes()
            self.are_done.set()

    def launch(self, *_):
        pass


def held_regions(runtime, map_type, *, follows, keeps=None):
    """Have two regions map arrays while the stream of the first is held; return the bytes in use then, and what came.

    ``follows`` says whether the second follows the first, and so has its lane. ``keeps`` takes the first's array.
    """
    (device,) = runtime.devices()
    latch, a, b, seen, order = SimEvent(device), np.arange(1.0 * N), np.arange(1.0 * N) + 5, [], np.zeros(1)
    copies = Copies(device, a, b)
    observing.attach(copies, runtime)
    is_held, is_followed = threading.Event(), threading.Event()

    @omp.target(map=[map_type("x")], nowait=True)
    def hold(x):
        seen.append(float(x[3]))
        if keeps is not None:
            keeps.append(x)
        omp.current_stream().wait_event(latch)
        is_held.set()
        is_followed.wait(20)  # who follows a region that is being launched may find its lane in use, and take another

    @omp.target(map=[map_type("x")], nowait=True)
    def read(x):
        seen.append(float(x[3]))

    hold.options(depend=[omp.inout(order)])(a)
    assert is_held.wait(20)  # another thread could end the second before
    read.options(depend=[omp.inout(order)] if follows else [])(b)
    is_followed.set()
    assert copies.are_done.wait(20)
    latch.fire()
    omp.taskwait()
    return copies.nbytes, sorted(seen)


@pytest.mark.parametrize("map_type", [omp.to, omp.tofrom])
def test_a_region_behind_another_uses_its_memory(map_type):
    """While a stream is held, the next region there has the memory of the one before, and its own values in it."""
    with checked("sim:1", num_threads=2) as runtime:
        assert held_regions(runtime, map_type, follows=True) == (NBYTES, [3.0, 8.0])


def test_memory_of_a_stream_that_runs_is_not_given_to_another():
    """A region on another lane has memory of its own."""
    with checked("sim:1", num_threads=2) as runtime:
        assert held_regions(runtime, omp.to, follows=False) == (2 * NBYTES, [3.0, 8.0])


def test_memory_that_a_body_has_kept_is_not_used_again():
    """An array that a body keeps refuses to be used when the mapping has ended, and nobody else has its memory."""
    kept = []
    with checked("sim:1", num_threads=2) as runtime:
        assert held_regions(runtime, omp.to, follows=True, keeps=kept) == (2 * NBYTES, [3.0, 8.0])
        with pytest.raises(RegionClosedError):
            kept[0][0] = 1.0
        kept.clear()


def test_memory_of_a_region_that_fails_when_it_has_ended_goes_back():
    """Where a warning fails a region that has unmapped all, its memory goes back as that of any other."""

    @omp.target(map=[omp.from_("x")])
    def write_nothing(x):
        pass

    with checked("sim:1", num_threads=2) as runtime, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DirectiveWarning, match="wrote no element"):
            write_nothing(np.zeros(N))
        gc.collect()
        assert not runtime.devices()[0].live_nbytes()
