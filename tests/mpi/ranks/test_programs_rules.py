"""Programs of tasks and calls at random, on several ranks: the results are those of the same steps one after the other.

All ranks draw the same program from a seed. Each computes by itself what every rank would have after the steps, in
order, without MPI; tasks become ready in another order on each, held by events that are fulfilled at random moments.
"""

from __future__ import annotations

import os
import random
import threading

import numpy as np
import pytest
from mpi4py import MPI

import offload as omp
from offload import in_, inout, mpi, out

N_BUFFERS, N_STEPS = 4, 14
N_PROGRAMS = int(os.environ.get("OFFLOAD_TESTS_PROGRAMS", "60"))
FIRST = int(os.environ.get("OFFLOAD_TESTS_FIRST", "0"))


def draw(rng, size):
    """Return the steps of a program: what happens, between which ranks, with which buffers."""
    kinds = ["add", "add", "message", "message", "wildcard", "object", "allreduce", "bcast", "alltoall", "shift"]
    kinds += ["staged", "staged"]
    steps = []
    for number in range(N_STEPS):
        first, second = rng.sample(range(N_BUFFERS), 2)
        steps.append((number, rng.choice(kinds), rng.randrange(size), rng.randrange(size), first, second))
    return steps


def in_order(steps, size):
    """Return the buffers of every rank after the steps, done one after the other."""
    state = np.stack([start(rank, size) for rank in range(size)])
    for number, kind, source, dest, first, second in steps:
        match kind:
            case "add":
                state[:, first] += state[:, second] + number
            case "message" | "wildcard" | "object":
                state[dest, second] = state[source, first]
            case "allreduce":
                state[:, second] = state[:, first].sum(axis=0)
            case "bcast":
                state[:, first] = state[source, first]
            case "alltoall":
                state[:, second] = state[:, first].swapaxes(0, 1).copy()
            case "shift" | "staged":
                state[:, second] = np.roll(state[:, first], 1, axis=0)
        state %= 1009
    return state


def start(rank, size):
    return (np.arange(N_BUFFERS * size * 2.0).reshape(N_BUFFERS, size, 2) * (rank + 3)) % 101


class Program:
    """One rank's part of a program, in tasks."""

    def __init__(self, comm, seed, rng):
        self.comm, self.rng, self.seed = comm, rng, seed
        self.buffers = start(comm.rank, comm.size)
        self.held = []
        self.on_device = [omp.target_alloc(self.buffers[0].shape, float) for _ in range(2)]

    def task(self, body, *args, depend):
        """Generate a task, some of which begin late."""
        if self.rng.random() < 0.2:
            event, token = omp.Event(), object()
            omp.task(detach=event, depend=[out(token)])(int)()
            self.held.append(event)
            depend = [*depend, in_(token)]
        return omp.task(depend=depend)(body)(*args)

    def reduce(self, *buffers):
        for buffer in buffers:
            self.task(np.mod, buffer, 1009, buffer, depend=[inout(buffer)])

    def step(self, number, kind, source, dest, first, second):
        comm, buffers, rank = self.comm, self.buffers, self.comm.rank
        a, b = buffers[first], buffers[second]
        match kind:
            case "add":
                self.task(lambda: np.add(a, b + number, a), depend=[inout(a), in_(b)])
            case "message" | "wildcard":
                # On one rank MPICH 5.0 gives a receive of any tag what a collective operation sends to itself.
                tag = MPI.ANY_TAG if kind == "wildcard" and comm.size > 1 else 7
                if rank == dest:
                    mpi.irecv(b, MPI.ANY_SOURCE if kind == "wildcard" and comm.size == 1 else source, tag, comm=comm)
                if rank == source:
                    mpi.isend(a, dest, 7, comm=comm)
            case "object":
                if rank == source:
                    mpi.send_object(a, dest, 7, comm=comm)
                if rank == dest:
                    received = mpi.recv_object(source, 7, comm=comm, depend=[out(b)])
                    self.task(lambda value: np.copyto(b, value), received, depend=[out(b)])
            case "allreduce":
                mpi.iallreduce(a, b, comm=comm)
            case "bcast":
                mpi.ibcast(a, source, comm=comm)
            case "alltoall":
                mpi.ialltoall(a, b, comm=comm)
            case "shift":
                right, left = (rank + 1) % comm.size, (rank - 1) % comm.size
                if MPI.Get_version() >= (4, 0):
                    mpi.call(comm.Isendrecv, a, right, 7, b, left, 7)  # one tag, for the sake of the wildcards
                else:
                    mpi.irecv(b, left, 7, comm=comm)
                    mpi.isend(a, right, 7, comm=comm)
            case "staged":
                right, left = (rank + 1) % comm.size, (rank - 1) % comm.size
                sent, received = self.on_device
                omp.target_memcpy_async(sent, a, depend=[in_(a), out(sent)])
                mpi.irecv(received, left, 7, comm=comm)
                mpi.isend(sent, right, 7, comm=comm)
                omp.target_memcpy_async(b, received, depend=[in_(received), out(b)])
        if kind in {"add", "allreduce"}:
            self.reduce(a if kind == "add" else b)

    def let_go(self):
        """Fulfil the events that hold tasks, in an order of this rank's own."""
        mine = random.Random(self.seed * 31 + self.comm.rank)
        mine.shuffle(self.held)
        for event in self.held:
            event.fulfill()


@pytest.mark.parametrize("n_workers", [1, 3])
def test_programs(comm, n_workers):
    """Whatever the order in which tasks become ready, results are those of the steps in order."""
    with omp.Runtime("sim:1", num_threads=n_workers, check=True):
        for seed in range(FIRST + n_workers, FIRST + N_PROGRAMS * 2, 2):
            steps = draw(random.Random(seed), comm.size)
            program = Program(comm, seed, random.Random(seed * 7 + comm.rank))
            for step in steps:
                program.step(*step)
            releasing = threading.Thread(target=program.let_go)
            releasing.start()
            omp.taskwait()
            releasing.join()
            for array in program.on_device:
                omp.target_free(array)
            expected = in_order(steps, comm.size)[comm.rank]
            assert (program.buffers == expected).all(), (seed, steps)
