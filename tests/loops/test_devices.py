"""The vectors of one loop on several devices, as programs run them: values, modes, ranges, predicates."""

from __future__ import annotations

import itertools
import random
import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.data.environment import DataEnvironment
from offload.data.ledger import PutOffError
from offload.devices.sim.device import SimDevice
from offload.devices.sim.kernels import SimKernel, SimKernels
from offload.loops import launch
from offload.loops import replicas as launching
from offload.loops.running.runs import NestForm
from offload.loops.sets.modes import Chooser
from offload.runtime.place import DevicePlace
from offload.views.dot import to_dot
from tests.conftest import checked
from tests.loops.cuda_device import HostCuda
from tests.loops.cuda_form import GXX
from tests.loops.on_devices import cut_by, present, same, words_of
from tests.loops.programs import PERMUTED
from tests.loops.test_filter import ROWS, N, floats
from tests.loops.test_filter_loops import MORE
from tests.profiles import few

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")


def loop_of(row, clauses, **words):
    """Return a row's loop function, the plain function, its scalars, and which of its arrays both are given."""
    function, scalars = row.function()
    loop = omp.target_loop(devices="all", **words_of(clauses), **words)(function)
    return loop, function, scalars


def run(row, clauses, weights, n=N, calls=2, **words):
    """Run a row twice on devices that hold its arrays, and compare with CPython; return what `explain` says."""
    loop, function, scalars = loop_of(row, clauses, **words)
    serial = {name: array.copy() for name, array in row.arrays.items()}
    mine = {name: array.copy() for name, array in row.arrays.items()}
    scalars = {**scalars, "n": n}
    with cut_by(weights), present(mine):
        for _ in range(calls):
            expected = function(**serial, **scalars)
            assert loop(**mine, **scalars) == expected
        facts = loop.explain(**mine, **scalars).to_dict()["filter"]
    private = {*clauses.private, *clauses.firstprivate}
    same(mine, {name: array for name, array in serial.items() if name not in private})
    return facts


def is_split(row):
    return row.mode != "single"


@pytest.mark.parametrize(
    ("n_devices", "exchange"),
    few(1, [(3, "lazy"), (3, "eager"), (2, "eager"), (4, "lazy"), (7, "eager")], are_rows=True),
)
def test_values_are_serial(n_devices, exchange):
    """Every row, by equal and by random cuts, in two calls, lazily and eagerly: values are CPython's, mode is split."""
    with checked(f"sim:{n_devices}"):
        for number, row in ROWS.items():
            rng = random.Random(10 * number + n_devices)
            for weights in ((1,) * n_devices, (*[rng.randint(0, 3) for _ in range(n_devices - 1)], 1)):
                filter_ = "always" if is_split(row) else "auto"
                facts = run(row, row.clauses, weights, exchange=exchange, filter=filter_)
                expected = "split" if sum(map(bool, weights)) and is_split(row) else "single"
                assert facts["mode"] == expected, number


def test_one_device_of_all():
    """Where there is one device nothing is divided: values are CPython's, the mode is off."""
    with checked("sim:1"):
        for number, row in ROWS.items():
            assert run(row, row.clauses, (1,), filter="always")["mode"] == "off", number


def test_how_loops_are_divided():
    """On four devices `explain` tells the rows' dimensions and predicates."""
    with checked("sim:4"):
        for number, row in ROWS.items():
            facts = run(row, row.clauses, (1, 1, 1, 1), filter="always" if is_split(row) else "auto")
            assert {name: one["dimension"] for name, one in facts["arrays"].items()} == row.dimensions, number
            terms = [one["terms"] for one in facts["predicates"]]
            assert terms == [None if one is None else [list(term) for term in one] for one in row.terms], number
            assert facts["devices"] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", few(8, MORE))
@PERMUTED
def test_more_loops(name):
    """Clauses, collapsed loops, downward steps, negative indices: values are CPython's, by equal and by other cuts."""
    row, clauses, mode = MORE[name]
    arrays = {"x": floats(N), "y": floats(N), **row.arrays}
    loop, function, scalars = loop_of(
        replace(row, arrays=arrays), clauses, filter="auto" if mode == "single" else "always"
    )
    own = {*clauses.private, *clauses.firstprivate}
    with checked("sim:5"):
        for weights in ((1,) * 5, (2, 0, 1, 3, 1)):
            serial = {name: array.copy() for name, array in arrays.items()}
            mine = {name: array.copy() for name, array in arrays.items()}
            with cut_by(weights), present(mine):
                for _ in range(2):
                    before = {name: serial[name].copy() for name in own}
                    expected = function(**serial, **scalars)
                    serial |= before  # each iteration has its own
                    assert loop(**mine, **scalars) == expected
            same(mine, serial, f"by {weights}")


@pytest.mark.parametrize("n", few(1, [3, 0, 1]))
def test_few_iterations(n):
    """With fewer iterations than devices, or none, values are CPython's."""
    with checked("sim:4"):
        for number in (1, 2, 4, 6, 7, 14, 15, 24):
            run(ROWS[number], ROWS[number].clauses, (1, 1, 1, 1), n=n, filter="always")


@omp.target_loop(devices="all", filter="always")
def halo(a, b):
    for i in range(1, a.size - 1):
        b[i] = a[i - 1] + a[i + 1]


def test_only_halos_travel():
    """In the steady state of two sweeps each device fetches one element a side; `explain` has the bytes."""
    a, b = np.arange(24.0), np.zeros(24)
    with checked("sim:4"), present({"a": a, "b": b}):
        for _ in range(3):
            halo(a, b)
            halo(b, a)
        assert halo.explain(a, b).to_dict()["filter"]["sent_nbytes"] == 6 * 8


def test_arrays_that_are_nowhere_or_on_one_device():
    """A loop makes replicas for its call, of the host's arrays or of the first device's, and leaves none."""
    x, y = np.arange(24.0), np.zeros(24)
    with checked("sim:3"):
        halo(x, y)
        assert (y[1:-1] == x[:-2] + x[2:]).all()
        with omp.target_data(map=[omp.to(x), omp.tofrom(y)]):
            x[:] = 0  # the device's is what counts
            halo(x, y)
            assert [omp.target_is_present(y, device) for device in range(3)] == [True, False, False]
        assert (y[1:-1] == np.arange(2, 46, 2)).all()


def test_views_of_one_array():
    """Parts of an array that is mapped as a whole are in its set: rows, and columns of it."""
    a = np.arange(48.0).reshape(6, 8)
    expected = a.copy()
    with checked("sim:3"), present({"a": a}):
        for _ in range(2):
            halo(a[1], a[4])
            halo.python(expected[1], expected[4])
            halo(a[:, 2], a[:, 5])
            halo.python(expected[:, 2], expected[:, 5])
    same({"a": a}, {"a": expected})


def test_the_default_of_the_environment():
    """``OFFLOAD_LOOP_DEVICES`` is the default of ``devices=``, unless there is ``device=``; also of OpenACC's loops."""
    x, y = np.arange(24.0), np.zeros(24)
    omp_loop, acc_loop = omp.target_loop(halo.python), acc.parallel_loop(halo.python)
    with checked("sim:4", env={"OFFLOAD_LOOP_DEVICES": "3,1"}):
        for loop in (omp_loop, acc_loop):
            loop(x, y)
            assert (y[1:-1] == x[:-2] + x[2:]).all()
            assert loop.explain(x, y).to_dict()["filter"]["devices"] == [3, 1]
            assert loop.options(device=2).explain(x, y).to_dict()["filter"]["mode"] == "off"


def test_a_program_of_openacc():
    """With `acc.data`, queues and loops alone, the environment's devices take part, and values are the same."""

    @acc.parallel_loop(present=["a", "b"], async_=1, filter="always")
    def sweep(a, b):
        for i in range(1, a.size - 1):
            b[i] = 0.5 * (a[i - 1] + a[i + 1])

    results = []
    for env in ({}, {"OFFLOAD_LOOP_DEVICES": "all"}):
        a, b = np.arange(64.0) ** 2, np.zeros(64)
        with checked("sim:3", env=env):
            with acc.data(copy=[a, b]):
                tasks = [sweep(*pair) for _ in range(5) for pair in ((a, b), (b, a))]
                acc.wait(1)
                facts = sweep.explain(a, b).to_dict()["filter"]
            took_part = {task.device_nums for task in tasks}
            results.append((a, b, facts["devices"], took_part))
    (a, b, none, of_one), (c, d, devices, of_all) = results
    same({"a": a, "b": b}, {"a": c, "b": d})
    assert (none, devices) == ([], [0, 1, 2])
    assert (of_one, of_all) == ({()}, {(0, 1, 2)})


def test_one_device_is_no_set():
    """``devices=[0]`` compiles the same text and goes the same way as no clause."""
    x, y = np.arange(24.0), np.zeros(24)
    with checked("sim:2"), omp.target_data(map=[omp.to(x), omp.tofrom(y)]):
        plain, one = (halo.options(devices=devices, filter="auto") for devices in (None, [0]))
        assert plain.source(x, y) == one.source(x, y)
        one(x, y)
        assert one.explain(x, y).to_dict()["filter"]["mode"] == "off"
        on_second = halo.options(devices=[1])
        z = np.zeros(24)
        on_second(np.arange(24.0), z)
        assert z[5] == 10
    assert y[5] == 10


def the_host_takes_no_time(monkeypatch):
    """Have a call's time be that of the devices, also where the machine has other work meanwhile."""
    monkeypatch.setattr(launching, "time", SimpleNamespace(perf_counter=lambda: 0.0))


@pytest.mark.parametrize("is_long", [True, False])
def test_ways_are_measured(monkeypatch, is_long):
    """In the first calls one device is timed, and then what may be quicker than that; `explain` has the times."""
    times_s = itertools.chain([9.0, 1.0, 2.0], itertools.repeat(0.5)) if is_long else itertools.repeat(1e-6)
    monkeypatch.setattr(SimKernels, "seconds", lambda *_: next(times_s))
    the_host_takes_no_time(monkeypatch)
    x, y = np.arange(64.0), np.zeros(64)
    with checked("sim:2"), present({"x": x, "y": y}):
        loop = omp.target_loop(halo.python, devices="all")
        assert loop.explain(x, y).to_dict()["filter"]["mode"] == "split"  # which is the most that there may be
        seen = []
        for _ in range(8):
            loop(x, y)
            seen.append(loop.explain(x, y).to_dict()["filter"]["mode"])
        assert seen == ["single"] * 5 + ["split" if is_long else "single"] * 3
        why = loop.explain(x, y).to_dict()["filter"]["why"]
        assert re.search(r"single took 1000000 µs" if is_long else r"single took \d+ µs", why)
        assert ("split took 500000 µs" if is_long else "split would take 200 µs at least") in why
    assert (y[1:-1] == x[:-2] + x[2:]).all()


def test_what_the_host_prepares_is_no_time_of_one_device(monkeypatch):
    """Where looking at index arrays and compiling for them take long, one device is still the quicker one."""
    clock = [0.0]

    def after(seconds, function):
        def wrapped(*args):
            clock[0] += seconds
            return function(*args)

        return wrapped

    monkeypatch.setattr(launch, "prepared", after(100.0, launch.prepared))
    monkeypatch.setattr(NestForm, "compile", after(100.0, NestForm.compile))
    monkeypatch.setattr(SimKernel, "launch", after(1.0, SimKernel.launch))
    monkeypatch.setattr(SimKernels, "time", lambda *_: clock[0])
    monkeypatch.setattr(SimKernels, "seconds", lambda _, first, last: last - first)
    the_host_takes_no_time(monkeypatch)

    @omp.target_loop(devices="all")
    def scatter(p, x, y):
        for i in range(x.size):
            y[p[i]] = x[i]

    p, x, y = np.random.default_rng(5).permutation(64), floats(64), np.zeros(64)
    with checked("sim:2"), present({"p": p, "x": x, "y": y}):
        for _ in range(8):
            scatter(p, x, y)
        facts = scatter.explain(p, x, y).to_dict()["filter"]
    assert facts["mode"] == "single"
    assert "each device tests what it owns" in facts["why"]
    assert "single took 1000000 µs" in facts["why"]
    assert (y[p] == x).all()


def test_nests_one_after_another():
    """A function of several nests exchanges between them what the second needs of the first."""

    @acc.kernels_loop(devices="all", filter="always")
    def twice(a, b, c):
        for i in range(1, a.size - 1):
            b[i] = a[i - 1] + a[i + 1]
        for i in range(1, a.size - 1):
            c[i] = b[i - 1] - b[i + 1]

    arrays = {"a": floats(N), "b": floats(N), "c": floats(N)}
    serial = {name: array.copy() for name, array in arrays.items()}
    with checked("sim:4"), present(arrays):
        for _ in range(2):
            twice(**arrays)
            twice.python(**serial)
    same(arrays, serial)


def test_deferred_calls_follow_each_other():
    """With ``nowait`` and dependences a time loop is enqueued, and gives what CPython gives."""
    a, b = np.arange(64.0) % 7, np.zeros(64)
    serial = {"a": a.copy(), "b": b.copy()}
    loop = halo.options(nowait=True, depend=[omp.in_("a"), omp.inout("b")])
    with checked("sim:3"), present({"a": a, "b": b}):
        for _ in range(4):
            loop(a, b)
            loop(b, a)
            halo.python(serial["a"], serial["b"])
            halo.python(serial["b"], serial["a"])
        omp.taskwait()
    same({"a": a, "b": b}, serial)


def test_check_observes_on_copies():
    """``check=True`` sees a dependence between iterations on what all devices have together, and changes nothing."""

    @omp.target_loop(devices="all", check=True)
    def rotated(a, b, c, k):
        for i in range(a.size):
            a[i] = 2 * c[i]
            b[i] = a[(i + k[0]) % a.size]

    arrays = {"a": floats(N), "b": floats(N), "c": floats(N), "k": np.array([3])}
    with checked("sim:4"), present(arrays):
        with pytest.raises(omp.LoopError) as failed:
            rotated(**arrays)
        assert failed.value.rule == "dependence"
        arrays["k"][0] = 0
        omp.target_update(to=[arrays["k"]], devices="all")
        rotated(**arrays)
    assert (arrays["b"] == 2 * arrays["c"]).all()


def test_looks_ask_who_has_the_elements():
    """An index array that another device has written since is not looked at where it is stale: nothing goes wrong."""

    @omp.target_loop(devices="all", filter="always")
    def move(p, k):
        for i in range(p.size):
            p[i] = k - i

    @omp.target_loop(devices="all", filter="always")
    def take(p, x, y):
        for i in range(p.size):
            y[i] = x[p[i]]

    n = 4096
    p, x, y = np.zeros(n, int), np.arange(float(n)), np.zeros(n)
    with checked("sim:2"), present({"p": p, "x": x, "y": y}):
        take(p, x, y)
        move(p, n - 1)
        take(p, x, y)
        move(p, n)
        with pytest.raises(IndexError):
            take(p, x, y)
    assert y[n - 1] == 1  # what the other device has done


def test_random_order_of_iterations():
    """Under a seed iterations run in a random order on each device, and values are the same."""
    with checked("sim:3", seed=7):
        for number in (3, 4, 6, 24):
            run(ROWS[number], ROWS[number].clauses, (1, 1, 1), filter="always")


def test_a_graph_shows_which_devices_took_part():
    """The node of a loop has the numbers of those that went through iterations; a draw of one device has one."""
    c, x, y = np.zeros(1, int), np.arange(24.0), np.zeros(24)
    draw, _, scalars = loop_of(ROWS[25], ROWS[25].clauses)
    with checked("sim:3"):
        with omp.record() as graph:
            halo(x, y)
            draw(c, np.zeros(48), x, **scalars)
            halo.options(filter="never")(x, y)
            halo(y, x)
        nodes = [node for node in graph.tasks if node.directive == "target_loop"]
        assert [node.device_nums for node in nodes] == [(0, 1, 2), (0,), (0,), (0, 1, 2)]
        assert "dev 0+1+2" in to_dot(graph)


def test_a_taskgraph_is_replayed_on_streams():
    """A region with a loop on several devices is no graph of a device; `records` says why, and values are right."""
    a, b = np.arange(24.0) % 5, np.zeros(24)
    serial = {"a": a.copy(), "b": b.copy()}

    @omp.taskgraph
    def region(a, b):
        halo(a, b)
        halo(b, a)

    with checked("sim:2"), present({"a": a, "b": b}):
        for _ in range(4):
            region(a, b)
            halo.python(serial["a"], serial["b"])
            halo.python(serial["b"], serial["a"])
        (record,) = region.records
        assert not record.is_captured
        assert record.why_not
    same({"a": a, "b": b}, serial)


@omp.target_loop(devices="all", filter="always")
def take(p, x, y):
    for i in range(p.size):
        y[i] = x[p[i]]


@omp.target
def shift_by_size(p):
    p += p.size


def by_update(p):
    p[:] = p.size
    omp.target_update(to=[p], devices="all")


def by_update_of_one(p):
    p[-1] = p.size
    omp.target_update(to=[p[-1:]], device=1)


def by_region(p):
    shift_by_size.options(device=1)(p)


def by_region_on_the_first(p):
    shift_by_size(p)


def by_loop(p):
    @omp.target_loop(devices="all")
    def far(p):
        for i in range(p.size):
            p[i] = p[i] + p.size

    far(p)


def by_loop_on_one(p):
    @omp.target_loop(device=1)
    def far(p):
        for i in range(p.size):
            p[i] = p[i] + p.size

    far(p)


def by_pointer(p):
    pointer = omp.get_mapped_ptr(p, 1)
    omp.target_memset(pointer, 1, pointer.nbytes, 1)


def by_copy(p):
    pointer = omp.get_mapped_ptr(p, 0)
    omp.target_memcpy(pointer, p + p.size, p.nbytes, 0, 0, 0, omp.get_initial_device())


@pytest.mark.parametrize(
    "write",
    [by_update, by_update_of_one, by_region, by_region_on_the_first, by_loop, by_loop_on_one, by_pointer, by_copy],
)
def test_what_is_known_of_indices_ends_with_a_write(write):
    """Whatever writes to an index array, on whichever device: the next loop sees what it holds then."""
    n = 4096
    p, x, y = np.arange(n), np.ones(n), np.zeros(n)
    with checked("sim:2"), present({"p": p, "x": x, "y": y}):
        take(p, x, y)
        take(p, x, y)
        write(p)
        with pytest.raises(IndexError):
            take(p, x, y)
    assert y.all()


def test_a_launch_that_has_to_wait_for_a_copy_is_made_again(monkeypatch):
    """Where another task is copying to storage that a loop needs, its launch is tried again, and nothing is lost."""
    right, n_calls = launching.make_current, [0]

    def make_current(*those):
        n_calls[0] += 1
        if n_calls[0] in {2, 4}:
            raise PutOffError
        return right(*those)

    monkeypatch.setattr(launching, "make_current", make_current)
    a, b = np.arange(24.0), np.zeros(24)
    with checked("sim:3"), present({"a": a, "b": b}):
        halo(a, b)
        halo(b, a)
    serial = {"a": np.arange(24.0), "b": np.zeros(24)}
    halo.python(serial["a"], serial["b"])
    halo.python(serial["b"], serial["a"])
    same({"a": a, "b": b}, serial)


def test_notices_of_copies_between_devices(capfd):
    """Under ``OFFLOAD_NOTIFY`` each copy between devices is told, with its bytes and both devices."""
    a, b = np.arange(24.0), np.zeros(24)
    with checked("sim:2", env={"OFFLOAD_NOTIFY": "3"}), present({"a": a, "b": b}):
        halo(a, b)
        capfd.readouterr()
        halo(b, a)
        told = [line for line in capfd.readouterr().err.splitlines() if "bytes=8 " in line]
    assert len(told) == 2
    assert all(("device=0" in line and "device=1" in line) or "from" in line for line in told), told


def test_a_set_in_another_order():
    """A loop's first device need not be that of the set that its arrays are in."""
    a, b = np.arange(24.0) % 7, np.zeros(24)
    serial = {"a": a.copy(), "b": b.copy()}
    with checked("sim:3"), omp.target_data(map=[omp.tofrom(a), omp.tofrom(b)], devices=[2, 0, 1]):
        for devices in ([0, 1, 2], "all", [1, 2, 0]):
            for words in ({}, {"exchange": "eager"}, {"filter": "never"}):
                loop = halo.options(devices=devices, **words)
                loop(a, b)
                loop(b, a)
                halo.python(serial["a"], serial["b"])
                halo.python(serial["b"], serial["a"])
    same({"a": a, "b": b}, serial)


def test_calls_that_are_one_devices_go_the_short_way(monkeypatch):
    """Once one device has been chosen, calls with the same arrays fork to nobody; whatever changes, they go back."""
    a, b = np.arange(24.0) % 7, np.zeros(24)
    serial = {"a": a.copy(), "b": b.copy()}
    loop, n_long = halo.options(filter="never"), [0]
    right = launching._JointCall.run

    def run(self, alone):
        n_long[0] += 1
        return right(self, alone)

    monkeypatch.setattr(launching._JointCall, "run", run)
    monkeypatch.setattr(Chooser, "note", lambda self, *_: setattr(self, "chosen", "single"))

    def both(count):
        before = n_long[0]
        for _ in range(count):
            loop(a, b)
            loop(b, a)
            halo.python(serial["a"], serial["b"])
            halo.python(serial["b"], serial["a"])
        return n_long[0] - before

    with checked("sim:3"):
        with present({"a": a, "b": b}):
            assert both(4) >= 4
            assert both(2) == 0
            halo(a, b)  # split: others have parts of it now
            halo.python(serial["a"], serial["b"])
            assert both(3) > 0
            assert both(2) == 0
            shift_by_size.options(device=1)(b)
            serial["b"] += serial["b"].size
            assert both(3) > 0
            a[:3] = serial["a"][:3] = 5
            omp.target_update(to=[a[:3]], devices="all")
            both(3)
            assert both(1) == 0
            omp.target_update(from_=[a], device=1)
            np.testing.assert_array_equal(a, serial["a"])
        same({"a": a, "b": b}, serial)
        with present({"a": a, "b": b}):
            assert both(1) > 0
    same({"a": a, "b": b}, serial)


@pytest.mark.parametrize("is_acc", [False, True])
def test_a_settled_call_is_an_ordinary_one(monkeypatch, is_acc):
    """Calls of one device's alone enter as a loop without ``devices=`` does, until arrays are laid out otherwise."""
    clauses = {"async_": 1} if is_acc else {"nowait": True, "depend": [omp.in_("a"), omp.inout("b")]}
    loop = (acc.parallel_loop if is_acc else omp.target_loop)(halo.python, devices="all", filter="never", **clauses)
    a, b, entered, right = np.arange(24.0) % 7, np.zeros(24), [], DevicePlace.enter

    def enter(self, items, lane, staged, counter, before=None, *args, **kwargs):
        plan = right(self, items, lane, staged, counter, before, *args, **kwargs)
        if before is not None:
            entered.append(plan is before)
        return plan

    monkeypatch.setattr(DevicePlace, "enter", enter)

    def both(count):
        before = len(entered)
        for pair in ((a, b), (b, a)) * count:
            task = loop(*pair)
            acc.wait(1)
            omp.taskwait()
            assert task.device_nums == (0,)
        return entered[before:]

    serial = {"a": a.copy(), "b": b.copy()}
    with checked("sim:3"), present({"a": a, "b": b}):
        both(5)
        assert both(3) == [True] * 6
        omp.target_update(from_=[a[1:2]], device=2)  # which gets a copy: who has what is another state
        assert False in both(1)
        both(4)
        assert both(1) == [True] * 2
        for _ in range(14):
            halo.python(serial["a"], serial["b"])
            halo.python(serial["b"], serial["a"])
    same({"a": a, "b": b}, serial)


def test_arrays_that_are_nowhere_are_sent_to_one_device_if_that_is_best(monkeypatch):
    """Once one device has been found to be the quickest, a call whose arrays are nowhere maps them there alone."""
    monkeypatch.setattr(SimKernels, "seconds", lambda *_: 1e-6)
    x, y = np.arange(24.0), np.zeros(24)
    loop = omp.target_loop(halo.python, devices="all")
    entered, right = [], DataEnvironment.allocate

    def allocate(self, created, lane, *spare):
        entered.extend([self.device.number] * len(created))
        return right(self, created, lane, *spare)

    monkeypatch.setattr(DataEnvironment, "allocate", allocate)
    with checked("sim:3"):
        for _ in range(2):
            loop(x, y)
        assert sorted(entered) == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
        entered.clear()
        for _ in range(3):
            loop(x, y)
        assert entered == [0] * 6
        with present({"x": x}):  # what is there is used
            loop(x, y)
        x[5] = 7
        with present({"x": x, "y": y}):
            loop(x, y)
    assert (y[1:-1] == x[:-2] + x[2:]).all()


def test_one_other_device_is_no_set_either(monkeypatch):
    """``devices=[1]`` enters as an ordinary loop does; so does a list of one that the environment gives."""
    x, y = np.arange(24.0), np.zeros(24)
    monkeypatch.setattr(launching, "SetLauncher", None)
    for env, devices in ({}, [1]), ({"OFFLOAD_LOOP_DEVICES": "1"}, None):
        loop = halo.options(devices=devices, filter="auto", nowait=True, depend=[omp.inout("b")])
        with checked("sim:3", env=env), omp.target_data(map=[omp.to(x), omp.tofrom(y)], device=1):
            tasks = [loop(x, y) for _ in range(3)]
            omp.taskwait()
            assert [task.device_num for task in tasks] == [1] * 3
        assert y[5] == 10
        y[:] = 0


def test_what_is_compiled_beforehand(monkeypatch):
    """`compile` compiles what each way needs, and runs nothing; `source` is the text of the way that is next."""
    x, y, p = np.ones(24), np.zeros(24), np.arange(24)

    @omp.target_loop(devices="all", filter="always")
    def scatter(p, x, y):
        for i in range(x.size):
            y[p[i]] = x[i]

    with checked("sim:2"):
        scatter.compile(p, x, y)
        assert not y.any()
        assert "lower_y" in scatter.source(p, x, y)
        assert "lower_y" not in scatter.options(filter="never").source(p, x, y)
        monkeypatch.setattr(NestForm, "compile", lambda self: None)
        scatter(p, x, y)
    assert y.all()


def read_and_write(a, b, n):
    for i in range(n // 2):
        a[i] = 2 * b[n - 1 - i] + i


def write_both(a, b, n):
    for i in range(n // 2):
        a[n // 2 + i] = 2 * b[i] + 1


SHARING = [
    (write_both, lambda base: (base[:N], base[:N]), "split"),
    (write_both, lambda base: (base[N // 2 :], base[: N + N // 2]), "split"),
    (read_and_write, lambda base: (base[:N], base[N - 1 :: -1][:N]), "duplicate"),
]
BETWEEN = read_and_write, lambda base: (base[::2], base[1::2]), "split"  # not to be mapped in a call of its own


@pytest.mark.parametrize(
    ("function", "views", "mode", "is_mapped"),
    [*[(*case, is_mapped) for case in SHARING for is_mapped in (True, False)], (*BETWEEN, True)],
)
def test_arguments_that_share_memory(function, views, mode, is_mapped):
    """One view twice, or shifted, is one array; between another's elements nothing is shared; else all is computed."""
    base = floats(2 * N)
    expected = base.copy()
    with checked("sim:3"), present({"base": base}) if is_mapped else nullcontext():
        loop = omp.target_loop(devices="all")(function)
        a, b = views(base)
        assert loop.explain(a, b, N).to_dict()["filter"]["mode"] == mode
        for _ in range(2):
            loop(a, b, N)
            function(*views(expected), N)
    same({"base": base}, {"base": expected})


def test_views_beside_each_other_that_are_reversed():
    """Halves of the rows of a matrix share nothing, also where one of them is seen from its end: the loop is split."""

    @omp.target_loop(devices="all", filter="always")
    def turned(a, b):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                a[i, j] = 2 * b[i, j] + 1

    def halves(m, n_right):
        return m[:, :4], m[:, : 7 - n_right : -1]

    m = np.arange(48.0).reshape(6, 8)
    expected = m.copy()
    with checked("sim:3"):
        for data in (present({"m": m}), nullcontext()):
            with data:
                for _ in range(2):
                    turned(*halves(m, 4))
                    turned.python(*halves(expected, 4))
                    assert turned.explain(*halves(m, 4)).to_dict()["filter"]["mode"] == "split"
        with present({"m": m}), pytest.raises(omp.ClauseError, match="overlap"):
            turned(*halves(m, 5))
    same({"m": m}, {"m": expected})


def test_ways_are_measured_for_shapes(monkeypatch):
    """Calls that differ by numbers only share what has been measured: a way is not tried for each of them."""

    @omp.target_loop(devices="all")
    def add(x, k):
        for i in range(k, x.size):
            x[i] += k

    monkeypatch.setattr(Chooser, "note", lambda self, *_: setattr(self, "chosen", "split"))
    x = np.zeros(64)
    with checked("sim:2"), present({"x": x}):
        modes = []
        for k in range(6):
            add(x, k)
            modes.append(add.explain(x, k).to_dict()["filter"]["mode"])
    assert modes == ["single", "single", *["split"] * 4]
    assert x[-1] == 15


def test_a_loop_of_numbers_alone():
    """A reduction that is given no array is divided as any other, called in each way; so is one of OpenACC."""

    def terms(n, k):
        s = 1
        for i in range(n):
            s += 12 // (i - k)
        return s

    loop = omp.target_loop(terms, devices="all", reduction={"+": ["s"]})
    acc_loop = acc.parallel_loop(terms, devices="all", reduction={"+": ["s"]})
    with checked("sim:3"):
        for n, devices in (0, (0,)), (1, (0, 2)), (50, (0, 1, 2)):
            with omp.record() as graph:
                assert loop.options(filter="always")(n, -1) == terms(n, -1)
                assert loop.options(filter="always", nowait=True)(n, -2).result() == terms(n, -2)
                assert acc_loop.options(filter="always", async_=1)(n, -3).result() == terms(n, -3)
            assert {task.device_nums for task in graph.tasks if task.name == "terms"} == {devices}
            assert loop.explain(n, -1).to_dict()["filter"]["sent_nbytes"] is None  # it has not been called so
            assert [loop(n, -1) for _ in range(9)] == [terms(n, -1)] * 9
            assert loop.explain(n, -1).to_dict()["filter"]["sent_nbytes"] == 0
        with pytest.raises(ZeroDivisionError) as caught:
            loop.options(filter="always")(50, 49)
        assert any("device 2" in note for note in caught.value.__notes__)


def test_a_call_with_device_arrays_is_reported_on_one_device():
    """What `explain` says of a call with device arrays is what happens: the primary alone."""
    x, y = np.arange(9.0), np.zeros(9)
    loop = omp.target_loop(halo.python, devices="all")
    with checked("sim:3"), omp.target_data([omp.tofrom(x, y)], devices="all"):
        mine = omp.get_mapped_ptr(x, device=0)
        with omp.record() as graph:
            loop(mine, y)
        assert [task.device_nums for task in graph.tasks] == [(0,)]
        facts = loop.explain(mine, y).to_dict()["filter"]
        assert (facts["mode"], "device arrays" in str(loop.explain(mine, y))) == ("single", True)
        del mine, graph


@pytest.mark.skipif(GXX is None, reason="no g++")
def test_kernels_of_cuda_on_several_devices(monkeypatch):
    """Pieces, tests, partial results and the last iteration's values as CUDA devices have them, on the host."""

    @omp.target_loop(devices="all", filter="always", reduction={"+": ["s"], "max": ["m"]}, lastprivate=["last"])
    def sums(x, m):
        s = 1.0
        last = 0.0
        for i in range(x.size):
            s += x[i]
            m[0] = max(m[0], x[i])
            last = x[i]
        return s, last

    monkeypatch.setattr(SimDevice, "kernels", HostCuda())
    with checked("sim:3"):
        for number in (2, 4, 6, 14, 15, 24):
            row = ROWS[number]
            for weights in ((1, 1, 1), (2, 0, 1)):
                assert run(row, row.clauses, weights, filter="always")["mode"] == "split", number
        x, m = np.arange(2000.0) % 97, np.zeros(1)
        for weights in ((1, 1, 1), (0, 1, 0), (1, 2, 0)):
            with cut_by(weights):
                assert sums(x, m) == (1 + x.sum(), x[-1])
        assert m[0] == 96
