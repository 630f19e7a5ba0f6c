"""The box table against an array of sets of devices: random tables, random changes, and what they may cost."""

import random
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.data.boxes import BoxTable, Needs, Writes
from tests.profiles import examples

BATCH = 20
"""Tables of one example."""


def elements(box):
    return set(product(*(range(low, high) for low, high in box)))


class Model:
    """A table, and beside it for each element the devices that have its last value."""

    def __init__(self, rng):
        self.rng, self.n = rng, rng.choice((1, 2, 2, 3, 4, 7))
        origin = [rng.choice((0, 0, -3, 5)) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3)))]
        self.space = tuple((low, low + rng.randint(1, 8 // len(origin) + 2)) for low in origin)
        if origin and rng.random() < 0.05:
            self.space = (*self.space[:-1], (origin[-1], origin[-1]))
        self.most = rng.choice((1, 3, 1_000, 1_000))
        self.table = BoxTable(self.space, self.n, self.most)
        self.have = {element: set(range(self.n)) for element in elements(self.space)}
        self.kept = []  # requests that come again: a time loop
        self.counts = Counter()

    def box(self):
        """Return a box that is empty at times, or reaches beyond the array."""
        rng, made = self.rng, []
        for low, high in self.space:
            first = rng.randint(low - 1, high)
            made.append((first, rng.randint(first, high + 1)) if rng.random() < 0.8 else (low, high))
        return tuple(made)

    def needs(self):
        return Needs(tuple(tuple(self.box() for _ in range(self.rng.randint(0, 3))) for _ in range(self.n)))

    def writes(self):
        """Return boxes that those of another device do not meet: blocks of one dimension, narrowed in the others."""
        alone = [[] for _ in range(self.n)]
        if self.space:
            k = self.rng.randrange(len(self.space))
            low, high = self.space[k]
            cuts = sorted(self.rng.randint(low, high) for _ in range(self.n - 1))
            for device, block in enumerate(zip([low, *cuts], [*cuts, high], strict=True)):
                for box in (self.box() for _ in range(self.rng.randint(0, 2))):
                    alone[device].append((*box[:k], block, *box[k + 1 :]))
        everywhere = (self.box(),) if self.rng.random() < 0.2 else ()
        return Writes(tuple(map(tuple, alone)), everywhere)

    def step(self):
        rng, table = self.rng, self.table
        match rng.randrange(11):
            case 0 | 1 | 2 | 3:
                needs = self.recur(Needs) or self.needs()
                self.kept.append(needs)
                self.exchanged(lambda: table.exchange(needs), needs.boxes)
            case 4 | 5 | 6:
                writes = self.recur(Writes) or self.writes()
                self.kept.append(writes)
                table.wrote(writes)
                for device, boxes in enumerate(writes.alone):
                    self.written(boxes, {device})
                self.written(writes.everywhere, set(range(self.n)))
            case 7:
                box, device = self.box(), rng.choice((None, *range(self.n)))
                table.mark_written(box, device)
                self.written([box], set(range(self.n)) if device is None else {device})
            case 8:
                device, box = rng.randrange(self.n), rng.choice((None, self.box()))
                needed = [(box or self.space,) if d == device else () for d in range(self.n)]
                receive = (lambda: table.complete(device)) if box is None else (lambda: table.receive(device, box))
                self.exchanged(receive, needed, self.most)
            case 9:
                self.exchanged(table.complete_all, [(self.space,)] * self.n)
            case _ if rng.random() < 0.97:
                self.gathered(self.box())
            case _:
                lost = {d for d in range(self.n) if rng.random() < 0.5}
                sound = set().union(*(self.current(device) for device in range(self.n) if device not in lost))
                table.lose(lost)
                for element in sound:
                    self.have[element] -= lost
        self.compare()

    def recur(self, kind):
        old = [each for each in self.kept if isinstance(each, kind)]
        return self.rng.choice(old) if old and self.rng.random() < 0.6 else None

    def written(self, boxes, devices):
        for box in boxes:
            for element in elements(box) & self.have.keys():
                self.have[element] = set(devices)

    def exchanged(self, exchange, needed, most_then=1):
        table, before = self.table, self.table.state
        is_coarse = len(table.rows) > self.most
        current = [self.current(device) for device in range(self.n)]
        asked = [all(table.is_current(device, box) for box in boxes) for device, boxes in enumerate(needed)]
        done = exchange()
        copied = [set() for _ in range(self.n)]
        for source, target, box in done.copies:
            inside = elements(box)
            assert inside <= current[source], "who sends has it before the exchange"
            assert inside
            assert not inside & copied[target], "nothing is copied twice"
            copied[target] |= inside
        for device, boxes in enumerate(needed):
            wanted = set().union(*map(elements, boxes)) & self.have.keys()
            missing = wanted - current[device]
            assert copied[device] == missing or (is_coarse and copied[device] >= missing), "needed without current"
            assert most_then == 1 or not copied[device] or boxes, "who was not asked for receives nothing"
            assert bool(missing) != asked[device]
        for device in range(self.n):
            assert sorted(done.into[device]) == sorted(copy for copy in done.copies if copy.target == device)
            assert sorted(done.out_of[device]) == sorted(copy for copy in done.copies if copy.source == device)
        self.counts["coarse"] += is_coarse
        self.counts["copies"] += len(done.copies)
        assert not is_coarse or len(table.rows) <= most_then
        if self.rng.random() < 0.1:  # some were made, then one could not
            self.counts["undone"] += 1
            table.state = before
            self.compare()
            return
        for device in range(self.n):
            for element in copied[device]:
                self.have[element].add(device)

    def gathered(self, box):
        seen = set()
        lost = frozenset(d for d in range(self.n) if self.rng.random() < 0.2)
        sound = set().union(*(self.current(device) for device in range(self.n) if device not in lost))
        for device, part in self.table.gather(box, lost):
            assert not elements(part) & sound if device is None else elements(part) <= self.current(device)
            assert device not in lost
            assert not elements(part) & seen
            seen |= elements(part)
        assert seen == elements(box) & self.have.keys()

    def current(self, device):
        """Return the elements that the table claims a device to have."""
        return {element for row, mask in self.table.rows if mask >> device & 1 for element in elements(row)}

    def compare(self):
        claimed = {}
        for row, mask in self.table.rows:
            for element in elements(row):
                assert element not in claimed, "rows are disjoint"
                claimed[element] = {device for device in range(self.n) if mask >> device & 1}
        assert claimed.keys() == self.have.keys()
        for element, devices in claimed.items():
            assert devices, "some device is current"
            assert devices <= self.have[element]
        if self.most == 1_000:
            assert claimed == self.have, "a table that is not coarse knows all"


def check(rng, counts):
    model = Model(rng)
    for _ in range(16):
        model.step()
    counts.update(model.counts)


@settings(max_examples=examples(40, soak=2_000), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_against_sets(seed):
    """Claims are true, no claim is forgotten while there are few rows, and copies are what is needed and not there."""
    rng = random.Random(seed)
    for _ in range(BATCH):
        check(rng, Counter())


def test_tables_become_coarse_and_are_undone():
    """Random tables have enough of each to mean something."""
    counts = Counter()
    rng = random.Random(1)
    for _ in range(150):
        check(rng, counts)
    assert min(counts["coarse"], counts["undone"], counts["copies"] // 10) > 10, counts


def blocks(n, n_devices):
    return [(n * device // n_devices, n * (device + 1) // n_devices) for device in range(n_devices)]


def sweep(n, n_devices, dimension=0):
    """Return what a five-point sweep of n rows needs of one array and writes of the other, by blocks of a dimension."""
    needs, writes = [], []
    for low, high in ((low + 1, high + 1) for low, high in blocks(n - 2, n_devices)):
        crosses = ((low - 1, high + 1), (1, n - 1)), ((low, high), (0, n))
        inside = (low, high), (1, n - 1)
        needs.append(tuple(box if dimension == 0 else box[::-1] for box in crosses))
        writes.append((inside if dimension == 0 else inside[::-1],))
    return Needs(tuple(needs)), Writes(tuple(writes))


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("n_devices", [2, 4, 7])
def test_a_time_loop_exchanges_halos_only(n_devices, dimension):
    """Of a five-point sweep each device receives one row from each neighbour, and the tables stay as small."""
    n = 64
    needs, writes = sweep(n, n_devices, dimension)
    a, b = (BoxTable(((0, n), (0, n)), n_devices) for _ in range(2))
    for step in range(20):
        done = a.exchange(needs)
        b.wrote(writes)
        if step:
            assert len(done.copies) == 2 * (n_devices - 1)
            assert all(abs(copy.source - copy.target) == 1 for copy in done.copies)
            assert {tuple(sorted(h - w for w, h in copy.box)) for copy in done.copies} == {(1, n - 2)}
        assert len(a.rows) <= 3 * n_devices - 2 + 4  # own, shared with either neighbour; the border
        a, b = b, a


def test_steps_that_come_again_find_the_same_states():
    """From the third step on nothing is computed: states and exchanges are the objects that they were."""
    needs, writes = sweep(64, 4)
    a, b = (BoxTable(((0, 64), (0, 64)), 4) for _ in range(2))
    seen = []
    for _ in range(10):
        seen.append((a.exchange(needs), a.state))
        b.wrote(writes)
        a, b = b, a
    assert all(one[0] is other[0] and one[1] is other[1] for one, other in zip(seen[4:-2], seen[6:], strict=True))


def test_all_send_to_all_in_a_ring():
    """Where each device needs what all others have, each receives from its successor first, and all send as much."""
    table = BoxTable(((0, 40),), 4)
    table.wrote(Writes(tuple(((block,),) for block in blocks(40, 4))))
    done = table.complete_all()
    assert [[copy.source for copy in copies] for copies in done.into] == [[1, 2, 3], [2, 3, 0], [3, 0, 1], [0, 1, 2]]
    assert [len(copies) for copies in done.out_of] == [3, 3, 3, 3]
    assert table.rows == ((((0, 40),), 0b1111),)


def test_sources_share_the_work():
    """Two devices without an array receive it from the two that have it, one each, as one box."""
    table = BoxTable(((0, 8), (0, 8)), 4)
    table.mark_written(((0, 8), (0, 8)), 1)
    table.complete(2)
    table.exchange(Needs(((((2, 4), (0, 8)),), (), (), ())))  # a row with other devices does not make it three boxes
    done = table.exchange(Needs(((), (), (), (((0, 8), (0, 8)),))))
    assert len(done.copies) == 1
    done = table.exchange(Needs(((((0, 8), (0, 8)),), (), (), ())))
    assert {copy.target for copy in done.copies} == {0}
    table.mark_written(((0, 8), (0, 8)), 1)
    table.complete(2)
    assert {(copy.source, copy.target) for copy in table.complete_all().copies} == {(1, 0), (2, 3)}


def test_rows_that_no_pair_joins_are_one_where_all_agree():
    """Five boxes in a ring are one row once they have the same devices."""
    table = BoxTable(((0, 3), (0, 3)), 2)
    for box in (((0, 1), (0, 2)), ((0, 2), (2, 3)), ((2, 3), (1, 3)), ((1, 3), (0, 1)), ((1, 2), (1, 2))):
        table.mark_written(box, 1)
    assert table.rows == ((((0, 3), (0, 3)), 0b10),)


def test_claims_are_given_up_before_anything_is_copied():
    """With too many rows, but one device that has all, the table is one row of that device."""
    table = BoxTable(((0, 90),), 3)
    table.mark_written(((0, 90),), 0)
    for first in range(0, 90, 3):
        table.exchange(Needs(((), (((first, first + 1),),), (((first + 1, first + 2),),))))
    assert len(table.rows) <= 3 * 16
    assert all(mask & 1 for _, mask in table.rows)


def test_a_chessboard_of_two_owners_is_completed():
    """Where no claim can be given up, the table grows until the next exchange, which completes all devices."""
    table = BoxTable(((0, 200),), 2)
    for first in range(200):
        table.mark_written(((first, first + 1),), first % 2)
    assert len(table.rows) == 200
    table.exchange(Needs(((((0, 1),),), ())))
    assert table.rows == ((((0, 200),), 0b11),)
