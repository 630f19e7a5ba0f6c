"""Calls that have been made before, which look up nothing but what they are named by, on CUDA."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout, to, tofrom
from offload.errors import LoopError
from offload.loops.proofs.bounds import LOOK_LIMITS
from offload.loops.settled_calls import SettledCall
from offload.loops.speculative.speculation import forget
from tests.loops.cuda_form import GXX

pytestmark = pytest.mark.skipif(GXX is None, reason="no g++")


@pytest.fixture
def axpby():
    """A loop that nobody has called."""

    @omp.target_loop
    def axpby(a, b, x, y, z):
        for i in range(z.size):
            z[i] = a * x[i] + b * y[i]

    return axpby


@pytest.fixture
def started(monkeypatch):
    """The calls that were started so, or not, in their order."""
    found = []
    start = SettledCall.start

    def noted(ready, args, task, *, changes):
        found.append(start(ready, args, task, changes=changes))
        return found[-1]

    monkeypatch.setattr(SettledCall, "start", noted)
    return found


def arrays(n=3, size=100):
    return [np.arange(size) + float(k) for k in range(n)]


def test_present_arrays(cuda, started, axpby):
    """From the second call on it is filled in: other floats, the arrays in another order, others of such shapes."""
    x, y, z = arrays()
    more = arrays()
    with omp.target_data(map=[tofrom(one) for one in (x, y, z, *more)]):
        axpby(1.0, 2.0, x, y, z)
        assert started == []
        axpby(3.0, 4.0, x, y, z)
        axpby(0.5, 0.5, y, z, x)
        axpby.options(nowait=True, depend=[in_("x"), inout("z")])(5.0, 6.0, *more)
        omp.taskwait()
    assert started == [True] * 3
    assert (z == 3 * np.arange(100.0) + 4 * (np.arange(100) + 1)).all()
    assert (x == (y + z) / 2).all()
    assert (more[2] == 5 * more[0] + 6 * more[1]).all()


def test_device_arrays_and_calls_in_bodies(cuda, started, axpby):
    """So are calls with device arrays, deferred and in a body."""

    @omp.target
    def twice(x, y, z):
        axpby(1.0, 1.0, x, y, z)
        axpby(2.0, 1.0, z, y, x)

    x, y, z = arrays()
    twice(x, y, z)
    twice(x, y, z)
    assert started == [True] * 3  # both calls have one name
    expected = arrays()
    for _ in range(2):
        axpby.python(1.0, 1.0, *expected)
        axpby.python(2.0, 1.0, expected[2], expected[1], expected[0])
    assert all((one == other).all() for one, other in zip((x, y, z), expected, strict=True))


def test_what_shares_memory_goes_the_other_way(cuda, started):
    """Arrays that overlap, or are the same, are no reason for another result."""

    @omp.target_loop
    def add(x, y):
        for i in range(y.size):
            y[i] += x[i]

    @omp.target
    def several(a):
        add(a[:50], a[50:])
        add(a[:50], a[50:])
        add(a[:50], a[:50])
        with pytest.raises(LoopError):
            add(a[:50], a[1:51])

    (a,) = arrays(1)
    several(a)
    assert started == [True, False, False]
    (b,) = arrays(1)
    add.python(b[:50], b[50:])
    add.python(b[:50], b[50:])
    add.python(b[:50], b[:50])
    assert (a == b).all()


def test_other_numbers_have_another_name(cuda, started):
    """Integers, shapes, strides, types, and the values of names from outside tell calls apart."""
    scale = 2

    @omp.target_loop
    def some(n, x, y):
        for i in range(n):
            y[i] = scale * x[i]

    x, y = arrays(2)
    ints = np.arange(100), np.zeros(100, int)
    with omp.target_data(map=[tofrom(one) for one in (x, y, *ints)]):
        for args in ((10, x, y), (20, x, y), (20, x[::2], y[::2]), (20, x[::-1], y), (20, *ints)):
            for _ in range(2):
                some(*args)
        assert started == [True] * 5
        scale = 3
        some(20, *ints)
        assert started == [True] * 5
    assert (ints[1] == [*range(0, 60, 3), *[0] * 80]).all()
    with pytest.raises(IndexError):
        some(200, x, y)


def test_floats_that_decide_have_another_name(cuda, started):
    """Where something is decided from a float, every call evaluates it."""

    @omp.target_loop
    def until(limit, x):
        n = int(limit)
        for i in range(n):
            x[i] += 1

    (x,) = arrays(1)
    with omp.target_data(map=[tofrom(x)]):
        for limit in (10.0, 20.0, 10.0, -0.0):
            until(limit, x)
    assert started == []
    assert (x - np.arange(100) == [*[3] * 10, *[1] * 10, *[0] * 80]).all()


def test_an_array_that_gets_another_shape(cuda):
    """What was remembered of an array holds for its layout; a read-only one is refused as at the first call."""
    (x,) = arrays(1)

    @omp.target_loop
    def count(x):
        for i in range(x.shape[0]):
            x[i] += 1

    with omp.target_data(map=[tofrom(x)]):
        count(x)
        count(x)
        x.flags.writeable = False
        with pytest.raises(omp.OffloadError):
            count(x)
        x.flags.writeable = True
        count(x)
    assert (x == np.arange(100) + 3).all()


def test_queues_of_openacc(cuda, started):
    """A loop of OpenACC in a queue is filled in as well, and follows what is before it there."""

    @acc.parallel_loop
    def add(x, y):
        for i in range(y.size):
            y[i] += x[i]

    x, y = arrays(2)
    with acc.data(copy=[x, y]):
        for _ in range(4):
            add.options(async_=3)(x, y)
        acc.wait(3)
    assert started == [True] * 3
    assert (y == np.arange(100.0) + 1 + 4 * x).all()


@pytest.fixture
def gather():
    """A loop with indices that nobody has called: how often it looks at them follows from earlier calls."""

    @omp.target_loop
    def gather(p, x, y):
        for i in range(p.size):
            y[i] = x[p[i]]

    return gather


def test_indices_of_known_contents(cuda, started, monkeypatch, gather):
    """What was decided from elements is filled in, for two sets of arrays in turn, until something may change them."""
    monkeypatch.setattr(LOOK_LIMITS, "n_iterations", 1)
    sets = [(np.arange(20)[::step].copy(), np.arange(20.0), np.zeros(20 // abs(step))) for step in (-1, 1)]
    with omp.target_data(map=[tofrom(one) for each in sets for one in each]):
        for _ in range(4):
            for each in sets:
                gather(*each)
        assert started == [False, True, True]  # two calls ask, and the third knows: one of each set
        p, x, y = sets[0]
        p[3] = 99
        omp.target_update(to=p)
        with pytest.raises(IndexError, match="index 99"):
            gather(p, x, y)
        assert not started[-1]
        gather(*sets[1])
        assert started[-1]
    assert (sets[1][2] == np.arange(20)).all()


def test_indices_that_a_body_may_write(cuda, started, monkeypatch, gather):
    """A body that may write to what indices are read from has each loop check them, unless they are read-only."""
    monkeypatch.setattr(LOOK_LIMITS, "n_iterations", 1)
    p, x, y = np.arange(20), np.arange(20.0), np.zeros(20)

    def body(p, x, y):
        gather(p, x, y)
        gather(p, x, y)

    with omp.target_data(map=[tofrom(one) for one in (p, x, y)]):
        for is_writeable in (True, False):
            for _ in range(4):
                gather(p, x, y)
            started.clear()
            p.flags.writeable = is_writeable
            omp.target(map=[to("p", "x"), tofrom("y")])(body)(p, x, y)
            assert started == [not is_writeable] * 2
        p.flags.writeable = True


def scattered(p, x, y):
    for i in range(p.size):
        y[p[i]] = 0.5 * y[p[i]] + x[i]


@pytest.fixture
def speculated(monkeypatch):
    """A loop that is probably parallel, as a profile says, and arguments."""
    monkeypatch.setattr(LOOK_LIMITS, "n_iterations", 1)
    p, x, y = np.random.default_rng(1).permutation(50), np.arange(50.0), np.zeros(50)
    return omp.target_loop(scattered, speculate=omp.profile_dependences(scattered, (p, x, y))), p, x, y


def test_verdicts_that_are_remembered(cuda, started, speculated):
    """A call whose verdict is remembered is filled in as long as its index array holds what it did, for each set."""
    loop, p, x, y = speculated
    others = np.arange(50)[::-1].copy(), x.copy(), y.copy()
    with omp.target_data(map=[to(p, x), tofrom(y), *map(tofrom, others)]):
        for _ in range(5):  # inspected, looked at, remembered, filled in
            loop(p, x, y)
            loop(*others)
        assert started[-4:] == [True] * 4
        assert loop.explain(p, x, y).to_dict()["speculation"]["last"] == "device"
        omp.target_update(to=p)
        loop(p, x, y)
        assert not started[-1]
        loop(*others)
        assert started[-1]
        p[7] = p[9]
        omp.target_update(to=p)
        omp.target_update(from_=y)
        expected = y.copy()
        with pytest.warns(omp.SpeculationWarning):
            loop(p, x, y)
        loop(*others)  # in order from now on
        assert not started[-1]
    scattered(p, x, expected)
    assert (y == expected).all()


def test_verdicts_that_are_forgotten(cuda, started, speculated):
    """What a loop has forgotten is decided anew, and filled in again then."""
    loop, p, x, y = speculated
    with omp.target_data(map=[to(p, x), tofrom(y)]):
        for _ in range(5):
            loop(p, x, y)
        assert started[-1]
        forget(loop)
        started.clear()
        for _ in range(5):
            loop(p, x, y)
    assert started[0] is False
    assert started[-1]


def test_speculative_loops_in_bodies_are_refused_all_the_same(cuda, speculated):
    """A call that could be filled in is an error in a body, as it was before."""
    loop, p, x, y = speculated

    def body(p, x, y):
        loop(p, x, y)

    with omp.target_data(map=[to(p, x), tofrom(y)]):
        for _ in range(5):
            loop(p, x, y)
        with pytest.raises(omp.UsageError, match="speculate="):
            omp.target(map=[to("p", "x"), tofrom("y")])(body)(p, x, y)


def test_logs_in_every_launch_are_never_filled_in(cuda, started, speculated):
    """``"always"`` remembers nothing."""
    loop, p, x, y = speculated
    always = loop.options(speculate="always")
    with omp.target_data(map=[to(p, x), tofrom(y)]):
        for _ in range(4):
            always(p, x, y)
    assert not any(started)


def by_floats(scale, p, y):
    for i in range(p.size):
        y[int(scale * p[i])] = i


def test_verdicts_from_floats_are_asked_for(cuda, started, monkeypatch):
    """A float that reaches addresses names no call: another one is another verdict."""
    monkeypatch.setattr(LOOK_LIMITS, "n_iterations", 1)
    p, y = np.arange(50), np.zeros(120)
    loop = omp.target_loop(by_floats, speculate=omp.profile_dependences(by_floats, (2.0, p, y)))
    with omp.target_data(map=[to(p), tofrom(y)]):
        for _ in range(4):
            loop(2.0, p, y)
        with pytest.warns(omp.SpeculationWarning):
            loop(0.5, p, y)
    expected = np.zeros(120)
    by_floats(2.0, p, expected)
    by_floats(0.5, p, expected)
    assert not any(started)
    assert (y == expected).all()
