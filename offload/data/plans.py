"""What a construct is going to do to a present table; made and applied by `offload.data.present`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.arrays.sections import Section
    from offload.data.entries import Counter, Entry
    from offload.data.items import MapItem


@dataclass(slots=True, eq=False)
class EnterPlan:
    """What the entry of a construct will do.

    Attributes
    ----------
    items : tuple of MapItem
        In the order of the clauses.
    version : int
        The state of the table that the plan is for.
    counter : Counter
        What the construct counts in.
    entries : list of Entry or None
        For each item, the entry that holds it; None for an item without elements.
    created : list of Entry
        New entries, largest first, each needing a buffer of ``entry.nbytes`` bytes.
    counted : list of Entry
        Entries whose count goes up by 1, the new ones included, each once.
    copies : list of (MapItem, Entry)
        Copies host to device of the items' own bytes, each once.
    zeroed : list of Entry
        Those of ``created`` that begin with zeros.
    point : object
        Where the copies end, for those who carry the plan out; opaque here.
    """

    items: tuple[MapItem, ...]
    version: int
    counter: Counter
    entries: list[Entry | None] = field(default_factory=list)
    created: list[Entry] = field(default_factory=list)
    counted: list[Entry] = field(default_factory=list)
    copies: list[tuple[MapItem, Entry]] = field(default_factory=list)
    is_committed: bool = False
    only_counts: ClassVar[bool] = False
    zeroed: list[Entry] = field(default_factory=list)
    point: Any = None

    def parts(self) -> list[tuple[Entry, Section]]:
        """Return what is used: entries, and the sections that the items have in them."""
        return _parts(self.items, self.entries)


class CountedEnter:
    """The entry of a construct that has found everything present, and has only counted: an `EnterPlan` carried out.

    Most constructs around storage that is present are such; that is why it has no more than they need.
    """

    __slots__ = ("_parts", "counted", "counter", "entries", "items")

    created: ClassVar[tuple[Entry, ...]] = ()
    is_committed: ClassVar[bool] = True
    only_counts: ClassVar[bool] = True
    point: ClassVar[None] = None

    def __init__(self, items: Sequence[MapItem], counter: Counter, entries: list[Entry]) -> None:
        self.items = items
        self.counter = counter
        self.entries = entries
        self.counted = entries if len(entries) == 1 else list(dict.fromkeys(entries))
        self._parts = [(entry, item.section) for item, entry in zip(items, entries, strict=True)]

    def parts(self) -> list[tuple[Entry, Section]]:
        """Return what is used: entries, and the sections that the items have in them."""
        return self._parts


Entered: TypeAlias = EnterPlan | CountedEnter
"""The entry of a construct, as it was carried out."""


@dataclass(slots=True, eq=False)
class ExitPlan:
    """What the exit of a construct will do.

    Attributes
    ----------
    items, version, counter, entries
        As in `EnterPlan`; the entry is None for an item that is ignored.
    counts : list of (Entry, float, int)
        The new dynamic and structured counts of every entry concerned.
    copies : list of (MapItem, Entry)
        Copies device to host of the items' own bytes, each once; to be enqueued before the buffers are freed.
    removed : list of Entry
        Entries whose counts both reach 0.
    """

    items: tuple[MapItem, ...]
    version: int
    counter: Counter
    entries: list[Entry | None] = field(default_factory=list)
    counts: list[tuple[Entry, float, int]] = field(default_factory=list)
    copies: list[tuple[MapItem, Entry]] = field(default_factory=list)
    removed: list[Entry] = field(default_factory=list)
    is_committed: bool = False

    def parts(self) -> list[tuple[Entry, Section]]:
        """Return what was used: entries, and the sections that the items have in them."""
        return _parts(self.items, self.entries)


def _parts(items: Sequence[MapItem], entries: Sequence[Entry | None]) -> list[tuple[Entry, Section]]:
    return [(entry, item.section) for item, entry in zip(items, entries, strict=True) if entry is not None]
