"""Faults that end, or ought to end, a job: each ends within its limit, says why, and leaves no rank behind.

That no process is left is what `launching.finish` checks of every job. Which status a launcher has where it has ended
ranks by a signal is its own affair: Hydra's is 0 now and then.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time

import pytest

from tests.mpi.launching import (
    STRIKES,
    finish,
    kill,
    needs_mpi,
    on_ranks,
    processes_of,
    read_until,
    run,
    run_tests,
    start,
)

pytestmark = needs_mpi

HEAD = """
import os, signal, threading, time
import numpy as np
from mpi4py import MPI
import offload as omp
from offload import in_, inout, mpi, out
comm = MPI.COMM_WORLD
left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
"""

EXCHANGES = """
print(f"rank {comm.rank} is {os.getpid()}\\n", end="", flush=True)
with omp.Runtime("sim:1", num_threads=2):
    sent, received, total = np.zeros(4096), np.zeros(4096), np.zeros(4096)
    field = omp.target_alloc(4096, float)
    while True:
        omp.task(depend=[inout(sent)])(np.add)(sent, 1, sent)
        mpi.irecv(received, left, 1)
        mpi.isend(sent, right, 1)
        omp.target_memcpy_async(field, received, depend=[in_(received), out(field)])
        mpi.iallreduce(MPI.IN_PLACE, field)
        mpi.iallreduce(received, total)
        omp.taskwait()
"""


@on_ranks(1, 3)
def test_on_ranks(n_ranks):
    """`ranks/test_faults.py`."""
    run_tests(n_ranks, "test_faults.py")


def killed_at_random(n_times, rng):
    """Kill one rank of three at a random moment, so many times; the job ends, and nothing of it is left."""
    for _ in range(n_times):
        job = start(3, "-c", HEAD + EXCHANGES)
        printed = read_until(job, r"rank \d is \d+\n", 3)
        pids = [int(pid) for pid in re.findall(r"rank \d is (\d+)", printed)]
        time.sleep(rng.random())  # the moment is what is drawn
        os.kill(rng.choice(pids), signal.SIGKILL)
        finish(job, 60)


@pytest.mark.slow
def test_ranks_that_are_killed():
    """The launcher ends the other ranks, whatever they were doing."""
    killed_at_random(3, random.Random())


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_ranks_that_are_killed_often():
    """The same at 20 moments."""
    killed_at_random(20, random.Random())


@pytest.mark.parametrize("what", ["all", "the launcher"])
def test_an_interrupt_of_a_job(what):
    """Ctrl-C, which a terminal gives to all and a batch system to the launcher, ends ranks that wait for ever."""
    program = """
with omp.Runtime("sim:1"):
    mpi.irecv(np.zeros(1), right, 9)
    mpi.iallreduce(np.ones(1), np.zeros(1))
    print(f"rank {comm.rank} waits\\n", end="", flush=True)
    omp.taskwait()
    print("past the wait\\n", end="", flush=True)
"""
    job = start(2, "-c", HEAD + program)
    read_until(job, r"rank \d waits", 2)
    if what == "all":
        for pid in processes_of(job):
            with contextlib.suppress(ProcessLookupError):  # the launcher ends the others
                os.kill(pid, signal.SIGINT)
    else:
        os.kill(job.pid, signal.SIGINT)
    try:
        job.wait(3)
    except subprocess.TimeoutExpired:
        os.kill(job.pid, signal.SIGINT)  # as a launcher may ask to press it again
    assert "past the wait" not in finish(job, 60)


def test_ranks_that_are_interrupted():
    """Each rank's wait raises `KeyboardInterrupt`, a second one ends the wait of the runtime's end, and all end."""
    program = """
event = omp.Event()
try:
    with omp.Runtime("sim:1"):
        mpi.irecv(np.zeros(1), right, 9)
        omp.task(detach=event)(event.fulfill_on)(comm.Irecv(np.zeros(1), right, 8))
        striking.start()
        try:
            omp.taskwait()
        finally:
            came.set()
except KeyboardInterrupt:
    striking.join()
    print("caught it\\n", end="", flush=True)
"""
    status, printed = run(2, "-c", HEAD + STRIKES + program)
    assert status == 0, printed
    assert printed.count("caught it") == 2
    assert "2 events wait for requests of MPI" in printed


def test_a_rank_that_raises_while_others_wait():
    """By ``python -m mpi4py`` it ends the job, with its traceback."""
    program = """
with omp.Runtime("sim:1"):
    if comm.rank == 1:
        raise ValueError("of rank 1")
    mpi.iallreduce(np.ones(1), np.zeros(1)).result()
"""
    status, printed = run(3, "-m", "mpi4py", "-c", HEAD + program)
    assert status != 0
    assert "ValueError: of rank 1" in printed


TELL = {"OFFLOAD_HANG_S": "0.3"}


def story(program, *patterns):
    """Return the stories of two ranks that would wait for ever, when all patterns have come; the job is ended then."""
    job, printed = start(2, "-c", HEAD + program, env=TELL), ""
    try:
        for pattern in patterns:
            printed = read_until(job, pattern, 1, printed=printed)
        job.terminate()
        finish(job, 60)
    finally:
        kill(job)
    return printed


def test_what_others_say_of_a_rank_that_raises():
    """Without it they wait, and say for what; a job that is ended then leaves no rank behind."""
    program = """
with omp.Runtime("sim:1"):
    if comm.rank == 1:
        raise ValueError("of rank 1")
    mpi.irecv(np.zeros(1), 1, 4)
    omp.taskwait()
"""
    told = story(program, "Irecv from 1, tag 4, on MPI_COMM_WORLD, open for")
    assert "detached; waits for its event" in told


def test_a_receive_that_nobody_sends_to():
    """Each rank says what it waits for, with whom, since when."""
    program = """
with omp.Runtime("sim:1"):
    mpi.irecv(np.zeros(1), right, 4, name="halo")
    mpi.recv_object(right, 5)
    omp.taskwait()
"""
    since = r"on MPI_COMM_WORLD, open for [\d.]+ s \(2 open in this process\)"
    whats = [f"{what} from {rank}, tag {tag}" for rank in (0, 1) for what, tag in (("Irecv", 4), ("irecv", 5))]
    story(program, *[f"{what}, {since}" for what in whats])


def test_collective_operations_in_different_orders():
    """Broadcasts from one rank and the other, in another order on each, wait for ever; each rank names its own."""
    program = """
with omp.Runtime("sim:1"):
    large = np.zeros(1 << 20)
    for root in (right, comm.rank):
        mpi.ibcast(large, root, depend=[out(("from", root))], name=f"from {root}")
    omp.taskwait()
"""
    story(program, *[rf"from {root}-1 \(MPI Ibcast.*Ibcast on MPI_COMM_WORLD, open for" for root in (0, 1)])
