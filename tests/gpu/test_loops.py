"""Loops as kernels on the GPU: values, errors that leave the context alive, graphs, streams, shapes, leaks."""

from __future__ import annotations

import math
import os
import statistics
import time

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout, out, to, tofrom
from tests.gpu.conftest import cupy, warm
from tests.loops.oracle import compare, copy_of
from tests.loops.programs import PERMUTED, program
from tests.loops.test_launch_rules import clauses_of
from tests.loops.test_meanings import rows, rows_counted, rows_from
from tests.loops.zeros import WAYS, zeros

pytestmark = pytest.mark.gpu

N = 100_000


@omp.target_loop
def saxpy(a, x, y):
    for i in range(y.size):
        y[i] += a * x[i]


@omp.target_loop
def scatter(p, x, y):
    for i in range(p.size):
        y[p[i]] = x[i]


@omp.target_loop
def shift(x, y):
    for i in range(x.size):
        y[i] = x[i + 1]


@omp.target_loop
def computed(x, y):
    for i in range(x.size):
        y[int(x[i])] = i


@omp.target_loop
def divide(x, y):
    for i in range(x.size):
        x[i] = x[i] // y[i]


@omp.target_loop(check=True)
def asserting(x):
    for i in range(x.size):
        assert x[i] >= 0, "negative"
        x[i] += 1


@omp.target_loop(reduction={"+": ["s"], "max": ["m"]}, lastprivate=["t"])
def totals(x):
    s = 0.0
    m = -1.0
    for i in range(x.size):
        t = x[i]
        s += x[i]
        m = max(m, x[i])
    return s, m, t


@omp.target_loop(collapse=2, reduction={"+": ["s"]})
def total(x):
    s = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            s += x[i, j]
    return s


@omp.target_loop(atomic=["h"])
def histogram(k, v, h):
    for i in range(k.size):
        h[k[i]] += v


def is_alive():
    """Tell whether the context still works, by CuPy's own kernels and a loop."""
    cupy.cuda.Device().synchronize()
    x, y = np.ones(N), np.zeros(N)
    saxpy(2.0, x, y)
    return bool((y == 2).all()) and int(cupy.arange(10).sum()) == 45


# -- values ----------------------------------------------------------------------------------------------


@PERMUTED
@pytest.mark.parametrize("seed", range(6000, 6060))
def test_programs_give_what_cpython_gives(gpu, seed):
    """Generated loop functions leave and return what CPython makes of them."""
    run_program(seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(20))
def test_many_programs(gpu, hundred):
    """As above, 2,000 of them."""
    for seed in range(10_000 + 100 * hundred, 10_100 + 100 * hundred):
        run_program(seed)


def run_program(seed):
    """Run a generated loop function on the device; what it leaves is to be CPython's."""
    made = program(seed)
    arguments = copy_of(made.arguments)
    returned = omp.target_loop(**clauses_of(made))(made.function())(**arguments)
    made.check(returned, arguments)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_integer_zero_has_no_sign(gpu, dtype):
    """A float between -1 and 0 that becomes an integer, and a float again, is +0, as in CPython."""
    f, a, o, expected = zeros(dtype)
    omp.target_loop(f)(a, o)
    for k, way in enumerate(WAYS):
        compare(o[k], expected[k], way, exact=True)


@pytest.mark.parametrize("words", [{}, {"num_threads": 64}])
@pytest.mark.parametrize("function", [rows, rows_from, rows_counted])
def test_an_inner_bound_beyond_int64_is_an_error(gpu, function, words):
    """A bound of uint64 is no negative number; other iterations are carried out, and the context lives on."""
    n = np.array([1, 2, 3], np.uint64)
    o, expected = np.zeros((3, 4)), np.zeros((3, 4))
    loop = omp.target_loop(**words)(function)
    loop(o, n)
    function(expected, n)
    assert np.array_equal(o, expected)
    n[1] = 2**63 + 1
    with pytest.raises(OverflowError, match=r"range.* i=1, line \d+, .*64 bits"):
        loop(o, n)
    assert is_alive()


def test_the_absolute_value_of_a_truth_value(gpu):
    """It is that truth value."""

    @omp.target_loop
    def absolute(x, y):
        for i in range(x.size):
            y[i] = abs(x[i])

    x, y = np.array([True, False]), np.ones(2)
    absolute(x, y)
    assert y.tolist() == [1, 0]


def test_library_functions(gpu):
    """Functions are NumPy's to 4 units in the last place."""

    @omp.target_loop
    def functions(x, y):
        for i in range(x.size):
            y[0, i] = math.sin(x[i])
            y[1, i] = np.exp(x[i])
            y[2, i] = np.log(x[i])
            y[3, i] = np.cbrt(x[i])
            y[4, i] = np.hypot(x[i], 1.5)
            y[5, i] = np.arctan2(x[i], 2.0)
            y[6, i] = math.tanh(x[i])
            y[7, i] = x[i] ** 1.3
            y[8, i] = math.erf(x[i])
            y[9, i] = math.expm1(x[i])

    x = np.linspace(0.1, 9.0, 5000)
    y = np.zeros((10, x.size))
    functions(x, y)
    expected = [np.sin(x), np.exp(x), np.log(x), np.cbrt(x), np.hypot(x, 1.5), np.arctan2(x, 2.0), np.tanh(x), x**1.3]
    expected += [np.array([math.erf(value) for value in x]), np.expm1(x)]
    for got, value in zip(y, expected, strict=True):
        assert (abs(got - value) <= 4 * np.spacing(abs(value)) + 1e-300).all()


def test_nothing_is_contracted(gpu):
    """A product and a sum are rounded one by one, unless the clause allows otherwise."""
    x, y = np.random.default_rng(2).random(N), np.random.default_rng(3).random(N)
    once = y.copy()
    saxpy(1 / 3, x, once)
    assert (once == y + (1 / 3) * x).all()
    saxpy.options(fastmath="contract")(1 / 3, x, y)
    assert np.allclose(once, y, rtol=1e-15)


@pytest.mark.parametrize("n", [0, 1, 31, 255, 256, 257, 70_000, 3_000_001])
def test_reductions_of_any_number_of_blocks(gpu, n):
    """Sums and maxima of integers held in doubles are exact, the last value is the last iteration's."""
    x = np.arange(n, dtype="f8")
    if not n:
        with pytest.raises(UnboundLocalError):
            totals(x)
        return
    assert totals(x) == (n * (n - 1) / 2, n - 1, n - 1)


@pytest.mark.parametrize("shape", [(1, 1), (7, 300), (300, 7), (1000, 1000)])
def test_reductions_of_two_axes(gpu, shape):
    """Blocks of two dimensions leave one partial result each."""
    x = np.random.default_rng(4).integers(-(2**31), 2**31, shape)
    assert total(x) == x.sum()


def test_a_sum_has_the_same_bits_each_time(gpu):
    """A sum that rounds is the same from run to run."""
    x = np.random.default_rng(5).random(1_000_000)
    sums = {totals(x)[0] for _ in range(10)}
    assert len(sums) == 1
    assert math.isclose(sums.pop(), math.fsum(x), rel_tol=1e-13)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", "f4", "f8"])
@pytest.mark.parametrize("n_bins", [1, 7, 5000, 100_000])
def test_atomics_lose_nothing(gpu, dtype, n_bins):
    """Many threads at few elements, in shared memory and in the device's, of every width."""
    k = np.random.default_rng(6).integers(0, n_bins, N)
    h = np.zeros(n_bins, dtype)
    histogram(k, np.dtype(dtype).type(1), h)
    with np.errstate(over="ignore"):
        assert (h == np.bincount(k, minlength=n_bins).astype(dtype)).all()


@pytest.mark.parametrize("shape", [(600_000, 3), (70_000, 2, 3), (5, 6, 70, 9)])
def test_axes_beyond_the_hardware(gpu, shape):
    """More rows than there may be blocks along y or z are gone on to."""

    @omp.target_loop(collapse=2)
    def two(x):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                x[i, j] += i - j

    @omp.target_loop(collapse=3)
    def three(x):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                for k in range(x.shape[2]):
                    x[i, j, k] += i - j + 10 * k

    @omp.target_loop(collapse=4)
    def four(x):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                for k in range(x.shape[2]):
                    for m in range(x.shape[3]):
                        x[i, j, k, m] += i - j + 10 * k + 100 * m

    x = np.ones(shape)
    {2: two, 3: three, 4: four}[len(shape)](x)
    places = np.indices(shape, sparse=True)
    weights = (1, -1, 10, 100)
    assert (x == 1 + sum(weight * place for weight, place in zip(weights, places, strict=False))).all()


def test_more_elements_than_32_bits_count(gpu):
    """An array of more than 2**31 elements is reached to its end."""

    @omp.target_loop
    def fill(x):
        for i in range(x.size):
            x[i] = i % 100

    x = cupy.zeros(2**31 + 1000, "u1")
    fill(x)
    assert x[-3:].get().tolist() == [(2**31 + 1000 - k) % 100 for k in (3, 2, 1)]
    assert int(x[2**31 - 1]) == (2**31 - 1) % 100


def test_private_arrays(gpu):
    """Each iteration has its own array; the last one's is what the argument holds."""

    @omp.target_loop(lastprivate=["t"])
    def own(x, t):
        for i in range(x.size):
            for k in range(t.size):
                t[k] = x[i] + k
            x[i] = t[t.size - 1]

    x, t = np.arange(N, dtype="f8"), np.zeros(100)
    own(x, t)
    assert (x == np.arange(N) + 99).all()
    assert (t == N - 1 + np.arange(100)).all()


def test_iterations_in_order(gpu):
    """A loop that is `seq` carries what one iteration leaves for the next."""

    @omp.target_loop(seq=True)
    def running(x):
        for i in range(1, x.size):
            x[i] += x[i - 1]

    x = np.ones(1000)
    running(x)
    assert (x == np.arange(1, 1001)).all()


# -- errors ----------------------------------------------------------------------------------------------


def test_an_index_outside_is_found_before_the_launch(gpu):
    """An affine index that leaves its array raises before anything has changed."""
    x, y = np.arange(N), np.zeros(N, int)
    with pytest.raises(IndexError, match=r"'x'"):
        shift(x, y)
    assert not y.any()
    assert is_alive()


def test_an_index_read_from_an_array_is_the_tasks_error(gpu):
    """An index from data that is outside is its task's IndexError, and nothing beyond the array is written."""
    p, x, y = np.arange(N), np.ones(N), np.zeros(2 * N)
    p[17] = N + 3
    with pytest.raises(IndexError, match=rf"{N + 3}.*'y'.*i=17"):
        scatter(p, x, y[:N])
    assert not y[N:].any()
    assert is_alive()


def test_an_index_that_is_computed_is_the_tasks_error(gpu):
    """An index computed from values is checked in the kernel."""
    x, y = np.arange(N, dtype="f8"), np.zeros(N, int)
    x[5] = -N - 1
    with pytest.raises(IndexError, match=r"'y'.*i=5"):
        computed(x, y)
    assert is_alive()


@pytest.mark.parametrize(("error", "match"), [(ZeroDivisionError, "i=5"), (AssertionError, "negative")])
def test_divisions_and_assertions(gpu, error, match):
    """Integer division by zero and assertions are errors of the task too."""
    x, y = np.ones(N, int), np.ones(N, int)
    with pytest.raises(error, match=match):
        if error is ZeroDivisionError:
            y[5] = 0
            divide(x, y)
        else:
            x[7] = -1
            asserting(x)
    assert is_alive()


def test_only_the_call_that_failed_fails(gpu):
    """Of calls in flight beside each other the one with the index has the error."""
    good, bad = np.arange(N), np.arange(N)
    bad[3] = N
    x = np.ones(N)
    ys = [np.zeros(N) for _ in range(6)]
    tasks = [scatter.options(nowait=True)(bad if k == 3 else good, x, y) for k, y in enumerate(ys)]
    failures = [task.exception(timeout=60) for task in tasks]
    assert [type(failure) for failure in failures] == [type(None)] * 3 + [IndexError] + [type(None)] * 2
    assert all(y.all() for k, y in enumerate(ys) if k != 3)
    assert is_alive()


def test_dependents_of_a_failed_loop(gpu):
    """A host task that depends on a loop that failed fails with DependError."""
    p, x, y = np.full(N, N), np.ones(N), np.zeros(N)
    scatter.options(nowait=True, depend=[out(y)])(p, x, y)
    after = omp.task(depend=[in_(y)])(lambda: None)()
    assert isinstance(after.exception(timeout=60).__cause__, IndexError)
    with pytest.raises(ExceptionGroup):
        omp.taskwait()


# -- streams, bodies, graphs -----------------------------------------------------------------------------


def test_loops_in_a_body_are_on_its_stream(gpu):
    """In a body loops are in order with CuPy's operations; results are arrays of the device, and nobody waits."""

    @omp.target(map=[to("x"), tofrom("y")])
    def body(x, y):
        y += 1
        saxpy(2.0, x, y)
        y *= 2
        s, m, t = totals(y)
        assert isinstance(s, cupy.ndarray)
        assert s.shape == ()
        y -= m
        return s, t

    x, y = np.arange(1000.0), np.zeros(1000)
    s, t = body(x, y)
    before = 2 * (1 + 2 * x)
    assert (float(s), float(t)) == (before.sum(), before[-1])
    assert (y == before - before.max()).all()


def test_loops_of_two_tasks_overlap(gpu, latch):
    """A loop completes while another, which it does not depend on, is held on its stream."""
    x, y, z = cupy.arange(N, dtype="f8"), cupy.zeros(N), cupy.zeros(N)
    saxpy(1.0, x, y)
    saxpy(1.0, x, z)  # the code is loaded

    @omp.target(nowait=True)
    def held(x, y):
        latch.hold(omp.current_stream())
        saxpy(1.0, x, y)

    first = held(x, y)
    second = saxpy.options(nowait=True)(1.0, x, z)
    assert second.result(timeout=20) is None
    assert not first.done()
    latch.release()
    assert first.exception(timeout=20) is None
    assert (y.get() == 2 * np.arange(N)).all()
    assert (z.get() == 2 * np.arange(N)).all()


def test_loops_in_two_queues_overlap(gpu, latch):
    """A loop in a queue completes while one in another queue is held, and one in the same queue is not begun."""
    loop = acc.parallel_loop(deviceptr=["x", "y"])(saxpy.python)
    x, y, z = cupy.arange(N, dtype="f8"), cupy.zeros(N), cupy.zeros(N)
    for queue, written in ((1, y), (2, z)):
        loop.options(async_=queue)(0.0, x, written)  # the code is loaded, and streams are made
    acc.wait()

    @acc.parallel(async_=1, deviceptr=["y"])
    def held(y):
        latch.hold(omp.current_stream())

    held(y)
    behind = loop.options(async_=1)(1.0, x, y)
    beside = loop.options(async_=2)(1.0, x, z)
    assert beside.exception(timeout=20) is None
    assert not behind.done()
    latch.release()
    acc.wait()
    assert (y.get() == np.arange(N)).all()
    assert (z.get() == np.arange(N)).all()


def test_a_call_does_not_wait(gpu, latch):
    """Loops with reports and reductions are launched while their stream is held."""
    x, y = cupy.arange(N, dtype="f8"), cupy.zeros(N)
    p = cupy.arange(N)
    totals(x)
    scatter(p, x, y)

    @omp.target(nowait=True, depend=[inout("y")])
    def held(y):
        latch.hold(omp.current_stream())

    held(y)
    tasks = [scatter.options(nowait=True, depend=[inout(y)])(p, x, y) for _ in range(50)]
    end = totals.options(nowait=True, depend=[inout(y)])(y)
    assert not end.done()
    latch.release()
    assert end.result(timeout=20)[1] == N - 1
    assert all(task.exception(timeout=20) is None for task in tasks)


def test_a_graph_has_loops(gpu):
    """A region of loops is captured, and replays carry them out, reductions into arrays included."""

    @omp.target_loop(reduction={"+": ["s"]})
    def add_up(x, s):
        for i in range(x.size):
            s += x[i]

    @omp.taskgraph
    def region(x, y, s):
        saxpy.options(nowait=True, depend=[in_(x), inout(y)])(2.0, x, y)
        add_up.options(nowait=True, depend=[in_(y), inout(s)])(y, s)

    x, y, s = np.ones(1000), np.zeros(1000), np.zeros(1)
    with omp.target_data(map=[to(x), tofrom(y), tofrom(s)]):
        for _ in range(5):
            region(x, y, s)
        (record,) = region.records
        assert (record.is_captured, record.why_not) == (True, "")
    assert (y == 10).all()
    assert s[0] == 1000 * (2 + 4 + 6 + 8 + 10)


def test_an_error_of_a_replay_is_the_replays(gpu):
    """A replay whose loop finds an index out of range fails; the next one, with other data, does not."""
    p, x, y = np.arange(1000), np.ones(1000), np.zeros(1000)

    @omp.taskgraph
    def region(p, x, y):
        scatter.options(nowait=True, depend=[in_(p), in_(x), inout(y)])(p, x, y)

    with omp.target_data(map=[to(p), to(x), tofrom(y)]):
        for _ in range(3):
            region(p, x, y)
        assert region.records[0].is_captured
        p[3] = 1000
        omp.target_update(to=[p])
        with pytest.raises((IndexError, ExceptionGroup)) as found:
            region(p, x, y)
        assert "'y'" in repr(found.value.exceptions if isinstance(found.value, ExceptionGroup) else found.value)
        p[3] = 3
        omp.target_update(to=[p])
        region(p, x, y)
        assert region.records[0].n_captured == 1
    assert (y == 1).all()
    assert is_alive()


# -- what is left, and what it takes ---------------------------------------------------------------------


def test_nothing_is_left_of_loops():
    """A closed runtime leaves no stream, event, block or graph of the loops that it has run."""
    from tests.gpu.ledger import open_ledger

    def everything():
        p, x, y = np.arange(1000), np.ones(1000), np.zeros(1000)
        for _ in range(20):
            scatter(p, x, y)
            totals(x)
            saxpy.options(nowait=True)(1.0, x, y)
            omp.taskwait()
        p[3] = 1000
        with pytest.raises(IndexError):
            scatter(p, x, y)

    warm()
    with omp.Runtime("cuda:0", check=True):
        everything()
    ledger = open_ledger()
    mark = ledger.mark()
    with omp.Runtime("cuda:0", check=True):
        everything()
    assert ledger.left_since(mark) == []


@pytest.mark.measures
@pytest.mark.skipif("OFFLOAD_TESTS_UNPOOLED" in os.environ, reason="a tool looks on, which takes its time")
def test_what_a_call_takes(gpu, record_property):
    """A call with device arrays that has been made before is measured; the test allows a millisecond."""
    x, y = cupy.arange(1000.0), cupy.zeros(1000)
    for name, call in {"saxpy": lambda: saxpy.options(nowait=True)(1.0, x, y), "totals": lambda: totals(x)}.items():
        took_s = []
        for _ in range(200):
            start_s = time.perf_counter()
            call()
            took_s.append(time.perf_counter() - start_s)
        omp.taskwait()
        median_us = statistics.median(took_s) * 1e6
        record_property(f"{name}_us", round(median_us))
        print(f"{name}: median {median_us:.0f} us, least {min(took_s) * 1e6:.0f} us")
        assert median_us < 1000


def test_the_text_is_cuda(gpu):
    """`source` is what NVRTC compiles for such arguments."""
    text = saxpy.source(1.0, np.zeros(10), np.zeros(10))
    assert "__global__" in text
    assert "__restrict__" in text
    assert "int32_t" in text


def test_denormal_numbers_are_those_of_the_host(gpu):
    """Float32 results that are denormal, or made of such numbers, are the host's bit for bit."""

    @omp.target_loop
    def operations(a, b, sums, products, quotients, roots):
        for i in range(a.size):
            sums[i] = a[i] - b[i]
            products[i] = a[i] * b[i]
            quotients[i] = a[i] / b[i]
            roots[i] = np.sqrt(a[i])

    rng = np.random.default_rng(1)
    a, b = (rng.integers(1, 0x01000000, N, dtype=np.int32).view(np.float32) for _ in range(2))
    b[::3] = rng.random(len(b[::3]), dtype=np.float32)
    results = [np.zeros_like(a) for _ in range(4)]
    operations(a, b, *results)
    with np.errstate(all="ignore"):
        expected = [a - b, a * b, a / b, np.sqrt(a)]
    for one, other in zip(results, expected, strict=True):
        assert (one.view(np.int32) == other.view(np.int32)).all()


def test_what_is_on_disk_is_not_compiled_again(gpu, monkeypatch):
    """Another device of the process, as another process would, loads what has been compiled and starts no NVRTC."""
    from offload.devices.cuda import kernels

    @omp.target_loop
    def fill(y):
        for i in range(y.size):
            y[i] = 1234 + i

    y = np.zeros(N)
    fill(y)
    monkeypatch.setattr(kernels, "_code", lambda *_: pytest.fail("NVRTC has been started"))
    with omp.Runtime("cuda:0"):
        y[...] = 0
        fill(y)
    assert (y == 1234 + np.arange(N)).all()
