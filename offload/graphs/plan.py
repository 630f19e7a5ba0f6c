"""The compilation of a recorded region into the data that `offload.graphs.replay` needs to make its tasks again.

A `ReplayPlan` has a unit for each task, with its maker and its predecessors. A `Wiring` is the data that a replay needs
of some units. Positions of units stand for tasks. A *plain* unit, a host task with nothing but a body, is wired by its
position; the engine wires any other. Waits become edges. A taskgroup is a group of each replay, and its end a task, if
there is something to do at its end. See docs/design/theory.md, "Plans and replays".
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.graphs.replay_tasks import GroupEnd, PieceRecipe
from offload.graphs.work import PieceWork
from offload.tasks.recipe import Recipe
from offload.tasks.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.graphs.taskgraph import Again, TaskGraph
    from offload.graphs.work import GraphWork
    from offload.runtime.queues import Queue
    from offload.tasks.depend import Mutex
    from offload.tasks.graph import Node
    from offload.tasks.region import Group, Region
    from offload.tasks.task import Task


def _never(number: int, launch: Any) -> None:
    """Return None: there are no pieces."""


class Unit(NamedTuple):
    """One task of each replay."""

    step: Any  # what makes the task: a `Recipe`, for a plain one, or a `UnitMaker`
    before: tuple[int, ...]  # the positions of the units that it follows
    region: int  # the number of the group and the default device that it inherits
    queues: tuple[Queue, ...] = ()  # the async queues that it is an operation of


class ReplayRun(NamedTuple):
    """The objects of one replay that its tasks are made with."""

    groups: Sequence[Group | None]  # its taskgroups
    works: Sequence[GraphWork] = ()  # what launches its pieces
    renew: Callable[..., GraphWork | None] = _never  # returns that of a piece, by its number, for the storage of now
    unfold: Callable[..., Any] = _never  # starts the tasks of a piece in its place; returns their group


class ReplayPlan:
    """The units of a recorded graph, in the order of generation."""

    def __init__(self, graph: TaskGraph, group: Group | None) -> None:
        self._graph = graph
        self.units: list[Unit] = []
        # number of a group and default device, which tasks inherit -> number of the pair
        self.regions: dict[tuple[int, int], int] = {}
        self.outer_groups: list[int] = []  # for each group but the first the number of the group around it
        self._default_device = 0
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
        """Add the unit of a node; return its position."""
        at = self._position_of[node] = len(self.units)
        again: Again | None = node.spec  # type: ignore[assignment]  # the recorder's
        self.units.append(self._wait_unit(node, before) if again is None else self._task_unit(again, before))
        return at

    def _wait_unit(self, node: Node, before: tuple[int, ...]) -> Unit:
        site = Site(node.directive, node.name, str(node.location), self._graph.runtime)
        ended = self._graph.group_ends.get(node)
        if ended is None:
            return Unit(Recipe(site), before, self._region(0))
        return Unit(GroupEndMaker(site, self._groups[ended]), before, self._region(self._groups[ended.outer]))

    def _task_unit(self, again: Again, before: tuple[int, ...]) -> Unit:
        recipe, inherited = again.recipe, again.inherited
        self._default_device = inherited.default_device
        region = self._region(self._groups[inherited.group])
        if recipe.is_plain and not again.mutexes:
            return Unit(recipe, before, region)
        sources = tuple(self._position_of.get(source) for source in again.sources)
        queues = () if recipe.queue is None else (recipe.queue,)
        return Unit(TaskMaker(recipe, again.mutexes, sources), before, region, queues)

    def _region(self, group: int) -> int:
        region = group, self._default_device
        return self.regions.setdefault(region, len(self.regions))


class Wiring:
    """The data with which a replay makes and orders the tasks of some units. Each follows earlier ones."""

    def __init__(self, units: Sequence[Unit]) -> None:
        # for each task the function that makes it in a region; `_made_later` if it needs more
        self.makers: list[Callable[[Region], Task]] = []
        self.steps: list[tuple[int, UnitMaker]] = []  # tasks that need more than a region, each with its maker
        # tasks with predecessors that the engine does not wire, each with the first values of its counters
        self.counters: list[tuple[int, bytearray]] = []
        self.special: list[tuple[int, tuple[int, ...]]] = []  # tasks that the engine wires, each with its predecessors
        self.sources: list[int] = []  # tasks without predecessors, except those that the engine wires
        self.queued = [(at, queue) for at, unit in enumerate(units) for queue in unit.queues]
        self.regions_of = [unit.region for unit in units]
        counters_for: dict[int, bytearray] = {}
        after: list[list[int]] = [[] for _ in units]  # the tasks that each releases, except those that the engine wires
        is_plain: list[bool] = []
        for at, (step, before, _, _) in enumerate(units):
            is_plain.append(isinstance(step, Recipe))
            if is_plain[at]:
                self.makers.append(step.make)
            else:
                self.makers.append(_made_later)
                self.steps.append((at, step))
            if not (is_plain[at] and all(is_plain[other] for other in before)):
                self.special.append((at, before))
            elif before:
                n = len(before)
                self.counters.append((at, counters_for.setdefault(n, bytearray(b"\1" + bytes(n - 1)))))
                for other in before:
                    after[other].append(at)
            else:
                self.sources.append(at)
        self.single = [(at, found[0]) for at, found in enumerate(after) if len(found) == 1]
        self.several = [(at, itemgetter(*found)) for at, found in enumerate(after) if len(found) > 1]


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


def tasks_of(graph: TaskGraph) -> list[Task]:
    """Return the tasks that a recorded region has generated, but those whose failures have been seen."""
    runs: Any = [node.run for node in graph.nodes if node.spec is not None]
    return [run.task for run in runs if run.task is not None]


def _made_later(_: Region) -> Any:
    """Make no task yet: it needs the others, or the taskgroups of the replay."""


class UnitMaker:
    """Makes the task of a unit that is not plain. It knows no node, since those have the recorded tasks."""

    __slots__ = ()

    def make(self, frame: Region, run: ReplayRun, tasks: Sequence[Task]) -> Task:
        """Make the task of a replay; ``tasks`` are those before it."""
        raise NotImplementedError


class TaskMaker(UnitMaker):
    """Makes a task of its recipe."""

    __slots__ = ("mutexes", "recipe", "sources")

    def __init__(self, recipe: Recipe, mutexes: tuple[Mutex, ...], sources: tuple[int | None, ...]) -> None:
        self.recipe = recipe
        self.mutexes = mutexes
        self.sources = sources  # the positions of the tasks whose values it receives; None for one that is no unit

    def make(self, frame: Region, run: ReplayRun, tasks: Sequence[Task]) -> Task:
        sources = [None if at is None else tasks[at] for at in self.sources] if self.sources else ()
        task = self.recipe.make(frame, sources)
        if self.mutexes:
            task.mutexes = self.mutexes
            task.special = True
        return task


class GroupEndMaker(UnitMaker):
    """Makes the end of a taskgroup, known by its number."""

    __slots__ = ("_number", "_site")

    def __init__(self, site: Site, number: int) -> None:
        self._site = site
        self._number = number

    def make(self, frame: Region, run: ReplayRun, tasks: Sequence[Task]) -> Task:
        return GroupEnd(self._site, frame, run.groups[self._number])  # type: ignore[arg-type]  # not the first


class PieceMaker(UnitMaker):
    """Makes the task that launches a piece, known by its number."""

    __slots__ = ("_name", "_number")

    def __init__(self, number: int, name: str | None) -> None:
        self._number = number
        self._name = name

    def make(self, frame: Region, run: ReplayRun, tasks: Sequence[Task]) -> Task:
        work = run.works[self._number]
        piece = PieceWork(work, partial(run.renew, self._number), partial(run.unfold, self._number))
        return PieceRecipe(work.site, work.place, piece, label=self._name).make(frame)
