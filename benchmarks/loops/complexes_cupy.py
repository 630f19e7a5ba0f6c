"""The loops of `complexes` by hand: kernels in plain CUDA, started by CuPy's `RawKernel`, with several shapes each."""

import cupy
import numpy as np

from benchmarks.loops.loops_cupy import LINES, RECTANGLES, best

__all__ = ["best", "evolve", "fftz2", "mandelbrot"]

SOURCE = r"""
extern "C" __global__ void fftz2(
    int sign, int l, int m, const double2 *__restrict__ u, const double2 *__restrict__ x, double2 *__restrict__ y,
    int n, int ny
) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (j >= ny || row >= n / 2) return;
    int i = row >> (l - 1), k = row & ((1 << (l - 1)) - 1), lk = 1 << (l - 1);
    double2 w = u[(1 << (m - l)) + i], a = x[row * ny + j], b = x[(row + n / 2) * ny + j];
    if (sign < 1) w.y = -w.y;
    double re = a.x - b.x, im = a.y - b.y;
    int first = (2 * i * lk + k) * ny + j;
    y[first] = make_double2(a.x + b.x, a.y + b.y);
    y[first + lk * ny] = make_double2(w.x * re - w.y * im, w.x * im + w.y * re);
}

extern "C" __global__ void evolve(
    double2 *__restrict__ u0, double2 *__restrict__ u1, const double *__restrict__ twiddle, int n
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double2 z = u0[i];
        double t = twiddle[i];
        z.x *= t;
        z.y *= t;
        u0[i] = z;
        u1[i] = z;
    }
}

extern "C" __global__ void mandelbrot(int *counts, int rows, int columns, int limit) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= rows || j >= columns) return;
    double re = -2.0 + 3.0 * j / columns, im = -1.5 + 3.0 * i / rows, a = 0, b = 0;
    int k = 0;
    while (k < limit && a * a + b * b <= 4.0) {
        double next = a * a - b * b + re;
        b = 2 * a * b + im;
        a = next;
        k++;
    }
    counts[i * columns + j] = k;
}
"""


def _kernel(name):
    """Return a kernel whose counts can equal those of loops: without contraction, as they are compiled."""
    return cupy.RawKernel(SOURCE, name, options=("--fmad=false",))


def _rectangles(name, shape, arguments):
    """Return forms with blocks along two axes; the callables take the arguments of the loop function."""
    function = _kernel(name)

    def form(threads):
        def call(*given):
            rows, columns = shape(given)
            blocks = -(-columns // threads[0]), -(-rows // threads[1])
            function(blocks, threads, arguments(given))

        return call

    return {f"{name}, blocks of {x} x {y}": form((x, y)) for x, y in RECTANGLES}


def fftz2():
    def arguments(given):
        sign, l, m, u, x, y = given  # noqa: E741  # NAS's own name
        return (*map(np.int32, (sign, l, m)), u, x, y, *map(np.int32, x.shape))

    return _rectangles("fftz2", lambda given: (given[4].shape[0] // 2, given[4].shape[1]), arguments)


def evolve():
    function = _kernel("evolve")

    def form(threads):
        return lambda u0, u1, twiddle: function(
            (-(-u0.size // threads),), (threads,), (u0, u1, twiddle, np.int32(u0.size))
        )

    return {f"evolve, blocks of {threads}": form(threads) for threads in LINES}


def mandelbrot():
    def arguments(given):
        counts, limit = given
        return (counts, *map(np.int32, (*counts.shape, limit)))

    return _rectangles("mandelbrot", lambda given: given[0].shape, arguments)
