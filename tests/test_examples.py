"""Every example runs, with warnings as errors, on the simulated device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_there_are_examples():
    """A glob that finds nothing would pass."""
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    """An example ends well, checks itself, and leaves nothing behind."""
    done = subprocess.run(
        [sys.executable, "-W", "error", path],
        env={**os.environ, "OFFLOAD_DEVICES": "sim"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""
    assert not list(tmp_path.iterdir())
