"""Liveness: which variables the code after a place may read before it assigns them.

The pass goes backwards over statements and keeps the set of live names. It is conservative: a name counts as live if
some path may read it. Loops repeat until nothing changes. In a ``try``, an exception may come from any statement, so
the names that its handlers read are live in all of the body. A nested function reads its free names where it is
defined; a caller that cannot say when it runs looks at `offload.pragma.names.NameUse.is_nested` as well.

A directive's block is code of its own kind. `BlockFlow` says for each which names it takes, keeps and hides.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from offload.pragma.names import BindingKind, Scanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Names = frozenset[str]
NONE: Final[Names] = frozenset()


class BlockFlow(NamedTuple):
    """The effect of a directive on the variables around it."""

    reads: Names = NONE  # the names whose values its clauses take where it stands
    binds: Names = NONE  # the names that it binds there
    own: Names = NONE  # variables of its block that hide those around it
    is_sure: bool = (
        True  # whether the block's assignments are the variables' last values when the block has been passed
    )
    kept: Names = NONE  # if not: the names whose values leave the block
    is_nest: bool = False  # whether no value of an assignment in the block leaves it at all


class Liveness:
    """The live names at places of a function.

    Parameters
    ----------
    blocks : mapping of int to BlockFlow
        The directives, by the identity of their statements.

    Attributes
    ----------
    after : dict of int to frozenset of str
        The names that are live after each directive's statement, by its identity.
    """

    def __init__(self, blocks: Mapping[int, BlockFlow]) -> None:
        self._blocks = blocks
        self.after: dict[int, Names] = {}
        self._ends: tuple[Names, Names] = NONE, NONE  # live after `break`, and after `continue`
        self._failed = NONE  # live where an exception goes

    def block(self, statements: Sequence[ast.stmt], out: Names) -> Names:
        """Return the names that are live before statements, given those that are live after them."""
        for node in reversed(statements):
            flow = self._blocks.get(id(node))
            if flow is not None:
                self.after[id(node)] = self.after.get(id(node), NONE) | out
                out = self._directive(node, flow, out)
            else:
                follow = self._follow.get(node.__class__)
                out = self._simple(node, out) if follow is None else follow(self, node, out)
            out |= self._failed
        return out

    def _directive(self, node: Any, flow: BlockFlow, out: Names) -> Names:
        body = getattr(node, "body", [])
        if flow.is_nest:
            return flow.reads | (self.block(body, NONE) - flow.own) | out
        if not flow.is_sure:
            return flow.reads | (self.block(body, out | flow.kept) - flow.own) | out
        inside = self.block(body, out - flow.own) - flow.own
        return flow.reads | ((inside | (out & flow.own)) - flow.binds)

    # -- statements ----------------------------------------------------------------------------------
    def _simple(self, node: ast.stmt, out: Names) -> Names:
        return (out - _assigned(node)) | reads_of([node])

    def _if(self, node: ast.If, out: Names) -> Names:
        return reads_of([node.test]) | self.block(node.body, out) | self.block(node.orelse, out)

    def _for(self, node: ast.For | ast.AsyncFor, out: Names) -> Names:
        head = self._loop(node.body, self.block(node.orelse, out), out, _targets([node.target]))
        return reads_of([node.iter]) | reads_of([node.target]) | head

    def _while(self, node: ast.While, out: Names) -> Names:
        is_endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        end = NONE if is_endless else self.block(node.orelse, out)
        return self._loop(node.body, end | reads_of([node.test]), out, NONE)

    def _loop(self, body: Sequence[ast.stmt], end: Names, out: Names, bound: Names) -> Names:
        """Return the names that are live at the head of a loop; ``end`` are those where it ends without `break`."""
        around = self._ends
        head, inside = end, None
        while inside is None or not inside <= head:
            head = head if inside is None else head | inside
            self._ends = out, head
            inside = self.block(body, head) - bound
        self._ends = around
        return head

    def _with(self, node: ast.With | ast.AsyncWith, out: Names) -> Names:
        out = self.block(node.body, out)
        for item in reversed(node.items):
            if item.optional_vars is not None:
                out = (out - _targets([item.optional_vars])) | reads_of([item.optional_vars])
            out |= reads_of([item.context_expr])
        return out

    def _try(self, node: Any, out: Names) -> Names:
        around = self._failed
        out = self.block(node.finalbody, out)
        self._failed = raised = self.block(node.finalbody, around)
        caught = NONE
        for handler in node.handlers:
            caught |= self.block(handler.body, out) - {handler.name}
            caught |= reads_of([handler.type] if handler.type is not None else [])
        out = self.block(node.orelse, out)
        self._failed = raised | caught
        out = self.block(node.body, out) | self._failed
        self._failed = around
        return out

    def _match(self, node: ast.Match, out: Names) -> Names:
        found = out | reads_of([node.subject])
        for case in node.cases:
            found |= self.block(case.body, out) | reads_of([case.pattern])
            found |= reads_of([case.guard] if case.guard is not None else [])
        return found

    def _leave(self, node: ast.Return | ast.Raise, out: Names) -> Names:
        return reads_of([node])

    def _break(self, node: ast.Break, out: Names) -> Names:
        return self._ends[0]

    def _continue(self, node: ast.Continue, out: Names) -> Names:
        return self._ends[1]

    _follow: Final[dict[type[ast.AST], Callable[[Any, Any, Names], Names]]] = {  # never changed
        ast.If: _if,
        ast.For: _for,
        ast.AsyncFor: _for,
        ast.While: _while,
        ast.With: _with,
        ast.AsyncWith: _with,
        ast.Try: _try,
        ast.TryStar: _try,
        ast.Match: _match,
        ast.Return: _leave,
        ast.Raise: _leave,
        ast.Break: _break,
        ast.Continue: _continue,
    }
    """The method for each class of statements with parts, or that lead elsewhere."""


def live_before(statements: Sequence[ast.stmt]) -> Names:
    """Return the names that statements may read before they assign them."""
    return Liveness({}).block(statements, NONE)


def reads_of(nodes: Iterable[ast.AST]) -> Names:
    """Return the names that statements or expressions read; nested functions read their free names."""
    scanner = Scanner()
    for node in nodes:
        scanner.visit(node)
    return frozenset([name for name, use in scanner.uses.items() if use.loads or BindingKind.AUGMENTED in use.bindings])


def _assigned(node: Any) -> Names:
    """Return the names to which a simple statement, or a definition, surely gives values, or takes them away."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        return _targets(node.targets)
    if isinstance(node, ast.AnnAssign):
        return _targets([node.target]) if node.value is not None else NONE
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return frozenset([node.name])
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return frozenset([alias.asname or alias.name.partition(".")[0] for alias in node.names])
    return NONE


def _targets(nodes: Iterable[ast.AST]) -> Names:
    """Return the names in targets."""
    found: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, (ast.Tuple, ast.List)):
            pending += node.elts
        elif isinstance(node, ast.Starred):
            pending.append(node.value)
    return frozenset(found)
