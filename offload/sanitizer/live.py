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

*Forgetting.* An access is forgotten once a write has covered all its bytes that comes after it. A race with that access
is then found as a race with the write. If very many groups stand at a place, the oldest and the newest of each side
stay.

Only addresses are kept, no arrays: storage can be freed, and `LiveAccesses.freed` says so. Nothing here takes a lock:
the caller lets one thread in at a time.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import address_of
from offload.sanitizer.elements import Scattered, byte_bounds, overlaps

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from offload.sanitizer.clocks import Order

_FIRST_PRUNING = 64
"""Groups at a place before some of each side are dropped."""

_KEPT = 8
"""The oldest groups of a side that stay then, and the newest ones."""

_FIRST_SWEEP = 1024
"""Places before those without accesses are dropped; then whenever their number has doubled."""


class _Described:
    """Memory as NumPy wants it described, to make an array that is only asked for its layout."""

    __slots__ = ("__array_interface__",)

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{itemsize}",
            "version": 3,
        }


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

    __slots__ = ("groups", "high", "key", "limit", "links", "low", "view")

    def __init__(self, key: Hashable, low: int, high: int, view: Any) -> None:
        self.key = key
        # The addresses of its bytes, up to `high`, and without a gap if there is no view.
        self.low, self.high = low, high
        self.view = view
        self.groups: list[_LiveGroup] = []
        self.limit = _FIRST_PRUNING
        # The other places that share a byte with it, and whether it covers all of theirs.
        self.links: list[tuple[_Place, bool]] = []

    def shares_memory(self, other: _Place) -> bool:
        """Tell whether two places, whose intervals overlap, have a byte in common."""
        if self.view is None and other.view is None:
            return True
        return overlaps(self.as_array(), other.as_array()) is True

    def as_array(self) -> np.ndarray[Any, Any]:
        if isinstance(self.view, Scattered):
            return self.view
        return np.asarray(self.view or _Described(self.low, (self.high - self.low,), (1,), 1))

    def covers(self, other: _Place) -> bool:
        """Tell whether all bytes of another place are certainly among those of this one."""
        return self.view is None and self.low <= other.low and other.high <= self.high


class LiveAccesses:
    """The accesses that later ones are compared with.

    Parameters
    ----------
    order : Order
        The order of the stretches.
    forgets : bool
        Whether accesses are dropped that an ordered write covers. Without that, each pair is found, and the time and
        the memory grow with the number of accesses.
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
            Each side once for each place and chain of stretches; `count` says how many accesses that are.
        """
        return [side for side, _ in self.count(stretch, array, writes, side)]

    def count(self, stretch: int, array: np.ndarray[Any, Any], writes: bool, side: Any) -> list[tuple[Any, int]]:
        """Note an access as `note` does; return pairs of a side and the number of its unordered accesses."""
        return [(side, n) for side, n, _ in self.conflicts(stretch, array, writes, side)]

    def conflicts(
        self, stretch: int, array: np.ndarray[Any, Any], writes: bool, side: Any
    ) -> list[tuple[Any, int, int]]:
        """Note an access as `note` does; return sides, the number of their unordered accesses, and the last stretch."""
        place = self._place_of(array)
        if place is None:
            return []
        found: list[tuple[Any, int, int]] = []
        if place.groups:
            self._compare(place, stretch, found, writes=writes, covers=True)
        for other, covers in place.links:
            if other.groups:
                self._compare(other, stretch, found, writes=writes, covers=covers)
        self._enter(place, stretch, side, writes=writes)
        return found

    def unordered(self, stretch: int, array: np.ndarray[Any, Any], writes: bool) -> list[tuple[Any, int, int]]:
        """Return what `conflicts` would return for an access, without a note of it."""
        place = self._place_of(array)
        if place is None:
            return []
        found: list[tuple[Any, int, int]] = []
        for other in (place, *[other for other, _ in place.links]):
            if other.groups:
                self._compare(other, stretch, found, writes=writes, covers=False)
        return found

    def freed(self, low: int, high: int) -> None:
        """Forget the accesses to these addresses, up to ``high``, whose memory is used for something else from now on.

        They do not conflict with the accesses of the new owner.
        """
        for place in self._meeting(low, high):
            self._drop(place)

    # -- comparing -----------------------------------------------------------------------------------
    def _compare(
        self, place: _Place, stretch: int, found: list[tuple[Any, int, int]], *, writes: bool, covers: bool
    ) -> None:
        """Compare a stretch's access with those at a place, and forget those that it covers."""
        is_before = self._order.is_before
        forgets = writes and covers and self._forgets
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
                    stretches.clear()
                    is_over = True
                continue
            n_before = self._count_before(stretches, stretch)
            n_until = self._count_until(stretches, n_before, stretch)
            if n_until > n_before:
                compares, unordered = self._compares, stretches[n_before:n_until]
                if compares is not None:
                    unordered = [other for other in unordered if compares(other, stretch)]
                if unordered:
                    found.append((group.side, len(unordered), unordered[-1]))
            if forgets and n_before:
                del stretches[:n_before]
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

    def _enter(self, place: _Place, stretch: int, side: Any, *, writes: bool) -> None:
        """Note a stretch in the group that it belongs to."""
        chain = self._order.chain(stretch)
        for group in place.groups:
            if group.chain == chain and group.writes == writes and group.side == side:
                stretches = group.stretches
                if stretch > stretches[-1]:
                    stretches.append(stretch)
                elif stretch not in stretches:  # usually it is the last one
                    insort(stretches, stretch)
                return
        place.groups.append(_LiveGroup(chain, side, stretch, writes=writes))
        if self._forgets and len(place.groups) >= place.limit:
            place.groups = _thinned(place.groups)
            place.limit = max(_FIRST_PRUNING, 2 * len(place.groups))

    # -- places --------------------------------------------------------------------------------------
    def _place_of(self, array: np.ndarray[Any, Any]) -> _Place | None:
        """Return the place of an array; None if it has no bytes."""
        address, nbytes = address_of(array), array.nbytes
        if not nbytes:
            return None
        if isinstance(array, Scattered):
            return self._scattered_place(array)
        is_whole = array.flags.forc
        key: Hashable = (address, nbytes) if is_whole else (address, array.shape, array.strides, array.itemsize)
        place = self._places.get(key)
        return self._new_place(key, array, address, is_whole=is_whole) if place is None else place

    def _new_place(self, key: Hashable, array: np.ndarray[Any, Any], address: int, *, is_whole: bool) -> _Place:
        if len(self._places) >= self._limit:
            self._sweep()
        if is_whole:
            place = _Place(key, address, address + array.nbytes, None)
        else:
            low, high = address, address + array.itemsize
            for n, stride in zip(array.shape, array.strides, strict=True):
                reach = (n - 1) * stride
                low, high = (low, high + reach) if reach > 0 else (low + reach, high)
            place = _Place(key, low, high, _Described(address, array.shape, array.strides, array.itemsize))
        return self._linked(place)

    def _scattered_place(self, array: Scattered) -> _Place | None:
        """Return the place of scattered elements; None if it is not known which ones they are."""
        if array.addresses is None:
            return None
        low, high = byte_bounds(array)
        key = low, high, array.itemsize, hash(array.addresses.tobytes())
        place = self._places.get(key)
        if place is None:
            # The first element and the last one: those between are known by their addresses.
            ends = _Described(low, (2,), (high - low - array.itemsize,), array.itemsize)
            view = np.asarray(ends).view(Scattered)
            view.addresses = array.addresses
            place = self._linked(_Place(key, low, high, view))
        return place

    def _linked(self, place: _Place) -> _Place:
        """Take in a new place."""
        for other in self._meeting(place.low, place.high):
            if place.shares_memory(other):
                place.links.append((other, place.covers(other)))
                other.links.append((place, other.covers(place)))
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
        for other, _ in place.links:
            other.links = [link for link in other.links if link[0] is not place]
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
