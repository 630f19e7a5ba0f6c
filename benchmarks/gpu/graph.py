"""Replays of a ``taskgraph`` beside CUDA's graph of the same kernels, captured by hand, and the tasks made anew."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import offload as omp
from benchmarks.gpu import graphs
from benchmarks.harness.measuring import Section, Table, alternate, pairwise, promise
from offload import tofrom

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_OVER_CAPTURED = 1.2

CAPTURED, REPLAY, MAPPED = "CuPy's captured graph", "taskgraph, device arrays", "taskgraph, mapped arrays"
ON_STREAMS, EAGER = "taskgraph with a host task in it", "tasks made anew"


@omp.task
def nothing() -> None:
    """Do nothing on the host: a region with such a task cannot be one graph of CUDA."""


def measure(peer: ModuleType, repeat: int) -> Section:
    """Measure graphs of 1,000 device tasks.

    Parameters
    ----------
    peer : module
        ``benchmarks/gpu/tasks_cupy.py``.
    repeat : int
        Turns.
    """
    table = Table(f"{graphs.N_TASKS:,} device tasks replayed, µs a task until the last kernel has ended")
    over: dict[str, list[float]] = {}
    for shape in graphs.N_CELLS:
        runs = _measure_shape(shape, peer, repeat)
        for name, times in runs.items():
            table.rows.setdefault(name, {})[shape] = [one * 1e6 / graphs.N_TASKS for one, _ in times]
        for name in (REPLAY, MAPPED):
            over[f"{shape}, {name}"] = pairwise(table.rows[name][shape], table.rows[CAPTURED][shape])
    return Section({"graph": table}, [promise("taskgraph / CuPy's captured graph", over, _OVER_CAPTURED)])


def _measure_shape(shape: str, peer: ModuleType, repeat: int) -> dict[str, list[graphs.Times]]:
    bodies = graphs.make_bodies(peer)
    on_device, on_host = graphs.device_arrays(shape), graphs.host_arrays(shape)
    captured = peer.captured(shape, on_device, graphs.N_TASKS)
    (stream,) = peer.new_streams(1)
    generate = graphs.prepared(shape, bodies, on_device)
    calls: dict[str, Callable[[], Any]] = {
        CAPTURED: partial(peer.replay, captured, stream),
        REPLAY: partial(_timed, omp.taskgraph(generate)),
        MAPPED: partial(_timed, omp.taskgraph(graphs.prepared(shape, bodies, on_host))),
        ON_STREAMS: partial(_timed, omp.taskgraph(_with_host_task(generate))),
        EAGER: partial(graphs.timed, generate),
    }
    with omp.target_data(map=[tofrom(*on_host)]):
        for name, call in calls.items():
            call()  # the first call of a taskgraph records, and the first replay may be captured
            omp.target_update(from_=on_host)
            arrays = on_host if name == MAPPED else on_device
            graphs.check(partial(_updated, call, on_host), shape, arrays, f"{shape}, {name}")
        found = alternate(calls, repeat)
    for x in on_device:
        omp.target_free(x)
    return found


def _with_host_task(generate: Callable[[], None]) -> Callable[[], None]:
    def region() -> None:
        nothing()
        generate()

    return region


def _updated(call: Callable[[], object], on_host: list[Any]) -> None:
    """Call, and bring the mapped arrays back to the host."""
    call()
    omp.target_update(from_=on_host)


def _timed(replay: Callable[[], None]) -> graphs.Times:
    """Call a taskgraph, which waits for its tasks; return the seconds twice."""
    began_s = time.perf_counter()
    replay()
    took_s = time.perf_counter() - began_s
    return took_s, took_s
