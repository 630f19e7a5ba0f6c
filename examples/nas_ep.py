"""NAS EP: pairs of random numbers with a normal distribution, counted by size. One line above the loop.

The kernel is written from its specification (The NAS Parallel Benchmarks, RNR-94-007). Numbers of the sequence
x' = 5**13 * x mod 2**46 become pairs in the square [-1, 1] x [-1, 1]. Pairs in the unit circle become two independent
normally distributed numbers each. The results are the sums of both and the counts of pairs by the larger of the two,
rounded down. In C:

    #pragma omp target teams loop reduction(+: sx, sy) map(tofrom: counts)
    for (long batch = 0; batch < n_batches; batch++) {
        double in_batch[10] = {0};
        long x = skip(271828183, 2 * PAIRS * batch);
        for (int pair = 0; pair < PAIRS; pair++) {
            ...
        }
        for (int i = 0; i < 10; i++)
            #pragma omp atomic
            counts[i] += in_batch[i];
    }

A batch is an iteration. It begins at its own place in the sequence, so that batches do not depend on each other.

Run it: ``python examples/nas_ep.py``, or with the logarithm of the number of pairs: ``python examples/nas_ep.py 25``.
"""

import math
import sys

import numpy as np
from numpy.typing import NDArray

from offload.pragma import directives, omp

Array = NDArray[np.float64]

SEED = 271828183
FACTOR = 5**13
MASK = 2**46 - 1  # a remainder modulo 2**46 also where the product wraps at 64 bits
PAIRS = 1024  # of a batch

PUBLISHED = {
    24: (-3.247834652034740e3, -6.958407078382297e3),  # class S
    25: (-2.863319731645753e3, -6.320053679109499e3),  # class W
    28: (-4.295875165629892e3, -1.580732573678431e4),  # class A
}
"""The sums, by the logarithm of the number of pairs."""


def skip(x: int, n: int) -> int:
    """Return the number that stands n places after x in the sequence."""
    factor = FACTOR
    while n > 0:
        if n & 1:
            x = x * factor & MASK
        factor = factor * factor & MASK
        n >>= 1
    return x


@directives
def ep(n_batches: int) -> tuple[float, float, Array]:
    counts = np.zeros(10)
    sx = 0.0
    sy = 0.0
    with omp("target teams loop reduction(+: sx, sy)"):
        for batch in range(n_batches):
            in_batch = np.zeros(10)
            x = skip(SEED, 2 * PAIRS * batch)
            for _ in range(PAIRS):
                x = x * FACTOR & MASK
                a = 2.0 * (x * 0.5**46) - 1.0
                x = x * FACTOR & MASK
                b = 2.0 * (x * 0.5**46) - 1.0
                t = a * a + b * b
                if t <= 1.0:
                    t = math.sqrt(-2.0 * math.log(t) / t)
                    a = a * t
                    b = b * t
                    in_batch[int(max(abs(a), abs(b)))] += 1.0
                    sx += a
                    sy += b
            for i in range(10):
                with omp("atomic"):
                    counts[i] += in_batch[i]
    return sx, sy, counts


def is_right(sums: tuple[float, float], log_pairs: int) -> bool:
    """Compare the sums with the published ones: NAS allows a relative error of 1e-8."""
    return all(abs(one / other - 1) <= 1e-8 for one, other in zip(sums, PUBLISHED[log_pairs], strict=True))


def main() -> None:
    log_pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    sx, sy, counts = ep(2**log_pairs // PAIRS)
    print(f"2**{log_pairs} pairs, {int(counts.sum())} in the circle, sums {sx:.15e} and {sy:.15e}")
    assert log_pairs not in PUBLISHED or is_right((sx, sy), log_pairs)


if __name__ == "__main__":
    main()
