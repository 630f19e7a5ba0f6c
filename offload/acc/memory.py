"""OpenACC's routines for device memory: ``malloc``, ``free`` and the ``memcpy`` family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.acc.addresses import corresponding, here_for
from offload.acc.operations import QueueOperation
from offload.arrays.items import label
from offload.constructs.copying import byte_ranges, copy_recipe, number_of_bytes
from offload.constructs.memory import release, target_alloc
from offload.errors import ClauseError, MapError, NotPresentError
from offload.runtime.current import for_finalizers, here
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from offload.runtime.place import DevicePlace
    from offload.tasks.task import Task


@takes_clauses
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
    What is not freed at the runtime's end is reported. OpenACC 3.3, 3.2 "acc_malloc".
    """
    return target_alloc(number_of_bytes(nbytes, "acc malloc: nbytes"), "u1", device)


def free(d: Any) -> None:
    """Free what `malloc` gave, which must still be that array; None is ignored. Raises and blocks as `target_free`."""
    release("acc free", "acc.malloc", d)


@takes_clauses
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
    *Blocks* until the copy is done. OpenACC 3.3, 3.2 "acc_memcpy_to_device".
    """
    _memcpy("memcpy_to_device", dst, src, nbytes, None)


@takes_clauses
def memcpy_to_device_async(dst: Any, src: Any, nbytes: int | None = None, async_: Any = True) -> Task | None:
    """Do what `memcpy_to_device` does as an operation of a queue; otherwise as `copyin_async`."""
    return _memcpy("memcpy_to_device", dst, src, nbytes, async_)


@takes_clauses
def memcpy_from_device(dst: Any, src: Any, nbytes: int | None = None) -> None:
    """Copy bytes of a device array to a host array; otherwise as `memcpy_to_device`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_memcpy_from_device".
    """
    _memcpy("memcpy_from_device", dst, src, nbytes, None)


@takes_clauses
def memcpy_from_device_async(dst: Any, src: Any, nbytes: int | None = None, async_: Any = True) -> Task | None:
    """Do what `memcpy_from_device` does as an operation of a queue; otherwise as `copyin_async`."""
    return _memcpy("memcpy_from_device", dst, src, nbytes, async_)


@takes_clauses
def memcpy_device(dst: Any, src: Any, nbytes: int | None = None) -> None:
    """Copy bytes between two device arrays of one device; otherwise as `memcpy_to_device`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_memcpy_device".
    """
    _memcpy("memcpy_device", dst, src, nbytes, None)


@takes_clauses
def memcpy_device_async(dst: Any, src: Any, nbytes: int | None = None, async_: Any = True) -> Task | None:
    """Do what `memcpy_device` does as an operation of a queue; otherwise as `copyin_async`."""
    return _memcpy("memcpy_device", dst, src, nbytes, async_)


@takes_clauses
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
    *Blocks* until the copy is done. OpenACC 3.3, 3.2 "acc_memcpy_d2d".
    """
    _d2d(dst, src, nbytes, dst_device, src_device, None)


@takes_clauses
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
    given = [
        (array, *here_for("acc memcpy_d2d", array, device)) for array, device in ((dst, dst_device), (src, src_device))
    ]
    for array, scope, frame, place in given:
        found = array if place is None else corresponding(scope, frame, place, array)
        if found is None and array.size:
            raise _absent("memcpy_d2d", array, place)
        sides.append(array if found is None else found)
    return _copy("memcpy_d2d", sides[0], sides[1], nbytes, async_, dst_device)


def _absent(what: str, array: Any, place: DevicePlace | None) -> MapError:
    """Return the error of data that a routine needs and that is not present."""
    number = place.device.number if place is not None else -1
    return NotPresentError(
        f"{what}({label(array)}) is not present on device {number}; map it there first, for example with acc.enter_data"
    )


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
                    f"acc {what}: the arrays are on different devices, {number} and {place.device.number}; use "
                    "target_memcpy"
                )
    return _copy(what, dst, src, nbytes, async_, number)


@for_finalizers
def _copy(what: str, dst: Any, src: Any, nbytes: Any, async_: Any, device: int | None) -> Task | None:
    name = f"acc {what}"
    to, at, places = byte_ranges(dst, src, nbytes, what=name)
    operation = QueueOperation(name, async_=async_, device=device)
    task = operation.run_recipe(copy_recipe(operation.site, to, at, places))
    return task if operation.queue is not None else None
