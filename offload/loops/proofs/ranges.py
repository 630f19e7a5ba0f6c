"""Least and greatest elements of arrays that indices are read from: a look before the loop replaces checks in it.

One pass over the index elements is quick, and a loop without checks can be vectorised. An index outside its array may
be unused, so the loop then checks. A look pays only for loops with many iterations, if the parts are not much larger
than the loop and rarely change. `offload.loops.running.looks` makes and remembers looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.loops.proofs.bounds import wanted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.affine import Interval
    from offload.loops.proofs.bounds import Bounds
    from offload.loops.proofs.reach import NestAccesses

# Elements for each iteration that may be looked at: some 20 ns.
MOST_ELEMENTS: Final = 64

# Different contents for which decisions are made anew, then the loop checks.
MOST_CONTENTS: Final = 8

# An index of an index takes two, one whose place comes from data a third.
ROUNDS: Final = 3


@dataclass(slots=True)
class LookLimits:
    """Bounds on the work before a loop runs. `LOOK_LIMITS` has those of the process; tests set others."""

    # Iterations of a loop from which on index arrays are looked at: below, its checks take some 10 µs.
    n_iterations: int = 10_000
    # Of a first call that is observed: about a millisecond, compiled (`offload.loops.watched.profiling`).
    steps: int = 1 << 16
    # Arrays that a loop writes and that are copied to try the host: more takes longer to copy than to try.
    copied_nbytes: int = 1 << 20
    # Arrays on the device that are fetched for a profile: of more, the inspector or a race says what it would.
    fetched_nbytes: int = 1 << 20


LOOK_LIMITS: Final = LookLimits()


class ArrayPart(NamedTuple):
    """The part of an array that a load may read: ``array[where]``."""

    at: int  # the load's number
    array: str  # by its name
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
    return prod(trips) >= LOOK_LIMITS.n_iterations


def _range(interval: Interval | None, extent: int) -> tuple[int, int]:
    """Return where an index may be; everywhere, if it may be negative."""
    if interval is None or interval[0] < 0:
        return 0, extent
    return interval[0], min(interval[1] + 1, extent)
