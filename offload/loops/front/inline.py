"""Plain functions that a loop calls: their statements take the place of the call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from offload.errors import LoopError
from offload.loops.front.frames import Absent, Binding, LocalArray, Parameter, Scalar, Value
from offload.loops.front.source import Frozen, Source, meaning_of
from offload.loops.front.statements import Statements
from offload.loops.tree import ir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FunctionType

Values = tuple[ir.Expression, ...] | None


class Lowering(Statements):
    """A function with the functions that it calls."""

    def inline(self, function: FunctionType, node: ast.Call) -> Values:
        if function.__code__ in self.work.callers:
            raise self.refusal(
                node, "call", f"{function.__name__} calls itself, and has no device form so; write a loop"
            )
        try:
            source = Source.of(function)
        except LoopError as error:
            raise self.refusal(node, "call", f"{function.__name__} has no device form: {error}") from None
        frame = Lowering(self.work, source, self._arguments(source, node), self.out)
        try:
            with frame.nested(source.definition):
                return frame.body(source.definition.body)
        finally:
            self.work.callers.pop()

    def body(self, nodes: Sequence[ast.stmt]) -> Values:
        """Lower the statements of a function that is called, up to its end; return its values."""
        *first, last = nodes
        self.statements(first)
        match last:
            case ast.Return(value=None | ast.Constant(value=None)):
                return None
            case ast.Return(value=ast.Tuple(elts=values)):
                return tuple(self.in_order(values))
            case ast.Return(value=ast.expr() as value):
                return (self.value(value),)
            case ast.If() if _returns(last):
                return self._branches(last)
            case _:
                self.statement(last)
                return None

    def _branches(self, node: ast.If) -> Values:
        decided = self.decided(node.test)
        if decided is not None:
            taken = node.body if decided else node.orelse
            return self.body(taken) if taken else None
        condition = self.value(node.test)
        with self.block() as then:
            values = self.body(node.body)
        with self.block() as otherwise:
            others = self.body(node.orelse) if node.orelse else None
        if len(values or ()) != len(others or ()):
            raise self.refusal(
                node,
                "call",
                "each branch of a final `if` returns the same number of values, if one does; write the `else`, and"
                " return there as well",
            )
        place = self.place(node)
        names = [self.work.fresh(self.source.definition.name) for _ in values or ()]
        for block, results in ((then, values), (otherwise, others)):
            pairs = zip(names, results or (), strict=True)
            block += [ir.Assign(place=result.place, name=name, value=result) for name, result in pairs]
        self.out.append(ir.If(place=place, condition=condition, then=tuple(then), otherwise=tuple(otherwise)))
        return tuple(ir.Name(place=place, name=name) for name in names) if values is not None else None

    # -- arguments

    def _arguments(self, source: Source, node: ast.Call) -> dict[str, Binding]:
        """Lower the arguments of a call, and return what the parameters are bound to."""
        arguments = source.definition.args
        if arguments.vararg or arguments.kwarg:
            raise self.refusal(
                node, "call", f"{source.definition.name} takes * or **; give it one parameter for each argument"
            )
        by_position = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        given = dict(zip(by_position, node.args, strict=False))
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in given:
                raise self.refusal(
                    node, "call", "a parameter is given once, by its place or its name, and nothing by **"
                )
            given[keyword.arg] = keyword.value
        names = {parameter.arg for parameter in source.parameters}
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if len(node.args) > len(by_position) or not given.keys() <= names or starred:
            raise self.refusal(
                node, "call", f"the arguments are not those of {source.definition.name}; pass what it takes"
            )
        bound = {name: self._argument(source, name, argument) for name, argument in given.items()}
        for name in names - bound.keys():
            bound[name] = self._default(source, name, node)
        return bound

    def _argument(self, source: Source, name: str, argument: ast.expr) -> Binding:
        if isinstance(argument, ast.Constant) and argument.value is None:
            return Absent()
        if isinstance(argument, ast.Name) and argument.id in self.names:
            binding = self.names[argument.id]
            is_changed = name in source.assigned
            if isinstance(binding, (LocalArray, Absent)) or (isinstance(binding, Parameter) and not is_changed):
                return binding
            if isinstance(binding, Scalar) and not is_changed and binding.name not in self.work.items:
                return binding
        value = self.value(argument)
        if isinstance(value, ir.Constant) and name not in source.assigned:
            return Value(value)
        return Scalar(self.named(value, name).name)

    def _default(self, source: Source, name: str, node: ast.Call) -> Binding:
        arguments, function = source.definition.args, source.function
        by_position = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        defaults = function.__defaults__ or ()
        values = dict(zip(by_position[len(by_position) - len(defaults) :], defaults, strict=True))
        values |= function.__kwdefaults__ or {}
        if name not in values:
            raise self.refusal(node, "call", f"{source.definition.name} takes {name}, which has no default; pass it")
        if values[name] is None:
            return Absent()
        scalar = meaning_of(values[name])
        if not isinstance(scalar, Frozen):
            raise self.refusal(
                node, "call", f"the default of {name} in {source.definition.name} is no number; pass one"
            )
        value = self.frozen(node, scalar)
        return Scalar(self.named(value, name).name) if name in source.assigned else Value(value)


def _returns(node: ast.If) -> bool:
    return any(isinstance(part, ast.Return) for part in ast.walk(node))
