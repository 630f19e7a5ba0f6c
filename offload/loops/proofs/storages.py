"""Which arrays of a launch are one piece of storage, so a write by one name is read by another.

Views with equal strides that differ by whole elements, ``a[1:]`` and ``a[:-1]``, are one storage: an index plus the
view's *offset* is an index of the storage. Interleaved views, ``a[::2]`` and ``a[1::2]``, share nothing. For any other
overlap with a written array the result is None: no device could say which elements it has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from offload.arrays.sections import HOST, overlaps, section_of
from offload.loops.proofs.independence import is_injective
from offload.loops.proofs.numbers import View

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offload.arrays.sections import Section


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
