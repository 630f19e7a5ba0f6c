"""Properties that digits do not decide, from all offsets: the cost grows with the number of elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.parray import seams
from offload.parray.digits import extremes

if TYPE_CHECKING:
    from offload.parray.digits import Digits

Nest = tuple[int, tuple[tuple[int, int], ...]]

# Numbers within so many times their count are marked to find out whether one comes twice; others are sorted.
_DENSE = 8


def nest_of(values: Any) -> Nest | None:
    """Return the fewest nested loops ``(base, ((count, step), …))``, outermost first, that give these numbers in order.

    ``values`` are one or more int64; return None if there are no such loops. The innermost loop is as long as the first
    run of equal differences: in any nest that gives the numbers, the step changes there and at its multiples. So there
    is no choice, and the heads of the runs are a shorter list of the same kind.
    """
    xp = seams.namespace
    loops: list[tuple[int, int]] = []
    base = int(values[0])
    while len(values) > 1:
        step = int(values[1]) - int(values[0])
        count = _run_of(values, step)
        if len(values) % count:
            return None
        rows = values.reshape(-1, count)
        if (rows != rows[:, :1] + step * xp.arange(count)).any():
            return None
        loops.append((count, step))
        values = rows[:, 0]
    return base, tuple(reversed(loops))


def _run_of(values: Any, step: int) -> int:
    """Return how many values of the beginning are a step apart: of the first few where that is all that is needed."""
    begin, length = 0, 1 << 10
    while begin < len(values) - 1:
        part = values[begin : begin + length + 1]
        changes = seams.namespace.flatnonzero(part[1:] - part[:-1] != step)
        if len(changes):
            return begin + int(changes[0]) + 1
        begin, length = begin + length, 16 * length
    return len(values)


def numbers_of(base: int, digits: Digits) -> Any:
    """Return all numbers that digits give, an array of int64; raise `OverflowError` if they exceed 64 bits."""
    xp = seams.namespace
    low, high = extremes(base, digits)
    if low < -(1 << 63) or high >= 1 << 63:
        raise OverflowError
    numbers = xp.asarray([base], dtype=xp.int64)
    for count, step, cuts in digits:
        parts = xp.arange(count, dtype=xp.int64) * step
        if cuts:
            jumps = xp.zeros(count, dtype=xp.int64)
            jumps[[start for start, _ in cuts]] = [jump for _, jump in cuts]
            parts += jumps.cumsum()
        numbers = (numbers[:, None] + parts).reshape(-1)
    return numbers


def all_different(*parts: Any) -> bool:
    """Return whether no two elements have the same numbers in all of these arrays, of one length each, not 0."""
    xp = seams.namespace
    if len(parts) == 1:
        low, high = int(parts[0].min()), int(parts[0].max())
        if high - low < _DENSE * len(parts[0]):  # marked, in a fraction of the time that a sort takes
            is_taken = xp.zeros(high - low + 1, dtype=bool)
            is_taken[parts[0] - low] = True
            return bool(is_taken.sum() == len(parts[0]))
    order = xp.lexsort(parts)
    same = xp.ones(len(order) - 1, dtype=bool)
    for part in parts:
        ordered = part[order]
        same &= ordered[1:] == ordered[:-1]
    return not same.any()


def runs(parts: list[Any], most: int) -> list[int] | None:
    """Return where the runs of equal differences in all arrays begin; None if there are more than ``most`` >= 1."""
    # The starts ascend from 0, and each run is as long as possible, from the left. Each array has an element or more.
    xp = seams.namespace
    starts, at, size = [0], 0, len(parts[0])
    steps = [part[1:] - part[:-1] for part in parts]
    change = xp.zeros(max(size - 2, 0), dtype=bool)
    for step in steps:
        change |= step[1:] != step[:-1]
    where = xp.flatnonzero(change) + 2  # the first element that does not continue
    if len(where) > 2 * most:
        return None
    for place in where.tolist():
        if place >= at + 2:  # a run of one element takes any second one
            starts.append(place)
            at = place
    return starts if len(starts) <= most else None
