"""Messages between two ranks: pieces of an array, sent as a datatype or packed.

Both ends of a message have the elements in the order of the plan's loops, as bytes, so that each end chooses for
itself. A datatype is loops of hvectors over runs of bytes: MPI reads and writes the array where it is. Short runs are
packed by our copies, which are faster, nearly always at the sender. Our copies also pack pieces without such loops, and
device memory, in which MPI libraries copy each run separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from offload.arrays.hostcopies import copyto
from offload.arrays.items import address_of
from offload.arrays.sections import c_strides
from offload.parray.indexed import device_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.devices.streams import Lane
    from offload.parray.storage import Storage
    from offload.runtime.place import DevicePlace

# Bytes that lie together from which a datatype is as fast as packing (``benchmarks/run.py parray_mpi``, MPICH).
LEAST_SENT_NBYTES, LEAST_RECEIVED_NBYTES = 1 << 16, 256


class Piece(NamedTuple):
    """The elements between this rank and another one, in the plan's order."""

    peer: int  # the other rank
    view: Any  # the elements, or, with ``offsets``, the flat array that contains them
    offsets: Any  # their places in ``view``, int64
    key: Any  # devices keep the offsets by it
    size: int  # number of elements


class Datatype:
    """A committed datatype of MPI for views of the host, at bytes from a first one; it is freed with this object."""

    __slots__ = ("handle",)

    def __init__(self, views: Sequence[tuple[int, Any]]) -> None:
        made = [_vector(view) for _, view in views]
        self.handle = MPI.Datatype.Create_struct([1] * len(made), [at for at, _ in views], made).Commit()  # of mpi4py
        for one in made:
            one.Free()

    def __del__(self) -> None:
        if not MPI.Is_finalized():
            self.handle.Free()


def _vector(view: Any) -> MPI.Datatype:
    """Return the datatype of a view, from its first element on."""
    shape, strides = list(view.shape), list(view.strides)
    run = run_nbytes(view)
    while shape and (strides[-1] < run or shape[-1] == 1):
        shape.pop()
        strides.pop()
    made = MPI.BYTE.Create_contiguous(run)
    while shape:
        outer = made.Create_hvector(shape.pop(), 1, strides.pop())
        made.Free()
        made = outer
    return made


def run_nbytes(view: Any) -> int:
    """Return how many bytes of a view lie together, in its order."""
    run = view.itemsize
    for count, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if count != 1:
            if stride != run:
                break
            run *= count
    return int(run)


class End:
    """One end of a rank: the elements that leave its array, or those that come into it.

    ``storage`` is None if the rank has no element. The ``pieces`` stand in the plan's order, and elements are moved as
    ``dtype``. A datatype is used only if ``least_run`` bytes lie together; infinity means never.
    """

    __slots__ = ("_arguments", "_types", "dtype", "is_packed", "n_ranks", "pieces", "place")

    def __init__(
        self, storage: Storage | None, pieces: Sequence[Piece], dtype: np.dtype[Any], n_ranks: int, *, least_run: float
    ) -> None:
        self.place = None if storage is None else storage.place
        self.dtype = dtype
        self.n_ranks = n_ranks  # of the communicator
        self.pieces = sorted(pieces, key=lambda piece: piece.peer)  # by rank
        self._types: list[Datatype] = []  # kept as long as a call may use them
        # of Ialltoallw: buffer, counts, offsets and datatypes
        self._arguments: list[Any] = [np.empty(0, np.uint8), [0] * n_ranks, [0] * n_ranks, [MPI.BYTE] * n_ranks]
        self.is_packed = bool(pieces) and (
            self.place is not None
            or any(piece.offsets is not None or run_nbytes(piece.view) < least_run for piece in pieces)
        )
        if self.is_packed:
            self._lay_out()
        elif storage is not None and pieces:
            self._describe(storage.array)

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return sum(piece.size for piece in self.pieces) * self.dtype.itemsize

    def arguments(self, packed: Any) -> list[Any]:
        """Return the message specification of ``Ialltoallw``; the packed bytes are in ``packed``."""
        return [packed, *self._arguments[1:]] if self.is_packed else self._arguments

    def parts(self, packed: Any) -> list[tuple[Piece, Any]]:
        """Return each piece with its part of ``packed``, which is host or device memory."""
        found, at, nbytes = [], 0, self.dtype.itemsize
        for piece in self.pieces:
            if isinstance(packed, np.ndarray):
                part: Any = np.ndarray((piece.size,), self.dtype, packed, at)
            else:
                device = self.place.device  # type: ignore[union-attr]  # it is packed there
                part = device.view(packed, at, (piece.size,), (nbytes,), self.dtype)
            found.append((piece, part))
            at += piece.size * nbytes
        return found

    def _lay_out(self) -> None:
        _, counts, places, _ = self._arguments
        at = 0
        for piece in self.pieces:
            if not counts[piece.peer]:
                places[piece.peer] = at
            nbytes = piece.size * self.dtype.itemsize
            counts[piece.peer] += nbytes
            at += nbytes

    def _describe(self, array: np.ndarray[Any, Any]) -> None:
        base = address_of(array)
        _, counts, _, types = self._arguments
        for peer in dict.fromkeys(piece.peer for piece in self.pieces):
            views = [(address_of(piece.view) - base, piece.view) for piece in self.pieces if piece.peer == peer]
            made = Datatype(views)
            self._types.append(made)
            counts[peer], types[peer] = 1, made.handle
        self._arguments[0] = array.reshape(-1).view(np.uint8)


# -- packing ---------------------------------------------------------------------------------------------


def pack_on_host(piece: Piece, part: Any, *, is_pack: bool) -> None:
    """Copy a piece of the host into a flat array, or out of it."""
    if piece.offsets is not None:
        if is_pack:
            part[...] = piece.view[piece.offsets]
        else:
            piece.view[piece.offsets] = part
        return
    shaped = part.reshape(piece.view.shape)
    copyto(*((shaped, piece.view) if is_pack else (piece.view, shaped)))


def pack_on_device(place: DevicePlace, piece: Piece, part: Any, is_pack: bool, lane: Lane, staged: list[Any]) -> None:
    """Enqueue the copy of a piece of a device into a flat array of the host or the device, or out of it."""
    device = place.device
    if piece.offsets is None:
        shape = tuple(piece.view.shape)
        if isinstance(part, np.ndarray):
            shaped = part.reshape(shape)
        else:
            shaped = device.view(part, 0, shape, c_strides(shape, part.itemsize), part.dtype)
        dst, src = (shaped, piece.view) if is_pack else (piece.view, shaped)
        place.copy(dst, src, lane, staged)
        return
    table = device_table(place, piece.key, piece.offsets)
    near = device.alloc((piece.size,), part.dtype, lane.stream) if isinstance(part, np.ndarray) else part
    if is_pack:
        device.copy_indexed(near, piece.view, None, table, lane.stream)
    if near is not part:
        dst, src = (part, near) if is_pack else (near, part)
        place.copy(dst, src, lane, staged)
    if not is_pack:
        device.copy_indexed(piece.view, near, table, None, lane.stream)
