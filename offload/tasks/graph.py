"""The structure behind a recorded task graph: its nodes, its dependences and the questions about them.

Theory of operation
-------------------
Nodes are added in the order in which the encountering thread generated their tasks, and a task can only
depend on tasks generated before it. So the order of `Graph.nodes` is a topological order for free: an edge
always goes from a smaller index to a larger one, `Graph.add_edge` refuses any other, and every question
below is one pass over that list, without a search for cycles.

One pair of tasks may depend on each other for several reasons (another list item, another kind of hazard).
Each reason is an `Edge` of its own, because a user asks *why*; questions about the order only (layers, critical path,
reduction) work on pairs. The transitive reduction keeps the set of ancestors of each node as one integer used as a bit
set: in pure Python that beats sets of nodes by far, and a DAG has exactly one reduction, so the result does not depend
on the order of insertion.

This module knows nothing of threads, devices or clocks: the engine hangs its own record on `Node.run`.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple, Protocol

from offload.errors import InternalError

EdgeKind = Literal["flow", "anti", "output", "set", "wait"]


class Run(Protocol):
    """The members that a node reads from the record of a task that the engine attaches to it."""

    @property
    def state(self) -> object:
        """An enum member, or another object whose string names the state."""

    @property
    def start_s(self) -> float | None:
        """When the task began, in seconds on any clock that `end_s` shares; None before."""

    @property
    def end_s(self) -> float | None:
        """When the task completed, in seconds; None before."""


class Node:
    """One directive or routine of a recorded program.

    Parameters
    ----------
    key : str
        Unique and stable within its graph, for example ``"saxpy-3"``.
    name : str
        The name of the task for a person; not unique.
    directive : str
        ``"target"``, ``"task"``, ``"taskwait"``, ``"target enter data"``, ``"target_memcpy_rect"``, …
    device_num : int or None
        The device it runs on; None is the host.
    location : str or None
        The place in the program, as ``"file.py:12"``.
    detach : bool
        Whether it completes only when an event is fulfilled.
    spec : object
        The engine's data for running it again; opaque here.

    Attributes
    ----------
    run : Run or None
        The engine's record of this task; None while it is only planned.
    index : int
        Its position in `Graph.nodes`; -1 before it is added.
    before : list of Node
        The nodes that it waits for directly, by `Graph.add_edge`.
    """

    __slots__ = ("before", "detach", "device_num", "directive", "index", "key", "location", "name", "run", "spec")

    def __init__(
        self,
        key: str,
        name: str,
        directive: str,
        *,
        device_num: int | None = None,
        location: str | None = None,
        detach: bool = False,
        spec: object = None,
        run: Run | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.directive = directive
        self.device_num = device_num
        self.location = location
        self.detach = detach
        self.spec = spec
        self.run = run
        self.index = -1
        self.before: list[Node] = []

    def __repr__(self) -> str:
        where = "host" if self.device_num is None else f"device {self.device_num}"
        return f"<Node {self.key}: {self.directive} on {where}, {self.state}>"

    @property
    def device_nums(self) -> tuple[int, ...]:
        """The devices that take part, its own first: those of its run, if that was on several; none on the host."""
        several: tuple[int, ...] = getattr(self.run, "device_nums", ())
        return several or (() if self.device_num is None else (self.device_num,))

    @property
    def state(self) -> str:
        """The state of its run in lower case, ``"planned"`` where nothing has run."""
        if self.run is None:
            return "planned"
        state = self.run.state
        return (state.name if isinstance(state, Enum) else str(state)).lower().replace("_", " ")

    @property
    def start_s(self) -> float | None:
        """When it began, in seconds on the engine's clock, or None.

        Device work is given to its stream before its predecessors have ended; it begins when they have.
        """
        start_s = None if self.run is None else self.run.start_s
        return None if start_s is None else max([start_s, *(node.end_s or start_s for node in self.before)])

    @property
    def end_s(self) -> float | None:
        """When it completed, in seconds on the engine's clock, or None."""
        return None if self.run is None else self.run.end_s

    @property
    def duration_s(self) -> float | None:
        """How long it took, in seconds, until its event was fulfilled and its stream got there; None before."""
        start_s, end_s = self.start_s, self.end_s
        # A stream may end short work before the thread that launched it notes the start.
        return None if start_s is None or end_s is None else max(0.0, end_s - start_s)


class Edge(NamedTuple):
    """One reason for which `target` waits for `source`."""

    source: Node
    target: Node
    kind: EdgeKind
    """The hazard, or ``"wait"`` for an order imposed by a taskwait or a synchronous construct."""
    item: str
    """The label of the list item, ``""`` if there is none."""


class Graph:
    """A directed acyclic graph of tasks in generation order.

    Attributes
    ----------
    nodes : list of Node
        The nodes in generation order, which is a topological order.
    edges : list of Edge
        The edges in the order of insertion; parallel edges differ in kind or item.
    """

    __slots__ = ("_by_key", "_predecessors", "_seen", "_successors", "edges", "nodes")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self._by_key: dict[str, Node] = {}
        # One dictionary per node, used as an ordered set of indices.
        self._predecessors: list[dict[int, None]] = []
        self._successors: list[dict[int, None]] = []
        self._seen: set[tuple[int, int, str, str]] = set()

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"<Graph: {len(self.nodes)} nodes, {len(self.edges)} edges>"

    def add_node(self, node: Node) -> Node:
        """Append a node and return it.

        Raises
        ------
        InternalError
            The key exists already, or the node is already in a graph.
        """
        if node.index != -1 or node.key in self._by_key:
            raise InternalError(f"node {node.key!r} is already in a graph; a node and its key are added once")
        node.index = len(self.nodes)
        self._by_key[node.key] = node
        self.nodes.append(node)
        self._predecessors.append({})
        self._successors.append({})
        return node

    def add_edge(self, source: Node, target: Node, kind: EdgeKind, item: str = "") -> None:
        """Record that `target` waits for `source` because of `kind` on `item`; an exact repetition is ignored.

        Raises
        ------
        InternalError
            An end is not in this graph, or `source` was not generated before `target`.
        """
        low, high = self._index(source), self._index(target)
        if low >= high:
            raise InternalError(
                f"edge {source.key} -> {target.key} goes from node {low} to node {high}; "
                "a task depends only on tasks generated before it"
            )
        if (low, high, kind, item) in self._seen:
            return
        self._seen.add((low, high, kind, item))
        self.edges.append(Edge(source, target, kind, item))
        if high not in self._successors[low]:
            target.before.append(source)
        self._successors[low][high] = None
        self._predecessors[high][low] = None

    def node(self, key: str) -> Node:
        """Return the node with this key.

        Raises
        ------
        KeyError
            No node has this key.

        Examples
        --------
        >>> with omp.record() as graph:
        ...     task = omp.task(name="load")(lambda: 3)()
        >>> graph.node(graph.tasks[0].key).name
        'load'
        """
        return self._by_key[key]

    def predecessors(self, node: Node) -> list[Node]:
        """Return the nodes that `node` waits for directly, each once, in generation order.

        Examples
        --------
        >>> f = omp.task(name="f")(lambda: 1)
        >>> g = omp.task(name="g")(lambda x: x + 1)
        >>> with omp.record() as graph:
        ...     task = g(f())
        >>> [node.name for node in graph.predecessors(graph.tasks[1])]
        ['f']
        """
        return [self.nodes[i] for i in sorted(self._predecessors[self._index(node)])]

    def successors(self, node: Node) -> list[Node]:
        """Return the nodes that wait for `node` directly, each once, in generation order.

        Examples
        --------
        >>> f = omp.task(name="f")(lambda: 1)
        >>> g = omp.task(name="g")(lambda x: x + 1)
        >>> with omp.record() as graph:
        ...     task = g(f())
        >>> [node.name for node in graph.successors(graph.tasks[0])]
        ['g']
        """
        return [self.nodes[i] for i in sorted(self._successors[self._index(node)])]

    def layers(self) -> list[list[Node]]:
        """Return the nodes, grouped by the length of the longest path that leads to them.

        A node is one layer below the lowest of its predecessors. Therefore no edge stays within a layer.

        Examples
        --------
        >>> f = omp.task(name="f")(lambda: 1)
        >>> add = omp.task(name="add")(lambda x, y: x + y)
        >>> with omp.record() as graph:
        ...     task = add(f(), f())
        >>> [[node.name for node in layer] for layer in graph.layers()]
        [['f', 'f'], ['add']]
        """
        depth: list[int] = []
        layers: list[list[Node]] = []
        for node, before in zip(self.nodes, self._predecessors, strict=True):
            depth.append(max((depth[i] for i in before), default=-1) + 1)
            if depth[-1] == len(layers):
                layers.append([])
            layers[depth[-1]].append(node)
        return layers

    def critical_path(self) -> list[tuple[Node, float]]:
        """Return the chain of dependent tasks that took longest, as pairs of node and time in seconds.

        A missing time counts as 0. If several chains took equally long, the method returns the one with the most tasks.
        For a graph that has not run it therefore returns the longest chain, with times of 0.

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
        if not self.nodes:
            return []
        times_s = [node.duration_s or 0.0 for node in self.nodes]
        best: list[tuple[float, int]] = []
        came_from: list[int | None] = []
        for i, before in enumerate(self._predecessors):
            via = max(before, key=lambda j: (best[j], -j), default=None)
            total_s, count = (0.0, 0) if via is None else best[via]
            best.append((total_s + times_s[i], count + 1))
            came_from.append(via)
        at: int | None = max(range(len(best)), key=lambda i: (best[i], -i))
        path: list[tuple[Node, float]] = []
        while at is not None:
            path.append((self.nodes[at], times_s[at]))
            at = came_from[at]
        return path[::-1]

    def transitive_reduction_edges(self, first: int | None = None) -> list[Edge]:
        """Return the edges that no longer path implies, with all edges parallel to them: the edges worth drawing.

        With `first`, the method considers only the first `first` nodes. This does not change the edges among them,
        because a path between two nodes visits only nodes that were generated between them.

        It needs n² / 8 bytes of memory for n nodes during the call.

        Examples
        --------
        >>> f = omp.task(name="f")(lambda *x: 1)
        >>> with omp.record() as graph:
        ...     a = f()
        ...     b = f(a)
        ...     c = f(a, b)  # the edge from a to c is implied
        >>> len(graph.edges), len(graph.transitive_reduction_edges())
        (3, 2)
        """
        ancestors: list[int] = []
        kept: set[tuple[int, int]] = set()
        for i, before in enumerate(self._predecessors[:first]):
            covered = 0
            # Latest first: whatever implies an edge lies behind a predecessor generated later.
            for j in sorted(before, reverse=True):
                if not covered >> j & 1:
                    kept.add((j, i))
                    covered |= ancestors[j] | 1 << j
            ancestors.append(covered)
        return [edge for edge in self.edges if (edge.source.index, edge.target.index) in kept]

    def _index(self, node: Node) -> int:
        i = node.index
        if not (0 <= i < len(self.nodes) and self.nodes[i] is node):
            raise InternalError(f"node {node.key!r} is not in this graph; add it first")
        return i
