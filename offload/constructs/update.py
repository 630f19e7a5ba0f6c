"""`target_update`: transfers between host arrays and their corresponding storage, for any reference counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from offload.arrays.foreign import read_only_reason
from offload.arrays.items import Label, host_items, identities_of, is_device_array, label, mapper_of
from offload.arrays.sections import overlaps
from offload.constructs.clauses.dependences import check_depend_now
from offload.constructs.clauses.mappers import expand
from offload.constructs.clauses.mapping import map_item
from offload.constructs.clauses.maps import as_tuple, check_device
from offload.constructs.clauses.names import refused_text
from offload.constructs.doubts import warn_of_writes
from offload.constructs.replicas import check_devices, choose, spread
from offload.data.maptypes import MapType
from offload.errors import ClauseError, MapError
from offload.interrupts.frames import caller
from offload.runtime.current import encounter, for_finalizers
from offload.runtime.generate import generate
from offload.runtime.recipe import DeviceRecipe
from offload.runtime.works import UpdateWork
from offload.tasks.recipe import Recipe
from offload.tasks.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal, Unpack

    from offload.constructs.clauses.signatures import Depends, Devices, ListItems, Number, Truth, UpdateKeywords
    from offload.data.items import MapItem
    from offload.tasks.task import Task


@overload
def target_update(*, nowait: Literal[True], **clauses: Unpack[UpdateKeywords]) -> Task[None]: ...
@overload
def target_update(*, nowait: Literal[False] = False, **clauses: Unpack[UpdateKeywords]) -> None: ...
@overload
def target_update(*, nowait: bool, **clauses: Unpack[UpdateKeywords]) -> Task[None] | None: ...
@for_finalizers
def target_update(
    *,
    to: ListItems = (),
    from_: ListItems = (),
    present: bool = False,
    depend: Depends = (),
    nowait: bool = False,
    device: Number | None = None,
    devices: Devices = None,
    if_: Truth = True,
) -> Task[None] | None:
    """Copy between host arrays and their corresponding storage on a device; counts do not change.

    Parameters
    ----------
    to, from_ : list of arrays
        Host arrays, or views with any strides, to copy to the device and from it. Bytes between the elements of a view
        do not change. Give at least one item. The construct ignores items that are absent, present in part only, or
        without elements. For an object with a mapper, it copies the items that its mapper copies in that direction.
    present : bool
        True: an item that is not wholly present is an error. For an item without elements, its address must be present.
    depend, nowait, device, devices
        The parameters of `target_enter_data`. With ``devices``, a copy to the device goes to each device that has a
        replica. A copy from the device takes each part from a device that has its last values. offload issues a
        `DirectiveWarning` if `in_` alone names an item of ``from_``.
    if_ : bool
        False: nothing is copied, but the dependences hold.

    Returns
    -------
    Task or None
        The task, with ``nowait``.

    Raises
    ------
    ClauseError, DependError
        There is no item, an item is in both clauses or is not a host array, or another clause is wrong.
    MapError
        An item of ``from_`` is read-only.
    NotPresentError
        With ``present``: an item is not wholly present. With ``nowait``, ``result()`` raises it.

    Notes
    -----
    Without ``nowait``, the call blocks until the copies are done. It copies each item that is present. The copy runs
    after the last write of the storage, and a copy to the device also runs after the other uses of the storage. On the
    host nothing is copied. OpenMP 5.2, 13.9 "target update Construct"; 5.9 "Data-Motion Clauses".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> with omp.target_data(map=[omp.to(x)]):
    ...     omp.target(lambda x: x.fill(7))(x)
    ...     omp.target_update(from_=[x[:2]])
    >>> x
    array([7., 7., 0.])
    """
    to = tuple(to) if to.__class__ is list else as_tuple(to)
    from_ = from_ if from_.__class__ is tuple else as_tuple(from_)
    scope, frame = encounter("target_update")
    runtime = scope.runtime
    places = None
    if devices is not None or (device is None and runtime.settings.loop_devices is not None):
        places, place = choose(
            runtime, frame, "target_update", check_devices(devices), check_device(device), if_=bool(if_)
        )
        if places is not None and len(places) == 1:
            places = None
    else:
        place = runtime.default_place(frame) if device is None and if_ else None
        if place is None:
            place = runtime.place(frame, check_device(device), if_=bool(if_))
    # Calls that name the same arrays share the work, and the plan of an earlier launch, until a layout differs.
    named: tuple[Any, ...] = *map(id, to), None, *map(id, from_)
    for item in (*to, *from_):
        if item.__class__ is not np.ndarray:
            (to, from_), named = hosts_of(to, from_)
            break
    key = "target update", bool(present), *named
    work: Any = place.table.remembered.get(key) if place is not None and places is None else None
    if work is None or not work.layouts.are_current():
        items = _items(to, from_, present=bool(present))
        work = UpdateWork(items, key if places is None and are_of(items, to, from_) else None)
    frame_of_call = caller(2)  # whoever calls this is the library: `for_finalizers`
    call = frame_of_call.f_code, frame_of_call.f_lasti
    site = work.site
    if site is None or site.where != call:
        site = work.site = Site("target update", "target update", call, runtime)
    dependences = check_depend_now("target_update", depend) if depend else ()
    if dependences and place is not None and from_:
        warn_of_writes("target_update", dependences, [item.host for item in work.items if item.map_type.copies_out])
    # The work of a construct on several devices is its own: `spread` changes it.
    done = work if places is None else spread(work, places, runtime.gate, is_default=devices is None)
    recipe = Recipe(site) if place is None else DeviceRecipe(site, place, done)
    task = generate(scope, frame, recipe, dependences, wait=not nowait)
    return task if nowait else None


def hosts_of(
    first: tuple[Any, ...], second: tuple[Any, ...]
) -> tuple[tuple[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]:
    """Return the items of two clauses with NumPy arrays for other libraries' arrays, and the key of calls with them."""
    hosts = host_items(first), host_items(second)
    return hosts, (*identities_of(first, hosts[0]), None, *identities_of(second, hosts[1]))


def are_of(items: list[MapItem], first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    """Tell whether the items of two clauses are the arrays that these name: nobody keeps the leaves of a mapper."""
    return [id(item.host) for item in items] == [*map(id, first), *map(id, second)]


def _items(to: tuple[Any, ...], from_: tuple[Any, ...], *, present: bool) -> list[MapItem]:
    """Return the evaluated list items of both clauses; raise as `target_update` says."""
    if not to and not from_:
        raise ClauseError("target_update names no list item; give to=[…], from_=[…] or both")
    incoming = _evaluated(to, MapType.TO, present=present) if to else []
    outgoing = _evaluated(from_, MapType.FROM, present=present) if from_ else []
    for one in incoming:
        for other in outgoing:
            if overlaps(one.section, other.section):
                raise ClauseError(
                    f"target_update: {one.label} in `to` and {other.label} in `from_` share storage; copy each item in "
                    "one direction, or use two updates"
                )
    return incoming + outgoing


def _evaluated(given: Iterable[Any], map_type: MapType, *, present: bool) -> list[MapItem]:
    """Return the items of one clause; of an object with a mapper, those that it moves in this direction."""
    items = []
    for item in given:
        if mapper_of(item) is None:
            items.append(_item(item, map_type, present=present))
        else:
            items += [
                _item(leaf.array, map_type, present=present or leaf.modifiers.present)
                for leaf in expand(item, map_type)
                if leaf.map_type is map_type
            ]
    return items


def _item(array: Any, map_type: MapType, *, present: bool) -> MapItem:
    if array.__class__ is not np.ndarray:
        _check_array(array, map_type)
    item = map_item(array, MapType.TO, Label(array), present=present)
    if map_type.copies_out and not array.flags.writeable:
        raise MapError(
            f"target_update(from: {label(array):.60}): {read_only_reason(array)}, so nothing can be copied to it"
        )
    item.map_type = map_type
    return item


def _check_array(array: Any, map_type: MapType) -> None:
    """Refuse a list item that is no host array."""
    if isinstance(array, str):
        raise refused_text(f"target_update({map_type.word})", array)
    if is_device_array(array):
        wrong = " is a device array; name the host array that it corresponds to, or use target_memcpy"
    elif not isinstance(array, np.ndarray):
        wrong = f" is a {type(array).__name__}, not an array; update arrays, views or section(…)"
    else:
        return
    raise ClauseError(f"target_update({map_type.word}: {label(array):.60}){wrong}")
