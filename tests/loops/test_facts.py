"""Facts about index arrays and iterations: found once for present storage, looked at each time elsewhere."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import offload as omp
from offload import acc, from_, to, tofrom
from offload.data.versions import Contents
from offload.loops.proofs import bounds
from offload.loops.running import looks, observe
from tests.loops.facts import AWAY, KINDS, N, facts, launches
from tests.patience import until_gone


@pytest.fixture(params=KINDS)
def at(request, monkeypatch):
    """A runtime on a simulated device, whose kernels are C or CUDA."""
    with facts(request.param, monkeypatch) as found:
        yield found


@pytest.fixture
def sim(monkeypatch):
    """A runtime on a simulated device, whose kernels are C."""
    with facts("sim", monkeypatch) as found:
        yield found


@pytest.fixture
def cuda(monkeypatch):
    """A runtime on a simulated device, whose kernels are CUDA."""
    if len(KINDS[1].marks) and KINDS[1].marks[0].args[0]:
        pytest.skip("no g++")
    with facts("cuda", monkeypatch) as found:
        yield found


@omp.target_loop
def rows(ptr, col, x, y):
    for i in range(y.size):
        s = 0.0
        for k in range(ptr[i], ptr[i + 1]):
            s += x[col[k]]
        y[i] = s


@omp.target_loop(check=True)
def scatter(p, x, y):
    for i in range(p.size):
        y[p[i]] = 0.5 * y[p[i]] + x[i]


def test_unchanged_indices_are_looked_at_once(at):
    """Of several calls the first looks at the indices, also where other arrays change in between."""
    with at.present():
        for _ in range(4):
            at.gather(at.p, at.x, at.y)
            at.x += 1
            omp.target_update(to=[at.x])
        omp.target_update(from_=[at.y])
    assert at.looks == ["p"]
    assert (at.y == at.x - 1).all()


def test_an_index_of_an_index_is_looked_at_once(sim):
    """Rows of a sparse matrix are looked at in rounds, each once, and the loop without checks gives the same."""
    ptr, col = np.arange(0, 3 * N + 1, 3), np.arange(3 * N) % N
    with omp.target_data(map=[to(ptr, col, sim.x), from_(sim.y)]):
        for _ in range(5):
            rows(ptr, col, sim.x, sim.y)
        assert sorted(sim.looks) in (["col", "ptr"], ["col", "ptr", "ptr"])
    expected = np.zeros(N)
    rows.python(ptr, col, sim.x, expected)
    assert (sim.y == expected).all()


def test_loops_share_what_is_known(sim):
    """What one loop has seen of an array another one need not look at."""

    @omp.target_loop
    def added(p, x, y):
        for i in range(p.size):
            y[i] += x[p[i]]

    with sim.present():
        sim.gather(sim.p, sim.x, sim.y)
        added(sim.p, sim.x, sim.y)
    assert sim.looks == ["p"]


def test_each_section_has_its_own_facts(sim):
    """Parts of one mapped array are looked at each for itself, and told apart by strides as well."""
    with sim.present():
        for _ in range(3):
            for part in (sim.p[: N // 2], sim.p[N // 2 :], sim.p[::2]):
                y = np.zeros(N // 2)
                sim.gather(part, sim.x, y)
                assert (y == part).all()
    assert sim.looks == ["p"] * 3


def test_the_host_has_no_versions(sim):
    """Host arrays, present or not, are looked at in each call on the host, and what is wrong there is found."""
    on_host = sim.gather.options(if_=False)
    with sim.present():
        for _ in range(3):
            on_host(sim.p, sim.x, sim.y)
        assert sim.looks == ["p"] * 3
        sim.p[5] = AWAY
        with pytest.raises(IndexError):
            on_host(sim.p, sim.x, sim.y)
        sim.p[5] = 5


def test_device_arrays_in_no_entry(at):
    """A device array of the program's own is looked at in each call by the host, and by CUDA never."""
    d = omp.target_alloc(at.p.shape, at.p.dtype)
    omp.target_memcpy(d, at.p)
    for _ in range(3):
        at.gather(d, at.x, at.y)
    omp.target_memset(d[:1], 0x22)
    with pytest.raises(IndexError):
        at.gather(d, at.x, at.y)
    omp.target_free(d)
    assert at.looks in (["p"] * 4, [])


def test_a_body_that_may_write_knows_nothing(sim):
    """In a body each loop looks, unless the array is read-only on the host and mapped ``to``: then the first does."""

    def body(p, x, y):
        sim.gather(p, x, y)
        sim.gather(p, x, y)

    with sim.present():
        omp.target(map=[tofrom("p")])(body)(sim.p, sim.x, sim.y)
        assert sim.looks == ["p"] * 2
        omp.target(map=[to("p")])(body)(sim.p, sim.x, sim.y)
        assert sim.looks == ["p"] * 4
        sim.p.flags.writeable = False
        omp.target(map=[to("p")])(body)(sim.p, sim.x, sim.y)
        assert sim.looks == ["p"] * 5
        acc.parallel(copyin=["p"])(body)(sim.p, sim.x, sim.y)
        assert sim.looks == ["p"] * 5
        sim.p.flags.writeable = True


def test_an_array_that_becomes_writeable(at):
    """What a body may write to is asked at each call: an array that was read-only may be so no more."""

    @omp.target(map=[to("p", "x", "y")])
    def body(p, x, y, away):
        if away:
            p[3] = AWAY

    with at.present():
        at.settle()
        for is_writeable in (False, False, True):
            at.p.flags.writeable = is_writeable
            body(at.p, at.x, at.y, is_writeable)
        with pytest.raises(IndexError):
            at.gather(at.p, at.x, at.y)


def test_what_a_body_writes_between_loops(at):
    """A loop in a body finds what the body has written since the loop before."""

    def body(p, x, y):
        for _ in range(3):
            at.gather(p, x, y)
        p[3] = AWAY
        at.gather(p, x, y)

    with at.present(), pytest.raises(IndexError):
        omp.target(map=[tofrom("p")])(body)(at.p, at.x, at.y)


def test_indices_that_a_loop_writes_in_a_body(at):
    """A loop in a body that writes indices, which the body maps ``to``, is seen by the next one there."""

    @omp.target_loop
    def away(p):
        for i in range(1):
            p[i] = AWAY

    def body(p, x, y):
        for _ in range(3):
            at.gather(p, x, y)
        away(p)
        at.gather(p, x, y)

    with at.present(), pytest.raises(IndexError):
        omp.target(map=[to("p", "x")])(body)(at.p, at.x, at.y)


def test_deferred_tasks_see_what_is_written_before_them(at):
    """Writers and readers that depend on each other, all deferred: each reader finds what its writer has left."""

    def put(p, value):
        p[7] = value

    with at.present():
        for value in (1, AWAY, 2, AWAY, 3):
            omp.target(map=[tofrom("p")], nowait=True, depend=[omp.inout(at.p)])(put)(at.p, value)
            loop = at.gather.options(nowait=True, depend=[omp.in_(at.p), omp.inout(at.y)])
            tasks = [loop(at.p, at.x, at.y) for _ in range(3)]
            for task in tasks:
                assert isinstance(task.exception(), IndexError) is (value == AWAY)


def test_memory_of_facts_is_bounded_and_keeps_nothing(sim):
    """Facts of many sections are few, and go with the mapping; neither arrays nor entries are kept."""
    with sim.present():
        entry = omp.current_runtime().places[0].table.entries()
        contents = [one.contents for one in entry]
        for end in range(2, N):
            sim.gather(sim.p[:end], sim.x, np.zeros(end))
        assert 0 < sum(len(one.facts) for one in contents) <= 16
        gone = [weakref.ref(one) for one in entry]
        del entry, contents
    sim.looks.clear()
    assert len(gone) == 3
    until_gone(*gone)


def test_no_number_comes_twice():
    """Versions are numbers of the process, so that none stands for the contents of two entries."""
    versions = [Contents().version for _ in range(3)]
    assert len({*versions}) == 3


# -- on CUDA ---------------------------------------------------------------------------------------------


def test_a_look_on_a_device_decides_about_later_calls(cuda, monkeypatch):
    """On CUDA the second call asks, calls have checks until the answer has come, and those after it have none."""
    checks = launches(monkeypatch)
    with cuda.present():
        for _ in range(4):
            cuda.gather(cuda.p, cuda.x, cuda.y)
    assert checks == [True, True, False, False]
    assert cuda.looks == ["p"]


def test_a_call_never_waits_for_a_look(cuda, monkeypatch):
    """As long as the answer has not come calls go on with checks, and ask no second time."""
    monkeypatch.setattr(looks._Due, "found", lambda due: None)
    with cuda.present():
        for _ in range(4):
            cuda.gather(cuda.p, cuda.x, cuda.y)
        assert cuda.looks == ["p"]
        cuda.p[4] = AWAY
        omp.target_update(to=[cuda.p])
        with pytest.raises(IndexError):
            cuda.gather(cuda.p, cuda.x, cuda.y)
    assert cuda.looks == ["p"]


def test_compiling_with_indices_compiles_for_calls_that_know_them(cuda):
    """`compile` with host arrays leaves nothing to compile, neither for the first call nor for later ones."""
    kernels = omp.current_runtime().places[0].device.kernels
    sources = []
    load = kernels.load
    kernels.load = lambda form: sources.append(form.source) or load(form)
    cuda.gather.compile(cuda.p, cuda.x, cuda.y)
    compiled = set(sources)
    assert len(compiled) == 2
    cuda.looks.clear()
    with cuda.present():
        assert cuda.settle()
    assert set(sources) == compiled


def test_indices_that_change_are_looked_at_a_few_times(cuda):
    """Looks that are of no use to a later call are given up after some."""
    with cuda.present():
        for _ in range(3 * bounds.MOST_CONTENTS):
            omp.target_update(to=[cuda.p])
            for _ in range(2):
                cuda.gather(cuda.p, cuda.x, cuda.y)
    assert len(cuda.looks) == bounds.MOST_CONTENTS


def test_indices_that_32_bits_hold_before_others(cuda):
    """Between loops with the same checks, what is known decides how wide the variables of inner loops are."""

    @omp.target_loop
    def runs(p, chosen, x, y):
        for i in range(p.size):
            s = 0.0
            first = p[i]
            for k in range(first, first + 3):
                if chosen[i]:
                    s += x[k]
            y[i] = s

    chosen = cuda.p < N - 2
    with cuda.present():
        assert cuda.settle()
        runs(cuda.p, chosen, cuda.x, cuda.y)
        cuda.p[4] = 1 << 32  # of whose 32 bits none is set
        omp.target_update(to=[cuda.p])
        with pytest.raises(IndexError, match=str(1 << 32)):
            runs(cuda.p, chosen, cuda.x, cuda.y)


# -- what check=True has seen ----------------------------------------------------------------------------


@pytest.fixture
def observed(monkeypatch):
    """The list of nests that have been observed."""
    found = []
    look = observe.observe

    def noted(*args, of=None):
        if of is not None:  # else it looks once more at what it refuses
            found.append(args[1])
        return look(*args, of=of)

    monkeypatch.setattr(observe, "observe", noted)
    return found


def test_a_verdict_is_remembered(at, observed):
    """Iterations that were independent are observed again when the indices or a scalar have changed, not before."""
    with at.present():
        for _ in range(3):
            scatter(at.p, at.x, at.y)
        assert len(observed) == 1
        at.p[:] = at.p[::-1].copy()
        omp.target_update(to=[at.p])
        for _ in range(2):
            scatter(at.p, at.x, at.y)
        assert len(observed) == 2
        at.p[1] = at.p[0]
        omp.target_update(to=[at.p])
        for _ in range(2):
            with pytest.raises(omp.LoopError, match="'y'"):
                scatter(at.p, at.x, at.y)
        assert len(observed) == 4


def test_a_verdict_about_arrays_without_versions(sim, observed):
    """On the host each call is observed."""
    for _ in range(2):
        scatter.options(if_=False)(sim.p, sim.x, sim.y)
    assert len(observed) == 2


def test_a_verdict_follows_from_scalars(sim, observed):
    """A condition on a scalar decides what is written; a loop without index arrays needs no versions."""

    @omp.target_loop(check=True)
    def chosen(step, x, y):
        for i in range(x.size):
            y[(i * step) % x.size] = x[i]

    with sim.present():
        for step, n in ((5, 1), (5, 1), (7, 2), (5, 2)):
            chosen(step, sim.x, sim.y)
            assert len(observed) == n
        with pytest.raises(omp.LoopError):
            chosen(2, sim.x, sim.y)


def test_a_verdict_follows_from_conditions(sim, observed):
    """An array that only a condition reads has to be as it was."""

    @omp.target_loop(check=True)
    def where(c, x, y):
        for i in range(x.size - 1):
            if c[i] > 0:
                y[i + 1] = x[i]
            else:
                y[i] = x[i]

    with omp.target_data(map=[to(sim.p, sim.x), tofrom(sim.y)]):
        for _ in range(2):
            where(sim.p, sim.x, sim.y)
        assert len(observed) == 1
        sim.p[5] = 0
        omp.target_update(to=[sim.p])
        with pytest.raises(omp.LoopError):
            where(sim.p, sim.x, sim.y)


def test_check_on_cuda_observes_and_computes_there(cuda, observed):
    """With ``check=True`` a loop on CUDA is observed on copies of its arrays, and its results are the device's."""
    cuda.p[:] = np.random.default_rng(5).permutation(N)
    expected = cuda.y.copy()
    scatter.python(cuda.p, cuda.x, expected)
    scatter(cuda.p, cuda.x, cuda.y)
    assert (cuda.y == expected).all()
    assert len(observed) == 1
    assert [name for name, *_ in omp.current_runtime().places[0].device.kernels.launches] == ["loop"]
    before = cuda.y.copy()
    cuda.p[0] = cuda.p[1]
    with pytest.raises(omp.LoopError, match="'y'"):
        scatter(cuda.p, cuda.x, cuda.y)
    assert (cuda.y == before).all()
