"""The task form that the porter writes of a ring of buffers, beside the ring by hand, alternated in one process.

``python benchmarks/run.py ported [--repeat 9] [--chunks 64] [--mib 16]`` has ``offload port --emit`` write the task
form of ``benchmarks/gpu/ring_cupy.py``, runs both on the first GPU, and checks each result.
"""

from __future__ import annotations

import os
import platform
import runpy
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import offload as omp
from benchmarks.harness import sections
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from offload.errors import DeviceUnavailableError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_RING = Path(__file__).parent / "ring_cupy.py"
_LIMIT = 1.05
BY_HAND, TASK_FORM = "by hand", "task form"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = __doc__
    parser.add_argument("--chunks", type=int, default=64, help="how many chunks the ring moves (default: 64)")
    parser.add_argument("--mib", type=int, default=16, help="MiB of a chunk (default: 16)")
    sections.add_repeat(parser)
    sections.add_forms(parser)


def run(args: argparse.Namespace) -> int:
    """Write the task form, measure both programs, and print.

    Raises
    ------
    ClauseError
        A number of turns below 1.
    DeviceUnavailableError
        There is no CUDA device.
    InternalError
        A result was wrong.
    """
    sections.check_repeat(args)
    with tempfile.TemporaryDirectory() as folder, omp.Runtime("cuda:0"):
        if not omp.get_num_devices():
            raise DeviceUnavailableError("ported compares programs on a CUDA device, and there is none")
        gpu = omp.device(0).namespace().cuda.runtime.getDeviceProperties(0)["name"].decode()
        machine = {"GPU": gpu, "Python": platform.python_version(), "cores": str(len(os.sched_getaffinity(0)))}
        emitted = emit(Path(folder) / "task_form.py")
        measures = {"ring": partial(_measure, emitted, args.chunks, args.mib, args.repeat)}
        figures = sections.measure_each(measures, machine, args.repeat)
    sections.show(args, figures)
    return 0


def emit(path: Path) -> Path:
    """Have the porter write the ring's task form, from a recording on the simulated device."""
    command = [sys.executable, "-m", "offload", "port", "--emit", str(path), str(_RING)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def load(path: Path, chunks: int, elements: int) -> Callable[[], tuple[float, bool]]:
    """Run a ring's program once, with arrays of a size, and return its function ``timed``."""
    arguments = sys.argv
    sys.argv = [str(path), str(chunks), str(elements)]
    try:
        with redirect_stdout(sys.stderr):
            names: dict[str, Any] = runpy.run_path(str(path))
    finally:
        sys.argv = arguments
    timed: Callable[[], tuple[float, bool]] = names["timed"]
    return timed


def _measure(emitted: Path, chunks: int, mib: int, repeat: int) -> Section:
    elements = mib * 2**20 // 4
    paths = {BY_HAND: _RING, TASK_FORM: emitted}
    calls = {name: partial(_checked, load(path, chunks, elements), name) for name, path in paths.items()}
    runs = alternate(calls, repeat)
    table = Table(f"{chunks} chunks of {mib} MiB through a ring of three buffers, ms")
    column = f"{chunks} x {mib} MiB"
    for name, times_s in runs.items():
        table.rows[name] = {column: [one * 1e3 for one in times_s]}
    over = pairwise(runs[TASK_FORM], runs[BY_HAND])
    return Section({"ring": table}, [promise("task form / by hand", {column: over}, _LIMIT)])


def _checked(timed: Callable[[], tuple[float, bool]], name: str) -> float:
    time_s, is_right = timed()
    expect(is_right, f"the ring {name}")
    return time_s
