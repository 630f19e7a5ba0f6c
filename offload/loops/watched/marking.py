"""A nest that runs in order and marks the elements that it touches, for the sanitizer.

Each cell (`cells`) has a byte. `READ` says that the loop has read the element before it wrote it, and `WRITTEN` that it
has written it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from offload.loops.tree import ir
from offload.loops.tree.slices import INT
from offload.loops.watched.watching import AccessPlace, Watch, Watched

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offload.loops.tree.ir import Expression, Nest, Statement, Typed
    from offload.loops.watched.cells import Cells

READ, WRITTEN = 1, 2
"""The bits of a mark."""

_MARK: Final = ir.Type("uint8")


class Marked(NamedTuple):
    """A nest that marks what it touches.

    Attributes
    ----------
    watched : Watched
        The nest, with its marks.
    marks : str
        The name of the array of marks, zero at first.
    n_cells : int
        The length of that array.
    firsts : mapping
        For each storage, by the first array that is a part of it, its first cell.
    """

    watched: Watched
    marks: str
    n_cells: int
    firsts: Mapping[str, int]


class MarkWriter(Watch):
    """Writes a nest that marks what it touches."""

    def __init__(
        self,
        typed: Typed,
        nest: Nest,
        modes: Mapping[int, ir.Mode],
        cells: Mapping[str, Cells],
        watched: Collection[int],
    ) -> None:
        super().__init__(typed, nest, modes, cells, watched)
        self._marks = self.array("w_marks", "uint8")
        self._firsts: dict[str, str] = {}  # for each storage the scalar with its first cell

    def marked(self) -> Marked:
        """Return the nest with its marks."""
        made = self.made()
        firsts: dict[str, int] = {}
        n_cells = 0
        for cells in self.cells.values():
            if cells.storage not in firsts:
                firsts[cells.storage] = n_cells
                n_cells += cells.n_cells
        given = {**made.given, **{scalar: firsts[storage] for storage, scalar in self._firsts.items()}}
        return Marked(made._replace(given=given), self._marks, n_cells, firsts)

    def head(self) -> list[Statement]:
        return []

    def load(self, place: AccessPlace) -> list[Statement]:
        return self.each_cell(place, lambda cell: self._noted(place, cell, is_read=True, is_written=False))

    def store(self, place: AccessPlace) -> list[Statement]:
        is_read = isinstance(place.node, ir.Atomic)
        return self.each_cell(place, lambda cell: self._noted(place, cell, is_read=is_read, is_written=True))

    def _noted(self, place: AccessPlace, cell: Expression, *, is_read: bool, is_written: bool) -> list[Statement]:
        make, at, before = self.make, self.fresh("w_b"), self.fresh("w_m")
        first = self._firsts.setdefault(self.cells[place.node.array].storage, f"w_f_{place.node.array}")
        mark = make.convert(make.load(self._marks, make.name(at), self.at(), _MARK), INT)
        found: list[Statement] = [
            make.let(at, make.plus(self.number_given(first, 0), cell)),
            make.let(before, mark),
        ]
        if is_read:
            is_new = make.compare(make.name(before), "==", make.number(0))
            found += [make.when(is_new, make.let(before, make.number(READ)), self._put(at, before))]
        if is_written:
            is_first = make.compare(make.name(before), "<", make.number(WRITTEN))
            more = make.let(before, make.plus(make.name(before), make.number(WRITTEN)))
            found += [make.when(is_first, more, self._put(at, before))]
        return found

    def _put(self, at: str, mark: str) -> Statement:
        make = self.make
        return make.store(self._marks, make.name(at), make.convert(make.name(mark), _MARK), self.at())
