"""Whether digits give a number twice, without computing the numbers.

Ordered by their gaps, digits give no number twice if each moves farther than all smaller ones together can. Other
digits need a search for two indices of one number, or for many digits a lattice (`offload.parray.lattice`). See
docs/design/theory.md, "Injective types".
"""

from __future__ import annotations

import itertools
from math import gcd
from typing import TYPE_CHECKING, Final

from offload.parray.digits import extremes, pieces
from offload.parray.lattice import Unknown, has_solution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.parray.digits import Digit, Digits

MOST_BOXES: Final = 64  # Boxes without cuts that a form is taken apart into; they are compared pair by pair

MOST_SUMS: Final = 1 << 22  # Sums that are looked at instead, where there are more boxes

# Boxes that are compared rather than more sums are looked at; these comparisons take seconds.
MOST_BOXES_OF_MANY: Final = 1024

MOST_TRIED: Final = 1 << 17  # Values that all searches try together where sums may be looked at instead: half a second

# Values that a search tries where a lattice decides in the end, which takes some milliseconds.
TRIED_FIRST: Final = 1 << 11


class _SpentError(Exception):
    """A search has tried as much as it may; never seen by users."""


def is_injective(digits: Digits, size: int = 0) -> bool | None:
    """Return whether all indices have different sums of parts; None if it is quicker to compute the ``size`` sums."""
    # The digits are canonical; the base does not matter.
    gaps = [_gap(digit) for digit in digits]
    if not all(gaps):
        return False
    if _are_nested(gaps, digits):
        return True
    n_boxes = 1
    for *_, cuts in digits:
        n_boxes *= len(cuts) + 1
    if n_boxes > (MOST_BOXES if size <= MOST_SUMS else MOST_BOXES_OF_MANY):
        return None
    parts = [
        [(end - start, step, start * step + jump) for start, end, jump in pieces(count, cuts)]
        for count, step, cuts in digits
    ]
    boxes = list(itertools.product(*parts))
    tries = iter(range(MOST_TRIED)) if 0 < size <= MOST_SUMS else None
    try:
        for k, box in enumerate(boxes):
            loops = [(count, step) for count, step, _ in box]
            if _repeats(loops, tries) or any(_meet(box, other, tries) for other in boxes[:k]):
                return False
    except _SpentError:
        return None
    return True


def _are_nested(gaps: list[int], digits: Digits) -> bool:
    """Return whether each digit's numbers are farther apart than all smaller digits reach."""
    reach = 0
    for gap, digit in sorted(zip(gaps, digits, strict=True), key=lambda pair: pair[0]):
        if gap <= reach:
            return False
        low, high = extremes(0, (digit,))
        reach += high - low
    return True


def _gap(digit: Digit) -> int:
    """Return the least distance between two numbers of a digit; 0 only if a number comes twice."""
    count, step, cuts = digit
    size = abs(step)
    if not cuts:
        return size
    parts = pieces(count, cuts)
    gaps = [size] if any(end - start > 1 for start, end, _ in parts) else []
    around: list[list[int]] = []  # pieces that have begun, and may not have ended
    ended: int | None = None
    for piece in sorted(sorted((start * step + jump, (end - 1) * step + jump)) for start, end, jump in parts):
        low = piece[0]
        before = [high for _, high in around if high < low]
        if before:
            ended = max(before) if ended is None else max(ended, *before)
        around = [other for other in around if other[1] >= low]
        if ended is not None:
            gaps.append(low - ended)
        for other in around:
            rest = (low - other[0]) % size if size else 0
            gaps.append(min(rest, size - rest))
        around.append(piece)
    return min(gaps)


def _repeats(loops: list[tuple[int, int]], tries: Iterator[int] | None) -> bool:
    """Return whether two different indices of a nest have one sum."""
    unknowns = sorted((Unknown(abs(step), 1 - count, count - 1) for count, step in loops if count > 1), reverse=True)
    # The first digit that differs may differ upwards; those before it are equal.
    return any(
        _is_solved([unknown._replace(low=1), *unknowns[k + 1 :]], 0, tries) for k, unknown in enumerate(unknowns)
    )


def _meet(
    box: tuple[tuple[int, int, int], ...], other: tuple[tuple[int, int, int], ...], tries: Iterator[int] | None
) -> bool:
    """Return whether two boxes, whose steps are the same, have a number in common."""
    target, unknowns = 0, []
    for (count, step, part), (other_count, _, other_part) in zip(box, other, strict=True):
        target += other_part - part
        low, high = 1 - other_count, count - 1
        if step < 0:
            low, high = -high, -low
        if step and high > low:
            unknowns.append(Unknown(abs(step), low, high))
    return _is_solved(sorted(unknowns, reverse=True), target, tries)


def _is_solved(unknowns: list[Unknown], target: int, tries: Iterator[int] | None) -> bool:
    """Return whether the unknowns, greatest step first, can be chosen so that their sum is ``target``.

    Raises `_SpentError` where there are no more ``tries``; for None a few are followed by a lattice.
    """
    if tries is not None:
        return _solve(unknowns, target, tries)
    try:
        return _solve(unknowns, target, iter(range(TRIED_FIRST)))
    except _SpentError:
        return has_solution(unknowns, target)


def _solve(unknowns: list[Unknown], target: int, tries: Iterator[int]) -> bool:
    """Return whether the unknowns, greatest step first, can be chosen so that their sum is ``target``.

    Raises `_SpentError` where there are no more ``tries``.
    """
    n = len(unknowns)
    lows, highs, divisors = [0] * (n + 1), [0] * (n + 1), [0] * (n + 1)
    for k in range(n - 1, -1, -1):
        step, low, high = unknowns[k]
        lows[k], highs[k] = lows[k + 1] + step * low, highs[k + 1] + step * high
        divisors[k] = gcd(divisors[k + 1], step)
    if not lows[0] <= target <= highs[0] or target % (divisors[0] or 1):
        return False
    choices = [iter(_choices(unknowns[0], target, lows[1], highs[1], divisors[1]))] if n else []
    targets = [target]
    while choices:
        if next(tries, None) is None:
            raise _SpentError
        value = next(choices[-1], None)
        if value is None:
            choices.pop()
            targets.pop()
            continue
        k = len(choices)
        left = targets[-1] - value * unknowns[k - 1].step
        if k == n:
            return True
        targets.append(left)
        choices.append(iter(_choices(unknowns[k], left, lows[k + 1], highs[k + 1], divisors[k + 1])))
    return not n


def _choices(unknown: Unknown, target: int, low: int, high: int, divisor: int) -> range:
    """Return the values of an unknown after which the smaller ones may still reach the target.

    The sums of the smaller unknowns lie in ``low`` … ``high`` and are multiples of ``divisor`` (0: they are all 0).
    """
    step = unknown.step
    least = max(unknown.low, -((high - target) // step))
    most = min(unknown.high, (target - low) // step)
    if not divisor:
        return range(least, most + 1)
    common = gcd(step, divisor)
    period = divisor // common
    first = target // common * pow(step // common, -1, period) % period  # step * value = target modulo divisor
    return range(least + (first - least) % period, most + 1, period)
