"""mypy and pyright accept the typed programs of `right.py`, and report the marked lines of `wrong.py`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import offload as omp
from tests.typing import right

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"
MARK = re.compile(r"# wrong$", re.MULTILINE)

Found = dict[str, dict[int, str]]
"""What a checker reports, by file and line."""


def found_by_mypy(directory: Path) -> Found:
    """Return the errors that mypy reports."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    command += ["--no-error-summary", f"--cache-dir={directory}", str(RIGHT), str(WRONG)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found: Found = {RIGHT.name: {}, WRONG.name: {}}
    for line in run.stdout.splitlines():
        match = re.match(r"(.*):(\d+): error: (.*)", line)
        if match is not None:
            found[Path(match[1]).name][int(match[2])] = match[3]
    return found


def found_by_pyright(directory: Path) -> Found:
    """Return the errors that pyright reports."""
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    if shutil.which("node") is None:
        pytest.skip("pyright needs node, which is not installed")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    run = subprocess.run(
        [*command, str(RIGHT), str(WRONG)], capture_output=True, text=True, check=False, cwd=ROOT, env=environment
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found: Found = {RIGHT.name: {}, WRONG.name: {}}
    for one in json.loads(run.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            found[Path(one["file"]).name][one["range"]["start"]["line"] + 1] = one["message"]
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)  # mypy reads the whole package
@pytest.mark.parametrize("check", [found_by_mypy, found_by_pyright])
def test_checkers(check: Callable[[Path], Found], tmp_path: Path) -> None:
    """The checker reports nothing in the right programs, and exactly the marked lines of the wrong ones."""
    text = WRONG.read_text(encoding="utf-8")
    marked = {text.count("\n", 0, match.start()) + 1 for match in MARK.finditer(text)}
    assert len(marked) > 60
    found = check(tmp_path)
    assert found[RIGHT.name] == {}
    assert {line: found[WRONG.name].get(line, "no error") for line in marked} == found[WRONG.name]


@pytest.mark.parametrize("program", right.PROGRAMS)
def test_right_programs_run(program: Callable[[], None]) -> None:
    """The right programs are programs: each of them runs."""
    with omp.Runtime("sim:2"):
        program()


def test_right_coroutine_runs() -> None:
    """So is the coroutine."""
    with omp.Runtime("sim:2"):
        asyncio.run(right.coroutine())
