"""Arguments of a target function besides host arrays and scalars, as far as the construct needs them before it maps.

For device arrays it needs the device: a region without a ``device`` clause runs there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.items import is_device_array, is_foreign
from offload.constructs.clauses.binding import is_at
from offload.constructs.clauses.dependences import Dependence
from offload.errors import ClauseError, UsageError
from offload.runtime.current import here
from offload.tasks.depend import DependType

if TYPE_CHECKING:
    from offload.constructs.clauses.binding import Slot
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.tasks.values import Values


def device_of(runtime: Runtime, passed: list[tuple[Slot, Any]], what: str) -> int | None:
    """Return the number of the device that the device arrays among arguments are on; None if there are none.

    Raises
    ------
    ClauseError
        They are on several devices of the runtime.
    """
    first: tuple[Slot, int] | None = None
    for slot, value in passed:
        place = _place_of(runtime, value)
        if place is None:
            continue
        number = place.device.number
        if first is None:
            first = slot, number
        elif first[1] != number:
            raise ClauseError(
                f"{what}: argument {first[0]} is a device array of device {first[1]}, and argument {slot} one of "
                f"device {number}, but a region runs on one device; copy one of them with target_memcpy, or copy both "
                "to the device that device= names"
            )
    return None if first is None else first[1]


def _place_of(runtime: Runtime, value: Any) -> DevicePlace | None:
    """Return the place of a device array, of another library's too; None for anything else."""
    place = runtime.place_of(value)
    if place is not None or not (is_device_array(value) or is_foreign(value)):
        return place
    return next((place for place in runtime.places if is_at(place, value)), None)


def dependence_on(values: Values) -> Dependence:
    """Return the dependence on the tasks.

    Raises
    ------
    UnsupportedError, UsageError
        As where ``depend`` names a task that a graph does not have, or that was only recorded. Besides, for the
        task that encounters the construct and those around it: a wait for the new task there would never end, and most
        of them do wait.
    """
    running = here().task
    while running is not None:
        if running in values.tasks:
            slot = values.slots[values.tasks.index(running)]
            raise UsageError(
                f"argument {slot} is {running.key}, the task that encounters this construct or an enclosing task, so "
                "it has no value yet; to pass the task itself, put it in a list, or use depend=[in_(…)] and call its "
                "result() in the body"
            )
        running = running.frame.task
    return Dependence(DependType.IN, tuple(dict.fromkeys(values.tasks))).resolved({})
