"""Recording: the graph of what a region generates, to look at and to run again."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, SupportsIndex
from weakref import ref

from offload.current import current_scope_of, here
from offload.dependences import all_memory
from offload.errors import UsageError
from offload.items import label
from offload.tasks.blocks import Block
from offload.tasks.depend import Tracker
from offload.tasks.graph import Graph, Node
from offload.tasks.region import Frame, Group
from offload.tasks.task import Task, TaskState

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from offload.dependences import Dependence
    from offload.events.event import Event
    from offload.runtime import Runtime
    from offload.tasks.depend import Followed, Mutex
    from offload.tasks.region import Site
    from offload.tasks.scope import Scope

_wait_numbers = count(1)
"""Keys are unique in the process: Dask computes several graphs as one."""


class _Clock:
    """When a task ran, in seconds of `time.perf_counter`."""

    __slots__ = ("_run", "end_s", "start_s")

    def __init__(self, run: _Run) -> None:
        self._run = ref(run)
        self.start_s: float | None = None
        self.end_s: float | None = None

    def start(self) -> None:
        self.start_s = time.perf_counter()

    def end(self) -> None:
        self.end_s = time.perf_counter()

    def forget(self, task: Task) -> None:
        """Keep how a task has ended whose failure has been seen, and not the failure."""
        run = self._run()
        if run is not None:
            run.end_state = task.state_
            run.task = None


class _Run:
    """What a node shows of its task, which it has no longer once a failure of that has been seen."""

    __slots__ = ("__weakref__", "_clock", "end_state", "task")

    def __init__(self, task: Task) -> None:
        self.task: Task | None = task
        self.end_state = TaskState.WAITING
        self._clock = task.run = _Clock(self)
        task.special = True

    @property
    def state(self) -> str:
        task = self.task
        return str(self.end_state if task is None else task.state)

    @property
    def is_live(self) -> bool:
        """Whether the task has been started, or will be without being asked, and is not complete."""
        task = self.task
        return task is not None and not task.finished and task.state_ is not TaskState.RECORDED

    @property
    def start_s(self) -> float | None:
        return self._clock.start_s

    @property
    def end_s(self) -> float | None:
        return self._clock.end_s


_ENDED = {TaskState.COMPLETE, TaskState.FAILED, TaskState.NOT_RUN, TaskState.CANCELLED}


class _WaitRun:
    """What the node of a wait shows: it is complete when all that it waited for is, and takes no time of its own."""

    __slots__ = ("_nodes",)

    start_s = end_s = None

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes

    @property
    def state(self) -> str:
        states = {node.state for node in self._nodes}
        if states <= _ENDED:
            return str(TaskState.COMPLETE)
        return str(TaskState.RECORDED if TaskState.RECORDED in states else TaskState.WAITING)


class _Again:
    """Makes the task of a node again.

    ``call`` is what a host task's body is and is given: who asks what the node may do looks there. Device work fulfils
    no event, and what it is given is device memory.
    """

    __slots__ = ("call", "inherited", "make", "mutexes")

    def __init__(self, task: Task, make: Callable[[Frame], Task]) -> None:
        self.make = make
        self.inherited = task.inherited
        self.mutexes: tuple[Mutex, ...] = ()
        is_host = not task.waits_in_stream_order
        self.call = [task.body, *task.args, *(task.kwargs or {}).values()] if is_host else []

    def __call__(self, parent: Task | None, group: Group) -> Task:
        task = self.make(Frame(parent, self.inherited.within(group)))
        if self.mutexes:
            task.mutexes = self.mutexes
            task.special = True
        return task


class TaskGraph(Graph):
    """The tasks and dependences that `record` saw: a Dask collection.

    Attributes
    ----------
    tasks : list of Node
        One for each directive, in the order of generation, with ``name``, ``key``, ``directive``, ``device_num``,
        ``state``, ``duration_s``.
    edges : list of Edge
        ``source``, ``target``, ``kind`` (``"flow"``, ``"anti"``, ``"output"``, or ``"wait"`` for the order that a wait
        or an undeferred construct imposes) and ``item``.
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime
        self.events: list[Event] = []
        self.group_ends: dict[Node, Group] = {}  # the nodes at which taskgroups end, with the group that was recorded
        self.groups: set[Group | None] = set()  # those
        self.rounds: deque[Any] = deque(maxlen=16)  # the last Dask graphs made of this one
        self._computing = threading.Lock()
        self._was_computed = False

    @property
    def tasks(self) -> list[Node]:
        return self.nodes

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            "a recorded graph is of a runtime of this process, and cannot be pickled; pickle the function that "
            "generates its tasks, and record it there"
        )

    # -- running again -------------------------------------------------------------------------------
    def compute(self, scheduler: Any = "threads", **kwargs: Any) -> dict[str, Any]:
        """Run the graph through Dask: every directive a node, every dependence an edge.

        A node with a detach event or device work completes when the event is fulfilled or the stream has got there;
        meanwhile it holds no worker.

        Parameters
        ----------
        scheduler : {"synchronous", "threads"} or distributed.Client
            A scheduler in this process; a client must have its workers in this process too.
        **kwargs
            For the scheduler, for example ``num_workers``.

        Returns
        -------
        dict
            What each task's body returned, by key.

        Raises
        ------
        UnsupportedError
            A scheduler in another process.
        UsageError
            The graph is being computed already.
        BaseException
            The failure of a task, as its body raised it.
        """
        from offload.tasks.dask import compute  # imports Dask

        return compute(self, scheduler, kwargs)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the graph for one computation, since its tasks serve one at a time, and arm it."""
        if not self._computing.acquire(blocking=False):
            raise UsageError(
                "the graph is being computed already, and its tasks serve one computation at a time; "
                "wait for that one, or record another graph"
            )
        try:
            self._arm()
            yield
        finally:
            self._computing.release()

    def arm(self) -> None:
        """Make the graph ready for a computation whose end nobody will tell.

        Raises
        ------
        UsageError
            The graph is being computed.
        """
        with self.running():
            return

    def _arm(self) -> None:
        """Re-arm every event before anything runs: a node may fulfil the event of one that starts after it."""
        runs = [node.run for node in self.nodes if isinstance(node.run, _Run) and node.run.is_live]
        live = [task for run in runs if (task := run.task) is not None]
        if live and self._was_computed:
            raise UsageError(
                f"the graph is being computed already: {live[0].key} is {live[0].state}; wait for that computation"
            )
        if live:
            self._wait_for_recorded(live)
        self._was_computed = True
        for event in self.events:
            event.rearm()

    def _wait_for_recorded(self, tasks: list[Task]) -> None:
        scope = self.scope()
        for task in tasks:
            task.watch()
            task.add_done_callback(lambda _: scope.parker.unpark())
        self.runtime.engine.wait(
            scope, lambda: all(task.finished for task in tasks), (), "the end of the recorded tasks"
        )

    def group_of(self, node: Node) -> Group | None:
        """Return the innermost taskgroup of the recorded region that a node's task was generated in."""
        group: Group | None = node.spec.inherited.group if isinstance(node.spec, _Again) else None
        return group if group in self.groups else None

    def prepare(self, node: Node, parent: Task | None, group: Group) -> Task | None:
        """Return a fresh task of a node, in a group with its descendants; None for a node that does nothing."""
        make: Callable[[Task | None, Group], Task] | None = node.spec  # type: ignore[assignment]  # the recorder's
        if make is None:
            return None
        task = make(parent, group)
        node.run = _Run(task)
        return task

    def submit(self, task: Task) -> None:
        """Start a task of `prepare`, whose predecessors the caller has seen complete, on this thread."""
        task.watch()  # somebody on the host waits
        if self.runtime.engine.submit(task, ()):
            self.advance(task)

    def advance(self, task: Task) -> None:
        """Do what a started task has to do next, on this thread."""
        self.runtime.engine.execute(task, self.scope())

    def scope(self) -> Scope:
        """Return what the calling thread is doing for the graph's runtime."""
        return current_scope_of(self.runtime)

    # -- Dask's protocol -----------------------------------------------------------------------------
    def __dask_graph__(self) -> Mapping[str, Any]:
        from offload.tasks.dask import dask_graph  # imports Dask

        return dask_graph(self)

    def __dask_keys__(self) -> list[str]:
        return [node.key for node in self.nodes]

    def __dask_tokenize__(self) -> object:
        return ("offload.TaskGraph", id(self))

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return values_by_key, (self.__dask_keys__(),)

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        from offload.tasks.dask import rebuild  # imports Dask

        return rebuild, self.__dask_postcompute__()

    @staticmethod
    def __dask_optimize__(graph: Any, keys: Any, **_: Any) -> Any:
        """Return the graph as it is: fused nodes would be waited for as one."""
        return graph

    @property
    def __dask_scheduler__(self) -> Callable[..., Any]:
        from offload.tasks.dask import get_threaded  # imports Dask

        return get_threaded

    # -- views ---------------------------------------------------------------------------------------
    def __rich__(self) -> Any:
        from offload.views.terminal import render  # imports Rich

        return render(self)

    def visualize(self, path: str | os.PathLike[str]) -> None:
        """Write a picture of the graph: ``.svg`` or ``.dot`` (Graphviz).

        Raises
        ------
        UnsupportedError
            Another suffix.
        OSError
            The file cannot be written; an existing one is as it was.
        """
        from offload.views import visualize  # only for those who look

        visualize(self, path)


def values_by_key(values: Sequence[Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return what `dask.compute` of a graph gives; a function of a module, since Dask may pickle it."""
    return dict(zip(keys, values, strict=True))


class Recorder:
    """Builds the graph of what one region generates.

    Attributes
    ----------
    executes : bool
        Whether what is generated runs as usual.
    runs_again : bool
        Whether the graph is to run by itself, so that nothing in it may wait for what is outside of it.
    """

    def __init__(self, graph: TaskGraph, *, executes: bool, runs_again: bool) -> None:
        self.graph = graph
        self.executes = executes
        self.runs_again = runs_again
        self._node_of: dict[Task, Node] = {}
        self._tracker = Tracker(handles_of=partial(_nodes_followed, self._node_of))
        self._fence: Node | None = None  # everything generated from now on comes after it
        self._waited_for: set[Node] = set()  # what the fence is known to come after
        self._groups: list[list[Node]] = [[]]  # what the next wait of each open group waits for
        self._nodes_of: dict[Group, list[Node]] = {}
        self._labels: dict[Any, str] = {None: label(all_memory)}  # of locations

    def add(
        self, task: Task, make: Callable[[Frame], Task], dependences: Sequence[Dependence], *, deferred: bool
    ) -> None:
        """Add the node of a task and the edges of its dependences."""
        event = task.event
        if event is not None:
            self.graph.events.append(event)
        site = task.construct
        node = Node(
            task.key,
            task.name,
            site.directive,
            device_num=task.device_num,
            location=site.location,
            detach=event is not None,
            spec=_Again(task, make),
        )
        node.run = _Run(task)
        self._node_of[task] = node
        self._insert(node, dependences)
        if not deferred:
            self._fence = node
            self._waited_for.add(node)

    def knows(self, task: Task) -> bool:
        """Tell whether a task is one of the graph."""
        return task in self._node_of

    def _insert(self, node: Node, dependences: Sequence[Dependence]) -> None:
        graph = self.graph
        graph.add_node(node)
        edges: list[tuple[Any, str, Any]] = []
        self._tracker.add(node, dependences, edges)
        if self._tracker.exclusive:
            node.spec.mutexes = tuple(dict.fromkeys(self._tracker.exclusive))  # type: ignore[attr-defined]  # an _Again
            self._tracker.exclusive = []
        for source, kind, key in edges:
            if source is not node:
                graph.add_edge(source, node, kind, self._label(key, dependences))  # type: ignore[arg-type]  # the tracker's kinds are edge kinds
        if self._fence is not None:
            graph.add_edge(self._fence, node, "wait")
        for group in self._groups:
            group.append(node)

    def _label(self, key: Any, dependences: Sequence[Dependence]) -> str:
        """Return what a location is called in the clauses of the task that first had an edge there."""
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

    def add_wait(self, site: Site, dependences: Sequence[Dependence]) -> None:
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
        """Note that the recorded code waited for one task: what follows comes after it."""
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
            run=_WaitRun([waited for waited in nodes if waited.spec is not None]),
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


def _nodes_followed(node_of: dict[Task, Node], key: Followed) -> list[Node]:
    """Return the node of a task, or of an event's task; none where that has been recorded elsewhere, or not."""
    node = node_of.get(key.what if isinstance(key.what, Task) else key.what.task)
    return [] if node is None else [node]


@contextmanager
def record(*, execute: bool = True) -> Iterator[TaskGraph]:
    """Keep the graph of the tasks that the block generates.

    Parameters
    ----------
    execute : bool
        False: only build it. Waits then do nothing, synchronous constructs return None, and ``result()`` of a task is a
        `UsageError`; `TaskGraph.compute` runs the graph.

    Yields
    ------
    TaskGraph
        It grows while the block runs. Tasks that recorded tasks generate belong to those, and are no nodes.

    Raises
    ------
    UsageError
        The region records already.
    """
    scope = here()
    frame = scope.frame("record")
    if frame.recorder is not None:
        raise UsageError("record: this region records already; leave that block first")
    graph = TaskGraph(scope.runtime)
    block = Block(scope, frame)
    block.recorder = block.frame.recorder = Recorder(graph, executes=execute, runs_again=not execute)
    try:
        yield graph
    finally:
        block.leave()
        if block.frame.recorder is block.recorder:
            block.frame.recorder = None
