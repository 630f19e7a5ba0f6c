"""The present table of one device: its mappings, their reference counts, and the plans of constructs.

Theory of operation
-------------------
An `Entry` says that the bytes of a host section have corresponding storage on the device, and counts its references.
No byte is in two entries. `PresentTable.enter` (or `exit`) only *plans*; the caller allocates; `commit` applies the
plan and cannot fail. So a construct that fails has changed nothing. The caller keeps other threads out from plan to
commit, and a plan that is late is refused (`InternalError`).

Most constructs find everything present and copy nothing. Their plan `only_counts`: until an entry goes, it is committed
once more without a look at the items, and `leave` ends it without a search.

The buffer of an entry is ``section.nbytes`` bytes. A dense one mirrors the host's bytes at the same offsets. A packed
one holds the rows of the *section*, lowest address first, without gaps: for a slice of a C-ordered array that is the
item in C order; a transposed item stays transposed, a repeated one is stored once. `correspond` says where a view lies.
An item is in a packed entry if it has a place there, which its own axes decide: a section may have merged them.

OpenMP 5.2, 5.8.3 "map Clause": one increment and one decrement an entry and construct, ``present`` items first, copies
before removal. 13.9 "target update Construct": counts do not change, absent items are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from offload.arrays.sections import covers
from offload.data.entries import Counter, Entry, Index, Origin, has_no_place
from offload.data.maptypes import MapType
from offload.data.plans import Plan
from offload.errors import ExtensionError, InternalError, MapError, NotPresentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.arrays.sections import Section
    from offload.data.items import MapItem
    from offload.data.plans import ItemCopy, KnownWork

_DYNAMIC = Counter.DYNAMIC  # to look one up costs 0.15 µs

_MOST_REMEMBERED = 1024
"""What is remembered: some 1.6 MB of bindings and updates, three each for 300 blocks of a matrix."""


class PresentTable:
    """The mappings of one device. Not locked: the caller orders the calls.

    Parameters
    ----------
    device_num : int
        For messages.
    """

    __slots__ = ("_generation", "_index", "device_num", "remembered", "state", "version")

    make_entry: ClassVar[type[Entry]] = Entry

    def __init__(self, device_num: int = 0) -> None:
        self.device_num = device_num
        self._index = Index()
        # The works that callers `remember`, by their keys.
        self.remembered: dict[Any, KnownWork] = {}
        # A number that differs after each change, and an object that differs after each removal of an entry.
        self.version = 0
        self.state = object()
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

    def search(self, section: Section, item: MapItem | None = None) -> tuple[Entry | None, Entry | None]:
        """Return the entry that holds all of ``section``, else, second, one that holds a part of it (`Index`)."""
        return self._index.search(section, item)

    def at(self, section: Section) -> Entry | None:
        """Return the entry of exactly this section."""
        return self._index.exact.get(section)

    def enter(self, items: Sequence[MapItem], counter: Counter = Counter.DYNAMIC) -> Plan:
        """Plan the entry of a construct that counts in ``counter``; change nothing.

        Raises
        ------
        NotPresentError
            An item with ``present`` is not wholly present.
        ExtensionError
            A part of an item is present.
        MapError
            Two items that are not present overlap in part, an item's rows interleave, or an item is present but its
            elements have no strides there (`correspond`).
        """
        plan = Plan(items, counter)
        plan.version, plan.state = self.version, self.state
        exact, search_near = self._index.exact, self._index.search_near
        entries = plan.entries
        absent: list[int] = []
        copies = plan.copies
        extending: tuple[MapItem, Entry] | None = None
        only_counts = True
        for number, item in enumerate(items):
            section = item.section
            entry, other = exact.get(section), None
            if entry is None:
                entry, other = search_near(section, item)
            # Most items are present and only counted: whatever else there is to decide stands in this branch.
            if entry is None or item.always or not section[3] or item.map_type is MapType.DELETE:
                only_counts = False
                if entry is None:
                    is_ignored = item.if_present or (item.is_room and other is not None)
                    if not is_ignored and other is not None:
                        _check_place(item, other)
                    # An error of a `present` item comes first, whatever is wrong with items after it.
                    if item.present:
                        raise NotPresentError(self._absent(item, other))
                    if other is not None and not is_ignored:
                        extending = extending or (item, other)
                    elif section[3] and not is_ignored:
                        absent.append(number)
                elif not section[3]:
                    entry = None
                elif item.always and item.map_type.copies_in:
                    copies.append((item, entry))
            entries.append(entry)
        if extending:
            raise ExtensionError(self._extends(extending[0].text(), extending[1], is_implicit=extending[0].implicit))
        plan.only_counts = only_counts
        if absent:
            self._plan_new(plan, absent)
        if entries[1:] or None in entries:
            plan.counted = _distinct(entries)
            plan.uses = [(entry, item.section) for item, entry in zip(items, entries, strict=True) if entry is not None]
        elif entries:  # one, as for most constructs
            plan.counted, plan.uses = entries, [(entries[0], items[0].section)]  # type: ignore[assignment, list-item]  # none is None
        if copies[1:]:
            plan.copies = _distinct_copies(copies)
        return plan

    def commit(self, plan: Plan, buffers: Sequence[object] = ()) -> None:
        """Insert the plan's new entries, count, and remove the entries without counts; cannot fail.

        Parameters
        ----------
        plan : Plan
            From `enter` or `exit`, with no other commit in between. One that only counts may come again until an entry
            goes.
        buffers : sequence
            One device buffer of ``entry.nbytes`` bytes for each of ``plan.created``, in order. The caller frees those
            of ``plan.removed``.
        """
        if plan.version != self.version and not (plan.only_counts and plan.state is self.state):
            msg = f"a plan for state {plan.version} of the table is committed in state {self.version}; plan again"
            raise InternalError(msg)
        created = plan.created
        if created or buffers:
            try:
                for entry, buffer in zip(created, buffers, strict=True):
                    entry.buffer = buffer
            except ValueError:
                msg = f"{len(buffers)} buffers for {len(created)} new entries; give one for each of plan.created"
                raise InternalError(msg) from None
        plan.is_committed = True
        self.version += 1
        for entry in created:
            self._generation = entry.generation = self._generation + 1
            self._index.add(entry)
        if plan.counter is _DYNAMIC:
            for entry in plan.counted:
                entry.dynamic += 1
        else:
            for entry in plan.counted:
                entry.structured += 1
        for entry, dynamic, structured in plan.counts:
            entry.dynamic, entry.structured = dynamic, structured
        for entry in plan.removed:
            self._remove(entry)

    def exit(
        self,
        items: Sequence[MapItem],
        counter: Counter = Counter.DYNAMIC,
        *,
        ends_region: bool = False,
        finalizes: bool = False,
    ) -> Plan:
        """Plan the exit of a construct that counts in ``counter``; change nothing.

        Items that are absent, or present in part, are ignored. At the end of a region that was entered with them
        (``ends_region``) that is so with ``present`` too: they were present then, and a deletion inside has ended them.
        With ``finalizes`` every item takes all references of the counter, as `MapType.DELETE` does.

        Raises
        ------
        NotPresentError
            An item with ``present`` is not wholly present.
        MapError
            An item is present, but its elements have no strides there. The end of a region ignores it.
        """
        plan = Plan(items, counter)
        plan.version = self.version
        entries, counts, removed, copies = plan.entries, plan.counts, plan.removed, plan.copies
        deleted: set[Entry] = set()
        exact, search_near = self._index.exact, self._index.search_near
        for item in items:
            entry, other = exact.get(item.section), None
            if entry is None:
                entry, other = search_near(item.section, item)
            if entry is None:
                if not ends_region:
                    _check_place(item, other)
                    if item.present:
                        raise NotPresentError(self._absent(item, other))
            elif not item.section.run_nbytes:
                entry = None
            elif finalizes or item.map_type is MapType.DELETE:
                deleted.add(entry)
            entries.append(entry)
        for entry in _distinct(entries) if entries[1:] else entries:
            if entry is None:
                continue
            dynamic, structured = entry.counts_after(counter, deletes=entry in deleted)
            counts.append((entry, dynamic, structured))
            if dynamic or structured:
                plan.is_kept = True
            else:
                removed.append(entry)
        # The data is copied back where its entry goes, or at each exit with `always`.
        gone = set(removed) if removed else ()
        for item, hit in zip(items, entries, strict=True):
            if hit is not None and item.map_type.copies_out and (item.always or hit in gone):
                copies.append((item, hit))
        if copies[1:]:
            plan.copies = _distinct_copies(copies)
        return plan

    def update(self, items: Sequence[MapItem]) -> Plan:
        """Plan an update: copies of items, each of the same bytes once; change nothing.

        The map type of an item is `MapType.TO` or `MapType.FROM`. Items that are absent, or present in part, are left
        out.

        Raises
        ------
        NotPresentError
            An item with ``present`` is not wholly present.
        MapError
            An item is present, but its elements have no strides there.
        """
        plan = Plan(items)
        plan.state = self.state
        copies = plan.copies
        for item in items:
            entry, other = self._index.search(item.section, item)
            if entry is None:
                _check_place(item, other, "target_update")
                if item.present:
                    raise NotPresentError(self._absent(item, other, "target_update"))
            elif item.section.run_nbytes:
                copies.append((item, entry))
        if copies[1:]:
            plan.copies = copies = _distinct_copies(copies)
        plan.copies_in = [copy for copy in copies if copy[0].map_type.copies_in]
        plan.copies_out = [copy for copy in copies if not copy[0].map_type.copies_in]
        plan.writes = [(entry, item.section) for item, entry in plan.copies_in]
        plan.reads = [(entry, item.section) for item, entry in plan.copies_out]
        # The buffers too: a task that knows nothing of this one may end their mappings meanwhile.
        plan.held = [*[entry.buffer for _, entry in copies], *[item.host for item in items]]
        return plan

    def insert(self, item: MapItem, buffer: object, origin: Origin) -> Entry:
        """Make an entry that no construct ends, over a buffer of ``item.section.nbytes`` bytes; return it.

        Raises
        ------
        MapError
            The item, or a part of it, is present, or its rows interleave. Nothing has changed.
        """
        entry, other = self._index.search(item.section, item)
        if entry is not None or other is not None:
            present = (entry or other).label  # type: ignore[union-attr]  # one of them is there
            raise MapError(
                f"{item.label} is already present on device {self.device_num} ({present}); storage that is "
                f"{origin.value} must share no byte with other mappings; end that mapping first"
            )
        if not item.section.is_nested:
            raise MapError(_interleaves(str(item.label), item))
        self.version += 1
        entry = Entry(item.section, item.host, item.label, origin)
        self._add(entry, buffer)
        return entry

    def remember(self, known: KnownWork) -> object:
        """Remember a work by its key, until an entry goes; return those that the caller drops when it holds no lock."""
        dropped = []
        if len(self.remembered) >= _MOST_REMEMBERED:
            dropped, self.remembered = [*self.remembered.values()], {}
        elif known.key in self.remembered:
            dropped = [self.remembered[known.key]]
        for other in dropped:
            other.forget()
        self.remembered[known.key] = known
        return dropped

    def discard(self, entry: Entry) -> None:
        """Take out an entry that `insert` made."""
        self.version += 1
        entry.dynamic = 0
        self._remove(entry)

    def leave(self, plan: Plan) -> bool:
        """Carry out the exit of a construct whose entry ``only_counts``, if that only counts as well.

        Returns
        -------
        bool
            False where an entry goes with it, or is gone; then nothing has changed.
        """
        counted = plan.counted
        if plan.counter is _DYNAMIC:
            for entry in counted:
                if entry.dynamic <= 1 and not entry.structured:
                    return False
            for entry in counted:
                if entry.dynamic:  # else a construct has taken all references meanwhile
                    entry.dynamic -= 1
        else:
            for entry in counted:
                if entry.structured <= 1 and not entry.dynamic:
                    return False
            for entry in counted:
                if entry.structured:  # else the same
                    entry.structured -= 1
        self.version += 1
        return True

    def stays(self, plan: Plan) -> bool:
        """Tell whether `leave` only counts: no entry goes with the plan's construct."""
        return plan.only_counts and all(any(entry.counts_after(plan.counter)) for entry in plan.counted)  # type: ignore[arg-type]  # an entry counts

    def undo(self, plan: Plan, *, owes: bool = False) -> list[Entry]:
        """Take back a committed `enter` without copying anything; return the entries that it removed.

        Entries that were removed since then are left alone, also where the same storage was mapped anew. If it
        ``owes``, these note the reference that was never there: `restore` may yet make them present again.
        """
        if not plan.is_committed:
            msg = "an entry that was never committed is undone; drop the plan instead"
            raise InternalError(msg)
        live = self._index.exact
        end = Plan(())
        end.version = self.version
        # Another construct may have deleted an entry, and mapped the same storage again.
        for entry in plan.counted:
            if live.get(entry.section) is entry:
                dynamic, structured = entry.counts_after(plan.counter)  # type: ignore[arg-type]  # an entry counts
                end.counts.append((entry, dynamic, structured))
                if not (dynamic or structured):
                    end.removed.append(entry)
            elif owes and plan.counter is _DYNAMIC:
                entry.dynamic -= 1
            elif owes:
                entry.structured -= 1
        self.commit(end)
        return end.removed

    def restore(self, plan: Plan) -> list[tuple[Entry, int]]:
        """Take back a committed `exit`; return the entries that are present again, with their former generations.

        An entry stays away if something else has been mapped there since then.
        """
        again = []
        self.version += 1
        for (entry, dynamic, structured), (_, dynamic_left, structured_left) in zip(
            plan.before, plan.counts, strict=True
        ):
            if dynamic != dynamic_left:  # else it may be infinite
                entry.dynamic += dynamic - dynamic_left
            entry.structured += structured - structured_left
            is_there = self._index.exact.get(entry.section) is entry
            if not is_there and entry.count > 0 and self._index.search(entry.section) == (None, None):
                again.append((entry, entry.generation))
                self._add(entry, entry.buffer)
        return again

    def entries(self) -> tuple[Entry, ...]:
        """Return the live entries, lowest address first."""
        return tuple(sorted(self._index.exact.values(), key=_by_address))

    def live(self) -> int:
        """Return the number of live entries."""
        return len(self._index.exact)

    def _remove(self, entry: Entry) -> None:
        self._index.remove(entry)
        self.state = object()
        if self.remembered:
            # They go with the entry, not here: what they refer to may run code of the program, and the lock is held.
            for known in self.remembered.values():
                known.forget()
            entry.outlived, self.remembered = self.remembered, {}

    def _plan_new(self, plan: Plan, absent: list[int]) -> None:
        """Make entries for the items of a plan that are not present, by their numbers."""
        items = plan.items
        fresh = Index() if absent[1:] else None
        if fresh is not None:
            # So that an item inside another of the same construct meets it.
            absent.sort(key=lambda k: -items[k].section.nbytes)
        for k in absent:
            item = items[k]
            entry, other = fresh.search(item.section, item) if fresh is not None else (None, None)
            if other is not None:
                _check_place(item, other)
                msg = (
                    f"{item.text()} overlaps {other.label} of the same construct in part; items of one construct must "
                    "be disjoint, or one must contain the other; map the smallest section that holds both"
                )
                raise MapError(msg)
            if entry is None:
                if item.section[2] and not item.section.is_nested:
                    raise MapError(_interleaves(item.text(), item))
                entry = self.make_entry(item.section, item.host, item.label)
                if fresh is not None:
                    fresh.add(entry)
                plan.created.append(entry)
                if item.zeroes:
                    plan.zeroed.append(entry)
            plan.entries[k] = entry
            if item.map_type.copies_in:
                plan.copies.append((item, entry))

    def _add(self, entry: Entry, buffer: object) -> None:
        self._generation += 1
        entry.generation = self._generation
        entry.buffer = buffer
        self._index.add(entry)

    def _extends(self, what: str, other: Entry, *, is_implicit: bool = False) -> str:
        remedy = "exit that mapping first or map all of it there"
        if is_implicit:
            remedy = "pass the section that is present, or map all of it there"
        return f"{what} extends {other.label}, already present on device {self.device_num}; {remedy}"

    def _absent(self, item: MapItem, other: Entry | None, name: str = "map") -> str:
        state = "not present" if other is None else f"present in part only ({other.label})"
        what = f"{item.text(name)} is {state} on device {self.device_num}"
        if item.clause:
            return f"{what}; all of it must be present; map it first, with a data region or enter_data"
        return f"{what}; an item with `present` must be mapped there completely; map it first, or leave out `present`"


def are_in(entries: Sequence[Entry | None], states: Sequence[object]) -> bool:
    """Tell whether entries are in replica sets whose tables are in these states, in their order."""
    for entry, state in zip(entries, states, strict=True):
        replicas = None if entry is None else entry.replicas
        if replicas is None or replicas.table.state is not state:
            return False
    return True


def _distinct(entries: list[Entry | None]) -> list[Entry]:
    found = dict.fromkeys(entries)
    found.pop(None, None)
    return list(found)  # type: ignore[arg-type]  # None has gone


def _distinct_copies(copies: list[ItemCopy]) -> list[ItemCopy]:
    """Drop copies that repeat others: of the same bytes, and of parts of an entry that is copied whole."""
    # The first item of the same bytes is copied; a part of an entry is, unless all of the entry is.
    first: dict[Section, tuple[MapItem, Entry]] = {}
    for item, entry in copies:
        first.setdefault(item.section, (item, entry))
    return [copy for section, copy in first.items() if section == copy[1].section or copy[1].section not in first]


def _check_place(item: MapItem, other: Entry | None, name: str = "map") -> None:
    """Refuse an item that an entry holds without a place for it; else the part that is absent is the matter."""
    if other is not None and covers(other.section, item.section):
        raise MapError(has_no_place(item.text(name), other))


def _interleaves(what: str, item: MapItem) -> str:
    return (
        f"{what} has interleaved rows, with strides {item.strides}; an item with gaps needs each stride to be at least "
        "the extent inside it; map the array that it is a view of"
    )


def _by_address(entry: Entry) -> int:
    return entry.section.address
