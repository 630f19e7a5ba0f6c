"""Exceptions from signal handlers, and those sent to the main thread, at random moments of calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.profiles import few

STORM = Path(__file__).with_name("storm.py")

SOURCES = ["alarm", "ctrlc", "sent"]


def storm(*arguments: str, timeout_s: float) -> str:
    """Run the program, and return what it prints; it fails where anything was wrong."""
    environment = {**os.environ, "PYTHONPATH": str(STORM.parents[2])}
    done = subprocess.run(
        [sys.executable, str(STORM), *arguments, "--hang-s", str(timeout_s - 10)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("source", few(1, SOURCES))
def test_an_interrupted_call_leaves_nothing_behind(source):
    """Every undisturbed call after it is right, nothing stays mapped or allocated, and none hangs."""
    assert "interrupted" in storm("--source", source, "--calls", "300", timeout_s=100)


@pytest.mark.soak
@pytest.mark.timeout(1900)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(2))
def test_many_interrupted_calls(source, seed):
    """The same of 20,000 calls of each source."""
    storm("--source", source, "--calls", "10000", "--seed", str(seed), timeout_s=900)
