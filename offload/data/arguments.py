"""Device arrays that the program passes to copies and fills: those of a replica set are made current first."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.data.exchanges import receive
from offload.data.replicas import asked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.data.boxes import Box
    from offload.data.forks import Marks
    from offload.data.protocols import AnyPlace
    from offload.data.replicas import ReplicaSet
    from offload.devices.streams import Lane


class _Touched(NamedTuple):
    """A part of a set on one of its devices, and how it is used."""

    replicas: ReplicaSet
    place: AnyPlace
    # The number of the device in the set, and the part in the set's indices.
    device: int
    box: Box
    # Nothing is read of a part that is written as a whole.
    is_read: bool
    is_written: bool


def touch(
    gate: Marks,
    place: AnyPlace,
    lane: Lane,
    reads: Iterable[tuple[AnyPlace, Any]],
    writes: Iterable[tuple[AnyPlace, Any]],
) -> None:
    """Make the devices of arrays current in the parts read, and the others stale in the parts written.

    Parameters
    ----------
    reads, writes : iterable of (AnyPlace, array)
        Device arrays, each on the device of its place.

    Raises
    ------
    PutOffError
        Only the parts in which devices are current may have changed.
    """
    from offload.data.forks import Fork  # where there are sets: `import offload` is quicker without it

    given = [*[(at, array, False) for at, array in reads], *[(at, array, True) for at, array in writes]]

    def make() -> list[_Touched]:
        return [each for at, array, is_written in given for each in _found(at, array, is_written=is_written)]

    def act(touched: list[_Touched]) -> None:
        for each in touched:
            if not each.is_read or each.replicas.table.is_current(each.device, each.box):
                continue
            # A part on another device is completed by a lane there, which this task's lane then joins.
            if each.place is place:
                receive(each.replicas, each.device, each.box, lane)
                continue
            fork = Fork(gate, lane, (place, each.place))
            try:
                receive(each.replicas, each.device, each.box, fork.lanes[1])
            finally:
                fork.give_back()
        for each in touched:
            if each.is_written:
                each.replicas.table.mark_written(each.box, each.device)

    asked(place, make, lambda touched: [each.replicas.entries[each.device] for each in touched], act)


def _found(place: AnyPlace, array: Any, *, is_written: bool) -> list[_Touched]:
    """Return the parts of sets that an array lies in."""
    found = []
    for replicas in place.sets:
        device = replicas.number_of(place)
        box = replicas.box_on(device, array)
        if box is not None and all(low < high for low, high in box):
            is_all = array.dtype.itemsize == replicas.layout.itemsize and array.size == prod(
                high - low for low, high in box
            )
            found.append(_Touched(replicas, place, device, box, not (is_written and is_all), is_written))
    return found
