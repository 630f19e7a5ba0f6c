"""The record of a CuPy program: storages, streams, and operations in program order.

Theory of operation
-------------------
The stand-in for CuPy appends a `StreamOperation` for each call that enqueues work, synchronises, or lets the host
access an array. Accesses are `offload.port.extents.AccessPart` values: their ``space`` is the number of a
`StorageRecord`, and their addresses count from its first byte. Therefore the log holds no array, memory that is freed
and used again belongs to another storage, and everything below is pure: `offload.port.model` says what orders the
operations, and `offload.port.analysis` makes the report.

An operation has accesses in two places. ``reads`` and ``writes`` happen on ``stream``, when the stream gets there; for
``stream == HOST`` the host makes them during the call. ``host_reads`` are always made by the host during the call, such
as the read of pageable memory by ``d.set(h)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from offload.port.extents import space_of

if TYPE_CHECKING:
    from offload.port.extents import AccessPart

HOST: Final = -1
"""The stream number of operations that the host itself carries out."""
NULL: Final = 0
"""The number of the null stream."""

OperationKind = Literal[
    "kernel",  # work on device arrays, on `stream`; also copies between device arrays
    "to device",  # a copy from the host, on `stream`
    "to host",  # a copy to the host, on `stream`; `blocks`: the host then waits for the stream
    "callback",  # `launch_host_func`: host code that runs on `stream`
    "host",  # the host accesses arrays; `stream` is HOST
    "record",  # an event is recorded on `stream`; `operation.number` names the position
    "wait_event",  # `stream` waits for the position `record`
    "stream wait",  # the host waits for `stream`: `synchronize()`
    "event wait",  # the host waits for the position `record`: `event.synchronize()`
    "device wait",  # the host waits for all streams: `deviceSynchronize`, `Device.synchronize`
]
StorageKind = Literal["device", "pinned", "host"]


class ProgramPlace(NamedTuple):
    """A call in the program. The columns count UTF-8 bytes from 0, as in `ast`; -1 where Python does not know them."""

    file: str  # absolute
    line: int
    column: int
    end_line: int
    end_column: int
    function: str  # the qualified name of the code object, "<module>" at the top


@dataclass(slots=True)
class StorageRecord:
    """One allocation."""

    number: int
    kind: StorageKind
    nbytes: int
    itemsize: int
    place: ProgramPlace | None  # where the program allocated it; None for memory that existed before
    call: str  # "empty", "zeros", "asarray", "add", …; "" if the program made it without the stand-in
    name: str = ""  # a variable of the program that holds it, such as "x" or "buf[1]"; "" for temporaries
    shape: tuple[int, ...] = ()
    dtype: str = ""

    @property
    def label(self) -> str:
        """The name for a reader: the variable, or type and shape."""
        return self.name or f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(slots=True)
class StreamRecord:
    """One stream."""

    number: int
    non_blocking: bool
    place: ProgramPlace | None  # where the program made it; None for the null stream
    name: str  # a variable of the program, "null" for the null stream, else "stream 3"
    variable: str = ""  # the expression that names it in the program, "" if unknown


@dataclass(slots=True)
class StreamOperation:
    """One operation of the program."""

    number: int  # its index in the log
    kind: OperationKind
    call: str  # "add", "set", "get", "asnumpy", "float", "wait_event", "synchronize", "matmul", …
    place: ProgramPlace
    stream: int
    reads: tuple[AccessPart, ...] = ()
    writes: tuple[AccessPart, ...] = ()
    host_reads: tuple[AccessPart, ...] = ()
    record: int | None = None  # of waits for events: the number of the "record" operation; None if never recorded
    blocks: bool = False  # of copies: the host waits for the stream before it goes on
    assumed: tuple[AccessPart, ...] = ()  # of `reads`: those by pointers of a CUDA kernel that may only write there
    is_query: bool = False  # of waits: a `done` that returned True, not a `synchronize`
    block: ProgramPlace | None = None  # where the program entered `with STREAM:`, if another function did that
    uses_random: bool = False  # it draws random numbers
    thread: str = "MainThread"  # of the host


@dataclass(slots=True)
class PortLog:
    """The record of a run."""

    operations: list[StreamOperation] = field(default_factory=list)
    storages: list[StorageRecord] = field(default_factory=list)
    streams: list[StreamRecord] = field(default_factory=lambda: [StreamRecord(NULL, False, None, "null", "")])
    unchecked: set[int] = field(default_factory=set)
    """Storages whose bytes were computed from the result of a kernel that the simulated run did not carry out."""
    unchecked_places: dict[ProgramPlace, str] = field(default_factory=dict)
    """Where the host received such bytes, and from which array."""
    unchecked_kernels: dict[str, ProgramPlace] = field(default_factory=dict)
    """The kernels that the run did not carry out, with the first launch of each."""
    given_away: dict[ProgramPlace, str] = field(default_factory=dict)
    """Where the program got the memory of a host array in a form whose accesses cannot be seen, and which array."""
    out_of_sight: set[int] = field(default_factory=set)
    """The storages of this memory."""
    sees_buffers: bool = True
    """Whether the log has the host's accesses by the buffer protocol, which Python shows since 3.12."""
    timed: set[int] = field(default_factory=set)
    """The operations that recorded an event whose time the program asks for."""
    obstacles: dict[ProgramPlace, str] = field(default_factory=dict)
    """Calls that the task form cannot express, with their reason: `Stream.use`, several devices, …"""
    arrived: dict[int, bytes] = field(default_factory=dict)
    """By operation: a digest of the bytes that a copy brought to the host, if the recorder was asked for digests."""

    def storage_of(self, part: AccessPart) -> StorageRecord:
        """Return the storage that the bytes lie in."""
        return self.storages[space_of(part)]
