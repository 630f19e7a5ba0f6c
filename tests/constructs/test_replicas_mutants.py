"""The random programs of test_replicas_rules.py tell wrong replica sets from right ones: each mistake is found."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace

import pytest

from offload.data import arguments, environment, exchanges, gathering, sets
from offload.data.boxes import BoxTable
from offload.data.environment import DataEnvironment
from offload.data.forks import Fork
from offload.data.maptypes import MapType
from offload.data.replicas import ReplicaSet
from tests.constructs.test_replicas_rules import check

pytestmark = pytest.mark.mutants

MOST = 300
"""Programs within which each is found; most are within five."""

BEFORE, RECEIVE, COPY_IN = exchanges.before, exchanges.receive, DataEnvironment.copy_in
MARKED = BoxTable.mark_written


def nothing(*_, **__):
    """Do nothing."""


def plain_constructs_use_what_is_stale(patch):
    patch.setattr(environment, "complete", nothing)


def plain_constructs_leave_others_current(patch):
    patch.setattr(environment, "mark_written", nothing)


def updates_to_one_device_leave_others_current(patch):
    def mark(place, copies):
        exchanges.mark_written(place, [copy for copy in copies if copy[0].map_type is not MapType.TO])

    patch.setattr(environment, "mark_written", mark)


def updates_with_gaps_cover_their_box(patch):
    patch.setattr(ReplicaSet, "is_all", lambda *_: True)


def copies_follow_no_ledger(patch):
    patch.setattr(exchanges, "before", lambda *_, **__: [])


def copies_are_in_no_ledger(patch):
    patch.setattr(exchanges, "_note", nothing)


def pointers_are_not_written_to(patch):
    def expose(self, item, lane):
        entry, _ = self.table.search(item.section)
        if entry is not None:
            exchanges.complete(self, [(item, entry)], lane)

    patch.setattr(DataEnvironment, "expose", expose)


def pointers_are_stale(patch):
    def expose(self, item, lane):
        entry, _ = self.table.search(item.section)
        if entry is not None:
            exchanges.mark_written(self, [(item, entry)])

    patch.setattr(DataEnvironment, "expose", expose)


def copies_of_device_arrays_ask_nobody(patch):
    from offload.runtime import works

    patch.setattr(works, "touch", nothing)


def device_arrays_are_read_as_they_are(patch):
    patch.setattr(arguments, "receive", nothing)


def device_arrays_are_written_in_secret(patch):
    patch.setattr(arguments, "_found", lambda *args, is_written: [])


def one_device_has_it_all(patch):
    """What goes to the host comes from the primary."""
    patch.setattr(BoxTable, "gather", lambda self, box, lost: ((0, box),))


def parts_of_a_view_are_placed_as_in_the_array(patch):
    def part(self, box):
        return PART(self, box)._replace(address=self.layout.address)

    patch.setattr(ReplicaSet, "part", part)


PART = ReplicaSet.part


def sets_that_end_leave_the_rest_stale(patch):
    patch.setattr(sets, "dissolve", nothing)


def forks_do_not_join(patch):
    def join(self):
        for lane in self.lanes[1:]:
            lane.release()
        del self.lanes[1:]

    patch.setattr(Fork, "join", join)


def the_primary_alone_is_filled(patch):
    def copy_in(self, steps, lane, staged):
        if self.device.number == 0:
            COPY_IN(self, steps, lane, staged)

    patch.setattr(DataEnvironment, "copy_in", copy_in)


def readers_are_taken_for_writers_nowhere(patch):
    """Map types that write count as ``to``."""

    def mark(place, copies):
        exchanges.mark_written(place, [copy for copy in copies if copy[0].always])

    patch.setattr(environment, "mark_written", mark)


def gathers_skip_the_last_part(patch):
    gather = BoxTable.gather
    patch.setattr(BoxTable, "gather", lambda self, box, lost: gather(self, box, lost)[:-1] or gather(self, box, lost))


def views_that_are_no_boxes_are_gathered_as_such(patch):
    whole = gathering.gather

    def gather(replicas, item, *args, **kwargs):
        part = replicas.part(replicas.box(item))
        if item.shape != part.shape:
            return
        whole(replicas, replace(item, strides=part.strides), *args, **kwargs)

    patch.setattr(sets, "gather", gather)


MUTANTS = [
    plain_constructs_use_what_is_stale,
    plain_constructs_leave_others_current,
    updates_to_one_device_leave_others_current,
    updates_with_gaps_cover_their_box,
    copies_follow_no_ledger,
    copies_are_in_no_ledger,
    pointers_are_not_written_to,
    pointers_are_stale,
    copies_of_device_arrays_ask_nobody,
    device_arrays_are_read_as_they_are,
    device_arrays_are_written_in_secret,
    one_device_has_it_all,
    parts_of_a_view_are_placed_as_in_the_array,
    sets_that_end_leave_the_rest_stale,
    forks_do_not_join,
    the_primary_alone_is_filled,
    readers_are_taken_for_writers_nowhere,
    gathers_skip_the_last_part,
    views_that_are_no_boxes_are_gathered_as_such,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(mutant):
    """One of the programs goes wrong."""
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        found = False
        for seed in range(MOST):
            try:
                check(seed, Counter())
            except Exception:  # whatever it is
                found = True
                break
    gc.collect()
    assert found, "no program goes wrong"
