"""The sanitizer finds nothing in programs that are right: examples, the README's program, shapes of task graphs."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import benchmarks.run  # noqa: F401  # has `import benchmarks` find the studies
import offload as omp
from benchmarks.tasks.shapes import SHAPES, make_steps, n_cells
from offload.sanitizer import numpy as np
from tests.profiles import few
from tests.test_docs import listings

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("examples/ports/*.py")])
ELSEWHERE = {"cluster_", "fft3d_mpi", "halo_mpi", "torch_"}
"""Examples that need a cluster, several ranks or PyTorch."""
SIZES = {
    "cholesky": ["--size", "60", "--tile", "16"],
    "loops_bodies": ["48"],
    "loops_devices": ["24"],
    "loops_heat": ["24"],
    "loops_histogram": ["20000"],
    "loops_speculation": ["300"],
    "nas_cg": ["tiny"],
    "nas_ep": ["12"],
    "nas_mg": ["tiny"],
}
CONSTANTS = {
    "acc_loops": ("ROWS, COLUMNS = 300, 400", "ROWS, COLUMNS = 24, 32"),
    "acc_present": ("N = 48", "N = 12"),
    "loops_sparse": ("ROWS = 6000", "ROWS = 60"),
}
"""Smaller sizes of examples that take none: each element that the host reads in a loop is an access."""
NAMES = [
    str(path.relative_to(ROOT / "examples").with_suffix(""))
    for path in EXAMPLES
    if not path.name.endswith(("_cupy.py", "_by_hand.py"))
    and not any(path.name.startswith(word) for word in ELSEWHERE)
    and "__main__" in path.read_text(encoding="utf-8")
]
SEEDS = range(10)
QUICK = [("cholesky", 0), ("acc_halo", 1), ("ports/ring", 2)]
CASES = [
    pytest.param(name, seed, marks=[] if (name, seed) in QUICK else pytest.mark.slow if first else pytest.mark.soak)
    for number, name in enumerate(NAMES)
    for seed in SEEDS
    for first in [seed == number % len(SEEDS)]
]
"""Each example under one schedule among the long tests; all ten are soaks: 40 minutes on two cores."""


def check_silent(path, *args, seed):
    """Run a program by the command: it ends well, and nothing is found."""
    command = [sys.executable, "-m", "offload", "run", "--sanitize", "--devices", "sim:2", "--", str(path), *args]
    env = {**os.environ, "OFFLOAD_SEED": str(seed), "PYTHONPATH": str(path.parent)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    reports = [line for line in done.stderr.splitlines() if line.startswith("offload sanitizer: ")]
    assert reports, done.stderr
    assert all(line.startswith("offload sanitizer: 0 findings") for line in reports), done.stderr
    assert "failed to judge" not in done.stderr


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_examples(name, seed, tmp_path):
    """An example has no finding, under ten schedules."""
    path = ROOT / "examples" / f"{name}.py"
    if name in CONSTANTS:
        text = path.read_text(encoding="utf-8")
        old, new = CONSTANTS[name]
        assert old in text
        path = tmp_path / path.name
        path.write_text(text.replace(old, new), encoding="utf-8")
    check_silent(path, *SIZES.get(name, []), seed=seed)


@pytest.mark.parametrize("seed", few(1, SEEDS))
def test_readme(seed, tmp_path):
    """The README's program has no finding."""
    path = tmp_path / "readme.py"
    path.write_text(listings(ROOT / "README.md"), encoding="utf-8")
    check_silent(path, seed=seed)


@pytest.mark.parametrize("seed", few(1, SEEDS))
@pytest.mark.parametrize("on_device", [False, True], ids=["tasks", "regions"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape, on_device, seed):
    """A graph of the benchmarks, whose tasks name all that they access, has no finding."""
    steps = make_steps(shape, 40)
    cells = np.ones((n_cells(steps), 4))

    def update(cell, *others):
        for other in others:
            cell += other
        cell %= 7

    with omp.Runtime("sim:2", sanitize=True, seed=seed, num_threads=3) as runtime:
        construct = omp.target(nowait=True) if on_device else omp.task
        with omp.target_data(map=[cells]) if on_device else nullcontext():
            for step in steps:
                reads = [cells[number] for number in step.reads]
                depend = [omp.inout(cells[step.updates]), *([omp.in_(*reads)] if reads else [])]
                construct(update).options(depend=depend)(cells[step.updates], *reads)
            omp.taskwait()
    assert runtime.findings == ()
