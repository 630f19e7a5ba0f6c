"""Going through the IR: the parts of a node."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from offload.loops.tree import ir
from offload.loops.tree.promotion import is_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Node = ir.Expression | ir.Statement
NodeType = TypeVar("NodeType", bound=Node)

_NODES: Final = (ir.Expression, ir.Statement)

# By class, the fields that may consist of nodes: to look at all of them took most of the time of `walk`.
_PARTS: Final[dict[type, tuple[str, ...]]] = {}

_PLAIN: Final = frozenset({"place", "type", "name", "operator"})


def children(node: Node) -> list[Node]:
    """Return the expressions and statements that a node consists of, in the order of its fields."""
    kind = node.__class__
    parts = _PARTS.get(kind)
    if parts is None:
        parts = _PARTS[kind] = tuple(field.name for field in fields(node) if field.name not in _PLAIN)
    found: list[Node] = []
    for name in parts:
        value = getattr(node, name)
        if value.__class__ is tuple:
            found += [one for one in value if isinstance(one, _NODES)]
        elif isinstance(value, _NODES):
            found.append(value)
    return found


def walk(*nodes: Node) -> Iterator[Node]:
    """Yield nodes and all that they consist of, each before its parts."""
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(children(node))


def names_in(*nodes: Node) -> set[str]:
    """Return the scalars that nodes read."""
    return {node.name for node in walk(*nodes) if isinstance(node, ir.Name)}


def names_assigned(*nodes: Node) -> set[str]:
    """Return the scalars, and the local arrays, that statements give a value; variables of loops not among them."""
    assigned = set()
    for node in walk(*nodes):
        match node:
            case ir.Assign(name=name) | ir.Local(name=name) | ir.Reduce(name=name) | ir.Atomic(result=str(name)):
                assigned.add(name)
    return assigned


def names_given(*nodes: Node) -> set[str]:
    """Return the names that statements give a value, variables of loops among them."""
    return names_assigned(*nodes) | {node.variable for node in walk(*nodes) if isinstance(node, ir.For)}


def locals_in(nest: ir.Nest) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the local arrays of a nest's iterations."""
    return {node.name: node.shape for node in walk(*nest.body) if isinstance(node, ir.Local)}


def checked_in(nest: ir.Nest) -> dict[str, tuple[int, ...]]:
    """Return the sizes that the indices of array types are checked against, by the calls of types."""
    return {node.array: node.sizes for node in walk(*nest.body) if isinstance(node, ir.IndexCheck)}


def without_checks(nest: ir.Nest, modes: Mapping[int, ir.Mode]) -> ir.Nest:
    """Return a nest without the checks of array types' indices that are in range."""

    def block(statements: tuple[ir.Statement, ...]) -> tuple[ir.Statement, ...]:
        return tuple(map(inside, (one for one in statements if not is_dropped(one))))

    def is_dropped(node: ir.Statement) -> bool:
        return isinstance(node, ir.IndexCheck) and modes.get(node.at, "check") != "check"

    def inside(node: ir.Statement) -> ir.Statement:
        match node:
            case ir.If():
                return replace(node, then=block(node.then), otherwise=block(node.otherwise))
            case ir.For() | ir.While():
                return replace(node, body=block(node.body))
            case _:
                return node

    return replace(nest, body=block(nest.body)) if checked_in(nest) else nest


def expressions_of(node: Node) -> list[ir.Expression]:
    """Return the expressions that a node itself consists of, without the statements that it encloses."""
    return [part for part in children(node) if isinstance(part, ir.Expression)]


def type_of(expression: ir.Expression) -> ir.Type:
    """Return the type of an expression that has one."""
    assert expression.type is not None
    return expression.type


def dtype_of(expression: ir.Expression) -> ir.Dtype:
    """Return the type of an expression that has one, weak or not."""
    return type_of(expression).dtype


def renamed(node: NodeType, names: Mapping[str, str]) -> NodeType:
    """Return a node that reads scalars by other names."""
    return mapped(
        node, lambda one: replace(one, name=names.get(one.name, one.name)) if isinstance(one, ir.Name) else one
    )


def mapped(node: NodeType, change: Callable[[Node], Node]) -> NodeType:
    """Return a copy of a node in which `change` has replaced each node, its parts before itself."""
    changes: dict[str, Any] = {}
    for one in fields(node):
        value = getattr(node, one.name)
        if isinstance(value, _NODES):
            changes[one.name] = mapped(value, change)
        elif isinstance(value, tuple) and value and isinstance(value[0], _NODES):
            changes[one.name] = tuple([mapped(part, change) for part in value])
    return cast("NodeType", change(replace(node, **changes) if changes else node))


def written_index(index: ir.Expression) -> ir.Expression:
    """Return an index as the program has written it, not as the int64 that is made of it."""
    while True:
        match index:
            case ir.Convert(to=ir.Type(dtype="int64"), operand=ir.Expression(type=ir.Type(dtype=of)) as operand) if (
                is_integer(of)
            ):
                index = operand
            case ir.FunctionCall(function="min", arguments=(of, ir.Constant(value=value))) if value == (1 << 63) - 1:
                index = of
            case _:
                return index


def constant_step(loop: ir.For) -> int | None:
    """Return the step of a loop if it is a constant, and not 0."""
    match loop.step:
        case ir.Constant(value=int(step)):  # anything else is refused where types are found
            return int(step) or None
        case _:
            return None


def beyond_int64(bound: ir.Expression) -> ir.Expression | None:
    """Return the uint64 that a bound or a step follows from, which int64 may not hold; None if it is none."""
    match bound:
        case ir.Convert(to=ir.Type(dtype="int64", is_weak=True), operand=operand) if operand.type is not None:
            return operand if operand.type.dtype == "uint64" else None
        case _:
            return None


def may_be_beyond(loop: ir.For) -> bool:
    """Tell whether int64 may not hold a bound, or the step, of a loop."""
    return any(beyond_int64(bound) is not None for bound in (loop.start, loop.stop, loop.step))


def can_be_refused(loop: ir.For) -> bool:
    """Tell whether the bounds of a loop, or its step, may be such as loops cannot have."""
    return constant_step(loop) is None or may_be_beyond(loop)


def has_load(expression: ir.Expression) -> bool:
    """Tell whether an expression reads an element."""
    return any(isinstance(node, ir.Load) for node in walk(expression))


def can_divide_by_zero(node: Node) -> bool:
    """Tell whether a node divides integers, and not by a constant other than 0."""
    match node:
        case ir.Binary(operator="//" | "%", right=right, type=ir.Type(dtype=dtype)):
            return is_integer(dtype) and not (isinstance(right, ir.Constant) and right.value != 0)
        case _:
            return False


def changes_elements(statements: Iterable[ir.Statement]) -> bool:
    """Tell whether statements change elements of arrays."""
    kinds = (ir.Store, ir.Atomic, ir.Local, ir.Reduce)
    return any(isinstance(node, kinds) for node in walk(*statements))
