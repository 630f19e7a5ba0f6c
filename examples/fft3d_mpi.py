"""The 3-D Fourier transform of a field that is cut among ranks: pieces are exchanged while others are transformed.

Each rank has a part of the field in host memory, as much as there is, and a device that need not hold it. An axis can
be transformed where it is whole, and no rank has all three of them. So one routine is all there is, used once or twice:
*transform along the axes that are whole, exchange axis a for axis b, transform along a*. In CUDA and MPI, for planes:

    for (int i = 0; i < n_pieces; i++) {
        int b = i % B;
        MPI_Wait(&exchanged[b], MPI_STATUS_IGNORE);         // the send block is free: and who makes MPI move meanwhile?
        cudaMemcpy3DAsync(&piece_in[i], in[b]);
        cufftExecC2C(plan[b], buffer[b], buffer[b], CUFFT_FORWARD);
        for (int j = 0; j < n_runs; j++)                    // ranks whose blocks have one size, in one copy
            cudaMemcpy3DAsync(&blocks_out[i][j], out[b]);
        cudaStreamSynchronize(out[b]);                      // the host waits, whatever else there is to do
        MPI_Ialltoallv(block[b], n_out[i], start_out[i], type, slab, n_in[i], start_in[i], type, comm, &exchanged[b]);
    }

Below an exchange is a task like any other: it reads its send block, it is complete with its request, and what reads the
block that has arrived comes after it. Nobody waits in between.

**Parts.** ``column`` cuts z of the field, and y of its transform; ``row``, where there is one, cuts y, and then x:
``[z][y][nx]``, ``[z][ny][x]``, ``[nz][y][x]``, as evenly as it goes. One communicator makes slabs, two make pencils.

**Pieces.** ``planes``: groups along the axis that is cut and shall be whole. They land where they belong, so that the
next pass is over whatever is there. ``pencils``: groups along the axis that neither is: a piece that has arrived can be
transformed at once, so that an exchange is hidden behind two transforms; but x takes a pass of its own.
The inverse is all of it backwards.

Run it: ``mpiexec -n 4 python examples/fft3d_mpi.py``, with ``--grid 2,2`` for pencils, or on a field of your own
``mpiexec -n 4 offload demo fft3d --mpi --input FIELD.npy``.
"""

import argparse
import itertools
import math
from functools import partial
from typing import NamedTuple

import numpy as np
from fft3d import library as library_of_the_device
from fft3d import library_call
from fft3d import pipeline as plain
from fft3d_parts import Exchange, Plan, X, Y, Z, communicators, length, runs
from mpi4py import MPI

import offload as omp
from offload import in_, inout, mpi, out


def pipeline(crossing, *, bulk=False):
    """Take each piece through; ``bulk``: no exchange before all pieces are there, then one after the other."""
    for phase in ([leave], [exchange], [arrive]) if bulk else ([leave, exchange, arrive],):
        for number in range(crossing.way.n_pieces):
            piece = crossing.piece(number, number if bulk else number % crossing.in_flight)
            for step in phase:
                step(piece, bulk)
        omp.taskwait()


def leave(piece, _):
    """Transform what is here of a piece, and copy it to where it is sent from, or stays."""
    if piece.first and piece.source.size:
        buffer = transformed(piece, piece.first, piece.source.shape, [(piece.source, every)])
        for block, part, item in piece.leaving:
            omp.target_memcpy_rect_async(block, part(buffer), depend=[in_(piece.first.buffer), out(item)])


def exchange(piece, bulk):
    if bulk:
        piece.comm.Alltoallv(piece.sent, piece.received)
    else:
        depend = [in_(piece.sent[0]), out(piece.tag)]
        mpi.ialltoallv(piece.sent, piece.received, comm=piece.comm, depend=depend, name=f"exchange {piece.number}")


def arrive(piece, _):
    """Transform what has come of a piece, if that is to be done at once."""
    if piece.then and piece.target.size:
        buffer = transformed(piece, piece.then, piece.target.shape, piece.arriving, in_(piece.tag))
        omp.target_memcpy_rect_async(piece.target, buffer, depend=[in_(piece.then.buffer)])


def transformed(piece, place, shape, blocks, *depend):
    """Generate the copies into a device buffer and the transform there; return the part of the buffer."""
    buffer, done = place.buffer[tuple(map(slice, shape))], omp.Event()
    for block, part in blocks:
        omp.target_memcpy_rect_async(part(buffer), block, depend=[out(place.buffer), *depend])
    call = library_call.options(depend=[inout(place.buffer)], detach=done, name=f"fft {piece.number}")
    call(place.transform, buffer, done)
    return buffer


def every(buffer):
    return buffer


def fft3d(job, *, bulk=False):
    """Transform what `Job.source` has, together with the other ranks, and return the array of the result."""
    for one in job.passes:
        if isinstance(one, Crossing):
            pipeline(one, bulk=bulk)
        else:
            plain(one.source, one.boxes, one.buffers, one.transforms, into=one.target)
            omp.taskwait()
    return job.result


# -- the memory of it ----------------------------------------------------------------------------------


class Place(NamedTuple):
    """A device buffer, and the library's plan for it."""

    buffer: object
    transform: object


class Piece(NamedTuple):
    """What the steps of the pipeline are about; blocks come with what takes their part of a device buffer."""

    number: int
    comm: MPI.Comm
    source: np.ndarray
    first: Place | None
    leaving: list
    sent: list
    received: list
    tag: object
    arriving: list
    then: Place | None
    target: np.ndarray


class Plain(NamedTuple):
    """A pass without an exchange."""

    source: np.ndarray
    target: np.ndarray
    boxes: list
    buffers: list
    transforms: list


class Crossing(NamedTuple):
    """A pass with an exchange: where from, where to, and what blocks and buffers there are in turn."""

    way: Exchange
    in_flight: int
    flats: tuple
    source: np.ndarray
    target: np.ndarray
    sends: list
    receives: list
    first: list
    then: list

    def piece(self, number, slot):
        way, rank = self.way, self.way.comm.rank
        (sent, begin_out), (received, begin_in) = way.blocks(number)
        send = self.flats[0] if way.departs else self.sends[slot]
        receive = self.flats[1] if way.lands else self.receives[slot]
        tag = ("piece", number) if way.lands else receive

        mine, part = way.boxes(number)
        before, after = list(part), list(part)
        before[way.b] = after[way.a] = slice(None)
        stays, stayed = list(before), list(after)  # my own block in the source, and in the target: it is copied
        stays[way.b], stayed[way.a] = mine[way.b], mine[way.a]
        shape = [length(span) for span in mine]
        blocks_out = Blocks(send, begin_out, shape, way.b, way.ends[way.b], way.outermost)
        blocks_in = Blocks(receive, begin_in, shape, way.a, way.ends[way.a], way.outermost)
        leaving, arriving = [], []
        if self.first:
            leaving += [(*blocks_out[run], send) for run in runs(way.ends[way.b], rank)]
            own = self.target[tuple(stayed)] if way.lands else blocks_in[rank, rank + 1][0].squeeze(way.a)
            leaving.append((own, partial(box_of, axis=way.b, span=mine[way.b]), tag))
        if self.then:
            arriving += [blocks_in[run] for run in runs(way.ends[way.a], rank if way.departs else None)]
        if way.departs:
            arriving.append((self.source[tuple(stays)], partial(box_of, axis=way.a, span=mine[way.a])))

        sent[rank] = received[rank] = 0
        return Piece(
            number,
            way.comm,
            self.source[tuple(before)],
            self.first and self.first[number % self.in_flight],
            leaving,
            [send, (sent, begin_out)],
            [receive, (received, begin_in)],
            tag,
            arriving,
            self.then and self.then[number % self.in_flight],
            self.target[tuple(after)],
        )


class Blocks(NamedTuple):
    """The blocks of a piece in memory: those of ranks in a row, as one array, and what takes their part of a buffer."""

    flat: np.ndarray
    begin: np.ndarray
    shape: list
    axis: int
    ends: list
    outermost: int

    def __getitem__(self, run):
        first, last = run
        shape = list(self.shape)
        shape[self.axis] = self.ends[first + 1] - self.ends[first]
        order = [self.outermost, *({Z, Y, X} - {self.outermost})]
        flat = self.flat[self.begin[first] :][: (last - first) * math.prod(shape)]
        blocks = flat.reshape([last - first, *(shape[axis] for axis in order)])
        blocks = blocks.transpose([0, *(1 + order.index(axis) for axis in (Z, Y, X))])
        span = slice(self.ends[first], self.ends[last])
        return np.moveaxis(blocks, 0, self.axis), partial(box_of, axis=self.axis, span=span, count=last - first)


def box_of(buffer, axis, span, count=None):
    """Return what of a device buffer is in a span of an axis; with that cut into ``count``, if given."""
    box = buffer[(slice(None),) * axis + (span,)]
    return box if count is None else box.reshape((*box.shape[:axis], count, -1, *box.shape[axis + 1 :]))


def laid_out(flat, shape, outermost):
    """Return memory as an array with the axes z, y, x, whose elements are farthest apart along one of them."""
    order = [outermost, *({Z, Y, X} - {outermost})]
    array = flat[: math.prod(shape)].reshape([shape[axis] for axis in order])
    return array.transpose([order.index(axis) for axis in (Z, Y, X)])


class Job:
    """A plan with its memory: ``source`` is to be filled before each run. With ``bulk`` there is enough for that form.

    ``library(buffer, axes, inverse=…)`` makes what transforms a device buffer; the exchanges are calls of methods
    of the plan's communicators, ``Ialltoallv`` and ``Alltoallv``.
    """

    def __init__(self, plan, dtype, *, in_flight=3, bulk=False, library=None):
        self.plan, self.in_flight = plan, in_flight
        self.library = library or library_of_the_device()
        n_blocks = max(in_flight, plan.n_pieces) if bulk else in_flight
        self.flats = [omp.empty_pinned(plan.n_local, dtype) for _ in range(2)]
        self.sends = [omp.empty_pinned(max(1, plan.n_sent), dtype) for _ in range(n_blocks)]
        self.receives = [omp.empty_pinned(max(1, plan.n_received), dtype) for _ in range(n_blocks)]
        self.buffers, self.passes, self.rings = [], [], []
        try:
            for _ in range(in_flight * plan.n_rings):
                self.buffers.append(omp.target_alloc(plan.n_buffer, dtype))
            self.passes += [self._pass(index) for index in range(len(plan.steps))]
        except BaseException:
            self.free()
            raise
        self.source, self.result = self._array(0), self._array(len(self.passes))

    def free(self):
        self.passes.clear()
        self.rings.clear()
        while self.buffers:
            omp.target_free(self.buffers.pop())

    def _array(self, index):
        """Return what there is before a pass; blocks that land or depart determine how it lies in memory."""
        ways = [None, *(step.way for step in self.plan.steps), None]
        came, goes = ways[index : index + 2]
        outermost = came.along if came and came.lands else goes.along if goes and goes.departs else Z
        return laid_out(self.flats[index % 2], self.plan.shapes[index], outermost)

    def _pass(self, index):
        (first, way, then), (before, after) = self.plan.steps[index], self.plan.visits(index)
        source, target = self._array(index), self._array(index + 1)
        one, other = self.buffers[: self.in_flight], self.buffers[-self.in_flight :]
        places = self._places(one, before, first), self._places(other, after, then)
        if way:
            flats = self.flats[index % 2], self.flats[1 - index % 2]
            return Crossing(way, self.in_flight, flats, source, target, self.sends, self.receives, *places)
        return Plain(source, target, self.plan.boxes(index), *map(list, zip(*places[0], strict=True)))

    def _places(self, buffers, shape, axes):
        outermost = Z if X in axes else axes[0] if axes else None  # what the library takes: lines next to each other
        shaped = [laid_out(flat, shape, outermost) for flat in buffers if axes]
        self.rings.append([Place(buffer, self.library(buffer, axes, inverse=self.plan.inverse)) for buffer in shaped])
        return self.rings[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", metavar="R,C", help="pencils on a grid of ranks (default: slabs)")
    given = parser.parse_args()
    comm, shape = MPI.COMM_WORLD, (60, 64, 72)
    column, row = communicators(comm, given.grid and tuple(map(int, given.grid.split(","))))

    rng = np.random.default_rng(1)
    field = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    for inverse, in_pencils in itertools.product((False, True), (False, True)):
        expected = np.fft.ifftn(field) if inverse else np.fft.fftn(field)
        plan = Plan(shape, column, row, pieces=5, in_pencils=in_pencils, inverse=inverse)
        job = Job(plan, field.dtype)
        job.source[...] = field[plan.mine]
        result = fft3d(job)
        error = comm.allreduce(abs(result - expected[plan.result]).max(), MPI.MAX) / abs(expected).max()
        job.free()
        assert error < 1e-12
        if comm.rank == 0:
            way, kind = "backwards" if inverse else "forwards", "pencils" if in_pencils else "planes"
            print(f"{column.size} x {row.size} ranks, {kind}, {way}: largest relative error {error:.1e}")


if __name__ == "__main__":
    main()
