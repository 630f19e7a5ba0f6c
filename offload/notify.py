"""What a runtime does, line by line on stderr: ``OFFLOAD_NOTIFY``, as ``NVCOMPILER_ACC_NOTIFY`` of other compilers.

A level each includes those below it:

1. *Launches*: each target or compute region whose body is launched on a device, once what it maps is on its way, and
   each replay that is one graph of the device. Regions on the host launch nothing.
2. *Transfers*: each copy between the host and a device, or two devices, where it is enqueued, with its bytes. Those
   inside of a graph are the graph's.
3. *Waits* that the program asks the host to make: ``acc.wait``, a ``wait`` clause without ``async_``, `taskwait`,
   `barrier`, the end of `taskgroup`. Not those of a construct for itself, nor of one stream for another.

A line is written in one call, so that those of several threads do not mix. Where a region stands is where its function
does; ``queue`` is there for operations of an async queue.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.frames import caller
from offload.items import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.devices.base import Device
    from offload.devices.streams import Lane
    from offload.launch import DevicePlace, DeviceTask
    from offload.queues import Queue

_GRAPH = "taskgraph"
"""The directive of a task without a body that launches a graph."""


class Notifier:
    """Writes the lines of one runtime.

    Parameters
    ----------
    level : int
        1 to 3.
    places : sequence of DevicePlace
        The devices of the runtime.
    """

    __slots__ = ("_level", "_places")

    def __init__(self, level: int, places: Sequence[DevicePlace]) -> None:
        self._level = level
        self._places = places

    def launch(self, task: DeviceTask) -> None:
        """Tell of a device task that is being launched, if it has a body or is a graph."""
        site = task.construct
        if task.body is None and site.directive != _GRAPH:
            return
        queue = () if task.queue is None else (task.queue,)
        _write(f"launch {site.directive} {task.name}{_at(site.location)}{_on(task.device_num, queue)}")

    def copy(self, dst: Any, src: Any, device: Device, lane: Lane | None, text: object) -> None:
        """Tell of a copy that a device has been given, on a lane or aside; ``text`` is what its list item is called."""
        if self._level < 2:  # transfers
            return
        is_upload, is_download = isinstance(src, np.ndarray), isinstance(dst, np.ndarray)
        word = "upload" if is_upload else "download" if is_download else "copy"
        array = src if is_upload else dst
        what = label(array)
        if text:
            what = f"{text}: {what}" if isinstance(text, str) else str(text)
        queue = f" queue={lane.number}" if lane is not None and lane.of_queue else ""
        source = "" if is_upload or is_download else f" from={self._number_of(src)}"
        _write(f"{word} {what} bytes={array.nbytes} device={device.number}{source}{queue}")

    def wait(self, what: str, queues: Sequence[Queue] = ()) -> None:
        """Tell that the program waits, for the tasks of these queues or for what ``what`` says."""
        if self._level < 3:  # waits
            return
        place = queues[0].place if queues else None
        number = None if place is None else place.device.number
        what = what.removeprefix("the ").removeprefix("wait ")  # the wait clause
        _write(f"wait {what}{_at(_here())}{_on(number, queues)}")

    def _number_of(self, array: Any) -> int | None:
        return next((place.device.number for place in self._places if place.device.is_array(array)), None)


def notifier(level: int, places: Sequence[DevicePlace]) -> Notifier | None:
    """Return what tells of everything on some devices, which have it from now on; None at level 0."""
    if not level:
        return None
    made = Notifier(level, places)
    for place in places:
        place.notify = made
    return made


def _at(location: str) -> str:
    path, colon, line = location.rpartition(":")
    return f" file={path} line={line}" if colon else ""


def _on(number: int | None, queues: Sequence[Queue]) -> str:
    device = "" if number is None else f" device={number}"
    return device + (f" queue={','.join(str(queue.number) for queue in queues)}" if queues else "")


def _here() -> str:
    """Return the line of the program that is being run."""
    frame = caller()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _write(line: str) -> None:
    stream = sys.stderr
    if stream is not None:
        with suppress(OSError, ValueError):  # a stream that is closed: the program goes on
            stream.write(f"{line}\n")
