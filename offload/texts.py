"""The source text of a function: its file, its definition, its lines, and the decorators around it.

Loop functions and directive strings both need the text of running code. The definition is found in the tree of the
whole file by its name and first line, so every node has the file's line. The text is then compiled, and its code is
compared with the running code: a file that changed after its import is detected. Texts come from `linecache`, which
also has the cells of IPython and Jupyter and the examples of doctest. Since Python 3.13 it has `python -c` and lines of
the REPL too. Nothing here imports NumPy.

Python counts columns of a tree in bytes of UTF-8, and those of a `SyntaxError` in characters. Columns here are
characters from 0, unless a name says bytes. Lines end at a line feed alone: a form feed or U+2028
ends none.
"""

from __future__ import annotations
import __future__

import ast
import linecache
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_Node = TypeVar("_Node", bound=ast.AST)

Reason: TypeAlias = Literal["kind", "lambda", "absent", "deep", "changed"]

PLAIN_TEXT: Final = "__offload_plain_text__"
"""The attribute of a function that was made from a text with directives: called with the code of the function, it
returns the definition without them, the text and the file. It returns None for the code of a function around it."""

_REASONS: Final[dict[Reason, str]] = {
    "lambda": "a lambda cannot be used here; write the function with `def`",
    "absent": (
        "offload needs the source code of this function and cannot find it (was it created by `exec`, typed at a "
        "prompt, or sent by cloudpickle?); write it to a file"
    ),
    "deep": (
        "Python cannot parse this file here: an expression or a chain of `elif` is too long (thousands of terms), or "
        "the calls are already nested too deeply; split it into parts"
    ),
    "changed": (
        "the file does not hold the text from which this function was compiled: it was changed after its import, or "
        "something rewrites it at import; restart the program, or turn the rewriting off"
    ),
}


class FunctionText(NamedTuple):
    """The text of a function."""

    file: str
    text: str  # the whole file
    definition: Definition  # of a tree that is shared: copy it before you change it

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the file, without their ends."""
        return _lines_of(self.text)


class TextError(Exception):
    """A function has no text. Callers raise an error of their own from `reason`; the message is a whole sentence."""

    def __init__(self, reason: Reason, message: str, file: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.reason: Final = reason
        self.file: Final = file
        self.line: Final = line


def text_of(function: object) -> FunctionText:
    """Return the text of a function.

    Parameters
    ----------
    function
        A function that was written with ``def`` or ``async def``. Its decorators may have been applied or not.

    Returns
    -------
    FunctionText
        The definition shows all decorators, and its nodes have the lines of the file.

    Raises
    ------
    TextError
        If it is another object or a lambda, if its text cannot be found or parsed, or if the text is not the one that
        the function was compiled from.
    """
    if not isinstance(function, FunctionType):
        raise TextError("kind", f"{function!r} is of type {type(function).__name__}, not a function written with `def`")
    code = function.__code__
    if code.co_name == "<lambda>":
        raise _error("lambda", code)
    text = text_in(code.co_filename, function)
    if not text.strip():  # of an empty file, `linecache` of Python 3.13 gives a line
        found = _in_file_of_module(function)
        if found is None:
            raise _error("absent", code)
        return found
    try:
        node = written(code, text)
    except RecursionError:
        raise _error("deep", code) from None
    if node is None:  # `<string>` may be the text of `python -c`, while the function comes from `exec`
        raise _error("absent" if code.co_filename == "<string>" else "changed", code)
    return FunctionText(code.co_filename, text, node)


def _error(reason: Reason, code: CodeType) -> TextError:
    file, line = code.co_filename, code.co_firstlineno
    return TextError(reason, f"{file}:{line}, {code.co_name}: {_REASONS[reason]}", file, line)


def text_in(file: str, function: FunctionType) -> str:
    """Return the whole text of a file that a function is in; empty if there is none."""
    linecache.checkcache(file)
    lines = linecache.getlines(file, function.__globals__)
    if not lines and file.startswith("<"):  # of `python -c` or of the REPL, which 3.13 keeps by code
        by_code: Callable[[CodeType], list[str]] | None = getattr(linecache, "_getlines_from_code", None)
        lines = [] if by_code is None else by_code(function.__code__)
    return "".join(lines)


def _in_file_of_module(function: FunctionType) -> FunctionText | None:
    """Return the text in the file of the function's module, which cloudpickle keeps; None if it is not there."""
    file = function.__globals__.get("__file__")
    text = text_in(file, function) if isinstance(file, str) else ""
    node = written(function.__code__, text)
    return None if node is None else FunctionText(str(file), text, node)


# -- definitions -----------------------------------------------------------------------------------------


def written(code: CodeType, text: str) -> Definition | None:
    """Return the definition in a text that a code was compiled from; None if there is none."""
    node = named(code, tree_of(text))
    return node if node is not None and _is_compiled_from(code, text) else None


def named(code: CodeType, tree: ast.Module) -> Definition | None:
    """Return the definition in a tree that has the name and the first line of a code; one line begins one at most."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != code.co_name:
            continue
        if first_line(node) == code.co_firstlineno:
            return node
    return None


@lru_cache(maxsize=8)  # the functions of a program's few files are asked for one after another
def tree_of(text: str) -> ast.Module:
    """Return the tree of a text, which is shared; empty if Python cannot read the text."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError):  # changed after its import: not finished, a NUL, too many brackets
        return ast.Module([], [])


def first_line(node: Definition | ast.ClassDef) -> int:
    """Return the line on which a definition begins, as its code has it: the first decorator's."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _is_compiled_from(code: CodeType, text: str) -> bool:
    """Tell whether a text compiles to a code; the whole text, since a module's imports change its code."""
    if any(name.startswith("@py") for name in (*code.co_names, *code.co_varnames)):
        return True  # pytest has rewritten its asserts, as it does in modules of tests: there is nothing to compare
    flags = code.co_flags & __future__.annotations.compiler_flag
    return any(
        (other.co_name, other.co_firstlineno) == (code.co_name, code.co_firstlineno) and _facts(other) == _facts(code)
        for other in _codes_of(text, flags)
    )


@lru_cache(maxsize=8)
def _codes_of(text: str, flags: int) -> tuple[CodeType, ...]:
    found = [compile(tree_of(text), "<text>", "exec", flags, dont_inherit=True)]
    for code in found:  # which grows
        found += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return tuple(found)


def _facts(code: CodeType) -> tuple[object, ...]:
    constants = [repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType)]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


# -- decorators and classes ------------------------------------------------------------------------------


class Decorators(NamedTuple):
    """The decorators of a definition around the one that is being applied, each in the order of the text."""

    above: tuple[ast.expr, ...]  # applied later
    own: ast.expr | None  # None: it is called, not written above the definition
    below: tuple[ast.expr, ...]  # applied already


def decorators_around(node: Definition | ast.ClassDef, line: int) -> Decorators:
    """Return the decorators above and below the one that is being applied.

    Parameters
    ----------
    node
        The definition, which shows all of them.
    line
        The line of the frame that calls the decorator (`f_lineno`), in the file of the definition. Python applies a
        decorator at the line of its expression.

    Returns
    -------
    Decorators
        If no decorator is on the line, the decorator was called like any function: all others are `above`.
    """
    every = tuple(node.decorator_list)
    for place, one in enumerate(every):
        if one.lineno <= line <= (one.end_lineno or one.lineno):
            return Decorators(every[:place], one, every[place + 1 :])
    return Decorators(every, None, ())


def functions_of(kind: type) -> Iterator[tuple[str, FunctionType, Callable[[FunctionType], object]]]:
    """Yield the functions that a class defines: the attribute's name, the function, and how the attribute wraps it.

    Static and class methods and the functions of properties are among them. A function that is defined elsewhere, and
    an attribute that some other decorator made, are not.
    """
    for name, value in list(vars(kind).items()):
        if isinstance(value, FunctionType) and _is_of(value, kind):
            yield name, value, _itself
        elif isinstance(value, (staticmethod, classmethod)):
            inner: object = value.__func__
            if isinstance(inner, FunctionType) and _is_of(inner, kind):
                yield name, inner, type(value)
        elif type(value) is property:
            for part in ("fget", "fset", "fdel"):
                inner = getattr(value, part)
                if isinstance(inner, FunctionType) and _is_of(inner, kind):
                    yield name, inner, _setter(kind, name, part)


def _is_of(function: FunctionType, kind: type) -> bool:
    return function.__module__ == kind.__module__ and function.__qualname__.startswith(f"{kind.__qualname__}.")


def _itself(function: FunctionType) -> object:
    return function


def _setter(kind: type, name: str, part: str) -> Callable[[FunctionType], object]:
    def made(function: FunctionType) -> object:
        old = vars(kind)[name]  # with the parts that were changed before
        parts = {"fget": old.fget, "fset": old.fset, "fdel": old.fdel, part: function}
        return property(**parts, doc=old.__doc__)

    return made


# -- lines and columns -----------------------------------------------------------------------------------


def column_of(line: str, column_in_bytes: int) -> int:
    """Return a column of a tree, which counts bytes of UTF-8, as characters of its line."""
    return column_in_bytes if line.isascii() else len(line.encode()[:column_in_bytes].decode(errors="replace"))


@lru_cache(maxsize=8)
def _lines_of(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n"))


def segment_of(node: ast.expr, lines: Sequence[str]) -> str:
    """Return the text of an expression, which may have several lines."""
    last = node.end_lineno or node.lineno
    rows = list(lines[node.lineno - 1 : last])
    rows[-1] = rows[-1][: column_of(rows[-1], node.end_col_offset or 0)]
    rows[0] = rows[0][column_of(rows[0], node.col_offset) :]
    return "\n".join(rows)


def columns_of(node: ast.AST, line: str) -> tuple[int, int]:
    """Return where a node begins on its first line, and where it ends there; its end if it goes on below."""
    begin, end = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None)
    is_one_line = getattr(node, "end_lineno", None) == getattr(node, "lineno", None)
    return column_of(line, begin), column_of(line, end) if is_one_line and end else len(line)


def marked(file: str, number: int, line: str, begin: int = 0, end: int | None = None) -> str:
    """Return a line of a file as Python shows that of a `SyntaxError`, with carets under characters of it."""
    text = line.strip()
    indent = len(line) - len(line.lstrip())
    first = max(begin - indent, 0)
    width = (len(text) if end is None else min(end - indent, len(text))) - first
    return f'  File "{file}", line {number}\n    {text}\n    {" " * first}{"^" * max(width, 1)}'


def copied(node: _Node) -> _Node:
    """Return a copy of a tree that may be changed; `copy.deepcopy` takes five times as long.

    A node without fields, such as `ast.Load()`, is in the copy itself: Python's own trees share it.
    """
    names = vars(node)
    if not names:
        return node
    new = type(node).__new__(type(node))
    into = vars(new)
    into.update(names)
    for name, value in names.items():
        kind = type(value)
        if kind is list:
            into[name] = [copied(one) if isinstance(one, ast.AST) else one for one in value]
        elif kind is not int and kind is not str and isinstance(value, ast.AST):
            into[name] = copied(value)
    return new


_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")


def framed(node: _Node) -> _Node:
    """Return a copy of a definition whose blocks may be changed: lists of statements, ``with`` items and decorators.

    It shares simple statements, expressions and the bodies of nested functions and classes with the original, so they
    must not be changed. That takes a fifth of the time of `copied`.
    """
    new = _shallow(node)
    names = vars(new)
    for name in _BLOCKS:
        if parts := names.get(name):
            names[name] = [_FRAMED[kind](one) if (kind := type(one)) in _FRAMED else one for one in parts]
    if "items" in names:
        names["items"] = [_shallow(item) for item in names["items"]]
    return new


def _framed_scope(node: Any) -> Any:
    """Return a copy of a nested function or class whose decorators may be changed."""
    new = _shallow(node)
    new.decorator_list = [*node.decorator_list]
    return new


def _shallow(node: _Node) -> _Node:
    new = type(node).__new__(type(node))
    vars(new).update(vars(node))
    return new


_WITH_BLOCKS: Final = (
    ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
    ast.ExceptHandler, ast.match_case,
)  # fmt: skip
_FRAMED: Final[dict[type, Callable[[Any], Any]]] = {
    **dict.fromkeys(_WITH_BLOCKS, framed),
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), _framed_scope),
}
"""How parts of a block are copied; others are shared."""
