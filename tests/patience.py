"""Waits for what other threads do a little later than they have said.

A thread that has completed a task wakes those who wait for it, and has the task in its frames for some steps more.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

PATIENCE_S = 20


def until(is_so: Callable[[], object]) -> None:
    """Wait until something is so, not for ever."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def until_gone(*references: weakref.ref[Any]) -> None:
    """Wait until nobody has what is referred to, with the help of Python's collector unless it is off."""

    def are_gone() -> bool:
        if gc.isenabled():
            gc.collect()
        return all(one() is None for one in references)

    until(are_gone)
