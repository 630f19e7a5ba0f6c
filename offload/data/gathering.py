"""Copies of replicated data to the host: each part from a device that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.data.exchanges import receive
from offload.data.items import check_writeable
from offload.data.replicas import numbers_of
from offload.errors import DeviceLostError, MapError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offload.data.items import MapItem
    from offload.data.replicas import ReplicaSet
    from offload.devices.streams import Lane


def gather(
    replicas: ReplicaSet,
    item: MapItem,
    lanes: Mapping[Any, Lane],
    staged: list[Any],
    failures: list[Exception],
    *,
    may_be_put_off: bool = False,
) -> None:
    """Enqueue the copies of an item to the host; under the locks of all places.

    Each device copies the parts that it sends on its own lane. An item whose elements are not all of its box is
    completed on one device, and copied from there.

    Parameters
    ----------
    lanes : mapping of environment to Lane
        The lanes of the places that can be copied from; the others are lost.
    failures : list of Exception
        The list to which failures are added: each copy is tried, also after another has failed.

    Raises
    ------
    PutOffError
        Only if it ``may_be_put_off``, and no copy of the item is enqueued.
    """
    places, box = replicas.places, replicas.box(item)
    lost = frozenset(device for device, place in enumerate(places) if place not in lanes)
    parts = replicas.table.gather(box, lost)
    host: Any = item.host
    try:
        check_writeable(item)
        # Elements that lie between those of the item must not be copied over the host's.
        if replicas.part(box) != (item.address, item.shape, item.strides, item.itemsize):
            if any(device is None for device, _ in parts):
                raise _is_gone(replicas, item, lost)
            at = next(number for number in range(len(places)) if number not in lost)
            lane, entry = lanes[places[at]], replicas.entries[at]
            receive(replicas, at, box, lane, may_be_put_off=may_be_put_off)
            places[at].copy(host, places[at].view(entry, host, item.address), lane, staged, item.label)
            return
    except (DeviceLostError, MapError) as error:
        failures.append(error)
        return
    for device, part in replicas.table.gather(box, lost):
        if device is None:
            failures.append(_is_gone(replicas, item, lost))
            continue
        inside = [slice(low - first, high - first) for (low, high), (first, _) in zip(part, box, strict=True)]
        to = host if part == box else host[(*inside, ...)]
        place = places[device]
        try:
            place.copy(to, replicas.view(device, part), lanes[place], staged, item.label)
        except Exception as error:  # noqa: BLE001  # raised when all have been tried
            failures.append(error)


def _is_gone(replicas: ReplicaSet, item: MapItem, lost: Collection[int]) -> DeviceLostError:
    numbers = numbers_of([replicas.places[device] for device in sorted(lost)])
    return DeviceLostError(
        f"a part of {item.label} was written on device {numbers} alone, which is lost; the copy uses the other "
        "devices' data"
    )
