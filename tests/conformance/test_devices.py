"""``devices=`` on data constructs, OpenMP's and OpenACC's: what is where, what is copied, and what is refused."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.devices.sim.device import SimEvent
from tests import eager_device
from tests.conftest import checked
from tests.profiles import few

assert eager_device.EagerKind.name == "eager", "a kind that is known once the file is imported"

ALL = [0, 1, 2]


@pytest.fixture
def three():
    """A current runtime with three simulated devices; afterwards nothing may be left of it."""
    with checked("sim:3") as runtime:
        yield runtime


@pytest.fixture
def small():
    """Two devices with 1 MiB each."""
    with checked("sim:2", env={"OFFLOAD_SIM_MEMORY": "1M"}) as runtime:
        yield runtime


def counts(runtime):
    """Return for each device the counts of what is mapped there."""
    return [[(entry.dynamic, entry.structured) for entry in place.table.entries()] for place in runtime.places]


def rows(runtime):
    """Return the rows of the one set that there is."""
    (replicas,) = runtime.places[0].sets
    return replicas.table.rows


@omp.target
def doubled(x):
    x *= 2


# -- what it does ------------------------------------------------------------------------------------


def test_every_device_has_a_replica(three):
    """A region with ``devices`` maps its items everywhere, and copies the host's values to all."""
    a = np.arange(6.0)
    with omp.target_data([omp.tofrom(a)], devices="all"):
        assert [omp.target_is_present(a, device=device) for device in ALL] == [True] * 3
        assert rows(three) == ((((0, 6),), 0b111),)
        doubled.options(device=1)(a[2:4])
        assert rows(three) == ((((0, 2),), 0b111), (((2, 4),), 0b010), (((4, 6),), 0b111))
    assert a.tolist() == [0, 1, 4, 6, 4, 5]
    assert counts(three) == [[], [], []]


def test_one_device_is_the_same_as_device(three):
    """A set of one device is that device, without a replica set."""
    a = np.arange(6.0)
    omp.target_enter_data([omp.to(a)], devices=[2])
    assert counts(three) == [[], [], [(1, 0)]]
    assert not three.places[2].sets
    omp.target_update(to=[a], devices=[2])
    omp.target_exit_data([omp.from_(a)], device=2)


def test_a_part_comes_from_who_has_it(three):
    """What goes to the host is copied by each device that has a part, and nothing goes from device to device."""
    a = np.zeros(6)
    with omp.target_data([omp.tofrom(a)], devices=[2, 0, 1]):
        for device in ALL:
            _add(a[2 * device : 2 * device + 2], device)
        (replicas,) = three.places[0].sets
        assert replicas.sent_nbytes == 0
    assert a.tolist() == [1, 1, 2, 2, 3, 3]
    assert replicas.sent_nbytes == 0


def _add(part, device):
    @omp.target(device=device)
    def body(x):
        x += device + 1

    body(part)


def test_an_update_to_all_makes_all_current(three):
    """A copy of the host's values goes to every device, and none of them has to fetch them."""
    a = np.zeros(6)
    with omp.target_data([omp.to(a)], devices=ALL):
        _add(a, 1)
        a[:] = 7
        omp.target_update(to=[a[:4]], devices=[1, 2, 0])
        assert rows(three) == ((((0, 4),), 0b111), (((4, 6),), 0b010))
        omp.target_update(to=[a[::2]], devices=ALL)  # the table cannot say more of every second element
        assert rows(three) == ((((0, 4),), 0b111), (((4, 6),), 0b010))
        omp.target_update(from_=[a], devices=ALL)
    assert a.tolist() == [7, 7, 7, 7, 7, 2]


def test_an_update_to_one_device_fetches_no_more_than_it_must(three):
    """Values for all of a box need nothing of the others; those for a part of its elements need the rest."""
    a = np.zeros(6)
    with omp.target_data([omp.to(a)], devices=ALL):
        (replicas,) = three.places[0].sets
        _add(a, 1)
        omp.target_update(to=[a[:3]], device=0)
        assert replicas.sent_nbytes == 0
        omp.target_update(to=[a[3:6:2]], device=0)
        assert replicas.sent_nbytes == 3 * 8
        omp.target_update(from_=[a], device=0)
    assert a.tolist() == [0, 0, 0, 0, 2, 0]


def test_what_is_read_on_one_device_stays_current_elsewhere(three):
    """A construct that maps ``to`` fetches what it lacks, and makes nobody stale."""
    a, found = np.zeros(6), np.zeros(6)
    with omp.target_data([omp.to(a)], devices=ALL):
        _add(a, 1)

        @omp.target(map=[omp.to("x"), omp.from_("y")], device=2)
        def copy(x, y):
            y[...] = x

        copy(a, found)
        assert rows(three) == ((((0, 6),), 0b110),)
        copy(a, found)
        (replicas,) = three.places[0].sets
        assert replicas.sent_nbytes == 6 * 8
    assert found.tolist() == [2] * 6


def test_a_set_that_one_device_goes_on_with(three):
    """Where a construct on one device still holds the array, that has the last values, and copies them back."""
    a = np.zeros(6)
    omp.target_enter_data([omp.to(a)], devices=ALL)
    omp.target_enter_data([omp.to(a)], device=2)
    _add(a[:3], 0)
    omp.target_exit_data([omp.from_(a)], devices=ALL)
    assert a.tolist() == [0] * 6
    assert counts(three) == [[], [], [(1, 0)]]
    omp.target_exit_data([omp.from_(a)], device=2)
    assert a.tolist() == [1, 1, 1, 0, 0, 0]


def test_regions_and_queues_of_openacc(three):
    """OpenACC's data constructs do the same: counters of both kinds, queues, zeros."""
    a, b = np.arange(6.0), np.ones(4)
    with acc.data(copy=[a], create=[acc.zero(b)], devices="all"):
        assert counts(three) == [[(0, 1)] * 2] * 3
        acc.enter_data(copyin=[a], devices=ALL, async_=3)
        acc.update(device=[b], devices=ALL, async_=3)
        acc.exit_data(delete=[a], devices=ALL, async_=3)
        acc.wait(3)
        _add(b, 2)
        acc.update(host=[b], devices=ALL)
    assert b.tolist() == [4] * 4
    assert counts(three) == [[], [], []]


def test_the_variable_is_the_default():
    """``OFFLOAD_LOOP_DEVICES`` stands where neither clause is given."""
    a = np.arange(4.0)
    with checked("sim:3", env={"OFFLOAD_LOOP_DEVICES": "2,0"}) as runtime:
        with omp.target_data([omp.tofrom(a)]):
            assert counts(runtime) == [[(1, 0)], [], [(1, 0)]]
            with omp.target_data([omp.alloc(b := np.zeros(2))], device=1):
                assert omp.target_is_present(b, device=1)
                assert not omp.target_is_present(b, device=0)
        with acc.data(copy=[a]):
            assert counts(runtime) == [[(0, 1)], [], [(0, 1)]]
    with checked("sim:3", env={"OFFLOAD_LOOP_DEVICES": "all"}) as runtime:
        omp.set_default_device(1)  # it is the primary then
        with omp.target_data([omp.tofrom(a)]):
            assert [replicas.places[0] for replicas in runtime.places[0].sets] == [runtime.places[1]]
    host = checked("none", env={"OFFLOAD_LOOP_DEVICES": "0,1"})
    with host, pytest.warns(omp.HostFallbackWarning), omp.target_data([omp.tofrom(a)]):
        pass


@pytest.mark.parametrize("named", few(2, ["all", "1,2", "2", "0,1"]))
@pytest.mark.parametrize("default", [None, 0, 1, 2, -1])
def test_the_variable_alone_changes_no_values(named, default):
    """Plain constructs are where the variable's data is, with any default device: the host, or one not named."""
    values = []
    for env in ({}, {"OFFLOAD_LOOP_DEVICES": named}):
        a = np.arange(7)
        with checked("sim:3", env=env):
            if default is not None:
                omp.set_default_device(default)
            with omp.target_data([omp.tofrom(a)]):
                omp.target_loop(add_all_in_loop)(a, a, a, a)
                omp.target(add_all)(a, a, a, a)
                omp.target_update(from_=[a])
                values.append(a.tolist())
            with acc.data(copy=[a]):
                omp.target_loop(add_all_in_loop)(a, a, a, a)
                acc.parallel(add_all)(a, a, a, a)
            values.append(a.tolist())
    assert values[:2] == values[2:]


def test_the_first_device_of_the_variable_is_the_default_device():
    """A list's primary is where default-device-var begins, unless other variables say, or it does not exist."""
    for env, expected in (({}, 2), ({"OMP_DEFAULT_DEVICE": "1"}, 1), ({"ACC_DEVICE_NUM": "0"}, 0)):
        with checked("sim:3", env={"OFFLOAD_LOOP_DEVICES": "2,0", **env}):
            assert omp.get_default_device() == expected
    with checked("sim:2", env={"OFFLOAD_LOOP_DEVICES": "5,0"}):
        assert omp.get_default_device() == 0


def test_what_others_have_mapped_is_the_default_devices_alone():
    """With the variable what routines have mapped, declared or associated goes on as without it, beside sets."""
    a, b, c, d = np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4)
    omp.declare_target(b)
    with checked("sim:3", env={"OFFLOAD_LOOP_DEVICES": "all"}) as runtime:
        omp.target_enter_data([omp.to(c)], device=0)
        other = omp.target_alloc(4, float)
        omp.target_associate_ptr(d, other)
        omp.target_update(to=[d])
        a[:], b[:], c[:], d[:] = 1, 2, 3, 4
        for _ in range(2):
            with omp.target_data([omp.tofrom(a), omp.tofrom(b), omp.tofrom(c)]), acc.data(copy=[c], copyin=[a]):
                assert len(runtime.places[1].sets) == 1
                omp.target_update(to=[a, b, c, d])
                omp.target(add_all)(a, b, c, d)
                omp.target_loop(add_all_in_loop)(a, b, c, d)
                omp.target_update(from_=[a, b, c, d])
        assert counts(runtime) == [counts(runtime)[0], [(np.inf, 0)], [(np.inf, 0)]]
        omp.target_exit_data([omp.from_(c)])
        omp.target_disassociate_ptr(d)
        omp.target_free(other)
        del other
        omp.target_update(from_=[b])
        assert [array.tolist() for array in (a, b, c, d)] == [[5] * 4, [6] * 4, [7] * 4, [8] * 4]


def test_if_false_maps_nothing(three):
    """The numbers are checked all the same."""
    a = np.zeros(3)
    with omp.target_data([omp.tofrom(a)], devices=ALL, if_=False):
        assert counts(three) == [[], [], []]
    with pytest.raises(omp.ClauseError, match="3 is the host"):
        omp.target_enter_data([omp.to(a)], devices=[0, 3], if_=False)


def add_all(a, b, c, d):
    a += 1
    b += 1
    c += 1
    d += 1


def add_all_in_loop(a, b, c, d):
    for i in range(a.size):
        a[i] += 1
        b[i] += 1
        c[i] += 1
        d[i] += 1


def test_items_without_elements_and_absent_ones(three):
    """What has no elements, or is not present where it need not be, is in no set."""
    a, empty = np.zeros(3), np.zeros((0, 4))
    with omp.target_data([omp.tofrom(a), omp.to(empty)], devices=ALL):
        assert len(three.places[0].sets) == 1
    with acc.data(no_create=[a], devices=ALL):
        assert counts(three) == [[], [], []]
    omp.target_update(to=[a], devices=ALL)
    omp.target_exit_data([omp.from_(a)], devices=ALL)
    with pytest.raises(omp.NotPresentError, match="present"):
        omp.target_update(to=[a], devices=ALL, present=True)


def test_a_recorded_region_is_replayed_on_streams(three):
    """Constructs with ``devices`` are recorded and replayed as any."""
    a = np.zeros(6)

    @omp.taskgraph
    def steps():
        omp.target_enter_data([omp.to(a)], devices=ALL, nowait=True, depend=omp.inout(a))
        omp.target(_one, device=1, nowait=True, depend=omp.inout(a))(a)
        omp.target_exit_data([omp.from_(a)], devices=ALL, nowait=True, depend=omp.inout(a))

    for _ in range(3):
        steps()
    assert a.tolist() == [3] * 6


def _one(x):
    x += 1


def test_constructs_wait_for_streams_that_stand_still(three):
    """Nothing is copied, or given back, before those have ended that use it, on whatever device."""
    a = np.zeros(6)
    omp.target_enter_data([omp.to(a)], devices=ALL)
    latches = []
    for place in three.places:
        latch = SimEvent(place.device)
        latches.append(latch)
        for number in range(8):
            place.pool.numbered(number).stream.wait_event(latch)
    a[:] = 5
    omp.target_update(to=[a], device=1, nowait=True)  # orders by storage alone from here on
    end = omp.target_exit_data([omp.from_(a)], devices=ALL, nowait=True)
    assert not end.done()
    for latch in reversed(latches):
        latch.fire()
    end.result()
    omp.taskwait()
    assert a.tolist() == [5] * 6


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "match"),
    [
        ([0, 3], "3 is the host"),
        ([0, -1], "-1 is the host"),
        ([0, 4], "device 4 does not exist"),
        ([0, 1, 0], "0 again"),
        ([], "empty"),
        ("some", "'some' names no devices"),
        (1, "int 1 names no devices"),
        ([0, True], "True is not a device number"),
        ([0, "1"], "'1' is not a device number"),
        ([0, 1.0], "1.0 is not a device number"),
    ],
)
def test_devices_that_are_none(three, devices, match):
    """The host, one twice, one that there is not, and what is no number are refused by every construct."""
    a = np.zeros(3)
    for construct in (
        lambda: omp.target_enter_data([omp.to(a)], devices=devices),
        lambda: omp.target_exit_data([omp.from_(a)], devices=devices),
        lambda: omp.target_update(to=[a], devices=devices),
        lambda: omp.target_data([omp.to(a)], devices=devices).__enter__(),
        lambda: acc.enter_data(copyin=[a], devices=devices),
        lambda: acc.exit_data(copyout=[a], devices=devices),
        lambda: acc.update(device=[a], devices=devices),
        lambda: acc.data(copy=[a], devices=devices).__enter__(),
    ):
        with pytest.raises(omp.ClauseError, match=match):
            construct()
    assert counts(three) == [[], [], []]


def test_both_clauses(three):
    """``devices`` beside ``device`` is refused."""
    a = np.zeros(3)
    for construct in (
        lambda: omp.target_enter_data([omp.to(a)], devices=ALL, device=0),
        lambda: omp.target_update(to=[a], devices=ALL, device=0),
        lambda: acc.update(device=[a], devices=ALL, device_num=0),
        lambda: acc.data(copy=[a], devices="all", device=0).__enter__(),
    ):
        with pytest.raises(omp.ClauseError, match=r"devices=.* and device=0"):
            construct()


def test_devices_of_two_kinds():
    """Devices of two kinds do not copy to each other."""
    a = np.zeros(3)
    with checked("sim:1, eager"):
        for devices in ("all", [1, 0]):
            with pytest.raises(omp.ClauseError, match="two kinds"):
                omp.target_enter_data([omp.to(a)], devices=devices)


@pytest.mark.parametrize("text", ["1,1", "some", "0,x", "-1", "0,,1"])
def test_a_variable_that_names_nothing(text):
    """A value that names no devices is refused when the runtime is made."""
    with pytest.raises(omp.ClauseError, match="OFFLOAD_LOOP_DEVICES"):
        omp.Runtime("sim:2", env={"OFFLOAD_LOOP_DEVICES": text})


def test_a_variable_that_names_other_devices():
    """Numbers that a runtime does not have are refused where they would be used."""
    match = "OFFLOAD_LOOP_DEVICES=0,5: device 5 does not exist"
    with checked("sim:2", env={"OFFLOAD_LOOP_DEVICES": "0,5"}), pytest.raises(omp.ClauseError, match=match):
        omp.target_enter_data([omp.to(np.zeros(3))])


def test_data_on_one_device_only(three):
    """An array that one device of the set has, or a part of it, gets no replicas, and nothing changes."""
    a = np.zeros(6)
    omp.target_enter_data([omp.to(a[:3])], device=1)
    before = counts(three)
    for match, part in (("present on device 1 by a construct without devices=", a[:2]), ("in part on device 1", a)):
        with pytest.raises(omp.MapError, match=match) as caught:
            omp.target_enter_data([omp.to(part)], devices=ALL)
        assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)
        with pytest.raises(omp.MapError, match=match):
            omp.target_update(to=[part], devices=ALL)
        with pytest.raises(omp.MapError, match=match):
            acc.exit_data(copyout=[part], devices=ALL)
        with pytest.raises(omp.MapError, match=match), omp.target_data([omp.to(part)], devices=ALL):
            pass
        assert counts(three) == before
    omp.target_exit_data([omp.release(a[:3])], device=1)


def test_another_set_than_entered(three):
    """A set is left, updated and counted with the devices that it was entered with."""
    a = np.arange(4.0)
    omp.target_enter_data([omp.to(a)], devices=[0, 1])
    for construct in (
        lambda: omp.target_exit_data([omp.from_(a)], devices=[0, 2]),
        lambda: omp.target_exit_data([omp.from_(a)], devices="all"),
        lambda: omp.target_update(from_=[a], devices=[1, 2]),
        lambda: omp.target_enter_data([omp.to(a[:2])], devices=ALL),
        lambda: acc.exit_data(copyout=[a], devices=ALL),
    ):
        with pytest.raises(omp.MapError, match=r"replica on each of devices 0, 1, not of devices=\["):
            construct()
    with pytest.raises(omp.MapError, match=r"end the mapping with devices=\[0, 1\]"):
        omp.target_exit_data([omp.from_(a)], device=1)
    with pytest.raises(omp.MapError, match=r"end the mapping with devices=\[0, 1\]"):
        omp.target_exit_data([omp.delete(a)], device=0)
    assert counts(three) == [[(1, 0)], [(1, 0)], []]
    omp.target_exit_data([omp.from_(a)], devices=[1, 0])
    assert a.tolist() == [0, 1, 2, 3]


def test_a_replica_that_does_not_fit(small):
    """No memory on one device leaves all as it was: counts, values, what others hold."""
    a, b = np.ones(1 << 16), np.zeros(4)
    other = np.zeros(1 << 16)
    omp.target_enter_data([omp.to(b)], devices="all")
    omp.target_enter_data([omp.to(other)], device=1)
    before = counts(small)
    free = [place.device.live_nbytes() for place in small.places]
    for construct in (
        lambda: omp.target_enter_data([omp.to(b), omp.to(a)], devices="all"),
        lambda: omp.target_data([omp.to(a)], devices="all").__enter__(),
        lambda: omp.target_enter_data([omp.to(a)], devices="all", nowait=True).result(),
        lambda: acc.enter_data(copyin=[a], devices=[1, 0]),
    ):
        with pytest.raises(omp.DeviceMemoryError, match=r"devices=\[.*\] needs a replica on each"):
            construct()
        assert counts(small) == before
        assert [place.device.live_nbytes() for place in small.places] == free
    omp.target_exit_data([omp.release(other)], device=1)
    with omp.target_data([omp.tofrom(a)], devices="all"):  # there is room now
        pass
    omp.target_exit_data([omp.release(b)], devices="all")


def test_a_replica_that_fits_when_a_task_has_ended(small):
    """An entry waits for memory that work on another device of the set holds."""
    a, other = np.ones(1 << 16), np.zeros((1 << 16) + 1)  # for both there is no room
    latch = SimEvent(small.places[1].device)
    for number in range(8):
        small.places[1].pool.numbered(number).stream.wait_event(latch)
    omp.target(_one, map=[omp.tofrom("x")], device=1, nowait=True)(other)
    while not small.places[1].table.entries():
        omp.taskyield()  # until the region, which a worker launches, has its memory
    entry = omp.target_enter_data([omp.to(a)], devices="all", nowait=True)
    assert not entry.launched
    latch.fire()
    entry.result()
    omp.target_exit_data([omp.from_(a)], devices="all")
    omp.taskwait()


def test_an_array_that_became_read_only(three):
    """An exit that cannot copy back leaves all as it was; the end of a region releases all else."""
    a, b = np.zeros(4), np.zeros(4)
    omp.target_enter_data([omp.to(a)], devices=ALL)
    view = a[:]
    item = omp.from_(view)
    view.flags.writeable = False
    with pytest.raises(omp.MapError, match="read-only"):
        omp.target_exit_data([item], devices=ALL)
    assert counts(three) == [[(1, 0)]] * 3
    omp.target_exit_data([omp.release(a)], devices=ALL)
    with pytest.raises(omp.MapError, match="read-only"), omp.target_data([omp.tofrom(a), omp.tofrom(b)], devices=ALL):
        _add(b, 1)
        a.flags.writeable = False
    assert b.tolist() == [2] * 4
    assert counts(three) == [[], [], []]


# -- a device that is lost -----------------------------------------------------------------------------


def lose(place):
    """Have work on a device fail."""
    stream = place.device.new_stream()
    stream.launch(lambda: 1 // 0)
    with pytest.raises(omp.DeviceLostError):
        stream.synchronize()


def test_what_a_lost_device_alone_had_is_lost():
    """The end of a set copies what the others have, names the device, and leaves nothing mapped."""
    a, b = np.zeros(6), np.zeros(4)
    with omp.Runtime("sim:3") as runtime:
        omp.target_enter_data([omp.to(a), omp.to(b)], devices=ALL)
        _add(a[:2], 0)
        _add(a[2:4], 1)
        _add(b, 2)
        lose(runtime.places[1])
        with pytest.raises(omp.DeviceLostError, match="was written on device 1 alone, which is lost"):
            omp.target_exit_data([omp.from_(a), omp.from_(b)], devices=ALL)
        assert counts(runtime) == [[], [], []]
        assert not any(place.sets for place in runtime.places)
        assert a.tolist() == [1, 1, 0, 0, 0, 0]
        assert b.tolist() == [3] * 4


def test_a_lost_device_that_had_nothing_alone():
    """What others have is copied from them, and nobody else is lost."""
    a = np.zeros(6)
    with omp.Runtime("sim:3") as runtime:
        with omp.target_data([omp.tofrom(a)], devices=[2, 0, 1]):
            _add(a, 0)
            lose(runtime.places[1])
        assert a.tolist() == [1] * 6
        with omp.target_data([omp.tofrom(a)], devices=[2, 0]):
            _add(a, 0)
        assert a.tolist() == [2] * 6


def test_a_lost_primary():
    """The primary copies nothing any more: the end says so, and leaves nothing mapped."""
    a = np.zeros(6)
    with omp.Runtime("sim:2") as runtime:
        omp.target_enter_data([omp.to(a)], devices=[1, 0])
        lose(runtime.places[1])
        with pytest.raises(omp.DeviceLostError, match="1"):
            omp.target_exit_data([omp.from_(a)], devices=[1, 0])
        assert counts(runtime) == [[], []]


def test_a_device_that_is_lost_gets_no_replica():
    """An entry fails, and leaves nothing on the others."""
    a = np.zeros(6)
    with omp.Runtime("sim:2") as runtime:
        lose(runtime.places[1])
        with pytest.raises(omp.DeviceLostError, match="sim:1"):
            omp.target_enter_data([omp.to(a)], devices=[0, 1])
        assert counts(runtime) == [[], []]
        assert runtime.places[0].device.live_nbytes() == 0
        omp.target(_one)(a)
    assert a.tolist() == [1] * 6


# -- versions ----------------------------------------------------------------------------------------

N, AWAY = 12, 10**6


def gather(p, x, y):
    for i in range(p.size):
        y[i] = x[p[i]]


def spoil(p):
    p[7] = AWAY


def spoiling(q):
    for _ in range(1):
        q[7] = AWAY


def by_pointer(p):
    omp.get_mapped_ptr(p, device=2)[7] = AWAY


def by_memcpy(p):
    there = acc.deviceptr(p, device=1)
    omp.target_memcpy(there[7:8], np.array([AWAY]))


def by_memset(p):
    omp.target_memset(omp.get_mapped_ptr(p[7:8], device=1), 64)


def by_use_device_ptr(p):
    with omp.target_data(use_device_ptr=[p], device=2) as (there,):
        there[7] = AWAY


def spoilt(construct):
    def case(p):
        p[7] = AWAY
        construct(p)

    return case


WRITES = {
    "target": omp.target(spoil, device=1),
    "target always": spoilt(omp.target(lambda x: None, map=[omp.to("x", always=True)], device=1)),
    "acc.parallel": lambda p: acc.parallel(spoil, device=2)(p[:9]),
    "update": spoilt(lambda p: omp.target_update(to=[p], device=1)),
    "update in part": spoilt(lambda p: omp.target_update(to=[p[1::2]], device=2)),
    "update of all": spoilt(lambda p: omp.target_update(to=[p[6:8]], devices="all")),
    "acc.update": spoilt(lambda p: acc.update(device=[p], device_num=1)),
    "acc.update of all": spoilt(lambda p: acc.update(device=[p], devices=[2, 1, 0])),
    "enter": spoilt(lambda p: omp.target_enter_data([omp.to(p, always=True)], device=1)),
    "enter all": spoilt(lambda p: omp.target_enter_data([omp.to(p, always=True)], devices="all")),
    "get_mapped_ptr": by_pointer,
    "memcpy": by_memcpy,
    "memset": by_memset,
    "use_device_ptr": by_use_device_ptr,
    "loop": omp.target_loop(spoiling, device=1),
    "loop of all": omp.target_loop(spoiling, devices="all"),
    "acc loop": acc.parallel_loop(spoiling, device=2),
}


@pytest.mark.parametrize("case", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("primary", [0, 1])
def test_what_writes_on_any_device_changes_what_is_known(case, primary):
    """A loop on all devices that has remembered its indices finds the one that a construct has written anywhere."""
    p, x, y = np.arange(N), np.arange(float(N)), np.zeros(N)
    devices = [primary, *[device for device in ALL if device != primary]]
    with omp.Runtime("sim:3") as runtime:
        loop = omp.target_loop(gather, devices=devices)
        omp.target_enter_data([omp.to(p), omp.to(x)], devices=devices)
        for _ in range(4):
            loop(p, x, y)
        assert (y == x).all()
        case(p)
        with pytest.raises(IndexError, match="'x'"):
            loop(p, x, y)
        omp.target_exit_data([omp.delete(p), omp.delete(x)], devices=devices)  # one case has entered once more
        assert counts(runtime) == [[], [], []]


# -- the standards' cases ------------------------------------------------------------------------------

CASES = ["test_data.py", "test_update.py", "test_use_device.py", "openacc/test_data.py", "openacc/test_update.py"]


@pytest.mark.slow
def test_cases_with_every_construct_on_all_devices():
    """The cases of the suites pass where ``OFFLOAD_LOOP_DEVICES`` has every data construct make and use replicas."""
    here = Path(__file__).parent
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*pytest_, "-m", "not (bench or mutants or soak)", "-k", "sim", *[here / name for name in CASES]],
        env={**os.environ, "OFFLOAD_LOOP_DEVICES": "all"},
        cwd=here.parents[1],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 150
