"""Objects that expose host memory as buffers of messages: the results are those with NumPy arrays of that memory."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import offload as omp
from offload import in_, inout, mpi, out
from tests.foreign.kinds import KINDS

BUFFERS = [kind for kind in KINDS if not kind.startswith("JAX") and KINDS[kind].make()[1].flags.c_contiguous]
"""The kinds that are contiguous. JAX warns where a process with its threads is forked, as tests of ranks do."""


@pytest.mark.parametrize("kind", BUFFERS)
def test_messages(runtime, comm, left, right, kind):
    """Sends follow what fills the storage, receives come before what reads it, and read-only memory is only sent."""
    (sent, its_memory), (received, memory) = KINDS[kind].make(), KINDS[kind].make()
    if its_memory.flags.writeable:
        omp.task(depend=[out(its_memory)])(its_memory.fill)(3 + comm.rank)
    wanted = np.full_like(its_memory, 3 + left) if its_memory.flags.writeable else its_memory
    target = np.zeros_like(memory) if not memory.flags.writeable else received
    mpi.irecv(target, left, 3, comm=comm)
    mpi.isend(sent, right, 3, comm=comm)
    view = target if isinstance(target, np.ndarray) else memory
    seen = omp.task(depend=[in_(view)])(view.tolist)()
    assert seen.result() == wanted.tolist()
    if not memory.flags.writeable:
        with pytest.raises(omp.ClauseError, match="read-only"):
            mpi.irecv(received, left, 3, comm=comm)
    omp.taskwait()


@pytest.mark.parametrize("kind", ["DLPack", "bytearray", "memoryview of two dimensions"])
def test_reductions(runtime, comm, kind):
    """A collective operation on two objects, one of them in place of a NumPy array, follows regions on both."""
    (item, memory), (other, its_memory) = KINDS[kind].make(), KINDS[kind].make()

    def double(x):
        x *= 2

    omp.target(nowait=True, depend=[inout(item)])(double)(item)
    mpi.iallreduce(item, other, MPI.MAX, comm=comm)
    omp.target(nowait=True, depend=[inout(other)])(double)(other)
    omp.taskwait()
    assert its_memory.tolist() == (2 * memory).tolist()
