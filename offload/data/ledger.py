"""The ledger of a data environment: who uses which storage up to where, and whom a use has to follow.

Theory of operation
-------------------
The ledger has two lists for each entry (`Accesses`): its *writes*, which are the library's own copies to the buffer,
and its *uses*, which are all else: kernels, and copies from the buffer. A third list has the *copies back*: host
storage whose entry is gone already, while the copy to it is under way. Each says which bytes, and a place on a lane.

A construct acquires by `before`, which returns the places that its lane has to follow:

=================================  =======================  ====================  ==============
a construct that                   writes that meet it      uses that meet it     copies back
=================================  =======================  ====================  ==============
uses storage, or copies from it    yes                      no                    -
copies to storage                  yes                      yes                   -
makes an entry of host storage     -                        -                     yes
ends an entry (`before_end`)       all                      all                   -
=================================  =======================  ====================  ==============

It enters its own accesses with `open`, under the same hold of the lock. They have no place then: a construct that would
have to follow one is put off (`PutOffError`). When its copies have been enqueued, or been carried out by threads, it
releases by `settle`: one event is recorded on its lane, and everything that it has opened ends there. Nothing else
changes the lists, but for `note`, which enters accesses whose place is known.

A region that makes all of its entries marks no place behind its copies to them (`Due`), unless somebody asks for it, or
its body may block.

A write of a whole entry takes all earlier writes out of the list: it has followed them. Otherwise accesses that are
over are dropped when the list has grown long.

Model: the event lists of CUDASTF, of which each instance of data has two.
"""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from offload.data.accesses import Accesses, set_access
from offload.data.copies_back import CopiesBack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from offload.arrays.sections import Section
    from offload.data.copies_back import CopyBack
    from offload.data.entries import Entry

    Part: TypeAlias = tuple[Entry, Section]


class Point(Protocol):
    """A place on a lane; ``event`` is None once the lane has passed it."""

    lane: Any
    sequence: int
    event: Any


class Lane(Protocol):
    """A stream whose work runs in order; what is noted of it has passed up to a sequence, and when."""

    passed: tuple[int, float]

    def mark(self) -> Any:
        """Return the place where the lane is now, a `Point`."""


class Lock(AbstractContextManager[Any], Protocol):
    """A lock of `threading`."""

    def acquire(self, blocking: bool = True) -> bool: ...
    def release(self) -> None: ...


class _Open:
    """The place of an access whose copy is being enqueued, or carried out by threads."""

    __slots__ = ()
    event = "to be recorded"


OPEN: Any = _Open()
"""The only one."""


class Due:
    """The place where a region's copies to its own storage end, marked when another construct asks for it.

    None does, mostly: the entries go with the region, whose launch has its lane for itself until then. A mark that is
    late has passed later, and holds up nobody but who maps the same storage on another thread meanwhile. That is short
    where a body only enqueues; where bodies block it would be as long as the body, and the place is marked at once.
    """

    __slots__ = ("_point", "lane")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self._point: Point | None = None

    @property
    def event(self) -> Any:
        """What is recorded there; None once the lane has passed it."""
        return self._marked().event

    @property
    def sequence(self) -> int:
        """Its place among those of the lane."""
        return self._marked().sequence

    def _marked(self) -> Point:
        point = self._point
        if point is None:
            point = self._point = self.lane.mark()
        return point


class PutOffError(Exception):
    """The launch has to be tried again later; nothing has changed.

    Attributes
    ----------
    place : object
        Where something has to end first; None: where the launch is.
    """

    def __init__(self, place: Any = None) -> None:
        super().__init__()
        self.place = place


class Ledger:
    """The accesses of the entries of one device, and the copies back to what was mapped there.

    Parameters
    ----------
    lock : Lock
        Held by the caller of `before`, `before_end`, `open` and `note`; `settle` and `arrived` take it.

    Attributes
    ----------
    back_on : deque
        The copies back under way that `arrived` is to forget, the oldest first.
    may_query : bool
        Whether events may be asked if they are over.
    """

    __slots__ = ("_back", "_kept", "_lock", "_open", "back_on", "may_query")

    def __init__(self, lock: Lock) -> None:
        self.may_query = True
        self._lock = lock
        self._back = CopiesBack()
        self.back_on: deque[CopyBack] = deque()
        self._open: dict[Lane, tuple[Sequence[tuple[Accesses, tuple[Lane, Section]]], list[CopyBack]]] = {}
        self._kept: dict[Lane, list[Any]] = {}

    # -- acquiring -----------------------------------------------------------------------------------
    def before(self, uses: Iterable[Part], writes: Iterable[Part] = (), fresh: Iterable[Section] = ()) -> list[Any]:
        """Return the places that a construct has to follow.

        Parameters
        ----------
        uses : iterable of (Entry, Section)
            What it uses, or copies from.
        writes : iterable of (Entry, Section)
            What it copies to.
        fresh : iterable of Section
            Host storage of which it makes entries.

        Raises
        ------
        PutOffError
            One of the accesses is open.
        """
        found: list[Any] = []
        for entry, section in uses:
            if entry.writes:
                found += entry.writes.overlapping(section)
        for entry, section in writes:
            if entry.writes:
                found += entry.writes.overlapping(section)
            if entry.uses:
                found += entry.uses.overlapping(section)
        if fresh and self._back.copies:
            found += [copy.point for section in fresh for copy in self._back.meeting(section)]
        if found and OPEN in found:
            raise PutOffError
        return found

    def before_fresh(self, entries: Iterable[Entry]) -> list[Any]:
        """Do what `before` does, of a construct that makes these entries and uses no others."""
        back = self._back
        if not back.copies:
            return []
        found = [copy.point for entry in entries for copy in back.meeting(entry.section)]
        if OPEN in found:
            raise PutOffError
        return found

    def before_end(self, entries: Iterable[Entry]) -> list[Any]:
        """Return the places of all that accesses entries, as far as it has been enqueued."""
        found: list[Any] = []
        for entry in entries:
            found += entry.writes.values()
            if entry.uses:
                found += entry.uses.values()
        return [point for point in found if point is not OPEN] if OPEN in found else found

    def open(
        self, lane: Lane, uses: Iterable[Part] = (), writes: Iterable[Part] = (), back: Iterable[Section] = ()
    ) -> None:
        """Enter accesses of a construct on a lane: what it uses, copies to, and copies back of what it has unmapped."""
        opened: list[tuple[Accesses, tuple[Lane, Section]]] = []
        for entry, section in writes:
            if section == entry.section:
                entry.writes.clear()
            opened.append((entry.writes, (lane, section)))
        for entry, section in uses:
            opened.append((entry.uses, (lane, section)))
        for accesses, key in opened:
            earlier = accesses.get(key)
            if earlier is not None and earlier.event is not None:
                accesses[(lane,), key[1]] = earlier  # for `before_end`, which asks for nothing that is open
            if earlier is None:
                self._add(accesses, key, OPEN)
            else:
                set_access(accesses, key, OPEN)
        if opened or back:
            self._open[lane] = opened, [self._back.add(section, OPEN) for section in back]

    def open_back(self, lane: Lane, copies: Iterable[tuple[Any, Entry]]) -> None:
        """Enter what a construct on a lane copies back, of items and the entries that they had."""
        add = self._back.add
        self._open[lane] = (), [add(entry.section, OPEN) for _, entry in copies]

    def open_own(self, lane: Lane, entries: Iterable[Entry]) -> None:
        """Enter the copies of a region on a lane to entries that it has just made, until `end_own`."""
        for entry in entries:
            set_access(entry.writes, (lane, entry.section), OPEN)

    def end_own(self, lane: Lane, entries: Iterable[Entry], end: Point | Due | None) -> None:
        """Take note of where these copies end, which are all enqueued; None: some are staged, open until `settle`."""
        if end is None:
            self._open[lane] = [(entry.writes, (lane, entry.section)) for entry in entries], []
            return
        for entry in entries:
            set_access(entry.writes, (lane, entry.section), end)  # one step; nobody else has entered a write

    # -- releasing -----------------------------------------------------------------------------------
    def settle(self, lane: Lane, point: Any = None) -> Any:
        """Take note that the copies of the construct on the lane are all enqueued, or carried out.

        Parameters
        ----------
        point : Point, optional
            Where the lane is, if that is marked.

        Returns
        -------
        Point or None
            Where what was open ends; None if nothing was. If the place cannot be marked, nothing is left open.
        """
        opened, back = self._open.pop(lane, _NOTHING)
        if opened is None:
            return None
        try:
            point = point or lane.mark()
        finally:
            if point is None or opened:
                with self._lock:
                    if point is None:
                        for accesses, key in opened:
                            accesses.pop(key, None)
                        for copy in back:
                            self._back.remove(copy)
                    else:
                        for accesses, key in opened:
                            self._enter(accesses, key, point)
            if back and point is not None:
                self._end_back(back, point)
        return point

    def note(
        self, point: Point, uses: Iterable[Part], writes: Iterable[Part] = (), back: Sequence[Section] = ()
    ) -> None:
        """Enter accesses that end at a point; otherwise as `open`."""
        lane = point.lane
        for entry, section in uses:
            self._enter(entry.uses, (lane, section), point)
        for entry, section in writes:
            accesses, key = entry.writes, (lane, section)
            if section == entry.section and (len(accesses) > 1 or key not in accesses):
                accesses.clear()
            self._enter(accesses, key, point)
        if back:
            self._end_back([self._back.add(section, point) for section in back], point)

    def _enter(self, accesses: Accesses, key: tuple[Lane, Section], point: Point) -> None:
        if key in accesses:
            set_access(accesses, key, point)
        else:
            self._add(accesses, key, point)

    def _add(self, accesses: Accesses, key: tuple[Lane, Section], access: Any) -> None:
        """Enter the first access of a part on a lane; where there are many, forget those that are over."""
        if len(accesses) >= accesses.limit and self.may_query:
            accesses.prune(_is_over)
        accesses[key] = access

    def prune(self, entries: Iterable[Entry]) -> None:
        """Forget of entries those writes that lanes have passed, by a look at each."""
        if self.may_query:
            for entry in entries:
                if entry.writes:
                    entry.writes.prune(_is_over)

    def _end_back(self, copies: Sequence[CopyBack], point: Point) -> None:
        for copy in copies:
            copy.point = point
        self.back_on.extend(copies)

    # -- what arrives --------------------------------------------------------------------------------
    def arrived(self, end: Point) -> None:
        """Forget the copies back that have arrived, as a lane has got to a point; or leave them to the next call.

        Nobody follows one that has arrived, so that it may be forgotten later: where another thread has the lock, and
        where one before it has not arrived. To wait for the lock would have the two threads take turns.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            copies = self.back_on
            while copies and _has_arrived(copies[0].point, end):
                self._back.remove(copies.popleft())
        finally:
            self._lock.release()

    # -- constructs that fail ------------------------------------------------------------------------
    def keep(self, lane: Lane, things: Iterable[Any]) -> None:
        """Keep what a construct that fails leaves in use on a lane, for `take_kept`."""
        self._kept.setdefault(lane, []).extend(things)

    def take_kept(self, lane: Lane) -> list[Any] | None:
        """Return what must live until the lane gets to where it is now, although its construct has failed."""
        return self._kept.pop(lane, None)


def is_open(entry: Entry) -> bool:
    """Tell whether an access of an entry, or of a part, is open."""
    return OPEN in entry.writes.values() or OPEN in entry.uses.values()


_NOTHING: Any = None, ()


def _has_arrived(point: Point, end: Point) -> bool:
    """Tell whether a point has passed, as ``end`` has; of other lanes, whether one behind it is known to have."""
    lane = point.lane
    return point.event is None or point.sequence <= (end.sequence if lane is end.lane else lane.passed[0])


def _is_over(access: Any) -> bool:
    """Tell whether a lane has passed the place where an access ends."""
    if access is OPEN:
        return False
    event = access.event
    return event is None or bool(event.done)
