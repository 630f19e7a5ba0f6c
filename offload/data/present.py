"""The present table of one device: what is mapped there, how often, and what a construct has to do about it.

Theory of operation
-------------------
An `Entry` says that the bytes of a host section have corresponding storage on the device, with a reference count. No
byte is in two entries. A construct is carried out in three steps, so that one that fails has changed nothing:
`PresentTable.enter` (or `exit`) only *plans*: which entries to make, which to count, what to copy; the caller
allocates; `commit` (or `commit_exit`) applies the plan and cannot fail. A plan holds for the table as it was: the
caller keeps other threads out from plan to commit, and a plan that is late is refused (`InternalError`).

Look-ups. The same item again is a dictionary hit, because a `Section` is canonical. A part of a dense entry is
found by bisection: dense entries share no byte, so only the last one that begins at or before the item can hold it.
Packed entries (with gaps) may interleave, as tiles of a matrix do: of these only the ones whose bounds reach the item
are asked. A construct's own new entries are kept in the same index, largest first, so that an item inside another
of the same construct meets it there.

The buffer of an entry is ``section.nbytes`` bytes. A dense one mirrors the host's bytes at the same offsets. A packed
one holds the rows of the *section*, lowest address first, without gaps: for a slice of a C-ordered array that is the
item in C order; a transposed item stays transposed, a repeated one is stored once. `correspond` says where a view lies.

Rejected: the item's own shape as the packed order (an item seen again under another shape would not fit, stride 0 would
multiply storage), and treating a strided item as its bounding range (a copy back would overwrite the gaps).

OpenMP 5.2, 5.8.3 "map Clause": one increment and one decrement an entry and construct, ``present`` items first, copies
before removal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offload.data.maptypes import MapType
from offload.errors import ExtensionError, InternalError, MapError, NotPresentError
from offload.storage import Section, c_strides, covers, locate_nbytes, overlaps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class PresentTable:
    """The mappings of one device. Not locked: the caller orders the calls.

    Parameters
    ----------
    device_num : int
        For messages.
    """

    __slots__ = ("_generation", "_index", "_version", "device_num")

    def __init__(self, device_num: int = 0) -> None:
        self.device_num = device_num
        self._index = _Index()
        self._version = 0
        self._generation = 0

    def find(self, section: Section, label: str = "the item") -> Entry | None:
        """Return the entry that holds all of ``section``, or None if nothing of it is present.

        A section without bytes is found where an entry holds its address.

        Raises
        ------
        ExtensionError
            A part of it is present. ``label`` names it in the message.
        """
        entry, other = self._index.search(section)
        if other is not None:
            raise ExtensionError(self._extends(label, other))
        return entry

    def enter(self, items: Iterable[MapItem]) -> EnterPlan:
        """Plan the entry of a construct; change nothing.

        Raises
        ------
        NotPresentError
            An item with ``present`` is not wholly present.
        ExtensionError
            A part of an item is present.
        MapError
            Two items that are not present overlap in part, or an item's rows interleave.
        """
        plan = EnterPlan(tuple(items), self._version)
        search = self._index.search
        entries = plan.entries
        absent: list[int] = []
        extending: tuple[MapItem, Entry] | None = None
        for k, item in enumerate(plan.items):
            entry, other = search(item.section)
            if entry is None:
                if item.present:
                    raise NotPresentError(self._absent(item, other))
                if other is not None:
                    extending = extending or (item, other)
                elif item.section.run_nbytes:
                    absent.append(k)
            elif not item.section.run_nbytes:
                entry = None
            elif item.always and item.map_type.copies_in:
                plan.copies.append((item, entry))
            entries.append(entry)
        if extending:
            raise ExtensionError(self._extends(_clause(extending[0]), extending[1], is_implicit=extending[0].implicit))
        if absent:
            self._plan_new(plan, absent)
        plan.counted = _distinct(entries)
        plan.copies = _distinct_copies(plan.copies)
        return plan

    def commit(self, plan: EnterPlan, buffers: Sequence[object]) -> None:
        """Insert the plan's new entries and count.

        Parameters
        ----------
        plan : EnterPlan
            From `enter`, with no other commit in between.
        buffers : sequence
            One device buffer of ``entry.nbytes`` bytes for each of ``plan.created``, in order.
        """
        if len(buffers) != len(plan.created):
            msg = f"{len(buffers)} buffers for {len(plan.created)} new entries; give one for each of plan.created"
            raise InternalError(msg)
        self._check(plan)
        for entry, buffer in zip(plan.created, buffers, strict=True):
            self._generation += 1
            entry.generation = self._generation
            entry.buffer = buffer
            self._index.add(entry)
        for entry in plan.counted:
            entry.count += 1

    def exit(self, items: Iterable[MapItem]) -> ExitPlan:
        """Plan the exit of a construct; change nothing. Items that are absent, or present in part, are ignored.

        Raises
        ------
        NotPresentError
            An item with ``present`` is not wholly present.
        """
        plan = ExitPlan(tuple(items), self._version)
        entries = plan.entries
        deleted: set[Entry] = set()
        for item in plan.items:
            entry, other = self._index.search(item.section)
            if entry is None:
                if item.present:
                    raise NotPresentError(self._absent(item, other))
            elif not item.section.run_nbytes:
                entry = None
            elif item.map_type is MapType.DELETE:
                deleted.add(entry)
            entries.append(entry)
        for entry in _distinct(entries):
            count = 0 if entry in deleted else entry.count - 1
            plan.counts.append((entry, count))
            if not count:
                plan.removed.append(entry)
        removed = set(plan.removed)
        for item, hit in zip(plan.items, entries, strict=True):
            if hit is not None and item.map_type.copies_out and (item.always or hit in removed):
                plan.copies.append((item, hit))
        plan.copies = _distinct_copies(plan.copies)
        return plan

    def commit_exit(self, plan: ExitPlan) -> None:
        """Set the plan's counts and remove the entries that reached 0; their buffers are the caller's to free."""
        self._check(plan)
        for entry, count in plan.counts:
            entry.count = count
        for entry in plan.removed:
            self._index.remove(entry)

    def undo(self, plan: EnterPlan) -> list[Entry]:
        """Take back a committed `enter` without copying anything; return the entries that it removed.

        Entries that were removed since then are left alone, also where the same storage was mapped anew.
        """
        if not plan.is_committed:
            msg = "an entry that was never committed is undone; drop the plan instead"
            raise InternalError(msg)
        live = self._index.exact
        return self._decrement([entry for entry in plan.counted if live.get(entry.section) is entry])

    def release(self, items: Iterable[MapItem]) -> list[Entry]:
        """Decrement once an entry, whatever the items' types, copy nothing; return the entries removed.

        As at an exit, items that are absent or present in part are ignored.
        """
        hits = [self._index.search(item.section)[0] for item in items if item.section.run_nbytes]
        return self._decrement(_distinct(hits))

    def entries(self) -> tuple[Entry, ...]:
        """Return the live entries, lowest address first."""
        return tuple(sorted(self._index.exact.values(), key=_by_address))

    def live(self) -> int:
        """Return the number of live entries."""
        return len(self._index.exact)

    def _plan_new(self, plan: EnterPlan, absent: list[int]) -> None:
        """Make entries for the items of a plan that are not present, by their numbers."""
        items = plan.items
        fresh = _Index()
        for k in sorted(absent, key=lambda k: -items[k].section.nbytes):
            item = items[k]
            entry, other = fresh.search(item.section)
            if other is not None:
                msg = (
                    f"{_clause(item)} overlaps {other.label} of the same construct in part; the items of a construct "
                    "are disjoint, or one holds the other; map the smallest section that holds both"
                )
                raise MapError(msg)
            if entry is None:
                if not item.section.is_nested:
                    msg = (
                        f"{_clause(item)} has rows that interleave, with strides {item.strides}; an item with gaps "
                        "needs each stride to be at least the extent inside it; map the array that it is a view of"
                    )
                    raise MapError(msg)
                entry = Entry(item.section, item.host, item.label)
                fresh.add(entry)
                plan.created.append(entry)
            plan.entries[k] = entry
            if item.map_type.copies_in:
                plan.copies.append((item, entry))

    def _check(self, plan: EnterPlan | ExitPlan) -> None:
        """Refuse a plan made for another state of the table, and outdate the others."""
        if plan.is_committed or plan.version != self._version:
            msg = f"a plan for state {plan.version} of the table is committed in state {self._version}; plan anew"
            raise InternalError(msg)
        plan.is_committed = True
        self._version += 1

    def _decrement(self, entries: list[Entry]) -> list[Entry]:
        self._version += 1
        removed = []
        for entry in entries:
            entry.count -= 1
            if not entry.count:
                self._index.remove(entry)
                removed.append(entry)
        return removed

    def _extends(self, what: str, other: Entry, *, is_implicit: bool = False) -> str:
        remedy = "exit that mapping first or map all of it there"
        if is_implicit:
            remedy = "pass the section that is present, or map all of it there"
        return f"{what} extends {other.label}, already present on device {self.device_num}; {remedy}"

    def _absent(self, item: MapItem, other: Entry | None) -> str:
        state = "not present" if other is None else f"present in part only ({other.label})"
        return (
            f"{_clause(item)} is {state} on device {self.device_num}; an item with `present` must be mapped there as a "
            "whole; map it before, or leave `present` out"
        )


@dataclass(slots=True, eq=False)
class MapItem:
    """One list item of a ``map`` clause, evaluated.

    Attributes
    ----------
    section : Section
        The host bytes it covers.
    address, shape, strides, itemsize
        The host view: address of element ``(0, …, 0)``, elements, **bytes**, bytes.
    map_type : MapType
        The effective type, from `offload.data.maptypes.resolve`.
    always, present : bool
        The modifiers.
    host : object
        What keeps the host memory alive; opaque here.
    label : str
        For messages: ``"x[0:50]"``.
    implicit : bool
        The item is in no clause.
    """

    section: Section
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    map_type: MapType
    always: bool = False
    present: bool = False
    host: object = None
    label: str = "the item"
    implicit: bool = False


class Entry:
    """Corresponding storage of one host section.

    Attributes
    ----------
    section : Section
        The host bytes; dense, or with gaps (``is_packed``).
    end : int
        One past the highest host address.
    count : int
        References; 0 before the commit and after the removal.
    buffer : object
        The device buffer of ``nbytes`` bytes; None until the commit. Opaque here, as are the next three.
    host : object
        Keeps the host memory alive.
    last_write : object
        What a reader of the buffer must wait for; None if nothing.
    users : dict
        Who uses the buffer.
    generation : int
        Differs between any two entries of a table, also of the same section; 0 before the commit.
    label : str
        The item that made it.
    """

    __slots__ = ("buffer", "count", "end", "generation", "host", "label", "last_write", "section", "users")

    def __init__(self, section: Section, host: object, label: str) -> None:
        self.section = section
        self.end = section.end
        self.count = 0
        self.buffer: object = None
        self.host = host
        self.last_write: object = None
        self.users: dict[object, object] = {}
        self.generation = 0
        self.label = label

    def __repr__(self) -> str:
        return f"<Entry {self.label} at {self.section.address:#x}, {self.nbytes} bytes, count {self.count}>"

    @property
    def nbytes(self) -> int:
        """Return the size of the buffer."""
        return self.section.nbytes

    @property
    def is_packed(self) -> bool:
        """Tell whether the host section has gaps, which the buffer has not."""
        return bool(self.section.dims)


@dataclass(slots=True, eq=False)
class EnterPlan:
    """What the entry of a construct will do.

    Attributes
    ----------
    items : tuple of MapItem
        In the order of the clauses.
    version : int
        The state of the table that the plan is for.
    entries : list of Entry or None
        For each item, the entry that holds it; None for an item without elements.
    created : list of Entry
        New entries, largest first, each needing a buffer of ``entry.nbytes`` bytes.
    counted : list of Entry
        Entries whose count goes up by 1, the new ones included, each once.
    copies : list of (MapItem, Entry)
        Copies host to device of the items' own bytes, each once.
    """

    items: tuple[MapItem, ...]
    version: int
    entries: list[Entry | None] = field(default_factory=list)
    created: list[Entry] = field(default_factory=list)
    counted: list[Entry] = field(default_factory=list)
    copies: list[tuple[MapItem, Entry]] = field(default_factory=list)
    is_committed: bool = False


@dataclass(slots=True, eq=False)
class ExitPlan:
    """What the exit of a construct will do.

    Attributes
    ----------
    items, version, entries
        As in `EnterPlan`; the entry is None for an item that is ignored.
    counts : list of (Entry, int)
        The new count of every entry concerned.
    copies : list of (MapItem, Entry)
        Copies device to host of the items' own bytes, each once; to be enqueued before the buffers are freed.
    removed : list of Entry
        Entries whose count reaches 0.
    """

    items: tuple[MapItem, ...]
    version: int
    entries: list[Entry | None] = field(default_factory=list)
    counts: list[tuple[Entry, int]] = field(default_factory=list)
    copies: list[tuple[MapItem, Entry]] = field(default_factory=list)
    removed: list[Entry] = field(default_factory=list)
    is_committed: bool = False


def correspond(
    entry: Entry, address: int, shape: Sequence[int], strides: Sequence[int] | None, itemsize: int
) -> tuple[int, tuple[int, ...]]:
    """Return where a view of the host storage lies in the entry's buffer: offset and strides, both in bytes.

    Parameters
    ----------
    entry : Entry
        The entry that holds all of the view, as `PresentTable.find` says.
    address, shape, strides, itemsize
        The host view; ``strides`` in bytes, None for a C-contiguous one.

    Raises
    ------
    InternalError
        The entry does not hold the view.
    """
    if strides is None:
        strides = c_strides(shape, itemsize)
    if not entry.section.dims:
        return address - entry.section.address, tuple(strides)
    place = locate_nbytes(entry.section, address, shape, strides, itemsize)
    if place is None:
        msg = f"a view of shape {tuple(shape)} at {address:#x} is not in {entry!r}; ask `find` before"
        raise InternalError(msg)
    return place


class _Index:
    """Entries that share no byte, found by section."""

    __slots__ = ("dense", "dense_starts", "exact", "packed", "packed_starts", "reach")

    def __init__(self) -> None:
        self.exact: dict[Section, Entry] = {}
        # Sorted by address, with the addresses beside them for bisect.
        self.dense: list[Entry] = []
        self.dense_starts: list[int] = []
        self.packed: list[Entry] = []
        self.packed_starts: list[int] = []
        # The longest extent of a packed entry so far: none that begins further down can reach an item.
        self.reach = 0

    def add(self, entry: Entry) -> None:
        section = entry.section
        self.exact[section] = entry
        entries, starts = self._lists(section)
        k = bisect_left(starts, section.address)
        starts.insert(k, section.address)
        entries.insert(k, entry)
        if section.dims:
            self.reach = max(self.reach, entry.end - section.address)

    def remove(self, entry: Entry) -> None:
        section = entry.section
        del self.exact[section]
        entries, starts = self._lists(section)
        k = bisect_left(starts, section.address)
        del starts[k], entries[k]
        if not self.packed:
            self.reach = 0

    def search(self, section: Section) -> tuple[Entry | None, Entry | None]:
        """Return the entry that holds all of ``section``, else one that holds a part of it."""
        entry = self.exact.get(section)
        if entry is not None:
            return entry, None
        address = section[1]
        if not section[3]:
            return self.search(Section(section[0], address, (), 1))
        end = section.end if section[2] else address + section[3]
        starts = self.dense_starts
        k = bisect_right(starts, address)
        if k:
            entry = self.dense[k - 1]
            if entry.end >= end:
                return entry, None
            if entry.end > address and overlaps(entry.section, section):
                return None, entry
        while k < len(starts) and starts[k] < end:
            entry = self.dense[k]
            if overlaps(entry.section, section):
                return None, entry
            k += 1
        return self._search_packed(section, address, end) if self.packed else (None, None)

    def _search_packed(self, section: Section, address: int, end: int) -> tuple[Entry | None, Entry | None]:
        starts = self.packed_starts
        for k in range(bisect_right(starts, address - self.reach), bisect_left(starts, end)):
            entry = self.packed[k]
            if entry.end > address:
                if covers(entry.section, section):
                    return entry, None
                if overlaps(entry.section, section):
                    return None, entry
        return None, None

    def _lists(self, section: Section) -> tuple[list[Entry], list[int]]:
        return (self.packed, self.packed_starts) if section.dims else (self.dense, self.dense_starts)


def _distinct(entries: list[Entry | None]) -> list[Entry]:
    return list(dict.fromkeys([entry for entry in entries if entry is not None]))


def _distinct_copies(copies: list[tuple[MapItem, Entry]]) -> list[tuple[MapItem, Entry]]:
    """Drop copies of what is copied already: the same bytes again, and parts of an entry that is copied whole."""
    if len(copies) <= 1:
        return copies
    first: dict[Section, tuple[MapItem, Entry]] = {}
    for item, entry in copies:
        first.setdefault(item.section, (item, entry))
    return [copy for section, copy in first.items() if section == copy[1].section or copy[1].section not in first]


def _clause(item: MapItem) -> str:
    return f"map({item.map_type.word}: {item.label})"


def _by_address(entry: Entry) -> int:
    return entry.section.address
