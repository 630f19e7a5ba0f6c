"""Sanitized runs of programs in files, in this process."""

from __future__ import annotations

import runpy
import warnings
from typing import TYPE_CHECKING

import offload as omp
from offload.sanitizer.imports import tracked_imports

if TYPE_CHECKING:
    from pathlib import Path

    from offload.sanitizer import Finding


def findings_of(
    path: Path, *, seed: int | None = None, devices: str = "sim:1", num_threads: int | None = None
) -> tuple[Finding, ...]:
    """Return the findings of a program, which sees no other runtime than this one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", omp.CleanupWarning)  # a leak is a finding here
        opened = omp.Runtime(devices, sanitize=True, seed=seed, num_threads=num_threads)
        with opened as runtime, tracked_imports(path.parent):
            runpy.run_path(str(path), run_name="__main__")
    if (failure := runtime.sanitized.sanitizer.failure) is not None:
        raise failure
    return runtime.findings


def marked(text: str, mark: str) -> int | None:
    """Return the line of a program whose comment has a mark, such as ``# first, fix``; None if there is none."""
    for number, line in enumerate(text.splitlines(), 1):
        _, comment, marks = line.rpartition("  # ")
        if comment and mark in marks.split(", "):
            return number
    return None
