"""The data of a runtime on its devices: the report at the end, and the labels of data that a device takes along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.data.entries import Origin
from offload.tasks.site import line_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.runtime.place import DevicePlace


def leftovers(places: Sequence[DevicePlace], allocated: Iterable[tuple[Any, str, Any]]) -> list[str]:
    """Return the mappings and the blocks of ``target_alloc`` that nobody has ended, but not those on lost devices."""
    lost = [place for place in places if getattr(place.device, "is_lost", False)]
    left = []
    for place in places:
        if place in lost:
            continue  # the data has gone with it
        left += [
            f"{entry.label} {entry.origin.value} on device {place.device.number} "
            f"({entry.nbytes:,} bytes, count {entry.count})"
            + (f" at {line_of(entry.mapped_at)}" if entry.mapped_at is not None else "")
            for entry in place.table.entries()
            if entry.origin is not Origin.DECLARED
        ]
    return left + [
        f"{what} from target_alloc at {line_of(call)}"
        for array, what, call in allocated
        if not any(place.device.is_array(array) for place in lost)
    ]


def labels_at(place: DevicePlace, allocated: Iterable[tuple[Any, str, Any]]) -> list[str]:
    """Return the mappings and the blocks of ``target_alloc`` at a place."""
    labels = [f"{entry.label} ({entry.nbytes:,} bytes, count {entry.count})" for entry in place.table.entries()]
    return labels + [f"{what} ({array.nbytes:,} bytes)" for array, what, _ in allocated if place.device.is_array(array)]
