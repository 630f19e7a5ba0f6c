"""Mappings and copies of a sanitized runtime, as its sanitizer is told of them.

The sanitizer wants each event when the stream gets to it, since other work of the stream may come before. So each event
is an operation of the stream: a copy's before the copy, a new mapping's before anything that uses the storage, and the
end of a mapping after its last copy. A table commits a plan without knowing the stream. So the events of a plan wait,
for the thread that commits it, until that thread puts the next operation, or a mark, on a lane of the device.

The hooks are methods that are replaced while a runtime is sanitized (`offload.tasks.hooked`).
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.sections import Section
from offload.data.entries import Entry, Origin
from offload.data.environment import DataEnvironment
from offload.data.maptypes import MapType
from offload.data.present_table import PresentTable
from offload.devices.sim.array import SimArray
from offload.devices.sim.device import SimDevice
from offload.devices.streams import Lane
from offload.errors import RegionClosedError
from offload.interrupts.frames import caller
from offload.runtime.observing import ObservedPlace
from offload.runtime.works import CopyWork, FillWork
from offload.sanitizer.authors import COPIED_BACK
from offload.sanitizer.elements import byte_bounds, taken
from offload.sanitizer.mappings import DoneAt, ListItem, Mapped
from offload.sanitizer.names import argument_of, is_description, names_device, plain_name, variable_at
from offload.sanitizer.sanitizer import CopiedArray, Sanitizer
from offload.sanitizer.tracked import is_tracked
from offload.tasks import hooked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offload.data.items import MapItem
    from offload.data.plans import Plan
    from offload.devices.retirement import Retired


_ENDING = [one for one in MapType if one.copies_out or one in (MapType.RELEASE, MapType.DELETE)]
"""The map types with which a construct says something about the end of a mapping."""


class SanitizedPlace:
    """A place of a sanitized runtime, as the hooks know it.

    Parameters
    ----------
    place : DevicePlace
        The place.
    sanitizer : Sanitizer
        The sanitizer of its runtime.
    """

    def __init__(self, place: Any, sanitizer: Sanitizer) -> None:
        self.device = place.device
        # The report's words for a copy to the device.
        self.copied_here = f"copied to device {place.device.number}"
        self.sanitizer = sanitizer
        self.mapped: dict[Entry, Mapped] = {}
        # The references that regions in flight have to entries.
        self._used: dict[Entry, int] = {}

    def done(self, what: str, *, writes: bool, shown: str) -> DoneAt:
        """Return the construct that the calling thread launches, as the author of work that it enqueues."""
        return self._done(what, (writes,), shown)[0]

    def _done(self, what: str, writes: Iterable[bool], shown: str) -> list[DoneAt]:
        """Return that author as one that writes, or does not, as each of ``writes`` says."""
        orders, authors = self.sanitizer.orders, self.sanitizer.authors
        with orders.lock:
            task = orders._local.launching  # noqa: SLF001  # nobody else asks
            stretch = orders.of_copy(task)
            if task is None:
                frame = caller()
                return [DoneAt(authors.of_call(frame, what, writes=each, shown=shown), stretch) for each in writes]
            return [DoneAt(authors.of_task(task, what, writes=each, shown=shown), stretch) for each in writes]

    def note(self, plan: Plan) -> None:
        """Have the events of a plan that has been committed wait for an operation on a lane."""
        if plan.counted and self._counts(plan.counted, ()):
            self._note_found(plan)
            self._note_copied_back(plan)
        if plan.created:
            items = _items_of(plan)
            done = self.maps()
            for entry in plan.created:
                mapped = self.describe(entry, done, items.get(entry))
                _pending.add(self.device, partial(self.sanitizer.begin_mapping, mapped))
        if plan.removed:
            self._note_removed(plan)
        if plan.counts and not self._counts((), plan.counts):
            self._note_kept(plan)

    def leave(self, plan: Plan) -> None:
        """Note the end of a construct that has only counted."""
        self._counts((), [(entry,) for entry in plan.counted])

    def _counts(self, entered: Iterable[Entry], left: Iterable[tuple[Any, ...]]) -> bool:
        """Count the references of the region that the calling thread launches; return whether it launches one."""
        task = self.sanitizer.orders._local.launching  # noqa: SLF001  # nobody else asks
        if task is None or not task.construct.is_target:
            return False
        used = self._used
        for entry in entered:
            used[entry] = used.get(entry, 0) + 1
        for entry, *_ in left:
            if used.get(entry, 0) > 1:
                used[entry] -= 1
            else:
                used.pop(entry, None)
        return True

    def _note_found(self, plan: Plan) -> None:
        """Note the storage that a region has found."""
        done = self.maps()
        for item, _, mapped in self._known(plan):
            self.sanitizer.find(mapped, done, self._list_item(item, done))

    def _note_copied_back(self, plan: Plan) -> None:
        """Note the host memory that the region which the calling thread launches copies back, if it is the last."""
        orders = self.sanitizer.orders
        with orders.lock:
            course = orders.course(orders._local.launching)  # noqa: SLF001  # nobody else asks
            sections = [item.section for item in plan.items if item.map_type.copies_out]
            course.copied_back = tuple([(section.address, section.end) for section in sections])

    def _ends(self, item: MapItem) -> DoneAt:
        """Return the construct that the calling thread launches, as it would end the mapping of an item: as a read."""
        if item.map_type.copies_out:
            return self.done("copy", writes=False, shown=COPIED_BACK)
        return self.done("map", writes=False, shown=f"unmapped on device {self.device.number}")

    def _note_kept(self, plan: Plan) -> None:
        """Note the end of a mapping by a construct, if no region in flight kept the storage.

        Regions that end earlier under another schedule do not, and nothing else may be in order with the copy.
        """
        used = self._used
        kept = {entry for entry, *counts in plan.counts if 0 < sum(counts) <= used.get(entry, 0)}
        for item, entry, mapped in self._known(plan):
            if entry in kept and item.map_type in _ENDING:
                _pending.add(self.device, partial(self.sanitizer.keep, mapped, _plain(item.host), self._ends(item)))

    def _known(self, plan: Plan) -> Iterator[tuple[MapItem, Entry, Mapped]]:
        """Yield the items of a plan whose storage was there before it."""
        for item, entry in zip(plan.items, plan.entries, strict=False):
            if entry is not None and (mapped := self.mapped.get(entry)) is not None:
                yield item, entry, mapped

    def note_absent(self, plan: Plan) -> None:
        """Note the copies that an update would make if all its items were present, as under another schedule."""
        present = {id(item) for item, _ in plan.copies}
        for item in plan.items:
            section = item.section
            if id(item) in present or not section.run_nbytes:
                continue
            to_device, host = item.map_type.copies_in, _plain(item.host)
            done = self.done("copy", writes=to_device, shown=self.copied_here if to_device else COPIED_BACK)
            self.sanitizer.watch_memory(host)
            for nbytes in {section.end - section.address, section.nbytes}:  # with the gaps between rows, and packed
                storage = Section(self.device.space, section.address, (), nbytes)
                mapped = Mapped(storage, host, section, plain_name(str(item.label)), done, ListItem(item.map_type.word))
                if nbytes != section.nbytes:
                    mapped.rows = None
                self.sanitizer.miss(mapped, host, done)

    def maps(self) -> DoneAt:
        """Return the construct that the calling thread launches, as the author of a mapping."""
        return self.done("map", writes=True, shown=f"mapped on device {self.device.number}")

    def describe(self, entry: Entry, done: DoneAt, item: MapItem | None) -> Mapped:
        """Return new storage as the sanitizer knows it; ``item`` is the list item that has made it, if there is one."""
        host: Any = entry.host
        storage = self.device.section(entry.buffer)
        mapped = Mapped(storage, _plain(host), entry.section, _label_of(entry), done, self._list_item(item, done))
        if self.device.number or names_device(done.author.side):
            mapped.on = self.device.number
        # Declarations keep no array, and so not whether it was tracked.
        mapped.is_tracked = entry.origin is Origin.DECLARED or _is_tracked(host)
        for memory in (_plain(host), _storage(entry.buffer).array):
            self.sanitizer.watch_memory(memory)
        mapped.is_seen = entry.origin is not Origin.ASSOCIATED
        self.mapped[entry] = mapped
        return mapped

    def _note_removed(self, plan: Plan) -> None:
        copies = [entry for _, entry in plan.copies_out]
        items, done = _items_of(plan), self.maps()
        for entry in plan.removed:
            mapped = self.mapped.pop(entry, None)
            if mapped is None:
                continue
            if entry in items:
                mapped.item = self._list_item(items[entry], done)
            mapped.ended = done
            mapped.copies_left = copies.count(entry)
            if not mapped.copies_left:
                if entry in items and items[entry].map_type in (MapType.RELEASE, MapType.DELETE):
                    host = _plain(items[entry].host)
                    _pending.add(self.device, partial(self.sanitizer.keep, mapped, host, self._ends(items[entry])))
                # A plan of no construct undoes an entry.
                end = partial(self.sanitizer.end_mapping, mapped, done, discards=plan.counter is None)
                _pending.add(self.device, end)

    def copy(self, dst: Any, src: Any, lane: Lane) -> None:
        """Note a copy that is about to be enqueued."""
        to, at = _storage(dst), _storage(src)
        shown = f"copied to device {dst.device.number}" if to.on_device else COPIED_BACK
        reads, writes = self._done("copy", (False, True), shown)
        _put(lane, partial(self.sanitizer.copy, to, at, reads, writes))

    def zero(self, entries: Iterable[Entry], lane: Lane) -> None:
        """Note that new storage is about to be filled with zeros."""
        for entry in entries:
            _put(lane, partial(self.sanitizer.initialise, self.mapped[entry]))

    def fill(self, array: Any, lane: Lane) -> None:
        """Note that an array is about to be filled."""
        done = self.done("copy", writes=True, shown=f"filled on device {self.device.number}")
        _put(lane, partial(self.sanitizer.fill, _storage(array), done))

    def _list_item(self, item: MapItem | None, done: DoneAt) -> ListItem:
        """Return a list item as its clause has it, in the construct that the calling thread launches."""
        if item is None:
            return ListItem(MapType.ALLOC.word)
        label, word = item.label, item.map_type.word
        code = getattr(getattr(label, "mapper", None), "__code__", None)
        if code is not None:
            return ListItem(word, code.co_varnames[0], mapper=(code.co_filename, code.co_firstlineno))
        if isinstance(label, str):
            return ListItem(word, plain_name(label), is_string=True)
        name = argument_of(str(label), self.sanitizer.orders._local.launching)  # noqa: SLF001  # the same
        return ListItem(word, name, is_string=bool(name), is_implicit=item.implicit)


class _Pending(threading.local):
    """The events of the calling thread that wait for an operation, with the devices."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, Callable[[], None]]] = []

    def add(self, device: Any, event: Callable[[], None]) -> None:
        self.events.append((device, event))

    def flush(self, lane: Lane) -> None:
        """Put the events of a lane's device on the lane."""
        if self.events:
            events, self.events = self.events, []
            for device, event in events:
                if device is lane.device:
                    _carry_out(lane, event)
                else:
                    self.events.append((device, event))


_pending = _Pending()
_places: dict[Any, SanitizedPlace] = {}
"""The places of the sanitized runtimes; and the same by the identity of their tables, and of their devices."""


def watch(runtime: Any, sanitizer: Sanitizer) -> None:
    """Have the sanitizer of a runtime told of its mappings and copies."""
    for place in runtime.places:
        known = SanitizedPlace(place, sanitizer)
        _places[place] = _places[id(place.table)] = _places[id(place.device)] = known


def mapping_of(place: Any, entry: Entry) -> Mapped | None:
    """Return an entry as the sanitizer of its runtime knows it."""
    known = _places.get(place)
    return None if known is None else known.mapped.get(entry)


def leave(sanitizer: Sanitizer) -> None:
    """Tell a sanitizer no more."""
    for key, known in list(_places.items()):
        if known.sanitizer is sanitizer:
            del _places[key]


def _put(lane: Lane, event: Callable[[], None]) -> None:
    _pending.flush(lane)
    _carry_out(lane, event)


def _carry_out(lane: Lane, event: Callable[[], None]) -> None:
    """Have an event happen when a lane gets to it.

    That is at once if the lane is idle: a program may see that a lane has something to do.
    """
    if lane.is_idle:
        event()
    else:
        lane.stream.lane.put(event, ())


def _items_of(plan: Plan) -> dict[Entry | None, MapItem]:
    """Return the list items of a construct by their entries."""
    return {entry: item for item, entry in zip(plan.items, plan.entries, strict=False)}


def _storage(array: Any) -> CopiedArray:
    """Return an array of a copy as the sanitizer wants it."""
    if isinstance(array, CopiedArray):
        return array
    if isinstance(array, np.ndarray):
        return CopiedArray(_plain(array), on_device=False)
    return CopiedArray(array._storage, on_device=True)  # noqa: SLF001  # of a simulated device: there is no other here


def _plain(host: Any) -> np.ndarray[Any, Any]:
    return host.view(np.ndarray) if type(host) is not np.ndarray else host


def _label_of(entry: Entry) -> str:
    """Return the name of an entry's host array, from its clause or from the variable that holds it."""
    label = str(entry.label)
    if not is_description(label):
        return plain_name(label)
    found = variable_at(caller(), byte_bounds(_plain(entry.host)))
    return label if found is None else found.name


def _is_tracked(host: Any) -> bool:
    """Tell whether an array, or one that it is a view of, is tracked."""
    while isinstance(host, np.ndarray):
        if is_tracked(host):
            return True
        host = host.base
    return False


# -- copies and calls of other rooms -------------------------------------------------------------------
def note_now(task: Any, reads: Iterable[Any], writes: Iterable[Any], what: str = "copy") -> None:
    """Note what the body of a task of the library's own accesses now: arrays of the host, or of simulated devices.

    ``what`` is a side's; an empty one stands for ``"read"`` and ``"write"``.
    """
    sanitizer = _sanitizer_of(task)
    if sanitizer is not None:
        stretch = sanitizer.orders.here()
        _note(sanitizer, *_sides(sanitizer, task, stretch, reads, writes, what))


def note_on_lane(task: Any, lane: Lane, reads: Iterable[Any], writes: Iterable[Any], what: str = "copy") -> None:
    """Note what the launch of a task enqueues next."""
    sanitizer = _sanitizer_of(task)
    if sanitizer is not None:
        stretch = sanitizer.orders.of_copy(task)
        _put(lane, partial(_note, sanitizer, *_sides(sanitizer, task, stretch, reads, writes, what)))


def part_of(array: Any, offsets: Any) -> list[Any]:
    """Return the elements of a flat array that a table of offsets takes; all of it without a table."""
    if offsets is None:
        return [array]
    storage, table = _storage(array), _storage(offsets).array
    return [CopiedArray(part, on_device=storage.on_device) for part in taken(storage.array, table)]


def _sanitizer_of(task: Any) -> Sanitizer | None:
    run = None if task is None else getattr(task.construct.runtime, "sanitized", None)
    return None if run is None else run.sanitizer


def _sides(
    sanitizer: Sanitizer, task: Any, stretch: int, reads: Iterable[Any], writes: Iterable[Any], what: str
) -> list[tuple[DoneAt, list[CopiedArray]]]:
    """Return the reads and the writes, each with its author."""
    return [
        (DoneAt(sanitizer.authors.of_task(task, what or name, writes=is_write), stretch), [*map(_storage, arrays)])
        for name, is_write, arrays in (("read", False, reads), ("write", True, writes))
    ]


def _note(sanitizer: Sanitizer, *sides: tuple[DoneAt, list[CopiedArray]]) -> None:
    with sanitizer.judging():
        sanitizer.accesses += 1
        for done, arrays in sides:
            for array, on_device in arrays:
                sanitizer.copied(array, done, on_device=on_device)


# -- the hooks ---------------------------------------------------------------------------------------
def _sanitized_commit(plain: Any) -> Any:
    def commit(self: PresentTable, plan: Plan, buffers: Any = ()) -> None:
        plain(self, plan, buffers)
        if (known := _places.get(id(self))) is not None:
            known.note(plan)

    return commit


def _sanitized_leave(plain: Any) -> Any:
    def leave(self: PresentTable, plan: Plan) -> bool:
        is_over: bool = plain(self, plan)
        if is_over and (known := _places.get(id(self))) is not None:
            known.leave(plan)
        return is_over

    return leave


def _sanitized_insert(plain: Any) -> Any:
    def insert(self: PresentTable, item: MapItem, buffer: object, origin: Origin) -> Entry:
        entry: Entry = plain(self, item, buffer, origin)
        known = _places.get(id(self))
        if known is not None:
            mapped = known.describe(entry, known.maps(), item)
            known.sanitizer.begin_mapping(mapped)
            if origin is Origin.DECLARED:  # the host's values are copied at once
                known.sanitizer.initialise(mapped)
        return entry

    return insert


def _sanitized_discard(plain: Any) -> Any:
    def discard(self: PresentTable, entry: Entry) -> None:
        plain(self, entry)
        known = _places.get(id(self))
        if known is not None and (mapped := known.mapped.pop(entry, None)) is not None:
            known.sanitizer.end_mapping(mapped, known.maps())

    return discard


def _sanitized_copy(plain: Any) -> Any:
    def copy(self: Any, dst: Any, src: Any, lane: Lane, staged: list[Any], text: object = None) -> None:
        known = _places.get(self)
        if known is not None:
            known.copy(dst, src, lane)
        plain(self, dst, src, lane, staged, text)

    return copy


def _sanitized_copy_in(plain: Any) -> Any:
    def copy_in(self: Any, plan: Plan, lane: Lane, staged: list[Any]) -> None:
        known = _places.get(self)
        if known is not None and plan.zeroed:
            known.zero(plan.zeroed, lane)
        plain(self, plan, lane, staged)

    return copy_in


def _sanitized_update(plain: Any) -> Any:
    def begin_update(self: Any, plan: Plan, lane: Lane, enqueuers: Any) -> Any:
        known = _places.get(self)
        if known is not None:
            known.note_absent(plan)
        return plain(self, plan, lane, enqueuers if known is None else None)  # each copy is told of

    return begin_update


def _sanitized_fill(plain: Any) -> Any:
    def begin(self: FillWork, launch: Any, place: Any, lane: Lane, staged: list[Any]) -> None:
        known = _places.get(place)
        if known is not None:
            known.fill(self._array, lane)
        plain(self, launch, place, lane, staged)

    return begin


def _sanitized_copy_work(plain: Any) -> Any:
    def begin(self: CopyWork, launch: Any, place: Any, lane: Lane, staged: list[Any]) -> None:
        try:
            plain(self, launch, place, lane, staged)
        except RegionClosedError:  # under another schedule the array is still there
            if (known := _places.get(place)) is not None:
                known.copy(self._dst, self._src, lane)
            raise

    return begin


def _sanitized_retire(plain: Any) -> Any:
    def retire(self: SimDevice, array: SimArray, retired: Retired) -> None:
        if retired.routine and (known := _places.get(id(self))) is not None:
            known.sanitizer.free(array._storage, caller(), f"freed on device {self.number}")  # noqa: SLF001  # of its device
        plain(self, array, retired)

    return retire


def _sanitized_use(plain: Any) -> Any:
    def use(self: SimArray, *args: Any) -> Any:
        try:
            return plain(self, *args)
        except RegionClosedError:  # likewise
            if (known := _places.get(id(self._device))) is not None:
                known.sanitizer.note([self._storage], [], self._device)
            raise

    return use


def _sanitized_mark(plain: Any) -> Any:
    def mark(self: Lane) -> Any:
        if _pending.events:
            _pending.flush(self)
        return plain(self)

    return mark


hooked.register(PresentTable, "commit", _sanitized_commit, "sanitize")
hooked.register(PresentTable, "leave", _sanitized_leave, "sanitize")
hooked.register(PresentTable, "insert", _sanitized_insert, "sanitize")
hooked.register(PresentTable, "discard", _sanitized_discard, "sanitize")
hooked.register(DataEnvironment, "copy", _sanitized_copy, "sanitize")
hooked.register(ObservedPlace, "copy", _sanitized_copy, "sanitize")
hooked.register(DataEnvironment, "copy_in", _sanitized_copy_in, "sanitize")
hooked.register(DataEnvironment, "_begin_update", _sanitized_update, "sanitize")
hooked.register(FillWork, "begin", _sanitized_fill, "sanitize")
hooked.register(CopyWork, "begin", _sanitized_copy_work, "sanitize")
hooked.register(SimDevice, "retire", _sanitized_retire, "sanitize")
hooked.register(SimArray, "_settled", _sanitized_use, "sanitize")
hooked.register(SimArray, "_part", _sanitized_use, "sanitize")
hooked.register(Lane, "mark", _sanitized_mark, "sanitize")
