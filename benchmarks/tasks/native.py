"""The same graphs by a C compiler's OpenMP, from ``benchmarks/tasks/tasks.c``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.tasks.shapes import Step

COMPILERS = {"libgomp": "gcc", "libomp": "clang"}
"""The runtime library that each one links."""

_SOURCE = Path(__file__).with_name("tasks.c")
_LIMIT_S = 120


class NotBuiltError(Exception):
    """There is no program of this compiler; says why."""


def build(compiler: str, directory: Path) -> Path:
    """Compile the program.

    Parameters
    ----------
    compiler : str
        The command, for example ``gcc``.
    directory : Path
        Where the program goes.

    Returns
    -------
    Path
        The program.

    Raises
    ------
    NotBuiltError
        No such compiler, no source, or the compiler failed, as without OpenMP's library.
    """
    command = shutil.which(compiler)
    if command is None:
        raise NotBuiltError(f"there is no {compiler}")
    if not _SOURCE.exists():
        raise NotBuiltError(f"there is no {_SOURCE}; run from a checkout")
    program = directory / f"tasks-{compiler}"
    built = _run(command, "-O2", "-fopenmp", str(_SOURCE), "-o", str(program))
    if built.returncode:
        raise NotBuiltError(f"{compiler} failed: {built.stderr.strip()[-200:]}")
    return program


def compiler_version(compiler: str) -> str:
    """Return the first line that the compiler says about itself."""
    said = _run(compiler, "--version")
    return said.stdout.partition("\n")[0]


def write_graph(steps: Sequence[Step], n_cells: int, path: Path) -> None:
    """Write a graph as the program reads it."""
    lines = [f"{len(steps)} {n_cells}"]
    lines += [" ".join(map(str, (len(step.reads), *step.reads, step.updates))) for step in steps]
    path.write_text("\n".join(lines) + "\n", "ascii")


def native_us(program: Path, graph: Path, n_threads: int) -> float:
    """Run the program and return the microseconds a task."""
    ran = _run(str(program), str(graph), str(n_threads))
    ran.check_returncode()
    return float(ran.stdout)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)  # ours
