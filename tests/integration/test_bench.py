"""The benchmarks of memory: ``offload bench rect``, ``offload bench present``; and ``info`` with the ICVs."""

from __future__ import annotations

import json

import pytest

import offload
from offload.bench import present
from offload.cli import main


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_bench_rect(capsys, json_option):
    """``bench rect`` prints the rates of strided and contiguous copies and of NumPy, for rows that fit."""
    assert main(["bench", "rect", "--devices", "sim", "--nbytes", "64K", "--repeat", "2", *json_option]) == 0
    shown = capsys.readouterr().out
    if not json_option:
        assert "strided" in shown
        assert "device→device" in shown
        return
    copies = json.loads(shown)["copies"]
    assert {copy["row_nbytes"] for copy in copies} == {64, 1024}
    assert {len(copy["shape"]) for copy in copies} == {2, 3}
    assert {(copy["memory"], copy["to"]) for copy in copies} == {
        ("pageable", "device"),
        ("pageable", "host"),
        ("device", "device"),
    }
    for copy in copies:
        assert copy["over_numpy"] > 0
        for name in ("strided", "contiguous", "numpy"):
            assert 0 < copy[name]["min"] <= copy[name]["median"] <= copy[name]["max"]


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_bench_present(capsys, monkeypatch, json_option):
    """``bench present`` prints what look-ups cost, and ends with 1 where that is more than promised."""
    monkeypatch.setattr(present, "_ENTRIES", (10, 100))
    monkeypatch.setattr(present, "_LOOKUPS", 50)
    monkeypatch.setattr(present, "_LIMITS_US", {10: 1e6})
    assert main(["bench", "present", "--repeat", "2", *json_option]) == 0
    shown = capsys.readouterr().out
    if json_option:
        assert set(json.loads(shown)["entries"]) == {"10", "100"}
    else:
        assert "a part" in shown
    monkeypatch.setattr(present, "_LIMITS_US", {10: 0.0})
    assert main(["bench", "present", "--repeat", "2", *json_option]) == 1


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["rect", "--devices", "sim", "--repeat", "0"], "--repeat"),
        (["rect", "--devices", "sim", "--nbytes", "some"], "--nbytes"),
        (["rect", "--devices", "sim", "--nbytes", "100"], "--nbytes"),
        (["rect", "--devices", "none"], "--devices"),
        (["present", "--repeat", "-1"], "--repeat"),
    ],
)
def test_numbers_out_of_range(capsys, argv, told):
    """What cannot be measured is an error that names the option."""
    assert main(["bench", *argv]) == 2
    assert told in capsys.readouterr().err


def test_info_shows_the_icvs(capsys, monkeypatch):
    """``info`` shows OpenMP's variables as a runtime takes them, and the default device."""
    monkeypatch.setenv("OMP_TARGET_OFFLOAD", " mandatory ")
    monkeypatch.setenv("OMP_DEFAULT_DEVICE", "1")
    assert main(["info", "--devices", "sim:2"]) == 0
    shown = capsys.readouterr().out
    for words in ("OMP_TARGET_OFFLOAD", "MANDATORY", "OMP_DEFAULT_DEVICE", "OMP_DISPLAY_ENV", "default device: 1"):
        assert words in shown
    assert main(["info", "--devices", "sim:2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["default_device"] == 1
    assert facts["env"]["OMP_TARGET_OFFLOAD"] == "MANDATORY"
    assert facts["version"] == offload.__version__
