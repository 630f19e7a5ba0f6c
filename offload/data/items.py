"""The list items of clauses that map or move data, evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.arrays.sections import Section
    from offload.data.maptypes import MapType


@dataclass(slots=True, eq=False)
class MapItem:
    """One list item of a ``map`` clause, evaluated.

    Attributes
    ----------
    section : Section
        The host bytes it covers.
    address, shape, strides, itemsize
        The host view: address of element ``(0, …, 0)``, elements, **bytes**, bytes.
    map_type : MapType
        The effective type, from `offload.data.maptypes.resolve`.
    always, present : bool
        The modifiers.
    host : object
        What keeps the host memory alive; opaque here.
    label : object
        For messages; as a string ``"x[0:50]"``.
    implicit : bool
        The item is in no clause.
    clause : str
        What messages call the clause; empty: ``map``, with the map type.
    if_present : bool
        Where it is not wholly present the item is ignored.
    zeroes : bool
        Storage that it makes begins with zeros.
    is_room : bool
        It is there for other items of its construct, which overlap: where a part of it is present it is ignored.
    """

    section: Section
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    map_type: MapType
    always: bool = False
    present: bool = False
    host: object = None
    label: object = "the item"
    implicit: bool = False
    clause: str = ""
    if_present: bool = False
    zeroes: bool = False
    is_room: bool = False

    def is_like(self, other: MapItem) -> bool:
        """Tell whether another item means the same storage, of the same array, and the same to be done with it."""
        return (
            self.host is other.host
            and self.map_type is other.map_type
            and self.section == other.section
            and self.address == other.address
            and self.shape == other.shape
            and self.strides == other.strides
            and self.itemsize == other.itemsize
            and self.label == other.label
            and (self.always, self.present, self.if_present, self.zeroes)
            == (other.always, other.present, other.if_present, other.zeroes)
        )

    def text(self, directive: str = "map") -> str:
        """Return the item as messages show it: in its clause, or in the directive that names its map type."""
        return f"{self.clause}({self.label})" if self.clause else f"{directive}({self.map_type.word}: {self.label})"


def are_alike(items: Sequence[MapItem], others: Sequence[MapItem]) -> bool:
    """Tell whether two constructs have the same items, in the same order."""
    if items is others:
        return True
    return len(items) == len(others) and all(item.is_like(other) for item, other in zip(items, others, strict=True))
