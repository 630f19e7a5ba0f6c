"""Plain functions that a loop calls: their statements take the place of the call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, TypeAlias

from offload.errors import LoopError
from offload.loops.front.calls import value_of_call
from offload.loops.front.frames import (
    Absent,
    Binding,
    Frame,
    LocalArray,
    Parameter,
    PassedConstant,
    PassedLayout,
    Row,
    Rules,
    Scalar,
)
from offload.loops.front.offsets import layout_in
from offload.loops.front.rows import arrays_in, captured, check_row
from offload.loops.front.source import Frozen, FunctionSource, OutsideLayout, meaning_of
from offload.loops.front.statements import statement
from offload.loops.front.values import constant_of, expression, row_of
from offload.loops.tree import ir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FunctionType

# The values that a function returns; None if it returns nothing.
Results: TypeAlias = "tuple[ir.Expression, ...] | None"


def inlined(frame: Frame, function: FunctionType, node: ast.Call) -> Results:
    """Lower a call of a plain function, by its statements in the place of the call."""
    if function.__code__ in frame.lowering.callers:
        raise frame.refusal(
            node, "call", f"{function.__name__} calls itself, and a recursive function has no device form; write a loop"
        )
    try:
        source = FunctionSource.of(function)
    except LoopError as error:
        raise frame.refusal(node, "call", f"{function.__name__} has no device form: {error}") from None
    inner = Frame(frame.lowering, source, _arguments(frame, source, node), frame.out)
    try:
        with inner.nested(source.definition):
            return body_of(inner, source.definition.body)
    finally:
        frame.lowering.callers.pop()


def body_of(frame: Frame, nodes: Sequence[ast.stmt]) -> Results:
    """Lower the statements of a function that is called, up to its end; return its values."""
    *first, last = nodes
    frame.statements(first)
    match last:
        case ast.Return(value=None | ast.Constant(value=None)):
            return None
        case ast.Return(value=ast.Tuple(elts=values)):
            return tuple(frame.in_order(values))
        case ast.Return(value=ast.expr() as value):
            return (frame.value(value),)
        case ast.If() if _returns(last):
            return _branches(frame, last)
        case _:
            frame.statement(last)
            return None


def _branches(frame: Frame, node: ast.If) -> Results:
    decided = frame.decided(node.test)
    if decided is not None:
        taken = node.body if decided else node.orelse
        return body_of(frame, taken) if taken else None
    condition = frame.value(node.test)
    with frame.block() as then:
        values = body_of(frame, node.body)
    with frame.block() as otherwise:
        others = body_of(frame, node.orelse) if node.orelse else None
    if len(values or ()) != len(others or ()):
        raise frame.refusal(
            node,
            "call",
            "if one branch of a final `if` returns, each branch must return the same number of values; write the "
            "`else`, and return there as well",
        )
    place = frame.place(node)
    names = [frame.lowering.fresh(frame.source.definition.name) for _ in values or ()]
    for block, results in ((then, values), (otherwise, others)):
        pairs = zip(names, results or (), strict=True)
        block += [ir.Assign(place=result.place, name=name, value=result) for name, result in pairs]
    frame.out.append(ir.If(place=place, condition=condition, then=tuple(then), otherwise=tuple(otherwise)))
    return tuple(ir.Name(place=place, name=name) for name in names) if values is not None else None


# -- arguments


def _arguments(frame: Frame, source: FunctionSource, node: ast.Call) -> dict[str, Binding]:
    """Lower the arguments of a call, and return the bindings of the parameters."""
    arguments = source.definition.args
    if arguments.vararg or arguments.kwarg:
        raise frame.refusal(
            node, "call", f"{source.definition.name} takes * or **; give it one parameter for each argument"
        )
    by_position = source.by_position
    given = dict(zip(by_position, node.args, strict=False))
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in given:
            raise frame.refusal(node, "call", "pass each parameter once, by position or by name, and leave out **")
        given[keyword.arg] = keyword.value
    names = {parameter.arg for parameter in source.parameters}
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    if len(node.args) > len(by_position) or not given.keys() <= names or starred:
        raise frame.refusal(
            node,
            "call",
            f"the arguments do not match the parameters of {source.definition.name}; pass one argument for each",
        )
    bound = {name: _argument(frame, source, name, argument) for name, argument in given.items()}
    for name in names - bound.keys():
        bound[name] = _default(frame, source, name, node)
    return bound


def _argument(frame: Frame, source: FunctionSource, name: str, argument: ast.expr) -> Binding:
    if isinstance(argument, ast.Constant) and argument.value is None:
        return Absent()
    if isinstance(argument, ast.Name) and argument.id in frame.names:
        binding = frame.names[argument.id]
        is_changed = name in source.assigned
        if isinstance(binding, Row):
            return row_of(frame, argument)
        if isinstance(binding, (LocalArray, Absent)) or (isinstance(binding, Parameter) and not is_changed):
            return binding
        if isinstance(binding, Scalar) and not is_changed and binding.name not in frame.lowering.items:
            return binding
    if (layout := layout_in(frame, argument)) is not None and name not in source.assigned:
        return PassedLayout(layout)
    if name in arrays_in(source, frame.lowering.indexed):
        check_row(frame, argument, name)
        if isinstance(argument, ast.Subscript):
            return captured(frame, row_of(frame, argument), name)
    value = frame.value(argument)
    if isinstance(value, ir.Constant) and name not in source.assigned:
        return PassedConstant(value)
    return Scalar(frame.named(value, name).name)


def _default(frame: Frame, source: FunctionSource, name: str, node: ast.Call) -> Binding:
    function = source.function
    by_position = source.by_position
    defaults = function.__defaults__ or ()
    values = dict(zip(by_position[len(by_position) - len(defaults) :], defaults, strict=True))
    values |= function.__kwdefaults__ or {}
    if name not in values:
        raise frame.refusal(node, "call", f"{source.definition.name} takes {name}, which has no default; pass it")
    if values[name] is None:
        return Absent()
    scalar = meaning_of(values[name])
    if isinstance(scalar, OutsideLayout):
        return PassedLayout(scalar.layout)
    if not isinstance(scalar, Frozen):
        raise frame.refusal(
            node, "call", f"the default of {name} in {source.definition.name} is not a number; pass one"
        )
    value = constant_of(frame, node, scalar)
    return Scalar(frame.named(value, name).name) if name in source.assigned else PassedConstant(value)


def _returns(node: ast.If) -> bool:
    return any(isinstance(part, ast.Return) for part in ast.walk(node))


# How the nodes of all functions are lowered.
RULES: Final = Rules(expression=expression, call=value_of_call, statement=statement, inlined=inlined)
