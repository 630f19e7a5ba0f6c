"""Signals that come while a test calls the command in process: they end the test run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from offload.cli import command

TESTS = """
import os
import signal
import threading
from offload.cli.command import main

def test_one(monkeypatch):
    def run(args):
        os.kill(os.getpid(), signal.{name})
        threading.Event().wait(20)
        return 0
    monkeypatch.setattr("offload.cli.demo.fft3d.run", run)
    main(["demo", "fft3d"])

def test_two():
    assert main(["--version"]) == 0
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "status"), [("SIGINT", pytest.ExitCode.INTERRUPTED), ("SIGTERM", -signal.SIGTERM)])
def test_a_signal_ends_the_test_run(tmp_path, name, status):
    """After Ctrl-C or SIGTERM in a test of the command no other test runs, and the run ends as it does elsewhere."""
    (tmp_path / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(TESTS.format(name=name))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", "-s", "--rootdir", tmp_path, tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "test_one" in done.stdout
    assert "test_two" not in done.stdout


@pytest.mark.parametrize("former", [signal.SIG_DFL, signal.SIG_IGN, lambda *_: None])
def test_the_handler_of_sigterm_is_restored(monkeypatch, former):
    """After a command the handler is the former one, also where SIGTERM comes in its last step."""
    before = signal.signal(signal.SIGTERM, former)
    plain, calls = signal.signal, []

    def late(number, handler):
        calls.append(handler)
        if len(calls) == 2:  # the handler is about to be restored
            found = signal.getsignal(signal.SIGTERM)
            found(signal.SIGTERM, None)
        return plain(number, handler)

    try:
        with pytest.raises(SystemExit), monkeypatch.context() as patch:
            patch.setattr(signal, "signal", late)
            with command._sigterm_as_exit():
                pass
        assert signal.getsignal(signal.SIGTERM) is former
    finally:
        signal.signal(signal.SIGTERM, before)
