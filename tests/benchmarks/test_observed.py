"""``benchmarks/run.py observed``: that it runs, and has a ratio for each tool."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import offload as omp

pytestmark = pytest.mark.bench

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "run.py"


def test_ratios():
    """Each tool has a ratio for each turn."""
    env = {**os.environ, "PYTHONPATH": str(Path(omp.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "observed", "--repeat", "2", "--tasks", "50", "--json"],
        capture_output=True, text=True, env=env, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert set(found) == {"off", "again", "trace, profile", "live"}
    assert all(len(ratios) == 2 and min(ratios) > 0 for ratios in found.values())
