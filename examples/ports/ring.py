"""A long array through a small device: a ring of buffers, and tasks that say what they read and write.

The port of `ring_cupy.py`. Its streams and events are gone: a copy to a buffer writes it (``out``), the kernel changes
it (``inout``), the copy back reads it (``in_``), and from that follows what has to wait for what; also that a buffer is
free when what was in it has left. The kernel is CuPy's, with a portable twin for devices without CUDA.

Run it: ``python examples/ports/ring.py``.
"""

import functools

import numpy as np

import offload as omp
from offload import in_, inout, out

SOURCE = r"""
extern "C" __global__ void climb(double* x, int n, int passes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double value = x[i];
    for (int pass = 0; pass < passes; pass++) value = sqrt(value * value + 1);
    x[i] = value;
}
"""
THREADS = 256


@functools.cache
def raw_kernel():
    import cupy

    return cupy.RawKernel(SOURCE, "climb")


@omp.target(nowait=True)
def climb(x, passes):
    if omp.device(omp.get_device_num()).kind == "cuda":
        raw_kernel()((-(-x.size // THREADS),), (THREADS,), (x, np.int32(x.size), np.int32(passes)))
    else:
        for _ in range(passes):
            x[...] = np.sqrt(x * x + 1)


def run(source, result, chunk, passes, n_slots=2):
    """Take ``source`` through the device to ``result``, ``chunk`` elements at a time."""
    with omp.buffers(n_slots, chunk, source.dtype) as ring:
        fills = [[out(buffer)] for buffer in ring]  # clauses are made once, and used at each turn
        climbs = [climb.options(depend=[inout(buffer)]) for buffer in ring]
        drains = [[in_(buffer)] for buffer in ring]

        for number, low in enumerate(range(0, len(source), chunk)):
            slot = number % n_slots
            piece = source[low : low + chunk]
            buffer = ring[slot][: len(piece)]

            omp.copy(buffer, piece, depend=fills[slot], nowait=True)
            climbs[slot](buffer, passes)
            omp.copy(result[low : low + chunk], buffer, depend=drains[slot], nowait=True)


def main():
    source, result = omp.empty_pinned(10_000), omp.empty_pinned(10_000)
    source[...] = np.linspace(-2, 2, len(source))
    run(source, result, chunk=768, passes=20)
    error = abs(result - np.sqrt(source**2 + 20)).max()
    print(f"largest error {error:.1e}")
    assert error < 1e-12


if __name__ == "__main__":
    main()
