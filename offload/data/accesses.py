"""Accesses of the storage of an entry: which parts have been used up to where, and whom an access of a part meets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from offload.arrays.sections import Section, overlaps

if TYPE_CHECKING:
    from collections.abc import Callable


_MANY = 128
"""Accesses of an entry, one for each lane and section, from which on those that are over are looked for."""

FEW = 8
"""Accesses that are looked through one by one: those of a whole array on each of a pool's lanes, mostly."""

_MOST_MET = 256
"""Sections of which it is remembered which accesses they meet."""

set_access = dict.__setitem__
"""Enter an access of a part in `Accesses` that have one of the same key: the order stays as it is."""


class Accesses(dict[tuple[object, Section], Any]):
    """Accesses of parts of a buffer: by the lane and the section, the place on the lane where the access ends.

    The ``event`` of a place is None when the lane is known to have passed it.

    A few are looked through one by one.
    """

    # Accesses from which on it is worth looking which are over; `prune` keeps it at twice what is not.
    limit = _MANY
    # More than a few are kept in the order of their addresses as well: an access of a block looks at its neighbours.
    order: _Order | None = None
    # Which of them a section meets, until one comes or goes: a matrix worked on by blocks asks for these again.
    met: dict[Section, list[tuple[object, Section]]] | None = None

    def __setitem__(self, key: tuple[object, Section], access: object) -> None:
        if key not in self:
            if self.met is not None:
                self.met = None
            if self.order is not None:
                self.order.add(key)
            elif len(self) >= FEW:
                self.order = order = _Order()
                for known in (*self, key):
                    order.add(known)
        set_access(self, key, access)

    def __delitem__(self, key: tuple[object, Section]) -> None:
        super().__delitem__(key)
        self.met = None
        if self.order is not None:
            self.order.remove(key)

    def pop(self, key: tuple[object, Section], default: object = None) -> object:
        if key not in self:
            return default
        access = self[key]
        del self[key]
        return access

    def overlapping(self, section: Section) -> list[Any]:
        """Return the accesses of bytes of a section that are not known to be over; forget all if all are."""
        found: list[Any]
        if self.order is None and self.met is None:
            found, are_over = [], True
            for key in self:
                access = self[key]
                if access.event is not None:
                    are_over = False
                    if key[1] == section or overlaps(key[1], section):
                        found.append(access)
            if are_over:
                dict.clear(self)
            return found
        keys = None if self.met is None else self.met.get(section)
        if keys is None:
            keys = self._meeting(section)
        found, n_over = [], 0
        for key in keys:
            access = self[key]
            if access.event is None:
                n_over += 1
            else:
                found.append(access)
        if n_over == len(self):
            self.clear()
        return found

    def _meeting(self, section: Section) -> list[tuple[object, Section]]:
        """Return the keys whose section shares a byte with this one, or is the same."""
        near = self if self.order is None else self.order.near(section)
        keys = [key for key in near if key[1] == section or overlaps(key[1], section)]
        # Emptied as a whole: which of them are asked for again nobody knows.
        if self.met is None or len(self.met) >= _MOST_MET:
            self.met = {}
        self.met[section] = keys
        return keys

    def prune(self, is_over: Callable[[object], bool]) -> None:
        """Forget accesses that are over."""
        kept = [(key, access) for key, access in self.items() if not is_over(access)]
        self.clear()
        for key, access in kept:
            self[key] = access
        self.limit = max(_MANY, 2 * len(self))

    def clear(self) -> None:
        if self:
            super().clear()
            self.order = self.met = None


class _Order:
    """Keys of accesses, sorted by address."""

    __slots__ = ("_ends", "_keys", "_starts", "_widest")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._keys: list[tuple[object, Section]] = []
        self._widest = 0

    def add(self, key: tuple[object, Section]) -> None:
        low, high = _bounds(key[1])
        at = bisect_right(self._starts, low)
        self._starts.insert(at, low)
        self._ends.insert(at, high)
        self._keys.insert(at, key)
        self._widest = max(self._widest, high - low)

    def remove(self, key: tuple[object, Section]) -> None:
        at = bisect_left(self._starts, key[1][1])
        while self._keys[at] != key:
            at += 1
        del self._starts[at], self._ends[at], self._keys[at]

    def near(self, section: Section) -> list[tuple[object, Section]]:
        """Return those whose bounds meet the section's."""
        low, high = _bounds(section)
        first, last = bisect_right(self._starts, low - self._widest), bisect_left(self._starts, high)
        return [self._keys[at] for at in range(first, last) if self._ends[at] > low]


def _bounds(section: Section) -> tuple[int, int]:
    return section[1], section.end if section[2] else section[1] + section[3]
