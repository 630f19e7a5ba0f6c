"""The log of a recorded graph while its tasks run, for its trace and its profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.events.log import TaskLog
from offload.reports.records import RunRecord, TaskRecord, records
from offload.runtime import observing
from offload.runtime.stamps import settle

if TYPE_CHECKING:
    from offload.runtime.runtime import Runtime
    from offload.tasks.graph import Graph, Node


class GraphLog:
    """A log of one runtime, until the tasks of a graph have ended."""

    def __init__(self, runtime: Runtime) -> None:
        self._log = TaskLog()
        self._attachment = observing.attach(self._log, runtime)
        self._left = 0

    def end(self, graph: Graph) -> None:
        """Collect no more when all tasks of the graph have ended."""
        live = [task for node in graph.nodes if (task := getattr(node.run, "task", None)) is not None]
        live = [task for task in live if not task.finished]
        left = bytearray(b"\1" + bytes(len(live)))

        def count(_: Any) -> None:
            if left.pop():
                observing.detach(self._attachment)

        for task in live:
            task.add_done_callback(count)
        count(None)

    def run_of(self, graph: Graph) -> RunRecord:
        """Return the record of the graph's tasks; of those that the log does not have, as much as the graph knows."""
        settle(self._log)
        run = records(self._log)
        return _of_graph(graph, run)


def run_of(graph: Graph, log: GraphLog | None) -> RunRecord:
    """Return the record of a graph's tasks that have run."""
    return _of_graph(graph, RunRecord([], [])) if log is None else log.run_of(graph)


def _of_graph(graph: Graph, run: RunRecord) -> RunRecord:
    known = {task.number: task for task in run.tasks}
    numbers = {node.key: _number_of(node) for node in graph.nodes}
    tasks = []
    for node in graph.nodes:
        number = numbers[node.key]
        found = known.get(number) or _as_known(node, number)
        if found is not None:
            tasks.append(found)
    ours = {task.number for task in tasks}
    edges = [(numbers[edge.source.key], numbers[edge.target.key]) for edge in graph.edges]
    spans = [span for span in run.spans if span.task in ours]
    begin_s = min(
        [*[min(task.created_s, task.start_s) for task in tasks], *[span.start_s for span in spans]], default=0.0
    )
    end_s = max([*[task.end_s for task in tasks], *[span.end_s for span in spans]], default=0.0)
    return run._replace(
        tasks=tasks,
        edges=list(dict.fromkeys(edge for edge in edges if ours.issuperset(edge))),
        spans=spans,
        waits=[wait for wait in run.waits if wait[2] < end_s and wait[3] > begin_s],
        maps=[change for change in run.maps if begin_s <= change[0] <= end_s],
        begin_s=begin_s,
        end_s=end_s,
    )


def _number_of(node: Node) -> int:
    """Return the number of a node's last task; of a wait a number that no task has."""
    if node.spec is None:
        return -1 - node.index
    task = getattr(node.run, "task", None)
    return int(node.key.rpartition("-")[2]) if task is None else int(task.number)


def _as_known(node: Node, number: int) -> TaskRecord | None:
    """Return the record of a task from its node; None if the task has not run, or the node is a wait."""
    start_s, end_s = node.start_s, node.end_s
    if start_s is None or end_s is None or number < 0:
        return None
    kind = "body" if node.device_num is None else "device"
    where = node.location or ""
    return TaskRecord(
        number, node.name, node.directive, where, node.state, start_s, start_s, max(start_s, end_s), 0, node.device_num,
        None, kind,
    )  # fmt: skip
