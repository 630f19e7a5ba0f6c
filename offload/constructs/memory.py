"""Device memory routines, under OpenMP's names without ``omp_``.

`offload.constructs.copying` and `filling` have the rules of their arguments. Where the routine of C returns a code,
these raise. Device numbers are those of the devices and of the host, which is `get_initial_device` and -1. In a target
body they are a `UsageError`. OpenMP 5.2, 18.8 "Device Memory Routines"; 6.0 for ``memset`` (section numbers unchecked).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

import numpy as np

from offload.arrays.items import array_section, is_device_array, label
from offload.constructs.clauses.maps import check_device
from offload.constructs.copying import MAX_DIMENSIONS, boxes, byte_ranges, copy, copy_whole
from offload.constructs.extents import check_nbytes, extent
from offload.constructs.filling import fill, span
from offload.constructs.pointers import corresponding
from offload.devices.retirement import Retired
from offload.errors import ClauseError, DeviceMemoryError, UsageError
from offload.interrupts.finalizers import catch_up, refuse_inside
from offload.interrupts.shields import Shield
from offload.runtime.current import current_runtime, for_finalizers, here
from offload.runtime.keywords import refuse_unknown, takes_clauses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.tasks.task import Task

_FIRST = 0
"""The offset that arguments have where nobody gives one, known by identity: another 0 goes the long way."""

# -- allocation ------------------------------------------------------------------------------------------


@takes_clauses
def target_alloc(shape: int | tuple[int, ...], dtype: Any = "u1", device: int | None = None) -> Any:
    """Allocate an uninitialised device array, which lives until `target_free`.

    Parameters
    ----------
    shape : int or tuple of int
        Elements.
    dtype : dtype-like
        Without Python objects.
    device : int, optional
        A device number; the host's gives a NumPy array.

    Raises
    ------
    ClauseError
        A shape, dtype or device that means nothing.
    DeviceMemoryError
        There is not enough memory.
    UnsupportedError
        The device has no arrays of this dtype: CuPy has none of text, dates or the other byte order.

    Notes
    -----
    OpenMP 5.2, 18.8.1 "omp_target_alloc".
    """
    return allocate(shape, dtype, device, "target_alloc")


def allocate(shape: Any, dtype: Any, device: int | None, what: str) -> Any:
    """Do what `target_alloc` does; ``what`` is the routine, for errors."""
    array = None
    try:
        with Shield():
            array = _allocate(shape, dtype, device, what)
    except BaseException:
        if array is not None:  # an interruption
            give_back(current_runtime(), array, what)
        raise
    return array


def _allocate(shape: Any, dtype: Any, device: int | None, what: str) -> Any:
    dims, kind = extent(shape, dtype, what)
    place = _place(what, device)
    nbytes = check_nbytes(dims, kind, what)
    where = "the host"
    if place is None:
        try:
            array: Any = np.empty(dims, kind)
        except MemoryError as error:
            raise DeviceMemoryError(
                f"{what}: the host cannot allocate {nbytes:,} bytes; ask for less", nbytes
            ) from error
    else:
        where = f"device {place.device.number}"
        array = place.device.alloc(dims, kind, place.user_pool.numbered(0).stream)
    current_runtime().note_allocation(array, f"{kind}[{', '.join(map(str, dims))}] on {where}")
    return array


@for_finalizers
def target_free(array: Any) -> None:
    """Free an array of `target_alloc`. The caller sees to it that no work still uses it. None is ignored.

    What uses it, or a view of it, from then on is a `RegionClosedError`: on a simulated device every operation, on CUDA
    the constructs and routines that are given it, since CuPy does not ask. There the memory goes back with the last
    array, on a simulated device at once.

    Raises
    ------
    UsageError
        It is not a live array of `target_alloc` of this runtime, or was freed before.
    """
    release("target_free", "target_alloc", array)


def release(what: str, source: str, array: Any) -> None:
    """Do what `target_free` does; ``what`` is the routine and ``source`` where arrays come from, for errors."""
    if array is None:
        return
    runtime = current_runtime()
    if not give_back(runtime, array, what):
        text = label(array) if isinstance(array, np.ndarray) or is_device_array(array) else f"{array!r:.60}"
        raise UsageError(
            f"{what}: {text} is not a live array from {source} in this runtime; free each array that it returned, once"
        )


def give_back(runtime: Runtime, array: Any, what: str) -> bool:
    """Forget an allocation of a runtime, and refuse its array from now on, unless ``what`` is empty: what has freed it.

    Return whether it was allocated.
    """
    with Shield():
        block = runtime.forget_allocation(array)
        if block is None:
            return False
        place = runtime.place_of(array)
        if place is not None and what:
            place.device.retire(array, Retired(block, what))
        return True


# -- copies ----------------------------------------------------------------------------------------------


def target_memcpy(
    dst: Any,
    src: Any,
    nbytes: int | None = None,
    dst_offset: int = 0,
    src_offset: int = 0,
    dst_device: int | None = None,
    src_device: int | None = None,
    **unknown: Never,
) -> None:
    """Copy bytes between two arrays, each on the host or a device.

    Parameters
    ----------
    dst, src : array
        Contiguous host or device arrays of any dtypes, in the order of their memory: bytes are copied, and nothing is
        converted. None where ``nbytes`` is 0.
    nbytes : int, optional
        Bytes; by default all that is left from the offsets on in the array that has less left. `copy` is the copy that
        refuses arrays of unequal length.
    dst_offset, src_offset : int
        Bytes from the first element.
    dst_device, src_device : int, optional
        May be left out; must not contradict the arrays.

    Raises
    ------
    ClauseError
        Not contiguous, outside of an array, overlapping, read-only, or a device that contradicts the array.
    UnsupportedError
        The arrays are on devices of two kinds.

    Notes
    -----
    *Blocks* until the copy is done. OpenMP 5.2, 18.8.5 "omp_target_memcpy".
    """
    if unknown:
        refuse_unknown(target_memcpy, unknown)
    is_whole = nbytes is dst_device is src_device is None and dst_offset is src_offset is _FIRST
    if not is_whole or copy_whole(dst, src, (), deferred=False) is None:
        _memcpy(dst, src, nbytes, dst_offset, src_offset, dst_device, src_device, deferred=False)


def target_memcpy_async(
    dst: Any,
    src: Any,
    nbytes: int | None = None,
    dst_offset: int = 0,
    src_offset: int = 0,
    dst_device: int | None = None,
    src_device: int | None = None,
    *,
    depend: Any = (),
    **unknown: Never,
) -> Task:
    """Copy bytes as `target_memcpy` does, in a deferred task with dependences; return the task.

    The arguments are checked at the call; the bytes are copied when the task runs.

    *Blocks* never. OpenMP 5.2, 18.8.7 "omp_target_memcpy_async".
    """
    if unknown:
        refuse_unknown(target_memcpy_async, unknown)
    if nbytes is dst_device is src_device is None and dst_offset is src_offset is _FIRST:
        task = copy_whole(dst, src, depend, deferred=True)
        if task is not None:
            return task
    return _memcpy(dst, src, nbytes, dst_offset, src_offset, dst_device, src_device, depend=depend, deferred=True)


@for_finalizers
def _memcpy(*arguments: Any, depend: Any = (), deferred: bool) -> Task:
    """Generate the task of a copy of bytes."""
    dst, src, places = byte_ranges(*arguments)
    return copy("target_memcpy", dst, src, depend, deferred=deferred, places=places)


@for_finalizers
def target_memcpy_rect(
    dst: Any,
    src: Any,
    volume: Sequence[int] | None = None,
    dst_offsets: Sequence[int] | None = None,
    src_offsets: Sequence[int] | None = None,
    dst_dimensions: Sequence[int] | None = None,
    src_dimensions: Sequence[int] | None = None,
    dst_device: int | None = None,
    src_device: int | None = None,
) -> int | None:
    """Copy a box between two arrays, each on the host or a device.

    Parameters
    ----------
    dst, src : array
        Host or device arrays of equal item size, any strides. Both None asks for the largest number of dimensions.
    volume : sequence of int, optional
        Elements a dimension; by default the smaller of what both leave. Nothing is copied where one is 0.
    dst_offsets, src_offsets : sequence of int, optional
        First element of the box, in elements a dimension; by default 0.
    dst_dimensions, src_dimensions : sequence of int, optional
        Elements a dimension of the whole arrays; by default their shapes. Others need a C-ordered array.
    dst_device, src_device : int, optional
        May be left out; must not contradict the arrays.

    Returns
    -------
    int or None
        The largest number of dimensions where both arrays are None.

    Raises
    ------
    ClauseError
        Numbers of dimensions, volumes or offsets that do not fit, arrays that overlap, differing item sizes, a
        destination that is read-only or overlaps itself, a device that contradicts the array.
    UnsupportedError
        The arrays are on devices of two kinds.

    Notes
    -----
    *Blocks* until the copy is done. *Costs* one rectangular copy, no packing on the host. OpenMP 5.2, 18.8.6
    "omp_target_memcpy_rect"; entries beyond the dimensions of ``volume`` are ignored, as there.
    """
    if dst is None and src is None:
        return MAX_DIMENSIONS
    dst, src, places = boxes(
        dst, src, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions, dst_device, src_device
    )
    copy("target_memcpy_rect", dst, src, (), deferred=False, places=places)
    return None


@for_finalizers
def target_memcpy_rect_async(
    dst: Any,
    src: Any,
    volume: Sequence[int] | None = None,
    dst_offsets: Sequence[int] | None = None,
    src_offsets: Sequence[int] | None = None,
    dst_dimensions: Sequence[int] | None = None,
    src_dimensions: Sequence[int] | None = None,
    dst_device: int | None = None,
    src_device: int | None = None,
    *,
    depend: Any = (),
) -> Any:
    """Copy a box as `target_memcpy_rect` does, in a deferred task with dependences; return the task.

    Two Nones ask for the largest number of dimensions here too, and return it. The arguments are checked, and
    sequences taken over, at the call; the elements are copied when the task runs.

    *Blocks* never. OpenMP 5.2, 18.8.8 "omp_target_memcpy_rect_async".
    """
    if dst is None and src is None:
        return MAX_DIMENSIONS
    dst, src, places = boxes(
        dst, src, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions, dst_device, src_device
    )
    return copy("target_memcpy_rect", dst, src, depend, deferred=True, places=places)


# -- fills -----------------------------------------------------------------------------------------------


@for_finalizers
def target_memset(d: Any, value: int, nbytes: int | None = None, device: int | None = None) -> Any:
    """Set bytes of an array, on a device or the host.

    Parameters
    ----------
    d : array or None
        A contiguous host or device array of any dtype; None: nothing is done.
    value : int
        The value of each byte, 0 to 255, or -128 to -1 for the same bits.
    nbytes : int, optional
        Bytes from the first element on; by default all.
    device : int, optional
        May be left out; must not contradict the array.

    Returns
    -------
    array or None
        ``d``.

    Raises
    ------
    ClauseError
        A value out of range, more bytes than the array has, an array that is read-only or not contiguous, or a
        device that contradicts it.

    Notes
    -----
    *Blocks* until the bytes are set. OpenMP 6.0, "omp_target_memset".
    """
    array, byte, place = span(d, value, nbytes, device)
    fill("target_memset", array, byte, (), deferred=False, place=place)
    return d


@for_finalizers
def target_memset_async(
    d: Any, value: int, nbytes: int | None = None, device: int | None = None, *, depend: Any = ()
) -> Task:
    """Set bytes as `target_memset` does, in a deferred task with dependences; return the task.

    *Blocks* never. OpenMP 6.0, "omp_target_memset_async".
    """
    array, byte, place = span(d, value, nbytes, device)
    return fill("target_memset", array, byte, depend, deferred=True, place=place)


# -- questions -------------------------------------------------------------------------------------------


@takes_clauses
def target_is_present(a: Any, device: int | None = None) -> bool:
    """Tell whether a host array has corresponding storage on a device, all of it.

    Parameters
    ----------
    a : array or None
        A host array, any strides. An array without elements, a device array and None are never present.
    device : int, optional
        A device number. On the host every host array with elements is present.

    Raises
    ------
    ClauseError
        Not an array, or no device has this number.

    Notes
    -----
    *Blocks* never: what a deferred construct will map is not present before it has run. A copy of what is present
    may still be under way. OpenMP 5.2, 18.8.3 "omp_target_is_present".
    """
    place = _place("target_is_present", device)
    array = _host_array(a, "target_is_present")
    if array is None or not array.size:
        return False
    return place is None or place.is_present(array)


@takes_clauses
def target_is_accessible(a: Any, device: int | None = None) -> bool:
    """Tell whether code on a device may use the memory of an array as it is, without a copy.

    Parameters
    ----------
    a : array or None
        A host or device array. One without elements is accessible on the host alone, None nowhere.
    device : int, optional
        A device number. A device array is accessible on its own device; a host array on the host, and on a CUDA device
        where it is pinned or managed, or the device reaches all of the host's memory. A simulated device reaches none.

    Raises
    ------
    ClauseError
        Not an array, or no device has this number.

    Notes
    -----
    *Blocks* never. OpenMP 5.2, 18.8.4 "omp_target_is_accessible".
    """
    place = _place("target_is_accessible", device)
    array = _host_array(a, "target_is_accessible")
    if array is None:
        return a is not None and place is not None and current_runtime().place_of(a) is place
    return place is None or (array.size > 0 and place.device.can_access(array))


@takes_clauses
def get_mapped_ptr(a: Any, device: int | None = None) -> Any:
    """Return the device array that corresponds to a host array.

    Parameters
    ----------
    a : array or None
        A host array, any strides.
    device : int, optional
        A device number.

    Returns
    -------
    array or None
        A view of the corresponding storage, of the shape and dtype of ``a``; to use it after the end of the mapping is
        a `RegionClosedError`, as after `target_free`. ``a`` itself on the host. None where not all of ``a`` is present,
        ``a`` has no elements or is on a device, and for a device number that does not exist.

    Raises
    ------
    ClauseError
        Neither an array nor None, or ``device`` is not a number.

    Notes
    -----
    *Blocks* never; a copy to the storage may still be under way, so name it in a ``depend`` clause or wait first.
    OpenMP 5.2, 18.8.11 "omp_get_mapped_ptr".
    """
    array = _host_array(a, "get_mapped_ptr")
    number = check_device(device)
    if number is not None and not -1 <= number <= current_runtime().initial_device:
        return None
    place = _place("get_mapped_ptr", number)
    if place is None:
        return a
    if array is None:
        return None
    return corresponding(here(), place, array) if place.sets else place.corresponding(array)


# -- arguments -------------------------------------------------------------------------------------------


def _place(what: str, device: int | None) -> DevicePlace | None:
    """Return the place that a routine's ``device=`` means. The host is one by its number, whatever the ICVs say."""
    refuse_inside(what)
    catch_up()
    scope = here()
    frame = scope.frame(what)
    number = check_device(device)
    return scope.runtime.place(frame, None) if number is None else scope.runtime.find_place(number)


def _host_array(a: Any, what: str) -> np.ndarray[Any, Any] | None:
    """Return a host array as it is; None for a device array, and for None."""
    if a is None or is_device_array(a):
        return None
    if not isinstance(a, np.ndarray):
        raise ClauseError(f"{what}: {type(a).__name__} {a!r:.60} is not an array; pass a NumPy array or a view of one")
    array_section(a)  # refuses Python objects
    return a
