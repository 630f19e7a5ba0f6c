"""Thread arrays of MPI processes; what copies between them is `offload.parray.exchanges`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.errors import ClauseError, LayoutError, UnsupportedError
from offload.parray.dimensions import abridged
from offload.parray.thread_arrays import thread_array

if TYPE_CHECKING:
    from offload.parray.types import ArrayType


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
    found = exchanges.communicator(comm)
    if found is None:
        raise ClauseError(
            f"ranks: comm={comm!r:.60} is no communicator of mpi4py within one group; give one that is not null"
        )
    made = thread_array(tree, found)
    if made.size > found.Get_size():
        raise LayoutError(
            f"ranks: {abridged(str(made))} has {made.size} threads, the communicator {found.Get_size()} ranks; start "
            "more processes, or take fewer"
        )
    return made
