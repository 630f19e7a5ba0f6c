"""Comments as directives: each becomes a `with` or a statement in a copy of the function's tree.

The tokenizer finds the comments, so a string that looks like one is no directive. Python ignores the indentation of a
comment; here it says to which block the comment belongs. In each block, comments and statements form one sequence.
A directive that takes a block encloses the next member of the sequence, or everything before its ``end``. A stand-alone
directive is a member itself. Above a ``def``, a directive with a function form becomes a decorator.

Every inserted `ast.Call` has the attribute ``directive_text``, a `DirectiveText`. Its function is a name that the
program may not have: code that rewrites the tree replaces the call.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from offload.errors import PragmaError, UnsupportedPragmaError
from offload.pragma.parser import parse
from offload.pragma.placing import DirectiveText, LineStart
from offload.pragma.syntax import Span
from offload.pragma.tables import WORD_ALIASES, Form, row_of
from offload.texts import Definition, first_line, framed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.pragma.syntax import Directive, Language
    from offload.texts import FunctionText

_SENTINEL: Final = re.compile(r"#(?:pragma (?:omp|acc)|\$ ?(?:omp|acc)|omp|acc)(?!\w)")
_LINE: Final = re.compile(r"[ \t\f]*" + _SENTINEL.pattern)
# A sentinel with a blank after the ``#``, as formatters write it. ``# omp`` and ``# acc`` are prose.
_NEAR_MISS: Final = r"(#[ \t]+(pragma (?:omp|acc)|\$ ?(?:omp|acc)))(?!\w)"
_NO_CODE: Final = re.compile(r"[ \t\f]*(?:#.*)?$")
_END: Final = re.compile(r"end(?![^\s_])[\s_]*")

_BLANK_TOKENS: Final = frozenset({tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER})

_Decorated: TypeAlias = "Definition | ast.ClassDef"
_DECORATED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def insert_comments(
    text: FunctionText, faults: list[PragmaError] | None = None, unread: list[UnreadComment] | None = None
) -> Definition:
    """Return a definition in which the directive comments of a function are statements.

    Parameters
    ----------
    text
        The text of the function.
    faults
        Receives the errors, in reading order. Without it, the first one is raised.
    unread
        Receives the directive comments that are left alone.

    Returns
    -------
    ast.FunctionDef or ast.AsyncFunctionDef
        A copy, as `framed` makes it. It is equal to the original if the function has no directive comments.

    Raises
    ------
    PragmaError
        The first one in reading order: a comment is no directive, stands where no statement can, applies to nothing, or
        closes nothing.

    Notes
    -----
    Comments inside of a nested function or class are left alone. A nested function that has directives is decorated
    itself, and then reads them.
    """
    definition = framed(text.definition)
    last = _last_line(text)
    if any(_LINE.match(line) for line in text.lines[definition.lineno - 1 : last]):
        inserter = _Inserter(text, definition.lineno, last)
        inserter.insert_in(definition)
        found = sorted(inserter.faults, key=lambda error: (error.lineno or 0, error.offset or 0))
        if faults is None and found:
            raise found[0].with_traceback(None)
        if faults is not None:
            faults += found
        if unread is not None:
            unread += inserter.unread
    return definition


class UnreadComment(NamedTuple):
    """A directive comment in a nested function, which only a decorator of that function reads."""

    line: int
    written: str
    around: tuple[_Decorated, ...]
    """The nested functions and classes around it, the outermost first."""


class NearMiss(NamedTuple):
    """A comment that would be a directive without the blank after its ``#``."""

    line: int
    written: str
    meant: str


def near_misses(text: FunctionText) -> list[NearMiss]:
    """Return the comments of a function that a blank after the ``#`` keeps from being directives.

    Comments inside of a nested function or class are left out: that function is decorated itself, or has no directives.
    """
    definition = text.definition
    first, last = definition.lineno, _last_line(text)
    if not any("#" in line and re.match(_NEAR_MISS, line.lstrip()) for line in text.lines[first - 1 : last]):
        return []
    indent, end = _indent_of(text.lines[first - 1]), definition.end_lineno or first
    inner = [node for node in ast.walk(definition) if isinstance(node, _DECORATED) and node is not definition]
    found = []
    for row, written in _scan(text.lines, first, last)[0].items():
        match = re.match(_NEAR_MISS, written.text)
        is_within = row <= end or _indent_of(text.lines[row - 1]) > indent
        if match and is_within and not any(node.lineno <= row <= (node.end_lineno or 0) for node in inner):
            found.append(NearMiss(row, match[1], f"#{match[2]}"))
    return found


def _last_line(text: FunctionText) -> int:
    """Return the last line of a function, with the lines without code after it."""
    last = text.definition.end_lineno or text.definition.lineno
    while last < len(text.lines) and _NO_CODE.match(text.lines[last]):
        last += 1
    return last


# -- comments --------------------------------------------------------------------------------------------


class _Comment(NamedTuple):
    row: int  # of its first line
    indent: int
    is_inside: bool  # of a statement that goes on
    where: DirectiveText


class _Written(NamedTuple):
    """A comment on a line of its own, as the tokenizer gives it."""

    column: int
    text: str
    is_inside: bool


def _scan(lines: Sequence[str], first: int, last: int) -> tuple[dict[int, _Written], list[int]]:
    """Return the comments on lines of their own by row, and the rows on which logical lines begin."""
    found: dict[int, _Written] = {}
    starts: list[int] = []
    is_open = False
    given = iter([f"{line}\n" for line in lines[first - 1 : last]])
    for token in tokenize.generate_tokens(lambda: next(given, "")):
        row = token.start[0] + first - 1
        if token.type == tokenize.COMMENT:
            if not lines[row - 1][: token.start[1]].strip():
                found[row] = _Written(token.start[1], token.string, is_open)
        elif token.type == tokenize.NEWLINE:
            is_open = False
        elif token.type not in _BLANK_TOKENS and not is_open:
            is_open = True
            starts.append(row)
    return found, starts


def _indent_of(line: str) -> int:
    """Return the indentation of a line as Python counts it."""
    column = 0
    for character in line:
        match character:
            case " ":
                column += 1
            case "\t":
                column += 8 - column % 8
            case "\f":
                column = 0
            case _:
                break
    return column


def _comments(text: FunctionText, found: dict[int, _Written], faults: list[PragmaError]) -> list[_Comment]:
    """Return the directive comments, each with the lines that continue it."""
    comments: list[_Comment] = []
    last = 0
    for row, written in found.items():
        match = _SENTINEL.match(written.text)
        if match is None or row <= last:
            continue
        sentinel = match.group()
        pieces, starts, last, goes_on = [], [], row - 1, True
        while goes_on:
            last += 1
            one = found[last]
            piece = one.text[len(sentinel) :].rstrip()
            shown = piece.lstrip()
            column = one.column + len(sentinel) + len(piece) - len(shown)
            starts.append(LineStart(last, column, text.lines[last - 1]))
            goes_on = shown.endswith(("\\", "&")) and _continues(found.get(last + 1), sentinel)
            pieces.append(shown[:-1].rstrip() if goes_on else shown)
        language: Language = "acc" if sentinel.endswith("acc") else "omp"
        where = DirectiveText(language, "\n".join(pieces), text.file, row, tuple(starts))
        if where.text.endswith(("\\", "&")):
            message = f"the directive goes on, but the next line is no comment that begins with `{sentinel}`"
            faults.append(where.refusal(message, Span(len(where.text) - 1, len(where.text))))
        else:
            comments.append(_Comment(row, _indent_of(text.lines[row - 1]), written.is_inside, where))
    return comments


def _continues(written: _Written | None, sentinel: str) -> bool:
    match = None if written is None else _SENTINEL.match(written.text)
    return match is not None and match.group() == sentinel


# -- blocks ----------------------------------------------------------------------------------------------


class _Member(NamedTuple):
    """A member of a block: a statement, or a comment with its directive; without one, it is an ``end``."""

    row: int
    statement: ast.stmt | None = None
    comment: _Comment | None = None
    directive: Directive | None = None

    @property
    def kind(self) -> Literal["statement", "end", "alone", "block"]:
        if self.comment is None:
            return "statement"
        if self.directive is None:
            return "end"
        is_alone = row_of(self.directive).form is Form.ALONE or self.directive.name == "cache"
        return "alone" if is_alone else "block"


class _Inserter:
    """Inserts comments in the blocks of one function, and collects what is wrong."""

    def __init__(self, text: FunctionText, first: int, last: int) -> None:
        self.text = text
        self.first = first
        self.last = last
        self.faults: list[PragmaError] = []
        self.unread: list[UnreadComment] = []
        self.starts: list[int] = []

    def insert_in(self, definition: Definition) -> None:
        found, self.starts = _scan(self.text.lines, self.first, self.last)
        indent, end = _indent_of(self.text.lines[definition.lineno - 1]), definition.end_lineno or 0
        comments = [
            one for one in _comments(self.text, found, self.faults) if one.row <= end or one.indent > indent
        ]  # a comment below the function belongs to the block around it
        definition.body = self._in_block(definition.body, comments)

    def _in_block(self, body: list[ast.stmt], comments: list[_Comment]) -> list[ast.stmt]:
        """Return the statements of a block with its comments inserted, also those of the blocks inside."""
        indent = self._block_indent(body[0])
        members = [_Member(_row_of(statement), statement) for statement in body]
        inner: dict[int, list[_Comment]] = {}
        for comment in comments:
            before = [number for number, statement in enumerate(body) if _row_of(statement) < comment.row]
            is_within = bool(before) and comment.row <= (body[before[-1]].end_lineno or 0)
            if is_within or (before and comment.indent > indent and not comment.is_inside):
                inner.setdefault(before[-1], []).append(comment)
            elif comment.is_inside or comment.indent != indent:
                self._misplaced(comment)
            else:
                members += self._members_of(comment)
        for number, found in inner.items():
            self._in_statement(body[number], found)
        members.sort(key=lambda member: member.row)
        return _Sequence(members, self.faults).assembled()

    def _in_statement(self, node: ast.stmt, comments: list[_Comment]) -> None:
        """Insert comments in the blocks of a statement."""
        if isinstance(node, _DECORATED):
            for comment in comments:
                if comment.row < node.lineno:
                    self._between_decorators(node, comment)
                else:
                    self._leave(node, comment)
            return
        blocks = _blocks_of(node)
        heads = [self._head_of(getattr(owner, name)[0]) for owner, name in blocks]
        parts: list[list[_Comment]] = [[] for _ in blocks]
        for comment in comments:
            above = [number for number, head in enumerate(heads) if head < comment.row]
            if above:
                parts[above[-1]].append(comment)
            else:
                self._misplaced(comment)
        for (owner, name), part in zip(blocks, parts, strict=True):
            if part:
                setattr(owner, name, self._in_block(getattr(owner, name), part))

    def _leave(self, node: _Decorated, comment: _Comment) -> None:
        """Note a comment that only a nested function can read, if it is a directive at all."""
        try:
            comment.where.parsed()
        except PragmaError:
            return
        inner = [one for one in ast.walk(node) if isinstance(one, _DECORATED) and one is not node]
        around = [one for one in inner if one.lineno <= comment.row <= (one.end_lineno or 0)]
        written = self.text.lines[comment.row - 1].strip()
        self.unread.append(UnreadComment(comment.row, written, (node, *around)))

    def _between_decorators(self, node: _Decorated, comment: _Comment) -> None:
        if comment.is_inside or comment.indent != _indent_of(self.text.lines[node.lineno - 1]):
            self._misplaced(comment)
            return
        for member in self._members_of(comment):
            if member.directive is not None and _has_function_form(member.directive, node):
                above = [one for one in node.decorator_list if one.lineno < comment.row]
                node.decorator_list.insert(len(above), _call(comment, comment.row))
            else:
                self.faults.append(
                    comment.where.refusal(
                        "only a directive that can decorate a function may stand between a decorator and its `def`; "
                        "move the comment above the decorators, or into the body"
                    )
                )

    def _members_of(self, comment: _Comment) -> list[_Member]:
        """Return a comment as a member; nothing if its directive is wrong."""
        if _END.match(comment.where.text):
            return [_Member(comment.row, comment=comment)]
        try:
            return [_Member(comment.row, comment=comment, directive=comment.where.parsed())]
        except PragmaError as error:
            self.faults.append(error)
            return []

    def _misplaced(self, comment: _Comment) -> None:
        message = (
            "a directive comment cannot stand inside of a statement; move it above the statement"
            if comment.is_inside
            else "no block of this indentation is open here; indent the comment as the statement that it applies to"
        )
        self.faults.append(comment.where.refusal(message))

    def _block_indent(self, first: ast.stmt) -> int:
        """Return the indentation of a block; a number that no line has for one on the line of its head."""
        row = _row_of(first)
        return _indent_of(self.text.lines[row - 1]) if self._begins_line(first) else sys.maxsize

    def _head_of(self, first: ast.stmt) -> int:
        """Return the row on which the head of a block begins, ``else:`` for example."""
        row = _row_of(first) - self._begins_line(first)
        return max(start for start in self.starts if start <= row)

    def _begins_line(self, node: ast.stmt) -> bool:
        row = _row_of(node)
        line = self.text.lines[row - 1]
        is_first = bool(getattr(node, "decorator_list", [])) or len(line) - len(line.lstrip()) == node.col_offset
        return is_first and row in self.starts


def _row_of(node: ast.stmt) -> int:
    return first_line(node) if isinstance(node, _DECORATED) else node.lineno


def _blocks_of(node: ast.AST) -> list[tuple[ast.AST, str]]:
    """Return the blocks of a statement in the order of the text, each as a node and the name of its list."""
    match node:
        case ast.If(orelse=[ast.If(col_offset=column) as other]) if column == node.col_offset:  # ``elif``
            return [(node, "body"), *_blocks_of(other)]
        case ast.Match():
            return [(case, "body") for case in node.cases]
        case ast.Try() | ast.TryStar():
            blocks: list[tuple[ast.AST, str]] = [(node, "body"), *((one, "body") for one in node.handlers)]
            return [*blocks, *((node, name) for name in ("orelse", "finalbody") if getattr(node, name))]
        case _:
            return [(node, name) for name in ("body", "orelse") if getattr(node, name, None)]


# -- sequences -------------------------------------------------------------------------------------------


class _Sequence:
    """The members of one block, from which its statements are put together."""

    __slots__ = ("_ends", "_faults", "_members")

    def __init__(self, members: list[_Member], faults: list[PragmaError]) -> None:
        self._members = members
        self._faults = faults
        self._ends: dict[int, int] = {}  # the number of the ``end`` for each directive that has one
        opened: list[int] = []
        for number, member in enumerate(members):
            if member.kind == "block":
                opened.append(number)
            elif member.kind == "end":
                assert member.comment is not None
                self._close(number, member.comment.where, opened)

    def _close(self, number: int, where: DirectiveText, opened: list[int]) -> None:
        """Match an ``end`` with the last directive of its name that is open."""
        begin = _END.match(where.text)
        assert begin is not None
        words = where.text[begin.end() :].rstrip()
        for place in reversed(range(len(opened))):
            comment, directive = self._members[opened[place]].comment, self._members[opened[place]].directive
            assert comment is not None
            assert directive is not None
            if comment.where.language == where.language and _plain(words) in _names_of(directive):
                self._ends[opened[place]] = number
                del opened[place:]
                return
        self._faults.append(_unmatched(where, words, begin.end(), [self._members[one] for one in opened]))

    def assembled(self) -> list[ast.stmt]:
        return self._between(0, len(self._members))

    def _between(self, begin: int, end: int) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        while begin < end:
            statements, begin = self._one(begin, end)
            made += statements
        return made

    def _one(self, number: int, end: int) -> tuple[list[ast.stmt], int]:
        """Return the statements that a member makes, and the number of the member after it."""
        member = self._members[number]
        if member.comment is None:
            assert member.statement is not None
            return [member.statement], number + 1
        if member.kind == "end":
            return [], number + 1
        comment, directive = member.comment, member.directive
        assert directive is not None
        if member.kind == "alone":
            call = _call(comment, comment.row)
            return [ast.copy_location(ast.Expr(call), call)], number + 1
        if number in self._ends:
            close = self._ends[number]
            body, after = self._between(number + 1, close), close + 1
            if not body:
                message = f"`{directive.name}` needs a statement before its `end {directive.name}`"
                self._faults.append(comment.where.refusal(message))
                return [], after
            return [_with(comment, body)], after
        following = self._members[number + 1].kind if number + 1 < end else "end"
        if following in ("end", "alone"):
            self._nothing_follows(comment, directive, is_alone=following == "alone")
            return [], number + 1
        body, after = self._one(number + 1, end)
        match body:
            case [ast.FunctionDef() | ast.AsyncFunctionDef() as node] if _has_function_form(directive, node):
                node.decorator_list.insert(0, _call(comment, first_line(node)))
                return body, after
            case []:  # an error is noted already
                return [], after
            case _:
                return [_with(comment, body)], after

    def _nothing_follows(self, comment: _Comment, directive: Directive, *, is_alone: bool) -> None:
        what = "a stand-alone directive follows" if is_alone else "no statement follows at its indentation"
        message = f"`{directive.name}` applies to the next statement, but {what}"
        if is_alone:
            message += f"; close a block of several statements with `end {directive.name}`"
        self._faults.append(comment.where.refusal(message))


def _plain(words: str) -> str:
    """Return the words of a directive, with one blank between them."""
    return " ".join([WORD_ALIASES["omp"].get(word, word) for word in re.split(r"[\s_]+", words)])


def _names_of(directive: Directive) -> tuple[str, str]:
    """Return how an ``end`` may name a directive: as it is written there, or as the tables call it."""
    return _plain(directive.text[directive.span.begin : directive.span.end]), directive.name


def _unmatched(where: DirectiveText, words: str, begin: int, opened: Iterable[_Member]) -> PragmaError:
    """Return the error for an ``end`` that closes nothing, at its words."""
    try:
        parse(words, where.language)
    except UnsupportedPragmaError as error:  # ``declare target``
        return where.refusal(str(error.msg), Span(begin, begin + len(words)), is_unsupported=True)
    except PragmaError:
        pass
    names = [f"`{member.directive.name}`" for member in opened if member.directive is not None]
    known = f"open here: {', '.join(dict.fromkeys(names))}" if names else "no directive comment is open here"
    if not words:
        return where.refusal(f"`end` needs the name of the directive that it closes; {known}", Span(0, 3))
    return where.refusal(
        f"`end {words}` closes nothing: {known}; write the name alone, indented as the comment that it closes",
        Span(begin, begin + len(words)),
    )


# -- nodes -----------------------------------------------------------------------------------------------


def _has_function_form(directive: Directive, node: ast.stmt) -> bool:
    """Tell whether a directive above a ``def`` decorates it: as a block, it would lose the function's name."""
    return row_of(directive).makes_function and not isinstance(node, ast.ClassDef)


def _call(comment: _Comment, row: int) -> ast.Call:
    """Return ``omp("…")`` at a comment, with the attribute ``directive_text``."""
    where = comment.where
    start = where.starts[0]
    constant = ast.Constant(where.text)
    call = ast.Call(ast.Name(where.language, ast.Load()), [constant], [])
    for node in (call.func, constant, call):
        node.lineno = node.end_lineno = row
        node.col_offset = len(start.text) - len(start.text.lstrip())
        node.end_col_offset = len(start.text.rstrip().encode())
    vars(call)["directive_text"] = where
    return call


def _with(comment: _Comment, body: list[ast.stmt]) -> ast.With:
    call, last = _call(comment, comment.row), body[-1]
    return ast.With(
        [ast.withitem(call)],
        body,
        lineno=call.lineno,
        col_offset=call.col_offset,
        end_lineno=last.end_lineno,
        end_col_offset=last.end_col_offset,
    )
