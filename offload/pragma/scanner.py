"""Brackets and strings of a directive: where an argument ends, and where it is divided.

`scan` reads from a bracket to the one that closes it. It knows brackets by kind, numbers, and Python's strings with
their prefixes; everything else is left to Python's own parser. It divides at commas and colons outside of inner
brackets. A fault ends it: the pieces before the fault are kept, and the last piece holds the fault. The reader of the
pieces raises it when it gets there, so a mistake in an earlier piece is reported first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from offload.pragma.mistakes import Mistake

if TYPE_CHECKING:
    from collections.abc import Sequence

WORD: Final = re.compile(r"[^\W\d]\w*")
_BLANKS: Final = " \t\r\n\f"

# Brackets, separators, quotes, characters that no expression has, and a number that runs into a word of Python, such as
# ``1if x else 2``: Python's parser takes it with a warning.
_STOP: Final = re.compile(
    r"[()\[\]{},:\"'#\\\x00]|(?:(?<![\w.])[0-9]\w*(?:\.(?:[0-9]\w*)?)?|\.[0-9]\w*)(?:and|else|for|if|in|is|not|or)"
)
_PREFIXES: Final = frozenset({"r", "u", "b", "f", "t", "br", "rb", "fr", "rf", "tr", "rt"})
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_ESCAPED: Final = frozenset("\n\r\\'\"abfnrtvx01234567NuU")
_BYTES_ESCAPED: Final = _ESCAPED - frozenset("NuU")
_OCTAL: Final = frozenset("01234567")
_UNPLACED: Final = {
    "#": "a comment cannot stand in a directive; leave it out",
    "\\": "a backslash cannot stand here; a directive's string may have line breaks without it",
    "\0": "a directive cannot have null characters",
}

# Trees of expressions are copied by recursion, which a program's own depth of calls must leave room for.
DEEPEST: Final = 50


class ArgumentPiece:
    """A part of an argument between separators, without blanks around it: ``text[begin:end]``."""

    __slots__ = ("begin", "end", "fault", "separator", "separator_at")

    def __init__(self, begin: int, end: int, separator: str, separator_at: int, fault: Mistake | None = None) -> None:
        self.begin = begin
        self.end = end
        self.separator = separator  # after it: ``,`` or ``:``; ``)`` for the last one
        self.separator_at = separator_at
        self.fault = fault


class Argument:
    """The argument in brackets of a clause or directive."""

    __slots__ = ("begin", "end", "pieces")

    def __init__(self, begin: int, end: int, pieces: Sequence[ArgumentPiece]) -> None:
        self.begin = begin  # of the bracket
        self.end = end  # after the closing bracket
        self.pieces = pieces


def skip_blanks(text: str, position: int) -> int:
    """Return the place of the next character that is not a blank, or the end."""
    end = len(text)
    while position < end and text[position] in _BLANKS:
        position += 1
    return position


def scan(text: str, begin: int) -> Argument:
    """Divide the argument whose opening bracket stands at ``begin``.

    Raises
    ------
    Mistake
        The bracket is never closed.
    """
    pieces: list[ArgumentPiece] = []
    stack = [(text[begin], begin)]
    start = position = begin + 1
    while stop := _STOP.search(text, position):
        at, character = stop.start(), stop.group()
        if character in ",:" and len(stack) == 1 and not text.startswith(":=", at):
            pieces.append(_piece(text, start, at, character))
            start = position = at + 1
            continue
        try:
            position = _after(text, at, stack, begin, 0)
        except Mistake as fault:
            start = skip_blanks(text, start)
            pieces.append(ArgumentPiece(start, max(start, at), ")", at, fault))
            return Argument(begin, len(text), pieces)
        if not stack:
            pieces.append(_piece(text, start, at, character))
            return Argument(begin, position, pieces)
    raise Mistake(f"`{text[begin]}` is never closed", begin, begin + 1)


def _after(text: str, at: int, stack: list[tuple[str, int]], begin: int, depth: int) -> int:
    """Return the end of the token at a place where `_STOP` stops; keep the open brackets up to date."""
    character = text[at]
    if character in _CLOSING:
        if len(stack) == DEEPEST:
            message = f"brackets are nested more than {DEEPEST} deep; compute the value before the directive"
            raise Mistake(message, at, at + 1)
        stack.append((character, at))
    elif character in ")]}":
        opening, _ = stack.pop()
        if _CLOSING[opening] != character:
            raise Mistake(f"`{character}` does not close `{opening}`", at, at + 1)
    elif character in "\"'":
        return _after_string(text, at, begin, depth)
    elif character in _UNPLACED:
        raise Mistake(_UNPLACED[character], at, at + 1)
    elif character not in ",:":
        number = _STOP.match(text, at)
        end = number.end() if number else at + 1
        raise Mistake(f"`{text[at:end]:.40}` is a number and a word; put a blank between them", at, end)
    return at + 1


def _piece(text: str, start: int, end: int, separator: str) -> ArgumentPiece:
    start = skip_blanks(text, start)
    return ArgumentPiece(min(start, end), start + len(text[start:end].rstrip(_BLANKS)), separator, end)


def _after_string(text: str, at: int, begin: int, depth: int) -> int:
    """Return the end of the string whose first quote stands at ``at``; its prefix stands before."""
    prefix = _prefix(text[max(begin, at - 3) : at])
    quote = text[at] * 3 if text.startswith(text[at] * 3, at) else text[at]
    is_raw = "r" in prefix
    has_fields = "f" in prefix or "t" in prefix
    position = at + len(quote)
    while position < len(text):
        if text.startswith(quote, position):
            return position + len(quote)
        character = text[position]
        if character == "\\":
            escape = _after_raw_escape if is_raw else _after_bytes_escape if "b" in prefix else _after_escape
            position = escape(text, position)
        elif character in "\r\n" and len(quote) == 1:
            break
        elif character == "{" and has_fields:
            position = position + 2 if text.startswith("{{", position) else _after_field(text, position, at, depth + 1)
        else:
            position += 1
    raise Mistake("a string is never closed", at, at + len(quote))


def _prefix(before: str) -> str:
    """Return the prefix of a string, in small letters, from the three characters before its quote."""
    for length in (2, 1):
        found = before[-length:].lower()
        if found in _PREFIXES and not (rest := before[:-length])[-1:].isalnum() and not rest.endswith("_"):
            return found
    return ""


def _after_raw_escape(text: str, at: int) -> int:
    return at + (2 if text[at + 1 : at + 2] in ("'", '"', "\\") else 1)


def _after_bytes_escape(text: str, at: int) -> int:
    return _after_escape(text, at, _BYTES_ESCAPED)


def _after_escape(text: str, at: int, known: frozenset[str] = _ESCAPED) -> int:
    """Return the end of an escape. Python only warns of those that it does not know."""
    character = text[at + 1 : at + 2]
    end = at + 2
    is_known = character in known
    if character in "4567" and len(text) > at + 3 and set(text[at + 2 : at + 4]) <= _OCTAL:  # more than a byte
        end, is_known = at + 4, False
    elif character == "N" and is_known and text.startswith("{", end) and (closing := text.find("}", end)) != -1:
        end = closing + 1
    if character and not is_known:
        raise Mistake(f"invalid escape `{text[at:end]}` in a string; write two backslashes", at, end)
    return end


def _after_field(text: str, at: int, string_at: int, depth: int) -> int:
    """Return the end of a replacement field ``{…}`` of an f-string: an expression, then perhaps a format."""
    if depth > DEEPEST:
        raise Mistake("strings are nested too deeply; compute the value before the directive", at, at + 1)
    stack = [("{", at)]
    position = at + 1
    while stop := _STOP.search(text, position):
        if stop.group() == ":" and len(stack) == 1:
            return _after_format(text, stop.end(), string_at, depth)
        position = _after(text, stop.start(), stack, string_at, depth)
        if not stack:
            return position
    raise Mistake("a string is never closed", string_at, string_at + 1)


def _after_format(text: str, position: int, string_at: int, depth: int) -> int:
    """Return the end of a field from its format on, in which quotes are plain characters."""
    while position < len(text) and text[position] not in "}\r\n":
        position = _after_field(text, position, string_at, depth + 1) if text[position] == "{" else position + 1
    if text[position : position + 1] != "}":
        raise Mistake("a string is never closed", string_at, string_at + 1)
    return position + 1
