"""List items, evaluated, and what device tasks do on their lane: data constructs and copies.

Each kind of work has ``begin``, which enqueues what comes before the body, ``run``, the body (or None), and ``end``,
which enqueues what comes after it and returns what must live until the lane gets there; if it has marked that place,
``point`` is it. ``abort`` stands in for ``end`` where the body failed. Copies that only threads can make, of pageable
memory, `begin` and `end` put into a list; the launch goes on when those are done, after ``settle``. A work is used
once; `again` makes a fresh one, for a recorded graph that runs again.
"""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.clauses import MapClause
from offload.data.entries import Counter
from offload.data.maptypes import Construct, MapType, resolve
from offload.data.present import MapItem
from offload.devices.retired import refuse_retired
from offload.errors import MapError
from offload.items import Label, array_section, is_device_array, mapper_of, parse_item

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offload.data.plans import EnterPlan
    from offload.devices.streams import Lane, Point
    from offload.launch import DevicePlace
    from offload.mappers import Expansion


# -- list items ------------------------------------------------------------------------------------


def map_item(
    array: np.ndarray[Any, Any],
    map_type: MapType,
    text: str | Label,
    *,
    always: bool = False,
    present: bool = False,
    implicit: bool = False,
    clause: MapClause | None = None,
) -> MapItem:
    """Return the evaluated list item of a host array.

    Raises
    ------
    MapError
        The device's values would have to be copied to an array that cannot be written.
    """
    section = array_section(array)
    address = section.address if array.flags.c_contiguous else array.__array_interface__["data"][0]
    item = MapItem(  # by position: by name takes twice as long
        section, address, array.shape, array.strides, array.itemsize, map_type, always, present, array, text, implicit
    )
    if clause is not None:
        item.clause, item.if_present, item.zeroes = clause.word, clause.if_present, clause.zeroes
    check_writeable((item,))
    return item


def check_writeable(items: Iterable[MapItem]) -> None:
    """Raise `MapError` if the device's values would have to be copied to an array that cannot be written."""
    for item in items:
        if item.map_type.copies_out and not item.host.flags.writeable:  # type: ignore[attr-defined]  # an array
            what = f"{item.clause}({item.label})" if item.clause else f"map({item.map_type.word}: {item.label})"
            instead = "make it writeable, or use copyin" if item.clause else "map it `to`"
            raise MapError(f"{what}: the array is read-only, so nothing can be copied back to it; {instead}")


def map_items(
    construct: Construct,
    clauses: Iterable[Any],
    names: Mapping[str, Any] | None = None,
    objects: dict[int, Expansion] | None = None,
) -> list[MapItem]:
    """Return the evaluated list items of a construct's ``map`` clauses.

    What the mappers of objects among them mapped is entered into ``objects``, if given, by the `id` of the object.

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
            name = given.names.get(id(item), "") if given is not None else ""
            text = item if isinstance(item, str) else Label(item, name)
            array = parse_item(item).resolve(names or {}) if isinstance(item, str) else item
            map_type = resolve(construct, given.map_type if given is not None else None, text)
            if not isinstance(array, np.ndarray) or (given is not None and given.mapper is not None):
                expansion = expansion_of(array, map_type, text, given)
                if objects is not None:
                    objects[id(array)] = expansion
                items += object_items(expansion, given)
                continue
            items.append(
                map_item(
                    array,
                    map_type,
                    text,
                    always=given is not None and given.always,
                    present=given is not None and given.present,
                    clause=given,
                )
            )
    return items


def expansion_of(
    value: Any, map_type: MapType, text: object, clause: MapClause | None = None, *, present: bool = False
) -> Expansion:
    """Return what the mapper of a list item that is no array makes of it."""
    mapper = clause.mapper if clause is not None else None
    if mapper is None and mapper_of(value) is None:
        is_worded = clause is not None and clause.word
        what = f"{clause.word}({text})" if is_worded else f"map({map_type.word}: {text})"  # type: ignore[union-attr]  # it is one
        if is_device_array(value):
            raise MapError(f"{what} is a device array already; pass it as an argument, without a map")
        if isinstance(value, Number):
            raise MapError(
                f"{what} is a number, {type(value).__name__} {value!r:.40}, which is passed by value: leave it out, or "
                "pass an array without dimensions, whose value can come back"
            )
        raise MapError(
            f"{what} is of type {type(value).__name__}, not an array; map arrays, views, "
            "section(…) or an object whose class has a mapper (declare_mapper)"
        )
    from offload.mappers import Modifiers, expand_object  # a program without mappers does without

    modifiers = Modifiers(present=present)
    if clause is not None:
        modifiers = Modifiers(clause.always, clause.present, clause.close)
    return expand_object(value, map_type, mapper, modifiers)


def object_items(expansion: Expansion, clause: MapClause | None = None) -> list[MapItem]:
    """Return the evaluated list items of an object in a clause: the arrays that its mapper maps."""
    owner = type(expansion.item).__name__
    return [
        map_item(
            leaf.array,
            leaf.map_type,
            Label(leaf.array, owner),
            always=leaf.modifiers.always,
            present=leaf.modifiers.present,
            clause=clause,
        )
        for leaf in expansion.leaves()
    ]


def implicit_item(
    array: np.ndarray[Any, Any], name: str, map_type: MapType = MapType.TOFROM, *, present: bool = False
) -> MapItem:
    """Return the item of an array that is in no clause: ``tofrom`` is ``to`` if it is read-only or overlaps itself."""
    item = map_item(array, MapType.TO, Label(array, name), present=present, implicit=True)
    repeats = array.size * array.itemsize > item.section.nbytes
    if not (map_type is MapType.TOFROM and (repeats or not array.flags.writeable)):
        item.map_type = map_type
        check_writeable((item,))
    return item


# -- works -----------------------------------------------------------------------------------------


class _Bodyless:
    """A work without a body."""

    __slots__ = ("held",)

    run = None
    takes_device_arrays = False
    ends_region = False
    point = None

    def __init__(self) -> None:
        self.held: list[object] = []

    def settle(self, place: DevicePlace, lane: Lane) -> None:  # the contract of a work
        """Do nothing: what staged copies have moved is nobody else's."""

    def end(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> list[object]:  # the contract of a work
        return self.held

    def abort(self, place: DevicePlace, lane: Lane) -> list[object]:  # the contract of a work
        return self.held


def present_items(plan: EnterPlan) -> list[MapItem]:
    """Return the items of a construct without those that were absent and need not have been present."""
    return [
        item for item, entry in zip(plan.items, plan.entries, strict=True) if entry is not None or not item.if_present
    ]


class EmptyWork(_Bodyless):
    """Do nothing but follow, and be followed; ``before`` is a place on a stream."""

    __slots__ = ("_before",)

    def __init__(self, before: Point | None = None) -> None:
        super().__init__()
        self._before = before

    def again(self) -> EmptyWork:
        return EmptyWork(self._before)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        if self._before is not None:
            lane.wait_for([self._before])


class EnterDataWork(_Bodyless):
    """Map items, as ``target enter data`` and the entry of ``target data`` do; count in ``counter``."""

    __slots__ = ("_counter", "_plan", "items")

    def __init__(self, items: list[MapItem], counter: Counter = Counter.DYNAMIC) -> None:
        super().__init__()
        self.items = items
        self._counter = counter
        self._plan: EnterPlan | None = None

    def again(self) -> EnterDataWork:
        return EnterDataWork(self.items, self._counter)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        self._plan = place.enter(self.items, lane, staged, self._counter)
        self.held = [item.host for item in self.items]

    def settle(self, place: DevicePlace, lane: Lane) -> None:
        place.settle(lane)

    def abort(self, place: DevicePlace, lane: Lane) -> list[object]:
        return place.undo(self._plan, lane) if self._plan is not None else []


class ExitDataWork(_Bodyless):
    """Unmap items, as ``target exit data`` does; with ``finalizes`` all references of ``counter`` go."""

    __slots__ = ("_counter", "_finalizes", "items")

    def __init__(self, items: list[MapItem], counter: Counter = Counter.DYNAMIC, *, finalizes: bool = False) -> None:
        super().__init__()
        self.items = items
        self._counter = counter
        self._finalizes = finalizes

    def again(self) -> ExitDataWork:
        return type(self)(self.items, self._counter, finalizes=self._finalizes)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        self.held = place.exit(
            self.items,
            lane,
            staged,
            self._counter,
            ends_region=self.ends_region,
            finalizes=self._finalizes,
            may_be_put_off=True,
        )

    def settle(self, place: DevicePlace, lane: Lane) -> None:
        place.settle(lane)


class EndDataWork(ExitDataWork):
    """Unmap items, as the end of ``target data`` does."""

    __slots__ = ()

    ends_region = True


class CopyWork(_Bodyless):
    """Copy between two arrays of one shape, one of them at least on the device.

    ``second`` is the other device, if the other array is on one; the copy follows what the calling thread's own stream
    holds there, too, when the work is made.
    """

    __slots__ = ("_after", "_dst", "_second", "_src")

    takes_device_arrays = True

    def __init__(self, dst: Any, src: Any, second: Any = None) -> None:
        super().__init__()
        self._dst = dst
        self._src = src
        self._second = second
        self._after = None if second is None else second.caller_event()

    def again(self) -> CopyWork:
        return CopyWork(self._dst, self._src, self._second)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        for array in (self._dst, self._src):  # freed since the call?
            if place.device.is_array(array):
                refuse_retired(place.device, array)
        if self._after is not None:
            place.device.wait_event(lane.stream, self._after)
        place.copy(self._dst, self._src, lane, staged)
        self.held = [self._dst, self._src]


class FillWork(_Bodyless):
    """Set every byte of an array of the device."""

    __slots__ = ("_array", "_value")

    takes_device_arrays = True

    def __init__(self, array: Any, value: int) -> None:
        super().__init__()
        self._array = array
        self._value = value

    def again(self) -> FillWork:
        return FillWork(self._array, self._value)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        refuse_retired(place.device, self._array)
        place.device.fill(self._array, self._value, lane.stream)
        self.held = [self._array]


class UpdateWork(_Bodyless):
    """Copy items to or from the device, as their map types say."""

    __slots__ = ("_items",)

    def __init__(self, items: Sequence[MapItem]) -> None:
        super().__init__()
        self._items = items

    def again(self) -> UpdateWork:
        return UpdateWork(self._items)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        self.held = place.update(self._items, lane, staged)

    def settle(self, place: DevicePlace, lane: Lane) -> None:
        place.settle(lane)
