"""Memory that is given back: other arrays may get the same addresses."""

from __future__ import annotations

from collections import deque
from typing import Any
from weakref import ref

import numpy as np

from offload.sanitizer.elements import byte_bounds


class FreedMemory:
    """Notes when the memory of arrays that were accessed is freed.

    The note comes in the middle of whatever drops the last reference, so it only waits here until somebody takes it.
    """

    def __init__(self) -> None:
        self._owners: dict[int, ref[Any]] = {}
        self._freed: deque[tuple[int, int]] = deque()

    def watch(self, array: np.ndarray[Any, Any]) -> None:
        """Have it noted when the memory of an array is freed."""
        owner: Any = array
        while (base := owner.base) is not None:
            inner = base if isinstance(base, np.ndarray) else getattr(base, "owner", None)
            if not isinstance(inner, np.ndarray):
                return  # memory of another library
            owner = inner
        key = id(owner)
        known = self._owners.get(key)
        if known is not None and known() is owner:
            return
        lo, hi = byte_bounds(owner)
        if lo == hi:
            return

        def gone(reference: ref[Any]) -> None:
            self._freed.append((lo, hi))
            if self._owners.get(key) is reference:
                del self._owners[key]

        self._owners[key] = ref(owner, gone)

    def take(self) -> list[tuple[int, int]]:
        """Return the memory that has been freed since the last call, in order."""
        freed = []
        while self._freed:
            freed.append(self._freed.popleft())
        return freed
