"""Segments as they are sent: a planned segment in the format of `offload.devices.dask.wire`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.devices.dask.wire import Ended, Op, WireNode, WireSegment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.devices.dask.bodies import Bodies
    from offload.devices.dask.planner import PlannedNode, Segment

IN_PLAN_NBYTES = 1_000_000
"""Host data that travels in a plan; more is scattered. Dask warns of tasks from 10 MB on."""

_MOST_NAMED = 3
"""Tasks whose names a key begins with."""


def key_of(segment: Segment, runtime: str) -> str:
    """Return the Dask key of a segment, which begins with the names of its tasks."""
    names = dict.fromkeys(node.name or node.site[1] for node in segment.nodes if node.site[0])
    text = "+".join([*names][:_MOST_NAMED]) or "offload"
    again = f"-{segment.attempt}" if segment.attempt else ""
    return f"{text}-{runtime}-{segment.number}{again}"


class PlanSending:
    """Makes one segment ready to be sent: the host data is taken now.

    Attributes
    ----------
    large : list of array
        Host arrays that do not travel in the plan; in the segment's data stands their number.
    """

    def __init__(self, segment: Segment, bodies: Bodies) -> None:
        self.large: list[Any] = []
        self._segment = segment
        self._bodies = bodies
        self._sites: dict[tuple[str, str, str], int] = {}
        self._sent: dict[int, bytes] = {}
        self._data: list[Any] = []
        self._in_plan_nbytes = 0

    def wired(self, runtime: str) -> WireSegment:
        """Return the segment in the format of plans."""
        segment = self._segment
        nodes = [self._node(node) for node in segment.nodes]
        failed = [
            other.number
            for node in segment.nodes
            for other in node.depends
            if other.end is not None and other.end[0] != Ended.OK
        ]
        segment.bodies, segment.dropped = {*self._sent}, self._bodies.gone(segment.line.bodies)
        return WireSegment(
            runtime,
            segment.line.incarnation,
            segment.number,
            segment.attempt,
            segment.freed,
            self._sent,
            segment.dropped,
            [*self._sites],
            nodes,
            failed,
            self._data,
        )

    def _node(self, node: PlannedNode) -> WireNode:
        return WireNode(
            node.number,
            node.device,
            tuple([other.number for other in node.depends]),
            tuple([other.number for other in node.follows]),
            self._operations(node),
            self._sites.setdefault(node.site, len(self._sites)),
            node.name,
            node.is_awaited,
        )

    def _operations(self, node: PlannedNode) -> Sequence[Any]:
        wired, n_outs = [], 0
        for operation in node.operations:
            name = operation[0]
            sent = operation
            if name == Op.IN:
                sent = Op.IN, operation[1], self._take(operation[2])
            elif name == Op.OUT:
                sent = Op.OUT, operation[1], (node.number, n_outs)
                n_outs += 1
            elif name == Op.TIME:
                sent = Op.TIME, None
            elif name == Op.EXPORT:
                self._segment.exports[operation[2]] = None
            elif name == Op.CALL and operation[1] not in self._segment.line.bodies:
                body = self._bodies.known(operation[1])
                assert body is not None, "the node keeps it"
                self._sent[body.number] = body.data
            wired.append(sent)
        return wired

    def _take(self, array: Any) -> int:
        """Take the contents of a host array; return its number among the segment's data."""
        if array.nbytes >= IN_PLAN_NBYTES or self._in_plan_nbytes + array.nbytes > IN_PLAN_NBYTES:
            self._data.append(len(self.large))
            self.large.append(np.ascontiguousarray(array))
        else:
            self._in_plan_nbytes += array.nbytes
            self._data.append(np.array(array, order="C", copy=True))
        return len(self._data) - 1
