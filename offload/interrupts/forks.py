"""Functions that a forked child calls first. It has one thread, but other threads of its parent may hold locks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Act = TypeVar("Act", bound="Callable[[], object]")


def in_forked_child(act: Act) -> Act:
    """Have a function called in each forked child; the first one that was registered comes first."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)
    return act
