"""OpenACC's routines that map, unmap and update data, under their names without ``acc_``.

OpenACC 3.3, 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.acc.addresses import deviceptr
from offload.acc.clauses import data_clause, excuse_empty, names_of
from offload.acc.operations import QueueOperation
from offload.arrays.items import mapper_of
from offload.constructs.clauses.mapping import map_items
from offload.data.maptypes import MapConstruct
from offload.errors import ClauseError
from offload.runtime.current import for_finalizers
from offload.runtime.keywords import takes_clauses
from offload.runtime.works import EnterDataWork, ExitDataWork, UpdateWork

if TYPE_CHECKING:
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
        Not a host array.
    MapError, DeviceMemoryError
        As `enter_data`.

    Notes
    -----
    *Blocks* until the copy is done. OpenACC 3.3, 3.2 "acc_copyin".
    """
    return _enter("copyin", a, device)


@takes_clauses
def create(a: Any, *, device: int | None = None) -> Any:
    """Map an array without a copy; otherwise as `copyin`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_create".
    """
    return _enter("create", a, device)


@takes_clauses
def copyin_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do the same as an operation of a queue; return the operation, or None where the async-argument is synchronous.

    For parameters and errors see `copyin`; those of the task come from the next wait. *Blocks* never.
    """
    return _move("acc copyin", EnterDataWork, "copyin", a, async_, device)


@takes_clauses
def create_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `create` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc create", EnterDataWork, "create", a, async_, device)


@takes_clauses
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
    *Blocks* until the copy is done. OpenACC 3.3, 3.2 "acc_copyout".
    """
    _move("acc copyout", ExitDataWork, "copyout", a, None, device)


@takes_clauses
def copyout_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `copyout` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc copyout", ExitDataWork, "copyout", a, async_, device)


@takes_clauses
def copyout_finalize(a: Any, *, device: int | None = None) -> None:
    """Undo every `copyin` and `create`; otherwise as `copyout`."""
    _move("acc copyout_finalize", ExitDataWork, "copyout", a, None, device, finalizes=True)


@takes_clauses
def copyout_finalize_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `copyout_finalize` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc copyout_finalize", ExitDataWork, "copyout", a, async_, device, finalizes=True)


@takes_clauses
def delete(a: Any, *, device: int | None = None) -> None:
    """Undo one `copyin` or `create` without a copy; otherwise as `copyout`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_delete".
    """
    _move("acc delete", ExitDataWork, "delete", a, None, device)


@takes_clauses
def delete_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `delete` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc delete", ExitDataWork, "delete", a, async_, device)


@takes_clauses
def delete_finalize(a: Any, *, device: int | None = None) -> None:
    """Undo every `copyin` and `create` without a copy; otherwise as `copyout`."""
    _move("acc delete_finalize", ExitDataWork, "delete", a, None, device, finalizes=True)


@takes_clauses
def delete_finalize_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `delete_finalize` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc delete_finalize", ExitDataWork, "delete", a, async_, device, finalizes=True)


@takes_clauses
def update_device(a: Any, *, device: int | None = None) -> None:
    """Copy an array to its data on the device; an absent one is an error. See `update`.

    Notes
    -----
    *Blocks* until the copy is done. OpenACC 3.3, 3.2 "acc_update_device".
    """
    _move("acc update_device", UpdateWork, "update device", a, None, device)


@takes_clauses
def update_device_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `update_device` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc update_device", UpdateWork, "update device", a, async_, device)


@takes_clauses
def update_self(a: Any, *, device: int | None = None) -> None:
    """Copy an array from its data on the device; an absent one is an error. See `update`.

    Notes
    -----
    *Blocks* until the copy is done. OpenACC 3.3, 3.2 "acc_update_self".
    """
    _move("acc update_self", UpdateWork, "update self", a, None, device)


@takes_clauses
def update_self_async(a: Any, async_: Any = True, *, device: int | None = None) -> Task | None:
    """Do what `update_self` does as an operation of a queue; otherwise as `copyin_async`."""
    return _move("acc update_self", UpdateWork, "update self", a, async_, device)


def _enter(word: str, a: Any, device: int | None) -> Any:
    _move(f"acc {word}", EnterDataWork, word, a, None, device)
    return deviceptr(a, device=device) if isinstance(a, np.ndarray) else None


@for_finalizers
def _move(
    name: str, kind: Any, word: str, a: Any, async_: Any, device: int | None, *, finalizes: bool = False
) -> Task | None:
    """Generate the operation that a data construct with one list item is."""
    if not isinstance(a, np.ndarray) and mapper_of(a) is None:
        raise ClauseError(
            f"{name}: {type(a).__name__} {a!r:.60} is not a host array; pass a NumPy array, or an object with a mapper"
        )
    clause = data_clause(word, (a,), names_of())
    items: list[MapItem] = map_items(_CONSTRUCTS[kind], (clause,))
    excuse_empty(items)
    operation = QueueOperation(name, async_=async_, device=device, devices=None)
    work = kind(items, finalizes=True) if finalizes else kind(items)
    task = operation.run(work, items, changes=kind is not UpdateWork)
    return task if operation.queue is not None else None


_CONSTRUCTS = {
    EnterDataWork: MapConstruct.TARGET_ENTER_DATA,
    ExitDataWork: MapConstruct.TARGET_EXIT_DATA,
    UpdateWork: MapConstruct.TARGET_UPDATE,
}
"""The construct that a kind of work with one list item is."""
