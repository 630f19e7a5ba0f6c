"""Storage on devices that no construct ends: associated device arrays and declared arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import array_section, as_host, is_device_array, label
from offload.arrays.sections import covers, overlaps
from offload.constructs.clauses.mapping import map_item
from offload.constructs.clauses.maps import check_device
from offload.data import associations
from offload.data.declarations import declarations
from offload.data.maptypes import MapType
from offload.devices.retirement import refuse_retired
from offload.errors import ClauseError, MapError
from offload.interrupts.frames import caller
from offload.runtime.current import for_finalizers, here
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from offload.data.items import MapItem
    from offload.runtime.place import DevicePlace

_DEVICE_TYPES = ("any", "host", "nohost")


@takes_clauses
def target_associate_ptr(a: Any, d: Any, device: int | None = None, offset: int = 0) -> None:
    """Make a part of a device array the corresponding storage of a host array, until `target_disassociate_ptr`.

    Constructs do not copy such an array, end the association or free the device array. Use ``always``, or
    `target_update`, to copy.

    Parameters
    ----------
    a : array
        A host array, or a view of one. The rows of a view with gaps are contiguous in ``d``.
    d : array
        A contiguous device array. The association keeps it alive.
    device : int, optional
        A device number; None is the default device.
    offset : int
        Bytes from the beginning of ``d``.

    Raises
    ------
    ClauseError
        The arguments are not such arrays, the device is the host or differs from the device of ``d``, there are too few
        bytes after ``offset``, or the offset is not aligned for the element type.
    MapError
        ``a``, or a part of it, is mapped or has another association. You may repeat the same association.
    RegionClosedError
        ``d`` has been freed, or its mapping has ended.

    Notes
    -----
    The call blocks until the work on the calling thread's own stream is done. If an association is left at the
    runtime's end, offload reports it like a mapping. OpenMP 5.2, 18.8.9 "omp_target_associate_ptr".

    Examples
    --------
    >>> x, d = np.arange(3.0), omp.target_alloc(3, np.float64)
    >>> omp.target_associate_ptr(x, d)
    >>> omp.target_update(to=[x])
    >>> d.get()
    array([0., 1., 2.])
    >>> omp.target_disassociate_ptr(x)
    >>> omp.target_free(d)
    """
    associate("target_associate_ptr", a, d, device, offset)


@for_finalizers
def associate(what: str, a: Any, d: Any, device: int | None, offset: int) -> None:
    """Implement `target_associate_ptr`; ``what`` is the routine, for errors."""
    place = _device_place(what, device)
    item = _host_item(what, a)
    if not is_device_array(d):
        raise ClauseError(
            f"{what}: {type(d).__name__} {d!r:.60} is not a device array; pass an array from target_alloc"
        )
    if not place.device.is_array(d):
        raise ClauseError(
            f"{what}: {label(d)} is not on device {place.device.number}; pass the device that holds it as device="
        )
    refuse_retired(place.device, d)
    if not (d.flags.c_contiguous or d.flags.f_contiguous):
        raise ClauseError(f"{what}: {label(d)} is not contiguous; associate the array that it is a view of")
    if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)):
        raise ClauseError(f"{what}: offset={offset!r} is not a number of bytes; use an int of at least 0")
    dtype = as_host(a).dtype
    if (array_section(d).address + offset) % dtype.alignment:
        raise ClauseError(
            f"{what}: offset {offset} into {label(d)} is not aligned for {dtype}; use a multiple of "
            f"{dtype.alignment} bytes, because a kernel would fail at other offsets"
        )
    if not 0 <= offset <= d.nbytes - item.section.nbytes:
        raise ClauseError(
            f"{what}: {item.section.nbytes} bytes at offset {offset} do not fit in the {d.nbytes} bytes of {label(d)}; "
            "allocate a larger device array"
        )
    event = place.device.caller_event()
    if event is not None:
        event.synchronize()
    where = caller()
    buffer = place.device.view(d, int(offset), (item.section.nbytes,), (1,), np.dtype("u1"))
    associations.associate(place, item, buffer, (where.f_code, where.f_lasti))


@for_finalizers
def target_disassociate_ptr(a: Any, device: int | None = None) -> None:
    """End an association of `target_associate_ptr`; copy nothing back and free nothing.

    Parameters
    ----------
    a : array
        The associated host array.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        The argument is not a host array, or the device is the host.
    MapError
        ``a`` has no association there: it is absent, a part of another array, or mapped by a construct.

    Notes
    -----
    The call blocks until the work enqueued with the storage is done. OpenMP 5.2, 18.8.10 "omp_target_disassociate_ptr".

    Examples
    --------
    >>> x, d = np.ones(3), omp.target_alloc(3, np.float64)
    >>> omp.target_associate_ptr(x, d)
    >>> omp.target_disassociate_ptr(x)
    >>> omp.target_is_present(x)
    False
    >>> omp.target_free(d)
    """
    what = "target_disassociate_ptr"
    associations.disassociate(_device_place(what, device), _host_item(what, a))


@for_finalizers
def declare_target(array: Any, link: bool = False, device_type: str = "any") -> None:
    """Give an array storage on every device that lasts until the runtime closes.

    Each device gets it at its first use, of this runtime and of later ones, with the values that the host has then.
    Maps only count from then on: values move by ``always`` and by `target_update`. On a device that maps the array
    already, it begins when that mapping has ended. The declaration lasts as long as the memory of ``array``.

    Parameters
    ----------
    array : array
        A host array, or a view of one.
    link : bool
        No storage until the array is mapped; then it counts as any other.
    device_type : {"any", "nohost", "host"}
        ``"host"``: no storage on devices. The other two mean the same, as the host's array is there in any case.

    Raises
    ------
    ClauseError
        No host array, or another ``device_type``.
    MapError
        It overlaps an array declared before in part, or its rows interleave.

    Notes
    -----
    *Costs* a copy of the array at the first use of each device, for which that construct waits; it may raise
    `DeviceMemoryError`. OpenMP 5.2, 7.8 "Declare Target Directives".
    """
    what = "declare_target"
    if device_type not in _DEVICE_TYPES:
        raise ClauseError(f"{what}: device_type={device_type!r} is not allowed; use one of {', '.join(_DEVICE_TYPES)}")
    host = as_host(array)
    item = _host_item(what, host, may_be_empty=True)
    if link or device_type == "host" or not item.section.run_nbytes:
        return
    if not item.section.is_nested:
        raise MapError(f"{what}: {item.label} has interleaved rows; declare the array that it is a view of")
    for other in map(array_section, declarations.arrays()):
        if covers(other, item.section):
            return
        if overlaps(other, item.section):
            raise MapError(
                f"{what}: {item.label} partly overlaps an array that is already declared; declare an array that "
                "contains both"
            )
    declarations.add(host, array)


def _device_place(what: str, device: int | None) -> DevicePlace:
    scope = here()
    place = scope.runtime.place(scope.frame(what), check_device(device))
    if place is None:
        raise ClauseError(f"{what}: host arrays need no other storage on the host; choose a device")
    return place


def _host_item(what: str, array: Any, *, may_be_empty: bool = False) -> MapItem:
    array = as_host(array)
    if not isinstance(array, np.ndarray):
        raise ClauseError(f"{what}: {type(array).__name__} {array!r:.60} is not a host array; give a NumPy array")
    section = array_section(array)  # refuses Python objects
    if not section.run_nbytes and not may_be_empty:
        raise ClauseError(f"{what}: {label(array)} has no elements; pass an array with at least one")
    return map_item(array, MapType.TO, label(array))
