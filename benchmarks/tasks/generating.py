"""Tasks made as a user makes them: ``fn.options(depend=[…])()`` in a loop, then a ``taskwait``."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

import offload as omp

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from benchmarks.tasks.shapes import Step

    Items = Sequence[np.ndarray[Any, Any]]


@omp.task
def null() -> None:
    """Do nothing."""


def make_clauses(steps: Sequence[Step], items: Items) -> list[list[Any]]:
    """Return the value of the ``depend`` clause of each task, for cells that stand for these arrays."""
    return [
        [omp.in_(*(items[cell] for cell in step.reads)), omp.inout(items[step.updates])]
        if step.reads
        else [omp.inout(items[step.updates])]
        for step in steps
    ]


def eager_us(clauses: Sequence[list[Any]], num_threads: int) -> float:
    """Generate null tasks with these clauses, wait for them, and return the microseconds a task."""
    with omp.Runtime("none", num_threads=num_threads):
        gc.collect()
        began_s = time.perf_counter()
        for depend in clauses:
            null.options(depend=depend)()
        omp.taskwait()
        return (time.perf_counter() - began_s) * 1e6 / len(clauses)


def eager_with_clauses_us(steps: Sequence[Step], items: Items, num_threads: int) -> float:
    """Do the same with the clauses made in the loop too."""
    named = [([items[cell] for cell in step.reads], items[step.updates]) for step in steps]
    with omp.Runtime("none", num_threads=num_threads):
        gc.collect()
        began_s = time.perf_counter()
        for read, updated in named:
            if read:
                null.options(depend=[omp.in_(*read), omp.inout(updated)])()
            else:
                null.options(depend=[omp.inout(updated)])()
        omp.taskwait()
        return (time.perf_counter() - began_s) * 1e6 / len(named)


def replay_us(clauses: Sequence[list[Any]], num_threads: int) -> float:
    """Record the same tasks in a taskgraph, replay it twice, and return the microseconds a task of the second time."""

    @omp.taskgraph
    def generate() -> None:
        for depend in clauses:
            null.options(depend=depend)()

    with omp.Runtime("none", num_threads=num_threads):
        generate()
        generate()
        gc.collect()
        began_s = time.perf_counter()
        generate()
        return (time.perf_counter() - began_s) * 1e6 / len(clauses)
