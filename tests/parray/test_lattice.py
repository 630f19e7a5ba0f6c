"""Bounded integers with a given weighted sum, against all of them; and steps that are not nested at 10¹² elements."""

from __future__ import annotations

import itertools
import random
from math import prod

import pytest

from offload.parray import injective
from offload.parray.injective import is_injective
from offload.parray.lattice import Unknown, has_solution


def random_unknowns(draw, most=5):
    """Few values each, some of them one."""
    found = []
    for _ in range(draw.randint(1, most)):
        low = draw.randint(-6, 3)
        found.append(Unknown(draw.randint(1, 60), low, low + draw.randint(0, 6)))
    return found


def test_random_unknowns():
    """A solution is found exactly where one of all combinations is one."""
    n_solved = 0
    for seed in range(1500):
        draw = random.Random(seed)
        unknowns, target = random_unknowns(draw), draw.randint(-80, 80)
        every = itertools.product(*[range(unknown.low, unknown.high + 1) for unknown in unknowns])
        steps = [unknown.step for unknown in unknowns]
        expected = any(sum(map(int.__mul__, values, steps)) == target for values in every)
        assert has_solution(unknowns, target) == expected, (unknowns, target)
        n_solved += expected
    assert 200 < n_solved < 1300


def test_random_digits_by_the_lattice(monkeypatch):
    """Where no value is tried first, all is decided as by the sums."""
    monkeypatch.setattr(injective, "TRIED_FIRST", 0)
    n_injective = 0
    for seed in range(600):
        draw = random.Random(seed)
        digits = [
            (draw.randint(2, 5), draw.choice([-1, 1]) * draw.randint(1, 90), ()) for _ in range(draw.randint(2, 4))
        ]
        every = itertools.product(*[range(count) for count, *_ in digits])
        sums = [sum(i * step for i, (_, step, _) in zip(at, digits, strict=True)) for at in every]
        assert is_injective(digits) == (len(set(sums)) == len(sums)), digits
        n_injective += len(set(sums)) == len(sums)
    assert 150 < n_injective < 450


PRIMES = 191, 193, 197, 199, 211, 223


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_remainders(n):
    """By the Chinese remainder theorem sums of multiples of all but one prime differ; one index more, and two meet."""
    primes = PRIMES[:n]
    digits = [(p, prod(primes) // p, ()) for p in primes]
    size = 1 << 40
    assert is_injective(digits, size) is True
    for k in range(1, n):
        more = [(count + (i in {0, k}), step, ()) for i, (count, step, _) in enumerate(digits)]
        assert is_injective(more, size) is False


def test_planted():
    """Two indices of one sum are found among 10¹⁵, wherever they are."""
    for seed in range(30):
        draw = random.Random(seed)
        counts = [draw.randint(500, 2000) for _ in range(5)]
        steps = [draw.randint(1 << 50, 1 << 52) for _ in range(4)]
        apart = [draw.randint(-count // 2, count // 2) or 1 for count in counts[:4]]
        last = abs(sum(map(int.__mul__, apart, steps))) or 1  # one of these apart in the last digit
        assert (
            is_injective([(count, step, ()) for count, step in zip(counts, [*steps, last], strict=True)], 1 << 50)
            is False
        )
