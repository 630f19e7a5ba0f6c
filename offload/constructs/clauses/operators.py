"""Operators of reductions: the built-in ones as a table, and those that `declare_reduction` declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.errors import ClauseError
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from collections.abc import Callable


class Operator(NamedTuple):
    """The operator of a reduction."""

    name: str  # in the clauses
    # returns the combination of two arrays, or None if it has updated the first in place
    combine: Callable[[Any, Any], Any]
    initialize: Callable[[Any], Any]  # sets a new private array, all zeros, to the operator's identity
    kinds: str = ""  # of dtypes that it has a meaning for, as in ``numpy.dtype.kind``; empty: any


def _in_place(ufunc: np.ufunc) -> Callable[[Any, Any], None]:
    """Return a function that combines by a ufunc; its result has the dtype of the list item, a truth value's too."""

    def combine(result: Any, private: Any) -> None:
        ufunc(result, private, out=result, casting="unsafe")

    return combine


def _filled_with(value: Any) -> Callable[[Any], None]:
    return lambda private: private.__setitem__(..., value)


def _largest(private: Any) -> None:
    """Fill an array with the identity of ``min``."""
    match private.dtype.kind:
        case "f":
            private[...] = np.inf
        case "b":
            private[...] = True
        case _:
            private[...] = np.iinfo(private.dtype).max


def _smallest(private: Any) -> None:
    """Fill an array with the identity of ``max``."""
    match private.dtype.kind:
        case "f":
            private[...] = -np.inf
        case "b":
            private[...] = False
        case _:
            private[...] = np.iinfo(private.dtype).min


# Kinds of dtypes: complex numbers have no order, and only integers and truth values have bits.
_NUMBERS, _ORDERED, _BITS = "biufc", "biuf", "biu"

_BUILT_IN = {
    operator.name: operator
    for operator in (
        Operator("+", _in_place(np.add), _filled_with(0), _NUMBERS),
        Operator("*", _in_place(np.multiply), _filled_with(1), _NUMBERS),
        Operator("min", _in_place(np.minimum), _largest, _ORDERED),
        Operator("max", _in_place(np.maximum), _smallest, _ORDERED),
        Operator("&", _in_place(np.bitwise_and), lambda private: np.invert(private, out=private), _BITS),
        Operator("|", _in_place(np.bitwise_or), _filled_with(0), _BITS),
        Operator("^", _in_place(np.bitwise_xor), _filled_with(0), _BITS),
        Operator("and", _in_place(np.logical_and), _filled_with(1), _NUMBERS),
        Operator("or", _in_place(np.logical_or), _filled_with(0), _NUMBERS),
    )
}

_declared: dict[str, Operator] = {}  # What `declare_reduction` declared: for the process, as mappers are


@takes_clauses
def declare_reduction(name: str, combiner: Callable[[Any, Any], Any], initializer: Any = None) -> None:
    """Declare an operator, by whose name reduction clauses then know it.

    Parameters
    ----------
    name : str
        An identifier, but not a built-in operator (``+ * min max & | ^ and or``). If the name is already declared,
        later constructs use the new operator.
    combiner : callable
        ``combiner(a, b)`` returns the combination of two arrays of the list item's shape and dtype, or updates ``a`` in
        place and returns None. You can pass a NumPy ufunc. The combiner must be associative and commutative, because
        the order of combining is not fixed.
    initializer : callable or value, optional
        The operator's identity. Pass a value that fills the private arrays, or a function. The function gets a private
        array of zeros; it fills the array, or returns a value for all elements. None: zeros.

    Raises
    ------
    ClauseError
        The name is a built-in operator or not an identifier, or the combiner is not callable.

    Notes
    -----
    The call never blocks. The declaration holds for the process. OpenMP 5.2, 5.5.11 "declare reduction Directive".

    Examples
    --------
    >>> omp.declare_reduction("hypot", np.hypot)
    >>> norm = np.zeros(())
    >>> def add(part, norm):
    ...     for value in part:
    ...         norm[...] = np.hypot(norm, value)
    >>> omp.taskloop([3.0, 4.0], add, reduction={"hypot": [norm]})
    >>> float(norm)
    5.0
    """
    _check_own_name(name)
    if not callable(combiner):
        raise ClauseError(
            f"declare_reduction {name!r}: the combiner is {type(combiner).__name__} {combiner!r:.60}; "
            "give a function of two arrays that returns their combination"
        )
    initialize = _leave if initializer is None else initializer if callable(initializer) else _filled_with(initializer)
    _declared[name] = Operator(name, combiner, initialize)


def _check_own_name(name: Any) -> None:
    what = None
    if not isinstance(name, str) or not name.isidentifier():
        what = "is not an identifier"
    if name in tuple(_BUILT_IN):
        what = "is built in"
    if what is not None:
        raise ClauseError(f"declare_reduction: {name!r:.40} {what}; choose a name of your own, such as 'closest'")


def _leave(_private: Any) -> None:
    """Leave an array as it is: all zeros."""


def find_operator(clause: str, name: Any) -> Operator:
    """Return the operator of this name; raise `ClauseError` if there is none."""
    found = (_BUILT_IN.get(name) or _declared.get(name)) if isinstance(name, str) else None
    if found is None:
        raise ClauseError(
            f"{clause}: there is no operator {name!r:.40}; use {', '.join([*_BUILT_IN, *_declared])}, "
            "or a name given to declare_reduction"
        )
    return found
