"""Draw cholesky.svg, the graph of examples/cholesky.py with 12 by 12 tiles: python docs/pictures/cholesky.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import offload as omp

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "cholesky.py"
TILES = 12


def main() -> None:
    """Record the example without running it, and write its graph to the folder given, or next to this file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    example = {"__name__": "cholesky"}
    # Under this name the picture says where tasks are generated, not under a folder of this machine.
    exec(compile(EXAMPLE.read_text(encoding="utf-8"), "examples/cholesky.py", "exec"), example)  # noqa: S102 - our own
    with omp.Runtime("none"), omp.record(execute=False) as graph:
        example["cholesky"](np.eye(8 * TILES), 8)
    graph.visualize(folder / "cholesky.svg")


if __name__ == "__main__":
    main()
