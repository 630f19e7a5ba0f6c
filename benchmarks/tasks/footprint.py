"""What tasks cost in memory: while they wait, when they are complete, and in programs that make very many of them."""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.tasks.generating import make_clauses, null
from benchmarks.tasks.shapes import make_steps, n_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STATM = Path("/proc/self/statm")
_WAIT_EVERY = 10_000
_SAMPLES = 100
_SETTLED = 10
"""Samples before the one that growth is counted from: what a runtime needs at all, it has by then."""


def live_and_finished(shapes: Sequence[str], n_tasks: int) -> dict[str, dict[str, float]]:
    """Measure the bytes that Python allocates for a task that waits, and what is left of one that is complete.

    Live tasks are held back by a task whose event is fulfilled later: each has a dependence on that one besides those
    of its shape. Nobody holds the tasks, and the garbage collector is off.

    Returns
    -------
    dict
        By shape: ``tasks``; ``live_nbytes`` and ``finished_nbytes``, bytes a task.
    """
    found = {}
    for shape in shapes:
        steps = make_steps(shape, n_tasks)
        clauses = make_clauses(steps, [np.zeros(8) for _ in range(n_cells(steps))])
        found[shape] = {
            "tasks": len(steps),
            "live_nbytes": _traced(clauses, is_held=True) / len(steps),
            "finished_nbytes": _traced(clauses, is_held=False) / len(steps),
        }
    return found


def _traced(clauses: Sequence[list[Any]], *, is_held: bool) -> int:
    """Return the bytes that tasks take while an event holds them, or when all are complete."""
    gate = np.zeros(8)
    if is_held:
        clauses = [[omp.in_(gate), *depend] for depend in clauses]
    with omp.Runtime("none", num_threads=1):
        event = omp.Event()
        null.options(depend=[omp.inout(gate)], detach=event)()
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for depend in clauses:
                null.options(depend=depend)()
            if not is_held:
                event.fulfill()
                omp.taskwait()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            gc.enable()
            if is_held:
                event.fulfill()


def long_programs(n_tasks: int) -> dict[str, dict[str, Any]]:
    """Run programs of very many tasks and watch the memory of the process.

    Returns
    -------
    dict
        By program: ``tasks``; ``us``, microseconds a task; ``growth_nbytes``, what the process has most after the first
        tenth of the tasks, less what it has there, or None where the system does not tell.
    """
    item = np.zeros(8)
    chain = [omp.inout(item)]
    programs: dict[str, Callable[[int], Any]] = {
        f"chain, a taskwait every {_WAIT_EVERY:,}": lambda number: _next_of_chain(chain, number),
        "a fresh array each, no taskwait": lambda _: _after_others(np.zeros(8)),
        "a fresh token each, no taskwait": lambda number: null.options(depend=[omp.inout(("token", number))])(),
    }
    return {name: _watched(generate, n_tasks) for name, generate in programs.items()}


def _after_others(item: np.ndarray[Any, Any]) -> None:
    null.options(depend=[omp.inout(item)])()


def _next_of_chain(depend: list[Any], number: int) -> None:
    null.options(depend=depend)()
    if (number + 1) % _WAIT_EVERY == 0:
        omp.taskwait()


def _watched(generate: Callable[[int], Any], n_tasks: int) -> dict[str, Any]:
    every = max(1, n_tasks // _SAMPLES)
    samples = []
    gc.collect()
    with omp.Runtime("none", num_threads=1):
        began_s = time.perf_counter()
        for number in range(n_tasks):
            generate(number)
            if number % every == every - 1:
                samples.append(_resident_nbytes())
        omp.taskwait()
        us = (time.perf_counter() - began_s) * 1e6 / n_tasks
    settled = [sample for sample in samples[min(_SETTLED, len(samples)) - 1 :] if sample is not None]
    return {"tasks": n_tasks, "us": us, "growth_nbytes": max(settled) - settled[0] if settled else None}


def _resident_nbytes() -> int | None:
    """Return the memory of the process that is in use, where the system tells as Linux does."""
    if not _STATM.exists():
        return None
    return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
