"""Blocks of a type.

A tile is a pure reference: to a window in a plain type of the same shape, whose offsets are the numbers of the
elements, and then to the type itself. So it is right for every type. Rejected: windows of the sub-dimensions, whose
sum need not be the type's offset.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from offload.errors import LayoutError
from offload.parray.dimensions import abridged, dim
from offload.parray.references import disp, integer
from offload.parray.types import ArrayType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Tile(NamedTuple):
    """A block of a type.

    Attributes
    ----------
    type : ArrayType
        Its element *(i, …)* is element *origin + (i, …)* of the whole type.
    index : tuple of int
        The number of the tile in each sub-dimension.
    origin, shape : tuple of int
        The first element, and the number of elements, in each sub-dimension.

    Examples
    --------
    >>> tile = list(parray.tiles(parray.ArrayType((4, 6)), (2, 3)))[3]
    >>> tile.index, tile.origin, tile.shape
    ((1, 1), (2, 3), (2, 3))
    >>> tile.type.offsets()
    array([15, 16, 17, 21, 22, 23])
    """

    type: ArrayType
    index: tuple[int, ...]  # type: ignore[assignment]  # the tuple's method is not used
    origin: tuple[int, ...]
    shape: tuple[int, ...]


def tiles(T: ArrayType, shape: int | Sequence[int | None] | None) -> Iterator[Tile]:  # noqa: N803  # the page's name
    """Yield the blocks of a type in row-major order; those at the far edges are smaller.

    Parameters
    ----------
    T : ArrayType
        The type.
    shape : sequence of int or None, or int
        The elements of a block, from 1, for each sub-dimension. None means all elements of the sub-dimension. Give a
        single integer for a leaf.

    Returns
    -------
    iterator of Tile
        The blocks.

    Raises
    ------
    LayoutError
        The shape does not have one integer from 1 for each sub-dimension, or ``T`` is not a type.

    Examples
    --------
    >>> [tile.shape for tile in parray.tiles(parray.ArrayType((2, 5)), (2, 2))]
    [(2, 2), (2, 2), (2, 1)]
    """
    if not isinstance(T, ArrayType):
        raise LayoutError(f"tiles of {T!r}, {type(T).__name__}; it must be an ArrayType")
    sizes = T.shape or (T.size,)
    if shape is None or not hasattr(shape, "__iter__"):
        given: tuple[int | None, ...] = (shape,)
    else:
        given = tuple(shape)
    if len(given) != len(sizes):
        raise LayoutError(
            f"tiles of shape {shape} for {abridged(str(T))}: give {len(sizes)} numbers, one for each "
            "sub-dimension, or None for the whole of it"
        )
    extents = tuple(
        [
            size if extent is None else integer(extent, "the extent of a tile")
            for size, extent in zip(sizes, given, strict=True)
        ]
    )
    if any(extent < 1 for extent, wanted in zip(extents, given, strict=True) if wanted is not None):
        raise LayoutError(
            f"tiles of shape {shape} for {abridged(str(T))}: a tile must have at least one element in each "
            "sub-dimension"
        )
    return _tiles(T, sizes, extents)


def _tiles(whole: ArrayType, sizes: tuple[int, ...], extents: tuple[int, ...]) -> Iterator[Tile]:
    numbers = ArrayType(sizes)
    counts = [range(-(-size // extent) if size else 0) for size, extent in zip(sizes, extents, strict=True)]
    for index in itertools.product(*counts):
        origin = tuple([j * extent for j, extent in zip(index, extents, strict=True)])
        shape = tuple([min(extent, size - start) for extent, size, start in zip(extents, sizes, origin, strict=True)])
        window = tuple([dim(n, disp(start), sub) for n, start, sub in zip(shape, origin, numbers.dims, strict=True)])
        yield Tile(ArrayType(dim(None, ArrayType(window), whole)), index, origin, shape)
