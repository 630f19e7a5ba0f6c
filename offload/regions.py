"""What device tasks do on their lane: target regions, data constructs and copies.

Each kind of work has ``begin`` (before the body), ``run`` (the body, or None), ``end`` (after it) and ``abort`` (a body
that failed). A work is used once; `again` makes a fresh one, for a recorded graph that runs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.clauses import MapClause, as_tuple
from offload.data.maptypes import Construct, MapType, resolve
from offload.data.present import MapItem
from offload.errors import MapError
from offload.items import array_section, is_device_array, label, parse_item
from offload.storage import covers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload.data.present import EnterPlan
    from offload.devices.streams import Lane
    from offload.launch import DevicePlace


# -- list items ------------------------------------------------------------------------------------


def map_item(
    array: np.ndarray[Any, Any],
    map_type: MapType,
    text: str,
    *,
    always: bool = False,
    present: bool = False,
    implicit: bool = False,
) -> MapItem:
    """Return the evaluated list item of a host array.

    Raises
    ------
    MapError
        The device's values would have to be copied to an array that cannot be written.
    """
    section = array_section(array)
    if map_type.copies_out and not array.flags.writeable:
        raise MapError(
            f"map({map_type.word}: {text}): the array is read-only, so nothing can be copied back to it; map it `to`"
        )
    return MapItem(
        section=section,
        address=array.__array_interface__["data"][0],
        shape=array.shape,
        strides=array.strides,
        itemsize=array.itemsize,
        map_type=map_type,
        always=always,
        present=present,
        host=array,
        label=text,
        implicit=implicit,
    )


def map_items(construct: Construct, clauses: Iterable[Any], names: Mapping[str, Any] | None = None) -> list[MapItem]:
    """Return the evaluated list items of a construct's ``map`` clauses.

    Raises
    ------
    ClauseError
        A map type that the construct does not take, a string without names to resolve it, or no array.
    MapError
        A copy back to a read-only array.
    """
    items: list[MapItem] = []
    for clause in clauses:
        given = clause if isinstance(clause, MapClause) else None
        listed = given.items if given is not None else (clause,)
        for item in listed:
            text = label(item)
            array = parse_item(item).resolve(names or {}) if isinstance(item, str) else item
            map_type = resolve(construct, given.map_type if given is not None else None, text)
            if not isinstance(array, np.ndarray):
                array = _refuse(array, map_type, text)
            items.append(
                map_item(
                    array,
                    map_type,
                    text,
                    always=given is not None and given.always,
                    present=given is not None and given.present,
                )
            )
    return items


def _refuse(value: Any, map_type: MapType, text: str) -> Any:
    if is_device_array(value):
        raise MapError(f"map({map_type.word}: {text}) is a device array already; pass it as an argument, without a map")
    raise MapError(
        f"map({map_type.word}: {text}) is a {type(value).__name__}, not an array; map arrays, views or section(…)"
    )


def implicit_item(array: np.ndarray[Any, Any], name: str) -> MapItem:
    """Return the item of an array that is in no clause: ``tofrom``, or ``to`` if it is read-only or overlaps itself."""
    text = f"{name}: {label(array)}"
    section = array_section(array)
    repeats = array.size * array.itemsize > section.nbytes
    map_type = MapType.TO if repeats or not array.flags.writeable else MapType.TOFROM
    return map_item(array, map_type, text, implicit=True)


# -- works -----------------------------------------------------------------------------------------


class TargetWork:
    """A target region: map, run the body on device arrays, unmap."""

    __slots__ = ("_args", "_bound", "_function", "_items", "_kwargs", "_plan", "_slots", "takes_device_arrays")

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        items: list[MapItem],
        sections: Mapping[int | str, Any],
    ) -> None:
        self._function = function
        self._args = list(args)
        self._kwargs = dict(kwargs)
        self._items = items
        self._plan: EnterPlan | None = None
        self._bound: tuple[list[Any], dict[str, Any]] = ([], {})
        self._slots: list[tuple[int | str, Any, int]] = []  # argument, its host array, the item that holds it
        self.takes_device_arrays = False
        given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        for slot, value in given:
            if isinstance(value, np.ndarray):
                host = sections.get(slot, value)
                self._slots.append((slot, host, self._item_of(host, slot)))
            elif is_device_array(value):
                self.takes_device_arrays = True

    def _item_of(self, host: np.ndarray[Any, Any], slot: int | str) -> int:
        section = array_section(host)
        for number, item in enumerate(self._items):
            if item.section == section or (section.run_nbytes and covers(item.section, section)):
                return number
        self._items.append(implicit_item(host, f"argument {slot}"))
        return len(self._items) - 1

    def again(self) -> TargetWork:
        return TargetWork(
            self._function, self._args, self._kwargs, list(self._items), {slot: host for slot, host, _ in self._slots}
        )

    def hosts(self) -> Iterable[Any]:
        return (item.host for item in self._items)

    def begin(self, place: DevicePlace, lane: Lane) -> None:
        for value in (*self._args, *self._kwargs.values()):
            if is_device_array(value) and not place.device.is_array(value):
                raise MapError(
                    f"device array {label(value)} is not on device {place.device.number} of this runtime "
                    f"({place.device.name}); "
                    "run the region where the array is, or copy it with target_memcpy"
                )
        plan = self._plan = place.enter(self._items, lane)
        args, kwargs = list(self._args), dict(self._kwargs)
        for slot, host, number in self._slots:
            entry = plan.entries[number]
            array = (
                place.view(entry, host)
                if entry is not None
                else place.device.alloc(host.shape, host.dtype, lane.stream)
            )
            if isinstance(slot, int):
                args[slot] = array
            else:
                kwargs[slot] = array
        self._bound = (args, kwargs)

    def run(self) -> Any:
        args, kwargs = self._bound
        value = self._function(*args, **kwargs)
        self._check_value(value)
        return value

    def _check_value(self, value: Any) -> None:
        """Refuse to return storage that the construct is about to release."""
        for part in as_tuple(value):
            if is_device_array(part) and part.size:
                section = array_section(part)
                for entry in self._plan.created if self._plan is not None else ():
                    buffer = array_section(entry.buffer)
                    if section.space == buffer.space and buffer.address <= section.address < buffer.end:
                        raise MapError(
                            f"the body returns a view of {entry.label}, whose storage this construct releases; "
                            "return a copy, or map it around the construct"
                        )

    def end(self, place: DevicePlace, lane: Lane) -> list[object]:
        return [*place.exit(self._items, lane), self._bound]

    def abort(self, place: DevicePlace, lane: Lane) -> list[object]:
        return [*place.undo(self._plan, lane), self._bound] if self._plan is not None else []


class _Bodyless:
    """A work without a body."""

    __slots__ = ()
    run = None
    takes_device_arrays = False

    def end(self, place: DevicePlace, lane: Lane) -> list[object]:  # the contract of a work
        return []

    def abort(self, place: DevicePlace, lane: Lane) -> list[object]:  # the contract of a work
        return []


class EnterDataWork(_Bodyless):
    """Map items, as ``target enter data`` and the entry of ``target data`` do."""

    __slots__ = ("items",)

    def __init__(self, items: list[MapItem]) -> None:
        self.items = items

    def again(self) -> EnterDataWork:
        return EnterDataWork(self.items)

    def hosts(self) -> Iterable[Any]:
        return (item.host for item in self.items)

    def begin(self, place: DevicePlace, lane: Lane) -> None:
        place.enter(self.items, lane)

    def end(self, place: DevicePlace, lane: Lane) -> list[object]:  # the contract of a work
        return [item.host for item in self.items]


class ExitDataWork(_Bodyless):
    """Unmap items, as ``target exit data`` and the exit of ``target data`` do."""

    __slots__ = ("_held", "items")

    def __init__(self, items: list[MapItem]) -> None:
        self.items = items
        self._held: list[object] = []

    def again(self) -> ExitDataWork:
        return ExitDataWork(self.items)

    def hosts(self) -> Iterable[Any]:
        return (item.host for item in self.items)

    def begin(self, place: DevicePlace, lane: Lane) -> None:
        self._held = place.exit(self.items, lane)

    def end(self, place: DevicePlace, lane: Lane) -> list[object]:  # the contract of a work
        return self._held


class CopyWork(_Bodyless):
    """Copy between two arrays of one shape, one of them at least on the device."""

    __slots__ = ("_dst", "_src")

    takes_device_arrays = True

    def __init__(self, dst: Any, src: Any) -> None:
        self._dst = dst
        self._src = src

    def again(self) -> CopyWork:
        return CopyWork(self._dst, self._src)

    def hosts(self) -> Iterable[Any]:
        return (array for array in (self._dst, self._src) if isinstance(array, np.ndarray))

    def begin(self, place: DevicePlace, lane: Lane) -> None:
        place.device.copy(self._dst, self._src, lane.stream)

    def end(self, place: DevicePlace, lane: Lane) -> list[object]:  # the contract of a work
        return [self._dst, self._src]
