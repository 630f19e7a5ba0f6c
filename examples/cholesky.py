"""The Cholesky factor of a matrix, tile by tile, in host tasks that the tiles order.

The lower triangle of ``a`` becomes its factor, in place. Column by column the tile on the diagonal is factored, the
tiles below it are solved for, and what they contribute is subtracted from the tiles further right. Much of that can be
done at the same time, also in different columns. In C the tiles have to be stored one by one, since items of ``depend``
are identical or disjoint:

    void cholesky(int n, int m, double (*a[n][n])[m])     // n by n pointers to tiles of m by m
    {
        #pragma omp parallel
        #pragma omp single
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

Here a tile is a view of the one matrix: its rows lie apart in memory, and two tiles conflict if they share a byte. No
thread is named either. NumPy releases the GIL in products and factorizations of this size, so that tasks overlap.

Run it: ``python examples/cholesky.py``, with ``--size`` and ``--tile`` for other sizes.
"""

import argparse

import numpy as np

import offload as omp
from offload import in_, inout


@omp.task(depend=[inout("diagonal")])
def factor(diagonal):
    diagonal[...] = np.linalg.cholesky(diagonal)  # reads the lower triangle only


@omp.task(depend=[in_("diagonal"), inout("tile")])
def solve(diagonal, tile):
    tile[...] = np.linalg.solve(diagonal, tile.T).T


@omp.task(depend=[in_("left", "right"), inout("tile")])
def update(left, right, tile):
    tile -= left @ right.T


def cholesky(a, m):
    """Replace the lower triangle of ``a`` by its Cholesky factor, in tiles of ``m`` by ``m``, smaller at the end."""
    n = -(-len(a) // m)
    cuts = [slice(k * m, (k + 1) * m) for k in range(n)]
    tiles = [[a[row, column] for column in cuts] for row in cuts]
    with omp.taskgroup():
        for k in range(n):
            factor(tiles[k][k])
            for i in range(k + 1, n):
                solve(tiles[k][k], tiles[i][k])
            for i in range(k + 1, n):
                for j in range(k + 1, i + 1):
                    update(tiles[i][k], tiles[j][k], tiles[i][j])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=600, help="rows of the matrix")
    parser.add_argument("--tile", type=int, default=64, help="rows of a tile")
    options = parser.parse_args()

    b = np.random.default_rng(1).standard_normal((options.size, options.size))
    a = b @ b.T + options.size * np.eye(options.size)  # symmetric, positive definite
    expected = np.linalg.cholesky(a)
    with omp.record() as graph:
        cholesky(a, options.tile)
    error = abs(np.tril(a) - expected).max() / abs(expected).max()
    tasks = [task for task in graph.tasks if task.directive == "task"]
    time_s = sum(time_s for _, time_s in graph.critical_path())
    print(f"{len(tasks)} tasks, critical path {1e3 * time_s:.0f} ms, largest relative error {error:.1e}")
    assert error < 1e-12


if __name__ == "__main__":
    main()
