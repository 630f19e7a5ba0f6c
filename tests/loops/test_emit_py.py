"""The Python form of nests that are built by hand: arithmetic, indices, reports, reductions, private data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offload.loops.emit.python_form import ASSERTION, DIVISION, INDEX
from offload.loops.tree import ir
from tests.loops.forms import FoundError, run
from tests.loops.nodes import HERE, I, assign, axis, binary, call, compare, constant, function_of, load, name, store

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def elementwise(expression, x, y, out):
    """Return what an expression of ``x[i]`` and ``y[i]`` makes of arrays."""
    result = np.zeros(len(x), out)
    run(function_of(store("out", expression), arrays=("x", "y", "out")), {"x": x, "y": y, "out": result})
    return result


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_and_floor(dtype):
    """Sums and products wrap, quotients and remainders floor, the least integer divided by -1 wraps."""
    least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([least, greatest, 7, least, 5], dtype)
    y = np.array([greatest, 3, 3, greatest if least == 0 else -1, 2], dtype)
    with np.errstate(all="ignore"):
        expected = {"+": x + y, "-": x - y, "*": x * y, "//": x // y, "%": x % y}
    for operator, values in expected.items():
        got = elementwise(binary(operator, load("x"), load("y")), x, y, dtype)
        assert got.tolist() == values.tolist(), operator


def test_numbers_of_python_wrap_at_64_bits():
    """A product of Python's integers beyond 64 bits wraps, where CPython's would grow."""
    function = function_of(
        store("out", binary("*", name("n"), name("n"))), arrays=("x", "out"), parameters=("x", "out", "n")
    )
    out = np.zeros(1, np.int64)
    run(function, {"x": out, "out": out, "n": 2**40 + 1})
    assert out.tolist() == [2**41 + 1]


def test_shifts_by_the_width_give_nothing_or_the_sign():
    """``x << k`` and ``x >> k`` give 0 from the width on, -1 to the right for what is negative."""
    x, y = np.array([1, -3, 3, -3], np.int8), np.array([9, 8, 100, 1], np.int8)
    assert elementwise(binary("<<", load("x"), load("y")), x, y, np.int8).tolist() == [0, 0, 0, -6]
    assert elementwise(binary(">>", load("x"), load("y")), x, y, np.int8).tolist() == [0, -1, 0, -2]


def test_integers_are_compared_by_value():
    """-1 is less than 0 of uint64, and 2**53 + 1 is not 2**53."""
    x, y = np.array([-1, 2**53 + 1], np.int64), np.array([2**64 - 1, 2**53], np.uint64)
    assert elementwise(compare("<", load("x"), load("y")), x, y, bool).tolist() == [True, False]
    assert elementwise(compare("==", load("x"), load("y")), x, y, bool).tolist() == [False, False]


def test_stores_convert_as_c_casts():
    """A float is cut towards zero and an int64 wraps into int8."""
    x = np.array([3.9, -3.9])
    assert elementwise(load("x"), x, x, np.int32).tolist() == [3, -3]
    wide = np.array([300, -129])
    assert elementwise(load("x"), wide, wide, np.int8).tolist() == [44, 127]


def test_functions_out_of_their_domain_give_nan_and_infinities():
    """``math.sqrt(-1)`` is NaN, ``math.log(0)`` and ``math.gamma(0)`` infinite, where Python raises."""
    x = np.array([-1.0])
    zero = np.array([0.0])
    assert math.isnan(elementwise(call("math.sqrt", load("x")), x, x, float)[0])
    assert math.isnan(elementwise(call("math.gamma", load("x")), x, x, float)[0])
    assert elementwise(call("math.log", load("x")), zero, zero, float)[0] == -math.inf
    assert elementwise(call("math.gamma", load("x")), zero, zero, float)[0] == math.inf
    assert elementwise(binary("/", constant(1.0), load("x")), zero, zero, float)[0] == math.inf


@pytest.mark.parametrize(("function", "expected"), [("min", [1.0, math.nan]), ("numpy.minimum", [math.nan, math.nan])])
def test_min_is_pythons_and_minimum_is_numpys(function, expected):
    """``min(a, nan)`` is a and ``min(nan, b)`` NaN; ``numpy.minimum`` is NaN for both."""
    x, y = np.array([1.0, math.nan]), np.array([math.nan, 1.0])
    np.testing.assert_array_equal(elementwise(call(function, load("x"), load("y")), x, y, float), expected)


def test_least_of_integers_of_two_types_is_found_by_value():
    """``min(i8, n)`` with n = 1000 is the int8: n is not wrapped before it is compared."""
    x, y = np.array([5], np.int8), np.array([1000], np.int64)
    assert elementwise(call("min", load("x"), load("y")), x, y, np.int64).tolist() == [5]


def test_an_index_below_zero_counts_from_the_end():
    """``out[i] = x[-1 - i]`` reverses, checked or wrapped."""
    body = store("out", load("x", binary("-", constant(-1), I)))
    for mode in ("wrap", "check"):
        x, out = np.arange(4), np.zeros(4, int)
        run(function_of(body, arrays=("x", "out")), {"x": x, "out": out}, modes={0: mode, 1: "off"})
        assert out.tolist() == [3, 2, 1, 0]


def test_an_index_out_of_range_is_reported_with_its_iteration():
    """The first access out of range is reported: its number, index, dimension and trips; nothing is written."""
    body = store("out", constant(1), name("j"), I, at=5)
    function = function_of(body, arrays=("x", "out"), axes=(axis("i", 2), axis("j", 4, start=1)))
    out = np.zeros((3, 2), int)
    with pytest.raises(FoundError) as caught:
        run(function, {"x": out, "out": out})
    assert vars(caught.value) == {"what": INDEX, "place": 5, "index": 3, "dimension": 0, "trips": (0, 2)}
    assert out.tolist() == [[0, 0], [1, 1], [1, 1]]


def test_division_of_integers_by_zero_is_reported():
    """``//`` and ``%`` of integers by zero are reported with their line; of floats they are not."""
    x, y = np.array([4, 4]), np.array([2, 0])
    for operator in ("//", "%"):
        with pytest.raises(FoundError) as caught:
            elementwise(binary(operator, load("x"), load("y")), x, y, int)
        assert (caught.value.what, caught.value.place, caught.value.trips) == (DIVISION, 7, (1,))
        elementwise(binary(operator, load("x"), load("y")), x + 0.0, y + 0.0, float)


def test_assertions_are_reported():
    """An assertion that does not hold is reported with its line."""
    body = ir.Assert(place=HERE, condition=compare("<", load("x"), constant(2)), text="x")
    with pytest.raises(FoundError) as caught:
        run(function_of(body, arrays=("x",)), {"x": np.arange(4)})
    assert (caught.value.what, caught.value.trips) == (ASSERTION, (2,))


@pytest.mark.parametrize("chunks", [1, 2, 5, 9])
def test_reductions_start_from_the_value_before(chunks):
    """A sum, a least and a truth value of any chunks, empty ones too, are those of Python from the value before."""
    body = [
        ir.Reduce(place=HERE, name="s", operator="+", value=load("x")),
        ir.Reduce(place=HERE, name="m", operator="min", value=load("x")),
        ir.Reduce(place=HERE, name="all", operator="and", value=compare(">", load("x"), constant(0))),
    ]
    items = (ir.LoopReduction("+", "s"), ir.LoopReduction("min", "m"), ir.LoopReduction("and", "all"))
    prologue = (assign("s", constant(100)), assign("m", constant(-3)), assign("all", constant(True)))
    function = function_of(*body, arrays=("x",), prologue=prologue, reductions=items, returns=("s", "m", "all"))
    x = np.array([3, 1, 4, 1, 5], np.int32)
    assert run(function, {"x": x}, chunks=chunks) == (114, -3, True)
    assert run(function, {"x": x[:0]}, chunks=chunks) == (100, -3, True)
    assert run(function, {"x": x - 4}, chunks=chunks) == (94, -3, False)


def test_a_reduction_of_nothing_keeps_minus_zero():
    """A float's sum over an empty range is the value before, bit for bit."""
    body = ir.Reduce(place=HERE, name="s", operator="+", value=load("x"))
    function = function_of(
        body,
        arrays=("x",),
        prologue=(assign("s", constant(-0.0)),),
        reductions=(ir.LoopReduction("+", "s"),),
        returns=("s",),
    )
    assert math.copysign(1, run(function, {"x": np.zeros(0)})) == -1


def test_a_parameter_of_one_element_is_reduced_in_place():
    """A reduction into a 0-d array adds to what it held."""
    body = ir.Reduce(place=HERE, name="total", operator="+", value=load("x"))
    function = function_of(body, arrays=("x",), parameters=("x", "total"), reductions=(ir.LoopReduction("+", "total"),))
    total = np.array(10.0)
    run(function, {"x": np.arange(4.0), "total": total})
    assert total == 16


def test_atomics_give_the_old_value():
    """``k = atomic.add(h, x[i], 1)`` counts, and gives what was there; ``cas`` exchanges what it expects alone."""
    add = ir.Atomic(place=HERE, array="h", indices=(load("x"),), operator="+", value=constant(1), at=2, result="k")
    function = function_of(add, store("out", name("k")), arrays=("x", "h", "out"))
    h, out = np.zeros(2, np.int16), np.zeros(4, int)
    run(function, {"x": np.array([1, 0, 1, 1]), "h": h, "out": out})
    assert (h.tolist(), out.tolist()) == ([1, 3], [0, 0, 1, 2])
    cas = ir.Atomic(place=HERE, array="x", indices=(I,), operator="cas", value=constant(9), expected=constant(1), at=2)
    x = np.array([0, 1, 2])
    run(function_of(cas, arrays=("x",)), {"x": x})
    assert x.tolist() == [0, 9, 2]


def test_each_iteration_has_its_private_arrays():
    """A firstprivate array starts from the argument each time; a lastprivate one is left by the last iteration."""
    body = [
        store("p", binary("+", load("p", constant(0)), I), constant(0)),
        store("q", load("p", constant(0)), constant(0)),
    ]
    function = function_of(*body, arrays=("x", "p", "q"), privates={"p": "firstprivate", "q": "lastprivate"})
    p, q = np.array([10]), np.array([0])
    run(function, {"x": np.zeros(4), "p": p, "q": q})
    assert (p.tolist(), q.tolist()) == ([10], [13])


def test_the_last_iteration_leaves_its_scalars():
    """A lastprivate scalar has the value of the sequentially last iteration."""
    function = function_of(assign("t", load("x")), arrays=("x",), last=("t",), returns=("t",))
    assert run(function, {"x": np.arange(5.0)}) == 4


def test_local_arrays_are_of_the_iteration():
    """``np.zeros`` in an iteration gives zeros to each."""
    local = ir.Local(place=HERE, name="t", shape=(2,), dtype="int64", fill=constant(0))
    body = [local, store("t", binary("+", load("t", constant(1)), I), constant(1)), store("x", load("t", constant(1)))]
    x = np.zeros(3, int)
    run(function_of(*body, arrays=("x",)), {"x": x})
    assert x.tolist() == [0, 1, 2]


def test_inner_loops_break_continue_and_run_backwards():
    """``for k in range(3, -1, -1)`` with ``continue`` and ``break``, and ``while``, are Python's."""
    add = assign("s", binary("+", binary("*", name("s"), constant(10)), name("k")))
    odd = ir.If(place=HERE, condition=compare("==", name("k"), constant(2)), then=(ir.Continue(place=HERE),))
    loop = ir.For(place=HERE, variable="k", start=constant(4), stop=constant(-1), step=constant(-1), body=(odd, add))
    stop = ir.If(place=HERE, condition=compare(">", name("s"), constant(50000)), then=(ir.Break(place=HERE),))
    grow = ir.While(
        place=HERE,
        condition=constant(True),
        body=(stop, assign("s", binary("+", name("s"), constant(10000)))),
    )
    x = np.zeros(1, int)
    run(function_of(assign("s", constant(0)), loop, grow, store("x", name("s")), arrays=("x",)), {"x": x})
    assert x.tolist() == [54310]


def test_a_step_of_zero_is_an_error_of_the_call():
    """A step of zero raises ValueError before the nest, of inner loops too if the host knows it."""
    zero = function_of(arrays=("x",), axes=(axis("i", 3, step=name("k")),), parameters=("x", "k"))
    inner = ir.For(place=HERE, variable="j", start=constant(0), stop=constant(1), step=name("k"), body=())
    for function in (zero, function_of(inner, arrays=("x",), parameters=("x", "k"))):
        with pytest.raises(ValueError, match="step"):
            run(function, {"x": np.zeros(1), "k": 0})


def test_the_prologue_divides_on_the_host():
    """Integers divided by zero before a nest raise there."""
    divided = assign("n", binary("//", constant(1), name("k")))
    function = function_of(arrays=("x",), prologue=(divided,), parameters=("x", "k"))
    with pytest.raises(ZeroDivisionError):
        run(function, {"x": np.zeros(1), "k": 0})
