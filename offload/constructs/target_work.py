"""The work of a target region on its lane: map, run the body on device arrays, unmap.

See `offload.runtime.works.Work`. The maps, and the body's form of each argument, are decided at the call
(`offload.constructs.clauses.binding`).
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from offload.arrays.containers import leaves_of
from offload.arrays.foreign import is_tensor, lacks_tensor_name, tensor_memory
from offload.arrays.items import address_of, array_section, is_device_array, label, mapper_of
from offload.arrays.sections import Section
from offload.constructs.doubts import warn_of_no_write
from offload.data.arguments import touch
from offload.data.entries import Counter
from offload.data.maptypes import MapType
from offload.data.memo import Layouts
from offload.data.plans import entry_at
from offload.errors import DeviceLostError, InternalError, MapError, UnsupportedError
from offload.runtime.works import Work, present_items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from offload.constructs.clauses.binding import Binding, Slot
    from offload.data.items import MapItem
    from offload.data.plans import Plan
    from offload.devices.base import Device
    from offload.devices.streams import Lane, Point
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch


# Looked up once: `end` compares it with each item's.
_FROM = MapType.FROM

_RANGE = re.compile(r"\[([^\]:]*):[^\]]*\]")
"""A dimension of a section, with its lower bound."""


class TargetWork(Work):
    """A target region: map, run the body on device arrays, unmap. The body and its arguments belong to the launch.

    A work of which the binding has a key is remembered by that once a launch has found all arrays present
    (`PresentTable.remember`). Calls with the same arrays, and therefore the same key, share the work.

    Parameters
    ----------
    binding : Binding
        A complete one.
    counter : Counter
        The reference counter that it uses.
    """

    __slots__ = ("binding", "counter", "has_end", "items", "key", "layouts", "plan", "takes_device_arrays")

    def __init__(self, binding: Binding, counter: Counter = Counter.DYNAMIC) -> None:
        self.binding = binding
        self.counter = counter
        self.items = binding.items
        self.takes_device_arrays = binding.takes_device_arrays
        self.has_end = bool(binding.items or binding.privates)  # else there is nothing to unmap or free
        self.key = binding.key
        # As `KnownWork` has them.
        self.layouts: Layouts | None = None
        self.plan: Plan | None = None

    def moved(self, runtime: Any) -> Work:
        if self.takes_device_arrays:
            return super().moved(runtime)
        if type(self) is not TargetWork:
            raise UnsupportedError(
                "speculate= and several devices are not supported on a Dask cluster; leave speculate= out, and call "
                "the loop once for each device"
            )
        return TargetWork(self.binding, self.counter)

    def sent(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        binding, given, named = self.binding, [*args], {**kwargs}
        for slot in (*(slot for slot, *_ in binding.arrays), *binding.privates):
            put(given, named, slot, None)
        for slot, expansion in binding.copies:
            is_plain = not expansion.holds_tensors()  # else its tensors could not be made
            put(given, named, slot, expansion.rebuilt(lambda _: None) if is_plain else None)
        return given, named

    def forget(self) -> None:
        self.plan = None

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> Point | None:
        binding = self.binding
        # Replicas of arrays that are passed as device arrays are made current first.
        if place.sets and self.takes_device_arrays:
            passed = (*launch.args, *(launch.kwargs or {}).values())
            given = [(place, array) for array in passed if place.device.is_array(array)]
            touch(launch.gate, place, lane, given, given)
        if not self.has_end:
            return None
        items = self.items
        before, views = self._entry(launch.args)
        own = []  # for each private argument its slot, its clause and its memory
        try:
            if binding.privates:  # before the maps: a failure here has changed nothing
                for slot, private in binding.privates.items():
                    own.append((slot, private, place.device.alloc(private.host.shape, private.host.dtype, lane.stream)))
            plan: Any = place.enter(items, lane, staged, self.counter, before, binding.may_change, True)  # a region
        except BaseException:
            own.clear()  # the traceback refers to this frame, and would keep their memory
            raise
        if plan is before:  # nothing has changed since an earlier call
            launch.plan, launch.args = plan, views
            return None
        args, kwargs = list(launch.args), dict(launch.kwargs) if launch.kwargs else {}
        try:
            for slot, host, address, number in binding.arrays:
                array = self._view(plan, place, lane, number, host, address)
                into: Any = args if slot.__class__ is int else kwargs  # as `put`, whose call each would pay for
                into[slot] = array
            # After the maps: a copy into private storage is enqueued after theirs.
            for slot, private, array in own:
                if private.is_first:
                    place.copy(array, private.host, lane, staged)
                put(args, kwargs, slot, array)
            if binding.copies:
                self._put_objects(launch, plan, place, lane, args, kwargs)
        except BaseException:
            _undo(plan, place, lane, [array for *_, array in own])
            raise
        self._note(plan, args)
        launch.plan, launch.args, launch.kwargs = plan, args, kwargs
        return None if own else plan.point  # private copies have been put behind that

    def _entry(self, args: Sequence[Any]) -> tuple[Plan | None, list[Any] | None]:
        """Return the plan of an earlier entry, and the body's forms of these arguments.

        Both are None if the region must be planned: there was no such entry, or an array has been changed in place.
        """
        plan = self.plan  # once: another thread may have the work forget it
        if plan is None:
            return None, None
        given = list(args)
        for slot, host, dtype, shape, array in plan.views:
            if array.shape != shape or host.dtype is not dtype:
                return None, None
            given[slot] = array
        return plan, given

    def _note(self, plan: Plan, args: Sequence[Any]) -> None:
        """Note what later launches need to repeat a plan that only counts; with a key, all arrays are by position."""
        if plan.only_counts and self.key is not None and self.plan is None:
            plan.layouts = Layouts(self.items)
            hosts: Any = [(slot, host) for slot, host, _, _ in self.binding.arrays]
            plan.views = [(slot, host, host.dtype, host.shape, args[slot]) for slot, host in hosts]

    def settle(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        place.settle(lane)

    def _view(
        self, plan: Plan, place: DevicePlace, lane: Lane, number: int, host: np.ndarray[Any, Any], address: int
    ) -> Any:
        """Return the device array of a host array in an item; one without elements needs no entry.

        An array that is not present, and need not be, is returned unchanged.
        """
        entry = plan.entries[number]
        if entry is not None:
            return place.view(entry, host, address)
        if host.size and self.items[number].if_present:
            return host
        return place.device.alloc(host.shape, host.dtype, lane.stream)

    def _put_objects(
        self, launch: Launch, plan: Plan, place: DevicePlace, lane: Lane, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        """Give the body copies of objects, whose attributes are the device's; one that is passed twice is one there."""
        copies: dict[int, Any] = {}  # by the `id` of the expansion
        for slot, expansion in self.binding.copies:
            if id(expansion) not in copies:
                copies[id(expansion)] = expansion.rebuilt(lambda host: self._corresponding(plan, place, lane, host))
            put(args, kwargs, slot, copies[id(expansion)])
        if place.device.bodies_block and any(expansion.holds_tensors() for _, expansion in self.binding.copies):
            launch.body = partial(_once_copied, lane.stream.synchronize, launch.body)

    def _corresponding(self, plan: Plan, place: DevicePlace, lane: Lane, host: np.ndarray[Any, Any]) -> Any:
        """Return the device array of an array that a mapper maps, or of a view of it."""
        number = self.binding.find(array_section(host)) if host.size else None
        if number is None:
            if not host.size:
                return place.device.alloc(host.shape, host.dtype, lane.stream)
            raise InternalError(f"a mapper maps {label(host)}, but no item of the construct contains it")
        return self._view(plan, place, lane, number, host, address_of(host))

    def check(self, launch: Launch, value: Any) -> None:
        """Refuse to return storage that the construct is about to release; of other storage note that it is exposed.

        Arrays in a closure, a generator or an object of another class cannot be checked: see
        `offload.arrays.containers`.
        """
        plan = launch.plan
        if value is None or plan is None or not plan.counted:
            return
        for part in leaves_of(value):
            section = self._storage_of(part, launch.place.device)
            if section is None or not section.run_nbytes:
                continue
            entry = entry_at(plan, section, array_section)
            if entry is None:
                continue
            if entry in plan.created:
                raise MapError(
                    f"the body returns a view of {entry.label}, but this construct releases its device storage; return "
                    "a copy, or map the array in an enclosing target_data"
                )
            entry.is_exposed = True  # the program has an array over it from now on

    def _storage_of(self, part: Any, device: Device) -> Section | None:
        """Return the storage of an array that a body returns; None for an array of the host."""
        if is_device_array(part):
            return array_section(part)
        if not device.bodies_block or mapper_of(part) is not None:
            return None
        # The simulated device's memory is the host's, over which a body may have tensors.
        if not is_tensor(part):
            return array_section(part)._replace(space=device.space)
        memory = tensor_memory(part)
        return None if memory is None else Section(device.space, memory[0], (), memory[1])

    def end(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        plan = launch.plan
        if plan is None:
            return
        binding, known = self.binding, None
        unwritten: Sequence[MapItem] = ()  # items to warn of
        # Later calls can repeat a plan that only counts. Any other is made at each call.
        if not plan.only_counts:
            for item in self.items:
                if item.map_type is _FROM:
                    unwritten = self._unwritten(plan, place)
                    break
        elif plan is not self.plan and plan.layouts is not None:
            known = self
        items = plan.items if None not in plan.entries else present_items(plan)
        launch.held, launch.point = place.exit(items, lane, staged, self.counter, plan, True, known)  # of a region
        launch.plan = None  # an abort after this has nothing to undo
        if not binding.privates:  # else the task keeps their memory by what the body was given
            # Arrays that nobody has may be used again on the lane; device arrays of the program stay.
            args, kwargs = launch.args, launch.kwargs
            for slot, _, _, _ in binding.arrays:
                into: Any = args if slot.__class__ is int else kwargs
                into[slot] = None
            for slot, _ in binding.copies:
                put(args, kwargs, slot, None)
        for item in unwritten:  # the region has ended: the warning may be an error
            warn_of_no_write(item, launch.body)

    def _unwritten(self, plan: Plan, place: DevicePlace) -> Sequence[MapItem]:
        """Return the items that are only copied from the device, and of which the body surely wrote no element."""
        is_unwritten = getattr(place.device, "is_unwritten", None)  # of the simulated device
        if is_unwritten is None:
            return ()
        return [
            item
            for item, entry in zip(self.items, plan.entries, strict=True)
            if item.map_type is _FROM and entry is not None and entry in plan.created and is_unwritten(entry.buffer)
        ]

    def note(self, error: BaseException) -> None:
        """Say in the error of a loop's index that its array is a section, and in a body's how to receive tensors."""
        if isinstance(error, AttributeError) and lacks_tensor_name(error):
            kind = type(error.obj).__name__
            how = f'{kind} is not a tensor; omp.target(arrays="torch") gives the body a tensor for each array argument'
            if how not in getattr(error, "__notes__", ()):  # else the failure has passed through another region
                error.add_note(how)
        array = getattr(error, "array", None) if isinstance(error, IndexError) else None
        for item in self.items:
            section = str(item.label).partition(": ")[0]  # without the type
            if array is not None and section.startswith(f"{array}["):
                first = _RANGE.sub(lambda found: f"[{found[1].strip() or 0}]", section)
                error.args = (f"{error}; {array} is the section {section} in the body: index 0 there is {first}",)

    def abort(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        if launch.plan is not None:
            # The launch keeps what is released until the lane is done with it.
            launch.held = place.undo(launch.plan, lane)


def _undo(plan: Plan, place: DevicePlace, lane: Lane, own: list[Any]) -> None:
    """Undo the entry of a region whose arguments could not be made, with its private copies."""
    with suppress(DeviceLostError):  # on a lost device nothing has to be released in order
        place.keep(lane, place.undo(plan, lane))  # first: what is still open nobody else has found
    with suppress(DeviceLostError):
        place.settle(lane)
    place.keep(lane, own)


def _once_copied(synchronize: Callable[[], None], body: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a body when its stream is idle: unlike a device's own arrays, tensors do not wait for it."""
    synchronize()
    return body(*args, **kwargs)


def put(args: list[Any], kwargs: dict[str, Any], slot: Slot, value: Any) -> None:
    """Set an argument, by position or by name."""
    if isinstance(slot, int):
        args[slot] = value
    else:
        kwargs[slot] = value
