"""Random programs come to the same however they are carried out, and a difference is found and made short."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from tests.differential import acc_steps, compare, data_steps, memory_steps, task_steps
from tests.differential.functions import Table
from tests.differential.programs import WEIGHTS, program
from tests.differential.uncompiled import uncompiled
from tests.differential.world import OPERATIONS, Mode, carried_out
from tests.profiles import few

assert all(steps.operation for steps in (acc_steps, data_steps, memory_steps, task_steps)), "they register operations"

ROOT = Path(omp.__file__).parents[1]
SEEDS = [range(first, first + 20) for first in range(10_000, 10_080, 20)]
MODES = {
    "cold": Mode(is_cold=True, disturbs=True),
    "no workers": Mode(num_threads=0, views=True),
    "three workers": Mode(num_threads=3),
}
"""Ways to carry out a program that must not show. In a cold one nothing can be remembered from call to call."""

OTHER = os.environ.get("OFFLOAD_TESTS_OTHER")


def outcomes(mode, seeds):
    """Return the lines of programs."""
    kept = Table()
    with np.errstate(all="ignore"), uncompiled():
        return [carried_out(program(seed), mode, kept) for seed in seeds]


@pytest.fixture(scope="module", params=few(1, SEEDS), ids=str)
def seeds(request):
    """The seeds of some programs."""
    return request.param


@pytest.fixture(scope="module")
def ordinary(seeds):
    """The lines of the programs, carried out as they say."""
    return outcomes(Mode(), seeds)


def test_every_operation_is_drawn():
    """Each operation that there is has a weight, and each that has one is carried out."""
    assert set(WEIGHTS) == set(OPERATIONS)


@pytest.mark.parametrize("mode", MODES)
def test_modes_do_not_show(mode, seeds, ordinary):
    """What functions remember, how views are written and how many workers there are has no influence."""
    for seed, ours, theirs in zip(seeds, ordinary, outcomes(MODES[mode], seeds), strict=True):
        assert ours == theirs, compare.report(program(seed), ours, theirs, ("ordinary", mode))


def test_programs_are_not_all_errors(ordinary):
    """Most steps do something, some fail, and something is left of some programs."""
    lines = [line for program_lines in ordinary for line in program_lines]
    steps = [line for line in lines if re.search("-> ", line)]
    failing = [line for line in steps if re.search("-> .{0,30}Error", line)]
    assert 0.05 < len(failing) / len(steps) < 0.3
    assert any(re.fullmatch(r"references of \d+ on \d+: [1-9]", line) for line in lines)


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("data/maptypes.py", "_TO,        _FROM,     None,   _TOFROM),", "_TO,        _RELEASE,  None,   _TOFROM),"),
        (
            "data/present.py",
            "plan.counted = _distinct(entries)",
            "plan.counted = [e for e in entries if e is not None]",
        ),
        ("data/present.py", "already present on device", "present on device"),
    ],
    ids=["map rule", "reference count", "error text"],
)
@pytest.mark.soak
def test_a_difference_is_found(tmp_path, file, right, wrong):
    """A tree with one wrong map rule, count or error text differs, and a short program shows it."""
    shutil.copytree(ROOT / "offload", tmp_path / "offload", ignore=shutil.ignore_patterns("__pycache__"))
    changed = tmp_path / "offload" / file
    text = changed.read_text()
    assert right in text, f"{file} has changed; break another line there"
    changed.write_text(text.replace(right, wrong))
    found, different = compare.compared((ROOT, tmp_path), range(100))
    assert different
    assert len([line for line in found.splitlines() if line.startswith("    {")]) <= 4


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.skipif(OTHER is None, reason="OFFLOAD_TESTS_OTHER names no other tree")
def test_trees_do_not_differ():
    """20,000 programs come to the same in the tree that OFFLOAD_TESTS_OTHER names."""
    command = [sys.executable, compare.__file__, "--this", str(ROOT), "--other", OTHER]
    done = subprocess.run([*command, "--programs", "0:20000"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
