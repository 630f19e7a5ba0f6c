"""One open request of MPI: its tests, and its result.

MPI 4.1, 3.7.3 "Communication Completion", 3.8.4 "Cancel".
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from mpi4py import MPI

from offload.errors import TransportError
from offload.events.transport import is_pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Attentive(Protocol):
    """The engine of a runtime, whose waiting threads poll."""

    def attend_to(self, look: Callable[[], object]) -> None:
        """Have threads that wait call ``look`` from now on."""

    def forgo(self, look: Callable[[], object]) -> None:
        """Have them call it no more."""


class Awaited(Protocol):
    """Requests that are looked after together; `offload.events.requests.Requests` has the documentation."""

    requests: Sequence[Any]
    engine: Attentive | None
    brings: bool | None

    def note(self, at: int, value: Any, status: MPI.Status, error: BaseException | None = None) -> bool: ...

    def tell(self, error: BaseException | None = None) -> None: ...


class OpenRequest:
    """An open request: the ``at``-th of those that fulfil an event."""

    __slots__ = ("at", "has_status", "n_bytes", "of", "pickled", "request")

    def __init__(self, of: Awaited, at: int, request: Any) -> None:
        self.of = of
        self.at = at
        self.request = request
        brings = of.brings
        # whether it is a message, so that its status is meaningful
        self.has_status = not is_collective(request) if brings is None else brings
        # mpi4py's holder of a pickled object, which it forgets if another request fails; set by `measure`
        self.pickled: Any = None
        self.n_bytes = 0  # of its buffers; set by `measure`

    def measure(self) -> None:
        """Find out `n_bytes` and `pickled`, while it is open: mpi4py keeps the buffers as long."""
        kept = gc.get_referents(self.request)
        self.n_bytes = _n_bytes(kept)
        self.pickled = next((one for one in kept if type(one).__name__ == "_p_req_buf"), None)

    def test(self) -> bool | None:
        """Test this request alone; return None if it is open, else the result of `Requests.note`."""
        status = MPI.Status()
        try:
            is_complete, value = self.request.test(status)
        except BaseException as error:  # noqa: BLE001  # of MPI, or of the class of an object that has come
            if isinstance(error, MPI.Exception) and is_pending(error):
                self._withdraw()
            return self.of.note(self.at, None, status, error)
        return self.note(value, status) if is_complete else None

    def _withdraw(self) -> None:
        """End a receive from any rank that MPI leaves open where a rank has failed: nobody may write to its buffer."""
        with suppress(MPI.Exception):
            self.request.Cancel()
            if not isinstance(self.request, MPI.Prequest):
                self.request.Free()

    def note(self, value: Any, status: MPI.Status) -> bool:
        """Note its result; return the result of `Requests.note`."""
        if value is None and self.has_status and status.Get_source() != MPI.ANY_SOURCE:  # MPICH's of a send
            value = status
        return self.of.note(self.at, value, status)

    def note_failed(self, status: MPI.Status) -> bool:
        """Note that it is complete by a poll that has raised."""
        code = status.Get_error()
        if code != MPI.SUCCESS:
            return self.of.note(self.at, None, status, MPI.Exception(code))
        value = None
        if self.pickled is not None and not status.Is_cancelled():
            (buffer,) = gc.get_referents(self.pickled)
            try:
                value = MPI.pickle.loads(memoryview(buffer)[: status.Get_count()])
            except BaseException as error:  # noqa: BLE001  # of the object's class
                return self.of.note(self.at, None, status, error)
        return self.note(value, status)

    def note_lost(self) -> bool:
        """Note that it is complete, and that nobody knows how."""
        lost = TransportError(f"{self.of}: it is complete, but MPI does not report whether it failed")
        return self.of.note(self.at, None, MPI.Status(), lost)


def is_collective(request: MPI.Request) -> bool:
    """Tell whether a request belongs to a collective operation, by the objects that mpi4py keeps with it."""
    return all(one is None or type(one).__name__.startswith("_p_msg_cc") for one in gc.get_referents(request))


def _n_bytes(kept: Iterable[Any]) -> int:
    """Return how many bytes the buffers have that mpi4py keeps, with a request or as one."""
    n_bytes = 0
    for one in kept:
        if isinstance(one, (MPI.buffer, bytes)):
            n_bytes += len(one)
        elif isinstance(one, (tuple, MPI.Request)) or type(one).__name__.startswith("_p_"):
            n_bytes += _n_bytes(gc.get_referents(one))
    return n_bytes
