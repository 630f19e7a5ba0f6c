"""Capture: a recorded region whose tasks are all work of one device, as one graph of that device.

At the first replay the bodies run once, while their streams are captured, in a rehearsal (`offload.graphs.rehearsal`).
From then on a replay is one task, which launches the graph. The region is captured again if its storage has moved, and
replayed on streams while that happens too often (`_WORTH`), or if it cannot be captured (`Capture.why_not`). A capture
that fails has enqueued nothing. See docs/design/theory.md, "Capture".
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import label, mapper_of
from offload.data.environment import DataEnvironment
from offload.data.replicas import numbers_of
from offload.devices.streams import Lane, Point, using
from offload.errors import DeviceError
from offload.graphs.branches import branches
from offload.graphs.reach import reached
from offload.graphs.rehearsal import NotCapturableError, ShadowTable
from offload.graphs.work import GraphWork, section_of_entry
from offload.interrupts.frames import calls_program
from offload.runtime.launch import DeviceTask
from offload.runtime.recipe import DeviceRecipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.data.plans import Plan
    from offload.data.protocols import AnyUpdate
    from offload.devices.base import GraphCapture
    from offload.graphs.rehearsal import Noted
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.runtime.queues import Queue
    from offload.tasks.recipe import Recipe
    from offload.tasks.task import Task

# Branches of a graph that run at the same time at most. To launch a graph costs 1.6 µs for each on an H200.
MOST_STREAMS = 64

_DISTURBED = 3  # Captures that other threads have ended, after which no more are tried

# Replays that a capture has to serve. It takes 4 to 5 ms on an H200; to carry out some twenty tasks one by one takes
# 0.3 ms longer than to launch them as a graph.
_WORTH = 16

# Captures in a row that served fewer, after which the next one waits: programs map in passing before they begin.
_IN_VAIN = 3

_MOVES = (
    f"its data was mapped elsewhere too often; map the data around the replays: after {_WORTH} replays at the same "
    "addresses, they run as a graph again"
)


def obstacle(recipes: Sequence[Recipe]) -> str:
    """Return why tasks of these recipes can never be one graph; nothing if they may be."""
    if any(recipe.event is not None for recipe in recipes):
        return "it contains an event"
    place: DevicePlace | None = None
    for recipe in recipes:
        if isinstance(recipe, DeviceRecipe):
            if place is None:
                place = recipe.place
            elif recipe.place is not place:
                return f"it is on several devices, {place.device.number} and {recipe.place.device.number}"
            if recipe.work.places:
                return f"{recipe.name} is on several devices, {numbers_of(recipe.work.places)}"
            if recipe.work.blocks:
                return f"{recipe.name} speculates: each call decides again where it runs"
        elif recipe.site.directive != "taskwait":  # else an empty task, for its edges
            return f"{recipe.name} runs on the host"
    if place is None:
        return "it contains no device work"
    if place.device.graph_capture() is None:
        return f"{place.device.name} does not support graphs"
    for recipe in recipes:
        if recipe.values is not None and recipe.values.slots:
            return f"{recipe.name} receives the value of a task"
        why_not: str = getattr(recipe.body, "why_not_captured", "")
        if why_not:
            return f"{recipe.name} {why_not}"
    return ""


class Capture:
    """The graph of a record: made at the first replay, and again if its storage has moved.

    ``before`` has for each task the positions of its predecessors; ``steps`` holds the recipes, whose host arrays a
    graph in flight needs.
    """

    __slots__ = (
        "_before", "_lock", "_n_disturbed", "_n_in_vain", "_n_launched", "_n_steady", "_noted", "_places", "_steps",
        "n_captured", "place", "queues", "refusal", "work",
    )  # fmt: skip

    def __init__(self, before: Sequence[Sequence[int]], refusal: str, steps: object, queues: set[Queue]) -> None:
        self._before = before
        self._lock = threading.Lock()
        self._n_disturbed = 0
        self._n_in_vain = 0
        self._n_launched = 0  # replays that the present graph has served
        self._n_steady = 0  # replays, one by one, for which what the last graph used
        self._noted: Noted | None = None
        self._places: tuple[object, ...] = ()  # has been where it is
        self._steps = steps
        self.n_captured = 0  # how often the region has been captured
        self.place: DevicePlace | None = None
        self.queues = queues  # the async queues of operations in it: a replay belongs to them all
        self.refusal = refusal  # why replays will never be a graph; empty while no reason is known
        self.work: GraphWork | None = None

    @property
    def why_not(self) -> str:
        """Why the last replay was no graph; empty while nothing is known against it."""
        return self.refusal or (_MOVES if self.work is None and self._n_in_vain >= _IN_VAIN else "")

    def ready(self, scope: Scope, make: Callable[[], Sequence[Task]]) -> GraphWork | None:
        """Return the work that launches a replay, or None if the tasks go to streams one by one.

        ``make`` is called for a capture; it returns the tasks, which are never entered.
        """
        work = self.work
        if work is not None and work.is_unchanged():
            self._n_launched += 1  # no lock: what matters is whether it is more than one
            return work
        with self._lock:
            if self.work is not None and not self.work.is_current():
                self._discard()
            if self.work is None and not self.refusal and self._is_worth_it():
                self._capture(scope, make())
            self._n_launched += 1
            return self.work

    def _discard(self) -> None:
        """Let go of a graph for which something has changed."""
        self._noted = self.work.noted  # type: ignore[union-attr]  # there is one
        self.work = None
        self._n_in_vain = self._n_in_vain + 1 if self._n_launched < _WORTH else 0

    def _is_worth_it(self) -> bool:
        """Tell whether a capture may serve as many replays as it takes the time of; called at each that has none."""
        if self._n_in_vain < _IN_VAIN:
            return True
        place: Any = self.place  # there was a capture
        with place.lock:
            places = self._noted.places(place.table, section_of_entry(place.device))  # type: ignore[union-attr]  # the same
        if places != self._places:
            self._places, self._n_steady = places, 0
        self._n_steady += 1
        return self._n_steady > _WORTH

    def _capture(self, scope: Scope, tasks: Sequence[Task]) -> None:
        launched = [task for task in tasks if isinstance(task, DeviceTask)]
        self.place = launched[0].place
        try:
            self.work = _captured(scope, self.place, tasks, self._before, self._steps)
        except NotCapturableError as error:
            self._n_disturbed += error.is_passing
            if not error.is_passing or self._n_disturbed == _DISTURBED:
                self.refusal = str(error)
        else:
            self.n_captured += 1
            self._n_launched = self._n_steady = 0


# -- capturing -------------------------------------------------------------------------------------


def _captured(
    scope: Scope, place: DevicePlace, tasks: Sequence[Task], before: Sequence[Sequence[int]], made_of: object
) -> GraphWork:
    """Carry tasks out under capture, and return the work that launches the graph."""
    launched = [task for task in tasks if isinstance(task, DeviceTask)]
    kept = [made_of, *(value for task in launched for value in _reached(task))]
    takes_device_arrays = any(task.work is None or task.work.takes_device_arrays for task in launched)
    steps = branches(_with_exclusions(tasks, before), MOST_STREAMS)
    capture = place.device.graph_capture()
    device: Any = _CapturedDevice(place, capture)  # the methods of a device
    with place.lock:
        table = ShadowTable(place.table, section_of_entry(place.device))
    environment: Any = _CapturedEnvironment(device, table)  # what a work needs of a place
    awaited = {other for step in steps for other in step.waits}
    points: dict[int, Point] = {}
    findings: list[Callable[[Any], Any]] = []
    held: list[object] = []  # what must not be allocated again on another branch
    try:
        streams = capture.begin(1 + max(step.stream for step in steps))  # type: ignore[union-attr]  # `obstacle` looked
        lanes = [Lane(device, stream, number) for number, stream in enumerate(streams)]
        for at, (task, step) in enumerate(zip(tasks, steps, strict=True)):
            lane = lanes[step.stream]
            lane.wait_for([points[other] for other in step.waits])
            if isinstance(task, DeviceTask):
                _carry_out(scope, task, environment, lane)
                held.append((task.work, task.args, task.kwargs, task.held))
                findings += task.findings or ()
                task.work = task.plan = task.held = task.body = task.value = None
                task.args, task.kwargs, task.findings = (), None, None
                if len(lanes) == 1:
                    held.clear()
            if at in awaited:
                points[at] = lane.mark()
        noted = table.noted()
        graph = capture.end()  # type: ignore[union-attr]  # the same
    except BaseException as error:
        capture.cancel()  # type: ignore[union-attr]  # the same
        if isinstance(error, DeviceError):
            why = f"the device could not create a graph of it: {error}"
            raise NotCapturableError(why, is_passing=device.was_disturbed(error)) from None
        raise
    return GraphWork(graph, place, noted, kept, findings, takes_device_arrays=takes_device_arrays)


def _with_exclusions(tasks: Sequence[Task], before: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    """Return the predecessors with those that a task only excludes: in a graph they follow each other as generated."""
    last: dict[Any, int] = {}
    found = []
    for at, task in enumerate(tasks):
        excluded = [last[mutex] for mutex in task.mutexes if mutex in last]
        found.append([*before[at], *excluded])
        last.update(dict.fromkeys(task.mutexes, at))
    return found


@calls_program
def _carry_out(scope: Scope, task: DeviceTask, place: Any, lane: Lane) -> None:
    """Enqueue the work of a task.

    Raise `NotCapturableError` if the task cannot be captured or fails; on streams it will fail for its waiter.
    """
    work = task.work
    staged: list[Any] = []  # which the captured device refuses
    outer = scope.task, scope.region
    scope.task, scope.region, task.lane = task, None, lane
    try:
        if work is not None:
            work.begin(task, place, lane, staged)
        if task.body is not None:
            with using(place.device, lane.stream):
                try:
                    scope.in_body = True
                    task.value = task.body(*task.args, **(task.kwargs or {}))
                    if work is not None and task.plan is not None:
                        work.check(task, task.value)
                finally:
                    scope.in_body = False
        if work is not None:
            work.end(task, place, lane, staged)
    except Exception as error:  # noqa: BLE001  # whatever the body, or a library under capture, raises
        why = str(error)
        is_passing = place.device.was_disturbed(error)
        if not isinstance(error, NotCapturableError):  # what comes after a refusal tells nothing
            why = place.device.why_not or f"it raised {type(error).__name__} under capture: {error}"
    else:
        return
    finally:
        scope.task, scope.region = outer
        task.lane = None
    raise NotCapturableError(f"{task.name}: {why}", is_passing=is_passing)  # not from one whose frames hold arrays


class _CapturedDevice:
    """A device while its work is captured."""

    def __init__(self, place: DevicePlace, capture: GraphCapture | None) -> None:
        self._device = place.device
        self._place = place
        self._capture: Any = capture
        self.why_not = ""  # the operation that it has refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def was_disturbed(self, error: Exception) -> bool:
        """Tell whether it was another thread that has ended the capture, and nothing was refused."""
        return not self.why_not and bool(self._capture.was_disturbed(error))

    def record(self, stream: Any) -> Any:
        """Record an event inside of the capture, which nobody may ever query."""
        return self._capture.record(stream)

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        """Return an array in memory of the graph."""
        return self._capture.alloc(shape, dtype, stream)

    def renew(self, buffer: Any) -> bool:
        """Return false: the graph's memory has an order of its own."""
        return False

    def copy(self, dst: Any, src: Any, stream: Any) -> Any:
        """Copy if a graph can repeat the copy.

        Raise `NotCapturableError` if one side is in pageable memory, on another device, or has replicas.
        """
        for array in (dst, src):
            if not isinstance(array, np.ndarray):
                if not self._device.is_array(array):
                    self.why_not = f"it copies {label(array)}, which is on another device"
                else:
                    self._refuse_replicas(array)
            elif not self._device.copies_async(array):
                self.why_not = f"it copies {label(array)}, which is in pageable memory; pin it, or map it outside"
            if self.why_not:
                raise NotCapturableError(self.why_not)
        return self._device.copy(dst, src, stream)

    def fill(self, array: Any, value: int, stream: Any) -> None:
        """Set what a graph can set again and again; raise `NotCapturableError` for what has replicas."""
        self._refuse_replicas(array)
        self._device.fill(array, value, stream)

    def _refuse_replicas(self, array: Any) -> None:
        place = self._place
        for replicas in place.sets:
            if replicas.box_on(replicas.number_of(place), array) is not None:
                self.why_not = f"{replicas.label} has replicas on several devices, {replicas.devices}"
                raise NotCapturableError(self.why_not)


class _CapturedEnvironment(DataEnvironment):
    """The data environment of a capture."""

    def __init__(self, device: Any, table: ShadowTable) -> None:
        super().__init__(device)
        self.table = table
        self.ledger.may_query = False  # a query of an event would end the capture

    def remember(self, plan: Plan, known: AnyUpdate) -> None:
        """Do nothing: the plan is for the entries of a rehearsal."""


def _reached(task: DeviceTask) -> list[object]:
    """Return the objects that a body reaches by itself; their addresses are in its enqueued work."""
    if task.body is None:
        return []
    args = *task.args, *(task.kwargs or {}).values()
    try:
        return reached(task.body, [value for value in args if mapper_of(value) is None])
    except NotCapturableError as error:
        raise NotCapturableError(f"{task.name}: {error}") from None
