"""The memory of constructs that have found everything present, for calls with the same arrays.

`PresentTable.remembered` keeps it until an entry goes. Until then the same items are in the same entries, and the
results for them hold as long as the arrays have the same layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.items import address_cell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.data.items import MapItem


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
