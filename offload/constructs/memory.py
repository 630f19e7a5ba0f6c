"""Device memory routines, under OpenMP's names without ``omp_``.

`offload.constructs.copying` and `filling` have the rules of their arguments. If the routine of C returns an error code,
these raise. Device numbers are those of the devices and of the host, which is `get_initial_device` and -1. In a target
body they are a `UsageError`. OpenMP 5.2, 18.8 "Device Memory Routines"; 6.0 for ``memset`` (section numbers unchecked).
"""

from __future__ import annotations

import functools
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from offload.arrays import given
from offload.arrays.items import array_section, as_host, is_device_array, label
from offload.constructs.clauses.maps import check_device
from offload.constructs.copying import MAX_DIMENSIONS, boxes, byte_ranges, copy_recipe, encounter_copy
from offload.constructs.extents import check_nbytes, extent
from offload.constructs.filling import fill, span
from offload.constructs.pointers import corresponding
from offload.devices.retirement import Retired
from offload.errors import ClauseError, DeviceMemoryError, UsageError
from offload.interrupts.finalizers import catch_up, refuse_inside
from offload.interrupts.frames import caller
from offload.interrupts.shields import Shield
from offload.runtime.current import current_runtime, elsewhere, encounter, for_finalizers, here, scope_in_context
from offload.runtime.keywords import takes_clauses
from offload.runtime.sites import call_site
from offload.tasks.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.constructs.clauses.signatures import Depends
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.tasks.task import Task

Allocation = TypeVar("Allocation", bound="Callable[..., Any]")


# -- allocation ------------------------------------------------------------------------------------------
def gives_back(allocation: Allocation) -> Allocation:
    """Have an interruption of a call that allocates give the array back: nobody else knows it until it is returned.

    CPython 3.11 runs signal handlers where a call with ``*args`` has returned, so this goes around all wrappers.
    """

    @functools.wraps(allocation)
    def call(*args: Any, **kwargs: Any) -> Any:
        array = None
        try:
            with Shield():
                array = allocation(*args, **kwargs)
        except BaseException:
            if array is not None:  # an interruption
                give_back(current_runtime(), array, allocation.__name__)
            raise
        return array

    return call  # type: ignore[return-value]  # it has the signature of what it wraps


@gives_back
@takes_clauses
def target_alloc(shape: int | tuple[int, ...], dtype: Any = "u1", device: int | None = None) -> Any:
    """Allocate an uninitialised device array, which lives until `target_free`.

    Parameters
    ----------
    shape : int or tuple of int
        The number of elements of each dimension.
    dtype : dtype-like
        Any dtype without Python objects.
    device : int, optional
        A device number; None is the default device. The host's number gives a NumPy array.

    Returns
    -------
    array
        The device array.

    Raises
    ------
    ClauseError
        A wrong shape, dtype or device.
    DeviceMemoryError
        The device has too little memory.
    UnsupportedError
        The device has no arrays of this dtype. CuPy has none for text, dates or the other byte order.

    Notes
    -----
    OpenMP 5.2, 18.8.1 "omp_target_alloc".

    Examples
    --------
    >>> d = omp.target_alloc((2, 3), np.float64)
    >>> d.shape
    (2, 3)
    >>> omp.target_free(d)
    """
    return allocate(shape, dtype, device, "target_alloc")


def allocate(shape: Any, dtype: Any, device: int | None, what: str) -> Any:
    """Implement `target_alloc`; ``what`` is the routine, for errors. The caller has `gives_back`, or a shield."""
    dims, kind = extent(shape, dtype, what)
    place = _place(what, device)
    nbytes = check_nbytes(dims, kind, what)
    where = "the host"  # for the report of arrays that were never freed
    if place is None:
        try:
            array: Any = given.namespace.empty(dims, kind)
        except MemoryError as error:
            raise DeviceMemoryError(
                f"{what}: the host cannot allocate {nbytes:,} bytes; ask for less", nbytes
            ) from error
    else:
        where = f"device {place.device.number}"
        array = place.device.alloc(dims, kind, place.user_pool.numbered(0).stream)
    # The runtime keeps the array alive until `target_free`, and reports it if that never comes.
    current_runtime().note_allocation(array, f"{kind}[{', '.join(map(str, dims))}] on {where}")
    return array


@for_finalizers
def target_free(array: Any) -> None:
    """Free an array of `target_alloc`. Make sure that no work still uses it. None is ignored.

    Later uses of the array, or of a view of it, raise a `RegionClosedError`. On a simulated device, every operation
    checks. On CUDA, the constructs and routines check, but CuPy does not. A simulated device releases the memory at
    once, and CUDA when the last array over it is gone.

    Parameters
    ----------
    array : array or None
        An array of `target_alloc`.

    Raises
    ------
    UsageError
        The array is not a live array of `target_alloc` of this runtime, or it was freed before.

    Notes
    -----
    OpenMP 5.2, 18.8.2 "omp_target_free".

    Examples
    --------
    >>> d = omp.target_alloc(100)
    >>> omp.target_free(d)
    """
    release("target_free", "target_alloc", array)


def release(what: str, source: str, array: Any) -> None:
    """Implement `target_free`; for errors, ``what`` is the routine and ``source`` the routine that makes arrays."""
    if array is None:
        return
    runtime = current_runtime()
    if not give_back(runtime, array, what):
        text = label(array) if isinstance(array, np.ndarray) or is_device_array(array) else f"{array!r:.60}"
        raise UsageError(
            f"{what}: {text} is not a live array from {source} in this runtime; free each array that it returned, once"
        )


def give_back(runtime: Runtime, array: Any, what: str) -> bool:
    """Forget an allocation of a runtime, and refuse its array from now on, unless the routine ``what`` is empty.

    Return whether it was allocated.
    """
    with Shield():
        block = runtime.forget_allocation(array)  # None: not one of these, or freed already
        if block is None:
            return False
        place = runtime.place_of(array)
        if place is not None and what:
            # Views of it may be left: each raises from now on.
            place.device.retire(array, Retired(block, what))
        return True


# -- copies ----------------------------------------------------------------------------------------------


@for_finalizers
def target_memcpy(
    dst: Any,
    src: Any,
    nbytes: int | None = None,
    dst_offset: int = 0,
    src_offset: int = 0,
    dst_device: int | None = None,
    src_device: int | None = None,
) -> None:
    """Copy bytes between two arrays, each on the host or a device.

    Parameters
    ----------
    dst, src : array
        Contiguous host or device arrays of any dtype. The routine copies bytes in memory order, and converts nothing.
        They may be None if ``nbytes`` is 0.
    nbytes : int, optional
        The number of bytes. By default, all bytes after the offset in the array with fewer bytes left. Use `copy` if
        arrays of unequal length should be an error.
    dst_offset, src_offset : int
        Offsets in bytes from the first element.
    dst_device, src_device : int, optional
        Device numbers. You may omit them; they must not contradict the arrays.

    Raises
    ------
    ClauseError
        An array is not contiguous or is read-only, the copy leaves an array, the arrays overlap, or a device
        contradicts its array.
    UnsupportedError
        The arrays are on two kinds of devices.

    Notes
    -----
    The call blocks until the copy is done. OpenMP 5.2, 18.8.5 "omp_target_memcpy".

    Examples
    --------
    >>> x, y = np.arange(4.0), np.zeros(4)
    >>> d = omp.target_alloc(4, np.float64)
    >>> omp.target_memcpy(d, x)
    >>> omp.target_memcpy(y, d, 16, src_offset=16)  # the last two elements
    >>> y
    array([2., 3., 0., 0.])
    >>> omp.target_free(d)
    """
    # As `here` does, without its call.
    scope = scope_in_context()
    if scope is None or scope.thread != get_ident():
        scope = elsewhere(scope)
    dst, src, places = byte_ranges(scope.runtime, dst, src, nbytes, dst_offset, src_offset, dst_device, src_device)
    where = caller(2)  # whoever calls this is the library: `for_finalizers`
    site = Site("target_memcpy", "target_memcpy", (where.f_code, where.f_lasti), scope.runtime)
    recipe = copy_recipe(site, dst, src, *places)
    encounter_copy(scope, recipe, (), False, dst)


@for_finalizers
def target_memcpy_async(
    dst: Any,
    src: Any,
    nbytes: int | None = None,
    dst_offset: int = 0,
    src_offset: int = 0,
    dst_device: int | None = None,
    src_device: int | None = None,
    *,
    depend: Depends = (),
) -> Task:
    """Copy bytes as `target_memcpy` does, in a deferred task with dependences; return the task.

    The routine checks the arguments at the call. The task copies the bytes when it runs.

    Parameters
    ----------
    dst, src, nbytes, dst_offset, src_offset, dst_device, src_device
        The parameters of `target_memcpy`.
    depend : list of dependences
        The copy runs after the earlier siblings that they name.

    Returns
    -------
    Task
        The task of the copy.

    Raises
    ------
    ClauseError, UnsupportedError
        See `target_memcpy`.
    DependError
        An item of ``depend`` is not a dependence.

    Notes
    -----
    The call never blocks. OpenMP 5.2, 18.8.7 "omp_target_memcpy_async".

    Examples
    --------
    >>> x, y = np.arange(4.0), np.zeros(4)
    >>> d = omp.target_alloc(4, np.float64)
    >>> first = omp.target_memcpy_async(d, x, depend=[omp.out(d)])
    >>> second = omp.target_memcpy_async(y, d, depend=[omp.in_(d)])
    >>> omp.taskwait()
    >>> y
    array([0., 1., 2., 3.])
    >>> omp.target_free(d)
    """
    # As `here` does, without its call.
    scope = scope_in_context()
    if scope is None or scope.thread != get_ident():
        scope = elsewhere(scope)
    dst, src, places = byte_ranges(scope.runtime, dst, src, nbytes, dst_offset, src_offset, dst_device, src_device)
    where = caller(2)  # whoever calls this is the library: `for_finalizers`
    site = Site("target_memcpy", "target_memcpy", (where.f_code, where.f_lasti), scope.runtime)
    recipe = copy_recipe(site, dst, src, *places)
    return encounter_copy(scope, recipe, depend, True, dst)


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
        Host or device arrays of equal item size, with any strides. If both are None, the routine returns the largest
        number of dimensions.
    volume : sequence of int, optional
        The elements of the box in each dimension. By default the smaller remainder of the two arrays. If one number is
        0, nothing is copied.
    dst_offsets, src_offsets : sequence of int, optional
        The first element of the box in each dimension; by default 0.
    dst_dimensions, src_dimensions : sequence of int, optional
        The elements of the whole array in each dimension; by default its shape. Other dimensions require a C-ordered
        array.
    dst_device, src_device : int, optional
        Device numbers. You may omit them; they must not contradict the arrays.

    Returns
    -------
    int or None
        The largest number of dimensions if both arrays are None.

    Raises
    ------
    ClauseError
        Numbers of dimensions, volumes or offsets do not fit, the arrays overlap, the item sizes differ, the destination
        is read-only or overlaps itself, or a device contradicts its array.
    UnsupportedError
        The arrays are on two kinds of devices.

    Notes
    -----
    The call blocks until the copy is done. It makes one rectangular copy, without packing on the host. OpenMP 5.2,
    18.8.6 "omp_target_memcpy_rect"; as in C, entries beyond the dimensions of ``volume`` are ignored.

    Examples
    --------
    >>> a, b = np.arange(12).reshape(3, 4), np.zeros((2, 2), int)
    >>> omp.target_memcpy_rect(b, a, volume=(2, 2), src_offsets=(1, 2))
    >>> b
    array([[ 6,  7],
           [10, 11]])
    """
    if dst is None and src is None:  # as in C: asks how many dimensions are allowed
        return MAX_DIMENSIONS
    scope = here()
    runtime = scope.runtime
    dst, src, places = boxes(
        runtime, dst, src, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions, dst_device, src_device
    )
    recipe = copy_recipe(call_site("target_memcpy_rect", runtime, 1), dst, src, *places)
    encounter_copy(scope, recipe, (), False, dst)
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
    depend: Depends = (),
) -> Any:
    """Copy a box as `target_memcpy_rect` does, in a deferred task with dependences; return the task.

    The routine checks the arguments, and copies the sequences, at the call. The task copies the elements when it runs.
    If both arrays are None, the routine returns the largest number of dimensions instead.

    Parameters
    ----------
    dst, src, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions, dst_device, src_device
        The parameters of `target_memcpy_rect`.
    depend : list of dependences
        The copy runs after the earlier siblings that they name.

    Returns
    -------
    Task or int
        The task of the copy.

    Raises
    ------
    ClauseError, UnsupportedError
        See `target_memcpy_rect`.
    DependError
        An item of ``depend`` is not a dependence.

    Notes
    -----
    The call never blocks. OpenMP 5.2, 18.8.8 "omp_target_memcpy_rect_async".

    Examples
    --------
    >>> a, b = np.arange(12).reshape(3, 4), np.zeros((2, 2), int)
    >>> task = omp.target_memcpy_rect_async(b, a, volume=(2, 2), depend=[omp.in_(a), omp.out(b)])
    >>> omp.taskwait()
    >>> b
    array([[0, 1],
           [4, 5]])
    """
    if dst is None and src is None:  # as in C: asks how many dimensions are allowed
        return MAX_DIMENSIONS
    scope = here()
    runtime = scope.runtime
    dst, src, places = boxes(
        runtime, dst, src, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions, dst_device, src_device
    )
    recipe = copy_recipe(call_site("target_memcpy_rect", runtime, 1), dst, src, *places)
    return encounter_copy(scope, recipe, depend, True, dst)


# -- fills -----------------------------------------------------------------------------------------------


@for_finalizers
def target_memset(d: Any, value: int, nbytes: int | None = None, device: int | None = None) -> Any:
    """Set bytes of an array, on a device or the host.

    Parameters
    ----------
    d : array or None
        A contiguous host or device array of any dtype. None: nothing happens.
    value : int
        The value of each byte: 0 to 255, or -128 to -1 for the same bits.
    nbytes : int, optional
        The number of bytes from the first element; by default all.
    device : int, optional
        A device number. You may omit it; it must not contradict the array.

    Returns
    -------
    array or None
        The argument ``d``.

    Raises
    ------
    ClauseError
        The value is out of range, there are more bytes than in the array, the array is read-only or not contiguous, or
        the device contradicts it.

    Notes
    -----
    The call blocks until the bytes are set. OpenMP 6.0, "omp_target_memset".

    Examples
    --------
    >>> d = omp.target_memset(omp.target_alloc(4), 255)
    >>> d.get()
    array([255, 255, 255, 255], dtype=uint8)
    >>> omp.target_free(d)
    """
    array, byte, place = span(d, value, nbytes, device)
    fill("target_memset", array, byte, (), deferred=False, place=place)
    return d


@for_finalizers
def target_memset_async(
    d: Any, value: int, nbytes: int | None = None, device: int | None = None, *, depend: Depends = ()
) -> Task:
    """Set bytes as `target_memset` does, in a deferred task with dependences; return the task.

    Parameters
    ----------
    d, value, nbytes, device
        The parameters of `target_memset`.
    depend : list of dependences
        The task runs after the earlier siblings that they name.

    Returns
    -------
    Task
        The task that sets the bytes.

    Raises
    ------
    ClauseError
        See `target_memset`.
    DependError
        An item of ``depend`` is not a dependence.

    Notes
    -----
    The call never blocks. OpenMP 6.0, "omp_target_memset_async".

    Examples
    --------
    >>> x = np.ones(3)
    >>> task = omp.target_memset_async(x, 0, depend=[omp.out(x)])
    >>> omp.taskwait()
    >>> x
    array([0., 0., 0.])
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
        A host array, with any strides. An array without elements, a device array and None are never present.
    device : int, optional
        A device number; None is the default device. On the host every host array with elements is present.

    Returns
    -------
    bool
        True if all of the array is present.

    Raises
    ------
    ClauseError
        The argument is not an array, or no device has this number.

    Notes
    -----
    The call never blocks. An array that a deferred construct will map is not present before the construct has run. A
    copy of a present array may still be in progress. OpenMP 5.2, 18.8.3 "omp_target_is_present".

    Examples
    --------
    >>> x = np.ones(10)
    >>> with omp.target_data(map=[omp.to(x[:5])]):
    ...     omp.target_is_present(x[:5]), omp.target_is_present(x)
    (True, False)
    """
    place = _place("target_is_present", device)
    array = _host_array(a, "target_is_present")
    if array is None or not array.size:
        return False
    return place is None or place.is_present(array)  # on the host each array is


@takes_clauses
def target_is_accessible(a: Any, device: int | None = None) -> bool:
    """Tell whether code on a device may use the memory of an array as it is, without a copy.

    Parameters
    ----------
    a : array or None
        A host or device array. An array without elements is accessible on the host only, and None nowhere.
    device : int, optional
        A device number; None is the default device. A device array is accessible on its own device. A host array is
        accessible on the host. It is accessible on a CUDA device if it is pinned or managed, or if the device can
        access all host memory. A simulated device can access no host memory.

    Returns
    -------
    bool
        True if the device can use the memory of the array.

    Raises
    ------
    ClauseError
        The argument is not an array, or no device has this number.

    Notes
    -----
    The call never blocks. OpenMP 5.2, 18.8.4 "omp_target_is_accessible".

    Examples
    --------
    >>> x = np.ones(10)
    >>> omp.target_is_accessible(x, omp.get_initial_device())
    True
    >>> omp.target_is_accessible(x, 0)  # a simulated device
    False
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
        A host array, with any strides.
    device : int, optional
        A device number; None is the default device.

    Returns
    -------
    array or None
        A view of the corresponding storage, with the shape and dtype of ``a``. A use after the end of the mapping
        raises a `RegionClosedError`, as after `target_free`. On the host the routine returns ``a`` itself. It returns
        None if a part of ``a`` is not present, if ``a`` has no elements or is on a device, and for a device number that
        does not exist.

    Raises
    ------
    ClauseError
        The argument is neither an array nor None, or ``device`` is not a number.

    Notes
    -----
    The call never blocks. A copy to the storage may still be in progress: name the array in a ``depend`` clause, or
    wait first. OpenMP 5.2, 18.8.11 "omp_get_mapped_ptr".

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> with omp.target_data(map=[omp.to(x)]):
    ...     d = omp.get_mapped_ptr(x)
    ...     print(d.shape, d.dtype)
    (3,) float64
    """
    array = _host_array(a, "get_mapped_ptr")
    number = check_device(device)
    # As in C, a number of no device gives a null pointer, not an error.
    if number is not None and not -1 <= number <= current_runtime().initial_device:
        return None
    place = _place("get_mapped_ptr", number)
    if place is None:
        return a
    if array is None:
        return None
    # A replicated array is made current first, by a task.
    return corresponding(here(), place, array) if place.sets else place.corresponding(array)


# -- arguments -------------------------------------------------------------------------------------------


def _place(what: str, device: int | None) -> DevicePlace | None:
    """Return the place that a routine's ``device=`` means. The host is one by its number, for all values of ICVs."""
    refuse_inside(what)
    catch_up()
    scope, frame = encounter(what)
    number = check_device(device)
    return scope.runtime.place(frame, None) if number is None else scope.runtime.find_place(number)


def _host_array(a: Any, what: str) -> np.ndarray[Any, Any] | None:
    """Return a host array as it is; None for a device array, and for None."""
    if a is None or is_device_array(a):
        return None
    a = as_host(a)
    if not isinstance(a, np.ndarray):
        raise ClauseError(f"{what}: {type(a).__name__} {a!r:.60} is not an array; pass a NumPy array or a view of one")
    array_section(a)  # refuses Python objects
    return a
