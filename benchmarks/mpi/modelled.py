"""A modelled network and a modelled device: what an exchange and a library call take where there is neither.

Theory of operation
-------------------
Between ranks of one machine an exchange is a copy by the cores that compute, so that there is nothing to hide it
behind. Both models add time to work that is done all the same, so that what is timed gives results to be checked.

A `Link` is busy ``bytes / rate`` for each exchange, one after the other in the order in which they are issued. What
overlaps with it gets a generalised request, which is complete when the link and the exchange are through: a thread of
the link sleeps until the one and asks for the other. Whoever has nothing to overlap waits as long (`Link.busy`).

An `Engine` is what a device has one of: a call holds it for a given time, on the thread of its stream, and others wait.

Neither takes a core while it waits.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Exchange = tuple[float, Sequence[MPI.Request], MPI.Grequest, list[BaseException]]

_NAP_S = 50e-6
"""Between two looks at an exchange that takes longer than the link."""


class Link:
    """A link that is busy ``bytes / rate`` for each exchange, one after the other; a context manager.

    Parameters
    ----------
    bytes_per_s : float
        Its rate. May be changed between exchanges.
    """

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free_s = 0.0
        self._started: SimpleQueue[Exchange | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="offload-modelled-link", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.put(None)
        self._thread.join()

    def start(self, begin: Callable[[], Any], nbytes: int) -> MPI.Grequest:
        """Begin an exchange; return the request that is complete when it and the link are through.

        Parameters
        ----------
        begin : callable
            Begins the exchange and returns its request, or a sequence of them.
        nbytes : int
            What goes over the link.
        """
        with self._lock:  # exchanges are queued in the order in which the link takes them
            end_s = self._reserve(nbytes)
            begun = begin()
            requests = [begun] if isinstance(begun, MPI.Request) else begun
            failures: list[BaseException] = []
            request = MPI.Grequest.Start(lambda _: _raise_first(failures))
            self._started.put((end_s, requests, request, failures))
        return request

    @contextmanager
    def busy(self, nbytes: int) -> Iterator[None]:
        """Exchange in the block; wait at its end until the link is through, too."""
        with self._lock:
            end_s = self._reserve(nbytes)
        yield
        sleep_until(end_s)

    def _reserve(self, nbytes: int) -> float:
        self._free_s = max(self._free_s, time.perf_counter()) + nbytes / self.bytes_per_s
        return self._free_s

    def _serve(self) -> None:
        while (exchange := self._started.get()) is not None:
            end_s, requests, request, failures = exchange
            sleep_until(end_s)
            try:
                while not MPI.Request.Testall(requests):
                    time.sleep(_NAP_S)
            except BaseException as error:  # noqa: BLE001  # told by whoever asks for the request
                failures.append(error)
            request.Complete()
            del exchange, requests, request


class OverLink(MPI.Intracomm):
    """A communicator whose exchanges go over a link: those that the transform over ranks makes."""

    link: Link

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> MPI.Request:  # MPI's name
        """Begin an exchange; complete with it and the link."""
        return self.link.start(lambda: super(OverLink, self).Ialltoallv(sendbuf, recvbuf), _nbytes(sendbuf))

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:  # MPI's name
        """Exchange, and wait for the link."""
        with self.link.busy(_nbytes(sendbuf)):
            super().Alltoallv(sendbuf, recvbuf)


def over_link(comm: MPI.Intracomm, link: Link) -> OverLink:
    """Return a communicator, the same one, that goes over a link."""
    over = OverLink(comm)
    over.link = link
    return over


class Engine:
    """The one engine of a modelled device: calls hold it one after the other.

    Attributes
    ----------
    call_s : float
        How long a call holds it, at least.
    """

    def __init__(self, call_s: float) -> None:
        self.call_s = call_s
        self._lock = threading.Lock()

    def run(self, work: Callable[..., object], *args: Any) -> None:
        """Hold the engine, and meanwhile do the work."""
        with self._lock:
            end_s = time.perf_counter() + self.call_s
            work(*args)
            sleep_until(end_s)


def sleep_until(end_s: float) -> None:
    """Sleep until ``time.perf_counter()`` says ``end_s``."""
    left_s = end_s - time.perf_counter()
    if left_s > 0:
        time.sleep(left_s)


def _nbytes(buffer: Any) -> int:
    """Return the bytes of ``[array, (counts, displacements)]``."""
    array, (counts, _) = buffer
    return int(sum(counts)) * int(array.itemsize)


def _raise_first(failures: Sequence[BaseException]) -> None:
    if failures:
        raise failures[0]
