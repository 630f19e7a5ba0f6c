"""Device tasks: how work gets onto a stream, and what is remembered of it until it has passed.

A `DevicePlace` is one device with what the runtime keeps for it: its data environment, lanes, the tasks in
flight. A `DeviceTask` is *launched* when all its work has been put on a lane, and *complete* when the gate says
that the lane has got there. Tasks on devices that depend on it start in stream order once it is launched.

A launch that finds no memory, no lane, or storage whose copy-in is just being enqueued by another thread, is
put off until some task in flight completes; only when nothing is in flight is there an error. Buffers of
removed mappings go back when the task that removed them is complete, so that no stream can still use them.
"""

from __future__ import annotations

import gc
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from offload.devices.streams import Lane, Point, StreamPool
from offload.environment import DataEnvironment, PutOffError
from offload.errors import DeviceLostError, DeviceMemoryError
from offload.interrupts import ends_body
from offload.tasks.failures import note_task, without_engine_frames
from offload.tasks.task import Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.devices.base import Device
    from offload.tasks.engine import Engine
    from offload.tasks.region import Frame, Site
    from offload.tasks.scope import Scope

_RETRIES = 16
"""Launches to try again when a task ends: few, or a thousand that wait for memory would be tried a million times."""


class DevicePlace(DataEnvironment):
    """One device of a runtime: its data environment, its lanes and what is in flight."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.pool = StreamPool(device)
        self.user_pool = StreamPool(device)  # what users enqueue by themselves never holds up a task
        self.in_flight: set[DeviceTask] = set()
        self.ended = 0  # launches that have ended, well or not: what a failed launch compares
        self._put_off: deque[DeviceTask] = deque()
        self._adopted: WeakValueDictionary[int, Lane] = WeakValueDictionary()

    # -- lanes and life ------------------------------------------------------------------------------
    def lane_of(self, stream: Any) -> Lane:
        """Return the lane of a stream of the device, which may be a user's own."""
        native = self.device.adopt(stream)
        key = getattr(native, "ptr", id(native))
        with self._lock:
            lane = self._adopted.get(key)
            if lane is None:
                known = (*self.pool.lanes, *self.user_pool.lanes)
                lane = next((lane for lane in known if getattr(lane.stream, "ptr", id(lane.stream)) == key), None)
            if lane is None:
                lane = self._adopted[key] = Lane(self.device, native, -1)
            return lane

    def close(self) -> None:
        """Close the device; what is still mapped goes with it."""
        self.forget()
        self._adopted.clear()
        self.device.close()

    # -- launches that wait for something ------------------------------------------------------------
    def put_off(self, task: DeviceTask) -> bool:
        """Try the launch again when a task in flight ends; return false if none is in flight."""
        self._put_off.append(task)
        for other in self.in_flight.copy():
            other.watch()
        if self.in_flight:
            return True
        try:
            self._put_off.remove(task)
        except ValueError:
            return True  # somebody completed meanwhile and took it
        return False

    def retry(self, engine: Engine) -> None:
        """Try launches that were put off once more: the next few, or all if nothing is in flight."""
        for _ in range(min(len(self._put_off), _RETRIES) if self.in_flight else len(self._put_off)):
            try:
                task = self._put_off.popleft()
            except IndexError:
                return
            engine.make_ready(task)


class DeviceTask(Task):
    """A task whose work goes to a stream of a device.

    ``work`` says what that is: ``begin`` enqueues what comes before the body, ``run`` is the body (or None), ``end``
    enqueues what comes after, ``abort`` takes ``begin`` back.
    """

    __slots__ = ("_collects", "_held", "_is_watched", "after", "end", "lane", "launches_inline", "place", "work")

    waits_in_stream_order = True

    def __init__(self, site: Site, frame: Frame, label: str | None, place: DevicePlace, work: Any) -> None:
        super().__init__(site, work.run, (), None, frame)
        self.special = True
        self.label = label
        self.early = []
        self.place = place
        self.work = work
        self.lane: Lane | None = None
        self.end: Point | None = None
        self.after: Any = place.device.caller_event() if work.takes_device_arrays else None
        self._held: list[object] | None = None
        self._is_watched = False
        self._collects = True
        self.ends_region = getattr(work, "ends_region", False)
        device = place.device
        self.launches_inline = not (device.bodies_block and work.run is not None) and all(
            map(device.copies_async, work.hosts())
        )

    @property
    def device_num(self) -> int:
        return self.place.device.number

    @property
    def device_kind(self) -> str:
        return self.place.device.kind

    @property
    def point(self) -> Any:
        return self.end

    def orders(self, successor: Task) -> bool:
        return self.place.device.kind == successor.device_kind

    def watch(self) -> None:
        self._is_watched = True
        if self.launched:
            self.construct.runtime.gate.watch(self)

    # -- launching -----------------------------------------------------------------------------------
    def advance(self, engine: Engine, scope: Scope) -> Task | None:
        """Launch, or run the body if the stream has been waited for."""
        if self.lane is None:
            if engine.hinders(self):
                return None
            try:
                if not self._begin():
                    return None
            except BaseException as error:  # noqa: BLE001  # kept for whoever waits
                note_task(error, self)
                self._fail_unlaunched(engine, without_engine_frames(error))
                return None
        return self._finish_launch(engine, self._run_body(scope))

    def _begin(self) -> bool:
        """Take a lane and enqueue what comes before the body; return whether the body may run now."""
        place = self.place
        device = place.device
        points = [other.point for other in self.predecessors or () if not other.finished and other.point is not None]
        lane = place.pool.acquire(reversed(points))
        if lane is None:
            return self._put_off()
        place.in_flight.add(self)
        ended = place.ended
        if self.run is not None:
            self._is_watched = True  # a recorded task shows when it was complete
        try:
            lane.wait_for(points)
            if self.after is not None:
                device.wait_event(lane.stream, self.after)
            self.work.begin(place, lane)
        except BaseException as error:
            place.in_flight.discard(self)
            place.pool.release(lane)
            if isinstance(error, PutOffError) or (isinstance(error, DeviceMemoryError) and place.in_flight):
                return self._put_off()
            if isinstance(error, DeviceMemoryError) and self._may_find_memory(ended):
                self.construct.runtime.engine.make_ready(self)
                return False
            raise
        self.lane = lane
        if self.body is not None and device.bodies_block and not _is_idle(lane):
            point = lane.mark()
            self.construct.runtime.gate.add(lane, point.sequence, point.event, _Reached(self), watched=True)
            return False
        return True

    def _may_find_memory(self, ended: int) -> bool:
        """Tell whether another try is worth it: something has ended since, or garbage has just been collected."""
        if self.place.ended != ended:
            return True
        collects, self._collects = self._collects, False
        if collects:
            gc.collect()  # a failure that a user still holds refers to the arrays of its body
        return collects

    def _put_off(self) -> bool:
        """Launch when something in flight has completed, or at once if nothing is."""
        if not self.place.put_off(self):
            self.construct.runtime.engine.make_ready(self)
        return False

    def _run_body(self, scope: Scope) -> BaseException | None:
        body = self.body
        if body is None or self.failure is not None:
            return self.failure
        lane = self.lane
        device = self.place.device
        outer = scope.task, scope.region, scope.device, scope.lane
        scope.task, scope.region, scope.device, scope.lane = self, None, device, lane
        self.state_ = TaskState.RUNNING
        try:
            with device.using(lane.stream):  # type: ignore[union-attr]  # launched on a lane
                try:
                    scope.in_body = True
                    self.value = body()
                finally:
                    scope.in_body = False
        except BaseException as error:  # noqa: BLE001  # kept for whoever waits
            return self._noted(error)
        finally:
            scope.task, scope.region, scope.device, scope.lane = outer
        return None

    def _noted(self, error: BaseException) -> BaseException:
        """Return the failure of a body: its own, or that of the device if earlier work there lost it."""
        try:
            self.place.device.check(self.lane.stream)  # type: ignore[union-attr]  # launched on a lane
        except DeviceLostError as lost:
            if not isinstance(error, DeviceLostError):
                lost.__cause__ = error
                error = lost
        if self.owner is None and ends_body(error):  # else the owner raises the failure
            self.seen = True  # the wait that runs the body raises it
        note_task(error, self)
        return without_engine_frames(error)

    def _finish_launch(self, engine: Engine, failure: BaseException | None) -> Task | None:
        place, lane = self.place, self.lane
        if lane is None:
            return None
        leave = self.work.end if failure is None else self.work.abort
        try:
            self._held = leave(place, lane)
        except BaseException as error:  # noqa: BLE001  # kept for whoever waits
            if failure is None:
                failure = error
                note_task(error, self)
            else:
                failure.add_note(f"then, while its mappings were released: {error}")
        del leave  # it holds the work, and with that device memory
        if failure is not None:
            self.value = None
            self.failure = failure
        self.state_ = TaskState.LAUNCHED
        try:
            self.end = lane.mark()
        except DeviceLostError as error:
            place.pool.release(lane)
            self.passed(error)
            return None
        self.launched = True
        gate = self.construct.runtime.gate
        watched = self._is_watched or bool(self.successors) or self.owner is not None
        gate.add(lane, self.end.sequence, self.end.event, self, watched=watched)
        if self._is_watched and not watched:
            gate.watch(self)  # `watch` came before the gate knew this task
        place.pool.release(lane)  # not before: the gate has the items of a lane in the lane's order
        return engine.release_early(self)

    def _fail_unlaunched(self, engine: Engine, error: BaseException) -> None:
        self.work = self.after = None
        engine.end_in_turn(self, error, TaskState.FAILED)
        self.place.ended += 1
        self.place.retry(engine)

    def passed(self, error: BaseException | None) -> None:
        """Complete: the lane has got to the end of this task, or never will."""
        failure = self.failure
        if error is not None and failure is None:
            failure = DeviceLostError(f"{self.key}: {error}")
            failure.__cause__ = error.__cause__ or error
            note_task(failure, self)
            self.value = None
        self._held = self.work = self.after = self.body = None  # before others are told that there is memory again
        place = self.place
        engine = self.construct.runtime.engine
        if self.end is not None:
            place.arrived(self.end)
        place.ended += 1
        place.in_flight.discard(self)
        engine.finish_elsewhere(self, failure)
        place.retry(engine)


def device_maker(
    site: Site, label: str | None, place: DevicePlace, work: Any, priority: int = 0
) -> Callable[[Frame], DeviceTask]:
    """Return what makes a task of a work, any number of times.

    The work itself is never begun, so that it refers to no device memory, however long somebody keeps it.
    """

    def make(frame: Frame) -> DeviceTask:
        task = DeviceTask(site, frame, label, place, work.again())
        if priority:
            task.priority = priority
        return task

    return make


def _is_idle(lane: Lane) -> bool:
    """Tell whether the lane's stream has nothing left to do; a lost one never gets there."""
    try:
        return bool(lane.stream.done)
    except DeviceLostError:
        return False


class _Reached:
    """Lets a body run once its stream has reached it (devices whose bodies block)."""

    __slots__ = ("_task",)

    def __init__(self, task: DeviceTask) -> None:
        self._task = task

    def passed(self, error: BaseException | None) -> None:
        task = self._task
        if error is not None:
            failure = DeviceLostError(f"{task.key}: {error}")
            failure.__cause__ = error.__cause__ or error
            note_task(failure, task)
            task.failure = failure
        task.construct.runtime.engine.make_ready(task)
