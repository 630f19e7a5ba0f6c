"""``benchmarks/run.py cuda_calls``: that each of its statements can be timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("options", [[], ["--busy"]])
def test_single_calls(options):
    """Every row of the package's own calls has its samples; candidates that the driver lacks say so."""
    command = [sys.executable, "benchmarks/run.py", "cuda_calls", "--repeat", "1", "--calls", "20", "--json", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    wrong = {row["name"]: row["us"] for row in rows if isinstance(row["us"], str)}
    assert not [name for name in wrong if not name.startswith("cuStream")], wrong
    assert all(us > 0 for row in rows if row["name"] not in wrong for us in row["us"])
