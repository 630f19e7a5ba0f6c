"""The command line: what it prints and how it ends."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys

import pytest

import offload
from offload.cli.command import main
from offload.loops.running.build import builder
from tests.profiles import few


def test_info(capsys, monkeypatch):
    """``info`` lists the devices, their memory and the settings."""
    monkeypatch.setenv("OFFLOAD_DEVICES", "sim:2")
    monkeypatch.setenv("OFFLOAD_SIM_MEMORY", "1M")
    monkeypatch.setenv("OFFLOAD_HANG_S", "12")
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    for words in ("sim:0", "sim:1", "1,048,576", "1.0 MiB", "OFFLOAD_HANG_S", "12", "OFFLOAD_UNSEEN", "FAIL"):
        assert words in shown


def test_info_of_what_is_needed(capsys, monkeypatch):
    """``info`` names CuPy, the driver and the C compiler with their versions, or says that they are not there."""
    monkeypatch.setattr("offload.cli.info.cupy_version", lambda: "cupy-cuda13x 14.0.1")
    monkeypatch.setattr("offload.cli.info.driver_version", lambda: "13.0")
    monkeypatch.setattr("offload.cli.info.compiler", lambda: "gcc (gcc 12.2.0)")
    assert main(["info", "--devices", "sim"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {"CuPy: cupy-cuda13x 14.0.1", "CUDA driver: 13.0", "C compiler: gcc (gcc 12.2.0)"} <= set(shown)
    for name in ("cupy_version", "driver_version", "compiler"):
        monkeypatch.setattr(f"offload.cli.info.{name}", lambda: None)
    assert main(["info", "--devices", "sim"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert {"CuPy: not installed", "CUDA driver: not found"} <= set(shown)
    assert "C compiler: no working one found; loops run as Python" in shown


def test_info_of_this_machine(capsys):
    """What ``info --json`` says is here is here."""
    assert main(["info", "--devices", "sim", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["cupy"] is not None) == (importlib.util.find_spec("cupy") is not None)
    assert (facts["compiler"] is not None) == (builder.compiler is not None)
    if builder.compiler is not None:
        assert facts["compiler"].startswith(f"{builder.compiler} (")
    if facts["cuda_driver"] is not None:
        assert re.fullmatch(r"\d+\.\d+", facts["cuda_driver"])


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

    monkeypatch.setattr("offload.cli.demo.fft3d.run", fail)
    assert main(["demo", "fft3d"]) == code
    assert capsys.readouterr().err == told


def test_bugs_keep_their_traceback(monkeypatch):
    """Anything else is a bug, and goes on as it is."""

    def fail(args):
        raise ZeroDivisionError

    monkeypatch.setattr("offload.cli.demo.fft3d.run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["demo", "fft3d"])


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["demo", "fft3d", "--help"]])
def test_help(capsys, argv):
    """Help and version end with 0."""
    assert main(argv) == 0
    assert "offload" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--shape", "-4,8,8"], ["--planes", "-1", "--shape", "4,4,4"], ["--buffers", "-2"]])
def test_negative_numbers_are_values(capsys, argv):
    """A number below 0 after an option is its value, and the option's own error tells of it."""
    assert main(["demo", "fft3d", "--devices", "sim", *argv]) == 2
    assert capsys.readouterr().err.startswith(f"offload: error: {argv[0]} {argv[1]}: ")


@pytest.mark.parametrize("size", ["0", "-5", "x", "9" * 400])
def test_sizes_are_told_as_they_were_given(capsys, size):
    """What is no number of bytes is shown as the option that it was given for."""
    assert main(["demo", "fft3d", "--device-memory", size]) == 2
    assert capsys.readouterr().err.startswith(
        f"offload: error: --device-memory {size}: write a number of bytes above 0"
    )


@pytest.mark.parametrize("command", [["info"], ["bench", "link"], ["demo", "fft3d"]])
def test_devices_are_told_as_they_were_given(capsys, command):
    """Devices that mean nothing are shown as the option that they were given for."""
    assert main([*command, "--devices", "bogus"]) == 2
    assert capsys.readouterr().err.startswith("offload: error: --devices bogus: 'bogus' is not a kind of device")


def offload_process(*argv, env=None, **kwargs):
    """Run ``python -m offload`` and return what it did."""
    kwargs = {"stdout": subprocess.PIPE, **kwargs}
    return subprocess.run(
        [sys.executable, "-m", "offload", *argv],
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        timeout=100,
        check=False,
        **kwargs,
    )


FFT = ("demo", "fft3d", "--shape", "8,8,8", "--devices", "sim", "--repeat", "1")


@pytest.mark.parametrize("encoding", few(1, ["ascii", "utf-8", "latin-1", "cp1252", "cp437", "ascii:surrogateescape"]))
@pytest.mark.parametrize(
    "argv",
    few(1, [(*FFT, "--verify", "--graph", "-"), ("bench", "launch", "--quick", "--devices", "sim")]),
    ids=["demo", "bench"],
)
def test_any_encoding_will_do(argv, encoding):
    """Whatever the standard output can encode, a command shows all its lines; a look-alike stands for other signs."""
    done = offload_process(*argv, env={"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode(encoding.partition(":")[0])
    assert "?" not in shown
    if argv[0] == "demo":
        assert "critical path" in shown  # the graph's last line
        assert f"{'+' if encoding != 'utf-8' else '✓'} at most 1e-5" in shown
        assert f"8 {'x' if encoding in ('ascii', 'cp437', 'ascii:surrogateescape') else '×'} 8" in shown  # noqa: RUF001  # meant
        _, _, rows = shown.rpartition("complex64 on sim:0")
        assert len({len(line) for line in rows.split("\n")[1:-1]}) == 1  # the columns are straight


def test_names_of_files_are_written_as_they_are(tmp_path):
    """A file's name whose bytes mean nothing in the encoding is shown as these bytes."""
    name = os.fsencode(tmp_path) + b"/\xff.npy"
    done = offload_process(*FFT, "--output", os.fsdecode(name), env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"written to " + name in done.stdout


def test_the_streams_are_as_they_were(monkeypatch):
    """A command that a program calls leaves the program's streams as they were."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["info", "--devices", "sim"]) == 0
    assert stream.errors == "strict"
    with pytest.raises(UnicodeEncodeError):
        stream.write("×")  # noqa: RUF001  # meant


@pytest.mark.parametrize("argv", few(1, [FFT, ("--help",), ("info",), ("info", "--json")]))
def test_a_reader_that_has_read_enough(argv):
    """Where nobody reads the output any more, a command ends quietly, as one that SIGPIPE has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = offload_process(*argv, stdout=writer, env={"PYTHONUNBUFFERED": ""})  # else argparse overlooks it
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")  # noqa: PTH110  # a device
def test_a_full_disk():
    """What cannot be written is an error, told once."""
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device
        done = offload_process("info", stdout=full)
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert done.stderr.startswith(b"offload: error: [Errno 28]")


def test_the_package_is_a_program():
    """``python -m offload`` is the command ``offload``."""
    done = offload_process("--version")
    assert (done.returncode, done.stdout.decode().split()) == (0, ["offload", offload.__version__])
    assert b"usage: offload " in offload_process("nothing").stderr


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
