"""Views with random strides in calls of MPI: each call does what it does with contiguous copies of them.

All ranks draw the same calls from a seed, and each draws the strides of its own views. A rank knows what every other
one sends. It compares all of its memory, also the elements around its views and between their elements.
"""

from __future__ import annotations

import math
import os
import random

import numpy as np
from mpi4py import MPI

import offload as omp
from offload import mpi

N_CALLS = int(os.environ.get("OFFLOAD_TESTS_VIEWS", "100"))
FIRST = int(os.environ.get("OFFLOAD_TESTS_FIRST", "0"))
TYPES = {"f8": MPI.DOUBLE, "i4": MPI.INT, "u1": MPI.UNSIGNED_CHAR, "c8": MPI.C_FLOAT_COMPLEX}


def cut(n, step, low, *, is_backward):
    """Return the slice of ``n`` elements, the lowest of which is ``low``."""
    if n == 0:
        return slice(0, 0)
    last = low + (n - 1) * step
    return slice(last, low - 1 if low else None, -step) if is_backward else slice(low, last + 1, step)


class Place:
    """A view with random strides, and the memory that it is a part of."""

    def __init__(self, rng, shape, dtype):
        whole, cuts = [], []
        for n in shape:
            step, low, high = rng.choice([1, 1, 2, 3]), rng.choice([0, 0, 1]), rng.choice([0, 0, 2])
            whole.append(low + max(n - 1, 0) * step + 1 + high)
            cuts.append(cut(n, step, low, is_backward=rng.random() < 0.3))
        axes = rng.sample(range(len(shape)), len(shape))
        self._axes, self._cuts = np.argsort(axes), tuple(cuts)
        self.memory = (np.arange(math.prod(whole)) % 50 + 200).astype(dtype).reshape([whole[axis] for axis in axes])
        self.before = self.memory.copy()
        self.view = self.of(self.memory)

    def of(self, memory):
        return memory.transpose(self._axes)[self._cuts]

    def check(self, expected, what):
        """Compare the memory with what it was before, in whose part the first elements are the ``expected`` ones."""
        part = self.of(self.before)
        elements = part.flatten()
        elements[: expected.size] = expected.reshape(-1)
        part[...] = elements.reshape(part.shape)
        assert np.array_equal(self.memory, self.before), (what, self.view.shape, self.view.strides)


class Call:
    """One call on all ranks: what each sends, and the buffers of this one."""

    def __init__(self, comm, seed):
        self.comm, self.tag, self.rng, self.mine = (
            comm,
            seed,
            random.Random(seed),
            random.Random(seed * 7 + comm.rank + 1),
        )
        rng, size = self.rng, comm.size
        self.dtype = rng.choice(list(TYPES))
        self.type = TYPES[self.dtype]
        self.shape = [rng.choice([1, 2, 2, 3, 5]) for _ in range(rng.choice([1, 2, 2, 3]))]
        if rng.random() < 0.05:
            self.shape[0] = 0
        self.root = rng.randrange(size)
        self.shift = rng.randrange(size)
        self.left, self.right = (comm.rank - self.shift) % size, (comm.rank + self.shift) % size
        self.values = [self.sent_by(rank) for rank in range(size)]

    def sent_by(self, rank, *, n_blocks=1):
        count = math.prod(self.shape) * n_blocks
        return ((np.arange(count) * (rank + 3) + rank) % 31).astype(self.dtype)

    def place(self, shape, values=None):
        place = Place(self.mine, shape, self.dtype)
        if values is not None:
            place.view[...] = values.reshape(place.view.shape)
            place.before = place.memory.copy()
        return place

    def mine_to_send(self):
        return self.place(self.shape, self.values[self.comm.rank])

    def blocks(self):
        """Return what every rank sends to every rank."""
        return [
            self.sent_by(rank, n_blocks=self.comm.size).reshape(self.comm.size, -1) for rank in range(self.comm.size)
        ]

    # -- each returns the place that is written, and its first elements --------------------------------
    def message(self):
        sent, received = self.mine_to_send(), self.place(self.shape)
        source = self.rng.choice([self.left, MPI.ANY_SOURCE])
        receive = mpi.irecv(received.view, source, self.tag, comm=self.comm)
        self.rng.choice([mpi.isend, mpi.issend])(sent.view, self.right, self.tag, comm=self.comm)
        assert receive.result().Get_count(self.type) == sent.view.size
        return received, self.values[self.left]

    def longer(self):
        """Receive less than there is room for."""
        received = self.place([self.shape[0] + 2, *self.shape[1:]])
        mpi.irecv(received.view, self.left, self.tag, comm=self.comm)
        mpi.isend(self.mine_to_send().view, self.right, self.tag, comm=self.comm)
        return received, self.values[self.left]

    def counted(self):
        """Send and receive a part of a buffer, by counts and datatypes."""
        n = self.values[0].size // 2
        sent, received = self.mine_to_send(), self.place(self.shape)
        mpi.irecv([received.view, n, self.type], self.left, self.tag, comm=self.comm)
        mpi.isend([sent.view, n, self.type], self.right, self.tag, comm=self.comm)
        return received, self.values[self.left][:n]

    def of_nobody(self):
        received = self.place(self.shape)
        mpi.irecv(received.view, MPI.PROC_NULL, self.tag, comm=self.comm)
        mpi.isend(received.view, MPI.PROC_NULL, self.tag, comm=self.comm)
        return received, np.zeros(0)

    def replace(self):
        place = self.mine_to_send()
        mpi.call(self.comm.Isendrecv_replace, place.view, self.right, self.tag, self.left, self.tag)
        return place, self.values[self.left]

    def from_device(self):
        """Send device memory to a view of the host."""
        on_device, received = omp.target_alloc(self.shape, self.dtype), self.place(self.shape)
        values = self.values[self.comm.rank].reshape(self.shape)
        omp.target_memcpy(on_device, values)
        mpi.ialltoallw(
            [on_device, self.only(self.right, values.size), [self.type] * self.comm.size],
            [received.view, self.only(self.left, values.size), [self.type] * self.comm.size],
            comm=self.comm,
        )
        omp.taskwait()
        omp.target_free(on_device)
        return received, self.values[self.left]

    def only(self, rank, count):
        return [count * (rank == other) for other in range(self.comm.size)], [0] * self.comm.size

    def broadcast(self):
        is_root = self.comm.rank == self.root
        place = self.mine_to_send() if is_root else self.place(self.shape)
        if is_root:
            place.view.flags.writeable = False
        mpi.ibcast(place.view, self.root, comm=self.comm)
        return place, self.values[self.root]

    def all_reduce(self):
        total = sum(self.values)
        if self.rng.random() < 0.5:
            place = self.mine_to_send()
            mpi.iallreduce(self.rng.choice([MPI.IN_PLACE, None]), place.view, comm=self.comm)
            return place, total
        received = self.place(self.shape)
        mpi.iallreduce(self.mine_to_send().view, received.view, comm=self.comm)
        return received, total

    def scan(self):
        received = self.place(self.shape)
        mpi.call(self.comm.Iscan, self.mine_to_send().view, received.view)
        return received, sum(self.values[: self.comm.rank + 1])

    def reduce(self):
        received = self.place(self.shape)
        mpi.ireduce(self.mine_to_send().view, received.view, MPI.SUM, self.root, comm=self.comm)
        return received, sum(self.values) if self.comm.rank == self.root else np.zeros(0)

    def reduce_scatter(self):
        blocks, received = self.blocks(), self.place(self.shape)
        sent = self.place([self.comm.size, *self.shape], blocks[self.comm.rank])
        if self.rng.random() < 0.5:
            mpi.ireduce_scatter_block(sent.view, received.view, comm=self.comm)
        else:
            counts = [self.values[0].size] * self.comm.size
            mpi.ireduce_scatter(sent.view, received.view, counts, comm=self.comm)
        return received, sum(block[self.comm.rank] for block in blocks)

    def gather(self):
        received = self.place([*self.shape, self.comm.size])  # no axis of the blocks
        mpi.igather(self.mine_to_send().view, received.view, self.root, comm=self.comm)
        return received, np.concatenate(self.values) if self.comm.rank == self.root else np.zeros(0)

    def gather_counts(self):
        """Gather blocks with gaps between, of which the elements are kept."""
        n, size = self.values[0].size, self.comm.size
        received = self.place([size, n + 1])
        spec = [received.view, ([n] * size, [(n + 1) * rank for rank in range(size)]), self.type]
        mpi.igatherv(self.mine_to_send().view, spec, self.root, comm=self.comm)
        expected = received.of(received.before).copy()
        if self.comm.rank == self.root:
            expected[:, :n] = self.values
        return received, expected

    def scatter(self):
        blocks = self.blocks()[self.root]
        sent = self.place([self.comm.size, *self.shape], blocks)
        received = self.place(self.shape)
        if self.rng.random() < 0.5:
            mpi.iscatter(sent.view, received.view, self.root, comm=self.comm)
        else:
            counts = [self.values[0].size] * self.comm.size
            mpi.iscatterv([sent.view, counts, self.type], received.view, self.root, comm=self.comm)
        return received, blocks[self.comm.rank]

    def all_gather(self):
        received = self.place([self.comm.size, *self.shape])
        if self.rng.random() < 0.5:
            mpi.iallgather(self.mine_to_send().view, received.view, comm=self.comm)
        else:
            counts = [self.values[0].size] * self.comm.size
            mpi.iallgatherv(self.mine_to_send().view, [received.view, counts, self.type], comm=self.comm)
        return received, np.concatenate(self.values)

    def all_to_all(self):
        blocks, received = self.blocks(), self.place([self.comm.size, *self.shape])
        sent = self.place([self.comm.size, *self.shape], blocks[self.comm.rank])
        mpi.ialltoall(sent.view, received.view, comm=self.comm)
        return received, np.concatenate([block[self.comm.rank] for block in blocks])

    def all_to_all_counts(self):
        """Exchange blocks with gaps between, by counts of elements and bytes from the first one."""
        n, size, blocks = self.values[0].size, self.comm.size, self.blocks()
        received = self.place([size, n + 1])
        sent = self.place([size, *self.shape], blocks[self.comm.rank])
        counts, at, to = [n] * size, [n * rank for rank in range(size)], [(n + 1) * rank for rank in range(size)]
        if self.rng.random() < 0.5:
            mpi.ialltoallv(
                [sent.view, (counts, at), self.type], [received.view, (counts, to), self.type], comm=self.comm
            )
        else:
            types, width = [self.type] * size, np.dtype(self.dtype).itemsize
            at, to = ([width * each for each in places] for places in (at, to))
            mpi.ialltoallw([sent.view, (counts, at), types], [received.view, (counts, to), types], comm=self.comm)
        expected = received.of(received.before).copy()
        expected[:, :n] = [block[self.comm.rank] for block in blocks]
        return received, expected


KINDS = [
    "message",
    "longer",
    "counted",
    "of_nobody",
    "replace",
    "from_device",
    "broadcast",
    "all_reduce",
    "scan",
    "reduce",
]
KINDS += ["reduce_scatter", "gather", "gather_counts", "scatter", "all_gather", "all_to_all", "all_to_all_counts"]


def test_views(comm):
    """Each call writes the elements of its view, in C's order, and nothing else."""
    kinds = [kind for kind in KINDS if kind != "replace" or MPI.Get_version() >= (4, 0)]
    with omp.Runtime("sim:1", num_threads=2, check=True):
        for seed in range(FIRST, FIRST + N_CALLS):
            call = Call(comm, seed)
            kind = call.rng.choice(kinds)
            place, expected = getattr(call, kind)()
            omp.taskwait()
            place.check(expected, (seed, kind, comm.rank))
