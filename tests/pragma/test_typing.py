"""mypy and pyright accept programs with directive strings: those below, and the listings of the documentation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/directive-strings.md"

PROGRAM = '''
"""Typed programs with directive strings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import offload
from offload.pragma import acc, directives, omp

Array = NDArray[np.float64]


@directives
def pipeline(a: Array, out: Array, n: int) -> float:
    """Have blocks of each form."""
    with omp("target data map(to: a) map(from: out)"):
        for i in range(n):
            with omp("task depend(out: a[i])"):
                a[i] = 1
            with omp("target nowait depend(inout: out)"):
                out += a
        omp("taskwait")
    with omp("taskloop grainsize(4)"):
        for i in range(n):
            a[i] += 1
    with acc("parallel copy(a)"):
        a *= 2
    acc("wait")
    return float(a.sum())


@directives(default="shared")
def early(x: list[int]) -> int:
    """Return from a block that stays: no checker says that the function may end without a value."""
    with omp("taskgroup"):
        return len(x)


def falls_through(x: list[int]) -> int:
    """A block does not swallow exceptions, so what follows a `return` in it is not reached."""
    with omp("parallel"):
        value = 1
    return value


@omp("target map(to: x) map(tofrom: y) nowait depend(inout: y)")
def saxpy(a: float, x: Array, y: Array) -> None:
    """Be a target function."""
    y += a * x


@acc("parallel copyin(x) copy(y)")
def region(x: Array, y: Array) -> None:
    """Be a region."""
    y += x


@omp
def bare(x: int) -> int:
    """Be rewritten."""
    with omp("task"):
        print(x)
    return x


@omp
class Steps:
    """Have a method with a block."""

    def one(self, x: int) -> int:
        """Be a method."""
        with omp("task"):
            print(x)
        return x


@directives
async def coroutine(x: Array) -> int:
    """Await in a block that stays."""
    with omp("target data map(tofrom: x)"):
        await asyncio.sleep(0)
    return 1


@directives
def generator(n: int) -> Iterator[int]:
    """Yield in a block that stays."""
    with omp("taskgroup"):
        yield n


assert_type(pipeline(np.ones(3), np.ones(3), 3), float)
assert_type(early([1]), int)
assert_type(bare(3), int)
assert_type(Steps().one(3), int)
result: Any = saxpy(1.0, np.ones(3), np.ones(3))
options: Any = saxpy.options(nowait=False)
region(np.ones(3), np.ones(3))
device: int = offload.get_default_device()
'''


def listings():
    """Return the listings of the page in Python that use directive strings, each as a program."""
    if not PAGE.exists():
        return []
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "offload.pragma" in block]


def by_mypy(files, folder):
    """Return the errors that mypy reports."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    command += ["--no-error-summary", f"--cache-dir={folder / 'cache'}", *map(str, files)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": f"{ROOT}{os.pathsep}{ROOT / 'examples'}"},
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if ": error:" in line]


def by_pyright(files, folder):
    """Return the errors that pyright reports."""
    if find_spec("pyright") is None or shutil.which("node") is None:
        pytest.skip("pyright, or node, is not installed")
    settings = {"include": [str(file) for file in files], "extraPaths": [str(ROOT), str(ROOT / "examples")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [
        f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in found
        if one["severity"] == "error"
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)  # mypy reads the whole package
@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_typed_programs(check, tmp_path):
    """A typed program with every form of a directive passes the strict checks."""
    path = tmp_path / "typed_program.py"
    path.write_text(PROGRAM)
    assert check([path], tmp_path) == []


def annotated(text):
    """Return a listing whose functions have annotations, which a page leaves out: `Any` for each parameter."""
    import ast

    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if one.arg not in ("self", "cls") and one.annotation is None:
                    one.annotation = ast.Name("Any")
            if node.returns is None:
                node.returns = ast.Name("Any")
    return "from typing import Any\n" + ast.unparse(ast.fix_missing_locations(tree)) + "\n"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_listings(check, tmp_path):
    """The listings of the page and the examples with directive strings pass the checks."""
    files = []
    texts = [*listings(), *(p.read_text(encoding="utf-8") for p in sorted((ROOT / "examples").glob("pragma_*.py")))]
    for number, text in enumerate(texts):
        path = tmp_path / f"listing_{number}.py"
        path.write_text(annotated(text))
        files.append(path)
    assert files
    assert check(files, tmp_path) == []


def test_typed_programs_run(tmp_path):
    """The typed program is a program: it runs."""
    path = tmp_path / "typed_program.py"
    path.write_text(
        PROGRAM.replace("saxpy(1.0, np.ones(3), np.ones(3))", "saxpy(1.0, np.ones(3), np.ones(3)).result()")
    )
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OFFLOAD_DEVICES": "sim:1"},
    )
    assert done.returncode == 0, done.stderr
