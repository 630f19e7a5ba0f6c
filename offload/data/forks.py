"""Forks: one device task on the lanes of several devices.

The task belongs to the device of its own lane, the primary. Its work on the others begins after a mark there, and the
primary's lane goes on after a mark on each of theirs. So to its successors and waits it is a task of one device.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from offload.data.ledger import PutOffError
from offload.errors import DeviceLostError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.data.protocols import AnyPlace
    from offload.devices.streams import Lane, Point


class Marks(Protocol):
    """The object that finds out that marks have passed, and has their events reused; `offload.events.gate.Gate`."""

    def add(self, point: Point, item: _Mark) -> None: ...


class Fork:
    """Lanes of several places, of which the others' follow the primary's.

    Parameters
    ----------
    gate : Gate
    lane : Lane
        The primary's.
    places : sequence of environment
        The places, on different devices of one kind, the primary first.
    may_be_put_off : bool
        False: where a place has no lane left one is used that others use too.

    Raises
    ------
    PutOffError
        A place has no lane left, and it may be put off; no lane is held.
    """

    __slots__ = ("_borrowed", "_gate", "lanes")

    def __init__(self, gate: Marks, lane: Lane, places: Sequence[AnyPlace], *, may_be_put_off: bool = True) -> None:
        # Lanes that others use too, which are not given back.
        self._borrowed: list[Lane] = []
        self._gate = gate
        # In the order of the places; the others than the primary's are its own until `join` or `give_back`.
        self.lanes = [lane]
        if len(places) < 2:
            return
        # What is enqueued on the others begins behind what the task has followed.
        start = lane.mark()
        gate.add(start, _Mark(start))
        try:
            for place in places[1:]:
                other = place.pool.acquire_joined(lane)
                if other is None:
                    if may_be_put_off:
                        raise PutOffError(place)  # noqa: TRY301  # as what the device raises
                    other = place.pool.next()
                    self._borrowed.append(other)
                self.lanes.append(other)
                other.wait_for((start,))
        except BaseException:
            self.give_back()
            raise

    def meet(self) -> None:
        """Have the primary's lane follow the others as far as they are now."""
        lane = self.lanes[0]
        points = [other.mark() for other in self.lanes[1:]]
        lane.wait_for(points)
        for point in points:
            self._gate.add(point, _Mark(point))

    def align(self) -> None:
        """Have all lanes follow each other as far as they are now."""
        self.meet()
        point = self.lanes[0].mark()
        for other in self.lanes[1:]:
            other.wait_for((point,))
        self._gate.add(point, _Mark(point))

    def join(self) -> None:
        """Join the lanes as `meet` does, and give the other lanes back."""
        try:
            while len(self.lanes) > 1:
                self._join_one()
        except BaseException:
            self.give_back()
            raise

    def give_back(self) -> None:
        """Join the lanes after a failure: do not wait for a lost device."""
        while len(self.lanes) > 1:
            with suppress(DeviceLostError):
                self._join_one(checks=True)

    def _join_one(self, *, checks: bool = False) -> None:
        other, point = self.lanes.pop(), None
        try:
            if checks:
                other.device.check(other.stream)
            point = other.mark()
            self.lanes[0].wait_for((point,))
            # The next fork of this lane takes the same one: what it has joined needs no event.
            if other.pool is not None:
                self.lanes[0].joined[other.pool] = other
            self._gate.add(point, _Mark(point))
        finally:
            if other not in self._borrowed:
                other.release(point)


class _Mark:
    """Hears from the gate that a mark has passed."""

    __slots__ = ("_point",)

    is_quiet = True

    def __init__(self, point: Point) -> None:
        self._point = point

    def passed(self, error: BaseException | None) -> None:
        if error is None:
            self._point.lane.note_passed(self._point, 0.0)
