"""``benchmarks/run.py tasks``: what a task costs, beside Dask and OpenMP in C on the same graphs, in the same run.

One and two workers are `Runtime`'s ``num_threads``: besides the thread that generates the tasks, which helps once it
waits. So one worker is what two processors have room for, and two are the default there. Dask has two threads besides
its own one that schedules. In C one and two are all threads, with the one that generates.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.timing import alternate
from benchmarks.tasks import followers, footprint, generating, metg, native
from benchmarks.tasks.shapes import SHAPES, cholesky_n_tiles, make_steps, n_cells, predecessors
from benchmarks.tasks.targets import targets
from benchmarks.tasks.task_tables import tables
from offload.cli.output import console, write
from offload.errors import ClauseError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from benchmarks.harness.timing import Spread
    from benchmarks.tasks.shapes import Step

_N_TASKS = 10_000
_MEMORY_TASKS = 200_000
_LIVE_TASKS = 2_000
_DASK_SHARE, _DISTRIBUTED_SHARE = 10, 100
"""Dask, ten to fifty times as slow, gets a tenth of the tasks; `distributed`, slower again, a hundredth."""

_MOST_NATIVE_TASKS = 10_000
"""libgomp looks through all tasks that wait to read a cell: what it does for a stencil grows with their square."""

_WORKERS = (1, 2)
_SECTIONS = ("shapes", "views", "metg", "memory", "followers")
_N_COLUMNS = 10_000
_COLUMN_ROWS = 100
_N_TILES, _TILE = 32, 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Time null tasks with dependences, from the first one to the end of the taskwait, in the graphs that programs "
        "have: generated (eager) and replayed from a taskgraph, with 1 and 2 workers besides the thread that generates "
        "them and then helps. Beside them the same graphs under Dask and, where there is a compiler, in OpenMP in C, "
        "where 1 and 2 are all threads. Then tasks on views of one array, the shortest task worth its cost (METG), "
        "memory, and how soon a host task follows device work, eager and under Dask's schedulers (on the first CUDA "
        "device, or a simulated one)."
    )
    parser.add_argument(
        "--tasks",
        metavar="N",
        type=int,
        default=_N_TASKS,
        help=f"tasks a run; Dask gets a tenth, distributed a hundredth (default: {_N_TASKS})",
    )
    parser.add_argument("--repeat", metavar="N", type=int, default=7, help="runs of each, in turn (default: 7)")
    parser.add_argument(
        "--shapes", metavar="NAMES", default=",".join(SHAPES), help="of these, with commas (default: %(default)s)"
    )
    parser.add_argument(
        "--sections", metavar="NAMES", default=",".join(_SECTIONS), help="of these, with commas (default: %(default)s)"
    )
    parser.add_argument(
        "--memory-tasks",
        metavar="N",
        type=int,
        default=_MEMORY_TASKS,
        help=f"tasks of the programs whose memory is watched (default: {_MEMORY_TASKS})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1, or an unknown shape or section.
    """
    for name in ("tasks", "repeat", "memory_tasks"):
        if getattr(args, name) < 1:
            raise ClauseError(f"--{name.replace('_', '-')} {getattr(args, name)}: take a number of at least 1")
    shapes = _chosen("shapes", args.shapes, list(SHAPES))
    sections = _chosen("sections", args.sections, _SECTIONS)
    figures: dict[str, Any] = {
        "unit": "µs a task",
        "repeat": args.repeat,
        "processors": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            "offload": omp.__version__,
            **{name: version(name) for name in ("numpy", "dask", "distributed")},
        },
    }
    from benchmarks.tasks import peers  # noqa: F401  # here, so that what Dask has loaded is frozen too

    gc.collect()
    gc.freeze()  # the modules of the peers are no part of the program, and each run begins with a collection
    try:
        if "shapes" in sections:
            figures |= _measure_shapes(shapes, args.tasks, args.repeat)
        if "views" in sections:
            figures["views"] = _measure_views(args.tasks, args.repeat)
        if "metg" in sections:
            figures["metg"] = metg.measure(args.repeat, min(1.0, args.tasks / _N_TASKS))
        if "memory" in sections:
            figures["memory"] = {
                "live": footprint.live_and_finished(shapes, min(args.tasks, _LIVE_TASKS)),
                "long": footprint.long_programs(args.memory_tasks),
            }
        if "followers" in sections:
            figures["followers"] = followers.measure(args.repeat)
    finally:
        gc.unfreeze()
    figures["targets"] = targets(figures)
    if args.json:
        write(json.dumps(figures) + "\n")
    else:
        shows = console()
        for table in tables(figures):
            shows.print(table)
    return 0


def _chosen(option: str, text: str, known: Sequence[str]) -> list[str]:
    """Return the names in a list with commas, in the usual order."""
    names = {name.strip() for name in text.split(",")}
    for name in sorted(names.difference(known)):
        raise ClauseError(f"--{option} {text}: there is no {name!r}; take some of {','.join(known)}")
    return [name for name in known if name in names]


def _measure_shapes(names: Sequence[str], n_tasks: int, repeat: int) -> dict[str, Any]:
    """Measure each shape here, under Dask and in C; say which compilers are missing, and why."""
    missing: dict[str, str] = {}
    compilers: dict[str, str] = {}
    programs: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="offload-bench-") as name:
        directory = Path(name)
        for library, compiler in native.COMPILERS.items():
            try:
                programs[library] = native.build(compiler, directory)
                compilers[library] = native.compiler_version(compiler)
            except native.NotBuiltError as error:
                missing[library] = str(error)
        results = {name: _measure_shape(name, n_tasks, repeat, programs, directory / name) for name in names}
    return {"compilers": compilers, "missing": missing, "shapes": results}


def _measure_shape(name: str, n_tasks: int, repeat: int, programs: dict[str, Path], graph: Path) -> dict[str, Any]:
    """Measure one shape; ``runs`` has µs a task, None where there is no program."""
    from benchmarks.tasks import peers  # imports Dask

    steps = make_steps(name, n_tasks)
    fewer = predecessors(make_steps(name, max(1, n_tasks // _DASK_SHARE)))
    fewest = predecessors(make_steps(name, max(1, n_tasks // _DISTRIBUTED_SHARE)))
    for_c = make_steps(name, min(n_tasks, _MOST_NATIVE_TASKS))
    native.write_graph(for_c, n_cells(for_c), graph)
    items = [np.zeros(8) for _ in range(n_cells(steps))]
    calls = _eager_calls(steps, items)
    clauses = generating.make_clauses(steps, items)
    for workers in _WORKERS:
        calls[f"replay_{workers}"] = partial(generating.replay_us, clauses, workers)
    calls["dask_threaded"] = lambda: peers.threaded_s(fewer) * 1e6 / len(fewer)
    calls["dask_synchronous"] = lambda: peers.synchronous_s(fewer) * 1e6 / len(fewer)
    calls["distributed"] = lambda: peers.distributed_s(fewest) * 1e6 / len(fewest)
    for library, program in programs.items():
        for n_threads in _WORKERS:
            calls[f"{library}_{n_threads}"] = partial(native.native_us, program, graph, n_threads)
    runs: dict[str, Spread | None] = {**alternate(calls, repeat)}
    for library in native.COMPILERS:
        for n_threads in _WORKERS:
            runs.setdefault(f"{library}_{n_threads}", None)
    counts = {"offload": len(steps), "dask": len(fewer), "distributed": len(fewest), "c": len(for_c)}
    return {"tasks": counts, "runs": runs}


def _eager_calls(steps: Sequence[Step], items: generating.Items) -> dict[str, Callable[[], float]]:
    """Return what measures the eager forms: with the clause values made before, and in the loop."""
    clauses = generating.make_clauses(steps, items)
    calls: dict[str, Callable[[], float]] = {}
    for workers in _WORKERS:
        calls[f"eager_{workers}"] = partial(generating.eager_us, clauses, workers)
        calls[f"eager_with_clauses_{workers}"] = partial(generating.eager_with_clauses_us, steps, items, workers)
    return calls


def _measure_views(n_tasks: int, repeat: int) -> dict[str, Any]:
    """Measure a blocked Cholesky factorization on the tiles of one matrix, and tasks on the columns of one array."""
    n_tiles = min(_N_TILES, cholesky_n_tiles(n_tasks))
    matrix = np.zeros((n_tiles * _TILE, n_tiles * _TILE))
    tiles = [
        matrix[i * _TILE : (i + 1) * _TILE, j * _TILE : (j + 1) * _TILE] for i in range(n_tiles) for j in range(n_tiles)
    ]
    n_columns = min(_N_COLUMNS, n_tasks)
    array = np.zeros((_COLUMN_ROWS, n_columns))
    columns = [array[:, j] for j in range(n_columns)]
    cases = {
        "cholesky": (make_steps("cholesky", n_tiles * (n_tiles + 1) * (n_tiles + 2) // 6), tiles),
        "columns": (make_steps("independent", n_columns), columns),
    }
    return {
        name: {"tasks": len(steps), "runs": alternate(_eager_calls(steps, items), repeat)}
        for name, (steps, items) in cases.items()
    }
