"""Vector clocks of several variants of a recorded run at the same time.

Row 0 of each clock is the recorded run. Each other row in use belongs to one `SyncLine`, from the first call of that
line until the pass has decided about it. Rows are reused, and their number grows if none is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.port.log import StreamOperation
    from offload.port.model import ClockMove, StreamModel, SyncLine

VectorClock: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
"""For each row, the positions that are known: int32, rows by chains."""

_FIRST_ROWS: Final = 8
_MOST_CELLS: Final = 1 << 26
"""Elements of all clocks of a pass, 256 MB. Lines that do not fit wait for another pass."""


class VariantClocks:
    """The registers of a pass.

    Parameters
    ----------
    model : StreamModel
        The rules.
    copies : bool
        Whether a new row begins as a copy of row 0; else with zeros.
    lines : iterable of SyncLine
        The lines that the pass decides about.

    Attributes
    ----------
    open_rows : numpy.ndarray
        The numbers of the rows of undecided lines, ascending.
    postponed : dict of SyncLine
        Lines that have found no room.
    """

    def __init__(self, model: StreamModel, lines: Iterable[SyncLine], *, copies: bool) -> None:
        self._model = model
        self._copies = copies
        self._undecided = dict.fromkeys(lines)
        self._row_of: dict[SyncLine, int] = {}
        self._line_of: dict[int, SyncLine] = {}
        self._registers: dict[int, VectorClock] = {}
        self._capacity = _FIRST_ROWS
        self._free = list(range(_FIRST_ROWS - 1, 0, -1))
        self.open_rows = np.zeros(0, np.intp)
        self.postponed: dict[SyncLine, None] = {}

    def of(self, register: int) -> VectorClock:
        """Return the clock of a register."""
        clock = self._registers.get(register)
        if clock is None:
            clock = self._registers[register] = np.zeros((self._capacity, self._model.chains), np.int32)
        return clock

    def join(self, move: ClockMove, skipped: int | None = None) -> VectorClock:
        """Join the sources of a move into its target in all rows but one; return the target's clock."""
        clock = self.of(move.target)
        kept = None if skipped is None else clock[skipped].copy()
        for source in move.sources:
            other = self._registers.get(source)
            if other is not None:
                np.maximum(clock, other, out=clock)
        if kept is not None:
            clock[skipped] = kept
        return clock

    def forget(self, operation: StreamOperation) -> None:
        """Forget the position of an event after the last operation that waits for it."""
        record = operation.record
        if record is not None and self._model.last_use[record] == operation.number:
            self._registers.pop(self._model.event(record), None)

    # -- rows ----------------------------------------------------------------------------------------
    def row_of(self, line: SyncLine | None, operation: int) -> int | None:
        """Return the row of a line that makes a call now; None if the line is decided, or has to wait."""
        if line is None or line not in self._undecided:
            return None
        row = self._row_of.get(line)
        if row is not None:
            return row
        if not self._free and self._copies:
            self._drop_equal(operation)
        if not self._free and not self._grow():
            self.postponed[line] = None
            del self._undecided[line]
            return None
        row = self._free.pop()
        for clock in self._registers.values():
            clock[row] = clock[0] if self._copies else 0
        self._row_of[line] = row
        self._line_of[row] = line
        self._note_open()
        return row

    def line_of(self, row: int) -> SyncLine:
        """Return the line that an open row belongs to."""
        return self._line_of[row]

    def decide(self, row: int) -> SyncLine:
        """Give a row back, whose line is decided; return the line."""
        line = self._line_of.pop(row)
        del self._row_of[line]
        del self._undecided[line]
        self._free.append(row)
        self._note_open()
        return line

    @property
    def undecided(self) -> dict[SyncLine, None]:
        """The lines that nobody has decided about."""
        return self._undecided

    def _note_open(self) -> None:
        self.open_rows = np.array(sorted(self._line_of), np.intp)

    def _drop_equal(self, operation: int) -> None:
        """Give the rows back that can never differ from row 0 again; their lines stay undecided."""
        past = [row for row, line in self._line_of.items() if self._model.last_call[line] < operation]
        if not past:
            return
        is_equal = np.ones(len(past), bool)
        for clock in self._registers.values():
            is_equal &= (clock[past] == clock[0]).all(axis=1)
        for row, is_same in zip(past, is_equal.tolist(), strict=True):
            if is_same:
                del self._row_of[self._line_of.pop(row)]
                self._free.append(row)
        self._note_open()

    def _grow(self) -> bool:
        """Double the rows, if there is room."""
        more = self._capacity
        if 2 * more * self._model.chains * (len(self._registers) + 1) > _MOST_CELLS and self._line_of:
            return False
        for register, clock in self._registers.items():
            self._registers[register] = np.concatenate((clock, np.zeros_like(clock)))
        self._free += range(2 * more - 1, more - 1, -1)
        self._capacity = 2 * more
        return True
