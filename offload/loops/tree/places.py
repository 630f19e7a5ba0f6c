"""Errors at a line of the program's text, for what has no node of Python's grammar any more."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

from offload.errors import LoopError

if TYPE_CHECKING:
    from offload.loops.tree.ir import Place


def refusal(place: Place, rule: str, what: str) -> LoopError:
    """Return the error for a line that breaks a rule; `what` says why, and what to do."""
    text = linecache.getline(place.file, place.line).strip()
    shown = f" `{text}`:" if text else ""  # a function may come from a process that has the file
    return LoopError(f"{place.file}:{place.line}:{shown} {what}", place.file, place.line, rule)
