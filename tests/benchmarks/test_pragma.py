"""``benchmarks/run.py pragma``: NAS kernels with directive strings and as loop functions."""

from __future__ import annotations

import json

import pytest

import offload as omp
from benchmarks.pragma import command as bench
from benchmarks.pragma import nas_functions
from benchmarks.run import main

pytestmark = pytest.mark.bench


def test_every_sample_is_in_json(capsys):
    """JSON has a sample of each program, kernel and turn, the ratios, and one target for each place."""
    assert main(["pragma", "--size", "tiny", "--section", "host", "sim", "--repeat", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert len(figures["targets"]) == 2
    for section in figures["sections"].values():
        times, ratios = (section["tables"][name]["rows"] for name in ("times", "ratios"))
        assert set(times) == {bench.STRINGS, bench.FUNCTIONS, bench.AGAIN}
        for row in (*times.values(), *ratios.values()):
            assert {name: len(samples) for name, samples in row.items()} == {"EP": 2, "CG": 2, "MG": 2}
        for kernel, ours in times[bench.STRINGS].items():
            expected = [one / other for one, other in zip(ours, times[bench.FUNCTIONS][kernel], strict=True)]
            assert ratios[bench.STRINGS][kernel] == pytest.approx(expected)


def test_a_device_that_is_not_there_is_skipped(capsys, monkeypatch):
    """A place without its device has no figures, and says why."""
    monkeypatch.setitem(bench.WHERE, "cuda", "cuda:99")
    assert main(["pragma", "--size", "tiny", "--section", "cuda", "--repeat", "1"]) == 0
    assert "cuda: " in capsys.readouterr().out


def test_a_wrong_result_is_not_timed(sim, monkeypatch):
    """A kernel whose result is not the published one is an error."""
    monkeypatch.setattr(nas_functions, "cg", lambda *_: 0.0)
    with pytest.raises(omp.InternalError, match="CG"):
        bench.measure("S", 1)


def test_what_cannot_be_measured(capsys):
    """A number of turns below 1 is an error that names the option."""
    assert main(["pragma", "--repeat", "0"]) == 2
    assert "--repeat" in capsys.readouterr().err
