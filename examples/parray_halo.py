"""Jacobi's iteration on blocks of rows over devices, whose halos are exchanged by two typed copies.

A block has one row more above and below, which hold the neighbours' edges. The blocks are a list of arrays, block *k*
on device *k* modulo their number; the thread array stands for the list. One copy takes the first row of each block to
the one before it, another the last row to the one after. In PARRAY, whose processes would run this in MPI:

    $copy [P-1#disp(1)#M][1#disp(1)#D_0][#D_1](u) to [P-1#M][1#disp(r+1)#D_0][#D_1](u)
    $copy [P-1#M][1#disp(r)#D_0][#D_1](u) to [P-1#disp(1)#M][1#D_0][#D_1](u)

Run it: ``python examples/parray_halo.py``, or with ``OFFLOAD_DEVICES=sim:4``.
"""

import numpy as np

import offload as omp
from offload.parray import ArrayType, copy, dim, disp, for_each, threads

N_BLOCKS, ROWS, COLUMNS, SWEEPS = 4, 16, 60, 30


def exchanges(n_blocks, rows, columns):
    """Return the pairs of types of the two copies."""
    M, D = threads(n_blocks), ArrayType((rows + 2, columns))
    before, after = dim(n_blocks - 1, M), dim(n_blocks - 1, disp(1), M)
    to_before = ArrayType((after, dim(1, disp(1), D[0]), D[1])), ArrayType((before, dim(1, disp(rows + 1), D[0]), D[1]))
    to_after = ArrayType((before, dim(1, disp(rows), D[0]), D[1])), ArrayType((after, dim(1, D[0]), D[1]))
    return M, (to_before, to_after)


def relax(u, v):
    """Compute the inner points of a block from four neighbours each, on the block's device."""
    v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4


def on_devices(blocks):
    """Return copies of blocks, each on a device of its own if there are as many."""
    found = [omp.target_alloc(block.shape, "f8", k % omp.get_num_devices()) for k, block in enumerate(blocks)]
    for array, block in zip(found, blocks, strict=True):
        omp.target_memcpy(array, block)
    return found


def iterate(plate, n_blocks, sweeps):
    """Return the plate after that many sweeps; its border stays as it is."""
    rows = (len(plate) - 2) // n_blocks
    blocks = [plate[k * rows : (k + 1) * rows + 2] for k in range(n_blocks)]
    M, pairs = exchanges(n_blocks, rows, plate.shape[1])
    u, v = on_devices(blocks), on_devices(blocks)
    for _ in range(sweeps):
        for_each(M, lambda k, u=u, v=v: omp.target(device=k % omp.get_num_devices())(relax)(u[k], v[k]))
        for source, target in pairs:
            copy(source, v, to=(target, v))
        u, v = v, u
    result = plate.copy()
    for k, block in enumerate(u):
        copy(ArrayType(block.shape), block, to=(ArrayType(block.shape), result[k * rows : (k + 1) * rows + 2]))
    for block in (*u, *v):
        omp.target_free(block)
    return result


def main():
    plate = np.random.default_rng(1).random((N_BLOCKS * ROWS + 2, COLUMNS))
    result = iterate(plate, N_BLOCKS, SWEEPS)
    u, v = plate.copy(), plate.copy()
    for _ in range(SWEEPS):
        relax(u, v)
        u, v = v, u
    assert (result == u).all()
    print(f"{SWEEPS} sweeps in {N_BLOCKS} blocks on {omp.get_num_devices()} device(s): the same bits as in one")


if __name__ == "__main__":
    main()
