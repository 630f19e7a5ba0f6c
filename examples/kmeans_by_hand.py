"""Cluster points by k-means on all GPUs, by hand: a stream, resident points and pinned results for each GPU.

`kmeans.py` is the same job in tasks. This program needs CuPy and a GPU.
"""

import sys

import cupy as cp
import numpy as np
from cupyx import empty_pinned


class Share:
    """The points of one GPU, with its stream and its buffers."""

    def __init__(self, device, points, centres):
        self.device = cp.cuda.Device(device)
        with self.device:
            self.stream = cp.cuda.Stream(non_blocking=True)
            with self.stream:
                self.points = cp.asarray(points)
                self.centres = cp.empty_like(centres)
            self.stream.synchronize()
        self.sums = empty_pinned(centres.shape, "f8")
        self.counts = empty_pinned(len(centres), "f8")

    def assign(self, centres):
        """Enqueue the copy of the centres, the computation, and the copies of its results."""
        with self.device, self.stream:
            self.centres.set(centres, stream=self.stream)
            nearest = ((self.points[:, None] - self.centres) ** 2).sum(axis=2).argmin(axis=1)
            is_member = (nearest[:, None] == cp.arange(len(centres))).astype(self.points.dtype)
            (is_member.T @ self.points).get(stream=self.stream, out=self.sums, blocking=False)
            is_member.sum(axis=0).get(stream=self.stream, out=self.counts, blocking=False)


def kmeans(points, centres, n_steps):
    """Move the centres, in place."""
    parts = np.array_split(points, cp.cuda.runtime.getDeviceCount())
    shares = [Share(device, part, centres) for device, part in enumerate(parts)]
    pinned = empty_pinned(centres.shape, "f8")
    pinned[...] = centres
    for _ in range(n_steps):
        for share in shares:
            share.assign(pinned)
        for share in shares:
            share.stream.synchronize()
        pinned[...] = sum(share.sums for share in shares) / sum(share.counts for share in shares)[:, None]
    centres[...] = pinned


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
    n_devices = cp.cuda.runtime.getDeviceCount()
    print(f"{n_points} points, {n_clusters} clusters, {n_steps} steps on {n_devices} GPU(s): right")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
