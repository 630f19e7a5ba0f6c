"""Loops that carry scalars: in order beside serial C, and scans on a CUDA device beside copies and CuPy's `cumsum`."""

from __future__ import annotations

import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from benchmarks.harness.programs import load_peer
from benchmarks.loops.serial import SerialLoops
from offload.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from types import ModuleType

    from benchmarks.harness.measuring import Target

_IN_ORDER_AT_MOST, _OF_COPY_AT_LEAST = 1.1, 0.6
_N_IN_ORDER, _N_SCANNED = 1 << 24, 1 << 26
_TIMES = 20  # calls of a turn on a device
_DTYPES = ("int64", "float64", "int32", "float32")

SERIAL, IN_ORDER, PARALLEL = "serial C", "seq=True", "parallel_loop"
COPY, CUMSUM, OURS = "copy", "cupy.cumsum", "target_loop"


@omp.target_loop(reassociate=True)
def running_sum(x: Any, y: Any) -> None:
    """Sum up."""
    s = 0
    for i in range(x.size):
        s += x[i]
        y[i] = s


@omp.parallel_loop(seq=True)
def smoothed(x: Any, y: Any) -> None:
    """Filter by a recurrence that is no scan."""
    s = 0.0
    for i in range(x.size):
        s = 0.5 * (s + x[i])
        y[i] = s


def measure(repeat: int, scale: float = 1.0) -> Section:
    """Measure loops in order on the host, and scans on a CUDA device if there is one.

    Parameters
    ----------
    repeat : int
        Turns.
    scale : float
        Of the sizes, for a quick look.
    """
    tables: dict[str, Table] = {}
    targets: list[Target] = []
    if shutil.which("gcc") is not None:
        with omp.Runtime("none"):
            tables["in_order"], target = _in_order(repeat, max(int(_N_IN_ORDER * scale), 1000))
        targets.append(target)
    try:
        runtime = omp.Runtime("cuda:0")
    except DeviceUnavailableError:
        return Section(tables, targets)
    with runtime:
        tables["scans"], target = _scans(repeat, max(int(_N_SCANNED * scale), 1000), load_peer("loops.loops_cupy"))
    return Section(tables, [*targets, target])


def _in_order(repeat: int, n: int) -> tuple[Table, Target]:
    serial = SerialLoops()
    table = Table(f"Loops that carry a scalar, {n:,} elements on the host, ms a call")
    summed = omp.parallel_loop(running_sum.python)
    cases = {
        "sum of doubles": (serial.running_sum, omp.parallel_loop(running_sum.python, seq=True), None, "float64"),
        "sum of integers": (serial.running_count, omp.parallel_loop(running_sum.python, seq=True), summed, "int64"),
        "filter": (serial.smoothed, smoothed, None, "float64"),
    }
    ratios = {}
    for label, (by_hand, in_order, parallel, dtype) in cases.items():
        x = np.random.default_rng(1).integers(0, 9, n).astype(dtype)
        calls = {SERIAL: by_hand, IN_ORDER: in_order} | ({PARALLEL: parallel} if parallel else {})
        expected = np.zeros(n, dtype)
        by_hand(x, expected)
        timed = {}
        for name, call in calls.items():
            y = np.zeros(n, dtype)
            call(x, y)
            expect(np.array_equal(y, expected), f"{label}, {name}")
            timed[name] = partial(_timed_ms, call, x, y)
        for name, samples in alternate(timed, repeat).items():
            table.rows.setdefault(name, {})[label] = samples
        ratios[label] = pairwise(table.rows[IN_ORDER][label], table.rows[SERIAL][label])
    table.rows[f"{IN_ORDER} / {SERIAL}"] = ratios
    return table, promise(f"{IN_ORDER} / {SERIAL}", ratios, _IN_ORDER_AT_MOST)


def _timed_ms(call: Any, *arguments: Any) -> float:
    began_s = time.perf_counter()
    call(*arguments)
    return (time.perf_counter() - began_s) * 1e3


def _scans(repeat: int, n: int, peers: ModuleType) -> tuple[Table, Target]:
    cupy = peers.cupy
    table = Table(f"Running sums of {n:,} elements on a CUDA device, GB/s of reads and writes")
    ours = running_sum.options(nowait=True, depend=[omp.inout("y")])
    ratios = {}
    for dtype in _DTYPES:
        x, y = cupy.random.default_rng(1).integers(0, 9, n).astype(dtype), cupy.zeros(n, dtype)
        calls = {COPY: partial(cupy.copyto, y, x), CUMSUM: partial(cupy.cumsum, x, out=y), OURS: partial(ours, x, y)}
        expected = cupy.cumsum(x)
        for name in (CUMSUM, OURS):
            y[...] = 0
            calls[name]()
            omp.taskwait()
            expect(bool(cupy.allclose(y, expected, rtol=1e-4 if dtype == "float32" else 1e-10)), f"{dtype}, {name}")
        rate = partial(_rate, peers, 2 * x.nbytes)
        for name, samples in alternate({name: partial(rate, call) for name, call in calls.items()}, repeat).items():
            table.rows.setdefault(name, {})[dtype] = samples
        ratios[dtype] = pairwise(table.rows[OURS][dtype], table.rows[COPY][dtype])
    table.rows[f"{OURS} / {COPY}"] = ratios
    return table, promise(f"{OURS} / {COPY}", ratios, _OF_COPY_AT_LEAST, at_least=True)


def _rate(peers: ModuleType, nbytes: int, call: Any) -> float:
    """Return GB/s of calls that follow each other."""
    peers.synchronize()
    began_s = time.perf_counter()
    for _ in range(_TIMES):
        call()
    omp.taskwait()
    peers.synchronize()
    return nbytes * _TIMES / (time.perf_counter() - began_s) / 1e9
