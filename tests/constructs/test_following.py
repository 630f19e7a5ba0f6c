"""Tasks and events as list items of depend: what names one runs after the task, or after the fulfilment."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import weakref
from concurrent.futures import Future

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, inoutset, mutexinoutset, out
from tests.patience import until_gone

TYPES = [in_, out, inout, inoutset, mutexinoutset]


_made = []


def new_event():
    """Return an event, which is fulfilled when the test has ended: a test that fails shall not hang."""
    _made.append(omp.Event())
    return _made[-1]


@pytest.fixture(params=[0, 2])
def runtime(request):
    with omp.Runtime("sim:1", num_threads=request.param, check=True) as runtime:
        yield runtime
        while _made:
            with contextlib.suppress(omp.EventError):
                _made.pop().fulfill()


@pytest.fixture
def log():
    return []


def held(log, event, name="first", **clauses):
    """Generate a task that notes its name, and is complete when the event is fulfilled."""
    return omp.task(lambda: log.append(name), detach=event, **clauses)()


def elsewhere(make):
    """Return what a call gives on a thread of its own, which is another generating task."""
    found = Future()

    def call():
        try:
            found.set_result(make())
        except BaseException as error:
            found.set_exception(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return found.result()


def fail():
    raise ArithmeticError("on purpose")


# -- tasks ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", ["here", "another thread", "another runtime"])
@pytest.mark.parametrize("make", TYPES)
def test_a_task_follows_a_task(runtime, log, make, where):
    """With any dependence type, a task that names a task begins after that is complete, wherever it was generated."""
    event = new_event()
    if where == "another runtime":
        other = omp.Runtime("none", num_threads=1)
        first = elsewhere(lambda: contextvars.Context().run(generate_in, other, lambda: held(log, event)))
    else:
        first = held(log, event) if where == "here" else elsewhere(lambda: held(log, event))
    assert omp.current_runtime() is runtime
    second = omp.task(lambda: log.append("second"), depend=[make(first)])()
    third = omp.task(lambda: log.append("third"), depend=[in_(second), make(first)])()
    assert (second.done(), third.done()) == (False, False)
    assert set(third.dependencies) == {first, second}
    event.fulfill()
    omp.taskwait()
    assert log == ["first", "second", "third"]
    if where == "another runtime":
        other.close()


def generate_in(runtime, make):
    """Return what a call gives in a runtime that stays open."""
    runtime.__enter__()
    return make()


@pytest.mark.parametrize("where", ["here", "another thread"])
def test_constructs_of_every_kind_follow_a_task(runtime, log, where):
    """Targets, updates, copies, empty tasks and depend objects follow a task that they name."""
    a, event = np.zeros(4), new_event()
    first = held(log, event) if where == "here" else elsewhere(lambda: held(log, event))
    d = omp.target_alloc(4, "f8")
    region = omp.target(lambda x: log.append("region"), nowait=True)
    obj = omp.depobj(in_(first))
    tasks = [
        region.options(depend=[in_(first)])(a),
        omp.taskwait(depend=[in_(first)], nowait=True),
        omp.target_enter_data(map=[omp.to(a)], depend=[in_(first)], nowait=True),
        omp.target_memcpy_async(d, a, depend=[inout(first), in_(a)]),
        omp.task(lambda: None, depend=[obj])(),
        omp.task(lambda t: None, depend=[in_("t")])(first),
    ]
    assert not any(task.done() for task in tasks)
    event.fulfill()
    omp.taskwait()
    assert log == ["first", "region"]
    omp.target_exit_data(map=[omp.release(a)])
    omp.target_free(d)


@pytest.mark.parametrize("where", ["here", "another thread"])
def test_who_waits_here_waits_for_the_task(log, where):
    """An undeferred task, a blocking target and taskwait(depend=) wait for a task that they name."""
    with omp.Runtime("sim:1", num_threads=2):
        a = np.zeros(1)

        def fulfill_soon(event):
            omp.task(lambda: (log.append("fulfil"), event.fulfill()))()

        for wait in (
            lambda task: omp.taskwait(depend=[in_(task)]),
            lambda task: omp.task(lambda: None, if_=False, depend=[in_(task)])(),
            lambda task: omp.target(lambda x: None, depend=[in_(task)])(a),
        ):
            event = new_event()
            first = held(log, event) if where == "here" else elsewhere(lambda event=event: held(log, event))
            fulfill_soon(event)
            wait(first)
            assert first.done()


def test_a_task_is_a_location_that_it_has_written(runtime, log):
    """Readers of a task may run side by side; a later writer of it follows them."""
    first, event = omp.task(lambda: None)(), new_event()
    first.result()
    reader = held(log, event, "reader", depend=[in_(first)])
    other = omp.task(lambda: log.append("other"), depend=[in_(first)])()
    writer = omp.task(lambda: log.append("writer"), depend=[inout(first)])()
    other.result()
    assert writer.dependencies == (reader,)
    event.fulfill()
    omp.taskwait()
    assert log[-1] == "writer"


def test_all_memory_beside_a_task(runtime, log):
    """A task that names all_memory and, in another clause, a task of another thread follows that, too."""
    event = new_event()
    first = elsewhere(lambda: held(log, event))
    for depend in ([out(omp.all_memory), in_(first)], [in_(first), out(omp.all_memory)]):
        assert not omp.task(lambda: log.append("second"), depend=depend)().done()
    with pytest.raises(omp.DependError, match="all_memory"):
        omp.task(lambda: None, depend=[out(omp.all_memory, first)])()
    event.fulfill()
    omp.taskwait()
    assert log == ["first", "second", "second"]


@pytest.mark.parametrize("where", ["here", "another thread"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_failures_go_along(runtime, log, where, when):
    """What names a task that fails, and that nobody has seen fail, does not run; its error has that as cause."""
    event = new_event()
    release = omp.task(lambda: None, detach=event)()

    def make():
        return omp.task(fail, depend=[in_(release)])()

    if when == "after":
        event.fulfill()
    first = make() if where == "here" else elsewhere(make)
    while when == "after" and not first.done():
        omp.taskyield()
    second = omp.task(lambda: log.append("second"), depend=[in_(first)])()
    third = omp.task(lambda: log.append("third"), depend=[in_(second)])()
    if when == "before":
        event.fulfill()
    cause = first.exception()
    for task in (second, third):
        error = task.exception()
        assert isinstance(error, omp.DependError)
        assert error.__cause__ is cause
        assert task.state == "not run"
    omp.task(lambda: log.append("later"), depend=[in_(first), in_(second)])().result()
    assert log == ["later"]


def test_taskwait_tells_of_a_failure_elsewhere(runtime):
    """taskwait(depend=) on a task of another thread that fails raises its failure, in a group."""
    event = new_event()
    first = elsewhere(omp.task(fail, detach=event))
    with pytest.raises(ExceptionGroup) as caught:
        omp.taskwait(depend=[in_(first)])
    assert caught.value.exceptions == (first.exception(),)


def test_a_cancelled_task_releases():
    """What names a task that was discarded runs."""
    with omp.Runtime("sim:1", num_threads=0, env={"OMP_CANCELLATION": "true"}):
        discarded = []
        with omp.taskgroup():
            discarded.append(omp.task(fail)())
            omp.cancel("taskgroup")
        assert discarded[0].state == "cancelled"
        assert omp.task(lambda: 3, depend=[in_(discarded[0])])().result() == 3


def test_a_task_after_its_parent(runtime, log):
    """A task can name the one that generates it, and runs when that is complete."""
    children = []

    def parent():
        children.append(omp.task(lambda: log.append("child"), depend=[in_(omp.current_task())])())
        log.append("parent")

    omp.task(parent)().result()
    children[0].result()
    assert log == ["parent", "child"]


def test_names_keep_nothing(runtime):
    """A chain of tasks, each of which names the one before, keeps none of them but the last."""
    task = omp.task(lambda: np.zeros(10))()
    first = weakref.ref(task)
    for _ in range(5):
        task = omp.task(lambda: None, depend=[in_(task)])()
    omp.taskwait()
    until_gone(first)  # the worker that has ended it lets go of it in its time


def test_coroutines_follow_tasks():
    """An async task follows tasks of its thread and of another one, and awaits hold nobody up."""

    async def main():
        event, log = new_event(), []
        first = elsewhere(lambda: held(log, event))

        async def body():
            log.append("coroutine")

        second = omp.task(body, depend=[in_(first)])()
        third = omp.task(lambda: log.append("third"), depend=[in_(second)])()
        event.fulfill()
        await omp.taskwait(depend=[in_(first)])
        await third
        return log

    with omp.Runtime("sim:1", num_threads=2):
        assert asyncio.run(main()) == ["first", "coroutine", "third"]


# -- events -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", TYPES)
@pytest.mark.parametrize("belongs", ["to none", "to a task", "to a task that comes later", "to one of another thread"])
def test_a_task_follows_an_event(runtime, log, make, belongs):
    """With any dependence type, a task that names an event begins after its fulfilment, whatever task it belongs to."""
    event = new_event()
    if belongs == "to a task":
        held(log, event)
    elif belongs == "to one of another thread":
        elsewhere(lambda: held(log, event))
    second = omp.task(lambda: log.append("second"), depend=[make(event)])()
    omp.target(lambda: log.append("region"), nowait=True, depend=[make(event), in_(second)])()
    if belongs == "to a task that comes later":
        held(log, event)
    omp.task(lambda: None)().result()  # what could run has had its turn
    log.append("fulfil")
    event.fulfill()
    omp.taskwait()
    assert [name for name in log if name != "first"] == ["fulfil", "second", "region"]
    assert omp.task(lambda: 5, depend=[make(event)])().result() == 5


def test_who_waits_here_waits_for_the_event(log):
    """taskwait(depend=) and an undeferred task wait for an event, which a source fulfils."""
    with omp.Runtime("sim:1", num_threads=1):
        for wait in (
            lambda event: omp.taskwait(depend=[in_(event)]),
            lambda event: omp.task(lambda: None, if_=False, depend=[in_(event)])(),
        ):
            event, future = new_event(), Future()
            event.fulfill_on(future)
            omp.task(lambda future=future: future.set_result(None))()
            wait(event)
            assert event.is_fulfilled


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("belongs", [False, True])
def test_failed_sources_go_along(runtime, log, when, belongs):
    """What names an event whose source fails does not run, with that error as cause; who comes later neither."""
    event, future, error = new_event(), Future(), ArithmeticError("source")
    event.fulfill_on(future)
    first = held(log, event) if belongs else None
    if first is not None:
        while first.state != "detached":
            omp.taskyield()
    if when == "after":
        future.set_exception(error)
    second = omp.task(lambda: log.append("second"), depend=[in_(event), out(("place",))])()
    if when == "before":
        future.set_exception(error)
    found = second.exception()
    assert isinstance(found, omp.DependError)
    assert found.__cause__ is error
    if first is not None:
        assert first.exception() is error
    assert omp.task(lambda: 1, depend=[inout(("place",))])().result() == 1
    if not belongs:
        with pytest.raises(ExceptionGroup) as caught:
            omp.taskwait(depend=[in_(event)])
        assert caught.value.exceptions == (error,)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_event_whose_task_ends_without_it(runtime, log, when):
    """What names an event does not run where the body of the event's task fails: nobody may fulfil it any more."""
    event = new_event()
    made = omp.task(fail, detach=event)
    first = made() if when == "before" else None
    second = omp.task(lambda: log.append("second"), depend=[in_(event)])()
    first = first or made()
    error = second.exception()
    assert isinstance(error, omp.DependError)
    assert error.__cause__ is first.exception()
    assert log == []


# -- graphs -----------------------------------------------------------------------------------------
def test_recorded_edges(runtime, log):
    """In a graph, a task of the graph, or the event of one, is an edge; computed, the graph keeps the order."""
    event = new_event()
    with omp.record(execute=False) as graph:
        first = omp.task(lambda: log.append("first"), detach=event)()
        second = omp.task(lambda: (log.append("second"), event.fulfill()))()
        omp.task(lambda: log.append("third"), depend=[in_(first)])()
        omp.task(lambda: log.append("fourth"), depend=[in_(event), in_(second)])()
    nodes = {node.run.task: number for number, node in enumerate(graph.tasks)}
    edges = {(graph.tasks.index(edge.source), graph.tasks.index(edge.target), edge.kind) for edge in graph.edges}
    assert edges == {(0, 2, "flow"), (0, 3, "flow"), (1, 3, "flow")}
    assert nodes[first] == 0
    for _ in range(2):
        log.clear()
        graph.compute(scheduler="threads")
        assert sorted(log[:2]) == ["first", "second"]
        assert sorted(log[2:]) == ["fourth", "third"]


def test_what_a_graph_cannot_wait_for(runtime):
    """Outside tasks and events in a graph that runs by itself are an UnsupportedError, recorded tasks a UsageError."""
    outside, event = omp.task(lambda: None)(), new_event()
    with omp.record(execute=False):
        recorded = omp.task(lambda: None)()
        for item in (outside, event):
            with pytest.raises(omp.UnsupportedError, match="graph"):
                omp.task(lambda: None, depend=[in_(item)])()
    with pytest.raises(omp.UsageError, match="only recorded"):
        omp.task(lambda: None, depend=[in_(recorded)])()
    region = omp.taskgraph(omp.task(lambda: None, depend=[in_(outside)]))
    with pytest.raises(omp.UnsupportedError, match="graph"):
        region()


def test_record_runs_as_usual(runtime, log):
    """While a graph is recorded and runs, tasks and events from outside are followed, and are no part of the graph."""
    event = new_event()
    outside = held(log, event)
    with omp.record() as graph:
        second = omp.task(lambda: log.append("second"), depend=[in_(outside), in_(event)])()
        omp.task(lambda: log.append("third"), depend=[in_(second)])()
    event.fulfill()
    omp.taskwait()
    assert log == ["first", "second", "third"]
    assert [edge.kind for edge in graph.edges] == ["flow"]


def test_replays_keep_the_order(runtime, log):
    """A task graph whose tasks name each other replays them in order."""

    @omp.taskgraph
    def region():
        first = omp.task(lambda: log.append("first"))()
        second = omp.task(lambda: log.append("second"), depend=[in_(first)])()
        omp.task(lambda: log.append("third"), depend=[in_(second), out(("x",))])()

    for _ in range(3):
        region()
    assert log == ["first", "second", "third"] * 3


def test_an_undeferred_task_cannot_follow_its_ancestor(runtime):
    """An undeferred construct that names the task that encounters it, or one around, would wait for ever: an error."""
    found = []

    @omp.task
    def inner(held):
        for what in (*held, omp.current_task()):
            with pytest.raises(omp.UsageError, match="waits for itself"):
                omp.task(if_=False, depend=[in_(what)])(lambda: None)()
        found.append(True)

    @omp.task
    def outer():
        inner([omp.current_task()]).result()

    outer().result()
    assert found == [True]
