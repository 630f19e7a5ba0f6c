"""A histogram: iterations that add to the same elements, which ``atomic`` makes one step each.

Without the clause two iterations may read an element before either has written it, and one of the two is lost; OpenMP
and OpenACC ask for the same directive. It is quick since the array is small: each thread of the host, and each block of
a GPU, adds to a copy of its own, and the copies are merged at the end.

Run it: ``python examples/loops_histogram.py [N]``.
"""

import sys
import time

import numpy as np

import offload as omp

N, BINS = 4_000_000, 256


@omp.target_loop(atomic=["counts"])
def histogram(values, counts):
    for i in range(values.size):
        counts[values[i]] += 1


def main(n=N):
    rng = np.random.default_rng(3)
    few = rng.integers(0, BINS, 1000, dtype=np.int32)
    counts, expected = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    histogram(few, counts)
    histogram.python(few, expected)
    assert (counts == expected).all()

    values = rng.integers(0, BINS, n, dtype=np.int32)
    counts[:] = 0
    began_s = time.perf_counter()
    histogram(values, counts)
    took_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    expected = np.bincount(values, minlength=BINS)
    by_numpy_s = time.perf_counter() - began_s
    assert (counts == expected).all()
    print(f"{n} values into {BINS}: {took_s * 1e3:.1f} ms, numpy.bincount {by_numpy_s * 1e3:.1f} ms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
