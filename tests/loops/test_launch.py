"""Launches of loops: what is decided from the numbers of a call, on the host and on a simulated device."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import offload as omp
import tests.eager_device  # noqa: F401  # registers the kind
from offload import acc
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked
from tests.profiles import few

N = 500


@pytest.fixture(params=["host", "sim:1"])
def where(request):
    """Clauses of a target loop that runs it on the host, or on a simulated device."""
    with checked("sim:1"):
        yield {"if_": request.param != "host"}


def run(where, loop, *args):
    """Call a target loop in one place."""
    return loop.options(**where)(*args)


@omp.target_loop
def gather(p, x, y):
    for i in range(p.size):
        y[i] = x[p[i]]


@omp.target_loop(atomic=["h"])
def histogram(h, b):
    for i in range(b.size):
        h[b[i]] += 1


@omp.target_loop
def spmv(ptr, col, val, x, y):
    for i in range(y.size):
        s = 0.0
        for k in range(ptr[i], ptr[i + 1]):
            s += val[k] * x[col[k]]
        y[i] = s


@omp.target_loop(independent=True)
def update(p, x, y):
    for i in range(p.size):
        y[p[i]] = 0.5 * y[p[i]] + x[i]


@omp.target_loop(reduction={"+": ["s"]})
def total(x):
    s = np.float64(0)
    for i in range(x.size):
        s += x[i]
    return s


@omp.target_loop
def down(y, first, last, step):
    for i in range(first, last, step):
        y[i] += 1


# -- values ------------------------------------------------------------------------------------------------


def test_rows_of_a_sparse_matrix(where):
    """Inner loops whose bounds are data run as in Python."""
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 5, 40)
    ptr = np.concatenate([[0], np.cumsum(counts)])
    col, val, x, y = rng.integers(0, 30, ptr[-1]), rng.random(ptr[-1]), rng.random(30), np.ones(40)
    run(where, spmv, ptr, col, val, x, y)
    expected = np.ones(40)
    spmv.python(ptr, col, val, x, expected)
    assert (y == expected).all()


def test_a_permuted_update(where):
    """A loop about whose independence nothing is known is taken at its word."""
    p, x, y = np.random.default_rng(1).permutation(N), np.arange(N), np.ones(N)
    run(where, update, p, x, y)
    assert (y[p] == 0.5 + x).all()


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 100_000])
def test_histograms(where, n):
    """Updates of an `atomic` array are all counted, by copies of the array or by atomic steps."""
    b = np.random.default_rng(n).integers(0, 50, n)
    h = np.full(50, 7)
    run(where, histogram, h, b)
    assert (h == 7 + np.bincount(b, minlength=50)).all()
    sparse = np.zeros((200_000, 2), np.int32)
    run(where, histogram, sparse[:, 1], b)
    assert sparse[:, 1].sum() == n
    assert not sparse[:, 0].any()


@pytest.mark.parametrize("numbers", [(0, N, 1), (0, N, 7), (N - 1, -1, -1), (N - 1, 3, -4), (5, 5, 1), (9, 2, 3)])
def test_bounds_and_steps_of_the_call(where, numbers):
    """Starts, stops and steps are the call's, of either sign."""
    y, expected = np.zeros(N), np.zeros(N)
    run(where, down, y, *numbers)
    down.python(expected, *numbers)
    assert (y == expected).all()


def test_a_step_of_zero_is_a_value_error(where):
    """A step of zero raises ValueError, as `range` does."""
    with pytest.raises(ValueError, match=r"step|range"):
        run(where, down, np.zeros(N), 0, 5, 0)


def test_reductions_are_the_same_from_run_to_run(where):
    """However many threads run, a sum has the same bits."""
    x = np.random.default_rng(5).standard_normal(300_001)
    found = {float(run(where, total.options(num_threads=n), x)) for n in (1, 2, 5) for _ in range(3)}
    assert len(found) == 1
    assert abs(found.pop() - x.sum()) < 1e-9


@pytest.mark.parametrize("order", few(1, ["F", "C"]))
def test_layouts(where, order):
    """Arrays of any strides give the same result."""

    @omp.target_loop(collapse=2)
    def combine(a, b, c):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                c[i, j] = 2 * a[i, j] - b[j, i]

    base = np.arange(24 * 30.0).reshape(24, 30)
    for a in (base, base[:, ::-1], base[::2, 1::3], base[5:6], base[:, :1], np.broadcast_to(base[0], (4, 30))):
        given = np.array(a, order=order) if order == "F" else a
        b = np.asfortranarray(a.T)
        c = np.zeros((2 * a.shape[0], a.shape[1]))[::2]
        run(where, combine, given, b, c)
        assert (c == a).all()


def test_private_arrays(where):
    """Each iteration has its own copy of a private array: without contents, with the call's, or leaving the last."""

    def body(t, u, v, y):
        for i in range(y.size):
            for k in range(3):
                t[k] = i + k
            u[0] += 1
            v[1] = i
            y[i] = t[0] + t[2] + u[0]

    loop = omp.target_loop(private=["t"], firstprivate=["u"], lastprivate=["v"])(body)
    t, u, v, y = np.full(3, -1), np.array([4, 5]), np.array([8, 9]), np.zeros(N, int)
    run(where, loop, t, u, v, y)
    assert (y == 2 * np.arange(N) + 2 + 5).all()
    assert (t == -1).all()
    assert (u == [4, 5]).all()
    assert v[1] == N - 1


ASSIGNING = {
    "target": (omp.target_loop, {}),
    "devices": (omp.target_loop, {"devices": "all", "filter": "always"}),
    "seq": (omp.target_loop, {"seq": True}),
    "parallel": (omp.parallel_loop, {}),
    "acc": (acc.parallel_loop, {}),
}


@pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")
@pytest.mark.parametrize("compiles", [True, False])
@pytest.mark.parametrize("word", ASSIGNING)
def test_elements_that_no_iteration_assigns_stay(word, compiles, monkeypatch):
    """A lastprivate array keeps the elements that the last iteration does not assign, on several devices as well."""
    if not compiles:
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    construct, clauses = ASSIGNING[word]

    @construct(lastprivate=["v"], **clauses)
    def body(v, y, n):
        for i in range(y.size):
            for j in range(n):
                v[j, 1] = i
            y[i] = 1

    for is_mapped in (False, True):
        v, y = np.arange(6).reshape(3, 2), np.zeros(40, int)
        expected = v.copy()
        body.python(expected, y.copy(), 2)
        replicas = {"devices": "all"} if word == "devices" else {}
        with (
            checked("sim:3"),
            omp.target_data(map=[omp.tofrom(v, y)], if_=is_mapped and word != "parallel", **replicas),
        ):
            body(v, y, 2)
            body(v, y, 0)
        assert (v == expected).all()
        assert (y == 1).all()


def test_too_much_that_is_private_is_refused(where):
    """More than 16 KB an iteration are a LoopError of rule `private`."""

    @omp.target_loop(private=["t"])
    def fill(t, y):
        for i in range(y.size):
            t[0] = i
            y[i] = t[0]

    run(where, fill, np.zeros(2048), np.zeros(N))
    with pytest.raises(omp.LoopError) as caught:
        run(where, fill, np.zeros(2049), np.zeros(N))
    assert caught.value.rule == "private"


def test_arrays_that_share_memory(where):
    """Views of one buffer are written and read as Python does, where iterations are independent."""

    @omp.target_loop
    def shifted(m, n, h):
        for i in range(h):
            m[i + h] = 2 * n[i]

    m = np.arange(2.0 * N)
    run(where, shifted, m, m, N)
    assert (m[N:] == 2 * np.arange(N)).all()
    with pytest.raises(omp.LoopError):
        run(where, overlapping, m, 3)


@omp.target_loop
def overlapping(m, h):
    for i in range(m.size - h):
        m[i + h] = 2 * m[i]


# -- decisions ---------------------------------------------------------------------------------------------


def test_decisions_follow_the_numbers(where):
    """The same loop with other numbers is decided anew: parallel for a wide distance, refused for a narrow one."""
    m = np.arange(20)
    run(where, overlapping, m, 10)
    assert (m[10:] == 2 * np.arange(10)).all()
    for _ in range(2):
        with pytest.raises(omp.LoopError):
            run(where, overlapping, m, 9)
    run(where, overlapping, m, 10)


def test_indices_without_checks_still_wrap(where):
    """With `bounds=False` indices from data are not checked; negative ones count from the end."""
    p, x, y = np.array([0, -1, 2]), np.arange(5), np.zeros(3, int)
    run(where, gather.options(bounds=False), p, x, y)
    assert y.tolist() == [0, 4, 2]


def test_checked_loads_do_not_leave_the_array(where):
    """A load outside is an IndexError, also of an empty array."""
    for x in (np.arange(5), np.zeros(0, int)):
        with pytest.raises(IndexError, match="'x'"):
            run(where, gather, np.array([0, 10**12]), x, np.zeros(2, int))


def test_long_loops_look_at_their_indices_first(where):
    """Where the least and greatest index are inside nothing is checked; each call finds them out anew."""
    n = 20_000
    p, x, y = np.arange(n) % 50, np.arange(50), np.zeros(n, int)
    for _ in range(2):
        run(where, gather, p, x, y)
        assert (y == p).all()
    p[0] = -50
    run(where, gather, p, x, y)
    assert (y == p % 50).all()
    p[n // 2] = 50
    with pytest.raises(IndexError, match=f"50 .*'x'.*i={n // 2}"):
        run(where, gather, p, x, y)
    rng = np.random.default_rng(1)
    for k in range(30):  # contents that are others each time
        p = rng.integers(0, 20 + k, n)
        run(where, gather, p, x, y)
        assert (y == p).all()


def test_an_index_that_is_never_used_may_be_anything(where):
    """An index outside that no iteration uses is no error."""

    @omp.target_loop
    def some(p, x, y):
        for i in range(p.size):
            if p[i] < x.size:
                y[i] = x[p[i]]

    n = 20_000
    p, x, y = np.arange(n) % 50, np.arange(50), np.zeros(n, int)
    p[7] = 10**15
    run(where, some, p, x, y)
    assert (y == np.where(p < 50, p, 0)).all()


def test_rows_of_a_long_sparse_matrix(where):
    """Where rows and columns are found inside by a look, results are those of Python."""
    n = 12_000
    ptr = np.concatenate([[0], np.cumsum(np.arange(n) % 4)])
    rng = np.random.default_rng(3)
    col, val, x = rng.integers(0, n, ptr[-1]), rng.integers(0, 9, ptr[-1]).astype("f8"), np.arange(n) % 7 + 0.0
    y, expected = np.ones(n), np.zeros(n)
    np.add.at(expected, np.repeat(np.arange(n), np.diff(ptr)), val * x[col])
    run(where, spmv, ptr, col, val, x, y)
    assert (y == expected).all()
    bounds = {name: facts["bounds"] for name, facts in spmv.explain(ptr, col, val, x, y).to_dict()["arrays"].items()}
    assert bounds == {"ptr": "launch", "col": "range", "val": "range", "x": "range", "y": "launch"}
    col[5] = n
    with pytest.raises(IndexError, match="'x'"):
        run(where, spmv, ptr, col, val, x, y)


def test_a_branch_makes_an_index_the_kernels_matter(where):
    """An affine index under a condition is checked in the kernel, and is no error where the condition does not hold."""

    @omp.target_loop
    def before(x, y, limit):
        for i in range(x.size):
            if i < limit:
                y[i] = x[i + 1]

    x, y = np.arange(N), np.zeros(N, int)
    run(where, before, x, y, N - 1)
    assert y[N - 2] == N - 1
    with pytest.raises(IndexError, match=f"i={N - 1}"):
        run(where, before, x, y, N)


def test_auto_runs_in_order_where_nothing_is_proved(where):
    """An `auto` loop that is not proved parallel runs in order, and warns once."""

    @omp.target_loop(auto=True)
    def running(a, p):
        for i in range(1, a.size):
            a[i] = a[p[i]] + 1

    a = np.zeros(N, int)
    p = np.arange(-1, N - 1)
    with pytest.warns(omp.PerformanceWarning, match="in order"):
        run(where, running, a, p)
    assert (a == np.arange(N)).all()
    run(where, running, a, p)


def test_devices_that_run_no_kernels_are_unsupported():
    """On a kind of device that runs no kernels a loop is an UnsupportedError that names it; the host runs it."""
    x = np.ones(N)
    with omp.Runtime("eager"):
        with pytest.raises(omp.UnsupportedError, match="'total'"):
            total(x)
        assert total.options(if_=False)(x) == N


def test_without_devices_the_host_runs_loops():
    """Where there is no device a target loop runs on the host."""
    with omp.Runtime("none"), pytest.warns(omp.HostFallbackWarning):
        assert total(np.ones(N)) == N


# -- threads, processes ------------------------------------------------------------------------------------


def test_threads_that_need_one_loop_make_it_once(sim):
    """Threads that call a new loop at the same time get the same results."""

    @omp.parallel_loop(reduction={"+": ["s"]})
    def count(x):
        s = 0
        for i in range(x.size):
            s += x[i]
        return s

    begins = threading.Barrier(4)
    found = []

    def work():
        begins.wait()
        found.extend(int(count(np.full(100_000, 2))) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200_000] * 80


WITHOUT_COMPILER = """
import sys, warnings
import numpy as np
sys.path.insert(0, {tests!r})
import offload as omp

@omp.target_loop(reduction={{"+": ["s"]}})
def total(p, x):
    s = 0.0
    for i in range(p.size):
        s += x[p[i]]
    return s

p, x = np.arange(100), np.arange(100.0)
with omp.Runtime("sim"), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert total(p, x) == total.options(if_=False)(p, x) == x.sum()
    p[3] = 100
    for clauses in ({{}}, {{"if_": False}}):
        try:
            total.options(**clauses)(p, x)
        except IndexError as error:
            assert "i=3" in str(error), error
        else:
            raise AssertionError("no IndexError")
(warning,) = caught
assert warning.category is omp.PerformanceWarning, warning
assert "gcc" in str(warning.message)
"""


def test_without_a_compiler_loops_run_as_python(tmp_path):
    """Without a compiler results and errors are the same, and one PerformanceWarning names the remedy."""
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_COMPILER.format(tests=str(Path(omp.__file__).parents[1])))
    subprocess.run([sys.executable, str(program)], check=True, timeout=60, env={**os.environ, "OFFLOAD_CC": "none"})


@pytest.mark.parametrize("construct", [omp.parallel_loop, omp.target_loop])
@pytest.mark.parametrize("shift", [0, 1, 3, 8])
def test_firstprivate_arrays_that_are_written_to_under_another_name(construct, shift):
    """Every iteration has their contents at the call, however they share memory with what the loop writes."""

    @construct(firstprivate=["first"])
    def spread(first, y):
        for i in range(y.size):
            s = 0.0
            for k in range(first.size):
                s += first[k]
                first[k] = -1.0
            y[i] = s

    whole = np.arange(40.0)
    first, y = whole[:8], whole[shift : shift + 32]
    expected = whole.copy()
    expected[shift : shift + 32] = first.sum()
    with checked("sim:1"):
        spread(first, y)
    assert (whole == expected).all()


DEFERRED = {
    "target": (omp.target_loop, {"nowait": True}),
    "host": (omp.target_loop, {"nowait": True, "if_": False}),
    "parallel": (omp.parallel_loop, {"nowait": True}),
    "acc": (acc.parallel_loop, {"async_": 1}),
    "devices": (omp.target_loop, {"nowait": True, "devices": "all"}),
    "speculate": (omp.target_loop, {"nowait": True, "speculate": "always"}),
}


@pytest.mark.parametrize("word", DEFERRED)
def test_firstprivate_arrays_are_captured_at_the_call(word):
    """A deferred loop has their contents at its call, given by place or by name, twice, and where they are present."""
    construct, clauses = DEFERRED[word]

    @construct(firstprivate=["first"])
    def add(first, y):
        for i in range(y.size):
            first[0] += first[1]
            y[i] += first[0]

    loop = add.options(**clauses, depend=[omp.inout("y")])
    with checked("sim:2", num_threads=1):
        first, y = np.array([10, 20]), np.zeros(9, int)
        with omp.target_data(map=[omp.to(first)]):
            first[:] = 1, 2
            ready = omp.Event()
            omp.task(detach=ready, depend=[omp.out(y)])(int)()
            loop(first, y)
            first += 100
            loop(y=y, first=first)
            first += 100
            other = np.zeros(9, int)
            add(first, other)
            ready.fulfill()
            omp.taskwait()
        assert (y == 3 + 203).all()
        assert (other == 403).all()


def test_firstprivate_arrays_in_a_recorded_graph():
    """Each computation of a graph has their contents at the recording."""

    @omp.parallel_loop(firstprivate=["first"])
    def add(first, y):
        for i in range(y.size):
            y[i] += first[0]

    on_device = omp.target_loop(firstprivate=["first"])(add.python)
    with checked("sim:1"):
        first, y, z = np.array([1]), np.zeros(4, int), np.zeros(4, int)
        with omp.record(execute=False) as graph:
            add(first, y)
            on_device(first, z)
        first[0] = 50
        graph.compute()
        graph.compute()
        assert (y == 2).all()
        assert (z == 2).all()


def test_firstprivate_arrays_in_a_body(cuda):
    """The same of device arrays, on CUDA, in two calls that follow each other."""

    @omp.target_loop(firstprivate=["first"])
    def spread(first, y):
        for i in range(y.size):
            y[i] = first[0] + first[1]

    @omp.target
    def body(a):
        spread(a[:2], a[1:])
        spread(a[:2], a[1:])

    a = np.arange(100.0)
    body(a)
    assert (a == [0, *[1] * 99]).all()


@omp.target_loop(reduction={"+": ["s"]}, lastprivate=["last"])
def last_and_sum(x, s):
    for i in range(x.size):
        last = x[i]
        s += x[i]
    return last, s


@pytest.mark.parametrize("kernels", ["c", "cuda"])
def test_a_loop_without_iterations_in_a_target_body(kernels, request):
    """In a target body, too, a lastprivate scalar that no iteration assigns has no value, and a sum keeps its own."""
    if kernels == "cuda":
        request.getfixturevalue("cuda")

    @omp.target
    def body(x, n):
        return [float(value) for value in last_and_sum(x[:n], 1.5)]

    with checked("sim:1") if kernels == "c" else contextlib.nullcontext():
        assert body(np.arange(4.0), 4) == [3, 7.5]
        with pytest.raises(UnboundLocalError, match="last"):
            body(np.arange(4.0), 0)
