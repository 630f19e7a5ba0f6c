"""The dependence tracker: which earlier siblings a new task must follow.

Theory of operation
-------------------
Every generating task has one tracker, used by its one thread, so there is no lock. A *cell* stands for one
storage location that a ``depend`` item named: its last writer, and the readers since. A task that reads
follows the writer; one that writes follows the readers, or the writer if there are none (the readers have
followed it already). That is the whole of OpenMP 5.2, 15.9.5 for ``in``, ``out`` and ``inout`` as long as
items are identical or disjoint, and the usual case is one dictionary look-up.

Items that overlap without being identical are found when a location is seen for the first time: the new
cell is linked with every cell that shares a byte with it, and from then on each access looks at the
linked cells as well. The search costs something once a location, never once a task. Candidates come from a
list sorted by address; the exact test is `offload.storage.overlaps`.

Cells whose tasks have all finished are swept when their number has doubled, so that a program that names a
million fresh locations runs in constant memory.

Rejected: comparing base addresses only, as C runtimes do (a view and its base would race); an interval tree
over addresses (the columns of a matrix all lie in one interval); a scan of the siblings for each task.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Protocol

from offload.storage import Section, overlaps

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

_FIRST_SWEEP = 1024
"""Cells before the first sweep: some 200 KB."""


class Sibling(Protocol):
    """What the tracker needs of a task: whether it may be forgotten."""

    @property
    def past(self) -> bool: ...


class Access(Protocol):
    """What the tracker needs of a ``depend`` clause."""

    @property
    def reads(self) -> bool: ...
    @property
    def writes(self) -> bool: ...
    @property
    def keys(self) -> Sequence[Hashable]: ...


class _Cell:
    __slots__ = ("key", "linked", "readers", "writer")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.writer: Any = None
        self.readers: list[Any] = []
        self.linked: list[_Cell] = []

    def is_past(self) -> bool:
        return (self.writer is None or self.writer.past) and all(reader.past for reader in self.readers)


class _Space:
    """The cells of one address space, sorted by lowest address."""

    __slots__ = ("cells", "longest", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.cells: list[_Cell] = []
        self.longest = 0

    def link(self, cell: _Cell, section: Section) -> None:
        low, high = section.address, section.end
        first = bisect_right(self.starts, low - self.longest)
        last = bisect_left(self.starts, high, first)
        for other in self.cells[first:last]:
            if overlaps(other.key, section):  # type: ignore[arg-type]  # cells of a space have sections for keys
                cell.linked.append(other)
                other.linked.append(cell)
        at = bisect_right(self.starts, low)
        self.starts.insert(at, low)
        self.cells.insert(at, cell)
        self.longest = max(self.longest, high - low)


class Tracker:
    """The dependences among the tasks that one task generates."""

    __slots__ = ("_cells", "_limit", "_spaces", "forgets")

    def __init__(self, *, forgets: bool = True) -> None:
        self._cells: dict[Hashable, _Cell] = {}
        self._spaces: dict[Hashable, _Space] = {}
        self._limit = _FIRST_SWEEP
        self.forgets = forgets

    def __len__(self) -> int:
        return len(self._cells)

    def add(
        self, task: Any, accesses: Sequence[Access], edges: list[tuple[Any, str, Hashable]] | None = None
    ) -> Iterable[Any]:
        """Enter a task and return the earlier ones that it must follow, each once; some may have finished.

        Parameters
        ----------
        task : Sibling
            The new task; hashable by identity.
        accesses : sequence of Access
            Its ``depend`` clauses, in order.
        edges : list, optional
            Receives (predecessor, kind, location) for every dependence found, for graphs; kind is ``"flow"``
            (read after write, so also ``inout`` after a write), ``"anti"`` (write after read) or ``"output"`` (write
            after write).

        Returns
        -------
        iterable of tasks
            Predecessors in the order found. ``task`` itself is never among them.
        """
        cells = self._cells
        found: dict[Any, None] = {}
        for access in accesses:
            reads, writes = access.reads, access.writes
            for key in access.keys:
                cell = cells.get(key)
                if cell is None:
                    cell = self._new_cell(key)
                _follow(cell, reads, writes, found, edges, key)
                if cell.linked:
                    for other in cell.linked:
                        _follow(other, reads, writes, found, edges, key)
                if writes:
                    cell.writer = task
                    if cell.readers:
                        cell.readers = []
                else:
                    readers = cell.readers
                    readers.append(task)
                    if self.forgets and len(readers) & 63 == 0:
                        readers[:] = [reader for reader in readers if not reader.past]
        if found:
            found.pop(task, None)
            if edges:
                edges[:] = [edge for edge in edges if edge[0] is not task]
        return found

    def latest(self, accesses: Sequence[Access]) -> Iterable[Any]:
        """Return the tasks that one with these clauses would follow, entering none (``taskwait depend``)."""
        found: dict[Any, None] = {}
        for access in accesses:
            for key in access.keys:
                cell = self._cells.get(key) or self._new_cell(key)
                for other in (cell, *cell.linked):
                    _follow(other, access.reads, access.writes, found, None, key)
        return found

    def _new_cell(self, key: Hashable) -> _Cell:
        if self.forgets and len(self._cells) >= self._limit:
            self._sweep()
        cell = self._cells[key] = _Cell(key)
        if isinstance(key, Section):
            space = self._spaces.get(key.space)
            if space is None:
                space = self._spaces[key.space] = _Space()
            space.link(cell, key)
        return cell

    def _sweep(self) -> None:
        for key in [key for key, cell in self._cells.items() if cell.is_past()]:
            del self._cells[key]  # in place: `add` is in the middle of a look-up
        alive = set(map(id, self._cells.values()))
        for cell in self._cells.values():
            if cell.linked:
                cell.linked = [other for other in cell.linked if id(other) in alive]
        for name, space in list(self._spaces.items()):
            space.cells = [cell for cell in space.cells if id(cell) in alive]
            if not space.cells:
                del self._spaces[name]
                continue
            sections = [cell.key for cell in space.cells if isinstance(cell.key, Section)]
            space.starts = [section.address for section in sections]
            space.longest = max(section.end - section.address for section in sections)
        self._limit = max(_FIRST_SWEEP, 2 * len(self._cells))


def _follow(  # the inner loop of the tracker
    cell: _Cell,
    reads: bool,
    writes: bool,
    found: dict[Any, None],
    edges: list[tuple[Any, str, Hashable]] | None,
    key: Hashable,
) -> None:
    """Note whom an access to ``cell`` must follow."""
    writer = cell.writer
    if writes and cell.readers:
        for reader in cell.readers:
            found[reader] = None
            if edges is not None:
                edges.append((reader, "anti", key))
    elif writer is not None:
        found[writer] = None
        if edges is not None:
            edges.append((writer, "flow" if reads else "output", key))
