"""Who has what of a field that is cut among ranks, and what is exchanged: numbers alone, for `fft3d_mpi`."""

import itertools
import math
from typing import NamedTuple

import numpy as np
from fft3d import cuts
from mpi4py import MPI

Z, Y, X = 0, 1, 2


def bounds(length, count):
    """Return where ``count`` parts of an axis begin and end, as even as it goes, the longer ones first."""
    each, n_longer = divmod(length, count)
    return [rank * each + min(rank, n_longer) for rank in range(count + 1)]


def runs(ends, without=None):
    """Group the ranks whose parts have one length, but for one rank: first and last + 1 of each group."""
    groups = []
    for rank, length in enumerate(np.diff(ends)):
        if rank != without:
            if groups and groups[-1][1] == rank and ends[rank] - ends[rank - 1] == length:
                groups[-1][1] = rank + 1
            else:
                groups.append([rank, rank + 1])
    return groups


class Exchange:
    """Axis ``a``, which is cut among ranks, becomes whole, and ``b`` is cut; in pieces ``along`` one of the three axes.

    In pieces along ``a`` blocks land where they belong: in the target elements are farthest apart along ``a``, so each
    block is in one place. Backwards, in pieces along ``b``, they depart from where they are in the source. In pieces
    along the third axis they go from one block to another.
    """

    def __init__(self, comm, a, b, along, shape, n_pieces):
        self.comm, self.a, self.b, self.along, self.n_pieces = comm, a, b, along, n_pieces
        self.ends = [bounds(length, comm.size if axis in {a, b} else 1) for axis, length in enumerate(shape)]
        self.lands, self.departs = along == a, along == b
        self.outermost = b if self.departs else a  # in a block
        self.rank = [comm.rank if axis in {a, b} else 0 for axis in range(3)]

    def spans(self, number):
        """Return for each axis where a piece begins and ends, for each rank."""
        spans = [(np.array(ends[:-1]), np.array(ends[1:])) for ends in self.ends]
        low, high = spans[self.along]
        spans[self.along] = tuple(low + (high - low) * k // self.n_pieces for k in (number, number + 1))
        return spans

    def boxes(self, number):
        """Return what of a piece is mine, by indices of the whole, and by indices of my part of each axis."""
        whole, part = [], []
        for (low, high), ends, rank in zip(self.spans(number), self.ends, self.rank, strict=True):
            whole.append(slice(int(low[rank]), int(high[rank])))
            part.append(slice(int(low[rank]) - ends[rank], int(high[rank]) - ends[rank]))
        return whole, part

    def blocks(self, number):
        """Return how many elements go to each rank, and where they begin; and the same of what comes."""
        spans, rank = self.spans(number), self.comm.rank
        a, b, (between,) = (spans[axis][1] - spans[axis][0] for axis in (self.a, self.b, 3 - self.a - self.b))
        sent, received = a[rank] * b * between, a * b[rank] * between
        begin_out = spans[self.b][0] * a[rank] * between if self.departs else np.cumsum(sent) - sent
        begin_in = spans[self.a][0] * b[rank] * between if self.lands else np.cumsum(received) - received
        return (sent, begin_out), (received, begin_in)

    def largest(self):
        """Return the shapes of my largest piece before the exchange and after."""
        before, after = [], []
        for axis, (ends, rank) in enumerate(zip(self.ends, self.rank, strict=True)):
            mine = ends[rank + 1] - ends[rank]
            mine = -(-mine // self.n_pieces) if axis == self.along else mine
            before.append(ends[-1] if axis == self.b else mine)
            after.append(ends[-1] if axis == self.a else mine)
        return tuple(before), tuple(after)


class Step(NamedTuple):
    """A pass: the axes that are transformed, the exchange if there is one, and the axes that are transformed then."""

    first: tuple
    way: Exchange | None = None
    then: tuple = ()


def steps(is_slab, in_pencils, inverse):
    """Return the passes; of an exchange the axes a and b, and the one along which the pieces are."""
    if in_pencils:
        found = [Step((X,)) if is_slab else Step((X,), (Y, X, Y)), Step((Y,), (Z, Y, X), (Z,))]
    else:
        found = [Step((Y, X), (Z, Y, Z))] if is_slab else [Step((X,), (Y, X, Y)), Step((Y,), (Z, Y, Z))]
        found.append(Step((Z,)))
    if inverse:
        found = [
            Step(then, (way[1], way[0], way[2]), first) if way else Step(first) for first, way, then in found[::-1]
        ]
    return found


class Plan:
    """The passes of a transform, and what memory they take.

    Attributes
    ----------
    steps : list of Step
    shapes : list
        Of my part before the first pass, and after each.
    mine, result : tuple of slice
        My part of the field (of the transform, if ``inverse``), and of what it becomes.
    n_local, n_buffer, n_sent, n_received : int
        Elements of an array of the host, of a device buffer, and of blocks to send and to receive.
    n_exchanged : int
        Elements that I send to others.
    """

    def __init__(self, shape, column, row=MPI.COMM_SELF, *, pieces=8, in_pencils=False, inverse=False):
        self.shape, self.n_pieces, self.inverse = tuple(shape), pieces, inverse
        self.steps = []
        cut = {Y: column, X: row} if inverse else {Z: column, Y: row}  # the communicator over which an axis is cut
        parts = [self._part(cut)]
        for first, way, then in steps(row.size == 1, in_pencils, inverse):
            exchange = None
            if way:
                a, b, along = way
                cut[b] = comm = cut.pop(a)
                lengths = [n if axis in {a, b} else length(parts[-1][axis]) for axis, n in enumerate(shape)]
                exchange = Exchange(comm, a, b, along, lengths, pieces)
            self.steps.append(Step(first, exchange, then))
            parts.append(self._part(cut))
        self.mine, self.result = parts[0], parts[-1]
        self.shapes = [tuple(map(length, part)) for part in parts]
        self._add_up()

    def _part(self, cut):
        found = []
        for axis, n in enumerate(self.shape):
            comm = cut.get(axis, MPI.COMM_SELF)
            found.append(slice(*bounds(n, comm.size)[comm.rank : comm.rank + 2]))
        return tuple(found)

    def _add_up(self):
        messages = [(way.comm.rank, *way.blocks(number)) for way in self.exchanges for number in range(self.n_pieces)]
        self.n_local = max(map(math.prod, self.shapes))
        self.n_buffer = max(
            math.prod(shape) for index in range(len(self.steps)) for shape in self.visits(index) if shape
        )
        self.n_sent = max([int(sent.sum()) for _, (sent, _), _ in messages])
        self.n_received = max([int(received.sum()) for _, _, (received, _) in messages])
        self.n_exchanged = sum(int(sent.sum() - sent[rank]) for rank, (sent, _), _ in messages)
        self.n_rings = max(bool(step.first) + bool(step.then) for step in self.steps)

    @property
    def exchanges(self):
        return [step.way for step in self.steps if step.way]

    def pieces_of(self, index):
        """Return how many pieces a pass has."""
        way = self.steps[index].way
        return way.n_pieces if way else len(self.boxes(index))

    def boxes(self, index):
        """Return the pieces of a pass without an exchange."""
        box, count = [[slice(None)]] * 3, self.n_pieces
        for axis in {Z, Y, X} - set(self.steps[index].first):
            n = self.shapes[index][axis]
            box[axis] = cuts(n, min(n, count))
            count = -(-count // len(box[axis]))
        return list(itertools.product(*box))

    def visits(self, index):
        """Return the shapes of the largest pieces that go to the device, before the exchange of a pass and after."""
        first, way, then = self.steps[index]
        if way:
            before, after = way.largest()
            return before if first else None, after if then else None
        field = np.broadcast_to(0, self.shapes[index])
        return tuple(map(max, zip(*(field[box].shape for box in self.boxes(index)), strict=True))), None


def length(part):
    return part.stop - part.start


def communicators(comm, grid=None):
    """Return who shares a column and who a row with me: of P ranks by one (slabs), or of a grid (pencils)."""
    n_rows, n_columns = grid or (comm.size, 1)
    if n_rows * n_columns != comm.size:
        raise ValueError(f"a grid of {n_rows} x {n_columns} is not {comm.size} ranks")
    return comm.Split(comm.rank % n_columns, comm.rank), comm.Split(comm.rank // n_columns, comm.rank)
