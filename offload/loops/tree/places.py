"""Errors at a line of the program's text, for code that has no node of Python's grammar any more."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

from offload.errors import LoopError

if TYPE_CHECKING:
    from offload.loops.tree.ir import SourceLine


def refusal(place: SourceLine, rule: str, what: str) -> LoopError:
    """Return the error for a line that breaks a rule; `what` has the reason and the remedy."""
    line = linecache.getline(place.file, place.line)
    shown = f" `{line.strip()}`:" if line.strip() else ""  # a function may come from a process that has the file
    error = LoopError(f"{place.file}:{place.line}:{shown} {what}", place.file, place.line, rule)
    if shown:
        error.add_note(marked(place, line))
    return error


def marked(place: SourceLine, line: str, begin: int = 0, end: int | None = None) -> str:
    """Return a line of the program as Python shows that of a `SyntaxError`, with carets under characters of it."""
    text = line.strip()
    indent = len(line) - len(line.lstrip())
    first = max(begin - indent, 0)
    width = (len(text) if end is None else min(end - indent, len(text))) - first
    return f'  File "{place.file}", line {place.line}\n    {text}\n    {" " * first}{"^" * max(width, 1)}'
