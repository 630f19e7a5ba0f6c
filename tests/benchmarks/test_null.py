"""``benchmarks/run.py null``: that it runs, and that what it counts is the same each time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import offload as omp

pytestmark = pytest.mark.bench

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "run.py"


def run(*options):
    env = {**os.environ, "PYTHONPATH": str(Path(omp.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "null", *options], capture_output=True, text=True, env=env, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_times():
    """Each row has as many runs as it was asked for, all above zero."""
    runs = json.loads(run("--repeat", "2", "--operations", "8", "--json"))
    assert len(runs) == 26
    assert all(len(times) == 2 and min(times) > 0 for times in runs.values())
    assert run("--repeat", "1", "--operations", "8").count("\n") == 27


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of CPython 3.12")
def test_instructions():
    """Each row has its instructions; with --by, those of the functions that execute them come to no more."""
    lines = run("--by", "target_update to").splitlines()
    rows = {line[:40].strip(): float(line[40:]) for line in lines if not line.startswith("  ")}
    assert len(rows) == 25
    assert min(rows.values()) > 500
    by = [float(line.split()[0]) for line in lines if line.startswith("  ")]
    assert sum(by) <= rows["target_update to"] + len(by)
