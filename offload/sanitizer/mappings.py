"""The mappings that the sanitizer knows, by the storage that they have on devices.

Theory of operation
-------------------
A deferred region finds an item present under one schedule, and makes storage of its own for it under another one. So
accesses of mapped storage are compared by the host memory that it stands for, and not by its address: each device has a
*space* of addresses, in which the storage of a host address has its place whenever it is there. `Mapped.shift` is the
way from the device's addresses to that space. Rows that are packed on the device have a space for each section.

A mapping that has ended stays known while nobody else has its storage: work that the program has not ordered may come
later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.arrays.items import address_of
from offload.sanitizer.memory import layout_at, layout_of
from offload.sanitizer.states import PackedRows

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    import numpy as np

    from offload.arrays.sections import Section
    from offload.sanitizer.authors import Author, Place
    from offload.sanitizer.courses import Course
    from offload.sanitizer.states import MappedBytes, Run, Runs

_SPACE = 1 << 48
"""The size of a device's space: no address of a process reaches it."""

_KEPT = 64
"""The users and the ends of a mapping that are compared with each other."""

_PACKED = 1 << 62
"""The first address of the spaces of packed sections."""


class DoneAt(NamedTuple):
    """A write, or the work of a construct, in a stretch."""

    author: Author
    stretch: int


class ListItem(NamedTuple):
    """A list item as the clause of a construct has it.

    Attributes
    ----------
    map_type : str
        The map type.
    name : str
        The name in the clause; empty if it is not known.
    is_string : bool
        Whether the clause gives the name as a string: it is a parameter's.
    is_implicit : bool
        Whether no clause has the item.
    mapper : tuple of str and int, or None
        The place of the mapper that has named the array; then ``name`` is its parameter.
    """

    map_type: str
    name: str = ""
    is_string: bool = False
    is_implicit: bool = False
    mapper: Place | None = None


class MadeBy(NamedTuple):
    """The construct that has made a mapping, with its list item.

    ``on`` is the number of the device, if a construct there has to name it.
    """

    author: Author
    item: ListItem
    on: int | None


class Mapped:
    """Corresponding storage on a device, as the sanitizer knows it.

    Attributes
    ----------
    space : object
        The device's address space.
    start, end : int
        The addresses of the device's storage.
    host : numpy.ndarray
        The layout of the host memory, which the array does not keep.
    section : Section
        Its bytes.
    label : str
        The list item that has made it.
    item : ListItem
        The list item of the construct that made it, or that ended it last.
    on : int or None
        The number of the device, if a construct there has to name it.
    is_present : bool
        Whether the mapping has begun and has not ended.
    is_seen : bool
        Whether all accesses on the device can be seen.
    is_tracked : bool
        Whether the accesses of the host memory can be seen.
    finders : dict
        For courses that have found the storage and may have made it themselves: their work, and their list items.
    users : dict
        The same for the last other regions that have found it and copy back what they map, and their writes.
    ends : deque of DoneAt
        The last constructs that have ended the mapping, or would have done so if no region in flight had kept it.
    copies_left : int
        The copies to the host that end the mapping and have not been carried out.
    """

    __slots__ = (
        "bytes", "copies_left", "end", "ended", "ends", "finders", "host", "is_present", "is_seen", "is_tracked",
        "item", "label", "latest", "made", "on", "rows", "section", "shift", "space", "start", "users",
    )  # fmt: skip

    bytes: MappedBytes
    shift: int

    def __init__(self, device: Section, host: Any, section: Section, label: str, made: DoneAt, item: ListItem) -> None:
        self.space = device.space
        self.start = device.address
        self.end = device.end
        self.host = layout_of(host)
        self.section = section
        self.label = label
        self.item = item
        self.on: int | None = None
        self.is_present = False
        self.is_seen = self.is_tracked = True
        self.rows = PackedRows(section) if section.dims else None
        self.finders: dict[Course, tuple[DoneAt, ListItem]] = {}
        self.users: dict[Course, tuple[DoneAt, ListItem, dict[tuple[DoneAt, Runs], None]]] = {}
        self.ends: deque[DoneAt] = deque(maxlen=_KEPT)
        self.copies_left = 0
        self.made = made
        self.ended: DoneAt | None = None
        self.latest: object = None  # the last write on the device that host reads are compared with

    def note_user(self, course: Course, done: DoneAt, item: ListItem) -> None:
        """Note that a region has found the storage."""
        if item.map_type in {"from", "tofrom"}:
            self.users[course] = done, item, {}
            if len(self.users) > _KEPT:
                del self.users[next(iter(self.users))]

    def holds(self, run: Run) -> bool:
        """Tell whether it is a mapping of all these bytes of host memory."""
        return self.section.address <= run[0] and run[1] <= self.section.end

    def host_runs(self, runs: Runs) -> Runs:
        """Return the host memory that corresponds to bytes of the device's storage."""
        if self.rows is not None:
            return self.rows.host_runs([(lo - self.start, hi - self.start) for lo, hi in runs])
        shift = self.section.address - self.start
        return [(lo + shift, hi + shift) for lo, hi in runs]

    def device_layout(self, host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the layout of the storage of a part of the host memory; of packed rows it is all of the storage."""
        if self.rows is not None:
            return layout_at(self.start, (self.end - self.start,), (1,))
        return layout_at(address_of(host) + self.start - self.section.address, host.shape, host.strides, host.itemsize)


class Mappings:
    """All mappings of a runtime, by the addresses of their storage, which no two share."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._mapped: list[Mapped] = []
        self._spaces: dict[Hashable, int] = {}
        self._packed: dict[tuple[Hashable, Section], int] = {}
        self._next_packed = _PACKED

    def __iter__(self) -> Iterator[Mapped]:
        return iter(self._mapped)

    def add(self, mapped: Mapped) -> list[Mapped]:
        """Add a mapping that begins; return the mappings that had its storage, of which nothing is known any more."""
        replaced = self._take(mapped.start, mapped.end)
        k = bisect_left(self._starts, mapped.start)
        self._starts.insert(k, mapped.start)
        self._mapped.insert(k, mapped)
        mapped.is_present = True
        self.place(mapped)
        return replaced

    def place(self, mapped: Mapped) -> None:
        """Give storage its way to the device's space."""
        space = self._spaces.setdefault(mapped.space, _SPACE * (1 + len(self._spaces)))
        if mapped.rows is None:
            mapped.shift = space + mapped.section.address - mapped.start
            return
        key = mapped.space, mapped.section
        if key not in self._packed:
            self._packed[key] = self._next_packed
            self._next_packed += mapped.section.nbytes
        mapped.shift = self._packed[key] - mapped.start

    def find(self, address: int) -> Mapped | None:
        """Return the mapping whose storage an address of a device is in, also one that has ended."""
        k = bisect_right(self._starts, address)
        if not k:
            return None
        mapped = self._mapped[k - 1]
        return mapped if address < mapped.end else None

    def freed(self, lo: int, hi: int) -> Iterator[Run]:
        """Forget the mappings of memory that was freed, on either side; yield the places of that in the spaces."""
        for mapped in self._take(lo, hi):
            if mapped.is_present:
                self.add(mapped)  # the storage is there
        for space in self._spaces.values():
            yield lo + space, hi + space
        for key in [key for key in self._packed if lo <= key[1].address < hi]:
            first = self._packed.pop(key)
            yield first, first + key[1].nbytes

    def _take(self, lo: int, hi: int) -> list[Mapped]:
        """Take out the mappings whose storage shares a byte with these addresses."""
        first, stop = max(bisect_right(self._starts, lo) - 1, 0), bisect_left(self._starts, hi)
        taken = [mapped for mapped in self._mapped[first:stop] if lo < mapped.end]
        kept = [mapped for mapped in self._mapped[first:stop] if lo >= mapped.end]
        self._mapped[first:stop] = kept
        self._starts[first:stop] = [mapped.start for mapped in kept]
        return taken
