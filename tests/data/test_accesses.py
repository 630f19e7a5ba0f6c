"""Accesses of parts of a buffer: what meets a section, however they have come and gone."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from offload.arrays.sections import HOST, overlaps, section_of
from offload.data.accesses import Accesses

LANES = [object() for _ in range(4)]


class Access(NamedTuple):
    """A place on a lane; without an event the lane is known to have passed it."""

    number: int
    event: object = "recorded"


def some_section(rng):
    """Return a dense section, or one of columns or rows of a matrix."""
    if rng.random() < 0.6:
        return section_of(HOST, 8 * rng.randrange(200), (rng.choice([1, 2, 8, 200]),), None, 8)
    return section_of(HOST, 8 * rng.randrange(40), (rng.randrange(1, 6), rng.randrange(1, 5)), (320, 8), 8)


def steps(accesses, rng):
    """Yield one change after another."""
    for number in range(400):
        key = rng.choice(LANES), some_section(rng)
        accesses[key] = Access(number, rng.choice(["recorded", "recorded", None]))
        yield
        if accesses and rng.random() < 0.3:
            del accesses[rng.choice(list(accesses))]
            yield
        if rng.random() < 0.1:
            key = rng.choice([key, (LANES[0], some_section(rng))])
            assert accesses.pop(key, "none") == {**accesses, key: "none"}[key] or key not in accesses
            yield
        if rng.random() < 0.05:
            accesses.prune(lambda access: access.number % rng.choice([2, 3]) == 0)
            yield
        if rng.random() < 0.01:
            accesses.clear()
            yield


@pytest.mark.parametrize("seed", range(8))
def test_what_meets_a_section(seed):
    """Found is each access that is not over and shares a byte with the section, once, and nothing else."""
    rng = random.Random(seed)
    accesses = Accesses()
    asked = [some_section(rng) for _ in range(4)]  # again and again
    for _ in steps(accesses, rng):
        section = rng.choice([*asked, some_section(rng)])
        expected = [access for (_, other), access in accesses.items() if access.event and overlaps(other, section)]
        assert sorted(accesses.overlapping(section)) == sorted(expected)


def test_all_is_over():
    """Where all that meets a section is over, and there is nothing else, nothing is kept."""
    accesses = Accesses()
    whole = section_of(HOST, 0, (9,), None, 8)
    for number, lane in enumerate(LANES):
        accesses[lane, whole] = Access(number, None)
    assert accesses.overlapping(whole) == []
    assert not accesses


def test_what_is_over_is_forgotten():
    """A prune leaves what is not over, and twice as many accesses until the next."""
    accesses = Accesses()
    for number in range(200):
        accesses[LANES[0], section_of(HOST, 8 * number, (1,), None, 8)] = Access(number)
    accesses.prune(lambda access: access.number < 100)
    assert sorted(access.number for access in accesses.values()) == list(range(100, 200))
    assert accesses.limit == 200
    assert accesses.overlapping(section_of(HOST, 0, (200,), None, 8)) == [Access(number) for number in range(100, 200)]
