"""Work whose result the host may use where the record cannot show it: a wait for such work is never needless.

* A callback of ``launch_host_func`` may change any object of Python.
* ``get_elapsed_time`` requires that the host has waited for both events.
* The host may access an array of the host by a form of its memory whose accesses cannot be seen. Before Python 3.12,
  this includes the buffer protocol, as in ``file.write(h)``. Then a copy counts unless a later access of the host is
  seen that conflicts with it, before the next copy of these bytes. If one line copies to the device several times, one
  such access is enough, because the program may end after the last copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from offload.port.extents import covers, shares, space_of
from offload.port.log import HOST
from offload.port.pending import PendingAccesses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.port.extents import AccessPart
    from offload.port.log import PortLog, ProgramPlace, StreamOperation

_COPIES: Final = frozenset({"to device", "to host"})


def copied_again(log: PortLog) -> set[tuple[ProgramPlace, AccessPart]]:
    """Return the calls that copy bytes of the host to the device more than once, with these bytes."""
    once: set[tuple[ProgramPlace, AccessPart]] = set()
    again: set[tuple[ProgramPlace, AccessPart]] = set()
    for operation in log.operations:
        for part in (*operation.reads, *operation.host_reads) if operation.kind == "to device" else ():
            (again if (operation.place, part) in once else once).add((operation.place, part))
    return again


def unseen_uses(log: PortLog, *, at_once: bool = False) -> dict[int, AccessPart | None]:
    """Return the operations on streams whose result the host may use unseen, and the bytes of the host, if any.

    ``at_once``: also repeated copies to the device whose bytes the host itself has read during the call. A task reads
    them later.
    """
    again = copied_again(log) if at_once else set()
    later: PendingAccesses[bool] = PendingAccesses()  # accesses of the host after an operation: whether they write
    known: set[tuple[AccessPart, bool]] = set()
    answered: set[ProgramPlace] = set()  # calls that copy to the device, and that a seen access followed
    found: dict[int, AccessPart | None] = {}
    for operation in reversed(log.operations):
        if operation.kind == "callback" or operation.number in log.timed:
            found[operation.number] = None
        elif operation.kind in _COPIES:
            writes = operation.kind == "to host"
            at = operation.place
            early = [part for part in operation.host_reads if (at, part) in again]
            for part in operation.writes if writes else (*operation.reads, *early):
                if _is_unseen(log, part, later, writes=writes):
                    found[operation.number] = part
                elif not writes:
                    answered.add(operation.place)
                later.drop(part, lambda other, _, part=part: covers(part, other))  # type: ignore[misc]
                known.clear()
        elif operation.stream == HOST and not log.sees_buffers:
            for access in _accesses_of(operation):
                if access not in known:
                    known.add(access)
                    later.add(*access)
    if log.sees_buffers:
        return found
    return {
        number: part
        for number, part in found.items()
        if part is None or space_of(part) in log.out_of_sight or log.operations[number].place not in answered
    }


def _accesses_of(operation: StreamOperation) -> Iterator[tuple[AccessPart, bool]]:
    """Yield the parts that an operation of the host accesses, and whether it writes them."""
    for part in operation.reads:
        yield part, False
    for part in operation.writes:
        yield part, True


def _is_unseen(log: PortLog, part: AccessPart, later: PendingAccesses[bool], *, writes: bool) -> bool:
    """Tell whether the host may access the bytes of a copy unseen."""
    if log.storage_of(part).kind == "device":
        return False
    if space_of(part) in log.out_of_sight:
        return True
    if log.sees_buffers:
        return False
    return not any((writes or other_writes) and shares(part, other) for other, other_writes in later.near(part))
