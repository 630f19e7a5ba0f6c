"""Events: the handle by which something else than its body completes a task.

Theory of operation
-------------------
Whoever is to fulfil an event, a source or a call, first *claims* it and has a promise for that. The event takes the
word of its present promise alone, and once. So what comes late has no effect: a source of an earlier round of a
recorded graph, or one that was named before the body failed and that somebody has fulfilled the event in place of.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex

from offload.errors import EventError
from offload.events.promises import Promise, Source
from offload.events.sources import find_source
from offload.interrupts.finalizers import collector, put_off
from offload.interrupts.shields import Shield

if TYPE_CHECKING:
    from collections.abc import Callable


class Event:
    """OpenMP's event handle.

    A task with ``detach=event`` is complete when its body has finished and the event is fulfilled. Either
    may come first, from any thread; no thread is held meanwhile. An event may be fulfilled before it is attached to a
    task, and is attached to one task only. In ``depend`` an event stands for its fulfilment, with any type of
    dependence: what names it runs after that, and not at all if the source fails, or the task of the event without it.

    Raises
    ------
    EventError
        From `fulfill` and `fulfill_on`: the event is fulfilled already, or a source has been named that will
        fulfil it. From a construct: the event belongs to another task.

    Notes
    -----
    OpenMP 5.2, 12.5.2 "detach Clause"; 18.11.1 "omp_fulfill_event".
    """

    __slots__ = (
        "__weakref__",
        "_failure",
        "_followers",
        "_fulfilled",
        "_is_awaited",
        "_is_stale",
        "_lock",
        "_promise",
        "_task",
        "_value",
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._task: weakref.ref[Any] | None = None  # weak: the task refers to the event
        self._followers: list[Callable[[BaseException | None, Any], None]] = []
        self._clear()

    def _clear(self) -> None:
        self._fulfilled = False
        self._is_awaited = False  # the body has ended and the task waits for the event
        self._is_stale = False  # the body failed: nobody waits any more
        self._promise: Promise | None = None
        self._failure: BaseException | None = None
        self._value: Any = None

    # -- for users -----------------------------------------------------------------------------------
    @property
    def failure(self) -> BaseException | None:
        """What went wrong at the source; None if nothing did."""
        return self._failure

    @property
    def is_fulfilled(self) -> bool:
        """Whether the event has been fulfilled; a source that was only named has not fulfilled it yet."""
        return self._fulfilled

    @property
    def value(self) -> Any:
        """What the source has brought: of a message of MPI its `MPI.Status`, of a pickled one the object, else None.

        A status says something of a receive only; that of a send may be None. Of several requests it is the list of
        those. None before the event is fulfilled, and where the source failed.
        """
        return self._value

    def fulfill(self) -> None:
        """Fulfil the event; its task completes if the body has finished.

        Raises
        ------
        EventError
            It was fulfilled before, or a source will do it.
        """
        if collector.is_here:  # a lock that this takes may be in this thread's hands
            put_off.add(self.fulfill, is_urgent=True)
            return
        with Shield():
            self._claim("fulfill()", "this call").passed(None)

    def fulfill_on(self, source: Any) -> None:
        """Fulfil the event when a source completes; its task fails if the source does, with the same error.

        Parameters
        ----------
        source : stream, future, or requests of MPI
            A `cupy.cuda.Stream`, an object with ``__cuda_stream__``, or a stream of a simulated device: complete when
            everything enqueued there so far is done. A `concurrent.futures.Future`, an `asyncio.Future` or
            `asyncio.Task`, named from any thread, or a `distributed.Future`. A `mpi4py.MPI.Request` of any kind, or a
            list or tuple of them: complete when all are.

        Raises
        ------
        EventError
            The event was fulfilled before or has a source; this is no future, no request, and no stream of a device of
            the runtime; or it can never complete, since its event loop or its client is closed; or the request is open
            for another event.
        UsageError
            MPI is not initialised, is finalised, has a thread level below ``MPI_THREAD_MULTIPLE``, or belongs to the
            process that this one was forked from.

        Notes
        -----
        *Blocks* never. The task of a cancelled future fails with `concurrent.futures.CancelledError`, an `Exception`
        also where asyncio's is none. A future is kept alive until it completes. One whose loop or process ends
        before never fulfils the event.

        A request belongs to the event until that is fulfilled: nobody else may test it or wait for it, but ``Cancel()``
        is allowed. Then it is null, or if it is persistent inactive, and may be started again for another event; null
        and inactive requests are complete. A request that fails is a `TransportError`, a cancelled one a
        `concurrent.futures.CancelledError`.

        *Costs* for a stream an event on it and at most one callback; tasks on a device that depend on the task wait
        on their stream, not through the host. For a future one callback, on the thread that completes it; it only
        enqueues what may run now. Requests are looked after by one thread of the process, which takes 1 to 2
        percent of a core while one is open and notices its end some milliseconds late at most, and by threads that
        wait.
        """
        if collector.is_here:  # as above
            put_off.add(partial(self.fulfill_on, source), is_urgent=True)
            return
        self.be_fulfilled_by(find_source(self._task() if self._task is not None else None, source))

    def __repr__(self) -> str:
        source = self._promise.source if self._promise is not None else None
        state = "fulfilled" if self._fulfilled else "open" if source is None else f"to be fulfilled by {source}"
        return f"<Event {state}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            "an Event completes a task of this process, and cannot be pickled; create one in the process that "
            "generates the task"
        )

    # -- for the engine ------------------------------------------------------------------------------
    @property
    def point(self) -> Any:
        """Where on which stream the event is fulfilled; None if no stream does it."""
        return self._promise.point if self._promise is not None else None

    @property
    def is_promised(self) -> bool:
        """Whether a source has been named, a stream or a future, that will fulfil the event or has done so."""
        return self._promise is not None and not self._is_stale

    def be_fulfilled_by(self, source: Source) -> None:
        """Have a source fulfil the event; raises as `fulfill_on`."""
        with Shield():
            promise = self._claim("fulfill_on(…)", source)
            try:
                source.subscribe(promise)
            except BaseException:
                with self._lock:
                    if self._promise is promise and not self._fulfilled:
                        self._promise = None
                raise

    def attach(self, task: Any) -> None:
        """Bind the event to its task.

        Raises
        ------
        EventError
            It has one.
        """
        with self._lock:
            if self._task is not None:
                task = self._task()
                name = "a task" if task is None else task.key
                raise EventError(
                    f"event is already attached to {name}; an event belongs to one task, so create another event"
                )
            self._task = weakref.ref(task)
            is_followed = bool(self._followers)
        if is_followed:
            task.add_done_callback(self._task_ended)

    @property
    def task(self) -> Any:
        """The task that the event is attached to; None if there is none, or it is gone."""
        return self._task() if self._task is not None else None

    def follow(self, told: Callable[[BaseException | None, Any], None]) -> None:
        """Call ``told(failure, task)`` once the event is fulfilled, or its task has ended without; at once if it is so.

        It gets the failure, if there is one, and the task of the event, from whichever thread it is.
        """
        with self._lock:
            is_over = self._fulfilled
            if not is_over:
                self._followers.append(told)
            task = self.task
        if is_over:
            told(self._failure, task)
        elif task is not None:
            task.add_done_callback(self._task_ended)

    def _task_ended(self, task: Any) -> None:
        """Tell those who follow an event that nobody may fulfil any more; after the fulfilment nobody is left."""
        with self._lock:
            if task is not self.task:
                return
            followers, self._followers = self._followers, []
        for told in followers:
            told(task.failure, task)

    def rearm(self) -> None:
        """Forget task and fulfilment: the recorded graph that the event belongs to runs again."""
        with self._lock:
            self._task = None
            self._clear()

    def body_finished(self) -> bool:
        """Note that the body has ended well; return whether the event was fulfilled before."""
        with self._lock:
            self._is_awaited = not self._fulfilled
            return self._fulfilled

    def abandon(self) -> None:
        """Note that the body failed: nothing waits for the event; one fulfil that is still to come is ignored."""
        with self._lock:
            self._is_stale = not self._fulfilled

    def kept(self, promise: Promise, error: BaseException | None) -> None:
        """Take the word of whoever promised to fulfil the event, or never will; ignore a promise that is not due."""
        with self._lock:
            if promise is not self._promise or self._fulfilled:
                return
            self._fulfilled = True
            self._is_stale = False
            awaited, self._is_awaited = self._is_awaited, False
            self._failure = error
            self._value = promise.value if error is None else None
            task = self.task
            followers, self._followers = self._followers, []
        if awaited and task is not None:  # a task that is awaited is alive: its region has it
            task.event_fulfilled(error)
        for told in followers:
            told(error, task)

    def _claim(self, how: str, source: Source | str) -> Promise:
        """Return the promise by which the event will be fulfilled, unless there is one."""
        with self._lock:
            if self._fulfilled:
                raise EventError(f"{how}: the event is already fulfilled; an event can be fulfilled only once")
            promise = self._promise
            if promise is not None and not self._is_stale:
                raise EventError(
                    f"{how}: the event will be fulfilled by {promise.source}; an event can be fulfilled only once"
                )
            self._is_stale = False
            self._promise = promise = Promise(self, source)
            return promise


def fulfill_event(event: Event) -> None:
    """Fulfil an event; the same as ``event.fulfill()``. Raises and source: as `Event`."""
    if not isinstance(event, Event):
        raise EventError(f"fulfill_event: {event!r:.60} is not an event; create one with offload.Event()")
    event.fulfill()


def check_event(value: Any) -> Event | None:
    """Return the event of a ``detach=`` argument.

    Raises
    ------
    EventError
        It is none.
    """
    if value is not None and not isinstance(value, Event):
        raise EventError(f"detach: {value!r:.60} is not an event; create one with offload.Event()")
    return value
