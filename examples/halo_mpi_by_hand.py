"""Jacobi's iteration on a plate that is cut among ranks, by hand: persistent requests of mpi4py around the computation.

A step computes the rows at the cut, starts their exchange, computes the interior, and waits for the exchange. Most MPI
libraries move the data only while the program calls them, so here mostly in the wait. `halo_mpi.py` is the same job in
tasks. This program computes with NumPy, and needs no GPU.

Run it: ``mpiexec -n 4 python examples/halo_mpi_by_hand.py``.
"""

import argparse

import numpy as np
from mpi4py import MPI


def relax(around, rows):
    """Compute rows from the block that has one row more above and below."""
    rows[:, 1:-1] = (around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]) / 4


def halo_requests(u, comm):
    """Return the persistent requests that send the outer rows of a part to its neighbours, and receive theirs."""
    above = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
    below = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL
    return [
        comm.Recv_init(u[0], above, 0),
        comm.Recv_init(u[-1], below, 1),
        comm.Send_init(u[1], above, 1),
        comm.Send_init(u[-2], below, 0),
    ]


def iterate(a, b, comm, n_steps):
    """Do some steps, from ``a`` to ``b`` and back; return the array that has the result."""
    arrays = [(a, halo_requests(a, comm)), (b, halo_requests(b, comm))]
    for k in range(n_steps):
        (u, _), (v, requests) = arrays[k % 2], arrays[1 - k % 2]
        relax(u[:3], v[1:2])
        relax(u[-3:], v[-2:-1])
        MPI.Prequest.Startall(requests)
        relax(u[1:-1], v[2:-2])
        MPI.Request.Waitall(requests)
    for _, requests in arrays:
        for request in requests:
            request.Free()
    return arrays[n_steps % 2][0]


def plate(n):
    """Return a plate that is hot at its upper edge and cold elsewhere."""
    u = np.zeros((n + 2, n + 2))
    u[0] = 1.0
    return u


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256, help="points in each direction")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()

    comm = MPI.COMM_WORLD
    n = given.size
    cuts = [n * rank // comm.size for rank in range(comm.size + 1)]
    first, last = cuts[comm.rank], cuts[comm.rank + 1]
    if min(np.diff(cuts)) < 3:
        parser.error(f"--size {n}: each of the {comm.size} ranks needs three rows; give more points, or fewer ranks")
    a = plate(n)[first : last + 2].copy()
    mine = iterate(a, a.copy(), comm, given.steps)

    parts = comm.gather(mine[1:-1], root=0)
    if comm.rank == 0:
        u, v = plate(n), plate(n)
        for _ in range(given.steps):
            v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
            u, v = v, u
        assert (np.concatenate(parts) == u[1:-1]).all()
        print(f"{n} x {n} points, {given.steps} steps on {comm.size} ranks: the same bits as by one")


if __name__ == "__main__":
    main()
