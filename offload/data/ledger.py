"""The ledger of a data environment: who uses which storage up to where, and whom a use has to follow.

Theory of operation
-------------------
Each entry has two lists (`Accesses`): its *writes* are the library's own copies to the buffer, and its *uses* are all
else: kernels, and copies from the buffer. The ledger has a third list, the *copies back* to host storage whose entry
has gone. Each access says which bytes it concerns, and the point on a lane where it ends.

`Ledger.acquire` returns the points that a construct has to follow:

=================================  =======================  ====================  ==============
a construct that                   writes that meet it      uses that meet it     copies back
=================================  =======================  ====================  ==============
uses storage, or copies from it    yes                      no                    -
copies to storage                  yes                      yes                   -
makes an entry of host storage     -                        -                     yes
ends an entry                      all                      all                   -
=================================  =======================  ====================  ==============

`Ledger.release` enters the construct's own accesses (its `Claim`) with the point where they end. While its copies are
being enqueued, outside of the lock, they have none: they are released as `OPEN` under the same hold of the lock under
which the construct has acquired, and again when there is a point. A construct that would have to follow an open access
is put off (`PutOffError`).

A write of a whole entry takes all earlier writes out of the list: it has followed them. Otherwise accesses that are
over are dropped when a list has grown long.

Model: CUDASTF, where a task acquires and releases the event lists of each instance of data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from offload.data.accesses import FEW, Accesses, set_access

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from offload.arrays.sections import Section
    from offload.data.entries import Entry

    Part: TypeAlias = tuple[Entry, Section]
    Point: TypeAlias = Any  # `offload.devices.streams.Point`, whose lane and event are opaque here
    # The accesses of one construct: its lane, what it uses and writes, and host storage that it copies back to.
    Claim: TypeAlias = tuple[Any, Sequence[Part], Sequence[Part], Sequence[Section]]


class _Open:
    """The end of an access that nobody can follow yet: its copy is being enqueued, or carried out by threads."""

    __slots__ = ()
    event = "to be recorded"


OPEN: Final[Any] = _Open()
"""The only one."""


class DuePoint:
    """A point that is marked when somebody asks for it: where a region's copies to its own storage end.

    Most regions are never asked, since their entries go with them. Until its launch ends the region has its lane for
    itself, so a late mark is only further down the lane.
    """

    __slots__ = ("_point", "lane")

    def __init__(self, lane: Any) -> None:
        self.lane = lane
        self._point: Point | None = None

    @property
    def event(self) -> Any:
        """The event that is recorded there; None once the lane has passed it."""
        return self._marked().event

    @property
    def sequence(self) -> int:
        """Its place among the points of the lane."""
        return int(self._marked().sequence)

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
        The place at which an access has to end first; None: the launch's own place.
    """

    def __init__(self, place: Any = None) -> None:
        super().__init__()
        self.place = place


class Ledger:
    """The accesses of the entries of one device, and the copies back to host storage mapped there.

    It is not locked: the caller orders the calls.
    """

    __slots__ = ("back", "may_query")

    def __init__(self) -> None:
        # Copies back that are under way. Of several copies to the same bytes the last has followed the others.
        self.back = Accesses()
        # Whether events may be asked if they are over; false during a capture, which a question would end.
        self.may_query = True

    def acquire(
        self,
        uses: Iterable[Part] = (),
        writes: Iterable[Part] = (),
        fresh: Sequence[Section] = (),
        ended: Iterable[Entry] = (),
    ) -> list[Point]:
        """Return the points that a construct has to follow; enter nothing.

        Parameters
        ----------
        uses : iterable of (Entry, Section)
            The parts that it uses, or copies from.
        writes : iterable of (Entry, Section)
            The parts that it copies to, with all new entries that it makes.
        fresh : sequence of Section
            Other host storage of which it makes entries.
        ended : iterable of Entry
            The entries that it ends. It follows their accesses as far as they have been enqueued, and is never put off
            by others.

        Raises
        ------
        PutOffError
            One of the accesses is open.
        """
        found: list[Point] = []
        for entry, section in uses:
            if entry.writes:
                found += entry.writes.overlapping(section)
        for entry, section in writes:
            if entry.writes:
                found += entry.writes.overlapping(section)
            if entry.uses:
                found += entry.uses.overlapping(section)
            if self.back and not entry.generation:
                found += self.back.overlapping(section)
        if fresh and self.back:
            for section in fresh:
                found += self.back.overlapping(section)
        if found and OPEN in found:
            raise PutOffError
        for entry in ended:
            if entry.writes:
                found += entry.writes.values()
            if entry.uses:
                found += entry.uses.values()
        return [point for point in found if point is not OPEN] if OPEN in found else found

    def release(self, claim: Claim, point: Point | None) -> None:
        """Enter the accesses of a claim, or the end of those that were `OPEN`.

        Parameters
        ----------
        point : Point or None
            Their end, or `OPEN`; None removes open accesses, which never got an end.
        """
        lane, uses, writes, back = claim
        for entry, section in writes:
            accesses, key = entry.writes, (lane, section)
            # A write of a whole entry has followed all earlier writes, and stands for them.
            if accesses and section == entry.section and (len(accesses) > 1 or key not in accesses):
                accesses.clear()
            if point is not None and (not accesses or (point is not OPEN and key in accesses)):
                set_access(accesses, key, point)
            else:
                self._enter(accesses, key, point)
        for entry, section in uses:
            accesses, key = entry.uses, (lane, section)
            if point is not None and (not accesses or (point is not OPEN and key in accesses)):
                set_access(accesses, key, point)
            else:
                self._enter(accesses, key, point)
        for section in back:
            accesses, key = self.back, (None, section)
            if point is not None and (not accesses or (point is not OPEN and key in accesses)):
                set_access(accesses, key, point)
            else:
                self._enter(accesses, key, point)

    def _enter(self, accesses: Accesses, key: tuple[Any, Section], point: Point | None) -> None:
        if key not in accesses:
            if point is None:
                return
            n = len(accesses)
            if n < FEW and accesses.order is None and accesses.met is None:
                set_access(accesses, key, point)
                return
            if n >= accesses.limit and self.may_query:
                accesses.prune(is_over)
            accesses[key] = point
        elif point is None:
            del accesses[key]
        else:
            earlier = accesses[key]
            if point is OPEN and earlier is not OPEN and key[0] is not None and earlier.event is not None:
                accesses[(key[0],), key[1]] = earlier  # for the end of the entry, which follows no open access
            set_access(accesses, key, point)


def is_open(entry: Entry) -> bool:
    """Tell whether an access of an entry, or of a part, is open."""
    return OPEN in entry.writes.values() or OPEN in entry.uses.values()


def is_over(access: Point) -> bool:
    """Tell whether a lane has passed the point where an access ends."""
    if access is OPEN:
        return False
    event = access.event
    return event is None or bool(event.done)
