"""Measure the figures of the performance page: ``python benchmarks/figures.py [NAME …]``.

Each figure is the ``--json`` of one command, written to ``docs/figures/NAME.json`` with machine, date and command. A
figure that cannot be measured here is left out, and the program says why: its file stays as it is. All figures take
less than eight minutes; a figure that does not end in the time that is left is given up.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import packages_distributions, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
INTO = ROOT / "docs" / "figures"
LIMIT_S = 465
"""Of all figures together: the rest of eight minutes is for the end of the last one."""


@dataclass(frozen=True, slots=True)
class Command:
    """The command that measures a figure."""

    words: tuple[str, ...]  # of `offload bench` or of `benchmarks/run.py`, by the first word
    gpus: int = 0  # that it needs
    peers: tuple[str, ...] = ()  # the modules that it needs
    quick: tuple[str, ...] = ("--repeat", "1")  # the options that measure as little as possible
    env: dict[str, str] = field(default_factory=dict)

    def shown(self) -> str:
        """Return the command as a reader types it, without ``--json``."""
        first = "offload" if self.words[0] == "bench" else "python benchmarks/run.py"
        return " ".join([*(f"{name}={value}" for name, value in self.env.items()), first, *self.words])

    def run(self, options: tuple[str, ...] = (), limit_s: float | None = None) -> dict:
        """Run the command with ``--json`` and return its results; raise `RuntimeError` with its error message."""
        first = ["-m", "offload"] if self.words[0] == "bench" else [str(ROOT / "benchmarks" / "run.py")]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, **self.env, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(
            [sys.executable, *first, *self.words, *options, "--json"],
            capture_output=True, text=True, env=env, timeout=limit_s, check=False,
        )  # fmt: skip
        if not done.stdout.startswith("{"):  # a study whose target is missed ends with 1 and its results
            raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")
        return json.loads(done.stdout)


COMMANDS = {
    "device-tasks": Command(("gpu", "--section", "tasks", "graph"), gpus=1, peers=("cupy",)),
    "pipeline": Command(("gpu", "--section", "pipeline", "--repeat", "5"), gpus=1, peers=("cupy",)),
    "gpu-loops": Command(
        ("loops", "--section", "kernels"), gpus=1, peers=("cupy",), quick=("--repeat", "1", "--quick")
    ),
    "several-gpus": Command(
        ("loops", "--section", "devices"), gpus=2, peers=("cupy",), quick=("--repeat", "1", "--quick")
    ),
    "host-tasks": Command(("bench", "tasks", "--repeat", "21"), peers=("dask",), quick=("--repeat", "1", "--quick")),
    "host-loops": Command(
        ("loops", "--section", "host", "--repeat", "21"),
        peers=("numba",),
        quick=("--repeat", "1", "--quick"),
        env={"OMP_WAIT_POLICY": "passive"},
    ),
    "present-table": Command(("present", "--repeat", "21")),
    "cluster": Command(
        ("cluster", "--section", "regions", "hops", "data", "--repeat", "21"),
        peers=("distributed",),
        quick=("--repeat", "1", "--quick"),
    ),
    "seeing-a-run": Command(
        ("observed", "--repeat", "21", "--tasks", "5000"), quick=("--repeat", "1", "--tasks", "50")
    ),
    "directive-strings": Command(("bench", "pragma"), quick=("--repeat", "1", "--quick")),
}
"""The commands of the figures, by the names that docs/build_site/plots.py has for them; first those that need GPUs."""


GPUS = """
from cupy.cuda import runtime
for number in range(runtime.getDeviceCount()):
    print(runtime.getDeviceProperties(number)["name"].decode())
"""


def gpu_names() -> list[str]:
    """Return the names of the GPUs that CuPy sees, asked in a process of its own, which leaves no memory in use."""
    done = subprocess.run([sys.executable, "-c", GPUS], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def missing(command: Command, n_gpus: int) -> str:
    """Return why a command cannot measure its figure here, or an empty text."""
    if command.gpus > n_gpus:
        return f"it needs {command.gpus} CUDA GPU{'s' * (command.gpus > 1)}, and CuPy sees {n_gpus or 'none'} here"
    absent = [name for name in command.peers if importlib.util.find_spec(name) is None]
    if absent:
        return f"it needs {absent[0]}, which is not installed"
    return ""


def machine(command: Command, gpus: list[str], loads: tuple[float, float]) -> str:
    """Describe the machine that measured a figure."""
    cores = len(os.sched_getaffinity(0))
    parts = [f"{len(gpus)} x {gpus[0]}" if command.gpus > 1 else gpus[0]] if command.gpus else []
    parts.append(f"{cores} cores, load {min(loads):.1f} to {max(loads):.1f}")
    if os.nice(0) > 0:
        parts.append("at low priority")
    parts.append(f"Python {platform.python_version()}")
    installed = packages_distributions()  # CuPy's wheels are named after the version of CUDA
    parts += [f"{name} {version(installed[name][0])}" for name in ("numpy", *command.peers)]
    return ", ".join(parts)


def measure(name: str, gpus: list[str], limit_s: float) -> dict:
    """Measure a figure and return its file."""
    command, before = COMMANDS[name], os.getloadavg()[0]
    results = command.run(limit_s=limit_s)
    return {
        "figure": name,
        "machine": machine(command, gpus, (before, os.getloadavg()[0])),
        "date": date.today().isoformat(),  # noqa: DTZ011 - of the person who measures
        "command": command.shown(),
        "results": results,
    }


def main() -> int:
    """Measure the figures that the arguments name, by default all; 1 if a command failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", nargs="*", help=f"of {', '.join(COMMANDS)} (default: all)")
    parser.add_argument(
        "--into", metavar="FOLDER", type=Path, default=INTO, help="where to write (default: docs/figures)"
    )
    parser.add_argument(
        "--limit", metavar="S", type=float, default=LIMIT_S, help="seconds for all (default: %(default)s)"
    )
    args = parser.parse_args()
    unknown = set(args.name) - set(COMMANDS)
    if unknown:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}; use {', '.join(COMMANDS)}")
    args.into.mkdir(parents=True, exist_ok=True)
    gpus, began_s, failed = gpu_names(), time.monotonic(), False
    for name in args.name or COMMANDS:
        why, left_s, since_s = (
            missing(COMMANDS[name], len(gpus)),
            args.limit - time.monotonic() + began_s,
            time.monotonic(),
        )
        if why or left_s <= 0:
            print(f"{name}: left out: {why or 'the time is over'}", flush=True)
            continue
        try:
            recorded = measure(name, gpus, left_s)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: FAILED: {error}", flush=True)
            failed = True
            continue
        (args.into / f"{name}.json").write_text(json.dumps(recorded, ensure_ascii=False) + "\n", "utf-8")
        print(f"{name}: {time.monotonic() - since_s:.0f} s", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
