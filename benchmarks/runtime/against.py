"""The CPU time of a study with another commit's package and with this tree's, in alternated processes.

``python benchmarks/run.py against [--turns 31] REV tasks --repeat 3`` runs the study ``tasks --repeat 3`` in turn with
the package of ``REV``, with ``REV`` again, and with this tree's. The ratio of ``REV`` to itself is the noise.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from statistics import median, quantiles

from benchmarks.harness.programs import ROOT

THEN, AGAIN, NOW = "then", "then, again", "now"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = __doc__
    parser.add_argument("--turns", type=int, default=31, metavar="N", help="runs of each (default: 31)")
    parser.add_argument("revision", metavar="REV", help="the commit to compare with")
    parser.add_argument("study", nargs=argparse.REMAINDER, metavar="STUDY …", help="a study, with its options")


def run(args: argparse.Namespace) -> int:
    """Alternate the processes; print the medians of their CPU times and the ratios to the commit's."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", args.revision, "offload"], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        trees = {THEN: folder, AGAIN: folder, NOW: str(ROOT)}
        times_s: dict[str, list[float]] = {name: [] for name in trees}
        for turn in range(-1, args.turns):  # the first turn compiles and warms up
            for name in sorted(trees, reverse=bool(turn % 2)):
                took_s = cpu_time_s(trees[name], args.study)
                if turn >= 0:
                    times_s[name].append(took_s)
    first = median(times_s[THEN])
    for name, samples in times_s.items():
        low, middle, high = quantiles(samples, n=4) if len(samples) > 1 else samples * 3
        print(f"{name:12} {middle:.3f} s of CPU time (quartiles {low:.3f} to {high:.3f}); ratio {middle / first:.4f}")
    return 0


def cpu_time_s(tree: str, study: list[str]) -> float:
    """Run a study with the package of a tree; return the CPU time of its processes, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "run.py"), *study],
        cwd=tempfile.gettempdir(),  # not in a tree: its package would be found first
        env={**os.environ, "PYTHONPATH": tree},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
