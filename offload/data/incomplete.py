"""Arrays of an update that are present in part: OpenMP leaves the result open, and a copy of the rest has no source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.errors import DirectiveWarning
from offload.interrupts.frames import warn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.data.entries import Entry
    from offload.data.items import MapItem
    from offload.data.plans import ItemCopy


def warn_of_parts(partial: Iterable[ItemCopy], device_num: int) -> None:
    """Warn about items of an update that are not copied, each with the entry of the part that is present."""
    for item, entry in partial:
        warn(
            f"{item.text('target_update')} copies nothing, because only {_part(item, entry)} is present on device "
            f"{device_num}; update that part, map all of the array, or use present=True for an error",
            DirectiveWarning,
        )


def _part(item: MapItem, entry: Entry) -> str:
    """Return the text of the part of an item that an entry holds: rows of the item, if it is that, and the label."""
    host: Any = item.host
    begin, n_bytes = entry.section.address - item.section.address, entry.section.nbytes
    if not (host.flags.c_contiguous and host.ndim) or entry.section.dims or begin < 0:
        return str(entry.label)
    row_nbytes = host.strides[0]
    if begin % row_nbytes or n_bytes % row_nbytes or begin + n_bytes > host.nbytes:
        return str(entry.label)
    return f"its part [{begin // row_nbytes}:{(begin + n_bytes) // row_nbytes}] ({entry.label})"
