"""Reconstruct a volume from its X-ray projections in chunks of slices, by hand: a ring of buffers for each GPU.

Each slot has a stream for its three steps. The steps of a slot run in order, and slots overlap. `tomography.py` is the
same job in tasks. This program needs CuPy and a GPU.
"""

import sys

import cupy as cp
import numpy as np
from cupyx import empty_pinned

IN_FLIGHT = 2  # slots on each GPU: one computes while the other is copied


def reconstruct(projections, slices, angles):
    """Filter the projections, and smear each of them back over the slices."""
    n = projections.shape[-1]
    filtered = cp.fft.irfft(cp.fft.rfft(projections, 2 * n) * cp.fft.rfftfreq(2 * n))[..., :n]
    x = cp.arange(n) - n // 2
    slices[...] = 0
    for number, angle in enumerate(angles):
        cell = cp.rint(x * np.cos(angle) + x[:, None] * np.sin(angle)).astype(int) + n // 2
        slices += filtered[:, number, cell.clip(0, n - 1)]
    slices *= np.pi / len(angles)


class Slot:
    """A stream of one GPU, and device buffers for one chunk."""

    def __init__(self, device, chunk, n_angles, n):
        self.device = cp.cuda.Device(device)
        with self.device:
            self.stream = cp.cuda.Stream(non_blocking=True)
            with self.stream:
                self.projections = cp.empty((chunk, n_angles, n))
                self.slices = cp.empty((chunk, n, n))

    def enqueue(self, projections, slices, angles):
        """Enqueue the copy to the GPU, the computation and the copy back; all three end in order."""
        there, made = self.projections[: len(projections)], self.slices[: len(slices)]
        with self.device, self.stream:
            there.set(projections, stream=self.stream)
            reconstruct(there, made, angles)
            made.get(stream=self.stream, out=slices, blocking=False)


def volume(projections, angles, chunk=4):
    """Return all slices."""
    n_slices, n_angles, n = projections.shape
    slices = empty_pinned((n_slices, n, n), "f8")
    n_devices = cp.cuda.runtime.getDeviceCount()
    slots = [Slot(k % n_devices, chunk, n_angles, n) for k in range(IN_FLIGHT * n_devices)]
    for number, first in enumerate(range(0, n_slices, chunk)):
        slot = slots[number % len(slots)]
        slot.enqueue(projections[first : first + chunk], slices[first : first + chunk], angles)
    for slot in slots:
        slot.stream.synchronize()
    return slices


def phantom(n_slices, n, angles):
    """Return the slices of a cone that leans, and their projections."""
    z = np.linspace(0, 1, n_slices)[:, None, None]
    radius, centre = n * (0.15 + 0.15 * z), n * 0.2 * z
    x = np.arange(n) - n // 2
    slices = ((x - centre) ** 2 + x[:, None] ** 2 < radius**2).astype(float)
    distance = x - centre * np.cos(angles)[:, None]
    projections = empty_pinned((n_slices, len(angles), n), "f8")
    projections[...] = 2 * np.sqrt((radius**2 - distance**2).clip(0))
    return slices, projections


def main(n_slices=24, n=96, n_angles=120):
    angles = np.pi * np.arange(n_angles) / n_angles
    expected, projections = phantom(n_slices, n, angles)
    error = abs(volume(projections, angles.tolist()) - expected).mean()
    print(f"{n_slices} slices of {n} x {n} on {cp.cuda.runtime.getDeviceCount()} GPU(s), mean error {error:.3f}")
    assert error < 0.05


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
