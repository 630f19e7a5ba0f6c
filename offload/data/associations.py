"""Storage that no construct ends: declared arrays, and device arrays that a user has associated with the host's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.items import array_section, label
from offload.data.declarations import declarations
from offload.data.entries import Origin
from offload.data.environment import BYTE
from offload.data.items import MapItem
from offload.data.maptypes import MapType
from offload.errors import MapError

if TYPE_CHECKING:
    from offload.arrays.sections import Section
    from offload.data.entries import Entry
    from offload.data.environment import DataEnvironment


def associate(place: DataEnvironment, item: MapItem, buffer: Any, called_at: Any = None) -> None:
    """Make a user's device array the corresponding storage of an item, until `disassociate`.

    ``called_at`` is the program's call, for the report on mappings left at the end.

    Raises
    ------
    MapError
        The item, or a part of it, has other corresponding storage, or its rows interleave.
    """
    device = place.device
    with place.lock:
        entry = _associated(place, item)
        if entry is None or device.section(entry.buffer) != device.section(buffer):
            place.table.insert(item, buffer, Origin.ASSOCIATED).mapped_at = called_at


def disassociate(place: DataEnvironment, item: MapItem) -> None:
    """Undo `associate`, and wait for work that has been enqueued with the array.

    Raises
    ------
    MapError
        The item was not associated, or a structured region still holds it.
    """
    number = place.device.number
    with place.lock:
        entry = _associated(place, item)
        if entry is None:
            raise MapError(
                f"{item.label} is not associated on device {number}; pass the array that you passed to "
                "target_associate_ptr"
            )
        if entry.structured:
            raise MapError(
                f"{item.label} is still held by {entry.structured} regions on device {number}; disassociate it after "
                "they end"
            )
        # The array is the program's again when this returns, so that what uses it is waited for.
        points = place.ledger.acquire(ended=(entry,))
        place.table.discard(entry)
    for point in points:
        event = point.event
        if event is not None:
            event.synchronize()


def is_associated(place: DataEnvironment, item: MapItem) -> bool:
    """Tell whether the storage that corresponds to an item is, or lies in, a user's device array."""
    with place.lock:
        entry, _ = place.table.search(item.section)
    return entry is not None and entry.origin is Origin.ASSOCIATED


def take_declared(place: DataEnvironment) -> None:
    """Give storage to the arrays of `declare_target`, with the host's present values; wait for the copies.

    An array that another mapping holds is left for a later call.

    Raises
    ------
    DeviceMemoryError
        Some arrays have no storage yet; the next call tries again.
    """
    with place.lock:
        version, is_done = declarations.version, True
        for array in declarations.arrays():
            section = array_section(array)
            entry, other = place.table.search(section)
            if entry is None and other is None:
                _declare(place, array, section)
            elif entry is None or entry.origin is Origin.MAPPED:
                is_done = False
        if is_done:
            place.declared = version


def _declare(place: DataEnvironment, array: Any, section: Section) -> None:
    device = place.device
    stream = device.new_stream()  # nothing of the program can hold it up
    address = array.__array_interface__["data"][0]
    text = label(array)
    item = MapItem(section, address, array.shape, array.strides, array.itemsize, MapType.TO, host=array, label=text)
    buffer = device.alloc((section.nbytes,), BYTE, stream)
    entry = place.table.insert(item, buffer, Origin.DECLARED)
    try:
        to = place.view(entry, array)
        copy = device.copy(to, array, stream)
        place.calls.copy(to, array, device.number, None, None)
        if copy is not None:
            copy.run()
        stream.synchronize()
    except BaseException:
        # Its storage holds nothing yet: nobody may find it.
        place.table.discard(entry)
        raise


def _associated(place: DataEnvironment, item: MapItem) -> Entry | None:
    entry = place.table.at(item.section)
    return entry if entry is not None and entry.origin is Origin.ASSOCIATED else None
