"""Jacobi's iteration on a plate that is cut among the workers of a Dask cluster, which exchange rows at the cuts.

Each worker holds some rows of the plate on its device, and at each cut ``HALO`` rows of its neighbour. A sweep makes
one row of a halo stale, so the workers exchange rows once in ``HALO`` sweeps. Fewer exchanges are faster, because each
takes milliseconds. Data goes directly from worker to worker, and the program waits once, at the end.

Run it: ``python examples/cluster_halo.py``, with ``--size``, ``--steps`` and ``--workers``.
"""

import argparse
from itertools import pairwise

import numpy as np

import offload as omp
from offload import in_, out

HALO = 4


@omp.target(nowait=True)
def relax(u, v):
    v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4


def copy(target, source):
    omp.copy(target, source, depend=[in_(source), out(target)], nowait=True)


def iterate(plate, n_steps):
    """Do some steps on all devices, in place."""
    n = omp.get_num_devices()
    cuts = [len(plate) * k // n for k in range(n + 1)]
    above, below = [0, *[HALO] * (n - 1)], [*[HALO] * (n - 1), 0]  # the rows of each part's halos
    parts = [plate[cuts[k] - above[k] : cuts[k + 1] + below[k]] for k in range(n)]
    us, vs = ([omp.target_alloc(part.shape, part.dtype, k) for k, part in enumerate(parts)] for _ in range(2))
    for part, u, v in zip(parts, us, vs, strict=True):
        copy(u, part)
        copy(v, part)  # the edge of the plate is in both
    for step in range(1, n_steps + 1):
        for k in range(n):
            relax.options(device=k, depend=[in_(us[k]), out(vs[k])])(us[k], vs[k])
        if step % HALO == 0:
            for upper, lower in pairwise(vs):
                copy(lower[:HALO], upper[-2 * HALO : -HALO])
                copy(upper[-HALO:], lower[HALO : 2 * HALO])
        us, vs = vs, us
    for k in range(n):
        copy(plate[cuts[k] : cuts[k + 1]], us[k][above[k] : len(parts[k]) - below[k]])
    omp.taskwait()
    for array in (*us, *vs):
        omp.target_free(array)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=128, help="rows and columns of the plate")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    options = parser.parse_args()
    from distributed import Client, LocalCluster

    u = np.random.default_rng(1).random((options.size, options.size))
    plate, v = u.copy(), u.copy()
    with (
        LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        omp.Runtime(client, check=True),
    ):
        iterate(plate, options.steps)
        n_devices = omp.get_num_devices()
    for _ in range(options.steps):
        v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        u, v = v, u
    assert (plate == u).all()
    print(f"{options.size} x {options.size} points, {options.steps} steps on {n_devices} devices: the same bits")


if __name__ == "__main__":
    main()
