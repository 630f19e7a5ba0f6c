"""MPI: calls that are tasks, complete with their requests (needs mpi4py: ``pip install 'offload[mpi]'``).

MPI starts the processes and moves the bytes. Communicators, datatypes and windows are mpi4py's. Here, calls become
tasks. They begin when their dependences allow, and are complete when their requests are.

The examples assume ``from mpi4py import MPI`` and run in one process, which sends to itself.

Examples
--------
>>> x, y = np.arange(3.0), np.zeros(3)
>>> receive = mpi.irecv(y, 0)  # these two depend on x and y only
>>> send = mpi.isend(x, 0)
>>> total = omp.task(depend=[omp.in_("y")])(lambda y: y.sum())(y)  # runs after the receive
>>> float(total.result())
3.0
"""

from __future__ import annotations

try:
    import mpi4py as _mpi4py  # noqa: F401  # without it nothing here works
except ImportError as _missing:
    raise ImportError("offload.mpi needs mpi4py: pip install 'offload[mpi]'") from _missing

from offload.mpi.constructs import call, detach, recv_object, send_object, start
from offload.mpi.messages import (
    iallgather,
    iallgatherv,
    iallreduce,
    ialltoall,
    ialltoallv,
    ialltoallw,
    ibarrier,
    ibcast,
    igather,
    igatherv,
    irecv,
    ireduce,
    ireduce_scatter,
    ireduce_scatter_block,
    iscatter,
    iscatterv,
    isend,
    issend,
)
from offload.mpi.staging import is_gpu_aware

__all__ = [
    "call",
    "detach",
    "iallgather",
    "iallgatherv",
    "iallreduce",
    "ialltoall",
    "ialltoallv",
    "ialltoallw",
    "ibarrier",
    "ibcast",
    "igather",
    "igatherv",
    "irecv",
    "ireduce",
    "ireduce_scatter",
    "ireduce_scatter_block",
    "is_gpu_aware",
    "iscatter",
    "iscatterv",
    "isend",
    "issend",
    "recv_object",
    "send_object",
    "start",
]
