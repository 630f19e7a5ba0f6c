"""Replay: the tasks of a recorded region made again, without its body and without the tracker.

Nothing runs while a replay is wired, so a task has one counter for each predecessor and none for a producer. The engine
wires only special tasks (on a stream, or with an event). A replay with events first waits until the previous run has no
task left. A region that is work of one device is one task, which launches its graph (`offload.graphs.capture`). See
docs/design/theory.md, "Plans and replays".
"""

from __future__ import annotations

import gc
import threading
from contextlib import nullcontext
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.errors import RuntimeClosedError, UsageError
from offload.graphs.capture import Capture, obstacle
from offload.graphs.plan import ReplayPlan, recipes_of
from offload.interrupts.shields import Shield
from offload.runtime.generate import begin
from offload.runtime.recipe import DeviceRecipe
from offload.tasks.engine import MANY_LIVE
from offload.tasks.goals import Emptied, Goal
from offload.tasks.links import follow
from offload.tasks.region import Group, Inherited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.events.event import Event
    from offload.graphs.taskgraph import TaskGraph
    from offload.runtime.current import Scope
    from offload.tasks.engine import Engine
    from offload.tasks.region import Region
    from offload.tasks.site import Site
    from offload.tasks.task import Task


_MANY = 1024  # Tasks from which on the cyclic collector is held while they are made


class Replay:
    """The tasks of a region, ready to be generated again; ``graph`` is not kept."""

    def __init__(self, graph: TaskGraph, group: Group | None, site: Site, name: str | None) -> None:
        self.runtime = graph.runtime
        # whether a task of the recording failed; the region must then be recorded again
        self.is_broken = any(node.state in ("failed", "not run", "cancelled") for node in graph.nodes)
        self._events: list[Event] = graph.events
        self._lock = threading.Lock()  # two replays do not both find the events free
        self._run: list[ref[Task]] = []  # the tasks of the last run, where there are events
        plan = ReplayPlan(graph, group)
        self._outer_groups = plan.outer_groups
        self._regions = list(plan.regions)
        self._makers = plan.makers
        self._steps = plan.steps
        self._counters = plan.counters
        self._single = [(at, after[0]) for at, after in enumerate(plan.after) if len(after) == 1]
        self._several = [(at, itemgetter(*after)) for at, after in enumerate(plan.after) if len(after) > 1]
        self._special = plan.special
        self._sources = plan.sources
        self._queued = plan.queued
        self._regions_of = plan.regions_of if len(self._regions) > 1 else None
        self._site = site
        self._name = name
        refusal = obstacle(recipes_of(graph))
        queues = {queue for _, queue in plan.queued}
        # the device's graph of the region, or why there is none
        self.capture = Capture(() if refusal else _predecessors(plan), refusal, (self._makers, self._steps), queues)

    @property
    def n_tasks(self) -> int:
        return len(self._makers)

    # -- the recording, while its tasks are not complete -----------------------------------------------
    def follow(self, tasks: Sequence[Task]) -> None:
        """Note the tasks of the recording, which may still run, and of which none must fail."""
        if self._events:
            self._run = [ref(task) for task in tasks]
        for task in tasks:
            if task.finished:
                self._note(task)
            else:
                task.add_done_callback(self._note)

    def _note(self, task: Task) -> None:
        if task.failure is not None:
            self.is_broken = True

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
        if self.capture.refusal:
            return False
        engine = self.runtime.engine
        with Shield(scope):
            work = self.capture.ready(scope, lambda: self._make(*self._regions_in(frame)))
            if work is None:
                return False
            task = DeviceRecipe(self._site, self.capture.place, work, self._name).make(frame)  # type: ignore[arg-type]  # known then
            group = Group(frame.inherited.group) if waits else None
            if group is not None:
                task.inherited = frame.inherited.within(group)
            try:
                for queue in self.capture.queues:
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
                if not self._events:
                    made = self._generate(frame, engine)
                else:
                    with self._lock:
                        if self._running():
                            continue  # another thread was quicker
                        made = self._generate_armed(frame, engine)
                self._hand_out(scope, *made, helps=waits)
                is_started = True

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

    def _generate_armed(self, frame: Region, engine: Engine) -> tuple[list[Task], list[Task]]:
        for event in self._events:
            event.rearm()
        try:
            return self._generate(frame, engine)
        except BaseException:
            for event in self._events:
                event.rearm()
            raise

    def _generate(self, frame: Region, engine: Engine) -> tuple[list[Task], list[Task]]:
        """Return the tasks that are ready, of the plain ones and of the others; all of them exist then."""
        frames, groups = self._regions_in(frame)
        with _no_collection if len(self._makers) >= _MANY else nullcontext():
            tasks = self._make(frames, groups)
        for at, queue in self._queued:
            queue.count(tasks[at])
        special = []
        for at, before in self._special:
            if follow(engine, tasks[at], [ref(tasks[other]) for other in before]):
                special.append(tasks[at])
        if self._events:
            self._run = [ref(task) for task in tasks]
        frame.children.live.update(tasks)
        if self._regions_of is None:
            for part in frames:  # one, or none at all
                if part.inherited.group is not None:
                    part.inherited.group.live.update(tasks)
        else:
            for task in tasks:
                if task.inherited.group is not None:
                    task.inherited.group.live.add(task)
        return [tasks[at] for at in self._sources], special

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

    def _make(self, frames: Sequence[Region], groups: Sequence[Group | None]) -> list[Task]:
        """Return the tasks; those that the engine does not wire follow each other already."""
        regions_of = self._regions_of
        if regions_of is None:
            frame: Any = frames[0] if frames else None
            tasks = [make(frame) for make in self._makers]
        else:
            tasks = [make(frames[region]) for make, region in zip(self._makers, regions_of, strict=True)]
        for at, step in self._steps:
            tasks[at] = step.make(frames[0 if regions_of is None else regions_of[at]], groups, tasks)
        for at, counters in self._counters:
            tasks[at].counters = counters.copy()
        for at, successor in self._single:
            tasks[at].successors = [tasks[successor]]
        for at, successors in self._several:
            tasks[at].successors = [*successors(tasks)]
        return tasks


_END = "the end of the taskgraph"


def _predecessors(plan: ReplayPlan) -> list[tuple[int, ...]]:
    """Return the predecessors of each task, whoever wires it."""
    found: list[tuple[int, ...]] = [()] * len(plan.makers)
    for at, after in enumerate(plan.after):
        for other in after:
            found[other] += (at,)
    for at, before in plan.special:
        found[at] = before
    return found


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
