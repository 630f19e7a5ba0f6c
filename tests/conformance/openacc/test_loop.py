"""What clauses say of loops, on the constructs and in `acc.loop`: order, shape, reductions, private variables."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conformance.openacc.loops import (
    CONSTRUCTS,
    N,
    cells,
    double,
    loops_of,
    order_of,
    running,
    scale,
    total,
    trace,
)
from tests.conftest import checked


@pytest.fixture(params=CONSTRUCTS, ids=lambda construct: construct.__name__)
def construct(request):
    return request.param


@pytest.fixture
def shuffled():
    """A current runtime whose simulated device runs the iterations of a parallel loop in a random order."""
    with checked("sim:1", seed=5) as runtime:
        yield runtime


# -- in which order iterations run -----------------------------------------------------------------------------


def test_iterations_of_a_parallel_loop_run_in_any_order(shuffled):
    """Under a seed, `parallel_loop` runs iterations in a random order; `seq` keeps that of the text."""
    in_order = list(range(N))
    assert order_of(acc.parallel_loop(trace)) != in_order
    assert order_of(acc.parallel_loop(independent=True)(trace)) != in_order
    assert order_of(acc.parallel_loop(seq=True)(trace)) == in_order
    assert order_of(acc.kernels_loop(independent=True)(trace)) != in_order
    assert order_of(acc.kernels_loop(seq=True)(trace)) == in_order


def test_the_order_in_the_text(shuffled):
    """`seq`, `independent` and `auto` around the range say the same as on the construct, and go before that."""

    def seq(c, order):
        for i in acc.loop(range(order.size), seq=True):
            k = omp.atomic.add(c, 0, 1)
            order[k] = i

    def independent(c, order):
        for i in acc.loop(range(order.size), independent=True):
            k = omp.atomic.add(c, 0, 1)
            order[k] = i

    def auto(c, order):
        for i in acc.loop(range(order.size), auto=True):
            k = omp.atomic.add(c, 0, 1)
            order[k] = i

    in_order = list(range(N))
    for construct in CONSTRUCTS:
        assert order_of(construct(seq)) == in_order
        assert order_of(construct(independent)) != in_order
        assert order_of(construct(auto=True)(independent)) != in_order
        with pytest.warns(omp.PerformanceWarning):
            assert order_of(construct(auto)) == in_order


@pytest.mark.parametrize("clauses", [{"gang": True}, {"worker": True}, {"vector": True}, {"gang": True, "vector": 32}])
def test_levels_leave_the_order_open(shuffled, clauses):
    """A loop on any level of the device is as independent as one on none."""
    assert order_of(acc.parallel_loop(**clauses)(trace)) != list(range(N))


def test_auto_in_a_parallel_loop(shuffled):
    """`auto` runs in order what is not proved, and warns."""
    with pytest.warns(omp.PerformanceWarning, match="not proved"):
        assert order_of(acc.parallel_loop(auto=True)(trace)) == list(range(N))
    x, y = np.arange(N), np.zeros(N, int)
    assert loops_of(acc.parallel_loop(auto=True)(double), x, y)[0]["runs"] == "in parallel"


def test_auto_is_silent_where_it_is_proved(runtime, construct):
    """An `auto` loop that is proved parallel warns of nothing."""
    x, y = np.arange(N), np.zeros(N, int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*there is no C compiler", omp.PerformanceWarning)
        construct(auto=True)(double)(x, y)
    assert (y == 2 * x).all()


def test_what_is_said_to_be_independent_and_is_not(runtime):
    """A proved dependence is a LoopError of a loop that is independent, and nothing of one that is `seq`."""
    a = np.ones(N, int)
    for loop in (acc.parallel_loop(running), acc.kernels_loop(independent=True)(running)):
        with pytest.raises(omp.LoopError) as caught:
            loop(a)
        assert caught.value.rule == "dependence"
    assert (a == 1).all()
    acc.parallel_loop(seq=True)(running)(a)
    assert (a == np.arange(1, N + 1)).all()


def test_seq_of_an_inner_loop(runtime):
    """An inner loop that is `seq` carries a value from trip to trip."""

    @acc.parallel_loop(gang=True, vector=True)
    def prefix(a):
        for i in range(a.shape[0]):
            for j in acc.loop(range(1, a.shape[1]), seq=True):
                a[i, j] += a[i, j - 1]

    a = np.ones((20, 30), int)
    prefix(a)
    assert (a == np.arange(1, 31)).all()
    assert [one["mapping"] for one in loops_of(prefix, a)] == ["gang vector", "seq"]


# -- shapes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "mapping", "sizes"),
    [
        ({}, "gang vector", {}),
        ({"gang": True}, "gang", {}),
        ({"worker": True}, "worker", {}),
        ({"vector": True}, "vector", {}),
        ({"gang": True, "vector": 64}, "gang vector", {"vector": 64}),
        ({"gang": 8, "worker": 4, "vector": 32}, "gang worker vector", {"gang": 8, "worker": 4, "vector": 32}),
        ({"num_gangs": 8}, "gang vector", {"num_gangs": 8}),
        ({"num_workers": 4, "vector_length": 32}, "gang vector", {"num_workers": 4, "vector_length": 32}),
    ],
    ids=str,
)
def test_levels_and_sizes(sim, construct, clauses, mapping, sizes):
    """The report has the levels and sizes that are asked for; on the host and a simulated device they shape nothing."""
    loop = construct(**clauses)(double)
    x, y = np.arange(N), np.zeros(N, int)
    (one,) = loops_of(loop, x, y)
    assert (one["mapping"], one["sizes"], one["runs"]) == (mapping, sizes, "in parallel")
    assert mapping in str(loop.explain(x, y))
    assert loop.source(x, y) == construct(double).source(x, y)
    loop(x, y)
    assert (y == 2 * x).all()


def test_levels_of_inner_loops(runtime):
    """Rows on gangs, their elements on vector lanes: the reduction of the inner loop is complete after it."""

    @acc.parallel_loop(copyin=["ptr", "col", "val", "x"], copyout=["y"], vector_length=32)
    def spmv(ptr, col, val, x, y):
        for i in acc.loop(range(y.size), gang=16):
            s = 0
            for k in acc.loop(range(ptr[i], ptr[i + 1]), vector=True, reduction={"+": ["s"]}):
                s += val[k] * x[col[k]]
            y[i] = s

    rng = np.random.default_rng(1)
    ptr = np.concatenate([[0], np.cumsum(rng.integers(0, 90, N))])
    col, val = rng.integers(0, N, ptr[-1]), rng.integers(-9, 9, ptr[-1])
    x, y, expected = rng.integers(-9, 9, N), np.zeros(N, int), np.zeros(N, int)
    spmv.python(ptr, col, val, x, expected)
    spmv(ptr, col, val, x, y)
    assert (y == expected).all()
    outer, inner = loops_of(spmv, ptr, col, val, x, y)
    assert (outer["mapping"], outer["sizes"]) == ("gang", {"vector_length": 32, "gang": 16})
    assert (inner["variable"], inner["mapping"], inner["reduction"]) == ("k", "vector", {"+": ["s"]})


def test_workers_and_vectors_in_gangs(runtime):
    """Three levels of loops give what the plain nest gives."""

    @acc.parallel_loop(num_workers=4, vector_length=32)
    def cube(a, b):
        for i in acc.loop(range(a.shape[0]), gang=True):
            for j in acc.loop(range(a.shape[1]), worker=True):
                for k in acc.loop(range(a.shape[2]), vector=True):
                    b[i, j, k] = a[i, j, k] + i + 10 * j + 100 * k

    a, b, expected = (np.arange(5 * 6 * 7).reshape(5, 6, 7) for _ in range(3))
    cube.python(a, expected.copy())
    b, expected = np.zeros_like(a), np.zeros_like(a)
    cube.python(a, expected)
    cube(a, b)
    assert (b == expected).all()
    assert [one["mapping"] for one in loops_of(cube, a, b)] == ["gang", "worker", "vector"]


def test_collapse(runtime, construct):
    """`collapse` makes several loops one iteration space, which the report shows."""
    a = np.arange(12).reshape(3, 4)
    plain, collapsed = construct(scale), construct(collapse=2)(scale)
    if construct is acc.parallel_loop:
        assert [(one["mapping"], one["runs"]) for one in loops_of(plain, a, 2)] == [
            ("gang vector", "in parallel"),
            ("seq", "in order"),
        ]
    assert [(one["variable"], one["runs"]) for one in loops_of(collapsed, a, 2)] == [
        ("i", "in parallel"),
        ("j", "in parallel"),
    ]
    collapsed(a, 2)
    plain(a, 3)
    assert (a == 6 * np.arange(12).reshape(3, 4)).all()


def test_collapse_in_the_text(runtime):
    """`acc.loop(…, collapse=2)` says the same, of associated and of inner loops; those have to be nested perfectly."""

    @acc.parallel_loop
    def shift(a, b):
        for i in acc.loop(range(a.shape[0]), gang=True):
            for j in acc.loop(range(a.shape[1]), vector=True, collapse=2):
                for k in range(a.shape[2]):
                    b[i, j, k] = a[i, j, k] + 1

    a = np.arange(60).reshape(3, 4, 5)
    b = np.zeros_like(a)
    shift(a, b)
    assert (b == a + 1).all()

    def triangle(a):
        for i in acc.loop(range(a.shape[0]), collapse=2):
            for j in range(i):
                a[i, j] = 0

    def between(a):
        for i in range(a.shape[0]):
            for j in acc.loop(range(4), collapse=2):
                a[i, j, 0] = 0
                for k in range(4):
                    a[i, j, k] = 1

    for function in (triangle, between):
        with pytest.raises(omp.LoopError) as caught:
            acc.parallel_loop(function)
        assert caught.value.rule == "collapse"


@pytest.mark.parametrize("if_", [True, False], ids=["device", "host"])
@pytest.mark.parametrize("in_text", [False, True], ids=["clause", "in the text"])
def test_tile(sim, if_, in_text):
    """`tile` carries out the iterations block by block, the last ones cut off, and says so in source and report."""

    def tiled(c, order, n, m):
        for i in acc.loop(range(n), tile=(4, 3)):
            for j in range(m):
                k = omp.atomic.add(c, 0, 1)
                order[k] = m * i + j

    loop = acc.parallel_loop(if_=if_)(tiled) if in_text else acc.parallel_loop(if_=if_, tile=(4, 3))(cells)
    n, m = 4, 8
    order = np.full(n * m, -1)
    loop(np.zeros(1, int), order, n, m)
    expected = [m * i + j for first in range(0, m, 3) for i in range(n) for j in range(first, min(first + 3, m))]
    assert order.tolist() == expected
    assert [one["tile"] for one in loops_of(loop, np.zeros(1, int), order, n, m)] == [4, 3]
    assert loop.source(np.zeros(1, int), order, n, m) != loop.options(seq=True).source(np.zeros(1, int), order, n, m)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 4), (64, 2), (7, 100)])
def test_tiles_of_any_size(runtime, sizes):
    """Tiles of any size cover each iteration once; reductions and last values are those of the plain nest."""

    @acc.parallel_loop(tile=sizes, reduction={"+": ["s"]}, lastprivate=["last"])
    def visit(a, n, m, step):
        s = 0
        for i in range(0, n, step):
            for j in range(m - 1, -1, -step):
                a[i, j] += 1
                last = 100 * i + j
                s += last
        return s, last

    for n, m, step in ((70, 9, 1), (5, 130, 2), (1, 1, 1)):
        a, expected = np.zeros((n, m), int), np.zeros((n, m), int)
        assert visit(a, n, m, step) == visit.python(expected, n, m, step)
        assert (a == expected).all()


def test_a_loop_in_order_has_no_tiles(sim):
    """`seq`, and `auto` where nothing is proved, keep the order of the text, whatever `tile` says."""
    in_order = list(range(32))
    order = np.zeros(32, int)
    acc.parallel_loop(seq=True, tile=(2, 2))(cells)(np.zeros(1, int), order, 4, 8)
    assert order.tolist() == in_order
    with pytest.warns(omp.PerformanceWarning):
        acc.kernels_loop(tile=(2, 2))(cells)(np.zeros(1, int), order, 4, 8)
    assert order.tolist() == in_order


def test_bind_of_openmp(shuffled):
    """`omp.loop` says the same with OpenMP's words: teams, parallel and thread are gang, vector and seq."""

    @acc.parallel_loop
    def bound(a):
        for i in omp.loop(range(a.shape[0]), bind="teams"):
            for j in omp.loop(range(a.shape[1]), bind="parallel"):
                for k in omp.loop(range(1, a.shape[2]), bind="thread"):
                    a[i, j, k] += a[i, j, k - 1]

    a = np.ones((3, 4, 5), int)
    bound(a)
    assert (a == np.arange(1, 6)).all()
    assert [one["mapping"] for one in loops_of(bound, a)] == ["gang", "vector", "seq"]


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("gang", "gang"), ("worker", "gang"), ("worker", "worker"), ("vector", "gang"), ("vector", "vector")],
)
def test_levels_become_finer_inwards(outer, inner):
    """A level inside of itself or of a finer one is a LoopError, also in a function that the loop calls."""

    def zero(a, i):
        for j in acc.loop(range(a.shape[1]), gang=True):
            a[i, j] = 0

    def calls(a):
        for i in range(a.shape[0]):
            zero(a, i)

    def gangs(a):
        for i in range(a.shape[0]):
            for j in acc.loop(range(a.shape[1]), gang=True):
                a[i, j] = 0

    def workers(a):
        for i in range(a.shape[0]):
            for j in acc.loop(range(a.shape[1]), worker=True):
                a[i, j] = 0

    def vectors(a):
        for i in range(a.shape[0]):
            for j in acc.loop(range(a.shape[1]), vector=True):
                a[i, j] = 0

    function = {"gang": gangs, "worker": workers, "vector": vectors}[inner]
    for refused in (function, calls) if inner == "gang" else (function,):
        with pytest.raises(omp.LoopError, match="finer") as caught:
            acc.parallel_loop(**{outer: True})(refused)
        assert caught.value.rule == "loop"
    acc.parallel_loop(function)


def test_a_shared_inner_loop_carries_nothing():
    """What trips of an inner loop on lanes take over from each other is a LoopError, whose remedy is `reduction`."""

    def sums(a, y):
        for i in acc.loop(range(y.size), gang=True):
            s = 0.0
            for j in acc.loop(range(a.shape[1]), vector=True):
                s += a[i, j]
            y[i] = s

    with pytest.raises(omp.LoopError, match=r'reduction={"\+": \["s"\]} to this loop') as caught:
        acc.parallel_loop(sums)
    assert caught.value.rule == "carried"


# -- reductions and private variables --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "start", "expected"),
    [("+", 5, 50), ("*", 2, 2 * 362880), ("min", 5, 1), ("max", 5, 9), ("|", 0, 15), ("^", 0, 1), ("&", 15, 0)],
)
def test_reduction(runtime, construct, operator, start, expected):
    """The value before the loop takes part in a reduction by each operator; the result is returned."""

    def plus(x, s):
        for i in range(x.size):
            s += x[i]
        return s

    def times(x, s):
        for i in range(x.size):
            s *= x[i]
        return s

    def least(x, s):
        for i in range(x.size):
            s = min(s, x[i])
        return s

    def greatest(x, s):
        for i in range(x.size):
            s = max(s, x[i])
        return s

    def either(x, s):
        for i in range(x.size):
            s |= x[i]
        return s

    def odd(x, s):
        for i in range(x.size):
            s ^= x[i]
        return s

    def both(x, s):
        for i in range(x.size):
            s &= x[i]
        return s

    by = {"+": plus, "*": times, "min": least, "max": greatest, "|": either, "^": odd, "&": both}
    loop = construct(reduction={operator: ["s"]})(by[operator])
    x = np.arange(1, 10)
    assert loop(x, start) == expected
    assert loop.options(async_=2)(x, start).result() == expected


def test_reduction_in_the_text(runtime, construct):
    """`acc.loop(…, reduction=…)` around the outermost range says what the clause of the construct says."""

    def inner_product(x, y):
        s = 0
        for i in acc.loop(range(x.size), reduction={"+": ["s"]}):
            s += x[i] * y[i]
        return s

    x = np.arange(N)
    assert construct(inner_product)(x, x) == x @ x


def test_reduction_of_an_array_of_one_element(runtime):
    """A parameter of one element is combined in place, and is copied unless a clause says otherwise."""

    @acc.parallel_loop(reduction={"+": ["s"]}, default="none", copyin=["x"])
    def accumulate(x, s):
        for i in range(x.size):
            s[0] += x[i]

    x, s = np.arange(N), np.array([7])
    accumulate(x, s)
    assert s[0] == 7 + x.sum()
    with acc.data(copy=[s]):
        accumulate(x, s)
        assert s[0] == 7 + x.sum()
    assert s[0] == 7 + 2 * x.sum()


def test_reductions_that_are_wrong(construct):
    """An operator that there is not, a name that there is not, and another use of the item are refused."""
    for clause in ({"-": ["s"]}, {"+": ["nobody"]}, ["s"], {"+": ["s"], "max": ["s"]}):
        with pytest.raises(omp.ClauseError):
            construct(reduction=clause)(total)
    with pytest.raises(omp.LoopError) as caught:
        construct(reduction={"*": ["s"]})(total)
    assert caught.value.rule == "reduction"


@pytest.mark.parametrize("default", [None, "none", "present"])
def test_private_arrays(runtime, default):
    """Each iteration has its own private arrays, which `default` leaves alone; `lastprivate` leaves the last one's."""

    @acc.parallel_loop(private=["t"], firstprivate=["u"], lastprivate=["v"], default=default, copy=["y"])
    def fill(t, u, v, y):
        for i in range(y.size):
            for k in acc.loop(range(2), seq=True):
                t[k] = i + k
            u[0] += 1
            v[0] = i
            y[i] = t[0] + t[1] + u[0]

    t, u, v, y = np.full(2, -1), np.array([4, 5]), np.array([8]), np.zeros(N, int)
    fill(t, u, v, y)
    assert (y == 2 * np.arange(N) + 1 + 5).all()
    assert (t == -1).all()
    assert (u == [4, 5]).all()
    assert v[0] == N - 1


def test_private_in_the_text(runtime):
    """`acc.loop(…, private=["t"])` gives each iteration its own, of the associated loop and of an inner one."""

    @acc.parallel_loop
    def outer(t, y):
        for i in acc.loop(range(y.shape[0]), private=["t"]):
            for j in range(y.shape[1]):
                t[j] = i + j
            for j in range(y.shape[1]):
                y[i, j] = t[y.shape[1] - 1 - j]

    @acc.parallel_loop
    def inner(t, y):
        for i in range(y.shape[0]):
            for j in acc.loop(range(y.shape[1]), private=["t"]):
                t[0] = i + y.shape[1] - 1 - j
                y[i, j] = t[0]

    for loop in (outer, inner):
        t, y = np.full(5, -1), np.zeros((40, 5), int)
        loop(t, y)
        assert (y == np.arange(40)[:, None] + np.arange(4, -1, -1)).all()
        assert (t == -1).all()


def test_lastprivate_scalars(runtime):
    """A scalar in `lastprivate` is returned as the last iteration left it."""

    @acc.parallel_loop(lastprivate=["v"])
    def last(x):
        for i in range(x.size):
            v = x[i] + 1
        return v

    assert last(np.arange(N)) == N


def test_atomic(runtime, construct):
    """Updates of an `atomic` array are one step each, also where indices collide."""

    def histogram(h, b):
        for i in range(b.size):
            h[b[i]] += 1

    b, h = np.random.default_rng(2).integers(0, 7, 5000), np.zeros(7, int)
    construct(atomic=["h"], independent=True)(histogram)(h, b)
    assert (h == np.bincount(b, minlength=7)).all()
    with pytest.raises(omp.ClauseError):
        construct(atomic=["nobody"])(histogram)


def test_cache(runtime, construct):
    """`cache` is a hint that the report shows; what names no parameter is a ClauseError."""
    loop = construct(cache=["x[i-1:3]"])(double)
    x, y = np.arange(N), np.zeros(N, int)
    loop(x, y)
    assert (y == 2 * x).all()
    assert loop.explain(x, y).to_dict()["cache"] == ["x[i-1:3]"]
    assert "x[i-1:3]" in str(loop.explain(x, y))
    for wrong in (["nobody[0:2]"], ["x["], 3):
        with pytest.raises(omp.ClauseError):
            construct(cache=wrong)(double)


@pytest.mark.parametrize(
    "clauses",
    [{"schedule": ("dynamic", 8)}, {"num_threads": 2}, {"check": True}, {"bounds": False}, {"fastmath": "contract"}],
    ids=str,
)
def test_clauses_of_speed(runtime, construct, clauses):
    """Clauses that loops of OpenMP's have do the same here."""
    x, y = np.arange(N), np.zeros(N, int)
    construct(**clauses)(double)(x, y)
    assert (y == 2 * x).all()


# -- routine ---------------------------------------------------------------------------------------------------


def test_routine(runtime):
    """`routine` checks a plain function, and gives it back; loops call it, in Python it stays what it is."""

    @acc.routine
    def square(v):
        return v * v

    @acc.routine
    def row(a, i):
        s = 0
        for j in acc.loop(range(a.shape[1]), vector=True, reduction={"+": ["s"]}):
            s += square(a[i, j])
        return s

    @acc.parallel_loop
    def rows(a, y):
        for i in acc.loop(range(y.size), gang=True):
            y[i] = row(a, i)

    assert square(3) == 9
    a, y = np.arange(12).reshape(3, 4), np.zeros(3, int)
    rows(a, y)
    assert (y == (a * a).sum(axis=1)).all()


def test_a_routine_outside_of_the_subset():
    """What loops cannot call is a LoopError of `routine`, with its line."""

    def unfit(v):
        return [v]

    with pytest.raises(omp.LoopError) as caught:
        acc.routine(unfit)
    assert caught.value.line == unfit.__code__.co_firstlineno + 1
    with pytest.raises(omp.LoopError):
        acc.routine(3)
