"""What an all-to-all of many bytes takes as a task, beside the blocking call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, pairwise, promise
from offload import mpi

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.mpi.job import Job

NBYTES, QUICK_NBYTES = 16 << 20, 1 << 20
LIMIT = 1.15
_N_AT_ONCE = 5
"""Exchanges in a sample, one after the other: the slowest rank of one alone says more of the system than of MPI."""

BLOCKING, STARTED, TASK = "blocking Alltoallv", "Ialltoallv and Wait", "mpi.ialltoallv and taskwait"


def measure(job: Job) -> Section:
    """Measure on any number of ranks."""
    comm = job.comm
    nbytes = QUICK_NBYTES if job.is_quick else NBYTES
    counts = np.diff(np.linspace(0, nbytes // 8, comm.size + 1).astype(int))  # float64, as evenly as it goes
    sent = np.repeat(np.arange(comm.size) + float(comm.rank * comm.size), counts)
    received = np.zeros(counts[comm.rank] * comm.size)
    expected = np.repeat(np.arange(comm.size) * float(comm.size) + comm.rank, counts[comm.rank])
    buffers = [sent, counts], [received, np.full(comm.size, counts[comm.rank])]

    def by_task() -> None:
        mpi.ialltoallv(*buffers, comm=comm)
        omp.taskwait()

    calls: dict[str, Callable[[], object]] = {
        BLOCKING: lambda: comm.Alltoallv(*buffers),
        STARTED: lambda: comm.Ialltoallv(*buffers).Wait(),
        TASK: by_task,
    }
    with omp.Runtime("none", num_threads=1):
        for name, call in calls.items():
            received.fill(-1)
            call()
            job.expect((received == expected).all(), name)
        runs = job.in_turn_s({name: _several(call) for name, call in calls.items()})
    title = f"All-to-all of {nbytes >> 20} MB a rank between {comm.size} ranks, ms"
    rows = {name: {"ms": [one * 1e3 / _N_AT_ONCE for one in samples]} for name, samples in runs.items()}
    over = pairwise(runs[TASK], runs[BLOCKING])
    ratio = Table("The same, turn by turn", {f"{TASK} / {BLOCKING}": {"ratio": over}})
    targets = [promise("all-to-all as a task / blocking", {f"{comm.size} ranks": over}, LIMIT)]
    return Section({"bandwidth": Table(title, rows), "bandwidth_ratio": ratio}, targets if comm.size > 1 else [])


def _several(call: Callable[[], object]) -> Callable[[], None]:
    def several() -> None:
        for _ in range(_N_AT_ONCE):
            call()

    return several
