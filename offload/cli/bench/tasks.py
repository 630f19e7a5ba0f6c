"""``offload bench tasks``: the cost of a null task with dependences, along with a pool of threads and Dask."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import dask.threaded
import numpy as np
from dask.task_spec import Task, TaskRef

import offload as omp
from offload import inout
from offload.cli.bench.measuring import Measured, in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# As many as make a turn of some 20 ms.
_N_TASKS = 5_000
_PEERS_SHARE = 10  # the peers, about ten times as slow, get a tenth of the tasks

# Of the peers; ours are one worker, and the caller, who helps while it waits.
_N_THREADS = 2

EAGER, REPLAYED = "generated", "replayed by taskgraph"
POOL, DASK = f"ThreadPoolExecutor, {_N_THREADS} threads", f"Dask's threaded scheduler, {_N_THREADS} threads"


@omp.task
def null() -> None:
    """Do nothing."""


def measure(repeat: int, n_tasks: int = _N_TASKS) -> list[Measured]:
    """Measure tasks that are independent of each other, and a chain of tasks, on one worker and the caller."""
    rows: dict[str, dict[str, list[float]]] = {}
    for shape, n_cells in (("independent", n_tasks), ("chain", 1)):
        # A task updates one cell: each its own, or all the same.
        cells = [np.zeros(8) for _ in range(n_cells)]
        clauses = [[inout(cells[number % n_cells])] for number in range(n_tasks)]
        # µs a task do not depend on the number: shorter runs of the slower peers are fair.
        fewer = max(1, n_tasks // _PEERS_SHARE)
        calls: dict[str, Callable[[], float]] = {
            EAGER: partial(_eager_us, clauses),
            REPLAYED: partial(_replay_us, clauses),
            POOL: partial(_pool_us, fewer, is_chain=n_cells == 1),
            DASK: partial(_dask_us, fewer, is_chain=n_cells == 1),
        }
        for name, samples in in_turn(calls, repeat).items():
            rows.setdefault(name, {})[shape] = samples
        rows.setdefault("Dask / generated", {})[shape] = [
            theirs / ours for theirs, ours in zip(rows[DASK][shape], rows[EAGER][shape], strict=True)
        ]
    note = (
        f"{n_tasks:,} empty tasks whose clauses were built before, timed until the taskwait returns. Expect 2 to 8 µs "
        "for a generated task, 1 to 2 µs for a replayed one, and at least 7 times as much for Dask. A wide spread "
        "means that other programs are using the processors."
    )
    return [Measured("A task, µs", rows, note)]


def _eager_us(clauses: Sequence[list[Any]]) -> float:
    """Generate a task for each clause and wait for all; return the microseconds a task."""
    with omp.Runtime("none", num_threads=1):
        began_s = time.perf_counter()
        for depend in clauses:
            null.options(depend=depend)()
        omp.taskwait()
        return (time.perf_counter() - began_s) * 1e6 / len(clauses)


def _replay_us(clauses: Sequence[list[Any]]) -> float:
    """Record the same tasks, replay them twice, and return the microseconds a task of the second replay."""

    @omp.taskgraph
    def generate() -> None:
        for depend in clauses:
            null.options(depend=depend)()

    with omp.Runtime("none", num_threads=1):
        generate()  # records
        generate()  # prepares what later replays reuse
        began_s = time.perf_counter()
        generate()
        return (time.perf_counter() - began_s) * 1e6 / len(clauses)


def _nothing(*_: object) -> None:
    """Do nothing, after the tasks whose results are the arguments."""


def _after(future: Future[None] | None) -> None:
    """Do nothing, after the task that the future stands for."""
    if future is not None:
        future.result()


def _pool_us(n_tasks: int, *, is_chain: bool) -> float:
    """Submit as many tasks to a pool of threads and wait for all; return the microseconds a task."""
    with ThreadPoolExecutor(_N_THREADS) as pool:
        began_s = time.perf_counter()
        futures: list[Future[None]] = []
        for _ in range(n_tasks):
            futures.append(pool.submit(_after, futures[-1] if is_chain and futures else None))
        for future in futures:
            future.result()
        return (time.perf_counter() - began_s) * 1e6 / n_tasks


def _dask_us(n_tasks: int, *, is_chain: bool) -> float:
    """Make the same graph of Dask's own tasks and run it; return the microseconds a task."""
    began_s = time.perf_counter()  # the graph counts, as for ours the generating
    graph = {
        number: Task(number, _nothing, *([TaskRef(number - 1)] if is_chain and number else []))
        for number in range(n_tasks)
    }
    last = [n_tasks - 1] if is_chain else list(graph)
    dask.threaded.get(graph, last, num_workers=_N_THREADS)
    return (time.perf_counter() - began_s) * 1e6 / n_tasks
