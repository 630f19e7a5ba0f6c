"""Races of a recorded run, and the waits that could be left out.

Theory of operation
-------------------
*Variants.* A pass carries out the moves of `offload.port.model` once, for all variants of the program at the same time:
the recorded run, and for each `SyncLine` the run without its calls (`offload.port.variants`). In the row of a line, the
moves of that line have no effect. A line is needed as soon as two conflicting accesses are unordered in its row that
are ordered in the recorded run. A line that is never needed is redundant. A row that equals row 0 in all registers
after the last call of its line stays equal, and is given back.

*Pairs.* An access is unordered with the last executions of a group, those after the position that its clock has for the
chain. So bisection counts them. A search of a shelf ends at the first group that is ordered in all rows.

*Unseen uses.* The first wait of the host that comes after work whose result the host may use unseen
(`offload.port.unseen`) is needed by that work. A line that nothing else needs is *kept*.

*Reasons.* A second pass over the redundant lines asks why. It carries along, for each line, the positions of the work
that its calls wait for. If a later access conflicts with such work, other calls or a stream give the order too. Else
the calls order no data.

Vector clocks suit here, because the chains are streams, and few. Two modules of the sanitizer do not suit.
`offload.sanitizer.clocks` searches in one order at a time. `offload.sanitizer.live` forgets an access that a later
write covers, but the porter reports the races of that access too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.port.log import NULL
from offload.port.model import StreamModel, SyncLine, sync_line
from offload.port.shelves import AccessGroup, AccessIndex, AccessWord
from offload.port.variants import VariantClocks

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from offload.port.log import PortLog
    from offload.port.model import ClockMove
    from offload.port.variants import VectorClock


@dataclass(slots=True)
class RacePair:
    """Two lines whose executions conflict and are not ordered."""

    first: int  # an operation of the first line, the earliest that is in such a pair
    second: int
    words: tuple[AccessWord, AccessWord]
    space: int  # the storage
    on_host: bool  # whether the host itself makes the second access
    count: int = 0  # pairs of executions


class _RacePass:
    """One pass over the log: the races, and the lines among some that are needed.

    Attributes
    ----------
    races : dict
        The races, by both lines.
    clocks : VariantClocks
        Its undecided lines at the end are redundant, unless they are kept.
    kept : dict
        Lines that work whose result the host may use unseen needs, with an operation of that work.
    """

    def __init__(self, log: PortLog, model: StreamModel, lines: Iterable[SyncLine]) -> None:
        self._log, self._model = log, model
        self._index = AccessIndex()
        self.clocks = VariantClocks(model, lines, copies=True)
        self.races: dict[Hashable, RacePair] = {}
        self.kept: dict[SyncLine, int] = {}
        self._unseen = _UnseenWork()

    def run(self) -> None:
        """Carry out the log."""
        clocks = self.clocks
        for operation in self._log.operations:
            skipped = clocks.row_of(sync_line(operation), operation.number)
            for move in self._model.moves_of(operation):
                clock = clocks.join(move, skipped)
                if move.has_accesses:
                    clock[:, move.target] += 1
                    self._access(move, clock)
                self._unseen.note(move, clock)
                if move.target == self._model.host:
                    self._keep(clock)
            clocks.forget(operation)

    def _keep(self, clock: VectorClock) -> None:
        """Keep the lines without which the host would not have waited for work that it may now use unseen."""
        rows = self.clocks.open_rows
        for chain, position, operation in self._unseen.ordered(clock[0]):
            for row in rows[clock[rows, chain] < position].tolist() if len(rows) else ():
                line = self.clocks.line_of(row)
                self.kept[line] = min(self.kept.get(line, operation), operation, key=self._reason_rank)

    def _reason_rank(self, operation: int) -> tuple[bool, bool, int]:
        """Rank the reasons to keep a line: a callback or a time, then a copy to the host, then one to the device."""
        is_copy = self._model.unseen[operation] is not None
        return is_copy, is_copy and self._log.operations[operation].kind == "to device", operation

    def _access(self, move: ClockMove, clock: VectorClock) -> None:
        index, rows = self._index, self.clocks.open_rows
        group = index.group_of(move)
        recorded = clock[0].tolist()
        known = np.minimum(clock[rows].min(axis=0), clock[0]).tolist() if len(rows) else recorded
        for other in dict.fromkeys(index.after(group, known)):
            words = index.conflict(other, group)
            if words is not None:
                self._compare(other, group, move.operation.number, clock, recorded[other.chain], words)
        index.add(group, recorded[move.target], move.operation.number)

    def _compare(
        self,
        other: AccessGroup,
        group: AccessGroup,
        operation: int,
        clock: VectorClock,
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
        rows = self.clocks.open_rows
        if split and len(rows):
            for row in rows[clock[rows, other.chain] < other.positions[split - 1]].tolist():
                self.clocks.decide(row)


class _UnseenWork:
    """Work whose result the host may use unseen, until the host has waited for it."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[tuple[int, int]]] = {}  # by chains: positions and operations

    def note(self, move: ClockMove, clock: VectorClock) -> None:
        """Note the work of a move."""
        if move.is_unseen:
            at = int(clock[0, move.target])
            self._waiting.setdefault(move.target, deque()).append((at, move.operation.number))

    def ordered(self, host: np.ndarray[Any, Any]) -> Iterator[tuple[int, int, int]]:
        """Yield chain, position and operation of the work that the host's clock has reached now."""
        for chain, waiting in self._waiting.items():
            while waiting and waiting[0][0] <= host[chain]:
                yield (chain, *waiting.popleft())


class _ReasonPass:
    """One pass over the log that tells which redundant lines have other calls that order the same data.

    The rows of its clocks, but row 0, hold the positions that have come through a call of the row's line.

    Attributes
    ----------
    clocks : VariantClocks
        Its undecided lines at the end order no data.
    """

    def __init__(self, log: PortLog, model: StreamModel, lines: Iterable[SyncLine]) -> None:
        self._log, self._model = log, model
        self._index = AccessIndex()
        self.clocks = VariantClocks(model, lines, copies=False)
        self._first: dict[int, int] = {}  # by chains: the first position of work with an unseen use

    def run(self) -> None:
        """Carry out the log, as long as a line is undecided."""
        clocks = self.clocks
        for operation in self._log.operations:
            if not clocks.undecided:
                return
            row = clocks.row_of(sync_line(operation), operation.number)
            for move in self._model.moves_of(operation):
                clock = clocks.join(move)
                if row is not None:
                    registers, chains = self._model.waited_for(operation)
                    for register in registers:
                        clock[row, chains] = np.maximum(clock[row, chains], clocks.of(register)[0, chains])
                if move.has_accesses:
                    clock[0, move.target] += 1
                    self._access(move, clock)
                if move.is_unseen:
                    self._first.setdefault(move.target, int(clock[0, move.target]))
            if row is not None:
                self._note_unseen()
            clocks.forget(operation)

    def _note_unseen(self) -> None:
        """Note that other calls give the order, if a line waits for work whose result the host may use unseen."""
        for chain, position in self._first.items():
            rows, clock = self.clocks.open_rows, self.clocks.of(self._model.host)
            for row in rows[clock[rows, chain] >= position].tolist() if len(rows) else ():
                self.clocks.decide(row)

    def _access(self, move: ClockMove, clock: VectorClock) -> None:
        group = self._index.group_of(move)
        latest = self._latest(clock)
        for other in self._index.until(group, latest) if any(latest) else ():
            if self._index.conflict(other, group) is not None:
                rows = self.clocks.open_rows
                for row in rows[clock[rows, other.chain] >= other.positions[0]].tolist():
                    self.clocks.decide(row)
                latest[:] = self._latest(clock)  # which ends the search, unless another row goes further
        self._index.add(group, int(clock[0, move.target]), move.operation.number, to_end=False)

    def _latest(self, clock: VectorClock) -> list[int]:
        """Return the highest positions of all open rows."""
        rows = self.clocks.open_rows
        latest: list[int] = clock[rows].max(axis=0).tolist() if len(rows) else [0] * self._model.chains
        return latest


def leaves_work(log: PortLog) -> set[int]:
    """Return the operations after which the host went on before all earlier work of streams had to be done.

    Work on the null stream does not count.
    """
    model = StreamModel(log)
    clocks = VariantClocks(model, (), copies=False)
    latest = np.zeros(model.chains, np.int32)
    found: set[int] = set()
    for operation in log.operations:
        for move in model.moves_of(operation):
            clock = clocks.join(move)
            if move.has_accesses:
                clock[0, move.target] += 1
                latest[move.target] = clock[0, move.target] if move.target != NULL else 0
        if (clocks.of(model.host)[0] < latest).any():
            found.add(operation.number)
        clocks.forget(operation)
    return found


def waits_for_unseen(log: PortLog) -> set[int]:
    """Return the operations by which the host first waits for work whose result it may use unseen."""
    model = StreamModel(log)
    clocks, unseen = VariantClocks(model, (), copies=False), _UnseenWork()
    found: set[int] = set()
    for operation in log.operations if model.unseen else ():
        for move in model.moves_of(operation):
            clock = clocks.join(move)
            if move.has_accesses:
                clock[0, move.target] += 1
            unseen.note(move, clock)
            if move.target == model.host and any([*unseen.ordered(clock[0])]):
                found.add(operation.number)
        clocks.forget(operation)
    return found


class FoundRaces(NamedTuple):
    """The races of a run and the waits that could be left out.

    Attributes
    ----------
    races : list of RacePair
        In program order.
    redundant : dict
        The redundant lines, with ``"implied"`` or ``"no data"``.
    kept : dict
        Lines that would be redundant, but for an operation whose result the host may use unseen.
    """

    races: list[RacePair]
    redundant: dict[SyncLine, str]
    kept: dict[SyncLine, int]


def find_races(log: PortLog) -> FoundRaces:
    """Return the races and the redundant lines."""
    model = StreamModel(log)
    first = _RacePass(log, model, model.last_call)
    first.run()
    redundant, kept = first.clocks.undecided, first.kept
    waiting = first.clocks.postponed
    while waiting:
        again = _RacePass(log, model, waiting)
        again.run()
        redundant.update(again.clocks.undecided)
        kept.update(again.kept)
        waiting = again.clocks.postponed
    kept = {line: kept[line] for line in redundant if line in kept}
    redundant = {line: None for line in redundant if line not in kept}
    reasons: dict[SyncLine, str] = dict.fromkeys(redundant, "implied")
    waiting = redundant
    while waiting:
        why = _ReasonPass(log, model, waiting)
        why.run()
        reasons.update(dict.fromkeys(why.clocks.undecided, "no data"))
        waiting = why.clocks.postponed
    races = sorted(first.races.values(), key=lambda pair: (pair.first, pair.second))
    return FoundRaces(races, reasons, kept)
