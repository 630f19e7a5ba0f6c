"""`parallel_loop` and `kernels_loop` as compute regions: nests, data, queues, devices, other regions around."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.errors import NotPresentError
from tests.conformance.openacc.looking import on_device
from tests.conformance.openacc.loops import CONSTRUCTS, N, add, double, increment, loops_of, scale, total
from tests.conftest import checked


@pytest.fixture(params=CONSTRUCTS, ids=lambda construct: construct.__name__)
def construct(request):
    return request.param


@acc.parallel_loop
def of_the_module(x, y):
    for i in range(x.size):
        y[i] = x[i] + 1


# -- the constructs --------------------------------------------------------------------------------------------


def test_arrays_in_no_clause(runtime, construct):
    """What the loop only reads is copied in, what it overwrites copied out, the rest both; nothing stays."""
    x, y = np.arange(N), np.zeros(N, int)
    loop = construct(double)
    assert {name: a["map"] for name, a in loop.explain(x, y).to_dict()["arrays"].items()} == {"x": "to", "y": "from"}
    assert construct(increment).explain(x).to_dict()["arrays"]["x"]["map"] == "tofrom"
    assert loop(x, y) is None
    assert (y == 2 * np.arange(N)).all()
    assert not acc.is_present(x)
    assert not acc.is_present(y)


def test_it_runs_on_the_device(runtime, construct):
    """A loop changes what the device has of an array that is present, and leaves the host's as it is."""
    x = np.zeros(N)
    with acc.data(copyin=[x]):
        construct(increment)(x)
        assert (on_device(x) == 1).all()
        assert (x == 0).all()


def test_the_plain_function(construct):
    """`python` is the undecorated function, and `acc.loop` in it gives back the range."""

    def plain(x):
        for i in acc.loop(range(x.size), gang=True, vector=32):
            x[i] += 1

    x = np.zeros(3)
    construct(plain).python(x)
    assert construct(plain).python is plain
    assert (x == 1).all()


def test_kernels_loop_has_several_nests(runtime):
    """Each nest is one kernel; they run in order, and scalar statements between them are carried out."""

    @acc.kernels_loop
    def steps(x, y, factor):
        for i in range(x.size):
            y[i] = factor * x[i]
        factor = factor + 1
        shift = 10 * factor
        for i in range(x.size):
            x[i] = y[x.size - 1 - i] + shift

    x, y, expected_y = np.arange(N), np.zeros(N, int), np.zeros(N, int)
    expected_x = x.copy()
    steps.python(expected_x, expected_y, 3)
    steps(x, y, 3)
    assert (x == expected_x).all()
    assert (y == expected_y).all()
    assert [nest["verdict"] for nest in steps.explain(x, y, 3).to_dict()["nests"]] == ["parallel", "parallel"]


def test_parallel_loop_has_one_nest():
    """A second nest under `parallel_loop` is a LoopError that names `kernels_loop`."""

    def two(x):
        for i in range(x.size):
            x[i] = 1
        for i in range(x.size):
            x[i] = 2

    with pytest.raises(omp.LoopError, match="kernels_loop"):
        acc.parallel_loop(two)
    acc.kernels_loop(two)


def test_kernels_loop_finds_reductions(runtime):
    """A scalar that iterations take over by one operator, and that is returned, is reduced without a clause."""

    @acc.kernels_loop
    def sums(x):
        s = 0
        largest = -1
        for i in range(x.size):
            s += x[i]
        for i in range(x.size):
            largest = max(largest, x[i])
        return s, largest

    x = np.arange(N)
    assert sums(x) == (x.sum(), N - 1)
    assert [one["reduction"] for one in loops_of(sums, x)] == [{"+": ["s"]}, {"max": ["largest"]}]
    with pytest.raises(omp.LoopError) as caught:
        acc.parallel_loop(total)
    assert caught.value.rule == "carried"


def test_each_nest_of_kernels_loop_is_auto(sim):
    """A nest that is not proved parallel runs in order, with one warning a loop; the others run in parallel."""

    @acc.kernels_loop
    def steps(a, b):
        for i in range(1, a.size):
            a[i] += a[i - 1]
        for i in range(a.size):
            b[i] = a[i]
        for i in range(1, b.size):
            b[i] += b[i - 1]

    a, b = np.ones(N, int), np.zeros(N, int)
    with pytest.warns(omp.PerformanceWarning, match="runs in order") as caught:
        steps(a, b)
    assert (b == np.cumsum(np.arange(1, N + 1))).all()
    first = steps.python.__code__.co_firstlineno + 2
    texts = [text for one in caught if "there is no C compiler" not in (text := str(one.message))]
    for text, line in zip(texts, (first, first + 4), strict=True):
        assert f"the loop at line {line} " in text
    assert [one["runs"] for one in loops_of(steps, a, b)] == ["in order", "in parallel", "in order"]
    steps(a, b)  # warns no more
    steps.options(async_=1)(a, b).result()


def test_a_nest_says_what_it_is(sim):
    """`acc.loop` around the range of a nest of `kernels_loop` replaces `auto`."""

    @acc.kernels_loop
    def steps(a, b, p):
        for i in acc.loop(range(1, a.size), seq=True):
            a[i] += a[i - 1]
        for i in acc.loop(range(b.size), independent=True, gang=True):
            b[p[i]] = a[i]

    a, b = np.ones(N, int), np.zeros(N, int)
    steps(a, b, np.arange(N))
    assert (b == np.arange(1, N + 1)).all()
    assert [(one["mapping"], one["runs"]) for one in loops_of(steps, a, b, np.arange(N))] == [
        ("seq", "in order"),
        ("gang", "in parallel"),
    ]


# -- data ------------------------------------------------------------------------------------------------------


def test_data_clauses(runtime, construct):
    """Each data clause maps for the time of the region, and moves what its name says."""

    def body(a, b, c, d):
        for i in range(a.size):
            d[i] = b[i]
            a[i] += d[i]
            b[i] = 9
            c[i] = 5

    a, b, c, d = (np.ones(N, int) for _ in range(4))
    construct(copy=["a"], copyin=[b], copyout=["c"], create=["d"])(body)(a, b, c, d)
    assert (a[0], b[0], c[0], d[0]) == (2, 1, 5, 1)
    assert not any(map(acc.is_present, (a, b, c, d)))
    construct(pcopy=["a"], present_or_copyin=["b"], pcopyout=["c"], pcreate=["d"])(body)(a, b, c, d)
    assert (a[0], b[0], c[0], d[0]) == (3, 1, 5, 1)


def test_present(runtime, construct):
    """`present`, and `default="present"`, use what is there; else a NotPresentError names clause and variable."""
    x = np.zeros(N)
    for clauses in ({"present": ["x"]}, {"default": "present"}):
        loop = construct(**clauses)(increment)
        with pytest.raises(NotPresentError, match=r"present.*x"):
            loop(x)
        with acc.data(copy=[x]):
            loop(x)
            loop.options(async_=1)(x)
            acc.wait(1)
    assert (x == 4).all()


def test_no_create(runtime, construct):
    """`no_create` uses what is present; a loop for the device cannot have the host's array, and says so."""
    x = np.zeros(N)
    loop = construct(no_create=["x"])(increment)
    with acc.data(copy=[x]):
        loop(x)
    assert (x == 1).all()
    with pytest.raises(omp.ClauseError, match="present"):
        loop(x)
    loop.options(if_=False)(x)
    assert (x == 2).all()


def test_deviceptr(runtime, construct, memory):
    """`deviceptr` takes memory of the device as it is."""
    d = memory(N)
    acc.parallel(deviceptr=["d"])(lambda d: d.fill(1))(d)
    construct(deviceptr=["x"])(increment)(d)
    y = np.zeros(N)
    construct(deviceptr=["x"])(add)(d, y)
    assert (y == 2).all()
    with pytest.raises(omp.ClauseError, match="deviceptr"):
        construct(deviceptr=["x"])(increment)(y)


def test_default_none(runtime, construct):
    """With `default="none"` arrays and numbers have to be in a clause, `reduction` and `private` among them."""
    a = np.ones((4, 5))
    with pytest.raises(omp.ClauseError, match=r"default\(none\).*'a'"):
        construct(default="none")(scale)(a, 2)
    with pytest.raises(omp.ClauseError, match=r"default\(none\).*'factor'"):
        construct(default="none", copy=["a"])(scale)(a, 2)
    construct(default="none", copy=["a"], firstprivate=["factor"])(scale)(a, 2)
    with acc.data(copyin=[a]):
        construct(default="none", firstprivate=["factor"])(scale)(a, 2)
    assert (a == 2).all()


def test_sections(runtime):
    """A string in a data clause may name a section, and the loop is given that section."""
    x = np.zeros(10)
    acc.parallel_loop(copy=["x[2:5]"])(increment)(x)
    assert x.tolist() == [0, 0, 1, 1, 1, 1, 1, 0, 0, 0]


def test_what_may_not_be_written(sim, construct):
    """A loop that writes to an array that is read-only is a ClauseError, before anything is done."""
    x = np.zeros(N)
    x.flags.writeable = False
    with pytest.raises(omp.ClauseError):
        construct(increment)(x)


# -- queues, devices and conditions ----------------------------------------------------------------------------


def test_loops_in_one_queue(queues, construct):
    """Loops of one queue run in their order, and `wait` waits for them."""
    x, y = np.zeros(N), np.zeros(N)
    acc.enter_data(copyin=[x, y], async_=1)
    for _ in range(3):
        construct(increment).options(async_=1)(x)
    found = construct(async_=1)(add)(x, y)
    acc.exit_data(copyout=[x, y], async_=1)
    queues.go()
    acc.wait(1)
    assert found.result() is None
    assert (x == 3).all()
    assert (y == 3).all()


def test_async_is_a_task(runtime, hold, construct):
    """With `async_` a call returns the task of an operation of that queue, which waits for its turn there."""
    x = np.arange(N)
    held = hold(3)
    loop = construct(reduction={"+": ["s"]})(total)
    task = loop.options(async_=3)(x)
    assert isinstance(task, omp.Task)
    assert not acc.async_test(3)
    assert loop(x) == x.sum()  # synchronous ones wait for no queue
    held.open()
    assert task.result() == x.sum()
    acc.wait(3)
    assert loop.options(async_=acc.async_sync)(x) == x.sum()


def test_wait(runtime, hold):
    """`wait` follows other queues."""
    x = np.zeros(N)
    held = hold(1)
    acc.parallel_loop(async_=1)(increment)(x)
    acc.parallel_loop(async_=2, wait=[1])(increment)(x)
    assert not acc.async_test(2)
    held.open()
    acc.wait(2)
    assert (x == 2).all()


def test_conditions(runtime, construct):
    """With `if_=False` or `self_=True` the loop runs on the host, on the host's arrays."""
    x = np.zeros(N)
    with acc.data(copyin=[x]):
        for clauses in ({"if_": False}, {"self_": True}):
            construct(**clauses)(increment)(x)
        assert (on_device(x) == 0).all()
    assert (x == 2).all()
    loop = construct(reduction={"+": ["s"]}, if_=False)(total)
    assert loop(x) == 2 * N
    assert loop.options(async_=1)(x).result() == 2 * N
    assert loop.explain(x).to_dict()["device"] == "host"


def test_device_name_and_depend(streams):
    """`device`, `name` and `depend` are those of `parallel`."""
    last = omp.get_num_devices() - 1
    x = np.zeros(N)
    loop = acc.parallel_loop(device=last, name="up", depend=[omp.inout("x")])(increment)
    task = loop.options(async_=1)(x)
    acc.parallel_loop(async_=2, depend=[omp.inout("x")])(increment)(x)
    streams.go()
    acc.wait(1, device=last)
    acc.wait(2)
    assert (x == 2).all()
    assert "up" in repr(task)


def test_a_value_of_a_task_is_an_argument(runtime):
    """An argument may be a task, whose value the loop is given."""
    a = np.ones((3, 4))
    factor = omp.task(lambda: 3.0)()
    acc.parallel_loop(scale)(a, factor)
    assert (a == 3).all()


def test_options_keep_the_loop():
    """`options` that only name a queue have the same loop, and all clauses of it."""
    loop = acc.parallel_loop(reduction={"+": ["s"]}, gang=True)(total)
    again = loop.options(async_=1).options(wait=[2]).options(vector=32)
    assert again.python is total
    with checked("sim:1"):
        assert loops_of(again, np.arange(3))[0]["mapping"] == "gang vector"
        assert again.options(async_=None)(np.arange(3)) == 3


def test_loops_pickle_by_name():
    """A loop of a module is pickled by its name, also with options."""
    assert pickle.loads(pickle.dumps(of_the_module)) is of_the_module
    copy = pickle.loads(pickle.dumps(of_the_module.options(async_=4)))
    with checked("sim:1"):
        x, y = np.zeros(2), np.zeros(2)
        assert isinstance(copy(x, y), omp.Task)
        acc.wait(4)
        assert (y == 1).all()


# -- in other regions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", [acc.parallel, acc.kernels, acc.serial, omp.target], ids=lambda one: one.__name__)
def test_in_a_body(runtime, region):
    """In a compute or target body a call launches on the body's stream, in order; results are device arrays."""
    bump = acc.parallel_loop(present=["x"], async_=7)(increment)  # clauses that map or order have no effect there
    add_up = acc.kernels_loop(reduction={"+": ["s"]})(total)

    def body(x, y, s):
        bump(x)
        x *= 3
        acc.kernels_loop(add)(x, y)
        s[...] = add_up(x)

    x, y, s = np.zeros(N), np.ones(N), np.zeros(())
    region(body)(x, y, s)
    assert (x == 3).all()
    assert (y == 4).all()
    assert s == 3 * N


def test_in_a_body_of_the_host(runtime):
    """In a region that runs on the host so does the loop."""
    add_up = acc.parallel_loop(reduction={"+": ["s"]})(total)

    @acc.parallel(if_=False)
    def body(x):
        return 2 * add_up(x)

    assert body(np.arange(N)) == N * (N - 1)


def test_host_arrays_in_a_body(sim):
    """A body passes what it is given: a host array there is a UsageError."""
    host = np.zeros(N)
    loop = acc.parallel_loop(increment)
    with pytest.raises(omp.UsageError, match="host array"):
        acc.parallel(lambda x: loop(host))(np.zeros(3))
