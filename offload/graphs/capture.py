"""Capture: a piece of a recorded region, as one graph of the devices that it is work of.

At the first replay the bodies run once, while their streams are captured, in a rehearsal (`offload.graphs.rehearsal`).
From then on the piece is one task of each replay, which launches the graph. It is captured again if its storage has
moved, and replayed on streams while that happens too often (`_WORTH`), or if it cannot be captured (`Capture.refusal`).
A capture that fails has enqueued nothing. See docs/design/theory.md, "Capture".
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import label, mapper_of
from offload.data.environment import DataEnvironment
from offload.devices.streams import Lane, Point, using
from offload.errors import DeviceError
from offload.graphs.branches import branches
from offload.graphs.reach import LIBRARIES, reached, reaches_library
from offload.graphs.rehearsal import NotCapturableError, ShadowTable
from offload.graphs.tensors import TensorState
from offload.graphs.work import GraphStorage, GraphWork, section_of_entry
from offload.interrupts.frames import calls_program
from offload.runtime.launch import DeviceTask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.data.plans import KnownWork, Plan
    from offload.devices.base import GraphCapture
    from offload.graphs.reach import HostChanges
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.tasks.site import Site
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
_CHANGES = (
    "the PyTorch tensors or modules that it reaches were changed too often, as by train() and eval() or dropped "
    f"gradients; after {_WORTH} replays it is captured again"
)


class Capture:
    """The graph of a piece: made at the first replay, and again if its storage has moved.

    ``before`` has for each task the positions of its predecessors in the piece. ``made_of`` holds the recipes, whose
    host arrays a graph in flight needs. ``changes`` returns what host tasks between pieces may change; None if the
    piece is the whole region.
    """

    __slots__ = (
        "_before", "_changes", "_discarded", "_lock", "_made_of", "_n_disturbed", "_n_in_vain", "_n_launched",
        "_n_steady", "_noted", "_places", "_site", "is_told", "n_captured", "refusal", "refused_at", "work",
    )  # fmt: skip

    def __init__(
        self,
        before: Sequence[Sequence[int]],
        made_of: object,
        site: Site,
        changes: Callable[[], HostChanges] | None,
    ) -> None:
        self._before = before
        self._changes = changes
        self._discarded = ""  # why the last graph was let go
        self._lock = threading.Lock()
        self._made_of = made_of
        self._n_disturbed = 0
        self._n_in_vain = 0
        self._n_launched = 0  # replays that the present graph has served
        self._n_steady = 0  # replays, one by one, for which what the last graph used
        self._noted: Sequence[GraphStorage] = ()
        self._places: list[object] = []  # has been where it is
        self._site = site  # of the region
        self.is_told = False  # whether the program is warned of the refusal
        self.n_captured = 0  # how often the piece has been captured
        self.refusal = ""  # why the piece will never be a graph; empty while no reason is known
        self.refused_at: int | None = None  # the position in the piece of the task that is to blame, if one is
        self.work: GraphWork | None = None

    @property
    def why_not(self) -> str:
        """Why the last replay was no graph; empty while nothing is known against it."""
        return self.refusal or (self._discarded if self.work is None and self._n_in_vain >= _IN_VAIN else "")

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

    def renew(self, scope: Scope, make: Callable[[], Sequence[Task]]) -> GraphWork | None:
        """Return the work for the storage as it is now; None if that cannot be captured.

        A task between pieces has mapped or unmapped something since `ready`, as it may at each replay.
        """
        with self._lock:
            if self.work is not None and not self.work.is_current():
                self._discard()
            if self.work is None and not self.refusal:
                self._capture(scope, make())
            return self.work

    def _discard(self) -> None:
        """Let go of a graph for which something has changed."""
        work: Any = self.work  # there is one
        self._noted, self._discarded = work.storage, _MOVES if work.state.holds() else _CHANGES
        self.work = None
        self._n_in_vain = self._n_in_vain + 1 if self._n_launched < _WORTH else 0

    def _is_worth_it(self) -> bool:
        """Tell whether a capture may serve as many replays as it takes the time of; called at each that has none."""
        if self._n_in_vain < _IN_VAIN:
            return True
        places = [found for storage in self._noted for found in storage.places()]
        if places != self._places:
            self._places, self._n_steady = places, 0
        self._n_steady += 1
        return self._n_steady > _WORTH

    def _capture(self, scope: Scope, tasks: Sequence[Task]) -> None:
        try:
            changes = None if self._changes is None else self._changes()
            reached = [value for task in tasks for value in _reached(task, changes)]
            self.work = self._captured(scope, tasks, TensorState(reached), reached)
        except NotCapturableError as error:
            self._n_disturbed += error.is_passing
            if not error.is_passing or self._n_disturbed == _DISTURBED:
                self.refusal, self.is_told = str(error), error.is_told
                self.refused_at = next((at for at, task in enumerate(tasks) if task is error.task), None)
                error.task = None
        else:
            self.n_captured += 1
            self._n_launched = self._n_steady = 0

    def _captured(
        self, scope: Scope, tasks: Sequence[Task], state: TensorState, reached: Sequence[object]
    ) -> GraphWork:
        """Return the work of a capture that has left the state of PyTorch's tensors as it was."""
        try:
            work = _captured(scope, self._site, tasks, self._before, state, (self._made_of, reached))
            if state.holds():
                return work
        except BaseException:
            state.restore()
            raise
        state.restore()
        raise NotCapturableError(
            "its bodies give a PyTorch tensor a new gradient or other memory, or a module other tensors, which a graph "
            "does not repeat (keep gradients with zero_grad(set_to_none=False))",
            is_told=True,
        )


# -- capturing -------------------------------------------------------------------------------------


def _captured(
    scope: Scope,
    site: Site,
    tasks: Sequence[Task],
    before: Sequence[Sequence[int]],
    state: TensorState,
    kept: tuple[object, Sequence[object]],
) -> GraphWork:
    """Carry tasks out under capture, and return the work that launches the graph."""
    launched = [task for task in tasks if isinstance(task, DeviceTask)]
    takes_device_arrays = any(task.work is None or task.work.takes_device_arrays for task in launched)
    places = list(dict.fromkeys(task.place for task in launched))
    capture: GraphCapture = places[0].device.graph_capture()  # type: ignore[assignment]  # `obstacles` looked
    captured = _CapturedPlaces(places, capture)
    steps = branches(_with_exclusions(tasks, before), MOST_STREAMS, [_number_of(places, task) for task in tasks])
    awaited = {other for step in steps for other in step.waits}
    points: dict[int, Point] = {}
    findings: list[Callable[[Any], Any]] = []
    held: list[object] = []  # what must not be allocated again on another branch
    try:
        numbers = [step.kind for step in sorted({step.stream: step for step in steps}.values())]
        lanes = captured.begin(numbers, kept[1] if any(map(_calls_torch, launched)) else None)
        for at, (task, step) in enumerate(zip(tasks, steps, strict=True)):
            lane = lanes[step.stream]
            lane.wait_for([points[other] for other in step.waits])
            if isinstance(task, DeviceTask):
                task.other_after = None  # the launch of the graph follows the calling thread
                _carry_out(scope, task, captured.environments[step.kind], lane)
                held.append((task.work, task.args, task.kwargs, task.held))
                findings += task.findings or ()
                task.work = task.plan = task.held = task.body = task.value = None
                task.args, task.kwargs, task.findings = (), None, None
                if len(lanes) == 1:
                    held.clear()
            if at in awaited:
                points[at] = lane.mark()
        storage = captured.storage()
        graph = capture.end()
    except BaseException as error:
        capture.cancel()
        if isinstance(error, DeviceError):
            why = f"the device could not create a graph of it: {error}"
            raise NotCapturableError(why, is_passing=capture.was_disturbed(error)) from None
        raise
    return GraphWork(graph, site, storage, state, kept, findings, takes_device_arrays=takes_device_arrays)


def _number_of(places: Sequence[DevicePlace], task: Task) -> int:
    """Return which of the places a task is carried out on: the first for one that is empty."""
    return places.index(task.place) if isinstance(task, DeviceTask) else 0


class _CapturedPlaces:
    """The places of a piece while it is captured."""

    def __init__(self, places: Sequence[DevicePlace], capture: GraphCapture) -> None:
        self._capture = capture
        self._places = places
        self._tables = []
        self.environments: list[Any] = []  # what the works need of each place
        for place in places:
            with place.lock:
                table = ShadowTable(place.table, section_of_entry(place.device))
            self._tables.append(table)
            self.environments.append(_CapturedEnvironment(_CapturedDevice(place, capture, places), table))

    def begin(self, numbers: Sequence[int], reached: Sequence[object] | None) -> list[Lane]:
        """Return a lane at each of these places, all captured from now on; see `GraphCapture.begin`."""
        streams = self._capture.begin([self._places[number].device for number in numbers], reached)
        return [
            Lane(self.environments[number].device, stream, at)
            for at, (number, stream) in enumerate(zip(numbers, streams, strict=True))
        ]

    def storage(self) -> list[GraphStorage]:
        """Return what the graph depends on at each place."""
        return [GraphStorage(place, table.noted()) for place, table in zip(self._places, self._tables, strict=True)]


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
        is_told = False
        if not isinstance(error, NotCapturableError):  # what comes after a refusal tells nothing
            why = place.device.why_not or _raised(error)
            is_told = not (place.device.why_not or is_passing) and _calls_torch(task)
    else:
        return
    finally:
        scope.task, scope.region = outer
        task.lane = None
    # not from one whose frames hold arrays
    raise NotCapturableError(f"{task.name}: {why}", task=task, is_passing=is_passing, is_told=is_told)


def _raised(error: Exception) -> str:
    """Say which call of the program has raised an error under capture, and which error."""
    step, call = error.__traceback__, "it"
    while step is not None:
        code = step.tb_frame.f_code
        if str(step.tb_frame.f_globals.get("__name__")).partition(".")[0] not in LIBRARIES:
            line = linecache.getline(code.co_filename, step.tb_lineno).strip() or code.co_qualname
            call = f"`{line:.80}` ({os.path.basename(code.co_filename)}:{step.tb_lineno})"  # noqa: PTH119  # a name
        step = step.tb_next
    first, _, _ = str(error).partition("\n")  # PyTorch's go on with advice about debugging
    return f"{call} raised {type(error).__name__} under capture: {first}"


def _calls_torch(task: DeviceTask) -> bool:
    """Tell whether a task's body may call PyTorch."""
    return "torch" in sys.modules and reaches_library(task.body, [*task.args, *(task.kwargs or {}).values()], "torch")


class _CapturedDevice:
    """A device while its work is captured."""

    def __init__(self, place: DevicePlace, capture: GraphCapture, places: Sequence[DevicePlace]) -> None:
        self._device = place.device
        self._place = place
        self._capture: Any = capture
        self._places = places  # all that are captured
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
                where = next((place for place in self._places if place.device.is_array(array)), None)
                if where is None:
                    self.why_not = f"it copies {label(array)}, which is on another device"
                else:
                    self._refuse_replicas(array, where)
            elif not self._device.copies_async(array):
                self.why_not = f"it copies {label(array)}, which is in pageable memory; pin it, or map it outside"
            if self.why_not:
                raise NotCapturableError(self.why_not)
        return self._device.copy(dst, src, stream)

    def fill(self, array: Any, value: int, stream: Any) -> None:
        """Set what a graph can set again and again; raise `NotCapturableError` for what has replicas."""
        self._refuse_replicas(array, self._place)
        self._device.fill(array, value, stream)

    def _refuse_replicas(self, array: Any, place: DevicePlace) -> None:
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

    def remember(self, plan: Plan, known: KnownWork) -> None:
        """Do nothing: the plan is for the entries of a rehearsal."""


def _reached(task: Task, changes: HostChanges | None) -> list[object]:
    """Return the objects that a body reaches by itself; their addresses are in its enqueued work."""
    if task.body is None or not isinstance(task, DeviceTask):
        return []
    args = *task.args, *(task.kwargs or {}).values()
    try:
        return reached(task.body, [value for value in args if mapper_of(value) is None], changes)
    except NotCapturableError as error:
        raise NotCapturableError(f"{task.name}: {error}", task=task) from None
