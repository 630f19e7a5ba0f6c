"""How long a loop takes from its text to C, to the end of its first call, and of that in a second process.

Each row is of processes of its own, since what was made before is what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import offload as omp
from benchmarks.harness.measuring import Section, Table, promise
from benchmarks.harness.programs import ROOT
from benchmarks.loops import programs
from offload.errors import DeviceUnavailableError, InternalError

_TO_C_MS, _FIRST_S, _KEPT_MS, _HIT_US = 10.0, 0.4, 20.0, 3.0
_N_HITS = 2000

_ON_CUDA = """
import json, time
import offload as omp
from benchmarks.loops import programs

found = {}
with omp.Runtime("cuda:0"):
    omp.target_loop(programs.short.python)(programs.np.zeros(1))  # what is imported and compiled once
    for case in programs.cases(0.01):
        with omp.target_data(map=[omp.tofrom(one) for one in case.arguments if hasattr(one, "shape")]):
            began_s = time.perf_counter()
            function = omp.target_loop(case.function.python, atomic=["counts"] if case.name == "histogram" else [])
            function(*case.arguments)
            found[case.name] = (time.perf_counter() - began_s) * 1e3
print(json.dumps(found))
"""

_PROGRAM = """
import json, sys, time
import offload as omp
from benchmarks.loops import programs

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
    """Measure ``repeat`` times some processes, with a cache that is empty for the first that calls."""
    to_c: dict[str, list[float]] = {}
    first: dict[str, list[float]] = {}
    second: dict[str, list[float]] = {}
    on_cuda: dict[str, list[float]] = {}
    again: dict[str, list[float]] = {}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="offload-bench-") as cache:
            parts = [(_PROGRAM, "source", to_c), (_PROGRAM, "call", first), (_PROGRAM, "call", second)]
            if has_cuda():
                parts += [(_ON_CUDA, "", on_cuda), (_ON_CUDA, "", again)]
            for program, what, found in parts:
                for name, ms in in_a_process(program, cache, what).items():
                    found.setdefault(name, []).append(ms)
    rows = {"text to C": to_c, "first call": first, "first call, compiled by another process": second}
    targets = [
        promise("text to C, ms", to_c, _TO_C_MS),
        promise("first call, ms", first, _FIRST_S * 1e3),
        promise("first call from the cache on disk, ms", second, _KEPT_MS),
    ]
    if on_cuda:
        rows |= {"first call, NVRTC": on_cuda, "first call, compiled by another process, NVRTC": again}
        targets.append(promise("first call, NVRTC, ms", on_cuda, _FIRST_S * 1e3))
        targets.append(promise("first call from the cache on disk, NVRTC, ms", again, _KEPT_MS))
    hits = {case.name: [_hit_us(case) for _ in range(repeat)] for case in programs.cases(0.01)}
    targets.append(promise("types found again, µs", hits, _HIT_US))
    again_table = Table("The function of types that a call has had before, µs a look-up", {"found again": hits})
    return Section({"compile": Table("From a function to its kernel, ms", rows), "hits": again_table}, targets)


def _hit_us(case: programs.Case) -> float:
    """Return µs to find what was made of a function for types like those of a case."""
    program = case.function._program  # noqa: SLF001  # what a call asks
    values = program.bound(case.arguments, {})
    program.specialise(values)
    began_s = time.perf_counter()
    for _ in range(_N_HITS):
        program.specialise(values)
    return (time.perf_counter() - began_s) * 1e6 / _N_HITS


def has_cuda() -> bool:
    """Tell whether there is a CUDA device."""
    try:
        with omp.Runtime("cuda:0"):
            return True
    except DeviceUnavailableError:
        return False


def in_a_process(program: str, cache: str, what: str) -> dict[str, Any]:
    """Run a text in a process of its own, with this cache on disk, and return the JSON that it prints."""
    path = os.pathsep.join([str(Path(omp.__file__).parents[1]), str(ROOT)])  # the package that is measured first
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, what],
        env={**os.environ, "PYTHONPATH": path, "OFFLOAD_CACHE_DIR": cache, "CUPY_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InternalError(f"loops: a process that compiles ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
