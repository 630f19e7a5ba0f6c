"""What names, numbers and shapes mean in loops, where that changes or has limits."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.loops.front.calls import FUNCTIONS
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked
from tests.loops.oracle import compare, function_of_text
from tests.loops.zeros import WAYS, zeros
from tests.profiles import few

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

BEYOND = 2**70
HALF = 2**63


@pytest.fixture(params=["threads", "python"], autouse=True)
def form(request, monkeypatch):
    """Compiled, and as Python."""
    if request.param == "python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    return request.param


@pytest.fixture(autouse=True)
def runtime():
    with checked("sim:1"):
        yield


# -- shapes ----------------------------------------------------------------------------------------------


def sides(a):
    p, q = a.shape
    return 10 * p + q


def shapes(a, o):
    n, m = a.shape
    for i in range(n):
        t = np.zeros((2, 3))
        k, o[i, 1] = t.shape
        (n_o, _) = o.shape
        o[i, 0] = m + 10 * k + 100 * n_o + 1000 * sides(a)


def test_a_shape_is_assigned_to_a_tuple():
    """Before the nest, in it, of local arrays and in functions that are called."""
    o, expected = np.zeros((4, 2)), np.zeros((4, 2))
    omp.parallel_loop(shapes)(np.zeros((4, 5)), o)
    shapes(np.zeros((4, 5)), expected)
    assert np.array_equal(o, expected)


@pytest.mark.parametrize("shape", [(4,), (4, 5, 6), ()])
def test_a_shape_has_as_many_targets_as_values(shape):
    """Else it is a `LoopError`, as it is a ValueError in CPython."""
    with pytest.raises(omp.LoopError, match=r"a\.shape|has \d dimensions") as caught:
        omp.parallel_loop(shapes)(np.zeros(shape), np.zeros((4, 2)))
    assert caught.value.rule == "index"


# -- integers beyond 64 bits -----------------------------------------------------------------------------


def fill(o, k):
    for i in range(o.size):
        o[i] = k


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**70, 10**400])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
def test_an_argument_beyond_64_bits_is_an_error(value, dtype):
    """Its name is said, and the array is as it was."""
    o = np.ones(3, dtype)
    with pytest.raises(OverflowError, match="'k'"):
        omp.parallel_loop(fill)(o, value)
    assert (o == 1).all()


def test_the_ends_of_64_bits_are_no_errors():
    """The least and the greatest integer, and what `uint64` holds if it is said to be one."""
    for value, dtype in ((-(2**63), "int64"), (2**63 - 1, "int64"), (np.uint64(2**64 - 1), "uint64")):
        o = np.zeros(3, dtype)
        omp.parallel_loop(fill)(o, value)
        assert (o == value).all()


def stored(o):
    for i in range(o.size):
        o[i] = 2**70


def from_module(o):
    for i in range(o.size):
        o[i] = BEYOND


def by_variable(o):
    k = 1 << 70
    for i in range(o.size):
        o[i] = k


def as_bound(o):
    for i in range(2**70):
        o[i] = 1


@pytest.mark.parametrize("function", [stored, from_module, by_variable, as_bound])
def test_a_constant_beyond_64_bits_is_an_error_where_integers_are(function):
    """The value is said."""
    with pytest.raises(omp.LoopError, match=str(2**70)) as caught:
        omp.parallel_loop(function)(np.zeros(3, np.int64))
    assert caught.value.rule == "types"


def test_a_constant_beyond_64_bits_is_a_number_where_floats_are():
    """As in CPython."""
    o = np.zeros(3)
    omp.parallel_loop(stored)(o)
    assert (o == 2.0**70).all()


def bounded(o, start, stop, step):
    for i in range(start, stop, step):
        o[i] = 1


@pytest.mark.parametrize("construct", [omp.parallel_loop, omp.target_loop, acc.kernels_loop])
@pytest.mark.parametrize(
    "bounds",
    [(np.uint64(HALF), 5, 1), (np.uint64(2**64 - 3), 5, 1), (0, np.uint64(HALF), 1), (3, 0, np.uint64(2**64 - 1))],
)
def test_a_bound_beyond_int64_is_an_error(construct, bounds):
    """A bound or a step of uint64 is no negative number: it is refused, and nothing is written."""
    o = np.zeros(5)
    with pytest.raises(OverflowError, match="64 bits"):
        construct(bounded)(o, *bounds)
    assert not o.any()


@pytest.mark.parametrize("dtype", ["uint64", "uint32", "uint8", "int8"])
def test_bounds_of_other_types(dtype):
    """Bounds of unsigned and of narrow integers are the numbers that they are, computed ones too."""
    start, stop, step = np.array([1, 120, 2], dtype)
    o, expected = np.zeros(250), np.zeros(250)
    omp.parallel_loop(bounded)(o, start, stop, step)
    bounded(expected, start, stop, step)
    assert np.array_equal(o, expected)
    assert o.any()


def rows(o, n):
    for i in range(n.size):
        for j in range(n[i]):
            o[i, j] = 1


def rows_from(o, n):
    for i in range(n.size):
        for j in range(n[i], 4, 2):
            o[i, j] = 1


def rows_counted(o, n):
    for i in range(n.size):
        k = 0
        for j in range(n[i] - n[i], n[i], n[i]):
            k += j + 1
        o[i, 0] = k


def rows_of_a_scalar(o, n, m=HALF):
    for i in range(n.size):
        for j in range(m):
            o[i, j] = 1


@pytest.mark.parametrize("construct", [omp.parallel_loop, omp.target_loop, omp.target_loop(check=True)])
@pytest.mark.parametrize("function", [rows, rows_from, rows_counted])
def test_an_inner_bound_beyond_int64_is_an_error(construct, function):
    """So is that of an inner loop, whose other iterations are carried out; smaller ones are numbers as any."""
    n = np.array([1, 2, 3], np.uint64)
    o, expected = np.zeros((3, 4)), np.zeros((3, 4))
    loop = construct(function)
    loop(o, n)
    function(expected, n)
    assert np.array_equal(o, expected)
    n[1] = HALF + 1
    o[:] = 0
    with pytest.raises(OverflowError, match=r"range.* i=1, line \d+, .*64 bits"):
        loop(o, n)
    assert not o[1].any()


def test_an_inner_bound_that_is_an_argument_beyond_int64_is_an_error():
    """It is found where it is used: a loop without iterations asks for no bound."""
    o = np.zeros((3, 4))
    with pytest.raises(OverflowError, match="64 bits"):
        omp.parallel_loop(rows_of_a_scalar)(o, np.zeros(3), np.uint64(HALF))
    assert not o.any()
    omp.parallel_loop(rows_of_a_scalar)(o, np.zeros(0), np.uint64(HALF))
    omp.parallel_loop(rows_of_a_scalar)(o, np.zeros(3), np.uint64(2))
    assert o.tolist() == [[1, 1, 0, 0]] * 3


# -- zeros -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_integer_zero_has_no_sign(dtype):
    """A float between -1 and 0 that becomes an integer, and a float again, is +0, as in CPython."""
    f, a, o, expected = zeros(dtype)
    omp.parallel_loop(f)(a, o)
    for k, way in enumerate(WAYS):
        compare(o[k], expected[k], way, exact=True)


# -- functions of every type -----------------------------------------------------------------------------


CALLS = {name: FUNCTIONS.get(name, 1) for name in (*FUNCTIONS, "int", "float", "bool")} | {"min": 2, "max": 2}


def of_calls(calls):
    """Return a loop function that stores what each call gives of an element."""
    lines = [f"        o[i, {k}] = {call}\n" for k, call in enumerate(calls)]
    return function_of_text(
        f"import cmath\nimport math\nimport numpy\n\n\ndef f(x, o):\n    for i in range(x.size):\n{''.join(lines)}"
    )


def is_in_the_subset(call, x):
    try:
        omp.parallel_loop(of_calls([call])).source(x, np.zeros((3, 1)))
    except omp.LoopError as refused:
        assert refused.rule == "types"  # noqa: PT017  # another outcome, which is asked for
        return False
    return True


@pytest.mark.parametrize("dtype", few(1, ["uint8", "float32", "bool", "int8", "int32", "uint64", "int64", "float64"]))
def test_a_function_of_any_type_is_what_it_is_in_python(dtype):
    """Or it is a `LoopError`: it is never one of the compiler."""
    x = np.array([1, 0, 1], dtype)
    calls = [f"{name}({', '.join(['x[i]', 'x[i] > 0'][:count])})" for name, count in sorted(CALLS.items())]
    calls = [call for call in calls if is_in_the_subset(call, x)]
    assert "abs(x[i])" in calls
    o = np.ones((3, len(calls)))
    omp.parallel_loop(of_calls(calls))(x, o)
    for k, call in enumerate(calls):
        expected = np.ones((3, 1))
        try:
            with np.errstate(all="ignore"):
                of_calls([call])(x, expected)
        except (TypeError, ValueError, OverflowError):  # a pole, or a function that NumPy's truth values do not have
            continue
        compare(o[:, [k]].astype(np.float32), expected.astype(np.float32), call, exact=False)


# -- names whose values change ---------------------------------------------------------------------------


def helper(x, k=2, *, z=1):
    return x * k + z


def test_defaults_and_names_of_closures_are_what_they_are_at_the_call(monkeypatch):
    """Of the function itself, and of those that it calls, also where a value has the same digits in another type."""
    c = 1

    @omp.parallel_loop
    def made(o, m=3, *, w=5):
        for i in range(o.size):
            o[i] = helper(i) / 3 * c + m * 100 + w * 1000

    def agrees():
        o, expected = np.zeros(4), np.zeros(4)
        made(o)
        made.python(expected)
        return np.array_equal(o, expected)

    assert agrees()
    monkeypatch.setattr(helper, "__defaults__", (7,))
    assert agrees()
    monkeypatch.setitem(helper.__kwdefaults__, "z", 4)
    assert agrees()
    monkeypatch.setattr(helper, "__kwdefaults__", {"z": 4.5})
    assert agrees()
    made.python.__defaults__ = (9,)
    assert agrees()
    made.python.__kwdefaults__["w"] = 0.25
    assert agrees()
    for c in (2, 2.0, 2.5, True):  # noqa: B007  # the loop reads it
        assert agrees()


# -- nests in order, and iterations that fail ------------------------------------------------------------


def place_and_add(p, q, a, o):
    for i in range(p.size):
        p[i] = q[i]
    for i in range(p.size):
        o[p[i]] += a[i]


def test_a_nest_is_observed_on_what_the_one_before_it_leaves():
    """The second nest's indices are those that the first has written, not those of the call."""
    n = 6
    made = acc.kernels_loop(check=True, independent=True)(place_and_add)
    o = np.zeros(n)
    made(np.zeros(n, np.int64), np.arange(n)[::-1], np.arange(n), o)
    assert np.array_equal(o, np.arange(n)[::-1])
    p, o = np.arange(n), np.zeros(n)
    with pytest.raises(omp.LoopError, match="depend on each other by 'o'"):
        made(p, np.arange(n) // 2, np.ones(n), o)
    assert np.array_equal(p, np.arange(n))
    assert not o.any()


def divide(o, d):
    for i in range(o.size):
        o[i] = 10 // d[i]


def test_an_iteration_that_fails_leaves_no_rubbish(form):
    """What other iterations have written stays; the failed one has written nothing, as in Python."""
    o, d = np.full(8, -5), np.arange(1, 9)
    d[4] = 0
    with pytest.raises(ZeroDivisionError):
        omp.target_loop(divide)(o, d)
    assert o.tolist() == [10, 5, 3, 2, -5, 1, 1, 1]
