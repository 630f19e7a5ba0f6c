"""A matrix that is kept by rows, by columns, and in cyclic blocks of columns: each by one typed copy from the last.

Element *k* is the matrix's, row by row, in every type. Where it is differs: in which thread's memory, and where there.
Over `threads` a distributed matrix is a list of arrays in this process, on the host or on devices; over `ranks` each
MPI process has its own, and the same copies are collective messages. In PARRAY:

    $parray {mpi[P]} M
    $copy [n][n](full) to [[#M][#R_0]][#R_1](rows)                      // scatter
    $copy [[#M][#R_0]][#R_1](rows) to [#C_0][[#M][#C_1]](columns)       // all-to-all
    $copy [#C_0][[#M][#C_1]](columns) to [#B_0][[#B_1][#M][#B_2]](cyclic)

Run it: ``python examples/parray_redistribute.py``, or ``mpiexec -n 4 python examples/parray_redistribute.py``.
"""

import os

import numpy as np

from offload.parray import ArrayType, copy, plan, ranks, threads

N, BLOCK = 72, 3


def types(n, c, M):
    """Return the types of an n x n matrix: whole, by rows, by columns, and by columns in cyclic blocks of c."""
    P = M.size
    rows, columns = ArrayType((n // P, n)), ArrayType((n, n // P))
    blocks = ArrayType((n, n // P // c, c))
    return (
        ArrayType((n, n)),
        ArrayType(((M, rows[0]), rows[1])),
        ArrayType((columns[0], (M, columns[1]))),
        ArrayType((blocks[0], (blocks[1], M, blocks[2]))),
    )


def redistribute(matrix, n, c, M, new):
    """Scatter a matrix by rows, and turn that into columns and cyclic blocks; return all three and the matrix again.

    ``new`` makes the storage of a distributed matrix.
    """
    whole, rows, columns, cyclic = types(n, c, M)
    found = [new(), new(), new()]
    copy(whole, matrix, to=(rows, found[0]))
    copy(rows, found[0], to=(columns, found[1]))
    copy(columns, found[1], to=(cyclic, found[2]))
    back = None if matrix is None else np.zeros_like(matrix)
    copy(cyclic, found[2], to=(whole, back))
    return found, back


def main():
    n_ranks = int(os.environ.get("PMI_SIZE", os.environ.get("OMPI_COMM_WORLD_SIZE", "1")))
    matrix = np.arange(float(N * N)).reshape(N, N)
    if n_ranks > 1:
        from mpi4py import MPI

        rank = MPI.COMM_WORLD.rank
        given = matrix if rank == 0 else None
        (rows, columns, cyclic), back = redistribute(
            given, N, BLOCK, ranks(n_ranks), lambda: np.zeros(N * N // n_ranks)
        )
    else:
        rank, n_ranks = 1, 4
        M = threads(n_ranks)
        print(plan(*types(N, BLOCK, M)[1:3]))
        found, back = redistribute(matrix, N, BLOCK, M, lambda: [np.zeros(N * N // n_ranks) for _ in range(n_ranks)])
        rows, columns, cyclic = (arrays[rank] for arrays in found)
    share = N // n_ranks
    owned = [j for j in range(N) if j // BLOCK % n_ranks == rank]
    assert (rows.reshape(share, N) == matrix[rank * share : (rank + 1) * share]).all()
    assert (columns.reshape(N, share) == matrix[:, rank * share : (rank + 1) * share]).all()
    assert (cyclic.reshape(N, share) == matrix[:, owned]).all()
    assert back is None or (back == matrix).all()
    print(f"{N} x {N}, number {rank} of {n_ranks}: rows, columns, and columns {owned[:4]}…")


if __name__ == "__main__":
    main()
