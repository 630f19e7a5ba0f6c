"""``benchmarks/run.py cluster``: that it measures, and that its model is the one on paper."""

from __future__ import annotations

import json

import pytest

from benchmarks.run import main

pytestmark = pytest.mark.bench


def test_it_measures(capsys):
    """Each section has its table, and the promises their figures."""
    assert main(["cluster", "--quick", "--repeat", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures["sections"]) == ["regions", "chains", "hops", "data", "cholesky", "losses"]
    assert all(target["figure"] > 0 for target in figures["targets"])
    assert len(figures["targets"]) == 6


def test_the_model(capsys):
    """A thousand workers take half a second for a round of segments."""
    assert main(["cluster", "--model", "1000", "--quick", "--repeat", "1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["sections"]["model"]["tables"]["model"]["rows"]
    assert rows["1,000"]["a round of segments, ms"] == [500]
    assert rows["10"]["a round of segments, ms"] == [7]


def test_wrong_numbers(capsys):
    """They are told, with status 2."""
    assert main(["cluster", "--workers", "1"]) == 2
    assert "workers" in capsys.readouterr().err
