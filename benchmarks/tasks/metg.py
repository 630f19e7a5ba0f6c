"""METG(50 %): the length of task at which a graph keeps the processors half busy, the smallest that is worth a task.

The tasks are NumPy's: a sine over so many elements, which lets other threads run meanwhile. Two processors can do a
graph in max(critical path, work / 2) at best; that, divided by the time measured, is the efficiency. The length of a
task is what its body takes when it is called in a loop, measured just before. Every turn runs every length under every
contestant, so that what else the machine does falls on all of them. METG lies between the shortest length that keeps
one half and the next shorter one, by the logarithm of the length. Two workers besides the thread that generates are one
thread more than processors, as in the default runtime.
"""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import offload as omp
from benchmarks.harness.timing import spread
from benchmarks.tasks import generating
from benchmarks.tasks.shapes import longest_path, make_steps, n_cells, predecessors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.tasks.shapes import Step

SHAPES = ("chain", "stencil")

_N_PROCESSORS = 2
_HALF = 0.5
_RUN_US = 30_000
_CALLS_US = 5_000
"""A run has as many tasks as take about 30 ms, within the limits of its contestant; the body alone is called for 5."""


class _Contestant(NamedTuple):
    """Who runs the graph, and the lengths and numbers of tasks that suit it."""

    run_s: Callable[[Sequence[Step], int], float]
    longest_us: float
    shortest_us: float
    least_tasks: int
    most_tasks: int


@dataclass(slots=True)
class _Trial:
    """Tasks of one length under one contestant, and what each turn found."""

    run_s: Callable[[Sequence[Step], int], float]
    steps: Sequence[Step]
    n_elements: int
    n_calls: int
    lengths_us: list[float] = field(default_factory=list)
    efficiencies: list[float] = field(default_factory=list)

    def run(self) -> None:
        parallelism = min(_N_PROCESSORS, len(self.steps) / longest_path(predecessors(self.steps)))
        body_us = _body_us(self.n_elements, self.n_calls)
        took_us = self.run_s(self.steps, self.n_elements) * 1e6
        self.lengths_us.append(body_us)
        self.efficiencies.append(body_us * len(self.steps) / parallelism / took_us)


class _Results(threading.local):
    """Where the bodies of a thread write, so that threads do not write to the same cache lines."""

    def __init__(self) -> None:
        self.array = np.empty(0)


_results = _Results()
_angles = np.linspace(0.0, 1.0, 1 << 14)


def busy(n_elements: int, *_: object) -> None:
    """Compute for a time that grows with the number of elements, without the GIL where NumPy gives it up."""
    global _angles  # noqa: PLW0603  # as long as the longest task so far; a cluster sends the name of this function only
    if len(_angles) < n_elements:
        _angles = np.linspace(0.0, 1.0, n_elements)
    if len(_results.array) < n_elements:
        _results.array = np.empty(n_elements)
    np.sin(_angles[:n_elements], out=_results.array[:n_elements])


_busy_task = omp.task(busy)


def measure(repeat: int, scale: float) -> dict[str, Any]:
    """Measure `offload` with one and with two workers, Dask's threaded scheduler and `distributed`.

    Parameters
    ----------
    repeat : int
        Turns.
    scale : float
        In (0, 1]: of the usual number of tasks in a run.

    Returns
    -------
    dict
        ``two_threads``, the spread of how much more two threads do than one, which is below 2 where the machine has
        other work. ``shapes``: by shape and contestant ``metg_us``, and ``points``, one for each length, with
        ``length_us``, ``tasks`` and the spread of the ``efficiency``. ``metg_us`` is None where the longest tasks are
        not worth it, and the shortest length where all are.
    """
    elements_per_us = 100_000 / _body_us(100_000, 10)
    trials = {
        shape: {name: _trials(shape, one, elements_per_us, scale) for name, one in _contestants().items()}
        for shape in SHAPES
    }
    speedups = []
    for turn in range(-1, repeat):  # the first one warms up
        speedups.append(_speedup())
        for trial in (trial for of_shape in trials.values() for several in of_shape.values() for trial in several):
            trial.run()
            if turn < 0:
                trial.lengths_us.clear()
                trial.efficiencies.clear()
    return {
        "two_threads": spread(speedups[1:]),
        "shapes": {
            shape: {name: _found([_point(trial) for trial in several]) for name, several in of_shape.items()}
            for shape, of_shape in trials.items()
        },
    }


def _trials(shape: str, contestant: _Contestant, elements_per_us: float, scale: float) -> list[_Trial]:
    """Return what to try, from long to short, each half as long as the one before."""
    found = []
    length_us = contestant.longest_us
    while length_us >= contestant.shortest_us:
        n_tasks = min(max(int(_RUN_US / length_us), contestant.least_tasks), contestant.most_tasks)
        steps = make_steps(shape, max(8, int(n_tasks * scale)))
        n_elements, n_calls = max(1, int(length_us * elements_per_us)), max(2, int(_CALLS_US / length_us))
        found.append(_Trial(contestant.run_s, steps, n_elements, n_calls))
        length_us /= 2
    return found


def _point(trial: _Trial) -> dict[str, Any]:
    return {
        "length_us": median(trial.lengths_us),
        "tasks": len(trial.steps),
        "efficiency": spread(trial.efficiencies),
    }


def _found(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the points with the METG that they tell."""
    worth_it = [number for number, point in enumerate(points) if point["efficiency"]["median"] >= _HALF]
    if not worth_it:
        return {"metg_us": None, "points": points}
    shortest = worth_it[-1]
    if shortest == len(points) - 1:
        return {"metg_us": points[shortest]["length_us"], "points": points}
    return {"metg_us": _crossing_us(points[shortest], points[shortest + 1]), "points": points}


def _speedup() -> float:
    """Return how much more work two threads do in a time than one does: 2 where two processors are free."""
    n_elements, n_calls = 100_000, 30
    alone_us = _body_us(n_elements, n_calls)
    thread = threading.Thread(target=_body_us, args=(n_elements, n_calls))
    began_s = time.perf_counter()
    thread.start()
    _body_us(n_elements, n_calls)
    thread.join()
    return 2 * alone_us * n_calls / ((time.perf_counter() - began_s) * 1e6)


def _contestants() -> dict[str, _Contestant]:
    from benchmarks.tasks import peers  # imports Dask

    return {
        "offload_1": _Contestant(lambda steps, n: _ours_s(steps, n, 1), 100, 1.5, 200, 2_000),
        "offload_2": _Contestant(lambda steps, n: _ours_s(steps, n, 2), 100, 1.5, 200, 2_000),
        "dask_threaded": _Contestant(
            lambda steps, n: peers.threaded_s(predecessors(steps), busy, n), 1_600, 25, 96, 400
        ),
        "distributed": _Contestant(
            lambda steps, n: peers.distributed_s(predecessors(steps), busy, n), 12_800, 800, 32, 64
        ),
    }


def _ours_s(steps: Sequence[Step], n_elements: int, num_threads: int) -> float:
    """Generate the graph eagerly, with the clauses made before, and return the seconds it took."""
    clauses = generating.make_clauses(steps, [np.zeros(8) for _ in range(n_cells(steps))])
    with omp.Runtime("none", num_threads=num_threads):
        gc.collect()
        began_s = time.perf_counter()
        for depend in clauses:
            _busy_task.options(depend=depend)(n_elements)
        omp.taskwait()
        return time.perf_counter() - began_s


def _body_us(n_elements: int, n_calls: int) -> float:
    """Call the body in a loop and return the microseconds a call."""
    busy(n_elements)
    began_s = time.perf_counter()
    for _ in range(n_calls):
        busy(n_elements)
    return (time.perf_counter() - began_s) * 1e6 / n_calls


def _crossing_us(above: dict[str, Any], below: dict[str, Any]) -> float:
    """Return the length at which the efficiency is one half, between a point above that and one below."""
    high, low = above["efficiency"]["median"], below["efficiency"]["median"]
    share = (high - _HALF) / (high - low)
    return float(above["length_us"] * (below["length_us"] / above["length_us"]) ** share)
