"""``speculate``: what a call decides, what is remembered and for how long, what it is refused with."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import offload as omp
from offload import to, tofrom
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from offload.loops.running.memo import Memo
from offload.loops.speculative.log_runs import Log
from offload.loops.watched.exchange_log import MOST_IDS
from tests.conftest import checked
from tests.loops.facts import facts
from tests.loops.speculation import N, P, Q, noted, quiet
from tests.loops.test_versions import CASES
from tests.profiles import few

pytestmark = pytest.mark.usefixtures("free_core")

X = np.arange(30.0)


def scattered(p, x, y):
    for i in range(p.size):
        y[p[i]] = x[i]


def updated(a, p, x, y):
    for i in range(p.size):
        y[p[i]] = a * y[p[i]] + x[i]


def shifted(p, y, by):
    for i in range(p.size):
        y[p[i] + by] = i


def chained(p, w, y):
    for i in range(p.size):
        w[p[i]] = i
        y[w[p[i]]] = 1


def last(loop, *arguments):
    return loop.explain(*arguments).to_dict()["speculation"]["last"]


# -- the order of decisions --------------------------------------------------------------------------------


def test_what_is_proved_is_decided_at_once(sim):
    """A loop that is proved parallel runs so; one that is proved to depend runs in order on the host. No log."""

    def moved(a, m):
        for i in range(12):
            a[i] = a[i + m] + 1

    loop = omp.target_loop(moved, speculate=True)
    with noted() as found:
        for m, mode, where in ((12, "off", "device"), (1, "sequential", "host"), (0, "off", "device")):
            a = np.arange(24.0)
            expected = a.copy()
            moved(expected, m)
            loop(a, m)
            assert (a == expected).all()
            facts_of = loop.explain(a, m).to_dict()["speculation"]
            assert (facts_of["mode"], facts_of["last"]) == (mode, where)
    assert not found


def test_a_certain_dependence():
    """It is an error where iterations are asserted to be independent, with `check` too, and none under `speculate`."""

    def in_place(a):
        for i in range(1, a.size):
            a[i] = a[i - 1] + 1

    for clauses in ({}, {"check": True}, {"check": True, "speculate": True}):
        with checked("sim:1"), pytest.raises(omp.LoopError):
            omp.target_loop(in_place, **clauses)(np.zeros(9))
    for word in (True, "always"):
        a = np.zeros(9)
        with checked("sim:1"):
            omp.target_loop(in_place, speculate=word)(a)
        assert (a == np.arange(9)).all()


def test_first_profiled_then_inspected_then_remembered(sim):
    """The first call runs in order, the second is inspected, later ones go by what is remembered: present arrays."""
    loop = omp.target_loop(updated, speculate=True)
    p, y, expected = P.copy(), np.zeros(N), np.zeros(N)
    where, inspected = [], []
    with omp.target_data(map=[to(p, X), tofrom(y)]), noted() as found:
        for k in range(5):
            loop(0.5 + k, p, X, y)  # what reaches no address changes nothing
            updated(0.5 + k, p, X, expected)
            where.append(last(loop, 0.5, p, X, y))
            inspected.append(len(found))
    assert (y == expected).all()
    assert where == ["host", "device", "device", "device", "device"]
    assert inspected == [0, 0, 0, 0, 0]  # the profile was of these very arguments
    with omp.target_data(map=[to(p, X), tofrom(y)]), noted() as found:
        for _ in range(3):
            loop(0.5, p, X, y)
    assert found == [None]


def test_arrays_that_no_entry_keeps_are_inspected_each_time(sim):
    """Of arrays that each call maps nothing is known in the next one."""
    loop = omp.target_loop(scattered, speculate=True)
    with noted() as found:
        for _ in range(4):
            y = np.zeros(N)
            loop(P, X, y)
            assert (y[P] == X[:N]).all()
    assert found == [None] * 3


def test_scalars_and_extents_are_part_of_what_is_remembered(sim):
    """Another scalar that reaches an address, and other extents, are inspected; the same ones again are not."""
    loop = omp.target_loop(shifted, speculate=True)
    p, y = P.copy(), np.zeros(40)
    with omp.target_data(map=[to(p), tofrom(y)]), noted() as found:
        counts = []
        for by in (0, 0, 1, 1, 0, 2):
            loop(p, y, by)
            counts.append(len(found))
        loop(p[:6], y, 0)
        loop(p[:6], y, 0)
        counts.append(len(found))
    assert counts == [0, 0, 1, 1, 1, 2, 3]


def test_so_many_verdicts_are_remembered():
    """Those of 64 calls, the latest; one that is used again stays."""
    verdicts = Memo()
    for k in range(64):
        verdicts.keep(k, value=True)
    assert verdicts.use(0)
    verdicts.keep(64, value=True)
    assert verdicts.use(1) is None
    assert verdicts.use(0) is True
    assert verdicts.use(64) is True
    assert verdicts.use(None) is None
    assert len(verdicts) == 64


@pytest.mark.parametrize("case", few(12, CASES))
def test_what_writes_has_the_loop_inspected_again(case, monkeypatch):
    """After each construct that may write to the indices a remembered verdict is not used."""
    with facts("sim", monkeypatch) as at, at.present(), contextlib.ExitStack() as stack:
        loop, y = omp.target_loop(scattered, speculate=True), np.zeros(at.x.size)
        for _ in range(3):
            loop(at.p, at.x, y)
        if inspect.isgeneratorfunction(case):
            stack.enter_context(contextlib.contextmanager(case)(at.p))
        else:
            case(at.p)
        with noted() as found, quiet(), pytest.raises(IndexError):
            loop(at.p, at.x, y)
        assert len(found) == 1


def test_a_dependence_that_is_met_later():
    """Profiled on a permutation, run on a collision: serial results, one warning, and in order from then on."""
    loop = omp.target_loop(scattered, speculate=True)
    seen = []
    with checked("sim:1", seed=5), noted() as found, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for p in (P, P, Q, Q, P):
            y, expected = np.zeros(N), np.zeros(N)
            loop(p, X, y)
            scattered(p, X, expected)
            assert (y == expected).all()
            seen.append(last(loop, p, X, y))
    assert seen == ["host", "device", "host", "host", "host"]
    assert len(found) == 2
    (warning,) = [one.message for one in caught if issubclass(one.category, omp.SpeculationWarning)]
    assert "y[" in str(warning)
    assert str(pickle.loads(pickle.dumps(warning))) == str(warning)
    violation = found[1]
    first, second = sorted(violation.iterations)
    assert Q[first] == Q[second] == violation.element[0]


def test_a_first_call_that_depends(sim):
    """A profile that sees a dependence has the loop run in order from now on, without a log and without a warning."""
    loop = omp.target_loop(scattered, speculate=True)
    with noted() as found:
        for p in (Q, P, P):
            y, expected = np.zeros(N), np.zeros(N)
            loop(p, X, y)
            scattered(p, X, expected)
            assert (y == expected).all()
            assert last(loop, p, X, y) == "host"
    assert not found


def test_addresses_that_are_computed_are_attempted(sim):
    """A loop whose addresses follow from what it writes has no inspector: it runs with its log."""
    loop = omp.target_loop(chained, speculate=True)
    p, w = P.copy(), np.zeros(N, int)
    assert loop.explain(p, w, np.zeros(N)).to_dict()["speculation"]["mode"] == "log"
    assert omp.target_loop(scattered, speculate=True).explain(p, X, X.copy()).to_dict()["speculation"] == {
        "mode": "inspector",
        "logged": ["y"],
        "last": None,
    }
    with noted() as found:
        for _ in range(3):
            y, w[:] = np.zeros(N), 0
            loop(p, w, y)
            assert (y == 1).all()
    assert found == [None, None]


# -- harm ----------------------------------------------------------------------------------------------------


def test_garbage_indices_do_no_harm():
    """An index that is out of range, or a division by zero, only while iterations meet, is no error."""

    def stepped(a, k, y):
        for i in range(1, 12):
            a[k[i]] = a[k[i - 1]] + 1
            y[a[k[i]]] = 60 // a[k[i - 1]]

    k = np.arange(12)
    for seed in range(20):
        a, y = np.full(12, -1000), np.zeros(13, int)
        a[0] = 1
        expected = a.copy(), y.copy()
        stepped(expected[0], k, expected[1])
        with checked("sim:1", seed=seed), quiet():
            omp.target_loop(stepped, speculate="always")(a, k, y)
        assert (a == expected[0]).all()
        assert (y == expected[1]).all()


def test_a_loop_that_would_never_end():
    """A ``while`` that goes on for ever while iterations meet ends, and the result is the serial one."""

    def walked(a, k, y):
        for i in range(1, 6):
            a[k[i]] = a[k[i - 1]] + 1
            n = a[k[i]]
            while n != 0:
                n -= 1
                y[i] += 1

    k = np.arange(6)
    for seed in range(2):
        a, y = np.full(6, -5), np.zeros(6, int)
        a[0] = 1
        expected = a.copy(), y.copy()
        walked(expected[0], k, expected[1])
        with checked("sim:1", seed=seed), quiet(), noted() as found:
            omp.target_loop(walked, speculate="always")(a, k, y)
        assert found != [None]
        assert (a == expected[0]).all()
        assert (y == expected[1]).all()


def test_an_inspector_finds_what_is_outside(sim):
    """An index out of range is found before the loop runs; the serial run raises it, with what it has written."""
    loop = omp.target_loop(scattered, speculate=omp.profile_dependences(scattered, (P, X, X.copy())))
    p, y, expected = P.copy(), np.zeros(N), np.zeros(N)
    p[7] = 99
    with pytest.raises(IndexError):
        scattered(p, X, expected)
    with noted() as found, pytest.raises(IndexError, match="i=7"):
        loop(p, X, y)
    assert found != [None]
    assert (y == expected).all()  # nothing behind the iteration that fails
    assert last(loop, p, X, y) == "host"


def words_of(place):
    """Return the words that are kept beside storage on a device."""
    return [one for entry in place.table.entries() for kept in (entry.beside or {}).values() for one in kept]


# -- words ---------------------------------------------------------------------------------------------------


def test_ids_wrap(sim, monkeypatch):
    """Just below 2**32 the words are cleared, once, and the loop goes on right."""
    cleared = []
    clear = Log._clear
    monkeypatch.setattr(Log, "_clear", lambda self, words: cleared.append(words) or clear(self, words))
    loop = omp.target_loop(updated, speculate="always")
    p, y, expected = P.copy(), np.zeros(N), np.zeros(N)
    bases = []
    make = Log.__init__

    def made(self, *args):
        make(self, *args)
        bases.append((self.base, self.many))

    monkeypatch.setattr(Log, "__init__", made)
    with omp.target_data(map=[to(p, X), tofrom(y)]), noted() as found:
        loop(0.5, p, X, y)
        place = omp.current_runtime().places[0]
        words_of(place)[0].base = MOST_IDS - 2 * (N + 1)
        n_cleared = len(cleared)
        for _ in range(4):
            loop(0.5, p, X, y)
        assert len(cleared) == n_cleared + 1
    for _ in range(5):
        updated(0.5, p, X, expected)
    assert (y == expected).all()
    assert found == [None] * 5
    assert [base for base, _ in bases] == [0, MOST_IDS - 2 * (N + 1), MOST_IDS - (N + 1), 0, N + 1]
    assert all(many <= MOST_IDS for _, many in bases)


def test_words_stay_with_present_storage(sim):
    """Two loops use the same words, ids of the second being above those of the first; they go with the storage."""
    one, other = omp.target_loop(scattered, speculate="always"), omp.target_loop(updated, speculate="always")
    p, y, expected = P.copy(), np.zeros(N), np.zeros(N)
    place = omp.current_runtime().places[0]
    with omp.target_data(map=[to(p, X), tofrom(y)]), noted() as found:
        for k in range(3):
            one(p, X, y)
            other(0.5, p, X, y)
            scattered(p, X, expected)
            updated(0.5, p, X, expected)
            assert [one.base for one in words_of(place)] == [2 * (k + 1) * (N + 1)]
    assert found == [None] * 6
    assert (y == expected).all()
    assert place.device.live_nbytes() == 0


def test_parts_of_one_array_have_words_of_their_own(sim):
    """Two rows of one present array are logged by two sets of words, whatever the loop calls them."""

    def both(p, u, v):
        for i in range(p.size):
            u[p[i]] = v[p[i]] + 1.0
            v[p[i]] = u[p[i]] * 2.0

    loop, z = omp.target_loop(both, speculate="always"), np.zeros((2, N))
    expected, place = z.copy(), omp.current_runtime().places[0]
    with omp.target_data(map=[to(P), tofrom(z)]), noted() as found:
        for k in range(4):
            loop(P, z[k % 2], z[1 - k % 2])
            both(P, expected[k % 2], expected[1 - k % 2])
            assert len(words_of(place)) == 2
    assert found == [None] * 4
    assert (z == expected).all()


def test_without_memory_for_a_log(monkeypatch):
    """Where there is no memory for words the loop runs in order."""

    def refuse(self, n_cells):
        raise omp.DeviceMemoryError("none is left")

    monkeypatch.setattr(Log, "_made", refuse)
    for word in (True, "always"):
        with checked("sim:1"):
            loop = omp.target_loop(scattered, speculate=word)
            for _ in range(3):
                y = np.zeros(N)
                loop(P, X, y)
                assert (y[P] == X[:N]).all()
            assert last(loop, P, X, y) == "host"


# -- places --------------------------------------------------------------------------------------------------


def test_without_a_compiler(monkeypatch):
    """As Python everything is right."""
    for module in (plan, runs):
        monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    with checked("sim:1", seed=3), quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore", omp.PerformanceWarning)
        for word in (True, "always"):
            loop = omp.target_loop(updated, speculate=word)
            for p in (P, P, Q, P):
                y, expected = np.ones(N), np.ones(N)
                loop(0.5, p, X, y)
                updated(0.5, p, X, expected)
                assert (y == expected).all()


def test_on_the_host(sim):
    """With the host as its device a loop runs in parallel if that is proved, else in order."""
    for p in (P, Q):
        y, expected = np.zeros(N), np.zeros(N)
        omp.target_loop(scattered, speculate=True, if_=False)(p, X, y)
        scattered(p, X, expected)
        assert (y == expected).all()


def test_in_a_target_body(sim):
    """In a target body `speculate` is a UsageError."""
    loop = omp.target_loop(scattered, speculate=True)

    @omp.target
    def body(p, x, y):
        loop(p, x, y)

    with pytest.raises(omp.UsageError, match="speculate"):
        body(P, X, np.zeros(N))


def test_in_a_taskgraph(sim):
    """In a taskgraph each replay decides anew, on streams, and the record says why it is no graph of the device."""
    loop = omp.target_loop(updated, speculate=True)
    p, y, expected = P.copy(), np.zeros(N), np.zeros(N)

    @omp.taskgraph
    def region():
        loop(0.5, p, X, y)

    with quiet():
        for k in range(4):
            if k == 2:
                p[:] = Q
            region()
            updated(0.5, p, X, expected)
    assert (y == expected).all()


def test_a_deferred_call(sim):
    """With ``nowait`` the task decides, in its place among others."""
    loop = omp.target_loop(updated, speculate=True, nowait=True, depend=[omp.inout("y")])
    y, expected = np.zeros(N), np.zeros(N)
    with quiet():
        tasks = [loop(0.5, p, X, y) for p in (P, P, Q, P)]
        for task in tasks:
            task.result()
    for p in (P, P, Q, P):
        updated(0.5, p, X, expected)
    assert (y == expected).all()


def test_reductions_come_out(sim):
    """A scalar that is returned is right, in order, inspected and attempted."""

    def summed(p, x, y):
        s = 0.0
        for i in range(p.size):
            y[p[i]] = x[i]
            s += x[i]
        return s

    for word in (True, "always"):
        loop = omp.target_loop(summed, reduction={"+": ["s"]}, speculate=word)
        with quiet():
            for p in (P, P, Q, P):
                y = np.zeros(N)
                assert loop(p, X, y) == X[:N].sum()


@pytest.mark.parametrize("value", ["never", 2, 1.0, [], np.zeros(3)])
def test_wrong_values(value):
    """Anything but True, False, "always" and a profile is a ClauseError."""
    with pytest.raises(omp.ClauseError, match="speculate"):
        omp.target_loop(scattered, speculate=value)


def test_views_of_one_storage(sim):
    """Two views that overlap have the same words where they have the same elements."""

    def between(p, a, b):
        for i in range(p.size):
            a[p[i]] = b[p[i]] + 1

    loop = omp.target_loop(between, speculate="always")
    for first, is_parallel in ((0, True), (1, False), (12, True)):
        z = np.arange(40.0)
        expected = z.copy()
        between(P, expected[:12], expected[first : first + 12])
        with noted() as found, quiet():
            loop(P, z[:12], z[first : first + 12])
        assert (z == expected).all()
        assert [one is None for one in found] == [is_parallel] or not found


def test_atomic_beside_plain(sim):
    """Atomic steps are logged as stores where the array is also read; alone they are no dependence."""

    def counted(p, h, y):
        for i in range(p.size):
            omp.atomic.add(h, p[i], 1)
            y[i] = h[p[i]]

    loop = omp.target_loop(counted, speculate="always")
    for p, is_parallel in ((P, True), (Q, False)):
        h, y, expected = np.zeros(N, int), np.zeros(N, int), [np.zeros(N, int), np.zeros(N, int)]
        with noted() as found, quiet():
            loop(p, h, y)
        counted(p, *expected)
        assert [one is None for one in found] == [is_parallel]
        assert (h == expected[0]).all()
        assert (y == expected[1]).all()


def test_notices(tmp_path):
    """At level 1 of OFFLOAD_NOTIFY each call says what became of it, and why."""
    program = """
        import numpy as np
        import offload as omp

        def f(p, y):
            for i in range(p.size):
                y[p[i]] = i

        with omp.Runtime("sim:1"):
            loop = omp.target_loop(f, speculate=True)
            for _ in range(2):
                loop(np.arange(9), np.zeros(9))
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    environment = {**os.environ, "OFFLOAD_NOTIFY": "1"}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("speculate")]
    assert ["in order" in lines[0], "in parallel" in lines[1], len(lines)] == [True, True, 2]


def test_decisions_as_cuda(cuda):
    """Where the host has no device's memory before it, arrays are fetched and sent back, and verdicts are the same."""
    loop = omp.target_loop(updated, speculate=True)
    y, expected, seen = np.zeros(N), np.zeros(N), []
    with quiet(), noted() as found:
        for p in (P, P, P[::-1].copy(), Q, P):
            loop(0.5, p, X, y)
            updated(0.5, p, X, expected)
            seen.append(last(loop, 0.5, p, X, y))
    assert (y == expected).all()
    assert seen == ["host", "device", "device", "host", "host"]
    assert [one is None for one in found] == [True, True, False]


def test_auto_and_seq(sim):
    """A loop that is `auto` is speculated without a warning that it runs in order; one that is `seq` is not."""
    for clauses, expected in (({"auto": True}, [None]), ({"seq": True}, [])):
        loop = omp.target_loop(scattered, speculate="always", **clauses)
        with noted() as found:
            y = np.zeros(N)
            loop(P, X, y)
            assert (y[P] == X[:N]).all()
        assert found == expected


def test_an_inspector_looks_at_all_indices(sim):
    """So is the index of an array that the loop only reads: no other iteration has written anything then."""

    def through(p, q, x, y):
        for i in range(p.size):
            y[p[i]] = x[q[i]]

    given = P.copy(), np.arange(N), X, np.zeros(N)
    loop = omp.target_loop(through, speculate=omp.profile_dependences(through, given))
    q, y, expected = np.arange(N), np.zeros(N), np.zeros(N)
    q[5] = 99
    with pytest.raises(IndexError):
        through(P, q, X, expected)
    with noted() as found, pytest.raises(IndexError, match=r"'x'.*i=5"):
        loop(P, q, X, y)
    assert found != [None]
    assert (y == expected).all()


def test_what_fails_by_its_values_is_not_only_remembered(sim):
    """A loop whose divisors have changed is raced again: if one is zero, nothing behind that iteration is written."""

    def divided(p, z, y):
        for i in range(p.size):
            y[p[i]] = 60 // z[i]

    loop = omp.target_loop(divided, speculate=True)
    p, z, y, expected = P.copy(), np.arange(1, N + 1), np.zeros(N, int), np.zeros(N, int)
    with omp.target_data(map=[to(p, z), tofrom(y)]), noted():
        for _ in range(3):
            loop(p, z, y)
        divided(p, z, expected)
        z[4] = 0
        omp.target_update(to=[z])
        with np.errstate(all="raise"), pytest.raises(FloatingPointError):
            divided(p, z, expected)
        with pytest.raises(ZeroDivisionError, match="i=4"):
            loop(p, z, y)
        z[4] = 1  # the error was none of iterations that meet: the loop is not given up
        omp.target_update(to=[z])
        loop(p, z, y)
        divided(p, z, expected)
        assert last(loop, p, z, y) == "device"
    assert (y == expected).all()


def test_what_has_not_failed_is_remembered(sim):
    """A verdict about a loop that divides by elements holds for as long as these are the same."""

    def divided(p, x, z, y):
        for i in range(p.size):
            y[p[i]] = x[i] // z[i]

    loop = omp.target_loop(divided, speculate=True)
    p, x, z, y = P.copy(), np.arange(N), np.arange(1, N + 1), np.zeros(N, int)
    with omp.target_data(map=[to(p, x, z), tofrom(y)]), noted() as found:
        for call in range(5):
            x[:] += call
            omp.target_update(to=[x])
            loop(p, x, z, y)
            assert found == []  # the profile's verdict is enough
        z[2] = 3
        omp.target_update(to=[z])
        for _ in range(3):
            loop(p, x, z, y)
        assert found == [None]  # one race
    assert (y[p] == x // z).all()


def test_a_divisor_that_is_a_number_of_the_launch_needs_no_race(sim):
    """Addresses modulo an argument are inspected; where the argument is 0 the call raises, and has written nothing."""

    def wrapped(p, n, x, y):
        for i in range(p.size):
            y[p[i] % n] = x[i]

    loop = omp.target_loop(wrapped, speculate=True)
    for dtype in (np.int64, np.int32, np.uint8):
        p, y = P.astype(dtype), np.zeros(N)
        for _ in range(3):
            loop(p, N, X[:N], y)
            assert loop.explain(p, N, X[:N], y).to_dict()["speculation"]["mode"] == "inspector"
        assert (y[P] == X[:N]).all()
        before = y.copy()
        with pytest.raises(ZeroDivisionError):
            loop(p, 0, -X[:N], y)
        assert (y == before).all()
        assert loop.explain(p, 0, X[:N], y).to_dict()["speculation"]["mode"] == "log"
