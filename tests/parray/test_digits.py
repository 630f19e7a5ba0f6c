"""Digits by themselves: extremes, canonical form, wraps, compositions, and whether a number comes twice, against the
numbers."""

from __future__ import annotations

import itertools
import random

from offload.parray import ArrayType, dim, disp, wrap
from offload.parray.composition import composed
from offload.parray.digits import extremes, merged, part_of, split, wrapped
from offload.parray.injective import MOST_BOXES, is_injective


def numbers(digits, base=0):
    """All numbers that digits give, in order."""
    return [base + sum(map(part_of, digits, at)) for at in itertools.product(*(range(count) for count, *_ in digits))]


def random_digits(draw, most=4, cuts=0.3, steps=(-6, 12)):
    """Digits with and without cuts."""
    found = []
    for _ in range(draw.randint(0, most)):
        count = draw.randint(1, 5)
        starts = (
            sorted(draw.sample(range(1, count), min(count - 1, draw.randint(1, 2)))) if draw.random() < cuts else []
        )
        found.append(
            (count, draw.randint(*steps), tuple((start, draw.choice([-5, -3, -1, 0, 1, 2, 4, 9])) for start in starts))
        )
    return found


def test_random_digits():
    """Extremes are attained, the canonical form gives the same numbers, and only injective digits are so called."""
    for seed in range(3000):
        digits = random_digits(random.Random(seed))
        found = numbers(digits)
        assert extremes(0, digits) == (min(found), max(found))
        assert numbers(merged(digits)) == found
        assert merged(merged(digits)) == merged(digits)
        assert all(count > 1 for count, *_ in merged(digits))
        assert is_injective(merged(digits)) == (len(set(found)) == len(found)), digits


def test_random_wraps():
    """What wrapped decides is right."""
    n_decided = 0
    for seed in range(3000):
        draw = random.Random(seed)
        digits, n, base = random_digits(draw, 3), draw.randint(1, 20), draw.randint(-9, 9)
        found = wrapped(base, digits, n)
        if found is None:
            continue
        n_decided += 1
        after = [digit for group in found[1] for digit in group]
        assert len(found[1]) == len(digits)
        assert numbers(after, found[0]) == [number % n for number in numbers(digits, base)]
    assert n_decided > 1000


def test_random_compositions():
    """What composed decides is right, for levels with and without cuts."""
    n_decided = n_seen = 0
    for seed in range(6000):
        draw = random.Random(seed)
        levels = merged(random_digits(draw, 4, cuts=0.15))
        values = numbers(levels, 7)
        digits = random_digits(draw, 3, cuts=0.2, steps=(-2, 8))
        low, high = extremes(0, digits)
        if high - low >= len(values):
            continue
        base = draw.randint(-low, len(values) - 1 - high)
        n_seen += 1
        found = composed(7, levels, base, digits)
        if found is None:
            continue
        n_decided += 1
        after = [digit for group in found[1] for digit in group]
        assert numbers(after, found[0]) == [values[number] for number in numbers(digits, base)]
    assert n_decided > n_seen // 2 > 500


def test_split():
    """A digit is split where its count and its cuts are multiples, and only there."""
    assert split((6, 2, ()), 3) == ((2, 6, ()), (3, 2, ()))
    assert split((6, 2, ((3, 5),)), 3) == ((2, 6, ((1, 5),)), (3, 2, ()))
    assert split((6, 2, ((2, 5),)), 3) is None
    assert split((6, 2, ()), 4) is None


def test_many_cuts():
    """What would be cut too often is looked at by the element, and is one digit where it is not large."""
    many = ArrayType(dim(200, disp(1), wrap(7)))
    assert len(many.form[1][0][2]) == 28
    large = ArrayType(dim(20000, disp(1), wrap(7)))
    assert large.form is None
    assert large.offsets().tolist() == [(k + 1) % 7 for k in range(20000)]
    assert large.nest is None
    assert many.offsets().tolist() == [(k + 1) % 7 for k in range(200)]
    assert many.nest is None
    assert not many.is_injective
    assert composed(0, ((300, 1, ()), (2, 1000, ())), 1, [(599, 1, ())]) is None  # carries 299 times
    twice = ArrayType(dim(100, disp(1), wrap(9), wrap(2)))
    assert twice.offsets().tolist() == [(k + 1) % 9 % 2 for k in range(100)]
    backwards = ArrayType(dim(40, disp(1), wrap(40), disp(3), wrap(7)))
    assert backwards.offsets().tolist() == [((k + 1) % 40 + 3) % 7 for k in range(40)]
    around = ArrayType([dim(5, disp(1), wrap(5), ArrayType((5, k + 1))[0]) for k in range(7)])
    assert around.form is not None
    assert len(around.form[1]) == 7
    assert MOST_BOXES < 2**7
    assert not around.is_injective
