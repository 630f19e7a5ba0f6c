"""Indices with several terms, which may be digits of other numbers: ``(k % n) * m + k // n``.

A *coordinate* is a term of an index: a trip, or a digit ``base // unit % divisor`` of a form. If each coefficient is
larger than all that the smaller ones can add up to, equal indices have equal coordinates. If the digits of a base are
all there, in whatever dimensions, equal digits are of equal bases. So the equations of indices become one equation for
each base. Types of arrays make such indices, and programs that count several dimensions with one variable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from offload.loops.proofs.affine import AffineForm

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from offload.loops.proofs.affine import Space

Pair: TypeAlias = tuple[AffineForm, AffineForm]  # Of the first access, and of the second


class Coordinate(NamedTuple):
    """A term of an index: ``coefficient * (base // unit % divisor)``."""

    coefficient: int  # not 0
    unit: int
    divisor: int | None  # None: no remainder is taken
    base: AffineForm
    low: int  # of the digit
    high: int  # included


class EqualParts(NamedTuple):
    """The forms that are equal where the indices of two accesses are equal."""

    pairs: tuple[Pair, ...]
    is_complete: bool  # the indices are equal wherever these are


def equal_parts(space: Space, indices: Sequence[Pair]) -> EqualParts:
    """Return the forms that are equal where indices of two accesses are, those of each dimension a pair."""
    groups: dict[Pair, set[tuple[int, int | None]]] = {}  # digits that are equal, by their bases
    pairs: list[Pair] = []
    known: set[Pair] = set()  # bases that are equal
    waiting = [*indices]
    while waiting:
        for pair in waiting:
            digits = _equal_digits(space, *pair)
            if digits is None:
                pairs.append(pair)
            for bases, digit in digits or ():
                groups.setdefault(bases, set()).add(digit)
        waiting = [bases for bases, digits in groups.items() if bases not in known and _are_all(space, bases, digits)]
        known.update(waiting)  # they may be made of digits of other numbers in their turn
    if len(known) == len(groups):
        return EqualParts(tuple(pairs), is_complete=True)
    return EqualParts((*pairs, *indices), is_complete=False)


def _equal_digits(space: Space, one: AffineForm, other: AffineForm) -> list[tuple[Pair, tuple[int, int | None]]] | None:
    """Return the digits that are equal where two forms are: with base, unit and divisor; None if nothing follows."""
    has_digits = any(atom in space.digits for atom, _ in (*one.terms, *other.terms))
    if one.constant != other.constant or (len(one.terms) < 2 and not has_digits):
        return None
    pairs = list(zip(_coordinates(space, one), _coordinates(space, other), strict=False))
    if len(one.terms) != len(other.terms) or any(mine[:3] != others[:3] for mine, others in pairs):
        return None
    reach = 0  # the most that the coordinates so far, of smaller coefficients, can add to a difference
    for mine, others in pairs:
        if abs(mine.coefficient) <= reach:
            return None
        reach += abs(mine.coefficient) * (max(mine.high, others.high) - min(mine.low, others.low))
    return [((mine.base, others.base), (mine.unit, mine.divisor)) for mine, others in pairs]


def _coordinates(space: Space, form: AffineForm) -> list[Coordinate]:
    """Return the terms of an index, those of small coefficients first."""
    found = []
    for atom, coefficient in form.terms:
        base, unit, divisor = _digit(space, atom)
        found.append(Coordinate(coefficient, unit, divisor, base, space.atoms[atom].low, space.atoms[atom].high))
    return sorted(found, key=lambda one: (abs(one.coefficient), one.coefficient, one.unit, one.divisor or 0))


def _digit(space: Space, atom: int) -> tuple[AffineForm, int, int | None]:
    """Return the base, the unit and the divisor of the digit that an atom is; other atoms are their own base."""
    if atom not in space.digits:
        return AffineForm(0, ((atom, 1),)), 1, None
    operator, base, divisor = space.digits[atom]
    unit = 1
    while len(base.terms) == 1 and base.constant == 0 and base.terms[0][1] == 1 and base.terms[0][0] in space.digits:
        inner_operator, inner, inner_divisor = space.digits[base.terms[0][0]]
        if inner_operator == "%":
            break
        base, unit = inner, unit * inner_divisor
    return (base, unit * divisor, None) if operator == "//" else (base, unit, divisor)


def _are_all(space: Space, bases: Pair, digits: Collection[tuple[int, int | None]]) -> bool:
    """Return whether equal digits are of equal bases: the digits follow each other, and the last one is the rest."""
    expected: int | None = 1
    for unit, divisor in sorted(digits, key=lambda digit: digit[0]):
        if unit != expected:
            return False
        expected = None if divisor is None else unit * divisor
    if expected is None:
        return True
    ends = [end for base in bases for end in space.extremes(base)]
    return max(ends) - min(ends) < expected
