"""``benchmarks/walk.py``: that it counts what it says, and how far the package's calls walk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import offload as omp
from offload.cli.demo.examples import load_benchmark

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "walk.py"
MOST_VISITS = {"first": 0.65, "settled": 0.65}
MOST_RETURNS = {"first": 0.5, "settled": 0.5}
"""The most that visits and returns of the judged rows may be of the reference's: the goals."""


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


def _events(walk, text):
    """Return the events of words like ``a.f`` (a call of f in file a) and ``-`` (a return)."""
    return [walk.Event(word != "-", *(word.split(".") if word != "-" else ("", ""))) for word in text.split()]


@pytest.mark.parametrize(
    ("text", "visits", "calls", "files", "returns", "turns"),
    [
        ("", 0, 0, 0, 0, 0),
        ("a.f -", 1, 1, 1, 0, 1),
        ("a.f a.g - a.h - -", 1, 3, 1, 0, 1),
        ("a.f b.g c.h - - -", 3, 3, 3, 0, 5),
        ("a.f b.g - b.h - -", 2, 3, 2, 0, 5),
        ("a.f b.g - a.h - b.g - -", 4, 4, 2, 2, 5),
    ],
)
def test_counts(walk, text, visits, calls, files, returns, turns):
    """A visit begins with a call into another file than that of the call before; returns alone begin none."""
    assert walk.count(_events(walk, text)) == walk.Counts(visits, calls, files, returns, turns)


def test_only_the_package_is_walked(walk):
    """Functions of other files do not count, neither do those of other threads, and the profile function is gone."""
    events = walk.walk(lambda: json.dumps({"a": [1]}))
    assert events == []
    assert sys.getprofile() is None


def test_a_failing_walk_leaves_no_profile_function(walk):
    """What the walked call raises arrives, and nothing is left in the interpreter."""
    with pytest.raises(ZeroDivisionError):
        walk.walk(lambda: 1 / 0)
    assert sys.getprofile() is None


def test_a_clause_goes_straight_down(found):
    """``inout(x)`` enters three files at most, each once."""
    for figures in found["rows"]["inout(x)"].values():
        assert figures["returns"] == 0
        assert figures["visits"] == figures["files"] <= 3
        assert figures["files"] <= figures["calls"] <= 7


def test_the_package_is_named(found):
    """What is printed names the package that was walked."""
    assert Path(found["package"]) == Path(omp.__file__).parent


def test_rows_are_compared_with_the_reference(walk, found):
    """Each row has its figures, the reference's and the ratios; visits are files and returns."""
    assert list(found["rows"]) == list(walk.ROWS)
    for row, states in found["rows"].items():
        for state, figures in states.items():
            assert figures["visits"] == figures["files"] + figures["returns"]
            assert figures["visits"] <= figures["calls"]
            then = dict(zip(("calls", "visits", "files", "returns"), walk.reference(row, state), strict=True))
            assert figures["reference"] == then
            assert figures["ratios"]["visits"] == figures["visits"] / then["visits"]
            if row in walk.JUDGED:
                ratios = figures["ratios"]
                assert ratios["returns"] == figures["returns"] / then["returns"]
                assert figures["met"] == (ratios["visits"] <= 0.6 and ratios["returns"] <= 0.5)


def test_ways_do_not_grow(walk, found):
    """Calls walk no further than the limits allow."""
    for row in walk.JUDGED:
        for state, figures in found["rows"][row].items():
            assert figures["ratios"]["visits"] <= MOST_VISITS[state], (row, state)
            assert figures["ratios"]["returns"] <= MOST_RETURNS[state], (row, state)


@pytest.mark.parametrize("option", [[], ["--show", "1"]])
def test_it_prints_for_people(option):
    """Without ``--json`` it prints a table, or the visits of one row."""
    shown = _run("--repeat", "1", *option).stdout
    assert ("inout" if option else "visits of files") in shown


def test_a_mistaken_number_of_repeats():
    """What cannot be measured is an error that names the option."""
    done = _run("--repeat", "0")
    assert done.returncode == 2
    assert "--repeat 0" in done.stderr
