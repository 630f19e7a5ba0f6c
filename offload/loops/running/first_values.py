"""What ``firstprivate`` arrays hold at the call, where the loop writes to memory that they share.

Each iteration begins with a copy of its own, which it makes of the argument when it begins. As long as nobody writes to
the argument that is what it held at the call; where it shares memory with an array that the loop writes to, a copy of
the argument takes its place before the loop starts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from offload.loops.running.looks import after
from offload.loops.running.preparation import view_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.running.specialise import Specialisation
    from offload.runtime.launch import DeviceTask


def with_first_values(
    spec: Specialisation, values: Mapping[str, Any], task: DeviceTask | None = None
) -> Mapping[str, Any]:
    """Return the arguments of a call, with copies of such arrays; in a device task they are made on its stream."""
    first = [name for name, word in spec.own.items() if word == "firstprivate"]
    if not first:
        return values
    device = None if task is None else task.place.device
    views = {name: view_at(device, values[name]) for name in {*first, *spec.changed}}
    shared = [name for name in first if any(views[name].may_share(views[other]) for other in spec.changed)]
    return {**values, **{name: _copied(values[name], task) for name in shared}}


def _copied(array: Any, task: DeviceTask | None) -> Any:
    if task is None:
        return array.copy()
    device: Any = task.place.device
    stream: Any = task.lane.stream  # type: ignore[union-attr]  # the body has one
    copy = device.alloc(array.shape, array.dtype, stream)
    device.copy(copy, array, stream)  # between arrays of one device, which needs no thread
    task.leave(partial(after, copy))
    return copy
