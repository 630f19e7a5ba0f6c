"""Events: the handle by which something else than its body completes a task."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from offload.errors import EventError
from offload.events.sources import find_stream


class Event:
    """OpenMP's event handle.

    A task with ``detach=event`` is complete when its body has finished and the event is fulfilled. Either
    may come first, from any thread; no thread is held meanwhile. An event may be fulfilled before it is attached to a
    task, and is attached to one task only.

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
        "_fulfilled",
        "_is_awaited",
        "_is_stale",
        "_lock",
        "_source",
        "_task",
        "point",
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._task: weakref.ref[Any] | None = None  # weak: the task refers to the event
        self._clear()

    def _clear(self) -> None:
        self._fulfilled = False
        self._is_awaited = False  # the body has ended and the task waits for the event
        self._is_stale = False  # the body failed: nobody waits any more
        self._source: str | None = None
        self._failure: BaseException | None = None
        self.point: Any = None

    # -- for users -----------------------------------------------------------------------------------
    @property
    def failure(self) -> BaseException | None:
        """What went wrong at the source before the body had ended; None if nothing did."""
        return self._failure

    @property
    def is_fulfilled(self) -> bool:
        """Whether the event has been fulfilled; a source that was only named has not fulfilled it yet."""
        return self._fulfilled

    def fulfill(self) -> None:
        """Fulfil the event; its task completes if the body has finished.

        Raises
        ------
        EventError
            It was fulfilled before, or a source will do it.
        """
        with self._lock:
            self._claim("fulfill()")
            self._source = "this call"
        self.passed(None)

    def fulfill_on(self, source: Any) -> None:
        """Fulfil the event when everything enqueued on a stream so far is done.

        Parameters
        ----------
        source : stream
            A `cupy.cuda.Stream`, an object with ``__cuda_stream__``, or a stream of a simulated device.

        Raises
        ------
        EventError
            The event was fulfilled before or has a source, or this is no stream of a device of the runtime.

        Notes
        -----
        *Blocks* never. *Costs* an event on the stream and at most one callback. If work on the stream fails, the
        task fails with that error. Tasks on a device that depend on the task wait on their stream, not through
        the host.
        """
        gate, lane = find_stream(self._task() if self._task is not None else None, source)
        with self._lock, lane.lock:  # the lane's: its items come to the gate in the order of their marks
            self._claim("fulfill_on(…)")
            self.point = point = lane.mark()
            self._source = f"stream {lane.number} of {lane.device.name}"
            gate.add(lane, point.sequence, point.event, self, watched=True)

    def __repr__(self) -> str:
        state = "fulfilled" if self._fulfilled else f"to be fulfilled by {self._source}" if self._source else "open"
        return f"<Event {state}>"

    # -- for the engine ------------------------------------------------------------------------------
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
                raise EventError(f"event is attached to {name} already; an event belongs to one task, make another")
            self._task = weakref.ref(task)

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

    def passed(self, error: BaseException | None) -> None:
        """Take the gate's word that the stream has got to where the event was promised, or never will."""
        with self._lock:
            self._fulfilled = True
            self._is_stale = False
            awaited, self._is_awaited = self._is_awaited, False
            if error is not None and not awaited:
                self._failure = error
            task = self._task() if self._task is not None else None
        if awaited and task is not None:  # a task that is awaited is alive: its region has it
            task.event_fulfilled(error)

    def _claim(self, how: str) -> None:
        if self._fulfilled:
            raise EventError(f"{how}: the event is fulfilled already; an event is fulfilled once")
        if self._source is not None and not self._is_stale:
            raise EventError(f"{how}: the event will be fulfilled by {self._source}; an event is fulfilled once")


def fulfill_event(event: Event) -> None:
    """Fulfil an event; the same as ``event.fulfill()``. Raises and source: as `Event`."""
    if not isinstance(event, Event):
        raise EventError(f"fulfill_event: {event!r:.60} is not an event; make one with offload.Event()")
    event.fulfill()
