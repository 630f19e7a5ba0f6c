"""Copies whose bytes the host was not seen to use: perhaps compiled code does, whose accesses cannot be seen.

Theory of operation
-------------------
The record has the accesses of NumPy's functions. It lacks those of compiled code that takes an array through the buffer
protocol, such as ``file.write(h)`` and ``file.readinto(h)``. Two signs tell of them:

* A copy brings bytes to the host that nobody reads there before they are overwritten, or until the program ends.
* A line copies the same bytes to the device again, and nobody has written them in between.

Either may have another reason. A report says what was not seen, and a task form keeps the waits in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offload.port.extents import covers, shares
from offload.port.pending import PendingAccesses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.port.extents import AccessPart
    from offload.port.log import PortLog, StreamOperation

_GIVE_ARRAYS = frozenset({"get", "asnumpy"})


class UnseenUse(NamedTuple):
    """A copy whose host bytes were not seen to be used."""

    copy: int  # its operation
    until: int  # the operation before which the use must be; the number of all operations if there is none


def unseen_uses(log: PortLog) -> list[UnseenUse]:
    """Return the copies whose host bytes nobody was seen to use, in program order."""
    arrived: PendingAccesses[int] = PendingAccesses()  # copies to the host that nobody has read
    sent: PendingAccesses[int] = PendingAccesses()  # copies to the device, since which nobody has written
    unread: dict[int, int] = {}
    found: list[UnseenUse] = []
    operations = log.operations
    for operation in operations:
        for part in _read_by_host(operation):
            unread = _without(arrived, part, unread)
            arrived.drop(part, lambda other, _, part=part: shares(other, part))  # type: ignore[misc]
        if operation.kind == "to device":
            for part in (*operation.reads, *operation.host_reads):
                again = {
                    number
                    for other, number in sent.near(part)
                    if shares(other, part) and operations[number].place == operation.place
                }
                found += [UnseenUse(number, operation.number) for number in again]
                sent.drop(part, lambda _, number, again=again: number in again)  # type: ignore[misc]
                sent.add(part, operation.number)
        for part in operation.writes if operation.kind in {"host", "callback", "to host"} else ():
            sent.drop(part, lambda other, _, part=part: shares(other, part))  # type: ignore[misc]
            for number in [number for other, number in arrived.near(part) if covers(part, other)]:
                unread[number] = min(unread[number], operation.number)
            arrived.drop(part, lambda other, _, part=part: covers(part, other))  # type: ignore[misc]
            if operation.kind == "to host" and operation.call in _GIVE_ARRAYS:
                arrived.add(part, operation.number)
                unread[operation.number] = len(operations)
    return sorted([*found, *(UnseenUse(number, until) for number, until in unread.items())])


def _without(arrived: PendingAccesses[int], part: AccessPart, unread: dict[int, int]) -> dict[int, int]:
    """Take the copies out of which a part is read."""
    for other, number in arrived.near(part):
        if shares(other, part):
            unread.pop(number, None)
    return unread


def _read_by_host(operation: StreamOperation) -> Iterator[AccessPart]:
    yield from operation.host_reads
    if operation.kind in {"host", "callback", "to device"}:
        yield from operation.reads
