"""The dependence graph of a recorded run, folded by source line."""

from __future__ import annotations

import linecache
import os
from typing import TYPE_CHECKING, NamedTuple, cast

from offload.port.log import HOST
from offload.tasks.graph import Graph, Node

if TYPE_CHECKING:
    from offload.port.analysis import PortReport
    from offload.port.log import PortLog, StreamOperation
    from offload.tasks.graph import EdgeKind

_DIRECTIVES = {"to device": "copy", "to host": "copy", "host": "host", "callback": "host"}


class LineRun(NamedTuple):
    """The record of a line that has run (`offload.tasks.graph.Run`); its executions have no times."""

    state: str = "done"
    start_s: float | None = None
    end_s: float | None = None


def line_graph(log: PortLog, report: PortReport) -> Graph:
    """Return a graph with a node for each line that accesses arrays, in the order in which the run came to them.

    A dependence on a later line, of another iteration of a loop, is not in the graph, which has no circles; the
    report's edges have it.
    """
    graph = Graph()
    nodes: dict[tuple[str, int], Node] = {}
    for operation in log.operations:
        place = operation.place
        key = (place.file, place.line)
        if key not in nodes and (operation.reads or operation.writes or operation.host_reads):
            nodes[key] = graph.add_node(_node(operation, len(nodes)))
    for edge in report.edges:
        first, second = nodes[edge.files[0], edge.first], nodes[edge.files[1], edge.second]
        if first.index < second.index:
            graph.add_edge(first, second, cast("EdgeKind", edge.kind))
    return graph


def source_line(file: str, line: int) -> str:
    """Return the text of a line of the program, without its indentation."""
    return linecache.getline(file, line).strip()


def _node(operation: StreamOperation, number: int) -> Node:
    place = operation.place
    where = f"{os.path.basename(place.file)}:{place.line}"  # noqa: PTH119  # of a string
    text = source_line(place.file, place.line) or operation.call or "host access"
    return Node(
        f"{where}-{number}",
        f"{place.line}: {text}",
        _DIRECTIVES.get(operation.kind, "target"),
        device_num=None if operation.stream == HOST or operation.kind == "callback" else 0,
        location=where,
        run=LineRun(),
    )
