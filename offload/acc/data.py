"""OpenACC's data constructs: ``data``, ``enter data``, ``exit data``, ``update``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

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
from offload.arrays.items import host_items, label
from offload.arrays.sections import overlaps
from offload.constructs.clauses.mapping import map_item, map_items
from offload.constructs.clauses.maps import MapClause, as_tuple, check_device, first_text, symbolic
from offload.constructs.clauses.names import refused_text
from offload.constructs.replicas import check_devices, choose
from offload.constructs.update import are_of, hosts_of
from offload.data.entries import Counter
from offload.data.maptypes import MapConstruct
from offload.devices.retirement import refuse_retired
from offload.errors import ClauseError, MapError
from offload.interrupts.finalizers import refuse_inside
from offload.interrupts.frames import caller
from offload.runtime.current import encounter, for_finalizers
from offload.runtime.keywords import shows_clauses
from offload.runtime.managers import block
from offload.runtime.works import EndRegionWork, EnterDataWork, EnterRegionWork, ExitDataWork, UndoEntryWork, UpdateWork
from offload.tasks.blocks import Block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Unpack

    from offload.acc.signatures import (
        Async,
        CopyinClauses,
        EnterKeywords,
        ExitClauses,
        ExitKeywords,
        MoveKeywords,
        NoQueue,
        RegionClauses,
        Wait,
    )
    from offload.constructs.clauses.signatures import Depends, Devices, ListItems, Number, Truth
    from offload.data.items import MapItem
    from offload.tasks.task import Task

# Stands for a clause that is not given, and is compared by identity.
_NONE: tuple[Any, ...] = ()


@shows_clauses("offload.acc.signatures")
@block("acc.data")
def data(
    *,
    deviceptr: ListItems = (),
    if_: Truth = True,
    async_: Async = None,
    wait: Wait = None,
    device: Number | None = None,
    devices: Devices = None,
    depend: Depends = (),
    **clauses: Unpack[RegionClauses],
) -> Iterator[None]:
    """Keep data on a device for the duration of a block.

    Parameters
    ----------
    copy, copyin, copyout, create, present, no_create : list of arrays
        Host arrays, views, sections or objects with a mapper. Data that is already present is only counted; other data
        gets storage. ``copy`` and ``copyin`` copy new storage to the device at the entry. ``copy`` and ``copyout`` copy
        back at the end, if nothing else holds the data then. ``present`` requires that the data is present, and
        ``no_create`` ignores absent data. ``create`` and ``copyout`` accept `zero` of items. The older spellings
        ``pcopy``, ``present_or_copy`` and so on have the same meaning.
    deviceptr : list of arrays
        Device arrays, which are used as they are.
    if_ : bool
        False: nothing is mapped.
    async_ : int or True, optional
        The queue of the entry and the end. The block begins and ends at once.
    wait : int, list or True, optional
        Queues that the entry runs after; True means all.
    device : int, optional
        A device number; None is the default device.
    devices : list of int or "all", optional
        Device numbers of one kind, instead of ``device``. Each device gets a replica. The first device is the primary,
        whose queues hold the operation. The default is the value of ``OFFLOAD_LOOP_DEVICES``.
    depend : list of dependences
        Dependences of the entry and the end, as for OpenMP's tasks.

    Raises
    ------
    ClauseError
        A clause is wrong, at the entry.
    NotPresentError
        ``present`` data is absent. With ``async_``, the next wait raises it.
    MapError, DeviceMemoryError
        An item is present in part, or on some of the devices only, cannot be copied back, or does not fit.

    Notes
    -----
    Without ``async_``, entry and end block until their copies are done. They do not wait for operations of queues. A
    block that raises ends in the same way. OpenACC 3.3, 2.6.5 "Data Construct" (section numbers of OpenACC are
    unchecked).

    Examples
    --------
    >>> x = np.zeros(3)
    >>> @acc.parallel(present=["x"])
    ... def increment(x):
    ...     x += 1
    >>> with acc.data(copy=[x]):  # one copy each way
    ...     for step in range(10):
    ...         increment(x)
    >>> x
    array([10., 10., 10.])
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
    # Regions in the block need not name these items again for ``default="none"``.
    frame.listed = (*frame.listed, *listed)
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:  # noqa: BLE001  # goes on below, after the end
        failure = error
    # The task of the end belongs to the code around the block.
    region.leave()
    own = set(map(id, listed))  # by identity: an outer block may list equal sections
    frame.listed = tuple([section for section in frame.listed if id(section) not in own])
    try:
        _leave(operation, entry, items)
    except BaseException as error:
        if failure is None:
            raise
        failure.add_note(f"then, at the end of acc data: {error!r}")  # the block's own failure goes on
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


@overload
def enter_data(*, async_: NoQueue = None, **clauses: Unpack[EnterKeywords]) -> None: ...
@overload
def enter_data(*, async_: Async, **clauses: Unpack[EnterKeywords]) -> Task[None]: ...
@shows_clauses("offload.acc.signatures")
@for_finalizers
def enter_data(
    *,
    async_: Async = None,
    wait: Wait = None,
    if_: Truth = True,
    device: Number | None = None,
    devices: Devices = None,
    depend: Depends = (),
    **clauses: Unpack[CopyinClauses],
) -> Task[None] | None:
    """Map data until `exit_data`; present data is only counted.

    Parameters
    ----------
    copyin, create : list of arrays
        Items to map, with and without a copy to the device, as for `data`. ``create`` accepts `zero`.
    async_, wait, if_, device, devices, depend
        The parameters of `data`.

    Returns
    -------
    Task or None
        The operation, with ``async_``.

    Raises
    ------
    ClauseError, MapError, DeviceMemoryError
        See `data`.

    Notes
    -----
    Without ``async_``, the call blocks until the copies are done. It counts in the dynamic counter. OpenACC 3.3, 2.6.6
    "Enter Data and Exit Data Directives".

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> acc.enter_data(copyin=[x])
    >>> acc.is_present(x)
    True
    >>> acc.exit_data(delete=[x])
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


@overload
def exit_data(*, async_: NoQueue = None, **clauses: Unpack[ExitKeywords]) -> None: ...
@overload
def exit_data(*, async_: Async, **clauses: Unpack[ExitKeywords]) -> Task[None]: ...
@shows_clauses("offload.acc.signatures")
@for_finalizers
def exit_data(
    *,
    finalize: bool = False,
    async_: Async = None,
    wait: Wait = None,
    if_: Truth = True,
    device: Number | None = None,
    devices: Devices = None,
    depend: Depends = (),
    **clauses: Unpack[ExitClauses],
) -> Task[None] | None:
    """Undo one `enter_data`; data that nothing holds any more is removed.

    Parameters
    ----------
    copyout, delete : list of arrays
        Items to unmap, with and without a copy back when the data is removed. Absent items are ignored. If you entered
        an item with ``devices``, exit with the same devices, in any order.
    finalize : bool
        True: undo every `enter_data` of the items. Regions still hold their data.
    async_, wait, if_, device, devices, depend
        The parameters of `data`.

    Returns
    -------
    Task or None
        The operation, with ``async_``.

    Raises
    ------
    ClauseError
        A clause is wrong.
    MapError
        An item of ``copyout`` is read-only.

    Notes
    -----
    Without ``async_``, the call blocks until the copies are done. OpenACC 3.3, 2.6.6 "Enter Data and Exit Data
    Directives".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> acc.enter_data(create=[x])
    >>> acc.parallel(lambda x: x.fill(7))(x)
    >>> acc.exit_data(copyout=[x])
    >>> x
    array([7., 7., 7.])
    """
    items = _items("acc exit_data", clauses, EXIT_SPELLINGS, needs="copyout= or delete=")
    operation = QueueOperation(
        "acc exit_data", async_=async_, wait=wait, if_=if_, device=device, devices=devices, depend=depend
    )
    task = operation.run(ExitDataWork(items, finalizes=bool(finalize)), items, changes=True)
    return task if operation.queue is not None else None


@overload
def update(*, async_: NoQueue = None, **clauses: Unpack[MoveKeywords]) -> None: ...
@overload
def update(*, async_: Async, **clauses: Unpack[MoveKeywords]) -> Task[None]: ...
@for_finalizers
def update(
    *,
    self_: ListItems = _NONE,
    host: ListItems = _NONE,
    device: ListItems = (),
    if_present: bool = False,
    if_: Truth = True,
    async_: Async = None,
    wait: Wait = None,
    device_num: Number | None = None,
    devices: Devices = None,
    depend: Depends = (),
) -> Task[None] | None:
    """Copy between host arrays and their data on the device; the counters do not matter.

    Parameters
    ----------
    self_, host : list of arrays
        Host arrays, or views with any strides, to copy to the host. Both names mean the same clause.
    device : list of arrays
        Host arrays, or views with any strides, to copy to the device.
    if_present : bool
        True: ignore items that are not present. Otherwise they are an error.
    if_, async_, wait, depend
        The parameters of `data`.
    device_num : int, optional
        A device number; None is the default device.
    devices : list of int or "all", optional
        The devices, as for `data`. A copy to the device goes to each of them. A copy to the host takes each part from a
        device that has its last values.

    Returns
    -------
    Task or None
        The operation, with ``async_``.

    Raises
    ------
    ClauseError
        There is no item, an item is in both directions, or a clause is wrong.
    NotPresentError
        An item is not wholly present. With ``async_``, the next wait raises it.
    MapError
        An item of ``self_`` is read-only.

    Notes
    -----
    Without ``async_``, the call blocks until the copies are done. OpenACC 3.3, 2.14.4 "Update Directive".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> with acc.data(copyin=[x]):
    ...     acc.parallel(lambda x: x.fill(7))(x)
    ...     acc.update(self_=[x[:2]])
    >>> x
    array([7., 7., 0.])
    """
    to_host = self_ if self_.__class__ is tuple else as_tuple(self_)
    to_device = device if device.__class__ is tuple else tuple(device) if device.__class__ is list else _listed(device)
    if host is not _NONE:
        to_host += as_tuple(host)
    if not to_host and not to_device:
        raise ClauseError("acc update names no list item; give self_=[…], device=[…] or both")
    where = caller(2)  # whoever calls this is the library: `for_finalizers`
    operation = QueueOperation(
        "acc update", async_=async_, wait=wait, if_=if_, device=device_num, devices=devices, depend=depend, code=where
    )
    place = operation.place if operation.places is None else None  # several have a table each
    hosts, known = (to_device, to_host), (*map(id, to_device), None, *map(id, to_host))
    for item in (*to_device, *to_host):
        if item.__class__ is not np.ndarray:
            hosts, known = hosts_of(to_device, to_host)
            break
    key = "acc update", bool(if_present), *known
    work: Any = place.table.remembered.get(key) if place is not None else None  # an `UpdateWork`
    is_known = work is not None and work.layouts.are_current()
    # Names are looked up in the program's frame at the second call with the same arrays, and then no more.
    names: Any = Names(where) if not is_known or not work.is_named else None
    named: Sequence[MapItem] = ()
    try:
        if not is_known:
            items = _moved_both((to_device, to_host), hosts, names, if_present=bool(if_present))
            is_kept = operation.places is None and are_of(items, *hosts)
            work = UpdateWork(items, key if is_kept else None)  # the launch remembers it by the key
        elif names is not None:
            names.name(work.items)
        site = work.site
        if site is None or site.where != operation.call:
            site = work.site = operation.site
        task = operation.run(work, work.items, changes=False, site=site)
        # A task that has not been launched may still fail, and its message needs the names.
        if is_known or operation.frame.mode or not (task.launched or task.finished):
            named = work.items
    finally:
        if names is not None:
            names.settle(named)
    if named:
        work.is_named = True
    return task if operation.queue is not None else None


def _listed(device: Any) -> tuple[Any, ...]:
    """Return the items of the clause ``device`` of an update; refuse a device number."""
    if isinstance(device, (int, np.integer)):
        raise ClauseError(f"acc update device: {device!r} is not an array; to choose a device, write device_num=")
    return as_tuple(device)


def _moved_both(
    given: tuple[tuple[Any, ...], tuple[Any, ...]],
    hosts: tuple[tuple[Any, ...], tuple[Any, ...]],
    names: Names,
    *,
    if_present: bool,
) -> list[MapItem]:
    """Return the items of both clauses of an update; raise `ClauseError` where they share storage."""
    (to_device, to_host), (incoming_hosts, outgoing_hosts) = given, hosts
    incoming = _moved("update device", to_device, incoming_hosts, names, if_present=if_present) if to_device else []
    outgoing = _moved("update self", to_host, outgoing_hosts, names, if_present=if_present) if to_host else []
    # Which copy comes first would be undefined.
    for one in incoming:
        for other in outgoing:
            if overlaps(one.section, other.section):
                raise ClauseError(
                    f"acc update: {one.label} in `device` and {other.label} in `self_` share storage; copy each "
                    "variable in one direction, or use two updates"
                )
    return incoming + outgoing


def _moved(
    word: str, given: tuple[Any, ...], hosts: tuple[Any, ...], names: Names, *, if_present: bool
) -> list[MapItem]:
    """Return the items of one clause of an update; of an object with a mapper, those that move this way.

    ``hosts`` are the arrays that are ``given``, and NumPy's in the place of other libraries'.
    """
    found: list[MapItem] = []
    prototype = _CLAUSES[word]
    map_type = prototype.map_type
    for value, host in zip(given, hosts, strict=True):
        if host.__class__ is np.ndarray and not host.dtype.hasobject:
            items = [map_item(host, map_type, names.label(host, value), clause=prototype)]  # most items
        else:
            items = _moved_otherwise(word, value, names)
        for item in items:
            item.present = not if_present and bool(item.section.run_nbytes)  # absent: an error
        found += items
    return found


def _moved_otherwise(word: str, value: Any, names: Names) -> list[MapItem]:
    """Return the items of an object with a mapper, or another value that is not a plain array, that move this way."""
    clause = data_clause(word, (value,), names)
    if clause.is_symbolic:
        raise refused_text(f"acc {word}", first_text((clause,)))
    return [item for item in map_items(MapConstruct.TARGET_UPDATE, (clause,)) if item.map_type is clause.map_type]


_CLAUSES = {word: MapClause(map_type, (np.empty(1),), word=word) for word, map_type in UPDATES.items()}
"""What the items of plain arrays have of a clause, which need none of their own."""


# An error in a clause suggests the keywords of its construct's function.
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
        raise refused_text(construct, first_text(clauses))
    items = map_items(MapConstruct.TARGET_DATA if not needs else _construct(spellings), clauses)
    check_distinct(construct, items)
    excuse_empty(items)
    return items


def _construct(spellings: Mapping[str, str]) -> MapConstruct:
    return MapConstruct.TARGET_ENTER_DATA if spellings is ENTER_SPELLINGS else MapConstruct.TARGET_EXIT_DATA


def _check_device_arrays(construct: str, deviceptr: Any, device: Any, devices: Any) -> None:
    """Refuse items of ``deviceptr`` that are not arrays of the construct's device; on the host, any array will do."""
    items = as_tuple(deviceptr)
    if not items:
        return
    scope, frame = encounter(construct)
    _, place = choose(scope.runtime, frame, construct, check_devices(devices), check_device(device), if_=True)
    if place is None:
        # On the host, any array will do.
        items = tuple([item for item in host_items(items) if not isinstance(item, np.ndarray)])
    for item in device_arrays(f"{construct} deviceptr", items):
        if place is not None and place.device.as_array(item) is None:  # an array of any library will do
            raise MapError(
                f"deviceptr({label(item)}) is not on device {place.device.number}; run the region on the device that "
                "holds it"
            )
        if place is not None and place.device.is_array(item):
            refuse_retired(place.device, item)
