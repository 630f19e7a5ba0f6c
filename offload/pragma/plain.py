"""The text of a function without its directives: the program that CPython runs if they are left out."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.texts import Definition, FunctionText


def without_directives(text: FunctionText, spelling_of: Callable[[ast.expr], object]) -> Definition:
    """Return the definition of a function with each block in place of its ``with``, and no statement of a directive.

    Comments are no part of a definition. ``spelling_of`` tells whether an expression is `omp`, `acc` or the like.
    """
    stripper = _Stripper(spelling_of)
    made: Definition = stripper.visit(copy.deepcopy(text.definition))
    return made


class _Stripper(ast.NodeTransformer):
    def __init__(self, spelling_of: Callable[[ast.expr], object]) -> None:
        self._spelling_of = spelling_of

    def _is_directive(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self._spelling_of(node.func) is not None

    def visit_With(self, node: ast.With) -> Any:  # the name that NodeTransformer calls
        self.generic_visit(node)
        node.items = [item for item in node.items if not self._is_directive(item.context_expr)]
        return node if node.items else node.body

    def visit_AsyncWith(self, node: ast.AsyncWith) -> Any:  # as above
        return self.visit_With(node)  # type: ignore[arg-type]  # it has the same fields

    def visit_Expr(self, node: ast.Expr) -> Any:  # as above
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        return ast.copy_location(ast.Pass(), node) if self._is_directive(value) else node
