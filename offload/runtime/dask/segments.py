"""Plans on a worker: each node of a segment becomes a device task of the lease's runtime.

Theory of operation
-------------------
A node's operations before the body are the beginning of the task's work, and the others are the end. The tasks follow
each other as the nodes do, so the engine keeps a task from running after a failure. The reports of earlier segments are
arguments of the segment's Dask task, and tell how their nodes have ended.

A body runs inside of `NodeCall`, which pickles its value or its exception right there, while the device is in use.

The ends of nodes go to the client by events, as soon as one is awaited, and all together by the segment's result.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import threading
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

import cloudpickle
import numpy as np
from distributed import get_worker

from offload.arrays.items import SCALARS, is_device_array
from offload.devices.dask.bodies import resolve, unpickled
from offload.devices.dask.wire import Carried, Ended, Op, Pickled, Rebuilt, RemoteView, SegmentReport, common_clock_s
from offload.errors import DeviceLostError, MapError, UsageError
from offload.runtime.dask.leases import MissingBlockError, known_run, lease_of
from offload.runtime.generate import Ordering, generate
from offload.runtime.recipe import DeviceRecipe
from offload.runtime.stamps import DeviceClock, stamp
from offload.runtime.works import Work
from offload.tasks.failures import see
from offload.tasks.site import Site
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.devices.dask.wire import End, NodeTimes, WireNode, WireSegment
    from offload.devices.streams import Lane
    from offload.runtime.dask.leases import Lease
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import RuntimeScope
    from offload.runtime.works import Launch
    from offload.tasks.recipe import Recipe
    from offload.tasks.region import Region
    from offload.tasks.task import Task

_MOST_EVENT_NBYTES = 4096
"""Of the ends that an event reports: the scheduler keeps the last events of each topic."""

_MOST_RUNS = 4
"""Segments that are kept: more than are under way on a worker."""

_PATIENCE_S = 0.02
"""After which ends are reported although no wait for them is known."""


async def run_segment(payload: bytes, *arguments: Any) -> SegmentReport:
    """Carry out a segment; a Dask task on the worker's loop. Arguments: scattered arrays, then reports."""
    segment, n_data = pickle.loads(payload)  # noqa: S301  # trust is Dask's
    worker = get_worker()
    lease = lease_of(worker.address, segment.runtime, segment.incarnation)
    if segment.number in lease.begun or (segment.number, segment.attempt) in lease.revoked:
        raise UsageError("this plan has been carried out, or its client has sent another one for it")
    lease.begin(segment.number)
    run = lease.runs[segment.number] = SegmentRun(lease, segment, arguments[:n_data], arguments[n_data:], worker)
    while len(lease.runs) > _MOST_RUNS:
        del lease.runs[next(iter(lease.runs))]
    run.start()
    return await asyncio.shield(run.over)


async def take_report(address: str, runtime: str, number: int) -> SegmentReport | None:
    """Return the result of a segment that was begun; None if it was not, or long ago. The client calls it."""
    run = known_run(address, runtime, number)
    return None if run is None else await asyncio.shield(run.over)


class SegmentRun:
    """A segment that is carried out.

    Attributes
    ----------
    ends : dict
        How nodes have ended, by their numbers.
    over : asyncio.Future
        Gets the report when all have.
    """

    def __init__(
        self,
        lease: Lease,
        segment: WireSegment,
        scattered: Sequence[Any],
        reports: Sequence[SegmentReport],
        worker: Any,
    ) -> None:
        self.lease = lease
        self.segment = segment
        self.data = [scattered[item] if type(item) is int else item for item in segment.data]
        self.imports = {number: array for report in reports for number, array in report.exports.items()}
        self.failed: dict[int, int] = {}  # nodes that failed or did not run, with the node that failed first
        for number in segment.failed:
            self.failed[number] = number
        for report in reports:
            for number, (kind, what) in report.ends.items():
                if kind != Ended.OK:
                    self.failed[number] = what if kind == Ended.NOT_RUN else number
        self.outs: dict[Any, Any] = {}
        self.exports: dict[int, Any] = {}
        self.ends: dict[int, End] = {}
        self.times: dict[int, NodeTimes] = {}
        self._clocks: dict[Any, DeviceClock] = {}
        self.tasks: dict[int, Task[Any]] = {}
        self.numbers: dict[int, int] = {}  # of nodes, by the `id` of their tasks
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[SegmentReport] = self.loop.create_future()
        self._worker = worker
        self._n_left = len(segment.nodes)
        self._lock = threading.Lock()
        self._unreported: list[tuple[int, End, NodeTimes]] = []
        self._is_flushing = False
        self._awaited = {node.number for node in segment.nodes if node.is_awaited}
        followed = {other for node in segment.nodes for other in (*node.depends, *node.follows)}
        # When these have ended, all have.
        self._last = {node.number for node in segment.nodes if node.number not in followed}

    def start(self) -> None:
        """Generate the tasks, on the thread of the lease."""
        generated = self.lease.generate(self.loop, self._generate)
        generated.add_done_callback(self._generated)

    def _generated(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled() or self.over.done():
            self.over.cancel()
        elif (error := future.exception()) is not None:
            self.over.set_exception(error)

    def _generate(self) -> None:
        lease, segment = self.lease, self.segment
        lease.free(segment.freed)
        for number in segment.dropped:
            lease.bodies.pop(number, None)
        for number, data in segment.bodies.items():
            lease.bodies[number] = data  # unpickled at the first call, which may fail
        scope = lease.runtime.scope()
        region = scope.frame("a plan")
        for node in segment.nodes:
            root = next((self.failed[other] for other in node.depends if other in self.failed), None)
            if root is not None:
                self._end(node, (Ended.NOT_RUN, root))
                continue
            self._start_node(scope, region, node)
        with self._lock:
            is_over = not self._n_left
        if is_over:
            self._call_loop(self._finish)

    def _start_node(self, scope: RuntimeScope, region: Region, node: WireNode) -> None:
        place = self.lease.places[node.device]
        work = NodeWork(self, node)
        recipe = DeviceRecipe(self._site(node), place, work, work.body, (), None, node.name or None)
        order = NodeOrder(
            [ref(self.tasks[other]) for other in (*node.depends, *node.follows) if other in self.tasks],
            [ref(self.tasks[other]) for other in node.follows if other in self.tasks],
            lambda task: self._note_task(node, task),
        )
        task = generate(scope, region, recipe, (), wait=False, order=order)
        if node.number in self._awaited or node.number in self._last:
            task.watch()  # the client waits
        task.add_done_callback(lambda task: self._task_over(node, work, task))

    def _note_task(self, node: WireNode, task: Task[Any]) -> None:
        self.tasks[node.number] = task
        self.numbers[id(task)] = node.number

    def _site(self, node: WireNode) -> Site:
        key = self.segment.sites[node.site]
        site = self.lease.sites.get(key)
        if site is None:
            directive, name, location = key
            site = self.lease.sites[key] = Site(
                directive or "copy", name or "copy", location, self.lease.runtime, is_target=True
            )
        return site

    # -- ends ------------------------------------------------------------------------------------------
    def _task_over(self, node: WireNode, work: NodeWork, task: Task[Any]) -> None:
        failure = task.failure
        end: End
        if failure is None:
            end = Ended.OK, work.value if task.value is None else work.packed(task.value)
        elif task.state_ is TaskState.NOT_RUN and task.poison is not None:
            end = Ended.NOT_RUN, self.numbers.get(id(task.poison), node.number)
        elif isinstance(failure, MissingBlockError):
            end = Ended.MISSING, failure.block
        else:
            end = Ended.FAILED, failure.carried if isinstance(failure, BodyFailedError) else carried(failure)
        if failure is not None:
            work.release()
        self._end(node, end, self._times_of(work) if work.times else ())

    def clock_of(self, device: Any) -> DeviceClock:
        """Return the clock of a device in this segment, made at the first call."""
        if device not in self._clocks:
            self._clocks[device] = DeviceClock(device)
        return self._clocks[device]

    def _times_of(self, work: NodeWork) -> NodeTimes:
        """Return the times that streams have noted for a node, by the clock that all machines have."""
        offset_s = common_clock_s()
        times = [self.clock_of(device).seconds_of(held) for device, held in work.times]
        return [None if at_s is None else at_s + offset_s for at_s in times]

    def _end(self, node: WireNode, end: End, times: NodeTimes = ()) -> None:
        """Note how a node has ended, on any thread."""
        with self._lock:
            number = node.number
            self.ends[number] = end
            if times:
                self.times[number] = times
            if end[0] != Ended.OK:
                self.failed[number] = end[1] if end[0] == Ended.NOT_RUN else number
            self._n_left -= 1
            is_over = not self._n_left
            self._unreported.append((number, end, times))
            flushes = not self._is_flushing
            if flushes:
                self._is_flushing = True
        if is_over or number in self._awaited:
            self._call_loop(self._report if not is_over else self._finish)
        elif flushes:
            self._call_loop(self._report_later)

    def _call_loop(self, function: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            return  # the worker has closed

    def _report_later(self) -> None:
        self.loop.call_later(_PATIENCE_S, self._report)

    def _report(self) -> None:
        """Tell the client, by an event, of the ends that it does not know; large ones wait for the result."""
        with self._lock:
            unreported, self._unreported = self._unreported, []
            self._is_flushing = False
        small, nbytes = [], 0
        for number, end, times in unreported:
            try:
                nbytes += len(pickle.dumps(end))
            except Exception:  # noqa: BLE001, S112  # it is in the result
                continue
            if nbytes > _MOST_EVENT_NBYTES:
                break
            small.append((number, end, times))
        if small:
            self._worker.log_event(self.lease.topic, (self.segment.number, pickle.dumps(small)))

    def _finish(self) -> None:
        """Report the remaining ends, and give the result."""
        self._report()
        if not self.over.done():
            self.over.set_result(SegmentReport(self.ends, self.outs, self.exports, self.times))
        with suppress(RuntimeError):  # the lease has ended
            self.lease.generate(self.loop, self._forget)

    def _forget(self) -> None:
        """Let the tasks go, whose failures the client has."""
        for task in self.tasks.values():
            if task.failure is not None:
                see(task)
        self.tasks.clear()


class NodeOrder(Ordering):
    """The order of a node's task: after others of the segment; a failure goes along some of these edges."""

    __slots__ = ("_follows", "_note", "_only_ordered")

    def __init__(self, follows: list[Any], only_ordered: list[Any], note: Callable[[Task[Any]], None]) -> None:
        super().__init__()
        self._follows = follows
        self._only_ordered = only_ordered
        self._note = note

    def enter(self, scope: RuntimeScope, region: Region, recipe: Recipe, task: Task[Any]) -> None:
        super().enter(scope, region, recipe, task)
        task.follows = self._follows
        task.ordered_after = self._only_ordered
        self._note(task)


class BodyFailedError(Exception):
    """A body has raised; the exception is on its way to the client."""

    def __init__(self, carried: Carried) -> None:
        super().__init__(carried.text)
        self.carried = carried


class NodeWork(Work):
    """The work of a node: operations before the body, the body, and operations after it."""

    __slots__ = ("_after", "_before", "_call", "_made", "_node", "_run", "body", "has_end", "times", "value")

    def __init__(self, run: SegmentRun, node: WireNode) -> None:
        self._run = run
        self._node = node
        at = next((n for n, operation in enumerate(node.operations) if operation[0] == Op.CALL), None)
        self._call = None if at is None else node.operations[at]
        self._before = node.operations if at is None else node.operations[:at]
        self._after = () if at is None else node.operations[at + 1 :]
        self.has_end = bool(self._after)
        self.body = None if at is None else self._run_call
        self.value: Any = None
        self.times: list[tuple[Any, Any]] = []  # devices, and what holds the time on one of their streams
        self._made: dict[int, bool] = {}  # blocks, and whether the construct releases them as mappings

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        try:
            for operation in self._before:
                self._carry_out(operation, place, lane, staged)
        except BaseException:
            self.release()
            raise

    def end(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        for operation in self._after:
            self._carry_out(operation, place, lane, staged)

    def release(self) -> None:
        """Free the blocks that the node has allocated: it has failed."""
        self._run.lease.withhold(self._made)

    def _carry_out(self, operation: Any, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        run, lease, device = self._run, self._run.lease, place.device
        name, what, *rest = operation
        if name == Op.ALLOC:
            nbytes, is_mapping = rest
            lease.blocks[what] = device.alloc((nbytes,), _BYTE, lane.stream)
            self._made[what] = is_mapping
        elif name == Op.IN:
            host = run.data[rest[0]]
            place.copy(lease.view(what, lane), host.reshape(what.shape), lane, staged)
        elif name == Op.OUT:
            host = run.outs[rest[0]] = np.empty(what.shape, what.dtype)
            place.copy(host, lease.view(what, lane), lane, staged)
        elif name == Op.MOVE:
            place.copy(lease.view(what, lane), lease.view(rest[0], lane), lane, staged)
        elif name == Op.EXPORT:
            host = run.exports[rest[0]] = np.empty(what.shape, what.dtype)
            place.copy(host, lease.view(what, lane), lane, staged)
        elif name == Op.IMPORT:
            if rest[0] not in run.imports:
                raise DeviceLostError("the worker that was to send a copy has been lost")
            place.copy(lease.view(what, lane), run.imports[rest[0]], lane, staged)
        elif name == Op.FILL:
            device.fill(lease.view(what, lane), rest[0], lane.stream)
        elif name == Op.TIME:
            run.clock_of(device)
            self.times.append((device, stamp(place, lane)))
        elif name == Op.POISON:
            device.poison(lease.view(what, lane), rest[0], lane.stream)
        else:
            assert name == Op.INDEXED, name
            dst, src, to, at = (None if spec is None else lease.view(spec, lane) for spec in (what, *rest))
            device.copy_indexed(dst, src, to, at, lane.stream)

    # -- the body --------------------------------------------------------------------------------------
    def _run_call(self) -> None:
        """Call the body, and pickle its value or its exception."""
        scope_task: Any = self._run.tasks[self._node.number]
        lane, lease = scope_task.lane, self._run.lease
        call: Any = self._call  # it has one
        _, number, args, kwargs, is_pickled = call
        error: BaseException
        try:
            function = lease.bodies[number]
            if isinstance(function, bytes):
                function = lease.bodies[number] = unpickled(function, lambda spec: lease.view(spec, lane))
            if is_pickled:
                args, kwargs = unpickled(args, lambda spec: lease.view(spec, lane))
            else:
                args, kwargs = [lease.view(arg, lane) if arg.__class__ is RemoteView else arg for arg in args], {}
            value = function(*args, **kwargs)
            del args, kwargs
            if value is not None:
                self.value = self.packed(value)
        except MissingBlockError:
            raise
        except BaseException as raised:  # noqa: BLE001  # the client gets it
            error = raised
        else:
            return
        failed = BodyFailedError(carried(error))
        del error
        raise failed

    def packed(self, value: Any) -> Any:
        """Return the value of a body as it goes to the client: device arrays stay here."""
        if value.__class__ in SCALARS:
            return value
        buffer = io.BytesIO()
        pickler = ValuePickler(buffer, self._run.lease, self._made)
        try:
            pickler.dump(value)
        except MapError:
            raise
        except Exception as error:
            raise UsageError(
                f"the body returns a {type(value).__name__} that cannot be pickled for the client ({error}); return "
                "arrays, numbers and objects that pickle takes"
            ) from error
        return Pickled(buffer.getvalue())


class ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has few types
    """Pickles the device arrays in a value as handles."""

    def __init__(self, buffer: io.BytesIO, lease: Lease, made: dict[int, bool]) -> None:
        super().__init__(buffer, protocol=5)
        self._lease = lease
        self._made = made

    def reducer_override(self, obj: Any) -> Any:
        if is_device_array(obj):
            for index, place in enumerate(self._lease.places):
                array = place.device.as_array(obj)
                if array is not None:
                    return resolve, (self._spec(array, index, place),)
        return super().reducer_override(obj)

    def _spec(self, array: Any, index: int, place: DevicePlace) -> RemoteView:
        array, number, nbytes, offset = self._lease.keep_array(array, place)
        if self._made.get(number):
            raise MapError(
                "the body returns a view of an array whose device storage this construct releases; return a copy, or "
                "map the array in an enclosing target_data"
            )
        return RemoteView(number, nbytes, index, offset, array.shape, array.strides, np.dtype(array.dtype))


def carried(error: BaseException) -> Carried:
    """Return an exception as it goes to the client."""
    text = f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error))
    for form in (error, Rebuilt(error)):
        try:
            data = cloudpickle.dumps(form)
            pickle.loads(data)  # noqa: S301  # its own
        except BaseException:  # noqa: BLE001, S112  # its class may do anything
            continue
        return Carried(data, text, trace)
    return Carried(None, text, trace)


_BYTE = np.dtype("u1")
