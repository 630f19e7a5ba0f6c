"""The progress of requests of MPI: one thread of the process, which tests the open ones.

Open requests stand in one list, and one ``Testsome`` asks for all. The thread that looks holds the lock of the list,
and reports completed requests outside of it. New requests wait in a queue, so naming one never blocks. Waiting threads
look too. See docs/design/theory.md, "Requests of MPI".

MPI 4.1, 3.7.3 "Communication Completion", 3.7.5 "Multiple Completions", 11.6 "MPI and Threads".
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import Counter, deque
from functools import partial
from math import inf
from time import perf_counter, sleep, thread_time
from typing import TYPE_CHECKING

from mpi4py import MPI

from offload.errors import CleanupWarning, EventError, TransportError, UsageError
from offload.events.open_request import OpenRequest
from offload.events.pace import Pace
from offload.events.wakeup import LockWakeup, SemaphoreWakeup
from offload.interrupts.forks import in_forked_child
from offload.interrupts.shields import Shield

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.events.open_request import Attentive, Awaited
    from offload.events.wakeup import Wakeup

# Whether ``mpiexec --with-ft ulfm`` of Open MPI has started this process.
_OUTLIVES_RANKS = os.environ.get("OMPI_MCA_mpi_ft_enable", "0") not in {"0", "false"}  # noqa: SIM112  # Open MPI's

# Not persistent requests, nor what is no request of MPI's but tested as one.
_TESTED_TOGETHER = set() if _OUTLIVES_RANKS else {MPI.Request, MPI.Grequest}

_NAP_AT_THE_END_S = 2e-4

# How long a thread that looks waits for the one that polls while data moves: it would take the core from it.
_TURN_S = 1e-3

_GRAIN_S = 1e-7  # Shorter than the poll of any library: what seems to take less is the clock of the thread

_MANY = 32  # Requests that are asked for to know what it takes


class Progress:
    """The open requests of the process, and the thread that looks for their completion."""

    def __init__(self) -> None:
        self._new: deque[OpenRequest] = deque()
        self._single: list[OpenRequest] = []  # the persistent ones, and those that are requests of our own
        self._open: list[OpenRequest] = []
        self._requests: list[MPI.Request] = []  # of those, for `Testsome`
        self._known: dict[int, OpenRequest] = {}  # by the identity of the request
        self.after: deque[Callable[[], None]] = deque()  # what requests want to be called outside of a poll
        self._attentive: Counter[Attentive] = Counter()
        self._polling = threading.Lock()  # the lists of what is open, and the pace
        self._lock = threading.Lock()  # the rest
        self._wakeup: Wakeup = SemaphoreWakeup() if sys.platform == "linux" else LockWakeup()
        self._thread: threading.Thread | None = None
        self._pace = Pace()
        self._took_s = 0.0  # what MPI had of the last poll, without what others had the GIL or the core for
        self._is_over = False

    @property
    def n_open(self) -> int:
        return len(self._known)

    def check_free(self, request: MPI.Request, what: str) -> None:
        """Raise `EventError` if a request is open for an event; ``what`` begins the message."""
        if id(request) in self._known:
            raise _not_free(request, what)

    def add(self, of: Awaited) -> None:
        """Watch the requests of an event; tell it at once if all are complete.

        Raise as `Requests.subscribe` does, and if the process ends.
        """
        opened = [OpenRequest(of, at, request) for at, request in enumerate(of.requests)]
        with self._lock:
            if self._is_over:
                raise UsageError(
                    "fulfill_on(…): the process ends, so MPI requests are no longer watched; wait for them earlier"
                )
            if self._thread is None:
                self._begin()
            self._claim(opened)
        is_complete = False
        left: list[OpenRequest] = []
        for one in opened:  # null and inactive requests never come out of `Testsome`, and many a request is complete
            is_last = one.test()
            if is_last is None:
                left.append(one)
            else:
                self._forget(one)
                is_complete = is_last
        if not left:
            of.engine = None  # nobody need look
        elif of.engine is not None:
            self._attend(of.engine)
        if is_complete or self.after:
            self._tell([of] if is_complete else [])
        if left:
            self._new.extend(left)
            self._wakeup.post()
            if self._thread is None:
                self._look_until(of)

    def _look_until(self, of: Awaited) -> None:
        """Block until requests are complete, as there is no thread to look for them at the end of the interpreter."""
        while not self._is_over and any(one.of is of for one in self._known.copy().values()):
            self.look()
            sleep(_NAP_AT_THE_END_S)

    def look(self) -> None:
        """Poll, unless another thread does so; while data moves, wait for that."""
        if self._polling.acquire(timeout=_TURN_S if self._pace.is_moving else 0):
            try:
                over = self._poll(self._pace.n_polls) if not self._is_over else []
            finally:
                self._polling.release()
            self._tell(over)

    def end(self) -> None:
        """Join the thread, and tell events that are still open that nobody looks after them any more."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            thread = self._thread
        self._wakeup.post()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._polling:  # a thread that waits may be looking, and MPI must not be called any more
            forgotten = dict.fromkeys(one.of for one in self._known.values())
            self._known.clear()
            self._new.clear()
            self._single, self._open, self._requests = [], [], []
        with Shield():
            self._tell(forgotten, lambda of: TransportError(f"{of}: MPI was finalised before it completed"))
        if forgotten:
            warnings.warn(
                f"{len(forgotten):,} events wait for requests of MPI that are incomplete at its end; before MPI ends, "
                "wait for their tasks or cancel the requests",
                CleanupWarning,
                stacklevel=1,
            )

    # -- books ---------------------------------------------------------------------------------------
    def _claim(self, opened: Iterable[OpenRequest]) -> None:
        """Take requests that are nobody's; under the lock."""
        claimed: list[OpenRequest] = []
        for one in opened:
            if not one.request:  # null
                continue
            if self._known.setdefault(id(one.request), one) is not one:
                for other in claimed:
                    del self._known[id(other.request)]
                raise _not_free(one.request, "fulfill_on(…)")
            claimed.append(one)

    def _forget(self, one: OpenRequest) -> None:
        if self._known.get(id(one.request)) is one:  # not that of another event, to which a null request belonged
            del self._known[id(one.request)]

    def _attend(self, engine: Attentive) -> None:
        """Have threads look that wait for tasks of an engine, as long as it has open requests."""
        with self._lock:
            self._attentive[engine] += 1
            if self._attentive[engine] == 1:
                engine.attend_to(self.look)

    def _forgo(self, engine: Attentive) -> None:
        with self._lock:
            self._attentive[engine] -= 1
            if not self._attentive[engine]:
                del self._attentive[engine]
                engine.forgo(self.look)

    def _begin(self) -> None:
        """Start the thread; it ends before MPI does."""
        self._pace = Pace(*(_idle_poll or _idle_poll_s()), _GRAIN_S)
        work = partial(self._work, spins=_spins())
        thread = threading.Thread(target=Shield.around(work), name="offload-requests", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if threading.main_thread().is_alive():  # else the interpreter ends: since Python 3.12 no thread begins then
                raise
        else:
            self._thread = thread  # not before: there may be no more threads to be had
        at_end = MPI.Comm.Create_keyval(delete_fn=lambda *_: self.end())
        MPI.COMM_SELF.Set_attr(at_end, None)  # MPI_Finalize deletes it before all else (MPI 4.1, 11.2.4)

    def _tell(self, over: Iterable[Awaited], error_of: Callable[[Awaited], BaseException] | None = None) -> None:
        while self.after:
            try:
                after = self.after.popleft()
            except IndexError:  # another thread was quicker
                break
            after()
        for of in over:
            engine, of.engine = of.engine, None
            if engine is not None:
                self._forgo(engine)
            of.tell(error_of(of) if error_of is not None else None)

    # -- looking -------------------------------------------------------------------------------------
    def _work(self, *, spins: bool) -> None:
        """Poll and nap, until the end."""
        wakeup = self._wakeup
        wakeup.sharpen()
        pace = self._pace
        while not self._is_over:
            if not self._known:
                wakeup.wait(None)
                continue
            nap_s = 0.0
            with self._polling:
                began_s = perf_counter()
                over = self._poll(pace.n_polls)
                if pace.moved_s >= began_s:  # something new, or something complete
                    pace.begin()
                elif not spins:
                    n_open = len(self._open) + len(self._single)
                    nap_s = pace.nap_s(self._took_s, n_open, perf_counter(), thread_time())
            self._tell(over)
            del over
            if nap_s:
                wakeup.wait(nap_s)

    def _poll(self, n_polls: int = 1) -> list[Awaited]:
        """Test for complete requests, under the lock, at most ``n_polls`` times; return those to notify."""
        if self._new:
            self._take_in()
        found: list[tuple[OpenRequest, bool]] = []
        self._took_s = 0.0
        if self._single:
            found += self._test_each(n_polls)
        if self._requests:
            found += self._test_some(1 if found else n_polls)
        if not found:
            return []
        self._pace.moved_s = perf_counter()
        for one, _ in found:
            self._forget(one)
            self._pace.closed(one.n_bytes)
        return [one.of for one, is_last in found if is_last]

    def _take_in(self) -> None:
        while self._new:
            one = self._new.popleft()
            one.measure()
            self._pace.opened(one.n_bytes)
            if type(one.request) in _TESTED_TOGETHER:
                self._open.append(one)
                self._requests.append(one.request)
            else:
                self._single.append(one)
        self._pace.moved_s = perf_counter()

    def _test_each(self, n_polls: int) -> list[tuple[OpenRequest, bool]]:
        found: list[tuple[OpenRequest, bool]] = []
        n_asked = 0
        began_s = thread_time()
        while True:
            n_asked += 1
            self._single = [one for one in self._single if not self._has_come(one, found)]
            if found or n_asked == n_polls or self._new:
                break
        self._took_s += (thread_time() - began_s - _clock_s) / n_asked
        return found

    def _has_come(self, one: OpenRequest, found: list[tuple[OpenRequest, bool]]) -> bool:
        is_last = one.test()
        if is_last is not None:
            found.append((one, is_last))
        elif not one.n_bytes and not isinstance(one.request, MPI.Request):
            one.measure()  # now it may have found what it is to receive
            self._pace.opened(one.n_bytes)
        return is_last is not None

    def _test_some(self, n_polls: int) -> list[tuple[OpenRequest, bool]]:
        statuses: list[MPI.Status] = []
        test, requests, n_asked = MPI.Request.testsome, self._requests, 1
        began_s = thread_time()
        try:
            while True:
                complete, values = test(requests, statuses)
                if complete or complete is None or n_asked == n_polls or self._new:
                    break
                n_asked += 1
        except BaseException:  # noqa: BLE001  # of MPI, or of the class of an object that has come
            return self._sort_out(statuses)
        finally:
            self._took_s += (thread_time() - began_s - _clock_s) / n_asked
        if complete is None or values is None:  # null, all of them: somebody else has waited for them
            return self._sort_out(None)
        if not complete:
            return []
        found = [
            (one := self._open[at], one.note(value, status))
            for at, value, status in zip(complete, values, statuses, strict=False)
        ]
        for at in sorted(complete, reverse=True):
            self._drop(at)
        return found

    def _sort_out(self, statuses: Sequence[MPI.Status] | None) -> list[tuple[OpenRequest, bool]]:
        """Find out which requests have completed in a poll that has raised, and ask each of the others."""
        # There are no statuses where somebody else has waited for all of them.
        n_null = sum(one.request == MPI.REQUEST_NULL for one in self._open)
        are_told = statuses is not None and len(statuses) == n_null
        of_null = iter(statuses or ())
        found: list[tuple[OpenRequest, bool]] = []
        gone = []
        for at, one in enumerate(self._open):
            if statuses is None or one.request != MPI.REQUEST_NULL:
                is_last = one.test()
            elif are_told:
                is_last = one.note_failed(next(of_null))
            else:
                is_last = one.note_lost()
            if is_last is not None:
                found.append((one, is_last))
                gone.append(at)
        for at in reversed(gone):
            self._drop(at)
        return found

    def _drop(self, at: int) -> None:
        """Take out a request; the last one comes in its place."""
        self._open[at] = self._open[-1]
        self._requests[at] = self._requests[-1]
        self._open.pop()
        self._requests.pop()


def _not_free(request: MPI.Request, what: str) -> EventError:
    return EventError(
        f"{what}: {request!r:.60} is already used by an event; a request fulfils one event, which several tasks may "
        "name in `depend`"
    )


def _idle_poll_s() -> tuple[float, float]:
    """Return the processor time of a poll that moves nothing, and the time that each request adds."""
    # Generalised requests are asked for, which nobody completes meanwhile.
    requests = [MPI.Grequest.Start() for _ in range(_MANY)]
    shortest_s = [inf, inf]
    for _ in range(_MANY):
        for at, asked in enumerate((requests[:1], requests)):
            began_s = thread_time()
            MPI.Request.testsome(asked, [])
            shortest_s[at] = min(shortest_s[at], thread_time() - began_s - _clock_s)
    for request in requests:
        request.Complete()
        request.Wait()
    each_s = max(0.0, (shortest_s[1] - shortest_s[0]) / (_MANY - 1))
    return shortest_s[0] - each_s, each_s


# What it takes to read the clock of a thread, which is as long as to ask for a request.
_clock_s = min(-(thread_time() - thread_time()) for _ in range(10))

# Measured before the first request is open, if that is possible: any poll moves the data of all requests.
_idle_poll = _idle_poll_s() if MPI.Is_initialized() and not MPI.Is_finalized() else None


progress = Progress()


@in_forked_child
def _after_fork() -> None:
    """Forget the parent's requests, whose locks may be in the hands of threads that are not here."""
    global progress  # noqa: PLW0603  # the process's one
    progress = Progress()


def _spins() -> bool:
    """Tell whether the thread must never nap; raise `UsageError` for a wrong value of ``OFFLOAD_MPI_POLL``."""
    value = os.environ.get("OFFLOAD_MPI_POLL", "")
    if value not in {"", "spin"}:
        raise UsageError(f"OFFLOAD_MPI_POLL={value!r}: give 'spin' for a thread that never sleeps, or leave it empty")
    return value == "spin"
