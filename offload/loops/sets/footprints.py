"""The parts of arrays that each device of a set reads and writes in a divided nest, as boxes.

A device carries out some trips of the outermost axis. The *hull* of an access has the extremes of its indices over
those trips. A device must be current in the hulls of its loads, restricted to its own elements if the load is only
carried out for these, and without loads that a store of the iteration certainly feeds. It writes the hulls of its
stores in a nest that is cut, and its whole range in a guarded one. Since a hull may have elements that nothing writes,
the device must be current there before, too, unless every element is certainly written (`_is_whole`).

Wrong boxes give stale elements without an error. So it is asserted here that no write leaves its device's range.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from offload.data.boxes import Needs, Writes, meet, whole_of
from offload.data.parts import box_of
from offload.loops.proofs.bounds import is_fed_by, runs_through

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from offload.data.boxes import Box
    from offload.data.parts import ArrayLayout
    from offload.loops.proofs.numbers import View
    from offload.loops.proofs.reach import ElementAccess, NestAccesses
    from offload.loops.sets.cutting import Span


@dataclass(frozen=True, slots=True)
class Division:
    """How a nest is divided among devices."""

    # The trips of the outermost axis that each device carries out; first and end are equal where it has none.
    trips: tuple[Span, ...]
    # What each device owns of the arrays whose writes are divided, None where that is nothing; disjoint boxes that make
    # up the array. The other arrays that the nest writes are written on all devices.
    owned: Mapping[str, tuple[Box | None, ...]]
    is_guarded: bool  # whether writes to them are carried out for some of the trips only
    # Loads, by `at`, that a device carries out for elements that it owns only.
    own_loads: frozenset[int] = frozenset()
    last: int = 0  # the device whose `lastprivate` arrays hold afterwards


@dataclass(frozen=True, slots=True)
class Footprint:
    """The boxes of an array that a divided nest needs and writes; None for nothing."""

    needs: Needs | None  # where devices have to be current
    writes: Writes | None  # what they leave

    @property
    def n_devices(self) -> int:
        found = self.needs.boxes if self.needs is not None else self.writes.alone if self.writes is not None else ()
        return len(found)


def owned_along(extents: tuple[int, ...], dimension: int, ranges: Iterable[Span]) -> tuple[Box, ...]:
    """Return the boxes that devices own by ranges of one dimension."""
    whole = whole_of(extents)
    return tuple((*whole[:dimension], range_, *whole[dimension + 1 :]) for range_ in ranges)


def single(accesses: NestAccesses, n_devices: int) -> Division:
    """Return the division that leaves a nest to the first device."""
    n_trips, others = accesses.launch.axes[0].trips, (None,) * (n_devices - 1)
    owned = {array: (whole_of(view.extents), *others) for array, view in accesses.launch.views.items()}
    return Division(((0, n_trips), *((0, 0),) * (n_devices - 1)), owned, is_guarded=False)


def duplicate(accesses: NestAccesses, n_devices: int) -> Division:
    """Return the division by which each device does all."""
    return Division(((0, accesses.launch.axes[0].trips),) * n_devices, {}, is_guarded=False)


def footprints(accesses: NestAccesses, division: Division) -> dict[str, Footprint]:
    """Return the footprint of each array that devices need or write.

    Names of one view share a footprint, which is listed under the first. Views that overlap otherwise have footprints
    of their own, in their own indices.
    """
    if any(axis.trips <= 0 for axis in accesses.launch.axes):
        return {}
    first: dict[View, str] = {}
    names = {array: first.setdefault(view, array) for array, view in accesses.launch.views.items()}
    found = {array: _Prints(accesses, division, array, names) for array in dict.fromkeys(names.values())}
    stored: list[ElementAccess] = []
    for access in accesses.listed:
        if access.array in accesses.own:
            continue
        prints = found[names[access.array]]
        if access.kind != "load":
            prints.write(access)
        elif not any(is_fed_by(access, store) for store in stored):
            prints.read(access)
        if access.kind == "store" and access.is_certain:
            stored.append(access)
    for reduction in accesses.nest.reductions:
        if reduction.name in names:  # combined in place on the first device
            found[names[reduction.name]].whole(0, is_read=True, is_written=True)
    for array, word in accesses.nest.privates.items():
        if word == "firstprivate":
            for device in range(len(division.trips)):
                found[names[array]].whole(device, is_read=True, is_written=False)
        elif word == "lastprivate":
            found[names[array]].whole(division.last, is_read=True, is_written=True)  # elements that it does not assign
    made = {array: prints.made() for array, prints in found.items()}
    return {array: each for array, each in made.items() if each.needs is not None or each.writes is not None}


def within(prints: Footprint, part: ArrayLayout, whole: ArrayLayout) -> Footprint | None:
    """Return the footprint of an array in the indices of another one, which it is a view of.

    If the image of a box is not a box, or has parts of elements, the device needs the whole box around it, and that box
    is marked. None means that boxes cannot tell which device has written which elements, as for a flat view cut inside
    a row.
    """
    is_same = part.itemsize == whole.itemsize  # of an element that is written in part the device needs the rest
    if is_same and (part.address, part.shape, part.strides) == (whole.address, whole.shape, whole.strides):
        return prints
    alone: list[list[Box]] = []
    everywhere: list[Box] = []
    needs: list[list[Box]] = []
    for device in range(prints.n_devices):
        read = () if prints.needs is None else prints.needs.boxes[device]
        written, shared = ((), ()) if prints.writes is None else (prints.writes.alone[device], prints.writes.everywhere)
        alone.append([box_of(whole, part, box) for box in written])
        everywhere = [box_of(whole, part, box) for box in shared]
        marked = [(box_of(whole, part, box), box) for box in (*written, *shared)]
        inexact = [moved for moved, box in marked if not is_same or _size(moved) != _size(box)]
        needs.append([*(box_of(whole, part, box) for box in read), *inexact])
    for device, boxes in enumerate(alone):
        if any(meet(box, other) is not None for box in boxes for others in alone[:device] for other in others):
            return None
    return _footprint(needs, alone, everywhere)


class _Prints:
    """Collects the boxes of one array."""

    def __init__(self, accesses: NestAccesses, division: Division, array: str, names: Mapping[str, str]) -> None:
        self.accesses, self.division = accesses, division
        self.extents = accesses.extents[array]
        # what each device owns; None of an array that all devices write
        self.owned = next((owned for name, owned in division.owned.items() if names[name] == array), None)
        n_devices = len(division.trips)
        self.needs: list[list[Box]] = [[] for _ in range(n_devices)]  # boxes, for each device
        self.alone: list[list[Box]] = [[] for _ in range(n_devices)]  # boxes that only that device writes, for each
        self.everywhere: list[Box] = []  # boxes that all devices write
        self.has_atomics = False  # whether an atomic update is among the writes

    def read(self, access: ElementAccess) -> None:
        is_own = self.owned is not None and access.at in self.division.own_loads
        for device, needs in enumerate(self.needs):
            hull = self._hull(access, device)
            needs.extend(self._inside(hull, device) if is_own else hull)

    def write(self, access: ElementAccess) -> None:
        is_guarded = self.owned is not None and self.division.is_guarded
        is_whole = access.kind == "store" and not is_guarded and _is_whole(self.accesses, access)
        self.has_atomics |= access.kind == "atomic"
        for device, trips in enumerate(self.division.trips):
            boxes = self._hull(access, device)
            if self.owned is None:
                assert trips == (0, self.accesses.launch.axes[0].trips), "all devices write it in all trips"
                self.everywhere += boxes
            elif is_guarded:  # a device without hull has no trip that writes, so that nobody writes what it owns
                boxes = self._inside([whole_of(self.extents)], device) if boxes else []
                self.alone[device] += boxes
            else:
                assert boxes == self._inside(boxes, device), "a device writes what it owns"
                self.alone[device] += boxes
            if not is_whole:
                self.needs[device] += boxes

    def whole(self, device: int, *, is_read: bool, is_written: bool) -> None:
        if is_read:
            self.needs[device].append(whole_of(self.extents))
        if is_written:
            self.alone[device].append(whole_of(self.extents))

    def made(self) -> Footprint:
        if self.has_atomics:  # what the order of updates leaves differs from device to device
            self.alone[0] += self.everywhere
            self.everywhere = []
        return _footprint(self.needs, self.alone, self.everywhere)

    def _inside(self, boxes: list[Box], device: int) -> list[Box]:
        """Return the parts of boxes that a device owns."""
        assert self.owned is not None
        owned = self.owned[device]
        if owned is None:
            return []
        return [part for box in boxes if (part := meet(box, owned)) is not None]

    def _hull(self, access: ElementAccess, device: int) -> list[Box]:
        """Return boxes that hold all elements that an access touches in a device's trips."""
        first, end = self.division.trips[device]
        if first >= end:
            return []
        space = self.accesses.space
        ranges: list[list[Span]] = []
        for index, extent in zip(access.indices, self.extents, strict=True):
            low, high = index.interval
            if index.is_exact:
                least, greatest = space.extremes(index.form, {0: (first, end - 1)})
                low, high = max(low, least), min(high, greatest)
            ranges.append(_wrapped(low, high, extent))
        return list(product(*ranges))


def _footprint(needs: list[list[Box]], alone: list[list[Box]], everywhere: list[Box]) -> Footprint:
    needed, written = (tuple(tuple(_joined(boxes)) for boxes in each) for each in (needs, alone))
    shared = tuple(_joined(everywhere))
    return Footprint(
        Needs(needed) if any(needed) else None, Writes(written, shared) if shared or any(written) else None
    )


def _size(box: Box) -> int:
    return prod(high - low for low, high in box)


def _wrapped(low: int, high: int, extent: int) -> list[Span]:
    """Return the places of indices from `low` to `high`, where negative ones count from the end."""
    places = [
        (max(low, 0), min(high + 1, extent)),
        (max(low, -extent) + extent, min(high, -1) + 1 + extent),
    ]
    (first, end), (first_too, end_too) = places
    if first < end and first_too < end_too and first_too <= end:
        return [(min(first, first_too), max(end, end_too))]
    return [place for place in places if place[0] < place[1]]


def _is_whole(accesses: NestAccesses, store: ElementAccess) -> bool:
    """Return whether a store certainly writes each element of its hull, for any trips of the outermost axis."""
    return store.is_certain and runs_through(accesses, store)


def _joined(boxes: list[Box]) -> list[Box]:
    """Return boxes of the same elements, without those inside of others, and those joined that make up a box."""
    found: list[Box] = []
    for new in boxes:
        box, n_before = new, len(found) + 1
        while len(found) < n_before:
            n_before = len(found)
            for other in found:
                union = _union(box, other)
                if union is not None:
                    box = union
                    found.remove(other)
                    break
        found.append(box)
    return found


def _union(one: Box, other: Box) -> Box | None:
    """Return the elements of two boxes if they make up a box: they differ in one dimension, or are nested."""
    hull = tuple((min(low, first), max(high, end)) for (low, high), (first, end) in zip(one, other, strict=True))
    if hull in {one, other}:
        return hull
    different = [k for k, (mine, others) in enumerate(zip(one, other, strict=True)) if mine != others]
    k = different[0]
    meets = max(one[k][0], other[k][0]) <= min(one[k][1], other[k][1])
    return hull if len(different) == 1 and meets else None
