"""Races of a recorded run, and the waits that could be left out.

Theory of operation
-------------------
*Variants.* `find_races` carries out the moves of `offload.port.model` once, for all variants of the program at the same
time. Row 0 of each clock is the recorded run; each other row is the run without the calls of one `SyncLine`. In row
``v`` the moves of that line have no effect. A line is needed as soon as two conflicting accesses are unordered in its
row that are ordered in row 0. A line that is never needed is redundant.

*Groups.* Executions of one line on one chain with the same reads and writes are a group, which keeps their positions in
ascending order. An access is unordered with the last ones of a group, those behind the position that its clock has for
the chain. So bisection counts them, and whether two groups conflict is decided once.

*Shelves.* For each storage and chain, a `Shelf` holds the groups that read or write there, in a grid for each size: a
span of up to 2^k bytes lies in one or two cells of that size. Each cell is sorted by the last access. Therefore a
search ends at the first group that is ordered in all rows.

*Reasons.* A second pass over the redundant lines asks why. It carries along, for each line, the clocks that have come
through one of its calls. If an access conflicts with one on another chain that came so, other calls give the order
too. Else the calls order no data.

Vector clocks suit here, where chains are streams and few. The search of `offload.sanitizer.clocks` answers for one
order at a time, and `offload.sanitizer.live` forgets an access that a later write covers, whose races are wanted here.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from offload.port.extents import shares, space_of
from offload.port.model import StreamModel, SyncLine, sync_line

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from offload.port.extents import AccessPart
    from offload.port.log import PortLog, StreamOperation
    from offload.port.model import ClockMove

Clock: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
AccessWord: TypeAlias = Literal["read", "write", "copy"]

_CELLS = 1 << 26
"""Elements of all clocks of a pass, 256 MB. More variants than fit take another pass."""


@dataclass(slots=True)
class RacePair:
    """Two lines whose executions conflict and are not ordered."""

    first: int  # an operation of the first line, the earliest that is in such a pair
    second: int
    words: tuple[AccessWord, AccessWord]
    space: int  # the storage
    on_host: bool  # whether the host itself makes the second access
    count: int = 0  # pairs of executions


class AccessGroup:
    """Executions of one line on one chain, with the same accesses."""

    __slots__ = ("chain", "is_copy", "number", "operations", "place", "positions", "reads", "writes")

    def __init__(self, number: int, move: ClockMove) -> None:
        self.number = number
        self.chain = move.target
        self.place = move.operation.place
        self.is_copy = move.operation.kind in {"to device", "to host"}
        self.reads = tuple(part for part in move.reads if part.run_nbytes)
        self.writes = tuple(part for part in move.writes if part.run_nbytes)
        self.positions: list[int] = []
        self.operations: list[int] = []

    def word(self, *, writes: bool) -> AccessWord:
        """Return how a report calls its access."""
        return "copy" if self.is_copy else "write" if writes else "read"


class Shelf:
    """Groups that access one storage on one chain, found by the bytes that they touch."""

    __slots__ = ("_levels", "last")

    def __init__(self) -> None:
        self.last = 0  # the position of the last access
        # By the logarithm of a span, then by the number of the cell: groups, as keys.
        self._levels: dict[int, dict[int, dict[AccessGroup, None]]] = {}

    def put(self, part: AccessPart, group: AccessGroup, *, to_end: bool) -> None:
        """Add a group, or note that it has accessed again; ``to_end`` sorts by the last access, else by the first."""
        self.last = group.positions[-1]
        level = (part.end - part.address - 1).bit_length()
        cells = self._levels.setdefault(level, {})
        for number in range(part.address >> level, (part.end - 1 >> level) + 1):
            cell = cells.setdefault(number, {})
            if to_end:
                cell.pop(group, None)
            cell[group] = None

    def since(self, part: AccessPart, position: int) -> Iterator[AccessGroup]:
        """Yield the groups near a part whose last access comes after a position."""
        for cell in self._cells(part):
            for group in reversed(cell):
                if group.positions[-1] <= position:
                    break
                yield group

    def until(self, part: AccessPart, position: int) -> Iterator[AccessGroup]:
        """Yield the groups near a part whose first access comes no later than a position."""
        for cell in self._cells(part):
            for group in cell:
                if group.positions[0] > position:
                    break
                yield group

    def _cells(self, part: AccessPart) -> Iterator[dict[AccessGroup, None]]:
        for level, cells in self._levels.items():
            first, last = part.address >> level, (part.end - 1) >> level
            if last - first >= len(cells):
                yield from (cell for number, cell in cells.items() if first <= number <= last)
            else:
                yield from (cells[number] for number in range(first, last + 1) if number in cells)


class AccessIndex:
    """All groups of a run so far."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, AccessGroup] = {}
        # By storage, then chain: the shelves of reads and of writes.
        self._shelves: dict[Hashable, dict[int, tuple[Shelf, Shelf]]] = {}
        self._conflicts: dict[tuple[int, int], tuple[AccessWord, AccessWord, int] | None] = {}

    def group_of(self, move: ClockMove) -> AccessGroup:
        """Return the group of an access."""
        operation = move.operation
        key = (move.target, operation.place, operation.kind, move.reads, move.writes)
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = AccessGroup(len(self._groups), move)
        return found

    def add(self, group: AccessGroup, position: int, operation: int, *, to_end: bool = True) -> None:
        """Add an execution of a group."""
        group.positions.append(position)
        group.operations.append(operation)
        for kind, parts in enumerate((group.reads, group.writes)):
            for part in parts:
                by_chain = self._shelves.setdefault(part.space, {})
                shelves = by_chain.get(group.chain)
                if shelves is None:
                    shelves = by_chain[group.chain] = (Shelf(), Shelf())
                shelves[kind].put(part, group, to_end=to_end)

    def near(self, group: AccessGroup) -> Iterator[tuple[AccessPart, Shelf, int]]:
        """Yield the shelves of other chains that may conflict with a group, each with the group's part and a chain."""
        for kind, parts in enumerate((group.reads, group.writes)):
            for part in parts:
                for chain, (reads, writes) in self._shelves.get(part.space, {}).items():
                    if chain != group.chain:
                        yield part, writes, chain
                        if kind:
                            yield part, reads, chain

    def conflict(self, first: AccessGroup, second: AccessGroup) -> tuple[AccessWord, AccessWord, int] | None:
        """Return how two groups access a byte that they share, and its storage; None if that is no conflict."""
        key = (first.number, second.number)
        try:
            return self._conflicts[key]
        except KeyError:
            found = self._conflicts[key] = _conflict(first, second)
            return found


def _conflict(first: AccessGroup, second: AccessGroup) -> tuple[AccessWord, AccessWord, int] | None:
    # Writes first: they decide the words of an access that also reads.
    for one_writes, other_writes in ((True, True), (True, False), (False, True)):
        for one in first.writes if one_writes else first.reads:
            for other in second.writes if other_writes else second.reads:
                if shares(one, other):
                    return first.word(writes=one_writes), second.word(writes=other_writes), space_of(one)
    return None


class _Clocks:
    """The registers of a pass, with a row for each variant."""

    def __init__(self, model: StreamModel, rows: int) -> None:
        self._model = model
        self._shape = (rows, model.chains)
        self.registers: dict[int, Clock] = {}

    def carry_out(self, move: ClockMove, skipped: int | None) -> Clock:
        """Carry out a move in all rows but one, and return the clock of its target, which later moves change."""
        clock = self.of(move.target)
        kept = None if skipped is None else clock[skipped].copy()
        for source in move.sources:
            other = self.registers.get(source)
            if other is not None:
                np.maximum(clock, other, out=clock)
        if kept is not None:
            clock[skipped] = kept
        if move.has_accesses:
            clock[:, move.target] += 1
        return clock

    def of(self, register: int) -> Clock:
        """Return the clock of a register."""
        clock = self.registers.get(register)
        if clock is None:
            clock = self.registers[register] = np.zeros(self._shape, np.int32)
        return clock

    def forget(self, operation: StreamOperation) -> None:
        """Forget the position of an event after the last operation that waits for it."""
        record = operation.record
        if record is not None and self._model.last_use[record] == operation.number:
            self.registers.pop(self._model.event(record), None)


class _RacePass:
    """One pass over the log: the races, and the lines among some that are needed."""

    def __init__(self, log: PortLog, model: StreamModel, lines: Sequence[SyncLine]) -> None:
        self._log, self._model = log, model
        self._rows = {line: row for row, line in enumerate(lines, 1)}
        self._clocks = _Clocks(model, len(lines) + 1)
        self._index = AccessIndex()
        self.is_open = np.ones(len(lines) + 1, bool)  # rows that may still turn out to be needed; row 0 stays
        self._open_rows = np.flatnonzero(self.is_open)
        self.races: dict[Hashable, RacePair] = {}

    def run(self, *, only_lines: bool) -> None:
        """Carry out the log; ``only_lines`` ends once each line is needed, as the races are known."""
        for operation in self._log.operations:
            line = sync_line(operation)
            skipped = None if line is None else self._rows.get(line)
            for move in self._model.moves_of(operation):
                clock = self._clocks.carry_out(move, skipped)
                if move.has_accesses:
                    self._access(move, clock)
            self._clocks.forget(operation)
            if only_lines and len(self._open_rows) == 1:
                return

    def _access(self, move: ClockMove, clock: Clock) -> None:
        index = self._index
        group = index.group_of(move)
        recorded = clock[0].tolist()
        lowest = recorded if len(self._open_rows) == 1 else clock[self._open_rows].min(axis=0).tolist()
        found: dict[AccessGroup, None] = {}
        for part, shelf, chain in index.near(group):
            if shelf.last > lowest[chain]:
                found.update(dict.fromkeys(shelf.since(part, lowest[chain])))
        for other in found:
            words = index.conflict(other, group)
            if words is not None:
                self._compare(other, group, move.operation.number, clock, recorded[other.chain], words)
        index.add(group, int(clock[0, move.target]), move.operation.number)

    def _compare(
        self,
        other: AccessGroup,
        group: AccessGroup,
        operation: int,
        clock: Clock,
        ordered: int,
        words: tuple[AccessWord, AccessWord, int],
    ) -> None:
        """Compare an execution of ``group`` with those of a group that conflicts with it."""
        split = bisect_right(other.positions, ordered)
        if unordered := len(other.positions) - split:
            first, second = other.place, group.place
            key = (first.file, first.line, second.file, second.line)
            pair = self.races.get(key)
            if pair is None:
                on_host = group.chain == self._model.host
                pair = RacePair(other.operations[split], operation, words[:2], words[2], on_host)
                self.races[key] = pair
            pair.first = min(pair.first, other.operations[split])
            pair.count += unordered
        if split and len(self._open_rows) > 1:
            needed = self.is_open & (clock[:, other.chain] < other.positions[split - 1])
            if needed.any():
                self.is_open &= ~needed
                self._open_rows = np.flatnonzero(self.is_open)


class _ReasonPass:
    """One pass over the log that tells which redundant lines have other calls that order the same data."""

    def __init__(self, log: PortLog, model: StreamModel, lines: Sequence[SyncLine]) -> None:
        self._log, self._model = log, model
        self._rows = {line: row for row, line in enumerate(lines)}
        self._clocks = _Clocks(model, 1)
        self._through = _Clocks(model, len(lines))  # the parts of the clocks that came through a line's calls
        self._index = AccessIndex()
        self.is_open = np.ones(len(lines), bool)

    def run(self) -> None:
        """Carry out the log; afterwards, the rows that are still open order no data."""
        for operation in self._log.operations:
            line = sync_line(operation)
            row = None if line is None else self._rows.get(line)
            for move in self._model.moves_of(operation):
                given = self._given(operation) if row is not None else None
                clock = self._clocks.carry_out(move, None)
                through = self._through.carry_out(move._replace(reads=(), writes=()), None)
                if given is not None:
                    np.maximum(through[row], given, out=through[row])
                if move.has_accesses:
                    self._access(move, clock, through)
                    if not self.is_open.any():
                        return
            self._clocks.forget(operation)
            self._through.forget(operation)

    def _given(self, operation: StreamOperation) -> Clock:
        given = np.zeros(self._model.chains, np.int32)
        for register in self._model.given_by(operation):
            np.maximum(given, self._clocks.of(register)[0], out=given)
        return given

    def _access(self, move: ClockMove, clock: Clock, through: Clock) -> None:
        group = self._index.group_of(move)
        latest = through[self.is_open].max(axis=0).tolist()
        for part, shelf, chain in self._index.near(group):
            if not latest[chain]:
                continue
            for other in shelf.until(part, latest[chain]):
                if self._index.conflict(other, group) is not None:
                    self.is_open &= through[:, chain] < other.positions[0]
                    if not self.is_open.any():
                        return
        self._index.add(group, int(clock[0, move.target]), move.operation.number, to_end=False)


def find_races(log: PortLog) -> tuple[list[RacePair], dict[SyncLine, str]]:
    """Return the races in program order, and the redundant lines with ``"implied"`` or ``"no data"``."""
    model = StreamModel(log)
    lines = list(dict.fromkeys(filter(None, map(sync_line, log.operations))))
    races: dict[Hashable, RacePair] | None = None
    redundant: list[SyncLine] = []
    for some in _portions(lines, _rows_at_once(log, model)) if lines else [[]]:
        one = _RacePass(log, model, some)
        one.run(only_lines=races is not None)
        races = one.races if races is None else races
        redundant += [line for line, is_open in zip(some, one.is_open[1:], strict=True) if is_open]
    assert races is not None
    reasons: dict[SyncLine, str] = {}
    for some in _portions(redundant, _rows_at_once(log, model)):
        why = _ReasonPass(log, model, some)
        why.run()
        reasons.update((line, "no data" if row else "implied") for line, row in zip(some, why.is_open, strict=True))
    return sorted(races.values(), key=lambda pair: (pair.first, pair.second)), reasons


def _portions(lines: list[SyncLine], size: int) -> Iterable[list[SyncLine]]:
    return (lines[at : at + size] for at in range(0, len(lines), size))


def _rows_at_once(log: PortLog, model: StreamModel) -> int:
    """Return how many variants fit into a pass."""
    live = most = 0
    ends = [0] * (len(log.operations) + 1)
    for operation in log.operations:
        if operation.number in model.last_use:
            live += 1
            ends[model.last_use[operation.number]] += 1
        most = max(most, live)
        live -= ends[operation.number]
    return max(1, _CELLS // ((model.chains + 2 + most) * model.chains))
