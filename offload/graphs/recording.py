"""Recording: the graph of the tasks that a region generates, to look at and to run again."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from offload.arrays.items import PlaceToken, all_memory, label
from offload.errors import UsageError
from offload.graphs.seen import GraphLog
from offload.graphs.taskgraph import Again, TaskGraph, TaskRun, WaitRun
from offload.runtime.current import here
from offload.runtime.managers import block
from offload.tasks import hooked
from offload.tasks.blocks import Block
from offload.tasks.depend import Tracker
from offload.tasks.graph import Node
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offload.tasks.depend import Access, Followed
    from offload.tasks.recipe import Recipe
    from offload.tasks.region import Group
    from offload.tasks.site import Site

_wait_numbers = count(1)  # Keys are unique in the process: Dask computes several graphs as one


class Recorder:
    """Builds the graph of the tasks that one region generates."""

    def __init__(self, graph: TaskGraph, *, executes: bool, runs_again: bool) -> None:
        self.graph = graph
        self.executes = executes  # whether the tasks run as usual
        # whether the graph is to run by itself; then nothing in it may wait for something outside
        self.runs_again = runs_again
        self._node_of: dict[Task, Node] = {}
        self._tracker = Tracker(handles_of=partial(nodes_followed, self._node_of))
        self._fence: Node | None = None  # everything generated from now on comes after it
        self._waited_for: set[Node] = set()  # what the fence is known to come after
        self._groups: list[list[Node]] = [[]]  # what the next wait of each open group waits for
        self._nodes_of: dict[Group, list[Node]] = {}
        self._labels: dict[Any, str] = {None: label(all_memory)}  # of locations

    def add(self, task: Task, recipe: Recipe, dependences: Sequence[Access], *, deferred: bool) -> None:
        """Add the node of a task and the edges of its dependences."""
        if task.caller is not None:
            recipe.site = recipe.site.called_at(task.caller)  # tasks that are made of it again know the call too
        event, site, values = recipe.event, recipe.site, recipe.values
        if event is not None:
            self.graph.events.append(event)
        again = Again(recipe, task.inherited)
        node = Node(
            task.key,
            task.name,
            site.directive,
            device_num=task.device_num,
            location=site.location,
            detach=event is not None,
            spec=again,
        )
        node.run = TaskRun(task)
        if values is not None:
            again.sources = tuple(map(self._node_of.get, values.tasks))  # type: ignore[arg-type]  # all there
            values.release([source is not None for source in again.sources])
        self._node_of[task] = node
        self._insert(node, dependences)
        if not deferred:
            self._fence = node
            self._waited_for.add(node)

    def knows(self, task: Task) -> bool:
        """Tell whether a task is one of the graph."""
        return task in self._node_of

    def _insert(self, node: Node, dependences: Sequence[Access]) -> None:
        graph = self.graph
        graph.add_node(node)
        edges: list[tuple[Any, str, Any]] = []
        self._tracker.add(node, dependences, edges)
        if self._tracker.exclusive:
            node.spec.mutexes = tuple(dict.fromkeys(self._tracker.exclusive))  # type: ignore[attr-defined]  # an Again
            self._tracker.exclusive = []
        if any(key.__class__ is PlaceToken for _, _, key in edges):
            edges.sort(key=lambda edge: edge[2].__class__ is PlaceToken)  # these come last
        for source, kind, key in edges:
            if source is not node and not (key.__class__ is PlaceToken and source in node.before):
                graph.add_edge(source, node, kind, self._label(key, dependences))  # type: ignore[arg-type]  # the tracker's kinds are edge kinds
        if self._fence is not None:
            graph.add_edge(self._fence, node, "wait")
        for group in self._groups:
            group.append(node)

    def _label(self, key: Any, dependences: Sequence[Access]) -> str:
        """Return the name of a location in the clauses of the task that first had an edge there."""
        found = self._labels.get(key)
        if found is None:
            for access in dependences:
                for other, item in zip(access.keys or (), access.items, strict=False):
                    if other == key:
                        found = label(item)
            found = self._labels[key] = found or label(key)
        return found

    def begin_group(self, group: Group) -> None:
        nodes = self._nodes_of[group] = []
        self._groups.append(nodes)

    def end_group(self, site: Site, group: Group) -> None:
        nodes = self._nodes_of.pop(group)
        self._groups = [kept for kept in self._groups if kept is not nodes]  # those of coroutines are not nested
        node = self._wait(site, nodes)
        if node is not None:
            self.graph.group_ends[node] = group
            self.graph.groups.add(group)

    def add_wait(self, site: Site, dependences: Sequence[Access]) -> None:
        """Add the node of a taskwait: everything so far is before it, everything to come after."""
        if dependences:
            self._wait(site, list(self._tracker.latest(dependences)))
        else:
            self._wait(site, self._groups[0])
            self._groups[0] = []

    def forget(self, task: Task) -> None:
        """Do not keep a task any longer whose failure has been seen."""
        self._node_of.pop(task, None)

    def note_wait(self, task: Task) -> None:
        """Note that the recorded code waited for one task: later tasks come after it."""
        node = self._node_of.get(task)
        if node is not None and node not in self._waited_for:
            self._wait(task.construct, [node], name="result")

    def _wait(self, site: Site, nodes: list[Node], name: str | None = None) -> Node | None:
        if not nodes:
            return None
        graph = self.graph
        node = Node(
            f"{name or site.directive}-wait-{next(_wait_numbers)}",
            name or site.directive,
            "taskwait",
            location=site.location,
            run=WaitRun([waited for waited in nodes if waited.spec is not None]),
        )
        waited = set(nodes)
        # What has a successor that is waited for too is waited for through that one.
        last = [source for source in nodes if waited.isdisjoint(graph.successors(source))]
        self._insert(node, ())
        for source in last:
            graph.add_edge(source, node, "wait")
        self._fence = node
        self._waited_for |= waited
        return node


def _observed_add(plain: Any) -> Any:
    """Return `Recorder.add` for observed runtimes: it has given the task its number, which a log has to know."""

    def add(self: Recorder, task: Task, *args: Any, **kwargs: Any) -> None:
        plain(self, task, *args, **kwargs)
        if task.construct.runtime.calls is not None:
            task.special = True

    return add


hooked.register(Recorder, "add", _observed_add)


def nodes_followed(node_of: dict[Task, Node], key: Followed) -> list[Node]:
    """Return the node of a task, or of an event's task; none where that has been recorded elsewhere, or not."""
    node = node_of.get(key.what if isinstance(key.what, Task) else key.what.task)
    return [] if node is None else [node]


@block("record")
def record(*, execute: bool = True) -> Iterator[TaskGraph]:
    """Keep the graph of the tasks that the block generates.

    Parameters
    ----------
    execute : bool
        False: only build the graph. Waits then do nothing, synchronous constructs return None, and ``result()`` of a
        task is a `UsageError`. `TaskGraph.compute` runs the graph.

    Yields
    ------
    TaskGraph
        The graph grows while the block runs. Tasks that recorded tasks generate are not nodes; they are part of their
        generating tasks.

    Raises
    ------
    UsageError
        The region is already being recorded.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> @omp.task(depend=[omp.inout("x")])
    ... def increment(x):
    ...     x += 1
    >>> with omp.record() as graph:
    ...     first, second = increment(x), increment(x)
    >>> len(graph.tasks), len(graph.edges)
    (2, 1)
    """
    scope = here()
    frame = scope.frame("record")
    if frame.recorder is not None:
        raise UsageError("record: this region is already being recorded; leave that block first")
    graph = TaskGraph(scope.runtime)
    if execute:
        graph.log = GraphLog(scope.runtime)
    region = Block(scope, frame)
    region.recorder = Recorder(graph, executes=execute, runs_again=not execute)
    region.frame.record(region.recorder)
    try:
        yield graph
    finally:
        region.leave()
        if region.frame.recorder is region.recorder:
            region.frame.record(None)
        if graph.log is not None:
            graph.log.end(graph)
