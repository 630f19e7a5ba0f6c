"""mpi4py's methods: the arguments that they read and write, and the calls with which they are in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class MethodKind(Enum):
    """How a method communicates."""

    SEND = "send"
    RECEIVE = "receive"
    SEND_AND_RECEIVE = "send and receive"
    COLLECTIVE = "collective"


class BufferAccess(Enum):
    """How an operation uses a buffer."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a communicator."""

    parameters: tuple[str, ...]  # in order
    buffers: tuple[tuple[str, BufferAccess], ...]  # each parameter that is a buffer, and its use
    sends: bool  # whether it has a message to a rank
    receives: bool  # whether it has a message from a rank
    required: frozenset[str]  # the arguments that a call must have
    all_names: frozenset[str]  # the arguments that a call may have

    @classmethod
    def of(cls, kind: MethodKind, parameters: Sequence[str]) -> Method:
        """Return a method of a kind, with parameters in order."""
        accesses = {**_ACCESSES, "buf": _OF_ONE_BUFFER[kind]}
        buffers = tuple((parameter, accesses[parameter]) for parameter in parameters if parameter in accesses)
        sends, receives = "dest" in parameters, "source" in parameters
        optional = {"recvbuf"} if sends and receives else set()
        required = frozenset({*(parameter for parameter, _ in buffers), *(["dest"] if sends else [])} - optional)
        return cls(tuple(parameters), buffers, sends, receives, required, frozenset(parameters))

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by the names of their parameters."""
        return {**dict(zip(self.parameters, args, strict=False)), **kwargs}


_ACCESSES = {"sendbuf": BufferAccess.READ, "obj": BufferAccess.READ, "recvbuf": BufferAccess.WRITE}
_OF_ONE_BUFFER = {
    MethodKind.SEND: BufferAccess.READ,
    MethodKind.RECEIVE: BufferAccess.WRITE,
    MethodKind.SEND_AND_RECEIVE: BufferAccess.UPDATE,
    MethodKind.COLLECTIVE: BufferAccess.UPDATE,
}


def _table(lines: str) -> dict[str, Method]:
    methods = {}
    for line in lines.strip().splitlines():
        name, kind, *parameters = line.replace("|", " ").split()
        methods[name] = Method.of(MethodKind[kind], parameters)
    return methods


# of each method that returns a request: its kind and its parameters, as in mpi4py 4.1
METHODS = _table(
    """
    Isend                  | SEND             | buf dest tag
    Ibsend                 | SEND             | buf dest tag
    Issend                 | SEND             | buf dest tag
    Irsend                 | SEND             | buf dest tag
    isend                  | SEND             | obj dest tag
    ibsend                 | SEND             | obj dest tag
    issend                 | SEND             | obj dest tag
    Irecv                  | RECEIVE          | buf source tag
    irecv                  | RECEIVE          | _ source tag
    Isendrecv              | SEND_AND_RECEIVE | sendbuf dest sendtag recvbuf source recvtag
    Isendrecv_replace      | SEND_AND_RECEIVE | buf dest sendtag source recvtag
    Ibarrier               | COLLECTIVE       |
    Ibcast                 | COLLECTIVE       | buf root
    Igather                | COLLECTIVE       | sendbuf recvbuf root
    Igatherv               | COLLECTIVE       | sendbuf recvbuf root
    Iscatter               | COLLECTIVE       | sendbuf recvbuf root
    Iscatterv              | COLLECTIVE       | sendbuf recvbuf root
    Iallgather             | COLLECTIVE       | sendbuf recvbuf
    Iallgatherv            | COLLECTIVE       | sendbuf recvbuf
    Ialltoall              | COLLECTIVE       | sendbuf recvbuf
    Ialltoallv             | COLLECTIVE       | sendbuf recvbuf
    Ialltoallw             | COLLECTIVE       | sendbuf recvbuf
    Ireduce                | COLLECTIVE       | sendbuf recvbuf op root
    Iallreduce             | COLLECTIVE       | sendbuf recvbuf op
    Ireduce_scatter        | COLLECTIVE       | sendbuf recvbuf recvcounts op
    Ireduce_scatter_block  | COLLECTIVE       | sendbuf recvbuf op
    Iscan                  | COLLECTIVE       | sendbuf recvbuf op
    Iexscan                | COLLECTIVE       | sendbuf recvbuf op
    Ineighbor_allgather    | COLLECTIVE       | sendbuf recvbuf
    Ineighbor_allgatherv   | COLLECTIVE       | sendbuf recvbuf
    Ineighbor_alltoall     | COLLECTIVE       | sendbuf recvbuf
    Ineighbor_alltoallv    | COLLECTIVE       | sendbuf recvbuf
    Ineighbor_alltoallw    | COLLECTIVE       | sendbuf recvbuf
    """
)

# methods that write all of an unstaged array: it has to be as long as the data sent to the rank
FILLING = frozenset({"Iallreduce", "Iscan", "Ialltoall", "Iallgather"})

# of each method that has a root, the buffer that only the root reads or writes
ROOTED = {
    "Ibcast": None,
    "Igather": "recvbuf",
    "Igatherv": "recvbuf",
    "Ireduce": "recvbuf",
    "Iscatter": "sendbuf",
    "Iscatterv": "sendbuf",
}
