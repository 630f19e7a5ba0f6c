"""Thread arrays that act: bodies in one task for each thread, and the ranks of MPI (see `offload.parray.exchanges`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.constructs.clauses.maps import check_name
from offload.constructs.groups import taskgroup
from offload.constructs.task import task
from offload.errors import ClauseError, LayoutError, UnsupportedError, UsageError
from offload.parray.dimensions import abridged
from offload.parray.thread_arrays import thread_array
from offload.parray.types import ArrayType
from offload.runtime.keywords import takes_clauses
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.tasks.task import Task


def ranks(tree: object, comm: Any = None) -> ArrayType:
    """Make a thread array of MPI processes: its numbers are ranks of a communicator.

    Parameters
    ----------
    tree : int, tuple, list, dimension or ArrayType
        The tree of the thread array, as in `threads`.
    comm : mpi4py.MPI.Intracomm, optional
        By default `COMM_WORLD`. It must have as many ranks as the array has threads.

    Returns
    -------
    ArrayType
        A type of kind ``"threads"``.

    Raises
    ------
    LayoutError
        The tree is wrong, as in `threads`; or the communicator has fewer ranks.
    ClauseError
        ``comm`` is not a communicator, is null, or connects two groups.
    UnsupportedError
        mpi4py is not installed, so there is no `offload.mpi`.

    Examples
    --------
    >>> P = parray.ranks(1, MPI.COMM_SELF)  # in a program on n ranks: parray.ranks(n)
    >>> P.kind, P.size, P.comm == MPI.COMM_SELF
    ('threads', 1, True)
    """
    try:
        from offload.parray import exchanges
    except ImportError as error:
        raise UnsupportedError(
            f"ranks(…) needs offload.mpi, which cannot be imported here ({error}); pip install 'offload[mpi]'"
        ) from error
    found = exchanges.communicator(comm)  # None: none of mpi4py, null, or between two groups
    if found is None:
        raise ClauseError(f"ranks: comm={comm!r:.60} is not an intracommunicator of mpi4py; pass one that is not null")
    made = thread_array(tree, found)
    if made.size > found.Get_size():
        raise LayoutError(
            f"ranks: {abridged(str(made))} has {made.size} threads, but the communicator has {found.Get_size()} "
            "ranks; start more processes, or use fewer threads"
        )
    return made


@takes_clauses
def for_each(
    P: ArrayType,  # noqa: N803  # as the manual writes it
    body: Callable[..., Any],
    /,
    *args: Any,
    nowait: bool = False,
    name: str | None = None,
) -> Any:
    """Call a body once for each thread of a thread array, each in a task.

    Parameters
    ----------
    P : ArrayType
        A thread array of this process, or a sub-dimension of one.
    body : callable
        Its arguments are the number of the element, 0 to ``P.size - 1``, and ``args``.
    *args
        Further arguments of the body.
    nowait : bool
        True: return at once.
    name : str, optional
        The name of the tasks in graphs and errors; the body's name by default.

    Returns
    -------
    list or None
        The results of the bodies, by number; with ``nowait`` the tasks. Without ``nowait`` it is None if the tasks are
        only recorded.

    Raises
    ------
    LayoutError
        ``P`` is not a thread array.
    UsageError
        ``P`` is an array of ranks, and an SPMD program launches nothing; or the call is in a target body.
    ClauseError
        The body is not callable.

    Notes
    -----
    Without ``nowait``, the call blocks until the bodies, and the tasks that they generate, are complete, as a
    ``taskgroup`` does.

    Examples
    --------
    >>> P = parray.threads(4)
    >>> parray.for_each(P, lambda thread: thread * thread)
    [0, 1, 4, 9]
    """
    team: object = P  # anything that a program passes
    if not isinstance(team, ArrayType) or team.kind != "threads":
        raise LayoutError(f"for_each over {P!r:.60}, which is not a thread array; create one with threads(…)")
    if P.comm is not None:
        raise UsageError(
            f"for_each over {P!r:.60}: the ranks of an SPMD program are already running, so nothing can be launched on "
            "them; call the body yourself, or use threads(…)"
        )
    if not callable(body):
        raise ClauseError(f"for_each: {body!r:.60} is not callable; pass a function that takes the thread number")
    made = task(name=check_name(name))(body)
    if nowait:
        return [made(k, *args) for k in range(P.size)]
    tasks: list[Task] = []
    with taskgroup():
        tasks += [made(k, *args) for k in range(P.size)]
    return None if any(one.state_ is TaskState.RECORDED for one in tasks) else [one.result() for one in tasks]
