"""Mistakes in a directive string: where they are, and which word was probably meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from offload.errors import PragmaError, UnsupportedPragmaError
from offload.pragma.syntax import Span

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINE_END: Final = r"\r\n|\r|\n"
_LONGEST_WORD: Final = 40  # `difflib` takes quadratic time, and no word of the standards is longer


class Mistake(Exception):  # noqa: N818  # `parse` makes a PragmaError of it
    """A mistake at ``text[begin:end]``. It ends the parsing, and `parse` alone catches it."""

    def __init__(self, message: str, begin: int, end: int, *, is_unsupported: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.begin = begin
        self.end = end
        self.is_unsupported = is_unsupported


def error_of(mistake: Mistake, text: str) -> PragmaError:
    """Return a new error for a mistake in a string: its line, its columns there and its span in the string."""
    line_number, line_begin = 1, 0
    line_end = len(text)
    for found in re.finditer(_LINE_END, text):
        if found.end() > mistake.begin:
            line_end = found.start()
            break
        line_number += 1
        line_begin = found.end()
    kind = UnsupportedPragmaError if mistake.is_unsupported else PragmaError
    # A token of several lines is shown up to the end of its first line.
    error = kind(
        mistake.message,
        lineno=line_number,
        offset=mistake.begin - line_begin + 1,
        text=text[line_begin:line_end],
        end_offset=max(mistake.begin, min(mistake.end, line_end)) - line_begin + 1,
    )
    error.span = Span(mistake.begin, mistake.end)
    return error


def listed(words: Iterable[str], conjunction: str = "") -> str:
    """Return words in backquotes, with commas: ``a``, ``b`` or ``c``."""
    quoted = [f"`{word}`" for word in words]
    if conjunction and len(quoted) > 1:
        return f"{', '.join(quoted[:-1])} {conjunction} {quoted[-1]}"
    return ", ".join(quoted)


def with_article(noun: str) -> str:
    """Return a noun with "a" or "an"."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def meant(word: str, *candidates: Iterable[str]) -> str:
    """Return the end of a message that suggests a word: the closest of the first candidates that has a close one."""
    if len(word) > _LONGEST_WORD:
        return ""
    import difflib  # only mistakes need it

    for words in candidates:
        known = list(words)
        if word.lower() in known:
            return f"; did you mean `{word.lower()}`? Directives are written in lower case"
        found = difflib.get_close_matches(word.lower(), known, 1, 0.6)
        if found:
            return f"; did you mean `{found[0]}`?"
    return ""
