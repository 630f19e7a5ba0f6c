"""The random tables tell a wrong box table from a right one: each known mistake is found by one of 100."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from offload.data import boxes
from offload.data.boxes import BoxTable, State
from tests.data.test_boxes_rules import check

pytestmark = pytest.mark.mutants

MEET, CUT, ADDED, ALONG = boxes.meet, boxes.cut, boxes._added, boxes._joined_along
EXCHANGE, WRITTEN, STATE = BoxTable._exchange, BoxTable._written, BoxTable._state


def closed_ranges(patch):
    def meet(one, other):
        shared = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
        return None if any(low > high for low, high in shared) else shared

    patch.setattr(boxes, "meet", meet)


def closed_intersections(patch):
    def meet(one, other):
        return MEET(one, tuple((low, high + 1) for low, high in other))

    patch.setattr(boxes, "meet", meet)


def copies_out_forgotten(patch):
    def exchange(self, rows, needs):
        done, state = EXCHANGE(self, rows, needs)
        return replace(done, out_of=((),) * self.n_devices), state

    patch.setattr(BoxTable, "_exchange", exchange)


def joins_take_devices(patch):
    """Neighbours that share a device are joined although there is room."""
    patch.setattr(boxes, "_joined_along", lambda rows, dimension, spare: ALONG(rows, dimension, len(rows)))


def joins_give_devices(patch):
    def added(rows, box, bit):
        seen = 0
        for row, mask in rows:
            seen |= mask if MEET(row, box) else 0
        return [(row, mask | seen if MEET(row, box) else mask) for row, mask in ADDED(rows, box, bit)]

    patch.setattr(boxes, "_added", added)


def joins_lose_an_element(patch):
    def along(rows, dimension, spare):
        joined = ALONG(rows, dimension, spare)
        return joined[:-1] if len(joined) < len(rows) and len(joined) > 1 else joined

    patch.setattr(boxes, "_joined_along", along)


def coarse_rows_keep_all_devices(patch):
    """A table that becomes coarse claims what one of the joined rows did."""

    def state(self, rows):
        joined = STATE(self, rows)
        if len(joined.rows) == 1 and len({mask for _, mask in rows}) > 1:
            masks = 0
            for _, mask in rows:
                masks |= mask
            return State(((self.space, masks),))
        return joined

    patch.setattr(BoxTable, "_state", state)


def senders_that_receive(patch):
    """Who has a box by a copy of this exchange sends it on."""

    def source(self, mask, box, target, sent):
        return (target + 1) % self.n_devices if self.n_devices > 2 else mask.bit_length() - 1

    patch.setattr(BoxTable, "_source", source)


def writes_leave_others_current(patch):
    def written(self, rows, box, mask):
        return ADDED(rows, box, mask)

    patch.setattr(BoxTable, "_written", written)


def writes_beyond_the_box(patch):
    def written(self, rows, box, mask):
        return [(row, mask if MEET(row, box) else before) for row, before in rows]

    patch.setattr(BoxTable, "_written", written)


def cuts_lose_a_slab(patch):
    patch.setattr(boxes, "cut", lambda box, hole: CUT(box, hole)[:2])


def cuts_overlap(patch):
    """The slabs of a later dimension keep the whole of an earlier one."""

    def cut(box, hole):
        parts = CUT(box, hole)
        return [(box[0], *part[1:]) if n > 1 and len(box) > 1 else part for n, part in enumerate(parts)]

    patch.setattr(boxes, "cut", cut)


def overlapping_needs_are_copied_twice(patch):
    patch.setattr(boxes, "_apart", list)


def states_are_mixed_up(patch):
    """An outcome is remembered for the request alone, whatever the table was."""
    known = {}

    def exchange(self, rows, needs):
        return known.setdefault(needs, EXCHANGE(self, rows, needs))

    patch.setattr(BoxTable, "_exchange", exchange)


def states_are_found_by_their_devices(patch):
    def state(self, rows):
        made = STATE(self, rows)
        key = len(made.rows), tuple(mask for _, mask in made.rows)
        return self._states.setdefault(key, made)

    patch.setattr(BoxTable, "_state", state)


def exchanges_of_coarse_tables_are_as_asked(patch):
    """A table that can give up no claim goes on as it is."""
    init = BoxTable.__post_init__

    def post_init(self):
        init(self)
        self._whole = boxes.Needs(((),) * self.n_devices)

    patch.setattr(BoxTable, "__post_init__", post_init)


MUTANTS = [
    closed_ranges,
    closed_intersections,
    copies_out_forgotten,
    joins_take_devices,
    joins_give_devices,
    joins_lose_an_element,
    coarse_rows_keep_all_devices,
    senders_that_receive,
    writes_leave_others_current,
    writes_beyond_the_box,
    cuts_lose_a_slab,
    cuts_overlap,
    overlapping_needs_are_copied_twice,
    states_are_mixed_up,
    states_are_found_by_their_devices,
    exchanges_of_coarse_tables_are_as_asked,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(monkeypatch, mutant):
    """Some random table shows the mistake."""
    mutant(monkeypatch)
    rng = random.Random(2)
    with pytest.raises(AssertionError):
        for _ in range(100):
            check(rng, Counter())
