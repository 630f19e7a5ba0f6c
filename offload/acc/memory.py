"""OpenACC's routines for device memory: ``malloc``, ``free`` and the ``memcpy`` family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.acc.addresses import corresponding, here_for
from offload.acc.operations import QueueOperation
from offload.arrays.items import host_items, label
from offload.constructs.copying import byte_ranges, copy_recipe, number_of_bytes
from offload.constructs.memory import allocate, gives_back, release
from offload.errors import ClauseError, MapError, NotPresentError
from offload.runtime.current import for_finalizers, here
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from offload.acc.signatures import Async
    from offload.runtime.place import DevicePlace
    from offload.tasks.task import Task


@gives_back
@takes_clauses
def malloc(nbytes: int, *, device: int | None = None) -> Any:
    """Allocate device memory.

    Parameters
    ----------
    nbytes : int
        The number of bytes, at least 0.
    device : int, optional
        A device number; None is the default device.

    Returns
    -------
    array
        A device array of ``uint8``; ``.view(dtype)`` changes the element type.

    Raises
    ------
    ClauseError
        The argument is not a number of bytes.
    DeviceMemoryError
        The device has too little memory.

    Notes
    -----
    If you do not free the memory, offload reports it at the runtime's end. OpenACC 3.3, 3.2 "acc_malloc".

    Examples
    --------
    >>> d = acc.malloc(24)
    >>> d.view(np.float64).shape
    (3,)
    >>> acc.free(d)
    """
    return allocate(number_of_bytes(nbytes, "acc malloc: nbytes"), "u1", device, "acc malloc")  # untyped bytes, as in C


def free(d: Any) -> None:
    """Free an array of `malloc`; None is ignored.

    The argument must be the array that `malloc` returned, not a view. Raises and blocks as `target_free`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_free".

    Examples
    --------
    >>> d = acc.malloc(24)
    >>> acc.free(d)
    """
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
        The number of bytes from the beginning of both; None is the smaller size.

    Raises
    ------
    ClauseError
        An argument is another kind of array, or has too few bytes.

    Notes
    -----
    The call blocks until the copy is done. OpenACC 3.3, 3.2 "acc_memcpy_to_device".

    Examples
    --------
    >>> d = acc.malloc(24)
    >>> acc.memcpy_to_device(d, np.arange(3.0))
    >>> d.view(np.float64).get()
    array([0., 1., 2.])
    >>> acc.free(d)
    """
    _memcpy("memcpy_to_device", dst, src, nbytes, None)


@takes_clauses
def memcpy_to_device_async(dst: Any, src: Any, nbytes: int | None = None, async_: Async = True) -> Task | None:
    """Run `memcpy_to_device` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> d = acc.malloc(24)
    >>> task = acc.memcpy_to_device_async(d, np.arange(3.0), async_=1)
    >>> acc.wait(1)
    >>> acc.free(d)
    """
    return _memcpy("memcpy_to_device", dst, src, nbytes, async_)


@takes_clauses
def memcpy_from_device(dst: Any, src: Any, nbytes: int | None = None) -> None:
    """Copy bytes of a device array to a host array; otherwise as `memcpy_to_device`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_memcpy_from_device".

    Examples
    --------
    >>> x, d = np.zeros(3), acc.malloc(24)
    >>> acc.memcpy_to_device(d, np.arange(3.0))
    >>> acc.memcpy_from_device(x, d)
    >>> x
    array([0., 1., 2.])
    >>> acc.free(d)
    """
    _memcpy("memcpy_from_device", dst, src, nbytes, None)


@takes_clauses
def memcpy_from_device_async(dst: Any, src: Any, nbytes: int | None = None, async_: Async = True) -> Task | None:
    """Run `memcpy_from_device` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> x, d = np.zeros(3), acc.malloc(24)
    >>> first = acc.memcpy_to_device_async(d, np.arange(3.0), async_=1)
    >>> second = acc.memcpy_from_device_async(x, d, async_=1)
    >>> acc.wait(1)
    >>> x
    array([0., 1., 2.])
    >>> acc.free(d)
    """
    return _memcpy("memcpy_from_device", dst, src, nbytes, async_)


@takes_clauses
def memcpy_device(dst: Any, src: Any, nbytes: int | None = None) -> None:
    """Copy bytes between two device arrays of one device; otherwise as `memcpy_to_device`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_memcpy_device".

    Examples
    --------
    >>> d, e = acc.malloc(24), acc.malloc(24)
    >>> acc.memcpy_to_device(d, np.arange(3.0))
    >>> acc.memcpy_device(e, d)
    >>> e.view(np.float64).get()
    array([0., 1., 2.])
    >>> acc.free(d)
    >>> acc.free(e)
    """
    _memcpy("memcpy_device", dst, src, nbytes, None)


@takes_clauses
def memcpy_device_async(dst: Any, src: Any, nbytes: int | None = None, async_: Async = True) -> Task | None:
    """Run `memcpy_device` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> d, e = acc.malloc(24), acc.malloc(24)
    >>> first = acc.memcpy_to_device_async(d, np.arange(3.0), async_=1)
    >>> second = acc.memcpy_device_async(e, d, async_=1)
    >>> acc.wait(1)
    >>> e.view(np.float64).get()
    array([0., 1., 2.])
    >>> acc.free(d)
    >>> acc.free(e)
    """
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
        The number of bytes from the beginning of both; None is the smaller size.
    dst_device, src_device : int, optional
        Device numbers; None is the default device.

    Raises
    ------
    ClauseError
        The arguments are not host arrays, or have too few bytes.
    NotPresentError
        One of them is not wholly present.

    Notes
    -----
    The call blocks until the copy is done. OpenACC 3.3, 3.2 "acc_memcpy_d2d".

    Examples
    --------
    >>> x, y = np.arange(3.0), np.zeros(3)
    >>> with acc.data(copyin=[x], copyout=[y]):
    ...     acc.memcpy_d2d(y, x)
    >>> y
    array([0., 1., 2.])
    """
    _d2d(dst, src, nbytes, dst_device, src_device, None)


@takes_clauses
def memcpy_d2d_async(
    dst: Any,
    src: Any,
    nbytes: int | None = None,
    dst_device: int | None = None,
    src_device: int | None = None,
    async_: Async = True,
) -> Task | None:
    """Run `memcpy_d2d` as an operation of a queue of ``dst_device``; otherwise as `copyin_async`.

    Examples
    --------
    >>> x, y = np.arange(3.0), np.zeros(3)
    >>> with acc.data(copyin=[x], copyout=[y]):
    ...     task = acc.memcpy_d2d_async(y, x, async_=1)
    ...     acc.wait(1)
    >>> y
    array([0., 1., 2.])
    """
    return _d2d(dst, src, nbytes, dst_device, src_device, async_)


def _d2d(dst: Any, src: Any, nbytes: Any, dst_device: Any, src_device: Any, async_: Any) -> Task | None:
    sides: list[Any] = []  # destination, then source
    # Both sides are checked before either is waited for.
    given = [here_for("acc memcpy_d2d", array, device) for array, device in ((dst, dst_device), (src, src_device))]
    for array, scope, frame, place in given:
        found = array if place is None else corresponding(scope, frame, place, array)
        # An array without elements is present nowhere, and copies nothing.
        if found is None and array.size:
            raise _absent("memcpy_d2d", array, place)
        sides.append(array if found is None else found)
    return _copy("memcpy_d2d", sides[0], sides[1], nbytes, async_, dst_device)  # in a queue of the destination's device


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
    number = None  # of the one device of both
    dst, src = host_items((dst, src))
    for array, is_on_device, side in zip((dst, src), _SIDES[what], ("dst", "src"), strict=True):
        # Without a device, all arrays are the host's, and each side may be one.
        if runtime.places and is_on_device != (not isinstance(array, np.ndarray)):
            kind = "a device array" if is_on_device else "a host array"
            raise ClauseError(f"acc {what}: {side} {type(array).__name__} {array!r:.60} is not {kind}")
        place = runtime.place_of(array) if not isinstance(array, np.ndarray) else None  # a host array is on none
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
    # Bytes of both sides, and their places. A wrong argument raises here, before there is a task.
    to, at, places = byte_ranges(here().runtime, dst, src, nbytes, what=name)
    operation = QueueOperation(name, async_=async_, device=device)
    task = operation.run_recipe(copy_recipe(operation.site, to, at, *places))
    return task if operation.queue is not None else None
