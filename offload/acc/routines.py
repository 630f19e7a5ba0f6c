"""OpenACC's routines for data and devices, under their names without ``acc_``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.acc.clauses import data_clause, excuse_empty, names_of
from offload.acc.data import corresponding, settle
from offload.acc.operations import Operation
from offload.clauses import check_device
from offload.copying import byte_ranges, copy_maker, number_of_bytes
from offload.current import here
from offload.data.maptypes import Construct
from offload.errors import ClauseError, MapError, NotPresentError
from offload.items import array_section, is_device_array, label
from offload.memory import target_alloc, target_free
from offload.persistent import target_associate_ptr, target_disassociate_ptr
from offload.regions import EnterDataWork, ExitDataWork, UpdateWork, map_items
from offload.sites import call_site

if TYPE_CHECKING:
    from offload.data.entries import Entry
    from offload.data.present import MapItem
    from offload.launch import DevicePlace
    from offload.tasks.region import Frame
    from offload.tasks.scope import Scope
    from offload.tasks.task import Task

# -- data (OpenACC 3.3, 3.2.19 to 3.2.35; section numbers of OpenACC are unchecked) --------------------


def copyin(a: Any, *, device: int | None = None) -> Any:
    """Map an array with a copy to the device, as `enter_data` with ``copyin`` does; return its device array.

    Parameters
    ----------
    a : array
        A host array, or a view of one.
    device : int, optional
        A device number; None is the default device.

    Returns
    -------
    array or None
        The device array; on the host ``a`` itself. None for an array without elements.

    Raises
    ------
    ClauseError
        Not a host array.
    MapError, DeviceMemoryError
        As `enter_data`.

    Notes
    -----
    *Blocks* until the copy is done. OpenACC 3.3, 3.2.19 "acc_copyin".
    """
    return _enter("copyin", a, device)


def create(a: Any, *, device: int | None = None) -> Any:
    """Map an array without a copy; otherwise as `copyin`.

    Notes
    -----
    OpenACC 3.3, 3.2.20 "acc_create".
    """
    return _enter("create", a, device)


def copyin_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do the same as an operation of a queue; return the operation, or None where the async-argument is synchronous.

    For parameters and errors see `copyin`; those of the task come from the next wait. *Blocks* never.
    """
    return _move("acc copyin", EnterDataWork, "copyin", a, async_, device)


def create_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `create` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc create", EnterDataWork, "create", a, async_, device)


def copyout(a: Any, *, device: int | None = None) -> None:
    """Undo one `copyin` or `create`, with a copy back if nothing holds the data any more; see `exit_data`.

    Parameters
    ----------
    a : array
        A host array. One that is absent is ignored.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        Not a host array.
    MapError
        It is read-only.

    Notes
    -----
    *Blocks* until the copy is done. OpenACC 3.3, 3.2.21 "acc_copyout".
    """
    _move("acc copyout", ExitDataWork, "copyout", a, None, device)


def copyout_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `copyout` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc copyout", ExitDataWork, "copyout", a, async_, device)


def copyout_finalize(a: Any, *, device: int | None = None) -> None:
    """Undo every `copyin` and `create`; otherwise as `copyout`."""
    _move("acc copyout_finalize", ExitDataWork, "copyout", a, None, device, finalizes=True)


def copyout_finalize_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `copyout_finalize` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc copyout_finalize", ExitDataWork, "copyout", a, async_, device, finalizes=True)


def delete(a: Any, *, device: int | None = None) -> None:
    """Undo one `copyin` or `create` without a copy; otherwise as `copyout`.

    Notes
    -----
    OpenACC 3.3, 3.2.22 "acc_delete".
    """
    _move("acc delete", ExitDataWork, "delete", a, None, device)


def delete_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `delete` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc delete", ExitDataWork, "delete", a, async_, device)


def delete_finalize(a: Any, *, device: int | None = None) -> None:
    """Undo every `copyin` and `create` without a copy; otherwise as `copyout`."""
    _move("acc delete_finalize", ExitDataWork, "delete", a, None, device, finalizes=True)


def delete_finalize_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `delete_finalize` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc delete_finalize", ExitDataWork, "delete", a, async_, device, finalizes=True)


def update_device(a: Any, *, device: int | None = None) -> None:
    """Copy an array to its data on the device; an absent one is an error. See `update`.

    Notes
    -----
    *Blocks* until the copy is done. OpenACC 3.3, 3.2.23 "acc_update_device".
    """
    _move("acc update_device", UpdateWork, "update device", a, None, device)


def update_device_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `update_device` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc update_device", UpdateWork, "update device", a, async_, device)


def update_self(a: Any, *, device: int | None = None) -> None:
    """Copy an array from its data on the device; an absent one is an error. See `update`.

    Notes
    -----
    *Blocks* until the copy is done. OpenACC 3.3, 3.2.24 "acc_update_self".
    """
    _move("acc update_self", UpdateWork, "update self", a, None, device)


def update_self_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `update_self` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc update_self", UpdateWork, "update self", a, async_, device)


def _enter(word: str, a: Any, device: int | None) -> Any:
    _move(f"acc {word}", EnterDataWork, word, a, None, device)
    return deviceptr(a, device=device)


def _move(
    name: str, kind: Any, word: str, a: Any, async_: Any, device: int | None, *, finalizes: bool = False
) -> Task | None:
    """Generate the operation that a data construct with one list item is."""
    if not isinstance(a, np.ndarray):
        raise ClauseError(f"{name}: {type(a).__name__} {a!r:.60} is not a host array; give a NumPy array")
    clause = data_clause(word, (a,), names_of(sys._getframe(1)))  # noqa: SLF001  # as `call_site` does
    construct = Construct.TARGET_EXIT_DATA if kind is ExitDataWork else Construct.TARGET_DATA
    items: list[MapItem] = map_items(construct, (clause,))
    excuse_empty(items)
    operation = Operation(name, async_=async_, device=device)
    work = kind(items, finalizes=True) if finalizes else kind(items)
    task = operation.run(work, items, changes=kind is not UpdateWork)
    return task if operation.queue is not None else None


# -- addresses -----------------------------------------------------------------------------------------


def is_present(a: Any, *, device: int | None = None) -> bool:
    """Tell whether all of a host array is present.

    Parameters
    ----------
    a : array
        A host array. On the host every array is present, one without elements nowhere.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        Not a host array.

    Notes
    -----
    *Blocks* until operations of queues that map or unmap it have been put on their streams. OpenACC 3.3, 3.2.29
    "acc_is_present".
    """
    scope, frame, place = _here("acc is_present", a, device)
    if place is None or not a.size:
        return bool(a.size)
    settle(scope, frame, place, a)
    return place.is_present(a)


def deviceptr(a: Any, *, device: int | None = None) -> Any:
    """Return the device array of a host array; None where not all of it is present, ``a`` itself on the host.

    Parameters, errors and blocking as for `is_present`.

    Notes
    -----
    OpenACC 3.3, 3.2.27 "acc_deviceptr".
    """
    scope, frame, place = _here("acc deviceptr", a, device)
    return a if place is None else corresponding(scope, frame, place, a)


def hostptr(d: Any, *, device: int | None = None) -> Any:
    """Return the host array that a device array is the data of; None where it is none's.

    Parameters
    ----------
    d : array
        What `deviceptr` gave, or a view of it; of data with gaps all of it.
    device : int, optional
        A device number; None is the device of ``d``.

    Raises
    ------
    ClauseError
        Not a device array.

    Notes
    -----
    *Blocks* never. OpenACC 3.3, 3.2.28 "acc_hostptr".
    """
    scope = here()
    scope.frame("acc hostptr")
    number = check_device(device)
    if isinstance(d, np.ndarray) and not scope.runtime.places:
        return d
    if not is_device_array(d):
        raise ClauseError(f"acc hostptr: {type(d).__name__} {d!r:.60} is not a device array")
    place = scope.runtime.place_of(d) if number is None else scope.runtime.find_place(number)
    if place is None or not place.device.is_array(d):
        return None
    section = array_section(d)
    for entry in place.table.entries():
        buffer = array_section(entry.buffer)
        if buffer.address <= section.address and section.end <= buffer.end:
            return _host_array(entry, place.corresponding(entry.host), section.address - buffer.address, d)
    return None


class _Memory:
    """Host memory of an entry, as NumPy's array interface describes it; it lives as long as an array over it."""

    def __init__(self, entry: Entry, offset: int, d: Any) -> None:
        self._host = entry.host
        first = sum((size - 1) * -stride for size, stride in zip(d.shape, d.strides, strict=True) if stride < 0)
        is_fixed = not entry.host.flags.writeable  # type: ignore[attr-defined]  # an array
        self.__array_interface__ = {
            "version": 3,
            "shape": d.shape,
            "typestr": f"|V{d.dtype.itemsize}",
            "strides": d.strides,
            "data": (entry.section.address + offset + first, is_fixed),
        }


def _host_array(entry: Entry, whole: Any, offset: int, d: Any) -> Any:
    """Return the host array of a part of an entry's buffer, of which ``whole`` is the device array."""
    host: Any = entry.host
    if not offset and whole is not None and (d.shape, d.strides, d.dtype) == (whole.shape, whole.strides, whole.dtype):
        return host
    return None if entry.is_packed else np.asarray(_Memory(entry, offset, d)).view(d.dtype)


def map_data(a: Any, d: Any, *, device: int | None = None) -> None:
    """Make a device array the data of a host array, until `unmap_data`; nothing is copied.

    Parameters
    ----------
    a : array
        A host array.
    d : array
        A contiguous device array of at least as many bytes, of `malloc` for one, or a part of such.
    device : int, optional
        The device of ``d``; None is the default device.

    Raises
    ------
    ClauseError
        No such arrays, too few bytes, or another device.
    MapError
        ``a``, or a part of it, is present.

    Notes
    -----
    No `exit_data` ends it, and a mapping left at the runtime's end is reported. OpenACC 3.3, 3.2.25 "acc_map_data".
    """
    scope, frame, place = _here("acc map_data", a, device)
    if place is not None:
        settle(scope, frame, place, a)
        if place.is_present(a):
            raise MapError(f"map_data({label(a)}) is present on device {place.device.number}; end that mapping first")
    target_associate_ptr(a, d, device)


def unmap_data(a: Any, *, device: int | None = None) -> None:
    """End what `map_data` began; nothing is copied or freed.

    Parameters
    ----------
    a : array
        The host array.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        Not a host array, or the host as its device.
    MapError
        It was not mapped by `map_data`, or a region still holds it.

    Notes
    -----
    *Blocks* until what has been put on streams with the data is done. OpenACC 3.3, 3.2.26 "acc_unmap_data".
    """
    scope, frame, place = _here("acc unmap_data", a, device)
    if place is not None:
        settle(scope, frame, place, a)
    try:
        target_disassociate_ptr(a, device)
    except MapError as error:
        raise MapError(f"unmap_data({label(a)}): {error}") from None


def _here(what: str, a: Any, device: int | None) -> tuple[Scope, Frame, DevicePlace | None]:
    """Return what the caller is doing, and the device that it means, for a host array."""
    if not isinstance(a, np.ndarray):
        raise ClauseError(f"{what}: {type(a).__name__} {a!r:.60} is not a host array; give a NumPy array")
    array_section(a)  # refuses Python objects
    scope = here()
    frame = scope.frame(what)
    return scope, frame, scope.runtime.place(frame, check_device(device))


# -- memory --------------------------------------------------------------------------------------------


def malloc(nbytes: int, *, device: int | None = None) -> Any:
    """Allocate device memory.

    Parameters
    ----------
    nbytes : int
        Bytes, at least 0.
    device : int, optional
        A device number; None is the default device.

    Returns
    -------
    array
        A device array of ``uint8``; ``.view(dtype)`` gives other elements.

    Raises
    ------
    ClauseError
        Not a number of bytes.
    DeviceMemoryError
        There is not enough.

    Notes
    -----
    What is not freed at the runtime's end is reported. OpenACC 3.3, 3.2.17 "acc_malloc".
    """
    return target_alloc(number_of_bytes(nbytes, "acc malloc: nbytes"), "u1", device)


def free(d: Any) -> None:
    """Free what `malloc` gave, which must still be that array; None is ignored. Raises and blocks as `target_free`."""
    target_free(d)


def memcpy_to_device(dst: Any, src: Any, nbytes: int | None = None) -> None:
    """Copy bytes of a host array to a device array.

    Parameters
    ----------
    dst : array
        A contiguous device array.
    src : array
        A contiguous host array.
    nbytes : int, optional
        Bytes from the beginning of both; None is the smaller size.

    Raises
    ------
    ClauseError
        Another kind of array, or too few bytes.

    Notes
    -----
    *Blocks* until the copy is done. OpenACC 3.3, 3.2.30 "acc_memcpy_to_device".
    """
    _memcpy("memcpy_to_device", dst, src, nbytes, None)


def memcpy_to_device_async(dst: Any, src: Any, nbytes: int | None = None, async_: Any = True) -> Task | None:
    """Do what `memcpy_to_device` does as an operation of a queue; otherwise as `copyin_async`."""
    return _memcpy("memcpy_to_device", dst, src, nbytes, async_)


def memcpy_from_device(dst: Any, src: Any, nbytes: int | None = None) -> None:
    """Copy bytes of a device array to a host array; otherwise as `memcpy_to_device`.

    Notes
    -----
    OpenACC 3.3, 3.2.31 "acc_memcpy_from_device".
    """
    _memcpy("memcpy_from_device", dst, src, nbytes, None)


def memcpy_from_device_async(dst: Any, src: Any, nbytes: int | None = None, async_: Any = True) -> Task | None:
    """Do what `memcpy_from_device` does as an operation of a queue; otherwise as `copyin_async`."""
    return _memcpy("memcpy_from_device", dst, src, nbytes, async_)


def memcpy_device(dst: Any, src: Any, nbytes: int | None = None) -> None:
    """Copy bytes between two device arrays of one device; otherwise as `memcpy_to_device`.

    Notes
    -----
    OpenACC 3.3, 3.2.32 "acc_memcpy_device".
    """
    _memcpy("memcpy_device", dst, src, nbytes, None)


def memcpy_device_async(dst: Any, src: Any, nbytes: int | None = None, async_: Any = True) -> Task | None:
    """Do what `memcpy_device` does as an operation of a queue; otherwise as `copyin_async`."""
    return _memcpy("memcpy_device", dst, src, nbytes, async_)


def memcpy_d2d(
    dst: Any, src: Any, nbytes: int | None = None, dst_device: int | None = None, src_device: int | None = None
) -> None:
    """Copy bytes between the data of two host arrays, on the same or two devices.

    Parameters
    ----------
    dst, src : array
        Contiguous *host* arrays, each present on its device.
    nbytes : int, optional
        Bytes from the beginning of both; None is the smaller size.
    dst_device, src_device : int, optional
        Device numbers; None is the default device.

    Raises
    ------
    ClauseError
        Not host arrays, or too few bytes.
    NotPresentError
        One of them is not wholly present.

    Notes
    -----
    *Blocks* until the copy is done. OpenACC 3.3, 3.2.33 "acc_memcpy_d2d".
    """
    _d2d(dst, src, nbytes, dst_device, src_device, None)


def memcpy_d2d_async(
    dst: Any,
    src: Any,
    nbytes: int | None = None,
    dst_device: int | None = None,
    src_device: int | None = None,
    async_: Any = True,
) -> Task | None:
    """Do what `memcpy_d2d` does as an operation of a queue of ``dst_device``; otherwise as `copyin_async`."""
    return _d2d(dst, src, nbytes, dst_device, src_device, async_)


def _d2d(dst: Any, src: Any, nbytes: Any, dst_device: Any, src_device: Any, async_: Any) -> Task | None:
    sides: list[Any] = []
    for array, device in ((dst, dst_device), (src, src_device)):
        scope, frame, place = _here("acc memcpy_d2d", array, device)
        found = array if place is None else corresponding(scope, frame, place, array)
        if found is None and array.size:
            raise _absent("memcpy_d2d", array, place)
        sides.append(array if found is None else found)
    return _copy("memcpy_d2d", sides[0], sides[1], nbytes, async_, dst_device)


def _absent(what: str, array: Any, place: DevicePlace | None) -> MapError:
    """Return the error of data that a routine needs and that is not present."""
    number = place.device.number if place is not None else -1
    return NotPresentError(f"{what}({label(array)}) is not present on device {number}; enter it there before")


_SIDES = {"memcpy_to_device": (True, False), "memcpy_from_device": (False, True), "memcpy_device": (True, True)}
"""Which sides of a copy are on a device, destination first."""


def _memcpy(what: str, dst: Any, src: Any, nbytes: Any, async_: Any) -> Task | None:
    scope = here()
    runtime = scope.runtime
    number = None
    for array, is_on_device, side in zip((dst, src), _SIDES[what], ("dst", "src"), strict=True):
        if runtime.places and is_on_device != (not isinstance(array, np.ndarray)):
            kind = "a device array" if is_on_device else "a host array"
            raise ClauseError(f"acc {what}: {side} {type(array).__name__} {array!r:.60} is not {kind}")
        place = runtime.place_of(array) if not isinstance(array, np.ndarray) else None
        if place is not None:
            number = place.device.number if number is None else number
            if number != place.device.number:
                raise ClauseError(
                    f"acc {what}: the arrays are on devices {number} and {place.device.number}; use target_memcpy"
                )
    return _copy(what, dst, src, nbytes, async_, number)


def _copy(what: str, dst: Any, src: Any, nbytes: Any, async_: Any, device: int | None) -> Task | None:
    name = f"acc {what}"
    to, at = byte_ranges(dst, src, nbytes, what=name)
    operation = Operation(name, async_=async_, device=device)
    make = copy_maker(name, to, at)
    site = call_site(name, operation.runtime)
    task = operation.run_made(lambda frame: make(site, frame))
    return task if operation.queue is not None else None
