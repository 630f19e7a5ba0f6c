"""Brackets and strings of a directive: where an argument ends, and where it is divided.

`scan` reads from a bracket to the one that closes it. It knows brackets by kind, numbers, and Python's strings with
their prefixes; everything else is left to Python's own parser. It divides at commas and colons outside of inner
brackets. A fault ends it: the pieces before the fault are kept, and the last piece holds the fault. The reader of the
pieces raises it when it gets there, so a mistake in an earlier piece is reported first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from offload.pragma.mistakes import Mistake

if TYPE_CHECKING:
    from collections.abc import Sequence

BLANK: Final = re.compile(r"[ \t\r\n\f]*")
WORD: Final = re.compile(r"[^\W\d]\w*")
_TRAILING_BLANK: Final = " \t\r\n\f"

# Brackets, separators, strings, characters that Python allows nowhere or ends the line at, and numbers.
_STOP: Final = re.compile(r"[()\[\]{},:\"'#\\\x00]|(?<!\w)[0-9]")
_NUMBER: Final = re.compile(
    r"0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+"
    r"|[0-9](?:_?[0-9])*(?:\.(?:[0-9](?:_?[0-9])*)?)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?[jJ]?"
)
_PREFIX: Final = re.compile(r"(?<!\w)(?:[rR][bBfFtT]?|[bBfFtT][rR]?|[uU])\Z")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_ESCAPED: Final = frozenset("\n\r\\'\"abfnrtvx01234567NuU")
_BYTES_ESCAPED: Final = _ESCAPED - frozenset("NuU")
_BIG_OCTAL: Final = re.compile("[4-7][0-7][0-7]")
_ESCAPED_NAME: Final = re.compile(r"N\{[\w \-]*\}")
_UNPLACED: Final = {
    "#": "a comment cannot stand in a directive; leave it out",
    "\\": "a backslash cannot stand here; a directive's string may have line breaks without it",
    "\0": "a directive cannot have null characters",
}

# Trees of expressions are copied by recursion, which a program's own depth of calls must leave room for.
DEEPEST: Final = 50


@dataclass(frozen=True, slots=True)
class ArgumentPiece:
    """A part of an argument between separators, without blanks around it: ``text[begin:end]``."""

    begin: int
    end: int
    separator: str  # after it: ``,`` or ``:``; ``)`` for the last one
    separator_at: int
    fault: Mistake | None = None


@dataclass(frozen=True, slots=True)
class Argument:
    """The argument in brackets of a clause or directive."""

    begin: int  # of the bracket
    end: int  # after the closing bracket
    pieces: Sequence[ArgumentPiece]


def skip_blanks(text: str, position: int) -> int:
    """Return the place of the next character that is not a blank, or the end."""
    found = BLANK.match(text, position)
    assert found is not None
    return found.end()


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
        return _after_number(text, at)
    return at + 1


def _piece(text: str, start: int, end: int, separator: str) -> ArgumentPiece:
    start = skip_blanks(text, start)
    return ArgumentPiece(min(start, end), start + len(text[start:end].rstrip(_TRAILING_BLANK)), separator, end)


def _after_number(text: str, at: int) -> int:
    """Return the end of a number. Python only warns of one that runs into a word, as in ``1if x else 2``."""
    found = _NUMBER.match(text, at)
    assert found is not None
    if (end := found.end()) < len(text) and (after := WORD.match(text, end)):
        raise Mistake("invalid number; put a blank between the number and the word", at, after.end())
    return end


def _after_string(text: str, at: int, begin: int, depth: int) -> int:
    """Return the end of the string whose first quote stands at ``at``; its prefix stands before."""
    prefix_found = _PREFIX.search(text[max(begin, at - 3) : at])
    prefix = prefix_found.group().lower() if prefix_found else ""
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


def _after_raw_escape(text: str, at: int) -> int:
    return at + (2 if text[at + 1 : at + 2] in ("'", '"', "\\") else 1)


def _after_bytes_escape(text: str, at: int) -> int:
    return _after_escape(text, at, _BYTES_ESCAPED)


def _after_escape(text: str, at: int, known: frozenset[str] = _ESCAPED) -> int:
    """Return the end of an escape. Python only warns of those that it does not know."""
    character = text[at + 1 : at + 2]
    end = at + 2
    is_known = character in known
    if _BIG_OCTAL.match(text, at + 1):
        end, is_known = at + 4, False
    elif text.startswith("N{", at + 1) and (name := _ESCAPED_NAME.match(text, at + 1)):
        end = name.end()
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
