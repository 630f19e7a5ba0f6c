"""Small trees of Python that rewritten functions consist of. Nothing here runs anything.

Names that begin with a dot cannot collide with names of a program: Python's grammar has none, and its compiler takes
them. Parameters of a block's function are looked up by `inspect.signature`, so they need ordinary names.
"""

from __future__ import annotations

import ast
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Node = TypeVar("Node", bound=ast.AST)

LIBRARY: Final = ".items"
"""The free variable that holds `offload.pragma.items`."""
RUNTIME: Final = ".encounter"
"""The free variable that holds `offload.pragma.encounter`."""
MODULE: Final = ".module"
"""The free variable that stands for the function's module in locations of variables."""

LOAD: Final = ast.Load()  # one for all nodes, as in trees of Python's parser
STORE: Final = ast.Store()


def name(identifier: str) -> ast.Name:
    """Return an expression that reads a name."""
    return ast.Name(identifier, LOAD)


def member(value: ast.expr, word: str) -> ast.Attribute:
    """Return an expression that reads an attribute."""
    return ast.Attribute(value, word, LOAD)


def call(function: ast.expr, *arguments: ast.expr) -> ast.Call:
    """Return a call with arguments by position."""
    return ast.Call(function, list(arguments), [])


def tuple_of(values: Iterable[ast.expr]) -> ast.Tuple:
    """Return a tuple."""
    return ast.Tuple(list(values), LOAD)


def assign(identifier: str, value: ast.expr) -> ast.Assign:
    """Return a statement that binds a name."""
    return ast.Assign([ast.Name(identifier, STORE)], value)


def is_unbound(value: ast.expr, *, negated: bool = False) -> ast.Compare:
    """Return the comparison of a value with `UNBOUND`."""
    return ast.Compare(value, [ast.IsNot() if negated else ast.Is()], [member(name(LIBRARY), "UNBOUND")])


def guarded(target: str, source: str) -> ast.Try:
    """Return a statement that binds a name to the value of another one, or to `UNBOUND` if that has none."""
    handler = ast.ExceptHandler(name("NameError"), None, [assign(target, member(name(LIBRARY), "UNBOUND"))])
    return ast.Try([assign(target, name(source))], [handler], [], [])


def unbinding(identifier: str) -> ast.If:
    """Return a statement that unbinds a parameter whose argument is `UNBOUND`."""
    return ast.If(is_unbound(name(identifier)), [ast.Delete([ast.Name(identifier, ast.Del())])], [])


def declaring(names: Sequence[str]) -> ast.If:
    """Return a statement that never runs and makes names local variables of the function."""
    return ast.If(ast.Constant(value=False), [assign(one, ast.Constant(None)) for one in names], [])


def function(identifier: str, parameters: Sequence[str], body: list[ast.stmt]) -> ast.FunctionDef:
    """Return a definition with parameters by position."""
    arguments = ast.arguments([], [ast.arg(one) for one in parameters], None, [], [], None, [])
    return with_no_types(ast.FunctionDef(identifier, arguments, body, [], None, None))


def with_no_types(node: Node) -> Node:
    """Return a definition without type parameters, which have a field since Python 3.12."""
    if "type_params" in node._fields:
        node.type_params = []  # type: ignore[attr-defined]  # not in Python 3.11
    return node


def cell_of(identifier: str) -> ast.expr:
    """Return an expression for the cell of a variable, which stands for it in all functions that share it."""
    arguments = ast.arguments([], [], None, [], [], None, [])
    closure = member(ast.Lambda(arguments, name(identifier)), "__closure__")
    return ast.Subscript(closure, ast.Constant(0), LOAD)


_NO_NODES: Final = frozenset(
    {
        "ctx", "op", "ops", "kind", "type_comment", "attr", "id", "arg", "conversion", "is_async", "simple", "name",
        "names", "module", "level", "asname", "rest", "kwd_attrs", "lineno", "tag",
    }
)  # fmt: skip
"""Fields of nodes that hold strings, numbers, operators or aliases of an import."""


class _Parts(dict[Any, "Callable[[Any], tuple[Any, ...]]"]):
    """By the class of a node, a function that returns its parts: nodes, lists of nodes, and None; the last one first.

    Operators and contexts are no parts, nor are words.
    """

    def __missing__(self, kind: Any) -> Callable[[Any], tuple[Any, ...]]:
        names = [name for name in kind._fields if name not in _NO_NODES][::-1]
        found = attrgetter(*names) if len(names) > 1 else partial(_few_parts, names)
        self[kind] = found
        return found


def _few_parts(names: list[str], node: Any) -> tuple[Any, ...]:
    return (getattr(node, names[0]),) if names else ()


PARTS: Final = _Parts({ast.Constant: lambda _: ()})


def located(tree: Any, like: Any, stop: Sequence[Any] = ()) -> Any:
    """Give a tree, but not the parts of it that are in ``stop``, the first line of a node; return it."""
    line, column = like.lineno, like.col_offset
    end = like.end_col_offset if like.end_lineno == line else column + 1
    known = {*map(id, stop)}
    pending: list[Any] = [tree]
    for node in pending:  # which grows
        kind = node.__class__
        if kind is list:
            pending += node
        elif node is not None and not (known and id(node) in known):
            # Also of a node such as `ast.arguments`, which has no line and needs none.
            node.lineno = node.end_lineno = line
            node.col_offset = column
            node.end_col_offset = end
            if kind is not ast.Name:
                pending += PARTS[kind](node)
    return tree


def unused(wanted: str, taken: Iterable[str]) -> str:
    """Return a name that is not among others: the wanted one, or that with underscores."""
    names = set(taken)
    while wanted in names:
        wanted += "_"
    return wanted


def mangled(value: Any, kind: str) -> Any:
    """Return names, in nested tuples, as Python spells private ones in the body of a class; as they are without one."""
    if isinstance(value, tuple):
        return tuple([mangled(part, kind) for part in value])
    if kind and isinstance(value, str) and value.isidentifier() and value.startswith("__") and not value.endswith("__"):
        return f"_{kind.lstrip('_')}{value}"
    return value
