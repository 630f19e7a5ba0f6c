"""Statements of an iteration: branches, loops in it, assertions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from offload.loops.front.calls import ATOMICS
from offload.loops.front.counting import Counting
from offload.loops.front.frames import Item, Scalar
from offload.loops.tree import ir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.errors import LoopError

_REFUSED: Final[dict[type[ast.stmt], tuple[str, str]]] = {
    ast.With: ("branch", "`with` has no device form; enter it around the call"),
    ast.AsyncWith: ("branch", "`with` has no device form; enter it around the call"),
    ast.Try: ("branch", "nothing is caught in a loop; test the condition by `if`"),
    ast.TryStar: ("branch", "nothing is caught in a loop; test the condition by `if`"),
    ast.Match: ("branch", "`match` has no device form; write `if` and `elif`"),
    ast.Raise: ("branch", "nothing is raised in a loop; store a mark in an array, or `assert`, which check=True keeps"),
    ast.Delete: ("branch", "`del` has no device form; leave it out"),
    ast.Import: ("branch", "import at the top of the module"),
    ast.ImportFrom: ("branch", "import at the top of the module"),
    ast.FunctionDef: ("branch", "define the function outside of the loop function"),
    ast.AsyncFunctionDef: ("branch", "define the function outside of the loop function"),
    ast.ClassDef: ("branch", "define the class outside of the loop function"),
    ast.Global: ("name", "a loop assigns no variables of the module; pass an array, or return the value"),
    ast.Nonlocal: ("name", "a loop assigns no variables of a closure; pass an array, or return the value"),
    ast.AsyncFor: ("loop", "a loop counts by range(…)"),
}


class Statements(Counting):
    """A function's statements."""

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        """Lower statements."""
        for node in nodes:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        with self.nested(node):
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                self.assign(node)
            case ast.AugAssign():
                self.assign_in_place(node)
            case ast.AnnAssign():
                self.assign_annotated(node)
            case ast.If():
                self._if(node)
            case ast.For():
                self._for(node)
            case ast.While():
                self._while(node)
            case ast.Break():
                self._break(node)
            case ast.Continue():
                self.out.append(ir.Continue(place=self.place(node)))
            case ast.Expr():
                self._expression(node)
            case ast.Assert():
                self._assert(node)
            case ast.Return():
                raise self.return_refusal(node)
            case ast.Pass():
                pass
            case _:
                raise self.refusal(node, *_REFUSED.get(type(node), ("branch", "this statement has no device form")))

    def return_refusal(self, node: ast.Return) -> LoopError:
        """Return the error for a ``return`` in the midst of statements."""
        if self.is_inlined:
            return self.refusal(
                node,
                "call",
                "a function that a loop calls returns at its end, or at the end of each branch of a final `if`; assign"
                " a variable here, put what follows into an `else`, and return at the end",
            )
        return self.refusal(
            node, "range", "a loop runs to its end, and `return` stands after it; use `continue` for an iteration"
        )

    def _expression(self, node: ast.Expr) -> None:
        match node.value:
            case ast.Constant(value=str() | None) | ast.Constant(value=bool() | int() | float()):
                pass
            case ast.Call() as call if self.known(call.func) in ATOMICS:
                self.atomic(call, None)
            case ast.Call() as call:
                self.values_of(call)
            case value if isinstance(value, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.ListComp)):
                self.value(value)
            case _:
                raise self.refusal(node, "assign", "this has no effect; assign it, or leave it out")

    def _assert(self, node: ast.Assert) -> None:
        match node.msg:
            case None:
                text = ""
            case ast.Constant(value=str(text)):
                pass
            case _:
                raise self.refusal(node, "branch", 'the text of an assertion is a constant: assert c, "text"')
        with self.block() as checking:
            condition = self.value(node.test)
        if self.work.checks:
            self.out += [*checking, ir.Assert(place=self.place(node), condition=condition, text=text)]

    def _if(self, node: ast.If) -> None:
        decided = self.decided(node.test)
        if decided is not None:
            self.statements(node.body if decided else node.orelse)
        elif not self.is_update(node):
            condition = self.value(node.test)
            with self.block() as then:
                self.statements(node.body)
            with self.block() as otherwise:
                self.statements(node.orelse)
            place = self.place(node)
            self.out.append(ir.If(place=place, condition=condition, then=tuple(then), otherwise=tuple(otherwise)))

    # -- loops

    def _for(self, node: ast.For) -> None:
        counted = self.counted(node, "loop")
        self.collapsed(node, len(counted.clauses.tile) or counted.clauses.collapse)
        start, stop, step = self.in_order([counted.start, counted.stop, counted.step])
        if isinstance(step, ir.Constant) and step.value == 0:
            raise self.refusal(node, "range", "the step is 0; give another")
        assert isinstance(node.target, ast.Name)
        name = node.target.id
        place = self.place(node)
        around, self.work.levels = self.work.levels, self.levels_in(node, counted.clauses.level)
        with self.block() as body:
            if name in self.assigned_otherwise:
                variable = self.work.fresh(name)
                self.store(node.target, ir.Name(place=place, name=variable))
            else:
                bound = self.variable(name)
                assert isinstance(bound, Scalar)
                variable = bound.name
            flag = self._loop_body(node, counted.clauses.reductions)
        self.work.levels = around
        self.out.append(
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
        self._else(node, flag)

    @property
    def assigned_otherwise(self) -> frozenset[str]:
        """The names that are assigned besides counting a loop: parameters, variables, those of a loop around."""
        found = {parameter.arg for parameter in self.source.parameters} | self.work.variables
        pending: list[tuple[ast.AST, frozenset[str]]] = [(self.source.definition, frozenset())]
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

    def _while(self, node: ast.While) -> None:
        place = self.place(node)
        with self.block() as before:
            condition = self.value(node.test)
        with self.block() as body:
            flag = self._loop_body(node, ())
        if before:
            stop = ir.If(
                place=place,
                condition=ir.Unary(place=place, operator="not", operand=condition),
                then=(ir.Break(place=place),),
            )
            body = [*before, stop, *body]
            condition = ir.Constant(place=place, value=True)
        self.out.append(ir.While(place=place, condition=condition, body=tuple(body)))
        self._else(node, flag)

    def _loop_body(self, node: ast.For | ast.While, reductions: tuple[ir.Reduction, ...]) -> str | None:
        """Lower the body of a loop; return the variable that tells of a ``break``, if ``else`` asks for it."""
        flag = self.work.fresh("left") if node.orelse and _has_break(node.body) else None
        if flag is not None:
            self.work.flags.add(flag)
        items = self.work.items
        inner = {one.name: Item(one.operator, "inner") for one in reductions}
        self.work.items = {**inner, **items}  # an item of the nest stays one of the nest
        self.loops.append(flag)
        self.statements(node.body)
        self.loops.pop()
        self.work.items = items
        return flag

    def _else(self, node: ast.For | ast.While, flag: str | None) -> None:
        """Lower the ``else`` of the loop that was appended last."""
        loop, place = self.out[-1], self.place(node)
        if flag is None:
            self.statements(node.orelse)
            return
        self.out[-1:] = [ir.Assign(place=place, name=flag, value=ir.Constant(place=place, value=False)), loop]
        with self.block() as otherwise:
            self.statements(node.orelse)
        condition = ir.Unary(place=place, operator="not", operand=ir.Name(place=place, name=flag))
        self.out.append(ir.If(place=place, condition=condition, then=tuple(otherwise)))

    def _break(self, node: ast.Break) -> None:
        if not self.loops:
            raise self.refusal(
                node, "range", "the iterations of this loop run beside each other, and none ends it; use `continue`"
            )
        place = self.place(node)
        if self.loops[-1] is not None:
            self.out.append(ir.Assign(place=place, name=self.loops[-1], value=ir.Constant(place=place, value=True)))
        self.out.append(ir.Break(place=place))


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
            case _:
                pass
    return False
