"""What a construct is going to do to a present table; made and applied by `offload.data.present`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.arrays.sections import Section
    from offload.data.entries import Counter, Entry
    from offload.data.items import MapItem

_NO_VIEWS: Mapping[int, Any] = MappingProxyType({})


class Plan:
    """What the entry or the exit of a construct will do.

    Attributes
    ----------
    items : tuple of MapItem
        In the order of the clauses.
    version : int
        The state of the table that the plan is for.
    counter : Counter
        What the construct counts in.
    entries : list of Entry or None
        For each item, the entry that holds it; None for an item without elements, or one that an exit ignores.
    created : list of Entry
        New entries, largest first, each needing a buffer of ``entry.nbytes`` bytes.
    zeroed : list of Entry
        Those of ``created`` that begin with zeros.
    counted : list of Entry
        Entries whose count goes up by 1, the new ones included, each once.
    counts : list of (Entry, float, int)
        The new dynamic and structured counts of every entry that an exit concerns.
    removed : list of Entry
        Entries whose counts both reach 0.
    copies : list of (MapItem, Entry)
        Copies of the items' own bytes, each once: of an entry to the device, of an exit to the host.
    point : object
        Where the copies of an entry end, for those who carry the plan out; opaque here.
    views : mapping
        By the numbers of items, their device arrays, where these are known.
    """

    __slots__ = (
        "copies",
        "counted",
        "counter",
        "counts",
        "created",
        "entries",
        "is_committed",
        "items",
        "point",
        "removed",
        "version",
        "zeroed",
    )

    only_counts: ClassVar[bool] = False
    views: ClassVar[Mapping[int, Any]] = _NO_VIEWS

    def __init__(self, items: tuple[MapItem, ...], version: int, counter: Counter) -> None:
        self.items = items
        self.version = version
        self.counter = counter
        self.is_committed = False
        self.entries: list[Entry | None] = []
        self.created: list[Entry] = []
        self.zeroed: list[Entry] = []
        self.counted: list[Entry] = []
        self.counts: list[tuple[Entry, float, int]] = []
        self.removed: list[Entry] = []
        self.copies: list[tuple[MapItem, Entry]] = []
        self.point: Any = None

    def parts(self) -> list[tuple[Entry, Section]]:
        """Return what is used: entries, and the sections that the items have in them."""
        return [
            (entry, item.section) for item, entry in zip(self.items, self.entries, strict=True) if entry is not None
        ]


class CountedEnter:
    """The entry of a construct that has found everything present, and has only counted: a `Plan` carried out.

    Most constructs around storage that is present are such; that is why it has no more than they need. It does not
    change, and may be carried out once more while no entry has gone (`offload.data.short.ShortWays.again`).

    Attributes
    ----------
    state : object
        The `PresentTable.state` for which it was made; None: it is carried out once.
    """

    __slots__ = ("_parts", "counted", "counter", "entries", "items", "state")

    created: ClassVar[tuple[Entry, ...]] = ()
    is_committed: ClassVar[bool] = True
    only_counts: ClassVar[bool] = True
    point: ClassVar[None] = None
    views: ClassVar[Mapping[int, Any]] = _NO_VIEWS

    def __init__(self, items: Sequence[MapItem], counter: Counter, entries: list[Entry], state: object = None) -> None:
        self.items = items
        self.counter = counter
        self.entries = entries
        self.state = state
        self.counted = entries if len(entries) == 1 else list(dict.fromkeys(entries))
        self._parts = [(entry, item.section) for item, entry in zip(items, entries, strict=True)]

    def parts(self) -> list[tuple[Entry, Section]]:
        """Return what is used: entries, and the sections that the items have in them."""
        return self._parts


class OwnEnter:
    """The entry of a construct that has found nothing present, and has made an entry for each item: a `Plan` too.

    Most constructs that map storage at each call are such; that is why it has no more than they need. Of its entries
    those are ``copied`` that begin with what the host has. These copies end at its ``point``, where that is marked.

    When the region has ended, and nobody else has an array of it, which its ``references`` tell (`Device.references`),
    the next region of the same items on the same lane may be carried out with it once more.
    """

    __slots__ = ("copied", "counter", "entries", "is_committed", "items", "point", "references", "removed", "views")

    only_counts: ClassVar[bool] = False

    def __init__(
        self, items: Sequence[MapItem], counter: Counter, entries: list[Entry], copied: Sequence[Entry]
    ) -> None:
        self.items = items
        self.counter = counter
        self.entries = entries
        self.copied = copied
        self.views: dict[int, Any] = {}
        self.is_committed = False
        self.removed: Sequence[Entry] = ()
        self.point: Any = None
        self.references: list[object] | None = None

    @property
    def counted(self) -> list[Entry]:
        """Its entries, each of which it has counted."""
        return self.entries

    created = counted

    def parts(self) -> list[tuple[Entry, Section]]:
        """Return what is used: entries, and the sections that the items have in them."""
        return [(entry, entry.section) for entry in self.entries]


Entered: TypeAlias = Plan | CountedEnter | OwnEnter
"""The entry of a construct, as it was carried out."""


def entry_at(plan: Entered, section: Section, section_of: Callable[[Any], Section]) -> Entry | None:
    """Return the entry of a plan in whose buffer a section of the device lies; None if it lies in none of them.

    Parameters
    ----------
    section_of : callable
        Tells where a buffer lies.
    """
    for entry in plan.counted:
        buffer = section_of(entry.buffer)
        if section.space == buffer.space and buffer.address <= section.address < buffer.end:
            return entry
    return None
