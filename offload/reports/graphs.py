"""The dependence graph of a run, made of what has been collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from offload.tasks.graph import Graph, Node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.reports.records import RunRecord


class PastRun(NamedTuple):
    """The record of a task that has ended; see `offload.tasks.graph.Run`."""

    state: str
    start_s: float
    end_s: float


def graph_of(run: RunRecord, kinds: Iterable[tuple[int, int, str, str]]) -> Graph:
    """Return the graph of all tasks that have ended: an edge without a kind is an order that no list item made."""
    graph = Graph()
    nodes: dict[int, Node] = {}
    for task in sorted(run.tasks, key=lambda task: task.created_s):
        nodes[task.number] = graph.add_node(
            Node(
                task.key,
                task.name,
                task.directive,
                device_num=task.device,
                location=task.location,
                detach=task.kind == "detached",
                run=PastRun(task.state, task.start_s, task.end_s),
            )
        )
    edges: list[tuple[int, int, Any, str]] = [*kinds]
    known = {(before, after) for before, after, *_ in edges}
    edges += [(before, after, "wait", "") for before, after in run.edges if (before, after) not in known]
    for before, after, kind, item in edges:
        if before in nodes and after in nodes and nodes[before].index < nodes[after].index:
            graph.add_edge(nodes[before], nodes[after], kind, item)
    return graph
