"""Loops on the host's threads beside Numba's, and what a short one costs to call."""

from __future__ import annotations

import importlib.util
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from benchmarks.harness.programs import load_peer
from benchmarks.loops import programs

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_THREADS = 2
_UNCHECKED_AT_LEAST, _CHECKED_AT_LEAST = 0.95, 0.80
_SHORT_US, _N_SHORT, _N_CALLS = 15.0, 64, 200

UNCHECKED, CHECKED, PEER = "parallel_loop, bounds=False", "parallel_loop", "Numba"
CALLS = "parallel_loop", "a task that does nothing"
BEYOND = "the loop, beyond the task"


def measure(repeat: int, scale: float = 1.0) -> Section:
    """Measure five loops on two threads, and a loop of 64 iterations.

    Parameters
    ----------
    repeat : int
        Turns.
    scale : float
        Of the sizes, for a quick look.
    """
    peer = load_peer("loops.loops_numba") if importlib.util.find_spec("numba") is not None else None
    if peer is not None:
        peer.set_threads(_THREADS)
    with omp.Runtime("none", num_threads=_THREADS):
        kernels, targets = _kernels(peer, repeat, scale)
        call = _calls(repeat)
    over = call.rows[BEYOND]
    targets.append(promise("a loop of 64 iterations beyond a task, µs", over, _SHORT_US))
    return Section({"host": kernels, "host_call": call}, targets)


def _kernels(peer: ModuleType | None, repeat: int, scale: float) -> tuple[Table, list[Any]]:
    table = Table(f"Loops on {_THREADS} threads of the host, ms a call")
    if peer is None:
        table.note = "Numba, the peer, cannot be imported here and is left out."
    found: dict[str, dict[str, list[float]]] = {UNCHECKED: {}, CHECKED: {}}
    for case in programs.cases(scale):
        calls: dict[str, Callable[..., object]] = {
            UNCHECKED: case.function.options(bounds=False),
            CHECKED: case.function,
        }
        if peer is not None:
            calls[PEER] = getattr(peer, case.name)
        for name, call in calls.items():
            expect(case.is_right(call), f"{case.name}, {name}")
        runs = alternate({name: partial(_timed_s, call, case.arguments) for name, call in calls.items()}, repeat)
        for name, samples in runs.items():
            table.rows.setdefault(name, {})[case.name] = [one * 1e3 for one in samples]
        for name in found if peer is not None else ():
            found[name][case.name] = pairwise(runs[PEER], runs[name])
    if peer is None:
        return table, []
    for name, ratios in found.items():
        table.rows[f"Numba / {name}"] = ratios
    return table, [
        promise("Numba / parallel_loop, bounds=False", found[UNCHECKED], _UNCHECKED_AT_LEAST, at_least=True),
        promise("Numba / parallel_loop", found[CHECKED], _CHECKED_AT_LEAST, at_least=True),
    ]


def _calls(repeat: int) -> Table:
    """Measure calls of a loop of 64 iterations beside tasks that do nothing."""
    x = np.zeros(_N_SHORT)

    def nothing(array: Any) -> None:
        """Do nothing."""

    task = omp.task(if_=False)(nothing)
    calls = dict(zip(CALLS, (programs.short, task), strict=True))
    for call in calls.values():
        call(x)
    expect((x == np.arange(_N_SHORT)).all(), "short")
    runs = alternate({name: partial(_several_us, call, x) for name, call in calls.items()}, repeat)
    table = Table(f"A loop of {_N_SHORT} iterations, µs a call", {name: {"µs": runs[name]} for name in calls})
    beyond = [ours - null for ours, null in zip(*(runs[name] for name in CALLS), strict=True)]
    table.rows[BEYOND] = {"µs": beyond}
    return table


def _timed_s(call: Callable[..., object], arguments: tuple[Any, ...]) -> float:
    began_s = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began_s


def _several_us(call: Callable[..., object], x: Any) -> float:
    began_s = time.perf_counter()
    for _ in range(_N_CALLS):
        call(x)
    return (time.perf_counter() - began_s) * 1e6 / _N_CALLS
