"""Python expressions and list items of a directive, with their places in its string.

Python's own parser reads them. Names and plain numbers, which most list items are, need no parser. A section ``a[l:n]``
is written like a slice. `item` therefore takes the outermost subscripts of the tree apart, and leaves slices everywhere
else alone.

The places of the nodes themselves (``lineno``, ``col_offset``) mean nothing outside of this file.
"""

from __future__ import annotations

import ast
import keyword
import re
from typing import TYPE_CHECKING, Any, Final

from offload.pragma.mistakes import Mistake
from offload.pragma.scanner import DEEPEST, WORD, skip_blanks
from offload.pragma.syntax import Item, Member, PythonText, Span, Subscript, Triple

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.pragma.syntax import Step

    Locator = Callable[[int, int], int]

_LINES: Final = r"(?<=\n)|(?<=\r)(?!\n)"
_DIGITS: Final = 18  # of a number that needs no check of its size
# Python's parser accepts more than its compiler does; only a text with one of these needs a second look.
_DOUBTFUL: Final = re.compile(r"yield|await|async|lambda|:=|__debug__|[^=!<>]=[^=]")
_LONGEST: Final = 10_000  # characters, which keeps Python's parser quick
_CONSTANTS: Final = ("None", "True", "False")
_REFUSED: Final[dict[type[ast.AST], str]] = {
    ast.NamedExpr: "an expression in a directive cannot assign a name; assign it before the directive",
    ast.Await: "an expression in a directive cannot await; await before the directive",
    ast.Yield: "an expression in a directive cannot yield; yield before the directive",
    ast.YieldFrom: "an expression in a directive cannot yield; yield before the directive",
}


def expression(text: str, begin: int, end: int) -> PythonText:
    """Parse ``text[begin:end]``, which has no blanks around it."""
    source = text[begin:end]
    node = _plain(source)
    return PythonText(source, Span(begin, end), node or _parsed(text, begin, end))


def item(text: str, begin: int, end: int) -> Item:
    """Parse a list item: ``text[begin:end]``, which has no blanks around it."""
    source = text[begin:end]
    span = Span(begin, end)
    if isinstance(node := _plain(source), ast.Name):
        return Item(source, span, PythonText(source, span, node), (), source)
    if node is not None:
        return Item(source, span, PythonText(source, span, node), (), "")
    tree = _parsed(text, begin, end)
    root, steps = _taken_apart(tree, text, _locator(source, begin))
    return Item(source, span, root, steps, root.node.id if isinstance(root.node, ast.Name) else "")


def is_reserved(word: str) -> bool:
    """Tell whether a word cannot be a name in Python."""
    return keyword.iskeyword(word)


def _plain(source: str) -> ast.expr | None:
    """Return the node of a name or a number without Python's parser; None for everything else."""
    if source.isidentifier():
        # Python's parser normalises other names, and a keyword is none.
        return ast.Name(source, ast.Load()) if source.isascii() and not keyword.iskeyword(source) else None
    if source.isdecimal() and source.isascii() and len(source) <= _DIGITS and (source[0] != "0" or source == "0"):
        return ast.Constant(int(source))
    return None


def _parsed(text: str, begin: int, end: int) -> ast.expr:
    source = text[begin:end]
    if keyword.iskeyword(source) and source not in _CONSTANTS:
        raise Mistake(f"`{source}` is a reserved word of Python, not a name", begin, end)
    if len(source) > _LONGEST:
        raise Mistake("an expression is too long; compute the value before the directive", begin, end)
    try:
        tree = ast.parse(_for_python(source)[0], mode="eval").body
    except SyntaxError as error:
        raise _mistake_of(error, text, begin, end) from None
    except (RecursionError, MemoryError, OverflowError):
        raise Mistake("an expression is too deep; compute the value before the directive", begin, end) from None
    except ValueError:  # characters that no file can have
        raise Mistake("an expression has characters that UTF-8 cannot encode", begin, end) from None
    if isinstance(tree, ast.GeneratorExp) and source[0] != "(" and (tree.lineno, tree.col_offset) == (1, 0):
        raise Mistake("put a generator expression in brackets", begin, end)  # the brackets are those for line breaks
    if len(source) > DEEPEST or _DOUBTFUL.search(source):
        _check(tree, begin, _locator(source, begin))
    return tree


def _for_python(source: str) -> tuple[str, int]:
    """Return an expression as Python's parser takes it, and how many characters that puts in front of it."""
    # A line break is a blank in brackets only. Without one at the end, the parser gives no place for the end.
    return (f"({source})\n", 1) if "\n" in source or "\r" in source else (f"{source}\n", 0)


def _mistake_of(error: SyntaxError, text: str, begin: int, end: int) -> Mistake:
    """Return the mistake at the place where Python's parser stopped, with its message and advice for forms of C."""
    if error.lineno is None or error.offset is None or "f-string" in error.msg:
        # In Python 3.11, places in f-strings count from the string's own braces.
        return Mistake(error.msg, begin, end)
    given, shift = _for_python(text[begin:end])
    lines = re.split(_LINES, given)
    first = max(begin, begin - shift + _index(lines, error.lineno, error.offset))
    last = begin - shift + _index(lines, error.end_lineno or error.lineno, error.end_offset or 0)
    message = error.msg
    from offload.pragma.c_forms import advice_for  # only mistakes need it

    if advice := advice_for(text[begin:end], first - begin):
        message = f"{message}; {advice}" if message[-1] not in "?." else f"{message} {advice[0].upper()}{advice[1:]}"
    if first >= end:
        first = skip_blanks(text, end)
        return Mistake(message, first, min(first + 1, len(text)))
    if last <= first + 1:  # Python 3.11 gives one character of a word
        word = WORD.match(text, first)
        last = word.end() if word else first + 1
    return Mistake(message, first, min(end, last))


def _index(lines: list[str], lineno: int, offset: int) -> int:
    """Return the index of a place in the text that consists of ``lines``. Both numbers count from 1."""
    before = min(max(lineno, 1), len(lines)) - 1
    return sum(map(len, lines[:before])) + max(offset, 1) - 1


def _locator(source: str, begin: int) -> Locator:
    """Return a function from the line and column of a node to the index in the directive's string."""
    if source.isascii() and "\n" not in source and "\r" not in source:
        return lambda _, column: begin + column
    given, shift = _for_python(source)
    lines = re.split(_LINES, given)
    starts = [begin - shift]
    for line in lines:
        starts.append(starts[-1] + len(line))
    # Columns count bytes.
    return lambda line, column: starts[line - 1] + len(lines[line - 1].encode()[:column].decode(errors="ignore"))


def _begin(node: Any, locate: Locator) -> int:
    return locate(node.lineno, node.col_offset)


def _end(node: Any, locate: Locator) -> int:
    return locate(node.end_lineno, node.end_col_offset)


def _check(tree: ast.expr, begin: int, locate: Locator) -> None:
    """Refuse everything in a tree that an expression of a directive cannot have."""
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST + 1):
        for node in level:
            if message := _REFUSED.get(type(node)) or _compiler_says(node):
                place = node if hasattr(node, "lineno") else tree
                raise Mistake(message, _begin(place, locate), _end(place, locate))
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    end = _end(tree, locate)
    raise Mistake("an expression is too deep; compute the value before the directive", min(begin, end), end)


def _compiler_says(node: ast.AST) -> str:
    """Return what Python's compiler, but not its parser, has against a node."""
    if isinstance(node, ast.Call):
        names = [word.arg for word in node.keywords if word.arg is not None]
        if repeated := next((name for name in names if names.count(name) > 1), None):
            return f"keyword argument repeated: {repeated}"
    elif isinstance(node, ast.arguments):
        every = [one.arg for one in (*node.posonlyargs, *node.args, node.vararg, *node.kwonlyargs, node.kwarg) if one]
        if repeated := next((name for name in every if every.count(name) > 1), None):
            return f"duplicate argument '{repeated}' in function definition"
    elif isinstance(node, ast.comprehension) and node.is_async:
        return "an expression in a directive cannot await; await before the directive"
    if isinstance(node, (ast.keyword, ast.arg)) and node.arg == "__debug__":
        return "cannot assign to __debug__"
    return ""


def _taken_apart(tree: ast.expr, text: str, locate: Locator) -> tuple[PythonText, tuple[Step, ...]]:
    """Return the expression that an item begins with, and the members and subscripts that apply to it in turn."""
    steps: list[Step] = []
    node = tree
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        inner, end = node.value, _end(node, locate)
        if isinstance(node, ast.Attribute):
            begin = skip_blanks(text, text.rindex(".", 0, end) + 1)
            steps.append(Member(node.attr, Span(begin, end)))
        else:
            begin = text.index("[", _end(inner, locate))
            steps.append(Subscript(_dimensions(node.slice, text, locate), Span(begin, end)))
        node = inner
    return _expression_of(node, text, locate), tuple(reversed(steps))


def _dimensions(inside: ast.expr, text: str, locate: Locator) -> tuple[PythonText | Triple, ...]:
    parts = [inside]
    # A tuple of one element is a key of a dict, unless it holds a section.
    if isinstance(inside, ast.Tuple) and (
        len(inside.elts) > 1 or (inside.elts and isinstance(inside.elts[0], (ast.Slice, ast.Starred)))
    ):
        parts = inside.elts
    return tuple(_dimension(part, text, locate) for part in parts)


def _dimension(part: ast.expr, text: str, locate: Locator) -> PythonText | Triple:
    if isinstance(part, ast.Starred):
        raise Mistake("a subscript in a directive cannot have a star", _begin(part, locate), _end(part, locate))
    if not isinstance(part, ast.Slice):
        return _expression_of(part, text, locate)
    lower, length, stride = (
        None if one is None else _expression_of(one, text, locate) for one in (part.lower, part.upper, part.step)
    )
    return Triple(lower, length, stride, Span(_begin(part, locate), _end(part, locate)))


def _expression_of(node: ast.expr, text: str, locate: Locator) -> PythonText:
    begin, end = _begin(node, locate), _end(node, locate)
    return PythonText(text[begin:end], Span(begin, end), node)
