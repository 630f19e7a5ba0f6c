"""The methods of a communicator as constructs: `offload.mpi.constructs.call` of each."""

from __future__ import annotations

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
        return generate(Operation(getattr(communicator(method, comm), method), args, kwargs), depend, name, priority)

    parameters = ", ".join(METHODS[method].parameters)
    construct.__name__ = construct.__qualname__ = method.lower()
    construct.__doc__ = f"""Call ``comm.{method}({parameters})`` in a task, as `call` does.

    Parameters
    ----------
    *args, **kwargs
        As of mpi4py's method. Buffers are arrays, or lists of an array, counts and a datatype.
    comm : mpi4py.MPI.Comm
        By default `MPI.COMM_WORLD`.
    depend, name, priority
        As of `call`.
    """
    return for_finalizers(construct)


isend = _construct("Isend")
issend = _construct("Issend")
irecv = _construct("Irecv")
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
