"""What loops on the GPU remember of index arrays, and what ``check=True`` sees there."""

from __future__ import annotations

import time

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, inout, to, tofrom
from tests.gpu.conftest import cupy, warm
from tests.loops.facts import AWAY, N, facts, launches
from tests.loops.test_facts import rows, scatter
from tests.loops.test_versions import CASES, carried_out

pytestmark = pytest.mark.gpu

MANY = 100_000


@pytest.fixture
def at(monkeypatch):
    """A runtime on the first GPU, in which loops look at index arrays, however short they are."""
    with facts("gpu", monkeypatch) as found:
        warm()
        yield found


@pytest.fixture
def checks(monkeypatch):
    """The list of launches: whether each kernel has checks."""
    return launches(monkeypatch)


@omp.target_loop
def gather(p, x, y):
    for i in range(p.size):
        y[i] = x[p[i]]


@pytest.mark.parametrize("case", CASES)
def test_what_writes_changes_the_version(at, case):
    """A loop that has remembered its indices finds the one that a construct has written, in each construct."""
    with carried_out(at, case), pytest.raises(IndexError, match="'x'"):
        at.gather(at.p, at.x, at.y)
    assert int(cupy.arange(10).sum()) == 45


def test_the_third_call_has_no_checks(gpu, checks):
    """A loop as long as programs have them is looked at by the second call, and gives the same without checks."""
    loop = omp.target_loop(gather.python)
    p, x, y = np.random.default_rng(1).permutation(MANY), np.arange(float(MANY)), np.zeros(MANY)
    with omp.target_data(map=[to(p, x), tofrom(y)]):
        for _ in range(4):
            loop(p, x, y)
            omp.target_update(from_=[y])
            assert (y == p).all()
    assert checks == [True, True, False, False]


def test_sparse_rows_have_no_checks_in_the_end(at, checks):
    """Where rows begin is looked at, then the columns in them; results are those of Python each time."""
    ptr, col = np.arange(0, 3 * N + 1, 3), np.arange(3 * N) % N
    expected = np.zeros(N)
    rows.python(ptr, col, at.x, expected)
    with omp.target_data(map=[to(ptr, col, at.x), from_(at.y)]):
        for _ in range(6):
            rows(ptr, col, at.x, at.y)
            omp.target_update(from_=[at.y])
            assert (at.y == expected).all()
    assert checks[0]
    assert not checks[-1]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_indices_of_each_type(at, checks, dtype):
    """Least and greatest elements come back in the type of the array, from strided parts as well."""
    p = np.arange(2 * N).astype(dtype)
    with omp.target_data(map=[to(p, at.x), from_(at.y)]):
        for _ in range(3):
            at.gather(p[:N], at.x, at.y)
            omp.target_update(from_=[at.y])
            assert (at.y == at.x).all()
            y = at.y[: N // 2]
            at.gather(p[N - 1 :: -2], at.x, y)
            omp.target_update(from_=[y])
            assert (y == at.x[::-2]).all()
        with pytest.raises(IndexError):
            at.gather(p[: N + 1], at.x, np.zeros(N + 1))
    assert checks[-3:-1] == [False, False]


def test_a_held_stream_does_not_hold_the_calls(at, latch, checks):
    """Deferred calls return while the stream is held: they have checks, and those after the answer have none."""

    @omp.target(nowait=True, depend=[inout("y")])
    def held(y):
        latch.hold(omp.current_stream())

    deferred = at.gather.options(nowait=True, depend=[in_("p"), in_("x"), inout("y")])
    deferred.compile(at.p, at.x, at.y)
    with at.present():
        at.gather.options(depend=[inout("y")])(at.p[:2], at.x, at.y)
        cupy.arange(8).min()
        cupy.arange(8).max()
        checks.clear()
        held(at.y)
        start_s = time.perf_counter()
        tasks = [deferred(at.p, at.x, at.y) for _ in range(5)]
        took_s = time.perf_counter() - start_s
        assert not any(task.done() for task in tasks)
        latch.release()
        omp.taskwait()
        assert checks == [True] * 5
        at.gather(at.p, at.x, at.y)
        assert checks[-1] is False
    assert took_s < 1


def test_what_is_looked_at_beside_a_write_is_not_remembered(at, latch):
    """A loop that is not ordered with a held write, and does not use what that writes, leaves no fact behind."""

    @omp.target_loop
    def chosen(p, m, x, y):
        for i in range(p.size):
            if m[i] > 0:
                y[i] = x[p[i]]

    @omp.target(map=[tofrom("p")], nowait=True)
    def late(p):
        latch.hold(omp.current_stream())
        p[7] = AWAY

    m = np.ones(N, int)
    m[7] = 0
    with at.present(), omp.target_data(map=[to(m)]):
        assert at.settle()
        chosen.compile(at.p, m, at.x, at.y)  # with checks and without: code that is loaded waits for what runs
        chosen(at.p, m, at.x, at.y)
        cupy.zeros(8, int)[7] = AWAY
        cupy.cuda.Device().synchronize()
        task = late(at.p)
        for _ in range(3):
            chosen(at.p, m, at.x, at.y)
        assert not task.done()
        latch.release()
        task.result()
        with pytest.raises(IndexError, match="'x'"):
            at.gather(at.p, at.x, at.y)


def test_a_graph_has_checks(gpu):
    """A captured loop checks its indices, whatever was known of them: a replay finds what has been written since."""
    loop = omp.target_loop(gather.python)
    p, x, y = np.arange(MANY), np.arange(float(MANY)), np.zeros(MANY)

    @omp.taskgraph
    def region(p, x, y):
        loop.options(nowait=True, depend=[in_(p), in_(x), inout(y)])(p, x, y)

    with omp.target_data(map=[to(p, x), tofrom(y)]):
        for _ in range(3):
            loop(p, x, y)
        for _ in range(3):
            region(p, x, y)
        assert region.records[0].is_captured
        p[3] = MANY
        omp.target_update(to=[p])
        with pytest.raises((IndexError, ExceptionGroup)):
            region(p, x, y)


def test_a_graph_changes_what_it_writes(gpu):
    """A loop that knows its indices finds those that a replay has written."""
    loop = omp.target_loop(gather.python)

    @omp.target_loop
    def put(far, p):
        for i in range(1):
            p[i + 7] = far[i]

    far, p, x, y = np.array([7]), np.arange(MANY), np.arange(float(MANY)), np.zeros(MANY)

    @omp.taskgraph
    def region(far, p):
        put.options(nowait=True)(far, p)

    with omp.target_data(map=[to(far, p, x), tofrom(y)]):
        for _ in range(3):
            region(far, p)
        assert region.records[0].is_captured
        for _ in range(3):
            loop(p, x, y)
        far[0] = MANY
        omp.target_update(to=[far])
        region(far, p)
        with pytest.raises(IndexError):
            loop(p, x, y)


def test_check_observes_on_the_host_and_computes_on_the_gpu(at):
    """Independent iterations run on the GPU; dependent ones are a `LoopError` that has changed nothing."""
    at.p[:] = np.random.default_rng(5).permutation(N)
    expected = at.y.copy()
    scatter.python(at.p, at.x, expected)
    scatter(at.p, at.x, at.y)
    assert (at.y == expected).all()
    at.p[0] = at.p[1]
    with pytest.raises(omp.LoopError, match="'y'"):
        scatter(at.p, at.x, at.y)
    assert (at.y == expected).all()
    with at.present():
        at.p[:] = np.arange(N)
        omp.target_update(to=[at.p])
        for _ in range(2):
            scatter(at.p, at.x, at.y)
        at.p[3] = AWAY
        omp.target_update(to=[at.p])
        with pytest.raises(IndexError):
            scatter(at.p, at.x, at.y)


def test_check_of_device_arrays(gpu):
    """Arrays of CuPy's, strided too, are observed by copies, and changed where they are."""
    p, x, y = cupy.arange(N)[::-1], cupy.arange(2.0 * N)[::2], cupy.zeros(N)
    scatter(p, x, y)
    assert (y.get() == x.get()[::-1]).all()
    with pytest.raises(omp.LoopError):
        scatter(cupy.zeros(N, int), x, y)
    assert (y.get() == x.get()[::-1]).all()


def test_nothing_is_left_of_looks():
    """A closed runtime leaves no stream, event or block of looks, of those too that nobody has asked for."""
    from tests.gpu.ledger import open_ledger

    def everything():
        loop = omp.target_loop(gather.python)
        p, x, y = np.arange(MANY), np.arange(float(MANY)), np.zeros(MANY)
        with omp.target_data(map=[to(p, x), tofrom(y)]):
            for _ in range(3):
                for _ in range(3):
                    loop.options(nowait=True)(p, x, y)
                omp.taskwait()
                omp.target_update(to=[p])

    warm()
    with omp.Runtime("cuda:0", check=True):
        everything()
    ledger = open_ledger()
    mark = ledger.mark()
    with omp.Runtime("cuda:0", check=True):
        everything()
    assert ledger.left_since(mark) == []
