"""The program with a mark before each statement, so that the record of its run knows the statement of each operation.

Theory of operation
-------------------
`marked` inserts calls of a recorder into a copy of the program's tree: one before each statement, one where a loop
returns to its head, and one at the entry and the exit of each function. They have the lines of the statements, so
tracebacks and the places in the log stay the same. The `MarkRecorder` keeps a stack of the calls that are in progress.
Each mark is one row: the statement, the activation of its function, the mark of the caller, and the values of the
statement's chains (`offload.port.chains`). Each operation of the log is given the mark that was current when it began.
So the analysis knows for each operation the statements that led to it, and can tell two rounds of a loop apart.

Generators and coroutines are not marked, since their frames do not nest. Neither are functions whose decorator reads
their source, such as Numba's.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from offload.port.chains import Chain, ChainReader, Held, chains_in
from offload.port.program import FUNCTIONS

if TYPE_CHECKING:
    from offload.port.chains import SectionOf
    from offload.port.log import PortLog
    from offload.port.program import ProgramText

RECORDER: Final = "__offload_porter__"
_READS_SOURCE: Final = ("jit", "njit", "fuse", "rawkernel", "vectorize", "guvectorize")
_NO_CHAINS: Final = (*FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass)


class StatementMark(NamedTuple):
    """A statement that the program came to."""

    statement: int  # its number in `numbered`
    activation: int  # of its function; 0 is the module's
    caller: int  # the mark that was current when the function was called; -1 for the module
    first: int  # the number of operations before it
    storages: int  # the number of storages before it
    held: tuple[tuple[Held | None, ...], ...] = ()  # for each chain, the values of its prefixes


@dataclass(slots=True)
class MarkedRun:
    """The marks of a run."""

    marks: list[StatementMark] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)  # for each operation of the log, its mark; -1 for none


def numbered(program: ProgramText) -> list[ast.stmt]:
    """Return all statements of a program, in reading order: the number of a statement is its index."""
    found = [node for node in ast.walk(program.tree) if isinstance(node, ast.stmt)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def is_markable(node: ast.AST, program: ProgramText) -> bool:
    """Tell whether the statements of a function or module get marks."""
    if isinstance(node, ast.AsyncFunctionDef) or (isinstance(node, FUNCTIONS) and _is_generator(node)):
        return False
    if isinstance(node, ast.FunctionDef):
        for decorator in node.decorator_list:
            name = program.segment(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name.rpartition(".")[2] in _READS_SOURCE:
                return False
    return True


def _is_generator(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in _own_nodes(node))


def _own_nodes(node: ast.AST) -> list[ast.AST]:
    """Return the nodes of a function, without those of the functions in it."""
    found, todo = [], list(ast.iter_child_nodes(node))
    while todo:
        part = todo.pop()
        found.append(part)
        if not isinstance(part, (*FUNCTIONS, ast.Lambda)):
            todo.extend(ast.iter_child_nodes(part))
    return found


def marked(program: ProgramText, statements: list[ast.stmt]) -> ast.Module:
    """Return a copy of the program's tree with marks."""
    return _Marker(program, statements).module()


class _Marker:
    """Inserts the marks."""

    def __init__(self, program: ProgramText, statements: list[ast.stmt]) -> None:
        self.program = program
        self.numbers = {id(node): number for number, node in enumerate(statements)}

    def module(self) -> ast.Module:
        tree = ast.Module(self.suite(self.program.tree.body, marks=True, loop=None, is_top=True), [])
        return ast.fix_missing_locations(tree)

    def suite(
        self, body: list[ast.stmt], *, marks: bool, loop: ast.stmt | None, is_top: bool = False
    ) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for index, node in enumerate(body):
            stays_first = is_top and (
                (index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
                or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
            )
            if marks and not stays_first:
                target = loop if isinstance(node, ast.Continue) and loop is not None else node
                found.append(self.call("at", node, self.numbers[id(target)]))
            found.append(self.statement(node, marks=marks, loop=loop))
        return found

    def statement(self, node: ast.stmt, *, marks: bool, loop: ast.stmt | None) -> Any:
        made = _shallow(node)
        if isinstance(node, FUNCTIONS):
            made.body = self.function(node)
            return made
        if isinstance(node, ast.ClassDef):
            made.body = self.suite(node.body, marks=False, loop=None)
            return made
        inner = node if isinstance(node, (ast.For, ast.While, ast.AsyncFor)) else loop
        for name in ("body", "orelse", "finalbody"):
            suite = getattr(node, name, None)
            if suite:
                is_loop = inner is node and name == "body"
                part = self.suite(suite, marks=marks, loop=inner if name == "body" else loop)
                if is_loop and marks:
                    part.append(self.call("at", node, self.numbers[id(node)]))
                setattr(made, name, part)
        for name in ("handlers", "cases"):
            if getattr(node, name, None):
                setattr(made, name, [self.clause(part, marks=marks, loop=loop) for part in getattr(node, name)])
        return made

    def clause(self, node: Any, *, marks: bool, loop: ast.stmt | None) -> Any:
        made = _shallow(node)
        made.body = self.suite(node.body, marks=marks, loop=loop)
        return made

    def function(self, node: Any) -> list[ast.stmt]:
        if not is_markable(node, self.program):
            return [self.statement(part, marks=False, loop=None) for part in node.body]
        body = self.suite(node.body, marks=True, loop=None, is_top=True)
        n_first = int(isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant))
        guarded = ast.Try(body[n_first:], [], [], [self.call("leave", node)])
        if not body[n_first:]:
            return body
        return [*body[:n_first], self.call("enter", node), ast.copy_location(guarded, node)]

    def call(self, what: str, node: ast.stmt, *args: int) -> ast.stmt:
        function = ast.Attribute(ast.Name(RECORDER, ast.Load()), what, ast.Load())
        call = ast.Expr(ast.Call(function, [ast.Constant(arg) for arg in args], []))
        for part in ast.walk(call):
            if isinstance(part, (ast.expr, ast.stmt)):
                ast.copy_location(part, node)
                part.end_lineno, part.end_col_offset = node.lineno, node.col_offset
        return call


def _shallow(node: Any) -> Any:
    """Return a copy of a node that has the original's fields."""
    made = type(node)(**dict(ast.iter_fields(node)))
    if hasattr(node, "lineno"):
        ast.copy_location(made, node)
    return made


class MarkRecorder:
    """Receives the marks while the program runs.

    Parameters
    ----------
    program : ProgramText
        The program.
    statements : list of ast.stmt
        Its statements, `numbered`.
    section_of : callable
        The section of an array of the program, in the numbers of the log.
    log : PortLog
        The record of the run.
    """

    def __init__(self, program: ProgramText, statements: list[ast.stmt], section_of: SectionOf, log: PortLog) -> None:
        self.run = MarkedRun()
        self._section_of = section_of
        self._operations = log.operations
        self._storages = log.storages
        self._readers = [[ChainReader(chain) for chain in chains_of(node)] for node in statements]
        self._stack: list[tuple[int, int]] = [(0, -1)]  # activations, and the marks that were current at their calls
        self._current = -1
        self._saved: list[int] = []
        self._n_activations = 0
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @property
    def current(self) -> int:
        """The mark of the statement that runs now; -1 before the first."""
        return self._current

    def at(self, number: int) -> None:
        """Note that the program comes to a statement."""
        activation, caller = self._stack[-1]
        self.settle()
        held: tuple[Any, ...] = ()
        readers = self._readers[number]
        if readers:
            frame = sys._getframe(1)  # noqa: SLF001  # the program's
            variables, namespace = frame.f_locals, frame.f_globals
            held = tuple([reader.held(variables, namespace, self._section_of) for reader in readers])
            held = self._known.setdefault(held, held)  # a loop comes to the same arrays again
        self._current = len(self.run.marks)
        self.run.marks.append(
            StatementMark(number, activation, caller, len(self._operations), len(self._storages), held)
        )

    def enter(self) -> None:
        """Note that a function begins."""
        self.settle()
        self._n_activations += 1
        self._stack.append((self._n_activations, self._current))
        self._saved.append(self._current)

    def leave(self) -> None:
        """Note that a function ends."""
        self.settle()
        self._stack.pop()
        self._current = self._saved.pop()

    def settle(self) -> None:
        """Give the operations since the last mark their owner."""
        owners = self.run.owners
        missing = len(self._operations) - len(owners)
        if missing:
            owners.extend([self._current] * missing)


def chains_of(statement: ast.stmt) -> list[Chain]:
    """Return the chains whose values the marks of a statement have."""
    return [] if isinstance(statement, _NO_CHAINS) else list(chains_in(statement))
