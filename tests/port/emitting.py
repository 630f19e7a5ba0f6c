"""Task forms of programs given as text, for tests: each program runs in fresh processes."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from offload.port.emit import emit
from tests import forked

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """\
import cupy as cp
import numpy as np

h = np.arange(12.0).reshape(3, 4)
out = np.zeros((3, 4))
d = cp.empty(4)
s = cp.cuda.Stream(non_blocking=True)
t = cp.cuda.Stream(non_blocking=True)
ev = cp.cuda.Event()
"""
"""The beginning of many programs: 9 lines."""


def emitted_of(folder: Path, text: str, **options):
    """Write a program, and return its task form."""
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return emit(str(path), [], **options)


def run_text(folder: Path, text: str, name: str = "form.py") -> str:
    """Run a task form as a program of its own; return what it prints."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    done = forked.python(path, env={**os.environ, "OFFLOAD_DEVICES": "sim"}, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(reasons):
    """Return the lines that reasons name."""
    return [int(found.group(1)) if (found := re.match(r"lines? (\d+)", reason)) else 0 for reason in reasons]


def body_of(form):
    """Return the lines of the function that code of the module has become."""
    lines = form.splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("def pipeline"))
    rest = lines[first + 1 :]
    return [line.strip() for line in rest[: rest.index("")]]
