"""``benchmarks/run.py loops``: the command."""

from __future__ import annotations

import importlib.util
import os
import platform
from functools import partial
from typing import TYPE_CHECKING

import offload as omp
from benchmarks.harness import sections
from offload.errors import ClauseError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from benchmarks.harness.measuring import Section

_QUICK = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Measure loop functions: kernels and launch (on a CUDA device, beside kernels written by hand: what they take, "
        "and what a call costs), devices (loops on several CUDA devices beside one, and beside a program by hand), "
        "compile (from a function to its kernel, in processes of their own), host (five loops on two threads beside "
        "the same by Numba, where that can be imported, and what a short loop costs to call), rows (a solve of "
        "block-tridiagonal systems whose helpers take rows of arrays, beside the same text with indices written out). "
        "Results are checked before they are timed. Set OMP_WAIT_POLICY=passive, or the peer's threads spin on the "
        "cores of whoever is measured next. And speculation: loops that nobody has proved parallel, beside the same "
        "loops plain, by hand and as serial C. And scans: loops that carry scalars, in order beside serial C, and on a "
        "CUDA device beside copies and CuPy's cumsum. And types: loops through array types beside the same loops with "
        "the digits by hand. And nests: functions with several nests, beside single choices for all nests. And complex "
        "and complex_cuda: NAS FT's inner loops and a Mandelbrot set beside kernels by hand. It reports: the exit "
        "status is 0 also where targets are missed."
    )
    sections.add_choice(parser, SECTIONS)
    sections.add_repeat(parser)
    parser.add_argument("--quick", action="store_true", help="measure as little as shows that it works")
    parser.add_argument("--scale", type=float, default=1.0, help="the part of the sizes to take (default: 1)")
    sections.add_forms(parser)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1, or a scale that is not above 0.
    InternalError
        A result was wrong.
    UnsupportedError
        The peers' programs are not here: this is no checkout.
    """
    sections.check_repeat(args)
    if args.scale <= 0:
        raise ClauseError(f"--scale {args.scale} is not allowed; use a number above 0, such as 0.25")
    scale = _QUICK if args.quick else args.scale
    measures = {
        name: partial(measure, args.repeat, scale)
        for name, measure in SECTIONS.items()
        if not args.section or name in args.section
    }
    sections.show(args, sections.measure_each(measures, _machine(), args.repeat))
    return 0


def _machine() -> dict[str, str]:
    """Describe the processors and the software, by names that make a sentence."""
    from offload.loops.running.build import builder

    found = {
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
        "compiler": str(builder.compiler or "none"),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
    }
    if importlib.util.find_spec("numba") is not None:
        import numba

        found["Numba"] = numba.__version__
    return found | {"Python": platform.python_version(), "offload": omp.__version__}


def _host(repeat: int, scale: float) -> Section:
    from benchmarks.loops import host  # defines loops, which takes a moment

    return host.measure(repeat, scale)


def _kernels(repeat: int, scale: float) -> Section:
    from benchmarks.loops import device

    return device.measure_kernels(repeat, scale)


def _launch(repeat: int, scale: float) -> Section:
    from benchmarks.loops import device

    return device.measure_launch(repeat, scale)


def _devices(repeat: int, scale: float) -> Section:
    from benchmarks.loops import devices

    return devices.measure(repeat, scale)


def _compile(repeat: int, _scale: float) -> Section:
    from benchmarks.loops import compiling

    return compiling.measure(repeat)


def _scans(repeat: int, scale: float) -> Section:
    from benchmarks.loops import scans

    return scans.measure(repeat, scale)


def _rows(repeat: int, scale: float) -> Section:
    from benchmarks.loops import rows

    return rows.measure(repeat, scale)


def _speculation(repeat: int, scale: float) -> Section:
    from benchmarks.loops import speculation

    return speculation.measure(repeat, scale)


def _types(repeat: int, scale: float) -> Section:
    from benchmarks.loops import layouts

    return layouts.measure(repeat, scale)


def _nests(repeat: int, scale: float) -> Section:
    from benchmarks.loops import nests

    return nests.measure(repeat, scale)


def _complex(repeat: int, scale: float) -> Section:
    from benchmarks.loops import complexes

    return complexes.measure(repeat, scale)


def _complex_cuda(repeat: int, scale: float) -> Section:
    from benchmarks.loops import complexes

    return complexes.measure_on_cuda(repeat, scale)


SECTIONS: dict[str, Callable[[int, float], Section]] = {
    "kernels": _kernels,
    "launch": _launch,
    "devices": _devices,
    "compile": _compile,
    "host": _host,
    "rows": _rows,
    "speculation": _speculation,
    "scans": _scans,
    "types": _types,
    "nests": _nests,
    "complex": _complex,
    "complex_cuda": _complex_cuda,
}
"""What measures each section: takes the number of turns, and how much of the sizes to take."""
