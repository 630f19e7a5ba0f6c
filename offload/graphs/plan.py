"""The compilation of a recorded region into the data that `offload.graphs.replay` needs to make its tasks again.

Positions of nodes stand for tasks. A *plain* node, a host task with nothing but a body, is wired by its position; the
engine wires any other. Waits become edges. A taskgroup is a group of each replay, and its end a task, if there is
something to do at its end. See docs/design/theory.md, "Plans and replays".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.tasks.recipe import Recipe, nothing
from offload.tasks.site import Site
from offload.tasks.task import Task
from offload.tasks.troubles import Trouble, poison

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.graphs.taskgraph import Again, TaskGraph
    from offload.runtime.queues import Queue
    from offload.tasks.depend import Mutex
    from offload.tasks.graph import Node
    from offload.tasks.protocols import Runner
    from offload.tasks.region import Group, Region
    from offload.tasks.scope import Scope


class ReplayPlan:
    """The data from which a recorded graph's tasks are made again. Tasks are named by their positions."""

    def __init__(self, graph: TaskGraph, group: Group | None) -> None:
        self._graph = graph
        # for each task the function that makes it in a region; `_made_later` if it needs more
        self.makers: list[Callable[[Region], Task]] = []
        self.steps: list[tuple[int, Any]] = []  # tasks that need more than a region, each with its maker
        # tasks with predecessors that the engine does not wire, each with the first values of its counters
        self.counters: list[tuple[int, bytearray]] = []
        self.after: list[list[int]] = []  # for each task the tasks that it releases, except those that the engine wires
        self.special: list[tuple[int, tuple[int, ...]]] = []  # tasks that the engine wires, each with its predecessors
        self.sources: list[int] = []  # tasks without predecessors, except those that the engine wires
        self.queued: list[tuple[int, Queue]] = []  # tasks that are operations of async queues, each with its queue
        # number of a group and default device, which tasks inherit -> number of the pair
        self.regions: dict[tuple[int, int], int] = {}
        self.regions_of: list[int] = []  # the number of the pair that each task inherits
        self.outer_groups: list[int] = []  # for each group but the first the number of the group around it
        self._is_plain: list[bool] = []
        self._default_device = 0
        self._counters_for: dict[int, bytearray] = {}
        self._position_of: dict[Node | None, int] = {}
        before = _essential(graph)
        n_after = [0] * len(before)
        for found in before:
            for at in found:
                n_after[at] += 1
        self._number_groups(group, n_after)
        positions: list[tuple[int, ...]] = []  # for each node its task, or those that a wait stands for
        for node, found in zip(graph.nodes, before, strict=True):
            mine = tuple(dict.fromkeys(position for at in found for position in positions[at]))
            is_task = node.spec is not None or self._ends_group(node)
            if not is_task and min(len(mine), n_after[node.index]) <= 1:
                positions.append(mine)
            else:
                positions.append((self._add(node, mine),))

    def _number_groups(self, group: Group | None, n_after: Sequence[int]) -> None:
        """Give the taskgroups in the region numbers; one at whose end nothing is left to do has that of its outer."""
        self._groups: dict[Group | None, int] = {group: 0}
        ends = self._graph.group_ends
        for node in reversed(self._graph.nodes):  # outer ones end later, so come first here
            ended = ends.get(node)
            if ended is None:
                continue
            outer = self._groups[ended.outer]
            if n_after[node.index]:
                self.outer_groups.append(outer)
                self._groups[ended] = len(self.outer_groups)
            else:
                self._groups[ended] = outer

    def _ends_group(self, node: Node) -> bool:
        ended = self._graph.group_ends.get(node)
        return ended is not None and self._groups[ended] != self._groups[ended.outer]

    def _add(self, node: Node, before: tuple[int, ...]) -> int:
        """Add the task of a node and its predecessors; return its position."""
        at = self._position_of[node] = len(self.makers)
        step: Any = self._wait_step(node) if node.spec is None else self._task_step(node.spec)  # type: ignore[arg-type]  # the recorder's
        is_plain = not isinstance(step, _Step)
        if isinstance(step, Recipe):
            self.makers.append(step.make)
        else:
            self.makers.append(_made_later)
            self.steps.append((at, step))
        if not (is_plain and all(self._is_plain[other] for other in before)):
            self.special.append((at, before))
        elif before:
            n = len(before)
            self.counters.append((at, self._counters_for.setdefault(n, bytearray(b"\1" + bytes(n - 1)))))
            for other in before:
                self.after[other].append(at)
        else:
            self.sources.append(at)
        self.after.append([])
        self._is_plain.append(is_plain)
        return at

    def _wait_step(self, node: Node) -> Recipe | _EndStep:
        site = Site(node.directive, node.name, str(node.location), self._graph.runtime)
        ended = self._graph.group_ends.get(node)
        if ended is None:
            self._enter(0)
            return Recipe(site)
        self._enter(self._groups[ended.outer])
        return _EndStep(site, self._groups[ended])

    def _task_step(self, again: Again) -> Recipe | _Step:
        recipe, inherited = again.recipe, again.inherited
        self._default_device = inherited.default_device
        self._enter(self._groups[inherited.group])
        if not recipe.is_plain or again.mutexes:
            if recipe.queue is not None:
                self.queued.append((len(self.makers), recipe.queue))
            sources = [self._position_of.get(source) for source in again.sources]
            return _Step(recipe, again.mutexes, sources)
        return recipe

    def _enter(self, group: int) -> None:
        region = group, self._default_device
        self.regions_of.append(self.regions.setdefault(region, len(self.regions)))


def _essential(graph: TaskGraph) -> list[list[int]]:
    """Return the predecessors of each node, without fences that another predecessor lies behind."""
    fences = {
        edge.source.index
        for edge in graph.edges
        if edge.kind == "wait" and (edge.source.spec is None or edge.target.spec is not None)
    }
    found = []
    for node in graph.nodes:
        before = [other.index for other in node.before]
        if len(before) > 1:
            last = max(before)
            before = [at for at in before if at == last or at not in fences]
        found.append(before)
    return found


def is_replayable(graph: TaskGraph, group: Group | None) -> bool:
    """Tell whether the taskgroups of a recorded region are known: they have ended in it, inner ones first."""
    known = {group}
    for ended in reversed(graph.group_ends.values()):
        if ended.outer not in known:
            return False
        known.add(ended)
    return all(
        node.spec is None or node.spec.inherited.group in known  # type: ignore[attr-defined]  # the recorder's
        for node in graph.nodes
    )


def recipes_of(graph: TaskGraph) -> list[Recipe]:
    """Return the recipes of the tasks that a recorded region has generated."""
    return [node.spec.recipe for node in graph.nodes if node.spec is not None]  # type: ignore[attr-defined]  # the recorder's


def tasks_of(graph: TaskGraph) -> list[Task]:
    """Return the tasks that a recorded region has generated, but those whose failures have been seen."""
    runs: Any = [node.run for node in graph.nodes if node.spec is not None]
    return [run.task for run in runs if run.task is not None]


def _made_later(_: Region) -> Any:
    """Make no task yet: it needs the others, or the taskgroups of the replay."""


class _Step:
    """Makes the task of a node that is not plain; it knows no node, since those have the recorded tasks.

    ``sources`` are the positions of the tasks that it receives values of; None for one that is no node.
    """

    __slots__ = ("_mutexes", "_recipe", "_sources")

    def __init__(self, recipe: Recipe, mutexes: tuple[Mutex, ...], sources: Sequence[int | None]) -> None:
        self._recipe = recipe
        self._mutexes = mutexes
        self._sources = sources

    def make(self, frame: Region, _groups: Any, tasks: Sequence[Task]) -> Task:
        """Make the task; ``tasks`` are those before it."""
        sources = [None if at is None else tasks[at] for at in self._sources] if self._sources else ()
        task = self._recipe.make(frame, sources)
        if self._mutexes:
            task.mutexes = self._mutexes
            task.special = True
        return task


class _EndStep:
    """Makes the end of a taskgroup, known by its number."""

    __slots__ = ("_number", "_site")

    def __init__(self, site: Site, number: int) -> None:
        self._site = site
        self._number = number

    def make(self, frame: Region, groups: Sequence[Any], _tasks: Any) -> Task:
        """Make the task; ``groups`` are the taskgroups of the replay."""
        return _GroupEnd(self._site, frame, groups[self._number])


class _GroupEnd(Task):
    """The end of a taskgroup in a replay: complete when no task of the group is left."""

    # It hands the failures on that nobody has seen, and then what comes after it does not run.

    __slots__ = ("_group", "_is_listed", "_tokens")

    def __init__(self, site: Site, frame: Region, group: Group) -> None:
        super().__init__(site, nothing, (), None, frame)
        self._group = group
        self._is_listed = False
        self._tokens = [None]  # whoever takes it goes on

    def advance(self, engine: Runner[Task], scope: Scope) -> Task | None:
        group = self._group
        if not self._is_listed:
            self._is_listed = True
            with engine.lock:
                group.waiters = (*group.waiters, self._go_on)
            if group.live or not self._take():
                return None
        group.waiters = ()  # they refer to this task, and it to the group
        outer = self.inherited.group
        failed = list(group.failures)
        if failed and outer is not None:
            with engine.lock:
                outer.failures.update(dict.fromkeys(failed))
        for task in failed:
            poison(self, task, Trouble.of(task))
        del failed
        if (self.special or engine.can_cancel) and engine.hinders(self):
            return None
        return engine.finish(self)

    def _take(self) -> bool:
        try:
            self._tokens.pop()
        except IndexError:
            return False
        return True

    def _go_on(self) -> None:
        if self._take():
            self.construct.runtime.engine.make_ready(self)
