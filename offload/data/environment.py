"""The data environment of one device: the rules of the present table, carried out on its streams.

The table plans a construct and counts; here memory is allocated and copies are enqueued, and the ledger has constructs
which share an entry follow each other in stream order. The lock is held from plan to commit. Copies are enqueued
outside of it, since one of pageable memory takes as long as the copy; meanwhile they are open in the ledger, and
another construct that would have to follow them is put off.

Copies that only threads can make (`StagedCopy`) are given to the caller, who has them carried out and then calls
`settle`.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import array_section, label
from offload.data.declared import declarations
from offload.data.entries import Counter, Origin, correspond
from offload.data.items import MapItem
from offload.data.ledger import Ledger, PutOffError, is_open
from offload.data.maptypes import MapType
from offload.data.present import PresentTable
from offload.devices.retired import Retired
from offload.errors import DeviceLostError, DeviceMemoryError, MapError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.arrays.sections import Section
    from offload.data.entries import Entry
    from offload.data.plans import Entered, EnterPlan
    from offload.devices.base import Device
    from offload.devices.streams import Lane, Point
    from offload.events.observer import Observer

_BYTE = np.dtype("u1")


class Released:
    """Buffers of mappings that a construct has ended, until no work needs them."""

    __slots__ = ("_buffers",)

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._buffers: list[tuple[Any, object]] = [(entry.buffer, entry.label) for entry in entries]

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
    lock : Lock
        Held from the plan of a construct to its commit.
    ledger : Ledger
        Who uses the mappings.
    declared : int
        The state of the process's declarations that the device has taken in.
    notify : Observer or None
        What tells of launches and copies, under ``OFFLOAD_NOTIFY``.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.table = PresentTable(device.number)
        self.declared = 0
        self.notify: Observer | None = None
        self.lock = threading.Lock()
        self.ledger = Ledger(self.lock)

    # -- constructs ----------------------------------------------------------------------------------
    def enter(
        self, items: Sequence[MapItem], lane: Lane, staged: list[Any], counter: Counter = Counter.DYNAMIC
    ) -> Entered:
        """Map the items of one construct and enqueue their copies-in; add those that are staged to ``staged``.

        The construct counts in ``counter``. The plan's ``point`` is where the copies end, unless they are staged.

        Raises
        ------
        PutOffError, MapError, DeviceMemoryError
            Nothing has changed.
        """
        ledger = self.ledger
        with self.lock:
            known = self.table.reenter(items, counter)
            if known is not None:
                try:
                    lane.wait_for(ledger.before(known.parts()))
                except BaseException:
                    self.table.undo(known)
                    raise
                return known
            plan = self.table.enter(items, counter)
            earlier = ledger.before(
                plan.parts(),
                [(entry, item.section) for item, entry in plan.copies],
                [entry.section for entry in plan.created],
            )
            buffers = self._allocate(plan, lane)
            self.table.commit(plan, buffers)
            created = set(plan.created)
            copied = [(entry, item.section) for item, entry in plan.copies if entry not in created]
            ledger.open(lane, writes=[*((entry, entry.section) for entry in plan.created), *copied])
        n_before = len(staged)
        try:
            lane.wait_for(earlier)
            for entry in plan.zeroed:
                self.device.fill(entry.buffer, 0, lane.stream)
            for item, entry in plan.copies:
                self.copy(self.view(entry, item.host, item.address), item.host, lane, staged, item.label)
            if len(staged) == n_before:
                plan.point = ledger.settle(lane)
        except BaseException:
            with suppress(DeviceLostError):
                ledger.settle(lane)
            with self.lock:
                ledger.keep(lane, [entry.buffer for entry in self.table.undo(plan)])
            raise
        return plan

    def copy(self, dst: Any, src: Any, lane: Lane, staged: list[Any], text: object = None) -> None:
        """Enqueue a copy between two arrays, or add it to those that are staged; ``text`` names its list item."""
        copy = self.device.copy(dst, src, lane.stream)
        if self.notify is not None:
            self.notify.copy(dst, src, self.device.number, lane.number if lane.of_queue else None, text)
        if copy is not None:
            staged.append(copy)

    def settle(self, lane: Lane) -> Point | None:
        """Take note that the staged copies of the launch on the lane have been carried out; return where it is now."""
        point: Point | None = self.ledger.settle(lane)
        return point

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
    ) -> tuple[list[object], Point | None]:
        """Unmap the items of one construct and enqueue their copies-out.

        ``staged`` and ``counter`` as for `enter`. ``ends_region``, ``finalizes``: as `PresentTable.exit` has them.

        Returns
        -------
        list
            What must live until the copies are done. What is unmapped comes first, as `Released`, if there is anything.
        Point or None
            Where they end; None if they are staged, or nothing is in use any more.

        Raises
        ------
        PutOffError
            Only if it ``may_be_put_off``; nothing has changed.
        MapError
            An array has become read-only. At the end of a region everything else has been copied and released; else
            nothing has changed.
        """
        ledger = self.ledger
        failures: list[Exception] = []
        mine: list[Any] = []
        point = None
        with self.lock:
            plan = self.table.exit(items, counter, ends_region=ends_region, finalizes=finalizes)
            if may_be_put_off and any(is_open(entry) for entry, *_ in plan.counts):
                raise PutOffError
            if not ends_region:
                for item, _ in plan.copies:
                    _check_writeable(item)
            removed = set(plan.removed)
            lane.wait_for(ledger.before_end([*removed, *(entry for _, entry in plan.copies)]))
            self.table.commit_exit(plan)
            kept = [(item, entry) for item, entry in plan.copies if entry not in removed]
            gone = [(item, entry) for item, entry in plan.copies if entry in removed]
            self._copy_out(kept, lane, mine, failures)
            used = [part for part in plan.parts() if part[0] not in removed]
            if used:
                point = lane.mark()
                ledger.note(point, used)
            ledger.open(
                lane, [(entry, item.section) for item, entry in kept] if mine else (), back=[i.section for i, _ in gone]
            )
        try:
            self._copy_out(gone, lane, mine, failures)
        finally:
            if failures or not mine:
                point = ledger.settle(lane) or point
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
        return [*_released(plan.removed), *(item.host for item in items)], None if mine else point

    def leave(self, plan: Entered, lane: Lane, key: Any = None, value: Any = None) -> Point | None:
        """Undo what `enter` has done where that only counts: nothing to copy, and all stay present.

        Remember a value by a key then, if one is given (`PresentTable.remember`).

        Returns
        -------
        Point or None
            The place on the lane up to which the entries are in use; None where there is more to do, and nothing has
            changed.
        """
        with self.lock:
            if not self.table.leave(plan):
                return None
            point = lane.mark()
            self.ledger.note(point, plan.parts())
            _ = self.table.remember(key, value) if key is not None else None  # it goes when the lock is free
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

    def undo(self, plan: Entered, lane: Lane) -> list[object]:
        """Release what `enter` mapped and copy nothing back; return what must live until the lane gets here.

        What is unmapped comes first, as `Released`, if there is anything.
        """
        with self.lock:
            removed = self.table.undo(plan)
            lane.wait_for(self.ledger.before_end(removed))
            used = [part for part in plan.parts() if part[0] not in removed]
            if used:
                self.ledger.note(lane.mark(), used)
        return [*_released(removed), *(item.host for item in plan.items)]

    def update(self, items: Sequence[MapItem], lane: Lane, staged: list[Any]) -> tuple[list[object], Point | None]:
        """Enqueue the copies of an update; return what must live until they are done, and where they end.

        The former includes the buffers, since a task that knows nothing of this one may end their mappings meanwhile.
        The latter is None if they are staged, or if there are none. ``staged`` as for `enter`.

        Raises
        ------
        PutOffError, NotPresentError
            Nothing has been copied.
        """
        ledger = self.ledger
        with self.lock:
            copies = self.table.update(items)
            parts = [(entry, item.section) for item, entry in copies]
            writes = [(entry, item.section) for item, entry in copies if item.map_type.copies_in]
            earlier = ledger.before(parts, writes)
            ledger.open(lane, [(entry, item.section) for item, entry in copies if not item.map_type.copies_in], writes)
        n_before = len(staged)
        point = None
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
                point = ledger.settle(lane)
        return [*(entry.buffer for _, entry in copies), *(item.host for item in items)], point

    # -- storage that no construct ends --------------------------------------------------------------
    def associate(self, item: MapItem, buffer: Any) -> None:
        """Make a user's device array the corresponding storage of an item, until `disassociate`.

        Raises
        ------
        MapError
            The item, or a part of it, has other corresponding storage, or its rows interleave.
        """
        with self.lock:
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
        with self.lock:
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
            points = self.ledger.before_end((entry,))
            self.table.discard(entry)
        for point in points:
            event = point.event
            if event is not None:
                event.synchronize()

    def is_associated(self, item: MapItem) -> bool:
        """Tell whether the storage that corresponds to an item is, or lies in, a user's device array."""
        with self.lock:
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
        with self.lock:
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
                self.notify.copy(to, array, device.number, None, None)
            if copy is not None:
                copy.run()
            stream.synchronize()
        except BaseException:
            self.table.discard(entry)
            raise

    def is_present(self, host: Any) -> bool:
        """Tell whether every byte of a host array is present."""
        with self.lock:
            return bool(host.size) and self.table.search(array_section(host))[0] is not None

    def corresponding(self, host: Any) -> Any:
        """Return the device array that corresponds to a host array; None unless all of it is present."""
        with self.lock:
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
        shape, dtype = host.shape, host.dtype
        layout = address, shape, host.strides, dtype.num, dtype
        seen = entry.seen
        if seen is not None and seen[0] == layout and seen[1].shape == shape:  # which a body may have set
            return seen[1]
        offset, strides = correspond(entry, address, shape, layout[2], host.itemsize)
        array = self.device.view(entry.buffer, offset, shape, strides, dtype)
        entry.seen = layout, array
        return array

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
            if self.device.poisons:
                self.device.poison(buffers[-1], entry.host.dtype)  # type: ignore[attr-defined]  # an array
        return buffers

    def _largest_mappings(self) -> str:
        largest = sorted(self.table.entries(), key=lambda entry: -entry.nbytes)[:3]
        return ", ".join(f"{entry.label} ({entry.nbytes:,} bytes)" for entry in largest) or "nothing"


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
