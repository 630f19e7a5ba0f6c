"""A present table for a rehearsal: it begins as a real one is, and notes what of it decided what happened.

Theory of operation
-------------------
A captured region is repeated without asking the present table again. That is right as long as every look-up would have
the same outcome, and as long as a repetition finds the table as the one before did. So the constructs of the region are
carried out on a `ShadowTable`, which has the entries of the real one. It notes each of these that an item was found in,
and the sections that were absent; and it refuses what is not the same each time: a region that ends a mapping made
outside of it, or leaves one behind.

An entry that has gone and come again at the same address of the device is as good as the one that was noted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload.data.entries import Counter, Entry, Origin
from offload.data.maptypes import MapType
from offload.data.present_table import PresentTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.arrays.sections import Section
    from offload.data.items import MapItem
    from offload.data.plans import Plan


class NotCapturableError(Exception):
    """Why a region cannot be repeated as it was carried out; said to users, not raised to them.

    Attributes
    ----------
    is_passing : bool
        Whether another try is worth it.
    """

    def __init__(self, message: str, *, is_passing: bool = False) -> None:
        super().__init__(message)
        self.is_passing = is_passing


@dataclass(slots=True, eq=False)
class Use:
    """What a region does with storage that was present before it.

    Attributes
    ----------
    section : Section
        Of the entry.
    generation : int
        Of the entry.
    buffer : Section
        Where the corresponding storage lies.
    writes : bool
        Whether copies to it are part of the region.
    follows_users : bool
        Whether what the region does there comes after all that uses it, as a copy in either direction may have to.
    changes : bool
        Whether the region may change what it holds, be it by copies or by bodies.
    """

    section: Section
    generation: int
    buffer: Section
    writes: bool = False
    follows_users: bool = False
    changes: bool = False


class Noted:
    """What has to be as it was.

    Attributes
    ----------
    uses : list of Use
        The storage that was present.
    absent : list of Section
        Of which nothing was.
    copied_back : list of Section
        Parts of these that the region copies to the host.
    """

    __slots__ = ("_version", "absent", "copied_back", "uses")

    def __init__(self, uses: list[Use], absent: list[Section], copied_back: list[Section]) -> None:
        self.uses = uses
        self.absent = absent
        self.copied_back = copied_back
        self._version = -1

    def holds(self, table: PresentTable, place_of: Callable[[Entry], Section]) -> bool:
        """Tell whether a table has what was noted; ``place_of`` says where the storage of an entry lies.

        Costs nothing where the table has not changed since it was last found so.
        """
        version = table.version
        if version == self._version:
            return True
        for use in self.uses:
            entry = table.at(use.section)
            if entry is None or entry.replicas is not None:
                return False
            if entry.generation != use.generation:
                if place_of(entry) != use.buffer:
                    return False
                use.generation = entry.generation
        if any(table.search(section) != (None, None) for section in self.absent):
            return False
        self._version = version
        return True

    def places(self, table: PresentTable, place_of: Callable[[Entry], Section]) -> tuple[object, ...]:
        """Return where what was looked up is to be found now, to be compared with what this returns at other times."""
        found = []
        for section in (*(use.section for use in self.uses), *self.absent):
            entry, other = table.search(section)
            found.append((entry.section, place_of(entry)) if entry is not None else other is not None)
        return tuple(found)


class _ShadowEntry(Entry):
    """An entry of a rehearsal: nothing is remembered of its contents, which are others at each repetition."""

    __slots__ = ("is_changed",)

    def __init__(self, section: Section, host: object, label: object, origin: Origin = Origin.MAPPED) -> None:
        super().__init__(section, host, label, origin)
        self.is_exposed = True
        self.is_changed = False

    def change(self, lane: object) -> None:
        self.is_changed = True


class ShadowTable(PresentTable):
    """The present table of a rehearsal.

    Parameters
    ----------
    table : PresentTable
        What it begins as; the caller keeps others from changing that meanwhile.
    place_of : callable
        Says where the storage of an entry lies.
    """

    __slots__ = ("_copied_back", "_missing", "_outside", "_place_of", "_uses")

    make_entry = _ShadowEntry

    def __init__(self, table: PresentTable, place_of: Callable[[Entry], Section]) -> None:
        super().__init__(table.device_num)
        self._place_of = place_of
        self._outside: dict[Entry, tuple[float, int]] = {}  # with their counts
        self._uses: dict[Entry, Use] = {}
        self._missing: dict[Section, None] = {}
        self._copied_back: dict[Section, None] = {}
        for real in table.entries():
            entry = _ShadowEntry(real.section, real.host, real.label, real.origin)
            entry.dynamic, entry.structured = real.dynamic, real.structured
            entry.buffer, entry.generation = real.buffer, real.generation
            entry.replicas = real.replicas
            self._index.add(entry)
            self._outside[entry] = entry.dynamic, entry.structured

    def enter(self, items: Sequence[MapItem], counter: Counter = Counter.DYNAMIC) -> Plan:
        """Plan as a present table does, and note what that depended on."""
        plan = super().enter(items, counter)
        for item, entry in zip(plan.items, plan.entries, strict=True):
            self._note(item, entry)
        for _, entry in plan.copies:
            self._note_copy(entry, writes=True)
        return plan

    def exit(
        self,
        items: Sequence[MapItem],
        counter: Counter = Counter.DYNAMIC,
        *,
        ends_region: bool = False,
        finalizes: bool = False,
    ) -> Plan:
        """Plan likewise.

        Raises
        ------
        NotCapturableError
            The construct ends a mapping, or takes a reference, that was there before the region.
        """
        plan = super().exit(items, counter, ends_region=ends_region, finalizes=finalizes)
        for item, entry in zip(plan.items, plan.entries, strict=True):
            self._note(item, entry)
            if entry in self._outside and item.map_type is MapType.DELETE:
                raise NotCapturableError(f"it deletes {entry.label}, which was mapped before it")
        for entry, dynamic, structured in plan.counts:
            first = self._outside.get(entry)
            if first is not None and (dynamic < first[0] or structured < first[1]):
                raise NotCapturableError(f"it ends a mapping of {entry.label} that was there before it")
        for item, entry in plan.copies:
            self._note_copy(entry, writes=False)
            self._note_copy_back(item, entry)
        return plan

    def update(self, items: Iterable[MapItem]) -> list[tuple[MapItem, Entry]]:
        """Return what an update copies, and note what that depended on."""
        items = tuple(items)
        copies = super().update(items)
        for item in items:
            self._note(item, self._index.search(item.section, item)[0])
        for item, entry in copies:
            if item.map_type.copies_in:
                self._note_copy(entry, writes=True)
            else:
                self._note_copy_back(item, entry)
        return copies

    def noted(self) -> Noted:
        """Return what the region depended on, at its end.

        Raises
        ------
        NotCapturableError
            It has left a mapping behind.
        """
        for entry in self.entries():
            if self._outside.get(entry) != (entry.dynamic, entry.structured):
                raise NotCapturableError(f"it maps {entry.label} and leaves it mapped")
        for entry, use in self._uses.items():
            use.changes = isinstance(entry, _ShadowEntry) and entry.is_changed  # all are
        return Noted(list(self._uses.values()), list(self._missing), list(self._copied_back))

    def _note(self, item: MapItem, entry: Entry | None) -> None:
        """Note an item and where it was found; one without bytes is of no account."""
        if entry is None:
            if item.section.run_nbytes:
                _, other = self._index.search(item.section, item)
                if other in self._outside:
                    raise NotCapturableError(f"{item.label} is present in part only ({other.label})")
                self._missing[item.section] = None
        elif entry.replicas is not None:
            raise NotCapturableError(f"{entry.label} has replicas on several devices, {entry.replicas.devices}")
        elif entry not in self._outside:
            self._missing[entry.section] = None
        elif entry not in self._uses:
            self._uses[entry] = Use(entry.section, entry.generation, self._place_of(entry))

    def _note_copy(self, entry: Entry, *, writes: bool) -> None:
        use = self._uses.get(entry)
        if use is not None:
            use.follows_users = True
            use.writes |= writes

    def _note_copy_back(self, item: MapItem, entry: Entry) -> None:
        if entry not in self._outside:
            self._copied_back[item.section] = None
