"""A matrix that is taken through the device in blocks of columns, each block on a queue of its own.

While one block is computed, the next is on its way to the device and the one before on its way back. In OpenACC, in
Fortran, where a block of columns is contiguous:

    !$acc data create(matrix)
    do block = 0, n_blocks - 1
        first = columns * block / n_blocks + 1
        last = columns * (block + 1) / n_blocks

        !$acc update device(matrix(:, first:last)) async(block)

        !$acc parallel loop collapse(2) present(matrix) async(block)
        do j = first, last
            do i = 1, rows
                matrix(i, j) = 1 + matrix(i, j) * (1 + matrix(i, j) * (1.0 / 2 + matrix(i, j) / 6))
            end do
        end do

        !$acc update self(matrix(:, first:last)) async(block)
    end do
    !$acc wait
    !$acc end data

Below, the matrix is in Fortran's order too, and a block of columns is a view of it. The order matters for speed
only: in C's order the updates would copy strided sections.

Run it: ``python examples/acc_columns.py``.
"""

import numpy as np

from offload import acc

ROWS, COLUMNS = 600, 500
N_BLOCKS = 7


@acc.parallel(present=["block"])
def polynomial(block):
    block[...] = 1 + block * (1 + block * (1 / 2 + block / 6))


def process(matrix, n_blocks, *, asynchronous, step=polynomial):
    """Apply ``step``, a compute construct, to blocks of columns: one queue a block, or one block after the other."""
    columns = matrix.shape[1]
    with acc.data(create=[matrix]):
        for number in range(n_blocks):
            block = matrix[:, columns * number // n_blocks : columns * (number + 1) // n_blocks]
            queue = number if asynchronous else acc.async_sync
            acc.update(device=[block], async_=queue)
            step.options(async_=queue)(block)
            acc.update(self_=[block], async_=queue)
        acc.wait()


def main():
    rng = np.random.default_rng(1)
    start = np.asfortranarray(rng.uniform(-1, 1, (ROWS, COLUMNS)))
    expected = 1 + start + start**2 / 2 + start**3 / 6

    errors = []
    for asynchronous in (False, True):
        matrix = start.copy(order="F")
        process(matrix, N_BLOCKS, asynchronous=asynchronous)
        errors.append(abs(matrix - expected).max())
    print(f"{N_BLOCKS} blocks of columns, largest error {errors[0]:.1e} one by one, {errors[1]:.1e} on queues")
    assert max(errors) < 1e-12


if __name__ == "__main__":
    main()
