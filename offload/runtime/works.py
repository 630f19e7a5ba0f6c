"""Works: the steps of a device task on its lane.

`Work` is the contract, with which `offload.runtime.launch` launches; here are those of data constructs and copies.
Target regions have theirs in `offload.constructs.target_work`, captured graphs in `offload.graphs.work`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from offload.data.arguments import touch
from offload.data.entries import Counter
from offload.data.maptypes import MapType
from offload.data.plans import Plan
from offload.devices.retirement import refuse_retired
from offload.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from offload.data.items import MapItem
    from offload.data.memo import Layouts
    from offload.data.sets import DeviceSet
    from offload.devices.streams import Lane, Point
    from offload.runtime.place import DevicePlace
    from offload.tasks.site import Site
    from offload.tasks.values import Values


class Launch(Protocol):
    """The launch of a work, as that knows it: a device task, which has all that is not the same for each launch.

    Attributes
    ----------
    args, kwargs : sequence, dict or None
        The arguments of the body: those of the call, which `Work.begin` may replace by lists and dicts of its own.
    body : callable or None
        The program's own function, or what `Work.begin` calls in its place.
    construct : Site
        The construct that has generated the task.
    ends_region, launches_inline : bool
        Whether a cancellation must not discard it, and whether the encountering thread may launch it.
    entered : sequence of MapItem
        The items that the beginning of a region has mapped, for the task that ends the region.
    findings : list or None
        Functions that check the work's results for the host, when it has passed.
    held : list or None
        Objects that must live until the lane gets to the end of the work, besides the task's work and arguments.
        `Released` first, if there is one.
    other_after : event or None
        An event after the work that the calling thread's own stream held on the work's ``second`` device.
    place : DevicePlace
        The device on which it is launched.
    plan : Plan or None
        The plan of the mappings of `Work.begin`, on one device or on several.
    point : Point or None
        The end of the work on the lane; None where that has not been marked.
    received : Values or None
        The values that it receives from other tasks.
    work : Work or None
        The work that is launched.
    """

    args: Any
    kwargs: Any
    body: Callable[..., Any] | None
    construct: Site
    ends_region: bool
    launches_inline: bool
    entered: Sequence[MapItem]
    findings: list[Callable[[Any], Any]] | None
    held: list[Any] | None
    other_after: Any
    place: DevicePlace
    plan: Any
    point: Point | None
    received: Values | None
    work: Work | None

    @property
    def gate(self) -> Any:
        """The gate of the runtime."""

    def spread(self, places: Sequence[DevicePlace]) -> None:
        """Count as in flight at other places too, with storage that goes back when it has passed."""


class Work:
    """The steps of a device task on its lane: the contract between a construct and a launch.

    A launch calls `begin`, then its body if it has one, then `end`, or `abort` where the body failed. If `begin`
    or `end` has added to ``staged``, which are copies of pageable memory that only threads can make, the launch goes on
    when those are carried out, after `settle`. Any number of launches may have one work, also at the same time: it does
    not change, and data of one launch is in that launch. A launch that is begun may be dropped, and begun once more,
    where `begin` has raised `PutOffError`: then it has changed nothing.

    Each step does nothing here; a kind of work overrides those that it needs.

    Attributes
    ----------
    takes_device_arrays : bool
        Whether the task follows the calling thread's own stream, since work there may fill the arrays.
    second : device or None
        Another device, where it follows that as well.
    has_end : bool
        Whether `end` has something to do; else it is not called.
    ends_region : bool
        Whether it ends a region that another task has begun, so that a cancellation must not discard it.
    blocks : bool
        Whether its body may wait for the device, so that a call which does not wait must not run it.
    places : tuple of DevicePlace
        All that it is carried out on, the task's first, where that is more than one.
    items : sequence of MapItem
        The host memory that it maps, as far as that is known before a launch.
    """

    __slots__ = ()

    takes_device_arrays: bool = False
    second: Any = None
    has_end: bool = False
    ends_region: bool = False
    blocks: bool = False
    places: tuple[DevicePlace, ...] = ()
    items: Sequence[MapItem] = ()

    def moved(self, runtime: Any) -> Work:
        """Return the work for the devices of another runtime that have the same numbers.

        Raises
        ------
        UnsupportedError
            It uses memory or streams of its own device.
        """
        raise UnsupportedError(
            "it uses device arrays or streams of its own runtime; map host arrays instead, or record the graph in "
            "Runtime(client)"
        )

    def sent(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments as a body in another process gets them, with None for what is mapped."""
        return args, kwargs

    def mark(self, launch: Launch) -> None:
        """Set the fields that only launches of such a work have, when its task is made."""

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> Point | None:
        """Enqueue the work before the body; return its end, if that is marked, for a body that waits for it.

        Raises
        ------
        PutOffError
            The launch is to be tried again later; nothing has changed.
        MapError, DeviceMemoryError
            The state is unchanged, except for the objects of ``place.take_kept``, which are in use on the lane.
        """
        return None

    def check(self, launch: Launch, value: Any) -> None:
        """Raise where the body of a launch that has a plan must not return such a value."""

    def note(self, error: BaseException) -> None:
        """Add a note about the arguments to the error of a body."""

    def settle(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        """Take note that the copies that were staged have been carried out, or have failed."""

    def end(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        """Enqueue the work after the body."""

    def abort(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        """Undo the mappings of `begin`, without a copy back."""

    def fail(self, launch: Launch, place: DevicePlace) -> None:
        """Undo in the table what a launch has planned and a device that plans did not carry out."""


def present_items(plan: Any) -> list[MapItem]:
    """Return the items of an entry without those that it has ignored."""
    if None not in plan.entries:
        return [*plan.items]
    return [
        item
        for item, entry in zip(plan.items, plan.entries, strict=True)
        if entry is not None or not (item.if_present or item.is_room)
    ]


class EmptyWork(Work):
    """Do nothing but follow, and be followed; ``before`` is a place on a stream."""

    __slots__ = ("_before",)

    def __init__(self, before: Point | None = None) -> None:
        self._before = before

    def moved(self, runtime: Any) -> Work:
        return self if self._before is None else super().moved(runtime)

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        if self._before is not None:
            lane.wait_for([self._before])


class DataWork(Work):
    """A data construct: ``on`` is the data environment of several devices; None: it is carried out on one."""

    __slots__ = ("on", "places")

    on: DeviceSet | None

    def __init__(self) -> None:
        self.on, self.places = None, ()

    def moved(self, runtime: Any) -> Self:
        other = copy(self)
        if self.on is not None:
            other.places = tuple(runtime.places[place.device.number] for place in self.places)
            other.on = self.on._replace(places=other.places, gate=runtime.gate)
        return other

    def settle(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        launch.point = place.settle(lane)


class EnterDataWork(DataWork):
    """Map items, as ``target enter data`` does; count in ``counter``."""

    __slots__ = ("counter", "items")

    def __init__(self, items: list[MapItem], counter: Counter = Counter.DYNAMIC) -> None:
        super().__init__()
        self.items = items
        self.counter = counter

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        plan: Any = (self.on or place).enter(self.items, lane, staged, self.counter)
        launch.plan = plan
        launch.point = plan.point
        for each in plan.plans:
            self.note_call(launch, each)
        if plan.others:
            launch.spread(self.places[1:])

    def note_call(self, launch: Launch, plan: Any) -> None:
        """Note the program's call for the present mappings, for the report on mappings left at the end."""
        for entry in plan.counted:
            entry.mapped_at = launch.construct.call

    def abort(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        if launch.plan is not None:
            launch.held = (self.on or place).undo(launch.plan, lane)

    def fail(self, launch: Launch, place: DevicePlace) -> None:
        if launch.plan is not None:
            for at, plan in zip(self.places or (place,), launch.plan.plans, strict=False):
                at.take_back(plan)


class ExitDataWork(DataWork):
    """Unmap items, as ``target exit data`` does; with ``finalizes`` all references of ``counter`` go."""

    __slots__ = ("counter", "finalizes", "items")

    def __init__(self, items: list[MapItem], counter: Counter = Counter.DYNAMIC, *, finalizes: bool = False) -> None:
        super().__init__()
        self.items = items
        self.counter = counter
        self.finalizes = finalizes

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        launch.held, launch.point = (self.on or place).exit(
            self.items_of(launch),
            lane,
            staged,
            self.counter,
            ends_region=self.ends_region,
            finalizes=self.finalizes,
            may_be_put_off=True,
        )
        if self.on is not None:
            launch.spread(self.places[1:])

    def items_of(self, launch: Launch) -> Sequence[MapItem]:
        """Return the items that a launch unmaps."""
        return self.items

    def fail(self, launch: Launch, place: DevicePlace) -> None:
        held = launch.held or ()
        if not getattr(place.device, "is_lost", False):  # else there is nothing any more
            for plan in [thing for thing in held if isinstance(thing, Plan)]:
                place.restore(plan, held)


class EnterRegionWork(EnterDataWork):
    """Map items, as the entry of ``target data`` does, and of OpenACC's ``data``."""

    __slots__ = ()

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        super().begin(launch, place, lane, staged)
        if launch.plan is not None:
            launch.entered = present_items(launch.plan)

    def note_call(self, launch: Launch, plan: Any) -> None:
        for entry in plan.counted:  # the region ends by itself: what it has found present is left by others
            if entry.mapped_at is None:
                entry.mapped_at = launch.construct.call


class EndRegionWork(ExitDataWork):
    """Unmap the items of the entry of a region, which in a graph is the one of the same run."""

    __slots__ = ()

    ends_region = True

    def mark(self, launch: Launch) -> None:
        launch.ends_region = True

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        super().begin(launch, place, lane, staged)
        launch.received = None

    def items_of(self, launch: Launch) -> Sequence[MapItem]:
        entry: Any = launch.received.tasks[0] if launch.received is not None else None
        return entry.entered if entry is not None else ()  # None: it has failed, and that has been seen


class UndoEntryWork(EndRegionWork):
    """Unmap the items of a ``target enter data``, whose construct an interruption has left."""

    __slots__ = ()

    def __init__(self, items: list[MapItem], counter: Counter = Counter.DYNAMIC) -> None:
        super().__init__([replace(item, map_type=MapType.RELEASE) for item in items], counter)

    def items_of(self, launch: Launch) -> Sequence[MapItem]:
        entry: Any = launch.received.tasks[0] if launch.received is not None else None
        return () if entry is None or entry.failure is not None else self.items  # a failed one has mapped nothing


class CopyWork(Work):
    """Copy between two arrays of one shape, of which ``own`` are on the device, one at least.

    ``other`` is the place of the source, if that is on another device.
    """

    __slots__ = (
        "_dst",
        "_other",
        "_own",  # those that may have been freed when the launch begins
        "_src",
        "second",  # the other device, whose stream of the calling thread is followed too
    )

    takes_device_arrays = True

    def __init__(self, dst: Any, src: Any, own: tuple[Any, ...], other: DevicePlace | None = None) -> None:
        self._dst = dst
        self._src = src
        self._own = own
        self._other = other
        self.second = None if other is None else other.device

    def mark(self, launch: Launch) -> None:
        if self.second is not None:
            launch.other_after = self.second.caller_event()

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        device = place.device
        for array in self._own:  # freed since the call?
            if device.retired(array) is not None:
                refuse_retired(device, array)
        if self.second is not None and launch.other_after is not None:
            device.wait_event(lane.stream, launch.other_after)
        other = self._other
        if place.sets or (other is not None and other.sets):
            reads = [(place, array) for array in self._own if array is self._src]
            if other is not None:
                reads.append((other, self._src))
            touch(launch.gate, place, lane, reads, [(place, array) for array in self._own if array is self._dst])
        place.copy(self._dst, self._src, lane, staged)


class FillWork(Work):
    """Set every byte of an array of the device."""

    __slots__ = ("_array", "_value")

    takes_device_arrays = True

    def __init__(self, array: Any, value: int) -> None:
        self._array = array
        self._value = value

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        refuse_retired(place.device, self._array)
        if place.sets:
            touch(launch.gate, place, lane, (), [(place, self._array)])
        place.device.fill(self._array, self._value, lane.stream)


class ExposeWork(Work):
    """Make a device current in an item that the program is given."""

    __slots__ = ("_item",)

    def __init__(self, item: MapItem) -> None:
        self._item = item

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        place.expose(self._item, lane)


class UpdateWork(DataWork):
    """Copy items to or from the device, as their map types say.

    With a ``key`` it is remembered by that once a launch has found all items present (`PresentTable.remember`). Calls
    with the same arrays, and therefore the same key, share the work.
    """

    __slots__ = ("is_named", "items", "key", "layouts", "plan", "site")

    def __init__(self, items: Sequence[MapItem], key: Any = None) -> None:
        self.on, self.places = None, ()
        self.items = items
        self.key = key
        # That of the last call; a call at another place makes its own.
        self.site: Site | None = None
        # Of the items, and what a launch did; None until it is remembered, and after an entry has gone (`KnownWork`).
        self.layouts: Layouts | None = None
        self.plan: Plan | None = None
        # Whether labels that look names up in the program's frames have done so.
        self.is_named = False

    def moved(self, runtime: Any) -> Self:
        other = super().moved(runtime)
        other.layouts = other.plan = None  # of a launch on this device
        return other

    def forget(self) -> None:
        self.plan = None

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        launch.held, launch.point = (self.on or place).update(self.items, lane, staged, self)
        if self.on is not None:
            launch.spread(self.places[1:])
