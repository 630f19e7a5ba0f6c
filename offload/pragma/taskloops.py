"""Taskloops over one ``for``: private copies of numbers, and their combination when the construct ends."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any, Final

from offload.errors import ClauseError
from offload.pragma.items import UNBOUND, is_mappable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OPERATORS: Final[Mapping[str, tuple[Any, Callable[[Any, Any], Any]]]] = {
    "+": (0, lambda a, b: a + b),
    "*": (1, lambda a, b: a * b),
    "&": (-1, lambda a, b: a & b),
    "|": (0, lambda a, b: a | b),
    "^": (0, lambda a, b: a ^ b),
    "and": (True, lambda a, b: bool(a and b)),
    "or": (False, lambda a, b: bool(a or b)),
    "min": (math.inf, min),
    "max": (-math.inf, max),
}
"""For each operator the identity, with which a private copy begins, and the combination."""


class NumberedParts(Sequence[Any]):
    """A sequence whose slices know where they begin, so that results can be put in the order of the parts."""

    def __init__(self, whole: Any, begin: int = 0) -> None:
        self.whole = whole
        self.begin = begin

    def __len__(self) -> int:
        return len(self.whole)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return NumberedParts(self.whole[key], self.begin + key.indices(len(self.whole))[0])
        return self.whole[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.whole)


def numbered(iterable: Any) -> NumberedParts:
    """Return the iterable of a loop as a sequence with numbered parts."""
    if isinstance(iterable, Sequence) or hasattr(iterable, "shape"):
        return NumberedParts(iterable)
    try:
        return NumberedParts(list(iterable))
    except TypeError:
        raise ClauseError(
            f"taskloop: {type(iterable).__name__} {iterable!r:.60} cannot be iterated over; write for example range(n)"
        ) from None


class Combination:
    """The numbers that the tasks of a loop reduce."""

    def __init__(self, reduced: Mapping[str, str], every: tuple[str, ...]) -> None:
        self._reduced = reduced  # operators by name, of the numbers
        self._every = every  # all names that the body hands over, arrays too
        self._parts: list[tuple[int, dict[str, Any]]] = []
        self._lock = threading.Lock()

    def leave(self, part: Any, first: tuple[Any, ...], *values: Any) -> None:
        """Take the private copies of a task at its end; it began with the ``first`` values.

        Raise `ClauseError` if the task has bound the name of an array to another object.
        """
        found = dict(zip(self._every, values, strict=True))
        for name, private in zip(self._every, first, strict=True):
            if name not in self._reduced and found[name] is not private:
                raise ClauseError(
                    f"reduction: {name} is an array, but the loop binds the name to another object, so the result "
                    f"would be lost; write `{name} += …` or `{name}[...] = …`"
                )
        with self._lock:
            self._parts.append((getattr(part, "begin", 0), found))

    def combined(self, values: tuple[Any, ...]) -> list[Any]:
        """Return the values of all variables, given those at the end, with the copies in the order of the parts.

        An array, which the construct reduces, gives `UNBOUND`.
        """
        total = {name: value for name, value in zip(self._every, values, strict=True) if name in self._reduced}
        for _, copies in sorted(self._parts, key=lambda one: one[0]):
            for name, operator in self._reduced.items():
                if copies[name] is not UNBOUND:
                    _, combine = OPERATORS[operator]
                    total[name] = combine(total[name], copies[name])
        return [total.get(name, UNBOUND) for name in self._every]


def is_number(name: str, value: Any) -> bool:
    """Tell whether a reduction variable holds a number, not an array.

    Raise `ClauseError` for any other value: it has no identity with which private copies could begin.
    """
    if is_mappable(value):
        return False
    if isinstance(value, Number):
        return True
    raise ClauseError(
        f"taskloop: reduction: {name} holds {type(value).__name__} {value!r:.40}, but a reduction combines numbers and "
        "arrays; use one of these, or shared with a critical"
    )


def identity(operator: str, value: Any) -> Any:
    """Return the value with which a private copy of a number begins: the operator's identity, of the number's type.

    Raise `ClauseError` for an operator that `declare_reduction` declares: those combine arrays.
    """
    if operator not in OPERATORS:
        raise ClauseError(
            f"taskloop: reduction({operator}: …) is declared for arrays, but the variable holds the number "
            f"{value!r:.40}; use an array without dimensions"
        )
    first, _ = OPERATORS[operator]
    if operator in ("min", "max", "and", "or"):
        return first
    return type(value)(first) if type(value) is not bool else first
