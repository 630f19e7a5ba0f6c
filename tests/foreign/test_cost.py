"""What an object of another library costs at a call, in calls of functions; NumPy arrays cost what they cost before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import offload as omp
from tests.foreign.kinds import HAS

MOST_MORE = {"memoryview": 12, "array.array": 12, "ctypes": 12, "interface": 17, "DLPack": 18, "tensor": 15}
"""How many calls an operation may take more than with a NumPy array; properties of the objects' own classes count."""

OF_NUMPY = {
    "target nowait, present, depend": 31,
    "target, present, blocking": 85,
    "target_update nowait": 59,
    "target_update": 87,
    "out(x)": 10,
}
"""The most calls with a NumPy array. Lower them when a change takes less."""

BODY_OF_A_TENSOR = 12
"""How many calls the body's own tensor takes, which a region that blocks may make on the encountering thread."""


def run(*argv: str) -> str:
    """Run Python in a process of its own, where no class has a mapper; return what it prints."""
    roots = [str(Path(omp.__file__).parents[1]), str(Path(__file__).parents[2])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*roots, *sys.path])}
    return subprocess.run([sys.executable, *argv], capture_output=True, text=True, env=env, check=True).stdout


@pytest.fixture(scope="module")
def calls() -> dict[str, dict[str, int]]:
    """The calls of each operation, by kind."""
    found: dict[str, dict[str, int]] = json.loads(run("-m", "tests.foreign.calls"))
    return found


@pytest.mark.parametrize("kind", [kind for kind in MOST_MORE if kind != "tensor" or HAS["torch"]])
def test_calls(calls: dict[str, dict[str, int]], kind: str) -> None:
    """An object that is present takes few calls more than a NumPy array, and as many at each call."""
    more = {row: n - calls["NumPy"][row] for row, n in calls[kind].items()}
    most = dict.fromkeys(more, MOST_MORE[kind])
    most["target, present, blocking"] += BODY_OF_A_TENSOR * (kind == "tensor")
    assert {row: n for row, n in more.items() if n > most[row]} == {}


def test_calls_with_numpy(calls: dict[str, dict[str, int]]) -> None:
    """A NumPy array takes no more calls than before there were arrays of other libraries."""
    assert {row: n for row, n in calls["NumPy"].items() if n > OF_NUMPY[row]} == {}


def test_the_import_is_small() -> None:
    """Importing the package, and using a buffer, imports none of the libraries whose arrays it takes."""
    program = """
import sys
import numpy as np
before = set(sys.modules)
import offload as omp
with omp.Runtime("sim:1"):
    item = bytearray(4)
    omp.target(lambda x: x.fill(1))(item)
    assert item == bytes([1] * 4)
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""
    roots = set(run("-c", program).split())
    assert "offload" in roots
    others = roots - sys.stdlib_module_names - {"offload", "numpy", "cython_runtime"}  # the last one is of NumPy
    assert {name for name in others if not name.startswith("_")} == set()
