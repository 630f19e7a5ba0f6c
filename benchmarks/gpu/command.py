"""``benchmarks/run.py gpu``: the command."""

from __future__ import annotations

import os
import platform
from functools import partial
from typing import TYPE_CHECKING

import offload as omp
from benchmarks.gpu import acc, graph, parray, peers, pipeline, rect, small_section, tasks
from benchmarks.harness import sections
from benchmarks.harness.programs import load_example, load_peer
from offload.errors import ClauseError, DeviceUnavailableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from types import ModuleType

    from benchmarks.harness.measuring import Section

_ONE, _ALL = "cuda:0", "cuda"
"""The devices of the runtime that a section is measured in: of ``peers`` all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Measure the CUDA device beside the same work written by hand with CuPy (the programs in benchmarks/), in "
        "turn: tasks (what a device task costs), rect (strided copies), parray (typed copies), pipeline (a transform "
        "of 2 GiB that goes through the device), graph (replays beside CUDA's graphs), acc (blocks of columns in "
        "OpenACC's queues), small (what it takes to issue and to complete single operations), peers (several GPUs). "
        "Results are checked before they are timed. It reports: the exit status is 0 also where targets are missed."
    )
    sections.add_choice(parser, SECTIONS)
    sections.add_repeat(parser)
    sections.add_forms(parser)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1, or devices are disabled.
    DeviceUnavailableError
        There is no CUDA device.
    InternalError
        A result was wrong.
    """
    sections.check_repeat(args)
    machine = _require_cuda()  # refuses before anything is loaded
    measures = {name: partial(_measure, name, args.repeat) for name in SECTIONS if name in (args.section or SECTIONS)}
    sections.show(args, sections.measure_each(measures, machine, args.repeat))
    return 0


def _measure(name: str, repeat: int) -> Section:
    with omp.Runtime(_ALL if name == "peers" else _ONE):
        return SECTIONS[name](repeat)


def _require_cuda() -> dict[str, str]:
    """Return what `_machine` says; raise where there is nothing to measure."""
    try:
        with omp.Runtime(_ALL):
            if omp.get_num_devices():
                return _machine()
    except DeviceUnavailableError as error:
        why, _, _ = str(error).partition("; ")
        raise DeviceUnavailableError(
            f"gpu measures CUDA devices, and there is none: {why}; other studies take the simulated device"
        ) from error
    raise ClauseError("gpu measures CUDA devices, and OMP_TARGET_OFFLOAD=DISABLED leaves none")


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
    return rect.measure(load_peer("gpu.copies_cupy"), repeat)


def _parray(repeat: int) -> Section:
    return parray.measure(load_peer("gpu.copies_cupy"), load_example("parray_tiles"), repeat)


def _pipeline(repeat: int) -> Section:
    peer = load_peer("gpu.pipeline_cupy")
    return pipeline.measure(peer, peer.empty_pinned, repeat)


def _graph(repeat: int) -> Section:
    return graph.measure(_loaded_kernels(), repeat)


def _acc(repeat: int) -> Section:
    return acc.measure(load_peer("gpu.columns_cupy"), repeat)


def _small(repeat: int) -> Section:
    return small_section.measure(load_peer("gpu.small"), load_peer("gpu.small_cupy"), repeat)


def _peers(repeat: int) -> Section:
    names = ("tasks_cupy", "pipeline_cupy", "copies_cupy")
    return peers.measure({name: load_peer(f"gpu.{name}") for name in names}, repeat)


def _loaded_kernels() -> ModuleType:
    """Return the hand-written kernels, compiled and on the device."""
    peer = load_peer("gpu.tasks_cupy")
    x = omp.target_memset(omp.target_alloc(peer.BLOCK, "f4"), 0)
    peer.load([x])
    omp.target_free(x)
    return peer


SECTIONS: dict[str, Callable[[int], Section]] = {
    "tasks": _tasks,
    "rect": _rect,
    "parray": _parray,
    "pipeline": _pipeline,
    "graph": _graph,
    "acc": _acc,
    "small": _small,
    "peers": _peers,
}
"""What measures each section: takes the number of turns, in a runtime on the first GPU (``peers``: on all)."""
