"""The structure behind a recorded task graph."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace

import pytest

from offload.errors import InternalError
from offload.tasks.graph import Graph, Node


def graph_of(count: int, *pairs: tuple[int, int], times_s: dict[int, float] | None = None) -> Graph:
    graph = Graph()
    for i in range(count):
        end_s = (times_s or {}).get(i)
        run = None if end_s is None else SimpleNamespace(state="complete", start_s=0.0, end_s=end_s)
        graph.add_node(Node(f"t-{i}", f"t{i}", "task", run=run))
    for source, target in pairs:
        graph.add_edge(graph.nodes[source], graph.nodes[target], "flow", "x")
    return graph


def indices(nodes: list[Node]) -> list[int]:
    return [node.index for node in nodes]


def test_node_without_run_is_planned() -> None:
    """A node that has not run is planned and has no times."""
    node = Node("a-0", "a", "target", device_num=1)
    assert (node.state, node.start_s, node.end_s, node.duration_s) == ("planned", None, None, None)
    assert repr(node) == "<Node a-0: target on device 1, planned>"


def test_node_reads_its_run_live() -> None:
    """State and times follow the record that the engine attached, enum members by their name."""
    State = Enum("State", ["STARTED_LATE"])
    run = SimpleNamespace(state=State.STARTED_LATE, start_s=1.5, end_s=None)
    node = Node("a-0", "a", "task", run=run)
    assert (node.state, node.start_s, node.duration_s) == ("started late", 1.5, None)
    run.state, run.end_s = "complete", 4.0
    assert (node.state, node.end_s, node.duration_s) == ("complete", 4.0, 2.5)


def test_parallel_edges_are_kept_and_repetitions_are_not() -> None:
    """Edges of one pair differ in kind or item; the pair counts once for the neighbours."""
    graph = graph_of(2, (0, 1), (0, 1))
    a, b = graph.nodes
    graph.add_edge(a, b, "flow", "y")
    graph.add_edge(a, b, "output", "x")
    graph.add_edge(a, b, "output", "x")
    assert [(edge.kind, edge.item) for edge in graph.edges] == [("flow", "x"), ("flow", "y"), ("output", "x")]
    assert graph.successors(a) == [b]
    assert graph.predecessors(b) == [a]
    assert graph.node("t-1") is b
    assert repr(graph) == "<Graph: 2 nodes, 3 edges>"


@pytest.mark.parametrize(("source", "target"), [(1, 0), (1, 1)])
def test_backward_edge_is_refused(source: int, target: int) -> None:
    """An edge against the order of generation raises and changes nothing."""
    graph = graph_of(2)
    with pytest.raises(InternalError, match="generated before"):
        graph.add_edge(graph.nodes[source], graph.nodes[target], "anti")
    assert graph.edges == []
    assert graph.successors(graph.nodes[1]) == []


def test_foreign_and_repeated_nodes_are_refused() -> None:
    """A node belongs to one graph, under a key of its own."""
    graph, other = graph_of(2), graph_of(1)
    for node in (Node("t-0", "again", "task"), other.nodes[0], graph.nodes[1]):
        with pytest.raises(InternalError, match="already in a graph"):
            graph.add_node(node)
    assert len(graph) == 2
    for node in (other.nodes[0], Node("new", "new", "task")):
        with pytest.raises(InternalError, match="not in this graph"):
            graph.successors(node)


def test_layers_follow_the_longest_path() -> None:
    """A node stands below the lowest of its predecessors, and a node without any stands on top."""
    graph = graph_of(6, (0, 1), (1, 3), (0, 3), (2, 4), (3, 4))
    assert [indices(layer) for layer in graph.layers()] == [[0, 2, 5], [1], [3], [4]]
    assert Graph().layers() == []


def test_critical_path_follows_time() -> None:
    """The path that took longest wins over the one with more tasks; what has no time counts 0."""
    graph = graph_of(5, (0, 1), (1, 2), (2, 4), (3, 4), times_s={0: 1.0, 1: 1.0, 3: 5.0})
    assert [(node.index, time_s) for node, time_s in graph.critical_path()] == [(3, 5.0), (4, 0.0)]


def test_critical_path_without_times_is_the_longest_chain() -> None:
    """Where nothing has run the chain of most tasks is chosen, each at 0 seconds."""
    graph = graph_of(5, (0, 4), (1, 2), (2, 4), (3, 4))
    assert [(node.index, time_s) for node, time_s in graph.critical_path()] == [(1, 0.0), (2, 0.0), (4, 0.0)]
    assert Graph().critical_path() == []


def test_transitive_reduction_keeps_parallels_of_what_it_keeps() -> None:
    """An edge that a longer path implies is left out, the parallels of others are not."""
    graph = graph_of(4, (0, 1), (1, 2), (0, 2), (2, 3), (0, 3))
    graph.add_edge(graph.nodes[0], graph.nodes[1], "anti", "y")
    found = [(edge.source.index, edge.target.index, edge.kind) for edge in graph.transitive_reduction_edges()]
    assert found == [(0, 1, "flow"), (1, 2, "flow"), (2, 3, "flow"), (0, 1, "anti")]
    assert len(graph.transitive_reduction_edges(first=3)) == 3
