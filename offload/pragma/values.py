"""Expressions that evaluate the clauses of a directive where it stands, made of the parsed directive.

The expressions are trees of Python. They use the names of the program, and those of `offload.pragma.items`. All their
nodes still have the positions of the directive's string, so whoever puts them into a function gives them its lines.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final, Protocol

from offload.pragma.syntax import Member, Subscript, Triple
from offload.pragma.trees import LOAD, STORE
from offload.texts import copied

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.pragma.syntax import Clause, Item, Iterator, PythonText, Step

INDEX: Final = 0
TRIPLE: Final = 1
SLICE: Final = 2


class Naming(Protocol):
    """How an expression gets at the names of the place where a directive stands."""

    @property
    def library(self) -> ast.expr:
        """A new expression for the module `offload.pragma.items`."""

    def read(self, name: str) -> ast.expr:
        """Return an expression for the value of a bare name: `UNBOUND` if it has none. It may be evaluated twice."""

    def location(self, name: str) -> ast.expr:
        """Return an expression for the location of a variable in ``depend``: `items.variable` of this activation."""


def called(naming: Naming, function: str, *arguments: ast.expr, **keywords: ast.expr) -> ast.Call:
    """Return a call of a function of `offload.pragma.items`."""
    given = [ast.keyword(word, value) for word, value in keywords.items()]
    return ast.Call(looked_up(naming, function), list(arguments), given)


def looked_up(naming: Naming, name: str) -> ast.expr:
    """Return an expression for a name of `offload.pragma.items`."""
    return ast.Attribute(naming.library, name, LOAD)


def own_copy(expression: PythonText) -> ast.expr:
    """Return a copy of the tree of an expression, which belongs to the parser's cache."""
    node = expression.node
    return ast.Name(node.id, LOAD) if isinstance(node, ast.Name) else copied(node)


def constant(value: Any) -> ast.Constant:
    """Return an expression for a constant, which may be a tuple."""
    return ast.Constant(value)


def tuple_of(values: Iterable[ast.expr]) -> ast.Tuple:
    """Return an expression for a tuple."""
    return ast.Tuple(list(values), LOAD)


def list_of(values: Iterable[ast.expr]) -> ast.List:
    """Return an expression for a list."""
    return ast.List(list(values), LOAD)


# -- list items --------------------------------------------------------------------------------------


def form_of(item: Item) -> tuple[str, tuple[str | tuple[int, ...], ...]]:
    """Return the static part of an item with steps, as `items.part` takes it."""
    return item.text, tuple([_form_of_step(step) for step in item.steps])


def _form_of_step(step: Step) -> str | tuple[int, ...]:
    if isinstance(step, Member):
        return step.name
    return tuple([_kind_of(entry) for entry in step.dimensions])


def _kind_of(entry: PythonText | Triple) -> int:
    if not isinstance(entry, Triple):
        return INDEX
    return SLICE if entry.is_slice else TRIPLE


def steps_of(item: Item) -> list[ast.expr]:
    """Return expressions for the values in an item's subscripts, in order."""
    found: list[ast.expr] = []
    for step in item.steps:
        for entry in step.dimensions if isinstance(step, Subscript) else ():
            if isinstance(entry, Triple):
                parts = entry.lower, entry.length, entry.stride
                found += [ast.Constant(None) if part is None else own_copy(part) for part in parts]
            else:
                found.append(own_copy(entry))
    return found


def value_of(item: Item, naming: Naming) -> ast.expr:
    """Return an expression for the value of an item: an object, or the storage of a part of an array."""
    if not item.steps:
        return own_copy(item.root)
    return called(naming, "part", own_copy(item.root), constant(form_of(item)), *steps_of(item))


def part_of(item: Item, naming: Naming) -> ast.expr:
    """Return an expression for a `MappedPart`, of an item with steps in a data clause of a block."""
    form = constant(form_of(item))
    return called(naming, "mapped_part", own_copy(item.root), ast.Constant(item.root.text), form, *steps_of(item))


def location_of(item: Item, naming: Naming, iterators: frozenset[str] = frozenset()) -> ast.expr:
    """Return an expression for an item of ``depend``; a starred one if it may stand for several.

    ``iterators`` are names that iterators of the clause bind; such a name is a value, not a variable of the function.
    """
    if item.name == "omp_all_memory" and item.is_name:
        return looked_up(naming, "all_memory")
    if item.is_name and item.name not in iterators:
        kind = ast.Attribute(naming.read(item.name), "__class__", LOAD)
        is_variable = ast.Subscript(looked_up(naming, "IS_VARIABLE"), kind, LOAD)
        return ast.IfExp(is_variable, naming.location(item.name), naming.read(item.name))
    root = own_copy(item.root)
    if not item.steps:
        is_plain = isinstance(root, ast.Tuple) or (isinstance(root, ast.Constant) and not isinstance(root.value, str))
        return root if is_plain else called(naming, "own", root)
    step = item.steps[0]
    if len(item.steps) == 1 and isinstance(step, Subscript) and len(step.dimensions) == 1:
        entry = step.dimensions[0]
        if not isinstance(entry, Triple):
            return _starred(called(naming, "element", root, own_copy(entry), ast.Constant(item.text)))
        if not (entry.is_slice or entry.lower is None or entry.length is None or entry.stride is not None):
            bounds = own_copy(entry.lower), own_copy(entry.length)
            return called(naming, "section", root, *bounds, ast.Constant(item.text))
    return _starred(called(naming, "location", root, constant(form_of(item)), *steps_of(item)))


def _starred(value: ast.expr) -> ast.Starred:
    return ast.Starred(value, LOAD)


# -- clauses -----------------------------------------------------------------------------------------


def dependence_of(clause: Clause, naming: Naming) -> list[ast.expr]:
    """Return expressions for the elements of ``depend=[…]`` that a clause stands for."""
    if clause.kind == "depobj":
        return [own_copy(item.root) for item in clause.items]
    make = "in_" if clause.kind == "in" else clause.kind
    bound = frozenset(iterator.name for iterator in clause.iterators)
    items = [location_of(item, naming, bound) for item in clause.items]
    if clause.iterators:
        every = iterated(items, clause.iterators, naming)
        return [_starred(called(naming, "gathered", looked_up(naming, make), every))]
    return [called(naming, make, *items)]


def iterated(items: Sequence[ast.expr], iterators: tuple[Iterator, ...], naming: Naming) -> ast.expr:
    """Return a comprehension that gives the items for all values of iterators."""
    loops = []
    for iterator in iterators:
        bounds = [iterator.begin, iterator.end, *([iterator.step] if iterator.step is not None else [])]
        every = called(naming, "span", *map(own_copy, bounds))
        loops.append(ast.comprehension(ast.Name(iterator.name, STORE), every, [], 0))
    if len(items) == 1 and not isinstance(items[0], ast.Starred):
        return ast.ListComp(items[0], loops)
    name = "_item"
    loops.append(ast.comprehension(ast.Name(name, STORE), tuple_of(items), [], 0))
    return ast.ListComp(ast.Name(name, LOAD), loops)


def elements_of(clause: Clause, items: Sequence[ast.expr], naming: Naming) -> list[ast.expr]:
    """Return the elements of a display for the items of a clause; iterators give more than one each."""
    if clause.iterators and items:
        return [_starred(iterated(items, clause.iterators, naming))]
    return list(items)


_OF_CONSTANTS: Final = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Call)
"""The nodes that `ast.literal_eval` may take; a call is that of ``set()``."""


def constant_of(expression: PythonText) -> tuple[bool, Any]:
    """Return whether an expression is a constant of Python, and its value."""
    if not isinstance(expression.node, _OF_CONSTANTS):
        return False, None
    try:
        return True, ast.literal_eval(expression.node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None
