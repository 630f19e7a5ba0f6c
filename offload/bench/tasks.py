"""``offload bench tasks``: what a task costs, beside Dask's threaded scheduler in the same run."""

from __future__ import annotations

import gc
import json
import sys
import time
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

import offload as omp
from offload.errors import ClauseError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    _Timed = tuple[Callable[[], None], int]

_N_TASKS = 20_000
_DASK_SHARE = 10
"""Dask, a hundred times as slow, gets a tenth of the tasks."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Time null tasks, each with one inout dependence: a chain, where all name one array, and independent ones, "
        "where each names its own element. The time is from the first task to the end of the taskwait."
    )
    parser.add_argument(
        "--tasks", metavar="N", type=int, default=_N_TASKS, help=f"tasks a run; Dask gets a tenth (default: {_N_TASKS})"
    )
    parser.add_argument("--repeat", metavar="N", type=int, default=7, help="runs of each, in turn (default: 7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1.
    """
    for name in ("tasks", "repeat"):
        if getattr(args, name) < 1:
            raise ClauseError(f"--{name} {getattr(args, name)}: take a number of at least 1")
    n_tasks, n_dask = args.tasks, max(1, args.tasks // _DASK_SHARE)
    data = np.zeros(n_tasks)
    items = [data[i : i + 1] for i in range(n_tasks)]
    results = {}
    with omp.Runtime("none"):
        for name, ours, dasks in (
            ("chain", lambda: _chain(data, n_tasks), lambda: _dask_chain(n_dask)),
            ("independent", lambda: _independent(items), lambda: _dask_independent(n_dask)),
        ):
            results[name] = _compare((ours, n_tasks), (dasks, n_dask), args.repeat)
    figures = {
        "unit": "µs a task",
        "repeat": args.repeat,
        "tasks": {"offload": n_tasks, "dask": n_dask},
        "dask_version": version("dask"),
        "graphs": results,
    }
    if args.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        Console().print(_table(figures))
    return 0


@omp.task
def _null() -> None:
    """Do nothing."""


def _nothing(*_: object) -> None:
    """Do nothing, after what the arguments stand for."""


def _chain(item: np.ndarray[Any, Any], n_tasks: int) -> None:
    null = _null.options(depend=[omp.inout(item)])
    for _ in range(n_tasks):
        null()
    omp.taskwait()


def _independent(items: list[np.ndarray[Any, Any]]) -> None:
    for item in items:
        _null.options(depend=[omp.inout(item)])()
    omp.taskwait()


def _dask_chain(n_tasks: int) -> None:
    from dask.threaded import get

    graph: dict[Any, Any] = {0: (_nothing,)}
    graph.update({i: (_nothing, i - 1) for i in range(1, n_tasks)})
    get(graph, n_tasks - 1)


def _dask_independent(n_tasks: int) -> None:
    from dask.threaded import get

    graph: dict[Any, Any] = dict.fromkeys(range(n_tasks), (_nothing,))
    get(graph, list(graph))


def _compare(ours: _Timed, dasks: _Timed, repeat: int) -> dict[str, Any]:
    """Time both in turn; microseconds a task."""
    times_us: dict[str, list[float]] = {"offload": [], "dask": []}
    for turn in range(-1, repeat):  # the first one warms up
        for name, (call, n_tasks) in (("offload", ours), ("dask", dasks)):
            gc.collect()
            began_s = time.perf_counter()
            call()
            if turn >= 0:
                times_us[name].append((time.perf_counter() - began_s) * 1e6 / n_tasks)
    medians = {name: median(times) for name, times in times_us.items()}
    spread = {
        name: {"median_us": medians[name], "min_us": min(times), "max_us": max(times)}
        for name, times in times_us.items()
    }
    return {
        **spread,
        "ratio": medians["dask"] / medians["offload"],
    }


def _table(figures: dict[str, Any]) -> Table:
    counts = figures["tasks"]
    title = f"null tasks with one inout, µs a task: median of {figures['repeat']} (lowest to highest)"
    shown = Table(title=title, title_justify="left")
    shown.add_column("graph")
    shown.add_column(f"offload, {counts['offload']:,} tasks", justify="right")
    shown.add_column(f"Dask {figures['dask_version']} threaded, {counts['dask']:,} tasks", justify="right")
    shown.add_column("Dask / offload", justify="right")
    for name, result in figures["graphs"].items():
        cells = (
            f"{one['median_us']:.1f} ({one['min_us']:.1f} to {one['max_us']:.1f})"
            for one in (result["offload"], result["dask"])
        )
        shown.add_row(name, *cells, f"{result['ratio']:.0f}")
    return shown
