"""Plans: the changes of a construct to a present table and its work on its lane, in one record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from offload.arrays.sections import Section
    from offload.data.entries import Counter, Entry
    from offload.data.items import MapItem

    Part: TypeAlias = tuple[Entry, Section]
    ItemCopy: TypeAlias = tuple[MapItem, Entry]
    Enqueuers: TypeAlias = Sequence[Callable[[Any], object]] | None


class Plan:
    """The work of the entry, the exit or the update of a construct.

    `offload.data.present_table` plans the changes of the table and the copies, and `offload.data.steps` adds the points
    of the ledger. A data environment carries the plan out. Most plans use few fields: the others stay as the class has
    them, empty.
    """

    # -- by the present table ------------------------------------------------------------------------
    # The state of the table that the plan is for: a number that each change raises, and an object that each removal
    # replaces. A plan that only counts can be carried out again while the latter is the same.
    version = -1
    state: object = None
    is_committed = False
    # Everything was present and nothing is copied: the entry counts up, and the exit counts down if the entries stay.
    only_counts = False
    # Of an exit: an entry stays present.
    is_kept = False
    # The parts that the construct uses: each entry, with the section that the item has in it.
    uses: Sequence[Part] = ()

    # -- by the ledger -------------------------------------------------------------------------------
    # The points that the lane follows before anything is enqueued.
    waits: Sequence[Any] = ()
    # The parts that are open in the ledger until all copies are enqueued: those copied from, and those copied to.
    reads: Sequence[Part] = ()
    writes: Sequence[Part] = ()
    # Host storage that is mapped no more, and is open until it has been copied to.
    back: Sequence[Section] = ()
    # Copies of an exit from entries that stay present, and the parts that these are in use with until there.
    copies_kept: Sequence[ItemCopy] = ()
    used: Sequence[Part] = ()
    copies_in: Sequence[ItemCopy] = ()
    copies_out: Sequence[ItemCopy] = ()

    # -- while it is carried out ---------------------------------------------------------------------
    # Of an exit, which tries each copy and is never undone: the failures so far. Else the first failure ends it.
    failures: list[Exception] | None = None
    # Where the copies end; None while they are staged, and where nobody has asked yet.
    point: Any = None

    # -- of an update, which other launches carry out again while the table is in the same state -------
    # What must live until the copies are done.
    held: list[object]
    # What enqueues each copy on a stream; None where one has to be looked at each time (`Device.repeat`).
    enqueuers: Enqueuers = None

    # -- of a region, which other launches carry out again likewise ------------------------------------
    # The `Layouts` of its items when it began, and the slots of host arrays, these with the dtype and shape that they
    # had, and the body's device arrays; None and empty where the plan is not to be remembered.
    layouts: Any = None
    views: Sequence[tuple[Any, Any, Any, Any, Any]] = ()

    # -- of the primary, where the construct is on several devices -----------------------------------
    # The data environment of all devices (`offload.data.sets.DeviceSet`), and the plans of the other places, in which
    # the items' entries come first.
    on: Any = None
    others: Sequence[Plan] = ()
    # For each item its replica set; None for one without elements, or that is absent and need not be present.
    sets: Sequence[Any] = ()

    def __init__(self, items: Sequence[MapItem], counter: Counter | None = None) -> None:
        # In the order of the clauses.
        self.items = items
        # What the construct counts in; None: an update, which does not count.
        self.counter = counter
        # For each item the entry that holds it; None for one without elements, or one that is ignored.
        self.entries: list[Entry | None] = []
        # New entries, largest first. Each needs a buffer of `entry.nbytes` bytes; the `zeroed` ones begin with zeros.
        self.created: list[Entry] = []
        self.zeroed: list[Entry] = []
        # Entries whose count goes up by 1, the new ones included, each once.
        self.counted: list[Entry] = []
        # Of an exit: the new dynamic and structured counts of every entry, and the entries whose counts both reach 0.
        self.counts: list[tuple[Entry, float, int]] = []
        self.removed: list[Entry] = []
        # Of an exit on a device that plans: the counts of these entries before it.
        self.before: Sequence[tuple[Entry, float, int]] = ()
        # Copies of the items' own bytes, each once: of an entry to the device, of an exit to the host.
        self.copies: list[ItemCopy] = []

    @property
    def plans(self) -> list[Plan]:
        """The plans of all places, the primary's first."""
        return [self, *self.others]


class KnownWork(Protocol):
    """A work that launches may carry out again as an earlier one did: an update, or a target region."""

    # By which it is remembered; None: it is not.
    key: Any
    # The `Layouts` of its items, and its plan; None until a launch has found all items present. When an entry has gone,
    # the plan is None again.
    layouts: Any
    plan: Plan | None

    def forget(self) -> None:
        """Refer to entries no more; a removed entry keeps the work itself until no lock is held."""


def entry_at(plan: Plan, section: Section, section_of: Callable[[Any], Section]) -> Entry | None:
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
