"""The names in a nest of loops: which an iteration may read before it assigns them.

The pass is conservative. A name counts as read first if some path through an iteration reads it without having assigned
it. Branches join: only names that both have assigned count as assigned after them. A loop may have no trip.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# The names with a value at a point of the text; None where no path leads.
State: TypeAlias = frozenset[str] | None

# Attributes of arrays, numbers and array types, which loops know.
_OF_VALUES: Final = frozenset({"shape", "size", "ndim", "real", "imag", "span", "thread", "offset"})
_SHAPES: Final = frozenset({"shape", "size", "ndim"})


@dataclass(slots=True)
class IterationNames:
    """The names of a nest."""

    counted: set[str] = field(default_factory=set)  # variables of loops
    stored: set[str] = field(default_factory=set)  # assigned, variables of loops aside
    read: set[str] = field(default_factory=set)
    exposed: set[str] = field(default_factory=set)  # those that may be read before they are assigned

    # -- the flow

    def block(self, statements: Iterable[ast.stmt], state: State) -> State:
        """Follow statements."""
        for node in statements:
            state = self._statement(node, state)
        return state

    def _statement(self, node: ast.stmt, state: State) -> State:
        match node:
            case ast.Assign(targets=targets, value=value):
                self.expression(value, state)
                return self._stores(targets, state)
            case ast.AugAssign(target=target, value=value):
                self.expression(target, state, is_read=True)
                self.expression(value, state)
                return self._stores([target], state)
            case ast.AnnAssign(target=target, value=value):
                if value is None:
                    return state
                self.expression(value, state)
                return self._stores([target], state)
            case ast.If():
                self.expression(node.test, state)
                return _joined(self.block(node.body, state), self.block(node.orelse, state))
            case ast.For():
                return self._for(node, state)
            case ast.While():
                self.expression(node.test, state)
                self.block(node.body, state)
                return _joined(state, self.block(node.orelse, state))
            case ast.Break() | ast.Continue() | ast.Return():
                return None
            case _:
                self.expression(node, state)
                return state

    def _for(self, node: ast.For, state: State) -> State:
        self.expression(node.iter, state)
        names = {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
        self.counted |= names
        self.block(node.body, None if state is None else state | names)
        return _joined(state, self.block(node.orelse, state))

    def _stores(self, targets: Iterable[ast.expr], state: State) -> State:
        names = set()
        for target in targets:
            if isinstance(target, (ast.Tuple, ast.List)):
                state = self._stores(target.elts, state)
            elif isinstance(target, ast.Name):
                names.add(target.id)
            else:
                self.expression(target, state)
        self.stored |= names
        return None if state is None else state | names

    def expression(self, node: ast.AST, state: State, *, is_read: bool = False) -> None:
        """Note the names that an expression reads."""
        names = {
            one.id for one in ast.walk(node) if isinstance(one, ast.Name) and (is_read or isinstance(one.ctx, ast.Load))
        }
        self.read |= names
        if state is not None:
            self.exposed |= names - state


def _joined(one: State, other: State) -> State:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def names_in(loop: ast.For, n_loops: int) -> IterationNames:
    """Return the names of a nest of so many associated loops."""
    found = IterationNames()
    state: frozenset[str] = frozenset()
    body: list[ast.stmt] = [loop]
    for _ in range(n_loops):
        inner = body[0]
        assert isinstance(inner, ast.For)  # `Inside` has checked it
        found.expression(inner.iter, state)
        names = {one.id for one in ast.walk(inner.target) if isinstance(one, ast.Name)}
        found.counted |= names
        state |= names
        body = inner.body
    found.block(body, state)
    return found


def indexed_in(loop: ast.For) -> frozenset[str]:
    """Return the names that a nest indexes, or asks for a shape: arrays."""
    called = {id(node.func) for node in ast.walk(loop) if isinstance(node, ast.Call)}
    found = set()
    for node in ast.walk(loop):
        match node:
            case ast.Subscript(value=ast.Name(id=name)) if id(node) not in called:
                found.add(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr in _SHAPES:
                found.add(name)
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
                found.add(name)
    return frozenset(found)


def without_members(loop: ast.For, is_object: Callable[[str], bool]) -> dict[str, tuple[str, ...]]:
    """Replace members of objects, such as ``self.x``, by names, in place; return the path that each name stands for.

    ``is_object`` tells which names may be objects: variables of the enclosing function.
    """
    assigned = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    taken = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name)}
    replacer = _Members(lambda name: name not in assigned and is_object(name), taken)
    replacer.visit(loop)
    return {name: path for path, name in replacer.names.items()}


class _Members(ast.NodeTransformer):
    def __init__(self, is_object: Callable[[str], bool], taken: set[str]) -> None:
        self._is_object = is_object
        self._taken = taken
        self.names: dict[tuple[str, ...], str] = {}

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:  # the name that NodeTransformer calls
        path = _path(node)
        if not path or not self._is_object(path[0]) or not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)  # type: ignore[return-value]  # an expression
        if node.attr in _OF_VALUES:
            if len(path) > 2:
                node.value = self.visit(node.value)
            return node
        name = self.names.get(path)
        if name is None:
            name = "_".join(path)
            while name in self._taken:
                name += "_"
            self._taken.add(name)
            self.names[path] = name
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:  # as above: a method is no value
        if isinstance(node.func, ast.Attribute) and _path(node.func):
            node.args = [self.visit(one) for one in node.args]
            node.keywords = [self.visit(one) for one in node.keywords]
            if isinstance(node.func.value, ast.Attribute):
                node.func.value = self.visit(node.func.value)
            return node
        return self.generic_visit(node)  # type: ignore[return-value]  # an expression


def _path(node: ast.expr) -> tuple[str, ...]:
    """Return a name and the members that follow it; nothing for another expression."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.insert(0, node.attr)
        node = node.value
    return (node.id, *words) if isinstance(node, ast.Name) else ()


def called_in(loop: ast.For) -> frozenset[str]:
    """Return the names that a nest calls, themselves or as the root of a subscript or an attribute."""
    found = set()
    for node in ast.walk(loop):
        if isinstance(node, ast.Call):
            root = node.func
            while isinstance(root, (ast.Subscript, ast.Attribute)):
                root = root.value
            if isinstance(root, ast.Name):
                found.add(root.id)
    return frozenset(found)


def called_by_attribute(loop: ast.For) -> frozenset[str]:
    """Return the names whose attributes a nest calls, as it calls functions of modules."""
    calls = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
    return frozenset(
        _path(function)[0] for function in calls if isinstance(function, ast.Attribute) and _path(function)
    )


def order_of(loop: ast.For) -> list[str]:
    """Return the names of a nest in the order of the text, each once."""
    return list(dict.fromkeys(_in_order(loop)))


def _in_order(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
