"""One nest of loops in five ways: found to be parallel, on gangs and vector lanes, collapsed, in tiles, in order.

In OpenACC, in C, the nest and what stands before it in each of the five:

    #pragma acc kernels loop                        // the compiler finds out whether the loops are independent
    #pragma acc parallel loop gang                  // with `#pragma acc loop vector` before the inner loop
    #pragma acc parallel loop collapse(2)
    #pragma acc parallel loop tile(16, 32)
    #pragma acc parallel loop seq
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < m - 1; j++)
            b[i][j] = w * (a[i-1][j] + a[i+1][j] + a[i][j-1] + a[i][j+1]) + (1 - 4 * w) * a[i][j];

Below, each directive is a decorator over a function, or stands around the range of a loop. Without the decorator the
function is Python, which says what the loop means, slowly. The arrays are on the device while a way takes its turn, so
that times are of the loop and its launch. A GPU, or a compiler on the host, makes a kernel of it; with neither the loop
runs as Python, and all times but NumPy's are long.

Run it: ``python examples/acc_loops.py``.
"""

from time import perf_counter

import numpy as np

from offload import acc

ROWS, COLUMNS = 300, 400
WEIGHT = 0.1


def smooth(a, b, w):
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = w * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]) + (1 - 4 * w) * a[i, j]


@acc.parallel_loop
def smooth_rows(a, b, w):
    for i in acc.loop(range(1, a.shape[0] - 1), gang=True):
        for j in acc.loop(range(1, a.shape[1] - 1), vector=True):
            b[i, j] = w * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]) + (1 - 4 * w) * a[i, j]


WAYS = {
    "kernels loop": acc.kernels_loop(smooth),
    "gang, vector": smooth_rows,
    "collapse(2)": acc.parallel_loop(collapse=2)(smooth),
    "tile(16, 32)": acc.parallel_loop(tile=(16, 32))(smooth),
    "seq": acc.parallel_loop(seq=True)(smooth),
}


def smooth_by_numpy(a, b, w):
    b[1:-1, 1:-1] = w * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) + (1 - 4 * w) * a[1:-1, 1:-1]


def best_ms(function, *args):
    """Return the shortest of the times that three calls take, in milliseconds, after one that may compile."""
    function(*args)
    times_s = []
    for _ in range(3):
        began_s = perf_counter()
        function(*args)
        times_s.append(perf_counter() - began_s)
    return min(times_s) * 1000


def main():
    a = np.random.default_rng(1).uniform(0, 1, (ROWS, COLUMNS))
    by_numpy = a.copy()
    numpy_ms = best_ms(smooth_by_numpy, a, by_numpy, WEIGHT)
    for name, way in WAYS.items():
        b, expected = a.copy(), a.copy()
        way.python(a, expected, WEIGHT)
        with acc.data(copyin=[a], copy=[b]):
            loop_ms = best_ms(way, a, b, WEIGHT)
        error = abs(b - expected).max()
        print(f"{name:12}  as its plain form to {error:.0e}; {loop_ms:.3f} ms, NumPy's {numpy_ms:.3f} ms")
        assert error < 1e-15
        assert abs(b - by_numpy).max() < 1e-12


if __name__ == "__main__":
    main()
