"""A matrix that is taken through the device in blocks of columns, with OpenACC's directives as strings.

The program computes the same as ``acc_columns.py``, with the same work on the same queues. Its directives are the lines
of the Fortran program:

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

Run it: ``python examples/pragma_acc_columns.py``.
"""

import numpy as np
from numpy.typing import NDArray

from offload.acc import async_sync
from offload.pragma import acc, directives

ROWS, COLUMNS = 600, 500
N_BLOCKS = 7


@directives
def process(matrix: NDArray[np.float64], n_blocks: int, *, asynchronous: bool) -> None:
    """Evaluate a polynomial in blocks of columns: one queue a block, or one block after the other."""
    columns = matrix.shape[1]
    with acc("data create(matrix)"):
        for number in range(n_blocks):
            block = matrix[:, columns * number // n_blocks : columns * (number + 1) // n_blocks]
            queue = number if asynchronous else async_sync  # noqa: F841  # the strings use it
            acc("update device(block) async(queue)")
            with acc("parallel present(block) async(queue)"):
                block[...] = 1 + block * (1 + block * (1 / 2 + block / 6))
            acc("update self(block) async(queue)")
        acc("wait")


def main() -> None:
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
