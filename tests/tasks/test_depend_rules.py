"""The dependence tracker against the table of pairs, over random programs."""

from __future__ import annotations

import random
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from offload import all_memory, in_, inout, inoutset, mutexinoutset, out
from offload.tasks.depend import DependType, Tracker
from tests.profiles import examples

BYTES = np.zeros(120, np.uint8)
KINDS = {"in": in_, "out": out, "inout": inout, "mutexinoutset": mutexinoutset, "inoutset": inoutset}
SETS = (DependType.MUTEXINOUTSET, DependType.INOUTSET)
MANY = settings(max_examples=examples(300, soak=3_000))


class Sibling:
    """A task, to the tracker."""

    past = False

    def __init__(self, number, clauses):
        self.number = number
        self.clauses = clauses
        self.mutexes = set()

    def __repr__(self):
        return f"{self.number}: {self.clauses}"


def view_of(rng):
    """Return a view of one of several matrices over the same bytes, most likely one that overlaps others in part."""
    pitch = rng.choice([8, 8, 8, 16, 24, 12, 6, 7])
    first = rng.randrange(12)
    matrix = BYTES[first : first + (len(BYTES) - first) // pitch * pitch].reshape(-1, pitch)
    cuts = []
    for size in matrix.shape:
        low = rng.randrange(size)
        high = low + rng.choice([1, 2, 3, size])
        cuts.append(slice(low, min(high, size), rng.choice([1, 1, 1, 1, 2, 3])))
    if rng.random() < 0.3:
        cuts[0] = slice(None)
    view = matrix[tuple(cuts)]
    return view[::-1].T if rng.random() < 0.3 else view


def interleaved(rng):
    """Return an array whose rows interleave, as strides made by hand do."""
    shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    strides = [rng.randint(1, 12) for _ in shape]
    extent = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    return np.ndarray(shape, np.uint8, BYTES, rng.randrange(len(BYTES) - extent + 1), strides)


def item_of(rng):
    kind = rng.random()
    return view_of(rng) if kind < 0.75 else interleaved(rng) if kind < 0.85 else ("token", rng.randrange(3))


def program_of(seed):
    """Return items, clauses and steps: (which tracker, which clauses, whether they are made afresh, what finishes).

    Hypothesis draws nothing but the seed: programs that it draws step by step are too small, and too much alike, to
    find most of the mutants in test_depend_mutants.py.
    """
    rng = random.Random(seed)
    items = [item_of(rng) for _ in range(rng.randint(1, 10))]
    fewer = items[: rng.randint(1, len(items))]
    kinds = rng.choices(list(KINDS), k=rng.randint(2, 5))
    clauses = []
    for _ in range(rng.randint(2, 14)):
        n_items = rng.choice([1, 1, 1, 2, 3])
        listed = [rng.randrange(len(items if rng.random() < 0.5 else fewer)) for _ in range(n_items)]
        if rng.random() < 0.08:
            clauses.append((rng.choice(["out", "inout"]), [None, *listed[1:]]))
        else:
            clauses.append((rng.choice(kinds), listed))
    rate = rng.choice([0.0, 0.1, 0.3, 0.6])
    steps = []
    for _ in range(rng.randint(1, 30)):
        chosen = [rng.randrange(len(clauses)) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        finishing = {k for k in range(30) if rng.random() < rate}
        steps.append((rng.choice([0, 0, 0, 0, 1]), chosen, rng.random() < 0.3, finishing))
    return items, clauses, steps


programs = st.integers(0, 2**32).map(program_of)


class Program:
    """Runs a program on two trackers that share its clauses, and holds both against the table."""

    def __init__(self, items, clauses, is_past=None):
        self.items = items
        self.described = clauses
        self.clauses = [self.clause(*described) for described in clauses]
        self.trackers = Tracker(is_past), Tracker(is_past)
        self.tasks = [], []
        self.found = {}
        self.latest = {}
        self.wanted = {}
        n_items = len(items)
        self.meets = np.array([[meet(items[i], items[j]) for j in range(n_items)] for i in range(n_items)])
        # Two locations are excluded together if a third one shares storage with both.
        self.linked = self.meets.astype(int) @ self.meets > 0
        self.table = [[self.relation(new, old) for old in clauses] for new in clauses]

    def clause(self, kind, listed):
        return KINDS[kind](*[all_memory if k is None else self.items[k] for k in listed])

    def generate(self, where, chosen, *, afresh):
        """Generate a task; every check that does not depend on what has been forgotten is made here."""
        tracker, tasks = self.trackers[where], self.tasks[where]
        clauses = [self.clause(*self.described[k]) if afresh else self.clauses[k] for k in chosen]
        task = Sibling(len(tasks), chosen)
        asks = bool(task.number % 2)  # which locates the clauses
        latest = self.latest[task] = set(tracker.latest(clauses)) if asks else None
        assert not tracker.exclusive
        edges = []
        found = self.found[task] = set(tracker.add(task, clauses, edges)) - {task}
        task.mutexes, tracker.exclusive = set(tracker.exclusive), []
        pairs = {old: self.pairs(task, old) for old in tasks}
        wanted = self.wanted[task] = {old for old in tasks if any(after for after, _ in pairs[old])}
        assert found <= wanted
        assert latest is None or latest <= wanted
        assert {old for old, _, _ in edges} == found
        for old, kind, _ in edges:
            assert kind in {kind for after, kind in pairs[old] if after}
        tasks.append(task)
        return task, {old for old in tasks if any(not after for after, _ in pairs.get(old, ()))} - wanted

    def relation(self, new, old):
        """Return (ordered or excluded, kind of edge) for two clauses; None if they say nothing."""
        (new_kind, new_items), (old_kind, old_items) = new, old
        everything = None in new_items or None in old_items
        if not everything and not any(self.meets[i, j] for i in new_items for j in old_items):
            return None
        if new_kind != old_kind or new_kind in {"out", "inout"}:
            return True, edge_kind(DependType(new_kind), DependType(old_kind))
        return (False, "") if new_kind == "mutexinoutset" else None

    def pairs(self, new, old):
        """Return what the clauses of two tasks say."""
        return [pair for i in new.clauses for j in old.clauses if (pair := self.table[i][j])]

    def may_exclude(self, new, old):
        """Tell whether both name storage that overlaps the same location, as members of ``mutexinoutset``."""

        def named(task):
            clauses = [self.described[k] for k in task.clauses]
            return [k for kind, listed in clauses if kind == "mutexinoutset" for k in listed]

        return any(self.linked[i, j] for i in named(new) for j in named(old))


def meet(a, b):
    """Tell whether two items share storage."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        return isinstance(a, tuple) and isinstance(b, tuple) and a == b
    return np.shares_memory(a, b)


def edge_kind(new, old):
    """Return what a dependence between these types is called."""
    if new in SETS or old in SETS:
        return "set"
    if old is DependType.IN:
        return "anti"
    return "output" if new is DependType.OUT else "flow"


def behind(tasks, before):
    """Return tasks and all that come before them."""
    return set(tasks).union(*(before[task] for task in tasks))


def closure(edges, tasks):
    """Return for each task all that come before it; the tasks are in order."""
    before = {}
    for task in tasks:
        before[task] = behind(edges[task], before)
    return before


def check_program(described):
    """Hold a program whose tasks are never forgotten against the table."""
    items, clauses, steps = described
    program = Program(items, clauses)
    excluded = {}
    for where, chosen, afresh, _ in steps:
        task, excluded_by_table = program.generate(where, chosen, afresh=afresh)
        excluded[task] = excluded_by_table
    for tasks in program.tasks:
        before = closure(program.found, tasks)
        assert before == closure(program.wanted, tasks)
        for task in tasks:
            latest = program.latest[task]
            assert latest is None or behind(latest, before) == before[task]
            for old in tasks[: task.number]:
                excludes = bool(task.mutexes & old.mutexes)
                if old in excluded[task] and old not in before[task]:
                    assert excludes
                if excludes:
                    assert program.may_exclude(task, old)


def check_forgetful_program(described):
    """Hold a program whose tasks finish in between, and are forgotten as soon as may be, against the table."""
    items, clauses, steps = described
    with patch.dict(Tracker.__init__.__globals__, _FIRST_SWEEP=4, _FIRST_PRUNING=2):
        program = Program(items, clauses, lambda task: task.past)
        for where, chosen, afresh, finishing in steps:
            tasks = program.tasks[where]
            for number in sorted(finishing):
                if number < len(tasks) and all(other.past for other in program.found[tasks[number]]):
                    tasks[number].past = True
            task, excluded = program.generate(where, chosen, afresh=afresh)
            before = closure(program.found, tasks)
            latest = program.latest[task]
            for old in tasks[:-1]:
                if old.past:
                    continue
                if old in program.wanted[task]:
                    assert old in before[task]
                    assert latest is None or old in behind(latest, before)
                elif old in excluded and old not in before[task]:
                    assert task.mutexes & old.mutexes


@given(programs)
@MANY
def test_closure_is_that_of_the_pairs(program):
    """The tracker orders exactly the pairs that the table orders, excludes those it excludes, and has no other edge."""
    check_program(program)


@given(programs)
@MANY
def test_what_is_past_may_be_forgotten(program):
    """With tasks that finish in between, every pair of the table with an unfinished earlier task still holds."""
    check_forgetful_program(program)
