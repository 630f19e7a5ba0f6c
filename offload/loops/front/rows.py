"""Rows: views of arrays that a function names, or receives from its caller.

A row is text, not a value: an element of it becomes an element of its array, with the row's indices and its own. So all
later passes see one access of the whole array, as if the program had written the indices out. Python evaluates a row's
indices once. Therefore an index that could change while a name stands for the row is kept in a variable.

No types are known here, so ``x = a[i]`` may be a row or a number. `arrays_in` decides by the uses of ``x``.
"""

from __future__ import annotations

import ast
from math import prod
from typing import TYPE_CHECKING

from offload.errors import LoopError
from offload.loops.front.frames import LocalArray, Parameter, Row
from offload.loops.front.source import FunctionSource, KnownName, Plain
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.text import row_remedy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FunctionType

    from offload.loops.front.frames import Frame

# -- which names are arrays ---------------------------------------------------------------------------


def uses_as_array(frame: Frame, name: str) -> bool:
    """Tell whether the text of a frame's function uses one of its names as an array."""
    return name in arrays_in(frame.source, frame.lowering.indexed)


def arrays_in(source: FunctionSource, known: dict[FunctionType, frozenset[str]]) -> frozenset[str]:
    """Return the names that a function indexes, whose shape it asks for, or that it passes to functions that do so.

    ``known`` keeps the answers. A function that calls itself, which no loop can, gets a preliminary one.
    """
    if source.function in known:
        return known[source.function]
    known[source.function] = frozenset()
    found: set[str] = set()
    aliases: list[tuple[str, str]] = []
    for node in ast.walk(source.definition):
        match node:
            case ast.Subscript(value=ast.Name(id=name)):
                found.add(name)
            case ast.Attribute(value=ast.Name(id=name), attr="shape" | "size" | "ndim"):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Name(id=name)):
                aliases.append((target, name))
            case ast.Call():
                found.update(_passed(source, node, known))
    for _ in aliases:
        found |= {name for target, name in aliases if target in found}
    known[source.function] = frozenset(found)
    return known[source.function]


def _passed(source: FunctionSource, call: ast.Call, known: dict[FunctionType, frozenset[str]]) -> Iterator[str]:
    """Yield the names that a call passes as arrays."""
    first = call.args[0] if call.args else None
    match source.meant(call.func):
        case KnownName(name) if name == "len" or name.startswith("offload.atomic."):
            if isinstance(first, ast.Name):
                yield first.id
        case Plain(function):
            try:
                called = FunctionSource.of(function)
            except LoopError:  # which the call reports
                return
            arrays = arrays_in(called, known)
            given = [*zip(called.by_position, call.args, strict=False)]
            given += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None]
            yield from (value.id for name, value in given if name in arrays and isinstance(value, ast.Name))


# -- names for rows -----------------------------------------------------------------------------------


def captured(frame: Frame, row: Row, name: str) -> Row:
    """Return a row whose indices keep their present values while `name` stands for it."""
    places = [place if place is None or _is_steady(frame, place) else frame.named(place, name) for place in row.places]
    return Row(row.array, tuple(places))


def _is_steady(frame: Frame, index: ir.Expression) -> bool:
    """Tell whether an index has one value while the present statement's block runs, and is quick to compute again."""
    for node in walk(index):
        match node:
            case ir.Constant() | ir.Extent() | ir.Binary(operator="+" | "-" | "*") | ir.Unary(operator="-"):
                pass
            case ir.Name(name=name) if name in frame.lowering.steady:
                pass
            case _:
                return False
    return True


def check_row(frame: Frame, node: ast.expr, name: str) -> None:
    """Refuse an expression for a name that the text uses as an array."""
    if isinstance(node, (ast.IfExp, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare)):
        raise frame.refusal(
            node,
            "index",
            f"{name} is used as an array, but in a loop this expression is a number; give {name} a row, such as a[i]. "
            f"Write a loop for arithmetic on rows, and use {name} in both branches of an `if` to choose between rows",
        )


def bind(frame: Frame, node: ast.Name, row: Row) -> None:
    """Let a name stand for a row, until the block ends."""
    bound = frame.names.get(node.id)
    if isinstance(bound, Row) and not bound.is_over and node.id not in frame.rows:
        raise frame.refusal(
            node,
            "assign",
            f"{node.id} stands for a row from outside this block; give this row a name of its own, because a branch "
            "or a loop cannot change which row a name stands for",
        )
    if bound is not None and not isinstance(bound, Row):
        raise frame.refusal(node, "assign", f"{node.id} already has another meaning; give the row a name of its own")
    frame.rows.add(node.id)
    frame.names[node.id] = row


def over_refusal(frame: Frame, node: ast.AST, name: str) -> LoopError:
    """Return the error for a row's name that is used after the block that assigned it."""
    return frame.refusal(
        node,
        "index",
        f"{name} stands for a row only in the branch or loop that assigns it; assign {name} before that block, or "
        "again here",
    )


def row_refusal(frame: Frame, node: ast.AST, row: Row) -> LoopError:
    """Return the error for a row where a number is needed."""
    return frame.refusal(node, "index", row_remedy(row.array.name, row.places))


# -- shapes of rows -----------------------------------------------------------------------------------


def extent_of(frame: Frame, node: ast.AST, row: Row, dimension: int, n_dimensions: int | None = None) -> ir.Expression:
    """Return ``row.shape[dimension]``; `n_dimensions` is how many the row must have."""
    if isinstance(row.array, Parameter):
        return ir.Extent(
            place=frame.place(node),
            array=row.array.name,
            dimension=dimension,
            n_dimensions=n_dimensions,
            taken=_taken(row),
        )
    shape = _local_shape(row, row.array)
    if not -len(shape) <= dimension < len(shape):
        raise frame.refusal(node, "index", f"the array has {len(shape)} dimensions; ask for one of them")
    return ir.Constant(place=frame.place(node), value=shape[dimension])


def extents_of(frame: Frame, node: ast.AST, row: Row, n_targets: int) -> list[ir.Expression]:
    """Return ``row.shape``, which is assigned to `n_targets` targets."""
    if isinstance(row.array, LocalArray):
        return [extent_of(frame, node, row, k) for k in range(len(_local_shape(row, row.array)))]
    return [extent_of(frame, node, row, k, n_targets) for k in range(n_targets)]


def size_of(frame: Frame, node: ast.AST, row: Row) -> ir.Expression:
    """Return ``row.size``."""
    if isinstance(row.array, Parameter):
        return ir.Size(place=frame.place(node), array=row.array.name, taken=_taken(row))
    return ir.Constant(place=frame.place(node), value=prod(_local_shape(row, row.array)))


def rank_of(frame: Frame, node: ast.AST, row: Row) -> ir.Expression:
    """Return ``row.ndim``."""
    if isinstance(row.array, Parameter):
        return ir.Rank(place=frame.place(node), array=row.array.name, taken=_taken(row))
    return ir.Constant(place=frame.place(node), value=len(_local_shape(row, row.array)))


def _taken(row: Row) -> tuple[bool, ...]:
    return tuple([place is not None for place in row.places])


def _local_shape(row: Row, array: LocalArray) -> tuple[int, ...]:
    taken = _taken(row)
    return tuple([extent for k, extent in enumerate(array.shape) if not (k < len(taken) and taken[k])])
