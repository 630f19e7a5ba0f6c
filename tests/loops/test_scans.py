"""Recurrences as parallel scans give what CPython gives: on threads, shuffled, as Python and as CUDA."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offload as omp
from offload import acc
from offload.loops.emit import grids
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.running import pool, runs, scan_runs
from offload.loops.tree.recurrences import scan_of
from tests.loops.carried_programs import carried
from tests.loops.cuda_form import GXX
from tests.loops.oracle import function_of_text
from tests.loops.test_carrying import agrees
from tests.profiles import examples

CONSTRUCTS = {
    "loop": omp.target_loop,
    "auto": lambda f, **clauses: omp.target_loop(f, auto=True, **clauses),
    "check": lambda f, **clauses: omp.target_loop(f, check=True, **clauses),
    "speculate": lambda f, **clauses: omp.target_loop(f, speculate=True, **clauses),
    "kernels": acc.kernels_loop,
    "host": lambda f, **clauses: omp.parallel_loop(f, schedule="dynamic", **clauses),
    "several": lambda f, **clauses: omp.target_loop(f, devices="all", **clauses),
}


@pytest.fixture(autouse=True)
def a_runtime(request):
    """Open a runtime of the test's own, unless the test runs CUDA, whose fixture does."""
    if "cuda" in request.fixturenames:
        yield
    else:
        with omp.Runtime("sim:1"):
            yield


@pytest.fixture
def eager(monkeypatch):
    """No loop is too short for threads, and there are two."""
    monkeypatch.setattr(runs, "SHORT_NS", -1)
    monkeypatch.setattr(scan_runs, "SHORT_NS", -1)
    monkeypatch.setattr(scan_runs, "LEAST_THREADS", 2)
    monkeypatch.setattr(pool, "n_cores", lambda: 2)


def is_scan(loop, *arguments, **named):
    return any("parallel scan" in note for note in loop.explain(*arguments, **named).to_dict()["notes"])


def scanned(program, construct=omp.target_loop, **clauses):
    """Return a function that runs a program as a loop, for `agrees`."""

    def run(function, arguments):
        return construct(function, lastprivate=program.last, **clauses)(**arguments)

    return run


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", range(examples(60, 5_000)))
def test_a_scan_gives_what_cpython_gives(seed, eager):
    """Recurrences of integers, by each construct, on threads."""
    program = carried(seed, is_recurrence=True)
    agrees(program, scanned(program, CONSTRUCTS[list(CONSTRUCTS)[seed % len(CONSTRUCTS)]]))


@given(st.integers(0, 10**6))
def test_a_scan_without_a_compiler_gives_what_cpython_gives(seed):
    """As Python."""
    program = carried(seed, is_recurrence=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offload.loops.running.build.builder._choice", None)
        patch.setattr("offload.loops.running.build.builder._has_chosen", True)
        agrees(program, scanned(program))


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", range(examples(30, 1_000)))
def test_a_shuffled_scan_gives_what_cpython_gives(seed):
    """Chunks are gone through twice, each time in an order of its own."""
    program = carried(seed, is_recurrence=True)
    with omp.Runtime("sim:1", seed=seed):
        agrees(program, scanned(program))


@pytest.mark.hypothesis
@pytest.mark.skipif(GXX is None, reason="no g++")
@pytest.mark.parametrize("seed", range(examples(50, 1_000)))
def test_a_cuda_scan_gives_what_cpython_gives(seed, cuda, monkeypatch):
    """Tiles of 64 iterations; with two blocks, each takes several."""
    monkeypatch.setattr(grids, "_SCAN_ROWS", 2)
    program = carried(seed, is_recurrence=True)
    agrees(program, scanned(program, thread_limit=32, num_teams=2 if seed % 2 else None))


# -- the text --------------------------------------------------------------------------------------------


def inclusive(x, y):
    s = 0
    for i in range(x.size):
        s += x[i]
        y[i] = s


def exclusive(x, y):
    s = 0
    for i in range(x.size):
        y[i] = s
        s += x[i]


def in_place(x):
    s = x[0]
    for i in range(1, x.size):
        s = s + x[i] - 1
        x[i] = s


def packed(x, y):
    k = 0
    for i in range(x.size):
        if x[i] > 4:
            y[k] = x[i]
            k += 1
    return k


def of_rows(a, y):
    s = 1
    m = 0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s *= 1 - 2 * (a[i, j] % 2)
            m = max(m, a[i, j])
        y[i] = s + m


def with_sum(x, y):
    s = 0
    t = 0
    for i in range(x.size):
        t += x[i] * x[i]
        s ^= x[i]
        y[i] = s
    return t


def smoothed(x, y):
    s = 0.0
    for i in range(x.size):
        s = 0.5 * (s + x[i])
        y[i] = s


X = np.random.default_rng(5).integers(0, 9, 5000)
FUNCTIONS = {
    inclusive: (X, np.zeros_like(X)),
    exclusive: (X, np.zeros_like(X)),
    in_place: (X,),
    of_rows: (X.reshape(500, 10), np.zeros(500, np.int64)),
}
CLAUSES = {packed: {"lastprivate": ["k"]}, with_sum: {"reduction": {"+": ["t"]}}}


def both(loop, function, *arguments):
    """Run a loop and its function on copies; return whether all is alike."""
    ours, expected = ([one.copy() for one in arguments] for _ in range(2))
    same = loop(*ours) == function(*expected)
    return same and all(map(np.array_equal, ours, expected))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__name__)
def test_recurrences_are_found(function, eager):
    """Sums before and after, in place, of rows, of two scalars: none needs a clause, and each has its note."""
    loop = omp.target_loop(function)
    assert is_scan(loop, *FUNCTIONS[function])
    assert both(loop, function, *FUNCTIONS[function])


@pytest.mark.parametrize("function", CLAUSES, ids=lambda one: one.__name__)
@pytest.mark.filterwarnings("ignore::offload.DirectiveWarning")
def test_scans_with_other_clauses(function, eager):
    """Elements that pass a test go where the count says; a reduction takes part besides."""
    loop = omp.target_loop(function, independent=True, **CLAUSES[function])
    assert is_scan(loop, X, np.zeros_like(X))
    assert both(loop, function, X, np.zeros_like(X))
    with omp.Runtime("sim:1", seed=4):
        assert both(loop, function, X, np.zeros_like(X))


@pytest.mark.skipif(GXX is None, reason="no g++")
@pytest.mark.parametrize("function", [*FUNCTIONS, *CLAUSES], ids=lambda one: one.__name__)
@pytest.mark.filterwarnings("ignore::offload.DirectiveWarning")
def test_scans_on_cuda(function, cuda, monkeypatch):
    """Of 79 tiles, which three levels of sums connect."""
    monkeypatch.setattr(grids, "_SCAN_ROWS", 2)
    arguments = FUNCTIONS.get(function, (X, np.zeros_like(X)))
    loop = omp.target_loop(function, independent=True, thread_limit=32, **CLAUSES.get(function, {}))
    assert both(loop, function, *arguments)
    assert cuda.launches[0][0] == "begin"


@pytest.mark.skipif(GXX is None, reason="no g++")
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_groups_of_groups_of_tiles(dtype, cuda, monkeypatch):
    """The 1,025th tile reads the sum of a group of groups, in two words or in one; high bits are set."""
    monkeypatch.setattr(grids, "_SCAN_ROWS", 2)
    x = (np.arange(64 * 1030) % 7 - 5 - (1 << 40 if dtype == "int64" else 0)).astype(dtype)
    assert both(omp.target_loop(inclusive, thread_limit=32), inclusive, x, np.zeros_like(x))
    assert cuda.launches[1][1] == (1030, 1, 1)


def test_what_is_no_scan():
    """What an iteration adds may follow from nothing that is carried; nor may a scalar be updated by two operators."""

    def of_itself(x, y):
        s = 0
        for i in range(x.size):
            s += x[i] * s
            y[i] = s

    def two_operators(x, y):
        s = 0
        for i in range(x.size):
            s += x[i]
            s = max(s, 3)
            y[i] = s

    def of_another(x, y):
        s = 0
        t = 0
        for i in range(x.size):
            s += x[i]
            t += s
            y[i] = t

    def under_its_own(x, y):
        s = 0
        for i in range(x.size):
            if s < 100:
                s += x[i]
            y[i] = s

    def taken_from(x, y):
        s = 0
        for i in range(x.size):
            s = x[i] - s
            y[i] = s

    for function in (of_itself, two_operators, of_another, under_its_own, taken_from):
        nest = parse(FunctionSource.of(function), NestClauses(order="seq"), frozenset()).nests[0]
        assert scan_of(nest) is None
        with pytest.raises(omp.LoopError) as caught:
            omp.target_loop(function)
        assert caught.value.rule == "carried"
        assert both(omp.target_loop(function, seq=True), function, X % 3, np.zeros_like(X))


def test_an_item_that_is_only_updated_is_a_reduction():
    """A sum that nobody reads in the nest needs the clause that says so."""

    def total(x):
        s = 0
        for i in range(x.size):
            s += x[i]
        return s

    with pytest.raises(omp.LoopError, match="reduction"):
        omp.target_loop(total, lastprivate=["s"])


# -- where a scan runs in order ---------------------------------------------------------------------------


def runs_in_order(loop, reason, *arguments):
    with pytest.warns(omp.PerformanceWarning, match=reason):
        assert both(loop, loop.python, *arguments)
    assert not is_scan(loop, *arguments)


def test_floats_need_a_permission(eager):
    """Without `reassociate` sums are those of CPython, bit for bit; with it they are close, and always the same."""
    x, y = np.random.default_rng(2).random(20_000), np.zeros(20_000)
    runs_in_order(omp.target_loop(inclusive), "reassociate=True", x, y)
    loop = omp.target_loop(inclusive, reassociate=True)
    assert is_scan(loop, x, y)
    found = []
    for threads in (1, 2):
        with omp.Runtime("sim:1", num_threads=threads):
            loop(x, y)
        found.append(y.copy())
    assert np.allclose(found[0], x.cumsum(), rtol=1e-12)
    assert np.array_equal(*found)


def test_reassociate_makes_sense_for_scans_alone():
    """A loop without one, a loop in order, and a value that is no truth value are refused."""

    def scale(x):
        for i in range(x.size):
            x[i] *= 2

    with pytest.raises(omp.ClauseError, match="reassociate=True is for scans"):
        omp.target_loop(scale, reassociate=True)
    with pytest.raises(omp.ClauseError, match="seq=True and reassociate=True"):
        omp.target_loop(inclusive, reassociate=True, seq=True)
    with pytest.raises(omp.ClauseError, match="reassociate"):
        omp.target_loop(inclusive, reassociate="yes")
    omp.parallel_loop(inclusive, reassociate=True)
    acc.kernels_loop(inclusive, reassociate=True)


def test_memory_that_totals_are_read_from_late(eager):
    """An iteration that first writes what its total is read from runs in order; so it is of views of one array."""

    def doubled(x, y, z):
        s = 0
        for i in range(x.size):
            y[i] = 2 * x[i]
            s += z[i]
            x[i] = s

    a, b = X[:2000], np.zeros(2000, np.int64)
    assert is_scan(omp.target_loop(doubled), a, b, X[2000:4000])
    loop = omp.target_loop(doubled)
    ours, expected = (np.array([X[:2000], X[1000:3000]]) for _ in range(2))
    with pytest.warns(omp.PerformanceWarning, match="before it has read"):
        loop(ours[0], ours[1], ours[1])
    doubled(expected[0], expected[1], expected[1])
    assert np.array_equal(ours, expected)


def test_a_start_that_the_loop_overwrites(eager):
    """The value before the loop is read before anything is written; where that is not sure, the loop runs in order."""

    def from_within(x):
        s = x[1200]
        for i in range(x.size):
            s += x[i]
            x[i] = s

    runs_in_order(omp.target_loop(from_within), "where the value before the loop is read", X[:3000])
    assert is_scan(omp.target_loop(in_place), X)


def test_iterations_that_depend_on_each_other_otherwise():
    """A dependence by an array, or one that is not excluded, leaves the nest in order."""

    def shifted(x, y):
        s = 0
        for i in range(1, x.size):
            s += x[i]
            y[i] = y[i - 1] + s

    runs_in_order(omp.target_loop(shifted), "passes a value", X, np.zeros_like(X))
    runs_in_order(omp.target_loop(packed, auto=True, lastprivate=["k"]), "not proved", X, np.zeros_like(X))


def test_seq_is_in_order():
    """The program says so, and is not warned."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop = omp.target_loop(inclusive, seq=True)
        assert both(loop, inclusive, X, np.zeros_like(X))
    assert not is_scan(loop, X, np.zeros_like(X))


def test_narrow_integers_wrap(eager):
    """As NumPy's do, at each step or at the end."""
    x = np.full(3000, 100, np.uint8)
    text = "def f(x, y):\n    s = x[0]\n    for i in range(1, x.size):\n        s += x[i]\n        y[i] = s\n"
    function = function_of_text(text)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert both(omp.target_loop(function), function, x, np.zeros_like(x))


def test_a_failure_is_reported(eager):
    """Elements before the failing iteration hold CPython's values."""

    def gathered(p, x, y):
        s = 0
        for i in range(p.size):
            s += x[p[i]]
            y[i] = s

    p = np.arange(3000)
    p[2000] = 9000
    y, expected = np.zeros(3000, np.int64), np.zeros(3000, np.int64)
    with pytest.raises(IndexError, match="i=2000"):
        omp.target_loop(gathered)(p, X, y)
    with pytest.raises(IndexError):
        gathered(p, X, expected)
    assert np.array_equal(y[:2000], expected[:2000])


def test_several_devices_leave_a_scan_to_one():
    """And explain says why."""
    with omp.Runtime("sim:2"):
        loop = omp.target_loop(inclusive, devices="all")
        assert both(loop, inclusive, X, np.zeros_like(X))
        facts = loop.explain(X, np.zeros_like(X)).to_dict()["filter"]
    assert facts["mode"] == "single"
    assert "scan" in facts["why"]


def test_a_scan_in_a_recorded_region():
    """Each replay starts anew."""
    x, y = X.copy(), np.zeros_like(X)

    @omp.taskgraph
    def region():
        omp.target_loop(inclusive, nowait=True, depend=[omp.inout("y")])(x, y)

    for step in range(3):
        x[:] = X + step
        region()
        assert np.array_equal(y, x.cumsum())


def test_a_start_that_the_scalar_does_not_hold_is_refused():
    """CPython would keep the number as it is: -1 is below all elements of uint8, and 255 is not."""

    @omp.parallel_loop
    def highest(x, y):
        s = -1
        for i in range(x.size):
            s = max(s, x[i])
            y[i] = s

    y = np.zeros(3, int)
    with pytest.raises(omp.LoopError, match="-1 does not fit s, which is uint8"):
        highest(np.arange(3, dtype=np.uint8), y)
    highest(np.arange(3), y)
    assert y.tolist() == [0, 1, 2]
