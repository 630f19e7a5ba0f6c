"""Copies back to host storage that is mapped no more, until they have arrived.

The end of a mapping takes its entry out of the present table at once, but its copy to the host takes time. A construct
that maps the same bytes anew meanwhile has to follow that copy, or it would send the device what the host held before:
the counting and the transfers of one construct are one step for all others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from offload.storage import Section, overlaps

if TYPE_CHECKING:
    from collections.abc import Iterator


class Leaving:
    """The bytes of one copy back; ``point`` says where on which stream it ends, None while it is being enqueued."""

    __slots__ = ("point", "section")

    def __init__(self, section: Section) -> None:
        self.section = section
        self.point: Any = None


class LeavingIndex:
    """Copies under way, sorted by address. Not locked: the caller orders the calls."""

    __slots__ = ("_copies", "_reach", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._copies: list[Leaving] = []
        self._reach = 0  # the longest extent so far: none that begins further down can meet a section

    def __len__(self) -> int:
        return len(self._copies)

    def add(self, section: Section) -> Leaving:
        """Enter a copy that is about to be enqueued."""
        copy = Leaving(section)
        at = bisect_right(self._starts, section.address)
        self._starts.insert(at, section.address)
        self._copies.insert(at, copy)
        self._reach = max(self._reach, section.end - section.address)
        return copy

    def remove(self, copy: Leaving) -> None:
        """Forget a copy that has arrived, or never will."""
        at = bisect_left(self._starts, copy.section.address)
        while self._copies[at] is not copy:
            at += 1
        del self._starts[at], self._copies[at]
        if not self._copies:
            self._reach = 0

    def meeting(self, section: Section) -> Iterator[Leaving]:
        """Yield the copies that share a byte with ``section``."""
        first = bisect_right(self._starts, section.address - self._reach)
        last = bisect_left(self._starts, section.end, first)
        for copy in self._copies[first:last]:
            if overlaps(copy.section, section):
                yield copy
