"""The references of a dimension: functions from an index to an index.

A reference has a length (`Reference.length`), takes an index or an integer array (`Reference.reach`), and takes a whole
set of indices that is known as digits (`Reference.through`, None if digits do not decide). An array type is a reference
too. An index that leaves raises `Leaves`; the type that has the dimension makes a `LayoutError` of it, because it knows
the place in the tree.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from offload.errors import LayoutError
from offload.parray import digits, elements, seams
from offload.parray.composition import composed
from offload.parray.digits import Digits, Groups, extremes

MEMORY: Final = 1
THREADS: Final = 2  # What an offset counts, as bits: elements of memory, threads, or both parts of a place
BOTH: Final = MEMORY | THREADS

# From here on numbers are not computed with arrays of 64 bits: 2**20 of them, as a type may have, could overflow.
WIDE: Final = 1 << 42

Index: TypeAlias = Any  # An integer, or an array of integers


class Leaves(Exception):  # noqa: N818  # never seen by users
    """An index leaves a type or a table."""

    def __init__(self, index: int, reference: Reference) -> None:
        super().__init__(index, reference)
        self.index = index  # one of the indices that leave
        self.reference = reference  # the one that it would reach
        # the dimension whose index it is, from the asking type; added on the way up, innermost first
        self.path: list[int] = []


class Reference(ABC):
    """An object to which a dimension may refer."""

    __slots__ = ()

    counts: int = 0  # `MEMORY`, `THREADS` or both of a type; 0 of what is none

    levels: int = 0  # its depth, with all that it refers to
    n_dimensions: int = 0  # with all that it refers to
    teams: tuple[Reference, ...] = ()  # the thread array whose numbers it gives
    is_wide: bool = False  # whether numbers are too large to compute with in 64 bits
    has_function: bool = False  # Whether an offset asks a function of the program's

    def __repr__(self) -> str:
        return str(self)

    def as_reference(self) -> str:
        """Return the text of the reference, the part after ``#``."""
        return str(self)

    @property
    @abstractmethod
    def length(self) -> int | None:
        """The size of a pure reference that begins with this; None where it has none."""

    @abstractmethod
    def reach(self, index: Index) -> Index:
        """Return where an index, or each of an array, is taken to."""

    @abstractmethod
    def through(self, base: int, given: Digits) -> tuple[int, Groups] | None:
        """Return the base and, for each digit, the digits that it becomes; None where digits do not decide."""


@dataclass(frozen=True, slots=True, repr=False)
class Displacement(Reference):
    """Takes *i* to *i* + ``by``."""

    by: int

    @property
    def length(self) -> int:
        return 1

    @property
    def is_wide(self) -> bool:  # type: ignore[override]
        return not -WIDE < self.by < WIDE

    def reach(self, index: Index) -> Index:
        return index + self.by

    def through(self, base: int, given: Digits) -> tuple[int, Groups]:
        return base + self.by, [(digit,) for digit in given]

    def __str__(self) -> str:
        return f"disp({self.by})"


@dataclass(frozen=True, slots=True, repr=False)
class Wrap(Reference):
    """Takes *i* to *i* mod ``n``."""

    n: int

    @property
    def length(self) -> int:
        return self.n

    @property
    def is_wide(self) -> bool:  # type: ignore[override]
        return self.n >= WIDE

    def reach(self, index: Index) -> Index:
        return index % self.n

    def through(self, base: int, given: Digits) -> tuple[int, Groups] | None:
        return digits.wrapped(base, given, self.n)

    def __str__(self) -> str:
        return f"wrap({self.n})"


@dataclass(frozen=True, slots=True, repr=False)
class TableReference(Reference):
    """Takes *i* to ``values[i]``."""

    values: tuple[int, ...]
    _found: dict[str, Any] = field(default_factory=dict, init=False, compare=False)  # what is computed once, by name

    @property
    def length(self) -> int:
        return len(self.values)

    @property
    def is_wide(self) -> bool:  # type: ignore[override]
        if "wide" not in self._found:
            self._found["wide"] = bool(self.values) and not -WIDE < min(self.values) <= max(self.values) < WIDE
        return bool(self._found["wide"])

    def reach(self, index: Index) -> Index:
        check_range(index, self, len(self.values))
        if isinstance(index, int):
            return self.values[index]
        return self._array()[index]

    def _array(self) -> Any:
        if "array" not in self._found:
            self._found["array"] = seams.namespace.asarray(self.values, dtype=seams.namespace.int64)
        return self._found["array"]

    def through(self, base: int, given: Digits) -> tuple[int, Groups] | None:
        check_extremes(base, given, self, len(self.values))
        if "nest" not in self._found:
            self._found["nest"] = None if self.is_wide else elements.nest_of(self._array())
        nest = self._found["nest"]
        if nest is None:
            return None
        return composed(nest[0], tuple((count, step, ()) for count, step in nest[1]), base, given)

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.values[:3]))
        return f"func([{shown}{', …' if len(self.values) > 3 else ''}])"


@dataclass(frozen=True, slots=True, repr=False)
class Function(Reference):
    """Takes *i* to ``call(i)``; its result is not known before the call."""

    call: Callable[[Any], Any]  # pure

    @property
    def has_function(self) -> bool:  # type: ignore[override]
        return True

    @property
    def length(self) -> None:
        return None

    def reach(self, index: Index) -> Index:
        found = self.call(index) if isinstance(index, int) else self._called(index)
        if isinstance(index, int):
            try:
                return operator.index(found)
            except TypeError:
                raise LayoutError(
                    f"{self} returned {found!r} for index {index}; an offset must be an integer: round it in the "
                    "function"
                ) from None
        if getattr(getattr(found, "dtype", None), "kind", "") not in {"i", "u"} or found.shape != index.shape:
            raise LayoutError(
                f"{self} returned {describe(found)} for an array of {index.shape} indices; it must return an integer "
                "array of the same shape, element by element"
            )
        return found.astype(seams.namespace.int64)

    def _called(self, index: Any) -> Any:
        """Return the function's results for an array; raise `LayoutError` if it only works for single numbers."""
        try:
            return self.call(index)
        except Exception as error:
            if not self._takes(index):
                raise
            raise LayoutError(
                f"{self} takes a number but not an array of {index.shape} indices ({type(error).__name__}: "
                f"{error!s:.80}); it is called with integer arrays: write it with NumPy's functions, such as np.where "
                "in place of if, or pass np.vectorize(f, otypes=[int])"
            ) from error

    def _takes(self, index: Any) -> bool:
        """Tell whether the function takes the first of some indices as a number."""
        try:
            operator.index(self.call(int(index.ravel()[0])))
        except Exception:  # noqa: BLE001  # the program's own
            return False
        return True

    def through(self, base: int, given: Digits) -> None:
        return None

    def __str__(self) -> str:
        return f"func({getattr(self.call, '__name__', type(self.call).__name__)})"

    def __hash__(self) -> int:
        try:
            return hash(self.call)
        except TypeError:
            return id(self.call)


def describe(found: object) -> str:
    """Describe a function's result in a few words."""
    dtype, shape = getattr(found, "dtype", None), getattr(found, "shape", None)
    return f"an array of {dtype} of shape {shape}" if dtype is not None else f"{type(found).__name__} {found!r}"


def check_range(index: Index, reference: Reference, size: int) -> None:
    """Raise `Leaves` for an index, or one of an array, that is not in 0 … ``size`` - 1."""
    if isinstance(index, int):
        low = high = index
    elif index.size:
        low, high = int(index.min()), int(index.max())
    else:
        return
    if low < 0 or high >= size:
        raise Leaves(low if low < 0 else high, reference)


def check_extremes(base: int, given: Digits, reference: Reference, size: int) -> None:
    """Do the same for all indices that digits give: they attain their extremes."""
    low, high = extremes(base, given)
    if low < 0 or high >= size:
        raise Leaves(low if low < 0 else high, reference)


def integer(value: object, what: str) -> int:
    """Convert any integer to a Python ``int``; `LayoutError` for anything else."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise LayoutError(f"{what} is {value!r}, {type(value).__name__}; it must be an integer") from None


def disp(e: int) -> Displacement:
    """Make the reference that takes *i* to *i* + ``e``.

    Parameters
    ----------
    e : int
        Any integer.

    Raises
    ------
    LayoutError
        ``e`` is not an integer.

    Examples
    --------
    >>> parray.ArrayType(parray.dim(3, parray.disp(10))).offsets()
    array([10, 11, 12])
    """
    return Displacement(integer(e, "the displacement of disp"))


def wrap(n: int) -> Wrap:
    """Make the reference that takes *i* to *i* mod ``n``, which is 0 … ``n - 1`` for negative *i* too.

    Parameters
    ----------
    n : int
        A number from 1.

    Raises
    ------
    LayoutError
        ``n`` is not an integer, or is less than 1.

    Examples
    --------
    >>> parray.ArrayType(parray.dim(5, parray.disp(-1), parray.wrap(5))).offsets()
    array([4, 0, 1, 2, 3])
    """
    length = integer(n, "the length of wrap")
    if length < 1:
        raise LayoutError(f"wrap({length}) has no elements to wrap around; its length must be 1 or more")
    return Wrap(length)


def func(f: Callable[[Any], Any] | Iterable[int]) -> TableReference | Function:
    """Make a reference from a table, or from your own function.

    Parameters
    ----------
    f : sequence of int, or callable
        A table takes *i* to ``f[i]``, and is copied. A function takes *i* to ``f(i)``. It must be pure. It is called
        when an offset is needed: with an ``int`` for an integer index, and otherwise with arrays of integers,
        elementwise. If your function accepts only numbers, pass ``np.vectorize(f, otypes=[int])``.

    Raises
    ------
    LayoutError
        ``f`` is neither of these, or a table contains a value that is not an integer.

    Examples
    --------
    >>> parray.ArrayType(parray.dim(3, parray.func([7, 1, 4]))).offsets()
    array([7, 1, 4])
    >>> parray.ArrayType(parray.dim(4, parray.func(lambda i: i * i))).offsets()
    array([0, 1, 4, 9])
    """
    if callable(f):
        return Function(f)
    given: object = f
    listed: Any = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise LayoutError(f"func({given!r}): {type(given).__name__} is neither a function nor a sequence of integers")
    values = tuple(listed)
    if set(map(type, values)) <= {int}:
        return TableReference(values)
    return TableReference(tuple(integer(value, f"entry {k} of the table of func") for k, value in enumerate(values)))
