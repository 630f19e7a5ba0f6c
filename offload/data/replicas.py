"""Replica sets: entries of several devices that stand for one section, and the parts in which each is current.

Theory of operation
-------------------
The entries of a set are ordinary ones, one in the table of each of its places. `Entry.replicas` names the set, and a
construct that uses such an entry asks it first: a construct on all devices of the set (`offload.data.sets`), or a plain
one on one of them (`offload.data.environment`). A `BoxTable` has the devices that are current in each part, in the
indices of the item that the set was made for. Parts are views of that item: of its host array, and of its storage on
each device.

A set has no lock. Its table changes, and entries join and leave, while the locks of all its places are held, which
`locked` takes in the order of their numbers. A thread that holds the lock of one place alone may only find out that an
entry is in a set. Then it releases the lock, takes all, and looks again.

`versions`: facts about contents are dropped if a copy is about to change them (`Entry.change`).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from offload.arrays.items import address_of
from offload.arrays.sections import Section, section_of
from offload.data.entries import correspond
from offload.data.parts import box_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.data.boxes import Box
    from offload.data.entries import Entry
    from offload.data.items import MapItem
    from offload.data.parts import ArrayLayout
    from offload.data.protocols import AnyEnvironment
    from offload.devices.base import Device

_Plan = TypeVar("_Plan")

_MOST_VIEWS = 512
"""Parts of which a set remembers what it is like to copy them: a time loop has some for each pair of devices."""


class Spread(NamedTuple):
    """The layout of an array: an `ArrayLayout`."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


class ReplicaSet:
    """The entries of several devices for one section, from `join` to `leave`.

    Parameters
    ----------
    item : MapItem
        The item for which it is made.
    places : sequence of AnyEnvironment
        The devices' data environments, in the order of the clause; the first is the primary's.
    entries : sequence of Entry
        Theirs, which hold all of the item.
    """

    __slots__ = (
        "_host",
        "_sections",
        "_space",
        "_views",
        "entries",
        "label",
        "layout",
        "places",
        "sent_nbytes",
        "table",
    )

    def __init__(self, item: MapItem, places: Sequence[AnyEnvironment], entries: Sequence[Entry]) -> None:
        from offload.data.boxes import BoxTable, whole_of  # when there is a set: `import offload` is quicker without it

        host: Any = item.host
        if 0 in host.strides:
            host = host[tuple([slice(None) if stride else slice(1) for stride in host.strides])]
        self.places = tuple(places)
        self.entries = tuple(entries)
        # The item, for messages.
        self.label = item.label
        # What has been copied from device to device, since there is the set.
        self.sent_nbytes = 0
        # Of the item, with one index only where its stride is 0.
        self.layout = Spread(address_of(host), host.shape, host.strides, host.itemsize)
        # Who is current where, in the indices of the layout; at first everybody.
        self.table = BoxTable(whole_of(host.shape), len(self.places))
        self._host = host
        self._space = item.section.space
        # By boxes: their bytes on the host, and, with a device's number, their arrays there.
        self._sections: dict[Box, Section] = {}
        self._views: dict[tuple[int, Box], Any] = {}

    def __repr__(self) -> str:
        return f"<ReplicaSet {self.label} on {self.devices}>"

    @property
    def devices(self) -> str:
        """The numbers of the devices, for messages."""
        return numbers_of(self.places)

    def join(self) -> None:
        """Let the entries know; under the locks of all places."""
        for place, entry in zip(self.places, self.entries, strict=True):
            entry.replicas = self
            place.sets.append(self)
            place.table.version += 1

    def leave(self) -> None:
        """Make the entries ordinary ones; the set is over, even if still referenced. Under the locks of all places."""
        for place, entry in zip(self.places, self.entries, strict=True):
            entry.replicas = None
            if self in place.sets:
                place.sets.remove(self)
            place.table.version += 1
        self.entries = ()
        self._views.clear()

    def number_of(self, place: AnyEnvironment) -> int:
        """Return the number of a place in the set."""
        return self.places.index(place)

    # -- parts ---------------------------------------------------------------------------------------
    def box(self, view: ArrayLayout) -> Box:
        """Return the box that has all elements that an item, or another view of the section, touches."""
        return box_of(self.layout, view)

    def is_all(self, view: ArrayLayout, box: Box) -> bool:
        """Tell whether a view has each element of its box."""
        return view.itemsize == self.layout.itemsize and prod(view.shape) == prod(high - low for low, high in box)

    def part(self, box: Box) -> Spread:
        """Return where a box lies on the host."""
        layout = self.layout
        address = layout.address + sum(low * by for (low, _), by in zip(box, layout.strides, strict=True))
        return layout._replace(address=address, shape=tuple(high - low for low, high in box))

    def section(self, box: Box) -> Section:
        """Return the bytes of the host that a box has, by which ledgers know it."""
        known = self._sections.get(box)
        if known is None:
            known = section_of(self._space, *self.part(box))
            _remember(self._sections, box, known)
        return known

    def view(self, device: int, box: Box) -> Any:
        """Return the device array of a box."""
        known = self._views.get((device, box))
        if known is None:
            entry, part = self.entries[device], self.part(box)
            offset, strides = correspond(entry, *part)
            known = self.places[device].device.view(entry.buffer, offset, part.shape, strides, self._host.dtype)
            _remember(self._views, (device, box), known)
        return known

    def box_on(self, device: int, array: Any) -> Box | None:
        """Return the box of a device array that lies in the buffer of a device; None where it lies elsewhere."""
        at = self.places[device].device
        section, buffer = at.section(array), at.section(self.entries[device].buffer)
        if section.space != buffer.space or not buffer.address <= section.address < buffer.end:
            return None
        whole = self.view(device, self.table.space)
        return box_of(_spread(at, whole), _spread(at, array))


def replicas_of(entries: Iterable[Entry | None]) -> list[ReplicaSet]:
    """Return the sets that entries are in, each once."""
    return [*dict.fromkeys([entry.replicas for entry in entries if entry is not None and entry.replicas is not None])]


def asked(
    place: AnyEnvironment,
    make: Callable[[], _Plan],
    entries_of: Callable[[_Plan], Iterable[Entry]],
    act: Callable[[_Plan], None],
) -> _Plan:
    """Make a plan for a place under its lock, and act on it, under the locks of all places of the sets in it.

    Parameters
    ----------
    make : callable
        Returns the plan, and changes nothing.
    entries_of : callable
        Returns the entries of a plan that are used.
    act : callable
        The action under the locks.
    """
    sets: list[ReplicaSet] = []
    while True:
        with locked_for(place, sets):
            plan = make()
            found = replicas_of(entries_of(plan))
            if all(replicas in sets for replicas in found):
                act(plan)
                return plan
        sets = found


class locked:  # noqa: N801  # a context manager
    """Hold the locks of places, each once, taken in the order of their numbers."""

    __slots__ = ("_n_taken", "_places")

    def __init__(self, places: Iterable[AnyEnvironment]) -> None:
        self._places = sorted(set(places), key=_by_number)
        self._n_taken = 0

    def __enter__(self) -> None:
        try:
            for place in self._places:
                place.lock.acquire()
                self._n_taken += 1
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for place in self._places[: self._n_taken]:
            place.lock.release()


def locked_for(place: AnyEnvironment, sets: Iterable[ReplicaSet]) -> locked:
    """Hold the locks of a place and of all places of some sets."""
    return locked((place, *[each for replicas in sets for each in replicas.places]))


def numbers_of(places: Iterable[AnyEnvironment]) -> str:
    """Return the numbers of devices, for messages."""
    return ", ".join([str(place.device.number) for place in places])


def _spread(device: Device, array: Any) -> Spread:
    return Spread(device.address(array) or 0, tuple(array.shape), tuple(array.strides), array.dtype.itemsize)


def _by_number(place: AnyEnvironment) -> int:
    return place.device.number


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= _MOST_VIEWS:
        known.clear()
    known[key] = value
