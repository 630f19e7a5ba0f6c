"""Loop functions of sanitized runtimes: their accesses are the elements that they touch.

A loop on a device is an operation of its stream. So are its marks (`offload.loops.running.touched`), which are made
just before it from the arrays' contents there. A loop on the host is marked on the thread that runs it. Of a loop on
several devices the parts are known that each device writes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.loops.running.touched import LoopTouches
from offload.sanitizer.elements import selected
from offload.sanitizer.mappings import DoneAt
from offload.tasks import hooked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offload.devices.streams import Lane
    from offload.loops.running.specialise import Specialisation
    from offload.loops.running.touched import Touched
    from offload.sanitizer.sanitizer import Sanitizer


def sanitizer_of(runtime: Any) -> Sanitizer | None:
    """Return the sanitizer of a runtime, if it has one."""
    return None if runtime not in hooked.orders or runtime.sanitized is None else runtime.sanitized.sanitizer


def note_on_device(spec: Specialisation, values: Mapping[str, Any], task: Any) -> None:
    """Note the accesses of a loop that is about to be enqueued in a device task."""
    sanitizer = sanitizer_of(task.construct.runtime)
    if sanitizer is None:
        return
    stretch = sanitizer.orders.of_copy(task)
    if any(isinstance(value, np.ndarray) for value in values.values()):  # it stays on the host
        _note_now(sanitizer, spec, values, task, stretch)
        return
    touches = _touches(spec, values, task.place.device)
    if touches is not None:
        task.lane.stream.lane.put(partial(_note, sanitizer, touches, task, stretch, on_device=True), ())


def note_on_host(spec: Specialisation, values: Mapping[str, Any], scope: Any) -> None:
    """Note the accesses of a loop that is about to run on the host."""
    sanitizer = sanitizer_of(scope.runtime)
    if sanitizer is not None:
        _note_now(sanitizer, spec, values, scope.task, sanitizer.orders.here())


def _note_now(sanitizer: Sanitizer, spec: Specialisation, values: Mapping[str, Any], task: Any, stretch: int) -> None:
    touches = _touches(spec, values, None)
    if touches is not None:
        _note(sanitizer, touches, task, stretch, on_device=False)


def _touches(spec: Specialisation, values: Mapping[str, Any], device: Any) -> LoopTouches | None:
    try:
        return LoopTouches(spec, values, device)
    except Exception:  # noqa: BLE001  # the call itself raises that next
        return None


def _note(sanitizer: Sanitizer, touches: LoopTouches, task: Any, stretch: int, *, on_device: bool) -> None:
    """Mark the elements, and give them to the sanitizer, the reads first."""
    with sanitizer.judging():
        found = touches.touched()
        sanitizer.accesses += 1
        for kind, writes in (("read", False), ("written", True)):
            for touched in found:
                arrays = _arrays_of(touched, kind)
                if arrays:
                    place = touched.lines[kind]
                    author = sanitizer.authors.of_line(task, place.file, place.line, writes=writes)
                    for array in arrays:
                        sanitizer.access(array, DoneAt(author, stretch), on_device=on_device)


def _arrays_of(touched: Touched, kind: str) -> Sequence[np.ndarray[Any, Any]]:
    mask = getattr(touched, kind)
    if mask is None or not mask.any():
        return ()
    array = touched.array.view(np.ndarray)
    return [array] if mask.all() else selected(array, mask)


def note_on_devices(task: Any, asked: Iterable[Any], sets: Sequence[Any], lanes: Mapping[Any, Lane]) -> None:
    """Note the parts that each device of a set writes in a nest that is about to be enqueued.

    ``lanes`` has the lanes by their devices.
    """
    sanitizer = sanitizer_of(task.construct.runtime)
    if sanitizer is None:
        return
    done = DoneAt(sanitizer.authors.of_task(task, "write", writes=True), sanitizer.orders.of_copy(task))
    for one in asked:
        if one.writes is None:
            continue
        replicas = sets[one.group]
        for number, place in enumerate(replicas.places):
            lane = lanes.get(place.device)
            boxes = (*one.writes.alone[number], *one.writes.everywhere)
            arrays = [replicas.view(number, box) for box in boxes]
            if lane is not None and arrays:
                lane.stream.lane.put(partial(_note_written, sanitizer, arrays, done), ())


def _note_written(sanitizer: Sanitizer, arrays: Sequence[Any], done: DoneAt) -> None:
    with sanitizer.judging():
        sanitizer.accesses += 1
        for array in arrays:
            sanitizer.access(array._storage, done, on_device=True)  # noqa: SLF001  # of a simulated device
