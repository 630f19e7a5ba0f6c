"""The live accesses against brute force, and their cost."""

import random
import time

import numpy as np
import pytest

from offload.sanitizer.clocks import Order
from offload.sanitizer.live import LiveAccesses


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


@pytest.mark.parametrize("seed", range(40))
def test_all_pairs(seed):
    """Without forgetting, exactly the conflicting pairs that nothing orders are found, with their number."""
    rng, order, x = random.Random(seed), Order(), np.zeros(64, "u1")
    live = LiveAccesses(order, forgets=False)
    done, stretches = [], list(_random_order(rng, order, 60))
    if seed % 2:
        rng.shuffle(stretches)  # an access may be noted before one that it follows
    for stretch in stretches:
        for _ in range(rng.randrange(3)):
            view, writes, side = _views(rng, x), rng.random() < 0.5, rng.randrange(5)
            expected = {}
            for other, seen, wrote, at in dict.fromkeys(done):
                if (writes or wrote) and seen & _bytes(view, x) and not order.is_ordered(other, stretch):
                    expected[at] = expected.get(at, 0) + 1
            found = {}
            for at, n in live.count(stretch, view, writes, side):
                found[at] = found.get(at, 0) + n
            assert set(found) == set(expected)
            done.append((stretch, frozenset(_bytes(view, x)), writes, side))


def _bytes(view, x):
    """Return the numbers of the bytes of ``x`` that a view has."""
    marks = np.zeros_like(x)
    first = view.__array_interface__["data"][0] - x.__array_interface__["data"][0]
    np.lib.stride_tricks.as_strided(marks[first:], view.shape, view.strides)[...] = 1
    return frozenset(np.flatnonzero(marks).tolist())
