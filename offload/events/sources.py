"""The sources of an event: streams of the devices of a runtime, futures, and requests (`offload.events.requests`).

A source is subscribed to once, with a *promise* (`offload.events.promises`). It keeps the promise by one call of
``passed``, from any thread, or at once if it is complete. A promise that is no longer needed ignores the call, so there
is no unsubscribing. Recognising a source imports no module: an object can be an instance of a class only if its module
is loaded. Events know no tasks; `Task.as_future` makes a source of a task.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from offload.errors import DeviceLostError, EventError

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.events.gate import Gate
    from offload.events.promises import Promise, Source

# How long a Dask client may take to say why a future failed. It knows already; only one that is closing does not.
_ANSWER_S = 5.0


class Streams(Protocol):
    """A runtime, as far as it knows streams; `offload.runtime.runtime.Runtime` has the documentation."""

    @property
    def gate(self) -> Gate: ...

    def lane_of(self, stream: Any) -> Any: ...


_current: list[Callable[[], Streams]] = []


def look_in(current: Callable[[], Streams]) -> None:
    """From now on, look up the streams of events that belong to no task in the runtime of ``current``."""
    _current[:] = [current]


def find_source(task: Any, source: Any) -> Source:
    """Return an object's source; look for a stream in the task's runtime, else in the current one.

    Raise `EventError` if the object is no future, no request of MPI, and no stream of a device of that runtime, or if
    its stream captures a CUDA graph; `UsageError` if MPI cannot be called here (`offload.events.requests.check_mpi`).
    """
    if _is_a(source, "concurrent.futures", "Future"):
        return ConcurrentFuture(source)
    is_asyncio = getattr(sys.modules.get("asyncio"), "isfuture", None)
    if is_asyncio is not None and is_asyncio(source):
        return AsyncioFuture(source)
    if _is_a(source, "distributed.client", "Future"):
        return DistributedFuture(source)
    if _are_requests(source):
        from offload.events.requests import Requests  # imports mpi4py, as the caller has

        return Requests(source, None if task is None else task.construct.runtime.engine)
    _refuse(source)
    _check_protocol(source)
    runtime: Streams = _current[0]() if task is None else task.construct.runtime
    try:
        return StreamSource(runtime.gate, runtime.lane_of(source))
    except EventError as no_stream:
        raise EventError(
            f"{no_stream}; or a future of concurrent.futures, asyncio or distributed, or an MPI request"
        ) from None


class StreamSource:
    """Everything enqueued on a stream so far."""

    __slots__ = ("_gate", "_lane")

    def __init__(self, gate: Gate, lane: Any) -> None:
        self._gate = gate
        self._lane = lane

    def subscribe(self, promise: Promise) -> None:
        lane = self._lane
        with lane.lock:  # its items come to the gate in the order of their marks
            promise.point = point = put_on(lane, "fulfill_on", lane.mark)
            self._gate.add(point, promise, watched=True)

    def __str__(self) -> str:
        return f"stream {self._lane.number} of {self._lane.device.name}"


class ConcurrentFuture:
    """A `concurrent.futures.Future`, which calls back on the thread that completes it."""

    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = future

    def subscribe(self, promise: Promise) -> None:
        self._future.add_done_callback(lambda future: promise.passed(_failure(future)))

    def __str__(self) -> str:
        return f"concurrent.futures {self._future!r:.160}"


class AsyncioFuture:
    """An `asyncio.Future` or `asyncio.Task`, whose callbacks only the thread of its loop may add."""

    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = future

    def subscribe(self, promise: Promise) -> None:
        def tell(future: Any) -> None:
            promise.passed(_failure(future))

        def subscribe() -> None:
            # Done meanwhile, it would call back a turn of the loop later, which a loop about to stop does not take.
            if self._future.done():
                tell(self._future)
            else:
                self._future.add_done_callback(tell)

        if self._future.done():  # its loop may stand still, or be closed
            tell(self._future)
            return
        try:
            self._future.get_loop().call_soon_threadsafe(subscribe)  # also from its own thread: it is no later
        except RuntimeError as closed:
            raise EventError(
                f"fulfill_on(…): {self} never completes; pass the future before its loop is closed, and complete it"
            ) from closed

    def __str__(self) -> str:
        closed = " of a closed event loop" if self._future.get_loop().is_closed() else ""
        return f"asyncio {self._future!r:.160}{closed}"


class DistributedFuture:
    """A `distributed.Future`, which calls back on a thread of its own."""

    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = future

    def subscribe(self, promise: Promise) -> None:
        future, client = self._future, self._future.client
        if future.status in ("cancelled", "lost"):  # its client may be closed, which then calls nobody
            promise.passed(_cancelled(future))
            return
        if client is None or client.status == "closed":  # no client: it came from a process that has one
            raise EventError(
                f"fulfill_on(…): {self} has no open client, so it never completes; use a future whose client is open"
            )
        future.add_done_callback(lambda future: promise.passed(self._failure(future)))

    def _failure(self, future: Any) -> BaseException | None:
        try:
            # Only of a failure: the client is asked, which may be closed.
            error = future.exception(timeout=_ANSWER_S, asynchronous=False) if future.status == "error" else None
        except BaseException as failure:  # noqa: BLE001  # it failed, whatever keeps its client from saying how
            return failure
        return _cancelled(future) if error is None and future.status != "finished" else error

    def __str__(self) -> str:
        return f"distributed {self._future!r:.160}"


def put_on(lane: Any, what: str, put: Callable[..., Any], *args: Any) -> Any:
    """Call ``put``, which puts an event, or a wait for one, on a stream of the user's; return its result.

    Raise `DeviceLostError` if work on the device has failed; else `EventError`, because the stream is not the device's:
    a handle does not say whose it is.
    """
    try:
        return put(*args)
    except DeviceLostError as error:
        device = lane.device
        device.check(device.new_stream())
        raise EventError(
            f"{what}(…): cannot record an event on stream {lane.number} of {device.name} ({error}); it may be a stream "
            "of another device; use a stream of this runtime's devices"
        ) from error


def _check_protocol(source: Any) -> None:
    """Raise `EventError` for an object whose ``__cuda_stream__`` does not give (0, handle)."""
    protocol = getattr(source, "__cuda_stream__", None)
    if protocol is None:
        return
    found = protocol() if callable(protocol) else None
    if not (isinstance(found, tuple) and len(found) == 2 and all(isinstance(part, int) for part in found)):
        raise EventError(
            f"fulfill_on(…): __cuda_stream__ of {type(source).__name__} gives {found!r:.60}; "
            "the protocol asks for a method that returns (version, handle), two ints"
        )
    if found[0] != 0:
        raise EventError(
            f"fulfill_on(…): {type(source).__name__} has version {found[0]} of the __cuda_stream__ protocol; "
            "only version 0 is known"
        )


def _is_a(source: object, module: str, name: str) -> bool:
    """Tell whether an object is an instance of a class of a module that need not be loaded."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(source, kind)


def _refuse(source: Any) -> None:
    """Raise `EventError` for an object that people take for a source."""
    if isinstance(source, (list, tuple, set, frozenset)):
        odd = [one for one in source if not _is_request(one)]
        if 0 < len(odd) < len(source):
            why = f"{odd[0]!r:.60} is not an MPI request, but other items are; use a task with an event for each"
        else:
            why = (
                "an event has one source, or a list of MPI requests; use asyncio.gather(…), or a task with an event "
                "for each"
            )
    elif hasattr(source, "as_future"):
        why = "a task is not a source; use its future, task.as_future(), or a dependence on the task"
    elif hasattr(source, "__await__"):
        why = "it is awaitable but not a future, so nothing runs it; use asyncio.ensure_future(…) or create_task(…)"
    else:
        return
    raise EventError(f"fulfill_on(…): {source!r:.60}: {why}")


def _are_requests(source: object) -> bool:
    """Tell whether an object is a request of mpi4py, or a list or tuple of such."""
    kind = getattr(sys.modules.get("mpi4py.MPI"), "Request", None)
    if kind is None:
        return False
    return isinstance(source, kind) or (
        isinstance(source, (list, tuple)) and all(isinstance(one, kind) for one in source)
    )


def _is_request(source: object) -> bool:
    return _is_a(source, "mpi4py.MPI", "Request")


def _failure(future: Any) -> BaseException | None:
    """Return the error of a finished future of the standard library, or None."""
    try:
        error: BaseException | None = future.exception()
    except BaseException as reason:  # noqa: BLE001  # two classes, one of which is no Exception, and asyncio's need not be loaded
        return _cancelled(future, reason) if future.cancelled() else reason
    return error


def _cancelled(future: Any, reason: BaseException | None = None) -> BaseException:
    """Return the error of a task whose source was cancelled, an `Exception`, which `asyncio.CancelledError` is not."""
    from concurrent.futures import CancelledError  # loaded already with whatever future this is

    error = CancelledError(f"{future!r:.160}, which should fulfil an event, was cancelled and will have no result")
    # Without its traceback, whose frame here refers to the error.
    error.__cause__ = None if reason is None else reason.with_traceback(None)
    return error
