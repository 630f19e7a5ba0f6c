"""Copies inside of the host's memory: NumPy's, and by blocks where a transposition would miss the caches.

NumPy walks along the destination. If its neighbours lie far apart in the source, each element fetches a line of 64
bytes, and the other elements of that line are needed only after a whole row of the destination. By then the line is
gone if the lines of a row compete for the same few places of a cache, being powers of two apart, or lie in more pages
than a core remembers. A block has few columns of the destination, so that its lines stay, and many elements along the
source, so that calls are few. Blocks of 64 x 64 are slower (2 cores of a server).
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.arrays.boxes import Box, collapse
from offload.arrays.copies import hull, offset, width_of
from offload.arrays.items import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEAST_NBYTES = 1 << 18  # Below, a cache holds both sides

_LINE_NBYTES = 64
_PAGE_NBYTES = 4096

# Of a core. What is a power of two apart shares as many places of it as fit in at that distance.
_CACHE_NBYTES = 1 << 20

_COMPETING_LINES = 128  # Lines, a multiple of the page apart, from which the smallest cache keeps none

_MANY_PAGES = 3500  # Pages that are too many for a core to remember where they are, until they are used again

_LEAST_ALONG_SRC = 128  # Elements from which blocks are worth their calls

_ALONG_SRC = 512
# Elements of a block along the destination, by their width; other widths as 8.
_ALONG_DST = {1: 16, 2: 16, 4: 16, 8: 32}

_NUMBERS = {width: np.dtype(name) for width, name in ((8, "u8"), (4, "u4"), (2, "u2"), (1, "u1"))}

_MOST_ELEMENT_NBYTES = 1 << 10  # Largest row that is one element to NumPy

_KEPT = 1024  # Shapes that are remembered, as `offload.arrays.boxes` does


class Blocks(NamedTuple):
    """How a copy is cut: at most so many elements along the axis that is nearest in the source, and the destination."""

    src_axis: int
    dst_axis: int
    along_src: int
    along_dst: int


def copyto(dst: np.ndarray[Any, Any], src: np.ndarray[Any, Any]) -> None:
    """Copy elements between two arrays of one shape and dtype, without Python objects, that share no memory."""
    if dst.ndim > 1 and dst.nbytes >= _LEAST_NBYTES and dst.shape == src.shape:
        box = collapse(dst.shape, dst.strides, src.strides, dst.itemsize)
        cut = blocks(box)
        if cut is not None:
            copy_blocks(dst, src, box, cut)
            return
    np.copyto(dst, src)


@lru_cache(_KEPT)
def blocks(box: Box) -> Blocks | None:
    """Return how to cut a copy so that the caches serve; None where they do as it is."""
    dims = box.dims
    if len(dims) < 2 or box.row_nbytes >= _LINE_NBYTES:  # two axes are turned
        return None
    along_dst = min(range(len(dims)), key=lambda i: abs(dims[i][1]))
    along_src = min(range(len(dims)), key=lambda i: abs(dims[i][2]))
    n_lines, _, distance = dims[along_dst]
    count, _, step = dims[along_src]
    if along_dst == along_src or count < _LEAST_ALONG_SRC or not 0 < abs(step) < _LINE_NBYTES:
        return None
    apart = max(abs(distance) & -abs(distance), _LINE_NBYTES)
    competes = apart >= _PAGE_NBYTES and n_lines >= _COMPETING_LINES
    is_far = n_lines * min(abs(distance), _PAGE_NBYTES) > _MANY_PAGES * _PAGE_NBYTES
    if not (competes or is_far or n_lines * apart > _CACHE_NBYTES):
        return None
    return Blocks(along_src, along_dst, _ALONG_SRC, _ALONG_DST.get(box.row_nbytes, _ALONG_DST[8]))


def copy_blocks(dst: np.ndarray[Any, Any], src: np.ndarray[Any, Any], box: Box, cut: Blocks) -> None:
    """Copy elements as `copyto` does, by blocks."""
    dst, src = HostMemory(address_of(dst), box, 1).whole(box), HostMemory(address_of(src), box, 2).whole(box)
    if dst.dtype != src.dtype:  # numbers on the aligned side alone: NumPy would convert
        dst, src = (side.view(np.dtype((np.void, side.itemsize))) for side in (dst, src))
    axes = (cut.src_axis, cut.dst_axis)
    dst, src = np.moveaxis(dst, axes, (-2, -1)), np.moveaxis(src, axes, (-2, -1))
    *outer, n_src, n_dst = dst.shape
    for index in itertools.product(*map(range, outer)):
        to, at = dst[index], src[index]
        for i in range(0, n_src, cut.along_src):
            for k in range(0, n_dst, cut.along_dst):
                block = slice(i, i + cut.along_src), slice(k, k + cut.along_dst)
                to[block] = at[block]


class HostMemory:
    """The host memory of one side of a copy, to be packed and unpacked piece by piece.

    ``address`` is that of element ``(0, …, 0)``; the memory is not kept alive. ``side`` is 1 for the destination and 2
    for the source.
    """

    __slots__ = ("_bytes", "_dtype", "_low", "_side")

    def __init__(self, address: int, box: Box, side: int) -> None:
        self._low, nbytes = hull(box, side)
        self._bytes = bytes_at(address + self._low, nbytes)
        self._side = side
        self._dtype = _element(box.row_nbytes, width_of(address + offset(box, side), *[dim[side] for dim in box.dims]))

    def pack(self, packed: np.ndarray[Any, Any], part: Box) -> None:
        """Copy a part of the box to bytes, one after the other in the order of its axes, at least as aligned."""
        near, far = self._views(packed, part)
        copyto(near, far)

    def unpack(self, packed: np.ndarray[Any, Any], part: Box) -> None:
        """Copy the bytes back."""
        near, far = self._views(packed, part)
        copyto(far, near)

    def whole(self, box: Box) -> np.ndarray[Any, Any]:
        """Return the rows of the box, each an element, or several of which the last axis has as many as a row."""
        shape, strides = self._layout(box)
        return np.ndarray(shape, self._dtype, self._bytes, offset(box, self._side) - self._low, strides)

    def _views(self, packed: np.ndarray[Any, Any], part: Box) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        if not part.dims:
            begin = offset(part, self._side) - self._low
            return packed[: part.row_nbytes], self._bytes[begin : begin + part.row_nbytes]
        shape, _ = self._layout(part)
        return np.ndarray(shape, self._dtype, packed), self.whole(part)

    def _layout(self, part: Box) -> tuple[Sequence[int], Sequence[int]]:
        shape, strides = [dim[0] for dim in part.dims], [dim[self._side] for dim in part.dims]
        itemsize = self._dtype.itemsize
        if itemsize != part.row_nbytes:
            shape.append(part.row_nbytes // itemsize)
            strides.append(itemsize)
        return shape, strides


def _element(row_nbytes: int, alignment: int) -> np.dtype[Any]:
    """Return the layout of a row for NumPy: one element, or several for a long row."""
    # A row as one element of no type is copied up to twice as quickly as the numbers in it. Long ones are cut, since
    # NumPy keeps the GIL for up to 500 elements.
    if row_nbytes in _NUMBERS and alignment % row_nbytes == 0:
        return _NUMBERS[row_nbytes]
    return np.dtype((np.void, row_nbytes if row_nbytes <= _MOST_ELEMENT_NBYTES else width_of(row_nbytes)))


class _Memory:
    """Memory of the process for NumPy to look at."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def bytes_at(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    """Return memory of the process as an array of bytes, which does not keep it alive."""
    return np.asarray(_Memory(address, nbytes))
