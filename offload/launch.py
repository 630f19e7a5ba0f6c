"""Device tasks: how work gets onto a stream, and what is remembered of it until it has passed.

A `DevicePlace` is one device with what the runtime keeps for it: lanes, the present table, the tasks in
flight. A `DeviceTask` is *launched* when all its work has been put on a lane, and *complete* when the gate says
that the lane has got there. Tasks on devices that depend on it start in stream order once it is launched.

A launch that finds no memory, no lane, or storage whose copy-in is just being enqueued by another thread, is
put off until some task in flight completes; only when nothing is in flight is there an error. Buffers of
removed mappings go back when the task that removed them is complete, so that no stream can still use them.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.data.leaving import LeavingIndex
from offload.data.present import PresentTable, correspond
from offload.devices.streams import Lane, Point, StreamPool
from offload.errors import DeviceLostError, DeviceMemoryError
from offload.tasks.task import Task, TaskState, note_task, poisoned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.data.leaving import Leaving
    from offload.data.present import EnterPlan, Entry, MapItem
    from offload.devices.base import Device
    from offload.tasks.engine import Engine, Scope
    from offload.tasks.task import Frame, Site

_BYTE = np.dtype("u1")


class _PutOffError(Exception):
    """The launch has to be tried again later; nothing has changed."""


_RETRIES = 16
"""Launches to try again when a task ends: few, or a thousand that wait for memory would be tried a million times."""

_COPYING: Any = object()
"""Stands for an entry's last write while its copy-in is being enqueued."""


class DevicePlace:
    """One device of a runtime: its lanes, its data environment and what is in flight."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.pool = StreamPool(device)
        self.user_pool = StreamPool(device)  # what users enqueue by themselves never holds up a task
        self.table = PresentTable(device.number)
        self.in_flight: set[DeviceTask] = set()
        self._lock = threading.Lock()
        self._put_off: deque[DeviceTask] = deque()
        self._leaving = LeavingIndex()
        self._leaving_on: dict[Lane, deque[Leaving]] = {}
        self._adopted: list[Lane] = []

    # -- data environment ----------------------------------------------------------------------------
    def enter(self, items: Sequence[MapItem], lane: Lane) -> EnterPlan:
        """Map the items of one construct and enqueue their copies-in.

        Raises
        ------
        MapError, DeviceMemoryError
            Nothing has changed.
        """
        device = self.device
        with self._lock:
            plan = self.table.enter(items)
            if any(entry.last_write is _COPYING for entry in plan.counted):
                raise _PutOffError
            earlier: list[Any] = [entry.last_write for entry in plan.counted if entry.last_write is not None]
            if self._leaving:
                earlier += self._copies_back_to(plan.created)
            buffers = self._allocate(plan, lane)
            overwritten = [entry for _, entry in plan.copies if entry.users]
            written = {id(entry): entry for entry in (*plan.created, *(entry for _, entry in plan.copies))}
            self.table.commit(plan, buffers)
            for entry in written.values():
                entry.last_write = _COPYING
        try:
            for entry in overwritten:
                earlier += entry.users.values()
            lane.wait_for(earlier)
            for item, entry in plan.copies:
                device.copy(self.view(entry, item.host), item.host, lane.stream)
        except BaseException:
            with self._lock:
                self.table.undo(plan)
            raise
        finally:
            point = None
            try:
                if written:
                    point = lane.mark()
            finally:
                for entry in written.values():
                    entry.last_write = point
        return plan

    def exit(self, items: Sequence[MapItem], lane: Lane) -> list[object]:
        """Unmap the items of one construct and enqueue their copies-out; return what must live until they are done."""
        with self._lock:
            plan = self.table.exit(items)
            removed = set(plan.removed)
            self._follow_users(lane, [*removed, *(entry for _, entry in plan.copies)])
            self.table.commit_exit(plan)
            leaving = [self._leaving.add(item.section) for item, entry in plan.copies if entry in removed]
            staying = [entry for entry, count in plan.counts if count]
            for item, entry in plan.copies:
                if entry not in removed:
                    self.device.copy(item.host, self.view(entry, item.host), lane.stream)
            self._note_use(lane, staying)
        try:
            for item, entry in plan.copies:
                if entry in removed:
                    self.device.copy(item.host, self.view(entry, item.host), lane.stream)
        finally:
            if leaving:
                self._note_leaving(lane, leaving)
        return [*(entry.buffer for entry in removed), *(item.host for item in items)]

    def _copies_back_to(self, entries: Iterable[Entry]) -> list[Point]:
        """Return where copies back to the storage of new entries end, which their copies in must follow."""
        points = [copy.point for entry in entries for copy in self._leaving.meeting(entry.section)]
        if None in points:
            raise _PutOffError
        return points

    def _note_leaving(self, lane: Lane, copies: list[Leaving]) -> None:
        with self._lock:
            try:
                point = lane.mark()
            except DeviceLostError:
                for copy in copies:
                    self._leaving.remove(copy)
                raise
            for copy in copies:
                copy.point = point
            self._leaving_on.setdefault(lane, deque()).extend(copies)

    def arrived(self, end: Point) -> None:
        """Forget the copies back that a lane has done."""
        with self._lock:
            copies = self._leaving_on.get(end.lane)
            while copies and copies[0].point.sequence <= end.sequence:
                self._leaving.remove(copies.popleft())

    def undo(self, plan: EnterPlan, lane: Lane) -> list[object]:
        """Release what `enter` mapped and copy nothing back; return what must live until the lane gets here."""
        with self._lock:
            removed = self.table.undo(plan)
            self._follow_users(lane, removed)
            self._note_use(lane, [entry for entry in plan.counted if entry not in removed])
        return [*(entry.buffer for entry in removed), *(item.host for item in plan.items)]

    def view(self, entry: Entry, host: Any) -> Any:
        """Return the device array that corresponds to a host array inside an entry."""
        address = host.__array_interface__["data"][0]
        offset, strides = correspond(entry, address, host.shape, host.strides, host.itemsize)
        return self.device.view(entry.buffer, offset, host.shape, strides, host.dtype)

    def _allocate(self, plan: EnterPlan, lane: Lane) -> list[Any]:
        buffers: list[Any] = []
        for entry in plan.created:
            try:
                buffers.append(self.device.alloc((entry.nbytes,), _BYTE, lane.stream))
            except DeviceMemoryError as error:
                buffers.clear()  # the traceback refers to this frame, and would keep them as long as the error lives
                error.add_note(
                    f"to map {entry.label} ({entry.nbytes:,} bytes) on device {self.device.number}; "
                    f"mapped there: {self._largest_mappings()}"
                )
                raise
        return buffers

    def _largest_mappings(self) -> str:
        largest = sorted(self.table.entries(), key=lambda entry: -entry.nbytes)[:3]
        return ", ".join(f"{entry.label} ({entry.nbytes:,} bytes)" for entry in largest) or "nothing"

    def _follow_users(self, lane: Lane, entries: Iterable[Entry]) -> None:
        for entry in entries:
            points: list[Any] = list(entry.users.values())
            if entry.last_write is not None and entry.last_write is not _COPYING:
                points.append(entry.last_write)
            lane.wait_for(points)

    def _note_use(self, lane: Lane, entries: Sequence[Entry]) -> None:
        if entries:
            point = lane.mark()
            for entry in entries:
                entry.users[lane] = point

    # -- lanes and life ------------------------------------------------------------------------------
    def lane_of(self, stream: Any) -> Lane:
        """Return the lane of a stream of the device, which may be a user's own."""
        native = self.device.adopt(stream)
        key = getattr(native, "ptr", id(native))
        with self._lock:
            for lane in (*self.pool.lanes, *self.user_pool.lanes, *self._adopted):
                if lane.stream is native or getattr(lane.stream, "ptr", lane) == key:
                    return lane
            lane = Lane(self.device, native, -1)
            self._adopted.append(lane)
            return lane

    def close(self) -> None:
        """Close the device; what is still mapped goes with it."""
        self.table = PresentTable(self.device.number)
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

    __slots__ = ("_held", "_is_watched", "after", "end", "lane", "launches_inline", "place", "work")

    waits_in_stream_order = True

    def __init__(self, site: Site, frame: Frame, label: str | None, place: DevicePlace, work: Any) -> None:
        super().__init__(site, work.run, (), None, frame, label)
        self.early = []
        self.place = place
        self.work = work
        self.lane: Lane | None = None
        self.end: Point | None = None
        self.after: Any = place.device.caller_event() if work.takes_device_arrays else None
        self._held: list[object] | None = None
        self._is_watched = False
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
            if self.poison is not None:
                return engine.finish(self, poisoned(self, self.poison), TaskState.NOT_RUN)
            try:
                if not self._begin():
                    return None
            except BaseException as error:  # noqa: BLE001  # kept for whoever waits
                note_task(error, self)
                return self._fail_unlaunched(engine, error)
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
        if self.run is not None:
            self.run.start()
            self._is_watched = True  # a recorded task shows when it was complete
        try:
            lane.wait_for(points)
            if self.after is not None:
                device.wait_event(lane.stream, self.after)
            self.work.begin(place, lane)
        except BaseException as error:
            place.in_flight.discard(self)
            place.pool.release(lane)
            if isinstance(error, _PutOffError) or (isinstance(error, DeviceMemoryError) and place.in_flight):
                return self._put_off()
            raise
        self.lane = lane
        if self.body is not None and device.bodies_block and not _is_idle(lane):
            point = lane.mark()
            self.construct.runtime.gate.add(lane, point.sequence, point.event, _Reached(self), watched=True)
            return False
        return True

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
        outer = scope.enter(self)
        scope.device, scope.lane = device, lane
        self.state_ = TaskState.RUNNING
        try:
            with device.using(lane.stream):  # type: ignore[union-attr]  # launched on a lane
                self.value = body()
        except BaseException as error:  # noqa: BLE001  # kept for whoever waits
            return self._noted(error)
        finally:
            scope.leave(outer)
        return None

    def _noted(self, error: BaseException) -> BaseException:
        """Return the failure of a body: its own, or that of the device if earlier work there lost it."""
        try:
            self.place.device.check(self.lane.stream)  # type: ignore[union-attr]  # launched on a lane
        except DeviceLostError as lost:
            if not isinstance(error, DeviceLostError):
                lost.__cause__ = error
                error = lost
        note_task(error, self)
        return error

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

    def _fail_unlaunched(self, engine: Engine, error: BaseException) -> Task | None:
        self.work = self.after = None
        following = engine.finish(self, error)
        self.place.retry(engine)
        return following

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
        place.in_flight.discard(self)
        engine.finish_elsewhere(self, failure)
        place.retry(engine)


def device_maker(site: Site, label: str | None, place: DevicePlace, work: Any) -> Callable[[Frame], DeviceTask]:
    """Return what makes the task of a work: at the first call of this one, later of the same work again."""
    unused = [work]

    def make(frame: Frame) -> DeviceTask:
        return DeviceTask(site, frame, label, place, unused.pop() if unused else work.again())

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
