"""The trips of a loop: ``range``, alone or in ``omp.loop`` or ``acc.loop``, and the clauses of these."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from offload.loops.front.calls import known_name
from offload.loops.front.frames import Parameter, Scalar
from offload.loops.front.source import Frozen
from offload.loops.tree import ir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.errors import LoopError
    from offload.loops.front.frames import Frame

# What `bind` says, as a level and an order.
_BINDINGS: Final[dict[object, tuple[str, Literal["", "seq"]]]] = {
    None: ("", ""),
    "teams": ("gang", ""),
    "parallel": ("vector", ""),
    "thread": ("", "seq"),
}

_Order = Literal["", "seq", "independent", "auto"]

_ORDERS: Final[tuple[_Order, ...]] = ("seq", "independent", "auto")
_LEVELS: Final = ("gang", "worker", "vector")

_CLAUSES: Final = {
    "offload.loop": {"bind", "collapse", "reduction"},
    "offload.acc.loop": {
        *("gang", "worker", "vector", "seq", "independent", "auto"),
        *("collapse", "tile", "reduction", "private"),
    },
}


@dataclass(frozen=True, slots=True)
class Counted:
    """The arguments of a ``range``, with those that the text leaves out, and the clauses around it."""

    start: ast.expr
    stop: ast.expr
    step: ast.expr
    clauses: ir.LoopClauses  # of ``omp.loop`` around it


def range_of(frame: Frame, node: ast.For, rule: str) -> Counted:
    """Return the range that a loop counts; `rule` is the one that another iterator breaks."""
    iterator = node.iter
    clauses = ir.LoopClauses()
    if isinstance(iterator, ast.Call) and (construct := known_name(frame, iterator.func)) in _CLAUSES:
        clauses = _clauses(frame, iterator, construct or "")
        iterator = iterator.args[0]
    if not isinstance(iterator, ast.Call) or known_name(frame, iterator.func) != "range":
        raise _iterator_refusal(frame, node, iterator, rule)
    if not isinstance(node.target, ast.Name):
        raise frame.refusal(node, rule, "a range sets one variable; write one variable")
    if iterator.keywords or not 1 <= len(iterator.args) <= 3 or _has_starred(iterator.args):
        raise frame.refusal(
            node, "range", "range takes one to three numbers, by position; write range(start, stop, step)"
        )
    zero, one = (ast.copy_location(ast.Constant(value), iterator) for value in (0, 1))
    match iterator.args:
        case [stop]:
            return Counted(zero, stop, one, clauses)
        case [start, stop]:
            return Counted(start, stop, one, clauses)
        case [start, stop, step]:
            return Counted(start, stop, step, clauses)
        case _:
            raise AssertionError


def _iterator_refusal(frame: Frame, node: ast.For, iterator: ast.expr, rule: str) -> LoopError:
    name = known_name(frame, iterator.func) if isinstance(iterator, ast.Call) else None
    if name in ("enumerate", "zip", "map", "filter", "reversed", "iter"):
        return frame.refusal(node, "loop", f"`{name}` has no device form; count by range(…) and index the arrays")
    return frame.refusal(
        node, rule, "a loop can iterate only over range(…); write `for i in range(len(a))` and index the array"
    )


def collapsed_loops(frame: Frame, node: ast.For, n_loops: int) -> list[ast.For]:
    """Return the loops that ``collapse`` makes one iteration space of, outermost first."""
    loops = [node]
    while len(loops) < n_loops:
        match loops[-1].body:
            case [ast.For() as inner]:
                loops.append(inner)
            case [first, *_]:
                raise frame.refusal(
                    first,
                    "collapse",
                    f"collapse={n_loops} needs loops that are nested with nothing between them; move this into the "
                    f"innermost loop, or write collapse={len(loops)}",
                )
            case []:
                raise AssertionError
    variables = {loop.target.id for loop in loops if isinstance(loop.target, ast.Name)}
    for loop in loops[1:]:
        if isinstance(loop.iter, ast.Call) and known_name(frame, loop.iter.func) in _CLAUSES:
            raise frame.refusal(loop.iter, "collapse", "collapsed loops are one loop; put this on the outermost loop")
        entering = variables & {part.id for part in ast.walk(loop.iter) if isinstance(part, ast.Name)}
        if entering:
            raise frame.refusal(
                loop.iter,
                "collapse",
                f"{min(entering)} is used in the bounds of a loop that is collapsed with its own; with "
                f"collapse={n_loops}, bounds must not use the variables of the collapsed loops; collapse fewer loops",
            )
    return loops


def levels_in(frame: Frame, node: ast.For, said: str) -> tuple[str, ...]:
    """Return the levels that a loop's body is within; refuse levels that are not finer than the levels around."""
    around, levels = frame.lowering.levels, tuple(said.split())
    if around and levels and _LEVELS.index(levels[0]) <= _LEVELS.index(around[-1]):
        raise frame.refusal(
            node,
            "loop",
            f"a {levels[0]} loop is inside a {around[-1]} loop; levels must become finer inwards: gang, worker, vector",
        )
    return (*around, *levels)


# -- clauses


def _clauses(frame: Frame, call: ast.Call, construct: str) -> ir.LoopClauses:
    if len(call.args) != 1:
        raise frame.refusal(call, "loop", "loop(…) takes one range, and clauses by keyword")
    said: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg not in _CLAUSES[construct]:
            allowed = ", ".join(sorted(_CLAUSES[construct]))
            raise frame.refusal(call, "loop", f"{keyword.arg}= is not a clause of loop(…); use {allowed}")
        said[keyword.arg] = _constant_value(frame, keyword.value)
    sizes = tuple((word, said[word]) for word in _LEVELS if type(said.get(word)) is int)
    _check_values(frame, call, said, sizes)
    level, order = _level(frame, call, said)
    return ir.LoopClauses(
        level=level,
        sizes=sizes,
        order=order,
        collapse=said.get("collapse", 1),
        tile=tuple(said.get("tile") or ()),
        reductions=_items(frame, call, said.get("reduction") or {}),
        private=tuple(_variable_named(frame, name) for name in _names(frame, call, said.get("private") or ())),
    )


def _check_values(frame: Frame, call: ast.Call, said: dict[str, Any], sizes: tuple[tuple[str, int], ...]) -> None:
    for word in (*_LEVELS, *_ORDERS):
        value = said.get(word, False)
        if type(value) is not bool and (word in _ORDERS or type(value) is not int):
            also = "" if word in _ORDERS else ", or a size"
            raise frame.refusal(call, "loop", f"{word} must be True or False{also}, not {value!r}")
    collapse, tile = said.get("collapse", 1), said.get("tile") or ()
    if not isinstance(tile, (tuple, list)):
        raise frame.refusal(call, "loop", f"tile must be a tuple of sizes, one per loop, such as (8, 32), not {tile!r}")
    if any(type(number) is not int or number < 1 for number in (collapse, *tile, *(size for _, size in sizes))):
        raise frame.refusal(call, "loop", "collapse, tile and the sizes of levels must be integers, 1 or more")
    if tile and collapse not in (1, len(tile)):
        raise frame.refusal(call, "loop", f"collapse={collapse}, but tile has {len(tile)} sizes; leave one out")


def _level(frame: Frame, call: ast.Call, said: dict[str, Any]) -> tuple[str, _Order]:
    bind = said.get("bind")
    if bind not in _BINDINGS:
        raise frame.refusal(call, "loop", f"bind must be 'teams', 'parallel' or 'thread', not {bind!r}")
    orders = [word for word in _ORDERS if said.get(word)]
    if len(orders) > 1:
        raise frame.refusal(
            call, "loop", f"a loop can be only one of seq, independent and auto, not {' and '.join(orders)}"
        )
    level = " ".join(word for word in _LEVELS if said.get(word))
    if level and orders == ["seq"]:
        raise frame.refusal(call, "loop", f"a seq loop cannot have {level}; leave one of them out")
    bound_level, bound_order = _BINDINGS[bind]
    return level or bound_level, orders[0] if orders else bound_order


def _items(frame: Frame, call: ast.Call, said: Any) -> tuple[ir.LoopReduction, ...]:
    if not isinstance(said, dict) or not set(said) <= set(get_args(ir.ReductionOperator)):
        operators = " ".join(get_args(ir.ReductionOperator))
        raise frame.refusal(
            call,
            "loop",
            f'reduction must be a dict of operators and names, such as {{"+": ["s"]}}, with the operators {operators}',
        )
    return tuple(
        ir.LoopReduction(operator, _scalar_named(frame, call, name))
        for operator, names in said.items()
        for name in _names(frame, call, names)
    )


def _scalar_named(frame: Frame, call: ast.Call, name: str) -> str:
    binding = frame.names.get(name)
    if not isinstance(binding, (Scalar, Parameter)):
        raise frame.refusal(
            call,
            "reduction",
            f"{name} has no value before this loop; assign its start value, for example `{name} = 0.0`",
        )
    return binding.name


def _variable_named(frame: Frame, name: str) -> str:
    """Return the parameter or variable of the loop function that a name stands for, here."""
    variable = getattr(frame.names.get(name), "name", name)
    assert isinstance(variable, str)
    return variable


def _names(frame: Frame, call: ast.Call, said: Any) -> tuple[str, ...]:
    names = (said,) if isinstance(said, str) else said
    if not isinstance(names, (tuple, list, set)):
        raise frame.refusal(
            call, "loop", f"{said!r} is not a list of names; write the names as strings, for example ['s']"
        )
    for name in names:
        if not isinstance(name, str) or not frame.is_local(name):
            raise frame.refusal(
                call, "loop", f"{name!r} is not a variable of this function; clauses can name only its variables"
            )
    return tuple(names)


def _constant_value(frame: Frame, node: ast.expr) -> Any:
    if isinstance(frozen := frame.source.meant(node), Frozen):
        return frozen.value
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise frame.refusal(
            node, "loop", "clauses in a body are read before it runs; write this clause as a constant"
        ) from None


def _has_starred(nodes: Sequence[ast.expr]) -> bool:
    return any(isinstance(node, ast.Starred) for node in nodes)
