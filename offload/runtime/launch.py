"""Device tasks: how work gets onto a stream, and its record until it has passed.

A `DeviceTask` is *launched* when all its work has been put on a lane of its `DevicePlace`, and *complete* when the
gate says that the lane has got there. Tasks on devices that depend on it start in stream order once it is launched.

A launch that finds no memory, no lane, or storage that another thread just copies to, is put off until a task in flight
completes, or fails when none is. Buffers go back when the task that unmapped them is complete, as no stream uses them.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from offload.data.ledger import PutOffError
from offload.data.release import Released
from offload.errors import DeviceLostError, DeviceMemoryError
from offload.interrupts.finalizers import put_off
from offload.interrupts.frames import calls_program
from offload.interrupts.shields import ends_body
from offload.runtime import appended
from offload.runtime.stream_callbacks import BodyStart, Kept, StagedCopies, found
from offload.tasks.failures import note_task, without_engine_frames
from offload.tasks.states import TaskState
from offload.tasks.task import Task

_RUNNING, _LAUNCHED, _FAILED = TaskState.RUNNING, TaskState.LAUNCHED, TaskState.FAILED  # to look one up costs 0.15 µs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.data.items import MapItem
    from offload.devices.streams import Lane, Point
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Work
    from offload.tasks.protocols import Runner
    from offload.tasks.scope import Scope
    from offload.tasks.values import Values


class DeviceTask(Task):
    """A task whose work goes to a stream of a device.

    ``work`` describes the work, and has the task as its `Launch` (`offload.runtime.works`). `offload.runtime.recipe`
    makes these tasks.
    """

    __slots__ = (
        "_is_watched",
        "after",
        "early",
        "held",
        "lane",
        "launched",
        "launches_inline",
        "place",
        "plan",
        "point",
        "predecessors",
        "queue",
        "run",
        "work",
    )

    place: DevicePlace
    waits_in_stream_order = True
    _collects = True
    _staging: StagedCopies | None = None
    entered: Sequence[MapItem] = ()
    other_places: Sequence[DevicePlace] = ()
    """Where the work is carried out besides, with storage that goes back when it has passed."""
    findings: list[Callable[[Any], Any]] | None = None
    """What looks at what the work has left when it has passed: each returns the value that it is given, or another."""
    other_after: Any = None
    device_nums: tuple[int, ...] = ()  # those that take part, where these are several
    received: Values | None = None
    appended: Any = None
    """What a device that plans knows of the launch; None on others, and when it has gone well."""
    _is_watched: bool
    after: Any
    held: list[Any] | None
    lane: Lane | None
    plan: Any
    point: Point | None  # where its work ends
    queue: Any  # the async queue on whose stream it is to run
    work: Work | None

    @property
    def device_num(self) -> int:
        return self.place.device.number

    @property
    def gate(self) -> Any:
        return self.construct.runtime.gate

    def orders(self, successor: Task) -> bool:
        return self.place is successor.place or bool(self.place.device.kind == successor.place.device.kind)

    def watch(self) -> None:
        self._is_watched = True
        if self.launched and self.point is not None:
            self.construct.runtime.gate.watch(self.point)

    def leave(self, finding: Callable[[Any], Any]) -> None:
        """Have something look at the outcome when the work has passed: it is given the value, and returns it."""
        if self.findings is None:
            self.findings = []
        self.findings.append(finding)

    # -- launching -----------------------------------------------------------------------------------
    def advance(self, engine: Runner[Task], scope: Scope) -> Task | None:
        """Launch, or go on with a launch that has waited: for its stream, or for staged copies."""
        if self.lane is None:
            if (self.special or engine.can_cancel) and engine.hinders(self):
                return None
            try:
                if not self._begin():
                    return None
            except BaseException as error:  # noqa: BLE001  # kept for whoever waits
                note_task(error, self, "its launch failed")
                self._fail_unlaunched(engine, without_engine_frames(error))
                return None
        elif self.cut_short is not None:
            self.value, self.failure, self.cut_short = None, self.cut_short, None
            return self._mark(engine)
        elif self._staging is not None and not self._settle(engine):
            return self._mark(engine)
        failure = self.failure
        if failure is None and self.body is not None:
            failure = self._append_body() if self.place.plans else self._run_body(scope)
            if failure.__class__ is PutOffError:  # a body of ours: storage on another device is being copied to
                engine.make_ready(self)
                return None
        if failure is None and (self.work is None or not self.work.has_end):
            return self._mark(engine)
        try:
            return self._end_launch(engine, failure)
        finally:
            del self, failure  # as in `Task.advance`

    def _begin(self) -> bool:
        """Take a lane and enqueue the work before the body; return whether the launch goes on now."""
        self.start_s = perf_counter()  # once more where the launch is tried again
        place = self.place
        device = place.device
        points: tuple[Point, ...] = ()
        reached: Point | None = None
        for other in self.predecessors:
            if not other.finished and (point := other.point) is not None:
                points += (point,)
        lane = place.pool.acquire(points) if self.queue is None else self.queue.take_lane()
        if lane is None:
            return self._put_off()
        place.in_flight.add(self)
        if self.run is not None and not place.plans:
            self._is_watched = True  # the times of a recorded graph are looked at
        work = self.work
        staged: list[Any] = []
        ended, follows_others = place.ended, False
        try:
            if place.plans:
                appended.begin(self, lane)
            for point in points:
                if point.lane is not lane:  # else what it follows is before it there
                    follows_others = True
                    lane.wait_for(points)
                    break
            if self.after is not None:
                device.wait_event(lane.stream, self.after)
            if work is not None:
                reached = work.begin(self, place, lane, staged)
        except BaseException as error:
            if not self._is_put_off(error, lane, ended):
                raise
            return False
        self.lane = lane
        if not follows_others:
            self.predecessors = ()  # when those end that are on the lane, the lane knows
        if staged:
            self._stage(staged, has_run=False)
            return False
        if self.body is None or not device.bodies_block:
            return True
        if self.owner is not None and self.frame.task is None and not points:
            end = lane.end
            if end is None or end.event is None:
                return True  # who waits has nothing else to do than to wait, in the body, for the copies of this call
        return not BodyStart.holds(self, lane, reached)

    def _is_put_off(self, error: BaseException, lane: Lane, ended: int) -> bool:
        """Leave the lane after an error of `_begin`; put the launch off, and return True, if it may succeed later."""
        place = self.place
        kept = place.take_kept(lane)
        if kept:
            with suppress(DeviceLostError):
                self.construct.runtime.gate.add(lane.mark(), Kept(kept))
        place.in_flight.discard(self)
        self._leave_plan(lane)
        lane.release()
        if isinstance(error, PutOffError):
            self._put_off(error.place)
            return True
        if isinstance(error, DeviceMemoryError) and (place.in_flight or self._may_find_memory(ended)):
            self._put_off()
            return True
        return False

    def _may_find_memory(self, ended: int) -> bool:
        """Tell whether another try is worth it: something has ended since, or garbage has just been collected."""
        if self.place.ended != ended:
            return True
        collects, self._collects = self._collects, False
        if collects:
            gc.collect()  # a failure that a user still holds refers to the arrays of its body
        return collects or put_off.is_due  # finalizers may have asked for what frees memory

    def _put_off(self, place: DevicePlace | None = None) -> bool:
        """Launch when something in flight, at another place at times, has completed, or at once if nothing is."""
        if not (place or self.place).put_off(self):
            self.construct.runtime.engine.make_ready(self)
        return False

    def _append_body(self) -> BaseException | None:
        """Have the device call the body when the plan gets there; return the error of a body that it cannot take."""
        try:
            begun = getattr(self.body, "begun", None)
            args = self.args if begun is None else begun(self.args)
            self.place.device.append(self.lane.stream, self.body, args, self.kwargs)  # type: ignore[attr-defined, union-attr]  # it plans
            if (take := getattr(self.body, "take", None)) is not None:  # of this process: the body runs in another one
                self.leave(take)
        except Exception as error:  # noqa: BLE001  # kept for whoever waits
            return self._noted(error)
        return None

    def _leave_plan(self, lane: Lane) -> None:
        """Have the device know that nothing more comes of this launch."""
        if self.appended is not None:
            lane.stream.launch = None

    @calls_program
    def _run_body(self, scope: Scope) -> BaseException | None:
        device = self.place.device
        outer_task, outer_region = scope.task, scope.region
        scope.task, scope.region = self, None
        if self.state_ is not _RUNNING:  # else it is run again
            self.state_ = _RUNNING
        try:
            before = device.use(self.lane.stream)  # type: ignore[union-attr]  # launched on a lane
            try:
                scope.in_body = True
                kwargs: Any = self.kwargs
                self.value = self.body(*self.args, **kwargs) if kwargs else self.body(*self.args)  # type: ignore[misc]  # the body goes when it has run
                if self.plan is not None and self.value is not None:
                    self.work.check(self, self.value)  # type: ignore[union-attr]  # it has made the plan
                perf_counter()  # a call: CPython raises what was sent to the thread no later than here
            finally:
                scope.in_body = False
                device.restore(before)
        except BaseException as error:  # noqa: BLE001  # kept for whoever waits
            return error if isinstance(error, PutOffError) else self._noted(error)
        finally:
            scope.task, scope.region = outer_task, outer_region
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
        if self.work is not None:
            self.work.note(error)
        note_task(error, self, "its body raised")
        return without_engine_frames(error)

    def _end_launch(self, engine: Runner[Task], failure: BaseException | None) -> Task | None:
        """Enqueue the work after the body, or undo the work before it."""
        if self.work is not None:
            staged: list[Any] = []
            lane: Any = self.lane
            try:
                if failure is None:
                    self.work.end(self, self.place, lane, staged)
                else:
                    self.work.abort(self, self.place, lane)
            except BaseException as error:  # noqa: BLE001  # kept for whoever waits
                kept = self.place.take_kept(lane)
                if kept:
                    self.held = [*(self.held or ()), *kept]  # what has been unmapped comes first
                if failure is None:
                    failure = without_engine_frames(error)
                    note_task(error, self, "the end of its launch failed")
                else:
                    failure.add_note(f"then, while its mappings were released: {error}")
            if staged:
                self._stage(staged, has_run=True)
                return None
        if failure is not None:
            self.value = self.point = None
            self.failure = failure
        return self._mark(engine)

    def _mark(self, engine: Runner[Task]) -> Task | None:
        """Note where the work ends, of which the gate tells unless the owner asks, and give the lane back."""
        lane: Any = self.lane
        try:
            point = self.point
            if point is None:
                point = self.point = lane.mark()
            if self.appended is not None:
                lane.stream.launch = None
        except DeviceLostError as error:
            lane.release()
            self.passed(error)
            return None
        self.launched = True
        self.state_ = _LAUNCHED  # before the gate may say that it is complete
        if self.is_asked:
            lane.release(point)
            return engine.release_early(self) if self.early or self.launch_calls else None
        gate = self.construct.runtime.gate
        watched = self._is_watched or bool(self.successors)
        try:
            gate.add(point, self, watched=watched)
        finally:
            lane.release(point)  # not before: the gate has the points of a lane from who has the lane, in order
        if self._is_watched and not watched:
            gate.watch(point)  # `watch` came before the gate knew the point
        return engine.release_early(self) if self.early or self.launch_calls else None

    # -- staged copies -------------------------------------------------------------------------------
    def _stage(self, copies: list[Any], *, has_run: bool) -> None:
        """Go on with the launch when copies have been carried out that only threads can make."""
        lane: Any = self.lane
        self._staging = staging = StagedCopies(self, copies, has_run=has_run)
        self.construct.runtime.engine.staging.add(staging)
        if lane.is_idle:
            staging.passed(None)
        else:
            self.construct.runtime.gate.add(lane.mark(), staging, watched=True)

    def _settle(self, engine: Runner[Task]) -> bool:
        """Take note that staged copies have been carried out, or failed; return whether a body or an end follows."""
        work: Any = self.work  # it has staged the copies
        lane: Any = self.lane
        staging: Any = self._staging
        self._staging, failure = None, staging.failure
        try:
            if failure is not None and self.plan is not None and not staging.has_run:
                work.abort(self, self.place, lane)  # first: while it is open, nobody else finds what was not copied to
                self.plan = None
            work.settle(self, self.place, lane)
        except BaseException as error:  # noqa: BLE001  # kept for whoever waits
            failure = failure or error
        self.place.retry(engine)  # others may share the entries now
        for place in self.other_places:
            place.retry(engine)
        if failure is not None:
            self.value = None
            self.failure = failure
            note_task(failure, self, "a copy of its data failed")
        return not staging.has_run

    # -- completing ----------------------------------------------------------------------------------
    @property
    def is_quiet(self) -> bool:
        """Whether completing it runs no code of the user's."""
        return not self.callbacks

    def _fail_unlaunched(self, engine: Runner[Task], error: BaseException) -> None:
        self.end_s = perf_counter()
        self.work = self.plan = self.after = self.received = None
        engine.end_in_turn(self, error, TaskState.FAILED)
        self.place.ended += 1
        self.place.retry(engine)

    def passed(self, error: BaseException | None) -> None:
        """Complete: the lane has got to the end of this task, or never will."""
        failure, state = self.failure, _FAILED
        if self.appended is not None:
            settled = appended.settle(self)
            if settled is None:
                return
            failure, state = settled
        if error is not None and failure is None:
            failure = DeviceLostError(f"{self.key}: {error}")
            failure.__cause__ = error.__cause__ or error
            note_task(failure, self, "its device work failed")
            self.value = None
        if self.findings is not None:
            failure = found(self, failure)
        lane: Any = self.lane
        start_s = self.start_s
        for other in self.predecessors:
            start_s = max(start_s, getattr(other, "end_s", 0.0))
        self.start_s, self.end_s = lane.note_passed(self.point, start_s)
        place = self.place
        if self.work is not None:  # before others are told that there is memory again
            held = self.held
            if held and held[0].__class__ is Released:
                held[0].retire()
            self.held = self.work = self.plan = held = None
        self.after = self.body = self.kwargs = None
        self.args = self.predecessors = ()
        engine = self.construct.runtime.engine
        place.ended += 1
        place.in_flight.discard(self)
        others = self.other_places
        for each in others:
            each.ended += 1
            each.in_flight.discard(self)
        engine.activity += 1
        following = engine.finish(
            self, failure, state
        )  # as `finish_elsewhere` does, whose call each launch would pay for
        if following is not None:
            engine.make_ready(following)
        if place.waiting:
            place.retry(engine)
        for each in others:
            each.retry(engine)

    def spread(self, places: Sequence[DevicePlace]) -> None:
        """Count as in flight at other places too."""
        self.other_places = places
        if not self.device_nums:
            self.device_nums = (self.device_num, *[place.device.number for place in places])
        for place in places:
            place.in_flight.add(self)
