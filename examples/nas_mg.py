"""NAS MG: Poisson's equation on a periodic grid, by multigrid cycles. One line above each loop.

The kernel is written from its specification (The NAS Parallel Benchmarks, RNR-94-007). The right-hand side is 1 at ten
points and -1 at ten others. Each grid has one layer of ghost cells, which repeat the opposite face. In C, a sweep is:

    #pragma omp target teams loop collapse(3)
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            for (int k = 1; k < n - 1; k++)
                r[i][j][k] = v[i][j][k] - ...

The grids of all levels stay on the device. The result is the norm of the residual after four cycles.

Run it: ``python examples/nas_mg.py``, for class W ``python examples/nas_mg.py W``.
"""

import math
import sys

import numpy as np
from numpy.typing import NDArray

from offload.pragma import directives, omp

Array = NDArray[np.float64]

CYCLES = 4
FACTOR, MODULUS = 5**13, 2**46

SIZES = {
    "S": (5, 0.5307707005734e-4),
    "W": (7, 0.6467329375339e-5),
    "A": (8, 0.2433365309069e-5),
    "tiny": (3, math.nan),  # not one of NAS
}
"""The logarithm of the points along an edge, and the published norm."""


@directives
def exchange(a: Array) -> None:
    """Fill the ghost cells from the opposite faces, one direction after the other."""
    n = a.shape[0]
    with omp("target teams loop collapse(2)"):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                a[i, j, 0] = a[i, j, n - 2]
                a[i, j, n - 1] = a[i, j, 1]
    with omp("target teams loop collapse(2)"):
        for i in range(1, n - 1):
            for k in range(n):
                a[i, 0, k] = a[i, n - 2, k]
                a[i, n - 1, k] = a[i, 1, k]
    with omp("target teams loop collapse(2)"):
        for j in range(n):
            for k in range(n):
                a[0, j, k] = a[n - 2, j, k]
                a[n - 1, j, k] = a[1, j, k]


@directives
def clear(a: Array) -> None:
    n = a.shape[0]
    with omp("target teams loop collapse(3)"):
        for i in range(n):
            for j in range(n):
                for k in range(n):
                    a[i, j, k] = 0.0


@directives
def residual(u: Array, v: Array, r: Array) -> None:
    """Set ``r`` to v - A u. The operator has no weights for faces."""
    n = u.shape[0]
    with omp("target teams loop collapse(3)"):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    edges = u[i, j - 1, k - 1] + u[i, j - 1, k + 1] + u[i, j + 1, k - 1] + u[i, j + 1, k + 1]
                    edges += u[i - 1, j, k - 1] + u[i - 1, j, k + 1] + u[i + 1, j, k - 1] + u[i + 1, j, k + 1]
                    edges += u[i - 1, j - 1, k] + u[i - 1, j + 1, k] + u[i + 1, j - 1, k] + u[i + 1, j + 1, k]
                    corners = u[i - 1, j - 1, k - 1] + u[i - 1, j - 1, k + 1]
                    corners += u[i - 1, j + 1, k - 1] + u[i - 1, j + 1, k + 1]
                    corners += u[i + 1, j - 1, k - 1] + u[i + 1, j - 1, k + 1]
                    corners += u[i + 1, j + 1, k - 1] + u[i + 1, j + 1, k + 1]
                    r[i, j, k] = v[i, j, k] + 8.0 / 3.0 * u[i, j, k] - edges / 6.0 - corners / 12.0
    exchange(r)


@directives
def smooth(r: Array, u: Array) -> None:
    """Add S r to ``u``. The smoother has no weights for corners."""
    n = u.shape[0]
    with omp("target teams loop collapse(3)"):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    faces = r[i, j, k - 1] + r[i, j, k + 1] + r[i, j - 1, k] + r[i, j + 1, k]
                    faces += r[i - 1, j, k] + r[i + 1, j, k]
                    edges = r[i, j - 1, k - 1] + r[i, j - 1, k + 1] + r[i, j + 1, k - 1] + r[i, j + 1, k + 1]
                    edges += r[i - 1, j, k - 1] + r[i - 1, j, k + 1] + r[i + 1, j, k - 1] + r[i + 1, j, k + 1]
                    edges += r[i - 1, j - 1, k] + r[i - 1, j + 1, k] + r[i + 1, j - 1, k] + r[i + 1, j + 1, k]
                    u[i, j, k] = u[i, j, k] - 3.0 / 8.0 * r[i, j, k] + faces / 32.0 - edges / 64.0
    exchange(u)


@directives
def restrict(fine: Array, coarse: Array) -> None:
    """Set ``coarse`` to weighted means of ``fine``."""
    n = coarse.shape[0]
    with omp("target teams loop collapse(3)"):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    total = 0.0
                    for di in range(-1, 2):
                        for dj in range(-1, 2):
                            for dk in range(-1, 2):
                                weight = 0.5 ** (1 + abs(di) + abs(dj) + abs(dk))
                                total += weight * fine[2 * i + di, 2 * j + dj, 2 * k + dk]
                    coarse[i, j, k] = total
    exchange(coarse)


@directives
def interpolate(coarse: Array, fine: Array) -> None:
    """Add ``coarse`` to ``fine``, linearly between its points."""
    n = fine.shape[0]
    with omp("target teams loop collapse(3)"):
        for i in range(n):
            for j in range(n):
                for k in range(n):
                    total = 0.0
                    for a in range(i // 2, (i + 1) // 2 + 1):
                        for b in range(j // 2, (j + 1) // 2 + 1):
                            for c in range(k // 2, (k + 1) // 2 + 1):
                                total += coarse[a, b, c]
                    fine[i, j, k] += 0.5 ** (i % 2 + j % 2 + k % 2) * total


@directives
def norm(r: Array) -> float:
    """Return the root of the mean square."""
    n = r.shape[0]
    total = 0.0
    with omp("target teams loop collapse(3) reduction(+: total)"):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    total += r[i, j, k] * r[i, j, k]
    return math.sqrt(total / (n - 2) ** 3)


@directives
def mg(v: Array, n_levels: int, n_cycles: int) -> float:
    u = [np.zeros((2**level + 2,) * 3) for level in range(n_levels + 1)]
    r = [np.zeros((2**level + 2,) * 3) for level in range(n_levels + 1)]
    top = n_levels
    with omp("target data map(to: v) map(iterator(level=1:top+1), to: u[level], r[level])"):
        residual(u[top], v, r[top])
        for _ in range(n_cycles):
            for level in range(top, 1, -1):
                restrict(r[level], r[level - 1])
            clear(u[1])
            smooth(r[1], u[1])
            for level in range(2, top):
                clear(u[level])
                interpolate(u[level - 1], u[level])
                residual(u[level], r[level], r[level])
                smooth(r[level], u[level])
            interpolate(u[top - 1], u[top])
            residual(u[top], v, r[top])
            smooth(r[top], u[top])
            residual(u[top], v, r[top])
        return norm(r[top])


def charges(n_levels: int) -> Array:
    """Return the right-hand side: 1 at the ten largest numbers of a random sequence, and -1 at the ten smallest."""
    n, state = 2**n_levels, 314159265
    numbers = np.empty(n**3)
    for i in range(n**3):
        state = state * FACTOR % MODULUS
        numbers[i] = state / MODULUS
    order = np.argsort(numbers)
    inner = np.zeros(n**3)
    inner[order[:10]] = -1.0
    inner[order[-10:]] = 1.0
    return np.pad(inner.reshape(n, n, n), 1, mode="wrap")


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "S"
    n_levels, published = SIZES[name]
    found = mg(charges(n_levels), n_levels, CYCLES)
    print(f"class {name}, {2**n_levels} points along an edge: residual {found:.13e}")
    assert math.isnan(published) or abs(found / published - 1) <= 1e-8


if __name__ == "__main__":
    main()
