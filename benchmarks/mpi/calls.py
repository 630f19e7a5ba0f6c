"""What a call of MPI as a task takes, beside the call itself, a task, and a task that calls by hand."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, promise
from offload import in_, inout, mpi, out

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.measuring import Samples
    from benchmarks.mpi.job import Job

N_CALLS, N_QUICK = 500, 20
LIMIT_US = 15.0

CALL, TASK, BY_HAND, OURS = "the call, and Wait", "a task", "a task with an event that calls it", "mpi.*"
BEYOND = "mpi.*, beyond the task and the call"


def measure(job: Job) -> Section:
    """Measure on each rank by itself: with the rank that is none, and on the communicator of this rank alone."""
    a, total = np.ones(1), np.zeros(1)
    kinds: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...], list[Any]]] = {
        "isend": (MPI.COMM_SELF.Isend, mpi.isend, (a, MPI.PROC_NULL, 0), [in_(a)]),
        "irecv": (MPI.COMM_SELF.Irecv, mpi.irecv, (total, MPI.PROC_NULL, 0), [out(total)]),
        "iallreduce": (MPI.COMM_SELF.Iallreduce, mpi.iallreduce, (a, total), [in_(a), out(total)]),
    }
    rows: dict[str, dict[str, Samples]] = {name: {} for name in (CALL, TASK, BY_HAND, OURS, BEYOND)}
    n_calls = N_QUICK if job.is_quick else N_CALLS
    with omp.Runtime("none", num_threads=1):
        for kind, (method, construct, args, depend) in kinds.items():
            ours = partial(construct, *args, comm=MPI.COMM_SELF)
            calls: dict[str, Callable[[], object]] = {
                CALL: partial(_call, method, args),
                TASK: omp.task(_nothing).options(depend=depend),
                BY_HAND: partial(_by_hand, method, args, depend),
                OURS: ours,
            }
            runs = alternate({name: partial(_us, call, n_calls) for name, call in calls.items()}, job.repeat)
            for name, samples in runs.items():
                rows[name][kind] = samples
            parts = zip(runs[OURS], runs[TASK], runs[CALL], strict=True)
            rows[BEYOND][kind] = [whole - task - call for whole, task, call in parts]
        total.fill(0)
        mpi.iallreduce(a, total, comm=MPI.COMM_SELF)
        found = omp.task(depend=[inout(total)])(total.sum)().result()
        omp.taskwait()
    job.expect(found == 1, "iallreduce")
    table = Table(
        f"{n_calls} calls and a taskwait, µs of processor time of all threads, a call",
        rows,
        "Messages to MPI.PROC_NULL and reductions on MPI.COMM_SELF, which are complete at once.",
    )
    return Section({"calls": table}, [promise(f"{BEYOND}, µs", rows[BEYOND], LIMIT_US)])


def _us(call: Callable[[], object], n_calls: int) -> float:
    began_s = time.process_time()
    for _ in range(n_calls):
        call()
    omp.taskwait()
    return (time.process_time() - began_s) / n_calls * 1e6


def _nothing() -> None:
    """Do nothing: the body."""


def _call(method: Callable[..., Any], args: tuple[Any, ...]) -> None:
    method(*args).Wait()


def _by_hand(method: Callable[..., Any], args: tuple[Any, ...], depend: list[Any]) -> None:
    event = omp.Event()
    omp.task(lambda: event.fulfill_on(method(*args))).options(depend=depend, detach=event)()
