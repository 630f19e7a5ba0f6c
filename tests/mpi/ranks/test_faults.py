"""Bad input to `offload.mpi`, and buffers that are not treated as they should be, on any number of ranks."""

from __future__ import annotations

import gc
from weakref import ref

import numpy as np
import pytest
from mpi4py import MPI

import offload as omp
from offload import in_, inout, mpi, out
from offload.events.progress import progress
from tests.patience import until


def test_buffers_that_nobody_else_has(runtime, comm, left, right):
    """A call keeps its buffers: those that the program has forgotten are sent and received whole."""
    n, seen = 200_000, []  # no message of that length goes by a copy
    received = np.zeros(n)
    task = mpi.irecv(received, left, 1, comm=comm)
    omp.task(depend=[in_(received)])(lambda array: seen.append(array.sum()))(received)
    forgotten = mpi.irecv(np.zeros(n), left, 2, comm=comm)
    del received
    comm.Barrier()
    for tag in (1, 2):
        mpi.isend(np.full(n, comm.rank + 1.0), right, tag, comm=comm)
    gc.collect()
    rubbish = [np.full(n, -1.0) for _ in range(4)]
    task.result()
    assert forgotten.result().Get_count(MPI.DOUBLE) == n
    omp.taskwait()
    assert seen == [n * (left + 1.0)]
    assert len(rubbish) == 4


def test_a_call_that_is_complete_keeps_nothing(runtime, comm, left, right):
    """Its task, which the program has yet, refers to no buffer any more, whether the call ended at once or later."""
    sent, received = np.zeros(1), np.zeros(1)
    tasks = [mpi.irecv(received, left, 1, comm=comm)]
    until(lambda: progress.n_open == 1)
    comm.Barrier()
    tasks.append(mpi.isend(sent, right, 1, comm=comm))
    omp.taskwait()
    gone = [ref(sent), ref(received)]
    del sent, received
    until(lambda: not any(one() is not None for one in gone))
    assert all(task.done() for task in tasks)


def test_a_task_that_writes_to_what_is_being_sent(runtime, comm, left, right):
    """It runs after the send, and what reads runs beside it; nothing but a dependence says so."""
    n = 200_000
    sent, received = np.full(n, comm.rank + 1.0), np.zeros(n)
    sending = mpi.call(comm.Issend, sent, right, 3)
    reading = omp.task(depend=[in_(sent)])(sent.sum)()
    overwriting = omp.task(depend=[inout(sent)])(sent.fill)(-1)
    assert reading.result() == n * (comm.rank + 1)
    assert not sending.done()
    assert not overwriting.done()
    comm.Barrier()
    mpi.irecv(received, left, 3, comm=comm)
    omp.taskwait()
    assert (received == left + 1).all()
    assert (sent == -1).all()


def test_a_send_of_what_is_read_only(runtime, comm, left, right):
    """It is a send as any other, also where it is not contiguous."""
    sent, received = np.ones(3), np.zeros(3)
    sent.flags.writeable = False
    mpi.irecv(received, left, 1, comm=comm)
    mpi.isend(sent, right, 1, comm=comm)
    omp.taskwait()
    assert (received == 1).all()
    columns = np.arange(9.0).reshape(3, 3)
    columns.flags.writeable = False
    mpi.irecv(received, left, 1, comm=comm)
    mpi.isend(columns[:, 1], right, 1, comm=comm)
    omp.taskwait()
    assert received.tolist() == [1, 4, 7]


@pytest.mark.parametrize("receive", [mpi.irecv, mpi.recv_object])
def test_a_receive_from_a_rank_that_does_not_exist(runtime, comm, receive):
    """It fails with the error's class, as a send does, and what is in order with it ends as well."""
    source = comm.size + 3
    calls = [
        receive(*([np.zeros(1)] if receive is mpi.irecv else []), source=source, tag=1, comm=comm) for _ in range(2)
    ]
    for call in calls:
        with pytest.raises(omp.TransportError) as caught:
            call.result()
    assert caught.value.error_class in {None, MPI.ERR_RANK}
    omp.taskwait()


def test_one_request_for_two_calls(runtime, comm, left, right):
    """A request that is open for a call fails the task of a second one, and completes the first."""
    received = np.zeros(1)
    request = comm.Irecv(received, left, 1)
    first = mpi.call(lambda: request, depend=[out(received)])
    until(lambda: progress.n_open == 1)
    second = mpi.call(lambda: request, depend=[])
    with pytest.raises(omp.EventError, match="already used by an event"):
        second.result()
    comm.Barrier()
    comm.Send(np.ones(1), right, 1)
    first.result()
    assert received[0] == 1


def test_a_persistent_request_that_is_started_twice(runtime, comm, left, right):
    """While it is open a second start fails its task, and the first one completes; then it can be started again."""
    received = np.zeros(1)
    request = comm.Recv_init(received, left, 1)
    first = mpi.start(request)
    until(lambda: progress.n_open == 1)
    with pytest.raises(omp.EventError, match="already used by an event"):
        mpi.start(request).result()
    with pytest.raises(omp.ClauseError, match="twice"):
        mpi.start([request, request])
    comm.Barrier()
    comm.Send(np.ones(1), right, 1)
    first.result()
    again = mpi.start(request)
    comm.Barrier()
    comm.Send(np.full(1, 2.0), right, 1)
    again.result()
    assert received[0] == 2
    request.Free()


def test_a_runtime_that_ends_with_open_requests(comm, left, right):
    """The end of the runtime waits for them."""
    received = np.zeros(1)
    with omp.Runtime("sim:1", check=True):
        task = mpi.irecv(received, left, 1, comm=comm)
        event = omp.Event()
        other = omp.task(detach=event)(event.fulfill_on)(comm.Irecv(np.zeros(1), left, 2))
        until(lambda: progress.n_open == 2)
        comm.Barrier()
        sends = [comm.Isend(np.ones(1), right, tag) for tag in (1, 2)]
    assert task.done()
    assert other.done()
    assert received[0] == 1
    MPI.Request.Waitall(sends)
