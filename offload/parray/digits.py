"""Offsets as digits: the cost of a type depends on its dimensions, not on its elements.

An index is written in a mixed radix: ``base + sum(part of each digit)``. A digit is ``(count, step, cuts)``; its part
is ``step * d``, and each cut ``(start, jump)`` adds its jump to all ``d >= start``. Functions return None if digits do
not decide; then offsets are examined one by one. *Canonical form* (`merged`): no count is 1, no digit without cuts
continues the next one, no digit with cuts could be written without them. See docs/design/theory.md, "Digits".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

Cuts: TypeAlias = tuple[tuple[int, int], ...]
# ``(count, step, cuts)``; each cut ``(start, jump)`` with 0 < start < count, ascending, no jump 0.
Digit: TypeAlias = tuple[int, int, Cuts]

Digits: TypeAlias = Sequence[Digit]
Groups: TypeAlias = list[tuple[Digit, ...]]  # For each digit of an index those that it becomes, outermost first

Form: TypeAlias = tuple[int, tuple[Digit, ...]]  # ``(base, digits)``, the digits canonical

MOST_CUTS: Final = 256  # Cuts of one digit; more are looked at one by one


def extremes(base: int, digits: Digits) -> tuple[int, int]:
    """Return the least and the greatest number that digits give, both attained."""
    low = high = base
    for count, step, cuts in digits:
        last = step * (count - 1)
        if cuts:
            parts = [
                part
                for start, end, jump in pieces(count, cuts)
                for part in (start * step + jump, (end - 1) * step + jump)
            ]
            low += min(parts)
            high += max(parts)
        elif last < 0:
            low += last
        else:
            high += last
    return low, high


def pieces(count: int, cuts: Cuts) -> list[tuple[int, int, int]]:
    """Return the pieces of a digit, ``(start, end, sum of the jumps before it)``."""
    starts = [0, *(start for start, _ in cuts), count]
    jumps, total = [0], 0
    for _, jump in cuts:
        total += jump
        jumps.append(total)
    return [(start, end, jump) for (start, end), jump in zip(pairwise(starts), jumps, strict=True)]


def part_of(digit: Digit, at: int) -> int:
    """Return the number that a digit adds at the value ``at``."""
    _, step, cuts = digit
    return step * at + sum(jump for start, jump in cuts if start <= at)


def split(digit: Digit, inner: int) -> tuple[Digit, Digit] | None:
    """Return a digit as two, the inner one of ``inner`` values; None where it, or one of its cuts, is no multiple."""
    count, step, cuts = digit
    if count % inner or any(start % inner for start, _ in cuts):
        return None
    return (count // inner, step * inner, tuple((start // inner, jump) for start, jump in cuts)), (inner, step, ())


def merged(digits: Digits) -> tuple[Digit, ...]:
    """Return digits in canonical form."""
    out: list[Digit] = []
    for digit in digits:
        for count, step, cuts in settled(digit) if digit[2] else (digit,):
            if count == 1:
                continue
            if out and not cuts:
                outer, outer_step, outer_cuts = out[-1]
                if outer_step == count * step:
                    out[-1] = (outer * count, step, tuple((start * count, jump) for start, jump in outer_cuts))
                    continue
            out.append((count, step, cuts))
    if any(cuts for *_, cuts in out):
        again = tuple(digit for found in out for digit in settled(found))
        return again if again == tuple(out) else merged(again)
    return tuple(out)


def settled(digit: Digit) -> tuple[Digit, ...]:
    """Return a digit as digits without cuts where there are such, else as it is, without cuts that jump by 0."""
    count, step, cuts = digit
    cuts = tuple(cut for cut in cuts if cut[1])
    if not cuts:
        return ((count, step, ()),)
    first = cuts[0][0]
    if count % first or any(start % first for start, _ in cuts) or count // first > 2 * len(cuts) + 1:
        return ((count, step, cuts),)  # a nest breaks its runs at every second multiple of the first, at least
    heads = [part_of((count, step, cuts), at) for at in range(0, count, first)]
    loops: list[Digit] = []  # around the runs, outermost first
    while len(heads) > 1:
        gap = heads[1] - heads[0]
        run = 1
        while run < len(heads) and heads[run] - heads[run - 1] == gap:
            run += 1
        starts = heads[::run]
        if len(heads) % run or heads != [start + gap * at for start in starts for at in range(run)]:
            return ((count, step, cuts),)
        loops.insert(0, (run, gap, ()))
        heads = starts
    return (*loops, (first, step, ()))


def wrapped(base: int, digits: Digits, n: int) -> tuple[int, Groups] | None:
    """Take digits modulo ``n``."""
    groups: Groups = []
    for digit in digits:  # a digit of whole periods adds nothing; one that fills periods is split into two
        count, step, cuts = digit
        cuts = tuple(cut for cut in cuts if cut[1] % n)
        size = abs(step)
        if step % n == 0:
            groups.append(((count, 0, cuts),))
        elif not cuts and n % size == 0 and n < count * size and count % (n // size) == 0:
            groups.append(((count * size // n, 0, ()), (n // size, step, ())))
        else:
            groups.append(((count, step, cuts),))
    base %= n
    low, high = extremes(base, [digit for group in groups for digit in group])
    if low // n == high // n:
        return base - low // n * n, groups
    # The digit with the greatest part passes the period, wherever the others stand.
    at = max(range(len(groups)), key=lambda k: abs(groups[k][-1][1]) * (groups[k][-1][0] - 1))
    digit = groups[at][-1]
    rest = extremes(base, [other for k, group in enumerate(groups) for other in group if k != at or other is not digit])
    found = _cut(digit, rest, n)
    if found is None:
        return None
    quotient, cut = found
    groups[at] = (*groups[at][:-1], *settled(cut))
    return base - quotient * n, groups


def _cut(digit: Digit, rest: tuple[int, int], n: int) -> tuple[int, Digit] | None:
    """Return the multiple of ``n`` that a digit begins with, and the digit cut where it comes to another one.

    ``rest`` is the least and the greatest sum of all other parts: all of them have to pass at the same place.
    """
    count, step, cuts = digit
    low, high = rest
    if step <= 0:
        return None
    quotients: list[tuple[int, int]] = []  # (start, multiple of n from there on)
    for start, end, jump in pieces(count, cuts):
        quotient = (start * step + jump + low) // n
        if (start * step + jump + high) // n != quotient:
            return None
        quotients.append((start, quotient))
        last = ((end - 1) * step + jump + high) // n
        if len(quotients) + last - quotient > MOST_CUTS:
            return None
        for multiple in range(quotient + 1, last + 1):
            place = -((low + jump - multiple * n) // step)
            if place != -((high + jump - multiple * n) // step):
                return None
            quotients.append((place, multiple))
    jumps = dict(cuts)  # those of the digit, and one more for each period that begins
    for (_, before), (start, after) in pairwise(quotients):
        jumps[start] = jumps.get(start, 0) - (after - before) * n
    return quotients[0][1], (count, step, tuple(sorted(jumps.items())))


def scaled(cuts: Cuts, factor: int) -> Cuts:
    """Return cuts whose jumps are so many times as wide."""
    return tuple((start, jump * factor) for start, jump in cuts) if cuts else cuts
