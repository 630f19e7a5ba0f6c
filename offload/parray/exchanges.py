"""Typed copies between MPI processes: one collective call exchanges the elements of all ranks.

Every rank makes the same plan, which lists the elements that it sends, receives and keeps. One ``Ialltoallw`` moves
them all: where a pair of ranks has nothing it moves nothing, and collective calls match by the order of the program
(`offload.mpi.order`), whenever tasks are ready. The copy is one task, an operation of `offload.mpi`: it packs and calls
when its dependences and its turn allow, and is complete when the request is and the packed elements are in their
places.

A source that is written by the same call is packed completely, with the elements that the rank keeps, as if everything
moved at once.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from offload.arrays.hostcopies import copyto
from offload.arrays.sections import overlaps
from offload.constructs.clauses.dependences import check_depend_now
from offload.constructs.clauses.maps import check_name
from offload.constructs.copying import section_at
from offload.constructs.hostmemory import empty_pinned
from offload.devices.retirement import refuse_retired
from offload.errors import ClauseError
from offload.mpi.calls import CallRecipe
from offload.mpi.operations import Operation
from offload.mpi.staging import BufferCopies, BufferStaging
from offload.parray import indexed, messages
from offload.parray.dimensions import abridged
from offload.parray.messages import End, Piece, pack_on_device, pack_on_host
from offload.parray.storage import COPY, Storage, check, common_dtype
from offload.runtime.current import here
from offload.runtime.generate import generate
from offload.runtime.sites import call_site
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.events.gate import Gate
    from offload.parray.plans import Plan
    from offload.parray.types import ArrayType
    from offload.tasks.task import Task

    Kept = list[tuple[Piece, Piece]]  # of a rank that sends to itself: out of its array, and into it
    Told = Callable[[BaseException | None], None]  # is called once: with None when all is done, or with the failure

_ROOT = 0  # The rank that a side belongs to which is not distributed


def communicator(comm: Any) -> Any:
    """Return a communicator, `COMM_WORLD` for None; None for another object, or a communicator between two groups."""
    found = MPI.COMM_WORLD if comm is None else comm
    return found if isinstance(found, MPI.Intracomm) and found != MPI.COMM_NULL else None


def copy(
    made: Plan,
    source_type: ArrayType,
    source: Any,
    target_type: ArrayType,
    target: Any,
    *,
    nowait: bool,
    depend: Any,
    name: str | None,
) -> Task | None:
    """Generate the task of a typed copy over ranks; see `offload.parray.copying.copy`.

    Raise `ClauseError` too if this rank's two arrays are on different devices.
    """
    scope = here()
    frame = scope.frame(COPY)
    team: Any = target_type.threads or source_type.threads
    operation = MessageExchange(team.comm, *_parts(made, (source_type, target_type), (source, target), team.comm))
    operation.check()
    dependences = check_depend_now(COPY, depend)
    label = check_name(name)
    if nowait and frame.inherited.is_final:
        raise ClauseError(
            f"{COPY} over ranks is not allowed in a final task, because its tasks run at once; generate this task "
            "elsewhere"
        )
    recipe = CallRecipe(call_site(COPY, scope.runtime, 2), operation, label, 0)
    task = generate(scope, frame, recipe, dependences, wait=not nowait)
    if nowait:
        return task
    if task.state_ is not TaskState.RECORDED:  # a recorded task runs later
        task.result()
    return None


def _parts(
    made: Plan, types: tuple[ArrayType, ArrayType], given: tuple[Any, Any], comm: Any
) -> tuple[tuple[End, End], Kept]:
    """Return the two ends of this rank's messages, and the pieces that it keeps."""
    rank, n_ranks = comm.Get_rank(), comm.Get_size()
    every: Sequence[Any] = indexed.tables_of(*types) if made.kind == "indexed" else made.boxes
    # Of each box or table, the rank that has the source, and the rank that has the target.
    owners = [tuple([_ROOT if thread is None else thread for thread in one[:2]]) for one in every]
    storages = []  # of the source and the target; None where this rank has no elements
    for k, role in enumerate(("the source", "the target")):
        is_needed = any(pair[k] == rank for pair in owners)
        storages.append(
            _storage(types[k], given[k], f"{role}, of rank {rank},", is_written=k == 1) if is_needed else None
        )
    found = [storage for storage in storages if storage is not None]
    if len({storage.place for storage in found if storage.place is not None}) > 1:
        raise ClauseError(
            f"{COPY}: the two arrays of rank {rank} are on two devices; over ranks, pass arrays of one device, or of "
            "the host"
        )
    dtype = common_dtype([storage.array for storage in found]) if found else np.dtype(np.uint8)  # has nothing to move
    # Every rank goes through boxes in the same order, so pieces of a pair of ranks match by their order.
    sent: list[Piece] = []
    received: list[Piece] = []
    kept: Kept = []
    for i, (one, (source_rank, target_rank)) in enumerate(zip(every, owners, strict=True)):
        out = _piece(one, 0, storages[0], dtype, target_rank, (*types, i)) if source_rank == rank else None
        into = _piece(one, 1, storages[1], dtype, source_rank, (*types, i)) if target_rank == rank else None
        if out is not None and into is not None and out.offsets is None and into.offsets is None:
            kept.append((out, into))
        else:
            sent += [out] if out is not None else []
            received += [into] if into is not None else []
    clashes = _clash(storages, [*sent, *[out for out, _ in kept]], [*received, *[into for _, into in kept]])
    if clashes:  # all that is read is packed before anything is written: what the rank keeps goes through MPI too
        sent += [out for out, _ in kept]
        received += [into for _, into in kept]
        kept = []
    ends = (
        End(storages[0], sent, dtype, n_ranks, least_run=inf if clashes else messages.LEAST_SENT_NBYTES),
        End(storages[1], received, dtype, n_ranks, least_run=messages.LEAST_RECEIVED_NBYTES),
    )
    return ends, kept


def _storage(side: ArrayType, x: Any, role: str, *, is_written: bool) -> Storage:
    if x is None:
        raise ClauseError(
            f"{COPY}: {role} is None, but the rank has elements of {abridged(str(side))}; pass the rank's own array"
        )
    return check(side, x, role, is_written=is_written)


def _piece(one: Any, k: int, storage: Storage | None, dtype: np.dtype[Any], peer: int, key: Any) -> Piece:
    """Return one side of a box or a table, of which the other one is at a peer."""
    assert storage is not None  # the rank has elements
    if isinstance(one, indexed.CopyTable):
        offsets = (one.at, one.to)[k]
        if isinstance(offsets, int):
            return Piece(peer, storage.view(offsets, (one.size,), (1,), dtype), None, None, one.size)
        return Piece(peer, storage.flat(dtype), offsets, (key, ("at", "to")[k]), one.size)
    digits = one.digits or ((1, 1, 1),)
    shape = [digit[0] for digit in digits]
    view = storage.view(one[2 + k], shape, [digit[1 + k] for digit in digits], dtype)
    return Piece(peer, view, None, None, one.size)


def _clash(storages: Sequence[Storage | None], sources: Sequence[Piece], targets: Sequence[Piece]) -> bool:
    """Tell whether something that is read shares memory with something that is written; tables are taken to."""
    source, target = storages
    if source is None or target is None or source.place is not target.place:
        return False
    (low, high), (other_low, other_high) = source.extent, target.extent
    if high <= other_low or other_high <= low:
        return False
    # Which elements a table names is known to it alone.
    if any(piece.offsets is not None for piece in (*sources, *targets)):
        return True
    written = [section_at(target.place, piece.view) for piece in targets]
    return any(overlaps(section_at(source.place, piece.view), section) for piece in sources for section in written)


class MessageExchange(Operation):
    """The call of a typed copy."""

    __slots__ = ("_ends", "_kept")

    def __init__(self, comm: Any, ends: tuple[End, End], kept: Kept) -> None:
        super().__init__(comm.Ialltoallw, (), {})
        self._ends = ends  # the sending and the receiving one
        self._kept = kept  # pieces that the rank keeps: out of its array, and into it

    def transfer(self, gate: Gate) -> BufferCopies:
        """Return the copies that pack and unpack."""
        return Packing(self._ends, self._kept, gate)

    def call(self, matched: Callable[[], None], arrays: Any) -> Any:
        """Make the call; ``arrays`` has the memory in which each end is packed."""
        send, receive = self._ends
        assert self.comm is not None
        return self.comm.Ialltoallw(send.arguments(arrays.get(send)), receive.arguments(arrays.get(receive)))


class Packing(BufferCopies):
    """The copies of one call before and after its message."""

    __slots__ = ("_ends", "_kept", "_place")

    def __init__(self, ends: tuple[End, End], kept: Kept, gate: Gate) -> None:
        self._ends = ends  # the sending and the receiving one
        self._kept = kept  # pieces that need no message
        self._place = ends[0].place or ends[1].place
        super().__init__(BufferStaging(self._place, ()), gate)
        self.arrays: dict[Any, Any]  # by the end, the memory in which it is packed

    def bring(self, told: Told) -> None:
        """Pack the elements to send, copy those to keep, and then call ``told``, with the error if there is one."""
        self.arrays = {end: self._memory(end) for end in self._ends if end.is_packed}
        self._carry_out(self._ends[0], told, self._kept, is_pack=True)

    def bring_back(self, _came: Any, told: Told) -> None:
        """Unpack the elements received."""
        self._carry_out(self._ends[1], told, (), is_pack=False)

    def _memory(self, end: End) -> Any:
        if end.place is None:
            return np.empty(end.nbytes, np.uint8)
        if self._staging.is_aware:
            return end.place.device.alloc((end.nbytes,), np.dtype(np.uint8), None)
        return empty_pinned((end.nbytes,), np.uint8)

    def _carry_out(self, end: End, told: Told, kept: Sequence[tuple[Piece, Piece]], *, is_pack: bool) -> None:
        parts = end.parts(self.arrays[end]) if end.is_packed else ()
        if end.place is None:
            for piece, part in parts:
                pack_on_host(piece, part, is_pack=is_pack)
        if self._place is None:
            for out, into in kept:
                copyto(into.view, out.view)
            told(None)
            return
        place = self._place
        steps: list[Any] = [partial(place.copy, into.view, out.view) for out, into in kept]
        if end.place is not None:
            for piece, part in parts:
                refuse_retired(place.device, piece.view)
                steps.append(partial(pack_on_device, place, piece, part, is_pack))
        self.enqueue(steps, told)
