"""Inner loops that the threads of a block share on CUDA: what is shared, why not, and values, on the host."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conftest import checked
from tests.loops.cuda_form import GXX, NVCC, assembled, compiled
from tests.loops.level_programs import level_program
from tests.loops.oracle import copy_of
from tests.profiles import few

pytestmark = pytest.mark.skipif(GXX is None, reason="no g++")
by_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc")


@acc.parallel_loop(copyin=["ptr", "col", "val", "x"], copyout=["y"])
def spmv(ptr, col, val, x, y):
    for i in acc.loop(range(y.size), gang=True):
        s = 0.0
        for k in acc.loop(range(ptr[i], ptr[i + 1]), vector=True, reduction={"+": ["s"]}):
            s += val[k] * x[col[k]]
        y[i] = s


def rows(n, most=90, *, seed=1):
    """Return a sparse matrix by rows, of which some are empty, a vector, and a place for their product."""
    rng = np.random.default_rng(seed)
    ptr = np.concatenate([[0], np.cumsum(rng.integers(0, most, n) * (rng.random(n) < 0.8))])
    col, val = rng.integers(0, n, ptr[-1]), rng.integers(-9, 9, ptr[-1]).astype(float)
    return ptr, col, val, rng.integers(-9, 9, n).astype(float), np.full(n, np.nan)


def loops_of(loop, *args):
    return loop.explain(*args).to_dict()["nests"][0]["loops"]


def why(function, *args, **clauses):
    """Return why the first inner loop that asks for a level runs in order."""
    inner = next(one for one in loops_of(acc.parallel_loop(**clauses)(function), *args)[1:] if one["mapping"] != "seq")
    assert inner["runs"] == "in order"
    return inner["why"]


def agrees(loop, *args):
    """Compare what a loop leaves, and returns, with CPython's."""
    given = copy_of(dict(enumerate(args)))
    expected = loop.python(*given.values())
    assert loop(*args) == expected
    for got, value in zip(args, given.values(), strict=True):
        assert np.array_equal(got, value)


# -- what is launched --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "n", "grid", "block"),
    [
        ({}, 100, 100, (32, 1, 1)),
        ({}, 4100, 513, (32, 8, 1)),
        ({"vector_length": 32}, 1100, 550, (32, 2, 1)),
        ({"vector_length": 128}, 100, 100, (128, 1, 1)),
        ({"num_workers": 4}, 100, 100, (32, 4, 1)),
        ({"num_gangs": 7}, 100, 7, (32, 1, 1)),
        ({"num_gangs": 7, "vector_length": 64}, 100, 7, (64, 1, 1)),
        ({"gang": 3}, 100, 3, (32, 1, 1)),
        ({"worker": True}, 4100, 513, (32, 8, 1)),
        ({"worker": 4}, 100, 25, (32, 4, 1)),
        ({"thread_limit": 96}, 100, 100, (96, 1, 1)),
        ({"thread_limit": 96, "vector_length": 32}, 100, 100, (32, 1, 1)),
        ({"num_teams": 5}, 100, 5, (32, 1, 1)),
    ],
    ids=str,
)
def test_sizes_shape_the_launch(cuda, clauses, n, grid, block):
    """A gang is a block, or a row of a block of several; its threads are lanes times workers."""
    construct = omp.target_loop if clauses.keys() & {"thread_limit", "num_teams"} else acc.parallel_loop

    def by_rows(ptr, col, val, x, y):
        for i in range(y.size):
            s = 0.0
            for k in acc.loop(range(ptr[i], ptr[i + 1]), vector=True, reduction={"+": ["s"]}):
                s += val[k] * x[col[k]]
            y[i] = s

    loop = construct(**clauses)(by_rows)
    assert loop.explain(*rows(n)).to_dict()["nests"][0]["launch"] == {"grid": [grid, 1, 1], "block": list(block)}


@pytest.mark.parametrize(
    ("clauses", "grid", "block"),
    [
        ({}, 600, (32, 2, 1)),
        ({"vector_length": 96}, 1200, (96, 1, 1)),
        ({"num_workers": 2, "num_gangs": 70}, 70, (32, 2, 1)),
        ({"gang": 7}, 7, (32, 1, 1)),
    ],
    ids=str,
)
def test_what_is_launched_is_what_is_reported(cuda, clauses, grid, block):
    """Blocks and threads are the report's, and results are CPython's."""
    loop = spmv.options(**clauses)
    agrees(loop, *rows(1200, 40))
    assert cuda.launches[0][:3] == ("loop", (grid, 1, 1), block)
    assert loop.explain(*rows(1200)).to_dict()["nests"][0]["launch"] == {"grid": [grid, 1, 1], "block": list(block)}


@pytest.mark.parametrize(
    ("clauses", "grid", "block"),
    [
        ({"vector_length": 1}, 60, (1, 1, 1)),
        ({"vector_length": 1, "num_gangs": 1}, 1, (1, 1, 1)),
        ({"vector_length": 1, "num_workers": 3}, 60, (1, 3, 1)),
        ({"vector_length": 1, "gang": True, "worker": 4}, 15, (4, 1, 1)),
    ],
    ids=str,
)
def test_vector_length_1_is_one_lane(cuda, clauses, grid, block):
    """With ``vector_length=1`` a gang has one thread for each worker; results are CPython's."""

    def by_rows(ptr, col, val, x, y):
        for i in range(y.size):
            s = 0.0
            for k in acc.loop(range(ptr[i], ptr[i + 1]), vector=True, reduction={"+": ["s"]}):
                s += val[k] * x[col[k]]
            y[i] = s

    loop = acc.parallel_loop(**clauses)(by_rows)
    agrees(loop, *rows(60, 40))
    assert cuda.launches[0][:3] == ("loop", (grid, 1, 1), block)
    inner = loops_of(loop, *rows(60))[1]
    if block == (1, 3, 1):
        assert inner["runs"] == "shared by threads"
    else:
        assert (inner["runs"], inner["why"]) == ("in order", "vector_length=1: one lane runs it")


@pytest.mark.parametrize("clauses", [{"vector_length": 1}, {"vector": 1, "num_workers": 5}], ids=str)
def test_one_lane_without_inner_loops(cuda, clauses):
    """A reduction, atomics and collapsed loops with blocks of fewer threads than a warp give CPython's results."""

    def totals(a, h):
        s = 0
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                s += a[i, j]
                h[a[i, j] % 4] += 1
        return s

    loop = acc.parallel_loop(collapse=2, reduction={"+": ["s"]}, atomic=["h"], **clauses)(totals)
    for shape in ((7, 9), (70, 30), (0, 3)):
        agrees(loop, np.arange(math.prod(shape)).reshape(shape), np.zeros(4, int))
    assert cuda.launches[0][2] == (clauses.get("num_workers", 1), 1, 1)


def test_one_lane_in_the_text(cuda):
    """``vector=1`` of `acc.loop` is the same as the construct's ``vector_length=1``."""

    @acc.parallel_loop
    def sums(a, y):
        for i in range(y.size):
            s = 0
            for k in acc.loop(range(a.shape[1]), vector=1, reduction={"+": ["s"]}):
                s += a[i, k]
            y[i] = s

    agrees(sums, np.arange(120).reshape(6, 20), np.zeros(6, int))
    assert cuda.launches[0][2] == (1, 1, 1)


def test_a_row_of_32_uses_no_shared_memory(cuda):
    """A sum over 32 lanes is shuffles; the kernel has no barrier of the block and no shared memory."""
    source = spmv.source(*rows(100))
    kernel = source[source.index('extern "C"') :]
    assert "over_row<double, combine_add_float64>" in kernel
    assert not re.search(r"block_barrier|over_block|over_rows|from_block|shared\[", kernel)
    wide = spmv.options(vector_length=64).source(*rows(100))
    assert "over_block<double, combine_add_float64>" in wide


def test_lanes_side_by_side_read_side_by_side(cuda):
    """Trips of a vector loop go to threads along x, one after another."""
    assert re.search(r"for \(int64_t k1 = threadIdx\.x; k1 < n1; k1 \+= 32\)", spmv.source(*rows(100)))


def test_explain_says_what_is_shared(cuda):
    """The report has for each loop by whom it is run."""

    @acc.parallel_loop(num_workers=2)
    def levels(a):
        for i in acc.loop(range(a.shape[0]), gang=True):
            for j in acc.loop(range(a.shape[1]), worker=True):
                for k in acc.loop(range(a.shape[2]), vector=True):
                    a[i, j, k] += 1

    a = np.zeros((3, 4, 5), int)
    assert [one["runs"] for one in loops_of(levels, a)] == [
        "in parallel",
        "shared by rows of threads",
        "shared by threads",
    ]
    assert "worker; shared by rows of threads" in str(levels.explain(a))
    assert "blocks 3 x 1 x 1, threads of each 32 x 2 x 1" in str(levels.explain(a))
    agrees(levels, a)


def test_on_a_simulated_device_an_iteration_is_one_threads():
    """Where kernels are C, inner loops run in order, and the launch has chunks."""
    with checked("sim:1"):
        nest = spmv.explain(*rows(5)).to_dict()["nests"][0]
    assert nest["launch"]["chunks"] == 5
    assert [one["runs"] for one in nest["loops"]] == ["in parallel", "in order"]


# -- why a loop is not shared ------------------------------------------------------------------------------


def test_a_break_ends_sharing(cuda):
    """A loop that `break` ends runs in order, in each thread, and the first one stores."""

    def first(a, y):
        for i in range(y.size):
            y[i] = 0
            for k in acc.loop(range(a.shape[1]), vector=True):
                if a[i, k] > 5:
                    break
                a[i, k] += 1

    a, y = np.arange(40).reshape(4, 10), np.ones(4, int)
    assert "break" in why(first, a, y)
    agrees(acc.parallel_loop(first), a, y)


def test_what_the_last_trip_leaves_is_not_shared(cuda):
    """A scalar that is read behind the loop, by any way, keeps its trips in order."""

    def behind(a, y):
        for i in range(y.size):
            v = 0
            for k in acc.loop(range(a.shape[1]), vector=True):
                v = a[i, k]
                a[i, k] += v
            y[i] = v

    def around(a, y):
        for i in range(y.size):
            v = 0
            for c in range(3):
                if c > 0:
                    y[i] += v
                for k in acc.loop(range(a.shape[1]), vector=True):
                    v = a[i, k]
                    a[i, k] += v

    def start_of_a_sum(a, y):
        for i in range(y.size):
            v = 0
            for k in acc.loop(range(a.shape[1]), vector=True):
                v = a[i, k]
                a[i, k] += v
            for k in acc.loop(range(a.shape[1]), vector=True, reduction={"+": ["v"]}):
                v += a[i, k]
            y[i] = v

    def last(a, y):
        v = 0
        for i in range(y.size):
            v = i
            for k in acc.loop(range(a.shape[1]), vector=True):
                v = a[i, k]
                a[i, k] += v
        return v

    for function in (behind, around, start_of_a_sum, last):
        clauses = {"lastprivate": ["v"]} if function is last else {}
        a, y = np.arange(40).reshape(4, 10), np.ones(4, int)
        assert "v is read after it" in why(function, a, y, **clauses)
        agrees(acc.parallel_loop(**clauses)(function), a, y)


def test_arrays_of_the_iteration_are_of_a_thread(cuda):
    """What trips write to an array that the iteration has for itself keeps them in order; what a trip has does not."""

    def own(a, t):
        for i in range(a.shape[0]):
            local = np.zeros(4, np.int64)
            for k in acc.loop(range(4), vector=True):
                local[k] = a[i, k]
            for k in acc.loop(range(4), vector=True):
                a[i, k] += local[3 - k]

    def private(a, t):
        for i in range(a.shape[0]):
            for k in acc.loop(range(4), vector=True):
                t[k] = a[i, k]
            for k in acc.loop(range(4), vector=True):
                a[i, k] += t[3 - k]

    def of_trips(a, t):
        for i in range(a.shape[0]):
            for k in acc.loop(range(4), vector=True, private=["t"]):
                local = np.zeros(2, np.int64)
                t[0] = a[i, k]
                local[1] = t[0]
                a[i, k] += local[1]
            for k in acc.loop(range(4), vector=True, private=["t"]):
                t[1] = k
                a[i, k] += t[1]

    a, t = np.arange(20).reshape(5, 4), np.zeros(4, int)
    assert "local" in why(own, a, t)
    assert "to t," in why(private, a, t, private=["t"])
    assert [one["runs"] for one in loops_of(acc.parallel_loop(own), a, t)][2] == "shared by threads"
    assert {one["runs"] for one in loops_of(acc.parallel_loop(of_trips), a, t)[1:]} == {"shared by threads"}
    for loop in (acc.parallel_loop(own), acc.parallel_loop(private=["t"])(private), acc.parallel_loop(of_trips)):
        expected, got = a.copy(), a.copy()
        loop.python(expected, t.copy())
        loop(got, t.copy())
        assert (got == expected).all()


def test_orders_that_keep_a_loop_in_one_thread(cuda):
    """`auto`, one worker, gangs inside, and a nest of which nothing is proved: each report has its reason."""

    def auto(a):
        for i in range(a.shape[0]):
            for k in acc.loop(range(a.shape[1]), vector=True, auto=True):
                a[i, k] += 1

    def workers(a):
        for i in range(a.shape[0]):
            for j in acc.loop(range(2), worker=True):
                for k in acc.loop(range(a.shape[1] // 2), vector=True):
                    a[i, 2 * k + j] += 1

    def gangs(a):
        for i in range(a.shape[0]):
            for k in acc.loop(range(a.shape[1]), gang=True):
                a[i, k] += 1

    def vectors(a):
        for i in range(a.shape[0]):
            for k in acc.loop(range(a.shape[1]), vector=True):
                a[i, k] += 1

    def independent(a):
        for i in range(a.shape[0]):
            for k in acc.loop(range(a.shape[1]), vector=True, independent=True):
                a[i, k] += 1

    a = np.zeros((3, 40), int)
    assert "independent=True" in why(auto, a)
    assert "num_workers" in why(workers, a)
    assert "blocks" in why(gangs, a)
    kernels = acc.kernels_loop(vectors)
    assert "independent=True" in loops_of(kernels, a)[1]["why"]
    assert loops_of(acc.kernels_loop(independent), a)[1]["runs"] == "shared by threads"
    for loop in (*map(acc.parallel_loop, (auto, workers, gangs)), kernels):
        agrees(loop, a)


# -- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed", [0, *few(0, [1, 2]), *[pytest.param(n, marks=pytest.mark.soak) for n in range(3, 400)]]
)
def test_programs_give_what_cpython_gives(cuda, seed):
    """Generated nests with shared loops leave and return what CPython makes of them."""
    made = level_program(seed)
    arguments = copy_of(made.arguments)
    returned = acc.parallel_loop(**made.clauses)(made.function())(**arguments)
    made.check(returned, arguments)


@pytest.mark.parametrize("clauses", few(1, [{}, {"vector_length": 64}]), ids=str)
def test_elements_that_move_from_thread_to_thread(cuda, clauses):
    """What one run of a loop writes the next one reads in other threads, and the first thread in between."""

    @acc.parallel_loop(**clauses)
    def turn(a, y):
        for i in range(y.size):
            for c in range(5):
                for k in acc.loop(range(a.shape[1]), vector=True):
                    a[i, (k + 7 * c) % a.shape[1]] += k * c
            v = y[i]
            y[i] += a[i, 3]
            for k in acc.loop(range(a.shape[1]), vector=True):
                a[i, k] = a[i, k] * 2 + v
            while y[i] > 0:
                y[i] -= 1000

    agrees(turn, np.arange(280).reshape(4, 70), np.arange(1000, 1004))


@pytest.mark.parametrize("clauses", few(1, [{}, {"vector_length": 64}]), ids=str)
def test_arrays_that_share_memory(cuda, clauses):
    """Two views of one array, one written and one read, are one to barriers."""

    @acc.parallel_loop(**clauses)
    def shared(a, b, y):
        for i in range(y.size):
            for k in acc.loop(range(a.shape[1]), vector=True):
                a[i, k] = k + i
            t = 0
            for k in acc.loop(range(a.shape[1]), vector=True, reduction={"+": ["t"]}):
                t += b[i, a.shape[1] - 1 - k] * k
            y[i] = t

    a, y, expected = np.zeros((3, 70), int), np.zeros(3, int), np.zeros(3, int)
    b = a[:]
    shared.python(a, b, expected)
    a[...] = 0
    shared(a, b, y)
    assert (y == expected).all()


@pytest.mark.parametrize("clauses", few(1, [{}, {"vector_length": 64}]), ids=str)
def test_atomic_steps_of_the_iteration_are_done_once(cuda, clauses):
    """What `omp.atomic` returns between shared loops is one number for all threads, and the step is one."""

    @acc.parallel_loop(**clauses)
    def places(counter, a, where):
        for i in acc.loop(range(a.shape[0]), gang=True):
            at = omp.atomic.add(counter, 0, 1)
            where[at] = i
            for k in acc.loop(range(a.shape[1]), vector=True):
                a[i, k] = at

    counter, a, where = np.zeros(1, int), np.zeros((50, 40), int), np.full(50, -1)
    places(counter, a, where)
    assert counter[0] == 50
    assert sorted(where) == list(range(50))
    assert (where[a] == np.arange(50)[:, None]).all()


def test_reductions_on_all_levels(cuda):
    """Sums over lanes, workers and gangs, and a greatest value, are what CPython finds; sums have one order."""

    @acc.parallel_loop(num_workers=3, reduction={"+": ["total"], "max": ["most"]})
    def sums(a, y):
        total = 0.0
        most = -1.0
        for i in acc.loop(range(a.shape[0]), gang=True):
            t = 1.0
            for j in acc.loop(range(a.shape[1]), worker=True, reduction={"+": ["t"]}):
                for k in acc.loop(range(a.shape[2]), vector=True, reduction={"+": ["t"]}):
                    t += a[i, j, k]
                    total += a[i, j, k]
            y[i] = t
            most = max(most, t)
        return total, most

    a = np.random.default_rng(1).integers(0, 99, (7, 5, 45)).astype(float)
    agrees(sums, a, np.zeros(7))
    a = np.random.default_rng(2).random((7, 5, 45))
    y = [np.zeros(7) for _ in range(2)]
    assert sums(a, y[0]) == sums(a, y[1])
    assert y[0].tobytes() == y[1].tobytes()


@pytest.mark.parametrize("clauses", few(1, [{}, {"vector_length": 128}, {"num_workers": 2}]), ids=str)
def test_lanes_in_a_loop_in_order(cuda, clauses):
    """Under a loop that is `seq` one block shares inner loops, step after step; each sees what the one before left."""

    @acc.parallel_loop(seq=True, lastprivate=["last"], reduction={"+": ["s"]}, **clauses)
    def steps(a, n):
        last = 0
        s = 0
        for t in range(n):
            for k in acc.loop(range(a.shape[0]), gang=True, vector=True):
                a[(k + t) % a.shape[0]] += k * t
            last = a[t % a.shape[0]]
            for j in acc.loop(range(2), worker=True):
                for k in acc.loop(range(a.shape[0] // 2), vector=True, reduction={"+": ["s"]}):
                    a[2 * k + j] -= last + t
                    s += k
        return last, s

    a, expected = np.arange(140), np.arange(140)
    assert steps(a, 9) == steps.python(expected, 9)
    assert (a == expected).all()
    assert cuda.launches[0][1] == (1, 1, 1)
    assert [one["runs"] for one in loops_of(steps, a, 9)][:2] == ["in order", "shared by threads"]


def test_atomic_arrays_are_copied_to_blocks(cuda):
    """Updates by lanes, and by the first thread of a team, go to the block's copy, and are merged."""

    @acc.parallel_loop(atomic=["h"])
    def count(a, h):
        for i in acc.loop(range(a.shape[0]), gang=True):
            h[i % 5] += 1
            for k in acc.loop(range(a.shape[1]), vector=True):
                h[a[i, k]] += 1

    a, h = np.random.default_rng(1).integers(0, 5, (300, 40)), np.zeros(5, int)
    count(a, h)
    assert (h == np.bincount(a.ravel(), minlength=5) + 60).all()
    assert cuda.launches[0][3] == 40  # bytes of a copy


def test_two_axes_and_lanes(cuda):
    """Iterations of two collapsed loops have a team each, also where there are fewer blocks than iterations."""

    def sums(a, y, last):
        for i in acc.loop(range(a.shape[0]), gang=True, collapse=2):
            for j in range(a.shape[1]):
                t = 0
                for k in acc.loop(range(a.shape[2] - 1, -1, -1), vector=True, reduction={"+": ["t"]}):
                    t += a[i, j, k] * k
                y[i, j] = t
                last[0] = t

    for clauses in ({}, {"num_gangs": 4}):
        loop = acc.parallel_loop(lastprivate=["last"], **clauses)(sums)
        agrees(loop, np.arange(900).reshape(5, 6, 30), np.zeros((5, 6), int), np.zeros(1, int))


# -- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clauses", few(1, [{}, {"vector_length": 64}, {"num_gangs": 2}]), ids=str)
def test_an_index_outside_in_a_shared_loop(cuda, clauses):
    """An index out of range in one lane is the task's IndexError, with the iteration."""
    ptr, col, val, x, y = rows(20)
    row = int(np.argmax(np.diff(ptr)))
    col[ptr[row] + 2] = 20
    with pytest.raises(IndexError, match=rf"20.*'x'.*i={row}\b"):
        spmv.options(**clauses)(ptr, col, val, x, y)


@pytest.mark.parametrize("clauses", few(1, [{}, {"vector_length": 64}]), ids=str)
def test_assertions_and_endless_loops_leave_no_thread_waiting(cuda, clauses):
    """A lane that stops at an assertion, or finds an index that does not exist, comes to the end of the loop."""

    @acc.parallel_loop(check=True, **clauses)
    def asserting(a, y):
        for i in range(a.shape[0]):
            s = 0
            for k in acc.loop(range(a.shape[1]), vector=True, reduction={"+": ["s"]}):
                assert a[i, k] >= 0, "negative"
                s += a[i, k]
            assert s < 100_000, "large"
            y[i] = s

    @acc.parallel_loop(**clauses)
    def following(a, y):
        for i in range(a.shape[0]):
            s = 0
            for k in acc.loop(range(a.shape[1]), vector=True, reduction={"+": ["s"]}):
                s += a[i, k]
            at = 0
            while y[at + s] != i:
                at += 1

    a = np.ones((4, 70), int)
    agrees(asserting, a, np.zeros(4, int))
    for value, text in ((-1, "negative"), (200_000, "large")):
        a[2, 33] = value
        with pytest.raises(AssertionError, match=text):
            asserting(a, np.zeros(4, int))
    with pytest.raises(IndexError, match="'y'"):
        following(np.ones((4, 70), int), np.full(80, 9))


@pytest.mark.parametrize(
    ("clauses", "words"),
    [
        ({"vector_length": 48}, "48"),
        ({"vector": 33}, "33"),
        ({"vector_length": 64, "num_workers": 2}, "2 workers"),
        ({"num_workers": 33}, "1024"),
        ({"vector_length": 2048}, "1024"),
        ({"vector_length": 2}, "neither 1 nor"),
        ({"vector_length": 1, "num_workers": 33}, "1024"),
        ({"gang": True, "worker": 2, "vector": 64}, "2 workers"),
    ],
    ids=str,
)
def test_sizes_that_no_block_has(clauses, words):
    """Threads that do not fit into a block are a ClauseError of the construct, a LoopError in the text."""

    def double(x):
        for i in range(x.size):
            x[i] *= 2

    with pytest.raises(omp.ClauseError, match=words):
        acc.parallel_loop(**clauses)(double)


def test_sizes_in_the_text_that_no_block_has():
    """Sizes of `acc.loop`, alone and with the construct's, are checked as the construct's."""

    def lanes(a):
        for i in range(a.shape[0]):
            for k in acc.loop(range(a.shape[1]), vector=48):
                a[i, k] += 1

    def many(a):
        for i in range(a.shape[0]):
            for k in acc.loop(range(a.shape[1]), vector=64):
                a[i, k] += 1

    for function, clauses in ((lanes, {}), (many, {"num_workers": 4})):
        with pytest.raises(omp.LoopError) as caught:
            acc.parallel_loop(**clauses)(function)
        assert caught.value.rule == "loop"


# -- nvcc --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@by_nvcc
def test_nvcc_makes_shuffles_of_a_row(cuda):
    """The kernel of a row of 32 has shuffles, no barrier of the block, and no shared memory."""
    ptx = compiled(spmv.options(bounds=False).source(*rows(100)))
    kernel = ptx[ptx.index(".entry loop(") :]
    assert kernel.count("shfl.sync.down") == 10  # two halves of five
    assert not re.search(r"bar\.sync|barrier\.sync|\.shared", kernel)


@pytest.mark.slow
@by_nvcc
@pytest.mark.parametrize("seed", few(1, [3, 14]))
def test_nvcc_takes_programs_with_levels(cuda, seed):
    """nvcc compiles generated nests with shared loops."""
    made = level_program(seed)
    assert assembled(acc.parallel_loop(**made.clauses)(made.function()).source(**made.arguments))
