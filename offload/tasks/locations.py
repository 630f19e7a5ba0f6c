"""Which of the storage locations named so far share a byte with a new one.

Theory of operation
-------------------
The question is asked once for each location, and has to cost little when there are ten thousand: tiles or columns of
one matrix, all of whose address ranges meet. What keeps them apart is their place *within* a row. So sections are
kept by their *period*, the greatest common divisor of their strides: all bytes of a section then lie in one window of
residues, as wide as its run. Two sections have their windows modulo the common divisor of their periods (a dense piece
has a period of 0: any divisor will do), and share a byte only where these meet. Whoever is left is looked up by
address, and decided by the exact test, `offload.storage.overlaps`.

Both searches look as far back as the widest run and the longest extent among the sections searched. So that one whole
matrix does not make every search for its rows look at all of them, sections of different orders of magnitude are kept
apart.

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
        self._lattices: dict[tuple[int, int, int], _Lattice] = {}

    def add(self, cell: Any) -> list[Any]:
        """Add a cell and return those before it that share a byte with it."""
        section: Section = cell.key
        low, run, dims = section.address, section.run_nbytes, section.dims
        high, period = (section.end, gcd(*[stride for _, stride in dims])) if dims else (low + run, 0)
        found = []
        for lattice in self._lattices.values():
            if lattice.low < high and low < lattice.high:
                for other in lattice.candidates(low, high, run, period):
                    if overlaps(other.key, section):
                        found.append(other)  # noqa: PERF401  # this is on the path of each fresh location
        kind = period, run.bit_length() if period else 0, (high - low).bit_length()
        home = self._lattices.get(kind)
        if home is None:
            home = self._lattices[kind] = _Lattice(period, low, high)
        home.add(cell, low, high, run)
        return found

    def keep(self, is_kept: Callable[[Any], bool]) -> None:
        """Drop the other cells."""
        for lattice in self._lattices.values():
            lattice.keep(is_kept)
        self._lattices = {kind: lattice for kind, lattice in self._lattices.items() if lattice}


class _Lattice:
    """Cells of one period and of similar size, by residue and by address; those of period 0 by address only."""

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
        if not self._period:
            return
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
        if not own or run + self._widest > common or own > common * len(residues):
            yield from self._cells.meeting(low, high)
            return
        # Each window begins less than its run below a byte of the other's, modulo the common divisor; the first and
        # the last turn are for those that go beyond the end of the period.
        before, behind = low % common - self._widest, low % common + run
        for turn in range(-common, own + common, common):
            first = bisect_right(residues, turn + before)
            for residue in residues[first : bisect_left(residues, turn + behind, first)]:
                yield from self._by_residue[residue].meeting(low, high)


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
