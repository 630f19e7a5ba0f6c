"""The order of stretches, and the live accesses."""

import random
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.sanitizer.clocks import Order
from tests.profiles import examples, few


class Closure:
    """The same order by brute force: the set of all stretches before each."""

    def __init__(self):
        self.before = []
        self.edges = []

    def stretch(self, *before):
        self.edges.append(set(before))
        return len(self.edges) - 1

    def is_before(self, one, other):
        seen, front = set(), [other]
        while front:
            for near in self.edges[front.pop()]:
                if near == one:
                    return True
                if near not in seen:
                    seen.add(near)
                    front.append(near)
        return False

    def add(self, one, other):
        if one != other and not self.is_before(other, one):
            self.edges[other].add(one)


steps = st.lists(
    st.tuples(
        st.sampled_from(["stretch", "fork", "late"]),
        st.lists(st.integers(0, 10**6), min_size=1, max_size=4),
        st.booleans(),
    ),
    max_size=40,
)


def _run(steps):
    order, closure = Order(), Closure()
    for kind, numbers, is_near in steps:
        n = len(order)
        if not n:
            order.stretch()
            closure.stretch()
            continue
        picked = [n - 1 - number % min(n, 4) if is_near else number % n for number in numbers]
        if kind == "late" and len(picked) > 1:
            order.add(picked[0], picked[1])
            closure.add(picked[0], picked[1])
        else:
            (order.fork if kind == "fork" else order.stretch)(*picked)
            closure.stretch(*picked)
    return order, closure


@given(steps)
@settings(max_examples=examples(300))
def test_closure(steps):
    """One stretch is before another exactly if a path leads from it there."""
    order, closure = _run(steps)
    n = len(order)
    for one in range(n):
        for other in range(n):
            assert order.is_before(one, other) == closure.is_before(one, other), (one, other)


@pytest.mark.parametrize("seed", few(6, range(30)))
def test_large_closure(seed):
    """The same holds for some hundred stretches with many long chains, and while edges come late."""
    rng = random.Random(seed)
    order, closure = Order(), Closure()
    tails = [order.stretch() for _ in range(rng.choice([2, 5, 40]))]
    for _ in tails:
        closure.stretch()
    for _ in range(300):
        at = rng.randrange(len(tails))
        before = [tails[at], *rng.sample(tails, rng.randrange(3) if len(tails) > 2 else 0)]
        tails[at] = (order.fork if rng.random() < 0.2 else order.stretch)(*before)
        closure.stretch(*before)
        if rng.random() < 0.1:
            one, other = rng.randrange(len(order)), rng.randrange(len(order))
            order.add(one, other)
            closure.add(one, other)
        for _ in range(5):
            one, other = rng.randrange(len(order)), rng.randrange(len(order))
            assert order.is_before(one, other) == closure.is_before(one, other)


def test_circle():
    """An edge that would close a circle is dropped."""
    order = Order()
    one = order.stretch()
    two = order.stretch(one)
    other = order.stretch()
    order.add(two, other)
    order.add(other, one)
    order.add(two, one)
    assert order.is_before(one, other)
    assert not order.is_before(other, one)
    assert not order.is_before(two, one)
    assert not order.is_before(one, one)


def test_same_and_either_way():
    """A stretch is ordered with itself, and with those before and after it."""
    order = Order()
    one = order.stretch()
    two, three = order.fork(one), order.stretch(one)
    assert order.is_ordered(one, one)
    assert order.is_ordered(two, one)
    assert not order.is_ordered(two, three)
    assert order.chain(one) == order.chain(three) != order.chain(two)


def _wide(order):
    """Rounds of tasks without order among themselves, joined by the host; nested ones among them."""
    host, asked = order.stretch(), []
    for _ in range(10):
        tasks = []
        for _ in range(1000):
            task = order.fork(host)
            host = order.stretch(host)
            inner = [order.fork(task) for _ in range(4)]
            tasks.append(order.stretch(task, *inner))
            asked += [(one, tasks[-1], True) for one in inner]
            asked.append((inner[0], inner[1], False))
        last = asked[-20:]
        host = order.stretch(host, *tasks)
        asked += [(one, host, True) for one, _, _ in last]
        later = order.fork(host)
        asked += [(one, later, True) for one, _, _ in last for _ in range(10)]
        asked += [(later, one, False) for one, _, _ in last]
    return asked


def _wavefront(order, n=220):
    """Tiles, each after the one on its left and the one above it."""
    host, asked, above = order.stretch(), [], None
    for _ in range(n):
        row = []
        for column in range(n):
            before = [*row[-1:], *(above[column : column + 1] if above else [])]
            row.append(order.fork(host, *before))
            asked += [(one, row[-1], True) for one in before]
            host = order.stretch(host)
        if above:
            asked += [(above[column], row[-1], True) for column in range(n)]
            asked += [(row[column], above[column + 1], False) for column in range(0, n - 1, 4)]
        above = row
    return asked


def _pingpong(order):
    """Two streams and a host that wait for each other in turn."""
    host, one, other = order.stretch(), order.stretch(), order.stretch()
    first, asked = one, []
    for number in range(20_000):
        one = order.stretch(one, host)
        other = order.stretch(other, one)
        asked += [(first, other, True), (one, other, True), (other, one, False)]
        if number % 3 == 0:
            one = order.stretch(one, other)
            asked += [(first, one, True), (other, one, True)]
        if number % 100 == 0:
            host = order.stretch(host, other)
    return asked


def _logger(order):
    """Tasks that a stream follows, which nobody waits for, and then a second reader that the host waits for."""
    host, log, asked = order.stretch(), order.stretch(), []
    for _ in range(20_000):
        task = order.fork(host)
        log = order.stretch(log, task)
        reader = order.fork(host, task)
        host = order.stretch(host, reader)
        asked += [(task, host, True), (log, host, False), (task, log, True)]
    return asked + [(one, host, True) for one, _, _ in asked[::3]] + [(log, one, False) for one, _, _ in asked[::3]]


@pytest.mark.parametrize("make", few(2, [_pingpong, _wavefront, _wide, _logger]))
def test_cost(make):
    """Some 50,000 stretches and as many questions take a few seconds at most."""
    start_s = time.process_time()
    order = Order()
    asked = make(order)
    for one, other, expected in asked:
        assert order.is_before(one, other) is expected
    assert len(order) >= 40_000
    assert time.process_time() - start_s < 15


def test_memory():
    """A stretch with an edge from another chain takes less than 2 KB."""
    tracemalloc.start()
    try:
        order = Order()
        host = order.stretch()
        for _ in range(5_000):
            task = order.fork(host)
            host = order.stretch(host, task)
        assert tracemalloc.get_traced_memory()[0] < 2_000 * len(order)
    finally:
        tracemalloc.stop()
