"""All pairs of bodies: what each one is pulled by, as a loop with a loop inside and a function that it calls.

NumPy needs arrays of n x n for this. A loop needs none: each iteration sums the pull of all others in scalars.

Run it: ``python examples/loops_bodies.py [N]``.
"""

import math
import sys
import time

import numpy as np

import offload as omp

N = 2048
SOFTENING = 1e-6  # a module's scalar is a constant of the loop


def weight(dx, dy, dz):
    """A plain function that a loop calls is part of it."""
    square = dx * dx + dy * dy + dz * dz + SOFTENING
    return 1.0 / (square * math.sqrt(square))


@omp.target_loop
def pull(mass, x, y, z, force):
    for i in range(mass.size):
        fx = fy = fz = 0.0
        for j in range(mass.size):
            dx, dy, dz = x[j] - x[i], y[j] - y[i], z[j] - z[i]
            w = mass[j] * weight(dx, dy, dz)
            fx += w * dx
            fy += w * dy
            fz += w * dz
        force[i, 0] = fx
        force[i, 1] = fy
        force[i, 2] = fz


def pull_by_arrays(mass, x, y, z, force):
    dx, dy, dz = (one[None, :] - one[:, None] for one in (x, y, z))
    square = dx * dx + dy * dy + dz * dz + SOFTENING
    w = mass / (square * np.sqrt(square))
    for axis, d in enumerate((dx, dy, dz)):
        force[:, axis] = (w * d).sum(axis=1)


def bodies(n):
    rng = np.random.default_rng(2)
    return rng.random(n), rng.random(n), rng.random(n), rng.random(n), np.zeros((n, 3))


def main(n=N):
    few = bodies(40)
    expected = np.zeros((40, 3))
    pull(*few)
    pull.python(*few[:4], expected)
    assert np.allclose(few[4], expected, rtol=1e-14, atol=0)

    many = bodies(n)
    pull(*many)  # compiled here
    began_s = time.perf_counter()
    pull(*many)
    took_s = time.perf_counter() - began_s
    force = np.zeros((n, 3))
    began_s = time.perf_counter()
    pull_by_arrays(*many[:4], force)
    by_arrays_s = time.perf_counter() - began_s
    assert np.allclose(many[4], force, rtol=1e-10)
    print(f"{n} bodies: {took_s * 1e3:.0f} ms, NumPy's arrays of {n} x {n} {by_arrays_s * 1e3:.0f} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
