"""Device arrays in calls of MPI, on any number of ranks: staged through the host."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import offload as omp
from offload import in_, mpi, out
from tests.mpi.ranks.test_requests import tells_of_truncation
from tests.patience import until


@pytest.fixture
def left(comm):
    return (comm.rank - 1) % comm.size


@pytest.fixture
def right(comm):
    return (comm.rank + 1) % comm.size


@pytest.fixture
def arrays(runtime):
    """Give device arrays, and free them in the end."""
    made = []

    def make(shape):
        made.append(omp.target_alloc(shape, float))
        return made[-1]

    yield make
    omp.taskwait()
    while made:
        omp.target_free(made.pop())


def filled(array, value):
    omp.target(nowait=True, depend=[out(array)])(lambda array: array.fill(value))(array)


def on_host(array):
    """Return what a device array has once the tasks before are through."""
    found = np.zeros(array.shape)
    omp.target_memcpy_async(found, array, depend=[in_(array)])
    omp.taskwait()
    return found


def test_messages(comm, arrays, left, right):
    """What a region writes is sent when it is there, and what is received is there for the regions after."""
    sent, received = arrays(6), arrays(6)
    for k in range(5):
        filled(sent, 10 * comm.rank + k)
        mpi.isend(sent, right, 3, comm=comm)
        status = mpi.irecv(received, left, 3, comm=comm)
        omp.target(nowait=True, depend=[omp.inout(received)])(lambda received: np.add(received, 1, received))(received)
        assert (on_host(received) == 10 * left + k + 1).all()
        assert status.result().Get_count(MPI.DOUBLE) == 6


def test_views_with_gaps(comm, arrays, left, right):
    """Views that are not contiguous are sent and received as well, and what lies between is untouched."""
    sent, received = arrays((4, 6)), arrays((4, 6))
    filled(sent, comm.rank)
    filled(received, -1)
    mpi.isend(sent[:, 1], right, 3, comm=comm)
    mpi.irecv(received[:, 2], left, 3, comm=comm)
    found = on_host(received)
    assert (found[:, 2] == left).all()
    assert (np.delete(found, 2, axis=1) == -1).all()


def test_collectives(comm, arrays):
    """Collective operations take device arrays, in place too, with counts, and beside arrays of the host."""
    n = comm.size
    mine, all_, host = arrays(2), arrays(2 * n), np.zeros(2 * n)
    filled(mine, comm.rank)
    mpi.iallgather(mine, all_, comm=comm)
    mpi.iallgather(mine, host, comm=comm)
    expected = np.repeat(np.arange(n), 2)
    assert (on_host(all_) == expected).all()
    assert (host == expected).all()
    mpi.iallreduce(MPI.IN_PLACE, mine, comm=comm)
    assert (on_host(mine) == n * (n - 1) / 2).all()
    counts = ([2] * n, [2 * k for k in range(n)])
    back = arrays(2 * n)
    mpi.ialltoallv([all_, counts, MPI.DOUBLE], [back, counts, MPI.DOUBLE], comm=comm)
    assert (on_host(back) == comm.rank).all()
    mpi.ibcast(back, 0, comm=comm)
    assert (on_host(back) == 0).all()


def test_what_a_message_does_not_reach(comm, arrays, left, right):
    """Of a buffer that is longer than its message the rest is as it was, in a view with gaps as well."""
    plain, rows, spec, nothing, both = arrays(6), arrays((4, 6)), arrays(6), arrays(6), arrays(6)
    for array in (plain, rows, spec, nothing, both):
        filled(array, -1)
    mpi.irecv(plain, left, 1, comm=comm)
    mpi.irecv(rows[:, 2], left, 2, comm=comm)
    mpi.irecv([spec, 5, MPI.DOUBLE], left, 3, comm=comm)
    mpi.irecv(nothing, MPI.PROC_NULL, 4, comm=comm)
    for tag in (1, 2, 3):
        mpi.isend(np.full(2, float(comm.rank)), right, tag, comm=comm)
    if MPI.Get_version() >= (4, 0):
        mpi.call(comm.Isendrecv, np.full(3, 5.0), right, 6, both, left, 6)
    else:
        mpi.irecv(both, left, 6, comm=comm)
        mpi.isend(np.full(3, 5.0), right, 6, comm=comm)
    assert on_host(plain).tolist() == [left] * 2 + [-1] * 4
    found = on_host(rows)
    assert found[:, 2].tolist() == [left] * 2 + [-1] * 2
    assert (np.delete(found, 2, axis=1) == -1).all()
    assert on_host(spec).tolist() == [left] * 2 + [-1] * 4
    assert (on_host(nothing) == -1).all()
    assert on_host(both).tolist() == [5] * 3 + [-1] * 3


def test_what_a_collective_operation_leaves(comm, arrays):
    """Elements between and behind the blocks are as they were, and so is a buffer of a rank that receives nothing."""
    n, is_root = comm.size, comm.rank == 0
    sent, blocks, gathered, reduced, less = arrays(n), *(arrays(3 * n) for _ in range(4))
    filled(sent, 7)
    for array in (blocks, gathered, reduced, less):
        filled(array, -1)
    counts, gaps = [1] * n, [3 * k + 1 for k in range(n)]
    mpi.ialltoallv([sent, counts, MPI.DOUBLE], [blocks, (counts, gaps), MPI.DOUBLE], comm=comm)
    mpi.igatherv([sent, 1, MPI.DOUBLE], [gathered, (counts, gaps), MPI.DOUBLE], 0, comm=comm)
    mpi.ireduce(sent, reduced[:n], MPI.MAX, 0, comm=comm)
    mpi.ialltoall([sent, 1, MPI.DOUBLE], [less, 1, MPI.DOUBLE], comm=comm)
    assert on_host(blocks).tolist() == [-1, 7, -1] * n
    assert on_host(gathered).tolist() == ([-1, 7, -1] if is_root else [-1] * 3) * n
    assert on_host(reduced).tolist() == ([7] if is_root else [-1]) * n + [-1] * (2 * n)
    assert on_host(less).tolist() == [7] * n + [-1] * (2 * n)


@tells_of_truncation
def test_a_failure_is_that_of_the_call(comm, arrays, left, right):
    """A staged receive that fails has a `TransportError` of its own, and copies nothing."""
    received = arrays(1)
    filled(received, 7)
    bad = mpi.irecv(received, left, 4, comm=comm)
    mpi.isend(np.ones(3), right, 4, comm=comm)
    with pytest.raises(omp.TransportError, match="MPI_ERR_TRUNCATE"):
        bad.result()
    omp.taskwait()
    assert (on_host(received) == 7).all()


def test_replays(comm, arrays, left, right):
    """A graph of staged calls runs again."""
    sent, received = arrays(3), arrays(3)

    @omp.taskgraph
    def step(sent, received):
        omp.target(nowait=True, depend=[omp.inout(sent)])(lambda sent: np.add(sent, 1, sent))(sent)
        mpi.irecv(received, left, 4, comm=comm)
        mpi.isend(sent, right, 4, comm=comm)

    filled(sent, comm.rank)
    omp.taskwait()  # the tasks of a taskgraph depend on none outside
    for _ in range(4):
        step(sent, received)
    assert (on_host(received) == left + 4).all()


def test_replays_with_calls_between_device_work(comm, arrays, left, right):
    """Calls stand between device work at each replay; where the device has graphs, that is two of them."""
    sent, received = arrays(3), arrays(3)
    add = omp.target(nowait=True)(lambda array: np.add(array, 1, array))

    @omp.taskgraph
    def step(sent, received):
        for _ in range(3):
            add.options(depend=[omp.inout(sent)])(sent)
        mpi.irecv(received, left, 4, comm=comm)
        mpi.isend(sent, right, 4, comm=comm)
        for _ in range(3):
            add.options(depend=[omp.inout(received)])(received)

    filled(sent, comm.rank)
    omp.taskwait()
    for n in range(1, 6):
        step(sent, received)
        assert (on_host(received) == left + 3 * n + 3).all()
    if omp.current_runtime().places[0].device.graph_capture() is not None:
        assert step.records[0].is_captured, step.records[0].why_not
        assert step.records[0].n_captured >= 2


def test_what_is_refused(comm, arrays):
    """Arrays of two devices, freed ones, and those that nobody knows what is done with, are errors at the call."""
    with pytest.raises(omp.ClauseError, match="does not know whether this method accepts device arrays"):
        mpi.call(print, arrays(2), depend=[])
    freed = omp.target_alloc(3, float)
    omp.target_free(freed)
    with pytest.raises(omp.RegionClosedError):
        mpi.isend(freed, 0, comm=comm).result()
    omp.taskwait()


def test_two_devices(comm):
    """The buffers of one call are on one device."""
    with omp.Runtime("sim:2", check=True):
        a, b = omp.target_alloc(2, float, device=0), omp.target_alloc(2, float, device=1)
        with pytest.raises(omp.ClauseError, match="several devices"):
            mpi.iallreduce(a, b, comm=comm)
        for array in (a, b):
            omp.target_free(array)


def test_no_library_is_asked_by_trying(comm, arrays):
    """The answer is there without a message; a simulated device is staged whatever it is."""
    assert mpi.is_gpu_aware() in {True, False}
    sent = arrays(2)
    filled(sent, 1)
    task = mpi.isend(sent, comm.rank, 5, comm=comm)
    received = np.zeros(2)
    mpi.irecv(received, comm.rank, 5, comm=comm)
    until(task.done)
    omp.taskwait()
    assert (received == 1).all()
