"""Whether a load and a write of one iteration touch the same element, by value numbers, in the same or other trips.

Equal indices have one value number: an affine form, counted from the first element of the storage (or two forms, if the
sign is unknown). Two elements *never* meet if in some dimension the difference is a number other than 0, or its
extremes or its divisor exclude 0. For a value from other trips of a loop, everything that varies in the loop is a new
number; the write's trip of the outermost such loop is an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from offload.arrays.sections import HOST, overlaps, section_of
from offload.loops.proofs.independence import is_injective
from offload.loops.proofs.numbers import View

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offload.arrays.sections import Section
    from offload.loops.proofs.affine import AffineForm, IntegerValue, Interval
    from offload.loops.proofs.reach import ElementAccess, NestAccesses


# -- storages -----------------------------------------------------------------------------------------
#
# Views with equal strides that differ by whole elements, `a[1:]` and `a[:-1]`, are one storage: an index plus the
# offset of the view is an index of the storage. Interleaved views, `a[::2]` and `a[1::2]`, share nothing. For any
# other overlap with a written array the result is None: no device could say which elements it has changed.


@dataclass(frozen=True, slots=True)
class LoopStorage:
    """The storage that a view is a part of."""

    name: str  # of the first array that is a part of it
    extents: tuple[int, ...]  # of the whole
    offsets: tuple[int, ...]  # where the view's element `[0, …, 0]` is


def storages(views: Mapping[str, View], written: Collection[str]) -> dict[str, LoopStorage] | None:
    """Return the storage of each array, or None.

    None means that two views overlap otherwise than by whole elements, and one of them is in ``written``.
    """
    found: dict[str, LoopStorage] = {}
    for name, view in views.items():
        group = next((one for one in _groups(found) if _offsets(views[one], view) is not None), None)
        if group is None or not is_injective(view):
            found[name] = LoopStorage(name, view.extents, (0,) * len(view.extents))
        else:
            found = _joined(found, views, group, name)
    for one in written:
        for other, view in views.items():
            if found[one].name != found[other].name and _overlap(views[one], view):
                return None
            if one != other and not is_injective(view) and _overlap(views[one], view):
                return None
        if not is_injective(views[one]):
            return None
    return found


def _groups(found: Mapping[str, LoopStorage]) -> list[str]:
    return list(dict.fromkeys(storage.name for storage in found.values()))


def _joined(
    found: Mapping[str, LoopStorage], views: Mapping[str, View], group: str, name: str
) -> dict[str, LoopStorage]:
    """Return the storages with one more view in a group."""
    members = [one for one, storage in found.items() if storage.name == group] + [name]
    places = {one: _offsets(views[group], views[one]) or () for one in members}
    dimensions = range(len(views[group].extents))
    least = [min(place[k] for place in places.values()) for k in dimensions]
    most = [max(places[one][k] + views[one].extents[k] for one in members) for k in dimensions]
    extents = tuple(high - low for low, high in zip(least, most, strict=True))
    view = views[group]
    address = view.address + sum(low * stride for low, stride in zip(least, view.strides, strict=True))
    if not is_injective(View(extents, view.strides, view.itemsize, address)):
        return {**found, name: LoopStorage(name, views[name].extents, (0,) * len(extents))}
    joined = {
        one: LoopStorage(group, extents, tuple(at - low for at, low in zip(places[one], least, strict=True)))
        for one in members
    }
    return {**found, **joined}


def _offsets(one: View, other: View) -> tuple[int, ...] | None:
    """Return the index of another view's first element in a view, or None if their elements are not the same."""
    if one == other:
        return (0,) * len(one.extents)
    if (one.strides, one.itemsize) != (other.strides, other.itemsize) or not one.may_share(other):
        return None
    rest = other.address - one.address
    offsets = [0] * len(one.strides)
    for k in sorted(range(len(offsets)), key=lambda k: -abs(one.strides[k])):
        stride = one.strides[k]
        if stride:
            offsets[k] = _nearest(rest, stride, one.extents[k], other.extents[k])
            rest -= offsets[k] * stride
    return None if rest else tuple(offsets)


def _nearest(rest: int, stride: int, extent: int, other: int) -> int:
    """Return how many strides are nearest to a distance; the sign of the remainder is for narrower strides."""
    whole = round(rest / stride) if abs(rest) < 1 << 52 else rest // stride
    return max(min(whole, extent), -other)


def _overlap(one: View, other: View) -> bool:
    """Whether bytes of two views may be the same."""
    if not one.may_share(other):
        return False
    step = gcd(*(s for v in (one, other) for s, n in zip(v.strides, v.extents, strict=True) if n > 1))
    apart = (other.address - one.address) % step if step else 0
    if step and one.itemsize <= apart <= step - other.itemsize:
        return False
    return overlaps(_section(one), _section(other))  # as of halves of a matrix, one of which is reversed


def _section(view: View) -> Section:
    return section_of(HOST, view.address, view.extents, view.strides, view.itemsize)


# -- meetings -----------------------------------------------------------------------------------------


Meeting: TypeAlias = Literal["same", "maybe", "never"]


class Passed(NamedTuple):
    """The loops, by their atoms, in whose other trips a write may be, all if None; of `earlier` in an earlier one."""

    atoms: frozenset[int] | None
    earlier: int | None  # None: it is not known which trip comes first


def meeting(
    accesses: NestAccesses,
    storages: Mapping[str, LoopStorage],
    load: ElementAccess,
    write: ElementAccess,
    passed: Passed | None,
) -> Meeting:
    """Return whether a load touches the element of a write; `passed` is None where both are in the same trips."""
    one, other = (element_of(accesses, storages, access) for access in (load, write))
    if one.storage != other.storage:
        return "never"
    pairs = list(zip(one.dimensions, other.dimensions, strict=True))
    if any(_differ(accesses, mine, others, passed) for mine, others in pairs):
        return "never"
    is_same = passed is None and all(number_of(*mine) == number_of(*others) for mine, others in pairs)
    return "same" if is_same else "maybe"


class Element(NamedTuple):
    """The element of an access: the storage, and for each dimension the index with the numbers that may be added."""

    storage: str  # by the first name of its views
    # of each: the index, and the numbers of which one is added
    dimensions: tuple[tuple[IntegerValue, tuple[int, ...]], ...]


def element_of(accesses: NestAccesses, storages: Mapping[str, LoopStorage], access: ElementAccess) -> Element:
    """Return the element of an access: an index that may be negative or not has two numbers that may be added."""
    extents = accesses.extents[access.array]
    storage = storages.get(access.array)
    offsets = (0,) * len(extents) if storage is None else storage.offsets
    shifts = [
        tuple(offset + extent * negative for negative in (0, 1) if (index.high >= 0 if not negative else index.low < 0))
        for index, extent, offset in zip(access.indices, extents, offsets, strict=True)
    ]
    return Element(access.array if storage is None else storage.name, tuple(zip(access.indices, shifts, strict=True)))


def number_of(index: IntegerValue, shifts: tuple[int, ...]) -> tuple[AffineForm, tuple[int, ...]]:
    """Return the value number, which is equal for equal indices."""
    return (index.form + shifts[0], (0,)) if len(shifts) == 1 else (index.form, shifts)


def _differ(
    accesses: NestAccesses,
    one: tuple[IntegerValue, tuple[int, ...]],
    other: tuple[IntegerValue, tuple[int, ...]],
    passed: Passed | None,
) -> bool:
    """Whether the indices of a load and of a write in one dimension are certainly not equal."""
    (mine, shifts), (others, other_shifts) = one, other
    if one == other and passed is None:
        return False
    if passed is None and (mine.form - others.form).is_constant:
        constant = (mine.form - others.form).constant
        return all((constant + s - t) % (1 << 64) for s, t in product(shifts, other_shifts))
    if not (mine.is_exact and others.is_exact):
        reached = mine.low - others.high, mine.high - others.low
        step, base = 0, 0
    else:
        reached, step, base = _difference(accesses, mine.form, others.form, passed)
    for shift in {s - t for s, t in product(shifts, other_shifts)}:
        low, high = reached[0] + shift, reached[1] + shift
        if low <= 0 <= high and not (step and (base + shift) % step):
            return False
    return True


def _difference(
    accesses: NestAccesses, mine: AffineForm, others: AffineForm, passed: Passed | None
) -> tuple[Interval, int, int]:
    """Return bounds of the difference of two forms, a number that divides it but for a rest, and that rest."""
    space = accesses.space
    n_axes = len(accesses.launch.axes)
    varying: set[int] = set()
    if passed is not None:
        for number, _ in (*mine.terms, *others.terms):
            atom = space.atoms[number]
            inner = {loop for loop in atom.loops if loop >= n_axes}
            if not atom.is_pure or inner & (inner if passed.atoms is None else passed.atoms):
                varying.add(number)
    constant = mine.constant - others.constant
    parts = [mine.part(varying), others.part(varying)]
    same = mine - mine.constant - parts[0] - (others - others.constant - parts[1])
    bounds = [space.extremes(same)]
    divisors = [by for _, by in same.terms]
    earlier = None if passed is None else passed.earlier
    by = parts[0].coefficient(earlier) if earlier is not None else 0
    if earlier is not None and by and by == parts[1].coefficient(earlier):
        parts = [part - part.part({earlier}) for part in parts]
        ends = by, by * max(space.atoms[earlier].high, 1)
        bounds.append((min(ends), max(ends)))
        divisors.append(by)
    bounds += [space.extremes(parts[0]), space.extremes(-parts[1])]
    divisors += [by for part in parts for _, by in part.terms]
    low, high = (sum(bound[end] for bound in bounds) for end in (0, 1))
    return (constant + low, constant + high), gcd(*divisors), constant
