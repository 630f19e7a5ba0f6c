"""Types of a loop function, for the types of its arguments.

A scalar has one type: the join of all its assignments. They are found in rounds, each from the types of the round
before, until nothing changes. Joining from the start in each round gives the least types but may cycle, so after as
many rounds as there are scalars, types only grow. Then each statement is made again with its conversions. Only then do
errors count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from offload.errors import LoopError
from offload.loops.front.typed_expressions import Expressions, UnknownTypeError, check_fits, convert
from offload.loops.tree import ir
from offload.loops.tree.nodes import names_in, type_of, walk
from offload.loops.tree.promotion import (
    BOOL,
    WEAK_BOOL,
    WEAK_INT,
    binary_type,
    is_complex,
    is_float,
    is_inexact,
    join,
    nbytes_of,
    part_of,
    promote,
)
from offload.loops.tree.text import refusal, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offload.loops.tree.ir import LoopArrayType, Nest, ParsedFunction, Statement, Type, Typed
    from offload.loops.tree.nodes import Node


def infer(function: ParsedFunction, scalars: Mapping[str, Type], arrays: Mapping[str, LoopArrayType]) -> Typed:
    """Return the function with types, from the types of its arguments by parameter.

    Raises `LoopError` of rule ``types``, ``branch`` (a number instead of a truth value), ``index`` (the wrong number of
    indices), or ``argument`` (an array instead of a number, or the reverse).
    """
    local = _locals_of(function)
    held = {**arrays, **{name: ir.LoopArrayType(node.dtype, len(node.shape)) for name, node in local.items()}}
    shapes = {name: node.shape for name, node in local.items()}
    for name in function.arrays:
        if name not in held:
            raise refusal(function.place, "argument", _no_array(function, name))
    found = _fixpoint(function, dict(scalars), held, shapes)
    typed = _Statements(Expressions(found, held, shapes))
    parts = tuple(typed.nest(part) if isinstance(part, ir.Nest) else typed.statement(part) for part in function.parts)
    return ir.Typed(
        function=replace(function, parts=parts), scalars=found, arrays=held, notes=tuple(_notes(function, found))
    )


def _no_array(function: ParsedFunction, name: str) -> str:
    """Return the message about a parameter that is used as an array, for which the call passes something else."""
    if any(item.name == name for nest in function.nests for item in nest.reductions):
        return (
            f"the reduction variable {name} is a parameter, and the argument is a number, so the result would be lost; "
            f"begin with `{name} = 0.0` in the function and return {name}, or pass an array of one element"
        )
    return f"{name} is used as an array; pass an array for it"


# -- the rounds ------------------------------------------------------------------------------------------


def _fixpoint(
    function: ParsedFunction,
    arguments: Mapping[str, Type],
    arrays: Mapping[str, LoopArrayType],
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, Type]:
    fixed = _fixed(function)
    givers = [(name, node, _read_by(node)) for name, node in _givers(function)]
    given: list[Type | None] = [None] * len(givers)
    found = {**arguments, **fixed}
    changed: set[str] | None = None  # the scalars whose type is another than in the round before; None: of all
    rounds = 0
    while True:
        expressions = Expressions(found, arrays, shapes)
        held: dict[str, set[Type]] = {name: {of} for name, of in arguments.items()}
        for number, (name, node, read) in enumerate(givers):
            if changed is None or not read.isdisjoint(changed):
                try:
                    given[number] = _given_type(expressions, node)
                except (LoopError, UnknownTypeError):
                    given[number] = None
            of_giver = given[number]
            types = held.setdefault(name, set())
            if of_giver is not None:
                types.add(of_giver)
        if rounds > len(held):
            for name, of in found.items():
                held.setdefault(name, set()).add(of)
        latest = {name: join(types) for name, types in held.items() if types} | fixed
        if latest == found:
            return found
        changed = {name for name in latest.keys() | found.keys() if latest.get(name) != found.get(name)}
        found = latest
        rounds += 1


def _givers(function: ParsedFunction) -> Iterator[tuple[str, Node | None]]:
    """Yield the nodes that give scalars their types: a statement, or None for the variable of a loop."""
    for part in function.parts:
        if isinstance(part, ir.Nest):
            yield from ((axis.variable, None) for axis in part.axes)
    for node in _nodes(function):
        match node:
            case ir.Assign() | ir.Reduce():
                yield node.name, node
            case ir.Atomic(result=str(name)):
                yield name, node
            case ir.For():
                yield node.variable, None


def _read_by(node: Node | None) -> frozenset[str]:
    """Return the scalars that the type which a statement gives may follow from."""
    if node is None:
        return frozenset()
    return frozenset(names_in(node)) | ({node.name} if isinstance(node, ir.Reduce) else set())


def _given_type(expressions: Expressions, node: Node | None) -> Type:
    match node:
        case ir.Assign():
            return type_of(expressions.typed(node.value))
        case ir.Reduce():
            return _reduced_type(expressions, node)
        case ir.Atomic():
            return ir.Type(expressions.arrays[node.array].dtype)
        case _:
            return WEAK_INT


def _reduced_type(expressions: Expressions, node: ir.Reduce) -> Type:
    """Return the type that an update of a reduction's item gives it."""
    item = expressions.scalars.get(node.name)
    if item is None:
        raise UnknownTypeError(node.name)
    value = type_of(expressions.typed(node.value))
    if node.operator in ("min", "max"):
        return promote(item, value)
    if node.operator in ("and", "or"):
        return WEAK_BOOL if item.is_weak and value.is_weak else BOOL
    return binary_type("-" if node.is_taken_away else node.operator, item, value) or promote(item, value)


def _nodes(function: ParsedFunction) -> Iterator[Node]:
    for part in function.parts:
        yield from walk(*(part.body if isinstance(part, ir.Nest) else (part,)))


def _fixed(function: ParsedFunction) -> dict[str, Type]:
    """Return the types that annotations give."""
    fixed: dict[str, Type] = {}
    for node in _nodes(function):
        if not isinstance(node, ir.Assign) or node.annotation is None:
            continue
        if fixed.setdefault(node.name, node.annotation) != node.annotation:
            raise refusal(
                node.place,
                "types",
                f"{node.name} is annotated {fixed[node.name]} and {node.annotation}; a scalar has only one type",
            )
    return fixed


def _locals_of(function: ParsedFunction) -> dict[str, ir.Local]:
    found: dict[str, ir.Local] = {}
    for node in _nodes(function):
        if isinstance(node, ir.Local):
            first = found.setdefault(node.name, node)
            if (first.shape, first.dtype) != (node.shape, node.dtype):
                raise refusal(
                    node.place,
                    "types",
                    f"{node.name} is {node.dtype}{node.shape} here and {first.dtype}{first.shape} in line "
                    f"{first.place.line}; give the second a name of its own",
                )
    return found


# -- the statements, with types --------------------------------------------------------------------------


class _Statements:
    """Makes statements again, with types and conversions."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions

    def nest(self, nest: Nest) -> Nest:
        e = self._expressions
        axes = tuple(
            replace(
                axis,
                start=e.integer(axis.start, "the bound"),
                stop=e.integer(axis.stop, "the bound"),
                step=e.integer(axis.step, "the step"),
            )
            for axis in nest.axes
        )
        return replace(nest, axes=axes, body=self.block(nest.body))

    def block(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(map(self.statement, statements))

    def statement(self, node: Statement) -> Statement:
        try:
            return self._statement(node)
        except UnknownTypeError as unknown:
            raise refusal(
                node.place, "unbound", f"{text_of(node)}: {unknown.args[0]} has no value here; assign one first"
            ) from None

    def _statement(self, node: Statement) -> Statement:
        e = self._expressions
        match node:
            case ir.Assign():
                return self._assign(node)
            case ir.Store():
                indices = e.indices(node.array, node.indices, node.place)
                return replace(node, indices=indices, value=convert(e.typed(node.value), self._element(node.array)))
            case ir.Reduce():
                return self._reduce(node)
            case ir.Atomic():
                return self._atomic(node)
            case ir.If():
                then, otherwise = self.block(node.then), self.block(node.otherwise)
                return replace(node, condition=e.truth(node.condition), then=then, otherwise=otherwise)
            case ir.For():
                return self._for(node)
            case ir.While():
                return replace(node, condition=e.truth(node.condition), body=self.block(node.body))
            case ir.Assert():
                return replace(node, condition=e.truth(node.condition))
            case ir.IndexCheck():
                return replace(node, indices=tuple([e.called_index(node.array, index) for index in node.indices]))
            case ir.Local(fill=ir.Expression() as fill):
                return replace(node, fill=convert(e.typed(fill), ir.Type(node.dtype)))
            case _:
                return node

    def _element(self, array: str) -> Type:
        return ir.Type(self._expressions.arrays[array].dtype)

    def _assign(self, node: ir.Assign) -> Statement:
        if node.name in self._expressions.arrays:
            raise refusal(node.place, "types", f"{text_of(node)}: {node.name} is an array; write to its elements")
        value = self._expressions.typed(node.value)
        kind = self._expressions.scalars[node.name]
        if isinstance(value, ir.Constant) and type_of(value).is_weak and not kind.is_weak:
            check_fits(value, kind, node.name)
        return replace(node, value=convert(value, kind))

    def _for(self, node: ir.For) -> Statement:
        e = self._expressions
        return replace(
            node,
            start=e.integer(node.start, "the bound"),
            stop=e.integer(node.stop, "the bound"),
            step=e.integer(node.step, "the step"),
            body=self.block(node.body),
        )

    def _reduce(self, node: ir.Reduce) -> Statement:
        e = self._expressions
        is_array = node.name in e.arrays
        item = self._element(node.name) if is_array else e.scalars.get(node.name)
        if item is None:
            raise UnknownTypeError(node.name)
        if node.operator in ("and", "or"):
            if item.dtype != "bool":
                raise refusal(node.place, "branch", f"{text_of(node)}: {node.name} is {item}; start from True or False")
            return replace(node, value=convert(e.truth(node.value), item))
        value = e.typed(node.value)
        self._check_operator(node, "-" if node.is_taken_away else node.operator, item, type_of(value))
        if is_array and is_inexact(type_of(value).dtype) and not is_inexact(item.dtype):
            raise refusal(
                node.place,
                "types",
                f"{text_of(node)}: {node.name} holds {item}, but the value is {value.type}; convert it",
            )
        value = convert(value, item, exact=True)
        if node.is_taken_away:
            value = ir.Unary(place=value.place, type=item, operator="-", operand=value)
        return replace(node, value=value, is_taken_away=False)

    def _atomic(self, node: ir.Atomic) -> Statement:
        e = self._expressions
        indices = e.indices(node.array, node.indices, node.place)
        item = self._element(node.array)
        value = e.typed(node.value)
        expected = None if node.expected is None else convert(e.typed(node.expected), item)
        if is_complex(item.dtype) and (node.operator not in ("+", "-") or node.result is not None):
            raise refusal(
                node.place,
                "atomic",
                f"{text_of(node)}: {node.array} holds {item}, whose elements can only be added to and subtracted from "
                "atomically, without the old value; update two real arrays instead",
            )
        if node.operator not in ("exchange", "cas"):
            self._check_operator(node, node.operator, item, type_of(value))
            # Integers wrap alike before and after a sum; what is rounded, or compared, does not.
            is_rounded = is_inexact(item.dtype) or is_inexact(type_of(value).dtype)
            wraps = node.operator not in ("min", "max") and not is_rounded and item.dtype != "bool"
            if promote(item, type_of(value)).dtype != item.dtype and not wraps:
                raise refusal(
                    node.place,
                    "types",
                    f"{text_of(node)}: {node.array} holds {item}, but the value is {value.type}; convert it, "
                    f"np.{item}({text_of(node.value)})",
                )
        value = convert(value, item, exact=node.operator not in ("exchange", "cas"))
        return replace(node, indices=indices, value=value, expected=expected)

    @staticmethod
    def _check_operator(node: ir.Reduce | ir.Atomic, operator: str, item: Type, value: Type) -> None:
        if operator in ("min", "max") and not (is_complex(item.dtype) or is_complex(value.dtype)):
            return
        if binary_type(operator, item, value) is None:
            raise refusal(
                node.place, "types", f"{text_of(node)}: {operator} of {item} and {value} has no type that loops have"
            )


# -- notes -----------------------------------------------------------------------------------------------


def _notes(function: ParsedFunction, scalars: Mapping[str, Type]) -> Iterator[str]:
    """Yield a line for each scalar that sums in fewer than 8 bytes."""
    noted: set[str] = set()
    for node in _nodes(function):
        name = _accumulator(node)
        if name is None or name in noted or name not in scalars:
            continue
        noted.add(name)
        dtype = scalars[name].dtype
        if dtype != "bool" and nbytes_of(part_of(dtype)) < 8:
            wide = "complex128" if is_complex(dtype) else "float64" if is_float(dtype) else "int64"
            yield f"line {node.place.line}: {name} sums in {dtype}, as NumPy does; `{name}: np.{wide} = …` is wider"


def _accumulator(node: Node) -> str | None:
    match node:
        case ir.Reduce(operator="+" | "*"):
            return node.name
        case ir.Assign(value=ir.Binary(operator="+" | "-" | "*", left=ir.Name(name=name))) if name == node.name:
            return name
        case _:
            return None
