"""Recorded graphs with calls of MPI that Dask computes, on any number of ranks."""

from __future__ import annotations

import time

import numpy as np
import pytest

import offload as omp
from offload import in_, mpi, out
from tests.mpi.ranks.test_calls import BoomError

dask = pytest.importorskip("dask")


def compute(graph, how):
    if how == "Dask's":
        dask.compute(graph, scheduler="threads", num_workers=4)
    else:
        graph.compute(scheduler=how)


def boom():
    time.sleep(0.05)  # what does not depend on it has been started
    raise BoomError


@pytest.mark.parametrize("how", ["threads", "synchronous", "Dask's"])
def test_calls_are_issued_as_recorded(runtime, comm, how):
    """Collective operations match, whatever becomes ready first on each rank, and again in each computation."""
    arrays, totals = np.zeros((3, 1)), np.zeros((3, 1))

    def fill(k):
        if how == "threads":
            time.sleep(0.05 * ((k + comm.rank) % 3))
        arrays[k] = 10**k

    with omp.record(execute=False) as graph:
        for k in range(3):
            omp.task(depend=[out(arrays[k])])(fill)(k)
        for k in range(3):
            mpi.iallreduce(arrays[k], totals[k], comm=comm)
    for _ in range(2):
        totals[...] = 0
        compute(graph, how)
        assert totals[:, 0].tolist() == [comm.size, 10 * comm.size, 100 * comm.size]
    mpi.ibarrier(comm=comm).result()


@pytest.mark.parametrize("how", ["threads", "synchronous", "Dask's"])
def test_calls_that_a_computation_leaves_out(runtime, comm, how):
    """What stands behind a call that does not run fails with it, in the computation and after it; nothing waits."""
    token = ("left out",)
    with omp.record(execute=False) as graph:
        omp.task(depend=[out(token)])(boom)()
        mpi.ibarrier(comm=comm, depend=[in_(token)])
        mpi.ibarrier(comm=comm)
    with pytest.raises((BoomError, omp.TransportError)):
        compute(graph, how)
    with pytest.raises(omp.TransportError, match="was left out"):
        mpi.ibarrier(comm=comm).result()


def test_a_communicator_that_is_freed_before_the_computation(runtime, comm):
    """It is told at the call, as where the graph is recorded, and the graph may be asked again."""
    other = comm.Dup()
    with omp.record(execute=False) as graph:
        mpi.ibarrier(comm=other)
    other.Free()
    for _ in range(2):
        with pytest.raises(omp.UsageError, match="null, or has been freed"):
            graph.compute()
