"""Meetings of two accesses: linear equations between the trips of two iterations.

Each dimension says that ``first(t) - second(s)`` is 0, or lies in a small interval if bytes are compared. The divisor
of the coefficients or the extremes (Banerjee) may exclude it. With equal coefficients only the *distance* ``d = s - t``
matters. All equations together narrow the intervals of distances: an empty one means no meeting, all 0 means the same
iteration. Narrowing loses no solution. A meeting is proved only if each equation is solved by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.loops.proofs.affine import Interval

# Of narrowing; two or three settle what programs have, wide coefficients could creep on.
_ROUNDS: Final = 16


@dataclass(frozen=True, slots=True)
class Inner:
    """A term of an inner loop: ``coefficient * trip`` with ``0 <= trip < trips``."""

    atom: int  # the trip of the loop
    coefficient: int  # of the trip in the index
    trips: int  # of the loop; one number in the whole nest


@dataclass(frozen=True, slots=True)
class Equation:
    """``constant + rest - sum(coefficient * distance)`` is in `slack`."""

    coefficients: tuple[int, ...]  # of the axes' distances
    constant: int  # of the first access less that of the second
    rest: Interval  # extremes of all other terms
    whole: Interval  # extremes of everything
    divisor: int  # the greatest common divisor of all coefficients; 0 if there are none
    slack: Interval  # (0, 0), or what bytes of two elements may lie apart
    # What the other terms are, if they are at most one inner trip a side: those of the first, of the second.
    inner: tuple[tuple[Inner, ...], tuple[Inner, ...]] | None

    @property
    def is_excluded(self) -> bool:
        """Whether no integers solve it."""
        low, high = self.slack
        if self.whole[1] < low or high < self.whole[0]:
            return True
        return self.divisor > 0 and low + (self.constant - low) % self.divisor > high


def narrowed(equations: Sequence[Equation], distances: Sequence[Interval]) -> list[Interval] | None:
    """Return the distances that the equations leave, or None if there are none."""
    found = list(distances)
    for _ in range(_ROUNDS):
        before = found.copy()
        for equation in equations:
            terms = [_times(interval, by) for interval, by in zip(found, equation.coefficients, strict=True)]
            low, high = _wanted(equation)
            least, greatest = sum(term[0] for term in terms), sum(term[1] for term in terms)
            for axis, by in enumerate(equation.coefficients):
                if not by:
                    continue
                part = low - (greatest - terms[axis][1]), high - (least - terms[axis][0])
                ends = divided(part, by)
                found[axis] = max(found[axis][0], ends[0]), min(found[axis][1], ends[1])
                if found[axis][0] > found[axis][1]:
                    return None
        if found == before:
            break
    return found


def is_solved(equations: Sequence[Equation], distances: Sequence[Interval]) -> bool:
    """Whether each equation is certainly solvable, independently of the others, by any distances of these intervals."""
    used: tuple[set[int], set[int]] = set(), set()
    for equation in equations:
        if equation.inner is None:
            return False
        needed = [interval for interval, by in zip(distances, equation.coefficients, strict=True) if by]
        if any(low != high for low, high in needed):
            return False
        moved = sum(by * low for by, (low, _) in zip(equation.coefficients, distances, strict=True) if by)
        if not _meet(equation, equation.constant - moved):
            return False
        for atoms, terms in zip(used, equation.inner, strict=True):
            if any(term.atom in atoms for term in terms):
                return False
            atoms.update(term.atom for term in terms)
    return True


def _wanted(equation: Equation) -> Interval:
    """Return the interval of ``sum(coefficient * distance)``."""
    low, high = equation.slack
    if equation.divisor:  # of the slack only what the divisor allows
        low += (equation.constant - low) % equation.divisor
        high -= (high - equation.constant) % equation.divisor
    return equation.constant + equation.rest[0] - high, equation.constant + equation.rest[1] - low


def _meet(equation: Equation, constant: int) -> bool:
    """Whether ``constant + first inner term - second inner term`` can be in the slack."""
    assert equation.inner is not None
    first, second = ((terms[0].coefficient, terms[0].trips) if terms else (0, 1) for terms in equation.inner)
    low, high = equation.slack
    if not first[0] and not second[0]:
        return low <= constant <= high
    return low == high and _progressions_meet(*first, *second, constant - low)


def _progressions_meet(one: int, n_one: int, other: int, n_other: int, constant: int) -> bool:
    """Whether ``one*x - other*y + constant = 0`` for some ``0 <= x < n_one`` and ``0 <= y < n_other``."""
    if not one:
        one, n_one, other, n_other = -other, n_other, -one, n_one
    divisor = gcd(one, other)
    if constant % divisor:
        return False
    one, other, constant = one // divisor, other // divisor, constant // divisor
    reach = _times((0, n_other - 1), other)
    low, high = divided((reach[0] - constant, reach[1] - constant), one)
    low, high = max(low, 0), min(high, n_one - 1)
    if other:  # x is known modulo the other's coefficient
        low += (-constant * pow(one, -1, abs(other)) - low) % abs(other)
    return low <= high


def _times(interval: Interval, by: int) -> Interval:
    ends = interval[0] * by, interval[1] * by
    return (ends[0], ends[1]) if by >= 0 else (ends[1], ends[0])


def divided(interval: Interval, by: int) -> Interval:
    """Return the integers whose multiples lie in an interval; `by` is not 0."""
    low, high = interval if by > 0 else (-interval[1], -interval[0])
    return -(-low // abs(by)), high // abs(by)
