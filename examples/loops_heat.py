"""Heat in a plate: a five-point stencil as a loop, its field on the device through all steps, and a reduction.

In C with OpenMP:

    #pragma omp target data map(tofrom: a[0:n*n]) map(alloc: b[0:n*n])
    for (int step = 0; step < steps; step += 2) {
        #pragma omp target teams loop collapse(2)
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++)
                b[i*n + j] = 0.25 * (a[(i-1)*n + j] + a[(i+1)*n + j] + a[i*n + j-1] + a[i*n + j+1]);
        // and back, from b to a
    }

The function without its decorator, run by Python, is what the loop means: `sweep.python` is compared with it here, and
the time with that of NumPy's slices.

Run it: ``python examples/loops_heat.py [N]``.
"""

import sys
import time

import numpy as np

import offload as omp
from offload import tofrom

N, STEPS = 1024, 100


@omp.target_loop(collapse=2)
def sweep(a, b):
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


@omp.target_loop(collapse=2, reduction={"max": ["change"]})
def largest_change(a, b):
    change = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            change = max(change, abs(a[i, j] - b[i, j]))
    return change  # a reduction leaves by `return`


def sweep_by_slices(a, b):
    b[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])


def plate(n):
    """A cold plate with one hot edge."""
    a = np.zeros((n, n))
    a[0] = 100.0
    return a, a.copy()


def main(n=N):
    small = plate(24)
    expected = [field.copy() for field in small]
    sweep(*small)
    sweep.python(*expected)
    assert (small[1] == expected[1]).all()  # bit for bit

    a, b = plate(n)
    sweep(a, b)  # compiled here
    began_s = time.perf_counter()
    with omp.target_data(map=[tofrom(a), tofrom(b)]):
        for _ in range(STEPS // 2):
            sweep(a, b)
            sweep(b, a)
        change = largest_change(a, b)
    took_s = time.perf_counter() - began_s

    c, d = plate(n)
    sweep_by_slices(c, d)
    began_s = time.perf_counter()
    for _ in range(STEPS // 2):
        sweep_by_slices(c, d)
        sweep_by_slices(d, c)
    by_slices_s = time.perf_counter() - began_s
    assert np.allclose(a, c, rtol=1e-13, atol=0)
    print(f"{STEPS} steps of {n} x {n}: {took_s * 1e3:.0f} ms, NumPy's slices {by_slices_s * 1e3:.0f} ms")
    print(f"the last step changed an element by {change:.3g} at most")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
