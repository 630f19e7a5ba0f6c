"""Cluster points by k-means on all devices: each device keeps its share of the points, and only sums travel.

A step has one target region for each device. The region finds the nearest centre of each of its points, and adds up the
points of each cluster. A host task then moves the centres. The regions read the centres and the task writes them, so
``depend`` orders the steps, and the program waits only once, at the end of the data region.

Run it: ``python examples/kmeans.py``, or with the number of points, of clusters and of steps: ``… 100000 8 20``. Set
``OFFLOAD_DEVICES=sim:4`` for four simulated devices.
"""

import sys
from contextlib import ExitStack

import numpy as np

import offload as omp
from offload import from_, in_, out, to


@omp.target(
    nowait=True,
    map=[to("points", "centres"), from_("sums", "counts")],
    depend=[in_("centres"), out("sums", "counts")],
)
def assign(points, centres, sums, counts):
    """Add up and count the points of each cluster."""
    xp = omp.array_namespace(points)
    nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    is_member = (nearest[:, None] == xp.arange(len(centres))).astype(points.dtype)
    sums[...] = is_member.T @ points
    counts[...] = is_member.sum(axis=0)


@omp.task(depend=[in_("sums", "counts"), out("centres")])
def move(centres, sums, counts):
    """Move each centre to the mean of its cluster."""
    centres[...] = sums.sum(axis=0) / counts.sum(axis=0)[:, None]


def kmeans(points, centres, n_steps):
    """Move the centres, in place."""
    shares = np.array_split(points, omp.get_num_devices())
    sums = np.empty((len(shares), *centres.shape))
    counts = np.empty((len(shares), len(centres)))
    with ExitStack() as data:
        for device, share in enumerate(shares):
            data.enter_context(omp.target_data(map=[to(share)], device=device))
        for _ in range(n_steps):
            for device, share in enumerate(shares):
                assign.options(device=device)(share, centres, sums[device], counts[device])
            move(centres, sums, counts)


def main(n_points=20_000, n_clusters=8, n_steps=5):
    rng = np.random.default_rng(1)
    true_centres = rng.uniform(-10, 10, (n_clusters, 2))
    points = true_centres[np.arange(n_points) % n_clusters] + rng.standard_normal((n_points, 2))
    centres, expected = points[:n_clusters].copy(), points[:n_clusters].copy()
    kmeans(points, centres, n_steps)

    for _ in range(n_steps):
        nearest = ((points[:, None] - expected) ** 2).sum(axis=2).argmin(axis=1)
        expected = np.array([points[nearest == cluster].mean(axis=0) for cluster in range(n_clusters)])
    np.testing.assert_allclose(centres, expected, rtol=1e-9)
    print(f"{n_points} points, {n_clusters} clusters, {n_steps} steps on {omp.get_num_devices()} device(s): right")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
