"""Single steps on elements of arrays: what ``omp.atomic`` offers.

In a loop under `offload.target_loop` and its like these are names of the language of loops, and become atomic
instructions of the device. Called from Python they act on host arrays: each is one step for all threads that call them.
They exclude each other by one lock for the process, since a program that cares about their speed writes a loop.
"""

from __future__ import annotations

import builtins
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["add", "and_", "cas", "exchange", "max", "min", "or_", "sub", "xor"]

_lock = threading.RLock()  # reentrant: a finalizer may come inside of a step


def add(a: Any, index: Any, value: Any) -> Any:
    """Add to an element in one step, and return what it was.

    Parameters
    ----------
    a : array
        A host array, any shape; of a dtype that loops know.
    index : int or tuple of int
        One for each dimension; negative ones count from the end.
    value : number
        What is added; the sum is converted to the dtype of ``a`` as C does.

    Returns
    -------
    numpy.generic
        The element before, of the dtype of ``a``.

    Raises
    ------
    ClauseError
        ``a`` is no host array, or the index is not that of one element.
    IndexError
        The element is outside of the array.

    Notes
    -----
    *Blocks* for the time of other such steps. OpenMP 5.2, 15.8.4 "atomic Construct", with ``capture``. In a loop the
    step excludes the atomic steps of other iterations of that loop; one from Python does not exclude those.
    """
    return _step(a, index, lambda old: np.add(old, value))


def sub(a: Any, index: Any, value: Any) -> Any:
    """Subtract from an element in one step, and return what it was; otherwise as `add`."""
    return _step(a, index, lambda old: np.subtract(old, value))


def min(a: Any, index: Any, value: Any) -> Any:  # noqa: A001  # its name in the language of loops
    """Make an element the less of itself and ``value``, as Python's `min`; return what it was; else as `add`."""
    return _step(a, index, lambda old: builtins.min(old, value))


def max(a: Any, index: Any, value: Any) -> Any:  # noqa: A001  # the same
    """Make an element the greater of itself and ``value``, as Python's `max`; return what it was; else as `add`."""
    return _step(a, index, lambda old: builtins.max(old, value))


def and_(a: Any, index: Any, value: Any) -> Any:
    """Combine an element with ``value`` by ``&`` in one step, and return what it was; otherwise as `add`."""
    return _step(a, index, lambda old: np.bitwise_and(old, value))


def or_(a: Any, index: Any, value: Any) -> Any:
    """Combine an element with ``value`` by ``|`` in one step, and return what it was; otherwise as `add`."""
    return _step(a, index, lambda old: np.bitwise_or(old, value))


def xor(a: Any, index: Any, value: Any) -> Any:
    """Combine an element with ``value`` by ``^`` in one step, and return what it was; otherwise as `add`."""
    return _step(a, index, lambda old: np.bitwise_xor(old, value))


def exchange(a: Any, index: Any, value: Any) -> Any:
    """Set an element in one step, and return what it was; otherwise as `add`."""
    return _step(a, index, lambda _: value)


def cas(a: Any, index: Any, expected: Any, value: Any) -> Any:
    """Set an element to ``value`` if it equals ``expected``, in one step; return what it was; otherwise as `add`."""
    return _step(a, index, lambda old: value if old == expected else old)


def _step(a: Any, index: Any, new: Callable[[Any], Any]) -> Any:
    """Make an element what ``new`` returns of it while no other step comes in between; return what it was."""
    if not isinstance(a, np.ndarray):
        raise ClauseError(
            f"atomic: {type(a).__name__} {a!r:.60} is not a host array; call it on a NumPy array, or inside a loop "
            "(target_loop) that receives the array as an argument"
        )
    indices = index if isinstance(index, tuple) else (index,)
    if len(indices) != a.ndim or not all(isinstance(one, (int, np.integer)) for one in indices):
        raise ClauseError(
            f"atomic: index {index!r:.60} does not select one element of an array with {a.ndim} dimensions; give one "
            "integer for each dimension"
        )
    element = a[(*indices, ...)]
    with _lock, np.errstate(over="ignore"):  # integers wrap, as in loops
        old = element[()]
        element[...] = new(old)
    return old
