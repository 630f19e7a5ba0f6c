"""Jacobi's iteration on a plate that is cut among the workers of a Dask cluster, by hand: Dask's own tasks and futures.

A part and its edges are futures that stay on their worker. A task of ``HALO`` sweeps takes the edges of the neighbours.
`cluster_halo.py` is the same job in target regions. This program computes with NumPy, and needs no GPU.
"""

import argparse

import numpy as np
from distributed import Client, LocalCluster

HALO = 4


def relax(above, part, below, n_sweeps):
    """Return a part after some sweeps. ``above`` and ``below`` are rows of the neighbours, None at the plate's edge."""
    u = np.concatenate([rows for rows in (above, part, below) if rows is not None])
    v = u.copy()
    for _ in range(n_sweeps):
        v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        u, v = v, u
    first = 0 if above is None else HALO
    return u[first : first + len(part)].copy()


def first_rows(part):
    return part[:HALO].copy()


def last_rows(part):
    return part[-HALO:].copy()


def iterate(client, plate, n_steps):
    """Do some steps on all workers, in place."""
    workers = sorted(client.scheduler_info()["workers"])
    n = len(workers)
    cuts = [len(plate) * k // n for k in range(n + 1)]
    parts = [client.scatter(plate[cuts[k] : cuts[k + 1]], workers=[workers[k]], hash=False) for k in range(n)]
    for step in range(0, n_steps, HALO):
        n_sweeps = min(HALO, n_steps - step)
        placed = [{"workers": [worker], "pure": False} for worker in workers]
        tops = [client.submit(first_rows, parts[k], **placed[k]) for k in range(n)]
        bottoms = [client.submit(last_rows, parts[k], **placed[k]) for k in range(n)]
        above, below = [None, *bottoms[:-1]], [*tops[1:], None]
        parts = [client.submit(relax, above[k], parts[k], below[k], n_sweeps, **placed[k]) for k in range(n)]
    for k, part in enumerate(client.gather(parts)):
        plate[cuts[k] : cuts[k + 1]] = part


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=128, help="rows and columns of the plate")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    options = parser.parse_args()

    u = np.random.default_rng(1).random((options.size, options.size))
    plate, v = u.copy(), u.copy()
    with (
        LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        iterate(client, plate, options.steps)
    for _ in range(options.steps):
        v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        u, v = v, u
    assert (plate == u).all()
    print(f"{options.size} x {options.size} points, {options.steps} steps on {options.workers} workers: the same bits")


if __name__ == "__main__":
    main()
