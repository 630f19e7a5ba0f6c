"""OpenACC's data constructs: ``data``, ``enter data``, ``exit data``, ``update``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.acc.clauses import (
    ENTER_SPELLINGS,
    EXIT_SPELLINGS,
    SPELLINGS,
    UPDATES,
    Names,
    check_distinct,
    data_clause,
    data_clauses,
    device_arrays,
    excuse_empty,
)
from offload.acc.operations import QueueOperation
from offload.arrays.items import label
from offload.arrays.sections import overlaps
from offload.constructs.clauses.mapping import map_item, map_items
from offload.constructs.clauses.maps import MapClause, as_tuple, check_device, symbolic
from offload.constructs.replicas import check_devices, choose
from offload.data.entries import Counter
from offload.data.maptypes import MapConstruct
from offload.devices.retirement import refuse_retired
from offload.errors import ClauseError, MapError
from offload.interrupts.finalizers import refuse_inside
from offload.interrupts.frames import caller
from offload.runtime.current import for_finalizers, here
from offload.runtime.managers import block
from offload.runtime.works import EndRegionWork, EnterDataWork, EnterRegionWork, ExitDataWork, UndoEntryWork, UpdateWork
from offload.tasks.blocks import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from offload.data.items import MapItem
    from offload.data.memo import KnownUpdate
    from offload.tasks.task import Task

_NONE: tuple[Any, ...] = ()


@block("acc.data")
def data(
    *,
    deviceptr: Any = (),
    if_: bool = True,
    async_: Any = None,
    wait: Any = None,
    device: int | None = None,
    devices: Any = None,
    depend: Any = (),
    **clauses: Any,
) -> Iterator[None]:
    """Keep data on a device for the time of a block.

    Parameters
    ----------
    copy, copyin, copyout, create, present, no_create : list of arrays
        Host arrays, views, sections or objects with a mapper. What is present already is only counted, else it gets
        storage, with a copy to the device at the entry (``copy``, ``copyin``), and one back at the end if nothing else
        holds it then (``copy``, ``copyout``). ``present`` has to be there; ``no_create`` is ignored where it is
        not. ``create`` and ``copyout`` take `zero` of items. ``pcopy``, ``present_or_copy`` and so on mean the same.
    deviceptr : list of arrays
        Device arrays, which are used as they are.
    if_ : bool
        False: nothing is mapped.
    async_ : int or True, optional
        The queue that entry and end are operations of: the block begins at once and leaves at once.
    wait : int, list or True, optional
        Queues that the entry follows, True for all.
    device : int, optional
        A device number; None is the default device.
    devices : list of int or "all", optional
        Device numbers of one kind, in place of ``device``: each gets a replica, the first is the primary, whose queues
        the operation is in. By default what ``OFFLOAD_LOOP_DEVICES`` says.
    depend : list of dependences
        Of the entry and the end, as of OpenMP's tasks.

    Raises
    ------
    ClauseError
        Wrong clauses, at the entry.
    NotPresentError
        ``present`` data is absent; with ``async_`` from the next wait.
    MapError, DeviceMemoryError
        An item is present in part, or on some of the devices only, can not be copied back, or does not fit.

    Notes
    -----
    *Blocks* without ``async_`` until the copies are done, and on nothing else: operations of queues go on. A block that
    raises is left as one that ends. OpenACC 3.3, 2.6.5 "Data Construct" (section numbers of OpenACC are unchecked).
    """
    name = "acc data"
    refuse_inside(name)
    items = _items(name, clauses, SPELLINGS)
    _check_device_arrays(name, deviceptr, device, devices)
    if not items and not as_tuple(deviceptr):
        raise ClauseError("acc data has no data clause; give copy=, copyin=, copyout=, create=, present= or others")
    operation = QueueOperation(name, async_=async_, wait=wait, if_=if_, device=device, devices=devices, depend=depend)
    try:
        entry = operation.run(EnterRegionWork(items, Counter.STRUCTURED), items, changes=True)
    except BaseException:
        _undo(operation, items)
        raise
    region = Block(operation.scope, operation.frame)
    frame = region.frame
    listed = [item.section for item in items]
    frame.listed = (*frame.listed, *listed)
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:  # noqa: BLE001  # goes on below, after the end
        failure = error
    region.leave()
    own = set(map(id, listed))
    frame.listed = tuple([section for section in frame.listed if id(section) not in own])
    try:
        _leave(operation, entry, items)
    except BaseException as error:
        if failure is None:
            raise
        failure.add_note(f"then, at the end of acc data: {error!r}")
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # or the traceback would refer to this frame, and that to the failure


def _undo(operation: QueueOperation, items: list[MapItem]) -> None:
    """Undo the entry of a region that an interruption has left."""
    if operation.task is not None:  # it has mapped the items, or will
        _leave(operation, operation.task, items)


@for_finalizers  # of a generator that is suspended in the block
def _leave(operation: QueueOperation, entry: Task, items: list[MapItem]) -> None:
    """Undo the entry of a region; one that failed has mapped nothing."""
    if entry.failure is None:
        operation.end_run(EndRegionWork([], Counter.STRUCTURED), items, entry)


@for_finalizers
def enter_data(
    *,
    async_: Any = None,
    wait: Any = None,
    if_: bool = True,
    device: int | None = None,
    devices: Any = None,
    depend: Any = (),
    **clauses: Any,
) -> Task | None:
    """Map data until `exit_data`; what is present already is only counted.

    Parameters
    ----------
    copyin, create : list of arrays
        With and without a copy to the device, as for `data`; ``create`` takes `zero`.
    async_, wait, if_, device, devices, depend
        As for `data`.

    Returns
    -------
    Task or None
        The operation, with ``async_``.

    Raises
    ------
    ClauseError, MapError, DeviceMemoryError
        As `data`.

    Notes
    -----
    *Blocks* without ``async_`` until the copies are done. Counts in the dynamic counter. OpenACC 3.3, 2.6.6 "Enter Data
    and Exit Data Directives".
    """
    items = _items("acc enter_data", clauses, ENTER_SPELLINGS, needs="copyin= or create=")
    operation = QueueOperation(
        "acc enter_data", async_=async_, wait=wait, if_=if_, device=device, devices=devices, depend=depend
    )
    try:
        task = operation.run(EnterDataWork(items), items, changes=True)
    except BaseException:
        if operation.task is not None:  # it has mapped the items, or will
            operation.end_run(UndoEntryWork(items), items, operation.task)
        raise
    return task if operation.queue is not None else None


@for_finalizers
def exit_data(
    *,
    finalize: bool = False,
    async_: Any = None,
    wait: Any = None,
    if_: bool = True,
    device: int | None = None,
    devices: Any = None,
    depend: Any = (),
    **clauses: Any,
) -> Task | None:
    """Undo one `enter_data`; data that nothing holds any more is removed.

    Parameters
    ----------
    copyout, delete : list of arrays
        With and without a copy back where the data is removed. What is absent is ignored. What was entered with
        ``devices`` is left with the same ones, in any order.
    finalize : bool
        True: undo every `enter_data` of the items. Regions still hold their data.
    async_, wait, if_, device, devices, depend
        As for `data`.

    Returns
    -------
    Task or None
        The operation, with ``async_``.

    Raises
    ------
    ClauseError
        Wrong clauses.
    MapError
        An item of ``copyout`` is read-only.

    Notes
    -----
    *Blocks* without ``async_`` until the copies are done. OpenACC 3.3, 2.6.6 "Enter Data and Exit Data Directives".
    """
    items = _items("acc exit_data", clauses, EXIT_SPELLINGS, needs="copyout= or delete=")
    operation = QueueOperation(
        "acc exit_data", async_=async_, wait=wait, if_=if_, device=device, devices=devices, depend=depend
    )
    task = operation.run(ExitDataWork(items, finalizes=bool(finalize)), items, changes=True)
    return task if operation.queue is not None else None


@for_finalizers
def update(
    *,
    self_: Any = _NONE,
    host: Any = _NONE,
    device: Any = (),
    if_present: bool = False,
    if_: bool = True,
    async_: Any = None,
    wait: Any = None,
    device_num: int | None = None,
    devices: Any = None,
    depend: Any = (),
) -> Task | None:
    """Copy between host arrays and their data on the device, whatever the counters.

    Parameters
    ----------
    self_, host : list of arrays
        Copied to the host; two words for one clause. Host arrays, or views of any strides.
    device : list of arrays
        Copied to the device.
    if_present : bool
        True: what is not present is ignored; else it is an error.
    if_, async_, wait, depend
        As for `data`.
    device_num : int, optional
        A device number; None is the default device.
    devices : list of int or "all", optional
        As for `data`: a copy to the device is one to each, and one to the host takes each part from a device that has
        its last values.

    Returns
    -------
    Task or None
        The operation, with ``async_``.

    Raises
    ------
    ClauseError
        No item, one in both directions, or wrong clauses.
    NotPresentError
        An item is not wholly present; with ``async_`` from the next wait.
    MapError
        An item of ``self_`` is read-only.

    Notes
    -----
    *Blocks* without ``async_`` until the copies are done. OpenACC 3.3, 2.14.4 "Update Directive".
    """
    to_host = as_tuple(self_)
    if device.__class__ is list:
        to_device = tuple(device)
    elif isinstance(device, (int, np.integer)):
        raise ClauseError(f"acc update device: {device!r} is not an array; to choose a device, write device_num=")
    else:
        to_device = as_tuple(device)
    if host is not _NONE:
        to_host += as_tuple(host)
    if not to_host and not to_device:
        raise ClauseError("acc update names no list item; give self_=[…], device=[…] or both")
    names = Names(caller(2))  # whoever calls this is the library: `for_finalizers`
    named: Sequence[MapItem] = ()
    try:
        operation = QueueOperation(
            "acc update",
            async_=async_,
            wait=wait,
            if_=if_,
            device=device_num,
            devices=devices,
            depend=depend,
            code=names.frame,
        )
        key: Any = "acc update", bool(if_present), len(to_device), *map(id, to_device), *map(id, to_host)
        place = operation.place
        known: KnownUpdate | None = place.table.remembered.get(key) if place is not None else None
        if known is not None and known.layouts.are_current():
            items = known.items
            names.name(items)
            known = None  # it refers to memory of the device, and an error's traceback to this frame
        else:
            items = _moved_both(to_device, to_host, names, if_present=bool(if_present))
            if [id(item.host) for item in items] != [*map(id, to_device), *map(id, to_host)]:
                key = None  # mappers: an object of which nobody keeps hold
        task = operation.run(UpdateWork(items, key), items, changes=False)
        frame = operation.frame
        if frame.mode or not (task.launched or task.finished):
            named = items
    finally:
        names.settle(named)
    return task if operation.queue is not None else None


def _moved_both(
    to_device: tuple[Any, ...], to_host: tuple[Any, ...], names: Names, *, if_present: bool
) -> list[MapItem]:
    """Return the items of both clauses of an update; raise `ClauseError` where they share storage."""
    incoming = _moved("update device", to_device, names, if_present=if_present) if to_device else []
    outgoing = _moved("update self", to_host, names, if_present=if_present) if to_host else []
    for one in incoming:
        for other in outgoing:
            if overlaps(one.section, other.section):
                raise ClauseError(
                    f"acc update: {one.label} in `device` and {other.label} in `self_` share storage; copy each "
                    "variable in one direction, or use two updates"
                )
    return incoming + outgoing


def _moved(word: str, given: tuple[Any, ...], names: Names, *, if_present: bool) -> list[MapItem]:
    """Return the items of one clause of an update; of an object with a mapper, those that move this way."""
    found: list[MapItem] = []
    prototype = _CLAUSES[word]
    map_type = prototype.map_type
    for value in given:
        if value.__class__ is np.ndarray and not value.dtype.hasobject:
            items = [map_item(value, map_type, names.label(value), clause=prototype)]
        else:
            items = _moved_otherwise(word, value, names)
        for item in items:
            item.present = not if_present and bool(item.section.run_nbytes)
        found += items
    return found


def _moved_otherwise(word: str, value: Any, names: Names) -> list[MapItem]:
    """Return the items of what is no plain array: of an object with a mapper, those that move this way."""
    clause = data_clause(word, (value,), names)
    if clause.is_symbolic:
        raise ClauseError(f"acc {word}: strings are allowed as list items only in decorators; pass the array itself")
    return [item for item in map_items(MapConstruct.TARGET_UPDATE, (clause,)) if item.map_type is clause.map_type]


_CLAUSES = {word: MapClause(map_type, (np.empty(1),), word=word) for word, map_type in UPDATES.items()}
"""What the items of plain arrays have of a clause, which need none of their own."""


_CONSTRUCTS: dict[str, Callable[..., Any]] = {
    "acc data": data,
    "acc enter_data": enter_data,
    "acc exit_data": exit_data,
}

# -- list items --------------------------------------------------------------------------------------


def _items(construct: str, given: Mapping[str, Any], spellings: Mapping[str, str], needs: str = "") -> list[MapItem]:
    """Return the evaluated items of the data clauses of a construct that is a call."""
    clauses = data_clauses(construct, given, spellings, _CONSTRUCTS[construct])
    if needs and not clauses:
        raise ClauseError(f"{construct} has no data clause; give {needs}")
    if symbolic(clauses):
        raise ClauseError(f"{construct}: strings are allowed as list items only in decorators; pass the array itself")
    items = map_items(MapConstruct.TARGET_DATA if not needs else _construct(spellings), clauses)
    check_distinct(construct, items)
    excuse_empty(items)
    return items


def _construct(spellings: Mapping[str, str]) -> MapConstruct:
    return MapConstruct.TARGET_ENTER_DATA if spellings is ENTER_SPELLINGS else MapConstruct.TARGET_EXIT_DATA


def _check_device_arrays(construct: str, deviceptr: Any, device: int | None, devices: Any) -> None:
    """Refuse what is in a ``deviceptr`` clause and no device array of the construct's device; the host's are arrays."""
    items = as_tuple(deviceptr)
    if not items:
        return
    scope = here()
    frame = scope.frame(construct)
    _, place = choose(scope.runtime, frame, construct, check_devices(devices), check_device(device), if_=True)
    if place is None:
        items = tuple([item for item in items if not isinstance(item, np.ndarray)])
    for item in device_arrays(f"{construct} deviceptr", items):
        if place is not None and place.device.as_array(item) is None:
            raise MapError(
                f"deviceptr({label(item)}) is not on device {place.device.number}; run the region on the device that "
                "holds it"
            )
        if place is not None and place.device.is_array(item):
            refuse_retired(place.device, item)
