"""Operations of MPI: the method called, the ranks that take part, and the order with other calls."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from offload.arrays.foreign import check_numbers
from offload.arrays.items import as_host
from offload.errors import UsageError
from offload.events.open_request import is_collective
from offload.events.progress import progress
from offload.events.transport import check_mpi
from offload.mpi.methods import METHODS
from offload.mpi.order import Turns
from offload.mpi.staging import BufferCopies

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from offload.events.gate import Gate
    from offload.mpi.order import Turn
    from offload.mpi.staging import BufferStaging

_COLLECTIVE = "collective operations"  # What they are in order with, on one communicator


class Operation:
    """A method to call that returns a request, or a list of requests."""

    __slots__ = ("_has_views", "args", "comm", "known", "kwargs", "method", "name", "named", "staging")

    matches_later = False  # Whether others that are in order with it have to wait until it has found its message

    way_out = "continue with a new communicator"  # What to do where one before it was left out

    def __init__(self, method: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.name: str = getattr(method, "__name__", "") or repr(method)  # for messages
        owner = getattr(method, "__self__", None)
        # the communicator of the method, if it is one's
        self.comm: MPI.Comm | None = owner if isinstance(owner, MPI.Comm) else None
        # its row in the table of methods; None if it has none
        self.known = known = METHODS.get(self.name) if self.comm is not None else None
        # the arguments by parameter, if the method is known
        self.named = known.named(args, kwargs) if known is not None else {}
        self._has_views = False  # whether ``named`` has NumPy arrays in the place of other libraries'
        for parameter, _ in known.buffers if known is not None else ():
            if parameter != "obj" and parameter in self.named:  # an object is pickled
                self._view(parameter, self.named[parameter])
        self.staging: BufferStaging | None = None  # for arrays that the method does not take unchanged

    def _view(self, parameter: str, buffer: Any) -> None:
        """Put a NumPy array in the place of another library's array in host memory, which mpi4py may not know."""
        is_list = isinstance(buffer, (list, tuple)) and bool(buffer)
        item = buffer[0] if is_list else buffer
        if item.__class__ is np.ndarray or item is MPI.IN_PLACE or item is MPI.BOTTOM:  # which expose memory, too
            return
        host = as_host(item)
        if self.known is not None and "op" in self.known.all_names:
            check_numbers(item, host, f"MPI {self.name}")
        if host is not item:
            self.named[parameter] = _with_array(buffer, host)
            self._has_views = True

    def __str__(self) -> str:
        """Return it as errors and stories name it: ``Irecv from 1, tag 7, on MPI_COMM_WORLD``."""
        named, known, words = self.named, self.known, []
        if "dest" in named:
            words += [f"to {named['dest']}", f"tag {_send_tag(named)}"]
        if known is not None and known.receives:
            source, tag = _envelope(named)
            words.append("from any rank" if source == MPI.ANY_SOURCE else f"from {source}")
            words.append("any tag" if tag == MPI.ANY_TAG else f"tag {tag}")
        with suppress(MPI.Exception):  # it has been freed
            if self.comm is not None and not MPI.Is_finalized() and self.comm.name:
                words.append(f"on {self.comm.name}")
        return f"{self.name} {', '.join(words)}".rstrip()

    def check(self) -> None:
        """Raise `UsageError` if it cannot be called: `check_mpi` refuses, or the communicator is null."""
        directive = f"MPI {self.name}"
        check_mpi(directive)
        if self.comm is not None and self.comm == MPI.COMM_NULL:
            raise UsageError(f"{directive}: the communicator is null, or has been freed; pass one that is valid")

    def call(self, matched: Callable[[], None], arrays: Mapping[str, Any]) -> Any:
        """Return the request; where it ``matches_later``, ``matched`` is called when it has.

        ``arrays`` are given in place of those in buffers, by their parameters.
        """
        if not (arrays or self._has_views):
            return self.method(*self.args, **self.kwargs)
        return self.method(**{**self.named, **{p: _with_array(self.named[p], array) for p, array in arrays.items()}})

    def enter(self, turn: Turn) -> Turns | None:
        """Take the turn of a call; return the order that it is in, None where it is in none."""
        if self.comm is None:
            return None
        order, named, known = order_of(self.comm), self.named, self.known
        keys: list[Hashable] = [(named["dest"], _send_tag(named))] if "dest" in named else []
        if known is not None and known.receives:
            envelope = _envelope(named)
            is_wildcard = envelope[0] == MPI.ANY_SOURCE or envelope[1] == MPI.ANY_TAG
            order.enter(turn, keys, receives=envelope, is_wildcard=is_wildcard)
        else:
            order.enter(turn, keys or [_COLLECTIVE])
        return order

    def transfer(self, gate: Gate) -> BufferCopies | None:
        """Return the copies before and after a call of it, or None."""
        return BufferCopies(self.staging, gate) if self.staging is not None else None

    @property
    def brings(self) -> bool | None:
        """Whether it has a result other than its buffers; None if that is not known."""
        return self.known.receives if self.known is not None else None


def _with_array(buffer: Any, array: Any) -> Any:
    """Return a buffer specification with another array."""
    return [array, *buffer[1:]] if isinstance(buffer, (list, tuple)) else array


def _send_tag(named: Mapping[str, Any]) -> int:
    tag: int = named.get("sendtag", named.get("tag", 0))
    return tag


def _envelope(named: Mapping[str, Any]) -> tuple[int, int]:
    """Return the source and the tag of a receive."""
    return named.get("source", MPI.ANY_SOURCE), named.get("recvtag", named.get("tag", MPI.ANY_TAG))


class Start(Operation):
    """The start of persistent requests, one or several."""

    __slots__ = ()

    way_out = "continue with request.Start() and Event.fulfill_on(request), because all starts are in one order"

    def __init__(self, requests: MPI.Prequest | Sequence[MPI.Prequest]) -> None:
        super().__init__(_start, (requests,), {})
        self.name = "Start"

    def __str__(self) -> str:
        (requests,) = self.args
        return "Start" if isinstance(requests, MPI.Prequest) else f"Startall of {len(requests)} requests"

    def enter(self, turn: Turn) -> Turns | None:
        (requests,) = self.args
        several = [requests] if isinstance(requests, MPI.Prequest) else requests
        if not any(map(is_collective, several)):
            return None
        _starts.enter(turn, [_COLLECTIVE])
        return _starts


_starts = Turns()


def _start(requests: MPI.Prequest | Sequence[MPI.Prequest]) -> Any:
    """Start persistent requests, none of which is open; libraries find that out by halves, or not at all."""
    several = [requests] if isinstance(requests, MPI.Prequest) else list(requests)
    for one in several:
        progress.check_free(one, "Start")
    MPI.Prequest.Startall(several)
    return requests


class ObjectReceive(Operation):
    """The receive of a pickled object, whose size is known when it has come."""

    # It is looked for by matched probes, as ``comm.irecv`` would have a buffer of 32 KiB for it. So what is in order
    # with it has to wait until it has found its message.

    __slots__ = ()

    matches_later = True

    def __init__(self, comm: MPI.Comm, source: int, tag: int) -> None:
        super().__init__(comm.irecv, (None, source, tag), {})

    def call(self, matched: Callable[[], None], arrays: Mapping[str, Any]) -> Any:
        assert self.comm is not None
        return Arrival(self.comm, *_envelope(self.named), matched)


class Arrival:
    """A probe as a request: it receives the message that it finds."""

    __slots__ = ("_comm", "_matched", "_request", "_source", "_tag")

    def __init__(self, comm: MPI.Comm, source: int, tag: int, matched: Callable[[], None]) -> None:
        self._comm = comm
        self._source = source
        self._tag = tag
        self._matched = matched  # called when the message has been found
        self._request: MPI.Request | None = None  # of the receive, from then on

    def test(self, status: MPI.Status) -> tuple[bool, Any]:
        if self._request is None:
            message = self._comm.improbe(self._source, self._tag)
            if message is None:
                return False, None
            self._request = message.irecv()
            progress.after.append(self._matched)
        found: tuple[bool, Any] = self._request.test(status)
        return found


_making_orders = threading.Lock()
_key = MPI.KEYVAL_INVALID


def order_of(comm: MPI.Comm) -> Turns:
    """Return the order of the calls on a communicator; a duplicate has one of its own."""
    global _key  # noqa: PLW0603  # made with the first
    order: Any = comm.Get_attr(_key) if _key != MPI.KEYVAL_INVALID else None
    if order is None:
        with _making_orders:
            if _key == MPI.KEYVAL_INVALID:
                _key = MPI.Comm.Create_keyval()
            order = comm.Get_attr(_key)
            if order is None:
                order = Turns()
                comm.Set_attr(_key, order)
    return order  # type: ignore[no-any-return]  # it was set here
