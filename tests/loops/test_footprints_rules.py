"""Footprints against the enumeration of small nests, divided at random."""

import random
from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from offload.loops.proofs.numbers import View
from offload.loops.sets.footprints import Division, footprints, owned_along
from tests.loops.building import accesses_of
from tests.loops.test_independence_rules import a_nest, traced
from tests.profiles import examples

BATCH = 20
"""Nests of one example."""


def elements(boxes):
    return {element for box in boxes for element in product(*(range(low, high) for low, high in box))}


def cuts(rng, low, high, n):
    """Return ranges that cover low to high, some of them empty."""
    ends = sorted(rng.randint(low, high) for _ in range(n - 1))
    return list(zip([low, *ends], [*ends, high], strict=True))


def carried_out(events, extents):
    """Return the accesses that are inside of their arrays, in order: line, array, kind, trips, element."""
    found = []
    for (array, kind, line), trips, indices, first in events:
        if first is not None:
            element = tuple(index % n for index, n in zip(indices, extents[array], strict=True))
            found.append((line, array, kind, trips, element))
    return found


def owned_ranges(stores, trips, extent, dimension):
    """Return ranges of a dimension whose index is ``c*i + o`` in each store, such that devices write in theirs only.

    None if there are none, as where the order of two devices' elements differs from store to store.
    """
    images = [[] for _ in trips]
    for store in stores:
        index = store.indices[dimension]
        if not index.is_exact or [atom for atom, _ in index.form.terms] != [0]:
            return None
        ((_, by),) = index.form.terms
        for device, (low, high) in enumerate(trips):
            image = [index.form.constant + by * trip for trip in range(low, high)]
            if min(image, default=0) < 0 <= max(image, default=0):
                return None  # its hull is in two parts
            image = [place + extent if place < 0 else place for place in image]
            ends = max(min(image, default=0), 0), min(max(image, default=-1) + 1, extent)
            images[device] += ends if ends[0] < ends[1] else ()
    ranges, last = [(0, 0)] * len(trips), 0
    for device in sorted((device for device, image in enumerate(images) if image), key=lambda n: min(images[n])):
        if min(images[device]) < last:
            return None
        ranges[device] = last, max(images[device])
        last = max(images[device])
    return tuple(ranges)


class Case:
    """A nest, a division of it, and what each device does."""

    def __init__(self, rng, counts):
        self.counts = counts
        contents = [rng.randint(-2, 5) for _ in range(5)]
        ranges, body, views = a_nest(rng)
        header = "".join(
            f"{' ' * k}for {'ij'[k]} in range({r.start}, {r.stop}, {r.step}):\n" for k, r in enumerate(ranges)
        )
        self.text = header + "\n".join(body)
        arrays = views | {"p": View((len(contents),), (8,), 8, 1 << 30)}
        self.accesses = accesses_of(self.text, arrays, collapse=len(ranges))
        self.extents = {name: view.extents for name, view in arrays.items()}
        self.done = carried_out(traced(ranges, body, views, contents), self.extents)
        # Two names of one view are one array.
        self.names = {name: min(n for n in arrays if arrays[n] == view) for name, view in arrays.items()}
        self.division = self.divided(rng, len(ranges[0]))

    def divided(self, rng, n_trips):
        n_devices = rng.choice((1, 2, 2, 3, 4))
        stores = [access for access in self.accesses.listed if access.kind == "store"]
        named = sorted({self.names[access.array] for access in stores})
        trips, splits = cuts(rng, 0, n_trips, n_devices), {}
        for array in named:
            for dimension, extent in enumerate(self.extents[array]):
                of_array = [store for store in stores if self.names[store.array] == array]
                owned = owned_ranges(of_array, trips, extent, dimension)
                if owned is not None:
                    splits[array] = owned_along(self.extents[array], dimension, owned)
        if len(splits) == len(named):
            self.counts["cut"] += bool(named)
            return Division(tuple(trips), splits, is_guarded=False, own_loads=self.some_loads(rng, splits))
        splits = {}
        for array in named:
            if rng.random() < 0.8:
                dimension = rng.randrange(len(self.extents[array]))
                blocks = cuts(rng, 0, self.extents[array][dimension], n_devices)
                splits[array] = owned_along(self.extents[array], dimension, blocks)
        self.counts["guarded"] += bool(splits)
        self.counts["everywhere"] += not splits
        everything = ((0, n_trips),) * n_devices
        return Division(everything, splits, is_guarded=True, own_loads=self.some_loads(rng, splits))

    def some_loads(self, rng, splits):
        return frozenset(
            access.at
            for access in self.accesses.listed
            if access.kind == "load" and self.names[access.array] in splits and rng.random() < 0.2
        )

    def owns(self, device, array, element):
        owned = self.division.owned.get(array)
        return owned is None or all(low <= n < high for n, (low, high) in zip(element, owned[device], strict=True))

    def of_device(self, device):
        """Return what a device reads that its iteration has not written, and what it writes; as (array, element)."""
        own = {(a.array, a.place.line) for a in self.accesses.listed if a.at in self.division.own_loads}
        plain = {
            (a.array, a.place.line)
            for a in self.accesses.listed
            if a.kind == "load" and a.at not in self.division.own_loads
        }
        read, written, fresh, before = set(), set(), set(), None
        low, high = self.division.trips[device]
        for line, name, kind, trips, element in self.done:
            if not low <= trips[0] < high:
                continue
            if trips != before:
                fresh, before = set(), trips
            array = self.names[name]
            if kind == "store":
                fresh.add((array, element))
                if self.owns(device, array, element):
                    written.add((array, element))
            elif (array, element) not in fresh and (
                (name, line) in plain or (name, line) not in own or self.owns(device, array, element)
            ):
                read.add((array, element))
        return read, written

    def check(self):
        found = footprints(self.accesses, self.division)
        n_devices = len(self.division.trips)
        marked = []
        for device in range(n_devices):
            read, written = self.of_device(device)
            needs, alone, everywhere = set(), set(), set()
            for array, each in found.items():
                assert array == self.names[array]
                if each.needs is not None:
                    needs |= {(array, element) for element in elements(each.needs.boxes[device])}
                if each.writes is not None:
                    alone |= {(array, element) for element in elements(each.writes.alone[device])}
                    everywhere |= {(array, element) for element in elements(each.writes.everywhere)}
            assert read <= needs, (self.text, self.division, "read without need")
            assert written <= alone | everywhere, (self.text, self.division, "written without a mark")
            assert alone | everywhere <= written | needs, (self.text, self.division, "a mark is a claim")
            self.counts["whole"] += bool(alone - needs)
            self.counts["narrow"] += bool(needs) and not needs >= {
                (array, element)
                for array in {array for array, _ in needs}
                for element in elements([tuple((0, n) for n in self.extents[array])])
            }
            marked.append(alone)
        assert len(set().union(*marked)) == sum(map(len, marked)), (self.text, self.division, "two owners")


def check(rng, counts):
    Case(rng, counts).check()


@settings(max_examples=examples(25, soak=1_000), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_against_enumeration(seed):
    """What a device reads it needs, what it writes is marked, and what is marked it has."""
    rng = random.Random(seed)
    for _ in range(BATCH):
        check(rng, Counter())


def test_enumeration_meets_all_divisions():
    """Random nests are divided in every way often enough to mean something."""
    rng, counts = random.Random(1), Counter()
    for _ in range(300):
        check(rng, counts)
    assert min(counts[kind] for kind in ("cut", "guarded", "everywhere", "whole", "narrow")) > 15, counts
