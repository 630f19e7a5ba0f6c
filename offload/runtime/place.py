"""The place of a device: where its tasks are launched, its streams, and its data environment."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from offload.data.environment import DataEnvironment
from offload.devices.streams import Lane, StreamPool
from offload.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.devices.base import Device
    from offload.tasks.protocols import Runner
    from offload.tasks.task import Task

initial_device = -1
"""The host's device number, besides ``get_initial_device()``."""

invalid_device = -2
"""A device number that never exists."""

PER_THREAD_STREAM = 2
"""A handle that stands for another stream in each thread: CUDA's ``cudaStreamPerThread``."""

_RETRIES = 16
"""Launches to try again when a task ends: few, or a thousand that wait for memory would be tried a million times."""


class DevicePlace(DataEnvironment):
    """One device of a runtime: its data environment, its lanes and the tasks in flight.

    Attributes
    ----------
    kept : dict
        Objects that other parts of the package keep in the device's memory, by their names; dropped when the device is
        closed.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.pool = StreamPool(device)
        self.user_pool = StreamPool(device)  # what users enqueue by themselves never holds up a task
        self.in_flight: set[Task] = set()
        self.kept: dict[str, Any] = {}
        self.ended = 0  # launches that have ended, well or not: what a failed launch compares
        self.waiting: deque[Task] = deque()
        self._adopted: WeakValueDictionary[Any, Lane] = WeakValueDictionary()

    # -- lanes and life ------------------------------------------------------------------------------
    def lane_of(self, stream: Any) -> Lane:
        """Return the lane of a stream of the device, which may be a user's own."""
        native = self.device.adopt(stream)
        key = getattr(native, "ptr", id(native))
        if key == PER_THREAD_STREAM:
            key = key, threading.get_ident()
        with self.lock:
            lane = self._adopted.get(key)
            if lane is None:
                known = (*self.pool.lanes, *self.user_pool.lanes)
                lane = next((lane for lane in known if getattr(lane.stream, "ptr", id(lane.stream)) == key), None)
            if lane is None:
                lane = self._adopted[key] = Lane(self.device, native, -1)
            return lane

    def attend(self, labels: Callable[[], Sequence[str]]) -> None:
        """Have a device that may be lost and recovered know what it holds, and that it is to be forgotten then."""
        if self.plans:
            self.device.attend(labels, self.forget)  # type: ignore[attr-defined]  # it plans

    def abandon(self) -> None:
        """Close a device of another process although tasks are under way there: nobody waits for them."""
        if self.plans:
            self.device.close()

    def refuse_streams(self, what: str) -> None:
        """Raise `UnsupportedError` if the streams of the device are in another process."""
        if self.plans:
            raise UnsupportedError(
                f"{what}: the streams of {self.device.name} are in a worker's process; call current_stream() in the "
                "body of a target region, and order tasks by depend"
            )

    def stream_of_queue(self, number: int) -> Any:
        """Return the stream that a queue shares with others, by its number."""
        return self.user_pool.numbered(number).stream

    def close(self) -> None:
        """Close the device; remaining mappings go with it."""
        self.device.close()
        self.kept.clear()
        self.forget()
        self._adopted.clear()
        self.pool.close()
        self.user_pool.close()

    # -- launches that wait for something ------------------------------------------------------------
    def put_off(self, task: Task) -> bool:
        """Try the launch again when a task in flight ends; return false if none is in flight."""
        self.waiting.append(task)
        for other in self.in_flight.copy():
            other.watch()
        if self.in_flight:
            return True
        try:
            self.waiting.remove(task)
        except ValueError:
            return True  # somebody completed meanwhile and took it
        return False

    def retry(self, engine: Runner[Task]) -> None:
        """Try launches that were put off once more: the next few, or all if nothing is in flight."""
        if not self.waiting:
            return
        for _ in range(min(len(self.waiting), _RETRIES) if self.in_flight else len(self.waiting)):
            try:
                task = self.waiting.popleft()
            except IndexError:
                return
            engine.make_ready(task)
