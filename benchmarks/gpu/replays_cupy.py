"""Programs of `replays.py` written by hand: CuPy kernels, streams, events and copies, no `offload`."""

import cupy
import numpy as np
from cupy.cuda import runtime
from cupyx import empty_pinned

SOURCE = r"""
extern "C" __global__ void bump(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

extern "C" __global__ void sweep(const float* a, float* b, int n_columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y + 1;
    if (column < 1 || column >= n_columns - 1) return;
    const float* at = a + (size_t)row * n_columns + column;
    b[(size_t)row * n_columns + column] = 0.25f * (at[-1] + at[1] + at[-n_columns] + at[n_columns]);
}

extern "C" __global__ void change(const float* a, const float* b, float* sum, int n_columns) {
    __shared__ float parts[256];
    float found = 0;
    int row = blockIdx.x + 1;
    for (int column = threadIdx.x; column < n_columns; column += 256) {
        float d = a[(size_t)row * n_columns + column] - b[(size_t)row * n_columns + column];
        found += d * d;
    }
    parts[threadIdx.x] = found;
    for (int n = 128; n; n >>= 1) {
        __syncthreads();
        if (threadIdx.x < n) parts[threadIdx.x] += parts[threadIdx.x + n];
    }
    if (!threadIdx.x) atomicAdd(sum, parts[0]);
}
"""
BLOCK = 256
_kernels = {name: cupy.RawKernel(SOURCE, name) for name in ("bump", "sweep", "change")}


def bump(x):
    """Enqueue a kernel on the current stream that adds 1 to each element."""
    _kernels["bump"]((max(1, x.size // BLOCK),), (min(x.size, BLOCK),), (x,))


def sweep(a, b):
    """Enqueue one Jacobi sweep over the inner rows of a block, from a to b."""
    rows, columns = a.shape
    _kernels["sweep"]((-(-columns // BLOCK), rows - 2), (BLOCK,), (a, b, np.int32(columns)))


def change(a, b, total):
    """Enqueue what adds the square of the change of a block to the one element of ``total``, from 0."""
    total.fill(0)
    rows, columns = a.shape
    _kernels["change"]((rows - 2,), (BLOCK,), (a, b, total, np.int32(columns)))


def pinned(size):
    """Return pinned memory."""
    return empty_pinned((size,), np.float32)


class Bumps:
    """A chain of kernels on one array, with ``between`` called in the middle of so many equal parts."""

    def __init__(self, count, n_parts=1, between=None):
        self._count, self._n_parts, self._between = count, n_parts, between
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def __call__(self, x):
        with self._stream:
            for _ in range(self._n_parts):
                for _ in range(self._count // self._n_parts):
                    bump(x)
                if self._between is not None:
                    self._stream.synchronize()
                    self._between()
        self._stream.synchronize()


class Jacobi:
    """Sweeps over blocks of rows, one a device, whose edges go to the neighbours after each; a norm at the end."""

    def __init__(self, blocks, n_steps):
        self._blocks = blocks  # for each device its two arrays
        self._n_steps = n_steps
        self._devices = [a.device for a, _ in blocks]
        self._streams, self._totals, self._hosts, self._events = [], [], [], []
        for device in self._devices:
            with device:
                self._streams.append(cupy.cuda.Stream(non_blocking=True))
                self._totals.append(cupy.zeros(1, np.float32))
                self._events.append([cupy.cuda.Event(disable_timing=True) for _ in range(2)])
                self._hosts.append(pinned(1))

    def __call__(self):
        for step in range(self._n_steps):
            old, new = step % 2, 1 - step % 2
            for number, stream in enumerate(self._streams):
                with self._devices[number], stream:
                    sweep(self._blocks[number][old], self._blocks[number][new])
                    stream.record(self._events[number][0])
            for number, stream in enumerate(self._streams):
                with self._devices[number]:
                    for other in (number - 1, number + 1):
                        if 0 <= other < len(self._streams):
                            stream.wait_event(self._events[other][0])
                            here, there = self._blocks[number][new], self._blocks[other][new]
                            dst, src = (here[0], there[-2]) if other < number else (here[-1], there[1])
                            runtime.memcpyAsync(dst.data.ptr, src.data.ptr, dst.nbytes, 4, stream.ptr)
                    stream.record(self._events[number][1])
            for number, stream in enumerate(self._streams):  # an edge that is read is not overwritten
                for other in (number - 1, number + 1):
                    if 0 <= other < len(self._streams):
                        stream.wait_event(self._events[other][1])
        for number, stream in enumerate(self._streams):
            with self._devices[number], stream:
                change(*self._blocks[number], self._totals[number])
                host = self._hosts[number]
                runtime.memcpyAsync(host.ctypes.data, self._totals[number].data.ptr, 4, 2, stream.ptr)
        for stream in self._streams:
            stream.synchronize()
        return float(sum(host[0] for host in self._hosts)) ** 0.5
