"""``benchmarks/run.py parray``: its tables and verdicts."""

from __future__ import annotations

import json

import pytest

from benchmarks.parray import command as bench
from benchmarks.run import main

pytestmark = pytest.mark.bench


@pytest.fixture
def small(monkeypatch):
    """Sizes at which it is over soon."""
    monkeypatch.setattr(bench, "_SIDE", 256)
    monkeypatch.setattr(bench, "_N_CALLS", 3)
    monkeypatch.setattr(bench, "_N_WINDOWS", 3)
    monkeypatch.setattr(bench, "_TEAMS", (2,))


def test_every_section(small, capsys):
    """Each section has its table with a sample for each turn, and its promises."""
    assert main(["parray", "--json", "--repeat", "2"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures["sections"]) == ["host", "calls", "cold", "threads"]
    for section in figures["sections"].values():
        for table in section["tables"].values():
            assert table["rows"]
            assert all(len(samples) == 2 for row in table["rows"].values() for samples in row.values())
    assert len(figures["targets"]) == 2 + 1 + 2 + 1


def test_tables_for_people(small, capsys):
    """One section alone, as a table."""
    assert main(["parray", "--repeat", "1", "--section", "cold"]) == 0
    shown = capsys.readouterr().out
    assert "8 leaves" in shown
    assert "np.copyto" not in shown
