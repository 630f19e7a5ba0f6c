"""Device arrays that the program is given for host arrays: replicated ones are made current first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import Label, array_section, host_items, is_device_array
from offload.constructs.clauses.mapping import map_item
from offload.constructs.clauses.maps import as_tuple
from offload.constructs.clauses.names import refused_text
from offload.data.maptypes import MapType
from offload.errors import ClauseError
from offload.runtime.generate import generate
from offload.runtime.recipe import DeviceRecipe
from offload.runtime.sites import call_site
from offload.runtime.works import ExposeWork

if TYPE_CHECKING:
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace


def corresponding(scope: Scope, place: DevicePlace, host: Any) -> Any:
    """Return the device array that corresponds to a host array; None unless all of it is present.

    One that has replicas is made current here, and stale elsewhere: the program may write to it. *Blocks* until that
    is so.
    """
    if place.sets and host.size:
        item = map_item(host, MapType.ALLOC, Label(host))
        entry, _ = place.table.search(item.section, item)
        if entry is not None and entry.replicas is not None:
            site = call_site("get_mapped_ptr", scope.runtime)
            frame = scope.frame("get_mapped_ptr")
            generate(scope, frame, DeviceRecipe(site, place, ExposeWork(item)), (), wait=True)
    return place.corresponding(host)


def used_items(clause: str, value: Any) -> tuple[Any, ...]:
    """Return the list items of a ``use_device_*`` clause: arrays, of which a device array stands for itself."""
    items = as_tuple(value)
    for item in host_items(items):
        if isinstance(item, str):
            raise refused_text(clause, item)
        if not (isinstance(item, np.ndarray) or is_device_array(item)):
            raise ClauseError(
                f"{clause}: {type(item).__name__} {item!r:.60} is not an array; name arrays, views or section(…)"
            )
        array_section(item)  # refuses Python objects
    return items
