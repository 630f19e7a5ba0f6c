"""Which device array is the data of which host array: ``host_data``, and the routines that ask for or say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.acc.clauses import host_arrays, names_of, presence
from offload.arrays.items import Label, array_section, as_host, is_device_array, label
from offload.constructs import pointers
from offload.constructs.associations import associate, target_disassociate_ptr
from offload.constructs.clauses.mapping import map_items
from offload.constructs.clauses.maps import as_tuple, check_device
from offload.data.maptypes import MapConstruct
from offload.errors import ClauseError, MapError, NotPresentError
from offload.interrupts.finalizers import catch_up, refuse_inside
from offload.runtime.current import encounter, for_finalizers, here
from offload.runtime.keywords import takes_clauses
from offload.runtime.managers import block
from offload.tasks.goals import Launches
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.constructs.clauses.signatures import ListItems, Number, Truth
    from offload.data.entries import Entry
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.tasks.region import AnyTask, Region


@block("acc.host_data")
def host_data(
    use_device: ListItems, *, if_present: bool = False, if_: Truth = True, device: Number | None = None
) -> Iterator[tuple[Any, ...]]:
    """Give the device arrays of host arrays, for a library that works on device arrays.

    Parameters
    ----------
    use_device : list of arrays
        Host arrays. A device array stands for itself.
    if_present : bool
        True: an array that is not present stands for itself. Otherwise it is an error.
    if_ : bool
        False: every array stands for itself.
    device : int, optional
        A device number; None is the default device.

    Yields
    ------
    tuple of arrays
        For each item a device array of its shape and dtype over its storage; on the host the item itself. A use after
        the end of the mapping raises a `RegionClosedError`.

    Raises
    ------
    ClauseError
        An item is not an array.
    NotPresentError
        An item is not wholly present.

    Notes
    -----
    The entry blocks until operations of queues on the items are on their streams. Work that you then enqueue on the
    stream of a queue (`get_cuda_stream`) runs after the operations of that queue. If other queues still use the data,
    wait for them. OpenACC 3.3, 2.8 "Host_Data Construct".

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> with acc.data(copyin=[x]), acc.host_data([x]) as (d,):
    ...     print(d.shape)  # pass d to a library
    (3,)
    """
    scope, frame = encounter("acc host_data")
    place = scope.runtime.place(frame, check_device(device), if_=bool(if_))
    names = names_of()
    given = as_tuple(use_device)
    if not given:
        raise ClauseError("acc host_data names no list item; give use_device=[…]")
    if frame.recorder is not None and not frame.recorder.executes:
        place = None  # nothing is mapped
    yield tuple([_device_array(scope, frame, place, item, names.of(item), if_present=if_present) for item in given])


def _device_array(
    scope: Scope, frame: Region, place: DevicePlace | None, item: Any, name: str, *, if_present: bool
) -> Any:
    if is_device_array(item):
        return item
    for array in host_arrays("acc host_data use_device", item):
        found = None
        if place is not None:
            settle(scope, frame, place, array, uses=True)
            found = pointers.corresponding(scope, place, array)
        if found is None and place is not None and array.size and not if_present:
            raise NotPresentError(
                f"use_device({name or label(array)}) is not present on device {place.device.number}; map it first with "
                "acc.data or acc.enter_data, or pass if_present=True"
            )
        return item if found is None else found
    raise AssertionError  # one array has been given


def corresponding(scope: Scope, frame: Region, place: DevicePlace, array: Any) -> Any:
    """Return the device array of a host array, as the program has it by now; None unless all of it is present."""
    settle(scope, frame, place, array)
    return pointers.corresponding(scope, place, array)


def settle(scope: Scope, frame: Region, place: DevicePlace, array: Any, *, uses: bool = False) -> None:
    """Wait until the calling region's operations that map or unmap an array have been put on their stream.

    With ``uses``, also wait for operations that need it there.
    """
    (item,) = map_items(MapConstruct.TARGET_ENTER_DATA, (array,))
    # With ``changes`` the dependence is an `inout`, which tasks that need the item present come before, too.
    needed = presence(scope.runtime.queues, [item], place, changes=uses)
    before = [task for handle in frame.tracker.latest(needed) if (task := handle())]
    pending = [task for task in before if _is_pending(task)]  # not their ends: later work follows on the stream
    if not pending:
        return
    scope.runtime.engine.wait(scope, Launches("the data operations before", pending))


def _is_pending(task: AnyTask) -> bool:
    return not (task.finished or task.launched or task.state_ is TaskState.RECORDED)


@takes_clauses
def is_present(a: Any, *, device: int | None = None) -> bool:
    """Tell whether all of a host array is present.

    Parameters
    ----------
    a : array
        A host array. On the host every array with elements is present. An array without elements is present nowhere.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        The argument is not a host array.

    Notes
    -----
    The call blocks until operations of queues that map or unmap the array are on their streams. OpenACC 3.3, 3.2.29
    "acc_is_present".

    Examples
    --------
    >>> x = np.ones(10)
    >>> with acc.data(copyin=[x[:5]]):
    ...     acc.is_present(x[:5]), acc.is_present(x)
    (True, False)
    """
    host, scope, frame, place = here_for("acc is_present", a, device)
    if place is None or not host.size:
        return bool(host.size)
    settle(scope, frame, place, host)
    return place.is_present(host)


@takes_clauses
def deviceptr(a: Any, *, device: int | None = None) -> Any:
    """Return the device array of a host array; None if a part of it is not present, and ``a`` itself on the host.

    A use after the end of the mapping raises a `RegionClosedError`, as with `offload.get_mapped_ptr`. Parameters,
    errors and blocking as for `is_present`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_deviceptr".

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> with acc.data(copyin=[x]):
    ...     print(acc.deviceptr(x).get())
    [0. 1. 2.]
    """
    host, scope, frame, place = here_for("acc deviceptr", a, device)
    return a if place is None else corresponding(scope, frame, place, host)


@takes_clauses
def hostptr(d: Any, *, device: int | None = None) -> Any:
    """Return the host array whose data a device array is; None if there is no such array.

    Parameters
    ----------
    d : array
        An array of `deviceptr`, or a view of it. For data with gaps, it must be the whole array.
    device : int, optional
        A device number; None is the device of ``d``.

    Raises
    ------
    ClauseError
        The argument is not a device array.

    Notes
    -----
    The call never blocks. OpenACC 3.3, 3.2 "acc_hostptr".

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> with acc.data(copyin=[x]):
    ...     print(acc.hostptr(acc.deviceptr(x)))
    [0. 1. 2.]
    """
    scope = here()
    scope.frame("acc hostptr")
    number = check_device(device)
    if isinstance(d, np.ndarray) and not scope.runtime.places:  # the host is the only device
        return d
    if not is_device_array(d):
        raise ClauseError(
            f"acc hostptr: {type(d).__name__} {d!r:.60} is not a device array; pass an array that acc.malloc or "
            "acc.deviceptr returned"
        )
    # None also for an array that is on no device of this runtime.
    place = scope.runtime.place_of(d) if number is None else scope.runtime.find_place(number)
    if place is None or not place.device.is_array(d):
        return None
    section = array_section(d)
    for entry in place.table.entries():
        buffer = array_section(entry.buffer)  # of the whole entry: `d` may be a view of it
        if buffer.address <= section.address and section.end <= buffer.end:
            return _host_array(entry, place.corresponding(entry.host), section.address - buffer.address, d)
    return None


class _EntryMemory:
    """Host memory of an entry, as NumPy's array interface describes it; it lives as long as an array over it."""

    def __init__(self, entry: Entry, offset: int, d: Any) -> None:
        # NumPy keeps the object that has the interface, and this keeps the memory.
        self._host = entry.host
        # With negative strides, the first element does not lie at the lowest address.
        first = sum((size - 1) * -stride for size, stride in zip(d.shape, d.strides, strict=True) if stride < 0)
        is_fixed = not entry.host.flags.writeable  # type: ignore[attr-defined]  # an array
        self.__array_interface__ = {
            "version": 3,
            "shape": d.shape,
            "typestr": f"|V{d.dtype.itemsize}",  # raw bytes; `_host_array` views them as the dtype
            "strides": d.strides,
            "data": (entry.section.address + offset + first, is_fixed),
        }


def _host_array(entry: Entry, whole: Any, offset: int, d: Any) -> Any:
    """Return the host array of a part of an entry's buffer, of which ``whole`` is the device array."""
    host: Any = entry.host  # as it was mapped
    if not offset and whole is not None and (d.shape, d.strides, d.dtype) == (whole.shape, whole.strides, whole.dtype):
        return host
    # A packed buffer lacks the gaps of its host array, so offsets in the two differ.
    return None if entry.is_packed else np.asarray(_EntryMemory(entry, offset, d)).view(d.dtype)


@for_finalizers
def map_data(a: Any, d: Any, *, device: int | None = None) -> None:
    """Make a device array the data of a host array, until `unmap_data`; nothing is copied.

    Parameters
    ----------
    a : array
        A host array.
    d : array
        A contiguous device array of at least as many bytes, for example of `malloc`, or a part of one.
    device : int, optional
        The device of ``d``; None is the default device.

    Raises
    ------
    ClauseError
        The arguments are not such arrays, there are too few bytes, ``d`` is on another device, or the device is the
        host.
    MapError
        ``a``, or a part of it, is present.

    Notes
    -----
    The call blocks until the work on the calling thread's own stream is done, and until queued operations that map or
    unmap ``a`` are on their streams. `exit_data` does not end the mapping. If it is left at the runtime's end, offload
    reports it. OpenACC 3.3, 3.2 "acc_map_data".

    Examples
    --------
    >>> x, d = np.arange(3.0), acc.malloc(24)
    >>> acc.map_data(x, d)
    >>> acc.update(device=[x])
    >>> d.view(np.float64).get()
    array([0., 1., 2.])
    >>> acc.unmap_data(x)
    >>> acc.free(d)
    """
    host, scope, frame, place = here_for("acc map_data", a, device)
    if place is not None:
        settle(scope, frame, place, host)
        if place.is_present(host):
            what = f"map_data({_named(a, host)})"
            raise MapError(f"{what} is already present on device {place.device.number}; end that mapping first")
    associate("acc map_data", host, d, device, 0)


@for_finalizers
def unmap_data(a: Any, *, device: int | None = None) -> None:
    """End a mapping of `map_data`; nothing is copied or freed.

    Parameters
    ----------
    a : array
        The host array.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        The argument is not a host array, or the device is the host.
    MapError
        The array was not mapped by `map_data`, or a region still holds it.

    Notes
    -----
    The call blocks until the work enqueued with the data is done. OpenACC 3.3, 3.2 "acc_unmap_data".

    Examples
    --------
    >>> x, d = np.ones(3), acc.malloc(24)
    >>> acc.map_data(x, d)
    >>> acc.unmap_data(x)
    >>> acc.is_present(x)
    False
    >>> acc.free(d)
    """
    host, scope, frame, place = here_for("acc unmap_data", a, device)
    if place is not None:
        settle(scope, frame, place, host, uses=True)  # also tasks that still use the data
    try:
        target_disassociate_ptr(host, device)
    except MapError as error:
        raise MapError(
            f"unmap_data({_named(a, host)}): map_data did not map exactly this array, or a region still uses it; "
            f"{error}"
        ) from None


def _named(given: Any, host: np.ndarray[Any, Any]) -> str:
    """Return the program's name of an array, with its type and shape."""
    return str(Label(host, names_of().of(given)))


def here_for(what: str, a: Any, device: int | None) -> tuple[np.ndarray[Any, Any], Scope, Region, DevicePlace | None]:
    """Return a host array as NumPy's, the caller's scope and region, and the device that the caller means."""
    a = as_host(a)
    if not isinstance(a, np.ndarray):
        raise ClauseError(f"{what}: {type(a).__name__} {a!r:.60} is not a host array; pass a NumPy array")
    array_section(a)  # refuses Python objects
    refuse_inside(what)
    catch_up()
    scope, frame = encounter(what)
    return a, scope, frame, scope.runtime.place(frame, check_device(device))
