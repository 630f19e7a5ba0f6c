"""CuPy's rules: which operations of a recorded run come before which, as moves of vector clocks.

Theory of operation
-------------------
The operations of one stream are a chain, and so are those of the host. A *register* holds a vector clock: for each
chain, the position of its last operation that is known to come before. `moves_of` turns an operation into moves.
A `ClockMove` joins registers into another one; a move with accesses then takes the next position of its chain. An
access ``a`` comes before an access ``b`` if and only if the clock of ``b`` has at least ``a``'s position in the chain
of ``a``. All moves follow the program, so one pass over the log knows all clocks.

The rules (CuPy 14 on CUDA), each with its register:

* Work on a stream follows the host's earlier operations (`host`) and the stream's earlier work. The host continues.
* Work on the null stream follows all earlier work of the streams that are not ``non_blocking`` (`blocking`), and
  precedes all their later work. A recorded event and a wait for an event are such work too, as CUDA's guide says of the
  legacy default stream. A host that synchronises with the null stream waits for all work that new work there would
  follow.
* An event names a position: the register `StreamModel.event` of the operation that recorded it. To record it again is
  to name another position.
* The host waits for a stream, a position or all streams by joining them into `host`.

A call that is left out has no effect at all: its moves are not carried out.

Work with a result that the host may use unseen (`offload.port.unseen`) takes a position even without accesses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offload.port.log import HOST, NULL
from offload.port.unseen import unseen_uses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.port.extents import AccessPart
    from offload.port.log import PortLog, StreamOperation


class ClockMove(NamedTuple):
    """Join the registers ``sources`` into ``target``; then, if it accesses storage, take the chain's next position."""

    target: int
    sources: tuple[int, ...]
    operation: StreamOperation
    reads: tuple[AccessPart, ...] = ()
    writes: tuple[AccessPart, ...] = ()
    is_unseen: bool = False  # whether the host may use its result unseen

    @property
    def has_accesses(self) -> bool:
        """Tell whether the move takes a position."""
        return bool(self.reads or self.writes or self.is_unseen)


class StreamModel:
    """The registers of a log, and the moves of its operations.

    Attributes
    ----------
    chains : int
        Chains, and length of a clock: one for each stream, numbered like it, and the host's.
    host, blocking : int
        Registers of the host, and of all work on streams that are not ``non_blocking``.
    unseen : dict
        The operations whose result the host may use unseen, with the bytes of the host that they access, if any.
    """

    def __init__(self, log: PortLog) -> None:
        self.log = log
        self.unseen = unseen_uses(log)
        self.chains = len(log.streams) + 1
        self.host = len(log.streams)
        self.blocking = self.host + 1
        self._events = self.blocking + 1
        self.last_use: dict[int, int] = {}
        """By recording operation: the last operation that waits for its position."""
        self.last_call: dict[SyncLine, int] = {}
        """By line that could be taken out: the last operation that it carries out; the lines in program order."""
        for operation in log.operations:
            if operation.record is not None:
                self.last_use[operation.record] = operation.number
            line = sync_line(operation)
            if line is not None:
                self.last_call[line] = operation.number

    def event(self, record: int) -> int:
        """Return the register of the position that an operation recorded."""
        return self._events + record

    def moves_of(self, operation: StreamOperation) -> Iterator[ClockMove]:
        """Yield the moves of an operation, in order."""
        host, stream = self.host, operation.stream
        match operation.kind:
            case "host":
                yield ClockMove(host, (), operation, operation.reads, operation.writes)
            case "stream wait":
                yield ClockMove(host, (stream, self.blocking) if stream == NULL else (stream,), operation)
            case "event wait":
                if operation.record is not None:
                    yield ClockMove(host, (self.event(operation.record),), operation)
            case "device wait":
                yield ClockMove(host, tuple(range(len(self.log.streams))), operation)
            case _:
                if operation.host_reads:
                    yield ClockMove(host, (), operation, operation.host_reads)
                yield from self._enqueued(operation)
                if operation.blocks:
                    yield ClockMove(host, (stream,), operation)

    def waited_for(self, operation: StreamOperation) -> tuple[tuple[int, ...], list[int]]:
        """Return the work that a wait names: the chains whose work it is, in the clocks of these registers."""
        streams = self.log.streams
        if operation.kind == "device wait":
            everything = range(len(streams))
            return tuple(everything), list(everything)
        if operation.kind == "stream wait":
            stream = operation.stream
            registers = (stream, self.blocking) if stream == NULL else (stream,)
        elif operation.record is not None:
            stream = self.log.operations[operation.record].stream
            registers = (self.event(operation.record),)
        else:
            return (), []
        if stream == NULL:
            return registers, [one.number for one in streams if not one.non_blocking]
        return registers, [stream]

    def _enqueued(self, operation: StreamOperation) -> Iterator[ClockMove]:
        stream = operation.stream
        assert stream != HOST
        is_blocking = not self.log.streams[stream].non_blocking
        sources = [self.host]
        if is_blocking:
            sources.append(self.blocking if stream == NULL else NULL)
        if operation.kind == "wait_event" and operation.record is not None:
            sources.append(self.event(operation.record))
        is_unseen = operation.number in self.unseen
        yield ClockMove(stream, tuple(sources), operation, operation.reads, operation.writes, is_unseen)
        if is_blocking and stream != NULL:
            yield ClockMove(self.blocking, (stream,), operation)
        if operation.kind == "record" and operation.number in self.last_use:
            yield ClockMove(self.event(operation.number), (stream,), operation)


class SyncLine(NamedTuple):
    """A line that waits for an event or synchronises, with the call that it makes."""

    file: str
    line: int
    call: str  # "wait_event" or "synchronize"


_SYNCHRONISES = frozenset({"stream wait", "event wait", "device wait"})


def sync_line(operation: StreamOperation) -> SyncLine | None:
    """Return the line that could be taken out of the program; None for an operation that does no such thing."""
    if operation.is_query:
        return None
    if operation.kind == "wait_event":
        return SyncLine(operation.place.file, operation.place.line, "wait_event")
    if operation.kind in _SYNCHRONISES:
        return SyncLine(operation.place.file, operation.place.line, "synchronize")
    return None
