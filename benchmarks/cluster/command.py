"""``benchmarks/run.py cluster``: the command."""

from __future__ import annotations

import os
import platform
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import offload as omp
from benchmarks.harness import sections
from offload.errors import ClauseError

if TYPE_CHECKING:
    import argparse

_WORKERS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Measure the devices of worker processes on this machine, along with bare distributed on the same cluster. "
        "Client, scheduler and workers share the cores. It reports: the exit status is 0 also where targets are missed."
    )
    sections.add_choice(parser, SECTIONS)
    sections.add_repeat(parser)
    parser.add_argument("--workers", metavar="N", type=int, default=_WORKERS, help="worker processes (default: 2)")
    parser.add_argument(
        "--model",
        metavar="W",
        type=int,
        help="say what W workers would reach, from constants measured here; without --section that alone",
    )
    parser.add_argument("--quick", action="store_true", help="measure as little as shows that it works")
    sections.add_forms(parser)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark; raise `ClauseError` for a wrong number."""
    from distributed import Client, LocalCluster

    from benchmarks.cluster.costs import Bench

    sections.check_repeat(args)
    if args.workers < 2 or (args.model is not None and args.model < 1):
        raise ClauseError("cluster: take at least 2 workers here, and at least 1 in the model")
    names = args.section or ([] if args.model else list(SECTIONS))
    with (
        LocalCluster(n_workers=args.workers, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        client.run(_take_own_gpu, sorted(client.scheduler_info(n_workers=-1)["workers"]))
        with omp.Runtime(client):
            bench = Bench(client, args.repeat, is_quick=args.quick)
            measures: dict[str, Any] = {name: partial(getattr(bench, name)) for name in SECTIONS if name in names}
            if args.model:
                measures["model"] = partial(bench.model, args.model)
            figures = sections.measure_each(measures, _machine(args.workers), args.repeat)
    sections.show(args, figures)
    return 0


def _take_own_gpu(addresses: list[str], dask_worker: Any) -> None:
    """Have a worker that sees several GPUs begin with the one of its number, as dask-cuda's workers do."""
    n = len([*Path("/dev").glob("nvidia[0-9]*")])
    if n:
        at = addresses.index(dask_worker.address) % n
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, [*range(at, n), *range(at)]))


def _machine(n_workers: int) -> dict[str, str]:
    """Describe the cluster, the software and the processors, by names that make a sentence."""
    import distributed

    return {
        "workers": str(n_workers),
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
        "distributed": distributed.__version__,
        "Python": platform.python_version(),
        "offload": omp.__version__,
    }


SECTIONS = ("regions", "chains", "hops", "data", "cholesky", "losses")
"""The methods of `Bench` that measure."""
