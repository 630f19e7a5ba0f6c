"""How soon a task runs that depends on a message, beside a blocking receive; what an open request takes meanwhile."""

from __future__ import annotations

import platform
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, promise
from offload import in_, mpi

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.measuring import Samples
    from benchmarks.mpi.job import Job

RECV, TASK = "blocking Recv", "task that depends on mpi.irecv"
SOON_S = 0.3e-3
WAITS_S = {SOON_S: 50, 5e-3: 20, 20e-3: 10, 100e-3: 5}
"""How long after the receive the message is sent, and how many messages make a sample, which is their median."""

LATE_US, LATE_SHARE = 60.0, 0.02
"""What the project promises: a message is seen so late, and that part of the wait more."""

OPEN_S, N_OPEN = 10.0, 3
SHARE, SHARE_OF_NONE = 2.0, 0.05
"""Percent of a core that one open request takes; without one it is what the benchmark itself takes, nearly nothing."""

_READY, _GO, _DATA = range(3)


def measure(job: Job) -> Section:
    """Measure on two ranks of one host, whose clocks are one."""
    if job.comm.size != 2 or len(set(job.comm.allgather(platform.node()))) > 1:
        return Section(skipped="it is measured between 2 ranks of one host")
    with omp.Runtime("none", num_threads=1):
        late, targets = _late(job)
        share = _share(job)
    taken = share.rows
    targets += [
        promise("open requests, % of a core", {"one": taken["one request open"]["%"]}, SHARE),
        promise("no open request, % of a core", {"none": taken["none open"]["%"]}, SHARE_OF_NONE),
    ]
    return Section({"latency": late, "share": share}, targets)


# -- latency -------------------------------------------------------------------------------------------
def _late(job: Job) -> tuple[Table, list[Any]]:
    pair = _Pair(job)
    rows: dict[str, dict[str, Samples]] = {RECV: {}, TASK: {}}
    over: dict[str, Samples] = {}
    for wait_s, n_messages in WAITS_S.items():
        wait = f"{wait_s * 1e3:g} ms"
        calls: dict[str, Callable[[], float]] = {
            name: partial(pair.late_us, receive, wait_s, 2 if job.is_quick else n_messages)
            for name, receive in ((RECV, pair.receive), (TASK, pair.receive_by_task))
        }
        for name, samples in alternate(calls, job.repeat).items():
            rows[name][wait] = samples
        over[wait] = [late_us - LATE_SHARE * wait_s * 1e6 for late_us in rows[TASK][wait]]
    job.expect(pair.is_right, "a message")
    title = (
        "From the sender's call to the receiver's next line, µs, by the time that the message comes after the receive"
    )
    soon = f"{SOON_S * 1e3:g} ms"
    targets = [
        promise("latency, µs", {soon: rows[TASK][soon]}, LATE_US),
        promise(f"latency less {LATE_SHARE:.0%} of the wait, µs", over, LATE_US),
    ]
    return Table(title, rows), targets


class _Pair:
    """A rank that receives, the first, and one that sends."""

    def __init__(self, job: Job) -> None:
        self._comm = job.comm
        self._is_receiver = job.comm.rank == 0
        self._message = np.zeros(2)  # a number, and when it was sent
        self._token = np.zeros(1)
        self._note = omp.task(self._seen).options(depend=[in_(self._message)])
        self._seen_s = 0.0
        self._n_messages = 0
        self.is_right = True

    def late_us(self, receive: Callable[[], None], wait_s: float, n_messages: int) -> float:
        """Return the median of some messages; on the sender 0."""
        late_us = []
        for _ in range(n_messages):
            self._n_messages += 1
            if not self._is_receiver:
                self._send(wait_s)
                continue
            self._comm.Recv(self._token, 1, _READY)
            receive()
            self.is_right &= bool(self._message[0] == self._n_messages)
            late_us.append((self._seen_s - self._message[1]) * 1e6)
        return median(late_us) if late_us else 0.0

    def receive(self) -> None:
        self._comm.Send(self._token, 1, _GO)
        self._comm.Recv(self._message, 1, _DATA)
        self._seen()

    def receive_by_task(self) -> None:
        mpi.irecv(self._message, 1, _DATA, comm=self._comm)
        self._note()
        self._comm.Send(self._token, 1, _GO)
        omp.taskwait()

    def _seen(self) -> None:
        self._seen_s = time.perf_counter()

    def _send(self, wait_s: float) -> None:
        self._comm.Send(self._token, 0, _READY)
        self._comm.Recv(self._token, 0, _GO)
        until_s = time.perf_counter() + wait_s
        while (left_s := until_s - time.perf_counter()) > 0:
            if left_s > 2 * SOON_S:
                time.sleep(left_s - SOON_S)  # it must not take the core from the receiver, nor be cold when it sends
        self._message[:] = self._n_messages, time.perf_counter()
        self._comm.Send(self._message, 0, _DATA)


# -- what it takes -------------------------------------------------------------------------------------
def _share(job: Job) -> Table:
    """Measure the processor time of the first rank, while the other one sleeps."""
    for_s = 0.2 if job.is_quick else OPEN_S
    message, other = np.zeros(1), 1 - job.comm.rank
    calls = {
        "one request open": lambda: _share_of_open(job, message, other, for_s),
        "none open": lambda: _percent(for_s / 5),
    }
    rows = alternate(calls, 1 if job.is_quick else N_OPEN)
    job.expect(message[0] == other, "a message")
    title = f"Processor time of the process over {for_s:g} s in which nothing happens, % of a core"
    return Table(title, {name: {"%": samples} for name, samples in rows.items()}, f"{len(rows['none open'])} turns.")


def _share_of_open(job: Job, message: Any, other: int, for_s: float) -> float:
    mpi.irecv(message, other, _DATA, comm=job.comm)
    found = _percent(for_s)
    job.comm.Send(np.full(1, float(job.comm.rank)), other, _DATA)
    omp.taskwait()
    return found


def _percent(for_s: float) -> float:
    began_s = time.process_time()
    time.sleep(for_s)
    return (time.process_time() - began_s) / for_s * 100
