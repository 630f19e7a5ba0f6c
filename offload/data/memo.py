"""What is remembered of constructs that have found everything present, for calls with the same arrays.

`PresentTable.remembered` keeps it until an entry goes. Until then the same items are in the same entries, and what has
been made of them holds as long as the arrays are laid out as they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.items import address_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from offload.arrays.sections import Section
    from offload.data.entries import Entry
    from offload.data.items import MapItem
    from offload.devices.base import Device

    KnownCopy: TypeAlias = tuple[MapItem, Entry, Any, Any, Any]


class Layouts:
    """The layouts of the arrays of items, as the items have them, and their dtypes."""

    __slots__ = ("_layouts",)

    def __init__(self, items: Iterable[MapItem]) -> None:
        self._layouts = []
        for item in items:
            host: Any = item.host
            # The address as NumPy has it in the array: an array may be moved in place (`resize`).
            cell = address_cell(host)
            is_written = item.map_type.copies_out
            self._layouts.append((cell, item.address, host, item.shape, item.strides, host.dtype, is_written))

    def are_current(self) -> bool:
        """Tell whether the arrays have the layout that they had, and can be written where they have to."""
        for cell, address, host, shape, strides, dtype, is_written in self._layouts:
            # Shape, strides and dtype may be set in place, and the array may be write-protected.
            if (
                cell.value != address
                or host.shape != shape
                or host.strides != strides
                or host.dtype is not dtype
                or (is_written and not host.flags.writeable)
            ):
                return False
        return True


class KnownUpdate:
    """An update that has found all of its items present, for updates of the same items while no entry goes."""

    __slots__ = ("copies", "held", "items", "layouts", "outgoing", "reads", "repeats", "writes")

    def __init__(
        self, items: Sequence[MapItem], copies: Sequence[tuple[MapItem, Entry]], views: Sequence[Any], device: Device
    ) -> None:
        self.items = items
        # Those of which the host's array is written.
        self.outgoing = [item for item in items if item.map_type.copies_out]
        # What enqueues each copy on a stream; None where one of them has to be looked at each time (`Device.repeat`).
        self.repeats: list[Callable[[Any], object]] | None = []
        self.layouts = Layouts(items)
        # What is copied, with the device array of each item, and the dtype and shape that the host's had.
        self.copies: list[KnownCopy] = []
        # The parts that are copied from, and copied to.
        self.reads: list[tuple[Entry, Section]] = []
        self.writes: list[tuple[Entry, Section]] = []
        for (item, entry), view in zip(copies, views, strict=True):
            host: Any = item.host
            self.copies.append((item, entry, view, host.dtype, host.shape))
            copies_in = item.map_type.copies_in
            (self.writes if copies_in else self.reads).append((entry, item.section))
            repeat = device.repeat(view, host) if copies_in else device.repeat(host, view)
            if repeat is None or self.repeats is None:
                self.repeats = None
            else:
                self.repeats.append(repeat)
        # What must live until the copies are done.
        self.held: list[object] = [entry.buffer for _, entry in copies] + [item.host for item in items]

    def forget(self) -> None:
        """Refer to entries no more: what has gone keeps this until nobody holds a lock."""
        self.copies, self.reads, self.writes, self.held, self.repeats = [], [], [], [], None
