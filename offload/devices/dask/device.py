"""A device of a worker, as the client sees it: an implementation of the device contract that plans.

Streams collect operations. `DaskDevice.record` makes a node of what a stream has collected since the last one, and the
node is the event. A method waits for the worker only where the contract says so. `offload.devices.dask.planner`
puts nodes into segments, and `offload.devices.dask.cluster` sends them.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from offload.arrays.items import array_section, label
from offload.devices.dask.array import RemoteArray, RemoteBlock, contiguous_array
from offload.devices.dask.wire import Ended, Op
from offload.devices.sim.memory import MemoryAccount
from offload.errors import DeviceLostError, InternalError, MapError, RuntimeClosedError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from offload.arrays.sections import Section
    from offload.devices.base import Kernels
    from offload.devices.dask.bodies import Bodies
    from offload.devices.dask.planner import PlannedNode, Planner, WorkLine
    from offload.devices.dask.receiving import RemoteBlocks
    from offload.devices.retirement import Retired
    from offload.events.wakeup import Wakeup

_PAGE_NBYTES = 4096
"""Allocations get addresses that are multiples of this; no two of a device share a byte."""


class AnyCluster(Protocol):
    """The cluster, as its devices know it; `offload.devices.dask.cluster.Cluster` has the documentation."""

    address: str
    blocks: RemoteBlocks
    bodies: Bodies
    number: str
    planner: Planner

    def call(self) -> None: ...
    def failure_of(self, node: PlannedNode) -> BaseException | None: ...
    def leave(self, device: DaskDevice) -> None: ...
    def recover(self, line: WorkLine, timeout_s: float, address: str | None) -> None: ...


class DaskStream:
    """A stream of a worker's device: the operations that are collected for its next node.

    Attributes
    ----------
    tail : PlannedNode or None
        The last node.
    launch : Appended or None
        The launch that has the stream.
    """

    __slots__ = ("__weakref__", "depends", "device", "follows", "keep", "launch", "operations", "outs", "reads", "tail")

    def __init__(self, device: DaskDevice) -> None:
        self.device = device
        self.tail: PlannedNode | None = None
        self.launch: Appended | None = None
        self._clear()

    def _clear(self) -> None:
        self.operations: list[Any] = []
        self.depends: list[PlannedNode] = []
        self.follows: list[PlannedNode] = []
        self.reads: list[Section] = []  # host memory that the operations copy from
        self.outs: list[tuple[Section, Any]] = []
        self.keep: list[Any] = []

    @property
    def done(self) -> bool:
        """Whether everything enqueued has been carried out, or never will be."""
        return not self.operations and (self.tail is None or self.tail.done)

    def synchronize(self) -> None:
        """Block until everything enqueued has been carried out; raise `DeviceLostError` if it never will be."""
        self.record().synchronize()
        self.device.refuse_lost()

    def record(self, event: Any = None) -> PlannedNode:
        """Return a node of the collected operations, or the last node if there are none."""
        if event is not None:
            raise UnsupportedError("events of your own cannot be recorded on a stream of a Dask worker")
        return self.device.record(self)

    def wait_event(self, event: PlannedNode) -> None:
        """Have the next node follow an event."""
        self.device.wait_event(self, event)

    def launch_host_func(self, callback: Any, arg: Any) -> None:
        """Refuse: the stream is in another process."""
        raise _no_stream("launch_host_func")

    def close_node(self) -> PlannedNode:
        """Return a node of the collected operations, and begin the next one."""
        device, launch, tail = self.device, self.launch, self.tail
        planner = device.cluster.planner
        with planner.lock:
            node = planner.new_node(device.line, device.index)
            node.operations, node.outs, node.keep = self.operations, self.outs, self.keep
            depends, follows, reads = self.depends, self.follows, self.reads
            if launch is not None:
                depends = [*depends, *launch.depends, *launch.nodes]
                node.site, node.name = launch.site, launch.name
                launch.nodes.append(node)
            if tail is not None and not tail.done:
                node.previous, tail.next = tail, node
                follows = [*follows, tail]
            node.depends, node.follows = depends, follows
            self._clear()
            self.tail = node
            lost = device.line.lost
            if lost is not None:
                planner.resolve(node, (Ended.LOST, ()))
            else:
                planner.add(node, reads)
        return node


class Appended:
    """A launch whose work is planned: its nodes, in order.

    Attributes
    ----------
    depends : list of PlannedNode
        Earlier nodes. If one of them fails, the launch does not run.
    """

    __slots__ = ("before", "depends", "name", "nodes", "site")

    def __init__(self, task: Any, before: Sequence[Any]) -> None:
        self.before = before  # the tasks that it depends on, until it is over
        self.depends = [
            node
            for other in before
            if (appended := getattr(other, "appended", None)) is not None
            for node in appended.nodes
            if node.end is None or node.end[0] != Ended.OK
        ]
        self.nodes: list[PlannedNode] = []
        construct = task.construct
        self.site = (construct.directive, str(construct.name), construct.location)
        self.name = task.label or ""


class DaskDevice:
    """A device of a worker; see `offload.devices.base.Device`.

    Attributes
    ----------
    line : WorkLine
        The work of its worker.
    index : int
        Its number among the devices of the worker.
    native_kind : str
        The kind that the device has on its worker.
    """

    kind = "dask"
    bodies_block = False  # they are appended
    plans = True
    waits_look = False
    wakes_by_driver = False
    kernels: Kernels | None = None
    _serial = itertools.count()

    def __init__(
        self,
        number: int,
        cluster: AnyCluster,
        line: WorkLine,
        index: int,
        name: str,
        native_kind: str,
        total_nbytes: int,
        *,
        poisons: bool,
    ) -> None:
        self.number = number
        self.cluster = cluster
        self.line = line
        self.index = index
        self.name = f"dask:{line.name}/{name}"
        self.native_kind = native_kind
        self.space: object = ("dask", next(self._serial))
        self.poisons = poisons
        self.is_closed = False
        self.account = MemoryAccount(self.name, total_nbytes)
        self._labels: Callable[[], Sequence[str]] = tuple
        self._forget: Callable[[], None] = lambda: None
        self._address = _PAGE_NBYTES
        self._addresses = threading.Lock()
        self._own_stream = threading.Lock()

    def __repr__(self) -> str:
        return f"<DaskDevice {self.name}>"

    # -- for users -------------------------------------------------------------------------------------
    @property
    def worker(self) -> str:
        """The address of the worker."""
        return self.line.address

    @property
    def is_lost(self) -> bool:
        """Whether the worker has gone, and the data there with it."""
        return self.line.lost is not None

    def recover(self, timeout: float = 30.0, worker: str | None = None) -> None:
        """Make the device usable again after its worker was lost; it is empty then.

        Parameters
        ----------
        timeout : float
            The longest time to wait for a worker, in seconds.
        worker : str, optional
            The address of a worker that takes the place. None: a worker of the same name, such as a nanny brings back.

        Raises
        ------
        TimeoutError
            No worker has come.
        UsageError
            The worker has devices of this runtime already.
        """
        self.cluster.recover(self.line, timeout, worker)

    def attend(self, labels: Callable[[], Sequence[str]], forget: Callable[[], None]) -> None:
        """Set the functions of the runtime that list the data on the device, and that forget it after a recovery."""
        self._labels, self._forget = labels, forget

    def labels(self) -> Sequence[str]:
        """Return the labels of the data that the runtime has on the device."""
        return self._labels()

    def forget(self) -> None:
        """Have the runtime forget the data on the device."""
        self._forget()

    def failure_of(self, node: PlannedNode) -> BaseException | None:
        """Return the exception of a failed node; None for a node that succeeded, or that did not run."""
        return self.cluster.failure_of(node)

    def refuse_lost(self) -> None:
        """Raise `DeviceLostError` if the worker has gone."""
        if self.line.lost is not None:
            raise self.lost_error()

    def refuse_other(self, array: RemoteArray) -> None:
        """Refuse an array that a body of this device cannot reach.

        Raises
        ------
        MapError
            It is on another device, or of another runtime.
        RegionClosedError
            Its memory has gone back.
        """
        if array.device is not self:
            other = "" if array.device.cluster is self.cluster else " of another runtime"
            raise MapError(
                f"device array {label(array):.60} is on {array.device.name}{other}, not on device {self.number} of "
                f"this runtime ({self.name}); run the region where the array is, or copy it with target_memcpy"
            )
        if array.block.retired is not None:
            raise array.block.retired.error(array)

    def lost_error(self, lost: Sequence[str] = ()) -> DeviceLostError:
        """Return the error of a lost device; ``lost`` are the labels of the data that was there."""
        why = self.line.lost
        held = f"; it held {', '.join(lost)}" if lost else ""
        return DeviceLostError(
            f"device {self.number} is lost: worker {self.line.name} ({self.line.address}) {why}{held}; call "
            f"device({self.number}).recover(), or use another device",
            self.number,
            self.line.address,
            tuple(lost),
        )

    # -- streams ---------------------------------------------------------------------------------------
    def new_stream(self) -> DaskStream:
        return DaskStream(self)

    def owns_stream(self, stream: object) -> bool:
        return isinstance(stream, DaskStream) and stream.device is self

    def adopt(self, stream: Any) -> Any:
        return stream

    def record(self, stream: DaskStream) -> PlannedNode:
        tail = stream.tail
        if stream.operations or stream.follows or stream.depends or tail is None:
            return stream.close_node()
        launch = stream.launch
        if launch is not None and launch.depends and not launch.nodes:
            return stream.close_node()  # nothing is done, but not after a failure
        return tail

    def wait_event(self, stream: DaskStream, event: PlannedNode) -> None:
        if not event.done and event is not stream.tail:
            stream.follows.append(event)

    def passed(self, event: PlannedNode) -> bool:
        return event.done

    def reuse(self, events: list[PlannedNode]) -> None:
        pass

    def wake(self, stream: DaskStream, wakeup: Wakeup) -> None:
        tail = stream.tail
        with self.cluster.planner.lock:
            if tail is not None and not tail.done:
                tail.wakeups.append(wakeup)
                tail.is_awaited = True
                return
        wakeup.post()

    def use(self, stream: Any) -> None:
        pass

    def restore(self, outer: Any) -> None:
        pass

    def note_time(self, stream: DaskStream) -> list[float]:
        """Have the worker note the time when its stream gets here; return a list that gets it, by this host's clock."""
        times: list[float] = []
        stream.operations.append((Op.TIME, times))
        return times

    def caller_event(self) -> None:
        return None

    def check(self, stream: Any) -> None:
        self.refuse_lost()

    # -- bodies ----------------------------------------------------------------------------------------
    def begin(self, stream: DaskStream, task: Any, before: Sequence[Any]) -> Appended:
        """Begin the launch of a task on a stream; it does not run if one of the tasks ``before`` fails."""
        stream.launch = None
        if stream.operations:
            stream.close_node()  # of a launch that was postponed
        stream.launch = launch = Appended(task, before)
        return launch

    def gathering(self) -> AbstractContextManager[None]:
        """In the block, send as few segments as possible: a worker gets one until another worker needs its end."""
        return self.cluster.planner.gathering()

    def append(self, stream: DaskStream, body: Any, args: Sequence[Any], kwargs: Any) -> None:
        """Append the call of a body to the plan.

        Raises
        ------
        UsageError
            The body or an argument cannot be pickled, or the body brings more than 1 MB along.
        """
        self.refuse_lost()
        operation = self.cluster.bodies.call_of(body, args, kwargs or {}, self)
        stream.keep += (*args, kwargs, self.cluster.bodies.known(operation[1]))
        stream.operations.append(operation)

    # -- memory ----------------------------------------------------------------------------------------
    def memory_info(self) -> tuple[int, int]:
        return self.account.total_nbytes - self.account.used_nbytes(), self.account.total_nbytes

    def live_nbytes(self) -> int:
        return self.account.alive_nbytes()

    def block(self, nbytes: int, number: int, *, on_demand: bool, charges: bool = True) -> RemoteBlock:
        """Return a new allocation of this device."""
        account = self.account.take(nbytes if charges else 0)
        with self._addresses:
            address = self._address
            self._address += (nbytes // _PAGE_NBYTES + 1) * _PAGE_NBYTES
        return RemoteBlock(self, number, nbytes, address, account, on_demand=on_demand)

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: DaskStream) -> RemoteArray:
        self.refuse_lost()
        if self.is_closed:
            raise RuntimeClosedError(f"{self.name} belongs to a runtime that is closed")
        nbytes = math.prod(shape) * dtype.itemsize
        launch = stream.launch
        block = self.block(nbytes, self.cluster.blocks.new_number(), on_demand=launch is None)
        self.cluster.blocks.note(block)
        if launch is not None:
            directive, name, location = launch.site
            block.made_by = f"{directive} {launch.name or name!r} at {location}"
            stream.operations.append((Op.ALLOC, block.number, nbytes, dtype == np.uint8 and len(shape) == 1))
            stream.keep.append(block)
        return contiguous_array(block, shape, dtype)

    def poison(self, buffer: RemoteArray, dtype: np.dtype[Any], stream: DaskStream) -> None:
        stream.operations.append((Op.POISON, buffer.spec, dtype))

    def view(
        self,
        buffer: RemoteArray,
        offset_nbytes: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> RemoteArray:
        return RemoteArray(buffer.block, buffer.offset + offset_nbytes, shape, strides, dtype)

    def copy(self, dst: Any, src: Any, stream: DaskStream) -> None:
        self.refuse_lost()
        if dst.shape != src.shape or dst.dtype != src.dtype:
            raise InternalError(
                f"copy of {src.dtype}{list(src.shape)} to {dst.dtype}{list(dst.shape)}; they must be the same"
            )
        if not dst.size:
            return
        if dst.__class__ is not RemoteArray:
            stream.operations.append((Op.OUT, src.spec, len(stream.outs)))
            stream.outs.append((array_section(dst), dst))
            stream.keep.append(src)
        elif src.__class__ is not RemoteArray:
            stream.operations.append((Op.IN, dst.spec, src))
            stream.reads.append(array_section(src))
            stream.keep.append(dst)
        else:
            stream.keep += (dst, src)
            if dst.device.line is src.device.line:
                stream.operations.append((Op.MOVE, dst.spec, src.spec))
            else:
                self._import(dst, src, stream)

    def _import(self, dst: RemoteArray, src: RemoteArray, stream: DaskStream) -> None:
        """Append a copy from another worker: a node there exports, and this one depends on it."""
        other, planner, launch = src.device, self.cluster.planner, stream.launch
        with planner.lock:
            number = planner.new_export()
            node = planner.new_node(other.line, other.index)
            node.operations = [(Op.EXPORT, src.spec, number)]
            node.keep, node.is_export = src, True
            node.follows = [
                *stream.follows,
                *((stream.tail,) if stream.tail is not None and not stream.tail.done else ()),
            ]
            node.depends = [*stream.depends]
            if launch is not None:
                node.depends += [*launch.depends, *launch.nodes]
                node.site, node.name = launch.site, launch.name
            if other.line.lost is not None:
                planner.resolve(node, (Ended.LOST, ()))
            else:
                planner.add(node)
            if launch is not None:
                launch.nodes.append(node)
        stream.depends.append(node)
        stream.operations.append((Op.IMPORT, dst.spec, number))

    def repeat(self, dst: Any, src: Any) -> Callable[[Any], object]:
        return lambda stream: self.copy(dst, src, stream)

    def copy_indexed(self, dst: RemoteArray, src: RemoteArray, to: Any, at: Any, stream: DaskStream) -> None:
        self.refuse_lost()
        specs = [None if array is None else array.spec for array in (dst, src, to, at)]
        stream.operations.append((Op.INDEXED, *specs))
        stream.keep += (dst, src, to, at)

    def fill(self, array: RemoteArray, value: int, stream: DaskStream) -> None:
        self.refuse_lost()
        stream.operations.append((Op.FILL, array.spec, value))
        stream.keep.append(array)

    def copy_now(self, dst: Any, src: Any) -> None:
        """Copy between a host array and an array of this device, after all work that is planned for its worker."""
        planner = self.cluster.planner
        if self.is_closed:
            raise RuntimeClosedError(f"{self.name} belongs to a runtime that is closed")
        stream = DaskStream(self)
        with planner.lock:
            self.copy(dst, src, stream)
            stream.follows += self.line.live
            if not stream.operations:
                return  # there are no elements
            node = stream.close_node()
        node.synchronize()
        error = self.cluster.failure_of(node)
        if error is not None:
            raise error

    def copies_async(self, host: Any) -> bool:
        return True

    def can_access(self, host: Any) -> bool:
        return False

    def host_memory(self, nbytes: int) -> None:
        return None

    def is_array(self, value: object) -> bool:
        return value.__class__ is RemoteArray and value.device is self

    def renew(self, buffer: Any) -> bool:
        return False

    def retire(self, array: RemoteArray, retired: Retired) -> None:
        array.block.retire(retired)
        self.cluster.call()

    def retired(self, array: RemoteArray) -> Retired | None:
        return array.block.retired

    def as_array(self, value: Any) -> Any | None:
        return value if self.is_array(value) else None

    def section(self, array: RemoteArray) -> Section:
        return array.__offload_section__()

    def address(self, array: object) -> int | None:
        if not isinstance(array, RemoteArray) or array.device is not self:
            return None
        if array.block.retired is not None:
            raise array.block.retired.error(array)
        return array.block.address + array.offset

    def namespace(self) -> Any:
        raise UnsupportedError(
            f"array_namespace of {self.name}: its arrays are made in another process; call it in a body, or allocate "
            "with target_alloc"
        )

    # -- graphs and life -------------------------------------------------------------------------------
    def graph_capture(self) -> None:
        return None

    def synchronize(self) -> None:
        """Block until all work that is planned for the worker is over; raise `DeviceLostError` if it is lost."""
        with self.cluster.planner.lock:
            nodes = [*self.line.live]
        self.cluster.planner.wait(lambda: all(node.done for node in nodes), nodes)
        self.refuse_lost()

    def close(self) -> None:
        """Close the device; the cluster is left with the last one."""
        if not self.is_closed:
            self.is_closed = True
            self.cluster.leave(self)


def _no_stream(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what}: the streams of a Dask cluster's devices are in the workers' processes; use current_stream() in the "
        "body of a target region"
    )
