"""A loop function's text as IR.

A body is a docstring, scalar statements, a nest (several, under ``kernels_loop``) and a ``return``. `parse` goes
through these once, in the order of the text. `nests` lowers the parts, and the rules in `inline` their statements.
The code here knows no types; it checks every rule that needs none, each at its own place in the text.
"""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from offload.errors import ClauseError
from offload.loops.front.flow import Flow
from offload.loops.front.frames import Binding, Frame, Lowering, Parameter
from offload.loops.front.inline import RULES, body_of
from offload.loops.front.nests import LoopText, NestClauses, unbound
from offload.loops.front.statements import return_refusal
from offload.loops.front.values import listed
from offload.loops.tree import ir

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from offload.loops.front.layouts import AnyLayout
    from offload.loops.front.source import FunctionSource


__all__ = ["NestClauses", "check_plain", "parse"]


def parse(
    source: FunctionSource,
    clauses: NestClauses,
    absent: frozenset[str] = frozenset(),
    layouts: Mapping[str, AnyLayout] = MappingProxyType({}),
) -> ir.ParsedFunction:
    """Return the IR of a loop function, without types.

    ``absent`` are the parameters that are None at the call, ``layouts`` those that are array types.

    Raises `LoopError` for text outside of the subset, and `ClauseError` for a clause with a name that the function
    lacks.
    """
    return _function(LoopText(source, clauses, absent, layouts))


def check_plain(source: FunctionSource) -> None:
    """Check a plain function that loops are to call, as ``declare_target`` does; raise `LoopError` if none can."""
    if source.called:  # its text depends on the array types that it is given
        return
    lowering = Lowering(RULES, set(source.identifiers), checks=True, is_in_nest=True)
    names: dict[str, Binding] = {parameter.arg: Parameter(parameter.arg) for parameter in source.parameters}
    frame = Frame(lowering, source, names, [])
    values = body_of(frame, source.definition.body)
    given = frozenset(parameter.arg for parameter in source.parameters)

    def unset(name: str, place: ir.SourceLine) -> NoReturn:
        raise unbound([lowering.origins.get(name, name)], place)

    flow = Flow(unset, given, lowering.flags)
    flow.read(values or (), flow.through(frame.out, frozenset()))


def _function(text: LoopText) -> ir.ParsedFunction:
    """Return the whole function."""
    definition = text.frame.source.definition
    if definition.args.vararg or definition.args.kwarg:
        raise text.frame.refusal(
            definition, "argument", "a loop function cannot have * or **; give it one parameter for each argument"
        )
    _check_names(text)
    statements = [*_flat(text, definition.body)]
    last = statements[-1] if statements else None
    returned = last if isinstance(last, ast.Return) else None
    names = _returned(text, returned)
    text.returned = frozenset(names)
    for node in statements if returned is None else statements[:-1]:
        _part(text, node)
    if not any(isinstance(part, ir.Nest) for part in text.parts):
        raise text.frame.refusal(definition, "range", "the function contains no loop; write `for i in range(…)`")
    if returned is not None:
        _check_returned(text, returned, names)
    return ir.ParsedFunction(
        name=definition.name,
        place=text.frame.source.place,
        parameters=tuple(parameter.arg for parameter in text.frame.source.parameters),
        absent=text.absent,
        arrays=tuple(one.arg for one in text.frame.source.parameters if one.arg in text.frame.lowering.arrays),
        parts=tuple(text.parts),
        returns=names,
        returns_tuple=returned is not None and isinstance(returned.value, ast.Tuple),
        layouts=text.frame.lowering.layouts,
    )


def _check_names(text: LoopText) -> None:
    clauses = text.clauses
    words = ("private", "firstprivate", "lastprivate", "atomic")
    said = [("reduction", one.name) for one in clauses.reductions]
    said += [(word, name) for word in words for name in getattr(clauses, word)]
    for word, name in said:
        if not text.frame.is_local(name) or (word == "atomic" and name not in text.frame.names):
            what = "no parameter" if word == "atomic" else "neither a parameter nor a variable"
            raise ClauseError(
                f"{word}: {name!r} is {what} of {text.frame.source.definition.name}; name one of"
                f" {', '.join(sorted(text.frame.names))}"
            )


def _flat(text: LoopText, nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, those of an ``if`` that ``is None`` decides in its place."""
    for node in nodes:
        decided = text.frame.decided(node.test) if isinstance(node, ast.If) else None
        if isinstance(node, ast.If) and decided is not None and _has_loops(node):
            yield from _flat(text, node.body if decided else node.orelse)
        else:
            yield node


def _part(text: LoopText, node: ast.stmt) -> None:
    has_nest = any(isinstance(part, ir.Nest) for part in text.parts)
    match node:
        case ast.For():
            if has_nest and not text.clauses.several:
                raise text.frame.refusal(
                    node,
                    "range",
                    "a second loop is not allowed, because a loop function has one nest; for several, use "
                    "acc.kernels_loop",
                )
            text.nest(node)
        case ast.While():
            raise text.frame.refusal(
                node, "range", "iterations must be countable before they run; write `for i in range(…)`"
            )
        case ast.Return():
            raise return_refusal(text.frame, node)
        case ast.Expr(value=ast.Constant()) | ast.Pass():
            pass
        case _ if has_nest and not text.clauses.several:
            raise text.frame.refusal(
                node,
                "return",
                "after the loop, only `return` of scalars in reduction= or lastprivate= is allowed; do this in the "
                "caller",
            )
        case ast.If() if _has_loops(node):
            raise text.frame.refusal(
                node, "range", "the loop is under a condition; move the `if` into the loop, or into the caller"
            )
        case _:
            text.on_host(node)


# -- the end


def _returned(text: LoopText, node: ast.Return | None) -> tuple[str, ...]:
    value = None if node is None else node.value
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return ()
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    names = [value.id for value in values if isinstance(value, ast.Name) and text.frame.is_local(value.id)]
    if len(names) != len(values):
        assert node is not None
        raise text.frame.refusal(
            node,
            "return",
            "a loop can return only scalars of reduction= and lastprivate=, by their names; compute the rest in the "
            "caller",
        )
    return tuple(names)


def _check_returned(text: LoopText, node: ast.Return, names: tuple[str, ...]) -> None:
    nests = [part for part in text.parts if isinstance(part, ir.Nest)]
    known = {one.name for nest in nests for one in nest.reductions} | {name for nest in nests for name in nest.last}
    if missing := [name for name in names if name not in known]:
        are = "is" if len(missing) == 1 else "are"
        raise text.frame.refusal(
            node,
            "return",
            f"{listed(missing)} {are} in no reduction= and no lastprivate=; add lastprivate={missing} if you mean the "
            "last iteration's value, or a reduction",
        )


def _has_loops(node: ast.AST) -> bool:
    return any(isinstance(part, (ast.For, ast.While)) for part in ast.walk(node))
