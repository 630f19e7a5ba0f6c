"""Requests of MPI as sources of events."""

from __future__ import annotations

from concurrent.futures import CancelledError
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from mpi4py import MPI

from offload.events.progress import progress
from offload.events.transport import check_mpi, transport_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.events.open_request import Attentive


class Told(Protocol):
    """The receiver of the result of requests: a promise, or a substitute for one."""

    value: Any

    def passed(self, error: BaseException | None) -> None: ...


class Requests:
    """One request or several, which fulfil an event together.

    ``engine`` is that of the event's task. Errors call the operation ``str(name)``. ``brings`` tells whether the
    requests have a result besides their buffers; None: messages do. Raise `UsageError` as `check_mpi` does.
    """

    __slots__ = (
        "_error", "_is_several", "_n_left", "_name", "_promise", "_since_s", "_values", "brings", "engine", "requests",
    )  # fmt: skip

    def __init__(
        self, source: Any, engine: Attentive | None = None, name: object = "", *, brings: bool | None = None
    ) -> None:
        check_mpi("fulfill_on(…)")
        self._is_several = isinstance(source, (list, tuple))
        self.requests: Sequence[MPI.Request] = tuple(source) if self._is_several else (source,)
        self.engine = engine
        self.brings = brings
        self._name = name or ("requests of MPI" if self._is_several else "a request of MPI")
        self._values: list[Any] = [None] * len(self.requests)
        self._n_left = len(self.requests)
        self._error: BaseException | None = None
        self._promise: Told | None = None
        self._since_s = 0.0

    def __str__(self) -> str:
        since = f", open for {perf_counter() - self._since_s:.3g} s" if self._promise is not None else ""
        return f"{self._name}{since} ({progress.n_open:,} open in this process)"

    def subscribe(self, promise: Told) -> None:
        """Have the promise kept when all requests are complete.

        Raise `EventError` if one is open for another event, or is named twice.
        """
        self._since_s = perf_counter()
        self._promise = promise
        if self.requests:
            progress.add(self)
        else:
            self.tell()

    def note(self, at: int, value: Any, status: MPI.Status, error: BaseException | None = None) -> bool:
        """Note that a request is complete, one thread at a time; return whether the last one is."""
        if error is None and status.Is_cancelled():
            error = CancelledError(f"{self._called(at)} was cancelled")
        if isinstance(error, MPI.Exception):
            error = transport_error(error, self._called(at))
        if error is None:
            self._values[at] = value
        elif self._error is None:
            self._error = error
        else:
            self._error.add_note(f"and: {error}")
        self._n_left -= 1
        return self._n_left == 0

    def tell(self, error: BaseException | None = None) -> None:
        """Keep the promise, or with an error break it."""
        promise, self._promise = self._promise, None
        values, self._values = self._values, []
        error, self._error = error or self._error, None
        self.requests = ()
        if promise is not None:
            promise.value = values if self._is_several else values[0]
            promise.passed(error)

    def _called(self, at: int) -> str:
        return f"{at + 1} of {len(self._values)} {self._name}" if self._is_several else str(self._name)
