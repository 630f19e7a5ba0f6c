"""A matrix processed by blocks of columns by hand: a CuPy stream a block, pinned memory, no `offload`.

`benchmarks/run.py gpu` times it in turn with OpenACC's queues, which launch the same kernel. The matrix is of float32
in Fortran order, so that the columns of a block lie together.
"""

import time

import cupy
import numpy as np
from cupy.cuda import runtime
from cupyx import empty_pinned

__all__ = ["Columns", "empty_pinned", "passes_like_a_copy", "relax"]

TO_DEVICE, TO_HOST = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost

SOURCE = r"""
extern "C" __global__ void relax(float* x, long long count, int passes) {
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float value = x[i];
        for (int pass = 0; pass < passes; ++pass) value = fmaf(value, 0.99951171875f, 0.00048828125f);
        x[i] = value + 1;
    }
}
"""
BLOCK = 256
kernel = cupy.RawKernel(SOURCE, "relax")


def relax(x, passes):
    """Enqueue the kernel on the current stream: each element x becomes ``2 + (x - 1) * (1 - 2 ** -11) ** passes``."""
    grid = min(1 << 16, -(-x.size // BLOCK))
    kernel((grid,), (BLOCK,), (x, np.int64(x.size), np.int32(passes)))


def passes_like_a_copy(block, turns=5):
    """Return how many passes over a block in pinned memory take as long as a copy of it to the device."""
    x = cupy.zeros(block.size, "f4")
    stream = cupy.cuda.Stream(non_blocking=True)
    trial = 512

    def copy():
        runtime.memcpyAsync(x.data.ptr, block.ctypes.data, block.nbytes, TO_DEVICE, stream.ptr)

    def least_ms(enqueue):
        found = []
        for _ in range(turns + 1):  # the first one compiles the kernel
            with stream:
                began, ended = cupy.cuda.Event(), cupy.cuda.Event()
                began.record(stream)
                enqueue()
                ended.record(stream)
            ended.synchronize()
            found.append(cupy.cuda.get_elapsed_time(began, ended))
        return min(found)

    copy_ms = least_ms(copy)
    none_ms, trial_ms = (least_ms(lambda passes=passes: relax(x, passes)) for passes in (0, trial))
    return max(1, round((copy_ms - none_ms) / max(trial_ms - none_ms, 1e-6) * trial))


class Columns:
    """Memory on the device for all blocks, and a stream for each."""

    def __init__(self, blocks):
        self.pairs = [(block, cupy.empty(block.size, "f4")) for block in blocks]
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in blocks]
        cupy.cuda.Device().synchronize()

    def __call__(self, passes):
        """Copy each block to the device, compute, copy it back; return the seconds it took."""
        began_s = time.perf_counter()
        for (block, x), stream in zip(self.pairs, self.streams, strict=True):
            runtime.memcpyAsync(x.data.ptr, block.ctypes.data, block.nbytes, TO_DEVICE, stream.ptr)
            with stream:
                relax(x, passes)
            runtime.memcpyAsync(block.ctypes.data, x.data.ptr, block.nbytes, TO_HOST, stream.ptr)
        for stream in self.streams:
            stream.synchronize()
        return time.perf_counter() - began_s
