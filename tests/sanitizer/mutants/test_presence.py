"""The order of OpenACC's operations by the presence of their data: the oracle and the sanitizer agree on it."""

from __future__ import annotations

from itertools import product

import pytest

import benchmarks.run  # noqa: F401  # has `import benchmarks` find the studies
from benchmarks.sanitizer.oracle.judge import judge
from benchmarks.sanitizer.running import sanitized, written
from tests.profiles import few

START = """
import numpy as np
from offload import acc

@acc.parallel(present=["x"])
def present(x):
    x += 1

@acc.parallel(copy=["x"])
def copies(x):
    x += 1

x = np.ones(4)
"""
OPERATIONS = {
    "present": "present.options(async_={})(x)",
    "copies": "copies.options(async_={})(x)",
    "enter": "acc.enter_data(copyin=[x], async_={})",
    "exit": "acc.exit_data(copyout=[x], async_={})",
    "delete": "acc.exit_data(delete=[x], async_={})",
    "update host": "acc.update(self_=[x], async_={})",
    "update device": "acc.update(device=[x], async_={})",
}
QUICK = {(1, "present", "exit"), (1, "present", "update host"), (2, "enter", "present"), (0, "copies", "copies")}


@pytest.mark.parametrize(
    ("references", "one", "other"), few(QUICK, product(range(3), OPERATIONS, OPERATIONS), are_rows=True)
)
def test_two_queues(references, one, other, tmp_path):
    """Operations of two queues on one array are in order if a data construct is one of them."""
    lines = ["acc.enter_data(copyin=[x])"] * references
    lines += [OPERATIONS[one].format(1), OPERATIONS[other].format(2), "acc.wait()"]
    lines += ["while acc.is_present(x):", "    acc.exit_data(delete=[x])"]
    text = START + "\n".join(lines)
    file = written(text, "program", tmp_path)
    verdict = judge(text, file)
    if verdict.error is not None:
        return  # data that is not there
    expected = any(one.rule == "race" for one in verdict.violations)
    for seed in range(3):
        assert any(found["rule"] == "race" for found in sanitized(text, file, seed)["findings"]) == expected
