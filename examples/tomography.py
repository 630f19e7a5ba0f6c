"""Reconstruct a volume from its X-ray projections, in chunks of slices, on all devices.

The projections may be larger than the memory of a device. A target region reconstructs one chunk of slices by filtered
back-projection: its ``map`` clause copies the projections of the chunk to the device and the slices back. The regions
take turns on the devices. A region writes (``out``) one of a few tokens, which limits how many chunks are on a device,
and the copies of one chunk overlap with the computation of another.

Run it: ``python examples/tomography.py``, or with the numbers of slices, detector cells and angles: ``… 64 256 360``.
"""

import sys

import numpy as np

import offload as omp
from offload import from_, out, to

IN_FLIGHT = 2  # chunks on each device: one computes while the other is copied


@omp.target(nowait=True, map=[to("projections"), from_("slices")])
def reconstruct(projections, slices, angles):
    """Filter the projections, and smear each of them back over the slices."""
    xp = omp.array_namespace(projections)
    n = projections.shape[-1]
    filtered = xp.fft.irfft(xp.fft.rfft(projections, 2 * n) * xp.fft.rfftfreq(2 * n))[..., :n]
    x = xp.arange(n) - n // 2
    slices[...] = 0
    for number, angle in enumerate(angles):
        cell = xp.rint(x * np.cos(angle) + x[:, None] * np.sin(angle)).astype(int) + n // 2
        slices += filtered[:, number, cell.clip(0, n - 1)]
    slices *= np.pi / len(angles)


def volume(projections, angles, chunk=4):
    """Return all slices."""
    n_slices, _, n = projections.shape
    slices = omp.empty_pinned((n_slices, n, n))
    n_devices = omp.get_num_devices()
    for number, first in enumerate(range(0, n_slices, chunk)):
        token = number % (IN_FLIGHT * n_devices)
        work = reconstruct.options(device=number % n_devices, depend=[out(("in flight", token))])
        work(projections[first : first + chunk], slices[first : first + chunk], angles)
    omp.taskwait()
    return slices


def phantom(n_slices, n, angles):
    """Return the slices of a cone that leans, and their projections."""
    z = np.linspace(0, 1, n_slices)[:, None, None]
    radius, centre = n * (0.15 + 0.15 * z), n * 0.2 * z
    x = np.arange(n) - n // 2
    slices = ((x - centre) ** 2 + x[:, None] ** 2 < radius**2).astype(float)
    distance = x - centre * np.cos(angles)[:, None]
    projections = omp.empty_pinned((n_slices, len(angles), n))
    projections[...] = 2 * np.sqrt((radius**2 - distance**2).clip(0))
    return slices, projections


def main(n_slices=24, n=96, n_angles=120):
    angles = np.pi * np.arange(n_angles) / n_angles
    expected, projections = phantom(n_slices, n, angles)
    error = abs(volume(projections, angles.tolist()) - expected).mean()
    print(f"{n_slices} slices of {n} x {n} on {omp.get_num_devices()} device(s), mean error {error:.3f}")
    assert error < 0.05


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
