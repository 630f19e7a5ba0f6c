"""Which accesses can leave their arrays: the proofs at the launch, and the checks left to the kernel.

An index has an interval. Inside ``[0, extent)`` the access is plain; inside ``[-extent, extent)`` negative indices
wrap; otherwise the kernel checks it. If the index is made of elements that the nest does not write, their extremes
decide: `wanted` says which to look up, and the bounds are made again with `LaunchNumbers.contents`, once for each level
of indirection. An access that certainly leaves its array makes the call raise before anything has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from offload.loops.proofs.affine import LIMITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.affine import Interval
    from offload.loops.proofs.integers import IntegerValue
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
        mode = max(mode, _mode(index, extent))
        if outside is None and index.is_exact and access.is_certain and space.is_attained(index.form):
            ends = [end for end in (index.high, index.low) if not -extent <= end < extent]
            outside = (dimension, ends[0]) if ends else None
    return Bounds(tuple(intervals), _MODES[mode], _CATEGORIES[category], outside, loads)


def _mode(index: IntegerValue, extent: int) -> int:
    """Return the place in `_MODES`."""
    if index.high >= extent or index.low < -extent:
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
