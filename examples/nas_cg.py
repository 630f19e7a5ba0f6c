"""NAS CG: the smallest eigenvalue of a sparse matrix, by conjugate gradients. One line above each loop.

The kernel is written from its specification (The NAS Parallel Benchmarks, RNR-94-007). The inverse power method runs
``n_outer`` steps; each solves a system by 25 steps of the conjugate gradient method. The matrix stays on the device.
In C, a loop looks like this:

    #pragma omp target teams loop
    for (int i = 0; i < n; i++) {
        double total = 0.0;
        for (int k = start[i]; k < start[i + 1]; k++)
            total += value[k] * p[column[k]];
        q[i] = total;
    }

Run it: ``python examples/nas_cg.py``, for class W ``python examples/nas_cg.py W``.
"""

import math
import sys
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offload.pragma import directives, omp

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

STEPS = 25  # of a solution
CONDITION = 0.1  # the reciprocal of the matrix's condition number
FACTOR, MODULUS = 5**13, 2**46


class Size(NamedTuple):
    """The rows of the matrix, elements of a sparse vector, the shift, outer steps, and the published eigenvalue."""

    n: int
    nonzeros: int
    shift: float
    n_outer: int
    zeta: float


SIZES = {
    "S": Size(1400, 7, 10.0, 15, 8.5971775078648),
    "W": Size(7000, 8, 12.0, 15, 10.362595087124),
    "A": Size(14000, 11, 20.0, 15, 17.130235054029),
    "tiny": Size(60, 3, 10.0, 2, math.nan),  # not one of NAS
}


@directives
def cg(start: Indices, column: Indices, value: Array, shift: float, n_outer: int) -> float:
    n = start.size - 1
    x = np.ones(n)
    z, p, q, r = (np.zeros(n) for _ in range(4))
    zeta = 0.0
    with omp("target data map(to: start, column, value, x) map(alloc: z, p, q, r)"):
        for _outer in range(n_outer):
            rho = 0.0
            with omp("target teams loop reduction(+: rho)"):
                for i in range(n):
                    z[i] = 0.0
                    r[i] = x[i]
                    p[i] = x[i]
                    rho += x[i] * x[i]
            for _inner in range(STEPS):
                d = 0.0
                with omp("target teams loop reduction(+: d)"):
                    for i in range(n):
                        total = 0.0
                        for k in range(start[i], start[i + 1]):
                            total += value[k] * p[column[k]]
                        q[i] = total
                        d += p[i] * total
                alpha = rho / d
                before = rho
                rho = 0.0
                with omp("target teams loop reduction(+: rho)"):
                    for i in range(n):
                        z[i] = z[i] + alpha * p[i]
                        r[i] = r[i] - alpha * q[i]
                        rho += r[i] * r[i]
                beta = rho / before
                with omp("target teams loop"):
                    for i in range(n):
                        p[i] = r[i] + beta * p[i]
            xz = 0.0
            zz = 0.0
            with omp("target teams loop reduction(+: xz, zz)"):
                for i in range(n):
                    xz += x[i] * z[i]
                    zz += z[i] * z[i]
            zeta = shift + 1.0 / xz
            scale = 1.0 / math.sqrt(zz)
            with omp("target teams loop"):
                for i in range(n):
                    x[i] = scale * z[i]
    return zeta


def matrix_of(size: Size) -> tuple[Indices, Indices, Array]:
    """Return the matrix in compressed rows: a weighted sum of outer products of sparse random vectors."""
    n, bound = size.n, 1 << (size.n - 1).bit_length()
    rows: list[dict[int, float]] = [{} for _ in range(n)]
    state = 314159265 * FACTOR % MODULUS
    weight, ratio = 1.0, CONDITION ** (1.0 / n)
    for i in range(n):
        vector: dict[int, float] = {}
        while len(vector) < size.nonzeros:
            state = state * FACTOR % MODULUS
            element = state / MODULUS
            state = state * FACTOR % MODULUS
            place = state * bound // MODULUS
            if place < n:
                vector.setdefault(place, element)
        vector[i] = 0.5
        for row, left in vector.items():
            for col, right in vector.items():
                rows[row][col] = rows[row].get(col, 0.0) + weight * left * right
        rows[i][i] += CONDITION - size.shift
        weight *= ratio
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    column = np.concatenate([sorted(row) for row in rows])
    return start, column, np.concatenate([[row[col] for col in sorted(row)] for row in rows])


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "S"
    size = SIZES[name]
    zeta = cg(*matrix_of(size), size.shift, size.n_outer)
    print(f"class {name}, {size.n} rows: zeta {zeta:.13f}")
    assert math.isnan(size.zeta) or abs(zeta - size.zeta) <= 1e-10


if __name__ == "__main__":
    main()
