"""Which elements each device owns, and which iterations it needs for them; all of it integers of a launch.

The trips of the outermost parallel iterator are cut into *blocks*, by weights. A write at ``c*trip + rest`` touches the
*image* ``c*trip + [low, high]`` in a trip. Arrays are split in a dimension in which the images of all writes move alike
and do not overlap, so they agree on the owner; other arrays are split by dimension 0. The first and the last range are
open, so that an index out of range has an owner who reports it.

If a device needs one interval of trips, the same for all that is written, the loop is *cut* and needs no tests.
Otherwise it goes through the hull of its trips, and tests ownership.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from offload.loops.proofs.equations import divided
from offload.loops.proofs.meetings import element_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offload.loops.proofs.affine import IntegerValue
    from offload.loops.proofs.feeding import Demand, DemandTerm
    from offload.loops.proofs.meetings import LoopStorage
    from offload.loops.proofs.reach import ElementAccess, NestAccesses

LEAST: Final = -(1 << 63)
# The ends of the first and of the last range.
MOST: Final = (1 << 63) - 1

# Trips or indices from the first to before the second.
Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Split:
    """How a storage is divided."""

    dimension: int  # of the storage
    ranges: tuple[Span, ...]  # half-open, for each device, in the storage's own indices
    # Whether a device owns what the trips of its block write, and nothing else of what is written.
    is_aligned: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """The indices of a trip: ``by*trip + [low, high]``. `is_one`: a single index, also if other values enter."""

    by: int  # from trip to trip
    low: int  # in trip 0
    high: int  # in trip 0, included
    is_one: bool  # a single index, whatever else enters


def blocks(count: int, weights: Sequence[int]) -> tuple[Span, ...]:
    """Return consecutive parts of ``range(count)`` in the proportion of weights, which are not all 0."""
    total, before, spans = sum(weights), 0, []
    for weight in weights:
        spans.append((count * before // total, count * (before + weight) // total))
        before += weight
    return tuple(spans)


def split_of(
    accesses: NestAccesses,
    storage: LoopStorage,
    writes: Sequence[ElementAccess],
    storages: Mapping[str, LoopStorage],
    weights: Sequence[int],
) -> Split:
    """Return how a storage that has a dimension is divided, by the writes to it in the order of the text."""
    starts = [begin for begin, _ in blocks(accesses.launch.axes[0].trips, weights)][1:]
    single: Split | None = None
    for dimension in range(len(storage.extents)):
        found = [image_of(accesses, *element_of(accesses, storages, write).dimensions[dimension]) for write in writes]
        images = [image for image in found if image is not None and image.by]
        if len(images) < len(found):
            continue
        by, low, high = images[0].by, min(one.low for one in images), max(one.high for one in images)
        if all(image.by == by for image in images) and high - low < abs(by):
            return Split(dimension, _ranges(by, low if by > 0 else high, starts), is_aligned=True)
        if single is None and all(image.is_one for image in images):
            single = Split(dimension, _ranges(by, images[0].low, starts))
    return single or Split(0, _open([begin for begin, _ in blocks(storage.extents[0], weights)][1:]))


def image_of(accesses: NestAccesses, index: IntegerValue, shifts: tuple[int, ...]) -> Image | None:
    """Return the image of an index to which one number is added; None if it is not known."""
    if not index.is_exact or len(shifts) > 1:
        return None
    space = accesses.space
    by = index.form.coefficient(0)
    rest = index.form - index.form.part({0}) + shifts[0]
    atoms = [space.atoms[number] for number, _ in rest.terms]
    if not all(atom.is_trip or (atom.is_fixed and not atom.loads) for atom in atoms):
        return None
    return Image(by, *space.extremes(rest), is_one=not rest.terms)


def _ranges(by: int, first: int, starts: Sequence[int]) -> tuple[Span, ...]:
    """Return the ranges whose blocks begin at the images of trips, that of trip 0 at `first`, upwards or downwards."""
    if by > 0:
        return _open([by * start + first for start in starts])
    ends = [by * start + first + 1 for start in starts]
    return tuple(reversed(_open(ends[::-1])))


def _open(bounds: Sequence[int]) -> tuple[Span, ...]:
    return tuple(zip((LEAST, *bounds), (*bounds, MOST), strict=True))


# -- trips -----------------------------------------------------------------------------------------------


def trips_of(image: Image | None, span: Span, count: int) -> tuple[Span, Span | None]:
    """Return the trips, of so many, in which an image may meet a range; and those in which it lies inside.

    Without an image these are all, and it is not known which.
    """
    begin, end = span
    if begin >= end:
        return (0, 0), (0, 0)
    if image is None:
        return (0, count), None
    may = _where(image.by, begin - image.high, end - 1 - image.low, count)
    return may, _where(image.by, begin - image.low, end - 1 - image.high, count)


def _where(by: int, low: int, high: int, count: int) -> Span:
    """Return the trips in which ``low <= by*trip <= high``."""
    if not by:
        return (0, count) if low <= 0 <= high else (0, 0)
    first, last = divided((low, high), by)
    first, last = max(first, 0), min(last, count - 1)
    return (first, last + 1) if first <= last else (0, 0)


def hull(spans: Iterable[Span]) -> Span:
    """Return the least span that has all others in it; empty ones are in any."""
    found = [span for span in spans if span[0] < span[1]]
    return (min(begin for begin, _ in found), max(end for _, end in found)) if found else (0, 0)


@dataclass(frozen=True, slots=True)
class Cutter:
    """Answers in which trips a device needs a point."""

    count: int  # trips of the outermost iterator
    images: Mapping[DemandTerm, Image | None]  # of the terms' indices; None where it is not known
    ranges: Mapping[str, tuple[Span, ...]]  # of each storage, for each device; of blocks by ""

    def needed(self, demand: Demand, device: int) -> Span:
        """Return the hull of the trips in which a device may need a point of this demand."""
        if demand is None:
            return 0, self.count
        return hull(trips_of(self.images[term], self.ranges[term.storage][device], self.count)[0] for term in demand)

    def exactly(self, demand: Demand, device: int) -> Span | None:
        """Return the trips in which a device needs a point of this demand, where all of its terms agree on them."""
        if demand is None:
            return None
        found = {trips_of(self.images[term], self.ranges[term.storage][device], self.count) for term in demand}
        if len(found) != 1:
            return None
        may, surely = found.pop()
        return may if may == surely else None

    def carried_out(self, demand: Demand, device: int) -> int | None:
        """Return how many trips a device needs a point in; None if that is not known."""
        if demand is None:
            return self.count
        spans = [trips_of(self.images[term], self.ranges[term.storage][device], self.count) for term in demand]
        if any(may != surely for may, surely in spans):
            return None
        covered, reached = 0, 0
        for begin, end in sorted(may for may, _ in spans):
            covered += max(end - max(begin, reached), 0)
            reached = max(reached, end)
        return covered
