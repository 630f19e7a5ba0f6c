"""The accesses of a recorded run so far: groups of executions, found by the bytes that they touch.

*Groups.* Executions of one line on one chain with the same reads and writes are a group, which keeps their positions in
ascending order. Whether two groups conflict is decided once.

*Shelves.* For each storage and chain, a `Shelf` holds the groups that read or write there in a `SpanGrid`. Each cell is
sorted by the last access of its groups, or by the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from offload.port.extents import shares, space_of
from offload.port.spans import SpanGrid

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from offload.port.extents import AccessPart
    from offload.port.model import ClockMove

AccessWord = Literal["read", "write", "copy"]


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

    __slots__ = ("_grid", "first", "last")

    def __init__(self, first: int) -> None:
        self.first = self.last = first  # the positions of the first and the last access
        self._grid: SpanGrid[AccessGroup] = SpanGrid()

    def put(self, part: AccessPart, group: AccessGroup, *, to_end: bool) -> None:
        """Add a group, or note that it has accessed again; ``to_end`` sorts by the last access, else by the first."""
        self.last = group.positions[-1]
        for cell in self._grid.cells_of(part):
            if to_end:
                cell.pop(group, None)
            cell[group] = None

    def since(self, part: AccessPart, position: int) -> Iterator[AccessGroup]:
        """Yield the groups near a part whose last access comes after a position."""
        for cell in self._grid.near(part):
            for group in reversed(cell):
                if group.positions[-1] <= position:
                    break
                yield group

    def until(self, part: AccessPart, positions: Sequence[int]) -> Iterator[AccessGroup]:
        """Yield the groups near a part whose first access comes no later than the position of their chain."""
        for cell in self._grid.near(part):
            for group in cell:
                if group.positions[0] > positions[group.chain]:
                    break
                yield group


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
                    shelves = by_chain[group.chain] = (Shelf(position), Shelf(position))
                shelves[kind].put(part, group, to_end=to_end)

    def after(self, group: AccessGroup, positions: Sequence[int]) -> Iterator[AccessGroup]:
        """Yield the groups near a group, on other chains, whose last access comes after the position of their chain."""
        for part, shelf, chain in self._near(group):
            if shelf.last > positions[chain] and chain != group.chain:
                yield from shelf.since(part, positions[chain])

    def until(self, group: AccessGroup, positions: Sequence[int]) -> Iterator[AccessGroup]:
        """Yield the groups near a group, on any chain, that begin no later than the position of their chain."""
        for part, shelf, chain in self._near(group):
            if shelf.first <= positions[chain]:
                yield from shelf.until(part, positions)

    def _near(self, group: AccessGroup) -> Iterator[tuple[AccessPart, Shelf, int]]:
        for kind, parts in enumerate((group.reads, group.writes)):
            for part in parts:
                for chain, (reads, writes) in self._shelves.get(part.space, {}).items():
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
