"""The memory of a loop's calls: one record for the calls with equal numbers, found by one key.

Decisions about a call follow from the shapes and strides of its arrays, and from the scalars that decisions may follow
from. These are its `CallKey`. Everything that calls of this key have found out stands in their `CallRecord`.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from offload.arrays.items import SCALARS
from offload.loops.front.layouts import is_layout

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

# The layouts of a call's arrays (shapes and strides in turn), and its scalars, with floats as their bits.
CallKey: TypeAlias = "tuple[tuple[Any, ...], tuple[Any, ...]]"

# Entries of a memo: more than a program has sizes that take turns.
MOST_CALLS: Final = 64

# Facts about calls with equal numbers: more than the chunks of one loop, or verdicts that take turns.
_MOST_FACTS: Final = 256


class Memo(OrderedDict[KeyT, ValueT]):
    """A dictionary that keeps a limited number of entries, those that came last. Threads may share it."""

    def __init__(self, most: int = MOST_CALLS) -> None:
        super().__init__()
        self.latest: ValueT | None = None  # the value that callers compare first, where they set it
        self._most = most  # how many entries it keeps
        self._lock = threading.Lock()  # for `keep`

    def keep(self, key: KeyT, value: ValueT) -> ValueT:
        """Enter a value as the last one, in place of the first ones if there are many; return it."""
        with self._lock:
            self[key] = value
            self.move_to_end(key)
            while len(self) > self._most:
                self.popitem(last=False)
        return value

    def use(self, key: KeyT) -> ValueT | None:
        """Return the value of a key, which is the last one from now on; None if there is none."""
        value = self.get(key)
        if value is not None:
            try:  # noqa: SIM105  # `suppress` makes three calls more
                self.move_to_end(key)
            except KeyError:  # another thread has put one in its place
                pass
        return value


class CallRecord:
    """The facts about calls with equal numbers. Threads change it under the lock of the specialisation."""

    __slots__ = ("apart", "facts", "history", "known", "map_types", "stays")

    def __init__(self) -> None:
        # An `Apart`: whether arrays at given addresses share memory. None until a call has asked.
        self.apart: Any = None
        # Plans, blanks, logged loops and verdicts. A key begins with a word for the kind of fact, except that a `Where`
        # is the key of its `Prepared`. Each call with new contents adds a verdict, so other facts are made again after
        # some hundred such calls.
        self.facts: Memo[Any, Any] = Memo(_MOST_FACTS)
        self.map_types: Any = None  # the map types of arrays in no clause, if arrays share no memory
        # of a speculative loop:
        self.known: Any = None  # a `VerdictBasis`: what its verdicts follow from, if arrays share no memory
        self.history: Any = None  # a `History` of its races
        self.stays = False  # a call has run on the program's own arrays


# -- the name of a call by position -------------------------------------------------------------------
#
# Calls of one name lead to the same, except for addresses, floats and complex numbers.


# The classes of floats and of complex numbers.
FLOATS: Final = frozenset(
    {float, complex, *(kind for kind in SCALARS if isinstance(kind, type) and issubclass(kind, np.inexact))}
)
_BITS: Final = struct.Struct("d").pack


def float_bits(value: Any) -> bytes:
    """Return bytes that tell floats, or complex numbers, apart: 0.0 from -0.0, and NaN from all others."""
    if isinstance(value, complex | np.complexfloating):
        return _BITS(value.real) + _BITS(value.imag)
    return _BITS(value)


def name_of(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the key of a call by position with scalars, array types and device arrays; None for other calls."""
    name: list[Any] = []
    for value in args:
        kind = value.__class__
        name.append(kind)
        if kind not in SCALARS:
            try:
                name += value.dtype, value.shape, value.strides
            except AttributeError:
                if not is_layout(value):
                    return None
                name.append(value)
        elif kind not in FLOATS:
            name.append(value)
    return tuple(name)
