"""Storage of typed copies: the accepted arrays, and the views that are copied.

An array is seen flat, so that it has to be C-contiguous; an offset counts its elements. A box of a plan is a strided
view of it, and so is a type whose leaves have one stride each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import address_of as host_address
from offload.arrays.items import as_host, label
from offload.constructs.copying import MAX_DIMENSIONS, check_writeable, place_of
from offload.errors import ClauseError, LayoutError
from offload.parray.dimensions import abridged
from offload.runtime.current import current_runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.parray.types import ArrayType
    from offload.runtime.place import DevicePlace

COPY = "parray.copy"

_PLAIN_KINDS = frozenset("biufc")
# What elements are moved as if they are not numbers of one type on both sides; CuPy has no others.
_RAW = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}

_REFUSED = (np.ma.MaskedArray, np.matrix)


class Storage:
    """One array of a typed copy, checked."""

    __slots__ = ("address", "array", "place")

    def __init__(self, array: Any, place: DevicePlace | None, address: int) -> None:
        self.array = array  # a plain `numpy.ndarray`, or an array of a device
        self.place = place  # its device; None for the host
        self.address = address  # of its first byte

    def view(self, offset: int, shape: Sequence[int], steps: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """Return part of it as a strided array: offset and steps are in elements."""
        nbytes = dtype.itemsize
        strides = tuple([step * nbytes for step in steps])
        if self.place is None:
            buffer = self.array
            if buffer.dtype.kind not in _PLAIN_KINDS:  # NumPy gives the memory of dates to nobody
                buffer = buffer.reshape(-1).view(np.uint8)
            return np.ndarray(shape, dtype, buffer, offset * nbytes, strides)
        return self.place.device.view(self.array, offset * nbytes, tuple(shape), strides, dtype)

    def flat(self, dtype: np.dtype[Any]) -> Any:
        """Return all of it as a flat array."""
        return self.view(0, (self.array.size,), (1,), dtype)

    @property
    def extent(self) -> tuple[int, int]:
        """The address of its first byte, and the address after its last."""
        return self.address, self.address + self.array.nbytes


def _on_device(x: Any) -> tuple[DevicePlace, int] | None:
    """Return the place of a device array of the current runtime, and its address; None for any other object.

    Raises `RegionClosedError` if its storage has gone back.
    """
    for place in current_runtime().places:
        address = place.device.address(x)
        if address is not None:
            return place, address
    return None


def check(side: ArrayType, x: Any, role: str, what: str = COPY, *, is_written: bool = False) -> Storage:
    """Return an array as the storage of a type; of a distributed type the array is one thread's.

    Raise `ClauseError` for no array of the host or of a device of this runtime, not C-contiguous, of Python objects,
    too small, or read-only and written; `LayoutError` for a negative offset of the type; `RegionClosedError` if the
    storage of a device array has been freed. Messages call the array ``role``.
    """
    place = None
    if x.__class__ is not np.ndarray and not isinstance(x, _REFUSED):
        x = as_host(x)
    if x.__class__ is np.ndarray and not x.dtype.hasobject:
        address = host_address(x)
    elif isinstance(x, _REFUSED):
        raise ClauseError(
            f"{what}: {role} is a {type(x).__name__}, whose elements are more than plain memory; pass a plain array, "
            "for example from np.asarray(x) or x.filled(…)"
        )
    else:
        found = None if isinstance(x, np.ndarray) else _on_device(x)
        if found is None:
            place_of(current_runtime(), x, f"{what}: {role.removesuffix(',')}")  # refuses what is no array, and objects
            x = x.view(np.ndarray)
            address = host_address(x)
        else:
            place, address = found
    flags = x.flags
    if not flags.c_contiguous:
        raise ClauseError(
            f"{what}: {role} {label(x)} with strides {x.strides} is not C-contiguous; a type counts the elements of a "
            "contiguous array: pass the array that it is a view of, and a type of the part"
        )
    if x.size < side.span or side.least < 0:
        _refuse_extent(side, x, role, what)
    if is_written:
        check_writeable(flags, x, what)
    return Storage(x, place, address)


def _refuse_extent(side: ArrayType, x: Any, role: str, what: str) -> None:
    if side.least < 0:
        raise LayoutError(
            f"{what}: {abridged(str(side))} has the offset {side.least}, before the first element of {role}; "
            "add disp(…) so that offsets begin at 0"
        )
    raise ClauseError(
        f"{what}: {role} {label(x)} has {x.size} elements; {abridged(str(side))} reaches {side.span}; "
        "give an array with at least its span"
    )


def common_dtype(arrays: Sequence[Any]) -> np.dtype[Any]:
    """Return the dtype as which elements are moved; raise `ClauseError` if item sizes differ."""
    first = arrays[0].dtype
    is_plain = first.kind in _PLAIN_KINDS
    for array in arrays:
        dtype = array.dtype
        if dtype is not first:
            if dtype.itemsize != first.itemsize:
                raise ClauseError(
                    f"{COPY}: elements of {first.itemsize} bytes, {label(arrays[0])}, and of {dtype.itemsize}, "
                    f"{label(array)}; elements are moved, not converted: the item sizes must be equal"
                )
            is_plain = is_plain and dtype == first
    if is_plain:
        return first  # type: ignore[no-any-return]  # of an array of any library
    nbytes = first.itemsize
    return np.dtype(_RAW.get(nbytes, f"V{nbytes}"))


def view(side: ArrayType, x: Any) -> Any:
    """Return an array seen through a type: the implementation of `ArrayType.view`."""
    axes = side.axes
    what = "ArrayType.view"
    storage = check(side, x, "the array", what)
    if axes is None:
        raise LayoutError(
            f"{what}: {abridged(str(side))} has a dimension whose elements are not evenly spaced; copy it to a type "
            "with regular steps"
        )
    base, counted = axes
    if len(counted) > MAX_DIMENSIONS:
        raise LayoutError(
            f"{what}: {abridged(str(side))} has {len(counted)} leaves, but an array has at most {MAX_DIMENSIONS} axes; "
            "combine leaves"
        )
    dtype = storage.array.dtype
    shape, steps = [count for count, _ in counted], [step for _, step in counted]
    if storage.place is None and dtype.kind not in _PLAIN_KINDS:  # dates and fields: by their bytes
        whole: Any = storage.array.reshape(-1)[base:]
        return np.lib.stride_tricks.as_strided(whole, shape, [step * dtype.itemsize for step in steps])
    return storage.view(base, shape, steps, dtype)
