"""The graph that a recording gives: to look at, to compute by Dask, and to run again."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, SupportsIndex
from weakref import ref

from offload.errors import UnsupportedError, UsageError
from offload.graphs.seen import GraphLog, run_of
from offload.tasks import hooked
from offload.tasks.goals import Goal
from offload.tasks.graph import Graph, Node
from offload.tasks.region import Group, Inherited, Region
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from offload.events.event import Event
    from offload.reports.profile import RunProfile
    from offload.runtime.current import Scope
    from offload.runtime.runtime import Runtime
    from offload.tasks.depend import Mutex
    from offload.tasks.recipe import Recipe
    from offload.tasks.task import Task
    from offload.views.paths import CriticalPath


class TaskRun:
    """The view of a node on its task, which it drops once a failure of the task has been seen."""

    __slots__ = ("__weakref__", "_device_nums", "_end", "task")

    def __init__(self, task: Task) -> None:
        self.task: Task | None = task
        self._device_nums: tuple[int, ...] = ()
        self._end: tuple[TaskState, float | None, float | None] = (TaskState.WAITING, None, None)
        task.run = ref(self)

    def forget(self) -> None:
        """Keep how the task has ended, whose failure has been seen, and not the failure."""
        self._device_nums, self._end, self.task = self.device_nums, self._look(), None

    def _look(self) -> tuple[TaskState, float | None, float | None]:
        """Return the state of the task, when it began and when it was complete."""
        task = self.task
        if task is None:
            return self._end
        end_s = getattr(task, "end_s", None) if task.finished else None  # else its body may have ended
        return task.state, getattr(task, "start_s", None), end_s

    @property
    def state(self) -> str:
        return str(self._look()[0])

    @property
    def device_nums(self) -> tuple[int, ...]:
        """The devices that have taken part, where these are several."""
        return self._device_nums if self.task is None else getattr(self.task, "device_nums", ())

    @property
    def is_live(self) -> bool:
        """Whether the task has been started, or will be without being asked, and is not complete."""
        task = self.task
        return task is not None and not task.finished and task.state_ is not TaskState.RECORDED

    @property
    def start_s(self) -> float | None:
        return self._look()[1]

    @property
    def end_s(self) -> float | None:
        return self._look()[2]


_ENDED = {TaskState.COMPLETE, TaskState.FAILED, TaskState.NOT_RUN, TaskState.CANCELLED}


class WaitRun:
    """The view of the node of a wait: it is complete when all its tasks are, and takes no time of its own."""

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


class Again:
    """The data from which the task of a node is made again: its recipe, and the additions of the region."""

    __slots__ = ("inherited", "mutexes", "recipe", "sources")

    def __init__(self, recipe: Recipe, inherited: Inherited) -> None:
        self.recipe = recipe
        self.inherited = inherited  # by the recorded task
        self.mutexes: tuple[Mutex, ...] = ()  # which the tasks hold in turn with others
        # nodes of the tasks that ``recipe.values`` names; None for a task that is no node
        self.sources: tuple[Node | None, ...] = ()

    def make(self, frame: Region) -> Task:
        """Make a task, which receives the values of the last tasks of the sources."""
        sources = [source.run.task if source is not None else None for source in self.sources]  # type: ignore[union-attr]  # it has run
        task = self.recipe.make(frame, sources)
        if self.mutexes:
            task.mutexes = self.mutexes
            task.special = True
        return task

    def moved(self, runtime: Runtime, host: int) -> Again:
        """Return this for another runtime; ``host`` is the number of the host device in the present one."""
        inherited = self.inherited
        if inherited.default_device == host:
            inherited = Inherited(runtime.initial_device, inherited.group, is_final=inherited.is_final)
        other = Again(self.recipe.moved(runtime), inherited)
        other.mutexes = self.mutexes
        return other


def _recipes(nodes: Iterable[Node]) -> Iterator[Again]:
    """Yield the data for making the tasks of nodes again."""
    for node in nodes:
        if isinstance(node.spec, Again):
            yield node.spec


class TaskGraph(Graph):
    """A recorded graph of tasks and dependences, which is also a Dask collection.

    `record` makes it.

    Attributes
    ----------
    tasks : list of Node
        One node for each directive, in generation order, with ``name``, ``key``, ``directive``, ``device_num``,
        ``device_nums``, ``state`` and ``duration_s``.
    edges : list of Edge
        Each edge has a ``source``, a ``target``, a ``kind`` and an ``item``. The kind is ``"flow"``, ``"anti"``,
        ``"output"`` or ``"set"``, or ``"wait"`` for an order that a wait or an undeferred construct imposes.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> @omp.task(depend=[omp.inout("x")])
    ... def increment(x):
    ...     x += 1
    >>> with omp.record() as graph:
    ...     first, second = increment(x), increment(x)
    >>> [task.name for task in graph.tasks]
    ['increment', 'increment']
    >>> [(edge.source.name, edge.target.name) for edge in graph.edges]
    [('increment', 'increment')]
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self.runtime = runtime
        self.events: list[Event] = []
        self.group_ends: dict[Node, Group] = {}  # the nodes at which taskgroups end, with the group that was recorded
        self.groups: set[Group | None] = set()  # those
        self.rounds: deque[Any] = deque(maxlen=16)  # the last Dask graphs made of this one
        self.log: GraphLog | None = None  # of its tasks, while they run
        self._computing = threading.Lock()
        self._was_computed = False

    @property
    def tasks(self) -> list[Node]:
        """The nodes of the graph, one for each directive, in generation order.

        Examples
        --------
        >>> with omp.record() as graph:
        ...     task = omp.task(name="load")(lambda: 3)()
        >>> graph.tasks[0].name, graph.tasks[0].directive
        ('load', 'task')
        """
        return self.nodes

    def __repr__(self) -> str:
        return f"<TaskGraph: {len(self.nodes)} tasks, {len(self.edges)} edges>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            "a recorded graph belongs to a runtime of this process and cannot be pickled; pickle the function that "
            "generates its tasks, and record it there"
        )

    # -- running again -------------------------------------------------------------------------------
    def compute(self, scheduler: Any = "auto", **kwargs: Any) -> dict[str, Any]:
        """Run the graph through Dask: each directive is a node, each dependence an edge.

        A node with a detach event completes when the event is fulfilled. A node with device work completes when its
        stream has passed the work. While a node waits for its event or stream, it holds no worker.

        Parameters
        ----------
        scheduler : {"auto", "synchronous", "threads"} or distributed.Client
            A scheduler in this process, or a client. ``"auto"`` chooses as other Dask collections do: the scheduler of
            Dask's configuration, else the active client, else threads. In a task of a client it chooses threads. A
            graph of ``Runtime(client)`` runs on its cluster, with that client and with ``"auto"``. A graph of local
            devices runs on them, unless the client has workers in other processes: then it runs on the devices of the
            workers with the same numbers, in a runtime that ends with the computation. Host tasks run in this process.
        **kwargs
            Arguments for the scheduler, for example ``num_workers``. On a cluster: ``retries``, the number of times
            that the graph runs again after a `DeviceLostError`, and after no other error. The host arrays are then as
            at the beginning of the computation. A graph that uses data on the lost device that it has not mapped itself
            does not run again.

        Returns
        -------
        dict
            The return value of each task, by key.

        Raises
        ------
        UnsupportedError
            The scheduler is in another process, or the client is of another cluster. A task cannot move to the workers:
            it uses device arrays, its data is present on a local device, or something cannot be pickled. Nothing has
            run.
        DeviceUnavailableError
            The graph uses more devices than the client's workers have.
        LeakError
            A graph of local devices has left data on the workers.
        DeviceLostError
            A worker of the cluster was lost.
        UsageError
            Another computation of the graph is in progress.
        BaseException
            The failure of a task, as its body raised it.

        Examples
        --------
        >>> add = omp.task(lambda x, y: x + y)
        >>> with omp.record(execute=False) as graph:
        ...     total = add(1, add(2, 3))
        >>> list(graph.compute("synchronous").values())
        [5, 6]
        """
        from offload.graphs.dask import compute  # imports Dask

        return compute(self, scheduler, kwargs)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Arm the graph and hold it for a computation, because its tasks serve a single computation at a time."""
        with self.held():
            self._arm()
            self.log = log = GraphLog(self.runtime)
            try:
                yield
            finally:
                log.end(self)

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write a trace of the graph's tasks, for Perfetto and ``chrome://tracing``.

        Parameters
        ----------
        path : str or path
            The file. It ends with ``.json`` or ``.json.gz``.

        Raises
        ------
        UnsupportedError
            The file has another suffix.
        OSError
            The file cannot be written; an existing file is unchanged.

        Notes
        -----
        The trace has a track for each thread and each stream, the copies, and an arrow for each dependence between
        tracks. Tasks that have not ended are left out: wait for them first.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with omp.record() as graph:
        ...     omp.task(lambda: 3)().result()
        3
        >>> with TemporaryDirectory() as folder:
        ...     graph.trace(Path(folder) / "trace.json")
        ...     print([file.name for file in Path(folder).iterdir()])
        ['trace.json']
        """
        from offload.reports.files import TRACE_SUFFIXES, check_suffix, write_whole
        from offload.reports.trace import trace

        check_suffix(path, TRACE_SUFFIXES, "trace")
        write_whole(path, trace(run_of(self, self.log)))

    def profile(self) -> RunProfile:
        """Return where the time of the graph's tasks went.

        Returns
        -------
        RunProfile
            Rich prints it. ``rows`` has the tasks by name, ``copies`` the copies by device and direction, ``path`` the
            critical path over dependences, threads and streams, and ``parts`` the wall time divided along that path.

        Notes
        -----
        The wall time is that from the first task to the last end. Tasks that have not ended are left out.

        Examples
        --------
        >>> with omp.record() as graph:
        ...     omp.task(name="load")(lambda: 3)().result()
        3
        >>> profile = graph.profile()
        >>> [(row.name, row.count) for row in profile.rows]
        [('load', 1)]
        >>> sum(profile.parts.values()) == profile.wall_s or abs(sum(profile.parts.values()) - profile.wall_s) < 1e-9
        True
        """
        from offload.reports.profile import profile

        return profile(run_of(self, self.log))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the graph for a computation; raise `UsageError` if another one is in progress."""
        if not self._computing.acquire(blocking=False):
            raise UsageError(
                "the graph is already being computed, and its tasks can run in only one computation at a time; wait "
                "for that computation, or record another graph"
            )
        try:
            self._wait_for_live()
            yield
        finally:
            self._computing.release()

    def arm(self) -> None:
        """Make the graph ready for a computation whose end nobody announces; raise `UsageError` if one is under way."""
        with self.running():
            return

    def _wait_for_live(self) -> None:
        """Wait for the recorded tasks; raise `UsageError` if tasks of a computation are not complete."""
        runs = [node.run for node in self.nodes if isinstance(node.run, TaskRun) and node.run.is_live]
        live = [task for run in runs if (task := run.task) is not None]
        if live and self._was_computed:
            raise UsageError(
                f"the graph is already being computed: {live[0].key} is {live[0].state}; wait for that computation"
            )
        if live:
            self._wait_for_recorded(live)
        self._was_computed = True

    def _arm(self) -> None:
        """Re-arm every event before anything runs: a node may fulfil the event of one that starts after it."""
        for event in self.events:
            event.rearm()
        for again in _recipes(self.nodes):
            again.recipe.reserve()

    def give_back(self, nodes: Iterable[Node]) -> None:
        """Release the reservations of nodes whose tasks will not be made."""
        for again in _recipes(nodes):
            again.recipe.give_back()

    def _wait_for_recorded(self, tasks: list[Task]) -> None:
        self.runtime.engine.wait(self.scope(), Goal("the end of the recorded tasks", tasks))

    def group_of(self, node: Node) -> Group | None:
        """Return the innermost taskgroup of the recorded region that a node's task was generated in."""
        group: Group | None = node.spec.inherited.group if isinstance(node.spec, Again) else None
        return group if group in self.groups else None

    def prepare(self, node: Node, parent: Task | None, group: Group) -> Task | None:
        """Return a fresh task of a node, in a group with its descendants; None for a node that does nothing."""
        again: Again | None = node.spec  # type: ignore[assignment]  # the recorder's
        if again is None:
            return None
        task = again.make(Region(parent, again.inherited.within(group)))
        node.run = TaskRun(task)
        queue = again.recipe.queue
        if queue is not None:
            queue.count(task)
        return task

    def submit(self, task: Task) -> None:
        """Start a task of `prepare`, whose predecessors the caller has seen complete, on this thread."""
        task.watch()  # somebody on the host waits
        if self.runtime.engine.submit(task, ()):
            self.advance(task)

    def advance(self, task: Task) -> None:
        """Do the next step of a started task on this thread."""
        self.runtime.engine.execute(task, self.scope())

    def moved(self, runtime: Runtime) -> MovedGraph:
        """Return this graph for the devices of another runtime that have the same numbers.

        Raises
        ------
        UnsupportedError
            A task uses something of its own device.
        """
        return MovedGraph(self, runtime)

    def scope(self) -> Scope:
        """Return the calling thread's scope for the graph's runtime."""
        return self.runtime.here()

    # -- Dask's protocol -----------------------------------------------------------------------------
    def __dask_graph__(self) -> Mapping[str, Any]:
        from offload.graphs.dask import dask_graph  # imports Dask

        return dask_graph(self)

    def __dask_keys__(self) -> list[str]:
        return [node.key for node in self.nodes]

    def __dask_tokenize__(self) -> object:
        return ("offload.TaskGraph", id(self))

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return values_by_key, (self.__dask_keys__(),)

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        from offload.graphs.dask import rebuild  # imports Dask

        return rebuild, self.__dask_postcompute__()

    @staticmethod
    def __dask_optimize__(graph: Any, keys: Any, **_: Any) -> Any:
        """Return the graph as it is: fused nodes would be waited for as one."""
        return graph

    @property
    def __dask_scheduler__(self) -> Callable[..., Any]:
        from offload.graphs.dask import DEFAULT  # imports Dask

        return DEFAULT

    # -- views ---------------------------------------------------------------------------------------
    def __rich__(self) -> Any:
        from offload.views.terminal import render  # imports Rich

        return render(self)

    def critical_path(self) -> CriticalPath:
        """Return the chain of dependent tasks that took longest, as pairs of node and time in seconds.

        A missing time counts as 0. If several chains took equally long, the method returns the one with the most tasks.
        For a graph that has not run it therefore returns the longest chain, with times of 0.

        Returns
        -------
        list of (Node, float)
            The tasks in the order in which they ran, and the time of each in seconds. Printed, the list is a table.

        Examples
        --------
        >>> f = omp.task(name="f")(lambda: 1)
        >>> g = omp.task(name="g")(lambda x: x + 1)
        >>> with omp.record() as graph:
        ...     task = g(f())
        >>> omp.taskwait()
        >>> [node.name for node, seconds in graph.critical_path()]
        ['f', 'g']
        """
        from offload.views.paths import CriticalPath  # only for those who look

        return CriticalPath(super().critical_path())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from offload.views.notebooks import bundle_of  # imports Rich

        return bundle_of(self)

    def visualize(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write a picture of the graph to a file, or show it.

        A picture of more than 150 tasks draws equal tasks of a layer as one box with a count. The page (``.html``)
        opens such a box, and has a search and the details of every task.

        Parameters
        ----------
        path : str or path, optional
            The file. Its suffix selects the format: ``.svg``, ``.html`` (a page), ``.dot`` (Graphviz), ``.mmd``
            (Mermaid), or ``.png`` and ``.pdf`` if a program that converts SVG is installed. Without a path, a notebook
            shows the picture, and a terminal what ``rich.print(graph)`` prints.

        Raises
        ------
        UnsupportedError
            The suffix is not one of these, or no program is installed that writes ``.png`` or ``.pdf``.
        OSError
            The file cannot be written; an existing file is unchanged.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with omp.record() as graph:
        ...     task = omp.task(lambda: 3)()
        >>> with TemporaryDirectory() as folder:
        ...     graph.visualize(Path(folder) / "graph.svg")
        ...     print([file.name for file in Path(folder).iterdir()])
        ['graph.svg']
        """
        if path is None:
            from offload.views.notebooks import show  # imports Rich

            show(self)
            return
        from offload.views.files import visualize  # only for those who look

        visualize(self, path)


class MovedGraph(TaskGraph):
    """A graph made of another one for another runtime. Its tasks are the runs of the other graph's nodes."""

    def __init__(self, graph: TaskGraph, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._moved_from = graph
        self.events, self.groups = graph.events, graph.groups
        nodes = {node: self.add_node(self._made(node)) for node in graph.nodes}
        for edge in graph.edges:
            self.add_edge(nodes[edge.source], nodes[edge.target], edge.kind, edge.item)
        self.group_ends = {nodes[node]: group for node, group in graph.group_ends.items()}
        for node, other in nodes.items():
            again: Any = node.spec
            if again is not None:
                other.spec.sources = tuple(source and nodes[source] for source in again.sources)  # type: ignore[attr-defined]  # an `Again`

    def _made(self, node: Node) -> Node:
        again: Any = node.spec
        try:
            spec = again and again.moved(self.runtime, self._moved_from.runtime.initial_device)
        except UnsupportedError as error:
            raise UnsupportedError(f"compute: {node.key} cannot run on the client's workers: {error}") from error
        where: Any = {"device_num": node.device_num, "location": node.location, "detach": node.detach}
        return Node(node.key, node.name, node.directive, **where, spec=spec, run=node.run)

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._moved_from.held():
            yield

    def prepare(self, node: Node, parent: Task | None, group: Group) -> Task | None:
        task = super().prepare(node, parent, group)
        self._moved_from.node(node.key).run = node.run  # where the program looks
        return task


def values_by_key(values: Sequence[Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return the result of `dask.compute` for a graph; a function of a module, since Dask may pickle it."""
    return dict(zip(keys, values, strict=True))


def _noted_prepare(plain: Any) -> Any:
    """Return `TaskGraph.prepare` for sanitized runtimes: a node follows those before it."""

    def prepare(self: TaskGraph, node: Node, parent: Task | None, group: Group) -> Task | None:
        task: Task | None = plain(self, node, parent, group)
        orders = hooked.orders.get(self.runtime)
        if task is not None and orders is not None:
            orders.prepared(node, task)
        return task

    return prepare


hooked.register(TaskGraph, "prepare", _noted_prepare, "sanitize")
