"""Draw the graphs of the first programs of README.md and of the site: python docs/pictures/first_program.py."""

from __future__ import annotations

import sys
from pathlib import Path

import offload as omp

HERE = Path(__file__).parent
PAGES = {"first-program.svg": HERE.parents[1] / "README.md", "front-page.svg": HERE.parent / "index.md"}
LAST = "omp.taskwait()\n"  # a program may check its results after it, and a graph that is only recorded has none


def first_program(page: Path) -> str:
    """Return the first program of a page up to its taskwait."""
    _, _, rest = page.read_text(encoding="utf-8").partition("```python\n")
    program, found, _ = rest.partition(LAST)
    if not found or "```" in program:
        sys.exit(f"{page.name}: the first program has no omp.taskwait()")
    return program + found


def main() -> None:
    """Record the programs on a simulated device, and write their graphs to the folder given, or next to this file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for picture, page in PAGES.items():
        program = compile(first_program(page), "first program", "exec")
        with omp.Runtime("sim", check=True), omp.record(execute=False) as graph:
            exec(program, {"__name__": "__main__"})  # noqa: S102 - the project's own text
        graph.visualize(folder / picture)


if __name__ == "__main__":
    main()
