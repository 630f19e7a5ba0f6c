"""Lines of programs, found by their text."""

from __future__ import annotations


def line_of(text, part):
    """Return the number of the one line that contains a text."""
    [line] = [number for number, line in enumerate(text.splitlines(), 1) if part in line]
    return line
