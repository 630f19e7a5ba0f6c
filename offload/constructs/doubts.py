"""Warnings about constructs whose meaning is probably not the intended one, at the line of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.items import array_section, label
from offload.arrays.sections import Section, overlaps
from offload.data.associations import is_associated
from offload.errors import DirectiveWarning
from offload.interrupts.frames import warn
from offload.tasks.depend import DependType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.constructs.clauses.dependences import Dependence
    from offload.data.items import MapItem
    from offload.runtime.place import DevicePlace


def warn_of_writes(construct: str, dependences: Sequence[Dependence], written: Iterable[Any]) -> None:
    """Warn where a construct writes storage that its dependences name for reading only: nobody who reads it would wait.

    Parameters
    ----------
    construct : str
        Its name.
    dependences : sequence of Dependence
        As they are for this construct.
    written : iterable of arrays
        The arrays that it writes, of the host or a device.
    """
    for dependence in dependences:
        if dependence.type is DependType.IN:
            break
    else:  # a generator takes as long as all the rest of a clause
        return
    for array in written:
        if _is_named(dependences, array):
            continue  # mostly; to look for its section takes some times as long
        section = array_section(array)
        if _is_written(dependences, section):
            continue
        found = {dependence.type for dependence in dependences if _names(dependence, section)}
        if found == {DependType.IN}:
            warn(
                f"{construct} writes {label(array)}, but depend lists it as in_ only, so tasks that read it do not "
                "wait for this task; use out or inout",
                DirectiveWarning,
            )


def _is_named(dependences: Sequence[Dependence], array: Any) -> bool:
    """Tell whether a dependence names this very array, and not for reading only."""
    for dependence in dependences:
        if dependence.type is not DependType.IN:
            for item in dependence.items:
                if item is array:
                    return True
    return False


def _is_written(dependences: Sequence[Dependence], section: Section) -> bool:
    """Tell whether a dependence names just this storage, and not for reading only."""
    for dependence in dependences:
        if dependence.type is not DependType.IN and dependence.keys is not None and section in dependence.keys:
            return True
    return False


def _names(dependence: Dependence, section: Section) -> bool:
    keys: Any = dependence.keys
    return keys is None or any(isinstance(key, Section) and overlaps(key, section) for key in keys)


def warn_of_no_copy(construct: str, items: Iterable[MapItem], place: DevicePlace) -> None:
    """Warn where the end of a mapping is to copy storage back that is associated, which no construct ends."""
    for item in items:
        if item.map_type.copies_out and not item.always and is_associated(place, item):
            warn(
                f"{construct}(map from: {item.label}) copies nothing, because the array is associated on device "
                f"{place.device.number} (target_associate_ptr) and stays present; use target_update, or from_(…, "
                "always=True)",
                DirectiveWarning,
            )


def warn_of_no_write(item: MapItem, body: Any) -> None:
    """Warn where a region copies an array to the host of which its body wrote no element: the values are undefined."""
    code = getattr(body, "__code__", None)
    warn(
        f"{item.text()}: the body wrote no element, so the host receives uninitialised memory; assign to elements, "
        "for example y[...] = value (a section begins at index 0 in the body), or use tofrom (OpenACC: copy)",
        DirectiveWarning,
        f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "",
    )
