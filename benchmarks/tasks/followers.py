"""How soon a host task follows device work: eager, and in a recorded graph under each of Dask's schedulers."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.timing import alternate
from offload import inout, tofrom

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness.timing import Spread

_N_PAIRS = 20
"""Pairs in a turn, the sample is the median; as many recorded graphs, each of which is computed once."""

_WORK_S = 1e-3
"""How long the device works: longer than it takes to enqueue that, so that somebody has to notice the end."""


def measure(repeat: int) -> dict[str, Any]:
    """Return the device, and by what runs the tasks µs from the end of the work to the first line of the task.

    The device is the first of a runtime as the environment has it: a CUDA device where there is one, else a simulated
    one. The work is a function that its stream calls, and which notes when it ends. ``distributed_alone`` is the time
    between two functions of Dask's own, without us.
    """
    from benchmarks.tasks import peers  # imports Dask

    with omp.Runtime(num_threads=1), peers.client() as client:
        pair = _Pair()
        with omp.target_data(map=[tofrom(pair.item)]):
            calls: dict[str, Callable[[], float]] = {
                "eager": partial(pair.median_us, pair.run),
                "compute_synchronous": partial(pair.median_us, partial(pair.compute, "synchronous")),
                "compute_threads": partial(pair.median_us, partial(pair.compute, "threads")),
                "compute_distributed": partial(pair.median_us, partial(pair.compute, client)),
                "distributed_alone": lambda: median(peers.between_two_us(client) for _ in range(_N_PAIRS)),
            }
            runs: dict[str, Spread] = alternate(calls, repeat)
        return {"device": omp.device(0).name if omp.get_num_devices() else "host", "pairs": _N_PAIRS, "runs": runs}


class _Pair:
    """Device work, and a host task that depends on it."""

    def __init__(self) -> None:
        self.item = np.zeros(8)
        self._ended_s = 0.0
        self._late_s = 0.0
        self._work = omp.target(self._enqueue).options(nowait=True, depend=[inout(self.item)])
        self._follow = omp.task(self._note).options(depend=[inout(self.item)])

    def _enqueue(self, _: Any) -> None:
        omp.current_stream().launch_host_func(self._last, None)

    def _last(self, _: object) -> None:
        time.sleep(_WORK_S)
        self._ended_s = time.perf_counter()

    def _note(self) -> None:
        self._late_s = time.perf_counter() - self._ended_s

    def run(self) -> None:
        """Generate both and wait."""
        self._work(self.item)
        self._follow()
        omp.taskwait()

    def compute(self, scheduler: Any) -> None:
        """Run both as a graph."""
        with omp.record(execute=False) as graph:
            self.run()
        graph.compute(scheduler)

    def median_us(self, call: Callable[[], None]) -> float:
        """Return how long after the end of the work the task begins."""
        found = []
        for _ in range(_N_PAIRS):
            call()
            found.append(self._late_s)
        return median(found) * 1e6
