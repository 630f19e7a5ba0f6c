"""How long a loop takes from its text to C, to the end of its first call, and of that in a second process.

Each row is of processes of its own, since what was made before is what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from offload.cli.bench.measuring import Section, Table, promise
from offload.errors import InternalError

_TO_C_MS, _FIRST_S, _KEPT_MS = 10.0, 0.4, 20.0

_PROGRAM = """
import json, sys, time
import offload as omp
from offload.cli.bench.loops import programs

found = {}
with omp.Runtime("none", num_threads=2):
    omp.parallel_loop(programs.short.python)(programs.np.zeros(1))  # what is imported and compiled once
    for case in programs.cases(0.01):
        began_s = time.perf_counter()
        function = omp.parallel_loop(case.function.python, atomic=["counts"] if case.name == "histogram" else [])
        (function if sys.argv[1] == "call" else function.source)(*case.arguments)
        found[case.name] = (time.perf_counter() - began_s) * 1e3
print(json.dumps(found))
"""


def measure(repeat: int) -> Section:
    """Measure ``repeat`` threes of processes, with a cache that is empty for the first that calls."""
    to_c: dict[str, list[float]] = {}
    first: dict[str, list[float]] = {}
    second: dict[str, list[float]] = {}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="offload-bench-") as cache:
            for what, found in (("source", to_c), ("call", first), ("call", second)):
                for name, ms in _in_a_process(cache, what).items():
                    found.setdefault(name, []).append(ms)
    rows = {"text to C": to_c, "first call": first, "first call, compiled by another process": second}
    return Section(
        {"compile": Table("From a function to its kernel, ms", rows)},
        [
            promise("text to C, ms", to_c, _TO_C_MS),
            promise("first call, ms", first, _FIRST_S * 1e3),
            promise("first call from the cache on disk, ms", second, _KEPT_MS),
        ],
    )


def _in_a_process(cache: str, what: str) -> dict[str, Any]:
    done = subprocess.run(  # noqa: S603  # this interpreter, and the program above
        [sys.executable, "-c", _PROGRAM, what],
        env={**os.environ, "OFFLOAD_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InternalError(f"bench loops: a process that compiles ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
