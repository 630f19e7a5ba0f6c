# ruff: noqa: INP001 - a script
"""Draw first-program.svg, the graph of README's first program: python docs/pictures/first_program.py."""

from __future__ import annotations

import sys
from pathlib import Path

import offload as omp

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
LAST = "omp.taskwait()\n"  # the program checks its results after it, and a graph that is only recorded has none


def first_program() -> str:
    """Return README's first program up to its taskwait."""
    _, _, rest = README.read_text(encoding="utf-8").partition("<!-- ci: program -->\n```python\n")
    program, found, _ = rest.partition(LAST)
    if not found:
        sys.exit("README.md: the program after <!-- ci: program --> has no omp.taskwait()")
    return program + found


def main() -> None:
    """Record the program on a simulated device, and write its graph to the folder given, or next to this file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    program = compile(first_program(), "first program", "exec")
    with omp.Runtime("sim", check=True), omp.record(execute=False) as graph:
        exec(program, {"__name__": "__main__"})  # noqa: S102 - the project's own text
    graph.visualize(folder / "first-program.svg")


if __name__ == "__main__":
    main()
