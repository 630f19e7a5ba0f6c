"""The copies of a replica set that make devices current, enqueued on lanes and entered into the ledgers.

Theory of operation
-------------------
A copy to a device is a write of its entry, which follows all uses of that part there. In the ledger of the sender it is
a use, so that a later write there follows it. All ledgers are asked before anything is enqueued: if one has to be
waited for, nothing has changed. Copies are put on the lanes of the receivers, with one mark after them, which the lanes
of the senders follow: the senders' next work may write the elements that they have sent.

From then on the table has the state that will hold when the lanes have got there. A copy writes only stale elements, so
if an exchange fails half way the earlier state is still true.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from offload.data.ledger import PutOffError
from offload.errors import DeviceLostError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offload.data.boxes import Box, Copy, Exchange, Needs
    from offload.data.entries import Entry
    from offload.data.items import MapItem
    from offload.data.ledger import Part
    from offload.data.protocols import AnyEnvironment
    from offload.data.replicas import ReplicaSet
    from offload.devices.streams import Lane, Point


def make_current(replicas: ReplicaSet, needs: Needs, lanes: Mapping[int, Lane]) -> dict[int, Point]:
    """Make devices current where they need to be; under the locks of the places.

    Parameters
    ----------
    lanes : mapping of int to Lane
        By the numbers of places in the set, all of them: a table whose rows are too many has all receive.

    Returns
    -------
    dict of int to Point
        The ends of the copies, by the receiving device.

    Raises
    ------
    PutOffError, DeviceLostError
        The table is as it was.
    """
    # A copy reaches only what was stale, so that the state before stays true if one fails.
    state = replicas.table.state
    exchange = replicas.table.exchange(needs)
    if not exchange.copies:
        return {}
    try:
        return enqueue(replicas, exchange, lanes)
    except BaseException:
        replicas.table.state = state
        raise


def receive(replicas: ReplicaSet, device: int, box: Box, lane: Lane, *, may_be_put_off: bool = True) -> Point | None:
    """Make one device current in a box, by copies on a lane of its own; under the locks of the places.

    Returns and raises as `make_current`. A call that must not be put off follows the work enqueued so far.
    """
    table = replicas.table
    if table.is_current(device, box):
        return None
    state = table.state
    exchange = table.receive(device, box)
    try:
        return enqueue(replicas, exchange, {device: lane}, may_be_put_off=may_be_put_off).get(device)
    except BaseException:
        table.state = state
        raise


def complete(
    place: AnyEnvironment, copies: Iterable[tuple[MapItem, Entry]], lane: Lane, *, may_be_put_off: bool = True
) -> None:
    """Make a device current in those items that lie in entries of a set, on a lane of its own; locks as `receive`."""
    for item, entry in copies:
        replicas: ReplicaSet | None = entry.replicas
        if replicas is not None:
            device, box = replicas.number_of(place), replicas.box(item)
            receive(replicas, device, box, lane, may_be_put_off=may_be_put_off)


def mark_written(place: AnyEnvironment, copies: Iterable[tuple[MapItem, Entry]]) -> None:
    """Note that one device, current there, writes in items: in those that lie in a set the others become stale."""
    for item, entry in copies:
        replicas: ReplicaSet | None = entry.replicas
        if replicas is not None:
            replicas.table.mark_written(replicas.box(item), replicas.number_of(place))


def enqueue(
    replicas: ReplicaSet, exchange: Exchange, lanes: Mapping[int, Lane], *, may_be_put_off: bool = True
) -> dict[int, Point]:
    """Enqueue the copies of an exchange; parameters, returns as `make_current`.

    Raises
    ------
    PutOffError
        A ledger has something open that a copy would have to follow; no copy is enqueued.
    DeviceLostError
        Copies that have been enqueued are in the ledgers.
    """
    places, entries = replicas.places, replicas.entries
    # All ledgers are asked first: where one puts the exchange off, no copy has been enqueued.
    waits: dict[int, list[Any]] = {}
    for device, copies in enumerate(exchange.into):
        if copies:
            found = waits[device] = []
            for _, _, box in copies:
                found += before(places[device], (), ((entries[device], replicas.section(box)),), may_be_put_off)
            for source, _, box in copies:
                found += before(places[source], ((entries[source], replicas.section(box)),), (), may_be_put_off)
    points: dict[int, Point] = {}
    for device, found in waits.items():
        lane = lanes[device]
        lane.wait_for(found)
        entries[device].change(lane)
        done: list[Copy] = []
        try:
            for copy in exchange.into[device]:
                _copy(replicas, copy, lane)
                done.append(copy)
        except BaseException:
            with suppress(DeviceLostError):
                _note(replicas, lane.mark(), done)
            raise
        # One mark for all copies to a device: nobody follows a part of an exchange.
        point = points[device] = lane.mark()
        _note(replicas, point, done)
    # The kernels of a device that has sent may overwrite that, and so follow the copies.
    for source, copies in enumerate(exchange.out_of):
        if copies and source in lanes:
            lanes[source].wait_for([points[target] for _, target, _ in copies])
    return points


def before(
    place: AnyEnvironment, uses: Sequence[Part], writes: Sequence[Part] = (), may_be_put_off: bool = True
) -> list[Any]:
    """Return the points that the ledger of a place says have to be followed; `PutOffError` names the place."""
    try:
        return place.ledger.acquire(uses, writes)
    except PutOffError:
        if may_be_put_off:
            raise PutOffError(place) from None
        return place.ledger.acquire(ended=[entry for entry, _ in (*uses, *writes)])


def _copy(replicas: ReplicaSet, copy: Copy, lane: Lane) -> None:
    source, target, box = copy
    staged: list[Any] = []
    to, at = replicas.view(target, box), replicas.view(source, box)
    replicas.places[target].copy(to, at, lane, staged, replicas.label)
    replicas.sent_nbytes += to.nbytes
    assert not staged, "copies between devices are enqueued"


def _note(replicas: ReplicaSet, point: Point, copies: Iterable[Copy]) -> None:
    places, entries = replicas.places, replicas.entries
    for source, target, box in copies:
        section = replicas.section(box)
        places[target].ledger.release((point.lane, (), ((entries[target], section),), ()), point)
        places[source].ledger.release((point.lane, ((entries[source], section),), (), ()), point)
