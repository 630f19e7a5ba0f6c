"""The list items of clauses that map or move data, evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offload.errors import MapError

if TYPE_CHECKING:
    from offload.arrays.sections import Section
    from offload.data.maptypes import MapType


@dataclass(slots=True, eq=False)
class MapItem:
    """One list item of a ``map`` clause, evaluated."""

    # The host bytes that it covers.
    section: Section
    # The host view: the address of the element ``(0, …, 0)``, elements, **bytes**, bytes.
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    # The effective type, from `offload.data.maptypes.resolve`.
    map_type: MapType
    # The modifiers.
    always: bool = False
    present: bool = False
    # What keeps the host memory alive; opaque here.
    host: object = None
    # For messages; as a string ``"x[0:50]"``.
    label: object = "the item"
    # The item is in no clause.
    implicit: bool = False
    # What messages call the clause; empty: ``map``, with the map type.
    clause: str = ""
    # Where it is not wholly present the item is ignored.
    if_present: bool = False
    # Storage that it makes begins with zeros.
    zeroes: bool = False
    # It is there for other items of its construct, which overlap: where a part of it is present it is ignored.
    is_room: bool = False

    def text(self, directive: str = "map") -> str:
        """Return the item as messages show it: in its clause, or in the directive that names its map type."""
        return f"{self.clause}({self.label})" if self.clause else f"{directive}({self.map_type.word}: {self.label})"


def check_writeable(item: MapItem) -> None:
    """Raise `MapError` if the array of an item that is to be copied back cannot be written any more."""
    host: Any = item.host
    if not host.flags.writeable:
        raise MapError(
            f"{item.label} cannot be copied back: the array is read-only now; "
            "make it writeable, or release it without a copy"
        )
