"""Where the characters of a directive stand, and errors that point at them.

A directive's string begins in a literal of a file, in a comment of one, or in a value that a call received. The parser
counts characters of the string. `DirectiveText` knows where each line of the string stands in the file, so an error
shows the file's line with carets. If a literal has escapes, or is put together from several, its characters do not
stand in the file one by one: positions then count in the string, and the file is called ``<directive>``.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.errors import PragmaError, UnsupportedPragmaError
from offload.pragma.parser import parse
from offload.pragma.syntax import Span
from offload.texts import column_of, columns_of, segment_of

if TYPE_CHECKING:
    from offload.pragma.syntax import Directive, Language
    from offload.texts import FunctionText

IN_STRING: Final = "<directive>"


class LineStart(NamedTuple):
    """Where a line of a directive's string begins in its file."""

    number: int  # of the file's line, from 1
    column: int  # in characters, from 0
    text: str  # the file's line, without its end


class DirectiveText(NamedTuple):
    """A directive's string, and where its characters stand."""

    language: Language
    text: str
    file: str
    line: int  # of the directive; in `file`
    starts: tuple[LineStart, ...]
    """One for each line of the string; empty if its characters do not stand in the file one by one."""

    def parsed(self) -> Directive:
        """Return the parsed directive.

        Raises
        ------
        PragmaError
            The parser's error, of the same class, at its place in the file. It has neither cause nor context.
        """
        try:
            return parse(self.text, self.language)
        except PragmaError as caught:
            error = self._placed(caught)
        raise error

    def refusal(self, message: str, span: Span | None = None, *, is_unsupported: bool = False) -> PragmaError:
        """Return an error at some characters of the string; by default at the words of the directive."""
        kind = UnsupportedPragmaError if is_unsupported else PragmaError
        where = self._words() if span is None else span
        error = kind(message, *self._place(where))
        vars(error)["span"] = where
        return error

    def _words(self) -> Span:
        """Return the place of the directive's words; for a string that cannot be parsed, the whole of it."""
        try:
            return parse(self.text, self.language).span
        except PragmaError:
            begin = len(self.text) - len(self.text.lstrip())
            return Span(begin, max(len(self.text.rstrip()), begin))

    def _placed(self, error: PragmaError) -> PragmaError:
        span: Span = vars(error)["span"]
        placed = type(error)(str(error.msg), *self._place(span))
        vars(placed).update(vars(error))
        return placed

    def _place(self, span: Span) -> tuple[str, int, int, str, int, int]:
        """Return the arguments of an error after its message; of a span of several lines, the first line counts."""
        row = self.text.count("\n", 0, span.begin)
        first = self.text.rfind("\n", 0, span.begin) + 1
        line = self.text[first:].partition("\n")[0]
        begin = span.begin - first
        end = span.end - first if span.end - first <= len(line) else max(len(line.rstrip()), begin)
        if not self.starts:
            return IN_STRING, row + 1, begin + 1, line, row + 1, end + 1
        start = self.starts[row]
        shift = start.column + 1
        return self.file, start.number, begin + shift, start.text, start.number, end + shift


def of_string(text: str, language: Language) -> DirectiveText:
    """Return a string that `omp` or `acc` received; its errors count in the string."""
    return DirectiveText(language, text, IN_STRING, 1, ())


def of_literal(call: ast.Call, language: Language, text: FunctionText) -> DirectiveText:
    """Return the directive of a call ``omp("…")`` in a function.

    Raises
    ------
    PragmaError
        If the call does not have one literal string as its only argument. The error is at the argument.
    """
    match call:
        case ast.Call(args=[ast.Constant(value=str(value)) as literal], keywords=[]):
            return DirectiveText(language, value, text.file, call.lineno, _starts(literal, value, text))
        case ast.Call(args=[], keywords=[]):
            raise at_node(call, f"{language}() has no directive; pass one literal string", text)
        case ast.Call(args=[argument], keywords=[]):
            what = "an f-string" if isinstance(argument, ast.JoinedStr) else f"`{_short(argument)}`"
            raise at_node(
                argument,
                f"{language}: a directive must be one literal string, not {what}; the text must be known when the "
                "function is decorated",
                text,
            )
        case _:
            extra = call.args[1] if len(call.args) > 1 else call.keywords[0]
            raise at_node(extra, f"{language} takes one literal string and nothing else; remove this argument", text)


def _short(node: ast.expr) -> str:
    shown = ast.unparse(node)
    return shown if len(shown) <= 40 else f"{shown[:39]}…"


def at_node(node: ast.AST, message: str, text: FunctionText, *, is_unsupported: bool = False) -> PragmaError:
    """Return an error at a node of the function; of a node of several lines, at its first line."""
    number: int = getattr(node, "lineno", text.definition.lineno)
    line = text.lines[number - 1]
    begin, end = columns_of(node, line)
    end = min(end, len(line.rstrip()))
    kind = UnsupportedPragmaError if is_unsupported else PragmaError
    return kind(message, text.file, number, begin + 1, line, number, max(end, begin) + 1)


def _starts(literal: ast.Constant, value: str, text: FunctionText) -> tuple[LineStart, ...]:
    """Return where the lines of a literal's value begin; nothing if its characters are not those of the file."""
    lines = text.lines
    first = literal.lineno
    column = column_of(lines[first - 1], literal.col_offset)
    segment = segment_of(literal, lines)
    before = segment[: len(segment) - len(segment.lstrip("rRuU"))]
    for quote in ('"""', "'''", '"', "'"):
        opening = before + quote
        if segment.startswith(opening) and segment[len(opening) : -len(quote)] == value:
            break
    else:
        return ()
    columns = [column + len(opening), *[0] * value.count("\n")]
    return tuple([LineStart(first + row, at, lines[first + row - 1]) for row, at in enumerate(columns)])
