"""Promises: a source's word that it will fulfil an event, and the contract of a source."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from offload.interrupts.finalizers import collector, put_off
from offload.interrupts.shields import Shield


class Promised(Protocol):
    """An event that promises are made to."""

    def kept(self, promise: Promise, error: BaseException | None) -> None:
        """Take the word of a source that has completed, or never will."""


class Promise:
    """A source's promise to fulfil an event: for one round of the event, and one call."""

    __slots__ = ("_event", "point", "source", "value")

    is_quiet = False

    def __init__(self, event: Promised, source: Source | str) -> None:
        self._event: Promised | None = event
        self.source: Source | str | None = source  # kept alive by its promise; None when it has been kept
        self.point: Any = None  # the place on a stream where it is kept
        self.value: Any = None  # the result of the source

    def passed(self, error: BaseException | None) -> None:
        """Keep the promise, or with an error break it."""
        if collector.is_here:  # a finalizer has completed a future
            put_off.add(partial(self.passed, error), is_urgent=True)
            return
        event = self._event
        if event is not None:
            with Shield():  # here a main thread may complete a future of its own
                event.kept(self, error)
        self._event = self.source = None  # the source may refer to this for ever, and is to keep nothing alive by it


class Source(Protocol):
    """Something that will fulfil an event. Its string names it for a person."""

    def subscribe(self, promise: Promise) -> None:
        """Have the promise kept when the source completes; never block.

        Raise `EventError` if the source can never complete.
        """
