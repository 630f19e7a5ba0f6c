"""The Cholesky factor of a matrix whose tiles live on the workers of a Dask cluster.

Row i of tiles belongs to device i modulo the number of devices, and stays there. In step k the tile on the diagonal is
factored, the tiles below it are solved for, and the column goes to the other workers, directly and not through this
process. Then every worker updates its own rows. Nothing here mentions Dask except `main`: the same function runs on two
simulated devices, and on the GPUs of one machine.

Run it: ``python examples/cluster_cholesky.py``, with ``--size``, ``--tile`` and ``--workers``, or ``--local`` for
simulated devices of this process.
"""

import argparse

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.target(nowait=True)
def factor(diagonal):
    diagonal[...] = np.linalg.cholesky(diagonal)


@omp.target(nowait=True)
def solve(diagonal, tile):
    tile[...] = np.linalg.solve(diagonal, tile.T).T


@omp.target(nowait=True)
def update(left, right, tile):
    tile -= left @ right.T


def cholesky(a, m):
    """Replace the lower triangle of ``a`` by its Cholesky factor, in tiles of ``m`` by ``m``."""
    n, n_devices = len(a) // m, omp.get_num_devices()
    cuts = [slice(k * m, (k + 1) * m) for k in range(n)]
    owner = [i % n_devices for i in range(n)]
    tiles = {(i, j): omp.target_alloc((m, m), a.dtype, owner[i]) for i in range(n) for j in range(i + 1)}
    columns = {(d, i): omp.target_alloc((m, m), a.dtype, d) for d in range(n_devices) for i in range(n)}
    for (i, j), tile in tiles.items():
        omp.copy(tile, a[cuts[i], cuts[j]], depend=[out(tile)], nowait=True)
    for k in range(n):
        diagonal = tiles[k, k]
        factor.options(depend=[inout(diagonal)])(diagonal)
        for d in range(n_devices):
            omp.copy(columns[d, k], diagonal, depend=[in_(diagonal), out(columns[d, k])], nowait=True)
        for i in range(k + 1, n):
            tile, own = tiles[i, k], columns[owner[i], k]
            solve.options(depend=[in_(own), inout(tile)])(own, tile)
            for d in range(n_devices):
                omp.copy(columns[d, i], tile, depend=[in_(tile), out(columns[d, i])], nowait=True)
        for i in range(k + 1, n):
            for j in range(k + 1, i + 1):
                left, right, tile = tiles[i, k], columns[owner[i], j], tiles[i, j]
                update.options(depend=[in_(left, right), inout(tile)])(left, right, tile)
    for (i, j), tile in tiles.items():
        omp.copy(a[cuts[i], cuts[j]], tile, depend=[in_(tile)], nowait=True)
    omp.taskwait()
    for array in (*tiles.values(), *columns.values()):
        omp.target_free(array)


def check(devices, size, tile):
    b = np.random.default_rng(1).standard_normal((size, size))
    a = b @ b.T + size * np.eye(size)  # symmetric, positive definite
    expected = np.linalg.cholesky(a)
    with omp.Runtime(devices, check=True):
        cholesky(a, tile)
        where = ", ".join(device.name for device in omp.devices())
    np.testing.assert_allclose(np.tril(a), expected, rtol=1e-10, atol=1e-10)
    print(f"a matrix of {size} rows, in tiles of {tile}, was factored on {where}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256, help="rows of the matrix, a multiple of the tile's")
    parser.add_argument("--tile", type=int, default=64, help="rows of a tile")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--local", action="store_true", help="use simulated devices of this process instead")
    options = parser.parse_args()
    if options.local:
        check(f"sim:{options.workers}", options.size, options.tile)
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        check(client, options.size, options.tile)


if __name__ == "__main__":
    main()
