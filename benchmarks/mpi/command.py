"""``benchmarks/run.py mpi``: the command."""

from __future__ import annotations

import os
import platform
from functools import partial
from typing import TYPE_CHECKING, Any

import offload as omp
from benchmarks.harness import sections
from offload.cli.ranks import end_all
from offload.errors import ClauseError, OffloadError, UnsupportedError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from benchmarks.harness.measuring import Section
    from benchmarks.mpi.job import Job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Measure on the ranks of a job (mpiexec -n P python benchmarks/run.py mpi), of one rank without it. Results "
        "are checked before they are timed; the times are those of the slowest rank, and the first one prints them. It "
        "reports: the exit status is 0 also where targets are missed."
    )
    sections.add_choice(parser, SECTIONS)
    sections.add_repeat(parser)
    parser.add_argument(
        "--model",
        metavar="P",
        type=int,
        help="say what the transform over ranks would take on P of them, from constants measured here; without "
        "--section that alone",
    )
    parser.add_argument("--quick", action="store_true", help="measure as little as shows that it works")
    sections.add_forms(parser)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1. The first rank raises it, the others return 2.
    UnsupportedError
        There is no mpi4py.
    """
    try:
        from mpi4py import MPI

        from benchmarks.mpi.job import Job
    except ImportError as error:
        raise UnsupportedError(f"mpi: {error}; pip install 'offload[mpi]'") from error
    comm = MPI.COMM_WORLD
    try:
        _check(args)
    except OffloadError:
        if comm.rank == 0:
            raise
        return 2
    try:
        figures = _measure(args, Job(comm, args.repeat, args.quick))
    except BaseException as error:
        if comm.size > 1:
            end_all(comm, error)
        raise
    if comm.rank == 0:
        sections.show(args, figures)
    return 0


def _check(args: argparse.Namespace) -> None:
    sections.check_repeat(args)
    if args.model is not None and args.model < 2:
        raise ClauseError(f"--model {args.model}: take a number of ranks, at least 2")


def _measure(args: argparse.Namespace, job: Job) -> dict[str, Any]:
    names = args.section or ([] if args.model else list(SECTIONS))
    measures = {name: partial(measure, job) for name, measure in SECTIONS.items() if name in names}
    if args.model:
        measures["model"] = partial(_model, job, args.model)
    return sections.measure_each(measures, _machine(job), args.repeat)


def _machine(job: Job) -> dict[str, str]:
    """Describe the job, the software and the processors, by names that make a sentence."""
    import mpi4py
    from mpi4py import MPI

    library = MPI.Get_library_version().splitlines()[0].strip("\0 ,").split(",")[0]
    return {
        "ranks": str(job.comm.size),
        "hosts": str(len(set(job.comm.allgather(platform.node())))),
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
        "library": " ".join(library.split()),
        "mpi4py": mpi4py.__version__,
        "Python": platform.python_version(),
        "offload": omp.__version__,
    }


def _model(job: Job, n_ranks: int) -> Section:
    from benchmarks.mpi import model

    return model.measure(job, n_ranks)


def _latency(job: Job) -> Section:
    from benchmarks.mpi import latency

    return latency.measure(job)


def _bandwidth(job: Job) -> Section:
    from benchmarks.mpi import bandwidth

    return bandwidth.measure(job)


def _calls(job: Job) -> Section:
    from benchmarks.mpi import calls

    return calls.measure(job)


def _halo(job: Job) -> Section:
    from benchmarks.mpi import halo  # imports mpi4py

    return halo.measure(job)


def _overlap(job: Job) -> Section:
    from benchmarks.mpi import overlap

    return overlap.measure(job)


SECTIONS: dict[str, Callable[[Job], Section]] = {
    "latency": _latency,
    "bandwidth": _bandwidth,
    "calls": _calls,
    "overlap": _overlap,
    "halo": _halo,
}
"""What measures each section, on all ranks in step. Each opens the runtime that it needs."""
