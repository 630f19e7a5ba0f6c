"""The dependence graph of a run, made from its records.

A wait is a node, as in the graph that ``record`` makes: it comes after the tasks that it waited for, and the later
tasks of its region come after it. The later tasks of a region come after its undeferred tasks, too. Each such edge is
checked against the times: its source had ended when its target was generated.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.tasks.graph import Graph, Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.reports.records import RunRecord, TaskRecord


class PastRun(NamedTuple):
    """The record of a task that has ended, or of a wait, which takes no time; see `offload.tasks.graph.Run`."""

    state: str
    start_s: float | None
    end_s: float | None


class Made(NamedTuple):
    """A task when it was generated: the numbers of its region and of the taskgroups around it."""

    created_s: float
    sets: tuple[int, ...]
    is_deferred: bool


class Waited(NamedTuple):
    """A wait that has ended: in which region, and for which task sets or tasks (by when they were generated)."""

    end_s: float
    name: str
    location: str
    region: int
    sets: tuple[int, ...]
    tasks: tuple[float, ...]


class Fences(NamedTuple):
    """The waits of a run, and the task sets that they may have waited for."""

    made: Sequence[Made] = ()
    waited: Sequence[Waited] = ()


def graph_of(run: RunRecord, kinds: Iterable[tuple[int, int, str, str]], fences: Fences = Fences()) -> Graph:  # noqa: B008  # a tuple of nothing
    """Return the graph of all tasks that have ended: an edge without a kind is an order that no list item made."""
    edges: dict[int, list[tuple[int, Any, str]]] = defaultdict(list)  # by target
    known = set()
    for before, after, kind, item in kinds:
        known.add((before, after))
        edges[after].append((before, kind, item))
    for before, after in run.edges:
        if (before, after) not in known:
            edges[after].append((before, "wait", ""))
    building = _Building(fences)
    moments: list[tuple[float, int, Any]] = [(task.created_s, 1, task) for task in run.tasks]
    moments += [(wait.end_s, 0, wait) for wait in fences.waited]
    for _, is_task, what in sorted(moments, key=lambda moment: moment[:2]):
        if is_task:
            building.add_task(what, edges.get(what.number, ()))
        else:
            building.add_wait(what)
    return building.graph


class _Building:
    """A graph that gets its nodes in the order of time."""

    def __init__(self, fences: Fences) -> None:
        self.graph = Graph()
        self._made = {made.created_s: made for made in fences.made}
        self._nodes: dict[int, Node] = {}
        self._node_at: dict[float, Node] = {}
        self._ends_s: dict[Node, float] = {}
        self._fences: dict[int, Node] = {}  # by region: the node before everything generated from now on
        self._open: dict[int, list[Node]] = defaultdict(list)  # by set: the tasks that its next wait waits for
        self._n_waits = 0

    def add_task(self, task: TaskRecord, edges: Iterable[tuple[int, Any, str]]) -> None:
        node = Node(
            task.key,
            task.name,
            task.directive,
            device_num=task.device,
            location=task.location,
            detach=task.kind in {"detached", "request"},
            run=PastRun(task.state, task.start_s, task.end_s),
        )
        self._nodes[task.number] = self._node_at[task.created_s] = self.graph.add_node(node)
        self._ends_s[node] = task.end_s
        for before, kind, item in edges:
            if before in self._nodes and before != task.number:
                self.graph.add_edge(self._nodes[before], node, kind, item)
        made = self._made.get(task.created_s)
        if made is None:
            return
        self._follow_fence(node, made.sets[0], task.created_s)
        for number in made.sets:
            self._open[number].append(node)
        if not made.is_deferred:
            self._fences[made.sets[0]] = node

    def _follow_fence(self, node: Node, region: int, now_s: float) -> None:
        fence = self._fences.get(region)
        if fence is not None and self._ends_s[fence] <= now_s:
            self.graph.add_edge(fence, node, "wait")

    def add_wait(self, wait: Waited) -> None:
        nodes = [node for made_s in wait.tasks if (node := self._node_at.get(made_s)) is not None]
        for number in wait.sets:
            nodes += self._open.pop(number, [])
        nodes = [node for node in nodes if self._ends_s[node] <= wait.end_s]
        if not nodes:
            return
        self._n_waits += 1
        run = PastRun("complete", None, None)
        key = f"{wait.name}-wait-{self._n_waits}"
        node = self.graph.add_node(Node(key, wait.name, "taskwait", location=wait.location, run=run))
        self._ends_s[node] = wait.end_s
        waited = set(nodes)
        for source in nodes:
            # A task whose successor is waited for needs no edge of its own.
            if waited.isdisjoint(self.graph.successors(source)):
                self.graph.add_edge(source, node, "wait")
        self._follow_fence(node, wait.region, wait.end_s)
        if wait.region not in wait.sets:
            self._open[wait.region].append(node)
        self._fences[wait.region] = node
