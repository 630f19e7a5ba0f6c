"""Updates of one variable by one operator, as a reduction or an atomic one asks for: how they are written.

The tree alone identifies an update: the updated variable is on both sides, once on the right, where an operator may be
moved to the end: ``s += e``, ``s = s + e - f``, ``s = e + s``, ``s = min(s, e)``, ``if e < s: s = e``,
``s = e if e < s else s``, ``s = s and e``. Its terms are the values that the variable is combined with, in Python's
order; a term is *taken away* where the text has ``-``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from offload.loops.tree import ir

# Tells what is updated, if an expression is that.
Item = Callable[[ast.expr], str | None]

# Tells which known function an expression stands for, if it does.
Function = Callable[[ast.expr], str | None]

_OPERATORS: Final[dict[type[ast.operator], ir.ReductionOperator]] = {
    ast.Add: "+",
    ast.Sub: "+",
    ast.Mult: "*",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


@dataclass(frozen=True, slots=True)
class UpdateTerm:
    """A value that a variable is combined with."""

    node: ast.expr
    is_taken_away: bool = False  # it is subtracted


@dataclass(frozen=True, slots=True)
class ItemUpdate:
    """An update; `is_in_place` is ``op=``, which changes an array where ``=`` gives a name a new value."""

    name: str
    operator: ir.ReductionOperator
    terms: tuple[UpdateTerm, ...]  # that are combined onto the item
    is_in_place: bool = False  # written ``+=``


def update_of(node: ast.stmt, item: Item, function: Function) -> ItemUpdate | None:
    """Return the update that a statement is, None if it is none."""
    match node:
        case ast.AugAssign(target=target, op=word, value=value):
            name, operator = item(target), _OPERATORS.get(type(word))
            if name is None or operator is None:
                return None
            update = ItemUpdate(name, operator, (UpdateTerm(value, isinstance(word, ast.Sub)),), is_in_place=True)
        case ast.Assign(targets=[target], value=value):
            name = item(target)
            found = None if name is None else _combined(value, name, item, function)
            if name is None or found is None:
                return None
            update = ItemUpdate(name, *found)
        case ast.If(test=ast.Compare() as test, body=[ast.Assign(targets=[target], value=value)], orelse=[]):
            name = item(target)
            chosen = None if name is None else _chosen(test, value, name, item)
            if name is None or chosen is None:
                return None
            update = ItemUpdate(name, chosen, (UpdateTerm(value),))
        case _:
            return None
    return None if any(_mentions(term.node, update.name, item) for term in update.terms) else update


def _combined(
    value: ast.expr, name: str, item: Item, function: Function
) -> tuple[ir.ReductionOperator, tuple[UpdateTerm, ...]] | None:
    match value:
        case ast.BinOp():
            return _chained(value, name, item)
        case ast.BoolOp(op=word, values=values):
            if name not in (item(values[0]), item(values[-1])):
                return None
            others = values[1:] if item(values[0]) == name else values[:-1]
            return ("or" if isinstance(word, ast.Or) else "and"), tuple(UpdateTerm(other) for other in others)
        case ast.Call(func=called, args=[_, _, *_] as arguments, keywords=[]):
            least = function(called)
            others = [argument for argument in arguments if item(argument) != name]
            if least not in ("min", "max") or len(others) != len(arguments) - 1:
                return None
            return ("min" if least == "min" else "max"), tuple(UpdateTerm(other) for other in others)
        case ast.IfExp(test=ast.Compare() as test, body=body, orelse=orelse):
            if item(orelse) == name and (chosen := _chosen(test, body, name, item)) is not None:
                return chosen, (UpdateTerm(body),)
            if item(body) == name and (chosen := _chosen(test, orelse, name, item)) is not None:
                return ("max" if chosen == "min" else "min"), (UpdateTerm(orelse),)
            return None
        case _:
            return None


def _chained(value: ast.BinOp, name: str, item: Item) -> tuple[ir.ReductionOperator, tuple[UpdateTerm, ...]] | None:
    operator = _OPERATORS.get(type(value.op))
    if operator is None:
        return None
    if item(value.right) == name:
        return None if isinstance(value.op, ast.Sub) else (operator, (UpdateTerm(value.left),))
    terms: list[UpdateTerm] = []
    left: ast.expr = value
    while isinstance(left, ast.BinOp) and _OPERATORS.get(type(left.op)) == operator and item(left) != name:
        terms.append(UpdateTerm(left.right, isinstance(left.op, ast.Sub)))
        left = left.left
    return (operator, tuple(reversed(terms))) if item(left) == name else None


def _chosen(test: ast.Compare, value: ast.expr, name: str, item: Item) -> ir.ReductionOperator | None:
    """Return whether the less or the greater of a variable and a value is the value where a test holds."""
    if len(test.ops) != 1:
        return None
    right = test.comparators[0]
    if item(right) == name and ast.dump(test.left) == ast.dump(value):
        value_is_left = True
    elif item(test.left) == name and ast.dump(right) == ast.dump(value):
        value_is_left = False
    else:
        return None
    match test.ops[0]:
        case ast.Lt() | ast.LtE():
            return "min" if value_is_left else "max"
        case ast.Gt() | ast.GtE():
            return "max" if value_is_left else "min"
        case _:
            return None


def _mentions(node: ast.expr, name: str, item: Item) -> bool:
    return any(isinstance(part, ast.expr) and item(part) == name for part in ast.walk(node))


def updated_only(statements: list[ast.stmt], function: Function) -> dict[str, ir.ReductionOperator]:
    """Return the variables that statements use in updates by one operator and in no other way, with that operator."""
    operators: dict[str, set[ir.ReductionOperator]] = {}
    n_in_updates: dict[str, int] = {}
    n_uses: dict[str, int] = {}
    pending: list[ast.AST] = list(reversed(statements))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            n_uses[node.id] = n_uses.get(node.id, 0) + 1
        update = update_of(node, _own_name, function) if isinstance(node, ast.stmt) else None
        if update is not None:
            operators.setdefault(update.name, set()).add(update.operator)
            uses = sum(isinstance(part, ast.Name) and part.id == update.name for part in ast.walk(node))
            n_in_updates[update.name] = n_in_updates.get(update.name, 0) + uses
        pending.extend(ast.iter_child_nodes(node))
    return {
        name: next(iter(found))
        for name, found in operators.items()
        if len(found) == 1 and n_in_updates[name] == n_uses[name]
    }


def _own_name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None
