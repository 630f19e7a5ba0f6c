"""The Cholesky factor of a matrix, tile by tile, with OpenMP's directives as strings.

The program computes the same as ``cholesky.py``, with the same tasks. Its directives are the lines of the C program:

    void cholesky(int n, int m, double (*a[n][n])[m])     // n by n pointers to tiles of m by m
    {
        #pragma omp taskgroup
        for (int k = 0; k < n; k++) {
            #pragma omp task depend(inout: a[k][k][:m])
            factor(m, a[k][k]);

            for (int i = k + 1; i < n; i++) {
                #pragma omp task depend(in: a[k][k][:m]) depend(inout: a[i][k][:m])
                solve(m, a[k][k], a[i][k]);
            }
            for (int i = k + 1; i < n; i++)
                for (int j = k + 1; j <= i; j++) {
                    #pragma omp task depend(in: a[i][k][:m], a[j][k][:m]) depend(inout: a[i][j][:m])
                    update(m, a[i][k], a[j][k], a[i][j]);
                }
        }
    }

A tile is a view of the one matrix. A block keeps the values that ``i``, ``j`` and ``k`` have when the block is met.

Run it: ``python examples/pragma_cholesky.py``, with ``--size`` and ``--tile`` for other sizes.
"""

import argparse

import numpy as np
from numpy.typing import NDArray

import offload
from offload.pragma import directives, omp


@directives
def cholesky(a: NDArray[np.float64], m: int) -> None:
    """Replace the lower triangle of ``a`` by its Cholesky factor, in tiles of ``m`` by ``m``, smaller at the end."""
    n = -(-len(a) // m)
    cuts = [slice(k * m, (k + 1) * m) for k in range(n)]
    tiles = [[a[row, column] for column in cuts] for row in cuts]
    with omp("taskgroup"):
        for k in range(n):
            with omp("task depend(inout: tiles[k][k])"):
                tiles[k][k][...] = np.linalg.cholesky(tiles[k][k])  # reads the lower triangle only
            for i in range(k + 1, n):
                with omp("task depend(in: tiles[k][k]) depend(inout: tiles[i][k])"):
                    tiles[i][k][...] = np.linalg.solve(tiles[k][k], tiles[i][k].T).T
            for i in range(k + 1, n):
                for j in range(k + 1, i + 1):
                    with omp("task depend(in: tiles[i][k], tiles[j][k]) depend(inout: tiles[i][j])"):
                        tiles[i][j][...] -= tiles[i][k] @ tiles[j][k].T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=600, help="rows of the matrix")
    parser.add_argument("--tile", type=int, default=64, help="rows of a tile")
    options = parser.parse_args()

    b = np.random.default_rng(1).standard_normal((options.size, options.size))
    a = b @ b.T + options.size * np.eye(options.size)  # symmetric, positive definite
    expected = np.linalg.cholesky(a)
    with offload.record() as graph:
        cholesky(a, options.tile)
    error = abs(np.tril(a) - expected).max() / abs(expected).max()
    tasks = [task for task in graph.tasks if task.directive == "task"]
    time_s = sum(time_s for _, time_s in graph.critical_path())
    print(f"{len(tasks)} tasks, critical path {1e3 * time_s:.0f} ms, largest relative error {error:.1e}")
    assert error < 1e-12


if __name__ == "__main__":
    main()
