"""Least and greatest elements of arrays that indices are read from: a look before the loop instead of checks in it.

An index read from an array that the loop does not write is inside of its own array, if the least and the greatest
element of the part that is read are. So one pass over that part, which is quick, can take the place of a check at each
access, and leaves a loop that a compiler can make wide. Where one is outside it may still be unused: the loop checks.

What is remembered of looks, and how they are made, is `offload.loops.running.looks`'s.

A look has to be worth it: the loop has many iterations, the parts are not much larger than it, and their contents are
mostly what they were. Where they change from call to call, so would the decisions, which cost more than the checks.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.loops.proofs.bounds import wanted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.affine import Interval
    from offload.loops.proofs.bounds import Bounds
    from offload.loops.proofs.reach import NestAccesses

# Iterations of a loop before which nothing is looked up: its checks take some 10 µs.
LEAST_SIZE: Final = 10_000

# Elements for each iteration that may be looked at: some 20 ns.
MOST_ELEMENTS: Final = 64

# Different contents for which decisions are made anew, then the loop checks.
MOST_CONTENTS: Final = 8

# An index of an index takes two, one whose place comes from data a third.
ROUNDS: Final = 3


class ArrayPart(NamedTuple):
    """What a load reads: ``array[where]``, at most."""

    at: int  # the load's number
    array: str
    ranges: tuple[tuple[int, int], ...]  # of each dimension the first index, and the one past the last

    @property
    def where(self) -> tuple[slice, ...]:
        """The part, as an index."""
        return tuple([slice(*bounds) for bounds in self.ranges])

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod([max(end - first, 0) for first, end in self.ranges])


def parts_wanted(accesses: NestAccesses, found: Mapping[int, Bounds]) -> tuple[ArrayPart, ...]:
    """Return the parts of arrays whose least and greatest element would say more about accesses that are checked."""
    arrays = {access.at: access.array for access in accesses.listed}
    parts = []
    for at in sorted(wanted(accesses, found)):
        extents = accesses.extents[arrays[at]]
        intervals = zip(found[at].intervals, extents, strict=True)
        parts.append(ArrayPart(at, arrays[at], tuple(_range(interval, extent) for interval, extent in intervals)))
    return tuple(parts)


def is_worth_a_look(trips: tuple[int, ...]) -> bool:
    """Tell whether a loop of so many trips is long enough to look first."""
    return prod(trips) >= LEAST_SIZE


def _range(interval: Interval | None, extent: int) -> tuple[int, int]:
    """Return where an index may be; everywhere, if it may be negative."""
    if interval is None or interval[0] < 0:
        return 0, extent
    return interval[0], min(interval[1] + 1, extent)
