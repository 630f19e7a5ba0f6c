"""The bytes that a list item covers, and whether two items share one.

A `Section` is a canonical description of a set of bytes, so equal sets are equal tuples. The form is unique for every
item in which each stride is at least the extent of the axes inside it. Strides made by hand may have several forms;
only the short cut by equality is lost for them. `overlaps` is exact within a bounded search, and then says yes. See
docs/design/theory.md, "Sections".
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, prod
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from typing import TypeAlias

    Dims: TypeAlias = tuple[tuple[int, int], ...]

HOST: Final = -1  # The host's address space

# Nodes that `overlaps` visits before it gives up: 10 ms at most; pairs cut from one 4-D array needed 10 at most.
SEARCH_LIMIT: Final = 10_000

_LAYOUTS = 1024  # Layouts that are remembered: a program has arrays of few


class Section(NamedTuple):
    """The bytes that a list item covers, in canonical form; made by `section_of`."""

    space: Hashable  # the address space: `HOST` or a device's
    address: int  # the lowest byte
    # ``(count, stride_nbytes)``, largest stride first; every count > 1, every stride > ``run_nbytes``
    dims: tuple[tuple[int, int], ...]
    run_nbytes: int  # the innermost contiguous run; 0 for an item without elements, which has no ``dims``

    @property
    def nbytes(self) -> int:
        """Return the number of bytes covered; strides that interleave may count a byte twice."""
        nbytes = self[3]
        for count, _ in self[2]:
            nbytes *= count
        return nbytes

    @property
    def end(self) -> int:
        """Return the address one past the highest byte."""
        end = self[1] + self[3]
        for count, stride in self[2]:
            end += (count - 1) * stride
        return end

    @property
    def is_nested(self) -> bool:
        """Tell whether each stride is at least the extent of the inner axes, so that no two rows interleave."""
        extent = self[3]
        for count, stride in reversed(self[2]):
            if stride < extent:
                return False
            extent += (count - 1) * stride
        return True


def section_of(
    space: Hashable, address: int, shape: Sequence[int], strides: Sequence[int] | None, itemsize: int
) -> Section:
    """Return the section of an array.

    ``address`` is that of element ``(0, …, 0)``. Strides are in bytes, of any sign; None means C-contiguous.
    """
    if strides is None:
        # This is on the path of every clause; the constructor of a named tuple costs as much as all the rest.
        return tuple.__new__(Section, (space, address, (), itemsize * prod(shape)))
    offset, dims, run = _layout(tuple(shape), tuple(strides), itemsize)
    return tuple.__new__(Section, (space, address + offset, dims, run))


def overlaps(a: Section, b: Section, limit: int = SEARCH_LIMIT) -> bool:
    """Tell whether two sections share a byte; true as well if a search of ``limit`` steps cannot decide."""
    if a[0] != b[0] or not a[3] or not b[3]:
        return False
    if a[1] > b[1]:
        a, b = b, a
    shift = b[1] - a[1]
    a_dims, b_dims = a[2], b[2]
    if a.end <= b[1]:
        return False
    if not a_dims and not b_dims:
        return True
    # A byte is shared if the rows chosen differ by something in [low, high].
    low, high = shift - a[3] + 1, shift + b[3] - 1
    if len(a_dims) < 2 and len(b_dims) < 2 and (not a_dims or not b_dims or a_dims[0][1] == b_dims[0][1]):
        # Two tiles of one matrix, or a tile and a row: the difference of the row numbers is one number.
        stride = (a_dims or b_dims)[0][1]
        most = a_dims[0][0] - 1 if a_dims else 0
        least = 1 - b_dims[0][0] if b_dims else 0
        return max(-(-low // stride), least) <= min(high // stride, most)
    terms = [(stride, count) for count, stride in a_dims]
    for count, stride in b_dims:
        terms.append((stride, count))
        low += (count - 1) * stride
        high += (count - 1) * stride
    return _reaches(terms, low, high, limit)


def covers(outer: Section, inner: Section) -> bool:
    """Tell whether every byte of ``inner`` is in ``outer``.

    Exact if ``outer`` is dense or nested (`Section.is_nested`) and `overlaps` can decide about its gaps; false where
    that cannot be shown otherwise. An empty ``inner`` is covered by anything.

    It asks about bytes only. If ``inner`` has merged axes that the gaps of ``outer`` keep apart, a view of these
    bytes has a place in the packed copy under its own axes or not at all: `locate_nbytes` asks about that.
    """
    if not inner[3] or outer == inner:
        return True
    if outer[0] != inner[0] or inner[1] < outer[1] or inner.end > outer.end:
        return False
    if not outer[2] or locate(*_box(outer), inner[1], *_box(inner)[:2]) is not None:
        return True
    return outer.is_nested and not any(overlaps(gap, inner) for gap in _gaps(outer))


def locate(
    outer_shape: Sequence[int],
    outer_strides: Sequence[int],
    outer_address: int,
    address: int,
    shape: Sequence[int],
    strides: Sequence[int],
) -> tuple[int, tuple[int, ...]] | None:
    """Find a view within the packed copy of an array.

    The copy has the array's elements without gaps, in C order of ``outer_shape``. The view's elements have the same
    size as the array's; each must be one of them, at exactly its address. Addresses are those of element ``(0, …, 0)``,
    strides are in bytes of any sign.

    Return the offset of the view's first element in the copy and its strides, both in **elements**; an axis of one
    element has stride 1. Return None if an element of the view is not one of the array's, and for a view without
    elements.

    Each address is written in digits, one for an axis of the array (largest stride first), and an axis of the view is
    the difference between the digits of two neighbours. If the digits stay in range at both ends of every axis of the
    view, they do in between: the result is right for every array. It is complete for an array whose rows do not
    interleave, except for views that no slicing of it makes and whose place in the packed copy would have no strides.
    """
    if 0 in shape or 0 in outer_shape:
        return None
    base, start, axes = _axes(outer_shape, outer_strides, outer_address)
    origin = _digits(address - base, axes)
    if origin is None:
        return None
    lowest, highest = origin[:], origin[:]
    packed_strides = []
    for count, stride in zip(shape, strides, strict=True):
        if count == 1:
            packed_strides.append(1)
            continue
        neighbour = _digits(address + stride - base, axes)
        if neighbour is None:
            return None
        packed_stride = 0
        for k, (_, _, packed) in enumerate(axes):
            step = neighbour[k] - origin[k]
            packed_stride += step * packed
            if step < 0:
                lowest[k] += (count - 1) * step
            else:
                highest[k] += (count - 1) * step
        packed_strides.append(packed_stride)
    for k, (_, count, packed) in enumerate(axes):
        if lowest[k] < 0 or highest[k] >= count:
            return None
        start += origin[k] * packed
    return start, tuple(packed_strides)


def locate_nbytes(
    outer: Section, address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, tuple[int, ...]] | None:
    """Find a view within the packed copy of a section: its rows without gaps, lowest address first.

    As `locate`, in **bytes** throughout and for elements of any size.
    """
    place = locate(*_box(outer), address, (*shape, itemsize), (*strides, 1))
    return None if place is None else (place[0], place[1][:-1])


def c_strides(shape: Sequence[int], itemsize: int = 1) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array: bytes, or elements if ``itemsize`` is 1."""
    strides = [0] * len(shape)
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = itemsize
        itemsize *= shape[axis]
    return tuple(strides)


@lru_cache(_LAYOUTS)
def _layout(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, Dims, int]:
    """Return where the lowest byte lies from element ``(0, …, 0)``, the axes and the run of a section."""
    if not itemsize or 0 in shape:
        return 0, (), 0
    run = itemsize
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count == 1:
            continue
        if stride != run:
            break
        run *= count
    else:
        return 0, (), run  # contiguous: programs have such arrays of more lengths than are remembered
    offset, axes = 0, []
    for count, stride in zip(shape, strides, strict=True):
        if count > 1 and stride:
            if stride < 0:
                offset += (count - 1) * stride
                axes.append((-stride, count))
            else:
                axes.append((stride, count))
    axes.sort()
    run, rest = _fold_run(axes, itemsize)
    return offset, tuple([(count, stride) for stride, count in reversed(_merge(rest))]), run


def _fold_run(axes: list[tuple[int, int]], run: int) -> tuple[int, list[tuple[int, int]]]:
    """Take the axes ``(stride, count)``, smallest stride first, that leave no gap between runs into the run."""
    for k, (stride, count) in enumerate(axes):
        if stride > run:
            return run, axes[k:]
        run += (count - 1) * stride
    return run, []


def _merge(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Make one of neighbouring axes ``(stride, count)``, smallest stride first, that are one progression together."""
    merged: list[tuple[int, int]] = []
    for stride, count in axes:
        if merged:
            inner_stride, inner_count = merged[-1]
            steps, rest = divmod(stride, inner_stride)
            if not rest and steps <= inner_count:
                merged[-1] = (inner_stride, inner_count + steps * (count - 1))
                continue
        merged.append((stride, count))
    return merged


def _reaches(terms: list[tuple[int, int]], low: int, high: int, limit: int) -> bool:
    """Tell whether some ``sum(x[k] * stride[k])`` with ``0 <= x[k] < count[k]`` is in ``[low, high]``."""
    terms.sort()
    width, rest = _fold_run(terms, high - low + 1)
    low = high - width + 1
    merged = _merge(rest)
    # extent[k] and divisor[k] speak of the k smallest strides, those still to be chosen at depth k.
    extent, divisor = [0], [0]
    for stride, count in merged:
        extent.append(extent[-1] + (count - 1) * stride)
        divisor.append(gcd(divisor[-1], stride))
    stack = [(len(merged), low, high)]
    steps = 0
    while stack:
        k, low, high = stack.pop()
        # Here 0 <= high and low <= extent[k]: at the top since the bounds meet, below by the choice of x.
        if k == 0:
            return True
        nearest = min(high, extent[k])
        if nearest - nearest % divisor[k] < max(low, 0):
            continue
        if k == 1:  # the multiples of the last stride are all within reach
            return True
        k -= 1
        stride, count = merged[k]
        first = max(0, -((extent[k] - low) // stride))
        last = min(count - 1, high // stride)
        steps += 1 + max(0, last - first)
        if steps > limit:
            return True
        stack += [(k, low - x * stride, high - x * stride) for x in range(first, last + 1)]
    return False


def _box(section: Section) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return a section as an array of bytes: shape, strides, address."""
    dims = section[2]
    return (*(c for c, _ in dims), section[3]), (*(s for _, s in dims), 1), section[1]


def _gaps(section: Section) -> Iterator[Section]:
    """Yield the gaps of a nested section between its first byte and its last, one section an axis."""
    space, address, dims, extent = section
    for k in range(len(dims) - 1, -1, -1):
        count, stride = dims[k]
        if stride > extent:
            between = ((count - 1, stride),) if count > 2 else ()
            yield Section(space, address + extent, (*dims[:k], *between), stride - extent)
        extent += (count - 1) * stride


def _axes(shape: Sequence[int], strides: Sequence[int], address: int) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Return lowest address, its offset in the packed copy and axes ``(stride, count, packed stride)``, largest first.

    A negative stride is walked backwards. A repeated axis (stride 0) stands for its first copy. Axes that continue each
    other in both places are one, so that a view may run across them.
    """
    start = 0
    axes = []
    for count, stride, packed in zip(shape, strides, c_strides(shape), strict=True):
        if count > 1 and stride > 0:
            axes.append((stride, count, packed))
        elif count > 1 and stride < 0:
            address += (count - 1) * stride
            start += (count - 1) * packed
            axes.append((-stride, count, -packed))
    axes.sort(reverse=True)
    merged: list[tuple[int, int, int]] = []
    for stride, count, packed in axes:
        if merged and merged[-1][0] == count * stride and merged[-1][2] == count * packed:
            count *= merged.pop()[1]  # noqa: PLW2901 -- the merged axis takes the outer one's place
        merged.append((stride, count, packed))
    return address, start, merged


def _digits(offset: int, axes: list[tuple[int, int, int]]) -> list[int] | None:
    """Write an offset in bytes as one index an axis; None if no element begins there."""
    if offset < 0:
        return None
    digits = []
    for stride, count, _ in axes:
        digit = min(offset // stride, count - 1)
        digits.append(digit)
        offset -= digit * stride
    return None if offset else digits
