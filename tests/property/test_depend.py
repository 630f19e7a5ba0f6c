"""The dependence tracker against the table of pairs, over random programs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import in_, inout, out
from offload.tasks.depend import Tracker

ARRAY = np.zeros((6, 8), np.int16)
FLAT = ARRAY.reshape(-1)


class Sibling:
    """A task, to the tracker."""

    past = False

    def __init__(self, number, accesses):
        self.number = number
        self.accesses = accesses

    def __repr__(self):
        return f"{self.number}: {self.accesses}"


@st.composite
def views(draw):
    """Return a section of one matrix, most likely one that overlaps others without being the same."""
    if draw(st.booleans()):
        low = draw(st.integers(0, len(FLAT) - 1))
        return FLAT[low : draw(st.integers(low + 1, len(FLAT))) : draw(st.integers(1, 9))]
    cuts = []
    for size in ARRAY.shape:
        low = draw(st.integers(0, size - 1))
        cuts.append(slice(low, draw(st.integers(low + 1, size)), draw(st.integers(1, 3))))
    view = ARRAY[tuple(cuts)]
    return view.T if draw(st.booleans()) else view


items = st.one_of(views(), st.tuples(st.just("token"), st.integers(0, 3)))
accesses = st.lists(
    st.tuples(st.sampled_from([in_, out, inout]), st.lists(items, min_size=1, max_size=3)), min_size=1, max_size=3
)


def meet(a, b):
    """Tell whether two items share storage."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return isinstance(a, tuple) and isinstance(b, tuple) and a == b
    return np.shares_memory(a, b)


def follows(new, old):
    """Tell what the table of pairs says: storage in common, of which one is written."""
    return any(
        (n.writes or o.writes) and any(meet(a, b) for a in n.items for b in o.items)
        for n in new.accesses
        for o in old.accesses
    )


def closure(edges):
    """Return for each task all that come before it; edges go from earlier to later numbers."""
    before = {}
    for task, direct in edges.items():
        before[task] = set(direct).union(*(before[other] for other in direct))
    return before


@given(st.lists(accesses, max_size=12))
@settings(max_examples=3_000 if settings.default.max_examples > 1_000 else 300)  # the soak profile, tests/conftest.py
def test_closure_is_that_of_the_pairs(program):
    """The tracker orders exactly the pairs that the table orders, and names no edge that the table does not have."""
    tracker = Tracker()
    wanted, found, tasks = {}, {}, []
    for number, described in enumerate(program):
        task = Sibling(number, [kind(*listed) for kind, listed in described])
        wanted[task] = {old for old in tasks if follows(task, old)}
        latest = set(tracker.latest(task.accesses))
        edges = []
        found[task] = set(tracker.add(task, task.accesses, edges))
        assert found[task] <= latest <= wanted[task]
        assert {edge[0] for edge in edges} == found[task]
        assert found[task] <= wanted[task]
        tasks.append(task)
    assert closure(found) == closure(wanted)


@given(st.lists(st.tuples(accesses, st.sets(st.integers(0, 40), max_size=6)), max_size=40))
def test_what_is_past_may_be_forgotten(program):
    """With tasks that finish in between, every pair of the table with an unfinished earlier task is still ordered."""
    tracker = Tracker()
    tracker._limit = 4
    tasks, found = [], {}
    for number, (described, finish) in enumerate(program):
        for done in finish:
            if done < len(tasks) and all(other.past for other in found[tasks[done]]):
                tasks[done].past = True
        task = Sibling(number, [kind(*listed) for kind, listed in described])
        found[task] = set(tracker.add(task, task.accesses))
        before = closure(found)[task]
        for old in tasks:
            if follows(task, old):
                assert old.past or old in before
            else:
                assert old not in found[task]
        tasks.append(task)


@given(st.integers(1, 3))
def test_cells_stay_few(seed):
    """A program that names ever new storage keeps a bounded number of cells."""
    tracker = Tracker()
    for number in range(20_000):
        task = Sibling(number, [inout(("token", seed, number))])
        tracker.add(task, task.accesses)
        task.past = True
    assert len(tracker) <= 2048
