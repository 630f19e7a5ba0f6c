"""Least and greatest elements of arrays that indices are read from: a look before the loop instead of checks in it.

An index read from an array that the loop does not write is inside of its own array, if the least and the greatest
element of the part that is read are. So one pass over that part, which is quick, can take the place of a check at each
access, and leaves a loop that a compiler can make wide. Where one is outside it may still be unused: the loop checks.

A look has to be worth it: the loop has many iterations, the parts are not much larger than it, and their contents are
mostly what they were. Where they change from call to call, so would the decisions, which cost more than the checks.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from offload.loops.bounds import wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.loops.affine import Interval
    from offload.loops.bounds import Bounds
    from offload.loops.reach import Accesses

LEAST_SIZE: Final = 10_000
"""Iterations of a loop before which nothing is looked up: its checks take some 10 µs."""

MOST_ELEMENTS: Final = 64
"""Elements for each iteration that may be looked at: some 20 ns."""

MOST_CONTENTS: Final = 8
"""Different contents for which decisions are made anew, then the loop checks."""

ROUNDS: Final = 3
"""An index of an index takes two, one whose place comes from data a third."""


class Part(NamedTuple):
    """What a load reads: ``array[where]``, at most.

    Attributes
    ----------
    at : int
        The load's number.
    array : str
    where : tuple of slice
    """

    at: int
    array: str
    where: tuple[slice, ...]


def parts_wanted(accesses: Accesses, found: Mapping[int, Bounds]) -> tuple[Part, ...]:
    """Return the parts of arrays whose least and greatest element would say more about accesses that are checked."""
    arrays = {access.at: access.array for access in accesses.listed}
    parts = []
    for at in sorted(wanted(accesses, found)):
        extents = accesses.extents[arrays[at]]
        intervals = zip(found[at].intervals, extents, strict=True)
        parts.append(Part(at, arrays[at], tuple(_slice(interval, extent) for interval, extent in intervals)))
    return tuple(parts)


def contents_of(
    parts: tuple[Part, ...], array_of: Callable[[str], Any], most: int | None
) -> dict[int, Interval] | None:
    """Return the least and greatest element of each part that has any; None if there are more than ``most`` to see."""
    views = {part.at: array_of(part.array)[part.where] for part in parts}
    if most is not None and sum(view.size for view in views.values()) > most:
        return None
    return {at: (int(view.min()), int(view.max())) for at, view in views.items() if view.size}


def is_worth_a_look(trips: tuple[int, ...]) -> bool:
    """Tell whether a loop of so many trips is long enough to look first."""
    return prod(trips) >= LEAST_SIZE


def _slice(interval: Interval | None, extent: int) -> slice:
    """Return where an index may be; everywhere, if it may be negative."""
    if interval is None or interval[0] < 0:
        return slice(0, extent)
    return slice(interval[0], min(interval[1] + 1, extent))
