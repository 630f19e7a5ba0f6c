"""A solve whose helpers take rows of arrays beside the same text with indices written out: its time, and to compile it.

The solve is that of NAS BT along x (`blocks`): on two threads of the host, and on a CUDA device if there is one.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from benchmarks.loops import blocks, compiling

if TYPE_CHECKING:
    from collections.abc import Callable

_THREADS = 2
_AT_LEAST = 0.95
_HOST_SIDE, _CUDA_SIDE, _CHECKED_SIDE = 48, 128, 5
_FEW = 8  # lines of another grid, which has as long lines

BY_ROWS, WRITTEN_OUT = "rows as arguments", "indices written out"
LOOPS = {BY_ROWS: blocks.by_rows, WRITTEN_OUT: blocks.written_out}

_PROGRAM = """
import json, sys, time
import offload as omp
from benchmarks.loops import blocks, programs, rows

kind, what, which = sys.argv[1].split()
device = "cuda:0" if kind == "cuda" else "none"
construct = omp.target_loop if kind == "cuda" else omp.parallel_loop
with omp.Runtime(device, num_threads=2):
    construct(programs.short.python)(programs.np.zeros(1))  # what is imported and compiled once
    arguments = rows.arguments(5, 5)
    began_s = time.perf_counter()
    function = construct(collapse=2)(getattr(blocks, which).python)
    (function if what == "call" else function.source)(*arguments)
    print(json.dumps({"ms": (time.perf_counter() - began_s) * 1e3}))
"""


def measure(repeat: int, scale: float = 1.0) -> Section:
    """Measure both texts.

    Parameters
    ----------
    repeat : int
        Turns.
    scale : float
        Of the sizes, for a quick look.
    """
    tables = {"compile": _compile(repeat)}
    ratios: dict[str, list[float]] = {}
    with omp.Runtime("none", num_threads=_THREADS):
        constructs = {name: omp.parallel_loop(collapse=2)(loop.python) for name, loop in LOOPS.items()}
        _check(constructs)
        given = arguments(*[_side(_HOST_SIDE, scale)] * 2)
        tables["host"] = _solves(constructs, given, f"{_THREADS} threads of the host", repeat, ratios)
    if compiling.has_cuda():
        with omp.Runtime("cuda:0"):
            _check(LOOPS)
            given = arguments(*[_side(_CUDA_SIDE, scale)] * 2)
            with omp.target_data(map=[omp.to(array) for array in given]):
                tables["cuda"] = _solves(LOOPS, given, "a CUDA device, of present arrays", repeat, ratios)
    name = f"{WRITTEN_OUT} / {BY_ROWS}"
    return Section(tables, [promise(name, ratios, _AT_LEAST, at_least=True)])


def arguments(side: int, n_lines: int) -> tuple[Any, Any, Any]:
    """Return a grid of lines of some points: the variables, room for the blocks, and the right sides."""
    rng = np.random.default_rng(4)
    grid = n_lines, n_lines, side
    u = rng.random((*grid, 5)) + 0.5
    u[..., 4] += 3.0
    return u, np.zeros((*grid, 3, 5, 5)), rng.random((*grid, 5))


def _side(side: int, scale: float) -> int:
    return max(_CHECKED_SIDE, int(side * scale ** (1 / 3)))


def _check(loops: dict[str, Any]) -> None:
    """Compare both texts with CPython's run of the rows, and with each other."""
    expected = arguments(_CHECKED_SIDE, _CHECKED_SIDE)
    blocks.by_rows.python(*expected)
    many = arguments(_FEW * _CHECKED_SIDE, _FEW)
    results = []
    for name, loop in loops.items():
        found = arguments(_CHECKED_SIDE, _CHECKED_SIDE)
        loop(*found)
        expect(all((mine == other).all() for mine, other in zip(found, expected, strict=True)), f"the solve, {name}")
        results.append([one.copy() for one in many])
        loop(*results[-1])
    expect(all((one == other).all() for one, other in zip(*results, strict=True)), "the solve of long lines")


def _solves(
    loops: dict[str, Any], given: tuple[Any, Any, Any], where: str, repeat: int, ratios: dict[str, list[float]]
) -> Table:
    side = given[0].shape[2]
    runs = alternate({name: partial(_solved_ms, loop, given) for name, loop in loops.items()}, repeat)
    ratios[where] = pairwise(runs[WRITTEN_OUT], runs[BY_ROWS])
    runs[f"{WRITTEN_OUT} / {BY_ROWS}"] = ratios[where]
    rows = {name: {where: samples} for name, samples in runs.items()}
    return Table(f"A block-tridiagonal solve of {side} x {side} x {side} points, ms a call", rows)


def _solved_ms(loop: Callable[..., object], given: tuple[Any, Any, Any]) -> float:
    """Return what a solve takes, with the right sides that it began with."""
    u, lhs, rhs = given
    began = rhs.copy()
    if loop in LOOPS.values():  # on a device, where the array is present
        omp.target_update(to=[rhs])
    began_s = time.perf_counter()
    loop(u, lhs, rhs)
    ms = (time.perf_counter() - began_s) * 1e3
    rhs[...] = began
    return ms


def _compile(repeat: int) -> Table:
    """Measure each text in a process of its own, with a cache that is empty."""
    found: dict[str, dict[str, list[float]]] = {}
    steps = [("host source", "text to C"), ("host call", "first call")]
    if compiling.has_cuda():
        steps += [("cuda source", "text to CUDA"), ("cuda call", "first call, NVRTC")]
    for _ in range(repeat):
        for what, step in steps:
            for name, loop in LOOPS.items():
                with tempfile.TemporaryDirectory(prefix="offload-bench-") as cache:
                    took = compiling.in_a_process(_PROGRAM, cache, f"{what} {loop.python.__name__}")
                found.setdefault(name, {}).setdefault(step, []).append(took["ms"])
    return Table("From a function with helpers to its kernel, ms", found)
