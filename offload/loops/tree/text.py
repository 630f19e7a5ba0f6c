"""The loop IR as text: the form in messages and reports, close to the program's text.

Each operator has Python's rank, and an operand is put in brackets where its own rank is lower. A conversion that
`types` has added is shown as a call, ``float32(x)``. Statements that enclose others show their head only.
"""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Final

from offload.errors import LoopError
from offload.loops.tree import ir
from offload.loops.tree.nodes import written_index
from offload.texts import marked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.loops.tree.ir import SourceLine


_RANKS: Final = {
    "or": 1,
    "and": 2,
    "not": 3,
    "|": 5,
    "^": 6,
    "&": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "//": 10,
    "%": 10,
    "**": 12,
}
_WEAK: Final = {"int64": "int", "float64": "float", "complex128": "complex", "bool": "bool"}
_SELECT, _COMPARE, _SIGN, _ATOM = 0, 4, 11, 13


def text_of(node: ir.Expression | ir.Statement) -> str:
    """Return an expression, or the first line of a statement, as Python writes it."""
    if isinstance(node, ir.Expression):
        return _expression(node)[0]
    return _statement(node)


def _statement(node: ir.Statement) -> str:
    match node:
        case ir.Assign():
            note = f": {node.annotation}" if node.annotation else ""
            return f"{node.name}{note} = {text_of(node.value)}"
        case ir.Store():
            return f"{element_text(node.array, node.indices)} = {text_of(node.value)}"
        case ir.Reduce():
            return _update(node.name, "-" if node.is_taken_away else node.operator, node.value)
        case ir.Atomic():
            return _atomic(node)
        case ir.If():
            return f"if {text_of(node.condition)}:"
        case ir.For():
            return f"for {node.variable} in {range_text(node)}:"
        case ir.While():
            return f"while {text_of(node.condition)}:"
        case ir.Break():
            return "break"
        case ir.Continue():
            return "continue"
        case ir.Assert():
            return f"assert {text_of(node.condition)}" + (f", {node.text!r}" if node.text else "")
        case ir.IndexCheck():
            return node.array
        case ir.Local():
            fill = "empty" if node.fill is None else "full"
            value = "" if node.fill is None else f"{text_of(node.fill)}, "
            return f"{node.name} = {fill}({node.shape}, {value}{node.dtype})"
        case _:
            raise AssertionError(node)


def range_text(loop: ir.For | ir.LoopAxis) -> str:
    """Return ``range(…)`` with the arguments that are needed."""
    start, stop, step = text_of(loop.start), text_of(loop.stop), text_of(loop.step)
    if step != "1":
        return f"range({start}, {stop}, {step})"
    return f"range({stop})" if start == "0" else f"range({start}, {stop})"


def _update(target: str, operator: str, value: ir.Expression) -> str:
    if operator in ("min", "max"):
        return f"{target} = {operator}({target}, {text_of(value)})"
    if operator in ("and", "or"):
        return f"{target} = {target} {operator} {_operand(value, _RANKS[operator] + 1)}"
    return f"{target} {operator}= {text_of(value)}"


def _atomic(node: ir.Atomic) -> str:
    target = element_text(node.array, node.indices)
    if node.result is None and node.operator not in ("exchange", "cas"):
        return _update(target, node.operator, node.value)
    expected = "" if node.expected is None else f"{text_of(node.expected)}, "
    call = f"atomic {node.operator} ({target}, {expected}{text_of(node.value)})"
    return call if node.result is None else f"{node.result} = {call}"


def element_text(array: str, indices: tuple[ir.Expression, ...]) -> str:
    """Return an element as Python writes it: ``a[i, j]``."""
    return f"{array}[{', '.join([text_of(written_index(index)) for index in indices]) or '()'}]"


def row_remedy(array: str, places: Sequence[ir.Expression | None]) -> str:
    """Return the part of a message that names a row and says how to write the loop instead."""
    shown = ", ".join([":" if place is None else text_of(written_index(place)) for place in places])
    text = f"{array}[{shown}]" if places else array
    axis = places.index(None) if None in places else len(places)
    return (
        f"{text} is a row of {array}, not a number; index it, pass it to a function that indexes it, or write the loop "
        f"over its elements: `for k in range({array}.shape[{axis}])`"
    )


def viewed(node: ir.Extent | ir.Size | ir.Rank) -> str:
    """Return the array, or the row, of which a node asks for the shape."""
    return f"{node.array}[{', '.join(['…' if taken else ':' for taken in node.taken])}]" if node.taken else node.array


def _operand(node: ir.Expression, rank: int) -> str:
    text, own = _expression(node)
    return text if own >= rank else f"({text})"


def _expression(node: ir.Expression) -> tuple[str, int]:
    """Return the text and the rank of its outermost operator."""
    match node:
        case ir.Constant():
            text = repr(node.value)
            return text, _SIGN if text.startswith("-") else _ATOM
        case ir.Name():
            return node.name, _ATOM
        case ir.Extent():
            return f"{viewed(node)}.shape[{node.dimension}]", _ATOM
        case ir.Size():
            return f"{viewed(node)}.size", _ATOM
        case ir.Rank():
            return f"{viewed(node)}.ndim", _ATOM
        case ir.Load():
            return element_text(node.array, node.indices), _ATOM
        case ir.Convert():
            name = _WEAK[node.to.dtype] if node.to.is_weak else node.to
            return f"{name}({text_of(node.operand)})", _ATOM
        case ir.FunctionCall(function=function) if function.startswith("complex."):
            return _of_complex(node)
        case ir.FunctionCall():
            return f"{node.function}({', '.join(map(text_of, node.arguments))})", _ATOM
        case _:
            return _operation(node)


def _of_complex(node: ir.FunctionCall) -> tuple[str, int]:
    """Return the text of an attribute, or of an operator of Python's complex numbers."""
    word = node.function.partition(".")[2]
    if word in ("quotient", "powi"):
        left, right = node.arguments
        operator: ir.Operator = "/" if word == "quotient" else "**"
        return _operation(ir.Binary(place=node.place, operator=operator, left=left, right=right))
    return f"{_operand(node.arguments[0], _ATOM)}.{word}{'()' if word == 'conjugate' else ''}", _ATOM


def _operation(node: ir.Expression) -> tuple[str, int]:
    match node:
        case ir.Unary():
            rank = _RANKS["not"] if node.operator == "not" else _SIGN
            return f"{node.operator}{' ' if node.operator == 'not' else ''}{_operand(node.operand, rank)}", rank
        case ir.Binary():
            rank = _RANKS[node.operator]
            # ** binds to the right, all others to the left.
            left, right = (rank + 1, _SIGN) if node.operator == "**" else (rank, rank + 1)
            return f"{_operand(node.left, left)} {node.operator} {_operand(node.right, right)}", rank
        case ir.Compare():
            left, right = _COMPARE + 1, _COMPARE + 1
            return f"{_operand(node.left, left)} {node.operator} {_operand(node.right, right)}", _COMPARE
        case ir.Logical():
            rank = _RANKS[node.operator]
            return f"{_operand(node.left, rank)} {node.operator} {_operand(node.right, rank + 1)}", rank
        case ir.Select():
            then, condition = _operand(node.then, _SELECT + 1), _operand(node.condition, _SELECT + 1)
            return f"{then} if {condition} else {_operand(node.otherwise, _SELECT)}", _SELECT
        case _:
            raise AssertionError(node)


# -- errors at a line of the program ------------------------------------------------------------------


def refusal(place: SourceLine, rule: str, what: str) -> LoopError:
    """Return the error for a line that breaks a rule; `what` has the reason and the remedy."""
    line = linecache.getline(place.file, place.line)
    shown = f" `{line.strip()}`:" if line.strip() else ""  # a function may come from a process that has the file
    error = LoopError(f"{place.file}:{place.line}:{shown} {what}", place.file, place.line, rule)
    if shown:
        error.add_note(marked(place.file, place.line, line))
    return error
