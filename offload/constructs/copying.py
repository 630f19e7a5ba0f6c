"""Copies and fills of memory: the meaning of a routine's arguments, and the task that carries it out.

The routines of C trust their arguments. Here each is checked at the call, so that a call that raises has generated no
task. The result is the simplest form that a device copies: two views of one shape whose elements are plain bytes of one
width.

Elements are moved, not interpreted: arrays of differing or structured dtypes of one item size are seen as unsigned
integers or opaque bytes of that width, so that padding comes along.
"""

from __future__ import annotations

import math
import sys
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from offload.arrays.boxes import resolve_rect
from offload.arrays.foreign import read_only_reason
from offload.arrays.hostcopies import copyto
from offload.arrays.items import array_section, as_host, is_device_array, label
from offload.arrays.sections import Section, overlaps
from offload.constructs.clauses.dependences import Dependence, check_depend_now
from offload.constructs.clauses.maps import check_device
from offload.constructs.doubts import warn_of_writes
from offload.devices.retirement import refuse_retired
from offload.errors import ClauseError, UnsupportedError
from offload.runtime.current import here
from offload.runtime.generate import generate
from offload.runtime.recipe import DeviceRecipe
from offload.runtime.works import CopyWork
from offload.tasks import hooked
from offload.tasks.depend import DependType
from offload.tasks.recipe import Recipe
from offload.tasks.stack import owned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.tasks.site import Site
    from offload.tasks.task import Task

    Places: TypeAlias = tuple[DevicePlace | None, DevicePlace | None]

MAX_DIMENSIONS = 64
"""Dimensions of a rectangular copy at most: NumPy's own limit."""

# NumPy has one object for it, so `is` compares.
_BYTE = np.dtype("u1")

# Stands for ``depend`` where a call has none, and is compared by identity.
_NONE: tuple[Any, ...] = ()

_BUILT_IN = 1  # `numpy.dtype.isbuiltin`: no fields, no padding, the byte order of this machine


# -- tasks ---------------------------------------------------------------------------------------------


def copy_recipe(
    site: Site,
    dst: Any,
    src: Any,
    place: DevicePlace | None,
    other: DevicePlace | None,
    *,
    is_checked: bool = False,
) -> Recipe:
    """Return the recipe of a copy between two arrays of one shape and dtype, at these places.

    Raises
    ------
    ClauseError
        The destination is read-only or overlaps itself or the source. It is not looked at where it ``is_checked``.
    UnsupportedError
        The arrays are on devices of two kinds.
    """
    if not is_checked:
        flags = dst.flags
        if not getattr(flags, "writeable", True):  # CuPy's arrays always are
            check_writeable(flags, dst, site.directive)
        # Fewer bytes of storage than of elements: the result would depend on the order of the writes.
        if not flags.c_contiguous and section_at(place, dst).nbytes < dst.nbytes:
            raise ClauseError(
                f"{site.directive}: the destination {label(dst)} with strides {dst.strides} has elements that share "
                "memory; copy to the array that it is a view of"
            )
        if place is other and overlaps(section_at(place, dst), section_at(place, src)):
            raise ClauseError(f"{site.directive}: destination and source overlap; copy through a third array")
    if place is None:
        if other is None:
            return Recipe(site, copyto, (dst, src))  # between host arrays a thread of the host copies
        return DeviceRecipe(site, other, CopyWork(dst, src, (src,)))
    if other is None:
        return DeviceRecipe(site, place, CopyWork(dst, src, (dst,)))
    # Arrays on two devices: the copy also holds the source's place.
    second = second_place(site.directive, place, other)
    return DeviceRecipe(site, place, CopyWork(dst, src, (dst, src) if second is None else (dst,), second))


def second_place(directive: str, place: DevicePlace | None, other: DevicePlace | None) -> DevicePlace | None:
    """Return the place of a copy's source if that is on another device than the destination; else None.

    Raises
    ------
    UnsupportedError
        They are on devices of two kinds.
    """
    second = None
    if place is not None and other is not None and place is not other:
        if place.device.kind != other.device.kind:
            raise UnsupportedError(
                f"{directive} from {other.device.name} to {place.device.name}: devices of two kinds cannot copy to "
                "each other; copy through a host array"
            )
        second = other
    return second


def encounter_copy(scope: Scope, recipe: Recipe, depend: Any, deferred: bool, *written: Any) -> Task:
    """Encounter a routine as a task, which writes some arrays."""
    # Otherwise `Scope.frame` would find this region, too.
    region, directive = scope.region, recipe.site.directive
    if region is None or region.mode or owned:
        region = scope.frame(directive)
    dependences: tuple[Dependence, ...] = check_depend_now(directive, depend) if depend is not _NONE else ()
    # To look for the sections of what is written takes longer than all else: only `in_` makes that necessary.
    for dependence in dependences:
        if dependence.type is DependType.IN:
            name = f"{directive}_async" if directive.startswith("target_") else directive
            warn_of_writes(name, dependences, [array for array in written if array.size])
            break
    return generate(scope, region, recipe, dependences, wait=not deferred)


# -- arguments -----------------------------------------------------------------------------------------


def place_of(runtime: Runtime, array: Any, what: str) -> DevicePlace | None:
    """Return the place of an array; None for one of the host.

    Raises
    ------
    ClauseError
        It is neither the host's nor on a device of this runtime, or holds Python objects.
    """
    if isinstance(array, np.ndarray):
        if array.dtype.hasobject:
            raise ClauseError(
                f"{what}: {label(array)} holds references to Python objects, which cannot be copied as bytes; "
                "use a numeric or structured dtype"
            )
        return None
    place = runtime.place_of(array)
    if place is None:
        raise ClauseError(
            f"{what}: {type(array).__name__} {array!r:.60} is neither a NumPy array "
            "nor an array of a device of this runtime"
        )
    return place


def check_side(runtime: Runtime, array: Any, number: Any, argument: str, what: str) -> tuple[Any, DevicePlace | None]:
    """Return an array of the host as a plain one, a device's as it is, and its place; refuse another number.

    Raises
    ------
    ClauseError
        It is on no device of the runtime, or not where ``number`` says.
    RegionClosedError
        Its storage has gone back.
    """
    is_plain = array.__class__ is np.ndarray  # of no subclass, such as a matrix
    place = None if is_plain else runtime.place_of(array)
    if place is None and not is_plain:
        array, place = _of_library(runtime, array)
    if place is None and (not is_plain or array.dtype.hasobject):
        place = place_of(runtime, array, what)
    if number is not None:
        asked = check_device(number)
        if asked is not None and runtime.find_place(asked) is not place:
            where = "the host" if place is None else f"device {place.device.number}"
            raise ClauseError(
                f"{what}: {argument}={number}, but {label(array)} is on {where}; leave the argument out, or correct it"
            )
    if place is not None:
        if place.device.retired(array) is not None:
            refuse_retired(place.device, array)
    elif not is_plain:  # a matrix cannot even be made flat
        array = array.view(np.ndarray)
    return array, place


def _of_library(runtime: Runtime, array: Any) -> tuple[Any, DevicePlace | None]:
    """Return an array of another library as NumPy's or the device's array of the same memory, and its place."""
    host = as_host(array)
    if host is array and is_device_array(array):
        for place in runtime.places:
            native = place.device.as_array(array)
            if native is not None:
                return native, place
    return host, None


def byte_range(array: Any, offset: Any, side: str, what: str) -> tuple[int, int]:
    """Return at which byte of a contiguous array to begin, in the order of its memory, and how many are left."""
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        raise ClauseError(f"{what}: {side} {label(array)} is not contiguous; use target_memcpy_rect")
    low = number_of_bytes(offset, f"{what}: {side}_offset")  # the first byte
    nbytes = array.nbytes
    if low > nbytes:
        raise ClauseError(f"{what}: {side}_offset={offset} is outside the array, which has {nbytes} bytes")
    return low, nbytes - low


def bytes_of(array: Any, place: DevicePlace | None, low: int, count: int) -> Any:
    """Return some of the bytes of a contiguous array, in the order of its memory, as an array of ``u1``."""
    if not array.nbytes:
        return np.empty(0, np.uint8)  # also where the elements have no bytes, and no view as bytes
    if count == array.nbytes and array.ndim == 1 and array.dtype is _BYTE and array.flags.c_contiguous:
        return array
    if place is not None:
        return place.device.view(array, low, (count,), (1,), _BYTE)
    # In Fortran's order, the transposed array has the same memory in C's order.
    flat = array if array.flags.c_contiguous else array.T
    return flat.reshape(-1).view(_BYTE)[low : low + count]


def byte_ranges(
    runtime: Runtime,
    dst: Any,
    src: Any,
    nbytes: Any,
    dst_offset: Any = 0,
    src_offset: Any = 0,
    dst_device: Any = None,
    src_device: Any = None,
    what: str = "target_memcpy",
) -> tuple[Any, Any, Places]:
    """Return the bytes that ``target_memcpy``, or another routine, copies, as two arrays of ``u1``, and their places.

    Without ``nbytes`` that is as much as is left in the array that has less left. Arrays that are copied wholly, and
    whose elements are the same ones, are returned as they are. So is a device array that is copied wholly, with the
    host's bytes seen as such elements.

    Raises
    ------
    ClauseError
        An argument that means nothing, is out of range or contradicts another.
    """
    count = None if nbytes is None else number_of_bytes(nbytes, f"{what}: nbytes")
    if count == 0 and (dst is None or src is None):  # as in C: where there is nothing to copy, no array is needed
        return np.empty(0, np.uint8), np.empty(0, np.uint8), (None, None)
    # A plain array of the host needs no look, unless a device number may contradict it.
    place = other = None
    if dst.__class__ is not np.ndarray or dst_device is not None or dst.dtype.hasobject:
        dst, place = check_side(runtime, dst, dst_device, "dst_device", what)
    if src.__class__ is not np.ndarray or src_device is not None or src.dtype.hasobject:
        src, other = check_side(runtime, src, src_device, "src_device", what)
    if count is None and dst_offset.__class__ is src_offset.__class__ is int and dst_offset == src_offset == 0:
        # Most copies are of whole arrays that are alike: to copy elements is to copy bytes in the order of memory.
        dtype, shape = dst.dtype, dst.shape
        if (
            dtype == src.dtype
            and dtype.isbuiltin == _BUILT_IN
            and shape == src.shape
            and 0 not in shape
            and dst.flags.c_contiguous
            and src.flags.c_contiguous
        ):
            return dst, src, (place, other)
    low_to, left_to = byte_range(dst, dst_offset, "dst", what)
    low_at, left_at = byte_range(src, src_offset, "src", what)
    most = min(left_to, left_at)  # bytes from the offsets to both ends
    if count is None:
        count = most
    elif count > most:
        raise ClauseError(
            f"{what}: {count} bytes do not fit; dst has {left_to} left and src {left_at}; copy fewer bytes"
        )
    places = place if dst.nbytes else None, other if src.nbytes else None  # an empty range has no place
    # The side on the device keeps its dtype, and the host's bytes are viewed as such elements.
    if other is None and count == dst.nbytes and _is_plain_run(dst, place):
        return dst, bytes_of(src, None, low_at, count).view(dst.dtype).reshape(dst.shape), places
    if place is None and count == src.nbytes and _is_plain_run(src, other):
        return bytes_of(dst, None, low_to, count).view(src.dtype).reshape(src.shape), src, places
    return bytes_of(dst, place, low_to, count), bytes_of(src, other, low_at, count), places


def _is_plain_run(array: Any, place: DevicePlace | None) -> bool:
    """Tell whether a device array is rather left as it is, and the host's bytes seen as its elements.

    A view of a host array takes a tenth of the time of one of CuPy's.
    """
    return place is not None and array.size > 0 and array.dtype.isbuiltin == _BUILT_IN and array.flags.c_contiguous


def boxes(
    runtime: Runtime,
    dst: Any,
    src: Any,
    volume: Sequence[int] | None,
    dst_offsets: Sequence[int] | None,
    src_offsets: Sequence[int] | None,
    dst_dimensions: Sequence[int] | None,
    src_dimensions: Sequence[int] | None,
    dst_device: Any,
    src_device: Any,
) -> tuple[Any, Any, Places]:
    """Return the boxes that ``target_memcpy_rect`` copies, as two arrays of one shape and dtype, and their places.

    Raises
    ------
    ClauseError
        An argument that means nothing, is out of range or contradicts another.
    """
    what = "target_memcpy_rect"
    dst, to = check_side(runtime, dst, dst_device, "dst_device", what)
    src, at = check_side(runtime, src, src_device, "src_device", what)
    is_whole = (  # then nothing is to be resolved
        volume is None
        and dst_offsets is None
        and src_offsets is None
        and dst_dimensions is None
        and src_dimensions is None
        and dst.shape == src.shape
    )
    dtype, other = dst.dtype, src.dtype
    if dtype.itemsize != other.itemsize:
        raise ClauseError(
            f"{what}: elements have {dtype.itemsize} and {other.itemsize} bytes; the item sizes must be equal"
        )
    dst, src = uninterpreted(dst, src)
    if is_whole:
        return dst, src, (to, at)
    box = resolve_rect(dst.shape, src.shape, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions)
    if len(box.volume) > MAX_DIMENSIONS:
        raise ClauseError(f"{what}: {len(box.volume)} dimensions; a copy can have at most {MAX_DIMENSIONS}")
    return (
        _box(dst, box.dst_dimensions, box.dst_offsets, box.volume, "dst"),
        _box(src, box.src_dimensions, box.src_offsets, box.volume, "src"),
        (to, at),
    )


def uninterpreted(dst: Any, src: Any) -> tuple[Any, Any]:
    """Return two arrays of one item size as such of one dtype without fields, so that padding is copied, too."""
    dtype = dst.dtype
    if dtype == src.dtype and dtype.fields is None:
        return dst, src
    nbytes = dtype.itemsize
    raw = np.dtype(f"{'u' if nbytes in {1, 2, 4, 8} else 'V'}{nbytes}")  # an integer where there is one
    return dst.view(raw), src.view(raw)


def number_of_bytes(value: Any, what: str) -> int:
    """Return a number of bytes; ``what`` names it in the message.

    Raises
    ------
    ClauseError
        It is no integer, or negative.
    """
    try:
        number = index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ClauseError(f"{what}={value!r} is not a number of bytes; use an int of at least 0")
    return number


def _box(array: Any, dims: tuple[int, ...], offsets: tuple[int, ...], volume: tuple[int, ...], side: str) -> Any:
    """Return the view of the box; dimensions other than the array's own shape need it to be contiguous."""
    if tuple(dims) != tuple(array.shape):
        if not array.flags.c_contiguous:
            raise ClauseError(
                f"target_memcpy_rect: {side}_dimensions={dims} differ from the shape {array.shape}, so the array must "
                "be C-ordered; pass a C-ordered array"
            )
        array = array.reshape(-1)[: math.prod(dims)].reshape(dims)
    return array[tuple([slice(low, low + size) for low, size in zip(offsets, volume, strict=True)])]


def section_at(place: DevicePlace | None, array: Any) -> Section:
    """Return the storage of an array of a place, whose device finds it quicker than `array_section`."""
    return array_section(array) if place is None else place.device.section(array)


def check_writeable(flags: Any, dst: Any, what: str) -> None:
    """Raise `ClauseError` if a destination with these flags is read-only."""
    if not getattr(flags, "writeable", True):  # CuPy's arrays always are
        raise ClauseError(f"{what}: the destination {label(dst)} cannot be written: {read_only_reason(dst)}")


def _noted_copyto(plain: Any) -> Any:
    """Return the copy between host arrays for sanitized runtimes."""

    def copy(dst: Any, src: Any) -> None:
        from offload.runtime.sanitized_data import note_now  # few programs are sanitized

        note_now(here().task, [src], [dst])
        plain(dst, src)

    return copy


hooked.register(sys.modules[__name__], "copyto", _noted_copyto, "sanitize")
