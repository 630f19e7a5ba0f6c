"""``benchmarks/run.py pragma``: NAS kernels with directive strings, along with the same kernels as loop functions."""

from __future__ import annotations

import os
import platform
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import offload
from benchmarks.harness import sections
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from offload.cli.demo.examples import load_example
from offload.errors import ClauseError, DeviceUnavailableError, HostFallbackWarning

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

STRINGS, FUNCTIONS, AGAIN = "directive strings", "loop functions", "loop functions again, as a control"
NO_SLOWER = 1.02
WHERE = {"host": "none", "sim": "sim:1", "cuda": "cuda:0"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Run NAS EP, CG and MG as plain loops with directive strings (examples/nas_*.py), and as loop functions, in "
        "turn: on the host, on a simulated device, and on a CUDA device if there is one. Every result is verified by "
        "the published one. It reports: the exit status is 0 also where a target is missed."
    )
    sections.add_choice(parser, WHERE)
    parser.add_argument("--size", metavar="CLASS", default="S", choices=["tiny", "S", "W", "A"], help="tiny, S, W or A")
    sections.add_repeat(parser)
    sections.add_forms(parser)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1.
    InternalError
        A result was wrong.
    UnsupportedError
        The examples are not here: this is no checkout.
    """
    sections.check_repeat(args)
    measures = {
        name: partial(_measure, spec, args.size, args.repeat)
        for name, spec in WHERE.items()
        if not args.section or name in args.section
    }
    machine = {
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "offload": offload.__version__,
    }
    sections.show(args, sections.measure_each(measures, machine, args.repeat))
    return 0


def _measure(spec: str, size: str, repeat: int) -> Section:
    """Measure on one device, or say why it cannot be measured."""
    try:
        runtime = offload.Runtime(spec)
    except (ClauseError, DeviceUnavailableError) as error:
        return Section(skipped=str(error))
    with runtime, warnings.catch_warnings():
        warnings.simplefilter("ignore", HostFallbackWarning)  # the host is asked for
        return measure(size, repeat)


def kernels(size: str) -> dict[str, tuple[Callable[[Any], Any], Callable[[Any], bool]]]:
    """Return, for each kernel of a size, its run with one of both programs, and the check of the result."""
    ep, cg, mg = (load_example(f"nas_{name}") for name in ("ep", "cg", "mg"))
    log_pairs = {"tiny": 16, "S": 24, "W": 25, "A": 28}[size]
    of_cg, (n_levels, residual) = cg.SIZES[size], mg.SIZES[size]
    matrix, charges = cg.matrix_of(of_cg), mg.charges(n_levels)
    is_published = size != "tiny"
    return {
        "EP": (
            lambda program: (program or ep).ep(2**log_pairs // ep.PAIRS),
            lambda found: not is_published or ep.is_right(found[:2], log_pairs),
        ),
        "CG": (
            lambda program: (program or cg).cg(*matrix, of_cg.shift, of_cg.n_outer),
            lambda found: not is_published or abs(found - of_cg.zeta) <= 1e-10,
        ),
        "MG": (
            lambda program: (program or mg).mg(charges, n_levels, mg.CYCLES),
            lambda found: not is_published or abs(found / residual - 1) <= 1e-8,
        ),
    }


def measure(size: str, repeat: int) -> Section:
    """Measure the kernels on the current runtime."""
    from benchmarks.pragma import nas_functions  # compiles nothing yet

    times = Table("NAS kernels, ms")
    ratios = Table(f"Directive strings / loop functions: at most {NO_SLOWER}")
    for name, (kernel, is_right) in kernels(size).items():
        programs = {STRINGS: None, FUNCTIONS: nas_functions, AGAIN: nas_functions}
        for which, program in programs.items():
            expect(is_right(kernel(program)), f"NAS {name}, {which}")
            kernel(program)  # what is learned in a second call
        runs = alternate({which: partial(_ms, kernel, program) for which, program in programs.items()}, repeat)
        for which, samples in runs.items():
            times.rows.setdefault(which, {})[name] = samples
        for which in (STRINGS, AGAIN):
            ratios.rows.setdefault(which, {})[name] = pairwise(runs[which], runs[FUNCTIONS])
    target = promise("directive strings are no slower", ratios.rows[STRINGS], NO_SLOWER)
    return Section({"times": times, "ratios": ratios}, [target])


def _ms(kernel: Callable[[Any], Any], program: Any) -> float:
    began_s = time.perf_counter()
    kernel(program)
    return (time.perf_counter() - began_s) * 1e3
