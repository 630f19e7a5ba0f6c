"""What regions, hops and copies on the workers of a cluster take, and what that means for many workers."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from offload import in_, inout, out, to, tofrom
from offload.cli.demo.examples import load_example

if TYPE_CHECKING:
    from collections.abc import Callable

_CHAIN, _QUICK_CHAIN = 2000, 200
_HOPS, _QUICK_HOPS = 20, 4
_NBYTES, _QUICK_NBYTES = 64 << 20, 2 << 20
_SEGMENTS, _MOST_SEGMENTS = (1, 10, 100), 20
_HOP_S, _SCHEDULER_S = 7e-3, 0.5e-3
"""Of the model: a step from worker to worker, and the scheduler's time for a segment on a machine of its own."""


@omp.target
def nothing(_: Any) -> None:
    """Do nothing with an array that stays."""


@omp.target
def add(x: Any) -> None:
    x += 1


@omp.target
def later(_: Any) -> None:
    time.sleep(30)


def bare(*_: Any) -> None:
    """Do nothing, as a task of Dask's."""


def timed(call: Callable[[], Any], n: int = 1, unit: float = 1e3) -> Callable[[], float]:
    """Return a function that calls, and returns the milliseconds of one of ``n`` steps."""

    def run() -> float:
        begin_s = time.perf_counter()
        call()
        return (time.perf_counter() - begin_s) * unit / n

    return run


class Bench:
    """The measurements on one cluster, whose runtime is current."""

    def __init__(self, client: Any, repeat: int, *, is_quick: bool) -> None:
        self._client = client
        self._repeat = repeat
        self._is_quick = is_quick
        self._workers = [device.worker for device in omp.devices()]
        self._is_cuda = "/cuda" in omp.device(0).name

    # -- sections --------------------------------------------------------------------------------------
    def regions(self) -> Section:
        """Measure a region that the program waits for, on an idle cluster."""
        x = np.zeros(100)
        with omp.target_data(map=[tofrom(x)]):
            runs = alternate(
                {
                    "data stays": timed(lambda: nothing(x)),
                    "a bare task": timed(lambda: self._client.submit(bare, pure=False).result()),
                },
                self._repeat,
            )
        mapped = alternate({"100 numbers there and back": timed(lambda: add(x))}, self._repeat)
        rows = {name: {"ms": samples} for name, samples in (runs | mapped).items()}
        section = Section({"regions": Table("A region that is waited for, ms", rows)})
        ratio = pairwise(runs["data stays"], runs["a bare task"])
        section.targets.append(promise("a blocking region / a bare task", {"data stays": ratio}, 1.3))
        return section

    def chains(self) -> Section:
        """Measure chains of regions: eager on one worker, and recorded, in turn on two workers, so many a segment."""
        n = _QUICK_CHAIN if self._is_quick else _CHAIN
        data = [np.zeros(100) for _ in range(2)]
        calls: dict[str, Callable[[], float]] = {}
        with omp.target_data(map=[to(data[0])], device=0), omp.target_data(map=[to(data[1])], device=1):
            calls["eager, one worker"] = timed(lambda: _chain(data[0], n), n)
            for each in (*_SEGMENTS, n):
                length = min(n, each * _MOST_SEGMENTS)
                graph = _recorded(data, length, each)
                name = f"recorded, {each} a segment" if each < n else "recorded, one worker"
                calls[name] = timed(partial(graph.compute, self._client), length)
            runs = alternate(calls, self._repeat)
        rows = {name: {"ms": one} for name, one in runs.items()}
        section = Section({"chains": Table(f"A region of a chain of at most {n:,}, ms", rows)})
        section.targets.append(promise("an eager region of a chain, ms", {"eager": runs["eager, one worker"]}, 0.2))
        recorded = {"recorded": runs[f"recorded, {_SEGMENTS[-1]} a segment"]}
        section.targets.append(promise("100 recorded regions a segment, ms each", recorded, 0.12))
        return section

    def hops(self) -> Section:
        """Measure steps from worker to worker, each of which waits for the one before."""
        n = _QUICK_HOPS if self._is_quick else _HOPS
        token = ("hop", 0)
        data = [np.zeros(10) for _ in range(2)]
        arrays = [omp.target_alloc(100, device=number) for number in range(2)]

        def ours() -> None:
            for k in range(n):
                nothing.options(nowait=True, device=k % 2, depend=[inout(token)])(data[k % 2])
            omp.taskwait()

        def copies() -> None:
            for k in range(n):
                dst, src = arrays[k % 2], arrays[1 - k % 2]
                omp.copy(dst, src, depend=[in_(src), out(dst)], nowait=True)
            omp.taskwait()

        def theirs() -> None:
            future = None
            for k in range(n):
                future = self._client.submit(bare, future, pure=False, workers=[self._workers[k % 2]])
            future.result()

        with omp.target_data(map=[to(data[0])], device=0), omp.target_data(map=[to(data[1])], device=1):
            runs = alternate(
                {"a region": timed(ours, n), "a copy": timed(copies, n), "a bare task": timed(theirs, n)}, self._repeat
            )
        for array in arrays:
            omp.target_free(array)
        section = Section(
            {"hops": Table("A step from worker to worker, ms", {name: {"ms": one} for name, one in runs.items()})}
        )
        ratio = pairwise(runs["a region"], runs["a bare task"])
        section.targets.append(promise("a hop / a bare dependent task on another worker", {"a region": ratio}, 1.3))
        return section

    def data(self) -> Section:
        """Measure data to a worker and back."""
        nbytes = _QUICK_NBYTES if self._is_quick else _NBYTES
        x = np.ones(nbytes // 8)

        def theirs() -> None:
            future = self._client.scatter(x, workers=[self._workers[0]], direct=True, hash=False)
            self._client.gather(future, direct=True)

        runs = alternate({"mapped tofrom": timed(lambda: nothing(x)), "scatter, gather": timed(theirs)}, self._repeat)
        section = Section(
            {
                "data": Table(
                    f"{nbytes >> 20} MB to a worker and back, ms", {name: {"ms": one} for name, one in runs.items()}
                )
            }
        )
        ratio = pairwise(runs["mapped tofrom"], runs["scatter, gather"])
        section.targets.append(promise("there and back / bare scatter and gather", {"mapped tofrom": ratio}, 1.15))
        return section

    def cholesky(self) -> Section:
        """Measure the example's Cholesky on the workers, and on as many devices of this process."""
        size, tile = (256, 64) if self._is_quick else (16384, 1024) if self._is_cuda else (2048, 256)
        b = np.random.default_rng(1).standard_normal((size, size))
        a = b @ b.T + size * np.eye(size)
        example = load_example("cluster_cholesky")
        n = len(self._workers)
        names = f"cuda:{','.join(map(str, range(n)))}" if self._is_cuda else f"sim:{n}"
        factors: list[Any] = []

        def there() -> float:
            factors[:] = [a.copy(), *factors[:1]]
            return timed(lambda: example.cholesky(factors[0], tile))()

        def here() -> float:
            with omp.Runtime(names):
                return there()

        runs = alternate({"one process": here, "workers": there}, self._repeat)
        expect(np.allclose(*map(np.tril, factors)), "the factor")
        rows = {name: {"ms": samples} for name, samples in runs.items()}
        where = "GPUs" if self._is_cuda else "simulated devices"
        return Section({"cholesky": Table(f"Cholesky of {size:,} rows, tiles of {tile:,}, {n} {where}, ms", rows)})

    def losses(self) -> Section:
        """Measure how soon a killed worker is reported, and how soon its device is usable again."""
        lost, recovered = [], []
        for _ in range(1 if self._is_quick else min(5, self._repeat)):
            device = omp.device(0)
            task = later.options(nowait=True, device=0)(np.zeros(3))
            time.sleep(0.1)
            os.kill(self._client.run(os.getpid)[device.worker], signal.SIGKILL)
            begin_s = time.perf_counter()
            expect(isinstance(task.exception(), omp.DeviceLostError), "a killed worker")
            lost.append((time.perf_counter() - begin_s) * 1e3)
            device.recover()
            recovered.append((time.perf_counter() - begin_s) * 1e3)
        rows = {"the task has failed": {"ms": lost}, "the device is recovered": {"ms": recovered}}
        section = Section({"losses": Table("After a kill, ms", rows)})
        section.targets.append(promise("a lost worker is reported, ms", {"kill": lost}, 500))
        return section

    def model(self, n_workers: int) -> Section:
        """Say what ``n_workers`` workers would reach, from this client's time for a region and a segment."""
        n = _QUICK_CHAIN if self._is_quick else _CHAIN
        x = np.zeros(100)
        with omp.target_data(map=[tofrom(x)]):
            runs = alternate({"plan": lambda: _planning_us(x, n)}, self._repeat)
        plan_s = median(runs["plan"]) * 1e-6
        rows: dict[str, dict[str, list[float]]] = {}
        for workers in sorted({1, 10, 100, 1000, n_workers}):
            step_s = max(workers * _SCHEDULER_S, _HOP_S)
            rows[f"{workers:,}"] = {
                "a round of segments, ms": [step_s * 1e3],
                "coupled steps a second": [1 / step_s],
                "regions of 10 ms a segment": [max(1.0, step_s / 10e-3)],
                "eager regions a second, each": [1 / plan_s / workers],
            }
        note = (
            f"The scheduler takes {_SCHEDULER_S * 1e3:g} ms for a segment and a hop {_HOP_S * 1e3:g} ms (assumed); "
            f"this client plans a region in {plan_s * 1e6:.0f} µs (measured)."
        )
        return Section({"model": Table("The model, by the number of workers", rows, note)})


def _chain(x: Any, n: int) -> None:
    region = nothing.options(nowait=True, depend=[inout(x)])
    for _ in range(n):
        region(x)
    omp.taskwait()


def _recorded(data: Any, n: int, each: int) -> Any:
    """Return a graph of a chain, of which ``each`` regions in turn are on device 0 and on device 1."""
    token = ("chain", 0)
    with omp.record(execute=False) as graph:
        for k in range(n):
            number = k // each % 2
            nothing.options(nowait=True, device=number, depend=[inout(token)])(data[number])
    return graph


def _planning_us(x: Any, n: int) -> float:
    """Return the microseconds of this thread's own time for a region."""
    region = nothing.options(nowait=True, depend=[inout(x)])
    begin_s = time.thread_time()
    for _ in range(n):
        region(x)
    took_s = time.thread_time() - begin_s
    omp.taskwait()
    return took_s / n * 1e6
