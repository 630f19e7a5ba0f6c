"""Calls: the functions of numbers that loops have a form for, types as casts, atomic updates, plain functions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, cast

from offload.loops.front.frames import Parameter
from offload.loops.front.offsets import offsets_of
from offload.loops.front.rows import extent_of
from offload.loops.front.source import DTYPES, Frozen, KnownName, OutsideLayout, Plain, Unfit
from offload.loops.front.values import element_at, has_attributes, index_nodes, item_refusal, row_of
from offload.loops.tree import ir
from offload.loops.tree.nodes import changes_elements

if TYPE_CHECKING:
    from offload.errors import LoopError
    from offload.loops.front.frames import Frame

_BOTH: Final = {
    **dict.fromkeys(["sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1"], 1),
    **dict.fromkeys(["log", "log2", "log10", "log1p", "sqrt", "cbrt"], 1),
    **dict.fromkeys(["floor", "ceil", "trunc", "fabs", "isnan", "isinf", "isfinite"], 1),
    **dict.fromkeys(["hypot", "copysign", "fmod"], 2),
}

# The functions that become an `ir.FunctionCall`, and how many arguments they have; `min` and `max` take any number.
FUNCTIONS: Final[dict[str, int]] = {
    **{f"{module}.{name}": count for module in ("math", "numpy") for name, count in _BOTH.items()},
    **{f"math.{name}": 1 for name in ["asin", "acos", "atan", "asinh", "acosh", "atanh"]},
    **{f"math.{name}": 1 for name in ["erf", "erfc", "gamma", "lgamma"]},
    **{f"numpy.{name}": 1 for name in ["arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"]},
    **{f"cmath.{name}": 1 for name in ["exp", "sqrt", "isnan", "isinf", "isfinite"]},
    **{f"numpy.{name}": 1 for name in ["conjugate", "real", "imag"]},
    "complex": 2,
    "math.atan2": 2,
    "numpy.arctan2": 2,
    "numpy.minimum": 2,
    "numpy.maximum": 2,
    "math.pow": 2,
    "numpy.power": 2,
    "numpy.absolute": 1,
    "abs": 1,
    "round": 1,
}

_CASTS: Final[dict[str, ir.Type]] = {
    "int": ir.Type("int64", is_weak=True),
    "float": ir.Type("float64", is_weak=True),
    "complex": ir.Type("complex128", is_weak=True),
    "bool": ir.Type("bool", is_weak=True),
    **{f"numpy.{dtype}": ir.Type(cast("ir.Dtype", dtype)) for dtype in DTYPES},
}

ATOMICS: Final[dict[str, ir.AtomicOperator]] = {
    "offload.atomic.add": "+",
    "offload.atomic.sub": "-",
    "offload.atomic.*": "*",  # of a directive string: no program can write the name
    "offload.atomic.min": "min",
    "offload.atomic.max": "max",
    "offload.atomic.and_": "&",
    "offload.atomic.or_": "|",
    "offload.atomic.xor": "^",
    "offload.atomic.exchange": "exchange",
    "offload.atomic.cas": "cas",
}

_ITERATORS: Final = {"enumerate", "zip", "map", "filter", "iter", "next", "reversed"}


def known_name(frame: Frame, node: ast.expr) -> str | None:
    """Return the known name that an expression stands for, None if it stands for something else."""
    meaning = frame.source.meant(node)
    return meaning.name if isinstance(meaning, KnownName) else None


def type_named(frame: Frame, node: ast.expr) -> ir.Type | None:
    """Return the type that an expression stands for: ``float``, ``np.float32``."""
    return _CASTS.get(known_name(frame, node) or "")


def value_of_call(frame: Frame, node: ast.Call) -> ir.Expression:
    """Lower a call that has one value."""
    if known_name(frame, node.func) in ATOMICS:
        old = frame.lowering.fresh("old")
        update_atomically(frame, node, old)
        return ir.Name(place=frame.place(node), name=old)
    values = values_of_call(frame, node)
    if values is None:
        raise frame.refusal(node, "call", "this function returns nothing; let the call stand alone, or return a number")
    if len(values) != 1:
        raise frame.refusal(
            node,
            "assign",
            f"the call returns {len(values)} values where one is needed; assign them one by one, as in `x, y = f(…)`",
        )
    return values[0]


def values_of_call(frame: Frame, node: ast.Call) -> tuple[ir.Expression, ...] | None:
    """Lower a call that may have several values, or none."""
    if (offsets := offsets_of(frame, node)) is not None:
        return offsets
    text = ast.unparse(node.func)
    match frame.source.meant(node.func):
        case KnownName(name):
            return (_known_call(frame, node, name),)
        case Plain(function):
            return frame.lowering.rules.inlined(frame, function, node)
        case Frozen() | OutsideLayout():  # a type has been lowered
            raise frame.refusal(node, "call", f"{text} is a number; call a function")
        case Unfit(what):
            _check_recursion(frame, node)
            raise frame.refusal(
                node,
                "call",
                f"{text} is {what} and has no device form; call functions of math, scalar functions of numpy, or"
                " plain functions of Python",
            )
        case None:
            if (conjugated := _conjugated(frame, node)) is not None:
                return (conjugated,)
            if not isinstance(node.func, (ast.Name, ast.Attribute)):
                frame.value(node.func)  # a lambda is refused as one
            _check_recursion(frame, node)
            if isinstance(node.func, ast.Name) and isinstance(frame.names.get(node.func.id), Parameter):
                raise frame.refusal(
                    node,
                    "call",
                    f"{text} is called, but is not an array type; pass an ArrayType, or call a function of the module",
                )
            if isinstance(node.func, ast.Name) and not frame.is_local(node.func.id):
                remedy = f"call `{_OF_C[text]}`" if text in _OF_C else "define it before the function that calls it"
                raise frame.refusal(node, "name", f"{text} is not defined; {remedy}")
            raise _call_refusal(frame, node, text)


def _conjugated(frame: Frame, node: ast.Call) -> ir.Expression | None:
    """Lower ``z.conjugate()``, or ``z.conj()`` of NumPy's numbers; return None for any other call."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr in ("conjugate", "conj")):
        return None
    if not has_attributes(frame, node.func.value):
        return None
    if node.args or node.keywords:
        raise frame.refusal(node, "call", f"{node.func.attr}() takes no arguments")
    number = frame.value(node.func.value)
    return ir.FunctionCall(place=frame.place(node), function="complex.conjugate", arguments=(number,))


def _check_recursion(frame: Frame, node: ast.Call) -> None:
    codes = [code.co_name for code in frame.lowering.callers]
    if isinstance(node.func, ast.Name) and node.func.id in codes:
        raise frame.refusal(
            node, "call", f"{node.func.id} calls itself, and a recursive function has no device form; write a loop"
        )


_OF_C: Final = {"fmax": "max", "fmin": "min"}
"""Functions of C that Python's math does not have, with those that loops have in their place."""


def _call_refusal(frame: Frame, node: ast.Call, text: str) -> LoopError:
    remedy = "call functions of math, scalar functions of numpy, or plain functions of Python"
    if (instead := _OF_C.get(text.rpartition(".")[2])) is not None:
        remedy = f"call `{instead}`"
    return frame.refusal(node, "call", f"`{text}` has no device form; {remedy}")


def _known_call(frame: Frame, node: ast.Call, name: str) -> ir.Expression:
    place = frame.place(node)
    if name == "print":
        raise frame.refusal(node, "branch", "a loop cannot print; store the values in an array and print the array")
    if name in _ITERATORS:
        raise frame.refusal(node, "loop", f"`{name}` has no device form; count by range(…) and index the arrays")
    if name == "range" or name.endswith(".loop"):
        raise frame.refusal(node, "loop", "this is allowed only in the header of a `for`; write `for i in range(…)`")
    for argument in (*node.args, *node.keywords):
        if isinstance(argument, (ast.Starred, ast.keyword)):
            raise frame.refusal(node, "call", f"`{name}` takes its numbers by position here; leave out * and keywords")
    n_arguments = len(node.args)
    if name == "len" and n_arguments == 1:
        return extent_of(frame, node, row_of(frame, node.args[0]), 0)
    if name in _CASTS and n_arguments == 1:
        return ir.Convert(place=place, to=_CASTS[name], operand=frame.value(node.args[0]))
    if name in ("min", "max") and n_arguments > 1:
        first, *others = frame.in_order(node.args)
        for other in others:
            first = frame.bounded(ir.FunctionCall(place=place, function=name, arguments=(first, other)))
        return first
    if name == "math.log" and n_arguments == 2:  # as CPython has it
        of, base = (ir.FunctionCall(place=place, function=name, arguments=(one,)) for one in frame.in_order(node.args))
        return ir.Binary(place=place, operator="/", left=of, right=base)
    if FUNCTIONS.get(name) == n_arguments:
        return ir.FunctionCall(place=place, function=name, arguments=tuple(frame.in_order(node.args)))
    if name == "divmod":
        raise frame.refusal(node, "call", "divmod returns two values; write `q, r = divmod(a, b)`")
    if name.startswith("numpy.") and name[6:].startswith(("float", "complex", "longdouble")):
        raise frame.refusal(
            node, "types", f"{name} is not a type that loops support; convert to one of {', '.join(sorted(DTYPES))}"
        )
    if name in FUNCTIONS or name in _CASTS or name in ("len", "min", "max"):
        raise frame.refusal(
            node, "call", f"`{name}` with {n_arguments} arguments has no device form; pass numbers only"
        )
    raise _call_refusal(frame, node, name)


def update_atomically(frame: Frame, node: ast.Call, result: str | None) -> None:
    """Lower a call of ``omp.atomic``; `result` is the variable that gets the old value."""
    operator = ATOMICS[known_name(frame, node.func) or ""]
    n_arguments = 4 if operator == "cas" else 3
    form = "(a, index, expected, value)" if operator == "cas" else "(a, index, value)"
    if len(node.args) != n_arguments or node.keywords:
        raise frame.refusal(node, "atomic", f"its arguments are {form}, by position")
    check_in_nest(frame, node, "atomic")
    row = row_of(frame, node.args[0])
    if row.array.name in frame.lowering.items:
        raise item_refusal(frame, node, row.array.name)
    array, indices = element_at(frame, node, row, index_nodes(node.args[1]))
    with frame.block() as before:
        values = frame.in_order(node.args[2:])
    if changes_elements(before):
        indices = tuple(frame.kept(index) for index in indices)
    frame.out += before
    frame.out.append(
        ir.Atomic(
            place=frame.place(node),
            array=array.name,
            indices=indices,
            operator=operator,
            value=values[-1],
            at=frame.lowering.at(),
            expected=values[0] if operator == "cas" else None,
            result=result,
        )
    )


def check_in_nest(frame: Frame, node: ast.AST, rule: str) -> None:
    """Refuse a change of elements outside of a nest."""
    if not frame.lowering.is_in_nest:
        raise frame.refusal(
            node,
            rule,
            "elements of arrays can be changed only in the loop; move this into a loop, or before the call",
        )
