"""A port that has forgotten a dependence, and what finds it: a dozen seeds.

The original has one stream, and a host callback after each copy appends what has arrived to a file. Callbacks of one
stream come in order. The port has a task for each, which names what it reads and forgets to name the file that it
changes. A plain run is often right, since copies end in the order in which they were enqueued.
``Runtime("sim", seed=n)`` draws by lot what no dependence orders.

Run it: ``python examples/ports/forgotten.py [plain runs]``; it prints how many runs have gone wrong.
"""

import io
import sys

import numpy as np

import offload as omp
from offload import in_, inout, out

CHUNK, CHUNKS = 1000, 4


@omp.target(nowait=True, depend=[inout("x")])
def square(x):
    x *= x


@omp.task
def append(row, file):
    file.write(row.tobytes())


def run(source, file, *, forgets=True):
    """Append the squares of the rows of ``source`` to a file."""
    rows = np.empty_like(source)
    with omp.buffers(len(source), source.shape[1], source.dtype) as buffers:
        for given, row, buffer in zip(source, rows, buffers, strict=True):
            omp.copy(buffer, given, depend=[out(buffer)], nowait=True)
            square(buffer)
            omp.copy(row, buffer, depend=[in_(buffer), out(row)], nowait=True)
            append.options(depend=[in_(row)] if forgets else [in_(row), inout(file)])(row, file)


def is_right(seed=None, *, forgets=True):
    """Tell whether a run in a runtime of its own gives what it has to: a plain one, or one under a seed."""
    source = np.arange(float(CHUNKS * CHUNK)).reshape(CHUNKS, CHUNK)
    file = io.BytesIO()
    with omp.Runtime("sim", seed=seed):
        run(source, file, forgets=forgets)
    return file.getvalue() == (source**2).tobytes()


def main():
    plain = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    n_plain = sum(not is_right() for _ in range(plain))
    n_seeded = sum(not is_right(seed) for seed in range(12))
    print(f"wrong: {n_plain} of {plain} plain runs, {n_seeded} of 12 under a seed")
    assert n_seeded
    assert all(is_right(seed, forgets=False) for seed in range(12))


if __name__ == "__main__":
    main()
