"""Sort a file that is larger than the memory of a device, in two passes through a ring of device buffers.

The first pass sorts the file in runs. Regular samples of the runs give splitters, which cut each run into parts. The
second pass gathers part *k* of all runs in a buffer and sorts them: that is bucket *k* of the result. If all values
differ, a bucket is at most twice as long as a run. Each copy and each sort is a task that depends on its buffer. So one
bucket is copied to the device while another is sorted and a third is copied back.

Run it: ``python examples/out_of_core_sort.py``, or with the number of values and of runs: ``… 100000000 40``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.target(nowait=True)
def sort(values):
    values.sort()


def sort_parts(parts, buffer, result):
    """Gather parts of an array in a device buffer, sort them, and copy them to their place in the result."""
    first = 0
    for part in parts:
        last = first + len(part)
        omp.copy(buffer[first:last], part, depend=[out(buffer[first:last])], nowait=True)
        first = last
    values = buffer[:first]
    sort.options(depend=[inout(values)])(values)
    omp.copy(result, values, depend=[in_(values)], nowait=True)


def sort_file(values, runs, n_runs):
    """Sort ``values``; ``runs`` is as long, and holds the sorted runs between the passes."""
    n = -(-len(values) // n_runs)
    cuts = range(0, len(values), n)
    with omp.buffers(3, 2 * n, values.dtype) as ring:
        for k, cut in enumerate(cuts):
            sort_parts([values[cut : cut + n]], ring[k], runs[cut : cut + n])
        omp.taskwait()

        samples = np.sort(np.concatenate([runs[cut : cut + n : -(-n // n_runs)] for cut in cuts]))
        splitters = samples[n_runs // 2 :: n_runs][1:]
        parts = [np.split(runs[cut : cut + n], np.searchsorted(runs[cut : cut + n], splitters)) for cut in cuts]
        first = 0
        for k, bucket in enumerate(zip(*parts, strict=True)):
            last = first + sum(map(len, bucket))
            sort_parts(bucket, ring[k], values[first:last])
            first = last


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
