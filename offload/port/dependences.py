"""The data flow between the operations of a recorded run: data dependences, unwritten memory, results on the host.

Each function is one pass over the log in program order; none of them asks about streams.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING, Literal, NamedTuple

from offload.port.extents import PickedPart, covers, shares, space_of
from offload.port.spans import SpanGrid

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from offload.port.extents import AccessPart
    from offload.port.log import PortLog, StorageRecord, StreamOperation

DependenceKind = Literal["flow", "anti", "output"]


class DependenceGroup(NamedTuple):
    """Operations of which the second depends on each of the first ones."""

    firsts: list[int]
    second: int
    kind: DependenceKind


@dataclass(slots=True, eq=False)
class _Live:
    """Executions of one line that accessed the same bytes, as far as no later write has replaced these."""

    line: Hashable
    part: AccessPart
    operations: list[int] = field(default_factory=list)


class _LiveParts:
    """The accesses of one storage whose bytes have not been written since, by line and bytes."""

    __slots__ = ("_grid", "_known")

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, AccessPart], _Live] = {}
        self._grid: SpanGrid[_Live] = SpanGrid()

    def add(self, line: Hashable, part: AccessPart, operations: list[int]) -> None:
        found = self._known.get((line, part))
        if found is None:
            found = self._known[line, part] = _Live(line, part)
            for cell in self._grid.cells_of(part):
                cell[found] = None
        found.operations += operations

    def near(self, part: AccessPart) -> list[_Live]:
        """Return the accesses that share a byte with a part, the earliest first."""
        found: dict[_Live, None] = {}
        for cell in self._grid.near(part):
            found.update(cell)
        return sorted((one for one in found if shares(one.part, part)), key=lambda one: one.operations[0])

    def replace(self, live: _Live, by: AccessPart) -> None:
        """Take the bytes of a write out of an access: whole, or what an interval cuts out of an interval."""
        rest = _without(live.part, by)
        if rest is None:
            return
        del self._known[live.line, live.part]
        for cell in self._grid.cells_of(live.part):
            del cell[live]
        for part in rest:
            self.add(live.line, part, live.operations)


def _without(part: AccessPart, by: AccessPart) -> list[AccessPart] | None:
    """Return the rest of a part; None if it must stay whole, as its rest has no simple form."""
    if covers(by, part):
        return []
    if part.dims or by.dims or type(part) is PickedPart or type(by) is PickedPart:
        return None
    pieces = ((part.address, min(part.end, by.address)), (max(part.address, by.end), part.end))
    return [part._replace(address=low, run_nbytes=high - low) for low, high in pieces if low < high]


def dependences(log: PortLog) -> Iterator[DependenceGroup]:
    """Yield the data dependences of a run, in program order of the second operation.

    An access depends on the latest accesses of its bytes: a read on the writes, a write on the reads and writes. An
    access with strides stays the latest one until one write covers it.
    """
    reads: dict[Hashable, _LiveParts] = {}
    writes: dict[Hashable, _LiveParts] = {}

    def related(books: dict[Hashable, _LiveParts], part: AccessPart) -> list[_Live]:
        book = books.get(part.space)
        return [] if book is None or not part.run_nbytes else book.near(part)

    for operation in log.operations:
        place, number = operation.place, operation.number
        line = (place.file, place.line)
        read = [part for part in (*operation.host_reads, *operation.reads) if part.run_nbytes]
        written = [part for part in operation.writes if part.run_nbytes]
        found: list[tuple[DependenceKind, dict[Hashable, _LiveParts], AccessPart]] = [
            *(("flow", writes, part) for part in read),
            *(("anti", reads, part) for part in written),
            *(("output", writes, part) for part in written),
        ]
        for kind, books, part in found:
            for live in related(books, part):
                yield DependenceGroup(list(live.operations), number, kind)
        for part in written:
            for books in (reads, writes):
                for live in related(books, part):
                    books[part.space].replace(live, part)
        for books, parts in ((reads, read), (writes, written)):
            for part in parts:
                if part.space not in books:
                    books[part.space] = _LiveParts()
                books[part.space].add(line, part, [number])


def edges(log: PortLog) -> Counter[tuple[str, int, str, int, DependenceKind]]:
    """Return the number of dependences between lines: file and line of both, and the kind."""
    counts: Counter[tuple[str, int, str, int, DependenceKind]] = Counter()
    operations = log.operations
    for firsts, second, kind in dependences(log):
        first, after = operations[firsts[0]].place, operations[second].place
        counts[first.file, first.line, after.file, after.line, kind] += len(firsts)
    return counts


class _Marks:
    """Which bytes of a storage have been written, in units that all its accesses respect."""

    __slots__ = ("_low", "_unit", "marks")

    def __init__(self, storage: StorageRecord, parts: set[AccessPart]) -> None:
        self._low = low = min([0, *(part.address for part in parts)])
        high = max([storage.nbytes, *(part.end for part in parts)])
        self._unit = max(gcd(high - low, *(number for part in parts for number in _measures(part, low))), 1)
        self.marks = bytearray((high - low) // self._unit)

    @property
    def is_whole(self) -> bool:
        """Tell whether all has been written."""
        return 0 not in self.marks

    def write(self, part: AccessPart) -> None:
        """Note a write; of elements that are not known, it may be all."""
        for one in self._slices(part):
            self.marks[one] = b"\x01" * len(range(one.start, one.stop, one.step))

    def lacks(self, part: AccessPart) -> bool:
        """Tell whether a read certainly reads a byte that was never written."""
        is_known = type(part) is not PickedPart or part.offsets is not None
        return is_known and any(0 in self.marks[one] for one in self._slices(part))

    def _slices(self, part: AccessPart) -> Iterator[slice]:
        """Yield the units of a part."""
        unit = self._unit
        if type(part) is PickedPart and part.offsets is not None:
            for offset in array("q", part.offsets):
                at = (offset - self._low) // unit
                yield slice(at, at + part.itemsize // unit, 1)
            return
        *outer, (count, stride) = part.dims or ((1, part.run_nbytes),)
        run, step = part.run_nbytes // unit, stride // unit
        if run == 1:
            inner = [slice(0, (count - 1) * step + 1, step)]
        else:
            inner = [slice(k * step, k * step + run, 1) for k in range(count)]
        starts = [(part.address - self._low) // unit]
        for n, stride in outer:
            starts = [at + k * stride // unit for at in starts for k in range(n)]
        for at in starts:
            yield from (slice(at + one.start, at + one.stop, one.step) for one in inner)


def _measures(part: AccessPart, low: int) -> Iterator[int]:
    """Yield the numbers that the unit of a storage has to divide."""
    yield part.address - low
    yield part.run_nbytes
    yield from (stride for _, stride in part.dims)
    if type(part) is PickedPart:
        yield part.itemsize
        yield from (offset - low for offset in array("q", part.offsets or b""))


def uninitialised(log: PortLog) -> Counter[tuple[int, int]]:
    """Count the reads of device storage that was never written.

    The keys are the storage, and the first operation of a line that reads it so.
    """
    unwritten = _unwritten(log)
    firsts: dict[tuple[int, str, int], int] = {}
    counts: Counter[tuple[int, int]] = Counter()
    for operation in log.operations:
        read = [part for part in operation.reads if part not in operation.assumed] if unwritten else []
        for space in dict.fromkeys(space_of(part) for part in read if _lacks(unwritten, part)):
            key = (space, operation.place.file, operation.place.line)
            counts[space, firsts.setdefault(key, operation.number)] += 1
        for part in operation.writes:
            marks = unwritten.get(space_of(part))
            if marks is not None and part.run_nbytes:
                marks.write(part)
                if marks.is_whole:
                    del unwritten[space_of(part)]
    return counts


def _lacks(unwritten: dict[int, _Marks], part: AccessPart) -> bool:
    marks = unwritten.get(space_of(part))
    return marks is not None and bool(part.run_nbytes) and marks.lacks(part)


def _unwritten(log: PortLog) -> dict[int, _Marks]:
    """Return the device storages that the program allocated and whose first access does not write them whole."""
    parts: dict[int, set[AccessPart]] = {}
    whole: set[int] = set()
    for operation in log.operations:
        for accessed in (operation.reads, operation.writes):
            for part in accessed:
                space = space_of(part)
                storage = log.storages[space]
                if space in whole or storage.kind != "device" or not storage.call or not part.run_nbytes:
                    continue
                if space in parts or accessed is operation.reads or part[1:] != (0, (), storage.nbytes):
                    parts.setdefault(space, set()).add(part)
                else:
                    whole.add(space)
    return {space: _Marks(log.storages[space], found) for space, found in parts.items()}


@dataclass(slots=True, eq=False)
class BlockingCopy:
    """Copies of one line that make the host wait."""

    operation: int  # the first
    count: int = 0
    used: int | None = None  # the operation that first uses a result on the host


_GIVE_ARRAYS = frozenset({"get", "asnumpy"})
"""Copies that give an array. Others give a number or a shape, which the line of the copy itself uses."""


def blocking(log: PortLog) -> list[BlockingCopy]:
    """Return the copies that make the host wait, by lines, in the order in which the program came to them."""
    found: dict[tuple[str, int, str], BlockingCopy] = {}
    pending: dict[int, dict[tuple[BlockingCopy, AccessPart], None]] = {}
    for operation in log.operations:
        for part in _read_by_host(operation):
            waiting = pending.get(space_of(part), {})
            for item in [item for item in waiting if shares(item[1], part)]:
                del waiting[item]
                if item[0].used is None:
                    item[0].used = operation.number
        if not operation.blocks:
            continue
        place = operation.place
        copy = found.setdefault((place.file, place.line, operation.call), BlockingCopy(operation.number))
        copy.count += 1
        if operation.call not in _GIVE_ARRAYS:
            copy.used = copy.operation if copy.used is None else copy.used
        for part in operation.writes:
            if part.run_nbytes and copy.used is None:
                pending.setdefault(space_of(part), {})[copy, part] = None
    return list(found.values())


def _read_by_host(operation: StreamOperation) -> tuple[AccessPart, ...]:
    if operation.kind in {"host", "callback"}:
        return operation.reads
    return operation.host_reads + (operation.reads if operation.kind == "to device" else ())
