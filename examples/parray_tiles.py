"""A field of four times the memory of its buffers on a device, scaled there by tiles of whole rows.

A tile is a type: some rows of the field's. Each is copied into one of three buffers, scaled, and copied out, by tasks
that depend on the buffer, so that one tile comes in while another is computed and a third goes out. In PARRAY:

    $for tile of rows {
        $copy FIELD_TILE(field) to BUFFER(b)        // MIC's itile and otile, with signals by hand
        kernel<<<...>>>(b);
        $copy BUFFER(b) to FIELD_TILE(field)
    }

Here the three are tasks, and ``depend`` is the signal.

Run it: ``python examples/parray_tiles.py``.
"""

from functools import cache
from itertools import cycle

import numpy as np

import offload as omp
from offload import inout
from offload.parray import ArrayType, copy, tiles

ROWS, COLUMNS = 384, 512
N_BUFFERS, N_TILES = 3, 12


def scale(buffer, factor):
    """Multiply all of a buffer, on its device."""
    buffer *= factor


def process(field, body, *args, n_tiles=N_TILES, n_buffers=N_BUFFERS, result=None):
    """Take a field through a device by tiles of whole rows; ``body`` is called there with a buffer and ``args``."""
    result = field if result is None else result
    F, shaped = ArrayType(field.shape), cache(ArrayType)
    rows = -(-field.shape[0] // n_tiles)
    buffers = [omp.target_alloc(rows * field.shape[1], field.dtype) for _ in range(n_buffers)]
    turns = [[inout(buffer)] for buffer in buffers]  # clauses and regions are made once, and used for every tile
    bodies = [omp.target(nowait=True, depend=turn)(body) for turn in turns]
    parts = tiles(F, (rows, None))  # each is made when its turn comes: the first is on its way by then
    for part, buffer, turn, work in zip(parts, cycle(buffers), cycle(turns), cycle(bodies), strict=False):
        tile = shaped(part.shape)
        copy(part.type, field, to=(tile, buffer), nowait=True, depend=turn, name="copy in")
        work(buffer, *args)
        copy(tile, buffer, to=(part.type, result), nowait=True, depend=turn, name="copy out")
    omp.taskwait()
    for buffer in buffers:
        omp.target_free(buffer)
    return len(range(0, field.shape[0], rows)), sum(buffer.nbytes for buffer in buffers)


def main():
    field = omp.empty_pinned((ROWS, COLUMNS), "f8")
    field[...] = np.random.default_rng(1).random((ROWS, COLUMNS))
    expected = field * 3.0
    n_parts, nbytes = process(field, scale, 3.0)
    assert (field == expected).all()
    assert 4 * nbytes <= field.nbytes
    print(f"{field.nbytes >> 10} KiB in {n_parts} tiles through {nbytes >> 10} KiB of buffers: scaled")


if __name__ == "__main__":
    main()
