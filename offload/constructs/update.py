"""`target_update`: transfers between host arrays and their corresponding storage, whatever the counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import Label, is_device_array, label, mapper_of
from offload.arrays.sections import overlaps
from offload.constructs.clauses.dependences import check_depend_now
from offload.constructs.clauses.mappers import expand
from offload.constructs.clauses.mapping import map_item
from offload.constructs.clauses.maps import as_tuple, check_device
from offload.constructs.doubts import warn_of_writes
from offload.constructs.replicas import check_devices, choose, spread
from offload.data.maptypes import MapType
from offload.errors import ClauseError, MapError
from offload.runtime.current import for_finalizers, here
from offload.runtime.generate import generate
from offload.runtime.recipe import recipe_at
from offload.runtime.sites import call_site
from offload.runtime.works import UpdateWork
from offload.tasks.stack import owned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.data.items import MapItem
    from offload.data.memo import KnownUpdate
    from offload.tasks.task import Task


@for_finalizers
def target_update(
    *,
    to: Any = (),
    from_: Any = (),
    present: bool = False,
    depend: Any = (),
    nowait: bool = False,
    device: int | None = None,
    devices: Any = None,
    if_: bool = True,
) -> Task | None:
    """Copy between host arrays and their corresponding storage on a device; counts do not change.

    Parameters
    ----------
    to, from_ : list of arrays
        Host arrays or views of any strides, copied to the device and from it; what lies between their elements is not
        touched. At least one. Items that are absent, or present in part, are ignored, and so are ones without elements.
        Of an object with a mapper, what its mapper moves in that direction.
    present : bool
        An item that is not wholly present is an error; of one without elements, the address has to be present.
    depend, nowait, device, devices
        As for `target_enter_data`; with ``devices`` a copy to the device is one to each of those that have a replica,
        and one from it takes each part from a device that has its last values. An item of ``from_`` that is named by
        `in_` only is a `DirectiveWarning`.
    if_ : bool
        False: nothing is copied, dependences hold.

    Returns
    -------
    Task or None
        The task, with ``nowait``.

    Raises
    ------
    ClauseError, DependError
        No item, one in both clauses, one that is no host array, or other wrong clauses.
    MapError
        An item of ``from_`` is read-only.
    NotPresentError
        With ``present``, where an item is not wholly present; with ``nowait`` from ``result()``.

    Notes
    -----
    *Blocks* without ``nowait`` until the copies are done. *Costs* a copy of each item that is present. It follows the
    last write of the storage, and a copy to the device follows its other users too. On the host it copies nothing.
    OpenMP 5.2, 13.9 "target update Construct"; 5.9 "Data-Motion Clauses".
    """
    to, from_, present = as_tuple(to), as_tuple(from_), bool(present)
    scope = here()
    runtime = scope.runtime
    frame = scope.region
    if frame is None or frame.mode or owned:
        frame = scope.frame("target_update")
    places = None
    if devices is not None or (device is None and runtime.settings.loop_devices is not None):
        places, place = choose(
            runtime, frame, "target_update", check_devices(devices), check_device(device), if_=bool(if_)
        )
    else:
        place = runtime.default_place(frame) if device is None and if_ else None
        if place is None:
            place = runtime.place(frame, check_device(device), if_=bool(if_))
    key: tuple[Any, ...] | None = "update", present, len(to), *map(id, to), *map(id, from_)
    known: KnownUpdate | None = place.table.remembered.get(key) if place is not None else None
    if known is not None and known.layouts.are_current():
        items = known.items
        known = None  # it refers to memory of the device, and an error's traceback to this frame
    else:
        items = _items(to, from_, present=present)
        if [id(item.host) for item in items] != [*map(id, to), *map(id, from_)]:
            key = None  # mappers: an object of which nobody keeps hold
    dependences = check_depend_now("target_update", depend) if depend else ()
    if dependences and place is not None and from_:
        warn_of_writes("target_update", dependences, [item.host for item in items if item.map_type.copies_out])
    site, one = call_site("target update", runtime, 1), UpdateWork(items, key)
    work = one if places is None else spread(one, places, runtime.gate, is_default=devices is None)
    task = generate(scope, frame, recipe_at(site, place, work), dependences, wait=not nowait)
    return task if nowait else None


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
            f"target_update(from: {label(array):.60}): the array is read-only, so nothing can be copied to it"
        )
    item.map_type = map_type
    return item


def _check_array(array: Any, map_type: MapType) -> None:
    """Refuse a list item that is no host array."""
    if isinstance(array, str):
        wrong = ": strings are allowed as list items only in decorators; pass the array itself"
    elif is_device_array(array):
        wrong = " is a device array; name the host array that it corresponds to, or use target_memcpy"
    elif not isinstance(array, np.ndarray):
        wrong = f" is a {type(array).__name__}, not an array; update arrays, views or section(…)"
    else:
        return
    raise ClauseError(f"target_update({map_type.word}: {label(array):.60}){wrong}")
