"""Arguments and contents that a loop cannot take, or takes only just: an error that says so, and never a crash."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked
from tests.profiles import few

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

WHERE = ("sim", "host", "threads", "python")
LEAST = -(2**63)


@pytest.fixture(params=few(("sim", "threads", "python"), WHERE))
def loop(request, monkeypatch):
    """Makes a loop function: on a simulated device, the initial device, the host's threads, or without a compiler."""
    if request.param == "python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    with checked("sim:1"):
        if request.param == "threads":
            yield omp.parallel_loop
        else:
            yield lambda function, **clauses: omp.target_loop(function, if_=request.param != "host", **clauses)


def gather(p, x, y):
    for i in range(p.size):
        y[i] = x[p[i]]


def scatter(p, y):
    for i in range(p.size):
        y[p[i]] = i


def at(y, n):
    for i in range(y.size):
        y[n] = i


def behind(x, y, k):
    for i in range(x.size):
        y[i] = x[i + k]


def scaled(y, k):
    for i in range(y.size):
        y[i * k] = 1


def never(x, y):
    for i in range(x.size):
        if x[i] > 100:
            y[i + 1000] = x[i - 77]
        else:
            y[i] = 1


def copy(x, y):
    for i in range(x.size):
        y[i] = x[i]


def total(s, x):
    for i in range(x.size):
        s[()] += x[i]


def first(s, x):
    for i in range(x.size):
        s[0] += x[i]


def quotients(a, b, y):
    for i in range(a.size):
        y[i] = a[i] // b[i]


def remainders(a, b, y):
    for i in range(a.size):
        y[i] = a[i] % b[i]


def shifts(a, b, y):
    for i in range(a.size):
        y[i] = (a[i] << b[i]) ^ (a[i] >> b[i])


def count(first, last, step):
    s = 0
    for i in range(first, last, step):
        s += i % 7 + 1
    return s


def inside(y, first, last, step):
    for i in range(y.size):
        for j in range(first, last, step):
            y[i] += j


# -- indices -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, -6, 2**62, LEAST])
def test_affine_indices_outside(loop, k):
    """An index that leaves the array is the IndexError of the call, and nothing has been written."""
    y = np.zeros(5)
    with pytest.raises(IndexError, match="'x'"):
        loop(behind)(np.ones(5), y, k)
    assert not y.any()


@pytest.mark.parametrize("index", [5, -6, 2**63 - 1, LEAST])
def test_indices_from_arrays_outside(loop, index):
    """An index from an array that leaves another is an IndexError with the index and the iteration."""
    p = np.array([0, index, 1])
    with pytest.raises(IndexError, match=f"index {index} .*'x' with size 5, at iteration i=1"):
        loop(gather)(p, np.arange(5), np.zeros(3, int))
    y = np.zeros(5)
    with pytest.raises(IndexError, match=f"index {index} .*'y' with size 5, at iteration i=1"):
        loop(scatter)(p, y)


@pytest.mark.parametrize("index", [2**63, 2**64 - 1, 2**64 - 5])
def test_unsigned_indices_do_not_become_negative(loop, index):
    """An index of uint64 beyond int64 is out of range; it does not count from the end."""
    with pytest.raises(IndexError):
        loop(gather)(np.array([0, index, 1], np.uint64), np.arange(5), np.zeros(3, int))
    y = np.zeros(1)
    with pytest.raises(IndexError):
        loop(at)(y, np.uint64(index))
    assert not y.any()


@pytest.mark.parametrize("k", [2**61, 2**62, 2**63 - 1, LEAST])
def test_indices_that_wrap(loop, k):
    """An index whose integers wrap is still kept inside of the array."""
    y = np.zeros(5)
    with pytest.raises(IndexError):
        loop(behind)(np.ones(5), y, 2**63 - 1)
    with pytest.raises((IndexError, omp.LoopError)):
        loop(scaled)(y, k)
    with pytest.raises(IndexError):
        loop(scaled, seq=True)(y, k)


def test_an_index_of_a_branch_not_taken(loop):
    """What no iteration carries out is no error."""
    y = np.zeros(5)
    loop(never)(np.arange(5), y)
    assert y.all()


# -- numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [quotients, remainders])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16"])
def test_integers_divided_by_zero(loop, function, dtype):
    """An integer divided by zero is a ZeroDivisionError that names the iteration."""
    a, b = np.arange(5, dtype=dtype), np.ones(5, dtype)
    b[3] = 0
    with pytest.raises(ZeroDivisionError, match="i=3"):
        loop(function)(a, b, np.zeros(5, dtype))


@pytest.mark.parametrize("dtype", few(2, ["int8", "int64", "int16", "int32"]))
def test_the_least_integer_divided_by_minus_one(loop, dtype):
    """The least integer divided by -1 is itself, with remainder 0."""
    least = np.iinfo(dtype).min
    a, b = np.array([least], dtype), np.array([-1], dtype)
    for function, expected in ((quotients, least), (remainders, 0)):
        y = np.ones(1, dtype)
        loop(function)(a, b, y)
        assert y[0] == expected


@pytest.mark.parametrize("dtype", few(2, ["int32", "uint64", "int8", "int64", "uint8"]))
def test_shifts_by_the_width(loop, dtype):
    """Shifts by the width or more give what NumPy gives."""
    a = np.array([1, 3, 5, 7, 100, 100], dtype)
    if dtype.startswith("i"):
        a[4] = -9
    b = np.array([0, 7, 8, 64, 100, 127], dtype)
    y = np.zeros(6, dtype)
    loop(shifts)(a, b, y)
    assert (y == (a << b) ^ (a >> b)).all()


EXTREMES = [
    (0, 2**62, 2**61),
    (LEAST, 2**63 - 1, 2**62),
    (2**63 - 1, LEAST, -(2**62)),
    (2**63 - 1, LEAST, LEAST),
    (LEAST, LEAST + 3, 1),
    (2**63 - 3, 2**63 - 1, 1),
    (2**63 - 1, 2**63 - 4, -1),
    (0, 1, 2**63 - 1),
    (0, -1, LEAST),
    (0, -5, 1),
    (0, 5, -1),
    (2**63 - 1, 2**63 - 1, 1),
]


@pytest.mark.parametrize("bounds", EXTREMES, ids=str)
def test_ranges_at_the_ends_of_int64(loop, bounds):
    """Ranges that reach the ends of what 64 bits hold have Python's trips, also inside of an iteration."""
    assert loop(count, reduction={"+": ["s"]})(*bounds) == count(*bounds)
    y = np.zeros(2, int)
    loop(inside)(y, *bounds)
    assert (y == (sum(range(*bounds)) + 2**63) % 2**64 - 2**63).all()


# -- arrays ------------------------------------------------------------------------------------------------


def test_arrays_that_are_read_only(loop):
    """A loop does not write to an array that is read-only: a ClauseError names it; it reads one."""
    fixed = np.arange(5.0)
    fixed.flags.writeable = False
    y = np.zeros(5)
    loop(copy)(fixed, y)
    assert (y == fixed).all()
    one = np.array(1.0)
    one.flags.writeable = False
    with pytest.raises(omp.ClauseError, match="'y', which is read-only"):
        loop(copy)(y + 1, fixed)
    with pytest.raises(omp.ClauseError, match="'s', which is read-only"):
        loop(total, reduction={"+": ["s"]})(one, y)
    assert (fixed == np.arange(5)).all()
    assert one == 1


def test_a_read_only_array_is_refused_at_a_deferred_call(sim):
    """With ``nowait`` too, the call raises."""
    fixed = np.broadcast_to(0.0, 5)
    for construct in (omp.target_loop, omp.parallel_loop):
        with pytest.raises(omp.ClauseError):
            construct(nowait=True)(copy)(np.ones(5), fixed)


def test_arrays_of_reductions_have_one_element(loop):
    """An array of a reduction that has no element, or two, is a LoopError of rule `reduction`; other loops go on."""
    summed = loop(first, reduction={"+": ["s"]})
    x = np.arange(10.0)
    for s in (np.zeros(0), np.ones(2)):
        with pytest.raises(omp.LoopError) as caught:
            summed(s, x)
        assert caught.value.rule == "reduction"
    s = np.array([1.0])
    summed(s, x)
    assert s[0] == 46


@pytest.mark.parametrize("dtype", ["float16", "clongdouble", "object", "S3", "M8[s]", ">f8", [("a", "f8")]], ids=str)
def test_elements_that_loops_do_not_have(loop, dtype):
    """Other elements are a LoopError of rule `types`."""
    with pytest.raises(omp.LoopError) as caught:
        loop(copy)(np.zeros(3, dtype), np.zeros(3))
    assert caught.value.rule == "types"


@pytest.mark.parametrize("wrong", [[1, 2], None, "abc", {}, 3.0, np.float64(3), 3j, ...], ids=repr)
def test_arguments_that_are_no_arrays(loop, wrong):
    """What is no array where one is needed is a LoopError of rule `argument` that names the parameter."""
    with pytest.raises(omp.LoopError, match="x") as caught:
        loop(copy)(wrong, np.zeros(3))
    assert caught.value.rule == "argument"


def test_views_of_one_buffer(loop):
    """The same array twice is one array; halves that interleave are two; what overlaps with a distance is refused."""
    z = np.arange(6.0)
    loop(copy)(z, z)
    assert (z == np.arange(6)).all()
    for x, y in ((z[:-1], z[1:]), (z[1:], z[:-1])):
        with pytest.raises(omp.LoopError) as caught:
            loop(copy)(x, y)
        assert caught.value.rule == "dependence"
    loop(copy)(z[::2], z[1::2])
    assert z.tolist() == [0, 0, 2, 2, 4, 4]


def test_rows_that_are_one_row(loop):
    """To write to an array whose elements are one element is a dependence."""
    same = np.lib.stride_tricks.as_strided(np.zeros(1), (5,), (0,))
    with pytest.raises(omp.LoopError) as caught:
        loop(copy)(np.arange(5.0), same)
    assert caught.value.rule == "dependence"
    loop(copy)(np.broadcast_to(2.0, 5), y := np.zeros(5))
    assert (y == 2).all()


WINDOWS = {
    "windows": lambda z: np.lib.stride_tricks.sliding_window_view(z, 3, writeable=True),
    "with gaps": lambda z: np.lib.stride_tricks.as_strided(z, (5, 4), (32, 16), writeable=True),
    "interleaved": lambda z: np.lib.stride_tricks.as_strided(z, (5, 2), (24, 16), writeable=True),
}


@pytest.mark.parametrize("view", WINDOWS.values(), ids=WINDOWS)
def test_an_array_that_overlaps_itself_is_written(loop, view):
    """What is written to elements that others lie on comes back, though no clause maps them."""

    def first(windows, x):
        for i in range(windows.shape[0]):
            windows[i, 0] = x[i]

    z, x = np.zeros(20), np.arange(1.0, 20)
    for _ in range(2):
        x += 1
        loop(first)(view(z), x)
        expected = np.zeros(20)
        first(view(expected), x)
        assert (z == expected).all()


def test_a_read_only_view_beside_a_written_one(loop):
    """Of an array that is read by a read-only view and written by another one the results come back."""

    def count(x, y):
        for i in range(y.size):
            y[i] = x[i] + 1

    z = np.zeros(6)
    fixed = z.view()
    fixed.flags.writeable = False
    for n in (6, 4):
        loop(count)(fixed, z[:n])
    assert z.tolist() == [2, 2, 2, 2, 1, 1]


# -- what comes from outside -------------------------------------------------------------------------------


def test_closures_whose_scalars_change(loop):
    """A scalar from outside has the value and the type that it has at the call; what is none is a LoopError."""
    factor = 2

    def scale(x):
        for i in range(x.size):
            x[i] = factor * i

    scaled = loop(scale)
    x = np.zeros(3)
    for factor in (2, 5, 0.5, np.float32(0.1), True, np.int16(3)):  # noqa: B007  # the closure reads it
        scaled(x)
        expected = np.zeros(3)
        scale(expected)
        assert (x == expected).all()
    for factor in ([1], None, np.ones(3)):  # noqa: B007
        with pytest.raises(omp.LoopError) as caught:
            scaled(x)
        assert caught.value.rule == "name"
    factor = 3
    scaled(x)
    assert x.tolist() == [0, 3, 6]


def test_names_that_mean_something_elsewhere(loop):
    """Keywords of C and what generated code calls its own are names as others."""

    def named(int8, begin, end, report, arguments, chunk, double, restrict, t_0, λ, __x, _, a_x):  # noqa: PLC2401
        register = 1
        for struct in range(int8.size):
            int64_t = struct + register
            static = begin + end + report + arguments + chunk + double + restrict + t_0 + λ + __x + _ + a_x
            int8[struct] = int64_t + static

    found, expected = np.zeros(5), np.zeros(5)
    loop(named)(found, *range(12))
    named(expected, *range(12))
    assert (found == expected).all()


def test_defaults_and_keywords(loop):
    """Arguments are bound as Python binds them, arrays as defaults included."""
    values = np.arange(3.0)

    def fill(x, /, d=values, *, n=4):
        for i in range(x.size):
            if d is None:
                x[i] = n
            else:
                x[i] = d[i]

    filled = loop(fill)
    x = np.zeros(3)
    for args, expected in (
        ({}, values),
        ({"d": None}, 4),
        ({"d": None, "n": 2.5}, 2.5),
        ({"d": values + 1}, values + 1),
    ):
        filled(x, **args)
        assert (x == expected).all()
    for args in ((), (x, values, 3)):
        with pytest.raises(TypeError):
            filled(*args)
    with pytest.raises(TypeError):
        filled(x=x)
