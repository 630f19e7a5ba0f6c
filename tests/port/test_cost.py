"""The cost of a program of 100,000 operations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RING = """\
import cupy as cp
import cupyx
h = cupyx.zeros_pinned((64, 16))
o = cupyx.empty_pinned((64, 16))
s = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
b = [cp.empty(16) for _ in range(3)]
e = [[cp.cuda.Event() for _ in b] for _ in s]
for i in range(25000):
    k = i % 3
    s[0].wait_event(e[2][k])
    b[k].set(h[i % 64], stream=s[0])
    e[0][k].record(s[0])
    s[1].wait_event(e[0][k])
    with s[1]:
        b[k] *= 2
        b[k] += 1
        e[1][k].record()
    s[2].wait_event(e[1][k])
    b[k].get(out=o[i % 64], stream=s[2], blocking=False)
    e[2][k].record(s[2])
cp.cuda.Device().synchronize()
o.sum()
"""

SLICES = """\
import cupy as cp
import cupyx
h, o, d = cupyx.zeros_pinned(200000), cupyx.empty_pinned(200000), cp.empty(200000)
s = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
for i in range(25000):
    part = slice(8 * i, 8 * i + 8)
    with s[i % 4]:
        d[part].set(h[part])
        d[part] *= 2
        x = d[part] + 1
        x.get(out=o[part], blocking=False)
for one in s: one.synchronize()
o.sum()
"""

LINES = (
    "import cupy as cp\nx = cp.zeros(8)\ncp.cuda.Device().synchronize()\n"
    "a = cp.cuda.Stream(non_blocking=True)\nb = cp.cuda.Stream()\n"
)
LINES += (
    "with a: x += 1\ne = a.record()\nb.wait_event(e)\nb.wait_event(e)\n"
    "with b: x += 1; y = x * 2; z = y + 1\nb.synchronize()\n"
) * 12500

PROGRAMS = {"a ring": (RING, 0, 100_000), "slices": (SLICES, 0, 100_000), "many lines": (LINES, 0, 50_001)}

MEASURE = """
import resource, sys
from offload.cli.command import main
status = main(["port", "--report", "r.json", "program.py"])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [name if name == "a ring" else pytest.param(name, marks=pytest.mark.soak) for name in PROGRAMS]
)
def test_100_000_operations(name, tmp_path):
    """The run and the report take at most 60 s of CPU time, and 2 GB of memory."""
    text, status, operations = PROGRAMS[name]
    (tmp_path / "program.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    cpu_s, gigabytes = map(float, done.stderr.split())
    assert cpu_s <= 60
    assert gigabytes <= 2
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["operations"] == operations
    assert report["races"] == []
