"""Which of the storage locations named so far share a byte with a new one.

Theory of operation
-------------------
The question is asked once for each location, and has to cost little when there are ten thousand: tiles or columns of
one matrix, all of whose address ranges meet. What keeps them apart is their place *within* a row. So sections are
kept by their *period*, the greatest common divisor of their strides: all bytes of a section then lie in one window of
residues, as wide as its run. A section that has the same period, or one that is a multiple of it, or none (a dense
piece shorter than a row) can only share a byte where the windows meet. Whoever is left is looked up by address, and
decided by the exact test, `offload.storage.overlaps`. Sections with a period of another kind are looked up by address
alone: then the range of one is a bound, and no more.

Rejected: sorting by address alone (each of 10,000 columns would be tested against all others); an interval tree over
addresses (the columns of a matrix all lie in one interval); a grid of pages (not exact, and many for a large array).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from math import gcd
from typing import TYPE_CHECKING, Any

from offload.storage import overlaps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offload.storage import Section


class Space:
    """The cells of one address space; a cell has a `Section` for its ``key``."""

    __slots__ = ("_lattices",)

    def __init__(self) -> None:
        self._lattices: dict[int, _Lattice] = {}

    def add(self, cell: Any) -> list[Any]:
        """Add a cell and return those before it that share a byte with it."""
        section: Section = cell.key
        period = gcd(*[stride for _, stride in section.dims]) if section.dims else 0
        found = [
            other
            for lattice in self._lattices.values()
            for other in lattice.candidates(section, period)
            if overlaps(other.key, section)
        ]
        own = period if section.run_nbytes < period else 0  # a wider run meets every residue
        lattice = self._lattices.get(own)
        if lattice is None:
            lattice = self._lattices[own] = _Lattice(own)
        lattice.add(cell, section)
        return found


    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        """Drop the other cells."""
        for lattice in self._lattices.values():
            lattice.keep(is_kept)
        self._lattices = {period: lattice for period, lattice in self._lattices.items() if lattice}


class _Lattice:
    """Cells of one period, by residue and by address; those of period 0 by address only."""

    __slots__ = ("_by_residue", "_cells", "_period", "_residues", "_widest")

    def __init__(self, period: int) -> None:
        self._period = period
        self._cells = _ByAddress()
        self._residues: list[int] = []
        self._by_residue: dict[int, _ByAddress] = {}
        self._widest = 0

    def add(self, cell: Any, section: Section) -> None:
        self._cells.add(cell, section)
        if not self._period:
            return
        residue = section.address % self._period
        cells = self._by_residue.get(residue)
        if cells is None:
            cells = self._by_residue[residue] = _ByAddress()
            insort(self._residues, residue)
        cells.add(cell, section)
        self._widest = max(self._widest, section.run_nbytes)

    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        self._cells.keep(is_kept)
        for cells in self._by_residue.values():
            cells.keep(is_kept)
        self._by_residue = {residue: cells for residue, cells in self._by_residue.items() if cells}
        self._residues = sorted(self._by_residue)

    def __bool__(self) -> bool:
        return bool(self._cells)

    def candidates(self, section: Section, period: int) -> Iterator[Any]:
        """Yield the cells that may share a byte with a section of this period (0: one run)."""
        own, run = self._period, section.run_nbytes
        low, high = section.address, section.end
        if not own or period % own or run + self._widest > own:
            yield from self._cells.meeting(low, high)
            return
        residues = self._residues
        residue = low % own
        for turn in (-own, 0, own):
            first = bisect_right(residues, turn + residue - self._widest)
            last = bisect_left(residues, turn + residue + run, first)
            for other in residues[first:last]:
                yield from self._by_residue[other].meeting(low, high)


class _ByAddress:
    """Cells sorted by lowest address."""

    __slots__ = ("_cells", "_longest", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._cells: list[Any] = []
        self._longest = 0

    def add(self, cell: Any, section: Section) -> None:
        low = section.address
        at = bisect_right(self._starts, low)
        self._starts.insert(at, low)
        self._cells.insert(at, cell)
        self._longest = max(self._longest, section.end - low)

    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        self._cells = [cell for cell in self._cells if is_kept(cell)]
        self._starts = [cell.key.address for cell in self._cells]

    def __bool__(self) -> bool:
        return bool(self._cells)

    def meeting(self, low: int, high: int) -> list[Any]:
        """Return the cells that may reach into the addresses from ``low`` up to ``high``."""
        first = bisect_right(self._starts, low - self._longest)
        return self._cells[first : bisect_left(self._starts, high, first)]
