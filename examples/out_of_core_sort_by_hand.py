"""Sort a file that is larger than the memory of a GPU, in two passes, by hand: a ring of buffers, each with a stream.

`out_of_core_sort.py` is the same job in tasks, and explains the passes. A stream is a buffer's own, so a buffer is free
when the stream comes to its next copy. This program needs CuPy and a GPU.
"""

import sys
import tempfile
from pathlib import Path

import cupy as cp
import numpy as np


def sort_parts(parts, buffer, stream, result):
    """Gather parts of an array in a device buffer, sort them, and copy them to their place in the result."""
    first = 0
    with stream:
        for part in parts:
            last = first + len(part)
            buffer[first:last].set(part, stream=stream)
            first = last
        buffer[:first].sort()
        buffer[:first].get(stream=stream, out=result, blocking=False)


def sort_file(values, runs, n_runs):
    """Sort ``values``; ``runs`` is as long, and holds the sorted runs between the passes."""
    n = -(-len(values) // n_runs)
    cuts = range(0, len(values), n)
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    ring = [cp.empty(2 * n, values.dtype) for _ in streams]
    cp.cuda.Device().synchronize()  # the buffers are there for all streams

    for k, cut in enumerate(cuts):
        sort_parts([values[cut : cut + n]], ring[k % 3], streams[k % 3], runs[cut : cut + n])
    for stream in streams:
        stream.synchronize()

    samples = np.sort(np.concatenate([runs[cut : cut + n : -(-n // n_runs)] for cut in cuts]))
    splitters = samples[n_runs // 2 :: n_runs][1:]
    parts = [np.split(runs[cut : cut + n], np.searchsorted(runs[cut : cut + n], splitters)) for cut in cuts]
    first = 0
    for k, bucket in enumerate(zip(*parts, strict=True)):
        last = first + sum(map(len, bucket))
        sort_parts(bucket, ring[k % 3], streams[k % 3], values[first:last])
        first = last
    for stream in streams:
        stream.synchronize()


def main(n=100_000, n_runs=8):
    given = np.random.default_rng(1).permutation(n).astype(float)
    with tempfile.TemporaryDirectory() as folder:
        values, runs = (np.memmap(Path(folder) / name, float, "w+", shape=n) for name in ("values", "runs"))
        values[...] = given
        sort_file(values, runs, n_runs)
        assert (values == np.sort(given)).all()
        del values, runs  # closes the files
    print(f"{n} values in {n_runs} runs: sorted")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
