"""Races of a loop on a simulated device with the serial program: who wins, what is left, whatever goes wrong."""

from __future__ import annotations

import contextlib
import random
import threading
from functools import partial
from unittest import mock

import numpy as np
import pytest

import offload as omp
from offload import tofrom
from offload.loops.running.arguments import on_host
from offload.loops.running.build import builder
from offload.loops.running.memo import CallRecord
from offload.loops.running.ordered_runs import ordered_runs
from offload.loops.running.plan import numbers_of
from offload.loops.running.preparation import view_at
from offload.loops.speculative import hostside
from offload.loops.speculative import race as racing
from offload.loops.speculative.competitor import Competitor, running
from offload.loops.speculative.contest import History
from offload.loops.speculative.race import race
from offload.loops.speculative.verdict_memory import Attempt
from offload.runtime.current import here
from tests.conftest import checked
from tests.loops.test_competitor import n_threads

pytestmark = pytest.mark.usefixtures("free_core")

N = 2000


def scatter(y, p, x):
    for i in range(p.size):
        y[p[i]] = y[p[i]] * 3 + x[i]


def chain(y, p, x):
    for i in range(p.size):
        y[i + 1] += y[p[i]] * x[i]


def total(y, p, x, s=0):
    for i in range(p.size):
        y[p[i]] += x[i]
        s += x[i]
    return s


class Device:
    """A run on a simulated device that is parallel in the worst way: trips in any order, each chunk for itself.

    `wrong_at` is the trip with which the logs show a violation; `gate` holds the stream until it is set.
    """

    is_whole = is_open = False
    live = 0

    def __init__(self, spec, values, task, *, wrong_at=None, gate=None, fails=None, seed=0):
        Device.live += 1
        arrays = {name: on_host(values[name]) for name in spec.given}
        (self.run,) = ordered_runs(spec, {**values, **arrays})
        self.trips = self.run.trips
        self.stream, self.wrong_at, self.gate, self.fails = task.lane.stream, wrong_at, gate, fails
        self.random = random.Random(seed)
        self.passed, self.chunks = 0, 0

    def launch(self, begin, end):
        self.chunks += 1
        if self.fails == self.chunks:
            raise RuntimeError("no launch")
        self.stream.launch(self._carry_out, begin, end)

    def _carry_out(self, begin, end):
        if self.gate is not None:
            assert self.gate.wait(20)
        trips = list(range(begin, end))
        self.random.shuffle(trips)
        for trip in trips:
            self.run.run(trip, trip + 1)
        self.passed = end

    def ask(self):
        pass

    def finish(self):
        pass

    def found(self):
        failure = self.run.failure()
        if failure is not None:
            return failure
        return "collision" if self.wrong_at is not None and self.passed > self.wrong_at else None

    def results(self):
        return self.run.finish()

    def close(self):
        Device.live -= 1


def raced(loop, *arrays, record=None, maps=None, wait=True, **device):
    """Have a loop race in a target region; return the outcome."""
    program = loop.options(speculate="always" if record is None else True)._program
    outcomes = []

    def body(*given):
        task = here().task
        values = program.bound(given, {})
        spec = program.specialise(values)
        numbers = numbers_of(spec, values, partial(view_at, task.place.device))
        numbers = numbers._replace(record=CallRecord() if record is None else record)
        attempt = Attempt(spec, numbers, None, None, values, {}, task)
        with mock.patch.object(racing, "LoggedRun", partial(made, spec, values, task, device)):
            outcome = race(attempt)
        if outcome.error is not None:
            raise outcome.error
        outcomes.append(outcome)

    clauses = {"map": maps} if maps is not None else {}
    omp.target(nowait=not wait, **clauses)(body)(*arrays)
    return outcomes[0] if wait else outcomes


@pytest.fixture
def quiet():
    """Have no thread, no copy and no log left."""
    yield
    assert n_threads() == 0
    assert not running
    assert Device.live == 0


@pytest.fixture
def competitor():
    """Skip where there is no C compiler, and so no competitor."""
    if builder.compiler is None:
        pytest.skip("no C compiler")


def made(spec, values, task, words, *_):
    """Return the run of a device, whatever a logged one is made of."""
    return Device(spec, values, task, **words)


LOOPS = {function: omp.target_loop(function) for function in (scatter, chain)}


def inputs(collides, seed=0, n=N):
    rng = np.random.default_rng(seed)
    p = rng.permutation(n)
    if collides:
        p[n // 2 :] = p[: n - n // 2]
    return rng.integers(0, 9, n + 1), p, rng.integers(0, 5, n)


def expected(loop, arrays):
    copies = [array.copy() for array in arrays]
    loop.python(*copies)
    return copies


class Held(Competitor):
    """A competitor that does not come to an end by itself: its last slice waits for whoever gives it up."""

    @property
    def has_ended(self):
        return super().has_ended and bool(self._words.cancel)

    @property
    def is_complete(self):
        return False


@pytest.mark.usefixtures("competitor")
@pytest.mark.parametrize("is_present", [False, True])
@pytest.mark.parametrize("slow", ["neither", "device", "host"])
@pytest.mark.parametrize("collides", [False, True])
def test_whoever_wins_the_arrays_are_the_serial_ones(quiet, monkeypatch, collides, slow, is_present):
    """Whichever side is slow, and whether there is a collision or not, arrays hold what the serial program leaves."""
    loop, arrays = LOOPS[scatter], inputs(collides)
    wanted = expected(loop, arrays)
    gate = threading.Event() if slow == "device" else None
    if slow == "host" and not collides:
        monkeypatch.setattr(racing, "Competitor", Held)
    if gate is not None:
        monkeypatch.setattr(racing, "Competitor", partial(opens, gate))
    with checked("sim:1"):
        around = omp.target_data(map=[tofrom(one) for one in arrays]) if is_present else contextlib.nullcontext()
        with around:
            outcome = raced(loop, *arrays, wrong_at=N // 2 if collides else None, gate=gate)
    for one, other in zip(arrays, wanted, strict=True):
        assert (one == other).all()
    if slow == "host" and not collides:
        assert outcome.winner == "device"
    if slow == "device" or collides:
        assert outcome.winner == "host"


def opens(gate, run):
    """Return a competitor that opens a gate when it has ended: the device cannot come first."""

    class Opens(Competitor):
        @property
        def has_ended(self):
            ended = super().has_ended
            if ended:
                gate.set()
            return ended

    return Opens(run)


# -- what may go wrong -----------------------------------------------------------------------------------


def faulty(at=N // 3, n=N):
    y, p, x = inputs(collides=False, n=n)
    p[at] = 10 * n
    return y, p, x


@pytest.mark.parametrize("is_present", [False, True])
def test_what_the_serial_program_raises_is_raised_and_what_it_wrote_is_there(quiet, is_present):
    """The call raises at iteration k as CPython does, and arrays hold what had been written until then."""
    arrays = faulty()
    wanted = [one.copy() for one in arrays]
    with pytest.raises(IndexError):
        scatter(*wanted)
    with checked("sim:1"):
        around = omp.target_data(map=[tofrom(one) for one in arrays]) if is_present else contextlib.nullcontext()
        with around, pytest.raises(IndexError, match=f"i={N // 3}"):
            raced(LOOPS[scatter], *arrays)
    for one, other in zip(arrays, wanted, strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_device_that_fails_is_a_device_that_was_wrong(quiet, chunk):
    """An error of a launch is no error of the call: the host's result is taken."""
    arrays = inputs(collides=False)
    wanted = expected(LOOPS[scatter], arrays)
    with checked("sim:1"):
        outcome = raced(LOOPS[scatter], *arrays, fails=chunk)
    assert outcome.winner == "host"
    assert all((one == other).all() for one, other in zip(arrays, wanted, strict=True))


@pytest.mark.parametrize("is_present", [False, True])
def test_a_commit_that_fails_leaves_the_arrays_as_they_were(quiet, monkeypatch, is_present):
    """What goes wrong while the host's result is sent is the task's error, and no array is changed in part."""
    arrays = inputs(collides=True)
    before = [one.copy() for one in arrays]
    monkeypatch.setattr(racing.HostSide, "commit", _fails)
    with checked("sim:1"):
        around = omp.target_data(map=[tofrom(one) for one in arrays]) if is_present else contextlib.nullcontext()
        with around, pytest.raises(RuntimeError, match="no copy"):
            raced(LOOPS[scatter], *arrays, wrong_at=N // 2)
    assert all((one == other).all() for one, other in zip(arrays, before, strict=True))


def _fails(self, arrays):
    raise RuntimeError("no copy")


def test_without_memory_for_logs_the_host_runs_alone(quiet):
    """A device that has no room for logs takes no part."""
    arrays = inputs(collides=True)
    wanted = expected(LOOPS[scatter], arrays)

    class NoRoom:
        def __call__(self, *args, **kwargs):
            raise omp.DeviceMemoryError("no room")

    with checked("sim:1"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.loops.test_race.Device", NoRoom())
        outcome = raced(LOOPS[scatter], *arrays)
    assert outcome == ("host", None, {}, None, False)
    assert all((one == other).all() for one, other in zip(arrays, wanted, strict=True))


@pytest.mark.parametrize("collides", [False, True])
def test_without_a_free_core_the_loop_runs_in_order(quiet, monkeypatch, collides):
    """Where all cores are busy there is no race."""
    monkeypatch.setattr(racing.pool, "n_cores", lambda: 0)
    arrays = inputs(collides)
    wanted = expected(LOOPS[scatter], arrays)
    with checked("sim:1"):
        outcome = raced(LOOPS[scatter], *arrays)
    assert (outcome.winner, outcome.raced) == ("host", False)
    assert all((one == other).all() for one, other in zip(arrays, wanted, strict=True))


@pytest.mark.parametrize("collides", [False, True])
def test_without_a_compiler_the_serial_program_runs_if_the_device_was_wrong(quiet, monkeypatch, collides):
    """Python is no quick competitor: it begins when nothing else is left."""
    monkeypatch.setattr(racing, "builder", type("NoCompiler", (), {"compiler": None}))
    arrays = inputs(collides)
    wanted = expected(LOOPS[scatter], arrays)
    with checked("sim:1"):
        outcome = raced(LOOPS[scatter], *arrays, wrong_at=N // 2 if collides else None)
    assert outcome.winner == ("host" if collides else "device")
    assert all((one == other).all() for one, other in zip(arrays, wanted, strict=True))


def test_ctrl_c_ends_a_race_and_nothing_has_changed(quiet, monkeypatch):
    """Both sides are stopped; arrays are as they were; the call raises KeyboardInterrupt."""
    import signal

    monkeypatch.setattr(racing, "Competitor", Held)
    arrays = inputs(collides=False)
    before = [one.copy() for one in arrays]
    with checked("sim:1"):
        strikes = Strikes(lambda: signal.raise_signal(signal.SIGINT))
        with omp.target_data(map=[tofrom(one) for one in arrays]), pytest.raises(KeyboardInterrupt):
            raced(LOOPS[scatter], *arrays, gate=strikes)
        assert strikes.n
    assert all((one == other).all() for one, other in zip(arrays, before, strict=True))


class Strikes:
    """A gate that does something, once, while the device is held."""

    def __init__(self, act):
        self.act, self.n = act, 0

    def wait(self, limit_s):
        self.n += 1
        if self.n == 1:
            self.act()
        return True


def test_a_taskgroup_that_is_cancelled_ends_a_race(quiet, monkeypatch):
    """A race is a cancellation point: both sides are stopped, and arrays are as they were."""
    monkeypatch.setattr(racing, "Competitor", Held)
    monkeypatch.setenv("OMP_CANCELLATION", "true")
    arrays = inputs(collides=False)
    before = [one.copy() for one in arrays]
    begun, may_go = threading.Event(), threading.Event()

    class Gate:
        def wait(self, limit_s):
            begun.set()
            return may_go.wait(limit_s)

    with checked("sim:1", num_threads=2), omp.target_data(map=[tofrom(one) for one in arrays]):
        with omp.taskgroup():
            outcomes = raced(LOOPS[scatter], *arrays, wait=False, gate=Gate())
            assert begun.wait(20)
            try:
                omp.cancel("taskgroup")
            finally:
                may_go.set()
        assert not outcomes
    assert all((one == other).all() for one, other in zip(arrays, before, strict=True))


def test_the_end_of_the_runtime_waits_for_a_race(quiet):
    """A race that runs when the program leaves is ended, and its result is there."""
    arrays = inputs(collides=True)
    wanted = expected(LOOPS[scatter], arrays)
    with omp.Runtime("sim:1"):
        outcomes = raced(LOOPS[scatter], *arrays, wait=False, wrong_at=N // 2)
    assert outcomes[0].winner == "host"
    assert all((one == other).all() for one, other in zip(arrays, wanted, strict=True))


@pytest.mark.usefixtures("competitor")
def test_a_competitor_that_is_due_later_starts_when_it_is_due(quiet, monkeypatch):
    """With a history of a quick device the competitor waits; a device that is held is overtaken all the same."""
    gate = threading.Event()
    monkeypatch.setattr(racing, "Competitor", partial(opens, gate))
    arrays = inputs(collides=False)
    wanted = expected(LOOPS[scatter], arrays)
    record = with_history(History(5, 5, 1e-3, 0.5, "device"))
    with checked("sim:1"):
        outcome = raced(LOOPS[scatter], *arrays, record=record, gate=gate)
    assert outcome.winner == "host"
    assert record.history.winner == "host"
    assert record.history.n_calls == 6
    assert all((one == other).all() for one, other in zip(arrays, wanted, strict=True))


def with_history(history):
    """Return the record of a call with a history."""
    record = CallRecord()
    record.history = history
    return record


def test_a_quick_device_wins_before_the_competitor_is_due(quiet, monkeypatch):
    """Normally the competitor does not start."""
    started = []
    monkeypatch.setattr(racing, "Competitor", started.append)
    arrays = inputs(collides=False)
    with checked("sim:1"):
        outcome = raced(LOOPS[scatter], *arrays, record=with_history(History(5, 5, 10.0, 1e6, "device")))
    assert outcome.winner == "device"
    assert not started


@pytest.mark.usefixtures("competitor")
def test_while_the_host_keeps_winning_the_device_does_not_start(quiet):
    """The loop runs in order, and no run on the device is made."""
    arrays = inputs(collides=False)
    wanted = expected(LOOPS[scatter], arrays)
    with checked("sim:1"):
        outcome = raced(LOOPS[scatter], *arrays, record=with_history(History(5, 5, 1.0, 1e-3, "host")))
    assert (outcome.winner, outcome.raced) == ("host", False)
    assert all((one == other).all() for one, other in zip(arrays, wanted, strict=True))


@pytest.mark.parametrize("is_present", [False, True])
def test_views_of_one_storage_are_views_of_one_copy(quiet, is_present):
    """What the loop writes through one name it reads through another, on the host's copies too."""

    def shifted(a, b, p):
        for i in range(p.size):
            a[p[i]] = b[p[i]] + 1

    loop = omp.target_loop(shifted)
    memory = np.arange(N + 1)
    p = np.random.default_rng(3).permutation(N)
    copy = memory.copy()
    shifted(copy[1:], copy[:-1], p)
    with checked("sim:1"):
        around = omp.target_data(map=[tofrom(memory)]) if is_present else contextlib.nullcontext()
        with around:
            maps = None if is_present else [tofrom(memory)]
            outcome = raced(loop, memory[1:], memory[:-1], p, wrong_at=1, maps=maps)
    assert outcome.winner == "host"
    assert (memory == copy).all()


def test_scalars_come_out_of_the_side_that_wins(quiet):
    """A reduction is the serial one, bit for bit, where the host wins."""
    loop = omp.target_loop(reduction={"+": ["s"]})(total)
    y, p, x = inputs(collides=True)
    y, x = y.astype(float), x / 7
    with checked("sim:1"):
        outcome = raced(loop, y, p, x, 0.1, wrong_at=1)
    assert outcome.results["s"] == total(y.copy(), p, x, 0.1)


@pytest.mark.mutants
@pytest.mark.usefixtures("competitor")
def test_a_competitor_on_the_callers_arrays_is_found(quiet, monkeypatch):
    """A mutant: what is given up must have changed nothing that the program sees, and then it has."""
    import signal

    mapped, found = hostside._mapped, {}
    monkeypatch.setattr(hostside, "_mapped", lambda *args: found.update(mapped(*args)) or found)
    monkeypatch.setattr(hostside, "arrays_like", lambda names, *_: {name: found[name][0] for name in names})
    arrays = inputs(collides=False)
    before = [one.copy() for one in arrays]

    class Strikes(Held):
        @property
        def has_ended(self):
            if Competitor.has_ended.fget(self) and not self._words.cancel:
                signal.raise_signal(signal.SIGINT)
            return super().has_ended

        def give_up(self):
            super().give_up()
            gate.set()

    monkeypatch.setattr(racing, "Competitor", Strikes)
    gate = threading.Event()
    with checked("sim:1"), pytest.raises(KeyboardInterrupt):
        raced(LOOPS[scatter], *arrays, gate=gate)
    assert not all((one == other).all() for one, other in zip(arrays, before, strict=True))
