"""The command line: what it prints and how it ends."""

from __future__ import annotations

import json

import pytest

import offload
from offload.cli import main


def test_info(capsys, monkeypatch):
    """``info`` lists the devices, their memory and the settings."""
    monkeypatch.setenv("OFFLOAD_DEVICES", "sim:2")
    monkeypatch.setenv("OFFLOAD_SIM_MEMORY", "1M")
    monkeypatch.setenv("OFFLOAD_HANG_S", "12")
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    for words in ("sim:0", "sim:1", "1,048,576", "OFFLOAD_HANG_S", "12"):
        assert words in shown


def test_info_json(capsys, monkeypatch):
    """``info --json`` says the same to programs."""
    monkeypatch.setenv("OFFLOAD_SIM_MEMORY", "1M")
    assert main(["info", "--devices", "sim:2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [device["kind"] for device in facts["devices"]] == ["sim", "sim"]
    assert {device["total_nbytes"] for device in facts["devices"]} == {1 << 20}
    assert facts["initial_device"] == 2
    assert facts["version"] == offload.__version__
    assert facts["env"]["OFFLOAD_SIM_MEMORY"] == 1 << 20


def test_bad_setting(capsys, monkeypatch):
    """A variable that means nothing is an error, without a traceback."""
    monkeypatch.setenv("OFFLOAD_SIM_MEMORY", "plenty")
    assert main(["info", "--devices", "sim"]) == 2
    assert capsys.readouterr().err.startswith("offload: error: OFFLOAD_SIM_MEMORY='plenty'")


@pytest.mark.parametrize("argv", [[], ["demo"], ["demo", "nothing"], ["nothing"], ["demo", "fft3d", "--pencil", "3"]])
def test_wrong_usage(capsys, argv):
    """What the parser does not know ends with 2 and the usage."""
    assert main(argv) == 2
    assert "usage: offload" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--pencil", "3"], ["more"], ["--output", ""], ["--devices", ""], ["--input", ""]])
def test_wrong_usage_of_a_subcommand(capsys, argv):
    """What a subcommand does not know, and an option without a value, end with that subcommand's usage."""
    assert main(["demo", "fft3d", *argv]) == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: offload demo fft3d ")
    assert f"offload demo fft3d: error: {'unrecognized' if argv[-1] else f'argument {argv[0]}: it is empty'}" in told


@pytest.mark.parametrize(
    ("failure", "code", "told"),
    [
        (KeyboardInterrupt(), 130, "offload: interrupted\n"),
        (BaseExceptionGroup("tasks", [KeyboardInterrupt(), ValueError()]), 130, "offload: interrupted\n"),
        (SystemExit(143), 143, "offload: terminated\n"),
        (BaseExceptionGroup("tasks", [SystemExit(143), ValueError()]), 143, "offload: terminated\n"),
        (offload.DeviceLostError("lost"), 2, "offload: error: lost\n"),
        (
            ExceptionGroup("tasks", [OSError("one"), offload.MapError("two")]),
            2,
            "offload: error: one\noffload: error: two\n",
        ),
    ],
)
def test_failures_are_told_without_traceback(capsys, monkeypatch, failure, code, told):
    """Ctrl-C ends with 130, an error of ours or of the system with 2, alone or out of a group of tasks."""

    def fail(args):
        raise failure

    monkeypatch.setattr("offload.demo.fft3d.run", fail)
    assert main(["demo", "fft3d"]) == code
    assert capsys.readouterr().err == told


def test_bugs_keep_their_traceback(monkeypatch):
    """Anything else is a bug, and goes on as it is."""

    def fail(args):
        raise ZeroDivisionError

    monkeypatch.setattr("offload.demo.fft3d.run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["demo", "fft3d"])


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["demo", "fft3d", "--help"]])
def test_help(capsys, argv):
    """Help and version end with 0."""
    assert main(argv) == 0
    assert "offload" in capsys.readouterr().out
