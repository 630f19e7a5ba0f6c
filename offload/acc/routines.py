"""OpenACC's routines that map, unmap and update data, under their names without ``acc_``.

OpenACC 3.3, 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.acc.addresses import deviceptr
from offload.acc.clauses import data_clause, excuse_empty, names_of
from offload.acc.operations import QueueOperation
from offload.arrays.items import as_host, mapper_of
from offload.constructs.clauses.mapping import map_items
from offload.data.maptypes import MapConstruct
from offload.errors import ClauseError
from offload.runtime.current import for_finalizers
from offload.runtime.keywords import takes_clauses
from offload.runtime.works import EnterDataWork, ExitDataWork, UpdateWork

if TYPE_CHECKING:
    from offload.acc.signatures import Async
    from offload.data.items import MapItem
    from offload.tasks.task import Task


@takes_clauses
def copyin(a: Any, *, device: int | None = None) -> Any:
    """Map an array with a copy to the device, as `enter_data` with ``copyin`` does; return its device array.

    Parameters
    ----------
    a : array
        A host array, or a view of one; also an object whose class has a mapper.
    device : int, optional
        A device number; None is the default device.

    Returns
    -------
    array or None
        The device array; on the host ``a`` itself. None for an array without elements, and for an object.

    Raises
    ------
    ClauseError
        The argument is not a host array.
    MapError, DeviceMemoryError
        See `enter_data`.

    Notes
    -----
    The call blocks until the copy is done. OpenACC 3.3, 3.2 "acc_copyin".

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> d = acc.copyin(x)
    >>> d.get()
    array([0., 1., 2.])
    >>> acc.delete(x)
    """
    return _enter("copyin", a, device)


@takes_clauses
def create(a: Any, *, device: int | None = None) -> Any:
    """Map an array without a copy; otherwise as `copyin`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_create".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> d = acc.create(x)
    >>> acc.parallel(lambda x: x.fill(7))(x)
    >>> acc.copyout(x)
    >>> x
    array([7., 7., 7.])
    """
    return _enter("create", a, device)


@takes_clauses
def copyin_async(a: Any, async_: Async = True, *, device: int | None = None) -> Task | None:
    """Run `copyin` as an operation of a queue.

    The call never blocks. The next wait raises the operation's errors.

    Parameters
    ----------
    a : array
        The argument of `copyin`.
    async_ : int or True
        The queue; True is the default queue.
    device : int, optional
        A device number; None is the default device.

    Returns
    -------
    Task or None
        The operation; None if the async-argument is synchronous.

    Raises
    ------
    ClauseError
        The argument is not a host array, or the async-argument is wrong.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_copyin_async".

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> task = acc.copyin_async(x, 1)
    >>> acc.wait(1)
    >>> acc.is_present(x)
    True
    >>> acc.delete(x)
    """
    return _move("acc copyin", EnterDataWork, "copyin", a, async_, device)


@takes_clauses
def create_async(a: Any, async_: Async = True, *, device: int | None = None) -> Task | None:
    """Run `create` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> task = acc.create_async(x, 1)
    >>> acc.wait(1)
    >>> acc.is_present(x)
    True
    >>> acc.delete(x)
    """
    return _move("acc create", EnterDataWork, "create", a, async_, device)


@takes_clauses
def copyout(a: Any, *, device: int | None = None) -> None:
    """Undo one `copyin` or `create`, with a copy back if nothing holds the data any more; see `exit_data`.

    Parameters
    ----------
    a : array
        A host array. An absent array is ignored.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        The argument is not a host array.
    MapError
        The array is read-only.

    Notes
    -----
    The call blocks until the copy is done. OpenACC 3.3, 3.2 "acc_copyout".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> d = acc.copyin(x)
    >>> acc.parallel(lambda x: x.fill(7))(x)
    >>> acc.copyout(x)
    >>> x
    array([7., 7., 7.])
    """
    _move("acc copyout", ExitDataWork, "copyout", a, None, device)


@takes_clauses
def copyout_async(a: Any, async_: Async = True, *, device: int | None = None) -> Task | None:
    """Run `copyout` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> first = acc.create_async(x, 1)
    >>> second = acc.parallel(async_=1)(lambda x: x.fill(7))(x)
    >>> third = acc.copyout_async(x, 1)
    >>> acc.wait(1)
    >>> x
    array([7., 7., 7.])
    """
    return _move("acc copyout", ExitDataWork, "copyout", a, async_, device)


@takes_clauses
def copyout_finalize(a: Any, *, device: int | None = None) -> None:
    """Undo every `copyin` and `create`; otherwise as `copyout`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_copyout_finalize".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> d, same = acc.copyin(x), acc.copyin(x)  # the dynamic counter is now 2
    >>> acc.copyout_finalize(x)
    >>> acc.is_present(x)
    False
    """
    _move("acc copyout_finalize", ExitDataWork, "copyout", a, None, device, finalizes=True)


@takes_clauses
def copyout_finalize_async(a: Any, async_: Async = True, *, device: int | None = None) -> Task | None:
    """Run `copyout_finalize` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> d, same = acc.copyin(x), acc.copyin(x)
    >>> task = acc.copyout_finalize_async(x, 1)
    >>> acc.wait(1)
    >>> acc.is_present(x)
    False
    """
    return _move("acc copyout_finalize", ExitDataWork, "copyout", a, async_, device, finalizes=True)


@takes_clauses
def delete(a: Any, *, device: int | None = None) -> None:
    """Undo one `copyin` or `create` without a copy; otherwise as `copyout`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_delete".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> d = acc.copyin(x)
    >>> acc.delete(x)
    >>> acc.is_present(x)
    False
    """
    _move("acc delete", ExitDataWork, "delete", a, None, device)


@takes_clauses
def delete_async(a: Any, async_: Async = True, *, device: int | None = None) -> Task | None:
    """Run `delete` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> d = acc.copyin(x)
    >>> task = acc.delete_async(x, 1)
    >>> acc.wait(1)
    >>> acc.is_present(x)
    False
    """
    return _move("acc delete", ExitDataWork, "delete", a, async_, device)


@takes_clauses
def delete_finalize(a: Any, *, device: int | None = None) -> None:
    """Undo every `copyin` and `create` without a copy; otherwise as `copyout`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_delete_finalize".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> d, same = acc.copyin(x), acc.copyin(x)  # the dynamic counter is now 2
    >>> acc.delete_finalize(x)
    >>> acc.is_present(x)
    False
    """
    _move("acc delete_finalize", ExitDataWork, "delete", a, None, device, finalizes=True)


@takes_clauses
def delete_finalize_async(a: Any, async_: Async = True, *, device: int | None = None) -> Task | None:
    """Run `delete_finalize` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> d, same = acc.copyin(x), acc.copyin(x)
    >>> task = acc.delete_finalize_async(x, 1)
    >>> acc.wait(1)
    >>> acc.is_present(x)
    False
    """
    return _move("acc delete_finalize", ExitDataWork, "delete", a, async_, device, finalizes=True)


@takes_clauses
def update_device(a: Any, *, device: int | None = None) -> None:
    """Copy an array to its data on the device; an absent one is an error. See `update`.

    Notes
    -----
    The call blocks until the copy is done. OpenACC 3.3, 3.2 "acc_update_device".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> with acc.data(copyin=[x]):
    ...     x[:] = 5
    ...     acc.update_device(x)
    ...     print(acc.deviceptr(x).get())
    [5. 5. 5.]
    """
    _move("acc update_device", UpdateWork, "update device", a, None, device)


@takes_clauses
def update_device_async(a: Any, async_: Async = True, *, device: int | None = None) -> Task | None:
    """Run `update_device` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> with acc.data(copyin=[x]):
    ...     x[:] = 5
    ...     task = acc.update_device_async(x, 1)
    ...     acc.wait(1)
    ...     print(acc.deviceptr(x).get())
    [5. 5. 5.]
    """
    return _move("acc update_device", UpdateWork, "update device", a, async_, device)


@takes_clauses
def update_self(a: Any, *, device: int | None = None) -> None:
    """Copy an array from its data on the device; an absent one is an error. See `update`.

    Notes
    -----
    The call blocks until the copy is done. OpenACC 3.3, 3.2 "acc_update_self".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> with acc.data(copyin=[x]):
    ...     acc.parallel(lambda x: x.fill(7))(x)
    ...     acc.update_self(x)
    >>> x
    array([7., 7., 7.])
    """
    _move("acc update_self", UpdateWork, "update self", a, None, device)


@takes_clauses
def update_self_async(a: Any, async_: Async = True, *, device: int | None = None) -> Task | None:
    """Run `update_self` as an operation of a queue; otherwise as `copyin_async`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> with acc.data(copyin=[x]):
    ...     first = acc.parallel(async_=1)(lambda x: x.fill(7))(x)
    ...     second = acc.update_self_async(x, 1)
    ...     acc.wait(1)
    >>> x
    array([7., 7., 7.])
    """
    return _move("acc update_self", UpdateWork, "update self", a, async_, device)


def _enter(word: str, a: Any, device: int | None) -> Any:
    _move(f"acc {word}", EnterDataWork, word, a, None, device)
    # An object with a mapper has no one device array.
    return deviceptr(a, device=device) if isinstance(as_host(a), np.ndarray) else None


@for_finalizers
def _move(
    name: str, kind: Any, word: str, a: Any, async_: Any, device: int | None, *, finalizes: bool = False
) -> Task | None:
    """Generate the operation that a data construct with one list item is."""
    if not isinstance(as_host(a), np.ndarray) and mapper_of(a) is None:
        raise ClauseError(
            f"{name}: {type(a).__name__} {a!r:.60} is not a host array; pass a NumPy array, or an object with a mapper"
        )
    clause = data_clause(word, (a,), names_of())  # names for messages
    items: list[MapItem] = map_items(_CONSTRUCTS[kind], (clause,))
    excuse_empty(items)  # never present, so never missing
    operation = QueueOperation(name, async_=async_, device=device, devices=None)  # as ``OFFLOAD_LOOP_DEVICES`` says
    work = kind(items, finalizes=True) if finalizes else kind(items)  # an exit alone
    task = operation.run(work, items, changes=kind is not UpdateWork)
    # Without a queue the operation is complete.
    return task if operation.queue is not None else None


_CONSTRUCTS = {
    EnterDataWork: MapConstruct.TARGET_ENTER_DATA,
    ExitDataWork: MapConstruct.TARGET_EXIT_DATA,
    UpdateWork: MapConstruct.TARGET_UPDATE,
}
"""The construct that a kind of work with one list item is."""
