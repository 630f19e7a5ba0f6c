"""The generated kernels tell a right division over devices from a wrong one: one of 60 finds each known mistake."""

from __future__ import annotations

import pytest

from offload.loops.proofs import feeding
from offload.loops.sets import filter as filters
from offload.loops.sets.cutting import MOST
from tests.loops import replicas
from tests.loops.test_filter_rules import check

pytestmark = pytest.mark.mutants

Walk = feeding._FlowWalk


def no_own_term(patch):
    right = filters.demands

    def demands(fed, own, block, checked):
        return right(fed, {point: term for point, term in own.items() if term is None}, block, checked)

    patch.setattr(filters, "demands", demands)


def no_feeding(patch):
    patch.setattr(Walk, "look_back", without_edges(Walk.look_back))


def without_edges(right, users=None):
    """Return a method of the walk whose edges to these users, all if None, are forgotten."""

    def method(self, *those):
        edges = set(self.edges)
        right(self, *those)
        self.edges = edges | {edge for edge in self.edges if users is not None and edge.user not in users}

    return method


def no_may_alias(patch):
    right = feeding.meeting
    patch.setattr(feeding, "meeting", lambda *those: "same" if right(*those) == "same" else "never")


def a_possible_alias_hides(patch):
    right = feeding.meeting
    patch.setattr(feeding, "meeting", lambda *those: "never" if right(*those) == "never" else "same")


def one_round(patch):
    patch.setattr(feeding, "ROUNDS", 1)


def kept_across_trips(name):
    """Return a mutant: what a method of the walk finds has crossed no loop."""

    def mutate(patch):
        right = getattr(Walk, name)

        def method(self, *those):
            edges, self.edges = self.edges, set()
            right(self, *those)
            self.edges = edges | {edge._replace(crossed=frozenset()) for edge in self.edges}

        patch.setattr(Walk, name, method)

    return mutate


def branches_hide(patch):
    right = feeding._joined

    def joined(one, other):
        state = right(one, other)
        if state is None:
            return None
        return feeding.replace(state, written=tuple(each._replace(is_certain=True) for each in state.written))

    patch.setattr(feeding, "_joined", joined)


def control_is_not_needed(patch):
    patch.setattr(Walk, "read", without_edges(Walk.read, {feeding.EVERYWHERE}))


def trips_before_are_this_one(patch):
    right = feeding.meeting
    patch.setattr(feeding, "meeting", lambda *those: right(*those[:-1], None))


def closed_ranges(patch):
    right = filters.Filtering.range_of

    def range_of(self, array, device):
        begin, end = right(self, array, device)
        return begin, min(end + 1, MOST)

    patch.setattr(filters.Filtering, "range_of", range_of)


def always_cut(patch):
    right = replicas.filtered

    def filtered(*those):
        found = right(*those)
        return filters.replace(found, is_cut=True, trips=found.blocks) if found.mode == "split" else found

    patch.setattr(replicas, "filtered", filtered)


def changed_division(**changes):
    """Return a mutant: what is told to `footprints` is something else."""

    def mutate(patch):
        right = filters.Filtering.division.fget

        def division(self):
            made = {name: change(self) for name, change in changes.items()}
            return filters.replace(right(self), **made) if self.mode == "split" else right(self)

        patch.setattr(filters.Filtering, "division", property(division))

    return mutate


MUTANTS = {
    "no own term": no_own_term,
    "no feeding": no_feeding,
    "no may-alias": no_may_alias,
    "one round of inner loops": one_round,
    "terms kept across trips, by arrays": kept_across_trips("look_back"),
    "terms kept across trips, by scalars": kept_across_trips("scalar"),
    "ranges closed instead of half-open": closed_ranges,
    "tested writes mark only what an affine hull says": changed_division(is_guarded=lambda _: False),
    "what may be the same element hides earlier writes": a_possible_alias_hides,
    "a write in a branch hides earlier ones": branches_hide,
    "indices and branches are needed by nobody": control_is_not_needed,
    "a trip before is this one": trips_before_are_this_one,
    "every nest is cut": always_cut,
    "its own range is all that a device reads": changed_division(
        own_loads=lambda self: frozenset(one.at for one in self.accesses.listed)
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_is_found(mutant, monkeypatch):
    """Among 60 kernels there is one that this mistake makes wrong."""
    MUTANTS[mutant](monkeypatch)
    for seed in range(60):
        try:
            check(seed)
        except Exception:
            return
    pytest.fail(f"no kernel finds that {mutant}")
