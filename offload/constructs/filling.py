"""Fills of memory: the meaning of the arguments of ``target_memset``, and its task."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import label
from offload.constructs.copying import (
    byte_range,
    bytes_of,
    check_side,
    check_writeable,
    encounter_copy,
    number_of_bytes,
)
from offload.errors import ClauseError
from offload.runtime.current import current_runtime, here
from offload.runtime.recipe import DeviceRecipe
from offload.runtime.sites import call_site
from offload.runtime.works import FillWork
from offload.tasks.recipe import Recipe

if TYPE_CHECKING:
    from offload.runtime.place import DevicePlace
    from offload.tasks.task import Task


def fill(directive: str, array: Any, value: int, depend: Any, *, deferred: bool, place: DevicePlace | None) -> Task:
    """Generate the task that sets every byte of an array of bytes, which is at this place.

    Raises
    ------
    ClauseError
        The array is read-only.
    """
    check_writeable(array.flags, array, directive)
    scope = here()
    site = call_site(directive, scope.runtime)
    recipe = Recipe(site, array.fill, (value,)) if place is None else DeviceRecipe(site, place, FillWork(array, value))
    return encounter_copy(scope, recipe, depend, deferred, array)


def span(d: Any, value: Any, nbytes: Any, device: Any) -> tuple[Any, int, DevicePlace | None]:
    """Return the bytes that ``target_memset`` sets, as an array of ``u1``, the value of each, and their place.

    Raises
    ------
    ClauseError
        An argument that means nothing, is out of range or contradicts another.
    """
    what = "target_memset"
    try:
        byte = index(value)
    except TypeError:
        byte = 256
    if not -128 <= byte < 256:
        raise ClauseError(f"{what}: value {value!r} is not a byte; use an int of 0 to 255, or -128 to -1")
    count = None if nbytes is None else number_of_bytes(nbytes, f"{what}: nbytes")
    if d is None:
        return np.empty(0, np.uint8), byte & 255, None
    d, place = check_side(current_runtime(), d, device, "device", what)
    _, whole = byte_range(d, 0, "d", what)
    if count is not None and count > whole:
        raise ClauseError(f"{what}: {count} bytes do not fit; {label(d)} has {whole}; fill fewer bytes")
    array = bytes_of(d, place, 0, whole if count is None else count)
    return array, byte & 255, place if whole else None
