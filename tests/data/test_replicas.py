"""Replica sets by themselves: parts of arrays, copies between devices, and what is so after a failure."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.data.boxes import Needs
from offload.data.exchanges import before, enqueue, make_current, receive
from offload.data.ledger import OPEN, PutOffError
from offload.data.replicas import asked, locked, replicas_of
from offload.devices.sim.device import SimDevice
from tests.conftest import checked


@pytest.fixture
def three():
    """A current runtime with three simulated devices; afterwards nothing may be left of it."""
    with checked("sim:3") as runtime:
        yield runtime


@pytest.fixture
def held():
    """An array with replicas on three devices, and their set; the array's first row was written on device 2."""
    a = np.arange(12.0).reshape(3, 4)
    with checked("sim:3") as runtime, omp.target_data([omp.to(a)], devices="all"):
        (replicas,) = runtime.places[0].sets
        lane = runtime.places[2].pool.acquire(())
        with locked(runtime.places):
            view = replicas.view(2, ((0, 1), (0, 4)))
            runtime.places[2].copy(view, np.full((1, 4), 7.0), lane, [], "")
            replicas.table.mark_written(((0, 1), (0, 4)), 2)
        lane.stream.synchronize()
        lane.release()
        del view
        yield a, runtime, replicas


def lanes_of(runtime):
    return {number: place.pool.acquire(()) for number, place in enumerate(runtime.places)}


@pytest.mark.parametrize("make", [lambda a: a, lambda a: a.T, lambda a: a[::-1, 1:3], lambda a: a[:, ::2]])
def test_parts(three, make):
    """A box of the item is the same elements on the host and on each device, and is found again there."""
    base = np.arange(48.0).reshape(6, 8)
    item = make(base)
    with omp.target_data([omp.to(item)], devices="all"):
        (replicas,) = three.places[0].sets
        box = tuple((extent // 3, extent - extent // 3) for extent in item.shape)
        part = item[tuple(slice(low, high) for low, high in box)]
        assert replicas.box(replicas.layout) == tuple((0, extent) for extent in item.shape)
        lie = replicas.part(box)
        assert (lie.address, lie.shape, lie.strides) == (part.ctypes.data, part.shape, part.strides)
        for number, place in enumerate(three.places):
            array = replicas.view(number, box)
            assert np.array_equal(array._storage, part)
            assert replicas.box_on(number, array) == box
            assert replicas.view(number, box) is array
            other = omp.target_alloc(3, float, device=number)
            assert replicas.box_on(number, other) is None
            omp.target_free(other)
            assert place.sets == [replicas]


def test_an_item_that_repeats_elements(three):
    """One index of a dimension with stride 0 stands for all."""
    a = np.arange(4.0)
    wide = np.broadcast_to(a, (3, 4))
    with omp.target_data([omp.to(wide)], devices="all"):
        (replicas,) = three.places[0].sets
        assert replicas.layout.shape == (1, 4)
        found = np.zeros((3, 4))

        @omp.target(map=[omp.to("x"), omp.from_("y")], device=2)
        def copy(x, y):
            y[...] = x

        copy(wide, found)
    assert np.array_equal(found, wide)


def test_a_set_that_has_ended_holds_nothing(three):
    """Whoever keeps a set keeps no memory of devices."""
    a = np.zeros(1000)
    with omp.target_data([omp.to(a)], devices="all"):
        (replicas,) = three.places[0].sets
        entries = replicas.entries
        assert replicas_of(entries) == [replicas]
    assert replicas.entries == ()
    assert replicas_of(entries) == []
    del entries
    assert all(place.device.live_nbytes() == 0 for place in three.places)


def test_copies_go_to_who_needs_them(held):
    """Each receiver has one mark behind its copies, the senders follow it, and values are those of the sender."""
    a, runtime, replicas = held
    lanes = lanes_of(runtime)
    with locked(runtime.places):
        points = make_current(replicas, Needs(((((0, 1), (0, 2)),), (((0, 3), (0, 4)),), ())), lanes)
    assert sorted(points) == [0, 1]
    assert all(points[number].lane is lanes[number] for number in points)
    for lane in lanes.values():
        lane.stream.synchronize()
        lane.release()
    assert replicas.sent_nbytes == (2 + 4) * 8
    assert replicas.view(0, ((0, 1), (0, 4)))._storage.tolist() == [[7, 7, *a[0, 2:]]]
    assert replicas.view(1, ((0, 1), (0, 4)))._storage.tolist() == [[7] * 4]
    assert replicas.table.is_current(1, replicas.table.space)


def test_who_is_current_receives_nothing(held):
    """Nothing is enqueued, and no lane is asked for."""
    _, runtime, replicas = held
    with locked(runtime.places):
        assert make_current(replicas, Needs(((), (), (((0, 3), (0, 4)),))), {}) == {}
        assert receive(replicas, 0, ((1, 3), (0, 4)), None) is None


def test_an_open_copy_puts_an_exchange_off(held):
    """Where a ledger has something open nothing is enqueued, the table is as it was, and the error names the place."""
    _, runtime, replicas = held
    lanes, place = lanes_of(runtime), runtime.places[2]
    section = replicas.section(((0, 1), (0, 1)))
    state = replicas.table.state
    with locked(runtime.places):
        place.open((lanes[2], (), [(replicas.entries[2], section)], ()))
        with pytest.raises(PutOffError) as caught:
            receive(replicas, 0, ((0, 1), (0, 4)), lanes[0])
        changed = replicas.table.state is not state or replicas.sent_nbytes
        followed = before(place, [(replicas.entries[2], section)], (), may_be_put_off=False)
        beside = receive(replicas, 0, ((0, 1), (1, 4)), lanes[0])
    place.settle(lanes[2])  # before anything is asserted: the end of the region would wait for it
    for lane in lanes.values():
        lane.release()
    assert caught.value.place is place
    assert not changed
    assert OPEN not in followed
    assert beside is not None, "a copy that is not concerned"


def test_an_exchange_that_fails_half_way(held, monkeypatch):
    """The table claims what it did before, which is true, and what was enqueued is in the ledgers."""
    _, runtime, replicas = held
    lanes = lanes_of(runtime)
    with locked(runtime.places):
        replicas.table.mark_written(((1, 2), (0, 4)), 1)
        state = replicas.table.state
    copy, calls = SimDevice.copy, []

    def failing(self, dst, src, stream):
        calls.append(dst.shape)
        if len(calls) == 2:
            raise omp.DeviceLostError("on purpose")
        return copy(self, dst, src, stream)

    monkeypatch.setattr(SimDevice, "copy", failing)
    with locked(runtime.places):
        with pytest.raises(omp.DeviceLostError, match="on purpose"):
            receive(replicas, 0, replicas.table.space, lanes[0])
        assert replicas.table.state is state
        noted = [entry.uses for entry in replicas.entries[1:]]
        assert sum(len(uses) for uses in noted) == 1
        monkeypatch.undo()
        assert receive(replicas, 0, replicas.table.space, lanes[0]) is not None
    for lane in lanes.values():
        lane.stream.synchronize()
        lane.release()


def test_plans_are_made_anew_under_all_locks(held):
    """A plan that finds a set is made again while the locks of all its places are held; one that does not is not."""
    _, runtime, replicas = held
    holds = []

    def make():
        holds.append([place.lock.locked() for place in runtime.places])
        return replicas.entries[1:2]

    asked(runtime.places[1], make, list, lambda plan: holds.append("acts"))
    assert holds == [[False, True, False], [True] * 3, "acts"]
    holds.clear()
    asked(runtime.places[1], lambda: holds.append("plans") or [], list, lambda plan: holds.append("acts"))
    assert holds == ["plans", "acts"]
    assert enqueue(replicas, replicas.table.exchange(Needs(((), (), ()))), {}) == {}
