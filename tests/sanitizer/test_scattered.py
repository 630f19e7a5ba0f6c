"""Races on elements that masks and index arrays take: exact, however many elements there are."""

from __future__ import annotations

import random

import numpy as np
import pytest

from offload.sanitizer.clocks import Order
from offload.sanitizer.elements import Scattered, taken, unknown_part
from offload.sanitizer.live import LiveAccesses
from tests.profiles import few


def conflict(one, other):
    """Tell whether unordered writes of two parts of an array are found to conflict."""
    order = Order()
    live = LiveAccesses(order)
    host = order.stretch()
    task, rest = order.fork(host), order.stretch(host)
    for part in one:
        live.note(task, part, True, "task")
    return any(live.note(rest, part, True, "host") for part in other)


@pytest.mark.parametrize("seed", few(10, range(30)))
def test_parts_conflict_if_they_have_an_element_in_common(seed):
    """Random sets of elements conflict exactly if they meet."""
    rng, x = random.Random(seed), np.zeros(400)
    chosen = [set(rng.sample(range(400), rng.choice([2, 60, 120]))) for _ in range(2)]
    if seed % 2:
        chosen[1] -= chosen[0]
    parts = [taken(x, np.array(sorted(elements))) for elements in chosen]
    assert conflict(*parts) is bool(chosen[0] & chosen[1])
    assert conflict(parts[0], [x]) is True
    assert conflict(parts[0], [x[min(chosen[0]) : min(chosen[0]) + 1]]) is True
    assert conflict([x[: min(chosen[0])]], parts[0]) is False


def test_the_two_halves_of_a_mask_do_not_conflict():
    """A mask and its complement take different elements of the same rows."""
    x, mask = np.zeros((50, 50)), np.random.RandomState(1).rand(50, 50) < 0.5
    one, other = taken(x, mask), taken(x, ~mask)
    assert isinstance(one[0], Scattered)
    assert conflict(one, other) is False
    assert conflict(one, one) is True


def test_a_write_of_some_elements_forgets_no_other_access():
    """An access is not forgotten when a scattered write follows that covers only a part of it."""
    x = np.zeros(100)
    order = Order()
    live = LiveAccesses(order)
    host = order.stretch()
    task = order.fork(host)
    live.note(task, x, True, "task")
    after = order.stretch(task)
    (part,) = taken(x, np.random.RandomState(1).permutation(100)[:50])
    live.note(after, part, True, "after")
    rest = order.stretch(host)
    assert "task" in live.note(rest, x, True, "host")


def test_elements_that_are_not_known_conflict_with_nothing():
    """A pair that cannot be decided gives no finding."""
    x = np.zeros(10)
    assert conflict([unknown_part(x)], [x]) is False
    assert conflict([x], [unknown_part(x)]) is False
