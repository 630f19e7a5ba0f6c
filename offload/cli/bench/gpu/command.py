"""``offload bench gpu``: the command."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import offload as omp
from offload.cli.bench.gpu import acc, graph, peers, pipeline, rect, showing, small, tasks
from offload.cli.demo.examples import load_benchmark
from offload.cli.output import console, write
from offload.errors import ClauseError, DeviceUnavailableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from types import ModuleType

    from offload.cli.bench.gpu.measuring import Section

_REPEAT = 7
_ONE, _ALL = "cuda:0", "cuda"
"""The devices of the runtime that a section is measured in: of ``peers`` all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Measure the CUDA device beside the same work written by hand with CuPy (the programs in benchmarks/), in "
        "turn: tasks (what a device task costs), rect (strided copies), pipeline (a transform of 2 GiB that goes "
        "through the device), graph (replays beside CUDA's graphs), acc (blocks of columns in OpenACC's queues), small "
        "(what it takes to issue and to complete single operations), peers (several GPUs). Results are checked before "
        "they are timed. It reports: the exit status is 0 also where targets are missed."
    )
    parser.add_argument(
        "--section",
        metavar="NAME",
        nargs="+",
        action="extend",
        choices=list(SECTIONS),
        help=f"of {', '.join(SECTIONS)} (default: all)",
    )
    parser.add_argument(
        "--repeat", metavar="N", type=int, default=_REPEAT, help=f"runs of each, in turn (default: {_REPEAT})"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object, with every sample")
    form.add_argument("--markdown", action="store_true", help="print the tables as the documentation has them")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1, or devices are disabled.
    DeviceUnavailableError
        There is no CUDA device.
    UnsupportedError
        The programs of CuPy are not here: this is no checkout.
    InternalError
        A result was wrong.
    """
    if args.repeat < 1:
        raise ClauseError(f"--repeat {args.repeat}: take a number of at least 1")
    machine = _require_cuda()  # refuses before anything is loaded
    sections: dict[str, Any] = {}
    times_s: dict[str, float] = {}
    found: list[Any] = []
    for name, measure in SECTIONS.items():
        if not args.section or name in args.section:
            began_s = time.perf_counter()
            with omp.Runtime(_ALL if name == "peers" else _ONE):
                section = measure(args.repeat)
            times_s[name] = round(time.perf_counter() - began_s, 1)
            found += section.targets
            sections[name] = {"tables": {key: asdict(one) for key, one in section.tables.items()}}
            sections[name]["skipped"] = section.skipped
    figures = {
        "machine": machine,
        "repeat": args.repeat,
        "seconds": times_s,
        "sections": sections,
        "targets": found,
    }
    if args.json:
        write(json.dumps(figures) + "\n")
    elif args.markdown:
        write(showing.markdown(figures))
    else:
        shows = console()
        for table in showing.tables(figures):
            shows.print(table)
        for name, why in showing.skipped(figures):
            shows.print(f"{name}: {why}")
    return 0


def _require_cuda() -> dict[str, str]:
    """Return what `_machine` says; raise where there is nothing to measure."""
    try:
        with omp.Runtime(_ALL):
            if omp.get_num_devices():
                return _machine()
    except DeviceUnavailableError as error:
        why, _, _ = str(error).partition("; ")
        raise DeviceUnavailableError(
            f"bench gpu measures CUDA devices, and there is none: {why}; the other benchmarks take the simulated device"
        ) from error
    raise ClauseError("bench gpu measures CUDA devices, and OMP_TARGET_OFFLOAD=DISABLED leaves none")


def _machine() -> dict[str, str]:
    """Describe the GPUs, the software and the processors, by names that make a sentence."""
    devices = omp.devices()
    cupy = devices[0].namespace()
    cuda = cupy.cuda.runtime
    driver, library = cuda.driverGetVersion(), cuda.runtimeGetVersion()
    return {
        "GPUs": f"{len(devices)} x {cuda.getDeviceProperties(0)['name'].decode()}",
        "CUDA driver": f"{driver // 1000}.{driver % 1000 // 10}",
        "CUDA": f"{library // 1000}.{library % 1000 // 10}",
        "CuPy": cupy.__version__,
        "Python": platform.python_version(),
        "cores": str(len(os.sched_getaffinity(0))),
        "offload": omp.__version__,
    }


def _tasks(repeat: int) -> Section:
    return tasks.measure(_loaded_kernels(), repeat)


def _rect(repeat: int) -> Section:
    return rect.measure(load_benchmark("copies_cupy"), repeat)


def _pipeline(repeat: int) -> Section:
    peer = load_benchmark("pipeline_cupy")
    return pipeline.measure(peer, peer.empty_pinned, repeat)


def _graph(repeat: int) -> Section:
    return graph.measure(_loaded_kernels(), repeat)


def _acc(repeat: int) -> Section:
    return acc.measure(load_benchmark("columns_cupy"), repeat)


def _small(repeat: int) -> Section:
    return small.measure(load_benchmark("small"), load_benchmark("small_cupy"), repeat)


def _peers(repeat: int) -> Section:
    names = ("tasks_cupy", "pipeline_cupy", "copies_cupy")
    return peers.measure({name: load_benchmark(name) for name in names}, repeat)


def _loaded_kernels() -> ModuleType:
    """Return the hand-written kernels, compiled and on the device."""
    peer = load_benchmark("tasks_cupy")
    x = omp.target_memset(omp.target_alloc(peer.BLOCK, "f4"), 0)
    peer.load([x])
    omp.target_free(x)
    return peer


SECTIONS: dict[str, Callable[[int], Section]] = {
    "tasks": _tasks,
    "rect": _rect,
    "pipeline": _pipeline,
    "graph": _graph,
    "acc": _acc,
    "small": _small,
    "peers": _peers,
}
"""What measures each section: takes the number of turns, in a runtime on the first GPU (``peers``: on all)."""
