"""Uses of a name or of an attribute's path in a block: to find them, and to put another name in their place."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.pragma.names import free_names
from offload.pragma.syntax import Member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.pragma.syntax import Item


def bare_uses(body: list[ast.stmt], name: str) -> list[ast.Name]:
    """Return the places in statements that read a name without a subscript, in the order of the text."""
    found: list[ast.Name] = []
    for statement in body:
        found += _bare(statement, name)
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _bare(node: ast.AST, name: str) -> Iterator[ast.Name]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and child.id == name:
            is_indexed = isinstance(node, ast.Subscript) and node.value is child
            is_read = isinstance(child.ctx, ast.Load) or isinstance(node, ast.AugAssign)
            if is_read and not is_indexed:
                yield child
        else:
            yield from _bare(child, name)


class Path(NamedTuple):
    """A name with members: ``self.x``."""

    name: str
    members: tuple[str, ...]

    def replaced(self, body: list[ast.stmt], name: str) -> list[ast.stmt]:
        """Return statements in which a name stands for the path wherever it is read."""
        replacer = _Replacer(self, name)
        return [replacer.visit(statement) for statement in body]

    def expression(self) -> ast.expr:
        """Return an expression for the path."""
        found: ast.expr = ast.Name(self.name, ast.Load())
        for member in self.members:
            found = ast.Attribute(found, member, ast.Load())
        return found

    def first_binding(self, body: list[ast.stmt]) -> ast.Attribute | None:
        """Return the first place that binds the path to another object; ``+=`` changes an array in place."""
        nodes = [node for statement in body for node in ast.walk(statement)]
        in_place = {id(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
        bound = [node for node in nodes if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)]
        return next((node for node in bound if id(node) not in in_place and _path_of(node) == self), None)


class _Replacer(ast.NodeTransformer):
    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._is_bound = False  # in the innermost function

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:  # the name that NodeTransformer calls
        if isinstance(node.ctx, ast.Load) and _path_of(node) == self._path:
            return ast.copy_location(ast.Name(self._name, ast.Load()), node)
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:  # as above
        if isinstance(node.target, ast.Attribute) and _path_of(node.target) == self._path:
            node.target = ast.copy_location(ast.Name(self._name, ast.Store()), node.target)
            self._is_bound = True
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: Any) -> Any:
        outer, self._is_bound = self._is_bound, False
        self.generic_visit(node)
        if self._is_bound:  # the name is a variable of the block
            first = 1 if ast.get_docstring(node, clean=False) is not None else 0
            node.body.insert(first, ast.copy_location(ast.Nonlocal([self._name]), node.body[0]))
        self._is_bound = outer
        return node

    def visit_AsyncFunctionDef(self, node: Any) -> Any:  # as above
        return self.visit_FunctionDef(node)


def _path_of(node: ast.expr) -> Path | None:
    members: list[str] = []
    while isinstance(node, ast.Attribute):
        members.insert(0, node.attr)
        node = node.value
    return Path(node.id, tuple(members)) if isinstance(node, ast.Name) else None


def path_uses(item: Item) -> Path | None:
    """Return the path that an item begins with; None if its name has no member right after it."""
    members: list[str] = []
    for step in item.steps:
        if not isinstance(step, Member):
            break
        members.append(step.name)
    return Path(item.name, tuple(members)) if members else None


def with_super(body: list[ast.stmt], first: str) -> list[ast.stmt]:
    """Return statements in which ``super()`` names the class and the object: the function may have other parameters."""
    replacer = _Supers(first)
    return [replacer.visit(statement) for statement in body]


class _Supers(ast.NodeTransformer):
    def __init__(self, first: str) -> None:
        self._first = first

    def visit_Call(self, node: ast.Call) -> ast.AST:  # the name that NodeTransformer calls
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not (node.args or node.keywords):
            given = [ast.Name(name, ast.Load()) for name in ("__class__", self._first)]
            node.args = [ast.copy_location(one, node) for one in given]
        return node

    def visit(self, node: Any) -> Any:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return node  # it has a first parameter of its own
        return super().visit(node)


def renamed(body: list[ast.stmt], old: str, new: str) -> list[ast.stmt]:
    """Return statements in which a name of the function has another name, also where nested functions use it."""
    renamer = _Renamer(old, new)
    return [renamer.visit(statement) for statement in body]


class _Renamer(ast.NodeTransformer):
    def __init__(self, old: str, new: str) -> None:
        self._old = old
        self._new = new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == self._old:
            node.id = self._new
        return node

    def visit(self, node: Any) -> Any:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            own = free_names(node)
            if self._old in own.bound | own.declared_global:
                return node  # its own variable
        return super().visit(node)
