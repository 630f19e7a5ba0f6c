"""Copies back to host storage that is mapped no more, until they have arrived.

The end of a mapping takes its entry out of the present table at once, but its copy to the host takes time. A construct
that maps the same bytes anew meanwhile has to follow that copy, or it would send the device what the host held before:
the counting and the transfers of one construct are one step for all others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

from offload.arrays.sections import Section, overlaps


class CopyBack:
    """The bytes of one copy back.

    ``point`` says where on which lane it ends. Where it ``is_followed``, another one of the same bytes has taken its
    place.
    """

    __slots__ = ("is_followed", "point", "section")

    def __init__(self, section: Section, point: Any) -> None:
        self.section = section
        self.point = point
        self.is_followed = False


class CopiesBack:
    """Copies under way, ``copies``, sorted by address. Not locked: the caller orders the calls."""

    __slots__ = ("_reach", "_starts", "copies")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self.copies: list[CopyBack] = []
        self._reach = 0  # the longest extent so far: none that begins further down can meet a section

    def add(self, section: Section, point: Any) -> CopyBack:
        """Enter a copy, and where it ends."""
        copy = CopyBack(section, point)
        at = bisect_right(self._starts, section.address)
        if at and (known := self.copies[at - 1]).section == section:
            known.is_followed = True
            self.copies[at - 1] = copy  # it follows that one, and so does what follows it
            return copy
        self._starts.insert(at, section.address)
        self.copies.insert(at, copy)
        end = section.end if section[2] else section[1] + section[3]
        self._reach = max(self._reach, end - section[1])
        return copy

    def remove(self, copy: CopyBack) -> None:
        """Forget a copy that has arrived, or never will, unless one that follows it has taken its place."""
        if copy.is_followed:
            return
        starts, address = self._starts, copy.section.address
        at = self.copies.index(copy, bisect_left(starts, address), bisect_right(starts, address))
        del starts[at], self.copies[at]
        if not self.copies:
            self._reach = 0

    def meeting(self, section: Section) -> list[CopyBack]:
        """Return the copies that share a byte with ``section``."""
        copies = self.copies
        if not copies or (len(copies) == 1 and copies[0].section == section):  # an array that is mapped again and again
            return copies
        first = bisect_right(self._starts, section.address - self._reach)
        last = bisect_left(self._starts, section.end, first)
        return [copy for copy in copies[first:last] if overlaps(copy.section, section)]
