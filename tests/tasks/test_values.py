"""Tasks among the arguments of a call: the body is given their values, after they are complete."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from concurrent.futures import CancelledError, Future

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout, out, to, tofrom
from tests.conftest import checked
from tests.patience import until_gone


@pytest.fixture(params=[0, 2])
def host(request):
    """A runtime without devices, with and without workers."""
    with omp.Runtime("none", num_threads=request.param, check=True) as runtime:
        yield runtime


_made = []


def new_event():
    """Return an event, which is fulfilled when the test has ended: a test that fails shall not hang."""
    _made.append(omp.Event())
    return _made[-1]


@pytest.fixture(autouse=True)
def events():
    yield
    while _made:
        event = _made.pop()
        if not event.is_fulfilled:
            event.fulfill()


@omp.task
def give(value):
    return value


@omp.task
def add(*values, **named):
    return sum(values) + sum(named.values())


@omp.task
def fail():
    raise ArithmeticError("on purpose")


def elsewhere(make):
    """Return what a call gives on a thread of its own, which is another generating task."""
    found = Future()
    thread = threading.Thread(target=lambda: found.set_result(make()))
    thread.start()
    thread.join()
    return found.result()


# -- host tasks -------------------------------------------------------------------------------------
def test_the_body_is_given_the_value(host):
    """By position, in ``*args`` and by keyword, one task twice, and beside other arguments."""
    three, four = give(3), give(4)
    assert add(three, four, 1, k=four, three=three).result() == 15
    assert omp.task(lambda x, *, y: (x, y))(three, y=four).result() == (3, 4)


def test_it_follows_the_task(host):
    """The new task begins when the other is complete, detach event included, and names it as a dependence."""
    event = new_event()
    first = give.options(detach=event)(3)
    second = add(first, 1)
    assert second.dependencies == (first,)
    assert not second.done()
    event.fulfill()
    assert second.result() == 4


@pytest.mark.parametrize("clauses", [{"if_": False}, {"final": True}, {"name": "other", "depend": [inout("k")]}])
def test_with_clauses(host, clauses):
    """Undeferred and final tasks wait for it; other clauses are what they are."""
    chosen = give(3)
    assert omp.task(lambda *values, k=None: sum(values), **clauses)(chosen, 1, k=("a", "place")).result() == 4


def test_a_chain_keeps_nothing(host):
    """A task that has run holds neither the tasks nor the values that it was given."""
    task = give(np.zeros(1))
    seen = weakref.ref(task)
    for _ in range(1000):
        task = omp.task(lambda x: x + 1)(task)
    assert task.result() == 1000
    gc.collect()
    until_gone(seen)


def test_strings_of_depend(host):
    """A string that names the argument names the task, as the task itself would be."""
    event = new_event()
    first = give.options(detach=event)(3)
    second = omp.task(lambda x: x, depend=[out("x")])(first)
    third = omp.task(lambda: 5, depend=[in_(first)])()
    assert set(third.dependencies) == {first, second}
    event.fulfill()
    assert second.result() == 3
    omp.taskwait()


def test_containers_and_closures_are_not_looked_into(host):
    """A body that wants the task itself gets it in a container or by closure; it is not ordered after it."""
    event = new_event()
    first = give.options(detach=event)(3)
    second = omp.task(lambda held, **more: held[0] is first and more["k"]["task"] is first)([first], k={"task": first})
    assert second.dependencies == ()
    assert second.result()
    event.fulfill()


def test_of_another_thread(host):
    """A task of another generating task is followed all the same."""
    event = new_event()
    other = elsewhere(lambda: give.options(detach=event)(3))
    second = add(other, 1)
    assert not second.done()
    event.fulfill()
    assert second.result() == 4


def test_of_an_ancestor(host):
    """The task that encounters the construct, and those around it, have no value that anybody there could wait for."""
    asked = []

    @omp.task
    def inner(held):
        for what in (*held, omp.current_task()):
            for task in (add, add.options(if_=False), omp.target(add._function, if_=False)):
                with pytest.raises(omp.UsageError, match="in a list"):
                    task(1, what)
        asked.append(True)

    @omp.task
    def outer():
        inner([omp.current_task()]).result()

    outer().result()
    assert asked == [True]


def test_loops_and_reductions(host):
    """Every task of a loop is given the value; private arrays of reductions stand beside it."""
    total = np.zeros(1)

    def body(part, scale, total):
        total += scale * sum(part)

    omp.taskloop(reduction={"+": [total]})(body)(range(4), give(2), total)
    assert total[0] == 12
    with omp.taskgroup(task_reduction={"+": [total]}):
        omp.task(in_reduction={"+": ["total"]})(lambda total, x: total.__iadd__(x))(total, give(3))
    assert total[0] == 15


def test_coroutines(host):
    """Bodies that are async def are given values, and their tasks give them."""

    @omp.task
    async def later(x, y=0):
        await asyncio.sleep(0)
        return x + y

    async def main():
        first = later(1)
        return await add(later(first, y=give(2)), 3)

    assert asyncio.run(main()) == 6
    assert add(later(give(1))).result() == 1


# -- failures ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("if_", [True, False])
def test_a_failure_goes_along(host, if_):
    """What is given the value of a task that fails does not run, and fails as any dependent does."""
    ran = []
    failed = fail()
    with pytest.raises(omp.DependError) as caught:
        omp.task(ran.append, if_=if_)(failed).result()
    assert isinstance(caught.value.__cause__, ArithmeticError)
    assert not ran
    failed.exception()
    with pytest.raises(omp.DependError) as caught:  # it is over for whoever names the task, but there is no value
        omp.task(ran.append, if_=if_)(failed).result()
    assert isinstance(caught.value.__cause__, ArithmeticError)
    assert not ran


def test_a_task_that_did_not_run(host):
    """The cause is the failure where it all began."""
    failed = fail()
    second = add(failed)
    assert isinstance(second.exception(), omp.DependError)
    failed.exception()
    with pytest.raises(omp.DependError) as caught:
        add(second).result()
    assert isinstance(caught.value.__cause__, ArithmeticError)


def test_a_cancelled_task():
    """A task that was discarded has no value."""
    with omp.Runtime("none", num_threads=0, check=True, env={"OMP_CANCELLATION": "true"}):
        with omp.taskgroup():
            omp.task(lambda: omp.cancel("taskgroup"))()
            discarded = give(3)
        assert discarded.state == "cancelled"
        with pytest.raises(omp.DependError, match="was cancelled") as caught:
            add(discarded).result()
        assert isinstance(caught.value.__cause__, CancelledError)


# -- target regions ---------------------------------------------------------------------------------
REGIONS = [omp.target, acc.parallel, acc.kernels, acc.serial]


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("if_", [True, False])
def test_scalars_and_device_arrays_pass(runtime, region, if_):
    """A value that needs no mapping is what the body gets, in a synchronous region and on the host."""
    host = np.ones(4)

    @region(if_=if_)
    def body(x, scale, *, more):
        x += scale
        return float(x.sum()) + more

    assert body(host, give(2), more=give(0.5)) == 12.5
    assert (host == 3).all()

    @omp.target(if_=if_, nowait=True)
    def make():
        return omp.array_namespace().ones(3)

    assert region(if_=if_)(lambda d: float(d.sum()))(make()) == 3


@pytest.mark.parametrize("if_", [True, False])
def test_deferred_regions(runtime, if_):
    """A pipeline of deferred regions, each given what the one before returns."""
    region = omp.target(lambda d, n: d * n, nowait=True, if_=if_)
    first = omp.target(lambda: omp.array_namespace().ones(3), nowait=True, if_=if_)()
    second = region(first, give(2))
    third = region(second, n=5)
    assert np.asarray(third.result().get() if if_ else third.result()).tolist() == [10, 10, 10]
    if if_:
        task = acc.parallel(async_=1)(lambda d: float(d.sum()))(third)
        acc.wait(1)
        assert task.result() == 30


def test_device_arrays_of_host_tasks(runtime):
    """A device array that a host task returns passes, in order with what its thread's current stream held."""
    d = omp.target_alloc(4, "f8")

    @omp.task
    def fill():
        d[...] = 3
        return d

    assert omp.target(lambda d: float(d.sum()), nowait=True)(fill()).result() == 12
    omp.target_free(d)


@pytest.mark.parametrize("nowait", [True, False])
def test_host_arrays_are_mapped_in_turn(runtime, nowait):
    """A host array is mapped when the region gets its turn: `tofrom`, or as the clause says that names it."""
    event = new_event()
    loaded = give.options(detach=event)(np.ones(4))

    def body(x, y):
        y += x.sum()
        x += 1

    y = np.zeros(1)
    if not nowait:
        event.fulfill()
    first = omp.target(body, nowait=nowait, map=[to("x"), tofrom("y")], depend=[inout("y")])(loaded, y)
    if nowait:
        assert not first.done()
        event.fulfill()
        first.result()
    assert (loaded.result() == 1).all()
    assert y[0] == 4
    second = omp.target(body, nowait=nowait)(loaded, y=y)
    if nowait:
        second.result()
    assert (loaded.result() == 2).all()
    assert y[0] == 8


def test_present_data_and_mappers(runtime):
    """The array may be present, or be another argument as well; an object is mapped by its mapper."""

    class Pair:
        def __init__(self, x):
            self.x = x

    omp.declare_mapper(Pair, lambda pair: [tofrom(pair.x)])
    x = np.ones(4)
    with omp.target_data(map=[tofrom(x)]):
        omp.target(lambda x: x.__iadd__(1) is None)(give(x))
        assert (x == 1).all()
    assert (x == 2).all()
    omp.target(lambda a, b: b.__iadd__(1) is None)(x, give(x))
    assert (x == 3).all()
    omp.target(lambda pair: pair.x.__iadd__(1) is None, map=[tofrom("pair")])(give(Pair(x)))
    assert (x == 4).all()
    omp.target(lambda *pairs: pairs[1].x.__iadd__(pairs[0]) is None, map=[tofrom("pairs")])(give(1), give(Pair(x)))
    assert (x == 5).all()


def test_what_a_clause_cannot_say(runtime):
    """Clauses that need an argument at the call refuse a task there, by name; `map` of what is no array in the task."""
    task = give(np.ones(4))
    for clauses in (
        {"map": [to("x[0:2]")]},
        {"firstprivate": "x"},
        {"private": "x"},
        {"is_device_ptr": "x"},
        {"defaultmap": "none"},
    ):
        with pytest.raises(omp.ClauseError, match="result\\(\\)"):
            omp.target(lambda x: None, nowait=True, **clauses)(task)
    number = omp.target(lambda x: None, nowait=True, map=[to("x")])(give(3))
    with pytest.raises(omp.MapError, match="is a number"):
        number.result()
    for clauses in ({"copyin": "x"}, {"deviceptr": "x"}, {"default": "none"}, {"reduction": {"+": ["x"]}}):
        with pytest.raises(omp.ClauseError, match="result\\(\\)"):
            acc.parallel(lambda x: None, **clauses)(task)


def test_openacc_refuses_host_arrays(runtime):
    """What operations of queues map has to be known at the call."""
    with pytest.raises(omp.MapError, match="result\\(\\)"):
        acc.parallel(lambda x: None)(give(np.ones(4)))
    task = acc.parallel(lambda x: None, async_=1)(give(np.ones(4)))
    assert isinstance(task.exception(), omp.MapError)


def test_a_failure_keeps_a_region_from_running(runtime):
    """Nothing is mapped, and the host's data is what it was."""
    y = np.zeros(2)
    failed = fail()
    task = omp.target(lambda x, y: y.__iadd__(1) is None, nowait=True)(failed, y)
    assert isinstance(task.exception(), omp.DependError)
    failed.exception()
    with pytest.raises(omp.DependError) as caught:
        omp.target(lambda x, y: y.__iadd__(1) is None)(failed, y)
    assert isinstance(caught.value.__cause__, ArithmeticError)
    assert (y == 0).all()


def test_arrays_of_another_device():
    """A value chooses no device: one of another device than the region's is an error in the task."""
    with checked("sim:2"):
        make = omp.target(lambda: omp.array_namespace().ones(3), nowait=True, device=1)
        use = omp.target(lambda d: float(d.sum()), nowait=True)
        task = use(make())
        assert isinstance(task.exception(), omp.MapError)
        assert use.options(device=1)(make()).result() == 3
        del make, use, task


# -- graphs -----------------------------------------------------------------------------------------
def test_replays_have_values_of_their_own(runtime):
    """In a replay a body is given what the replay's own task has returned, on the host and on the device."""
    read = omp.task(lambda x: x.copy())
    double = omp.target(lambda x: x * 2, nowait=True)
    store = omp.target(lambda d, y, n: y.__setitem__(Ellipsis, d + n), nowait=True)

    @omp.taskgraph
    def steps(x, y):
        number = omp.task(lambda: x[0])()
        store(double(read(x)), y, n=add(number, 1))

    x, y = np.zeros(3), np.zeros(3)
    for k in range(5):
        x[...] = k
        steps(x, y)
        assert (y == 3 * k + 1).all()
    assert len(steps.records) == 1
    assert steps.records[0].n_tasks == 5


def test_a_record_keeps_no_value(host):
    """A record refers to no value of the recording."""
    values = []

    class Value:
        pass

    def make():
        value = Value()
        values.append(weakref.ref(value))
        return value

    @omp.taskgraph
    def steps():
        omp.task(type)(omp.task(make)())

    for _ in range(3):
        steps()
    gc.collect()
    assert len(values) == 3
    until_gone(*values)


def test_a_taskgraph_refuses_tasks_of_its_surroundings(host):
    """A graph could not wait for them, nor would their values be those of a replay."""
    outside = give(3)

    @omp.taskgraph
    def steps():
        add(outside)

    with pytest.raises(omp.UnsupportedError, match="neither a task of the graph"):
        steps()
    steps.options(if_=False)()
    omp.taskwait()


@pytest.mark.parametrize("execute", [True, False])
@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_computed_graphs(runtime, execute, scheduler):
    """A graph that is computed gives each node what its own nodes have returned; its edges say so."""
    x = np.ones(3)
    with omp.record(execute=execute) as graph:
        read = omp.task(x.copy, name="read")()
        double = omp.target(lambda a: a * 2, nowait=True, name="double")(read)
        omp.target(lambda d, n: float(d.sum()) + n, nowait=True, name="total")(double, n=omp.task(lambda: x[0])())
        omp.taskwait()
    nodes = {node.name: node for node in graph.tasks}
    assert graph.predecessors(nodes["double"]) == [nodes["read"]]
    for k in (2, 3):
        x[...] = k
        values = graph.compute(scheduler=scheduler)
        assert values[nodes["total"].key] == 7 * k
    del read, double, values


def test_recorded_with_tasks_of_the_surroundings(host):
    """A graph that runs as usual and is computed later has the value of a task outside of it."""
    outside = give(3)
    with omp.record() as graph:
        task = add(outside, 1)
    assert task.result() == 4
    assert list(graph.compute().values()) == [4]


def test_a_failure_in_a_replay(host):
    """What is given the value of a task that fails in a replay does not run there; the next replay is as the first."""
    x, seen = np.ones(1), []

    @omp.task
    def check():
        if x[0] < 0:
            raise ArithmeticError("on purpose")
        return float(x[0])

    @omp.taskgraph
    def steps():
        omp.task(seen.append)(check())

    steps()
    steps()
    x[0] = -1
    with pytest.raises(ExceptionGroup) as caught:
        steps()
    assert [type(error) for error in caught.value.exceptions] == [ArithmeticError]
    x[0] = 2
    steps()
    assert seen == [1, 1, 2]
