"""The live accesses against brute force, and their cost."""

import random
import time
import weakref

import numpy as np
import pytest

from offload.sanitizer.clocks import Order
from offload.sanitizer.live import LiveAccesses
from tests.profiles import few


def _views(rng, x):
    """Return a random view of a part of an array of 64 bytes."""
    kind = rng.randrange(4)
    if kind == 0:
        return x
    if kind == 1:
        first = rng.randrange(60)
        return x[first : first + rng.randrange(1, 5)]
    if kind == 2:
        return x[rng.randrange(3) :: rng.randrange(2, 5)]
    return x.reshape(8, 8)[rng.randrange(3) : rng.randrange(4, 9), rng.randrange(3) : rng.randrange(4, 9)]


def _random_order(rng, order, n):
    """Make stretches in a few chains with some edges between them."""
    tails = [order.stretch() for _ in range(3)]
    for _ in range(n):
        at = rng.randrange(3)
        others = [tails[rng.randrange(3)]] if rng.random() < 0.3 else []
        if rng.random() < 0.2:
            yield order.fork(tails[at], *others)
            tails[at] = order.stretch(tails[at])
        else:
            tails[at] = order.stretch(tails[at], *others)
            yield tails[at]


@pytest.mark.parametrize("seed", few(12, range(40)))
def test_all_pairs(seed):
    """Without forgetting, exactly the conflicting pairs that nothing orders are found, each once, with its bytes."""
    rng, order, x = random.Random(seed), Order(), np.zeros(64, "u1")
    live = LiveAccesses(order, forgets=False)
    done, stretches = {}, list(_random_order(rng, order, 60))
    if seed % 2:
        rng.shuffle(stretches)  # an access may be noted before one that it follows
    for stretch in stretches:
        for _ in range(rng.randrange(3)):
            view, writes, side = _views(rng, x), rng.random() < 0.5, rng.randrange(5)
            expected, access = {}, (stretch, frozenset(_bytes(view, x)), writes, side)
            for other, seen, wrote, at in () if access in done else done:
                if (writes or wrote) and seen & access[1] and not order.is_ordered(other, stretch):
                    n, shared = expected.get(at, (0, frozenset()))
                    expected[at] = n + 1, shared | (seen & access[1])
            found, first = {}, x.__array_interface__["data"][0]
            for at, count, _, runs in live.conflicts(stretch, view, writes, side):
                n, shared = found.get(at, (0, frozenset()))
                found[at] = n + count, shared.union(*(range(lo - first, hi - first) for lo, hi in runs))
            assert found == expected
            done[access] = None


def _bytes(view, x):
    """Return the numbers of the bytes of ``x`` that a view has."""
    marks = np.zeros_like(x)
    first = view.__array_interface__["data"][0] - x.__array_interface__["data"][0]
    np.lib.stride_tricks.as_strided(marks[first:], view.shape, view.strides)[...] = 1
    return frozenset(np.flatnonzero(marks).tolist())


@pytest.fixture
def fork():
    """An order with a host and two tasks that nothing orders."""
    order = Order()
    host = order.stretch()
    return order, order.fork(host), order.fork(host), order.stretch(host)


@pytest.mark.parametrize("seed", few(12, range(40)))
def test_forgetting_loses_no_byte(seed):
    """With forgetting, a race is found on an access exactly if there is one with some earlier access."""
    rng, order, x = random.Random(seed), Order(), np.zeros(64, "u1")
    live, whole = LiveAccesses(order), LiveAccesses(order, forgets=False)
    for stretch in _random_order(rng, order, 80):
        for _ in range(rng.randrange(3)):
            access = stretch, _views(rng, x), rng.random() < 0.5, rng.randrange(5)
            assert bool(live.note(*access)) == bool(whole.note(*access))


def test_what_is_covered_is_forgotten(fork, monkeypatch):
    """Of many accesses, one goes when a later write covers it that comes after it, and not before."""
    monkeypatch.setattr("offload.sanitizer.live._REMEMBERED", 0)
    order, task, other, host = fork
    x, live = np.zeros(8), LiveAccesses(order)
    live.note(task, x[:4], False, "read")
    live.note(task, x[4:], True, "write")
    assert len(live) == 2
    live.note(other, x, True, "unordered")
    assert len(live) == 3
    live.note(order.stretch(host, task), x[:6], True, "part")
    assert len(live) == 3
    live.note(order.stretch(host, task, other), x, True, "whole")
    assert len(live) == 2


def test_freed_memory(fork):
    """Accesses to memory that was freed do not conflict with those of its next owner."""
    order, task, other, _ = fork
    x, live = np.zeros(8), LiveAccesses(order)
    low = x.__array_interface__["data"][0]
    live.note(task, x, True, "old")
    live.note(task, x[::2], True, "old")
    live.freed(low, low + x.nbytes)
    assert live.note(other, x, True, "new") == []
    assert live.note(task, x, True, "newer") == ["new"]


def test_compared_stretches(fork):
    """Stretches that are not compared do not conflict."""
    order, task, other, host = fork
    live = LiveAccesses(order, compares=lambda one, two: {one, two} != {task, other})
    x = np.zeros(8)
    live.note(task, x, True, "task")
    assert live.note(other, x, True, "other") == []
    assert live.note(host, x, True, "host") == ["task", "other"]


def test_layouts(fork):
    """Interleaved views share no byte, an array without elements has none, and broadcast elements are one place."""
    order, task, other, _ = fork
    x, live = np.zeros((8, 8)), LiveAccesses(order)
    live.note(task, x[::2, 1::2], True, "even")
    live.note(task, x[:0], True, "empty")
    assert live.note(other, x[1::2, 1::2], True, "odd") == []
    assert live.note(other, x[:, ::2], True, "columns") == []
    assert live.note(other, x[::-1, ::-1][1::2, ::2], True, "reversed") == ["even"]
    assert live.note(other, np.broadcast_to(x[:1, 1], (5,)), False, "broadcast") == ["even"]


def test_an_undecided_pair_gives_none(fork):
    """A pair of views whose overlap would take too long to decide does not conflict."""
    order, task, other, _ = fork
    live, memory = LiveAccesses(order), np.zeros(192_163_377, "i1")  # NumPy's own example of a hard pair
    as_strided = np.lib.stride_tricks.as_strided
    one = as_strided(memory, (1049, 1049, 1049), (36_674, 61_119, 85_569))
    two = as_strided(memory[64_023_025:], (1049, 1049, 1), (12_223, 12_224, 1))
    live.note(task, one, True, "one")
    assert live.note(other, two, True, "two") == []


def test_many_readers(fork):
    """Of very many unordered readers at one line, some stay, and a writer is compared with them."""
    order, _, _, host = fork
    live, x = LiveAccesses(order), np.zeros(8)
    readers = [order.fork(host) for _ in range(2000)]
    for reader in readers:
        live.note(reader, x, False, "line")
    assert len(live) < 200
    assert set(live.note(order.fork(host), x, True, "writer")) == {"line"}
    assert live.note(order.stretch(host, *readers), x, True, "joined") == ["writer"]


def test_memory_is_not_kept(fork):
    """Live accesses keep no array."""
    order, task, _, _ = fork
    live, x = LiveAccesses(order), np.zeros(8)
    gone = weakref.ref(x)
    live.note(task, x, True, "a")
    del x
    assert gone() is None


def _loop_s():
    """Return what a loop of 5,000 additions takes: the measure of this machine, as fast as it is at the moment."""
    start_s = time.process_time()
    total = 0
    for number in range(5000):
        total += number
    return time.process_time() - start_s


def test_cost():
    """An access costs less than 5,000 additions in a loop, and some 1,000, where 20 others are live at the place."""
    order = Order()
    host = order.stretch()
    live, x = LiveAccesses(order), np.zeros(64)
    tasks = [order.fork(host) for _ in range(20)]
    for task in tasks:
        live.note(task, x, False, ("line", task))
    loops_s = spent_s = 0.0
    for _ in range(20):
        loops_s += _loop_s()
        start_s = time.process_time()
        for _ in range(100):
            host = order.stretch(host)
            live.note(host, x, False, "host")
        spent_s += (time.process_time() - start_s) / 100
    assert spent_s < loops_s
    loops_s = spent_s = 0.0
    for _ in range(20):
        loops_s += _loop_s()
        start_s = time.process_time()
        for _ in range(5):
            joined = order.stretch(host, *tasks)
            live.note(joined, x, True, "write")
            for task in tasks:
                live.note(task, x, False, ("line", task))
        spent_s += (time.process_time() - start_s) / 105
    assert spent_s < loops_s
