"""Programs that outlive a rank: Open MPI's ``mpiexec --with-ft ulfm``."""

from __future__ import annotations

import pytest

from tests.mpi.launching import finish, kill, needs_mpi, read_until, start
from tests.mpi.openmpi import directory, launcher

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), needs_mpi]  # the first one may install Open MPI

HEAD = """
import os, signal, sys, threading, time
import numpy as np
from mpi4py import MPI
import offload as omp
from offload import in_, mpi, out

comm = MPI.COMM_WORLD
victim = comm.size - 1

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def outcome(task):
    try:
        return task.result()
    except BaseException as error:
        return error

def check(error, names=("MPI_ERR_PROC_FAILED",)):
    assert isinstance(error, omp.TransportError), error
    assert error.error_name in names, error
    if error.error_name != "MPI_ERR_REVOKED":  # another rank may have known first
        assert f"failed ranks of MPI_COMM_WORLD: {victim}" in str(error), error
    assert isinstance(error.__cause__, MPI.Exception)
"""


@pytest.fixture
def survivors(request, tmp_path_factory):
    """Runs a program under ``--with-ft ulfm``, whose last rank dies, and checks that all others get to its end.

    The job is killed there: after a failure Open MPI's ``MPI_Finalize`` hangs now and then, without `offload` as well.
    """
    cache = getattr(request.config, "cache", None)  # it may be switched off
    kept = cache.mkdir("openmpi") if cache else tmp_path_factory.mktemp("openmpi")
    command, environment = launcher(directory(kept), "--with-ft", "ulfm")

    def run_program(program, n_ranks=3):
        ends = "\nprint('survived\\n', end='', flush=True)\n"
        job = start(n_ranks, "-m", "mpi4py", "-c", HEAD + program + ends, env=environment, command=command)
        try:
            printed = read_until(job, "survived", n_ranks - 1, limit_s=60)
        finally:
            kill(job)
        finish(job, 20)
        assert "Traceback" not in printed, printed

    return run_program


def test_requests_of_a_rank_that_dies(survivors):
    """Each ends with an error that names the failed rank, whatever else is open; a message that has come is received.

    A receive from any rank, which MPI leaves open, ends too; one from a rank that is alive is not touched.
    """
    survivors("""
names = ("MPI_ERR_PROC_FAILED", "MPI_ERR_PROC_FAILED_PENDING")
with omp.Runtime("sim:1", num_threads=2, check=True):
    comms = [comm.Dup() for _ in range(6)]
    if comm.rank == victim:
        for peer in range(victim):
            comm.Send(np.full(1, 7.0), peer, 1)
        comm.Barrier()
        for peer in range(victim):
            comm.Recv(np.zeros(1), peer, 4)  # whose calls of MPI, which would raise, are behind it
        threading.Timer(0.2, die).start()
        mpi.irecv(np.zeros(1), 0, 99).result()
    other = (comm.rank + 1) % victim
    alive, arrived, anyone, ran = np.zeros(1), np.zeros(1), np.zeros(1), []
    early = mpi.irecv(arrived, victim, 1)
    comm.Barrier()
    living = mpi.irecv(alive, other, 2, comm=comms[0])
    dying = [
        mpi.irecv(np.zeros(1), victim, 5),
        mpi.irecv(np.zeros(1), victim, 5, comm=comms[1]),
        mpi.recv_object(victim, 6, comm=comms[2]),
        mpi.issend(np.zeros(1), victim, 7, comm=comms[3]),
        mpi.iallreduce(np.ones(1), np.zeros(1), comm=comms[4]),
    ]
    event, persistent = omp.Event(), comms[3].Recv_init(np.zeros(1), victim, 9)
    persistent.Start()
    dying.append(omp.task(detach=event)(event.fulfill_on)([persistent, comms[3].Irecv(np.zeros(1), victim, 10)]))
    comm.Send(np.zeros(1), victim, 4)
    wild = mpi.irecv(anyone, comm=comms[5], tag=8, source=MPI.ANY_SOURCE)
    after = omp.task(depend=[in_(anyone)])(ran.append)(1)
    for task in dying:
        check(outcome(task))
    check(outcome(wild), names)
    assert isinstance(outcome(after), omp.DependError) and not ran
    early.result()
    assert arrived[0] == 7
    mpi.isend(np.full(1, 3.0), other, 2, comm=comms[0]).result()
    living.result()
    assert alive[0] == 3
    persistent.Free()
""")


def test_the_program_goes_on(survivors):
    """After `Revoke` and `Shrink` the survivors compute on; what waits on the revoked communicator ends at once."""
    survivors("""
with omp.Runtime("sim:1", num_threads=2, check=True):
    work, total, n_steps = comm.Dup(), np.zeros(1), 0
    while True:
        if comm.rank == victim and n_steps == 20:
            die()
        error = outcome(mpi.iallreduce(np.ones(1), total, comm=work))
        if isinstance(error, BaseException):
            break
        n_steps += 1
    check(error, ("MPI_ERR_PROC_FAILED", "MPI_ERR_REVOKED"))
    waiting = mpi.irecv(np.zeros(1), (comm.rank + 1) % victim, 3, comm=work)
    work.Revoke()
    check(outcome(waiting), ("MPI_ERR_REVOKED", "MPI_ERR_PROC_FAILED"))
    rest = work.Shrink()
    assert rest.size == victim
    for _ in range(20):
        mpi.iallreduce(np.ones(1), total, comm=rest)
    omp.taskwait()
    assert total[0] == victim
    field = omp.target_alloc(4, float)
    omp.target(nowait=True, depend=[out(field)])(lambda field: field.fill(1))(field)
    mpi.iallreduce(MPI.IN_PLACE, field, comm=rest).result()
    omp.target_free(field)
    mpi.send_object("on", (rest.rank + 1) % rest.size, 1, comm=rest)
    assert mpi.recv_object((rest.rank - 1) % rest.size, 1, comm=rest).result() == "on"
    omp.taskwait()
""")


def test_receives_behind_that_of_an_object(survivors):
    """What is in order behind the receive of an object whose sender dies ends too."""
    survivors("""
with omp.Runtime("sim:1", num_threads=2, check=True):
    comm.Barrier()
    if comm.rank == victim:
        threading.Timer(0.1, die).start()
    first = mpi.recv_object(victim, 5)
    second = mpi.irecv(np.zeros(1), victim, 5)
    check(outcome(first))
    assert isinstance(outcome(second), omp.TransportError)
""")
