"""The methods of a communicator as constructs: `offload.mpi.constructs.call` of each."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Any

from offload.mpi.arguments import communicator
from offload.mpi.constructs import generate
from offload.mpi.methods import METHODS
from offload.mpi.operations import Operation
from offload.runtime.current import for_finalizers

if TYPE_CHECKING:
    from collections.abc import Callable

    from mpi4py import MPI

    from offload.tasks.task import Task


# They run in one process, which sends to itself, so that they can be tested without a launcher.
_EXAMPLES = {
    "Isend": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> send, receive = mpi.isend(x, dest=0, tag=5), mpi.irecv(y, source=0, tag=5)
>>> omp.taskwait()
>>> y
array([0., 1., 2.])
""",
    "Issend": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> send, receive = mpi.issend(x, dest=0, tag=5), mpi.irecv(y, source=0, tag=5)
>>> omp.taskwait()  # the send is complete when the receive has begun
>>> y
array([0., 1., 2.])
""",
    "Irecv": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> receive, send = mpi.irecv(y, source=0, tag=5), mpi.isend(x, dest=0, tag=5)
>>> receive.result().Get_count(MPI.DOUBLE)
3
""",
    "Ibarrier": """
>>> mpi.ibarrier().result()
""",
    "Ibcast": """
>>> x = np.arange(3.0)
>>> mpi.ibcast(x, root=0).result()
""",
    "Igather": """
>>> x, y = np.arange(3.0), np.zeros((MPI.COMM_WORLD.size, 3))
>>> mpi.igather(x, y, root=0).result()
>>> y[0]
array([0., 1., 2.])
""",
    "Igatherv": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> mpi.igatherv(x, [y, [3], MPI.DOUBLE], root=0).result()  # three elements from rank 0
>>> y
array([0., 1., 2.])
""",
    "Iscatter": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> mpi.iscatter(x, y, root=0).result()
>>> y
array([0., 1., 2.])
""",
    "Iscatterv": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> mpi.iscatterv([x, [3], MPI.DOUBLE], y, root=0).result()  # three elements to rank 0
>>> y
array([0., 1., 2.])
""",
    "Iallgather": """
>>> x, y = np.arange(3.0), np.zeros((MPI.COMM_WORLD.size, 3))
>>> mpi.iallgather(x, y).result()
>>> y[0]
array([0., 1., 2.])
""",
    "Iallgatherv": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> mpi.iallgatherv(x, [y, [3], MPI.DOUBLE]).result()  # three elements from rank 0
>>> y
array([0., 1., 2.])
""",
    "Ialltoall": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> mpi.ialltoall(x, y).result()
>>> y
array([0., 1., 2.])
""",
    "Ialltoallv": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> mpi.ialltoallv([x, [3], MPI.DOUBLE], [y, [3], MPI.DOUBLE]).result()
>>> y
array([0., 1., 2.])
""",
    "Ialltoallw": """
>>> x, y = np.arange(3.0), np.zeros(3)
>>> block = ([3], [0]), [MPI.DOUBLE]  # counts and byte offsets, and a datatype, for each rank
>>> mpi.ialltoallw([x, *block], [y, *block]).result()
>>> y
array([0., 1., 2.])
""",
    "Ireduce": """
>>> x, total = np.ones(3), np.zeros(3)
>>> mpi.ireduce(x, total, op=MPI.SUM, root=0).result()
>>> total
array([1., 1., 1.])
""",
    "Iallreduce": """
>>> x, total = np.ones(3), np.zeros(3)
>>> mpi.iallreduce(x, total, op=MPI.SUM).result()
>>> total
array([1., 1., 1.])
""",
    "Ireduce_scatter": """
>>> x, total = np.ones(3), np.zeros(3)
>>> mpi.ireduce_scatter(x, total, recvcounts=[3]).result()  # rank 0 gets three elements
>>> total
array([1., 1., 1.])
""",
    "Ireduce_scatter_block": """
>>> x, total = np.ones(3), np.zeros(3)
>>> mpi.ireduce_scatter_block(x, total).result()
>>> total
array([1., 1., 1.])
""",
}
"""The examples of the docstrings, for a program of one process."""


def _construct(method: str) -> Callable[..., Task]:
    """Return the construct that calls a method of a communicator."""

    def construct(
        *args: Any,
        comm: MPI.Comm | None = None,
        depend: Any = None,
        name: str | None = None,
        priority: int = 0,
        **kwargs: Any,
    ) -> Task:
        # The method is looked up at each call: a program may have its own kind of communicator.
        return generate(Operation(getattr(communicator(method, comm), method), args, kwargs), depend, name, priority)

    parameters = ", ".join(METHODS[method].parameters)
    construct.__name__ = construct.__qualname__ = method.lower()
    construct.__doc__ = f"""Call ``comm.{method}({parameters})`` in a task, as `call` does.

    Parameters
    ----------
    *args, **kwargs
        The arguments of mpi4py's method. Buffers are arrays, or lists of an array, counts and a datatype.
    comm : mpi4py.MPI.Comm
        By default `MPI.COMM_WORLD`.
    depend, name, priority
        The parameters of `call`.

    Returns
    -------
    Task
        The task of the call. Errors and notes as for `call`.

    Examples
    --------
{indent(_EXAMPLES[method].strip(), "    ")}
    """
    return for_finalizers(construct)


# Point to point.
isend = _construct("Isend")
issend = _construct("Issend")
irecv = _construct("Irecv")
# Collective: every rank calls them in the same order.
ibarrier = _construct("Ibarrier")
ibcast = _construct("Ibcast")
igather = _construct("Igather")
igatherv = _construct("Igatherv")
iscatter = _construct("Iscatter")
iscatterv = _construct("Iscatterv")
iallgather = _construct("Iallgather")
iallgatherv = _construct("Iallgatherv")
ialltoall = _construct("Ialltoall")
ialltoallv = _construct("Ialltoallv")
ialltoallw = _construct("Ialltoallw")
ireduce = _construct("Ireduce")
iallreduce = _construct("Iallreduce")
ireduce_scatter = _construct("Ireduce_scatter")
ireduce_scatter_block = _construct("Ireduce_scatter_block")
