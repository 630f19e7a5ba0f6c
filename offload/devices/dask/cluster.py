"""A Dask cluster as a runtime uses it: one thread that sends segments, takes their results, and notices lost workers.

Theory of operation
-------------------
The thread runs an event loop with a `distributed.Client` of the runtime's own. Launches only change the planner, and
call the loop. The loop sends the next segment of each worker that has fewer than `MOST_UNDER_WAY`. New nodes gather in
the worker's open segment meanwhile.

A worker reports the ends of nodes in two ways. It logs an event on the client's topic as soon as somebody waits, or
some time has gone by. The result of the segment has all ends, with the copies to the host. The planner notes each end
once.

The scheduler's event reports a lost worker. Futures of tasks that are bound to its address would stay pending for
ever, so nothing here waits for them.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distributed import Client

from offload.arrays.hostcopies import copyto
from offload.devices.dask import calls
from offload.devices.dask.bodies import Bodies
from offload.devices.dask.connecting import check_versions, open_leases, order_of
from offload.devices.dask.device import DaskDevice
from offload.devices.dask.planner import Planner, WorkLine
from offload.devices.dask.receiving import RemoteBlocks, note_times
from offload.devices.dask.sending import PlanSending, key_of
from offload.devices.dask.wire import Ended, Op, SegmentReport, part_of
from offload.errors import DeviceUnavailableError, RuntimeClosedError, UsageError
from offload.interrupts.shields import Shield

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.devices.dask.planner import PlannedNode, Segment

_LIGHT_NBYTES = 1 << 16
"""The result of a segment that another worker may get although it needs only to know that the segment is over."""

_FREES_S = 0.02
"""After which a worker frees memory although there is nothing else to send, and the scheduler's end is noticed."""

_NOTICE_S = 0.25
"""Within which the scheduler reports a worker that has gone."""

_TURN_S = 0.0005
"""Between two looks whether a segment that is needed has been sent."""

_OPENS_S = 10.0

_LOOK_S = 0.1
"""Between two looks for an interruption while the devices are opened."""

_ANSWER_S = 60.0
"""How long workers may take to open their devices."""

_HAS_LEFT = "has left the cluster"


class Cluster:
    """The cluster of one runtime.

    Parameters
    ----------
    address : str
        The scheduler's.
    security : distributed.Security or None
        The connection's.
    lease_s : float
        How long a worker keeps the runtime's data without a renewal.
    poisons : bool
        Whether the devices fill uninitialised memory.
    version : str
        Of this package, which the workers must have.
    """

    def __init__(self, address: str, security: Any, *, lease_s: float, poisons: bool, version: str) -> None:
        self.number = uuid.uuid4().hex[:12]
        self.planner = Planner(self.call)
        self.bodies = Bodies()
        self.devices: list[DaskDevice] = []
        self.address = address
        self._security = security
        self._lease_s = lease_s
        self._poisons = poisons
        self._version = version
        self._lines: dict[str, WorkLine] = {}  # by address
        self.blocks = RemoteBlocks(self.devices)
        self._removed: set[str] = set()  # the addresses of workers that have left
        self._waiting: dict[int, Segment] = {}  # sent and not over, by number
        self._recoveries: dict[WorkLine, asyncio.Lock] = {}
        self._is_called = False
        self._is_closing = False
        self._n_open = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._opened: threading.Event = threading.Event()
        self._error: BaseException | None = None
        self._loop: Any = None
        self._opening: Any = None  # the task that opens the devices, and stays for the life of the runtime
        self._client: Any = None
        self._thread = threading.Thread(target=self._run, name="offload-cluster", daemon=True)

    # -- life ------------------------------------------------------------------------------------------
    def open(self) -> list[DaskDevice]:
        """Connect, and return the devices of the workers that are there, by their numbers.

        Raises
        ------
        DeviceUnavailableError
            There is no worker, or one has another version of Python or of this package, or the scheduler does not
            answer.
        """
        self._thread.start()
        with Shield() as shield:
            try:
                while not self._opened.wait(_LOOK_S):
                    shield.thread.check()
            except BaseException:
                self._is_closing = True
                self._loop.call_soon_threadsafe(self._opening.cancel)
                self._thread.join()
                raise
        if self._error is not None:
            self._thread.join()
            error, self._error = self._error, None
            raise error
        return self.devices

    def leave(self, device: DaskDevice) -> None:
        """Close a device; the last one ends the cluster's thread and the runtime's leases."""
        self._n_open -= 1
        if self._n_open:
            return
        self._is_closing = True
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001  # the thread that opens raises it, if it still waits
            if not self._opened.is_set():
                self._error = error
        finally:
            if not self._is_closing:
                self._lose_all("is out of reach: the connection to the scheduler has ended")
            elif any(line.live for line in self._lines.values()):
                self._lose_all("is not used any more: the runtime was closed before its tasks were complete")
            self._opened.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._opening = asyncio.current_task()
        self._loop.set_exception_handler(_note_exception)
        self._end = asyncio.Event()
        client: Any = Client(  # type: ignore[no-untyped-call]  # Dask has few types
            self.address, security=self._security, asynchronous=True, set_as_default=False, timeout=_OPENS_S
        )
        try:
            await client
        except Exception as error:
            with suppress(Exception):
                await client.close(timeout=1)
            raise DeviceUnavailableError(
                f"devices='dask': the scheduler at {self.address} cannot be reached ({type(error).__name__}: {error}); "
                "check its address, and the Security of the client"
            ) from error
        self._client = client
        try:
            client.subscribe_topic(client.id, self._note_ends)
            client.subscribe_topic("all", self._note_worker)
            try:
                await asyncio.wait_for(self._open_lines(), _ANSWER_S)
            except TimeoutError as error:
                raise DeviceUnavailableError(
                    f"devices='dask': a worker of {self.address} has not answered within {_ANSWER_S:g} s; stop it, or "
                    "wait until it is done"
                ) from error
            self._opened.set()
            renewal = asyncio.create_task(self._renew())
            watch = asyncio.create_task(self._watch_scheduler())
            await self._end.wait()
            renewal.cancel()
            watch.cancel()
            if self._tasks:  # plans that free memory
                await asyncio.wait([*self._tasks], timeout=_NOTICE_S)
            await self._close_leases([line.address for line in self._lines.values() if line.lost is None])
        finally:
            for task in [*self._tasks]:
                task.cancel()
            with suppress(Exception):
                for topic in (client.id, "all"):
                    client.unsubscribe_topic(topic)
                await client.close(timeout=2)

    async def _open_lines(self) -> None:
        """Have each worker open the devices of the runtime."""
        info = await self._client.scheduler.identity(n_workers=-1)
        workers = {address: worker["name"] for address, worker in info["workers"].items()}
        if not workers:
            raise DeviceUnavailableError(
                f"devices='dask': the cluster at {self.address} has no workers; call client.wait_for_workers(n) before"
            )
        await check_versions(self._client, workers)
        addresses = sorted(workers, key=lambda address: order_of(workers[address]))
        try:
            found = await self._open_leases(addresses)
        except BaseException:
            await self._close_leases(addresses)
            raise
        for address in addresses:
            line = WorkLine(str(workers[address]), address)
            line.incarnation, names = found[address]
            self._lines[address] = line
            for index, (name, kind, nbytes) in enumerate(names):
                self.devices.append(
                    DaskDevice(len(self.devices), self, line, index, name, kind, nbytes, poisons=self._poisons)
                )
        numbers = {
            address: [device.number for device in self.devices if device.line is self._lines[address]]
            for address in addresses
        }
        await self._client.run(
            calls.number_devices, self.number, numbers, len(self.devices), workers=addresses, on_error="ignore"
        )
        self._n_open = len(self.devices)
        for address in self._removed.intersection(addresses):  # before it had a line
            self._lose(self._lines[address], _HAS_LEFT)

    async def _open_leases(self, addresses: Sequence[str]) -> dict[str, tuple[str, list[tuple[str, str, int]]]]:
        """Have workers open their devices for this runtime."""
        said = self.number, self._client.id, self._version, self._lease_s, self._poisons
        return await open_leases(self._client, addresses, *said)

    async def _close_leases(self, addresses: list[str]) -> None:
        if addresses:
            with suppress(Exception):  # a worker that has left has nothing of the runtime any more
                await asyncio.wait_for(
                    self._client.run(calls.close_lease, self.number, workers=addresses, on_error="ignore"), 5.0
                )

    async def _renew(self) -> None:
        """Renew the leases of the workers as long as the runtime lives."""
        while True:
            await asyncio.sleep(min(60.0, self._lease_s / 5))
            addresses = [line.address for line in self._lines.values() if line.lost is None]
            with suppress(Exception):  # one that hangs must not keep the others from being asked again
                renewed = self._client.run(calls.renew_lease, self.number, workers=addresses, on_error="ignore")
                await asyncio.wait_for(renewed, self._lease_s / 5)

    # -- sending ---------------------------------------------------------------------------------------
    def call(self) -> None:
        """Have the loop look whether there is something to send; from any thread."""
        if self._is_called or self._loop is None:
            return
        self._is_called = True
        try:
            self._loop.call_soon_threadsafe(self._pump)
        except RuntimeError:  # it has ended
            self._is_called = False

    def _start(self, coroutine: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _pump(self) -> None:
        """Send the next segment of each worker that is to have one."""
        self._is_called = False
        if self._is_closing:
            return  # nothing is left but memory, which goes with the leases
        for line in [*self._lines.values()]:
            while True:
                with self.planner.lock:
                    segment = self.planner.next_segment(line)
                if segment is None:
                    break
                self._waiting[segment.number] = segment
                segment.carrier = self._start(self._carry(segment))

    def _free(self) -> None:
        """Send an empty plan to each worker that only has memory to free."""
        for line in self._lines.values():
            with self.planner.lock:
                if not line.freed or line.n_under_way or line.open is not None or line.closed or line.lost is not None:
                    continue
                self.planner.add(self.planner.new_node(line, 0))

    async def _carry(self, segment: Segment) -> None:
        """Send a segment and take its result."""
        try:
            await self._send(segment)
            await self._collect(segment)
        except asyncio.CancelledError:
            if segment.carrier is not asyncio.current_task():
                return  # it is sent again, or its worker is lost
            raise
        except Exception as error:  # noqa: BLE001  # of the cluster
            await self._check_line(segment, f"has refused a plan ({type(error).__name__}: {error})")
        self._end_carrying(segment)

    def _end_carrying(self, segment: Segment) -> None:
        """Note that a segment is not under way any more."""
        if self._waiting.pop(segment.number, None) is not None:
            segment.carrier = None
            with self.planner.lock:
                segment.line.n_under_way -= 1
                segment.is_carried = True
                if segment.is_over:
                    segment.forget()
            self._pump()

    async def _send(self, segment: Segment) -> None:
        line = segment.line
        with self.planner.lock:
            needs = [other for other in segment.needs if not other.is_gone and (other.exports or not other.is_over)]
        for other in needs:
            while (other.future is None or other.recalls) and not (other.is_gone or other.is_over):  # noqa: ASYNC110
                await asyncio.sleep(_TURN_S)  # it waits for its turn on its worker
        needs = [other for other in needs if not other.is_gone]
        while line.freed:
            segment.freed.append(line.freed.popleft())
        sending = PlanSending(segment, self.bodies)
        wire, large = sending.wired(self.number), sending.large
        arguments = []
        if large:
            arguments = await self._scatter(large, line)
        n_data = len(arguments)
        # If a worker has been lost meanwhile, its futures are gone, and this segment is sent again.
        arguments += [self._needed(other, line, segment) for other in needs if other.future is not None]
        payload = pickle.dumps((wire, n_data), protocol=5)
        segment.key = key_of(segment, self.number)
        segment.sent_s = time.perf_counter()
        segment.out_nbytes = sum(array.nbytes for node in segment.nodes for _, array in node.outs)
        segment.future = self._client.submit(
            calls.run_segment,
            payload,
            *arguments,
            key=segment.key,
            workers=[line.address],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )

    async def _scatter(self, arrays: list[Any], line: WorkLine) -> list[Any]:
        """Put host arrays into a worker's memory; return their futures."""
        named = {f"offload-data-{self.number}-{uuid.uuid4().hex[:8]}": array for array in arrays}
        try:
            found = await self._client.scatter(named, workers=[line.address], direct=True, hash=False)
        except OSError:  # the worker has gone, or the client can reach the scheduler alone
            await asyncio.sleep(_NOTICE_S)
            if line.lost is not None:
                raise
            found = await self._client.scatter(named, workers=[line.address], direct=False, hash=False)
        return [found[name] for name in named]

    def _needed(self, other: Segment, line: WorkLine, segment: Segment) -> Any:
        """Return the future of the end of an earlier segment, with the data that this one imports from there."""
        if other.line is line:
            return other.future
        imported = {
            operation[2] for node in segment.nodes for operation in node.operations if operation[0] == Op.IMPORT
        }
        exports = tuple(number for number in other.exports if number in imported)
        only_for_it = len(exports) == len(other.exports)
        if only_for_it and other.out_nbytes <= _LIGHT_NBYTES:
            return other.future
        return self._part(other, exports, for_client=False)

    def _part(self, segment: Segment, exports: tuple[int, ...], *, for_client: bool) -> Any:
        """Return the future of a part of a segment's result."""
        key = exports, for_client
        future = segment.own.get(key)
        if future is None:
            future = segment.own[key] = self._client.submit(
                part_of,
                segment.future,
                exports,
                for_client=for_client,
                key=f"{segment.key}-{'own' if for_client else 'part'}-{len(segment.own)}",
                workers=[segment.line.address],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
        return future

    # -- results ---------------------------------------------------------------------------------------
    async def _collect(self, segment: Segment) -> None:
        """Take the result of a segment when it is there, unless events have reported all ends already."""
        future = segment.future
        await future._state.wait()  # noqa: SLF001  # `wait` would raise, and take a task
        if future.status == "finished":
            segment.line.bodies |= segment.bodies
            segment.line.bodies.difference_update(segment.dropped)
            if segment.is_over:
                return
            wanted = self._part(segment, (), for_client=True) if segment.exports else future
            report = await self._gathered(wanted)
            if report is not None:
                await self._note_report(segment, report)
                return
        await self._collect_given_up(segment, future)

    async def _gathered(self, future: Any) -> SegmentReport | None:
        """Return a result; None if Dask has lost it.

        Dask takes results together. So a segment that is given up may cancel the transfer of another one's result.
        """
        task = asyncio.current_task()
        assert task is not None, "on the loop"
        while True:
            try:
                return await self._client.gather(future, direct=True)  # type: ignore[no-any-return]  # a segment's
            except asyncio.CancelledError:
                if task.cancelling():
                    raise
                if future.status != "finished":
                    return None
            except Exception:  # noqa: BLE001  # the key was lost meanwhile
                return None

    async def _collect_given_up(self, segment: Segment, future: Any) -> None:
        """Take the result of a segment that Dask has given up: data of a lost worker had been sent to an earlier one.

        If its worker has not begun it, it is sent again, and this is cancelled.
        """
        error = await self._error_of(future)
        found = await self._client.run(
            calls.take_report, self.number, segment.number, workers=[segment.line.address], on_error="ignore"
        )
        report = found.get(segment.line.address)
        if report is None:
            raise RuntimeError(error)
        await self._note_report(segment, report)

    async def _error_of(self, future: Any) -> str:
        if future.status == "error":
            with suppress(Exception):
                return f"{await future.exception()!r}"[:300]
        return str(future.status)

    async def _note_report(self, segment: Segment, report: SegmentReport) -> None:
        """Write the copies of a segment to the host, and note how its nodes have ended."""
        for node in segment.nodes:
            end = report.ends.get(node.number)
            if end is None:
                continue
            if node.end is None:
                while any(other.end is None for other in node.after):  # noqa: ASYNC110  # the same
                    await asyncio.sleep(0.0005)  # another worker's copy to the same bytes is on its way
                for at, (_, host) in enumerate(node.outs):
                    found = report.outs.get((node.number, at))
                    if found is not None:
                        copyto(host, found)
            with self.planner.lock:
                note_times(node, report.times.get(node.number))
                self.planner.resolve(node, self.blocks.received(node, end))
        self.call()

    def _note_ends(self, event: Any) -> None:
        """Take the ends of nodes that a worker has reported by an event."""
        _, message = event
        if isinstance(message, dict):
            return  # the scheduler's own, about the client
        number, ends = message
        segment = self._waiting.get(number)
        if segment is None:
            return
        nodes = {node.number: node for node in segment.nodes}
        with self.planner.lock:
            for node_number, end, times in pickle.loads(ends):  # noqa: S301  # trust is Dask's
                node = nodes[node_number]
                if node.end is None and not node.outs:
                    note_times(node, times)
                    self.planner.resolve(node, self.blocks.received(node, end))
        self._pump()

    def failure_of(self, node: PlannedNode) -> BaseException | None:
        """Return the exception of a failed node; None for a node that succeeded, or that did not run."""
        assert node.end is not None, "it has ended"
        kind, what = node.end
        if kind == Ended.FAILED:
            error: BaseException = what
            return error
        if kind == Ended.MISSING:
            return self.blocks.missing(node, what)
        if kind == Ended.LOST:
            device = next(device for device in self.devices if device.line is node.line and device.index == node.device)
            return device.lost_error(what)
        return None

    # -- lost workers ----------------------------------------------------------------------------------
    def _note_worker(self, event: Any) -> None:
        """Take an event of the scheduler about workers."""
        _, message = event
        if not isinstance(message, dict) or message.get("action") != "remove-worker":
            return
        address = message.get("worker", "")
        self._removed.add(address)
        line = self._lines.get(address)
        if line is not None:
            self._lose(line, _HAS_LEFT)

    async def _watch_scheduler(self) -> None:
        """Notice that the scheduler has gone."""
        while True:
            await asyncio.sleep(_FREES_S)
            if any(line.freed for line in self._lines.values()):
                self._free()  # finalizers have added blocks
            if self._client.status != "running":
                self._lose_all("is out of reach: the scheduler has gone")

    def _lose_all(self, why: str) -> None:
        for line in [*self._lines.values()]:
            self._lose(line, why)

    async def _check_line(self, segment: Segment, why: str) -> None:
        """Give up a worker whose segment has failed as a whole, once it is clear whether it has just left."""
        line = segment.line
        until_s = time.monotonic() + 2 * _NOTICE_S
        while time.monotonic() < until_s or any(other.is_gone for other in segment.needs):  # then it is sent again
            if line.lost is not None or segment.is_over:
                return
            await asyncio.sleep(0.01)
        self._lose(line, why)

    def _lose(self, line: WorkLine, why: str) -> None:
        """Note that a worker has gone: all that is planned there ends with the loss."""
        with self.planner.lock:
            if line.lost is not None:
                return
            line.lost = why
            line.epoch += 1
            labels = tuple(label for device in self.devices if device.line is line for label in device.labels())
            if line.open is not None:
                self.planner.close(line.open)
            line.closed.clear()
            waiting = [*self._waiting.values()]
            segments = [segment for segment in waiting if segment.line is line]
            stuck = {*segments}
            for segment in waiting:  # in the order in which they were sent: each comes after those that it needs
                if any(other.line is line or other in stuck for other in segment.needs):
                    stuck.add(segment)
            for node in [*line.live]:
                self.planner.resolve(node, (Ended.LOST, labels))
        if threading.current_thread() is not self._thread or self._client.status != "running":
            return  # the loop has ended, or the cluster has
        for segment in segments:
            carrier = segment.carrier
            self._end_carrying(segment)
            self._give_up(carrier, segment)
        for segment in stuck:
            segment.recalls += 1
        for survivor in {segment.line for segment in stuck} - {line}:
            self._start(self._send_again(survivor, [segment for segment in stuck if segment.line is survivor]))
        self._pump()

    @staticmethod
    def _give_up(carrier: asyncio.Task[Any], segment: Segment) -> None:
        """End the carrying of a segment, and let its keys go. A cancellation would take those along that need it."""
        for future in (segment.future, *segment.own.values()):
            if future is not None:
                future.release()
        segment.future, segment.own = None, {}
        if carrier is not asyncio.current_task():
            carrier.cancel()

    async def _send_again(self, line: WorkLine, segments: list[Segment]) -> None:
        """Send segments once more that wait for a lost worker; one that their worker has begun goes on."""
        numbers = [(segment.number, segment.attempt) for segment in segments]
        revoked = None
        while revoked is None:
            if line.lost is not None:
                return
            with suppress(Exception):  # the connection may be about to be found broken
                found = await self._client.run(
                    calls.revoke_segments, self.number, numbers, workers=[line.address], on_error="ignore"
                )
                revoked = found.get(line.address)
            if revoked is None:
                await asyncio.sleep(_NOTICE_S)
        for segment, number in zip(segments, numbers, strict=True):
            segment.recalls -= 1
            if number in revoked and segment.carrier is not None:
                carrier = segment.carrier
                segment.attempt += 1
                segment.carrier = self._start(self._carry(segment))
                self._give_up(carrier, segment)

    def recover(self, line: WorkLine, timeout_s: float, address: str | None) -> None:
        """Take a worker in place of one that was lost; see `DaskDevice.recover`."""
        if line.lost is None:
            return
        if any(other.address == address and other.lost is None for other in self._lines.values()):
            raise UsageError(
                f"recover: the worker at {address} has devices of this runtime already; give one that has none"
            )
        recovering = self._recover(line, timeout_s, address)
        try:
            future = asyncio.run_coroutine_threadsafe(recovering, self._loop)
        except RuntimeError:
            recovering.close()
            raise RuntimeClosedError("recover: the runtime of this device is closed; create another") from None
        future.result()

    async def _recover(self, line: WorkLine, timeout_s: float, address: str | None) -> None:
        async with self._recoveries.setdefault(line, asyncio.Lock()):
            if line.lost is not None:  # else another thread was quicker
                await self._recover_line(line, timeout_s, address)

    async def _recover_line(self, line: WorkLine, timeout_s: float, address: str | None) -> None:
        until_s = time.monotonic() + timeout_s
        found = None
        while found is None:
            info: dict[str, Any] = {"workers": {}}
            with suppress(OSError):  # the scheduler is out of reach
                info = await self._client.scheduler.identity(n_workers=-1)
            for other, worker in info["workers"].items():
                if (other == address) if address is not None else (str(worker["name"]) == line.name):
                    self._removed.discard(other)
                    with suppress(DeviceUnavailableError):
                        found = other, (await self._open_leases([other]))[other]
            if found is None:
                if time.monotonic() >= until_s:
                    wanted = f"a worker at {address}" if address is not None else f"a worker named {line.name}"
                    raise TimeoutError(f"recover: {wanted} has not come within {timeout_s:g} s")
                await asyncio.sleep(0.02)
        other, (incarnation, names) = found
        own = [device for device in self.devices if device.line is line]
        if len(names) < len(own):
            await self._close_leases([other])
            raise DeviceUnavailableError(
                f"recover: the worker at {other} has {len(names)} devices, and {line.name} had {len(own)}"
            )
        numbers = {other: [device.number for device in own]}
        try:
            await self._client.run(calls.number_devices, self.number, numbers, len(self.devices), workers=[other])
        except BaseException:
            await self._close_leases([other])
            raise
        self.blocks.retire(line)
        line.freed.clear()
        for device in own:
            device.forget()
        with self.planner.lock:
            if self._lines.get(line.address) is line:  # else another one has taken the worker that came there
                del self._lines[line.address]
            line.address, line.incarnation = other, incarnation
            self._lines[other] = line
            line.bodies.clear()
            line.lost = None  # from here on it is used
        if other in self._removed:
            self._lose(line, _HAS_LEFT)


def _note_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an exception that nobody has retrieved, except those by which Dask ends a gather."""
    if type(context.get("exception")).__name__ != "AllExit":
        loop.default_exception_handler(context)
