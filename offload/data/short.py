"""The short ways of a present table: what most constructs do, in one step and without a plan for anything else.

A region finds everything present and only counts (`ShortWays.reenter`, `ShortWays.leave`), or it finds nothing, makes
an entry for each of its items and removes them at its end (`ShortWays.own` to `ShortWays.remove_own`). Each method
refuses what is more than that, before it has changed anything; then `offload.data.present.PresentTable` plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.arrays.sections import overlaps
from offload.data.entries import Counter, Entry
from offload.data.maptypes import MapType
from offload.data.plans import CountedEnter, OwnEnter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.arrays.sections import Section
    from offload.data.entries import Index
    from offload.data.items import MapItem
    from offload.data.plans import Entered

_ABSENT = (None, None)
"""What a search returns where nothing is present."""

_FEW_ITEMS = 8
"""Items of a construct of which each pair is compared."""


class ShortWays:
    """What a present table does about the constructs that most programs have most of."""

    __slots__ = ("_index", "state", "version")

    version: int
    state: object
    _index: Index

    def _add(self, entry: Entry, buffer: object) -> None:
        raise NotImplementedError

    def _remove(self, entry: Entry) -> None:
        raise NotImplementedError

    def has(self, section: Section) -> bool:
        """Tell whether exactly this section has an entry; where it has none, more may have to be asked."""
        return section in self._index.exact

    def reenter(
        self, items: Sequence[MapItem], counter: Counter = Counter.DYNAMIC, *, knows_sets: bool = False
    ) -> CountedEnter | None:
        """Carry out the entry of a construct that finds everything present and copies nothing: it only counts.

        A construct that ``knows_sets`` has seen to replicas on other devices, or will.

        Returns
        -------
        CountedEnter or None
            As committed; None where there is more to do, and nothing has changed.
        """
        index = self._index
        entries: list[Entry] = []
        for item in items:
            section = item.section
            entry = index.exact.get(section) or index.search(section, item)[0]
            if (
                entry is None
                or item.always
                or item.map_type is MapType.DELETE
                or not section.run_nbytes
                or (entry.replicas is not None and not knows_sets)  # others have to know
            ):
                return None
            entries.append(entry)
        plan = CountedEnter(items, counter, entries, self.state)
        self.count(plan)
        return plan

    def count(self, plan: CountedEnter) -> None:
        """Count what a plan has found present."""
        self.version += 1
        if plan.counter is Counter.DYNAMIC:
            for entry in plan.counted:
                entry.dynamic += 1
        else:
            for entry in plan.counted:
                entry.structured += 1

    def stays(self, plan: Entered) -> bool:
        """Tell whether `leave` only counts: no entry goes with the plan's construct."""
        return all(any(entry.counts_after(plan.counter)) for entry in plan.counted)

    def again(self, plan: CountedEnter, states: Sequence[object] | None = None) -> bool:
        """Carry out once more what `reenter` has carried out.

        Returns
        -------
        bool
            False where an entry has gone since, or has replicas, other than of tables in these states, an item each, so
            that it has to be planned anew; then nothing has changed.
        """
        if plan.state is not self.state:
            return False
        if states is None:
            for entry in plan.counted:
                if entry.replicas is not None:
                    return False
        elif not are_in(plan.entries, states):
            return False
        self.count(plan)
        return True

    def own(self, items: Sequence[MapItem], counter: Counter = Counter.DYNAMIC) -> OwnEnter | None:
        """Plan the entry of a construct that finds nothing present and makes an entry for each item; change nothing.

        Returns
        -------
        OwnEnter or None
            For `commit_own`; None where there is more to do, or something to refuse.
        """
        if len(items) > _FEW_ITEMS:
            return None
        search = self._index.search
        entries: list[Entry] = []
        copied: list[Entry] = []
        for item in items:
            section, map_type = item.section, item.map_type
            if (
                search(section, item) != _ABSENT
                or item.present
                or item.if_present
                or item.zeroes
                or map_type is MapType.DELETE
                or not section[3]
                or (section[2] and not section.is_nested)
            ):
                return None
            for other in entries:
                if overlaps(section, other.section):
                    return None
            entry = Entry(section, item.host, item.label)
            entries.append(entry)
            if map_type.copies_in:
                copied.append(entry)
        return OwnEnter(items, counter, entries, copied)

    def are_absent(self, items: Sequence[MapItem]) -> bool:
        """Tell whether nothing of some items is present."""
        search = self._index.search
        for item in items:  # noqa: SIM110  # a generator costs half as much as the search
            if search(item.section, item) != _ABSENT:
                return False
        return True

    def commit_own(self, plan: OwnEnter, buffers: Sequence[object]) -> None:
        """Insert the entries of `own`, counted once, with their buffers; as `commit`."""
        plan.is_committed = True
        self.version += 1
        is_dynamic = plan.counter is Counter.DYNAMIC
        for entry, buffer in zip(plan.entries, buffers, strict=True):
            if is_dynamic:
                entry.dynamic = 1
            else:
                entry.structured = 1
            self._add(entry, buffer)

    def holds_alone(self, plan: OwnEnter) -> bool:
        """Tell whether nobody else refers to the entries of a construct, so that they go at its end."""
        exact, counts = self._index.exact, (1, 0) if plan.counter is Counter.DYNAMIC else (0, 1)
        for entry in plan.entries:
            if exact.get(entry.section) is not entry or (entry.dynamic, entry.structured) != counts:
                return False
        return True

    def remove_own(self, plan: OwnEnter) -> None:
        """Remove the entries of a construct that `holds_alone`."""
        self.version += 1
        plan.removed = plan.entries
        for entry in plan.entries:
            entry.dynamic = entry.structured = 0
            self._remove(entry)

    def leave(self, plan: Entered) -> bool:
        """Carry out the exit of the construct whose entry `reenter` was, if that only counts as well.

        Returns
        -------
        bool
            False where an entry goes with it, or is gone; then nothing has changed.
        """
        if not plan.only_counts:
            return False
        counted = plan.counted
        if plan.counter is Counter.DYNAMIC:
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
                if entry.structured:  # same
                    entry.structured -= 1
        self.version += 1
        return True


def are_in(entries: Sequence[Entry], states: Sequence[object]) -> bool:
    """Tell whether entries are in replica sets whose tables are in these states, in their order."""
    for entry, state in zip(entries, states, strict=True):
        replicas = entry.replicas
        if replicas is None or replicas.table.state is not state:
            return False
    return True
