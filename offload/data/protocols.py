"""The members of a data environment that the files about replicas use; the environment is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from threading import Lock

    from offload.data.entries import Entry
    from offload.data.ledger import Claim, Ledger
    from offload.data.plans import Plan
    from offload.data.present_table import PresentTable
    from offload.devices.base import Device
    from offload.devices.streams import Lane, Point, StreamPool


class AnyEnvironment(Protocol):
    """The data environment of one device: `offload.data.environment.DataEnvironment`."""

    device: Device
    table: PresentTable
    # Held from the plan of a construct to its commit.
    lock: Lock
    ledger: Ledger
    # The replica sets that entries of the table are in.
    sets: list[Any]

    def view(self, entry: Entry, host: Any, address: int | None = None) -> Any:
        """Return the device array that corresponds to a host array inside an entry."""

    def copy(self, dst: Any, src: Any, lane: Lane, staged: list[Any], text: object = None) -> None:
        """Enqueue a copy between two arrays, or add it to those that are staged."""

    def allocate(self, created: Sequence[Entry], lane: Lane) -> list[Any]:
        """Return a buffer for each of these entries."""

    def copy_in(self, plan: Plan, lane: Lane, staged: list[Any]) -> None:
        """Enqueue the fills of new entries, and the copies to the device."""

    def open(self, claim: Claim) -> None:
        """Enter accesses whose copies are about to be enqueued, until `settle`; under the lock."""

    def hold(self, fork: Any, places: Sequence[AnyEnvironment]) -> None:
        """Keep a fork of a lane here, and the open accesses at the other places, until `settle`."""

    def settle(self, lane: Lane, point: Point | None = None) -> Point | None:
        """Take note that the copies of the construct on the lane are all enqueued, or carried out."""

    def keep(self, lane: Lane, things: Iterable[Any]) -> None:
        """Keep objects that a failing construct leaves in use on a lane."""


class AnyPlace(AnyEnvironment, Protocol):
    """The place of a device: its data environment, with the lanes of the device and the tasks in flight there."""

    pool: StreamPool
    in_flight: set[Any]
