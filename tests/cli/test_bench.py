"""``offload bench``: its parts, their tables, and what it says of mistakes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import offload as omp
from offload.cli.bench import device
from offload.cli.bench.measuring import in_turn
from offload.cli.command import main

PARTS = ["tasks", "link", "launch", "overlap", "pragma"]


@pytest.mark.slow
def test_every_part_has_every_sample(capsys):
    """Without a name all parts are measured; each row has a sample for each turn. Differences may be negative."""
    assert main(["bench", "--devices", "sim", "--repeat", "2", "--quick", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures["parts"]) == PARTS
    for finding in (one for findings in figures["parts"].values() for one in findings):
        for name, row in finding["rows"].items():
            for samples in row.values():
                assert len(samples) == 2
                assert all(math.isfinite(one) and (one > 0 or "less" in name) for one in samples)


def test_tables_for_people(capsys):
    """One part alone is a table, with what to expect."""
    assert main(["bench", "link", "--devices", "sim", "--repeat", "1", "--quick"]) == 0
    shown = capsys.readouterr().out
    for words in ("GB/s", "inside of the device", "pageable", "Expect"):
        assert words in shown
    assert "Dask" not in shown


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--repeat", "0"], "--repeat 0"),
        (["link", "gpu"], "bench gpu"),
        (["overlap", "--devices", "none"], "--devices"),
    ],
)
def test_what_cannot_be_measured(capsys, argv, told):
    """A mistake is an error that names the option or the part."""
    assert main(["bench", *argv]) == 2
    assert told in capsys.readouterr().err


def test_the_help_says_where_the_studies_are(capsys):
    """The studies are in a clone, and the help says how they are run."""
    assert main(["bench", "--help"]) == 0
    assert "benchmarks/run.py" in capsys.readouterr().out


def test_a_wrong_result_is_no_figure(sim, monkeypatch):
    """Blocks that are not what the work makes of them are not timed."""
    monkeypatch.setattr(device, "process", omp.target(lambda x, passes: None, map=[omp.tofrom("x")]))
    with pytest.raises(omp.InternalError, match="overlap"):
        device.measure_overlap(1, 1 << 10)


def test_the_first_turn_warms_up():
    """Calls are made in turn, and the figures of the first turn are left out."""
    figures = iter(range(10))
    assert in_turn({"one": lambda: next(figures), "other": lambda: next(figures)}, 2) == {
        "one": [2, 4],
        "other": [3, 5],
    }


def test_the_work_is_the_same_on_host_and_device(sim):
    """The body that is timed computes on the device what it computes on the host."""
    block = np.linspace(1, 2, 64, dtype="f4")
    expected = block.copy()
    device.work(expected, 3)
    device.process(block, 3)
    assert np.allclose(block, expected, rtol=1e-6)
