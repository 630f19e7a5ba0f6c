"""``offload bench``: the command."""

from __future__ import annotations

import json
import os
import platform
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import offload as omp
from offload.cli.bench.measuring import table_of
from offload.cli.demo.options import open_runtime
from offload.cli.output import console, write
from offload.errors import ClauseError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from offload.cli.bench.measuring import Measured

_REPEAT = 7
_PAIRS = 31  # of differences below a microsecond
# Arguments of the parts with ``--quick``.
_QUICK = {
    "tasks": {"n_tasks": 40},
    "link": {"nbytes": 1 << 12},
    "launch": {"n_calls": 2, "n_chained": 5},
    "overlap": {"block_nbytes": 1 << 12},
    "pragma": {"n_encounters": 20},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Check that this machine performs as expected. Each part takes a few seconds. tasks: the cost of a host task, "
        "compared with threads and Dask. link: the bandwidth of copies between the host and device 0. launch: the time "
        "of single constructs on device 0. overlap: the gain from running copies and kernels at the same time. pragma: "
        "the cost of directive strings. Each table lists the values to expect."
    )
    parser.epilog = (
        "More benchmarks compare every part of the library with hand-written code. They are not installed; find them "
        "in the folder benchmarks/ of a clone of the project, and list them with `python benchmarks/run.py --help`."
    )
    parser.add_argument(
        "part", metavar="PART", nargs="*", help=f"parts to measure, from {', '.join(PARTS)} (default: all)"
    )
    parser.add_argument(
        "--devices", metavar="SPEC", help="devices to open, as in OFFLOAD_DEVICES; device 0 is measured"
    )
    parser.add_argument(
        "--repeat", metavar="N", type=int, help=f"number of repetitions (default: {_REPEAT}; pragma: {_PAIRS})"
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure very little, only to check that the command works"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every sample")


def run(args: argparse.Namespace) -> int:
    """Run the parts that were asked for; the exit status is 0 for any figures.

    Raise `ClauseError` for an unknown part, a number below 1, or no device, and `InternalError` for a wrong result.
    """
    # Not argparse's choices: its message could not say where the studies are.
    for name in args.part:
        if name not in PARTS:
            raise ClauseError(
                f"bench {name}: there is no such part; use {', '.join(PARTS)}; a clone of the project has more: run "
                "`python benchmarks/run.py --help` there"
            )
    repeat = _REPEAT if args.repeat is None else args.repeat
    if repeat < 1:
        raise ClauseError(f"--repeat {args.repeat}: use a number of at least 1")
    # In the order of the table, whatever the order of the arguments.
    wanted = [name for name in PARTS if name in (args.part or PARTS)]
    found = {name: PARTS[name](args, _QUICK[name] if args.quick else {}) for name in wanted}
    if args.json:
        parts = {name: [one._asdict() for one in findings] for name, findings in found.items()}
        write(json.dumps({"machine": _machine(), "parts": parts}) + "\n")
        return 0
    shows = console()
    shows.print(", ".join(f"{name} {value}" for name, value in _machine().items()) + ".")
    count = f"{repeat} repetitions" if args.repeat else f"{_REPEAT} repetitions, of pragma {_PAIRS}"
    shows.print(f"Medians of {count} (lowest to highest).\n")
    for finding in (one for findings in found.values() for one in findings):
        shows.print(table_of(finding))
    return 0


def _machine() -> dict[str, str]:
    """Describe the processors and the software, by names that make a sentence."""
    return {
        "Cores": str(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "offload": omp.__version__,
    }


# Modules are imported when they are needed: `offload --help` must not wait for Dask.
def _tasks(args: argparse.Namespace, sizes: Mapping[str, int]) -> list[Measured]:
    from offload.cli.bench import tasks  # imports Dask

    return tasks.measure(args.repeat or _REPEAT, **sizes)


def _pragma(args: argparse.Namespace, sizes: Mapping[str, int]) -> list[Measured]:
    from offload.cli.bench import pragma  # rewrites functions

    return pragma.measure(args.repeat or _PAIRS, **sizes)


def _on_device(name: str, args: argparse.Namespace, sizes: Mapping[str, int]) -> list[Measured]:
    from offload.cli.bench import device

    with open_runtime(args.devices, os.environ):
        if not omp.get_num_devices():
            raise ClauseError(f"bench {name} measures a device, but there is none; choose one with --devices")
        measure: Callable[..., list[Measured]] = getattr(device, f"measure_{name}")
        return measure(args.repeat or _REPEAT, **sizes)


# What measures each part, with the options and the sizes that are not the usual ones.
PARTS: dict[str, Callable[[argparse.Namespace, Mapping[str, int]], list[Measured]]] = {
    "tasks": _tasks,
    **{name: partial(_on_device, name) for name in ("link", "launch", "overlap")},
    "pragma": _pragma,
}
