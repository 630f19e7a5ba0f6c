"""The line after which storage can be released: that of its last use, or the end of the statements around it."""

from __future__ import annotations

import ast
import linecache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import CodeType

    from offload.sanitizer.courses import Calls, Course


class LastUse(NamedTuple):
    """The last use of storage.

    Attributes
    ----------
    calls : tuple
        The program's lines at the construct that uses it, each with its code.
    is_waited_for : bool
        Whether the code there has waited for all uses.
    """

    calls: Calls
    is_waited_for: bool


def last_use(courses: Iterable[Course], is_before: Any) -> LastUse | None:
    """Return the last use, as the program has generated them; None if no task is among them.

    Parameters
    ----------
    courses : iterable of Course
        The courses that use the storage.
    is_before : callable
        Tells whether one stretch comes before another.
    """
    # Of a nested task the outermost one: the host thread has generated that.
    outer = [line[1] for line in (course.lineage() for course in courses) if len(line) > 1 and line[1].calls]
    if not outer:
        return None
    last = max(outer, key=lambda course: course.number)
    waited = last.is_waited_for and all(
        one.is_waited_for or (one.end >= 0 and is_before(one.end, last.start)) for one in outer
    )
    return LastUse(last.calls, waited)


def place_after(made: Calls, use: Calls) -> tuple[str, int]:
    """Return the file and the last line of the statement after which storage can be released.

    It is a statement of the function that has made the storage, if that is still there, and of the outermost one
    otherwise. A loop that uses storage made before it is a statement as a whole.
    """
    code, line = next(((code, line) for code, line in use if made and code is made[0][0]), use[-1])
    first = made[0][1] if made and made[0][0] is code else 0
    return code.co_filename, _end_of(code, line, first)


def _end_of(code: CodeType, line: int, made: int) -> int:
    """Return the end of the outermost statement at a line of a function, of those that the line ``made`` is not in."""
    block: Sequence[ast.stmt] = _body_of(code.co_filename, code.co_name, code.co_firstlineno)
    while True:
        found = next((one for one in block if _start_of(one) <= line <= (one.end_lineno or one.lineno)), None)
        if found is None:
            return line
        inner = [part for part in _blocks_of(found) if _holds(part, line) and _holds(part, made)]
        if not inner:
            return found.end_lineno or line
        block = inner[0]


def _body_of(file: str, name: str, first: int) -> Sequence[ast.stmt]:
    """Return the statements of a function, or of a module; none if its text cannot be found."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ()
    if name == "<module>":
        return tree.body
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _start_of(node) == first:
            return node.body
    return ()


def _start_of(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *[one.lineno for one in decorators]])


def _blocks_of(node: ast.AST) -> list[list[ast.stmt]]:
    """Return the blocks of a compound statement; a function that it defines has code of its own."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return []
    found = [getattr(node, name, ()) for name in ("body", "orelse", "finalbody")]
    parts = (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))
    return [block for block in (*found, *(part.body for part in parts)) if type(block) is list]


def _holds(block: Sequence[ast.stmt], line: int) -> bool:
    return bool(block) and _start_of(block[0]) <= line <= (block[-1].end_lineno or block[-1].lineno)
