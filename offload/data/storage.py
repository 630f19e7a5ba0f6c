"""The storage of one device: what corresponds there to host arrays, how it is seen, and how arrays are copied.

Constructs make and end storage (`offload.data.environment`); here is what no construct ends: declared arrays, and
device arrays that a user has associated with the host's.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import array_section, label
from offload.data.declared import declarations
from offload.data.entries import Origin, correspond
from offload.data.items import MapItem
from offload.data.ledger import Ledger
from offload.data.maptypes import MapType
from offload.data.present import PresentTable
from offload.errors import MapError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.arrays.sections import Section
    from offload.data.entries import Entry
    from offload.data.versions import Contents
    from offload.devices.base import Device
    from offload.devices.streams import Lane
    from offload.events.observer import Observer

BYTE = np.dtype("u1")
"""The dtype of buffers."""


class Storage:
    """What is present on one device.

    Attributes
    ----------
    device : Device
    table : PresentTable
    lock : Lock
        Held from the plan of a construct to its commit.
    ledger : Ledger
        Who uses the mappings.
    sets : list of ReplicaSet
        Those that entries of the table are in.
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
        self.sets: list[Any] = []

    # -- what is there -------------------------------------------------------------------------------
    def is_present(self, host: Any) -> bool:
        """Tell whether every byte of a host array is present."""
        with self.lock:
            return bool(host.size) and self.table.search(array_section(host))[0] is not None

    def corresponding(self, host: Any) -> Any:
        """Return the device array that corresponds to a host array; None unless all of it is present.

        The program has it, and may write to it from now on.
        """
        with self.lock:
            entry, _ = self.table.search(array_section(host))
        if entry is None or not host.size:
            return None
        entry.is_exposed = True
        return self.view(entry, host)

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

    def copy(self, dst: Any, src: Any, lane: Lane, staged: list[Any], text: object = None) -> None:
        """Enqueue a copy between two arrays, or add it to those that are staged; ``text`` names its list item."""
        copy = self.device.copy(dst, src, lane.stream)
        if self.notify is not None:
            self.notify.copy(dst, src, self.device.number, lane.number if lane.of_queue else None, text)
        if copy is not None:
            staged.append(copy)

    def change(self, entries: Iterable[Entry | None], lane: Lane) -> None:
        """Take note that what is being launched on a lane may write to entries; None has no storage."""
        with self.lock:
            for entry in entries:
                if entry is not None:
                    entry.change(lane)

    def contents(self, entry: Entry) -> Contents | None:
        """Return what an entry holds until a construct may change it, if that is known (`Entry.contents`)."""
        with self.lock:
            return entry.contents

    def forget(self) -> None:
        """Drop all mappings, as the device is closed."""
        for replicas in [*self.sets]:
            replicas.leave()
        self.table = PresentTable(self.device.number)

    # -- storage that no construct ends --------------------------------------------------------------
    def associate(self, item: MapItem, buffer: Any, called_at: Any = None) -> None:
        """Make a user's device array the corresponding storage of an item, until `disassociate`.

        ``called_at`` is where the program asks for that, for the report on what is left at the end.

        Raises
        ------
        MapError
            The item, or a part of it, has other corresponding storage, or its rows interleave.
        """
        with self.lock:
            entry = self._associated(item)
            if entry is None or self.device.section(entry.buffer) != self.device.section(buffer):
                self.table.insert(item, buffer, Origin.ASSOCIATED).mapped_at = called_at

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
        buffer = device.alloc((section.nbytes,), BYTE, stream)
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
