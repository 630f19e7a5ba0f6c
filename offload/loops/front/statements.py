"""Statements of an iteration: branches, loops in it, assertions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from offload.loops.front.assignments import assign, assign_annotated, assign_in_place, is_update, store
from offload.loops.front.calls import ATOMICS, known_name, update_atomically, values_of_call
from offload.loops.front.counting import collapsed_loops, levels_in, range_of
from offload.loops.front.frames import ReducedItem, Scalar
from offload.loops.tree import ir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.errors import LoopError
    from offload.loops.front.frames import Frame

_REFUSED: Final[dict[type[ast.stmt], tuple[str, str]]] = {
    ast.With: ("branch", "`with` has no device form; put it around the call"),
    ast.AsyncWith: ("branch", "`with` has no device form; put it around the call"),
    ast.Try: ("branch", "a loop cannot catch exceptions; test the condition with `if`"),
    ast.TryStar: ("branch", "a loop cannot catch exceptions; test the condition with `if`"),
    ast.Match: ("branch", "`match` has no device form; write `if` and `elif`"),
    ast.Raise: ("branch", "a loop cannot raise; store an error code in an array, or use `assert` with check=True"),
    ast.Delete: ("branch", "`del` has no device form; leave it out"),
    ast.Import: ("branch", "import at the top of the module"),
    ast.ImportFrom: ("branch", "import at the top of the module"),
    ast.FunctionDef: ("branch", "define the function outside the loop function"),
    ast.AsyncFunctionDef: ("branch", "define the function outside the loop function"),
    ast.ClassDef: ("branch", "define the class outside the loop function"),
    ast.Global: ("name", "a loop cannot assign variables of the module; pass an array, or return the value"),
    ast.Nonlocal: ("name", "a loop cannot assign variables of a closure; pass an array, or return the value"),
    ast.AsyncFor: ("loop", "a loop can iterate only over range(…); write `for i in range(…)`"),
}


def statement(frame: Frame, node: ast.stmt) -> None:
    """Lower a statement of an iteration, or of the host."""
    match node:
        case ast.Assign():
            assign(frame, node)
        case ast.AugAssign():
            assign_in_place(frame, node)
        case ast.AnnAssign():
            assign_annotated(frame, node)
        case ast.If():
            _if(frame, node)
        case ast.For():
            _for(frame, node)
        case ast.While():
            _while(frame, node)
        case ast.Break():
            _break(frame, node)
        case ast.Continue():
            frame.out.append(ir.Continue(place=frame.place(node)))
        case ast.Expr():
            _expression(frame, node)
        case ast.Assert():
            _assert(frame, node)
        case ast.Return():
            raise return_refusal(frame, node)
        case ast.Pass():
            pass
        case _:
            raise frame.refusal(node, *_REFUSED.get(type(node), ("branch", "this statement has no device form")))


def return_refusal(frame: Frame, node: ast.Return) -> LoopError:
    """Return the error for a ``return`` in the midst of statements."""
    if frame.is_inlined:
        return frame.refusal(
            node,
            "call",
            "a function that a loop calls must return at its end, or at the end of each branch of a final `if`; "
            "assign a variable here, put what follows into an `else`, and return at the end",
        )
    return frame.refusal(
        node, "range", "`return` cannot end a loop early; put it after the loop, or use `continue` for an iteration"
    )


def _expression(frame: Frame, node: ast.Expr) -> None:
    match node.value:
        case ast.Constant(value=str() | None) | ast.Constant(value=bool() | int() | float()):
            pass
        case ast.Call() as call if known_name(frame, call.func) in ATOMICS:
            update_atomically(frame, call, None)
        case ast.Call() as call:
            values_of_call(frame, call)
        case value if isinstance(value, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.ListComp)):
            frame.value(value)
        case _:
            raise frame.refusal(node, "assign", "this statement has no effect; assign it, or leave it out")


def _assert(frame: Frame, node: ast.Assert) -> None:
    match node.msg:
        case None:
            text = ""
        case ast.Constant(value=str(text)):
            pass
        case _:
            raise frame.refusal(node, "branch", 'the text of an assertion must be a constant: assert c, "text"')
    with frame.block() as checking:
        condition = frame.value(node.test)
    if frame.lowering.checks:
        frame.out += [*checking, ir.Assert(place=frame.place(node), condition=condition, text=text)]


def _if(frame: Frame, node: ast.If) -> None:
    decided = frame.decided(node.test)
    if decided is not None:
        frame.statements(node.body if decided else node.orelse)
    elif not is_update(frame, node):
        condition = frame.value(node.test)
        with frame.block() as then:
            frame.statements(node.body)
        with frame.block() as otherwise:
            frame.statements(node.orelse)
        place = frame.place(node)
        frame.out.append(ir.If(place=place, condition=condition, then=tuple(then), otherwise=tuple(otherwise)))


# -- loops


def _for(frame: Frame, node: ast.For) -> None:
    counted = range_of(frame, node, "loop")
    collapsed_loops(frame, node, len(counted.clauses.tile) or counted.clauses.collapse)
    start, stop, step = frame.in_order([counted.start, counted.stop, counted.step])
    if isinstance(step, ir.Constant) and step.value == 0:
        raise frame.refusal(node, "range", "the step is 0; use another step")
    assert isinstance(node.target, ast.Name)
    name = node.target.id
    place = frame.place(node)
    around, frame.lowering.levels = frame.lowering.levels, levels_in(frame, node, counted.clauses.level)
    with frame.block() as body:
        if name in assigned_otherwise(frame):
            variable = frame.lowering.fresh(name)
            store(frame, node.target, ir.Name(place=place, name=variable))
        else:
            bound = frame.variable(name)
            assert isinstance(bound, Scalar)
            variable = bound.name
        frame.lowering.steady.add(variable)
        flag = _loop_body(frame, node, counted.clauses.reductions)
        frame.lowering.steady.discard(variable)
    frame.lowering.levels = around
    frame.out.append(
        ir.For(
            place=place,
            variable=variable,
            start=start,
            stop=stop,
            step=step,
            body=tuple(body),
            clauses=counted.clauses,
        )
    )
    _else(frame, node, flag)


def assigned_otherwise(frame: Frame) -> frozenset[str]:
    """Return the names that are assigned otherwise than by counting a loop."""
    found = {parameter.arg for parameter in frame.source.parameters} | frame.lowering.variables
    pending: list[tuple[ast.AST, frozenset[str]]] = [(frame.source.definition, frozenset())]
    while pending:
        node, around = pending.pop()
        inside = around
        target = node.target if isinstance(node, ast.For) else None
        if isinstance(target, ast.Name):
            found |= around & {target.id}
            inside = around | {target.id}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        pending += [(child, inside) for child in ast.iter_child_nodes(node) if child is not target]
    return frozenset(found)


def _while(frame: Frame, node: ast.While) -> None:
    place = frame.place(node)
    with frame.block() as before:
        condition = frame.value(node.test)
    with frame.block() as body:
        flag = _loop_body(frame, node, ())
    if before:
        stop = ir.If(
            place=place,
            condition=ir.Unary(place=place, operator="not", operand=condition),
            then=(ir.Break(place=place),),
        )
        body = [*before, stop, *body]
        condition = ir.Constant(place=place, value=True)
    frame.out.append(ir.While(place=place, condition=condition, body=tuple(body)))
    _else(frame, node, flag)


def _loop_body(frame: Frame, node: ast.For | ast.While, reductions: tuple[ir.LoopReduction, ...]) -> str | None:
    """Lower the body of a loop; return the variable that tells of a ``break``, if ``else`` asks for it."""
    flag = frame.lowering.fresh("left") if node.orelse and _has_break(node.body) else None
    if flag is not None:
        frame.lowering.flags.add(flag)
    items = frame.lowering.items
    inner = {one.name: ReducedItem(one.operator, "inner") for one in reductions}
    frame.lowering.items = {**inner, **items}  # an item of the nest stays one of the nest
    frame.loops.append(flag)
    frame.statements(node.body)
    frame.loops.pop()
    frame.lowering.items = items
    return flag


def _else(frame: Frame, node: ast.For | ast.While, flag: str | None) -> None:
    """Lower the ``else`` of the loop that was appended last."""
    loop, place = frame.out[-1], frame.place(node)
    if flag is None:
        frame.statements(node.orelse)
        return
    frame.out[-1:] = [ir.Assign(place=place, name=flag, value=ir.Constant(place=place, value=False)), loop]
    with frame.block() as otherwise:
        frame.statements(node.orelse)
    condition = ir.Unary(place=place, operator="not", operand=ir.Name(place=place, name=flag))
    frame.out.append(ir.If(place=place, condition=condition, then=tuple(otherwise)))


def _break(frame: Frame, node: ast.Break) -> None:
    if not frame.loops:
        raise frame.refusal(
            node, "range", "the iterations of this loop run in parallel, so none can end it; use `continue`"
        )
    place = frame.place(node)
    if frame.loops[-1] is not None:
        frame.out.append(ir.Assign(place=place, name=frame.loops[-1], value=ir.Constant(place=place, value=True)))
    frame.out.append(ir.Break(place=place))


def _has_break(nodes: Sequence[ast.stmt]) -> bool:
    """Tell whether statements have a ``break`` of the loop that they are the body of."""
    for node in nodes:
        match node:
            case ast.Break():
                return True
            case ast.If():
                if _has_break([*node.body, *node.orelse]):
                    return True
            case ast.For() | ast.While():
                if _has_break(node.orelse):
                    return True
    return False
