"""Entries of a present table: corresponding storage of host sections, and the index that finds them.

Theory of operation
-------------------
An `Entry` is counted twice. OpenMP's constructs count in the *dynamic* counter, OpenACC's structured regions in the
*structured* one, since their end must find the data after any ``exit data`` or ``delete`` inside. The storage
goes when both are 0. The dynamic counter of storage that no construct may end (``declare target``,
``omp_target_associate_ptr``) is `math.inf`, to which adding or taking away 1 changes nothing, so that counting needs no
case for it.

Rejected: a flag for "persistent" beside the counter, which every rule would have to ask for.

OpenMP 5.2, 5.8.3 "map Clause"; OpenACC 3.3, 2.6.7 "Reference Counters".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.arrays.sections import Section, c_strides, covers, locate_nbytes, overlaps, section_of
from offload.data.accesses import Accesses
from offload.data.versions import Contents
from offload.errors import InternalError, MapError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.data.items import MapItem


class Counter(Enum):
    """Which of an entry's counters a construct counts in."""

    DYNAMIC = "dynamic"
    STRUCTURED = "structured"


class Origin(Enum):
    """The way in which an entry was made."""

    MAPPED = "mapped"
    ASSOCIATED = "associated"
    DECLARED = "declared"


class Entry:
    """Corresponding storage of one host section."""

    __slots__ = (
        "__weakref__",
        "_changing",
        "_contents",
        "beside",
        "buffer",
        "dynamic",
        "end",
        "generation",
        "host",
        "is_exposed",
        "label",
        "mapped_at",
        "origin",
        "outlived",
        "replicas",
        "section",
        "structured",
        "uses",
        "views",
        "writes",
    )

    def __init__(self, section: Section, host: object, label: object, origin: Origin = Origin.MAPPED) -> None:
        # The host bytes; dense, or with gaps (`is_packed`), and one past the highest address.
        self.section = section
        self.end = section.end if section[2] else section[1] + section[3]
        # References of OpenMP's constructs and of OpenACC's ``enter data``: a whole number, or `math.inf`.
        self.dynamic: float = 0 if origin is Origin.MAPPED else inf
        # References of OpenACC's regions. Both are 0 before the commit and after the removal.
        self.structured = 0
        # What made it; the count is infinite unless that is a mapping.
        self.origin = origin
        # The device buffer of `nbytes` bytes, opaque here; None until the commit.
        self.buffer: object = None
        # Keeps the host memory alive.
        self.host = host
        # The copies to the buffer, and all else that uses it; of the ledger.
        self.writes = Accesses()
        self.uses = Accesses()
        # Differs between any two entries of a table, also of the same section; 0 before the commit.
        self.generation = 0
        # The item that made it.
        self.label = label
        # Where the program called the last construct that maps it until another one unmaps it, or the region that made
        # it.
        self.mapped_at: Any = None
        # What was remembered until it went (`PresentTable.remembered`): it goes with it, when nobody holds a lock.
        self.outlived: object = None
        # The device arrays that have been asked for, by the layouts of the host arrays that they correspond to.
        self.views: dict[tuple[object, ...], Any] = {}
        # What others keep beside the storage while it is present, by keys of theirs; nothing on a stream uses it.
        self.beside: dict[Any, Any] | None = None
        # The program has been given the storage, and may write to it at any time: nothing is remembered of it, and its
        # buffer is not used again.
        self.is_exposed = origin is Origin.ASSOCIATED
        # The replica set that it is in, which whoever uses it asks first (`offload.data.replicas`).
        self.replicas: Any = None
        # What is known of the contents; the lanes where a launch that may change them is under way, and up to where.
        self._contents: Contents | None = None
        self._changing: dict[Any, int] | None = None

    def __repr__(self) -> str:
        return f"<Entry {self.label} at {self.section.address:#x}, {self.nbytes} bytes, count {self.count}>"

    @property
    def count(self) -> float:
        """Return the references of both kinds; the data is present while there is one."""
        return self.dynamic + self.structured

    @property
    def nbytes(self) -> int:
        """Return the size of the buffer."""
        return self.section.nbytes

    @property
    def is_packed(self) -> bool:
        """Tell whether the host section has gaps, which the buffer has not."""
        return bool(self.section.dims)

    @property
    def contents(self) -> Contents | None:
        """The contents of the storage until a construct may change it; None while one does, or if it `is_exposed`.

        Under the lock of the table.
        """
        if self.is_exposed:
            return None
        if self._changing is not None:
            for known, sequence in self._changing.items():
                lane = known() if isinstance(known, ref) else known
                if lane is not None and lane.passed[0] <= sequence:
                    return None
            self._changing = None
        contents = self._contents
        if contents is None:
            contents = self._contents = Contents()
        return contents

    @property
    def version(self) -> int | None:
        """The number of its `contents`; None where these are unknown."""
        contents = self.contents
        return None if contents is None else contents.version

    def change(self, lane: Any) -> None:
        """Note that the launch in progress on a lane may write to the storage; under the lock of the table.

        Launches that end later on the lane have greater sequences.
        """
        changing = self._changing
        if changing is None:
            changing = self._changing = {}
        changing[lane if lane.pool is not None else ref(lane)] = lane.sequence  # a user's stream is not kept
        self._contents = None

    def counts_after(self, counter: Counter, *, deletes: bool = False) -> tuple[float, int]:
        """Return both counters, dynamic first, as the end of a mapping leaves them; one that is 0 stays so.

        Parameters
        ----------
        counter : Counter
            The one that the construct counts in.
        deletes : bool
            The construct takes all references of its counter, not one.
        """
        if counter is Counter.STRUCTURED:
            return self.dynamic, self.structured - 1 if self.structured and not deletes else 0
        if deletes and self.dynamic != inf:
            return 0, self.structured
        return self.dynamic - 1 if self.dynamic else 0, self.structured


class Index:
    """Entries that share no byte, found by section."""

    __slots__ = ("dense", "dense_starts", "exact", "packed", "packed_starts", "reach")

    def __init__(self) -> None:
        # By section, which is canonical: the same item again is a dictionary hit.
        self.exact: dict[Section, Entry] = {}
        # Sorted by address, with the addresses for bisect. Dense entries share no byte: only the last one that begins
        # at or before an item can hold it. Packed ones may interleave, as tiles of a matrix do.
        self.dense: list[Entry] = []
        self.dense_starts: list[int] = []
        self.packed: list[Entry] = []
        self.packed_starts: list[int] = []
        # The longest extent of a packed entry so far: none that begins further down can reach an item.
        self.reach = 0

    def add(self, entry: Entry) -> None:
        section = entry.section
        self.exact[section] = entry
        address = section[1]
        if section[2]:
            entries, starts = self.packed, self.packed_starts
            self.reach = max(self.reach, entry.end - address)
        else:
            entries, starts = self.dense, self.dense_starts
        k = bisect_left(starts, address)
        starts.insert(k, address)
        entries.insert(k, entry)

    def remove(self, entry: Entry) -> None:
        section = entry.section
        del self.exact[section]
        entries, starts = (self.packed, self.packed_starts) if section[2] else (self.dense, self.dense_starts)
        k = bisect_left(starts, section[1])
        del starts[k], entries[k]
        if not self.packed:
            self.reach = 0

    def search(self, section: Section, item: MapItem | None = None) -> tuple[Entry | None, Entry | None]:
        """Return the entry that holds all of ``section``, else one that holds a part of it.

        With the ``item`` whose section it is, a packed entry holds it only if it has a place there, which `correspond`
        finds. An entry that has all of its bytes but no place for it is returned second.
        """
        entry = self.exact.get(section)
        return (entry, None) if entry is not None else self.search_near(section, item)

    def search_near(self, section: Section, item: MapItem | None = None) -> tuple[Entry | None, Entry | None]:
        """Search as `search` does, for a section that is not the section of an entry."""
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
        return self._search_packed(section, address, end, item) if self.packed else (None, None)

    def _search_packed(
        self, section: Section, address: int, end: int, item: MapItem | None
    ) -> tuple[Entry | None, Entry | None]:
        starts = self.packed_starts
        for k in range(bisect_right(starts, address - self.reach), bisect_left(starts, end)):
            entry = self.packed[k]
            if entry.end > address:
                if covers(entry.section, section) if item is None else _has_place(entry, item):
                    return entry, None
                if overlaps(entry.section, section):
                    return None, entry
        return None, None


def _has_place(entry: Entry, item: MapItem) -> bool:
    return locate_nbytes(entry.section, item.address, item.shape, item.strides, item.itemsize) is not None


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
    MapError
        The entry holds the bytes of the view, but no strides lead through them there, since some steps of an axis
        cross a gap and others do not: ``a.ravel()[::2]`` in ``a[:, :3]``, if a row of ``a`` has 4 elements.
    InternalError
        The entry does not hold the view.
    """
    if strides is None:
        strides = c_strides(shape, itemsize)
    if not entry.section.dims:
        return address - entry.section.address, tuple(strides)
    place = locate_nbytes(entry.section, address, shape, strides, itemsize)
    if place is None:
        if covers(entry.section, section_of(entry.section.space, address, shape, strides, itemsize)):
            raise MapError(has_no_place(f"a view of shape {tuple(shape)}, strides {tuple(strides)}", entry))
        msg = f"a view of shape {tuple(shape)} at {address:#x} is not in {entry!r}; ask `find` before"
        raise InternalError(msg)
    return place


def has_no_place(what: str, entry: Entry) -> str:
    """Return the message for elements that an entry holds, but to which no strides lead there."""
    return (
        f"{what} lies in {entry.label}, whose gaps are not stored on the device, so that no strides lead through its "
        "elements there; name them by slices along the axes of that array, or map the array with its gaps"
    )
