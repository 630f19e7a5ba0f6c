"""The C form of nests that are built by hand: arithmetic, addresses, reports, reductions, atomics, private data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offload.loops.emit.emit_c import CVariant, copied, emit
from offload.loops.emit.python_form import python_form
from offload.loops.front.types import infer
from offload.loops.running import build, pool
from offload.loops.tree import ir
from offload.loops.tree.promotion import identity
from tests.loops.c_form import c_form, form, structure_of
from tests.loops.forms import FoundError, run, types_of
from tests.loops.nodes import HERE, I, assign, axis, binary, call, compare, constant, function_of, load, name, store
from tests.profiles import few

pytestmark = pytest.mark.skipif(build.builder.compiler is None, reason="no C compiler")

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
ODD = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 7.0, -7.0, 1e300, 1e-300, math.inf, -math.inf, math.nan]


def pairs(values, dtype):
    """Return each value beside each other one, as two arrays."""
    with np.errstate(all="ignore"):
        values = np.array(values).astype(dtype)
    a, b = np.meshgrid(values, values)
    return np.ascontiguousarray(a.ravel()), np.ascontiguousarray(b.ravel())


def results(expressions, x, y, dtypes):
    """Return what each expression of ``x[i]`` and ``y[i]`` makes of arrays; one kernel has all."""
    outs = {f"o{k}": np.zeros(len(x), dtype) for k, dtype in enumerate(dtypes)}
    stores = [store(f"o{k}", expression, at=100 + k) for k, expression in enumerate(expressions)]
    run(function_of(*stores, arrays=("x", "y", *outs)), {"x": x, "y": y, **outs}, form=c_form)
    return list(outs.values())


def c_text(function, arguments, **variant):
    """Return what the emitter writes after the prelude."""
    typed = infer(function, *types_of(function, arguments))
    source = emit(typed, typed.function.nests[0], CVariant(**variant)).source
    return source[source.index("void nest(") :]


X, Y = load("x", at=0), load("y", at=1)

# -- arithmetic ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", few(("int8", "int64", "uint32"), INTEGERS))
def test_integers_have_numpys_arithmetic(dtype):
    """Every operator gives what NumPy gives for all pairs of edges, in the type's own width."""
    limits = np.iinfo(dtype)
    edges = [limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 2, 3, 7, 8, 31, 64]
    edges += [-1, -2, -7] if limits.min else []
    x, y = pairs(edges, dtype)
    operators = ["+", "-", "*", "&", "|", "^", "<<", ">>"]
    with np.errstate(all="ignore"):
        expected = [x + y, x - y, x * y, x & y, x | y, x ^ y, np.left_shift(x, y), np.right_shift(x, y), ~x, -x]
    expressions = [binary(operator, X, Y) for operator in operators]
    expressions += [ir.Unary(place=HERE, operator=o, operand=X) for o in "~-"]
    for what, got, value in zip(
        [*operators, "~", "neg"], results(expressions, x, y, [dtype] * 10), expected, strict=True
    ):
        np.testing.assert_array_equal(got, value, err_msg=what)

    x, y = x[y != 0], y[y != 0]
    with np.errstate(all="ignore"):
        expected = [x // y, x % y, np.minimum(x, y), np.maximum(x, y), np.abs(x), x**3]
    expressions = [binary("//", X, Y), binary("%", X, Y), call("min", X, Y), call("max", X, Y), call("abs", X)]
    expressions.append(binary("**", X, constant(3)))
    for got, value in zip(results(expressions, x, y, [dtype] * 6), expected, strict=True):
        np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize("divisor", few(3, [8, -7, 3, 1, 2, 7, -1, -2]))
def test_constants_divide_as_variables_do(divisor):
    """``i // 8`` and the like floor for negative operands too."""
    x = np.array([-(2**63), -17, -16, -9, -8, -7, -1, 0, 1, 7, 8, 9, 2**63 - 1])
    quotient, rest = results([binary(o, X, constant(divisor)) for o in ("//", "%")], x, x, ["int64"] * 2)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(quotient, x // divisor)
        np.testing.assert_array_equal(rest, x % divisor)


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_have_numpys_arithmetic(dtype):
    """Operators give NumPy's bits for infinities, NaN and both zeros; signs of zeros included."""
    x, y = pairs(ODD, dtype)
    operators = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
    operators |= {"//": np.floor_divide, "%": np.remainder}
    got = results([binary(operator, X, Y) for operator in operators], x, y, [dtype] * 6)
    # NumPy's scalars: its arrays have loops of their own, with other signs of zeros.
    with np.errstate(all="ignore"):
        expected = [np.array([f(a, b) for a, b in zip(x, y, strict=True)], dtype) for f in operators.values()]
    for operator, mine, numpys in zip(operators, got, expected, strict=True):
        np.testing.assert_array_equal(mine, numpys, err_msg=operator)
        known = ~np.isnan(numpys)
        np.testing.assert_array_equal(np.signbit(mine[known]), np.signbit(numpys[known]), err_msg=operator)


def test_python_floats_floor_as_cpython():
    """``//`` and ``%`` of floats are CPython's, which rounds once more than floor(a / b)."""
    values = [1.0, 0.1, -0.1, 0.3, 1e17, -7.5, 2.5, 1e-20, -1e-20, math.inf, -math.inf]
    x, y = pairs(values, float)
    quotient, rest = results([binary("//", X, Y), binary("%", X, Y)], x, y, [float] * 2)
    np.testing.assert_array_equal(quotient, [a // b for a, b in zip(x.tolist(), y.tolist(), strict=True)])
    np.testing.assert_array_equal(rest, [a % b for a, b in zip(x.tolist(), y.tolist(), strict=True)])


@pytest.mark.parametrize(
    ("a", "b"), few(2, [("int64", "uint64"), ("uint8", "int8"), ("uint64", "int8"), ("int32", "uint32")], are_rows=True)
)
def test_integers_compare_by_value(a, b):
    """All relations of signed with unsigned integers are those of the numbers."""
    first, second = np.iinfo(a), np.iinfo(b)
    xs = np.array([first.min, first.max, 0, 1, first.max // 2], a)
    ys = np.array([second.min, second.max, 0, 1, second.max // 2], b)
    x, y = np.repeat(xs, len(ys)), np.tile(ys, len(xs))
    relations = ["<", "<=", "==", "!=", ">=", ">"]
    got = results([compare(relation, X, Y) for relation in relations], x, y, ["bool"] * 6)
    for relation, mine in zip(relations, got, strict=True):
        expected = [eval(f"{p} {relation} {q}") for p, q in zip(x.tolist(), y.tolist(), strict=True)]
        assert mine.tolist() == expected, relation


def test_min_and_max_are_pythons_and_numpys():
    """Of NaN and of both zeros too: ``min`` keeps the first, ``numpy.minimum`` gives NaN."""
    x, y = pairs(ODD, float)
    names = ["min", "max", "numpy.minimum", "numpy.maximum"]
    least, greatest, minimum, maximum = results([call(n, X, Y) for n in names], x, y, [float] * 4)
    xs, ys = x.tolist(), y.tolist()
    for mine, function in ((least, min), (greatest, max)):
        expected = np.array([function(a, b) for a, b in zip(xs, ys, strict=True)])
        np.testing.assert_array_equal(mine, expected)
        np.testing.assert_array_equal(np.signbit(mine), np.signbit(expected))
    np.testing.assert_array_equal(minimum, np.minimum(x, y))
    np.testing.assert_array_equal(maximum, np.maximum(x, y))


def test_conversions_are_casts():
    """Floats are cut, integers wrap, to bool is ``!= 0``; what a bool's byte holds does not matter."""
    x = np.array([0.0, 3.9, -3.9, 0.5, 127.0])
    kinds = ["bool", "int8", "int64", "float32"]
    for got, dtype in zip(results([X] * 4, x, x, kinds), kinds, strict=True):
        np.testing.assert_array_equal(got, x.astype(dtype))
    x = np.array([0, -1, 300, -129, 2**63 - 1])
    for got, dtype in zip(results([X] * 8, x, x, INTEGERS), INTEGERS, strict=True):
        np.testing.assert_array_equal(got, x.astype(dtype))
    odd = np.array([0, 1, 2, 255], np.uint8).view(bool)
    assert results([X], odd, odd, ["int64"])[0].tolist() == [0, 1, 1, 1]
    large = np.array([2.0**63, 2.0**64 - 4096, 1.0])
    assert results([X], large, large, ["uint64"])[0].tolist() == [2**63, 2**64 - 4096, 1]


FUNCTIONS = [
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arctanh"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "floor", "ceil", "trunc", "fabs"),
]


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_are_numpys_within_4_ulp(dtype):
    """Functions of one number, in float32 with the functions of float32."""
    x = np.array([0.0, -0.0, 0.25, 0.5, 0.75, 0.99, -0.3, 1e-8], dtype)
    found = results([call(f"numpy.{what}", X) for what in FUNCTIONS], x, x, [dtype] * len(FUNCTIONS))
    with np.errstate(all="ignore"):
        for what, got in zip(FUNCTIONS, found, strict=True):
            np.testing.assert_array_max_ulp(got, getattr(np, what)(x), 4)


def test_functions_of_math():
    """Those of two numbers, and those that NumPy has not; CPython's own lgamma is the less exact one."""
    x, y = pairs([0.5, 1.5, -2.5, 3.0], float)
    names = ["atan2", "hypot", "copysign", "fmod"]
    for what, got in zip(names, results([call(f"math.{n}", X, Y) for n in names], x, y, [float] * 4), strict=True):
        expected = [getattr(math, what)(a, b) for a, b in zip(x, y, strict=True)]
        np.testing.assert_array_max_ulp(got, np.array(expected), 4)
    x = np.array([0.5, 1.5, 3.0])
    names = ["erf", "erfc", "gamma", "lgamma"]
    for what, got in zip(names, results([call(f"math.{n}", X) for n in names], x, x, [float] * 4), strict=True):
        np.testing.assert_allclose(got, [getattr(math, what)(a) for a in x], rtol=1e-14)


def test_predicates_and_rounding():
    """isnan, isinf, isfinite; ``round`` goes to the even of two that are as near."""
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5])
    assert results([call("round", X)], x, x, ["int64"])[0].tolist() == [round(a) for a in x.tolist()]
    x = np.array([0.0, math.inf, -math.inf, math.nan])
    names = ["isnan", "isinf", "isfinite"]
    for what, mine in zip(names, results([call(f"numpy.{n}", X) for n in names], x, x, ["bool"] * 3), strict=True):
        assert mine.tolist() == getattr(np, what)(x).tolist()


@pytest.mark.parametrize("dtype", few(("uint64", "float32", "bool"), [*INTEGERS, *FLOATS, "bool"]))
def test_constants_are_exact(dtype):
    """A constant arrives with all its bits, the least and the greatest one too."""
    if dtype in FLOATS:
        values = [0.1, -0.1, 1e30, math.inf, -math.inf, math.nan, 5e-324, -0.0]
    else:
        limits = np.iinfo(dtype) if dtype != "bool" else None
        values = [False, True] if limits is None else [limits.min, limits.min + 1, limits.max, 1]
    x = np.zeros(1)
    with np.errstate(all="ignore"):
        expected = [np.array(value).astype(dtype) for value in values]
    got = results([constant(e.item(), dtype) for e in expected], x, x, [dtype] * len(values))
    for mine, value in zip(got, expected, strict=True):
        assert mine.tobytes() == value.tobytes()


# -- arrays ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["off", "wrap", "check"])
@pytest.mark.parametrize("layout", ["C", "inner", "strided"])
@pytest.mark.parametrize("is_restricted", few(1, [True, False]))
def test_layouts_and_modes_reach_the_same_elements(mode, layout, is_restricted):
    """Arrays of three dimensions, contiguous, with contiguous rows, and with steps of any sign."""
    whole = np.arange(7 * 8 * 9.0).reshape(7, 8, 9)
    x = {"C": whole.copy(), "inner": whole[::2, ::-1, 2:7], "strided": whole[::-2, 1:6, ::-3]}[layout]
    y = (
        np.zeros_like(x, order="C")[...]
        if layout == "C"
        else np.zeros((9, 9, 9))[: x.shape[0], : x.shape[1], : x.shape[2]]
    )
    places = tuple(name(v) for v in "ijk")
    function = function_of(
        store("y", binary("+", load("x", *places), constant(1.0)), *places),
        axes=tuple(axis(v, ir.Extent(place=HERE, array="x", dimension=d)) for d, v in enumerate("ijk")),
    )
    layouts = (("x", layout), ("y", "C" if layout == "C" else "inner"))
    variant = form(layouts=layouts, is_restricted=is_restricted, unit_steps=((0, 1), (2, 1)))
    run(function, {"x": x, "y": y}, form=variant, modes={0: mode, 1: mode})
    np.testing.assert_array_equal(y, x + 1)


def test_negative_indices_are_wrapped():
    """``x[-1 - i]`` counts from the end, where indices are wrapped and where they are checked."""
    x = np.arange(5.0)
    index = binary("-", constant(-1), I)
    for mode in ("wrap", "check"):
        y = np.zeros(5)
        run(function_of(store("y", load("x", index))), {"x": x, "y": y}, form=c_form, modes={0: mode, 1: mode})
        np.testing.assert_array_equal(y, x[::-1])


def test_views_of_one_buffer_in_two_types():
    """A store through one type is seen by a load through another, also by one that came before."""
    x = np.full(4, 5.0)
    y = x.view(np.int64)
    body = (
        assign("a", load("x", at=0)),
        store("y", constant(0x3FF0000000000000), at=1),
        store("x", binary("+", load("x", at=2), name("a")), at=3),
    )
    run(function_of(*body), {"x": x, "y": y}, form=c_form, modes=dict.fromkeys(range(4), "off"))
    assert x.tolist() == [6.0] * 4


@pytest.mark.parametrize("index", [5, -6, 2**62])
def test_a_load_out_of_range_is_reported(index):
    """The first of an iteration: access, index as the program has it, dimension, trip; nothing is read out there."""
    x, y = np.arange(15.0).reshape(3, 5), np.zeros(3)
    function = function_of(store("y", load("x", I, constant(index), at=4), at=9))
    with pytest.raises(FoundError) as caught:
        run(function, {"x": x, "y": y}, form=c_form, chunks=1)
    assert caught.value == FoundError(1, 4, index, 1, (0,))


def test_a_store_out_of_range_does_not_happen():
    """Iterations in range store, the others report, and one report is kept."""
    guard = np.zeros(12)
    x, y = np.ones(10), guard[4:8]
    with pytest.raises(FoundError) as caught:
        run(function_of(store("y", load("x", at=0), at=1)), {"x": x, "y": y}, form=c_form, chunks=1)
    assert caught.value == FoundError(1, 1, 4, 0, (4,))
    assert guard.tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 4


@pytest.mark.parametrize(
    ("indices", "expected"), [((0, 3), (3, 1)), ((2, 0), (2, 0)), ((2, 3), (2, 0)), ((-3, 0), (-3, 0))]
)
def test_a_store_is_checked_in_each_dimension(indices, expected):
    """The first dimension that is out of range is reported; nothing is written."""
    whole = np.zeros((4, 5))
    y = whole[1:3, 1:4]
    places = [constant(index) for index in indices]
    with pytest.raises(FoundError) as caught:
        run(function_of(store("y", constant(1.0), *places), arrays=("y",), axes=(axis("i", 1),)), {"y": y}, form=c_form)
    assert (caught.value.index, caught.value.dimension) == expected
    assert not whole.any()


def test_the_first_of_an_iteration_is_reported():
    """What is wrong later in it may follow from that."""
    x, y = np.zeros(2), np.zeros(2)
    body = (store("y", load("x", constant(7), at=3), at=1), store("y", load("x", constant(8), at=4), at=2))
    with pytest.raises(FoundError) as caught:
        run(function_of(*body), {"x": x, "y": y}, form=c_form, chunks=1)
    assert caught.value == FoundError(1, 3, 7, 0, (0,))


def test_empty_arrays_have_nothing_to_read():
    """A checked load of an array with no elements reports, whichever dimension is empty, and nothing is stored then."""
    whole = np.full((5, 5), 7.0)
    for x in (whole[:0], whole[:, :0]):
        y = np.ones(3)
        function = function_of(
            store("y", load("x", constant(0), constant(3), at=4), at=9),
            axes=(axis("i", ir.Extent(place=HERE, array="y", dimension=0)),),
        )
        with pytest.raises(FoundError) as caught:
            run(function, {"x": x, "y": y}, form=c_form)
        assert (caught.value.what, caught.value.place) == (1, 4)
        assert y.tolist() == [1.0] * 3


def test_a_while_ends_when_something_is_wrong():
    """A search that leaves its array stops there."""
    x, y = np.ones(8), np.zeros(8, int)
    body = (
        assign("k", I),
        ir.While(
            place=HERE,
            condition=compare(">", load("x", name("k"), at=0), constant(0.0)),
            body=(assign("k", binary("+", name("k"), constant(1))),),
        ),
        store("y", name("k"), at=1),
    )
    with pytest.raises(FoundError) as caught:
        run(function_of(*body), {"x": x, "y": y}, form=c_form, chunks=1)
    assert caught.value == FoundError(1, 0, 8, 0, (0,))


def test_without_checks_the_text_has_none():
    """An access that is proved, a division by a constant: no fault is declared, nothing is reported."""
    function = function_of(store("y", binary("//", load("x", at=0), constant(3)), at=1))
    arguments = {"x": np.zeros(3, int), "y": np.zeros(3, int)}
    assert "fault" not in c_text(function, arguments, modes=((0, "off"), (1, "off")))
    assert "fault" in c_text(function, arguments, modes=((0, "off"),))


# -- what goes wrong besides -----------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["//", "%"])
@pytest.mark.parametrize("dtype", few(("int8", "uint64"), INTEGERS))
def test_division_by_zero_is_reported(operator, dtype):
    """With its line; the others of a chunk are divided."""
    x, y, o = np.array([7, 7, 7], dtype), np.array([2, 0, 3], dtype), np.zeros(3, dtype)
    function = function_of(store("o", binary(operator, X, Y), at=5), arrays=("x", "y", "o"))
    with pytest.raises(FoundError) as caught:
        run(function, {"x": x, "y": y, "o": o}, form=c_form, chunks=1)
    assert caught.value == FoundError(2, HERE.line, 0, 0, (1,))
    assert o[[0, 2]].tolist() == ([3, 2] if operator == "//" else [1, 1])


def test_an_assertion_ends_its_iteration():
    """What follows it in the iteration is not carried out."""
    x, y = np.array([1.0, -1.0, 2.0]), np.zeros(3)
    body = (ir.Assert(place=HERE, condition=compare(">", load("x", at=0), constant(0.0)), text="x"),)
    with pytest.raises(FoundError) as caught:
        run(function_of(*body, store("y", constant(5.0), at=1)), {"x": x, "y": y}, form=c_form, chunks=1)
    assert (caught.value.what, caught.value.trips) == (3, (1,))
    assert y.tolist() == [5.0, 0.0, 5.0]


@pytest.mark.parametrize("made", [c_form, python_form])
def test_a_step_of_zero_is_reported(made):
    """Where it comes from data: no trips, and a report with the line."""
    x, y = np.array([1, 0, 2]), np.zeros(3, int)
    count = assign("n", binary("+", name("n"), constant(1)))
    loop = ir.For(place=HERE, variable="k", start=constant(0), stop=constant(4), step=load("x", at=0), body=(count,))
    with pytest.raises(FoundError) as caught:
        function = function_of(assign("n", constant(0)), loop, store("y", name("n"), at=1))
        run(function, {"x": x, "y": y}, form=made, chunks=3)
    assert caught.value == FoundError(4, HERE.line, 0, 0, (1,))
    assert y[[0, 2]].tolist() == [4, 2]


# -- control flow ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", few(2, [1, -3, -1, 2, 7]))
@pytest.mark.parametrize(("start", "stop"), [(0, 10), (10, 0), (3, 3), (-5, 5), (2**62, -(2**62))])
def test_inner_loops_have_ranges_values(step, start, stop):
    """The number of trips and the last value are those of ``range``; a step in a variable counts as a constant does."""
    if abs(stop - start) > 100 and (stop - start) * step > 0:
        step *= 2**61
    values = range(start, stop, step)
    for distance in (constant(step), load("x", constant(2), at=7)):
        x, y = np.array([start, stop, step]), np.zeros((1, 2), int)
        body = (
            assign("n", constant(0)),
            assign("last", constant(99)),
            ir.For(
                place=HERE,
                variable="k",
                start=load("x", constant(0), at=0),
                stop=load("x", constant(1), at=1),
                step=distance,
                body=(assign("n", binary("+", name("n"), constant(1))), assign("last", name("k"))),
            ),
            store("y", name("n"), constant(0), constant(0), at=2),
            store("y", name("last"), constant(0), constant(1), at=3),
        )
        run(function_of(*body, axes=(axis("i", 1),)), {"x": x, "y": y}, form=c_form)
        assert y.tolist() == [[len(values), values[-1] if values else 99]]


def test_continue_and_break_are_of_the_innermost_loop():
    """Outside of inner loops `continue` ends the iteration."""
    x, y = np.arange(6), np.zeros(6, int)
    skip = ir.If(place=HERE, condition=compare("==", load("x", at=0), constant(2)), then=(ir.Continue(place=HERE),))
    leave = ir.If(place=HERE, condition=compare(">", name("k"), constant(2)), then=(ir.Break(place=HERE),))
    odd = ir.If(
        place=HERE,
        condition=compare("==", binary("%", name("k"), constant(2)), constant(1)),
        then=(ir.Continue(place=HERE),),
        otherwise=(assign("s", binary("+", name("s"), name("k"))),),
    )
    inner = ir.For(place=HERE, variable="k", start=constant(0), stop=I, step=constant(1), body=(leave, odd))
    run(function_of(skip, assign("s", constant(0)), inner, store("y", name("s"))), {"x": x, "y": y}, form=c_form)
    assert y.tolist() == [0, 0, 0, 2, 2, 2]


def test_axes_count_down():
    """A step of -1 that the text knows, and one that it does not."""
    for variant in ({}, {"unit_steps": ((0, -1),)}):
        x, y = np.arange(5.0), np.zeros(5)
        run(function_of(store("y", load("x")), axes=(axis("i", 0, 4, -1),)), {"x": x, "y": y}, form=form(**variant))
        assert y.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


# -- reductions, atomics, private data -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", few(1, ["int8", "float64", "uint64", "float32"]))
@pytest.mark.parametrize("operator", few(4, ["+", "*", "min", "&", "max", "|", "^"]))
def test_reductions(operator, dtype):
    """Partial results of chunks, one of which is empty, combine to what a loop in order gives."""
    if dtype in FLOATS and operator in "&|^":
        pytest.skip("no floats")
    x = np.array([3, 1, 2, 4, 1, 2, 1], dtype)
    function = function_of(
        ir.Reduce(place=HERE, name="s", operator=operator, value=load("x")),
        arrays=("x",),
        parameters=("x", "s"),
        returns=("s",),
        reductions=(ir.LoopReduction(operator, "s"),),
    )
    function_in_order = {"+": np.add, "*": np.multiply, "min": np.minimum, "max": np.maximum}
    function_in_order |= {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}
    for modes in ({0: "off"}, {0: "check"}):
        for chunks in (1, 3, 9):
            got = run(function, {"x": x, "s": np.dtype(dtype).type(5)}, form=c_form, chunks=chunks, modes=modes)
            assert got == function_in_order[operator].reduce([np.dtype(dtype).type(5), *x], dtype=dtype)
            assert got.dtype == dtype


def test_min_of_nothing_but_nan_keeps_the_value_before():
    """As Python's ``min(s, nan)`` does, in lanes too."""
    x = np.full(1000, math.nan)
    x[900] = 3.0
    function = function_of(
        ir.Reduce(place=HERE, name="s", operator="min", value=load("x")),
        arrays=("x",),
        parameters=("x", "s"),
        returns=("s",),
        reductions=(ir.LoopReduction("min", "s"),),
    )
    assert run(function, {"x": x, "s": 5.0}, form=c_form, modes={0: "off"}) == 3.0
    assert run(function, {"x": x[:900], "s": 5.0}, form=c_form, modes={0: "off"}) == 5.0


def test_declared_reductions_are_computed_in_lanes():
    """Where nothing can go wrong in the innermost loop, and iterations may run in any order."""
    update = ir.Reduce(place=HERE, name="s", operator="+", value=load("x"))
    words = {"parameters": ("x", "s"), "reductions": (ir.LoopReduction("+", "s"),), "returns": ("s",)}
    arguments = {"x": np.zeros(3), "s": 0.0}
    function = function_of(update, arrays=("x",), **words)
    pragma = "#pragma omp simd reduction(+:r_s)"
    assert pragma in c_text(function, arguments, modes=((0, "off"),))
    assert "omp simd" not in c_text(function, arguments)
    assert "omp simd" not in c_text(function, arguments, modes=((0, "off"),), is_ordered=True)


def test_reductions_of_inner_loops_are_computed_in_lanes():
    """A sum that a `vector` loop declares; without the clause it is in order."""
    x, y = np.arange(1000.0).reshape(10, 100), np.zeros(10)
    for clauses in (ir.LoopClauses(reductions=(ir.LoopReduction("+", "s"),)), ir.LoopClauses()):
        inner = ir.For(
            place=HERE,
            variable="k",
            start=constant(0),
            stop=constant(100),
            step=constant(1),
            body=(ir.Reduce(place=HERE, name="s", operator="+", value=load("x", I, name("k"), at=0)),),
            clauses=clauses,
        )
        function = function_of(assign("s", constant(1.0)), inner, store("y", binary("+", name("s"), name("k")), at=1))
        run(function, {"x": x, "y": y}, form=c_form, modes={0: "off", 1: "off"})
        np.testing.assert_array_equal(y, x.sum(1) + 1 + 99)
        text = c_text(function, {"x": x, "y": y}, modes=((0, "off"), (1, "off")))
        assert ("omp simd" in text) == bool(clauses.reductions)


def test_a_reduction_is_the_same_for_any_number_of_threads(monkeypatch):
    """Chunks depend on the trips alone, and so do all bits of their partial results."""
    monkeypatch.setattr(pool, "n_cores", lambda: 8)
    x = np.random.default_rng(1).random(10_001)
    function = function_of(
        ir.Reduce(place=HERE, name="s", operator="+", value=load("x")),
        arrays=("x",),
        parameters=("x", "s"),
        returns=("s",),
        reductions=(ir.LoopReduction("+", "s"),),
    )
    typed = infer(function, *types_of(function, {"x": x, "s": 0.0}))
    kernel = emit(typed, typed.function.nests[0], CVariant(modes=((0, "off"),)))
    address = build.builder.load(kernel.source, kernel.entry)
    found = set()
    for n_threads in (1, 2, 5, 8):
        partials, report = np.zeros((64, 1), np.uint64), np.zeros(8, np.int64)
        arguments = {"x": x, "start 0": 0, "step 0": 1, "trips 0": len(x)}
        structure = structure_of(kernel.fields, arguments, partials, report)
        pool.run(address, structure.ctypes.data, len(x), 64, n_threads)
        found.add(partials.tobytes())
    assert len(found) == 1


ATOMICS = {"+": np.add, "-": np.subtract, "*": np.multiply, "min": np.minimum, "max": np.maximum}
BITS = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}


def atomic(operator, value, **more):
    return ir.Atomic(place=HERE, array="h", indices=(load("k", at=0),), operator=operator, value=value, at=1, **more)


@pytest.mark.parametrize("dtype", few(1, ["float64", "int8", "uint16", "int32", "uint64", "float32", "bool"]))
def test_atomics_and_copies_of_workers_do_the_same(dtype):
    """Every operator, as one step on the array, and on a worker's copy that starts from the operator's identity."""
    k = np.array([0, 1, 2, 1, 1, 0, 2, 2])
    x = np.array([1, 2, 3, 4, 5, 6, 7, 0]).astype(dtype)
    for operator, ufunc in (BITS if dtype == "bool" else ATOMICS if dtype in FLOATS else ATOMICS | BITS).items():
        function = function_of(atomic(operator, load("x", at=2)), arrays=("x", "k", "h"))
        h = np.array([1, 2, 3]).astype(dtype)
        expected = h.copy()
        with np.errstate(all="ignore"):
            ufunc.at(expected, k, x)
        merging = copied(function.nests[0])
        assert merging == {"h": "+" if operator == "-" else operator}
        mine = h.copy()
        run(function, {"x": x, "k": k, "h": mine}, form=c_form)
        np.testing.assert_array_equal(mine, expected, err_msg=operator)

        copies = np.full((2, 3), identity(merging["h"], dtype), dtype)
        typed = infer(function, *types_of(function, {"x": x, "k": k, "h": h}))
        kernel = c_form(typed, typed.function.nests[0], {}, copies=("h",))
        arguments = {"x": x, "k": k, "h": h, "copies h": copies, "start 0": 0, "step 0": 1, "trips 0": 8}
        for worker in (0, 1):
            kernel(arguments, 4 * worker, 4 * worker + 4, worker, np.zeros(1), np.zeros(8, np.int64), worker)
        merge = {**ATOMICS, **BITS}[merging["h"]]
        with np.errstate(all="ignore"):
            for worker, copy in enumerate(copies):
                own = np.full(3, identity(merging["h"], dtype), dtype)
                ufunc.at(own, k[4 * worker : 4 * worker + 4], x[4 * worker : 4 * worker + 4])
                np.testing.assert_array_equal(copy, own, err_msg=operator)
            np.testing.assert_array_equal(merge(merge(h, copies[0]), copies[1]), expected, err_msg=operator)


@pytest.mark.parametrize("dtype", few(1, ["float64", "int32", "uint64"]))
def test_atomics_give_the_old_value(dtype):
    """``exchange`` and ``cas`` too; ``cas`` compares by value."""
    for operator, expected_value, after in (("+", None, 9), ("exchange", None, 4), ("cas", 5, 4), ("cas", 6, 5)):
        h, y = np.array([5], dtype), np.zeros(1, dtype)
        expected = None if expected_value is None else constant(expected_value)
        step = atomic(operator, constant(4), result="old", expected=expected)
        arguments = {"k": np.zeros(1, int), "h": h, "y": y}
        function = function_of(step, store("y", name("old"), at=9), arrays=("k", "h", "y"), axes=(axis("i", 1),))
        run(function, arguments, form=c_form)
        assert (y[0], h[0]) == (5, after)
        assert copied(function.nests[0]) == {}


def test_atomics_of_several_threads_lose_nothing(monkeypatch):
    """A histogram by eight threads has all counts, of integers and of floats."""
    monkeypatch.setattr(pool, "n_cores", lambda: 8)
    k = np.random.default_rng(2).integers(0, 3, 20_000)
    for dtype in ("int64", "float32"):
        h = np.zeros(3, dtype)
        function = function_of(atomic("+", constant(1)), arrays=("k", "h"), axes=(axis("i", len(k)),))
        typed = infer(function, *types_of(function, {"k": k, "h": h}))
        kernel = emit(typed, typed.function.nests[0], CVariant(modes=((0, "off"), (1, "off"))))
        arguments = {"k": k, "h": h, "start 0": 0, "step 0": 1, "trips 0": len(k)}
        structure = structure_of(kernel.fields, arguments, np.zeros(1), np.zeros(8, np.int64))
        address = build.builder.load(kernel.source, kernel.entry)
        pool.run(address, structure.ctypes.data, len(k), 64, 8)
        np.testing.assert_array_equal(h, np.bincount(k))


def test_an_atomic_out_of_range_does_not_happen():
    """It reports, and its neighbours are as they were."""
    guard = np.zeros(9)
    arguments = {"k": np.array([1, 3, -4]), "h": guard[3:6]}
    with pytest.raises(FoundError) as caught:
        run(function_of(atomic("+", constant(1.0)), arrays=("k", "h"), axes=(axis("i", 3),)), arguments, form=c_form)
    assert caught.value == FoundError(1, 1, 3, 0, (1,))
    assert guard.tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["private", "firstprivate", "lastprivate"])
def test_private_arrays(kind):
    """Each iteration has its own; the contents at the call come in, those of the last iteration go out."""
    t = np.arange(12.0).reshape(3, 4)[:, ::2]
    y = np.zeros(3)
    body = [store("t", binary("*", name("i"), constant(10.0)), constant(1), constant(1), at=0)]
    if kind == "firstprivate":
        body.append(
            store("y", binary("+", load("t", I, constant(0), at=1), load("t", constant(1), constant(1), at=2)), at=3)
        )
    else:
        body.append(store("y", load("t", constant(-2), constant(-1), at=2), at=3))
    function = function_of(*body, arrays=("t", "y"), axes=(axis("i", 3),), privates={"t": kind})
    before = t.copy()
    run(function, {"t": t, "y": y}, form=c_form)
    first = before[:, 0] if kind == "firstprivate" else 0
    np.testing.assert_array_equal(y, first + np.array([0.0, 10.0, 20.0]))
    if kind == "lastprivate":
        assert t[1, 1] == 20.0
    else:
        np.testing.assert_array_equal(t, before)


def test_local_arrays_are_fresh():
    """``np.zeros`` in an iteration, and in an inner loop of it, gives zeros whenever it is carried out."""
    y = np.zeros((2, 3))
    zeros = ir.Local(place=HERE, name="t", shape=(2, 2), dtype="float64", fill=constant(0.0))
    add = store("t", binary("+", load("t", constant(1), name("k"), at=0), constant(1.0)), constant(1), name("k"), at=1)
    fill = (zeros, add, add, store("y", load("t", constant(1), name("k"), at=2), I, name("k"), at=3))
    inner = ir.For(place=HERE, variable="k", start=constant(0), stop=constant(2), step=constant(1), body=fill)
    run(function_of(inner, arrays=("y",), axes=(axis("i", 2),)), {"y": y}, form=c_form)
    assert y.tolist() == [[2.0, 2.0, 0.0]] * 2


def test_lastprivate_scalars():
    """The last iteration's value, from the last chunk."""
    x = np.array([3, 1, 2], np.int16)
    function = function_of(assign("t", load("x")), arrays=("x",), returns=("t", "i"), last=("t", "i"))
    t, i = run(function, {"x": x}, form=c_form)
    assert (t, i) == (2, 2)
    assert t.dtype == np.int16


def test_scalars_come_in_their_types():
    """Parameters, and what is computed before the nest."""
    x, y = np.zeros(2), np.zeros(2)
    arguments = {"x": x, "y": y, "a": np.float32(0.1), "n": np.uint8(200), "b": True, "k": -5}
    value = binary("+", binary("+", name("a"), name("w")), binary("+", name("n"), name("k")))
    value = ir.Select(place=HERE, condition=name("b"), then=value, otherwise=constant(0.0))
    function = function_of(
        store("y", value),
        prologue=(assign("w", binary("*", name("k"), constant(2))),),
        parameters=("x", "y", "a", "n", "b", "k"),
    )
    run(function, arguments, form=c_form)
    with np.errstate(all="ignore"):
        expected = np.float32(0.1) + np.float32(-10) + (np.uint8(200) + np.uint8(251))
    np.testing.assert_array_equal(y, expected)


def test_names_of_c_and_of_other_alphabets():
    """Variables may have C's keywords and functions for names, and letters beyond ASCII."""
    x, y = np.arange(3.0), np.zeros(3)
    body = (assign("double", load("x")), assign("größe", binary("*", name("double"), constant(2.0))))
    body = (*body, assign("sin", call("math.sin", name("größe"))), store("y", name("sin")))
    run(function_of(*body), {"x": x, "y": y}, form=c_form)
    np.testing.assert_array_max_ulp(y, np.sin(2 * x), 4)


def test_arrays_that_share_no_memory_are_restricted_parameters():
    """gcc believes ``restrict`` of parameters alone: arrays are that, and restricted where they share no memory."""
    function = function_of(store("y", load("x", at=0), at=1), arrays=("x", "y"))
    arguments = {"x": np.zeros(3), "y": np.zeros(3)}
    head, _ = c_text(function, arguments, is_restricted=True).split("{", 1)
    assert "double *restrict const p_x" in head
    assert "double *restrict const p_y" in head
    assert "restrict" not in c_text(function, arguments)
