"""Atomic updates of array elements, used as ``omp.atomic``.

In a loop function of `offload.target_loop` and the other loop constructs, these functions become atomic instructions of
the device. Called from Python, they act on host arrays, and no other thread's atomic update comes in between. One lock
of the process excludes all such updates. For speed, write a loop function.

Examples
--------
>>> @omp.target_loop
... def histogram(bins, values):
...     for i in range(values.size):
...         omp.atomic.add(bins, values[i], 1)
>>> bins = np.zeros(3, int)
>>> histogram(bins, np.array([0, 2, 2, 1, 2]))
>>> bins
array([1, 1, 3])
"""

from __future__ import annotations

import builtins
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.errors import ClauseError
from offload.interrupts.forks import in_forked_child

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["add", "and_", "cas", "exchange", "max", "min", "or_", "sub", "xor"]

_lock = threading.RLock()  # reentrant: a finalizer may come inside of a step


def add(a: Any, index: Any, value: Any) -> Any:
    """Add to an element in one step, and return its old value.

    Parameters
    ----------
    a : array
        A host array of any shape, with a dtype that loops support.
    index : int or tuple of int
        One index for each dimension. Negative indices count from the end.
    value : number
        The number to add. The sum is converted to the dtype of ``a`` as in C.

    Returns
    -------
    numpy.generic
        The old element, with the dtype of ``a``.

    Raises
    ------
    ClauseError
        ``a`` is not a host array, or the index does not select one element.
    IndexError
        The element is outside of the array.

    Notes
    -----
    The call blocks during other atomic updates. OpenMP 5.2, 15.8.4 "atomic Construct", with ``capture``. In a loop the
    update excludes the atomic updates of the loop's other iterations. An update from Python does not exclude the
    updates of a loop.

    Examples
    --------
    >>> @omp.target_loop
    ... def histogram(bins, values):
    ...     for i in range(values.size):
    ...         omp.atomic.add(bins, values[i], 1)
    >>> bins = np.zeros(3, int)
    >>> histogram(bins, np.array([0, 2, 2, 1, 2]))
    >>> bins
    array([1, 1, 3])
    """
    return _step(a, index, lambda old: np.add(old, value))


def sub(a: Any, index: Any, value: Any) -> Any:
    """Subtract from an element in one step, and return its old value; otherwise as `add`.

    Examples
    --------
    >>> a = np.array([5, 7])
    >>> int(omp.atomic.sub(a, 1, 2)), a
    (7, array([5, 5]))
    """
    return _step(a, index, lambda old: np.subtract(old, value))


def min(a: Any, index: Any, value: Any) -> Any:  # noqa: A001  # its name in the language of loops
    """Set an element to the minimum of itself and ``value``, and return the old element; otherwise as `add`.

    Examples
    --------
    >>> a = np.array([5, 7])
    >>> int(omp.atomic.min(a, 1, 2)), a
    (7, array([5, 2]))
    """
    return _step(a, index, lambda old: builtins.min(old, value))


def max(a: Any, index: Any, value: Any) -> Any:  # noqa: A001  # the same
    """Set an element to the maximum of itself and ``value``, and return the old element; otherwise as `add`.

    Examples
    --------
    >>> a = np.array([5, 7])
    >>> int(omp.atomic.max(a, 1, 9)), a
    (7, array([5, 9]))
    """
    return _step(a, index, lambda old: builtins.max(old, value))


def and_(a: Any, index: Any, value: Any) -> Any:
    """Combine an element with ``value`` by ``&`` in one step, and return its old value; otherwise as `add`.

    Examples
    --------
    >>> a = np.array([5, 7])
    >>> int(omp.atomic.and_(a, 1, 3)), a
    (7, array([5, 3]))
    """
    return _step(a, index, lambda old: np.bitwise_and(old, value))


def or_(a: Any, index: Any, value: Any) -> Any:
    """Combine an element with ``value`` by ``|`` in one step, and return its old value; otherwise as `add`.

    Examples
    --------
    >>> a = np.array([5, 4])
    >>> int(omp.atomic.or_(a, 1, 3)), a
    (4, array([5, 7]))
    """
    return _step(a, index, lambda old: np.bitwise_or(old, value))


def xor(a: Any, index: Any, value: Any) -> Any:
    """Combine an element with ``value`` by ``^`` in one step, and return its old value; otherwise as `add`.

    Examples
    --------
    >>> a = np.array([5, 7])
    >>> int(omp.atomic.xor(a, 1, 2)), a
    (7, array([5, 5]))
    """
    return _step(a, index, lambda old: np.bitwise_xor(old, value))


def exchange(a: Any, index: Any, value: Any) -> Any:
    """Set an element in one step, and return its old value; otherwise as `add`.

    Examples
    --------
    >>> a = np.array([5, 7])
    >>> int(omp.atomic.exchange(a, 1, 0)), a
    (7, array([5, 0]))
    """
    return _step(a, index, lambda _: value)


def cas(a: Any, index: Any, expected: Any, value: Any) -> Any:
    """Set an element to ``value`` if it equals ``expected``, in one step; return its old value; otherwise as `add`.

    Examples
    --------
    >>> a = np.array([0, 7])
    >>> int(omp.atomic.cas(a, 0, 0, 1)), int(omp.atomic.cas(a, 1, 0, 1)), a
    (0, 7, array([1, 7]))
    """
    return _step(a, index, lambda old: value if old == expected else old)


def _step(a: Any, index: Any, new: Callable[[Any], Any]) -> Any:
    """Replace an element by ``new`` of its value, as one atomic step; return the old value."""
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


@in_forked_child
def _after_fork() -> None:
    global _lock  # noqa: PLW0603  # another thread of the parent may have it
    _lock = threading.RLock()
