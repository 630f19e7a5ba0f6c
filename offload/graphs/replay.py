"""Replay: the tasks of a recorded region made again, without its body and without the tracker.

Nothing runs while a replay is wired, so a task has one counter for each predecessor and none for a producer. The engine
wires only special tasks (on a stream, or with an event). A replay with events first waits until the previous run has no
task left. Pieces of the region that are device work only are one task each, which launches a graph
(`offload.graphs.pieces`). See docs/design/theory.md, "Plans and replays".
"""

from __future__ import annotations

import gc
import threading
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.errors import PerformanceWarning, RuntimeClosedError, UsageError
from offload.graphs.pieces import Cut, obstacles
from offload.graphs.plan import ReplayPlan, ReplayRun, UnitMaker, Wiring
from offload.interrupts.frames import warn
from offload.interrupts.shields import Shield
from offload.runtime.appended import gathering
from offload.runtime.generate import begin
from offload.runtime.launch import DeviceTask
from offload.runtime.recipe import DeviceRecipe
from offload.tasks import hooked
from offload.tasks.engine import MANY_LIVE
from offload.tasks.goals import Emptied, Goal
from offload.tasks.links import follow
from offload.tasks.region import Group, Inherited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.events.event import Event
    from offload.graphs.capture import Capture
    from offload.graphs.taskgraph import TaskGraph
    from offload.graphs.work import GraphWork
    from offload.runtime.current import Scope
    from offload.tasks.engine import Engine
    from offload.tasks.region import Region
    from offload.tasks.site import Site
    from offload.tasks.task import Task


# Tasks that are left out of pieces one at a time, since they cannot be captured: each costs another try.
_MOST_CUTS = 8

_MANY = 1024  # Tasks from which on the cyclic collector is held while they are made


class Replay:
    """The tasks of a region, ready to be generated again; ``graph`` is not kept."""

    def __init__(self, graph: TaskGraph, group: Group | None, site: Site, name: str | None) -> None:
        self.runtime = graph.runtime
        # whether a task of the recording failed; the region must then be recorded again
        self.is_broken = any(node.state in ("failed", "not run", "cancelled") for node in graph.nodes)
        self.pending: set[Task] = set()  # the tasks of the recording that may still fail
        self._events: list[Event] = graph.events
        self._lock = threading.Lock()  # two replays do not both find the events free
        self._run: list[ref[Task]] = []  # the tasks of the last run, where there are events
        plan = ReplayPlan(graph, group)
        self._outer_groups = plan.outer_groups
        self._regions = list(plan.regions)
        self._units = plan.units
        self._wiring = Wiring(plan.units)  # of all tasks one by one
        self._site = site
        self._name = name
        self._queues = dict.fromkeys(queue for unit in plan.units for queue in unit.queues)
        self._n_cuts = self._n_captured_before = 0  # the second: of pieces that are none any more
        self._has_warned = False  # that PyTorch has refused a capture
        self.cut = Cut(plan.units, obstacles(plan.units), site, name)

    @property
    def n_tasks(self) -> int:
        return len(self._units)

    @property
    def n_captured(self) -> int:
        return self._n_captured_before + sum(capture.n_captured for capture in self.cut.captures)

    # -- the recording, while its tasks are not complete -----------------------------------------------
    def follow(self, tasks: Sequence[Task]) -> None:
        """Note the tasks of the recording, which may still run, and of which none must fail."""
        if self._events:
            self._run = [ref(task) for task in tasks]
        for task in tasks:
            if task.finished:
                self._note(task)
            else:
                self.pending.add(task)
                task.add_done_callback(self._note)

    def look(self) -> None:
        """Note which pending tasks are complete: who waits for a task may go on before its callbacks have run."""
        for task in self.pending.copy():  # in one step: a callback may take one out meanwhile
            if task.finished:
                self._note(task)

    def _note(self, task: Task) -> None:
        if task.failure is not None:
            self.is_broken = True
        self.pending.discard(task)

    # -- replaying -------------------------------------------------------------------------------------
    def admit(self, scope: Scope, frame: Region, *, waits: bool) -> None:
        """See that the region may be replayed now: the runtime is open, and not very many tasks are live."""
        engine = self.runtime.engine
        if engine.closed and engine.refuses(frame):
            raise RuntimeClosedError(engine.closed)
        if not waits:
            self._throttle(scope, frame)

    def start_graph(self, scope: Scope, frame: Region, *, waits: bool) -> bool:
        """Launch the region as a graph of its device, if it is one; return whether it is."""
        # The graph is one task, the only one of its taskgroup, so no region has to be begun and ended. ``waits`` tells
        # whether there is a taskgroup, and the calling thread waits for it.
        if not self.cut.is_whole:
            return False
        engine = self.runtime.engine
        with Shield(scope):
            cut, works = self._ready(scope, frame)
            if not (works and cut.is_whole):
                return False
            (work,) = works
            task = DeviceRecipe(self._site, work.place, work, label=self._name).make(frame)
            group = Group(frame.inherited.group) if waits else None
            if group is not None:
                task.inherited = frame.inherited.within(group)
            try:
                for queue in self._queues:
                    queue.count(task)
                if engine.submit(task, ()):
                    begin(scope, task)
            except BaseException:
                engine.mend(task)
                if group is not None:
                    engine.wait(scope, Emptied(_END, group))
                raise
            if group is not None:
                del task  # what is waited for need not be kept
                self.runtime.wait_for(scope, Emptied(_END, group))
        return True

    def start(self, scope: Scope, frame: Region, *, waits: bool) -> None:
        """Generate the tasks again in a region, and start them one by one.

        If ``waits``, the calling thread then waits for them, and so runs some.
        """
        engine = self.runtime.engine
        is_started = False
        while not is_started:
            if self._events and (running := self._running()):
                self._wait_for(running, scope)
            with Shield(scope):
                # Of a whole region `start_graph` has asked.
                cut, works = (self.cut, []) if self.cut.is_whole else self._ready(scope, frame)
                if not self._events:
                    made = self._generate(frame, engine, cut, works)
                else:
                    with self._lock:
                        if self._running():
                            continue  # another thread was quicker
                        made = self._generate_armed(frame, engine, cut, works)
                with gathering(self.runtime.places):
                    self._hand_out(scope, *made, helps=waits)
                is_started = True

    def _ready(self, scope: Scope, frame: Region) -> tuple[Cut, list[GraphWork]]:
        """Return the pieces and the work of each; no works if the tasks of this replay go to streams one by one."""
        while True:
            cut, works = self.cut, []
            for part, capture in zip(cut.parts, cut.captures, strict=True):
                work = capture.ready(scope, partial(self._make_some, part, frame))
                if work is not None:
                    works.append(work)
                elif capture.refusal:
                    self._cut_again(cut, part, capture)
                    break
                else:
                    return cut, []
            else:
                return cut, works

    def _renew(self, cut: Cut, number: int, launch: Any) -> GraphWork | None:
        """Return the work of a piece whose storage has moved since its task was made."""
        make = partial(self._make_some, cut.parts[number], launch.frame)
        return cut.captures[number].renew(self.runtime.here(), make)

    def _unfold(self, cut: Cut, number: int, piece: DeviceTask) -> Group:
        """Start the tasks of a piece one by one, as its storage has moved and it is no graph any more.

        Return the group of the tasks. They follow what the piece follows on streams.
        """
        engine = self.runtime.engine
        group = Group(piece.inherited.group)
        frame = piece.frame.part(piece.inherited.within(group))
        part = cut.parts[number]
        tasks = self._make_alone(part, frame)
        work: Any = piece.work
        places = piece.place, *work.others
        events = dict(zip((place.device for place in places), (piece.after, *(piece.other_after or ())), strict=False))
        first = [ref(other) for other in piece.predecessors]
        for task in tasks:
            if isinstance(task, DeviceTask) and (work := task.work) is not None and work.takes_device_arrays:
                task.after = events.get(task.place.device)  # of the thread that generated the piece
                task.other_after = events.get(work.second)
        frame.children.live.update(tasks)
        group.live.update(tasks)
        before = cut.before(part)
        ready = [
            task
            for task, found in zip(tasks, before, strict=True)
            if engine.follow(engine, task, [ref(tasks[other]) for other in found] or first)
        ]
        for task in ready:
            engine.make_ready(task)
        return group

    def _cut_again(self, cut: Cut, part: Sequence[int], capture: Capture) -> None:
        """Leave out of all pieces what has kept one from being captured."""
        with self._lock:
            if self.cut is cut:  # else another thread was quicker
                self._n_cuts += 1
                self._n_captured_before = self.n_captured
                others = cut.without(part, capture, wholly=self._n_cuts > _MOST_CUTS)
                self.cut = Cut(self._units, others, self._site, self._name)
        if capture.is_told and not self._has_warned:
            self._has_warned = True
            warn(
                f"{self._site.directive} {self._site.name!r} is not replayed as one CUDA graph: {capture.refusal}; "
                "replace the call by one that PyTorch can capture, or move it out of the body",
                PerformanceWarning,
            )

    def _throttle(self, scope: Scope, frame: Region) -> None:
        """Let tasks get on while very many are live, as long as any does: who waits for nothing may replay for ever."""
        live = frame.children.live
        n_before = len(live) + 1
        while MANY_LIVE < len(live) < n_before:
            n_before = len(live)
            self.runtime.engine.throttle(scope, frame)

    def _running(self) -> list[Task]:
        return [task for reference in self._run if (task := reference()) is not None and not task.finished]

    def _wait_for(self, running: list[Task], scope: Scope) -> None:
        """Wait until the run before is complete: its events serve one task at a time."""
        ancestor = scope.task
        while ancestor is not None:
            if ancestor in running:
                raise UsageError(
                    f"{ancestor.key} replays the taskgraph that contains it, but this taskgraph has an event, and an "
                    "event can serve only one task at a time; generate those tasks outside the taskgraph"
                )
            ancestor = ancestor.frame.task
        self.runtime.engine.wait(scope, Goal("a replay with events", running))

    def _generate_armed(
        self, frame: Region, engine: Engine, cut: Cut, works: Sequence[GraphWork]
    ) -> tuple[list[Task], list[Task]]:
        for event in self._events:
            event.rearm()
        try:
            return self._generate(frame, engine, cut, works)
        except BaseException:
            for event in self._events:
                event.rearm()
            raise

    def _generate(
        self, frame: Region, engine: Engine, cut: Cut, works: Sequence[GraphWork]
    ) -> tuple[list[Task], list[Task]]:
        """Return the tasks that are ready, of the plain ones and of the others; all of them exist then."""
        wiring = self._wiring if not works or cut.wiring is None else cut.wiring
        frames, groups = self._regions_in(frame)
        run = ReplayRun(groups, works, partial(self._renew, cut), partial(self._unfold, cut))
        with _no_collection if len(wiring.makers) >= _MANY else nullcontext():
            tasks = self._make(frames, wiring, run)
        for at, queue in wiring.queued:
            queue.count(tasks[at])
        special = []
        for at, before in wiring.special:
            if follow(engine, tasks[at], [ref(tasks[other]) for other in before]):
                special.append(tasks[at])
        if self._events:
            self._run = [ref(task) for task in tasks]
        frame.children.live.update(tasks)
        if len(frames) <= 1:
            for part in frames:  # one, or none at all
                if part.inherited.group is not None:
                    part.inherited.group.live.update(tasks)
        else:
            for task in tasks:
                if task.inherited.group is not None:
                    task.inherited.group.live.add(task)
        return [tasks[at] for at in wiring.sources], special

    def _regions_in(self, frame: Region) -> tuple[list[Region], list[Group | None]]:
        """Return what the tasks inherit that are generated in a region, and the taskgroups that end there."""
        groups: list[Group | None] = [frame.inherited.group]
        for outer in self._outer_groups:
            groups.append(Group(groups[outer]))
        return [frame.part(Inherited(default, groups[number])) for number, default in self._regions], groups

    def _hand_out(self, scope: Scope, plain: list[Task], special: list[Task], *, helps: bool) -> None:
        self.runtime.engine.make_all_ready(plain, helps=helps)
        for task in special:
            begin(scope, task)

    def _make(self, frames: Sequence[Region], wiring: Wiring, run: ReplayRun) -> list[Task]:
        """Return the tasks; those that the engine does not wire follow each other already."""
        regions_of = wiring.regions_of
        if len(frames) == 1:
            (frame,) = frames
            tasks = [make(frame) for make in wiring.makers]
        else:
            tasks = [make(frames[region]) for make, region in zip(wiring.makers, regions_of, strict=True)]
        for at, step in wiring.steps:
            tasks[at] = step.make(frames[regions_of[at]], run, tasks)
        for at, counters in wiring.counters:
            tasks[at].counters = counters.copy()
        for at, successor in wiring.single:
            tasks[at].successors = [tasks[successor]]
        for at, successors in wiring.several:
            tasks[at].successors = [*successors(tasks)]
        return tasks

    def _make_some(self, positions: Sequence[int], frame: Region) -> list[Task]:
        """Return tasks of a piece, which are to be captured and never entered."""
        frames, groups = self._regions_in(frame)
        run = ReplayRun(groups)
        return [self._make_one(at, frames, run) for at in positions]

    def _make_alone(self, positions: Sequence[int], frame: Region) -> list[Task]:
        """Return tasks of a piece, which are to be entered one by one."""
        return [self._make_one(at, [frame] * len(self._regions), ReplayRun(())) for at in positions]

    def _make_one(self, at: int, frames: Sequence[Region], run: ReplayRun) -> Task:
        """Return the task of a unit that needs no other task."""
        step, _, region, _ = self._units[at]
        return step.make(frames[region], run, ()) if isinstance(step, UnitMaker) else step.make(frames[region])


def _observed_make(plain: Any) -> Any:
    """Return `Replay._make` for observed runtimes: the tasks that it makes are wired already, and not submitted."""

    def make(self: Any, frames: Sequence[Region], wiring: Wiring, run: ReplayRun) -> list[Task]:
        tasks: list[Task] = plain(self, frames, wiring, run)
        calls = self.runtime.calls
        if calls is not None:
            _tell_made(calls, tasks)
            pairs = [*wiring.single, *[(before, at) for at, found in wiring.special for before in found]]
            for at, successors in wiring.several:
                pairs += [(at, after) for after in successors(range(len(tasks)))]
            for log in [log for log in calls.logs if log.wants_starts]:
                for before, after in pairs:
                    log.edges.extend((tasks[before].created_s, tasks[after].created_s))
        return tasks

    return make


def _observed_make_alone(plain: Any) -> Any:
    def make(self: Any, positions: Sequence[int], frame: Region) -> list[Task]:
        tasks: list[Task] = plain(self, positions, frame)
        if (calls := self.runtime.calls) is not None:
            _tell_made(calls, tasks)
        return tasks

    return make


def _tell_made(calls: Any, tasks: Sequence[Task]) -> None:
    for task in tasks:
        task.created_s, task.maker = perf_counter(), threading.get_ident()
        if calls.task_created is not None:
            calls.task_created(task)


hooked.register(Replay, "_make", _observed_make)
hooked.register(Replay, "_make_alone", _observed_make_alone)


def _noted_make(plain: Any) -> Any:
    """Return `Replay._make` for sanitized runtimes: the edges of the graph are in no clause."""

    def make(self: Any, frames: Sequence[Region], wiring: Wiring, run: ReplayRun) -> list[Task]:
        tasks: list[Task] = plain(self, frames, wiring, run)
        if (orders := hooked.orders.get(self.runtime)) is not None:
            edges = [*wiring.single, *[(before, at) for at, found in wiring.special for before in found]]
            for at, successors in wiring.several:
                edges += [(at, after) for after in successors(range(len(tasks)))]
            orders.made(tasks, edges)
        return tasks

    return make


hooked.register(Replay, "_make", _noted_make, "sanitize")

_END = "the end of the taskgraph"


class _NoCollection:
    """Holds the cyclic collector for some milliseconds: it would look at new tasks again and again and find nothing."""

    # It is on again when the last of several threads leaves, unless it was off before the first came.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0 and self._was_on:
                gc.enable()


_no_collection = _NoCollection()
