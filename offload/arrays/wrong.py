"""The error of a section whose numbers are not integers: which number it is, and the integer to write."""

from __future__ import annotations

import ast
from operator import index
from typing import TYPE_CHECKING, Any, Final

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PARTS: Final = ("lower bound", "length", "stride")


def not_integers(dim: Sequence[Any], axis: int, text: str = "", parts: Sequence[str] = _PARTS) -> ClauseError:
    """Return the error of a dimension of which a number is no integer.

    Parameters
    ----------
    dim : sequence
        The numbers; None for a default.
    axis : int
        The dimension.
    text : str
        The list item, if it is written in a string; else it is a call of `section`.
    parts : sequence of str
        How messages call each number.
    """
    number, value = next((at, one) for at, one in enumerate(dim) if one is not None and not _is_integer(one))
    given = f"{type(value).__name__} {value!r:.40}"
    if not text:
        return ClauseError(
            f"section: the {parts[number]} of dimension {axis} is {given}; use an int, for example n // 2, or None for "
            "a default"
        )
    found = _written(text, axis, number)
    if found is None:
        return ClauseError(f"list item {text!r}: the {parts[number]} of dimension {axis} is {given}; use an int")
    return ClauseError(
        f"list item {text!r}: the {parts[number]} `{ast.unparse(found)}` is {given}; write `{integral(found)}`"
    )


def integral(node: ast.expr) -> str:
    """Return the text of an expression as an integer: a division without a remainder, or `int` around it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return ast.unparse(ast.BinOp(node.left, ast.FloorDiv(), node.right))
    return f"int({ast.unparse(node)})"


def _is_integer(value: Any) -> bool:
    try:
        index(value)
    except TypeError:
        return False
    return True


def _written(text: str, axis: int, number: int) -> ast.expr | None:
    """Return the expression of a number in a list item; None if the text does not tell which it is."""
    try:
        node: ast.expr = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None
    dims: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        dims[:0] = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        node = node.value
    if axis >= len(dims) or any(isinstance(one, ast.Constant) and one.value is ... for one in dims):
        return None
    dim = dims[axis]
    return (dim.lower, dim.upper, dim.step)[number] if isinstance(dim, ast.Slice) else None
