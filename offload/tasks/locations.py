"""Which of the storage locations named so far share a byte with a new one.

Theory of operation
-------------------
The question is asked once for each location, and has to cost little when there are ten thousand: arrays, or tiles or
columns of one matrix, all of whose address ranges meet. What keeps tiles apart is their place *within* a row. So
sections are kept by their *period*, the greatest common divisor of their strides: all bytes of a section then lie in
one window of residues, as wide as its run. Two sections have their windows modulo the common divisor of their periods
(a dense piece has a period of 0: any divisor will do), and share a byte only where these meet. What is left is looked
up by address, and decided by the exact test, `offload.arrays.sections.overlaps`.

Both searches look as far back as the widest run and the longest extent among the sections searched. So that one whole
matrix does not make every search for its rows look at all of them, sections of different orders of magnitude are kept
apart.

Dense sections, arrays for the most part, stand sorted in pieces of some hundred: to insert into one list of ten
thousand moves half of it. Their neighbours there tell whether there is anything to look for. The place of the last one
is remembered, since arrays that are made one after the other lie so too, and programs name them in that order: then
neither the piece nor the place in it is searched for.

Rejected: sorting by address alone (each of 10,000 columns would be tested against all others); an interval tree over
addresses (the columns of a matrix all lie in one interval); a grid of pages (not exact, and many for a large array); a
hash of granules as large as the sections (as fast, and a search for something large looks at many).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from math import gcd
from typing import TYPE_CHECKING, Any

from offload.arrays.sections import overlaps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offload.arrays.sections import Section


_MOST = 128
"""Cells in a piece: one more costs 0.7 µs in pieces of 64 and of 128, 0.9 µs in pieces of 2,048."""


class Space:
    """The cells of one address space; a cell has a `Section` for its ``key``."""

    __slots__ = ("_dense", "_lattices")

    def __init__(self) -> None:
        self._dense: dict[int, _Ordered] = {}  # by the order of magnitude
        self._lattices: dict[tuple[int, int, int], _Lattice] = {}

    def add(self, cell: Any) -> list[Any]:
        """Add a cell and return those before it that share a byte with it."""
        section: Section = cell.key
        _, low, dims, run = section
        if dims:
            return self._add_strided(cell, section)
        high = low + run
        size = run.bit_length()
        home = self._dense.get(size)
        if home is None:
            home = self._dense[size] = _Ordered()
        found: list[Any] = []
        if len(self._dense) > 1:
            for other in self._dense.values():
                if other is not home and other.may_meet(low, high):
                    found += other.meeting(low, high)
        if self._lattices:
            for lattice in self._lattices.values():
                if lattice.low < high and low < lattice.high:
                    found += lattice.candidates(low, high, run, 0)
        if home.add(cell, low, high):
            found += [other for other in home.meeting(low, high) if other is not cell]
        return [other for other in found if overlaps(other.key, section)] if found else found

    def _add_strided(self, cell: Any, section: Section) -> list[Any]:
        _, low, dims, run = section
        high, period = section.end, gcd(*[stride for _, stride in dims])
        found: list[Any] = []
        for dense in self._dense.values():
            if dense.may_meet(low, high):
                found += dense.meeting(low, high)
        for lattice in self._lattices.values():
            if lattice.low < high and low < lattice.high:
                found += lattice.candidates(low, high, run, period)
        kind = period, run.bit_length(), (high - low).bit_length()
        home = self._lattices.get(kind)
        if home is None:
            home = self._lattices[kind] = _Lattice(period, low, high)
        home.add(cell, low, high, run)
        return [other for other in found if overlaps(other.key, section)]

    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        """Drop the other cells."""
        for cells in self._dense.values():
            cells.keep(is_kept)
        for lattice in self._lattices.values():
            lattice.keep(is_kept)
        self._dense = {size: cells for size, cells in self._dense.items() if cells}
        self._lattices = {kind: lattice for kind, lattice in self._lattices.items() if lattice}


class _Lattice:
    """Cells of one period and of similar size, by residue and by address."""

    __slots__ = ("_by_residue", "_cells", "_period", "_residues", "_widest", "high", "low")

    def __init__(self, period: int, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self._period = period
        self._cells = _ByAddress()
        self._residues: list[int] = []
        self._by_residue: dict[int, _ByAddress] = {}
        self._widest = 0

    def add(self, cell: Any, low: int, high: int, run: int) -> None:
        if low < self.low:  # noqa: PLR1730  # `min` costs as much as all the rest
            self.low = low
        if high > self.high:  # noqa: PLR1730  # same
            self.high = high
        self._cells.add(cell, low, high)
        residue = low % self._period
        cells = self._by_residue.get(residue)
        if cells is None:
            cells = self._by_residue[residue] = _ByAddress()
            insort(self._residues, residue)
        cells.add(cell, low, high)
        self._widest = max(self._widest, run)

    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        self._cells.keep(is_kept)
        for cells in self._by_residue.values():
            cells.keep(is_kept)
        self._by_residue = {residue: cells for residue, cells in self._by_residue.items() if cells}
        self._residues = sorted(self._by_residue)

    def __bool__(self) -> bool:
        return bool(self._cells)

    def candidates(self, low: int, high: int, run: int, period: int) -> Iterator[Any]:
        """Yield the cells that may share a byte with a section of these addresses, this run and this period."""
        own, residues = self._period, self._residues
        common = gcd(own, period)
        if run + self._widest > common or own > common * len(residues):
            yield from self._cells.meeting(low, high)
            return
        # Each window begins less than its run below a byte of the other's, modulo the common divisor; the first and
        # the last turn are for those that go beyond the end of the period.
        before, behind = low % common - self._widest, low % common + run
        for turn in range(-common, own + common, common):
            first = bisect_right(residues, turn + before)
            for residue in residues[first : bisect_left(residues, turn + behind, first)]:
                yield from self._by_residue[residue].meeting(low, high)


class _Ordered:
    """Cells of dense sections of similar size, sorted by address."""

    __slots__ = ("_at", "_cells", "_firsts", "_here", "_longest", "_starts")

    def __init__(self) -> None:
        self._starts: list[list[int]] = [[]]  # in pieces
        self._cells: list[list[Any]] = [[]]
        self._firsts: list[int] = []  # of each piece but the first
        self._longest = 0
        self._here = 0  # the piece that the last one was put into
        self._at = 0  # its place there, and one

    def add(self, cell: Any, low: int, high: int) -> bool:
        """Add a cell, and tell whether there may be others that share a byte with it."""
        here, at = self._here, self._at
        starts = self._starts[here]
        n = len(starts)
        if not (at and starts[at - 1] <= low and (low < starts[at] if at < n else here == len(self._firsts))):
            here = bisect_right(self._firsts, low)  # elsewhere than behind the last one
            starts = self._starts[here]
            n = len(starts)
            at = bisect_right(starts, low)
        longest = self._longest
        is_met = at > 0 and starts[at - 1] + longest > low  # there is none before the first of a piece but the first
        if at < n:
            is_met = is_met or starts[at] < high
        elif here < len(self._firsts):
            is_met = is_met or self._firsts[here] < high
        if high - low > longest:  # `max` costs as much as all the rest
            self._longest = high - low
        starts.insert(at, low)
        self._cells[here].insert(at, cell)
        self._here, self._at = here, at + 1
        if n == _MOST:
            self._halve(here)
        return is_met

    def _halve(self, here: int) -> None:
        """Make two pieces of one."""
        half = _MOST // 2
        starts, cells = self._starts[here], self._cells[here]
        self._starts[here : here + 1] = starts[:half], starts[half:]
        self._cells[here : here + 1] = cells[:half], cells[half:]
        self._firsts.insert(here, starts[half])
        self._here = self._at = 0

    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        """Drop the other cells."""
        kept = [
            (start, cell)
            for starts, cells in zip(self._starts, self._cells, strict=True)
            for start, cell in zip(starts, cells, strict=True)
            if is_kept(cell)
        ]
        pieces = [kept[at : at + _MOST] for at in range(0, len(kept), _MOST)] or [[]]
        self._starts = [[start for start, _ in piece] for piece in pieces]
        self._cells = [[cell for _, cell in piece] for piece in pieces]
        self._firsts = [starts[0] for starts in self._starts[1:]]
        self._here = self._at = 0

    def __bool__(self) -> bool:
        return bool(self._starts[0])

    def may_meet(self, low: int, high: int) -> bool:
        """Tell whether these addresses meet the range of all cells."""
        return self._starts[0][0] < high and low < self._starts[-1][-1] + self._longest

    def meeting(self, low: int, high: int) -> list[Any]:
        """Return the cells that may reach into the addresses from ``low`` up to ``high``."""
        least = low - self._longest
        here = bisect_right(self._firsts, least)
        starts = self._starts[here]
        at = bisect_right(starts, least)
        end = bisect_left(starts, high, at)
        found = self._cells[here][at:end]
        while end == len(starts) and here < len(self._firsts):
            here += 1
            starts = self._starts[here]
            end = bisect_left(starts, high)
            found += self._cells[here][:end]
        return found


class _ByAddress:
    """Cells sorted by lowest address."""

    __slots__ = ("_cells", "_longest", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._cells: list[Any] = []
        self._longest = 0

    def add(self, cell: Any, low: int, high: int) -> None:
        starts = self._starts
        if not starts or low >= starts[-1]:
            starts.append(low)
            self._cells.append(cell)
        else:
            at = bisect_right(starts, low)
            starts.insert(at, low)
            self._cells.insert(at, cell)
        if high - low > self._longest:  # noqa: PLR1730  # same
            self._longest = high - low

    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        self._cells = [cell for cell in self._cells if is_kept(cell)]
        self._starts = [cell.key.address for cell in self._cells]

    def __bool__(self) -> bool:
        return bool(self._cells)

    def meeting(self, low: int, high: int) -> list[Any]:
        """Return the cells that may reach into the addresses from ``low`` up to ``high``."""
        first = bisect_right(self._starts, low - self._longest)
        return self._cells[first : bisect_left(self._starts, high, first)]
