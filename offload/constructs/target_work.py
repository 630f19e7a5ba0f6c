"""What a target region does on its lane: map, run the body on device arrays, unmap; and its arguments on the host.

See `offload.runtime.works.Work`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.containers import MOST_PARTS, leaves_of, parts_of
from offload.arrays.items import MAPPERS, SCALARS, array_section, holder, is_device_array, is_foreign, label, mapper_of
from offload.arrays.sections import covers
from offload.constructs.clauses.mapping import expansion_of, implicit_item, object_items
from offload.data.entries import Counter
from offload.data.maptypes import MapType
from offload.devices.retired import refuse_retired
from offload.errors import DeviceLostError, DirectiveWarning, InternalError, MapError
from offload.interrupts.frames import warn
from offload.runtime.works import Work, present_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offload.arrays.sections import Section
    from offload.constructs.clauses.mappers import Expansion
    from offload.constructs.clauses.sharing import Private
    from offload.data.items import MapItem
    from offload.data.plans import Entered
    from offload.devices.streams import Lane
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch


_NUMBERS = "biufcV"
"""Kinds of dtypes that devices compute with."""


class TargetWork(Work):
    """A target region: map, run the body on device arrays, unmap.

    ``place`` is where it runs, ``counter`` what it counts in. ``sections`` are the arguments that a clause names in
    part, ``objects`` what mappers made of arguments that a clause names, by `id`, ``privates`` the arguments that get
    storage of their own.
    """

    __slots__ = (
        "_counter",
        "_held",
        "_objects",
        "_privates",
        "_slots",
        "args",
        "body",
        "items",
        "kwargs",
        "takes_device_arrays",
    )

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        items: list[MapItem],
        sections: Mapping[int | str, Any],
        place: DevicePlace,
        objects: Mapping[int, Expansion],
        privates: Mapping[int | str, Private],
        counter: Counter = Counter.DYNAMIC,
    ) -> None:
        self._counter = counter
        self.body = function
        self.args: Any = args
        self.kwargs: Any = kwargs
        self.items = items
        self._slots: list[tuple[int | str, Any, int]] = []  # argument, its host array, the item that holds it
        self._objects: list[tuple[int | str, Expansion]] = []  # argument, what its mapper made of it
        self._privates = privates
        self._held: list[Any] = []  # device arrays in containers, which the program may empty meanwhile
        self.takes_device_arrays = False
        given: Iterable[tuple[int | str, Any]] = enumerate(args)
        if kwargs:
            given = [*given, *kwargs.items()]
        for slot, value in given:
            if value.__class__ in SCALARS or (privates and slot in privates):
                continue
            if isinstance(value, np.ndarray):
                host = sections.get(slot, value) if sections else value
                self._slots.append((slot, host, self._item_of(host, slot)))
            elif is_device_array(value) or is_foreign(value):
                self.takes_device_arrays = True
                native = native_array(sections.get(slot, value), place)
                if native is not value:
                    self._replace(slot, native)
            elif not (MAPPERS and self._add_object(slot, value, objects)) and parts_of(value) is not None:
                self._look_into(slot, value, is_named=slot in sections)

    def _replace(self, slot: int | str, value: Any) -> None:
        """Replace an argument, in copies of what the caller has given."""
        self.args, self.kwargs = list(self.args), dict(self.kwargs)
        _put(self.args, self.kwargs, slot, value)

    def _item_of(self, host: np.ndarray[Any, Any], slot: int | str) -> int:
        items = self.items
        for number, item in enumerate(items):
            if item.host is host:
                return number
        implicit = implicit_item(host, f"argument {slot}")  # also where another holds it, for its storage
        held_by = self._find(implicit.section)
        if held_by is not None:
            return held_by
        items.append(implicit)
        return len(items) - 1

    def _find(self, section: Section) -> int | None:
        """Return the number of the item that holds the storage of an array."""
        for number, item in enumerate(self.items):
            if item.section == section or (section.run_nbytes and covers(item.section, section)):
                return number
        return None

    def _look_into(self, slot: int | str, value: Any, *, is_named: bool) -> None:
        """Note the device arrays in a container, which the region follows and holds.

        Warn of what is the host's, unless a clause names what the container holds.
        """
        on_host = None
        for part in leaves_of(value, MOST_PARTS):
            if mapper_of(part) is None and (is_device_array(part) or is_foreign(part)):
                self._held.append(part)
                self.takes_device_arrays = True
            elif on_host is None and (not isinstance(part, np.ndarray) or (part.size and part.dtype.kind in _NUMBERS)):
                on_host = part
        if on_host is not None and not is_named:
            warn(
                f"argument {slot}, a {type(value).__name__}, holds {label(on_host):.60} of the host, which is not "
                "mapped: the body gets it as it is, and would compute on the host; pass arrays as arguments, or give "
                "the class of an object that holds them a mapper (declare_mapper)",
                DirectiveWarning,
            )

    def _add_object(self, slot: int | str, value: Any, objects: Mapping[int, Expansion]) -> bool:
        """Note an argument that has a mapper, and map what it maps unless a clause or an argument before it does.

        Return whether it has one.
        """
        known = (expansion for _, expansion in self._objects if expansion.item is value)
        expansion = objects.get(id(value)) or next(known, None)
        if expansion is None and mapper_of(value) is not None:
            expansion = expansion_of(value, MapType.TOFROM, f"argument {slot}")
            self.items += object_items(expansion)
        if expansion is not None:
            self._objects.append((slot, expansion))
        return expansion is not None

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        own = []
        if not self.items and not self._privates:
            return
        try:
            for slot, private in self._privates.items():  # before the maps: a failure here has changed nothing
                own.append((slot, private, place.device.alloc(private.host.shape, private.host.dtype, lane.stream)))
            plan = place.enter(self.items, lane, staged, self._counter)
        except BaseException:
            own.clear()  # the traceback refers to this frame, and would keep their memory
            raise
        args, kwargs = list(self.args), dict(self.kwargs)
        try:
            for slot, host, number in self._slots:
                _put(args, kwargs, slot, self._view(plan, place, lane, number, host))
            for slot, private, array in own:
                if private.is_first:
                    place.copy(array, private.host, lane, staged)
                _put(args, kwargs, slot, array)
            copies: dict[int, Any] = {}  # an object that is passed twice is one object in the body, too
            for slot, expansion in self._objects:
                if id(expansion) not in copies:
                    copies[id(expansion)] = expansion.rebuilt(lambda host: self._corresponding(plan, place, lane, host))
                _put(args, kwargs, slot, copies[id(expansion)])
        except BaseException:
            with suppress(DeviceLostError):
                place.settle(lane)
            with suppress(DeviceLostError):  # on a lost device nothing has to be released in order
                place.ledger.keep(lane, place.undo(plan, lane))
            place.ledger.keep(lane, [array for *_, array in own])
            raise
        launch.plan, launch.args, launch.kwargs = plan, args, kwargs

    def settle(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        place.settle(lane)

    def _view(self, plan: Entered, place: DevicePlace, lane: Lane, number: int, host: np.ndarray[Any, Any]) -> Any:
        """Return the device array of a host array in an item; one without elements needs no entry.

        An array that is not present and need not be stays what it is.
        """
        entry = plan.entries[number]
        item = self.items[number]
        if entry is not None:
            return place.view(entry, host, item.address if host is item.host else None)
        if host.size and item.if_present:
            return host
        return place.device.alloc(host.shape, host.dtype, lane.stream)

    def _corresponding(self, plan: Entered, place: DevicePlace, lane: Lane, host: np.ndarray[Any, Any]) -> Any:
        """Return the device array of an attribute that a mapper maps."""
        number = self._find(array_section(host))
        if number is None:
            raise InternalError(f"{label(host)}, which a mapper maps, is in no item of the construct")
        return self._view(plan, place, lane, number, host)

    def check(self, launch: Launch, value: Any) -> None:
        """Refuse to return storage that the construct is about to release.

        What a closure, a generator or an object of another class holds cannot be checked: see
        `offload.arrays.containers`.
        """
        created = launch.plan.created if launch.plan is not None else ()
        if value is None or not created:
            return
        for part in leaves_of(value):
            if not (is_device_array(part) and part.size):
                continue
            section = array_section(part)
            for entry in created:
                buffer = array_section(entry.buffer)
                if section.space == buffer.space and buffer.address <= section.address < buffer.end:
                    raise MapError(
                        f"the body returns a view of {entry.label}, whose storage this construct releases; "
                        "return a copy, or map it around the construct"
                    )

    def end(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        plan = launch.plan
        if plan is None:
            return
        launch.point = place.leave(plan, lane)
        if launch.point is None:
            items = present_items(plan)
            launch.held, launch.point = place.exit(items, lane, staged, self._counter, ends_region=True)

    def abort(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        if launch.plan is not None:
            launch.held = place.undo(launch.plan, lane)


def on_host(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    sections: Mapping[int | str, Any],
    objects: Mapping[int, Expansion],
    privates: Mapping[int | str, Private],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a target region whose device is the host: nothing is mapped, but what is private is.

    Raises
    ------
    ClauseError, MapError
        As the mapper of an argument would have it on a device.
    """
    copies: dict[int, Any] = {}  # an object given twice is one object in the body; args and kwargs keep the ids valid

    def of(slot: int | str, value: Any) -> Any:
        if slot in privates:
            return privates[slot].on_host()
        if MAPPERS and (id(value) in objects or mapper_of(value) is not None):
            if id(value) not in copies:
                expansion = objects.get(id(value)) or expansion_of(value, MapType.TOFROM, f"argument {slot}")
                copies[id(value)] = expansion.rebuilt(lambda host: host)  # the sections and copies of a device
            return copies[id(value)]
        return sections.get(slot, value)

    return (
        tuple([of(slot, value) for slot, value in enumerate(args)]),
        {name: of(name, value) for name, value in kwargs.items()},
    )


def _put(args: list[Any], kwargs: dict[str, Any], slot: int | str, value: Any) -> None:
    """Set an argument, by position or by name."""
    if isinstance(slot, int):
        args[slot] = value
    else:
        kwargs[slot] = value


def native_array(value: Any, place: DevicePlace) -> Any:
    """Return a device array as the array of the place's device: itself, or a view of another library's.

    Raises
    ------
    MapError
        It is not on that device.
    RegionClosedError
        Its storage has gone back.
    """
    device = place.device
    array = device.as_array(value)
    if array is None:
        where = holder(value)
        if where == device.name:
            where += " of another runtime"
        raise MapError(
            f"device array {label(value):.60} is on {where}, not on device {device.number} of this runtime "
            f"({device.name}); run the region where the array is, or copy it with target_memcpy"
        )
    refuse_retired(device, array)
    return array
