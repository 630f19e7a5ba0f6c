"""Calls of speculative loops as programs make them: what is mapped, who waits, what cancels, what is refused."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, to, tofrom
from offload.loops import mapping
from offload.loops.speculative import race as racing
from offload.loops.speculative.competitor import running
from offload.loops.speculative.speculation import forget
from tests.conftest import checked
from tests.loops.test_competitor import n_threads
from tests.loops.test_race import Held
from tests.strict import IS_COMPILED

pytestmark = pytest.mark.usefixtures("free_core")

N = 500


def update(p, x, y):
    for i in range(p.size):
        y[p[i]] = 0.5 * y[p[i]] + x[i]


def hidden(p, q, y, w):
    """Only a run tells which places it writes to."""
    for i in range(p.size):
        w[p[i]] = q[i]
        y[w[p[i]]] += i


def inputs(*, collides=False, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.permutation(N)
    if collides:
        p[N // 2] = p[N // 3]
    return p, rng.random(N), rng.random(N)


def serial(function, *arguments):
    copies = [one.copy() for one in arguments]
    function(*copies)
    return copies


@pytest.fixture
def copies(monkeypatch):
    """Note the copies between the host and the device."""
    made = []
    from offload.devices.sim.device import SimDevice

    copy = SimDevice.copy

    def noted(device, dst, src, stream):
        made.append(dst.shape)  # no array is kept
        return copy(device, dst, src, stream)

    monkeypatch.setattr(SimDevice, "copy", noted)
    return made


def quiet():
    return warnings.catch_warnings(action="ignore", category=omp.SpeculationWarning)


def test_a_loop_that_has_to_run_in_order_maps_nothing(copies):
    """The first call, and those after a dependence was seen, work on the program's own arrays."""
    loop = omp.target_loop(speculate=True)(update)
    p, x, y = inputs(collides=True)
    with checked("sim:1"):
        for _ in range(3):
            expected = serial(update, p, x, y)
            loop(p, x, y)
            assert (y == expected[2]).all()
        assert loop.explain(p, x, y).to_dict()["speculation"]["last"] == "host"
    assert not copies


def test_arrays_that_are_present_are_fetched_and_sent_back():
    """The device's contents count, and the program's own array stays what it is until an update."""
    loop = omp.target_loop(speculate=True)(update)
    p, x, y = inputs(collides=True)
    before = y.copy()
    expected = before.copy()
    with checked("sim:1"):
        with omp.target_data(map=[tofrom(y)]):
            y[:] = -1  # nobody asks for that
            for _ in range(3):
                update(p, x, expected)
                loop(p, x, y)
            assert (y == -1).all()
        assert (y == expected).all()


@pytest.mark.parametrize("item", [to, omp.alloc])
def test_what_the_clauses_do_not_copy_back_stays(item):
    """An array that is mapped to the device only keeps its contents on the host, wherever the loop runs."""
    p, x, y = inputs(collides=True)
    before = y.copy()
    loop = omp.target_loop(speculate=True, map=[item("y")])(update)
    with checked("sim:1"), quiet():
        for _ in range(3):
            loop(p, x, y)
            assert (y == before).all()


def test_a_call_that_does_not_wait_is_run_by_others():
    """With nowait a call returns while the device is held, and what depends on it comes after it."""
    p, x, y = inputs()
    expected = y.copy()
    loop = omp.target_loop(speculate="always", nowait=True, depend=[inout("y"), in_("p")])(update)
    gate = threading.Event()
    with checked("sim:1", num_threads=2), omp.target_data(map=[tofrom(y)]):
        hold = omp.target(nowait=True, depend=[inout("y")])(lambda y: gate.wait(20) and None)(y)
        tasks = [loop(p, x, y) for _ in range(3)]
        assert not any(task.done() for task in tasks)
        assert not hold.done()
        gate.set()
        omp.taskwait()
        omp.target_update(from_=[y])
    for _ in tasks:
        update(p, x, expected)
    assert (y == expected).all()


def test_in_a_graph_it_is_replayed_on_streams():
    """`records` says why, and values are right, also when the verdict changes between replays."""
    loop = omp.target_loop(speculate=True, nowait=True, depend=[inout("y")])(update)
    p, x, y = inputs()
    expected = y.copy()

    @omp.taskgraph
    def region(p, x, y):
        loop(p, x, y)
        loop(p, x, y)

    with checked("sim:1"), quiet():
        for replay in range(4):
            if replay == 2:
                p[1] = p[0]
            for _ in range(2):
                update(p, x, expected)
            region(p, x, y)
            assert (y == expected).all()
        (record,) = region.records
        assert not record.is_captured


def test_a_graph_of_a_device_is_refused_with_the_reason(cuda):
    """Of a device that has graphs the reason is the speculation."""
    from offload.devices.sim.device import SimDevice

    loop = omp.target_loop(speculate=True, nowait=True, depend=[inout("y")])(update)
    p, x, y = inputs()

    @omp.taskgraph
    def region(p, x, y):
        loop(p, x, y)

    with mock.patch.object(SimDevice, "graph_capture", return_value=object()):
        region(p, x, y)
        region(p, x, y)
        (record,) = region.records
        assert "speculates" in record.why_not


def test_ctrl_c_during_a_race_leaves_everything_as_it_was(monkeypatch):
    """KeyboardInterrupt comes out of the call; arrays are as before, and no thread is left."""
    import signal

    loop = omp.target_loop(speculate="always")(update)
    arrays = inputs()
    before = [one.copy() for one in arrays]
    gate = threading.Event()
    is_struck = []

    class Slow(racing.DeviceChunks):
        def start(self):
            self._stream.launch(gate.wait, 20)
            super().start()

        def poll(self):
            if not is_struck:
                is_struck.append(True)
                signal.raise_signal(signal.SIGINT)
            gate.set()
            return super().poll()

    monkeypatch.setattr(racing, "Competitor", Held)
    monkeypatch.setattr(racing, "DeviceChunks", Slow)
    with checked("sim:1"):
        for around in (contextlib.nullcontext(), omp.target_data(map=[tofrom(one) for one in arrays])):
            is_struck.clear()
            with around, pytest.raises(KeyboardInterrupt):
                loop(*arrays)
    assert all((one == other).all() for one, other in zip(arrays, before, strict=True))
    assert n_threads() == 0
    assert not running


def test_a_violation_in_a_race_is_told_once_and_the_loop_runs_in_order():
    """The warning names the array and the element; results are serial ones before and after."""
    loop = omp.target_loop(speculate=True)(hidden)
    rng = np.random.default_rng(1)
    p, w = rng.permutation(N), np.zeros(N, np.int64)
    with checked("sim:1"), racing.alone(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for call in range(6):
            q = rng.permutation(N)
            if call in (3, 4):
                q[N // 2] = q[3]
            y = rng.integers(0, 9, N)
            expected = serial(hidden, p, q, y, w)
            loop(p, q, y, w)
            assert (y == expected[2]).all()
            where = loop.explain(p, q, y, w).to_dict()["speculation"]["last"]
            assert where == ("device" if 0 < call < 3 else "host")
    (warning,) = [one for one in said if issubclass(one.category, omp.SpeculationWarning)]
    assert "y[" in str(warning.message)
    assert "i=3" in str(warning.message)


def test_a_serial_run_that_raises_leaves_what_python_leaves_in_a_profiled_call():
    """The first call is a run in order: its exception, and what it has written until then."""
    loop = omp.target_loop(speculate=True)(update)
    p, x, y = inputs()
    p[100] = N
    expected = y.copy()
    with pytest.raises(IndexError):
        update(p, x, expected)
    for called in (loop, loop.options(if_=False)):
        got = y.copy()
        with checked("sim:1"), pytest.raises(IndexError, match="i=100"):
            called(p, x, got)
        assert (got == expected).all()


def test_on_the_host_there_is_no_race():
    """With the host as its device a loop of which nothing is proved runs in order."""
    loop = omp.target_loop(speculate="always", if_=False)(update)
    p, x, y = inputs(collides=True)
    expected = serial(update, p, x, y)
    with checked("sim:1"), mock.patch.object(racing, "race", side_effect=AssertionError):
        loop(p, x, y)
    assert (y == expected[2]).all()


WITH_A_CORE = """
import runpy, sys
from offload.loops.speculative import race
race._has_core = lambda engine: True  # workers that have not slept yet count as busy
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.skipif(not IS_COMPILED, reason="it is the others that run so then")
def test_without_a_compiler_everything_is_right(tmp_path):
    """OFFLOAD_CC=none: the example of speculation ends well, only slower."""
    example = Path(__file__).parents[2] / "examples" / "loops_speculation.py"
    done = subprocess.run(
        [sys.executable, "-c", WITH_A_CORE, example, "300"],
        env={**__import__("os").environ, "OFFLOAD_CC": "none", "OFFLOAD_DEVICES": "sim:1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "SpeculationWarning" in done.stdout


def test_a_cheap_loop_stays_on_the_host_once_that_is_known_to_be_quicker():
    """After a profile and two calls on the device the loop runs on the host, and the device is tried again later."""
    for _ in range(4):  # times decide, and a busy machine may make the host look slow
        where = _sides_of_a_cheap_loop()
        assert where[0] == "host"
        assert where[1:3] == ["device", "device"]
        if where[3:].count("device") <= 2:
            break
    if IS_COMPILED:
        assert where[3:].count("device") <= 2
        assert where[3:].count("host") >= 50


def _sides_of_a_cheap_loop():
    """Return which side won each of 60 calls of a loop that takes microseconds in order."""
    loop = omp.target_loop(speculate=True)(update)
    p, x, y = inputs()
    expected = y.copy()
    where = []
    with checked("sim:1"):
        forget(loop)
        for _ in range(60):
            loop(p, x, y)
            update(p, x, expected)
            where.append(loop.explain(p, x, y).to_dict()["speculation"]["last"])
    assert (y == expected).all()
    return where


def test_the_short_way_is_left_when_an_array_becomes_present():
    """What stays on the host does so while its arrays are the host's alone."""
    loop = omp.target_loop(speculate=True)(update)
    p, x, y = inputs(collides=True)
    expected = y.copy()
    with checked("sim:1"):
        for _ in range(3):
            loop(p, x, y)
            update(p, x, expected)
        with omp.target_data(map=[tofrom(y)]):
            y[:] = 7
            loop(p, x, y)
            update(p, x, expected)
            assert (y == 7).all()
        assert (y == expected).all()
        loop(p, x, y)
        update(p, x, expected)
        assert (y == expected).all()


def test_the_short_way_keeps_the_name():
    """A call that stays on the host is called in an error what ``name`` says."""
    loop = omp.target_loop(speculate=True, name="scatter")(update)
    p, x, y = inputs(collides=True)
    with checked("sim:1"):
        for _ in range(3):
            loop(p, x, y)
        p[1] = y.size
        with pytest.raises(IndexError) as caught:
            loop(p, x, y)
    assert "in target_loop 'scatter'" in caught.value.__notes__[0]


@pytest.mark.parametrize("speculate", [True, "always"])
def test_values_of_tasks_are_arguments(speculate):
    """A loop that is given a task gets its value, whatever becomes of the call."""
    loop = omp.target_loop(speculate=speculate)(update)
    p, x, y = inputs()
    expected = y.copy()
    with checked("sim:1"), quiet():
        for call in range(4):
            if call == 2:
                p[1] = p[0]
            loop(p, omp.task()(x.copy)(), y)
            update(p, x, expected)
            assert (y == expected).all()


def test_an_index_that_the_inspector_finds_outside_lets_nothing_run_in_parallel():
    """One iteration leaves an array: the error is Python's, and arrays hold what Python leaves."""

    def chosen(p, q, x, y, z):
        for i in range(p.size):
            z[q[i]] = i
            if x[i] > 2:
                y[p[i]] = z[q[i]]
                z[q[i]] += y[p[i]]

    loop = omp.target_loop(speculate=True)(chosen)
    rng = np.random.default_rng(3)
    with checked("sim:1"), quiet():
        for call in range(3):
            p, q, x = rng.permutation(N), rng.permutation(N), rng.integers(0, 6, N)
            y, z = np.zeros(N, np.int64), np.zeros(N, np.int64)
            if call == 2:
                p[N // 3], x[N // 3] = N + 5, 3
            arrays = p, q, x, y, z
            copies = [one.copy() for one in arrays]
            with contextlib.nullcontext() if call < 2 else pytest.raises(IndexError):
                chosen(*copies)
            raises = contextlib.nullcontext() if call < 2 else pytest.raises(IndexError, match=f"i={N // 3}")
            with omp.target_data(map=[tofrom(one) for one in arrays]), raises:
                loop(*arrays)
            del raises  # an error that somebody keeps keeps arrays
            assert all((one == other).all() for one, other in zip(arrays, copies, strict=True))


@pytest.mark.parametrize("speculate", [True, "always"])
def test_a_divisor_that_has_become_zero_is_seen_before_the_loop_runs_in_parallel(speculate):
    """Whatever is remembered of a loop, a division by zero leaves what the serial program had written until then."""

    @omp.target_loop(speculate=speculate)
    def divided(p, x, d, y):
        for i in range(p.size):
            y[p[i]] = int(x[i]) // int(d[i]) + y[p[i]]

    p, x, d, y = np.random.default_rng(1).permutation(N), np.arange(N), np.ones(N, int), np.zeros(N, int)
    with checked("sim:1", seed=1):
        with omp.target_data(map=[to(p, x, d), tofrom(y)]):
            for _ in range(4):
                divided(p, x, d, y)
            d[N // 3] = 0
            omp.target_update(to=[d], from_=[y])
            wanted = y.copy()
            with pytest.raises(ZeroDivisionError):
                divided.python(p, x, d, wanted)
            with quiet(), pytest.raises(ZeroDivisionError):
                divided(p, x, d, y)
        assert np.array_equal(y, wanted)


def test_a_remembered_call_asks_for_its_clauses_once(monkeypatch):
    """With the same arrays, present, a later call is bound as one before; when they are no longer it is right."""
    p, x, y = inputs()
    loop = omp.target_loop(update, speculate=omp.profile_dependences(update, (p, x, y)))
    ways = []
    encounter, bound = type(loop)._named_recipe, mapping.map_found
    monkeypatch.setattr(type(loop), "_named_recipe", lambda *args: ways.append("named") or encounter(*args))
    monkeypatch.setattr(mapping, "map_found", lambda *args: ways.append("bound") or bound(*args))
    expected = serial(update, p, x, y)
    with checked("sim:1"):
        with omp.target_data(map=[to(p, x), tofrom(y)]):
            for _ in range(4):
                loop(p, x, y)
        expected = [expected[0], expected[1], serial(update, *serial(update, *serial(update, *expected)))[2]]
        assert (y == expected[2]).all()
        assert ways == ["bound"]
        loop(p, x, y)
    assert (y == serial(update, *expected)[2]).all()
