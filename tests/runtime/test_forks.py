"""Forks, and what is entered on several places: lanes, ledgers, and what is left after a failure."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter

import numpy as np
import pytest

import offload as omp
from offload.data.forks import Fork
from offload.data.ledger import PutOffError
from offload.data.replicas import locked
from offload.devices.sim.device import SimEvent
from offload.devices.streams import POOL_LIMIT
from tests.conftest import checked
from tests.constructs.test_replicas_rules import Program


@pytest.fixture
def three():
    """A current runtime with three simulated devices; afterwards nothing may be left of it."""
    with checked("sim:3") as runtime:
        yield runtime


def work(lane, log, *what):
    lane.stream.launch(log.append, what)


def test_others_begin_behind_the_primary_and_it_goes_on_behind_them(three):
    """What is put on the lanes of a fork runs between what is before it and what is after it on the primary's."""
    log = []
    lane = three.places[0].pool.acquire(())
    latches = [SimEvent(place.device) for place in three.places]
    lane.stream.wait_event(latches[0])
    work(lane, log, "before")
    fork = Fork(three.gate, lane, three.places)
    assert len(fork.lanes) == 3
    assert [other.device for other in fork.lanes] == [place.device for place in three.places]
    for number, other in enumerate(fork.lanes[1:], 1):
        other.stream.wait_event(latches[number])
        work(other, log, number)
    fork.join()
    work(lane, log, "after")
    for latch in latches:
        latch.fire()
    lane.stream.synchronize()
    assert log[0] == ("before",)
    assert sorted(log[1:3]) == [(1,), (2,)]
    assert log[3] == ("after",)
    assert all(place.pool.idle for place in three.places[1:]), "the lanes are given back"
    lane.release()


def test_forks_of_one_lane_take_the_lanes_that_have_joined_it(three):
    """Tasks that follow each other on one lane have the same lanes elsewhere; those of another lane have others."""
    first, second = (three.places[0].pool.acquire(()) for _ in range(2))
    forks = [Fork(three.gate, first, three.places)]
    others = forks[0].lanes[1:]
    forks[0].join()
    for _ in range(3):
        fork = Fork(three.gate, first, three.places)
        assert fork.lanes[1:] == others
        elsewhere = Fork(three.gate, second, three.places)
        assert not set(elsewhere.lanes) & set(fork.lanes)
        elsewhere.join()
        fork.join()
    first.release()
    second.release()


def test_a_fork_that_finds_no_lane(three):
    """It holds none then, says where, and one that must not be put off uses one that others use."""
    lane = three.places[0].pool.acquire(())
    held = [three.places[2].pool.acquire(()) for _ in range(POOL_LIMIT)]
    with pytest.raises(PutOffError) as caught:
        Fork(three.gate, lane, three.places)
    assert caught.value.place is three.places[2]
    assert len(three.places[1].pool.idle) == len(three.places[1].pool.lanes)
    fork = Fork(three.gate, lane, three.places, may_be_put_off=False)
    fork.join()
    assert len(three.places[2].pool.idle) <= 1
    for other in (lane, *held):
        other.release()


def test_the_events_of_a_fork_come_back(three):
    """Marks are known to have passed when they have, so that lanes are used again and nobody waits for them."""
    lane = three.places[0].pool.acquire(())
    for _ in range(50):
        Fork(three.gate, lane, three.places).join()
        lane.stream.synchronize()
        three.gate.look()
    assert len(three.places[1].pool.lanes) == 1
    assert three.places[1].pool.lanes[0].end.event is None
    lane.release()


def test_who_sends_is_in_use_until_the_copy_is_done(three):
    """A copy from one device to another is in the ledgers of both: a write here, a use there."""
    a = np.zeros(8)
    with omp.target_data([omp.to(a)], devices="all"):
        (replicas,) = three.places[0].sets
        latch = SimEvent(three.places[1].device)
        with locked(three.places):
            replicas.table.mark_written(((0, 4),), 2)
        for number in range(8):
            three.places[1].pool.numbered(number).stream.wait_event(latch)
        task = omp.target_update(from_=[a], device=1, nowait=True)  # launched at once
        here, there = replicas.entries[1], replicas.entries[2]
        part, rest = replicas.section(((0, 4),)), replicas.section(((4, 8),))
        with locked(three.places):
            writes, uses = here.writes.overlapping(part), there.uses.overlapping(part)
            others = there.uses.overlapping(rest)
        latch.fire()
        task.result()
        assert [use.lane.device for use in (*writes, *uses)] == [three.places[1].device] * 2
        assert not others


@pytest.mark.parametrize("n_threads", [2, 4])
def test_several_host_threads(n_threads):
    """Threads that work with sets of their own on the same devices, do not get in each other's way."""
    failures = []

    def run(seed):
        try:
            rng = random.Random(seed)
            for _ in range(4):
                Program(rng, 3, Counter()).run()
        except BaseException as error:  # shown below
            failures.append(error)

    with checked("sim:3", num_threads=2):
        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_a_coroutine_enters_a_set(three):
    """``async with`` maps on all devices, and lets the loop run."""
    a = np.zeros(6)

    async def program():
        async with omp.target_data([omp.tofrom(a)], devices=[2, 1]):
            await omp.target(lambda x: x.__iadd__(3), device=1, nowait=True)(a[:3])

    asyncio.run(program())
    assert a.tolist() == [3, 3, 3, 0, 0, 0]
