"""A long array through a small device, by hand: a ring of buffers, three streams, three events a buffer.

Each chunk is copied to a buffer, a kernel works on it there, and it is copied back, while the next chunk is on its way
in and the one before on its way out. `ring.py` is the same in tasks.
"""

import cupy
import numpy as np
from cupyx import empty_pinned

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

climb = cupy.RawKernel(SOURCE, "climb")


def run(source, result, chunk, passes, n_slots=2):
    """Take ``source`` through the device to ``result``, both pinned, ``chunk`` elements at a time."""
    buffers = [cupy.empty(chunk, source.dtype) for _ in range(n_slots)]
    into, compute, back = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
    arrived, computed, left = ([cupy.cuda.Event(disable_timing=True) for _ in buffers] for _ in range(3))

    for number, low in enumerate(range(0, len(source), chunk)):
        slot = number % n_slots
        piece = source[low : low + chunk]
        buffer = buffers[slot][: len(piece)]

        into.wait_event(left[slot])  # the buffer is free
        buffer.set(piece, stream=into)
        arrived[slot].record(into)

        compute.wait_event(arrived[slot])
        with compute:
            climb((-(-len(piece) // THREADS),), (THREADS,), (buffer, np.int32(len(piece)), np.int32(passes)))
        computed[slot].record(compute)

        back.wait_event(computed[slot])
        buffer.get(stream=back, out=result[low : low + chunk], blocking=False)
        left[slot].record(back)
    back.synchronize()


def main():
    source, result = empty_pinned(10_000, "f8"), empty_pinned(10_000, "f8")
    source[...] = np.linspace(-2, 2, len(source))
    run(source, result, chunk=768, passes=20)
    error = abs(result - np.sqrt(source**2 + 20)).max()
    print(f"largest error {error:.1e}")
    assert error < 1e-12


if __name__ == "__main__":
    main()
