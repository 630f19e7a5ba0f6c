"""Whether the items of a construct on several devices are, or can become, replica sets of these devices.

Theory of operation
-------------------
All devices have to agree about an item. Either no part of it is present, so that it gets an entry on each. Or all of it
is present in the entries of one set of just these devices, in any order. A loop's arrays may also be present on the
primary alone, in an entry that is in no set: that one joins, and the others get a mirror of all of it. In any other
case an array would have two states, or a replica that is not kept current. That is refused before anything changes.

If only ``OFFLOAD_LOOP_DEVICES`` has named the devices, such an item is the primary's alone, as without the variable:
declared and associated storage, and items that routines have mapped. Only a set of other devices is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.arrays.items import address_of
from offload.data.items import MapItem
from offload.data.maptypes import MapType
from offload.data.replicas import numbers_of
from offload.errors import MapError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.data.entries import Entry
    from offload.data.protocols import AnyEnvironment
    from offload.data.replicas import ReplicaSet


class Sorted(NamedTuple):
    """The items of a construct by their membership."""

    # Entries of the primary that join sets, each once.
    joining: list[Entry]
    # The numbers of items that are the primary's alone.
    alone: set[int]

    def others(self, items: Sequence[MapItem]) -> list[MapItem]:
        """Return the items that are for the other devices too."""
        return [item for number, item in enumerate(items) if number not in self.alone] if self.alone else [*items]


def sort_items(
    places: Sequence[AnyEnvironment],
    items: Sequence[MapItem],
    *,
    adopts: bool = False,
    is_default: bool = False,
    directive: str = "map",
) -> Sorted:
    """Look up the present parts of the items of a construct; under the locks of all places.

    Parameters
    ----------
    adopts : bool
        Items present on the primary alone join a set.
    is_default : bool
        The construct does not name the devices itself.
    directive : str
        For messages.

    Raises
    ------
    MapError
        An item is in no set of these devices, and cannot be.
    """
    found = Sorted([], set())
    for number, item in enumerate(items):
        if not item.section.run_nbytes:
            continue
        entries, others = _search(places, item)
        if entries is None:
            continue
        first = entries[0]
        # What is present elsewhere too, or in part, would have two states for one array.
        if adopts and first is not None and first.replicas is None and not any(entries[1:]) and not any(others):
            if first not in found.joining:
                found.joining.append(first)
        elif is_default and not any(entry.replicas for entry in (*entries, *others) if entry is not None):
            found.alone.add(number)
        else:
            raise MapError(_refusal(places, item, entries, others, directive))
    return found


def set_of(places: Sequence[AnyEnvironment], entries: Sequence[Entry | None]) -> ReplicaSet | None:
    """Return the set of these places, in any order, which all entries are in; None where there is none."""
    first = entries[0]
    replicas: ReplicaSet | None = None if first is None else first.replicas
    if replicas is None or len(replicas.places) != len(places):
        return None
    is_same = all(entry is not None and entry.replicas is replicas for entry in entries)
    return replicas if is_same and set(replicas.places) == set(places) else None


def mirror_of(entry: Entry) -> MapItem:
    """Return an item for all of an entry, without a copy."""
    host: Any = entry.host
    return MapItem(
        entry.section, address_of(host), host.shape, host.strides, host.itemsize, MapType.ALLOC, host=host,
        label=entry.label,
    )  # fmt: skip


def without_copies(item: MapItem) -> MapItem:
    """Return an item as it is mapped inside of a mirror."""
    return replace(item, map_type=MapType.ALLOC, always=False, present=False, zeroes=False)


def _search(places: Sequence[AnyEnvironment], item: MapItem) -> tuple[list[Entry | None] | None, list[Entry | None]]:
    """Return the entry that holds an item on each device, and the one that holds a part; None first if all agree.

    The present tables judge an item present in part on all of them, in a set, as on one device.
    """
    found = [place.table.search(item.section, item) for place in places]
    entries, others = [entry for entry, _ in found], [other for _, other in found]
    if not any(entries) and (not any(others) or set_of(places, others) is not None):
        return None, others
    return None if set_of(places, entries) is not None else entries, others


def _refusal(
    places: Sequence[AnyEnvironment],
    item: MapItem,
    entries: Sequence[Entry | None],
    others: Sequence[Entry | None],
    directive: str,
) -> str:
    what, wanted = item.text(directive), f"devices=[{numbers_of(places)}]"
    for replicas in [entry.replicas for entry in (*entries, *others) if entry is not None and entry.replicas]:
        if set(replicas.places) != set(places):
            return f"{what} has a replica on each of devices {replicas.devices}, not of {wanted}; name the same devices"
    for place, other in zip(places, others, strict=True):
        if other is not None:
            return (
                f"{what} is present in part on device {place.device.number} ({other.label}), and would have a replica "
                f"on each of {wanted}; exit that mapping first or map all of it with devices="
            )
    there = [place for place, entry in zip(places, entries, strict=True) if entry is not None]
    return (
        f"{what} is present on device{'s'[: len(there) > 1]} {numbers_of(there)} by a construct without devices=, and "
        f"would have a replica on each of {wanted}; exit that mapping first, or give it the same devices="
    )
