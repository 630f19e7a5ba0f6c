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
    """A source's word that it will fulfil an event: good for one round of it, and one call.

    Attributes
    ----------
    source : Source, str or None
        Who gave it, kept alive by it; None when it has been kept.
    point : object or None
        Where on which stream it is kept.
    value : object
        What the source has brought.
    """

    __slots__ = ("_event", "point", "source", "value")

    is_quiet = False

    def __init__(self, event: Promised, source: Source | str) -> None:
        self._event: Promised | None = event
        self.source: Source | str | None = source
        self.point: Any = None
        self.value: Any = None

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
    """Something that will fulfil an event. As a string: what it is called where a person asks who will."""

    def subscribe(self, promise: Promise) -> None:
        """Have the promise kept when the source completes; never block.

        Raises
        ------
        EventError
            The source can never complete.
        """
