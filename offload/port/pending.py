"""Accesses of storages that are looked up by the bytes that they may share.

Accesses of one storage stand in lists by the size of their span, a power of two. Each list is sorted by the first
byte, so the accesses that may meet a span lie in one range of each list.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offload.port.extents import AccessPart

Value = TypeVar("Value")


class PendingAccesses(Generic[Value]):
    """Accesses with a value each.

    Examples
    --------
    >>> from offload.arrays.sections import Section
    >>> from offload.port.pending import PendingAccesses
    >>> pending = PendingAccesses()
    >>> for row in range(3):
    ...     pending.add(Section(0, 80 * row, (), 80), f"row {row}")
    >>> [value for part, value in pending.near(Section(0, 100, (), 70))]
    ['row 1']
    """

    __slots__ = ("_lists", "_number")

    def __init__(self) -> None:
        self._lists: dict[object, dict[int, list[tuple[int, int, AccessPart, Value]]]] = {}
        self._number = 0  # makes entries of one place comparable

    def add(self, part: AccessPart, value: Value) -> None:
        """Add an access."""
        self._number += 1
        sizes = self._lists.setdefault(part.space, {})
        entries = sizes.setdefault((part.end - part.address).bit_length(), [])
        insort(entries, (part.address, self._number, part, value))

    def near(self, part: AccessPart) -> Iterator[tuple[AccessPart, Value]]:
        """Yield the accesses whose spans meet a part's, with their values."""
        for entries, first, stop in self._ranges(part):
            for _, _, other, value in entries[first:stop]:
                if other.end > part.address:
                    yield other, value

    def drop(self, part: AccessPart, is_over: Callable[[AccessPart, Value], bool]) -> None:
        """Drop the accesses whose spans meet a part's, and for which a function returns true."""
        for entries, first, stop in self._ranges(part):
            kept = [entry for entry in entries[first:stop] if not is_over(entry[2], entry[3])]
            if len(kept) < stop - first:
                entries[first:stop] = kept

    def _ranges(self, part: AccessPart) -> Iterator[tuple[list[tuple[int, int, AccessPart, Value]], int, int]]:
        for bits, entries in self._lists.get(part.space, {}).items():
            first = bisect_left(entries, (part.address - (1 << bits) + 1,))
            stop = bisect_left(entries, (part.end,))
            if first < stop:
                yield entries, first, stop
