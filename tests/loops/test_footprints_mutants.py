"""The random nests and sequences tell wrong footprints from right ones: each known mistake is found by one of them."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from offload.loops.sets import footprints
from offload.loops.sets.footprints import _Prints
from tests.loops.test_footprints import run_a_sequence
from tests.loops.test_footprints_rules import check

pytestmark = pytest.mark.mutants

HULL, WRAPPED, WHOLE = _Prints._hull, footprints._wrapped, footprints._is_whole


def ends_left_out(patch):
    patch.setattr(footprints, "_wrapped", lambda low, high, extent: WRAPPED(low, max(low, high - 1), extent))


def ends_closed(patch):
    patch.setattr(footprints, "_wrapped", lambda low, high, extent: WRAPPED(low, high + 1, extent))


def negative_indices_forgotten(patch):
    patch.setattr(footprints, "_wrapped", lambda low, high, extent: WRAPPED(max(low, 0), high, extent))


def all_trips(patch):
    """A device needs what any iteration reads."""

    def read(self, access):
        whole = replace(self.division, trips=((0, self.accesses.launch.axes[0].trips),) * len(self.division.trips))
        mine, self.division = self.division, whole
        for device, needs in enumerate(self.needs):
            needs.extend(self._hull(access, device))
        self.division = mine

    patch.setattr(_Prints, "read", read)


def other_indices_left_out(patch):
    """What is not affine touches nothing."""

    def hull(self, access, device):
        atoms = self.accesses.space.atoms
        is_affine = all(atoms[atom].is_trip for index in access.indices for atom, _ in index.form.terms)
        return HULL(self, access, device) if is_affine else []

    patch.setattr(_Prints, "_hull", hull)


def gaps_taken_for_written(patch):
    """Each store writes all of its hull."""
    patch.setattr(footprints, "_is_whole", lambda accesses, store: True)


def branches_taken(patch):
    patch.setattr(footprints, "_is_whole", lambda accesses, store: WHOLE(accesses, replace(store, is_certain=True)))


def guarded_writes_by_hull(patch):
    """What a guarded nest has written is what the stores of the first device's trips write."""

    def write(self, access):
        for device, alone in enumerate(self.alone):
            alone.extend(
                HULL(self, access, device) if self.owned is None else self._inside(HULL(self, access, 0), device)[:1]
            )

    patch.setattr(_Prints, "write", write)


def written_needs_nothing(patch):
    def write(self, access):
        for device, alone in enumerate(self.alone):
            alone.extend(self._hull(access, device))

    patch.setattr(_Prints, "write", write)


def stores_under_branches_feed(patch):
    patch.setattr(footprints, "is_fed_by", lambda read, store: read.array == store.array)


def own_loads_need_nothing(patch):
    read = _Prints.read

    def wrong(self, access):
        if access.at not in self.division.own_loads:
            read(self, access)

    patch.setattr(_Prints, "read", wrong)


def joined_boxes_are_hulls(patch):
    """Two boxes become their hull, whatever it has besides."""

    def union(one, other):
        return tuple((min(low, first), max(high, end)) for (low, high), (first, end) in zip(one, other, strict=True))

    patch.setattr(footprints, "_union", union)


MUTANTS = [
    ends_left_out,
    ends_closed,
    negative_indices_forgotten,
    all_trips,
    other_indices_left_out,
    gaps_taken_for_written,
    branches_taken,
    guarded_writes_by_hull,
    written_needs_nothing,
    stores_under_branches_feed,
    own_loads_need_nothing,
    joined_boxes_are_hulls,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(monkeypatch, mutant):
    """Some random nest, or sequence of loops, shows the mistake."""
    mutant(monkeypatch)
    rng = random.Random(3)
    with pytest.raises(AssertionError):
        for _ in range(200):
            check(rng, Counter())
            run_a_sequence(rng, Counter())
