"""The present table of a rehearsal: it begins as the real one, and notes on which of its state the region depends.

A captured region is repeated without asking the present table again. So a `ShadowTable` notes each entry in which an
item was found, and the sections that were absent. It refuses a region that ends a mapping made outside, or leaves one.
An entry that has gone and come again at the same address of the device is as good as the noted one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload.data.entries import Counter, Entry, Origin
from offload.data.maptypes import MapType
from offload.data.present_table import PresentTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.arrays.sections import Section
    from offload.data.items import MapItem
    from offload.data.plans import Plan


class NotCapturableError(Exception):
    """The reason why a region cannot be captured; shown to users, never raised to them."""

    def __init__(self, message: str, *, task: object = None, is_passing: bool = False, is_told: bool = False) -> None:
        super().__init__(message)
        self.task = task  # the one that cannot be captured, if it is known
        self.is_passing = is_passing  # whether another try is worth it
        self.is_told = is_told  # whether the program is warned of it


@dataclass(slots=True, eq=False)
class Use:
    """The use of storage that was present before the region."""

    section: Section  # of the entry
    generation: int  # of the entry
    buffer: Section  # the corresponding storage
    writes: bool = False  # whether copies to it are part of the region
    # whether the region's access there follows all other uses, as copies in either direction may have to
    follows_users: bool = False
    changes: bool = False  # whether the region may change the contents, by copies or by bodies


class Noted:
    """The state of memory that a captured graph depends on."""

    __slots__ = ("_version", "absent", "copied_back", "uses")

    def __init__(self, uses: list[Use], absent: list[Section], copied_back: list[Section]) -> None:
        self.uses = uses  # the storage that was present
        self.absent = absent  # sections of which nothing was present
        self.copied_back = copied_back  # parts of these that the region copies to the host
        self._version = -1

    def holds(self, table: PresentTable, place_of: Callable[[Entry], Section]) -> bool:
        """Tell whether a table has the noted entries; ``place_of`` says where the storage of an entry lies."""
        # Costs nothing where the table has not changed since it was last found so.
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
        """Return the present places of the items that were looked up, to be compared with those at other times."""
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
    """The present table of a rehearsal, which begins as ``table``."""

    # The caller keeps others from changing ``table`` meanwhile. ``place_of`` returns where the storage of an entry
    # lies.

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
        """Plan as a present table does, and note the entries that the plan depended on."""
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
        """Plan the exit.

        Raise `NotCapturableError` if it ends a mapping, or takes a reference, that existed before the region.
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

    def update(self, items: Sequence[MapItem]) -> Plan:
        """Plan likewise."""
        plan = super().update(items)
        for item in items:
            self._note(item, self._index.search(item.section, item)[0])
        for _, entry in plan.copies_in:
            self._note_copy(entry, writes=True)
        for item, entry in plan.copies_out:
            self._note_copy_back(item, entry)
        return plan

    def noted(self) -> Noted:
        """Return the state that the region depended on; raise `NotCapturableError` if it has left a mapping behind."""
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
