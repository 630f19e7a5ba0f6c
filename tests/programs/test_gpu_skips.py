"""GPU tests are skipped where there is no GPU, which is said and counted, and for no other reason."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import GPUS, no_gpu

ROOT = Path(__file__).parents[2]


def run_pytest(path, program, *args):
    """Run a file of tests with the suite's configuration; return the status and what pytest wrote."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("import pytest\n" + textwrap.dedent(program), "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(path.parents[1]), *args, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_they_are_counted(tmp_path):
    """Without a GPU a line says how many were skipped and why; with one, how many ran."""
    status, output = run_pytest(
        tmp_path / "gpu" / "test_inner.py",
        """
        @pytest.mark.gpu
        @pytest.mark.parametrize("number", range(3))
        def test_on_gpu(number): pass
        @pytest.mark.parametrize("kind", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
        def test_on_both(kind): pass
        def test_on_host(): pass
        """,
    )
    assert status == 0, output
    if no_gpu():
        why = "is not used" if GPUS else "no GPU here"
        assert re.search(rf"^4 GPU tests skipped: .*{why} \({no_gpu()}\)$", output, re.MULTILINE)
        assert "2 passed" in output
    else:
        assert "GPU tests: 4 run, 0 skipped" in output


@pytest.mark.slow
def test_any_other_skip_fails(tmp_path):
    """A GPU test with a skip of its own fails, however it skips; tests without the marker may."""
    status, output = run_pytest(
        tmp_path / "gpu" / "test_inner.py",
        """
        @pytest.mark.gpu
        @pytest.mark.skip(reason="too slow")
        def test_marked(): pass
        @pytest.mark.gpu
        @pytest.mark.skipif("True", reason="another day")
        def test_if(): pass
        @pytest.mark.skip(reason="allowed")
        def test_on_host(): pass
        """,
    )
    assert status == 1, output
    for name, reason in (("test_marked", "too slow"), ("test_if", "another day")):
        assert f"a GPU test is skipped because: {reason}; " in output
        assert re.search(rf"ERROR .*::{name}\b", output)
    assert "1 skipped, 2 errors" in output


@pytest.mark.slow
def test_a_file_that_skips_itself_fails(tmp_path):
    """So does a file of GPU tests that is skipped as a whole, unless it is for the lack of a GPU."""
    status, output = run_pytest(
        tmp_path / "gpu" / "test_inner.py", 'pytest.skip("out of fashion", allow_module_level=True)'
    )
    assert status != 0, output
    assert "a GPU test is skipped because: out of fashion" in output
    if no_gpu():
        status, output = run_pytest(
            tmp_path / "gpu" / "test_inner.py", f"pytest.skip({no_gpu()!r}, allow_module_level=True)"
        )
        assert status in {0, 5}, output  # 5: no test was collected
        assert "0 GPU tests skipped, and 1 whole files: " in output


@pytest.mark.slow
def test_what_is_expected_to_fail_is_no_skip(tmp_path):
    """A GPU test that is expected to fail counts as one that ran."""
    status, output = run_pytest(
        tmp_path / "gpu" / "test_inner.py",
        """
        @pytest.mark.gpu
        @pytest.mark.xfail(reason="not yet", run=False)
        def test_later(): assert False
        """,
    )
    assert status == 0, output
    assert "GPU tests skipped" not in output or no_gpu()
