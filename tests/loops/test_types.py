"""Types of loop functions: the promotion table against NumPy, and what inference makes of statements."""

from __future__ import annotations

import itertools
import operator
import warnings
from typing import get_args

import numpy as np
import pytest

from offload.errors import LoopError
from offload.loops.front.types import infer
from offload.loops.tree import ir
from offload.loops.tree.promotion import comparison_types, identity, join, limits, promote
from tests.loops.nodes import HERE, I, assign, binary, call, constant, function_of, load
from tests.loops.serial import BINARY

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
OPERATORS = {name: BINARY[name] for name in get_args(ir.Operator)}


def typed_value(expression, x="float64", y="float64"):
    arrays = {"x": ir.LoopArrayType(x, 1), "y": ir.LoopArrayType(y, 1)}
    typed = infer(function_of(assign("t", expression)), {}, arrays)
    return typed.scalars["t"], typed.function.nests[0].body[0].value


def numpy_answer(function, *values):
    """Return the type of NumPy's answer as ours, or None where it refuses, or answers what loops do not have."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            answer = function(*values)
        except (TypeError, OverflowError):
            return None
    if isinstance(answer, np.generic):
        return ir.Type(answer.dtype.name) if answer.dtype.name in DTYPES else None
    kinds = {bool: "bool", int: "int64", float: "float64"}
    return ir.Type(kinds[type(answer)], is_weak=True)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, DTYPES)))
def test_elements_are_promoted_as_numpy_promotes_them(a, b):
    """An operator of two elements has the type of NumPy's answer, or is refused where that is none of ours."""
    ones = np.ones(1, a), np.ones(1, b)
    for symbol, function in OPERATORS.items():
        right = constant(1, b) if symbol == "**" else load("y")
        expected = numpy_answer(function, ones[0][0], ones[1][0])
        if a == b == "bool" and symbol in "+-*":
            expected = None
        assert result(symbol, load("x"), right, a, b) == expected, symbol
    assert promote(ir.Type(a), ir.Type(b)).dtype == np.promote_types(a, b).name


def result(symbol, left, right, x="float64", y="float64"):
    try:
        return typed_value(binary(symbol, left, right), x, y)[0]
    except LoopError as error:
        return None if error.rule == "types" else error.rule


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("weak", [True, 1, 1.0], ids=["bool", "int", "float"])
def test_numbers_of_python_take_the_type_of_an_element(a, weak):
    """An operator of an element and a Python number, either way round, has the type of NumPy's answer."""
    element = np.ones(1, a)[0]
    for symbol, function in OPERATORS.items():
        is_bools = a == "bool" and weak is True and symbol in "+-*"
        expected = None if is_bools else numpy_answer(function, element, weak)
        assert result(symbol, load("x"), constant(weak), a) == expected, symbol
        if symbol != "**" or expected == ir.Type("float64"):
            assert result(symbol, constant(weak), load("x"), a) == expected, symbol


@pytest.mark.parametrize(("a", "b"), list(itertools.product([True, 1, 1.0], repeat=2)))
def test_numbers_of_python_stay_weak(a, b):
    """An operator of two Python numbers has the type of Python's answer, and is weak."""
    for symbol, function in OPERATORS.items():
        assert result(symbol, constant(a), constant(b)) == numpy_answer(function, a, b), symbol


@pytest.mark.parametrize("a", DTYPES)
def test_signs_and_complements(a):
    """``-x``, ``+x`` and ``~x`` have NumPy's types, and are refused where NumPy refuses."""
    element = np.ones(1, a)[0]
    for symbol, function in {"-": operator.neg, "+": operator.pos, "~": operator.invert}.items():
        try:
            of = typed_value(ir.Unary(place=HERE, operator=symbol, operand=load("x")), a)[0]
        except LoopError:
            of = None
        assert of == numpy_answer(function, element), symbol


UNARY_FUNCTIONS = ["sin", "exp", "sqrt", "log1p", "cbrt", "fabs", "arctan", "isnan", "isfinite"]
BINARY_FUNCTIONS = ["hypot", "arctan2", "copysign", "minimum", "maximum"]


@pytest.mark.parametrize("a", [*DTYPES, True, 1, 1.0])
def test_functions_of_numpy_have_the_types_that_numpy_gives(a):
    """A function of NumPy has the type of its answer, and is refused where that is float16."""
    value, node = (np.ones(1, a)[0], load("x")) if isinstance(a, str) else (a, constant(a))
    x = a if isinstance(a, str) else "float64"
    for name in UNARY_FUNCTIONS:
        assert called(f"numpy.{name}", node, x=x) == numpy_answer(getattr(np, name), value), name
    for b in [*DTYPES, True, 1, 1.0]:
        other, node_b = (np.ones(1, b)[0], load("y")) if isinstance(b, str) else (b, constant(b))
        y = b if isinstance(b, str) else "float64"
        for name in BINARY_FUNCTIONS:
            assert called(f"numpy.{name}", node, node_b, x=x, y=y) == numpy_answer(getattr(np, name), value, other), (
                name,
                b,
            )


def called(function, *arguments, x="float64", y="float64"):
    try:
        return typed_value(call(function, *arguments), x, y)[0]
    except LoopError:
        return None


@pytest.mark.parametrize("a", DTYPES)
def test_functions_of_python_give_numbers_of_python(a):
    """``math`` functions, ``int``, ``float`` and ``round`` give weak numbers whatever they are given."""
    assert called("math.sin", load("x"), x=a) == ir.Type("float64", is_weak=True)
    assert called("math.floor", load("x"), x=a) == ir.Type("int64", is_weak=True)
    assert called("math.isnan", load("x"), x=a) == ir.Type("bool", is_weak=True)
    assert called("round", load("x"), x=a) == ir.Type("int64", is_weak=True)
    to_int = ir.Convert(place=HERE, to=ir.Type("int64", is_weak=True), operand=load("x"))
    assert typed_value(to_int, a)[0] == ir.Type("int64", is_weak=True)
    assert called("abs", load("x"), x=a) == ir.Type(a)


def test_a_constant_that_its_partner_cannot_hold_is_refused():
    """``u8 + 300`` and ``u8 - -1`` are errors of rule types, as NumPy raises; ``u8 < 300`` is not."""
    for value in (300, -1):
        with pytest.raises(LoopError) as caught:
            typed_value(binary("+", load("x"), constant(value)), "uint8")
        assert (caught.value.rule, caught.value.line) == ("types", 7)
    of, value = typed_value(ir.Compare(place=HERE, operator="<", left=load("x"), right=constant(300)), "uint8")
    assert of == ir.Type("bool")
    assert (value.left.type.dtype, value.right.type.dtype, value.right.value) == ("uint8", "int64", 300)


def test_integers_of_the_text_are_exact_until_a_type_takes_them():
    """``u64 & (2**64 - 1)`` keeps its 64 ones, ``-2**63`` is the least int64, and ``2**64`` alone is refused."""
    ones = binary("-", binary("**", constant(2), constant(64)), constant(1))
    assert typed_value(binary("&", load("x"), ones), "uint64")[1].right.value == 2**64 - 1
    least = ir.Unary(place=HERE, operator="-", operand=binary("**", constant(2), constant(63)))
    assert typed_value(least)[1].value == -(2**63)
    with pytest.raises(LoopError):
        typed_value(binary("**", constant(2), constant(64)))


def test_constants_are_rounded_when_they_become_float32():
    """``0.1 * x32`` multiplies by NumPy's float32 of 0.1."""
    _, value = typed_value(binary("*", constant(0.1), load("x")), "float32")
    assert value.left.value == float(np.float32(0.1))
    assert value.left.type == ir.Type("float32")


def test_powers_of_integers_need_a_constant():
    """``i ** k`` and ``i ** -1`` are refused, ``i ** 3`` and ``x ** k`` are not."""
    for exponent in (load("y"), constant(-1)):
        with pytest.raises(LoopError) as caught:
            typed_value(binary("**", load("x"), exponent), "int32", "int32")
        assert caught.value.rule == "types"
    assert typed_value(binary("**", load("x"), constant(3)), "int8")[0] == ir.Type("int8")
    assert typed_value(binary("**", load("x"), load("y")), "float32", "int16")[0] == ir.Type("float32")


def test_an_accumulator_takes_the_type_of_what_it_sums():
    """``s = 0.0; s += x32[i]`` is float32, with a note; an annotation makes it float64."""
    total = ir.Reduce(place=HERE, name="s", operator="+", value=load("x"))
    arrays = {"x": ir.LoopArrayType("float32", 1), "y": ir.LoopArrayType("float32", 1)}
    typed = infer(function_of(total, prologue=(assign("s", constant(0.0)),)), {}, arrays)
    assert typed.scalars["s"] == ir.Type("float32")
    assert len(typed.notes) == 1
    wide = assign("s", constant(0.0), ir.Type("float64"))
    typed = infer(function_of(total, prologue=(wide,)), {}, arrays)
    assert typed.scalars["s"] == ir.Type("float64")
    assert typed.notes == ()
    assert isinstance(typed.function.nests[0].body[0].value, ir.Convert)


def test_a_scalar_has_the_join_of_its_assignments():
    """Of an int, a float32 and an int32 that reach one scalar through others, it has float64, in any order."""
    arrays = {"x": ir.LoopArrayType("float32", 1), "y": ir.LoopArrayType("int32", 1)}
    body = [assign("a", constant(1)), assign("b", load("x")), assign("a", ir.Name(place=HERE, name="b"))]
    body += [assign("b", load("y"))]
    for order in itertools.permutations(body):
        typed = infer(function_of(*order), {}, arrays)
        assert typed.scalars == {"a": ir.Type("float64"), "b": ir.Type("float64"), "i": ir.Type("int64", is_weak=True)}


def test_joins_have_no_order():
    """The join of three types is the same whichever comes first."""
    types = [ir.Type(d) for d in DTYPES] + [ir.Type(d, is_weak=True) for d in ("bool", "int64", "float64")]
    for three in itertools.combinations(types, 3):
        assert len({join(order) for order in itertools.permutations(three)}) == 1


def test_numbers_are_no_values_of_and_and_or():
    """``x[i] or y[i]`` of numbers is refused by rule branch; in a condition, numbers are truth values."""
    either = ir.Logical(place=HERE, operator="or", left=load("x"), right=load("y"))
    with pytest.raises(LoopError) as caught:
        typed_value(either)
    assert caught.value.rule == "branch"
    chosen = ir.Select(place=HERE, condition=either, then=constant(1), otherwise=constant(2))
    condition = typed_value(chosen)[1].condition
    assert condition.type == ir.Type("bool")
    assert isinstance(condition.left, ir.Convert)


def test_each_dimension_has_one_index():
    """An array with fewer or more indices than dimensions is refused by rule index."""
    for indices in ((I,), (I, I, I)):
        with pytest.raises(LoopError) as caught:
            infer(function_of(assign("t", load("x", *indices)), arrays=("x",)), {}, {"x": ir.LoopArrayType("int8", 2)})
        assert caught.value.rule == "index"


def test_shapes_are_resolved():
    """``a.shape[-1]`` is resolved, ``a.size`` a product, ``a.ndim`` a constant, as are extents of local arrays."""
    local = ir.Local(place=HERE, name="t", shape=(2, 3), dtype="int8", fill=None)
    body = (
        local,
        assign("a", ir.Extent(place=HERE, array="x", dimension=-1)),
        assign("b", ir.Size(place=HERE, array="x")),
        assign("c", ir.Rank(place=HERE, array="x")),
        assign("d", ir.Extent(place=HERE, array="t", dimension=-1)),
    )
    typed = infer(function_of(*body, arrays=("x",)), {}, {"x": ir.LoopArrayType("int8", 2)})
    _, a, b, c, d = (node.value if isinstance(node, ir.Assign) else None for node in typed.function.nests[0].body)
    assert (a.array, a.dimension) == ("x", 1)
    assert (b.operator, b.left.dimension, b.right.dimension) == ("*", 0, 1)
    assert (c.value, d.value) == (2, 3)


def test_atomics_refuse_what_they_would_round_otherwise():
    """An atomic update whose value the element cannot hold is refused: NumPy would add before it converts."""

    def update(operator, value):
        return ir.Atomic(place=HERE, array="x", indices=(I,), operator=operator, value=value, at=0)

    def ok(operator, x, y, value=None):
        try:
            infer(
                function_of(update(operator, value or load("y"))),
                {},
                {"x": ir.LoopArrayType(x, 1), "y": ir.LoopArrayType(y, 1)},
            )
        except LoopError:
            return False
        return True

    assert ok("+", "int32", "int64")
    assert ok("exchange", "int32", "float64")
    assert not ok("min", "int32", "int64")
    assert not ok("+", "int32", "float64")
    assert not ok("+", "float32", "float64")
    assert not ok("&", "float32", "float32")
    assert not ok("+", "uint8", "uint8", constant(300))
    assert ok("exchange", "uint8", "uint8", constant(300))


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("symbol", ["+", "*", "min", "max", "&", "|", "^"])
def test_partial_results_start_from_what_changes_nothing(dtype, symbol):
    """The identity of a reduction, combined with a value, gives the value."""
    if dtype.startswith("f") and symbol in "&|^":
        return
    values = [0, 1, *(limits(dtype) if dtype[0] != "f" else (-0.0, 2.5))]
    combine = {**OPERATORS, "min": min, "max": max}[symbol]
    start = np.dtype(dtype).type(identity(symbol, dtype))
    for value in np.array(values, dtype):
        assert combine(start, value).tobytes() == value.tobytes()


def test_comparisons_of_integers_keep_both_types():
    """Two integers are compared by value, so neither is converted; floats and bools are."""
    a, b = ir.Type("int64"), ir.Type("uint64")
    assert comparison_types(a, b) == (a, b)
    assert comparison_types(a, ir.Type("float32"))[0] == ir.Type("float64")
    assert comparison_types(ir.Type("bool"), ir.Type("int8"))[0] == ir.Type("int8")
