"""Events: the handle by which something else than its body completes a task.

Theory of operation
-------------------
A source or call that is to fulfil an event first *claims* it, and gets a promise. The event takes the
word of its present promise alone, and once. A late source therefore has no effect: one of an earlier round of a
recorded graph, or one named before the body failed if another call has fulfilled the event since.
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

    A task with ``detach=event`` is complete when its body has finished and the event is fulfilled, in either order. Any
    thread may fulfil the event, and no thread is held in the meantime. You may fulfil an event before you attach it to
    a task. An event belongs to one task only.

    In ``depend`` an event stands for its fulfilment. A task that names it, with any dependence type, runs after the
    event is fulfilled. It does not run if the source fails, or if the event's task fails before the event is fulfilled.

    Raises
    ------
    EventError
        From `fulfill` and `fulfill_on`: the event is already fulfilled, or already has a source. From a construct: the
        event belongs to another task.

    Notes
    -----
    OpenMP 5.2, 12.5.2 "detach Clause"; 18.11.1 "omp_fulfill_event".

    Examples
    --------
    >>> event = omp.Event()
    >>> @omp.task(detach=event)
    ... def request():
    ...     return 42
    >>> task = request()
    >>> task.done()
    False
    >>> event.fulfill()
    >>> task.result()
    42
    """

    __slots__ = (
        "__weakref__", "_failure", "_followers", "_fulfilled", "_is_awaited", "_is_stale", "_lock", "_promise",
        "_task", "_value",
    )  # fmt: skip

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
        """The failure of the source; None if it has not failed.

        Examples
        --------
        >>> from concurrent.futures import Future
        >>> future, event = Future(), omp.Event()
        >>> event.fulfill_on(future)
        >>> future.set_exception(ValueError("no data"))
        >>> event.failure
        ValueError('no data')
        """
        return self._failure

    @property
    def is_fulfilled(self) -> bool:
        """Whether the event has been fulfilled; False while it only has a source.

        Examples
        --------
        >>> event = omp.Event()
        >>> event.is_fulfilled
        False
        >>> event.fulfill()
        >>> event.is_fulfilled
        True
        """
        return self._fulfilled

    @property
    def value(self) -> Any:
        """The value that the source has delivered; None for streams and futures.

        A message of MPI delivers its `MPI.Status`, and a pickled message delivers the object. Only the status of a
        receive is meaningful; a send may deliver None. Several requests deliver a list. The value is None until the
        event is fulfilled, and if the source has failed.

        Examples
        --------
        >>> event = omp.Event()
        >>> event.fulfill()
        >>> print(event.value)
        None
        """
        return self._value

    def fulfill(self) -> None:
        """Fulfil the event; its task completes if the body has finished.

        Raises
        ------
        EventError
            The event is already fulfilled, or has a source.

        Examples
        --------
        >>> event = omp.Event()
        >>> task = omp.task(detach=event)(lambda: 7)()
        >>> event.fulfill()
        >>> task.result()
        7
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
            * A `cupy.cuda.Stream`, an object with ``__cuda_stream__``, or a stream of a simulated device. It completes
              when all work that is enqueued there now is done.
            * A `concurrent.futures.Future`, an `asyncio.Future` or `asyncio.Task`, or a `distributed.Future`. You may
              call this method from any thread.
            * A `mpi4py.MPI.Request` of any kind, or a list or tuple of them. It completes when all requests are
              complete.

        Raises
        ------
        EventError
            The event was already fulfilled or has a source. The source is not a future, a request, or a stream of a
            device of the runtime. The source can never complete, because its event loop or its client is closed. The
            request is open for another event.
        UsageError
            MPI is not initialised, is finalised, or has a thread level below ``MPI_THREAD_MULTIPLE``. MPI belongs to
            the process that forked this one.

        Notes
        -----
        The call never blocks. If a future is cancelled, the task fails with `concurrent.futures.CancelledError`. This
        is an `Exception`, also for futures of asyncio. The event keeps a future alive until it completes. If the
        future's loop or process ends first, the event is never fulfilled.

        A request belongs to the event until the event is fulfilled. Do not test it or wait for it in the meantime; you
        may call ``Cancel()``. After the fulfilment the request is null, or inactive if it is persistent. You may start
        a persistent request again for another event. Null and inactive requests count as complete. A failed request
        causes a `TransportError`; a cancelled request causes a `concurrent.futures.CancelledError`.

        The cost of a stream is one stream event and at most one callback. Device tasks that depend on the task wait on
        their own stream, without the host. The cost of a future is one callback on the thread that completes it; the
        callback only enqueues tasks that are now ready. One thread of the process watches all requests, and so do
        threads that wait. This thread takes 1 to 2 percent of a core while a request is open. It notices the end of a
        request after a few milliseconds at most.

        Examples
        --------
        >>> event = omp.Event()
        >>> stream = omp.current_stream()
        >>> stream.launch(lambda: None)  # with CuPy: a kernel or a library call
        >>> event.fulfill_on(stream)
        >>> task = omp.task(detach=event)(lambda: "the stream is done")()
        >>> task.result()
        'the stream is done'
        """
        if collector.is_here:  # as above
            put_off.add(partial(self.fulfill_on, source), is_urgent=True)
            return
        self.be_fulfilled_by(find_source(self._task() if self._task is not None else None, source))

    def __repr__(self) -> str:
        source = self.source
        state = "fulfilled" if self._fulfilled else "open" if source is None else f"to be fulfilled by {source}"
        return f"<Event {state}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            "an Event completes a task of this process, and cannot be pickled; create one in the process that "
            "generates the task"
        )

    # -- for the engine ------------------------------------------------------------------------------
    @property
    def source(self) -> Source | str | None:
        """The source that will fulfil the event, if that is known."""
        promise = self._promise
        return None if promise is None else promise.source

    @property
    def point(self) -> Any:
        """Position in the stream that fulfils the event; None if no stream does."""
        return self._promise.point if self._promise is not None else None

    @property
    def is_promised(self) -> bool:
        """Whether the event has a source, such as a stream or a future, that will fulfil it or has done so."""
        return self._promise is not None and not self._is_stale

    def be_fulfilled_by(self, source: Source) -> None:
        """Have a source fulfil the event; raise as `fulfill_on` does."""
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
        """Bind the event to its task; raise `EventError` if it has one."""
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
        """The task that the event is attached to; None if it has no task, or if the task no longer exists."""
        return self._task() if self._task is not None else None

    def follow(self, told: Callable[[BaseException | None, Any], None]) -> None:
        """Call ``told(failure, task)`` once the event is fulfilled, or its task has ended without it.

        If that has already happened, the call is made at once. ``told`` gets the failure, or None, and the event's
        task. Any thread may call it.
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
        """Forget the task and the fulfilment, because the recorded graph of the event runs again."""
        with self._lock:
            self._task = None
            self._clear()

    def body_finished(self) -> bool:
        """Note that the body ended without a failure; return whether the event was already fulfilled."""
        with self._lock:
            self._is_awaited = not self._fulfilled
            return self._fulfilled

    def abandon(self) -> None:
        """Note that the body failed and no task waits for the event; ignore one later fulfilment."""
        with self._lock:
            self._is_stale = not self._fulfilled

    def kept(self, promise: Promise, error: BaseException | None) -> None:
        """Accept the result of a promise to fulfil the event; ignore a promise that is not due."""
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
    """Fulfil an event; the same as ``event.fulfill()``.

    Parameters
    ----------
    event : Event
        The event to fulfil.

    Raises
    ------
    EventError
        The event is already fulfilled, or has a source.

    Notes
    -----
    OpenMP 5.2, 18.11.1 "omp_fulfill_event".

    Examples
    --------
    >>> event = omp.Event()
    >>> omp.fulfill_event(event)
    >>> event.is_fulfilled
    True
    """
    if not isinstance(event, Event):
        raise EventError(f"fulfill_event: {event!r:.60} is not an event; create one with offload.Event()")
    event.fulfill()


def check_event(value: Any) -> Event | None:
    """Return the event of a ``detach=`` argument; raise `EventError` if it is not an event."""
    if value is not None and not isinstance(value, Event):
        raise EventError(f"detach: {value!r:.60} is not an event; create one with offload.Event()")
    return value
