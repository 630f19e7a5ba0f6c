"""The data environment of one device: the rules of the present table, carried out on its streams.

The table plans a construct and counts; here memory is allocated, copies are enqueued, and each entry remembers who
wrote it last and who uses it, so that constructs which share an entry follow each other in stream order. The lock is
held from plan to commit. Copies are enqueued outside of it, since one of pageable memory takes as long as the
copy; an entry whose copy-in is just being enqueued says so, and another construct that needs it is put off.

Copies that only threads can make (`StagedCopy`) are given to the caller, who has them carried out and then calls
`settle`; until then the entries and the host memory concerned count as being copied.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.data.declared import declarations
from offload.data.entries import Counter, Origin
from offload.data.leaving import LeavingIndex
from offload.data.maptypes import MapType
from offload.data.present import MapItem, PresentTable, correspond
from offload.devices.retired import Retired
from offload.errors import DeviceLostError, DeviceMemoryError, MapError
from offload.items import array_section, label

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from offload.data.entries import Accesses, Entry
    from offload.data.leaving import Leaving
    from offload.data.plans import EnterPlan, ExitPlan
    from offload.devices.base import Device
    from offload.devices.streams import Lane, Point
    from offload.notify import Notifier
    from offload.storage import Section

_BYTE = np.dtype("u1")

_COPYING: Any = object()
"""Stands for an entry's last write while a copy of it is being enqueued, or carried out by threads."""


class PutOffError(Exception):
    """The launch has to be tried again later; nothing has changed."""


class Released:
    """Buffers of mappings that a construct has ended, until no work needs them."""

    __slots__ = ("_buffers",)

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._buffers: list[tuple[Any, str]] = [(entry.buffer, entry.label) for entry in entries]

    def retire(self, device: Device) -> None:
        """Note that they have gone back: arrays over them that somebody has kept are not to be used any more."""
        for buffer, label_ in self._buffers:
            device.retire(buffer, Retired(label_))


class DataEnvironment:
    """The mappings of one device.

    Attributes
    ----------
    device : Device
    table : PresentTable
    declared : int
        The state of the process's declarations that the device has taken in.
    notify : Notifier or None
        What tells of launches and copies, under ``OFFLOAD_NOTIFY``.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.table = PresentTable(device.number)
        self.declared = 0
        self.notify: Notifier | None = None
        self._lock = threading.Lock()
        self._leaving = LeavingIndex()
        self._leaving_on: dict[Lane, deque[Leaving]] = {}
        # Of the launch on a lane: entries that it writes, parts that it writes or reads, copies back.
        self._unsettled: dict[Lane, tuple[list[Entry], list[tuple[Accesses, Section]], list[Leaving]]] = {}
        self._kept: dict[Lane, list[Any]] = {}

    # -- constructs ----------------------------------------------------------------------------------
    def enter(
        self, items: Sequence[MapItem], lane: Lane, staged: list[Any], counter: Counter = Counter.DYNAMIC
    ) -> EnterPlan:
        """Map the items of one construct and enqueue their copies-in; add those that are staged to ``staged``.

        The construct counts in ``counter``.

        Raises
        ------
        MapError, DeviceMemoryError
            Nothing has changed.
        """
        with self._lock:
            known = self.table.reenter(items, counter)
            if known is not None:
                earlier = _written_before(known)
                if _COPYING in earlier:
                    self.table.undo(known)
                    raise PutOffError
                try:
                    lane.wait_for(earlier)
                except BaseException:
                    self.table.undo(known)
                    raise
                return known
            plan = self.table.enter(items, counter)
            earlier = _written_before(plan)
            for item, entry in plan.copies:
                earlier += entry.users_of(item.section)
            if _COPYING in earlier:
                raise PutOffError
            if self._leaving:
                earlier += self._copies_back_to(entry.section for entry in plan.created)
            buffers = self._allocate(plan, lane)
            written = _distinct((*plan.created, *(entry for _, entry in plan.copies)))
            self.table.commit(plan, buffers)
            for entry in written:
                entry.last_write = _COPYING
        n_before = len(staged)
        self._unsettled[lane] = written, [], []
        try:
            lane.wait_for(earlier)
            for entry in plan.zeroed:
                self.device.fill(entry.buffer, 0, lane.stream)
            for item, entry in plan.copies:
                self.copy(self.view(entry, item.host, item.address), item.host, lane, staged, item.label)
            if len(staged) == n_before:
                self.settle(lane)
        except BaseException:
            with suppress(DeviceLostError):
                self.settle(lane)
            with self._lock:
                self.keep(lane, [entry.buffer for entry in self.table.undo(plan)])
            raise
        return plan

    def keep(self, lane: Lane, things: Iterable[Any]) -> None:
        """Keep what a construct that fails leaves in use on a lane, for `take_kept`."""
        self._kept.setdefault(lane, []).extend(things)

    def take_kept(self, lane: Lane) -> list[Any] | None:
        """Return what must live until the lane gets to where it is now, although its construct has failed."""
        return self._kept.pop(lane, None)

    def copy(self, dst: Any, src: Any, lane: Lane, staged: list[Any], text: object = None) -> None:
        """Enqueue a copy between two arrays, or add it to those that are staged; ``text`` names its list item."""
        copy = self.device.copy(dst, src, lane.stream)
        if self.notify is not None:
            self.notify.copy(dst, src, self.device, lane, text)
        if copy is not None:
            staged.append(copy)

    def settle(self, lane: Lane) -> None:
        """Take note that the copies of the launch on the lane are all enqueued, or carried out."""
        entries, accesses, leaving = self._unsettled.pop(lane, ((), (), ()))
        if not entries and not accesses and not leaving:
            return
        point = None
        try:
            point = lane.mark()
        finally:
            with self._lock:
                for entry in entries:
                    entry.last_write = point
                for noted, section in accesses:
                    if point is None:
                        del noted[lane, section]
                    else:
                        self._note(noted, lane, section, point)
                for copy in leaving:
                    if point is None:
                        self._leaving.remove(copy)
                    copy.point = point
                if leaving and point is not None:
                    self._leaving_on.setdefault(lane, deque()).extend(leaving)

    def exit(
        self,
        items: Sequence[MapItem],
        lane: Lane,
        staged: list[Any],
        counter: Counter = Counter.DYNAMIC,
        *,
        ends_region: bool = False,
        finalizes: bool = False,
        may_be_put_off: bool = False,
    ) -> list[object]:
        """Unmap the items of one construct and enqueue their copies-out; return what must live until they are done.

        What is unmapped comes first, as `Released`, if there is anything. ``staged`` and ``counter`` as for `enter`.
        ``ends_region``, ``finalizes``: as `PresentTable.exit` has them.

        Raises
        ------
        MapError
            An array has become read-only. At the end of a region everything else has been copied and released; else
            nothing has changed.
        """
        failures: list[Exception] = []
        mine: list[Any] = []
        with self._lock:
            plan = self.table.exit(items, counter, ends_region=ends_region, finalizes=finalizes)
            if may_be_put_off and any(_is_copying(entry) for entry, *_ in plan.counts):
                raise PutOffError
            if not ends_region:
                for item, _ in plan.copies:
                    _check_writeable(item)
            removed = set(plan.removed)
            self._follow_users(lane, [*removed, *(entry for _, entry in plan.copies)])
            self.table.commit_exit(plan)
            kept = [pair for pair in plan.copies if pair[1] not in removed]
            self._copy_out(kept, lane, mine, failures)
            self._note_use(lane, plan, removed)
            busy = _distinct(entry for _, entry in kept) if mine else []
            for entry in busy:
                entry.last_write = _COPYING
            leaving = [self._leaving.add(item.section) for item, entry in plan.copies if entry in removed]
        try:
            self._copy_out([pair for pair in plan.copies if pair[1] in removed], lane, mine, failures)
        finally:
            self._unsettled[lane] = busy, [], leaving
            if failures or not mine:
                self.settle(lane)
        if failures:
            for copy in mine:
                copy.run()
            with suppress(DeviceLostError):
                lane.stream.synchronize()  # the task fails at once, and what has been copied back must be there
            Released(plan.removed).retire(self.device)
            first, *others = failures
            for other in others:
                first.add_note(f"and: {other}")
            raise first
        staged += mine
        return [*_released(plan.removed), *(item.host for item in items)]

    def leave(self, plan: EnterPlan, lane: Lane) -> Point | None:
        """Undo what `enter` has done where that only counts: nothing to copy, and all stay present.

        Returns
        -------
        Point or None
            The place on the lane up to which the entries are in use; None where there is more to do, and nothing has
            changed.
        """
        with self._lock:
            if not self.table.leave(plan):
                return None
            point = lane.mark()
            for item, entry in zip(plan.items, plan.entries, strict=True):
                if entry is not None:
                    self._note(entry.users, lane, item.section, point)
            return point

    def _copy_out(
        self, copies: Iterable[tuple[MapItem, Entry]], lane: Lane, staged: list[Any], failures: list[Exception]
    ) -> None:
        """Enqueue copies to the host, each whatever becomes of the others."""
        for item, entry in copies:
            try:
                _check_writeable(item)
                self.copy(item.host, self.view(entry, item.host, item.address), lane, staged, item.label)
            except Exception as error:  # noqa: BLE001  # raised when all have been tried
                failures.append(error)

    def _copies_back_to(self, sections: Iterable[Section]) -> list[Point]:
        """Return where copies back to host storage end, which copies in from there must follow."""
        points = [copy.point for section in sections for copy in self._leaving.meeting(section)]
        if None in points:
            raise PutOffError
        return points

    def _note_leaving(self, sections: Iterable[Section], point: Point) -> None:
        """Note copies back to host storage that have been enqueued up to a point, for `arrived`."""
        leaving = [self._leaving.add(section) for section in sections]
        for copy in leaving:
            copy.point = point
        if leaving:
            self._leaving_on.setdefault(point.lane, deque()).extend(leaving)

    @property
    def has_leaving(self) -> bool:
        """Whether copies back are under way that `arrived` is to hear of."""
        return bool(self._leaving_on)

    def arrived(self, end: Point) -> None:
        """Forget the copies back that a lane has done."""
        with self._lock:
            copies = self._leaving_on.get(end.lane)
            while copies and copies[0].point.sequence <= end.sequence:
                self._leaving.remove(copies.popleft())
            if copies is not None and not copies:
                del self._leaving_on[end.lane]

    def undo(self, plan: EnterPlan, lane: Lane) -> list[object]:
        """Release what `enter` mapped and copy nothing back; return what must live until the lane gets here.

        What is unmapped comes first, as `Released`, if there is anything.
        """
        with self._lock:
            removed = self.table.undo(plan)
            self._follow_users(lane, removed)
            self._note_use(lane, plan, removed)
        return [*_released(removed), *(item.host for item in plan.items)]

    def update(self, items: Sequence[MapItem], lane: Lane, staged: list[Any]) -> list[object]:
        """Enqueue the copies of an update; return what must live until they are done. ``staged`` as for `enter`.

        That includes the buffers, since a task that knows nothing of this one may end their mappings meanwhile.

        Raises
        ------
        NotPresentError
            Nothing has been copied.
        """
        with self._lock:
            copies = self.table.update(items)
            earlier: list[Any] = []
            for item, entry in copies:
                earlier += entry.before_use(item.section)
                if item.map_type.copies_in:
                    earlier += entry.users_of(item.section)
            if _COPYING in earlier:
                raise PutOffError
            accesses: list[Any] = [
                (entry.parts if item.map_type.copies_in else entry.users, item.section) for item, entry in copies
            ]
            for noted, section in accesses:
                noted[lane, section] = _COPYING
        n_before = len(staged)
        self._unsettled[lane] = [], accesses, []
        is_settled = True
        try:
            lane.wait_for(earlier)
            for item, entry in copies:
                array = self.view(entry, item.host, item.address)
                dst, src = (array, item.host) if item.map_type.copies_in else (item.host, array)
                self.copy(dst, src, lane, staged, item.label)
            is_settled = len(staged) == n_before
        finally:
            if is_settled:
                self.settle(lane)
        return [*(entry.buffer for _, entry in copies), *(item.host for item in items)]

    # -- storage that no construct ends --------------------------------------------------------------
    def associate(self, item: MapItem, buffer: Any) -> None:
        """Make a user's device array the corresponding storage of an item, until `disassociate`.

        Raises
        ------
        MapError
            The item, or a part of it, has other corresponding storage, or its rows interleave.
        """
        with self._lock:
            entry = self._associated(item)
            if entry is None or self.device.section(entry.buffer) != self.device.section(buffer):
                self.table.insert(item, buffer, Origin.ASSOCIATED)

    def disassociate(self, item: MapItem) -> None:
        """Undo `associate`, and wait for what has been enqueued with the array.

        Raises
        ------
        MapError
            The item was not associated, or a structured region still holds it.
        """
        with self._lock:
            entry = self._associated(item)
            if entry is None:
                raise MapError(
                    f"{item.label} is not associated on device {self.device.number}; "
                    "give the array that target_associate_ptr was given"
                )
            if entry.structured:
                raise MapError(
                    f"{item.label} is still held by {entry.structured} regions on device {self.device.number}; "
                    "disassociate it after their end"
                )
            points = _points_of(entry)
            self.table.discard(entry)
        for point in points:
            event = point.event
            if event is not None:
                event.synchronize()

    def is_associated(self, item: MapItem) -> bool:
        """Tell whether the storage that corresponds to an item is, or lies in, a user's device array."""
        with self._lock:
            entry, _ = self.table.search(item.section)
        return entry is not None and entry.origin is Origin.ASSOCIATED

    def _associated(self, item: MapItem) -> Entry | None:
        entry = self.table.at(item.section)
        return entry if entry is not None and entry.origin is Origin.ASSOCIATED else None

    def take_declared(self) -> None:
        """Give storage to what `declare_target` has named, with the host's values of now; wait for the copies.

        What another mapping holds is left for a later call.

        Raises
        ------
        DeviceMemoryError
            Some arrays have no storage yet; the next call tries again.
        """
        with self._lock:
            version, is_done = declarations.version, True
            for array in declarations.arrays():
                section = array_section(array)
                entry, other = self.table.search(section)
                if entry is None and other is None:
                    self._declare(array, section)
                elif entry is None or entry.origin is Origin.MAPPED:
                    is_done = False
            if is_done:
                self.declared = version

    def _declare(self, array: Any, section: Section) -> None:
        device = self.device
        stream = device.new_stream()  # nothing of the program can hold it up
        address = array.__array_interface__["data"][0]
        text = label(array)
        item = MapItem(section, address, array.shape, array.strides, array.itemsize, MapType.TO, host=array, label=text)
        buffer = device.alloc((section.nbytes,), _BYTE, stream)
        entry = self.table.insert(item, buffer, Origin.DECLARED)
        try:
            to = self.view(entry, array)
            copy = device.copy(to, array, stream)
            if self.notify is not None:
                self.notify.copy(to, array, device, None, None)
            if copy is not None:
                copy.run()
            stream.synchronize()
        except BaseException:
            self.table.discard(entry)
            raise

    def is_present(self, host: Any) -> bool:
        """Tell whether every byte of a host array is present."""
        with self._lock:
            return bool(host.size) and self.table.search(array_section(host))[0] is not None

    def corresponding(self, host: Any) -> Any:
        """Return the device array that corresponds to a host array; None unless all of it is present."""
        with self._lock:
            entry, _ = self.table.search(array_section(host))
        return None if entry is None or not host.size else self.view(entry, host)

    # -- what these share ----------------------------------------------------------------------------
    def forget(self) -> None:
        """Drop all mappings, as the device is closed."""
        self.table = PresentTable(self.device.number)

    def view(self, entry: Entry, host: Any, address: int | None = None) -> Any:
        """Return the device array that corresponds to a host array inside an entry.

        ``address`` is that of its element ``(0, …, 0)``, where it is known: NumPy takes as long to say it as the rest.
        """
        if address is None:
            address = host.__array_interface__["data"][0]
        offset, strides = correspond(entry, address, host.shape, host.strides, host.itemsize)
        return self.device.view(entry.buffer, offset, host.shape, strides, host.dtype)

    def _allocate(self, plan: EnterPlan, lane: Lane) -> list[Any]:
        buffers: list[Any] = []
        for entry in plan.created:
            try:
                buffers.append(self.device.alloc((entry.nbytes,), _BYTE, lane.stream))
            except DeviceMemoryError as error:
                buffers.clear()  # the traceback refers to this frame, and would keep them as long as the error lives
                what = f"{error}; it was to map {entry.label}; the largest mappings there: {self._largest_mappings()}"
                error.args = (what, *error.args[1:])
                raise
        return buffers

    def _largest_mappings(self) -> str:
        largest = sorted(self.table.entries(), key=lambda entry: -entry.nbytes)[:3]
        return ", ".join(f"{entry.label} ({entry.nbytes:,} bytes)" for entry in largest) or "nothing"

    def _follow_users(self, lane: Lane, entries: Iterable[Entry]) -> None:
        for entry in entries:
            lane.wait_for(_points_of(entry))

    def _note(self, accesses: Accesses, lane: Lane, section: Section, point: Point) -> None:
        """Note that a section is in use up to a place on a lane."""
        if len(accesses) >= accesses.limit:
            accesses.prune(_is_over)
        accesses[lane, section] = point

    def _note_use(self, lane: Lane, plan: EnterPlan | ExitPlan, removed: Container[Entry]) -> None:
        """Note the lane as a user of the items of a construct up to here, but for those that go with it."""
        used = [
            (entry, item)
            for item, entry in zip(plan.items, plan.entries, strict=True)
            if entry is not None and entry not in removed
        ]
        if used:
            point = lane.mark()
            for entry, item in used:
                self._note(entry.users, lane, item.section, point)


def _released(entries: list[Entry]) -> list[object]:
    return [Released(entries)] if entries else []


def _check_writeable(item: MapItem) -> None:
    """Raise `MapError` if the array of an item that is to be copied back cannot be written any more."""
    host: Any = item.host
    if not host.flags.writeable:
        raise MapError(
            f"{item.label} cannot be copied back: the array is read-only now; "
            "make it writeable, or release it without a copy"
        )


def _written_before(plan: EnterPlan) -> list[Any]:
    """Return what has written the items of a construct."""
    found: list[Any] = []
    for item, entry in zip(plan.items, plan.entries, strict=True):
        if entry is not None:
            found += entry.before_use(item.section)
    return found


def _points_of(entry: Entry) -> list[Any]:
    """Return the places of all that uses or has written an entry, as far as it has been enqueued."""
    points: list[Any] = [*entry.users.values(), *entry.parts.values(), entry.last_write]
    return [point for point in points if point is not None and point is not _COPYING]


def _is_copying(entry: Entry) -> bool:
    """Tell whether a copy of an entry, or of a part, is being enqueued, or carried out by threads."""
    return entry.last_write is _COPYING or _COPYING in entry.parts.values() or _COPYING in entry.users.values()


def _is_over(access: Any) -> bool:
    """Tell whether a lane has passed the place where an access ends."""
    if access is _COPYING:
        return False
    event = access.event
    return event is None or bool(event.done)


def _distinct(entries: Iterable[Entry]) -> list[Entry]:
    return list(dict.fromkeys(entries))
