"""Memory that is given back: other arrays may get the same addresses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np

from offload.sanitizer.elements import byte_bounds


class FreedMemory:
    """Notes when the memory of arrays that were accessed is freed.

    The note comes in the middle of whatever drops the last reference, so it only waits here until somebody takes it.
    """

    def __init__(self) -> None:
        self._known: dict[int, _KeptMemory] = {}
        self._freed: deque[tuple[int, int]] = deque()

    def watch(self, array: np.ndarray[Any, Any]) -> None:
        """Have it noted when the memory of an array is freed."""
        lo, hi = byte_bounds(array)
        if lo == hi:
            return
        keeper = _keeper(array)
        key = id(keeper)
        known = self._known.get(key)
        if known is None or known.keeper() is not keeper:

            def gone(_: ref[Any]) -> None:
                self._freed.append((memory.lo, memory.hi))
                if self._known.get(key) is memory:
                    del self._known[key]

            memory = known = self._known[key] = _KeptMemory(ref(keeper, gone), lo, hi)
            if isinstance(keeper, np.ndarray):
                lo, hi = byte_bounds(keeper)
        known.lo, known.hi = min(known.lo, lo), max(known.hi, hi)

    def take(self) -> list[tuple[int, int]]:
        """Return the memory that has been freed since the last call, in order."""
        freed = []
        while self._freed:
            freed.append(self._freed.popleft())
        return freed


@dataclass(slots=True)
class _KeptMemory:
    """The bytes that go when an object does: those that arrays had of it when they were watched."""

    keeper: ref[Any]
    lo: int
    hi: int


def _keeper(array: np.ndarray[Any, Any]) -> Any:
    """Return the innermost object that keeps the memory of an array and takes weak references.

    That is the owner of the memory, or the innermost array where the owner takes none (``bytes``). Another array may
    keep such memory for longer. Its accesses are then forgotten too early, as a race that did not occur would be worse.
    """
    keeper: Any = array
    inner: Any = array
    while inner is not None:
        if type(inner).__weakrefoffset__:
            keeper = inner
        if isinstance(inner, memoryview):
            inner = inner.obj
        else:
            inner = inner.base if isinstance(inner, np.ndarray) else getattr(inner, "owner", None)
    return keeper
