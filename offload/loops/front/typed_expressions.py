"""Types of expressions: each node of the loop IR with its type, and with every conversion written out.

The table of `promotion` gives an expression's type from its operands' types. Operands are converted to the type in
which the operator works; weakness alone needs no conversion. Numbers of the text stay exact integers until they get a
type.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Final

from offload.loops.tree import ir
from offload.loops.tree.nodes import type_of
from offload.loops.tree.promotion import (
    BOOL,
    WEAK_BOOL,
    WEAK_COMPLEX,
    WEAK_FLOAT,
    WEAK_INT,
    binary_type,
    cast,
    comparison_types,
    holds,
    is_complex,
    is_float,
    is_integer,
    part_of,
    promote,
    ufunc_float_type,
    unary_type,
)
from offload.loops.tree.text import refusal, row_remedy, text_of, viewed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.errors import LoopError
    from offload.loops.tree.ir import Expression, LoopArrayType, SourceLine, Type
    from offload.loops.tree.promotion import Number

# Of an integer in the text; floats hold all of them.
_MOST_BITS: Final = 1_023

_FOLDS: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
_PREDICATES: Final = frozenset({"isnan", "isinf", "isfinite"})
_WHOLE: Final = frozenset({"floor", "ceil", "trunc"})
# NumPy's functions that loops have for complex numbers.
_OF_COMPLEX: Final = frozenset({"absolute", "conjugate", "real", "imag", "exp", "sqrt", *_PREDICATES})
_ORDERED: Final = frozenset({"<", "<=", ">", ">="})
_MOST_POWER: Final = 100  # CPython and NumPy multiply for such exponents of complex numbers
_OPERATORS: Final = {"fmod": "%", "power": "**"}


class UnknownTypeError(Exception):
    """A scalar has no type yet: an assignment to it has to be looked at first."""


def convert(expression: Expression, to: Type, *, exact: bool = False) -> Expression:
    """Return the value as another type, as C casts; a weak constant that does not fit is an error if `exact`."""
    own = type_of(expression)
    if is_complex(own.dtype) and not (is_complex(to.dtype) or to.dtype == "bool"):
        text = text_of(expression)
        raise refusal(
            expression.place,
            "types",
            f"{text} is {own}, but a real number is needed here; write ({text}).real, ({text}).imag or abs({text})",
        )
    if isinstance(expression, ir.Constant) and own.is_weak:
        value = expression.value
        is_refused = exact or (to.is_weak and to.dtype == "int64") or not (to.dtype == "bool" or holds("int64", value))
        if is_refused and not holds(to.dtype, value):
            remedy = "convert the other operand to a wider type first"
            if to.dtype == "int64" and holds("uint64", value):
                remedy = f"write np.uint64({value}), and np.uint64(…) of what it is combined with"
            raise refusal(expression.place, "types", f"{value} does not fit {to}; {remedy}")
        return replace(expression, value=cast(to.dtype, value), type=to)
    if own.dtype == to.dtype:
        return expression if own == to else replace(expression, type=to)
    return ir.Convert(place=expression.place, type=to, to=to, operand=expression)


def check_fits(constant: ir.Constant, kind: Type, name: str) -> None:
    """Refuse a number of Python's for a scalar whose type does not hold it: CPython would keep it as it is."""
    value = constant.value
    if isinstance(value, int) and not isinstance(value, bool) and kind.dtype != "bool" and not holds(kind.dtype, value):
        raise refusal(
            constant.place,
            "types",
            f"{value} does not fit {name}, which is {kind} by its other assignments; write np.int64({value}), or "
            "another number",
        )


class Expressions:
    """Gives types to expressions."""

    def __init__(
        self,
        scalars: Mapping[str, Type],  # the types known so far; a scalar without one raises `UnknownTypeError`
        arrays: Mapping[str, LoopArrayType],  # local arrays included
        shapes: Mapping[str, tuple[int, ...]],  # of local arrays
    ) -> None:
        self.scalars = scalars
        self.arrays = arrays
        self._shapes = shapes

    def typed(self, node: Expression) -> Expression:
        """Return the expression with types.

        Raises `LoopError` of rule ``types``, ``index`` or ``branch``, and `UnknownTypeError` while a scalar has no type
        yet.
        """
        match node:
            case ir.Constant():
                return replace(node, type=node.type or _weak_type(_checked(node, node.value)))
            case ir.Name():
                return self._name(node)
            case ir.Extent() | ir.Size() | ir.Rank():
                return self._shape(node)
            case ir.Trip():
                return replace(node, type=WEAK_INT)
            case ir.Load():
                indices = self.indices(node.array, node.indices, node.place)
                return replace(node, indices=indices, type=ir.Type(self.arrays[node.array].dtype))
            case ir.Unary():
                return self._unary(node)
            case ir.Binary():
                return self._binary(node)
            case ir.Compare():
                return self._compare(node)
            case ir.Logical():
                return self._logical(node)
            case ir.Select():
                condition = self.truth(node.condition)
                then, otherwise = self.typed(node.then), self.typed(node.otherwise)
                common = promote(type_of(then), type_of(otherwise))
                then, otherwise = convert(then, common, exact=True), convert(otherwise, common, exact=True)
                return replace(node, condition=condition, then=then, otherwise=otherwise, type=common)
            case ir.Convert():
                # NumPy's types refuse a constant that they cannot hold.
                operand = convert(self.typed(node.operand), node.to, exact=not node.to.is_weak)
                return operand if operand.type == node.to else replace(operand, type=node.to)
            case ir.FunctionCall():
                return self._call(node)
            case _:
                raise AssertionError(node)

    def truth(self, node: Expression) -> Expression:
        """Return the condition of a branch: a number is true if it is not zero."""
        if isinstance(node, ir.Logical):
            return _joined(node, self.truth(node.left), self.truth(node.right))
        value = self.typed(node)
        return convert(value, WEAK_BOOL if type_of(value).is_weak else BOOL)

    def integer(self, node: Expression, what: str) -> Expression:
        """Return a number as int64: a bound or an index."""
        return _as_integer(self.typed(node), f"{what} {text_of(node)}", node)

    def indices(self, array: str, indices: tuple[Expression, ...], place: SourceLine) -> tuple[Expression, ...]:
        """Return the indices of an access, one for every dimension."""
        ndim = self._array(array, place).ndim
        if len(indices) < ndim:
            raise refusal(place, "index", row_remedy(array, indices))
        if len(indices) > ndim:
            what = f"{array} has {ndim} dimensions but {len(indices)} indices; give one integer for each"
            raise refusal(place, "index", what)
        return tuple(self.index(array, index) for index in indices)

    def called_index(self, call: str, node: Expression) -> Expression:
        """Return an index of an array type's call as int64; it may be a variable that the program does not have."""
        if is_float(type_of(self.typed(node)).dtype):
            raise refusal(node.place, "types", f"an index of {call} is {self.typed(node).type}; write int(…) around it")
        return self.index(call, node)

    def index(self, array: str, node: Expression) -> Expression:
        """Return an index as int64."""
        index = self.typed(node)
        if type_of(index).dtype == "bool":
            raise refusal(
                node.place, "index", f"{array}[{text_of(node)}]: a truth value cannot be an index; use an `if`"
            )
        if type_of(index).dtype == "uint64":
            index = _below_half(index)
        return _as_integer(index, f"the index of {array}, {text_of(node)},", node)

    def _array(self, name: str, place: SourceLine) -> LoopArrayType:
        if name not in self.arrays:
            raise refusal(
                place, "argument", f"{name} is used as an array, but the argument is not an array; pass an array"
            )
        return self.arrays[name]

    def _name(self, node: ir.Name) -> Expression:
        if node.name in self.arrays:
            raise refusal(node.place, "types", f"{node.name} is an array where a number is needed; index it")
        if node.name not in self.scalars:
            raise UnknownTypeError(node.name)
        return replace(node, type=self.scalars[node.name])

    def _shape(self, node: ir.Extent | ir.Size | ir.Rank) -> Expression:
        n_dimensions = self._array(node.array, node.place).ndim
        if len(node.taken) > n_dimensions:
            what = f"{text_of(node)}: {node.array} has {n_dimensions} dimensions; give one index for each at most"
            raise refusal(node.place, "index", what)
        # of the array, those of the row
        dimensions = [k for k in range(n_dimensions) if not (k < len(node.taken) and node.taken[k])]
        ndim = len(dimensions)
        match node:
            case ir.Rank():
                return ir.Constant(place=node.place, type=WEAK_INT, value=ndim)
            case ir.Extent():
                if not -ndim <= node.dimension < ndim:
                    raise refusal(
                        node.place, "index", f"{text_of(node)}: this has {ndim} dimensions; ask for one of them"
                    )
                if node.n_dimensions not in (None, ndim):
                    raise refusal(
                        node.place,
                        "index",
                        f"{viewed(node)}.shape has {ndim} values but {node.n_dimensions} targets; give one for each",
                    )
                return self._extent(node.array, dimensions[node.dimension], node.place)
            case ir.Size():
                extents = [self._extent(node.array, dimension, node.place) for dimension in dimensions]
                if not extents:
                    return ir.Constant(place=node.place, type=WEAK_INT, value=1)
                return reduce(lambda a, b: _weak_product(node.place, a, b), extents)

    def _extent(self, array: str, dimension: int, place: SourceLine) -> Expression:
        if array in self._shapes:
            return ir.Constant(place=place, type=WEAK_INT, value=self._shapes[array][dimension])
        return ir.Extent(place=place, type=WEAK_INT, array=array, dimension=dimension)

    def _unary(self, node: ir.Unary) -> Expression:
        if node.operator == "not":
            return replace(node, operand=self.truth(node.operand), type=WEAK_BOOL)
        operand = self.typed(node.operand)
        result = unary_type(node.operator, type_of(operand))
        if result is None:
            raise refusal(
                node.place, "types", f"{text_of(node)}: {node.operator} does not take {operand.type}; convert it first"
            )
        if isinstance(operand, ir.Constant) and type_of(operand).is_weak:
            value = operand.value
            folded = -value if node.operator == "-" else +value if node.operator == "+" else ~int(value.real)
            return replace(operand, value=folded, type=result)
        return replace(node, operand=convert(operand, result), type=result)

    def _binary(self, node: ir.Binary) -> Expression:
        left, right = self.typed(node.left), self.typed(node.right)
        result = binary_type(node.operator, type_of(left), type_of(right))
        if result is None:
            raise refusal(
                node.place,
                "types",
                f"{text_of(node)}: {node.operator} of {left.type} and {right.type} has no type that loops have; "
                "convert one first, with int() or np.int64()",
            )
        folded = _folded(node, left, right)
        if folded is not None:
            return folded
        if node.operator == "**" and is_complex(result.dtype):
            right = _power_of_complex(node, left, right)
        elif node.operator == "**" and not is_float(result.dtype):
            _check_power(node, right)
        left, right = convert(left, result, exact=True), convert(right, result, exact=True)
        if result == WEAK_COMPLEX and node.operator in ("/", "**"):
            function = "complex.quotient" if node.operator == "/" else "complex.powi"
            return ir.FunctionCall(place=node.place, type=result, function=function, arguments=(left, right))
        return replace(node, left=left, right=right, type=result)

    def _compare(self, node: ir.Compare) -> Expression:
        left, right = self.typed(node.left), self.typed(node.right)
        a, b = type_of(left), type_of(right)
        if node.operator in _ORDERED and (is_complex(a.dtype) or is_complex(b.dtype)):
            side = left if is_complex(a.dtype) else right
            raise refusal(
                node.place,
                "types",
                f"{text_of(node)}: {text_of(side)} is {side.type}, and complex numbers have no order; compare their "
                ".real, .imag or abs()",
            )
        to_left, to_right = comparison_types(a, b)
        left, right = _compared(left, to_left), _compared(right, to_right)
        return replace(node, left=left, right=right, type=WEAK_BOOL if a.is_weak and b.is_weak else BOOL)

    def _logical(self, node: ir.Logical) -> Expression:
        left, right = self.typed(node.left), self.typed(node.right)
        for side in (left, right):
            if type_of(side).dtype != "bool":
                raise refusal(
                    node.place,
                    "branch",
                    f"{text_of(node)}: {text_of(side)} is a number, so the result would be one of the two operands; "
                    f"compare it ({text_of(side)} != 0), or write a conditional expression",
                )
        return _joined(node, left, right)

    # -- functions ---------------------------------------------------------------------------------------

    def _call(self, node: ir.FunctionCall) -> Expression:
        arguments = tuple(self.typed(argument) for argument in node.arguments)
        module, _, name = node.function.rpartition(".")
        if module == "complex":
            return _attribute(node, name, arguments[0])
        if module in ("math", "cmath"):
            return _math_call(node, module, name, arguments)
        if module == "numpy":
            return _numpy_call(node, name, arguments)
        return _python_call(node, arguments)


def _below_half(index: Expression) -> Expression:
    """Return an index of uint64 as one that int64 holds: a larger one is out of range, and must not become -1."""
    greatest = ir.Constant(place=index.place, type=index.type, value=(1 << 63) - 1)
    return ir.FunctionCall(place=index.place, type=index.type, function="min", arguments=(index, greatest))


def _as_integer(value: Expression, what: str, node: Expression) -> Expression:
    if is_float(type_of(value).dtype):
        is_division = isinstance(node, ir.Binary) and node.operator == "/"
        integral = text_of(replace(node, operator="//")) if is_division else f"int({text_of(node)})"  # type: ignore[call-arg]  # a Binary
        raise refusal(value.place, "types", f"{what} is a float; write {integral}")
    return convert(value, WEAK_INT)


def _joined(node: ir.Logical, left: Expression, right: Expression) -> Expression:
    common = promote(type_of(left), type_of(right))
    return replace(node, left=convert(left, common), right=convert(right, common), type=common)


def _weak_type(value: Number) -> Type:
    if isinstance(value, complex):
        return WEAK_COMPLEX
    return WEAK_BOOL if isinstance(value, bool) else WEAK_INT if isinstance(value, int) else WEAK_FLOAT


def _weak_product(place: SourceLine, a: Expression, b: Expression) -> Expression:
    return ir.Binary(place=place, type=WEAK_INT, operator="*", left=a, right=b)


def _folded(node: ir.Binary, left: Expression, right: Expression) -> Expression | None:
    """Return an operation on two integers of the text as one: ``2**64 - 1`` is exact."""
    if not (isinstance(left, ir.Constant) and isinstance(right, ir.Constant)):
        return None
    a, b = left.value, right.value
    if not (type(a) is int and type(b) is int and type_of(left).is_weak and type_of(right).is_weak):
        return None
    if node.operator in ("<<", "**"):
        if b < 0:
            return None
        if b > _MOST_BITS and a not in (-1, 0, 1):
            raise _too_long(node)
        value = a << b if node.operator == "<<" else a**b
    elif node.operator in _FOLDS:
        value = _FOLDS[node.operator](a, b)
    else:
        return None
    return ir.Constant(place=node.place, type=WEAK_INT, value=_checked(node, value))


def _checked(node: Expression, value: Number) -> Number:
    """Return a constant; refuse an integer that no float holds."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise _too_long(node)
    return value


def _too_long(node: Expression) -> LoopError:
    text = "an integer of the text" if isinstance(node, ir.Constant) else text_of(node)
    return refusal(node.place, "types", f"{text} has more than {_MOST_BITS:,} bits; write a float")


def _power_of_complex(node: ir.Binary, base: Expression, exponent: Expression) -> Expression:
    """Return the exponent of a complex number as a weak constant."""
    value = exponent.value if isinstance(exponent, ir.Constant) else None
    is_whole = isinstance(value, int | float) and abs(value) < _MOST_POWER and value == int(value)
    if not (is_complex(type_of(base).dtype) and is_whole):
        raise refusal(
            node.place,
            "types",
            f"{text_of(node)}: a complex power needs a complex base, and an integer constant below {_MOST_POWER} as "
            "exponent; multiply, or use np.exp",
        )
    return ir.Constant(place=exponent.place, type=WEAK_INT, value=int(value))  # type: ignore[arg-type]  # it is whole


def _check_power(node: ir.Binary, exponent: Expression) -> None:
    if not isinstance(exponent, ir.Constant) or exponent.value.real < 0:
        raise refusal(
            node.place,
            "types",
            f"{text_of(node)}: an integer can be raised only to a constant that is not negative; convert one side "
            "with float()",
        )


def _compared(side: Expression, to: Type) -> Expression:
    """Return a side of a comparison; a constant beyond int64 is compared as uint64."""
    if isinstance(side, ir.Constant) and to == WEAK_INT and not holds("int64", side.value):
        return convert(side, ir.Type("uint64"), exact=True)
    return convert(side, to)


def _applied(
    node: ir.FunctionCall, arguments: tuple[Expression, ...], held: Type, result: Type | None = None
) -> Expression:
    converted = tuple(convert(argument, held, exact=True) for argument in arguments)
    return replace(node, arguments=converted, type=result or held)


def _attribute(node: ir.FunctionCall, name: str, number: Expression) -> Expression:
    """Return ``.real``, ``.imag`` or ``.conjugate()`` of a number, which real numbers have as well."""
    own = type_of(number)
    if is_complex(own.dtype):
        held = own if name == "conjugate" else ir.Type(part_of(own.dtype), is_weak=own.is_weak)
        return replace(node, function=f"complex.{name}", arguments=(number,), type=held)
    if own == WEAK_BOOL:
        number, own = convert(number, WEAK_INT), WEAK_INT
    return ir.Constant(place=node.place, type=own, value=cast(own.dtype, 0)) if name == "imag" else number


def _math_call(node: ir.FunctionCall, module: str, name: str, arguments: tuple[Expression, ...]) -> Expression:
    if module == "cmath":
        return _applied(node, arguments, WEAK_COMPLEX, WEAK_BOOL if name in _PREDICATES else WEAK_COMPLEX)
    if name in _PREDICATES:
        return _applied(node, arguments, WEAK_FLOAT, WEAK_BOOL)
    if name in _WHOLE:
        if not is_float(type_of(arguments[0]).dtype):
            return convert(arguments[0], WEAK_INT)
        return convert(_applied(node, arguments, type_of(arguments[0])), WEAK_INT)
    return _applied(node, arguments, WEAK_FLOAT)


def _numpy_call(node: ir.FunctionCall, name: str, arguments: tuple[Expression, ...]) -> Expression:
    types = tuple(type_of(argument) for argument in arguments)
    if any(is_complex(one.dtype) for one in types) and name not in _OF_COMPLEX:
        known = ", ".join(sorted(_OF_COMPLEX))
        raise refusal(
            node.place, "types", f"{text_of(node)}: loops have no {name} of complex numbers; of NumPy they have {known}"
        )
    if name in ("real", "imag"):
        return _attribute(node, name, arguments[0])
    if name == "conjugate":
        return _conjugate(node, arguments[0])
    if name in _PREDICATES:
        own = WEAK_FLOAT if is_integer(types[0].dtype) or types[0].dtype == "bool" else types[0]
        return _applied(node, arguments, own, BOOL)
    if name in ("minimum", "maximum"):
        return _applied(node, arguments, ir.Type(promote(*types).dtype))
    if name in _WHOLE and not is_float(types[0].dtype):
        return convert(arguments[0], ir.Type(types[0].dtype))
    if name == "absolute":
        own = ir.Type(types[0].dtype)
        result = ir.Type(part_of(own.dtype))
        return convert(arguments[0], own) if own == BOOL else _applied(node, arguments, own, result)
    held = ufunc_float_type(types)
    if held is None:
        shown = " and ".join(map(str, types))
        raise refusal(node.place, "types", f"{text_of(node)} of {shown} is float16; convert first, np.float32(…)")
    if name in _OPERATORS and not any(is_float(t.dtype) for t in types):
        remedy = f"convert one with np.float64(…), or use {_OPERATORS[name]}"
        raise refusal(node.place, "types", f"{text_of(node)} of integers; {remedy}")
    return _applied(node, arguments, held)


def _conjugate(node: ir.FunctionCall, number: Expression) -> Expression:
    """Return ``np.conj``, of which NumPy makes a number of its own type."""
    own = type_of(number)
    if own.dtype == "bool":
        raise refusal(node.place, "types", f"{text_of(node)} of a truth value; leave it out, or convert first, int(…)")
    strong = convert(number, ir.Type(own.dtype))
    return replace(node, arguments=(strong,), type=strong.type) if is_complex(own.dtype) else strong


def _python_call(node: ir.FunctionCall, arguments: tuple[Expression, ...]) -> Expression:
    types = tuple(type_of(argument) for argument in arguments)
    if node.function == "complex":
        return _applied(node, arguments, WEAK_FLOAT, WEAK_COMPLEX)
    if node.function == "abs":
        if types[0] == BOOL:
            return arguments[0]
        own = WEAK_INT if types[0] == WEAK_BOOL else types[0]
        return _applied(node, arguments, own, ir.Type(part_of(own.dtype), is_weak=own.is_weak))
    if any(is_complex(one.dtype) for one in types):
        word = "have no order; compare their .real, .imag or abs()" if len(types) > 1 else "are not rounded"
        raise refusal(node.place, "types", f"{text_of(node)}: complex numbers {word}")
    if node.function == "round":
        if not is_float(types[0].dtype):
            return convert(arguments[0], WEAK_INT)
        return convert(_applied(node, arguments, types[0]), WEAK_INT)
    common = promote(*types)
    if types[0].dtype != types[1].dtype and is_integer(types[0].dtype) and is_integer(types[1].dtype):
        return _least_by_value(node, arguments, common)
    return _applied(node, arguments, common)


def _least_by_value(node: ir.FunctionCall, arguments: tuple[Expression, ...], common: Type) -> Expression:
    """Return min or max of integers of two types: compared by value, then converted."""
    first, second = arguments
    condition = ir.Compare(
        place=node.place,
        type=WEAK_BOOL if common.is_weak else BOOL,
        operator="<" if node.function == "min" else ">",
        left=_compared(second, type_of(second)),
        right=_compared(first, type_of(first)),
    )
    return ir.Select(
        place=node.place,
        type=common,
        condition=condition,
        then=convert(second, common, exact=True),
        otherwise=convert(first, common, exact=True),
    )
