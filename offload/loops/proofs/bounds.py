"""Which accesses can leave their arrays: the proofs at the launch, and the checks left to the kernel.

An index has an interval. Inside ``[0, extent)`` the access is plain; inside ``[-extent, extent)`` negative indices
wrap; otherwise the kernel checks it. If the index is made of elements that the nest does not write, their extremes
decide: `wanted` says which to look up, and the bounds are made again with `LaunchNumbers.contents`, once for each level
of indirection. An access that certainly leaves its array makes the call raise before anything has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from offload.loops.proofs.affine import LIMITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.affine import IntegerValue, Interval
    from offload.loops.proofs.reach import ElementAccess, NestAccesses
    from offload.loops.tree import ir


Category: TypeAlias = Literal["launch", "range", "kernel"]

_MODES: tuple[ir.Mode, ...] = ("off", "wrap", "check")
_CATEGORIES: tuple[Category, ...] = ("launch", "range", "kernel")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of an access's indices."""

    # Of each index, before negative ones are wrapped; None where nothing but its type bounds it.
    intervals: tuple[Interval | None, ...]
    # `"off"`: in range and not negative; `"wrap"`: in range once negative ones are wrapped; `"check"`: unknown.
    mode: ir.Mode
    # Made of trips and numbers of the launch: `"launch"`; of elements too, of arrays that the nest does not write:
    # `"range"`; of anything else: `"kernel"`.
    category: Category
    # A dimension and an index that an iteration certainly has there, and that is out of range.
    outside: tuple[int, int] | None = None
    loads: frozenset[int] = frozenset()  # the loads, by `at`, of which the indices are made


def bounds(accesses: NestAccesses) -> dict[int, Bounds]:
    """Return the bounds of each access, by `at`; an access that is never carried out has none.

    One that stands in several places has the bounds that hold in all of them.
    """
    found: dict[int, Bounds] = {}
    for access in accesses.listed:
        here = _bounds(accesses, access)
        before = found.get(access.at)
        found[access.at] = here if before is None else _both(before, here)
    return found


def wanted(accesses: NestAccesses, found: Mapping[int, Bounds]) -> frozenset[int]:
    """Return the loads, by `at`, whose least and greatest element would say more about accesses that are checked.

    The loads' own places are known: inside the intervals of their bounds, wrapped where their mode says so.
    """
    unsure = [each.loads for each in found.values() if each.mode == "check" and each.category == "range"]
    integers = {access.at for access in accesses.listed if access.dtype in LIMITS}
    loads = frozenset[int]().union(*unsure) & integers - accesses.launch.contents.keys()
    return frozenset(load for load in loads if found[load].mode != "check")


def _bounds(accesses: NestAccesses, access: ElementAccess) -> Bounds:
    space = accesses.space
    extents = accesses.extents[access.array]
    intervals: list[Interval | None] = []
    mode, category = 0, 0
    outside: tuple[int, int] | None = None
    loads = frozenset[int]()
    for dimension, (index, extent) in enumerate(zip(access.indices, extents, strict=True)):
        is_pure, of = space.is_pure(index.form), space.loads(index.form)
        loads |= of
        intervals.append(None if index.interval == LIMITS["int64"] else index.interval)
        category = max(category, 2 if not is_pure else 1 if of else 0)
        least = 0 if access.kind == "check" else -extent  # an array type has no negative indices
        mode = max(mode, _mode(index, least, extent))
        if outside is None and index.is_exact and access.is_certain and space.is_attained(index.form):
            ends = [end for end in (index.high, index.low) if not least <= end < extent]
            outside = (dimension, ends[0]) if ends else None
    return Bounds(tuple(intervals), _MODES[mode], _CATEGORIES[category], outside, loads)


def _mode(index: IntegerValue, least: int, extent: int) -> int:
    """Return the place in `_MODES`."""
    if index.high >= extent or index.low < least:
        return 2
    return 0 if index.low >= 0 else 1


def _both(one: Bounds, other: Bounds) -> Bounds:
    intervals = tuple(
        None if first is None or second is None else (min(first[0], second[0]), max(first[1], second[1]))
        for first, second in zip(one.intervals, other.intervals, strict=True)
    )
    return Bounds(
        intervals,
        max(one.mode, other.mode, key=_MODES.index),
        max(one.category, other.category, key=_CATEGORIES.index),
        one.outside or other.outside,
        one.loads | other.loads,
    )


# -- looks at elements --------------------------------------------------------------------------------
#
# One pass over the elements that indices are read from is quick, and a loop without checks can be vectorised. An
# index outside its array may be unused, so the loop then checks. A look pays only for loops with many iterations, if
# the parts are not much larger than the loop and rarely change.


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


# -- arrays that are overwritten ----------------------------------------------------------------------
#
# The plain case alone: a store that is carried out at every point of its box, each of whose indices runs through its
# dimension by itself: one variable with coefficient 1 or -1, no variable in two of them, as many values as elements.
# Consecutive integers in [-extent, extent) are all elements if they are as many, wherever negative ones begin.


def is_overwritten(accesses: NestAccesses, array: str) -> bool:
    """Return whether the nest writes every element of an array, and reads only elements that the iteration has written.

    A read counts by its storage, under any name. It may only read an element that the iteration has written before, at
    the same index.
    """
    if array in accesses.own:
        return False
    views = accesses.launch.views
    view = views[array]
    if any(view.may_share(views[item.name]) for item in accesses.nest.reductions if item.name in views):
        return False
    stored: list[ElementAccess] = []
    for access in accesses.listed:
        if access.array in accesses.own or not view.may_share(views[access.array]):
            continue
        if access.kind == "store" and access.array == array and access.is_certain:
            stored.append(access)
        elif access.kind != "store" and not any(is_fed_by(access, store) for store in stored):
            return False
    return 0 in view.extents or any(_covers(accesses, store) for store in stored)


def is_fed_by(read: ElementAccess, store: ElementAccess) -> bool:
    """Return whether a read, later in the text, gets the value that a certain store has written in the same trips."""
    forms = [tuple(index.form for index in access.indices) for access in (read, store)]
    n_common = len(store.loops)
    return read.array == store.array and forms[0] == forms[1] and read.loops[:n_common] == store.loops


def runs_through(accesses: NestAccesses, store: ElementAccess) -> bool:
    """Return whether each index of a store is one number, or takes consecutive values by a variable of its own."""
    variables: set[int] = set()
    for index in store.indices:
        terms = index.form.terms
        if not index.is_exact or len(terms) > 1:
            return False
        for variable, coefficient in terms:
            atom = accesses.space.atoms[variable]
            if not atom.is_trip or atom.room is not None or abs(coefficient) != 1 or variable in variables:
                return False
            variables.add(variable)
    return True


def _covers(accesses: NestAccesses, store: ElementAccess) -> bool:
    extents = accesses.extents[store.array]
    return runs_through(accesses, store) and all(
        -extent <= index.low <= index.high < extent <= index.high - index.low + 1
        for index, extent in zip(store.indices, extents, strict=True)
    )
