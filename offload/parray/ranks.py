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
        As for `threads`.
    comm : mpi4py.MPI.Intracomm, optional
        By default `COMM_WORLD`; it has to have as many ranks as the array has threads.

    Returns
    -------
    ArrayType
        Of kind ``"threads"``.

    Raises
    ------
    LayoutError
        As for `threads`; or the communicator has fewer ranks.
    ClauseError
        ``comm`` is no communicator, a null one, or one between two groups.
    UnsupportedError
        There is no `offload.mpi`, since mpi4py is not installed.
    """
    try:
        from offload.parray import exchanges
    except ImportError as error:
        raise UnsupportedError(
            f"ranks(…) needs offload.mpi, which cannot be imported here ({error}); pip install 'offload[mpi]'"
        ) from error
    found = exchanges.communicator(comm)
    if found is None:
        raise ClauseError(f"ranks: comm={comm!r:.60} is not an intracommunicator of mpi4py; pass one that is not null")
    made = thread_array(tree, found)
    if made.size > found.Get_size():
        raise LayoutError(
            f"ranks: {abridged(str(made))} has {made.size} threads, but the communicator has {found.Get_size()} ranks; "
            "start more processes, or use fewer threads"
        )
    return made
