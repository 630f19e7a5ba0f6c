"""The bytes of an access, as values: sections, and elements that an index array or a mask picks.

A `Section` has strides, and says all about a view. A `PickedPart` has the bounds of the picked elements in the fields
of a section, and their offsets besides. The offsets are None if the recorder does not know them, because the index lies
on a GPU. Such a part shares a byte for certain only with an access that covers the whole array, and only if it cannot
be empty. With any other it gives no finding.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from offload.arrays import sections
from offload.arrays.sections import Section, section_of
from offload.sanitizer import elements
from offload.sanitizer.memory import layout_at

_BASE = 1 << 40
"""Where addresses of storages begin when NumPy compares them: it takes no negative ones."""


class PickedPart(NamedTuple):
    """Elements of an array that an index array or a mask picks; the first four fields are those of `Section`."""

    space: int
    address: int  # the lowest byte
    dims: tuple[tuple[int, int], ...]  # none: the bounds have no gaps
    run_nbytes: int
    itemsize: int
    offsets: bytes | None  # the addresses of the elements, int64, sorted; None if they are not known
    may_be_empty: bool = False  # whether a mask that is not known picks the elements

    @property
    def end(self) -> int:
        """Return the address one past the highest byte."""
        return self.address + self.run_nbytes


AccessPart: TypeAlias = Section | PickedPart


def part_of(array: np.ndarray[Any, Any], space: int, origin: int, *, may_be_empty: bool = False) -> AccessPart:
    """Return the bytes of an array, which may be a `offload.sanitizer.elements.Scattered`.

    ``origin`` is the address of the storage's first byte. ``may_be_empty`` speaks of elements that are not known.
    """
    if isinstance(array, elements.Scattered):
        low, high = elements.byte_bounds(array)
        known = array.addresses
        offsets = None if known is None else (known - origin).astype(np.int64).tobytes()
        nbytes = high - low if array.size else 0
        return PickedPart(space, low - origin, (), nbytes, array.itemsize, offsets, may_be_empty and known is None)
    address: int = array.__array_interface__["data"][0]
    return section_of(space, address - origin, array.shape, array.strides, array.itemsize)


def space_of(part: AccessPart) -> int:
    """Return the number of the storage that a part lies in."""
    space = part.space
    assert isinstance(space, int)
    return space


def shares(one: AccessPart, other: AccessPart) -> bool:
    """Tell whether two parts share a byte for certain; false if a bounded search cannot decide."""
    if one.space != other.space or not one.run_nbytes or not other.run_nbytes:
        return False
    if one.end <= other.address or other.end <= one.address:
        return False
    if not one.dims and not other.dims and type(one) is type(other) is Section:
        return True
    for part, outer in ((one, other), (other, one)):
        if type(part) is PickedPart and part.offsets is None:
            return covers(outer, part) and not part.may_be_empty
    return elements.overlaps(_as_array(one), _as_array(other)) is True


def covers(outer: AccessPart, inner: AccessPart) -> bool:
    """Tell whether every byte of ``inner`` is certainly in ``outer``."""
    if type(outer) is PickedPart:
        return outer == inner and outer.offsets is not None
    assert type(outer) is Section
    return sections.covers(outer, Section(*inner[:4]))


def _as_array(part: AccessPart) -> np.ndarray[Any, Any]:
    """Return an array with these addresses, whose elements must not be read."""
    shape = (*(count for count, _ in part.dims), 1)
    strides = (*(stride for _, stride in part.dims), part.run_nbytes)
    if type(part) is not PickedPart:
        return layout_at(_BASE + part.address, shape, strides, part.run_nbytes)
    assert part.offsets is not None
    count = -(-part.run_nbytes // part.itemsize)
    bounds = layout_at(_BASE + part.address, (count,), (part.itemsize,), part.itemsize)
    array = bounds.view(elements.Scattered)
    array.addresses = np.frombuffer(part.offsets, np.int64) + _BASE
    return array
