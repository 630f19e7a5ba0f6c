"""Thread arrays: types whose elements are threads, and whose offsets are their numbers."""

from __future__ import annotations

from offload.errors import LayoutError
from offload.parray.dimensions import Dimension, abridged, dimension_of
from offload.parray.references import BOTH
from offload.parray.types import ArrayType, of_root


def thread_array(tree: object, comm: object = None) -> ArrayType:
    """Make a thread array: of this process, or of the ranks of a communicator.

    Raise `LayoutError` if the tree means nothing, has memory and threads at once, or gives a number not exactly once.
    """
    root = dimension_of(tree)
    found = of_root(root, (), comm, is_team=True)
    if _has_places(root):
        raise LayoutError(
            f"the thread array {abridged(str(found))} refers to a distributed type; its places are not thread numbers"
        )
    found.find_form()
    if not found.size:
        return found
    if found.bounds[0] != (0, found.size - 1) or not found.is_injective:
        low, high = found.bounds[0]
        raise LayoutError(
            f"the numbers of the thread array {abridged(str(found))} are not 0 to {found.size - 1}, each once: "
            + (f"they are {low} to {high}" if (low, high) != (0, found.size - 1) else "some number occurs twice")
            + "; let its dimensions refer to all elements of a type, each once"
        )
    return found


def threads(tree: object) -> ArrayType:
    """Make a thread array of this process: a type whose elements are threads, and whose offsets are their numbers.

    A "thread" is a place with memory of its own: an array in a list, on the host or on any device.

    Parameters
    ----------
    tree : int, tuple, list, dimension or ArrayType
        The tree of an `ArrayType`; all its numbers count as thread numbers.

    Returns
    -------
    ArrayType
        A type of kind ``"threads"``.

    Raises
    ------
    LayoutError
        The tree is wrong, or does not give each of the numbers 0 to size - 1 once.

    Examples
    --------
    >>> P = parray.threads(2)
    >>> D = parray.ArrayType((P, 3))  # six elements, three on each of two threads
    >>> parts = [np.zeros(3, int), np.zeros(3, int)]
    >>> parray.copy(parray.ArrayType(6), np.arange(6), to=(D, parts))
    >>> parts
    [array([0, 1, 2]), array([3, 4, 5])]
    """
    return thread_array(tree)


def _has_places(dimension: Dimension) -> bool:
    return dimension.chain == BOTH or (isinstance(dimension.body, tuple) and any(map(_has_places, dimension.body)))
