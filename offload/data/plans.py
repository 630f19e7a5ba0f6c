"""What a construct is going to do to a present table; made and applied by `offload.data.present`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload.data.entries import Counter, Entry
    from offload.data.present import MapItem


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
    only_counts : bool
        Everything was present, and nothing is copied.
    """

    items: tuple[MapItem, ...]
    version: int
    counter: Counter
    entries: list[Entry | None] = field(default_factory=list)
    created: list[Entry] = field(default_factory=list)
    counted: list[Entry] = field(default_factory=list)
    copies: list[tuple[MapItem, Entry]] = field(default_factory=list)
    is_committed: bool = False
    only_counts: bool = False
    zeroed: list[Entry] = field(default_factory=list)


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
