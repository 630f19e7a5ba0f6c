"""The names in a nest of loops: which an iteration may read before it assigns them.

The pass is conservative. A name counts as read first if some path through an iteration reads it without having assigned
it. Branches join: only names that both have assigned count as assigned after them. A loop may have no trip.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The names with a value at a point of the text; None where no path leads.
State: TypeAlias = frozenset[str] | None

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


def order_of(loop: ast.For) -> list[str]:
    """Return the names of a nest in the order of the text, each once."""
    return list(dict.fromkeys(_in_order(loop)))


def _in_order(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
