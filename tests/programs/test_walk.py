"""``benchmarks/walk.py``: that it counts what it says, and how many files and calls the package's operations take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import offload as omp
from offload.cli.demo.examples import load_benchmark
from tests.profiles import few

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "walk.py"
MOST = {
    "inout(x)": (2, 4),
    "task": (4, 5),
    "task, depend": (6, 8),
    "target nowait that maps, depend": (15, 25),
    "target nowait that maps, taskwait": (41, 173),
    "target that maps, blocking": (33, 158),
    "target nowait, present, depend": (12, 17),
    "target, present, blocking": (27, 74),
    "target_update nowait, depend": (23, 38),
    "target_update, blocking": (23, 59),
    "acc.parallel async_, present": (16, 27),
    "acc.update async_": (24, 45),
    "target_memcpy_async, depend": (22, 45),
    "target_memcpy, blocking": (22, 66),
}
"""The most files and calls of each operation when it has settled. Lower them when a change takes less."""

MOST_MORE = 4, 8
"""How many files and calls more a first operation may take."""


@pytest.fixture(scope="module")
def walk():
    """Return the program as a module."""
    return load_benchmark("walk")


@pytest.fixture(scope="module")
def found():
    """Return what the program prints as JSON, in a process of its own: the threads of other tests are not there."""
    done = _run("--json", "--repeat", "5")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _run(*options):
    argv = [sys.executable, str(PROGRAM), *options]
    env = {**os.environ, "PYTHONPATH": str(Path(omp.__file__).parents[1])}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize(
    ("text", "files", "calls"),
    [("", 0, 0), ("a.f", 1, 1), ("a.f a.g a.h", 1, 3), ("a.f b.g c.h", 3, 3), ("a.f b.g a.h b.g", 2, 4)],
)
def test_counts(walk, text, files, calls):
    """Each file counts once, and each call."""
    assert walk.count([walk.Call(*word.split(".")) for word in text.split()]) == (files, calls)


def test_only_the_package_is_walked(walk):
    """Functions of other files do not count, neither do those of other threads, and the profile function is gone."""
    assert walk.walk(lambda: json.dumps({"a": [1]})) == []
    assert sys.getprofile() is None


def test_a_failing_walk_leaves_no_profile_function(walk):
    """What the walked call raises arrives, and nothing is left in the interpreter."""
    with pytest.raises(ZeroDivisionError):
        walk.walk(lambda: 1 / 0)
    assert sys.getprofile() is None


def test_the_package_is_named(found):
    """What is printed names the package that was walked."""
    assert Path(found["package"]) == Path(omp.__file__).parent


def test_walks_do_not_grow(found):
    """No operation visits more files, or makes more calls, than it is allowed."""
    assert list(found["rows"]) == list(MOST)
    for row, states in found["rows"].items():
        for key, most, more in zip(("files", "calls"), MOST[row], MOST_MORE, strict=True):
            assert 0 < states["settled"][key] <= most, (row, key)
            assert states["first"][key] <= most + more, (row, key)


@pytest.mark.parametrize("option", few(1, [["--show", "1"], []]))
def test_it_prints_for_people(option):
    """Without ``--json`` it prints a table, or the files and functions of one row."""
    shown = _run("--repeat", "1", *option).stdout
    assert ("inout" if option else "files, settled") in shown


@pytest.mark.parametrize("option", few(1, ["--repeat", "--show"]))
def test_a_mistaken_number(option):
    """What cannot be measured or shown is an error that names the option."""
    done = _run("--repeat", "1", option, "0")
    assert done.returncode == 2
    assert f"{option} 0" in done.stderr
