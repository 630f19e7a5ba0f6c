"""The loops of ``benchmarks/run.py loops`` by hand: kernels in plain CUDA, started by CuPy's `RawKernel`.

Each loop has one or more forms: blocks of several shapes, of a histogram also copies in shared memory, so that the best
of them can be the peer. A form is called as the loop function is, and starts its kernel on CuPy's current stream.
"""

from contextlib import suppress
from itertools import pairwise

import cupy
import numpy as np

from offload.devices.cuda.kernels import CudaKernel

SOURCE = r"""
extern "C" __global__ void saxpy(REAL a, const REAL *__restrict__ x, REAL *__restrict__ y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

extern "C" __global__ void axpby(
    REAL a, REAL b, const REAL *__restrict__ x, const REAL *__restrict__ y, REAL *__restrict__ z, int n
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = a * x[i] + b * y[i];
}

extern "C" __global__ void five_point(const REAL *__restrict__ a, REAL *__restrict__ b, int rows, int columns) {
    int j = blockIdx.x * blockDim.x + threadIdx.x + 1, i = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (i < rows - 1 && j < columns - 1)
        b[i * columns + j] = (REAL)0.25 * (a[(i - 1) * columns + j] + a[(i + 1) * columns + j]
                                           + a[i * columns + j - 1] + a[i * columns + j + 1]);
}

extern "C" __global__ void csr(
    const int *__restrict__ pointers, const int *__restrict__ columns, const REAL *__restrict__ values,
    const REAL *__restrict__ x, REAL *__restrict__ y, int rows
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) {
        REAL s = 0;
        for (int k = pointers[i]; k < pointers[i + 1]; k++) s += values[k] * x[columns[k]];
        y[i] = s;
    }
}

extern "C" __global__ void csr_by_warps(
    const int *__restrict__ pointers, const int *__restrict__ columns, const REAL *__restrict__ values,
    const REAL *__restrict__ x, REAL *__restrict__ y, int rows
) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i < rows) {
        REAL s = 0;
        for (int k = pointers[i] + lane; k < pointers[i + 1]; k += 32) s += values[k] * x[columns[k]];
        for (int apart = 16; apart; apart /= 2) s += __shfl_down_sync(~0u, s, apart);
        if (lane == 0) y[i] = s;
    }
}

extern "C" __global__ void matmul(
    const REAL *__restrict__ a, const REAL *__restrict__ b, REAL *__restrict__ c, int n, int m, int inner
) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < n && j < m) {
        REAL s = 0;
        for (int k = 0; k < inner; k++) s += a[i * inner + k] * b[k * m + j];
        c[i * m + j] = s;
    }
}

extern "C" __global__ void histogram(const int *__restrict__ values, int *counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(counts + values[i], 1);
}

extern "C" __global__ void histogram_by_copies(const int *__restrict__ values, int *counts, int n, int bins) {
    extern __shared__ int copy[];
    for (int k = threadIdx.x; k < bins; k += blockDim.x) copy[k] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(copy + values[i], 1);
    __syncthreads();
    for (int k = threadIdx.x; k < bins; k += blockDim.x)
        if (copy[k]) atomicAdd(counts + k, copy[k]);
}
"""

PROBABLY = r"""
extern "C" __global__ void multiply(
    const int *__restrict__ order, const int *__restrict__ pointers, const int *__restrict__ columns,
    const double *__restrict__ values, const double *__restrict__ x, double *__restrict__ y, int n
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double s = 0;
        for (int k = pointers[i]; k < pointers[i + 1]; k++) s += values[k] * x[columns[k]];
        y[order[i]] = s;
    }
}

extern "C" __global__ void flux(
    const int2 *__restrict__ edges, const double *__restrict__ area, const double *__restrict__ u, double *residual,
    int begin, int end, int n
) {
    int k = begin + blockIdx.x * blockDim.x + threadIdx.x;
    if (k < end) {
        int2 edge = edges[k];
        double a = u[edge.x], b = u[edge.y], f = 0.5 * area[k] * (a * a + b * b - fabs(a + b) * (b - a));
        residual[edge.x] -= f;
        residual[edge.y] += f;
    }
}

extern "C" __global__ void push(const int *__restrict__ slots, double *position, double *velocity, double dt, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        long long k = 3ll * slots[i];
        for (int c = 0; c < 3; c++) {
            double v = velocity[k + c] = 0.999 * velocity[k + c];
            position[k + c] += dt * v;
        }
    }
}

extern "C" __global__ void work(
    const int *__restrict__ source, const int *__restrict__ goal, const double *__restrict__ x, double *__restrict__ y,
    int n
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        double t = x[source[i]];
        for (int k = 0; k < 100; k++) t = t * 0.999 + 0.001;
        y[goal[i]] = t;
    }
}

extern "C" __global__ void lines(
    const int *__restrict__ offsets, const int *__restrict__ lengths, const double *__restrict__ lower,
    const double *__restrict__ diagonal, const double *__restrict__ upper, double *__restrict__ scratch,
    double *__restrict__ right, int n
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int first = offsets[i], last = first + lengths[i] - 1;
    scratch[first] = upper[first] / diagonal[first];
    right[first] /= diagonal[first];
    for (int k = first + 1; k <= last; k++) {
        double m = 1 / (diagonal[k] - lower[k] * scratch[k - 1]);
        scratch[k] = upper[k] * m;
        right[k] = (right[k] - lower[k] * right[k - 1]) * m;
    }
    for (int k = last - 1; k >= first; k--) right[k] -= scratch[k] * right[k + 1];
}

extern "C" __global__ void scale(
    const int *__restrict__ pointers, const double *__restrict__ factors, double *__restrict__ values, int n
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        for (int k = pointers[i]; k < pointers[i + 1]; k++) values[k] *= factors[i];
}
"""
"""The loops of the section speculation, one thread an iteration."""

LINES = (128, 256, 512, 1024)
"""Threads of a block along one axis."""

RECTANGLES = ((32, 4), (32, 8), (32, 16), (64, 4), (64, 8), (128, 2), (256, 1))
"""And along two, the inner one first."""

MOST_COPIED = 8192
"""Elements of which a block may have a copy."""


def kernel(name, dtype="float64"):
    """Return a kernel of the text above, for elements of a dtype, with CuPy's default options."""
    real = {"float64": "double", "float32": "float"}[str(dtype)]
    return cupy.RawKernel(SOURCE.replace("REAL", real), name)


def _blocks(n, of):
    return (n + of - 1) // of


def _lines(name, dtype, length, arguments, per_thread=1):
    """Return forms with blocks along one axis; the callables take the arguments of the loop function."""
    function = kernel(name, dtype)

    def form(threads):
        def call(*given):
            n = length(given)
            function((_blocks(per_thread * n, threads),), (threads,), arguments(given))

        return call

    return {f"{name}, blocks of {threads}": form(threads) for threads in LINES}


def _rectangles(name, dtype, shape, arguments):
    """Return forms with blocks along two axes."""
    function = kernel(name, dtype)

    def form(threads):
        def call(*given):
            rows, columns = shape(given)
            function((_blocks(columns, threads[0]), _blocks(rows, threads[1])), threads, arguments(given))

        return call

    return {f"{name}, blocks of {x} x {y}": form((x, y)) for x, y in RECTANGLES}


def _written_size(given):
    return given[-1].size


def saxpy(dtype="float64"):
    real = np.dtype(dtype).type
    return _lines(
        "saxpy", dtype, _written_size, lambda given: (real(given[0]), *given[1:], np.int32(_written_size(given)))
    )


def five_point(dtype="float64"):
    def shape(given):
        rows, columns = given[0].shape
        return rows - 2, columns - 2

    return _rectangles("five_point", dtype, shape, lambda given: (*given, *map(np.int32, given[0].shape)))


def csr(dtype="float64", name="csr", per_thread=1):
    return _lines(name, dtype, _written_size, lambda given: (*given, np.int32(_written_size(given))), per_thread)


def csr_by_warps(dtype="float64"):
    return csr(dtype, "csr_by_warps", 32)


def matmul(dtype="float64"):
    def arguments(given):
        a, _, c = given
        return (*given, *map(np.int32, (*c.shape, a.shape[1])))

    return _rectangles("matmul", dtype, lambda given: given[-1].shape, arguments)


def histogram(dtype="float64"):
    def length(given):
        return given[0].size

    forms = _lines("histogram", dtype, length, lambda given: (*given, np.int32(length(given))))
    by_copies = kernel("histogram_by_copies", dtype)

    def form(blocks, threads):
        def call(values, counts):
            arguments = (values, counts, np.int32(values.size), np.int32(counts.size))
            by_copies((blocks,), (threads,), arguments, shared_mem=counts.nbytes)

        return call

    n_processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    for threads in LINES:
        for per_processor in (2048 // threads, 1):
            name = f"histogram, {per_processor} copies of blocks of {threads} a processor"
            forms[name] = form(per_processor * n_processors, threads)
    return forms


def fits(name, counts):
    """Tell whether a form of the histogram has copies of so many elements."""
    return "copies" not in name or counts.size <= MOST_COPIED


def axpby():
    """Return a function that starts one kernel of three arrays and two scalars, as a call of a loop does."""
    function = kernel("axpby")

    def call(a, b, x, y, z):
        function((_blocks(z.size, 256),), (256,), (np.float64(a), np.float64(b), x, y, z, np.int32(z.size)))

    return call


def probably(name, n):
    """Return what starts a kernel of `PROBABLY` over n iterations, called as the loop function is."""
    function = cupy.RawKernel(PROBABLY, name)

    def call(*given):
        arguments = [np.int32(one) if isinstance(one, int) else one for one in given]
        function((_blocks(n, 256),), (256,), (*arguments, np.int32(n)))

    return call


def kernels_ms(call):
    """Return what the kernels take of the device that a call of the library launches, by events around each."""
    around, launch = [], CudaKernel.launch

    def timed(kernel, stream, *rest):
        around.append((cupy.cuda.Event(), cupy.cuda.Event()))
        around[-1][0].record(stream)
        launch(kernel, stream, *rest)
        around[-1][1].record(stream)

    CudaKernel.launch = timed
    try:
        call()
    finally:
        CudaKernel.launch = launch
    synchronize()
    return sum(cupy.cuda.get_elapsed_time(*both) for both in around)


def synchronize():
    """Wait for the device."""
    cupy.cuda.Device().synchronize()


def milliseconds(call, arguments, times):
    """Return what one call takes of the device, by events around several."""
    first, last = cupy.cuda.Event(), cupy.cuda.Event()
    first.record()
    for _ in range(times):
        call(*arguments)
    last.record()
    last.synchronize()
    return cupy.cuda.get_elapsed_time(first, last) / times


def best(forms, arguments):
    """Return the name and the form that is quickest with these arguments."""
    took_ms = {}
    for name, call in forms.items():
        milliseconds(call, arguments, 1)
        took_ms[name] = min(milliseconds(call, arguments, 3) for _ in range(3))
    name = min(took_ms, key=took_ms.__getitem__)
    return name, forms[name]


class FivePoint:
    """Sweeps over a field whose rows lie on several GPUs, each with a row of its neighbours at both ends.

    A GPU sends its first and last row behind each sweep, by ``memcpyPeerAsync`` on a stream of its own, and begins the
    next one when the events say that its own rows have come and its last ones have been taken. Written for any number.

    Parameters
    ----------
    n_devices : int
    a, b : array, shape (rows, columns), float64
        On the host: both fields at first.
    """

    def __init__(self, n_devices, a, b):
        rows, self.columns = a.shape
        bounds = [1 + (rows - 2) * d // n_devices for d in range(n_devices + 1)]
        self.rows = [high - low for low, high in pairwise(bounds)]
        self.fields, self.streams, self.kernels = [], [], []
        for d, (low, high) in enumerate(pairwise(bounds)):
            with cupy.cuda.Device(d):
                for other in range(n_devices):
                    if other != d and cupy.cuda.runtime.deviceCanAccessPeer(d, other):
                        with suppress(cupy.cuda.runtime.CUDARuntimeError):  # it may be so already
                            cupy.cuda.runtime.deviceEnablePeerAccess(other)
                self.fields.append([cupy.asarray(field[low - 1 : high + 1]) for field in (a, b)])
                self.streams.append(cupy.cuda.Stream(non_blocking=True))
                self.kernels.append(kernel("five_point"))
        self.synchronize()

    def step(self):
        """Enqueue two sweeps, from the first field to the second and back."""
        self._sweep(0, 1)
        self._sweep(1, 0)

    def _sweep(self, at, to):
        done = []
        for d, stream in enumerate(self.streams):
            with cupy.cuda.Device(d), stream:
                shape = np.int32(self.rows[d] + 2), np.int32(self.columns)
                grid = _blocks(self.columns - 2, 32), _blocks(self.rows[d], 8)
                self.kernels[d](grid, (32, 8), (self.fields[d][at], self.fields[d][to], *shape))
                done.append(stream.record())
        for d, stream in enumerate(self.streams):  # each fetches its neighbours' rows, when these have been swept
            for other, row, mine in ((d - 1, -2, 0), (d + 1, 1, -1)):
                if 0 <= other < len(self.streams):
                    stream.wait_event(done[other])
                    source, target = self.fields[other][to][row], self.fields[d][to][mine]
                    cupy.cuda.runtime.memcpyPeerAsync(
                        target.data.ptr, d, source.data.ptr, other, target.nbytes, stream.ptr
                    )
        fetched = []
        for d, stream in enumerate(self.streams):
            with cupy.cuda.Device(d):
                fetched.append(stream.record())
        for d, stream in enumerate(self.streams):  # nobody overwrites what a neighbour has yet to fetch
            for other in (d - 1, d + 1):
                if 0 <= other < len(self.streams):
                    stream.wait_event(fetched[other])

    def synchronize(self):
        """Wait for all GPUs."""
        for d in range(len(self.streams)):
            cupy.cuda.Device(d).synchronize()
