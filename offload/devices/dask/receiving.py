"""Results of workers: values with handles, exceptions, and the nodes whose failure kept others from running."""

from __future__ import annotations

import itertools
import pickle
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from offload.devices.dask.array import RemoteArray, contiguous_array
from offload.devices.dask.bodies import unpickled
from offload.devices.dask.wire import Ended, Op, Pickled, common_clock_s
from offload.devices.retirement import Retired
from offload.errors import DeviceError, NotPresentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.devices.dask.array import RemoteBlock
    from offload.devices.dask.planner import PlannedNode, WorkLine
    from offload.devices.dask.wire import End, NodeTimes, RemoteView


class RemoteBlocks:
    """The allocations on workers that the program has handles of."""

    def __init__(self, devices: Sequence[Any]) -> None:
        self._devices = devices
        self._numbers = itertools.count(1)
        # By the worker and the number: each worker numbers those that its bodies make.
        self._known: WeakValueDictionary[tuple[WorkLine, int], RemoteBlock] = WeakValueDictionary()

    def new_number(self) -> int:
        """Return the number of an allocation of the client."""
        return next(self._numbers)

    def note(self, block: RemoteBlock) -> None:
        """Remember a block while somebody has a handle of it."""
        self._known[block.device.line, block.number] = block

    def retire(self, line: WorkLine) -> None:
        """Have the handles of a worker that was lost refuse from now on."""
        for block in [*self._known.values()]:
            if block.device.line is line:
                block.retire(Retired("a device that was lost"))

    def handle(self, line: WorkLine, view: RemoteView) -> RemoteArray:
        """Return the handle of an array that a body has returned."""
        block = self._known.get((line, view.block))
        if block is None:
            device = next(one for one in self._devices if one.line is line and one.index == view.device)
            block = device.block(view.nbytes, view.block, on_demand=False, charges=False)
            self.note(block)
        return RemoteArray(block, view.offset, view.shape, view.strides, view.dtype)

    def missing(self, node: PlannedNode, number: int) -> Exception:
        """Return the error of a node that needs a block which was to be made by one that has failed."""
        block = self._known.get((node.line, number))
        if block is not None and block.retired is not None and block.retired.routine:
            return block.retired.error(contiguous_array(block, (block.nbytes,), np.dtype("u1")))
        made_by = block.made_by if block is not None and block.made_by else "an earlier construct"
        return NotPresentError(
            f"{node.name or node.site[1]!r} needs data that {made_by} was to map on worker {node.line.name}, but that "
            "has failed; see its failure"
        )

    def received(self, node: PlannedNode, end: End) -> End:
        """Return an end as this process has it: values, exceptions, and the node because of which one did not run."""
        kind, what = end
        if kind == Ended.NOT_RUN:
            return kind, _node_by_number(node, what)
        if kind == Ended.OK and what.__class__ is Pickled:
            try:
                return kind, unpickled(what.data, lambda view: self.handle(node.line, view))
            except BaseException as error:  # noqa: BLE001  # the program's
                return Ended.FAILED, DeviceError(
                    f"the value of {node.name or node.site[1]!r} cannot be unpickled ({type(error).__name__}: "
                    f"{error}); return values whose classes this process can import"
                )
        return (kind, _exception_of(what, node)) if kind == Ended.FAILED else (kind, what)


def note_times(node: PlannedNode, times: NodeTimes | None) -> None:
    """Give the times of a node to those who have asked for them, by this process's `perf_counter`.

    The clocks of two machines may differ. But a worker has begun after the plan was sent, and ended before this call.
    """
    asked = [operation[1] for operation in node.operations if operation[0] == Op.TIME]
    noted = [(held, at_s) for held, at_s in zip(asked, times or (), strict=False) if at_s is not None]
    if not noted:
        return
    now_s, offset_s = perf_counter(), -common_clock_s()
    first_s, last_s = noted[0][1] + offset_s, noted[-1][1] + offset_s
    sent_s = first_s if node.segment is None else node.segment.sent_s
    offset_s += max(0.0, sent_s - first_s) or min(0.0, now_s - last_s)
    for held, at_s in noted:
        held.append(at_s + offset_s)


def _exception_of(carried: Any, node: PlannedNode) -> BaseException:
    """Return the exception that a body has raised on a worker, with a note of where."""
    error: BaseException | None = None
    if carried.data is not None:
        with suppress(BaseException):  # the program's
            error = pickle.loads(carried.data)  # noqa: S301  # trust is Dask's
    if not isinstance(error, BaseException):
        error = DeviceError(f"{carried.text} (the exception itself cannot be pickled)")
    with suppress(Exception):  # an exception that takes no attributes
        error.add_note(f"on worker {node.line.name} ({node.line.address}):\n{carried.trace}")
    return error


def _node_by_number(node: PlannedNode, number: int) -> PlannedNode | None:
    """Return a node that another one depends on, perhaps by way of others."""
    pending, visited = [*node.depends], set()
    while pending:
        other = pending.pop()
        if other.number == number:
            return other
        if other in visited:
            continue
        visited.add(other)
        if other.end is not None and other.end[0] == Ended.NOT_RUN and other.end[1] is not None:
            pending.append(other.end[1])
        pending += other.depends
    return None
