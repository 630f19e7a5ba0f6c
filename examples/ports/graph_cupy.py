"""Two substances that diffuse and react, by hand: some steps of two streams captured as a CUDA graph, launched often.

What is captured has fixed addresses: every array is made before, and kernels write into them without temporaries.
`graph.py` is the same as a task graph.
"""

import cupy
import numpy as np

SOURCE = r"""
extern "C" __global__ void laplace(const double* field, double* result, int rows, int columns) {
    int i = blockIdx.y * blockDim.y + threadIdx.y + 1, j = blockIdx.x * blockDim.x + threadIdx.x + 1;
    if (i >= rows - 1 || j >= columns - 1) return;
    const double* f = field + i * columns + j;
    result[i * columns + j] = f[-columns] + f[columns] + f[-1] + f[1] - 4 * f[0];
}

extern "C" __global__ void react(double* u, double* v, const double* lu, const double* lv, int rows, int columns) {
    int i = blockIdx.y * blockDim.y + threadIdx.y + 1, j = blockIdx.x * blockDim.x + threadIdx.x + 1;
    if (i >= rows - 1 || j >= columns - 1) return;
    int at = i * columns + j;
    double made = u[at] * v[at] * v[at];
    u[at] += 0.16 * lu[at] - made + 0.035 * (1 - u[at]);
    v[at] += 0.08 * lv[at] + made - 0.1 * v[at];
}
"""
BLOCK = (32, 8)

laplace = cupy.RawKernel(SOURCE, "laplace")
react = cupy.RawKernel(SOURCE, "react")


def run(start_u, start_v, calls, steps):
    """Return both substances after ``calls`` times ``steps``."""
    u, v = cupy.asarray(start_u), cupy.asarray(start_v)
    lu, lv = cupy.empty_like(u), cupy.empty_like(v)
    rows, columns = map(np.int32, u.shape)
    grid = -(-u.shape[1] // BLOCK[0]), -(-u.shape[0] // BLOCK[1])
    laplace(grid, BLOCK, (u, lu, rows, columns))  # kernels are compiled and loaded before the capture
    react(grid, BLOCK, (lu.copy(), lu.copy(), lu, lu, rows, columns))
    cupy.cuda.Device().synchronize()

    main, side = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    forked, joined = (cupy.cuda.Event(disable_timing=True) for _ in range(2))
    with main:
        main.begin_capture()
        for _ in range(steps):
            forked.record(main)
            side.wait_event(forked)
            laplace(grid, BLOCK, (u, lu, rows, columns))
            with side:
                laplace(grid, BLOCK, (v, lv, rows, columns))
            joined.record(side)
            main.wait_event(joined)
            react(grid, BLOCK, (u, v, lu, lv, rows, columns))
        graph = main.end_capture()

    for _ in range(calls):
        graph.launch(main)
    main.synchronize()
    return u.get(), v.get()


def main():
    u, v = np.ones((48, 64)), np.zeros((48, 64))
    u[20:28, 24:40], v[20:28, 24:40] = 0.5, 0.25
    u, v = run(u, v, calls=20, steps=10)
    print(f"u {u.sum():.6f}, v {v.sum():.6f}")


if __name__ == "__main__":
    main()
