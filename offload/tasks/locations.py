"""Which of the storage locations named so far share a byte with a new one.

Theory of operation
-------------------
The question is asked once for each location, and has to cost little when there are ten thousand: arrays, or tiles or
columns of one matrix, all of whose address ranges meet. Tiles differ in their place *within* a row. So
sections are kept by their *period*, the greatest common divisor of their strides: all bytes of a section then lie in
one window of residues, as wide as its run. Two sections have their windows modulo the common divisor of their periods
(a dense piece has a period of 0: any divisor will do), and share a byte only where these meet. The remaining candidates
are looked up by address, and decided by the exact test, `offload.arrays.sections.overlaps`.

Both searches look as far back as the widest run and the longest extent among the sections searched. So that one whole
matrix does not make every search for its rows look at all of them, sections of different orders of magnitude are kept
apart.

Arrays that are made one after the other lie so too, and programs name them in that order. So the search for a dense
section also finds the free addresses after it: the next section, if it lies there, meets no other, and is only put into
a *run*. A run ends with the first section that lies elsewhere. Then its sections are put among the others: these stand
sorted in pieces of some hundred, since to insert into one list of ten thousand moves half of it.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from math import gcd
from typing import TYPE_CHECKING

from offload.arrays.sections import overlaps

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from offload.arrays.sections import Section


_MOST = 128
"""Sections in a piece: one more costs 0.7 µs in pieces of 64 and of 128, 0.9 µs in pieces of 2,048."""

_BEYOND, _NOWHERE = sys.maxsize, -1
"""No section ends behind the one, or before the other."""

_SEVERAL = -1
"""No number of bytes: the sections of a run differ in theirs."""


class Locations:
    """The sections that have been named, of all address spaces."""

    __slots__ = ("_free_from", "_free_in", "_free_to", "_nbytes", "_run", "_spaces")

    def __init__(self) -> None:
        self._spaces: dict[Hashable, _Space] = {}
        self._run: list[Section] = []  # dense ones one behind the other, which are not among the others yet
        self._nbytes = _SEVERAL  # what each of them has, and the one before them
        self._free_in: Hashable = None  # the address space of the room behind the run
        self._free_from, self._free_to = 0, _NOWHERE

    def add(self, section: Section) -> Sequence[Section]:
        """Add a section that is not there yet and return those before it that share a byte with it."""
        space, low, dims, nbytes = section
        high = low + nbytes
        if self._free_from <= low and high <= self._free_to and not dims and space == self._free_in:
            self._free_from = high
            self._run.append(section)
            if nbytes != self._nbytes:
                self._nbytes = _SEVERAL
            return ()
        if self._run:
            self._end_run()
        known = self._spaces.get(space)
        if known is None:
            known = self._spaces[space] = _Space()
        if dims:
            self._free_to = _NOWHERE
            return known.add_strided(section)
        found, end = known.add_dense(section, low, high)
        self._free_in, self._free_from, self._nbytes = space, high, nbytes
        self._free_to = end if nbytes and not found else _NOWHERE
        return found

    def _end_run(self) -> None:
        """Put the sections of the run among the others."""
        self._spaces[self._free_in].add_run(self._run, self._nbytes)
        self._run = []

    def keep(self, is_kept: Callable[[Section], bool]) -> None:
        """Drop the other sections."""
        if self._run:
            self._end_run()
        self._free_to = _NOWHERE
        for known in self._spaces.values():
            known.keep(is_kept)
        self._spaces = {space: known for space, known in self._spaces.items() if known}


class _Space:
    """Those of one address space."""

    __slots__ = ("_dense", "_lattices")

    def __init__(self) -> None:
        self._dense: dict[int, _Ordered] = {}  # by the order of magnitude
        self._lattices: dict[tuple[int, int, int], _Lattice] = {}

    def __bool__(self) -> bool:
        return bool(self._dense or self._lattices)

    def _home(self, nbytes: int) -> _Ordered:
        """Return where dense sections of this order of magnitude are."""
        size = nbytes.bit_length()
        home = self._dense.get(size)
        if home is None:
            home = self._dense[size] = _Ordered()
        return home

    def add_dense(self, section: Section, low: int, high: int) -> tuple[list[Section], int]:
        """Add a dense section; return those before it that share a byte with it, and where the next one begins."""
        home = self._home(high - low)
        found: list[Section] = []
        end = home.add(section, low, high, found)
        if len(self._dense) > 1:
            for other in self._dense.values():
                if other is not home:
                    end = min(end, other.look(low, high, found))
        for lattice in self._lattices.values():
            if high < lattice.high:
                end = min(end, lattice.low)
            if lattice.low < high and low < lattice.high:
                found += lattice.candidates(low, high, high - low, 0)
        return [other for other in found if overlaps(other, section)] if found else found, end

    def add_run(self, run: list[Section], nbytes: int) -> None:
        """Add dense sections in ascending order, all in one room where there is nothing; ``nbytes`` is that of each."""
        if nbytes != _SEVERAL:
            self._home(nbytes).add_run(run, nbytes)
            return
        for size in {section[3].bit_length() for section in run}:
            part = [section for section in run if section[3].bit_length() == size]
            widest = max([section[3] for section in part])
            self._home(widest).add_run(part, widest)

    def add_strided(self, section: Section) -> list[Section]:
        """Add a section that is not dense and return those before it that share a byte with it."""
        _, low, dims, run = section
        high, period = section.end, gcd(*[stride for _, stride in dims])
        found: list[Section] = []
        for dense in self._dense.values():
            dense.look(low, high, found)
        for lattice in self._lattices.values():
            if lattice.low < high and low < lattice.high:
                found += lattice.candidates(low, high, run, period)
        found = [other for other in found if overlaps(other, section)]
        kind = period, run.bit_length(), (high - low).bit_length()
        home = self._lattices.get(kind)
        if home is None:
            home = self._lattices[kind] = _Lattice(period, low, high)
        home.add(section, low, high, run)
        return found

    def keep(self, is_kept: Callable[[Section], bool]) -> None:
        """Drop the other sections."""
        for sections in self._dense.values():
            sections.keep(is_kept)
        for lattice in self._lattices.values():
            lattice.keep(is_kept)
        self._dense = {size: sections for size, sections in self._dense.items() if sections}
        self._lattices = {kind: lattice for kind, lattice in self._lattices.items() if lattice}


class _Lattice:
    """Sections of one period and of similar size, by residue and by address."""

    __slots__ = ("_by_residue", "_period", "_residues", "_sections", "_widest", "high", "low")

    def __init__(self, period: int, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self._period = period
        self._sections = _ByAddress()
        self._residues: list[int] = []
        self._by_residue: dict[int, _ByAddress] = {}
        self._widest = 0

    def add(self, section: Section, low: int, high: int, run: int) -> None:
        if low < self.low:  # noqa: PLR1730  # `min` costs as much as all the rest
            self.low = low
        if high > self.high:  # noqa: PLR1730  # same
            self.high = high
        self._sections.add(section, low, high)
        residue = low % self._period
        sections = self._by_residue.get(residue)
        if sections is None:
            sections = self._by_residue[residue] = _ByAddress()
            insort(self._residues, residue)
        sections.add(section, low, high)
        self._widest = max(self._widest, run)

    def keep(self, is_kept: Callable[[Section], bool]) -> None:
        self._sections.keep(is_kept)
        for sections in self._by_residue.values():
            sections.keep(is_kept)
        self._by_residue = {residue: sections for residue, sections in self._by_residue.items() if sections}
        self._residues = sorted(self._by_residue)

    def __bool__(self) -> bool:
        return bool(self._sections)

    def candidates(self, low: int, high: int, run: int, period: int) -> Iterator[Section]:
        """Yield the sections that may share a byte with a section of these addresses, this run and this period."""
        own, residues = self._period, self._residues
        common = gcd(own, period)
        if run + self._widest > common or own > common * len(residues):
            yield from self._sections.meeting(low, high)
            return
        # Each window begins less than its run below a byte of the other's, modulo the common divisor; the first and
        # the last turn are for those that go beyond the end of the period.
        before, behind = low % common - self._widest, low % common + run
        for turn in range(-common, own + common, common):
            first = bisect_right(residues, turn + before)
            for residue in residues[first : bisect_left(residues, turn + behind, first)]:
                yield from self._by_residue[residue].meeting(low, high)


class _Ordered:
    """Dense sections of similar size, sorted by address, in pieces."""

    __slots__ = ("_firsts", "_longest", "_sections", "_starts")

    def __init__(self) -> None:
        self._starts: list[list[int]] = [[]]
        self._sections: list[list[Section]] = [[]]
        self._firsts: list[int] = []  # of each piece but the first
        self._longest = 0

    def add(self, section: Section, low: int, high: int, found: list[Section]) -> int:
        """Add a section; find those that may share a byte with it, and return the beginning of the next one."""
        here = bisect_right(self._firsts, low)
        starts = self._starts[here]
        at = bisect_right(starts, low)
        behind = starts[at] if at < len(starts) else self._firsts[here] if here < len(self._firsts) else _BEYOND
        if behind < high or (at and starts[at - 1] + self._longest > low):  # none is before a piece but the first
            self.look(low, high, found)
        starts.insert(at, low)
        self._sections[here].insert(at, section)
        if high - low > self._longest:  # noqa: PLR1730  # same
            self._longest = high - low
        if len(starts) >= _MOST:
            self._split(here)
        return behind

    def add_run(self, run: list[Section], widest: int) -> None:
        """Add sections in ascending order between which there are no others."""
        low = run[0][1]
        here = bisect_right(self._firsts, low)
        starts = self._starts[here]
        at = bisect_right(starts, low)
        starts[at:at] = [section[1] for section in run]
        self._sections[here][at:at] = run
        if widest > self._longest:  # noqa: PLR1730  # same
            self._longest = widest
        if len(starts) >= _MOST:
            self._split(here)

    def _split(self, here: int) -> None:
        """Make several pieces of one."""
        starts, sections = self._starts[here], self._sections[here]
        cuts = range(0, len(starts), _MOST // 2)
        self._starts[here : here + 1] = [starts[cut : cut + _MOST // 2] for cut in cuts]
        self._sections[here : here + 1] = [sections[cut : cut + _MOST // 2] for cut in cuts]
        self._firsts[here:here] = [starts[cut] for cut in cuts[1:]]

    def keep(self, is_kept: Callable[[Section], bool]) -> None:
        """Drop the other sections."""
        kept = [section for sections in self._sections for section in sections if is_kept(section)]
        self._sections = [kept[at : at + _MOST] for at in range(0, len(kept), _MOST)] or [[]]
        self._starts = [[section[1] for section in sections] for sections in self._sections]
        self._firsts = [starts[0] for starts in self._starts[1:]]

    def __bool__(self) -> bool:
        return bool(self._starts[0])

    def look(self, low: int, high: int, found: list[Section]) -> int:
        """Find sections that may reach into the addresses ``low`` … ``high``; return the beginning of the next one."""
        least = low - self._longest
        here = bisect_right(self._firsts, least)
        starts = self._starts[here]
        at = bisect_right(starts, least)
        end = bisect_left(starts, high, at)
        while end == len(starts) and here < len(self._firsts):
            found += self._sections[here][at:]
            here += 1
            starts = self._starts[here]
            at, end = 0, bisect_left(starts, high)
        found += self._sections[here][at:end]
        return starts[end] if end < len(starts) else _BEYOND


class _ByAddress:
    """Sections sorted by lowest address."""

    __slots__ = ("_longest", "_sections", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sections: list[Section] = []
        self._longest = 0

    def add(self, section: Section, low: int, high: int) -> None:
        starts = self._starts
        if not starts or low >= starts[-1]:
            starts.append(low)
            self._sections.append(section)
        else:
            at = bisect_right(starts, low)
            starts.insert(at, low)
            self._sections.insert(at, section)
        if high - low > self._longest:  # noqa: PLR1730  # same
            self._longest = high - low

    def keep(self, is_kept: Callable[[Section], bool]) -> None:
        self._sections = [section for section in self._sections if is_kept(section)]
        self._starts = [section[1] for section in self._sections]

    def __bool__(self) -> bool:
        return bool(self._sections)

    def meeting(self, low: int, high: int) -> list[Section]:
        """Return the sections that may reach into the addresses from ``low`` up to ``high``."""
        first = bisect_right(self._starts, low - self._longest)
        return self._sections[first : bisect_left(self._starts, high, first)]
