"""The loops of ``benchmarks/run.py loops`` by Numba, as its users would write them for the host's threads.

Numba checks no index and follows no call. It has no atomics on the host, so its histogram is a serial loop.
"""

import numba
import numpy as np
from numba import njit, prange


def set_threads(n):
    """Have parallel loops run on ``n`` threads."""
    numba.set_num_threads(n)


@njit(parallel=True)
def saxpy(a, x, y):
    for i in prange(x.size):
        y[i] += a * x[i]


@njit(parallel=True)
def five_point(a, b):
    for i in prange(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


@njit(parallel=True)
def csr(pointers, columns, values, x, y):
    for i in prange(y.size):
        s = 0.0
        for k in range(pointers[i], pointers[i + 1]):
            s += values[k] * x[columns[k]]
        y[i] = s


@njit(parallel=True)
def matmul(a, b, c):
    for i in prange(c.shape[0]):
        for j in range(c.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s


@njit
def histogram(values, counts):
    for i in range(values.size):
        counts[values[i]] += 1


@njit(parallel=True)
def short(x):
    for i in prange(x.size):
        x[i] = i


def version():
    """Return Numba's and NumPy's versions."""
    return f"Numba {numba.__version__}, NumPy {np.__version__}"
