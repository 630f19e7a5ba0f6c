"""The study of mutants: its mutants, and the sanitizer's figures in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

import benchmarks.run
from benchmarks.sanitizer.catalogue import programs
from benchmarks.sanitizer.mutations import KINDS, mutants


def test_there_are_enough_mutants():
    """At least 25 programs make at least 300 mutants, of each kind some, and no two are alike."""
    chosen = programs()
    made = [mutant for program in chosen.values() for mutant in mutants(program)]
    assert len(chosen) >= 25
    assert len(made) >= 300
    assert len({mutant.text for mutant in made}) == len(made)
    assert set(Counter(mutant.kind for mutant in made)) == set(KINDS)
    assert all(mutant.text != chosen[mutant.program].text for mutant in made)


def test_a_choice_has_all_kinds():
    """A limit chooses mutants of each kind in turn, and the same ones each time."""
    program = programs()["detached_stream"]
    chosen = mutants(program, 4)
    assert [mutant.number for mutant in chosen] == [mutant.number for mutant in mutants(program, 4)]
    assert {mutant.kind for mutant in chosen} == {mutant.kind for mutant in mutants(program)}


def run_study(tmp_path, *options):
    """Run the study as a command; return its mutants, and what it printed."""
    found = tmp_path / "found.json"
    command = [sys.executable, benchmarks.run.__file__, "sanitizer", "--json", str(found), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return json.loads(found.read_text(encoding="utf-8")), done.stdout


def check_figures(judged, text):
    """Check that the faulty mutants are found, and that nothing else is."""
    lines = {line.partition(":")[0].strip(): line for line in text.splitlines()}
    share = float(lines["faulty"].rpartition("(")[2].split()[0])
    assert share >= 95, text
    assert lines["not faulty"].endswith("with a finding: 0"), text
    assert not [one for one in judged if one["label"] == "unclear"], text
    assert "reason: unknown" not in text, text


def test_one_program(tmp_path):
    """The sanitizer finds the faulty mutants of a program with the right kind of fix, and no others."""
    judged, text = run_study(tmp_path, "--program", "saxpy", "--runs", "2", "--seeds", "1")
    assert len(judged) == 1 + len(mutants(programs()["saxpy"]))
    check_figures(judged, text)


@pytest.mark.soak
@pytest.mark.timeout(1600)
def test_many_mutants(tmp_path):
    """Of more than 300 mutants of all programs it finds at least 95 % of the faulty ones, and no others."""
    judged, text = run_study(tmp_path, "--runs", "20", "--seeds", "2")
    assert len(judged) - len(programs()) >= 300
    check_figures(judged, text)
