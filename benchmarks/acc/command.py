"""``benchmarks/run.py acc``: a matrix by blocks of columns, one async queue a block, beside the same without queues."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.acc.columns import ASYNCHRONOUS, BLOCKING, process, timed
from benchmarks.harness import sections, showing
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from offload import acc
from offload.cli.demo.options import open_runtime
from offload.cli.output import console, write
from offload.errors import ClauseError

if TYPE_CHECKING:
    import argparse

N_BLOCKS = 16
SHAPE = (1 << 16, 2 * N_BLOCKS)
"""Blocks of 1 MB: they fit a core's cache, so that two cores do twice as much as one."""

CHUNK_S = 10e-3
"""What copies and work of one block are to take: 5 ms at least, and twice that as processors change their clock."""

SPEED_UP = 1.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Process a matrix by blocks of columns under OpenACC: update device, parallel, update self, each block in a "
        "queue of its own with one wait at the end, beside the same without async, in turn. The work is NumPy's and "
        "releases the GIL, at least 5 ms a block. It reports: the exit status is 0 also where the target is missed."
    )
    parser.add_argument("--devices", metavar="SPEC", default="sim", help="as for Runtime (default: sim)")
    sections.add_repeat(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every sample")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1, or no device.
    InternalError
        A result was wrong.
    """
    sections.check_repeat(args)
    with open_runtime(args.devices, os.environ):
        if not omp.get_num_devices():
            raise ClauseError("acc measures a device, and there is none; name one with --devices")
        section = measure(args.repeat)
        figures: dict[str, Any] = {
            "device": omp.device(0).name,
            "repeat": args.repeat,
            "sections": {"acc": asdict(section)},
            "targets": section.targets,
        }
    if args.json:
        write(json.dumps(figures) + "\n")
    else:
        for table in showing.tables(figures):
            console().print(table)
    return 0


def compute(x: Any, passes: int) -> None:
    """Do what takes long for each element and releases the GIL."""
    for _ in range(passes):
        x **= 0.9
        x += 1.5


work = acc.parallel(compute, present=["x"])


def measure(repeat: int) -> Section:
    """Measure on the current runtime's default device.

    Parameters
    ----------
    repeat : int
        Turns.
    """
    matrix = np.empty(SHAPE, order="F")
    with acc.data(create=[matrix]):
        passes = calibrated(matrix)
        calls = {
            name: partial(process, matrix, N_BLOCKS, work, passes, asynchronous=asynchronous)
            for name, asynchronous in ((BLOCKING, False), (ASYNCHRONOUS, True))
        }
        for name, call in calls.items():
            expected = _fill(matrix)
            compute(expected, passes)
            call()
            expect(np.allclose(matrix, expected, rtol=1e-9), f"columns, {name}")
        _fill(matrix)
        runs = alternate({name: partial(timed, call) for name, call in calls.items()}, repeat)
    speed_up = pairwise(runs[BLOCKING], runs[ASYNCHRONOUS])
    table = Table(
        f"{N_BLOCKS} blocks of columns of 1 MB, {passes} passes over each, ms",
        {name: {"all": _ms(samples), "a block": _ms(samples, N_BLOCKS)} for name, samples in runs.items()},
    )
    ratio = Table("The same, turn by turn", {f"{BLOCKING} / asynchronous": {"ratio": speed_up}})
    target = promise(f"acc, {BLOCKING} / asynchronous", {f"{N_BLOCKS} blocks": speed_up}, SPEED_UP, at_least=True)
    return Section({"columns": table, "speed_up": ratio}, [target])


def calibrated(matrix: Any) -> int:
    """Return how many passes make one block take `CHUNK_S`."""
    _fill(matrix)
    passes = 1
    while (block_s := _block_s(matrix, passes)) < CHUNK_S:  # copies take a part of it, so that one pass does not tell
        passes *= 2
    return max(1, math.ceil(passes * CHUNK_S / block_s))


def _block_s(matrix: Any, passes: int) -> float:
    form = partial(process, matrix, N_BLOCKS, work, passes, asynchronous=False)
    return min(timed(form) for _ in range(3)) / N_BLOCKS


def _fill(matrix: Any) -> Any:
    """Fill a matrix with numbers that differ in all places; return a copy."""
    matrix.T[...] = np.linspace(1, 2, matrix.size).reshape(matrix.T.shape)
    return matrix.copy(order="F")


def _ms(samples: list[float], count: int = 1) -> list[float]:
    return [one * 1e3 / count for one in samples]
