"""The clauses of directives around nests of loops: the construct they stand for, and its clauses that are constants.

Clauses with values (``map``, ``depend``, ``num_threads`` …) are evaluated at each encounter by
`offload.pragma.calls`. The clauses here decide about the text of the loop function, so the nest has them once.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from offload.pragma.nest_names import IterationNames
    from offload.pragma.placing import DirectiveText
    from offload.pragma.syntax import Clause, Directive, Item

NestKind: TypeAlias = Literal["target_loop", "parallel_loop", "acc.parallel_loop", "acc.kernels_loop"]

# The operators of reductions over loops.
_OPERATORS: Final = ("+", "*", "min", "max", "&", "|", "^", "and", "or")
_LEVELS: Final = ("gang", "worker", "vector")
_ORDERS: Final = ("seq", "independent", "auto")
_SHARING: Final = ("private", "firstprivate", "lastprivate")
_BINDS: Final = {"teams": "gang", "parallel": "vector", "thread": "seq"}

CONSTANTS: Final = frozenset({*_SHARING, "collapse", "tile", "reduction"})
"""The clauses that `words_of` alone decides: it may have other names in them than the directive."""

# Clauses by which a variable of the enclosing function receives a value.
_MOVED_BACK: Final = {"map": ("from", "tofrom", ""), "copy": ("",), "copyout": ("",), "shared": ("",)}


def kind_of(directive: Directive) -> NestKind:
    """Return the construct that a directive around a nest stands for."""
    if directive.language == "acc":
        return "acc.kernels_loop" if directive.name.startswith("kernels") else "acc.parallel_loop"
    return "target_loop" if directive.name.startswith("target") else "parallel_loop"


def words_of(directive: Directive, where: DirectiveText) -> dict[str, Any]:
    """Return the constant clauses of the construct; those with names are there in any case."""
    words = _common(directive, where)
    for word in _SHARING:
        words[word] = _names(directive, word)
    words.setdefault("reduction", {})
    if directive.language == "acc":
        words |= dict.fromkeys(_LEVELS, False) if directive.name == "serial loop" else _levels(directive, where)
    return words


def inner_words_of(directive: Directive, where: DirectiveText) -> dict[str, Any]:
    """Return the clauses of `acc.loop` for a directive around a loop inside of a nest."""
    words = _common(directive, where)
    if directive.language == "acc":
        words |= _levels(directive, where, is_inner=True)
    elif (bind := directive.clause("bind")) is not None:
        words[_BINDS[bind.kind]] = True
    elif not {"for", "parallel"}.isdisjoint(directive.name.split()):
        words["vector"] = True
    if private := _names(directive, "private"):
        words["private"] = private
    return words


def constant_of(value: Any) -> ast.expr:
    """Return a constant clause as text."""
    if isinstance(value, dict):
        keys: list[ast.expr | None] = [ast.Constant(key) for key in value]
        return ast.Dict(keys, [constant_of(one) for one in value.values()])
    if isinstance(value, (list, tuple)):
        return ast.Tuple([constant_of(one) for one in value], ast.Load())
    return ast.Constant(value)


def _common(directive: Directive, where: DirectiveText) -> dict[str, Any]:
    words: dict[str, Any] = {}
    if (clause := directive.clause("collapse")) is not None:
        words["collapse"] = _count(clause, where)[0]
    if (clause := directive.clause("tile")) is not None:
        words["tile"] = tuple(_count(clause, where))
    for clause in directive.all("reduction"):
        if clause.kind not in _OPERATORS:
            raise where.refusal(
                f"reduction: {clause.kind!r} is not an operator of loops; use one of {' '.join(_OPERATORS)}",
                clause.kind_span,
                is_unsupported=True,
            )
        words.setdefault("reduction", {}).setdefault(clause.kind, []).extend(_name(one, where) for one in clause.items)
    return words


def _levels(directive: Directive, where: DirectiveText, *, is_inner: bool = False) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for level in _LEVELS:
        clause = directive.clause(level)
        if clause is not None and (is_inner or all(isinstance(one.node, ast.Constant) for one in clause.expressions)):
            words[level] = _count(clause, where)[0] if clause.expressions else True
    for order in _ORDERS:
        if directive.clause(order) is not None:
            words[order] = True
    return words


def _count(clause: Clause, where: DirectiveText) -> list[int]:
    """Return the numbers of a clause, which decide about the text of the loop."""
    found = []
    for expression in clause.expressions:
        value = expression.node.value if isinstance(expression.node, ast.Constant) else None
        if type(value) is not int or value < 1:
            raise where.refusal(
                f"{clause.name}: `{expression.text}` is not allowed; write a number of at least 1, which no variable "
                "gives",
                expression.span,
            )
        found.append(value)
    return found


def _names(directive: Directive, word: str) -> list[str]:
    return [item.name for clause in directive.all(word) for item in clause.items]


def _name(item: Item, where: DirectiveText) -> str:
    """Return the variable that an item of a reduction is: also the array of one element that it is part of."""
    if not item.name:
        raise where.refusal(
            f"reduction: `{item.text}` is not a variable; name a scalar or an array of one element", item.span
        )
    return item.name


# -- names in clauses, and in none


def check_defaults(
    directive: Directive,
    where: DirectiveText,
    words: dict[str, Any],
    names: IterationNames,
    arguments: frozenset[str],
    outside: frozenset[str],
) -> None:
    """Check names that a clause would leave without effect, and those in no clause; ``default`` may add clauses."""
    own = {*(name for of in words["reduction"].values() for name in of), *(n for w in _SHARING for n in words[w])}
    for clause in directive.clauses:
        for item in clause.items if clause.kind in _MOVED_BACK.get(clause.name, ()) else ():
            if item.is_name and item.name in names.stored - own:
                raise where.refusal(
                    f"{clause.name}: each iteration assigns {item.name}, so the result is lost; put {item.name} into "
                    "reduction or lastprivate",
                    item.span,
                )
    if lost := sorted((names.stored - own) & outside):
        raise where.refusal(
            f"{lost[0]} is a variable of outside the function, which each iteration assigns; put {lost[0]} into "
            "reduction, lastprivate or private"
        )
    default = directive.clause("default") if directive.language == "omp" else None
    if default is None or default.kind == "shared":
        return
    given = own | {item.name for clause in directive.clauses for item in clause.items}
    rest = sorted(arguments - given)
    if default.kind == "none" and rest:
        raise where.refusal(
            f"default(none): {rest[0]} is in no clause; name it in shared, firstprivate, private or reduction",
            default.span,
        )
    if default.kind in ("firstprivate", "private"):
        words[default.kind] = [*words[default.kind], *rest]
