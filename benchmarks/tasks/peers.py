"""The same graphs under Dask: its threaded and its synchronous scheduler, and `distributed` in this process.

The time is from the first task that is made to the last that is complete, as for ours. The graph is made of Dask's own
task objects, the cheapest way there is. The schedulers get two threads, which is what the machine of the project's
targets has cores.
"""

from __future__ import annotations

import gc
import logging
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import dask.config
import dask.local
import dask.threaded
from dask.task_spec import Task, TaskRef
from distributed import Client

from benchmarks.tasks.shapes import last_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Before = Sequence[Sequence[int]]
    Body = Callable[..., None]

_N_THREADS = 2
_run_numbers = count()
"""Part of the keys: a cluster takes an equal key for a result that it may still have."""

_QUIET = {"distributed.worker.profile.enabled": False}
"""Its profiler looks at the threads every 10 ms, which is no part of a task."""


def _nothing(*_: object) -> None:
    """Do nothing, after what the arguments stand for."""


def make_graph(before: Before, body: Body = _nothing, *args: Any) -> tuple[dict[Any, Any], list[Any]]:
    """Return Dask's graph of tasks that call ``body(*args, …)``, and the keys of the last ones.

    Parameters
    ----------
    before : sequence of sequences of int
        The predecessors of each task.
    body : callable
        Takes ``args``, and the results of its predecessors after them.
    *args
        For the body.
    """
    run = next(_run_numbers)
    graph = {
        (run, number): Task((run, number), body, *args, *(TaskRef((run, one)) for one in numbers))
        for number, numbers in enumerate(before)
    }
    return graph, [(run, number) for number in last_tasks(before)]


def threaded_s(before: Before, *work: Any) -> float:
    """Run a graph by Dask's threaded scheduler and return the seconds it took; ``work`` as for `make_graph`."""
    gc.collect()
    began_s = time.perf_counter()
    graph, keys = make_graph(before, *work)
    dask.threaded.get(graph, keys, num_workers=_N_THREADS)
    return time.perf_counter() - began_s


def synchronous_s(before: Before) -> float:
    """Run a graph by Dask's synchronous scheduler and return the seconds it took."""
    gc.collect()
    began_s = time.perf_counter()
    graph, keys = make_graph(before)
    dask.local.get_sync(graph, keys)
    return time.perf_counter() - began_s


def distributed_s(before: Before, *work: Any) -> float:
    """Run a graph by a cluster in this process, with one worker, and return the seconds it took."""
    with client() as cluster:
        gc.collect()
        began_s = time.perf_counter()
        graph, keys = make_graph(before, *work)
        cluster.get(graph, keys)
        return time.perf_counter() - began_s


@contextmanager
def client() -> Iterator[Any]:
    """Open a cluster in this process, with one worker."""
    with (
        dask.config.set(_QUIET),
        Client(  # type: ignore[no-untyped-call]  # it has no types
            processes=False,
            n_workers=1,
            threads_per_worker=_N_THREADS,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            set_as_default=False,
        ) as cluster,
    ):
        yield cluster


def between_two_us(cluster: Any) -> float:
    """Return the microseconds from the end of a function to the beginning of one that depends on it."""
    run = next(_run_numbers)
    first, second = (run, 0), (run, 1)
    graph = {first: Task(first, time.perf_counter), second: Task(second, _since_s, TaskRef(first))}
    return float(cluster.get(graph, second)) * 1e6


def _since_s(then_s: float) -> float:
    return time.perf_counter() - then_s
