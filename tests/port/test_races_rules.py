"""Races and needless waits of generated programs, compared with a model by brute force."""

from __future__ import annotations

import pytest

from offload.port import variants
from offload.port.running import ProgramRecorder
from tests.port import brute


@pytest.fixture(autouse=True)
def _all_accesses_are_seen(monkeypatch):
    """The programs have no accesses by the buffer protocol, which the model does not know."""
    plain = ProgramRecorder.__init__

    def init(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        self.log.sees_buffers = True

    monkeypatch.setattr(ProgramRecorder, "__init__", init)


def check(program, report):
    """Compare the report of a generated program with the model's, pair by pair."""
    found = report(program.text)
    races = {(race["first"]["line"], race["second"]["line"]): race["count"] for race in found["races"]}
    assert races == brute.Model(program).races(), program.text
    redundant = {(one["line"], one["call"]): (one["count"], one["why"]) for one in found["redundant"]}
    assert redundant == brute.redundant(program), program.text
    edges = {(edge["first"], edge["second"], edge["kind"]) for edge in found["edges"]}
    assert brute.edges(program) <= edges, program.text


@pytest.mark.parametrize("part", range(10))
def test_fifty_programs(part, report):
    """The reported races and needless calls equal those of all paths and all pairs."""
    for seed in range(part * 5, part * 5 + 5):
        check(brute.Program(seed), report)


@pytest.mark.parametrize(("first", "most"), [(2, 1 << 26), (2, 200), (2, 1)])
def test_few_rows(first, most, report, monkeypatch):
    """The result does not depend on how many variants of a program a pass has room for."""
    monkeypatch.setattr(variants, "_FIRST_ROWS", first)
    monkeypatch.setattr(variants, "_MOST_CELLS", most)
    for seed in range(100, 115):
        check(brute.Program(seed), report)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(10))
def test_a_thousand_programs(part, report):
    """The reported races and needless calls equal those of all paths and all pairs, in 1,000 programs."""
    for seed in range(1000 + part * 100, 1100 + part * 100):
        check(brute.Program(seed), report)
