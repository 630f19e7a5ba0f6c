"""What each clause of a loop changes: the launch, the text, the order, the numbers; none is without an effect."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload.devices.sim.device import SimDevice
from offload.loops.running import build, pool
from offload.loops.running.clauses import DEVICE_CHECKS
from tests.conftest import checked
from tests.loops.cuda_device import HostCuda
from tests.loops.cuda_form import GXX, NVCC, compiled
from tests.profiles import few

N = 1000
ORDERS = ("seq", "independent", "auto")


def double(x):
    for i in range(x.size):
        x[i] *= 2


def grow(x):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] += i * j


def total(x):
    s = 1.5
    for i in range(x.size):
        s += x[i]
    return s


def scratch(x, t):
    for i in range(x.size):
        t[0] = x[i] + t[1]
        x[i] = 2 * t[0]


def set_scratch(x, t):
    for i in range(x.size):
        t[0] = i
        t[1] = 2 * i
        x[i] = t[0] + t[1]


def count(k, h):
    for i in range(k.size):
        h[k[i]] += 1


def trace(c, order):
    for i in range(order.size):
        k = omp.atomic.add(c, 0, 1)
        order[k] = i


def running(x):
    for i in range(1, x.size):
        x[i] += x[i - 1]


def scatter(p, x):
    for i in range(p.size):
        x[p[i]] = i


def saxpy(a, x, y):
    for i in range(y.size):
        y[i] += a * x[i]


def rows(a, y):
    for i in range(y.size):
        s = 0.0
        for j in range(a.shape[1]):
            s += a[i, j]
        y[i] = s


@pytest.fixture
def runtime(request):
    """A current runtime, whose device shuffles what is parallel where a clause is about orders."""
    seed = 5 if request.node.callspec.params.get("clause") in ("schedule", *ORDERS) else None
    with checked("sim:1", seed=seed) as current:
        yield current


def shape_of(function, array, **clauses):
    """Return the blocks and the threads of a launch on CUDA, once its result is found to be CPython's."""
    if GXX is None:
        pytest.skip("no g++")
    expected = array.copy()
    function(expected)
    kernels = HostCuda()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimDevice, "kernels", kernels)
        omp.target_loop(**clauses)(function)(array)
    assert (array == expected).all()
    return kernels.launches[0][1:3]


def order_of(**clauses):
    """Return the order of iterations on a device that shuffles what is parallel."""
    order = np.zeros(N, int)
    omp.target_loop(**clauses)(trace)(np.zeros(1, int), order)
    assert sorted(order) == list(range(N))
    return order.tolist()


def by_collapse():
    assert shape_of(grow, np.ones((9, 9))) == ((1, 1, 1), (256, 1, 1))
    assert shape_of(grow, np.ones((9, 9)), collapse=2) == ((1, 2, 1), (32, 8, 1))


def by_reduction():
    with pytest.raises(omp.LoopError):
        omp.parallel_loop(total)
    assert omp.parallel_loop(reduction={"+": ["s"]})(total)(np.ones(N)) == N + 1.5


def by_private():
    x, t = np.arange(N), np.array([7, 8])
    omp.parallel_loop(private=["t"])(set_scratch)(x, t)
    assert (x == 3 * np.arange(N)).all()
    assert t.tolist() == [7, 8]


def by_firstprivate():
    x, t = np.arange(N), np.array([7, 8])
    omp.parallel_loop(firstprivate=["t"])(scratch)(x, t)
    assert (x == 2 * (np.arange(N) + 8)).all()
    assert t.tolist() == [7, 8]


def by_lastprivate():
    x, t = np.arange(N), np.array([7, 8])
    omp.parallel_loop(lastprivate=["t"])(set_scratch)(x, t)
    assert t.tolist() == [N - 1, 2 * (N - 1)]


def by_atomic():
    k, h = np.arange(N) % 7, np.zeros(7, int)
    loop = omp.parallel_loop(atomic=["h"])(count)
    loop(k, h)
    assert (h == np.bincount(k)).all()
    of_many = k, np.zeros(10 * N, int)  # of which nobody has a copy
    assert "atomic_add_int64(&" in loop.source(*of_many)
    assert "atomic_add_int64(&" not in omp.parallel_loop(count).source(*of_many)


def by_schedule():
    assert order_of() != list(range(N))
    assert order_of(schedule=("dynamic", N)) == list(range(N))
    order = order_of(schedule=("static", 250))
    assert [order[first : first + 250] for first in range(0, N, 250)] == [
        list(range(first, first + 250)) for first in order[::250]
    ]
    for schedule, size in (("guided", 1), (("guided", 100), 100)):  # two chunks may follow each other by chance
        begins = set(pool.guided(N, size)[:-1])
        assert starts(order_of(schedule=schedule)) <= begins
        assert not starts(order_of(schedule=("static", 250))) <= begins


def starts(order):
    """Return the iterations that do not follow the one before them: where chunks begin, when they are shuffled."""
    return {i for i, before in zip(order, [None, *order], strict=False) if before is None or i != before + 1}


def by_num_threads():
    if build.builder.compiler is None:
        pytest.skip("no C compiler")
    asked = []
    run = pool.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "run", lambda *args: asked.append(args[4]) or run(*args))
        x = np.zeros(3_000_000)
        for clauses in ({}, {"num_threads": 1}):
            omp.parallel_loop(**clauses)(double)(x)
    assert asked[1] == 1 <= asked[0]


def by_blocks(clause):
    assert shape_of(double, np.ones(N)) == ((4, 1, 1), (256, 1, 1))
    assert shape_of(double, np.ones(N), **{clause: 2}) == ((2, 1, 1), (256, 1, 1))


def by_threads(clause, number, expected):
    assert shape_of(double, np.ones(N), **{clause: number})[1] == (expected, 1, 1)


def by_seq():
    assert order_of(seq=True) == list(range(N))
    running_sum = np.ones(N, int)
    omp.parallel_loop(seq=True)(running)(running_sum)
    assert (running_sum == np.arange(1, N + 1)).all()


def by_independent():
    assert order_of(independent=True) != list(range(N))
    with pytest.raises(omp.LoopError):
        omp.parallel_loop(independent=True)(running)(np.ones(N, int))


def by_auto():
    with pytest.warns(omp.PerformanceWarning):
        assert order_of(auto=True) == list(range(N))


def by_tile():
    assert shape_of(grow, np.ones((40, 40)), tile=(16, 16)) == ((3, 3, 1), (16, 16, 1))
    x = np.ones((9, 9))
    assert "o1" in omp.parallel_loop(tile=(4, 4))(grow).source(x)
    assert "o1" not in omp.parallel_loop(collapse=2)(grow).source(x)


def by_cache():
    report = omp.parallel_loop(cache=["x[i-1:3]"])(double).explain(np.ones(N))
    assert "x[i-1:3]" in str(report)
    with pytest.raises(omp.ClauseError):
        omp.parallel_loop(cache=["y[i]"])(double)


def by_check():
    p, x = np.zeros(N, int), np.zeros(N)
    omp.parallel_loop(scatter)(p, x)
    with pytest.raises(omp.LoopError) as caught:
        omp.parallel_loop(check=True)(scatter)(p, x)
    assert caught.value.rule == "dependence"


def by_bounds():
    p, x = np.arange(5), np.zeros(5)
    assert "inside(&fault" in omp.parallel_loop(scatter).source(np.full(5, 9), x)
    without = omp.parallel_loop(bounds=False)(scatter)
    assert "&fault" not in without.source(np.full(5, 9), x)
    without(p, x)
    assert (x == p).all()


def by_fastmath():
    if build.builder.compiler is None:
        pytest.skip("no C compiler")
    rng = np.random.default_rng(1)
    x, y, a = rng.random(N), rng.random(N), 1 / 3
    exact = [float(Fraction(a) * Fraction(u) + Fraction(v)) for u, v in zip(x.tolist(), y.tolist(), strict=True)]
    once, twice = y.copy(), y.copy()
    omp.parallel_loop(fastmath="contract")(saxpy)(a, x, once)
    omp.parallel_loop(saxpy)(a, x, twice)
    assert (twice == y + a * x).all()
    if " fma " in Path("/proc/cpuinfo").read_text():
        assert (once == exact).all()
        assert (once != twice).any()

    m = rng.random((40, N))
    sums = {}
    for word in (False, "contract", "fast"):
        sums[word] = np.zeros(40)
        omp.parallel_loop(fastmath=word)(rows)(m, sums[word])
    assert (sums[False] == np.add.accumulate(m, axis=1)[:, -1]).all()
    assert (sums["contract"] == sums[False]).all()
    assert (sums["fast"] != sums[False]).any()
    assert np.allclose(sums["fast"], sums[False], rtol=1e-13)


def sums(x, y):
    s = 0.0
    for i in range(x.size):
        s += x[i]
        y[i] = s


def by_reassociate():
    x, y = np.random.default_rng(1).random(50 * N), np.zeros(50 * N)
    with pytest.warns(omp.PerformanceWarning, match="reassociate=True"):
        omp.parallel_loop(sums)(x, y)
    assert (y == np.add.accumulate(x)).all()
    omp.parallel_loop(sums, reassociate=True)(x, y)
    assert np.allclose(y, np.add.accumulate(x), rtol=1e-12)
    assert (y != np.add.accumulate(x)).any()


def scattered(p, x):
    for i in range(p.size):
        x[p[i]] = i


def by_speculate():
    modes = {}
    for word in (False, True, "always"):
        with omp.Runtime("sim:1"):
            loop = omp.target_loop(speculate=word)(scattered)
            x = np.zeros(4)
            loop(np.array([2, 0, 3, 2]), x) if word else None
            assert (x == ([1, 0, 3, 2] if word else 0)).all()
            modes[word] = loop.explain(np.arange(4), x).to_dict()["speculation"]["mode"]
    assert modes == {False: "off", True: "sequential", "always": "log"}


def by_devices():
    facts = filter_of(devices="all", filter="always")
    assert (facts["mode"], facts["devices"]) == ("split", [0, 1, 2])
    assert filter_of(devices=[2, 0], filter="always")["devices"] == [2, 0]
    assert filter_of()["mode"] == "off"


def by_filter():
    assert filter_of(devices="all", filter="never")["mode"] in ("duplicate", "single")


def by_exchange():
    assert filter_of(devices="all", filter="always", exchange="eager")["sent_nbytes"] == 2 * 24 * 8
    assert filter_of(devices="all", filter="always", exchange="lazy")["sent_nbytes"] == 0


def filter_of(**clauses):
    """Return what `explain` says of devices after a call on three of them."""
    x = np.arange(24.0)
    with omp.Runtime("sim:3"):
        loop = omp.target_loop(**clauses)(double)
        loop(x)
        assert (x == 2 * np.arange(24)).all()
        return loop.explain(x).to_dict()["filter"]


EFFECTS = {
    "collapse": by_collapse,
    "reduction": by_reduction,
    "private": by_private,
    "firstprivate": by_firstprivate,
    "lastprivate": by_lastprivate,
    "atomic": by_atomic,
    "schedule": by_schedule,
    "num_threads": by_num_threads,
    **{word: lambda word=word: by_blocks(word) for word in ("num_teams", "num_gangs", "gang")},
    "thread_limit": lambda: by_threads("thread_limit", 64, 64),
    "vector_length": lambda: by_threads("vector_length", 128, 128),
    "vector": lambda: by_threads("vector", 96, 96),
    "num_workers": lambda: by_threads("num_workers", 2, 64),
    "worker": lambda: by_threads("worker", 4, 128),
    "seq": by_seq,
    "independent": by_independent,
    "auto": by_auto,
    "tile": by_tile,
    "cache": by_cache,
    "check": by_check,
    "bounds": by_bounds,
    "fastmath": by_fastmath,
    "reassociate": by_reassociate,
    "devices": by_devices,
    "filter": by_filter,
    "exchange": by_exchange,
    "speculate": by_speculate,
}


@pytest.mark.parametrize("clause", list(DEVICE_CHECKS))
def test_the_effect_of_a_clause(runtime, clause):
    """Each clause of a loop does what it says; those of speculation are refused."""
    EFFECTS[clause]()


@pytest.mark.skipif(NVCC is None or GXX is None, reason="no nvcc")
@pytest.mark.parametrize(
    ("word", "contracts"), few(2, [(False, False), ("contract", True), ("fast", True)], are_rows=True)
)
def test_fastmath_on_cuda(runtime, monkeypatch, word, contracts):
    """What CUDA's compiler is told makes one instruction of a product and a sum, or keeps two."""
    kernels = HostCuda()
    monkeypatch.setattr(SimDevice, "kernels", kernels)
    x = np.ones(N)
    loop = omp.target_loop(fastmath=word)(saxpy)
    loop(0.5, x, x.copy())
    ptx = compiled(loop.source(0.5, x, x.copy()), kernels.options[0])
    assert ("fma.rn.f64" in ptx) == contracts
    assert ("mul.rn.f64" in ptx) != contracts
