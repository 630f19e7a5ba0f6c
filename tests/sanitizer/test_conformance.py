"""The conformance tests run under the sanitizer: ``pytest tests/conformance --sanitize``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_tests(*options, seed=None):
    """Run tests under the sanitizer, in a process of its own."""
    names = {"PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID", "OFFLOAD_SEED"}
    env = {name: value for name, value in os.environ.items() if name not in names}
    if seed is not None:
        env["OFFLOAD_SEED"] = str(seed)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--sanitize", "--tb=short", *options]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1500, check=False)


@pytest.mark.timeout(1600)
@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (None, ["tests/conformance/test_data.py", "tests/conformance/test_update.py"]),
        pytest.param(None, ["tests/conformance"], marks=pytest.mark.slow),
        pytest.param(1, ["tests/conformance"], marks=pytest.mark.soak),
        pytest.param(2, ["tests/conformance"], marks=pytest.mark.soak),
    ],
)
def test_conformance(seed, options):
    """All tests have the same results under the sanitizer; each finding has a mark, and each mark a finding."""
    done = run_tests(*options, seed=seed)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_a_finding_without_a_mark(tmp_path):
    """A test that has a finding and no mark fails, and so does a run whose marks have no finding."""
    done = run_tests(
        "tests/conformance/test_data.py", "-k", "test_target_data_map_to", "-p", "tests.sanitizer.unmarked"
    )
    assert done.returncode == 1
    assert "findings of a test that has no mark for them" in done.stdout
    assert "stale-device of a" in done.stdout
    assert (
        "test_data.py::test_target_data_map_tofrom has the mark races_on_purpose, and no finding for it" in done.stdout
    )
