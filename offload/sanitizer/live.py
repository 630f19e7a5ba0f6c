"""The accesses that a later one may still be in a race with, by the storage that they touch.

Theory of operation
-------------------
*Places.* Each layout in memory that is accessed is a place: an address, a shape and strides. Most programs access the
same arrays again and again, so one lookup finds the place. A new place is linked with each place that shares a byte
with it. Intervals that overlap are found in a grid for each size: an interval of up to 2^k bytes lies in one or two
cells of that size. Whether two strided views share a byte is decided by `numpy.shares_memory`, with bounded work, and
by addresses if one of them is `Scattered`. A pair that cannot be decided is not linked.

*Groups.* The accesses of one side and of one chain of stretches are a group. Those that come before a new stretch are
the first ones of a group, and those that come after it are the last ones. So the unordered ones lie in between, and are
found by bisection.

*Forgetting.* An access is forgotten once a write has covered all its bytes that comes after it, unless few accesses
stand at its place. A race with that access is then found as a race with the write only. If very many groups stand at a
place, the oldest and the newest of each side stay.

*Spaces.* The addresses of an access can be shifted. Storage that a device has now for some host memory is thereby
compared with the storage that it had for that before.

Only addresses are kept, no arrays: storage can be freed, and `LiveAccesses.freed` says so. This module takes no lock.
Its caller lets one thread in at a time.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.arrays.items import address_of
from offload.sanitizer.elements import MemoryAt, Scattered, byte_bounds, overlaps
from offload.sanitizer.memory import shared_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from offload.sanitizer.clocks import Order
    from offload.sanitizer.states import Runs

_REMEMBERED = 8
"""The groups of a place, and the accesses of a group, that stay although a write has covered them."""

_FIRST_PRUNING = 64
"""Groups at a place before some of each side are dropped."""

_KEPT = 8
"""The oldest groups of a side that stay then, and the newest ones."""

_FIRST_SWEEP = 1024
"""Places before those without accesses are dropped; then whenever their number has doubled."""


class Conflict(NamedTuple):
    """Earlier accesses of one side that nothing orders with an access: their number, and the last stretch of theirs.

    ``runs`` are the bytes that both accesses have, at the shifted addresses.
    """

    side: Any
    number: int
    stretch: int
    runs: Runs


class _LiveGroup:
    """The accesses of one side by one chain of stretches at one place."""

    __slots__ = ("chain", "side", "stretches", "writes")

    def __init__(self, chain: int, side: Any, stretch: int, *, writes: bool) -> None:
        self.chain = chain
        self.side = side
        self.writes = writes
        self.stretches = [stretch]


class _Place:
    """A layout in memory, and the live accesses of exactly that."""

    __slots__ = ("groups", "high", "key", "limit", "links", "low", "own", "view")

    def __init__(self, key: Hashable, low: int, high: int, view: Any) -> None:
        self.key = key
        # The addresses of its bytes, up to `high`, and without a gap if there is no view.
        self.low, self.high = low, high
        self.view = view
        self.groups: list[_LiveGroup] = []
        self.limit = _FIRST_PRUNING
        self.own = _Link(self, self, covers=view is None)
        # The other places that share a byte with it.
        self.links: list[_Link] = []

    def as_array(self) -> np.ndarray[Any, Any]:
        if self.view is not None:
            return np.asanyarray(self.view)
        return np.asarray(MemoryAt(self.low, (self.high - self.low,), (1,), 1))

    def shares_memory(self, other: _Place) -> bool:
        """Tell whether two places, whose intervals overlap, have a byte in common."""
        if self.view is None and other.view is None:
            return True
        return overlaps(self.as_array(), other.as_array()) is True

    def covers(self, other: _Place) -> bool:
        """Tell whether all bytes of another place are certainly among those of this one."""
        return self.view is None and self.low <= other.low and other.high <= self.high


class _Link:
    """A place that shares bytes with another one, whether that covers all of its bytes, and which bytes they share."""

    __slots__ = ("_runs", "covers", "place", "to")

    def __init__(self, place: _Place, to: _Place, *, covers: bool) -> None:
        self.place = place
        self.to = to
        self.covers = covers
        self._runs: Runs | None = None  # few pairs of places are ever in a race

    @property
    def runs(self) -> Runs:
        if self._runs is None:
            one, other = self.place, self.to
            if one.view is None and other.view is None:
                self._runs = ((max(one.low, other.low), min(one.high, other.high)),)
            else:
                self._runs = shared_runs(one.as_array(), other.as_array())
        return self._runs


class LiveAccesses:
    """The accesses that later ones are compared with.

    Parameters
    ----------
    order : Order
        The order of the stretches.
    forgets : bool
        Whether accesses are dropped that an ordered write covers, where there are many. Without that, each pair is
        found, and the time and the memory grow with the number of accesses.
    compares : callable, optional
        Says of two unordered stretches whether their accesses conflict. Without it all do.

    Examples
    --------
    >>> import numpy as np
    >>> from offload.sanitizer.clocks import Order
    >>> from offload.sanitizer.live import LiveAccesses
    >>> order, x = Order(), np.zeros(4)
    >>> live = LiveAccesses(order)
    >>> host = order.stretch()
    >>> task, goes_on = order.fork(host), order.stretch(host)
    >>> live.note(task, x, True, "task")
    []
    >>> live.note(goes_on, x[2:], False, "host")
    ['task']
    """

    def __init__(
        self, order: Order, *, forgets: bool = True, compares: Callable[[int, int], bool] | None = None
    ) -> None:
        self._order = order
        self._forgets = forgets
        self._compares = compares
        self._places: dict[Hashable, _Place] = {}
        # By the size of an interval as a power of two: cells of that size, and the places that reach into them.
        self._grids: dict[int, dict[int, list[_Place]]] = {}
        self._limit = _FIRST_SWEEP

    def __len__(self) -> int:
        return sum(len(group.stretches) for place in self._places.values() for group in place.groups)

    def note(self, stretch: int, array: np.ndarray[Any, Any], writes: bool, side: Any) -> list[Any]:
        """Note an access; return the sides of earlier ones that it conflicts with and that nothing orders.

        Parameters
        ----------
        stretch : int
            The stretch that accesses the array.
        array : numpy.ndarray
            The elements that are accessed. The array itself is not kept.
        writes : bool
            Whether the access writes.
        side : object
            Anything that says where the access stands; equal sides are counted together.

        Returns
        -------
        list
            Each side once for each place and chain of stretches; `conflicts` says how many accesses that are.
        """
        return [conflict.side for conflict in self.conflicts(stretch, array, writes, side)]

    def conflicts(
        self, stretch: int, array: np.ndarray[Any, Any], writes: bool, side: Any, shift: int = 0
    ) -> list[Conflict]:
        """Note an access as `note` does, with its addresses shifted; return its conflicts.

        An access that a stretch has made before has none: each pair is counted once, whichever came first.
        """
        place = self._place_of(array, shift)
        if place is None:
            return []
        group = self._group_of(place, stretch, side, writes=writes)
        if group is not None and stretch <= group.stretches[-1] and stretch in group.stretches:
            return []  # mostly it is the last one
        found = self._compare(place, stretch, writes=writes, forgets=writes and self._forgets)
        if group is None or not group.stretches:
            place.groups.append(_LiveGroup(self._order.chain(stretch), side, stretch, writes=writes))
            if self._forgets and len(place.groups) >= place.limit:
                place.groups = _thinned(place.groups)
                place.limit = max(_FIRST_PRUNING, 2 * len(place.groups))
        else:
            insort(group.stretches, stretch)
        return found

    def unordered(self, stretch: int, array: np.ndarray[Any, Any], writes: bool, shift: int = 0) -> list[Conflict]:
        """Return what `conflicts` would return for an access, without a note of it."""
        place = self._place_of(array, shift)
        return [] if place is None else self._compare(place, stretch, writes=writes, forgets=False)

    def freed(self, low: int, high: int) -> None:
        """Forget the accesses to these addresses, up to ``high``, whose memory is used for something else from now on.

        They do not conflict with the accesses of the new owner.
        """
        for place in self._meeting(low, high):
            self._drop(place)

    def stretches(self, low: int, high: int) -> list[int]:
        """Return the latest stretches that have accessed these addresses, one for each chain at each place."""
        return [group.stretches[-1] for place in self._meeting(low, high) for group in place.groups if group.stretches]

    # -- comparing -----------------------------------------------------------------------------------
    def _group_of(self, place: _Place, stretch: int, side: Any, *, writes: bool) -> _LiveGroup | None:
        """Return the group that an access belongs to, if there is one."""
        chain = self._order.chain(stretch)
        for group in place.groups:
            if group.chain == chain and group.writes == writes and group.side == side:
                return group
        return None

    def _compare(self, place: _Place, stretch: int, *, writes: bool, forgets: bool) -> list[Conflict]:
        """Compare a stretch's access with those that share a byte; if it ``forgets``, drop those that it covers."""
        found: list[Conflict] = []
        for link in (place.own, *place.links):
            if link.place.groups:
                self._compare_with(link, stretch, found, writes=writes, forgets=forgets and link.covers)
        return found

    def _compare_with(self, link: _Link, stretch: int, found: list[Conflict], *, writes: bool, forgets: bool) -> None:
        """Compare a stretch's access with those at a place."""
        is_before, place = self._order.is_before, link.place
        is_over = False
        for group in place.groups:
            if not (writes or group.writes):
                continue
            stretches = group.stretches
            last = stretches[-1]
            if last == stretch:
                continue  # it stays: a read and a write of one stretch are two sides of a race
            if is_before(last, stretch):
                if forgets:
                    is_over = len(place.groups) > _REMEMBERED
                    del stretches[: None if is_over else -_REMEMBERED]
                continue
            n_before = self._count_before(stretches, stretch)
            n_until = self._count_until(stretches, n_before, stretch)
            if n_until > n_before:
                compares, unordered = self._compares, stretches[n_before:n_until]
                if compares is not None:
                    unordered = [other for other in unordered if compares(other, stretch)]
                if unordered:
                    found.append(Conflict(group.side, len(unordered), unordered[-1], link.runs))
            if forgets and n_before > _REMEMBERED:
                del stretches[: n_before - _REMEMBERED]
        if is_over:
            place.groups = [group for group in place.groups if group.stretches]

    def _count_before(self, stretches: list[int], stretch: int) -> int:
        """Return how many stretches of a chain, the first ones, are the stretch itself or come before it."""
        is_before = self._order.is_before
        low, high = 0, len(stretches) - 1  # the last one does not
        while low < high:
            middle = (low + high) // 2
            if stretches[middle] == stretch or is_before(stretches[middle], stretch):
                low = middle + 1
            else:
                high = middle
        return low

    def _count_until(self, stretches: list[int], first: int, stretch: int) -> int:
        """Return the number of stretches of a chain without the last ones, which come after the stretch."""
        is_before = self._order.is_before
        low, high = first, len(stretches)
        while low < high:
            middle = (low + high) // 2
            if is_before(stretch, stretches[middle]):
                high = middle
            else:
                low = middle + 1
        return low

    # -- places --------------------------------------------------------------------------------------
    def _place_of(self, array: np.ndarray[Any, Any], shift: int) -> _Place | None:
        """Return the place of an array; None if it has no bytes, or if they are not known."""
        address, nbytes = address_of(array) + shift, array.nbytes
        if not nbytes:
            return None
        if isinstance(array, Scattered):
            return self._scattered_place(array, shift)
        is_whole = array.flags.forc
        key: Hashable = (address, nbytes) if is_whole else (address, array.shape, array.strides, array.itemsize)
        place = self._places.get(key)
        if place is None:
            low, high = byte_bounds(array)
            view = None if is_whole else MemoryAt(address, array.shape, array.strides, array.itemsize)
            place = self._linked(_Place(key, low + shift, high + shift, view))
        return place

    def _scattered_place(self, array: Scattered, shift: int) -> _Place | None:
        """Return the place of scattered elements; None if it is not known which ones they are."""
        if array.addresses is None:
            return None
        addresses = array.addresses + shift if shift else array.addresses
        low, high = int(addresses[0]), int(addresses[-1]) + array.itemsize
        key = low, high, array.itemsize, hash(addresses.tobytes())
        place = self._places.get(key)
        if place is None:
            # The first element and the last one: those between are known by their addresses.
            ends = MemoryAt(low, (2,), (high - low - array.itemsize,), array.itemsize)
            view = np.asarray(ends).view(Scattered)
            view.addresses = addresses
            place = self._linked(_Place(key, low, high, view))
        return place

    def _linked(self, place: _Place) -> _Place:
        """Take in a new place."""
        if len(self._places) >= self._limit:
            self._sweep()
        for other in self._meeting(place.low, place.high):
            if place.shares_memory(other):
                place.links.append(_Link(other, place, covers=place.covers(other)))
                other.links.append(_Link(place, other, covers=other.covers(place)))
        self._places[place.key] = place
        for cell in self._cells_of(place):
            cell.append(place)
        return place

    def _cells_of(self, place: _Place) -> Iterable[list[_Place]]:
        bits = (place.high - place.low - 1).bit_length()
        grid = self._grids.setdefault(bits, {})
        numbers = {place.low >> bits, (place.high - 1) >> bits}
        return [grid.setdefault(number, []) for number in numbers]

    def _meeting(self, low: int, high: int) -> list[_Place]:
        """Return the places whose interval overlaps these addresses."""
        found: dict[_Place, None] = {}
        for bits, grid in self._grids.items():
            first, last = low >> bits, (high - 1) >> bits
            if last - first < len(grid):
                cells: Iterable[Any] = [grid.get(number, ()) for number in range(first, last + 1)]
            else:
                cells = grid.values()
            for cell in cells:
                for place in cell:
                    if place.low < high and low < place.high:
                        found[place] = None
        return list(found)

    def _drop(self, place: _Place) -> None:
        """Take a place out."""
        del self._places[place.key]
        for link in place.links:
            link.place.links = [back for back in link.place.links if back.place is not place]
        bits = (place.high - place.low - 1).bit_length()
        grid = self._grids[bits]
        for number in {place.low >> bits, (place.high - 1) >> bits}:
            grid[number].remove(place)
            if not grid[number]:
                del grid[number]
        if not grid:
            del self._grids[bits]

    def _sweep(self) -> None:
        """Take out the places that have no accesses."""
        for place in [place for place in self._places.values() if not place.groups]:
            self._drop(place)
        self._limit = max(_FIRST_SWEEP, 2 * len(self._places))


def _thinned(groups: list[_LiveGroup]) -> list[_LiveGroup]:
    """Return the oldest and the newest groups of each side."""
    by_side: dict[Any, list[_LiveGroup]] = {}
    for group in groups:
        by_side.setdefault((group.side, group.writes), []).append(group)
    kept = {
        id(group)
        for same in by_side.values()
        for group in (same if len(same) <= 2 * _KEPT else same[:_KEPT] + same[-_KEPT:])
    }
    return [group for group in groups if id(group) in kept]
