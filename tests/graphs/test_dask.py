"""Recorded graphs under Dask: order, gates that hold no worker, failures, and what is refused."""

import itertools
import os
import statistics
import threading
import time
from concurrent.futures import Future
from functools import partial

import dask
import dask.callbacks
import numpy as np
import pytest
from dask.task_spec import Task as DaskTask
from distributed import Client, LocalCluster

import offload as omp
from offload.views.looks import summary
from tests.patience import until

PATIENCE_S = 20


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(params=["synchronous", "threads-1", "threads-4", "client"])
def compute(request):
    """Compute a graph under one of the schedulers."""
    if request.param == "client":
        return partial(lambda client, graph: graph.compute(client), request.getfixturevalue("client"))
    name, _, num_workers = request.param.partition("-")
    kwargs = {"num_workers": int(num_workers)} if num_workers else {}
    return lambda graph: graph.compute(name, **kwargs)


@pytest.fixture(params=["threads-1", "threads-4", "client"])
def parallel(request):
    """The same without the synchronous scheduler."""
    if request.param == "client":
        return partial(lambda client, graph: graph.compute(client), request.getfixturevalue("client"))
    return lambda graph: graph.compute("threads", num_workers=int(request.param[-1]))


def wait_for(event):
    assert event.wait(PATIENCE_S)


class Log:
    """What ran, in order."""

    def __init__(self):
        self.entries = []

    def task(self, name, value=None, **clauses):
        """Generate a task that writes its name."""

        def body():
            self.entries.append(name)
            return value

        return omp.task(name=name, **clauses)(body)()

    def before(self, first, second):
        return self.entries.index(first) < self.entries.index(second)


# -- the graph -------------------------------------------------------------------------------------


def test_dask_graph_has_a_node_for_each_directive_and_a_reference_for_each_dependence(sim):
    """The Dask graph has the recorded one's keys and edges, and is made of public task nodes."""
    log = Log()
    with omp.record(execute=False) as graph:
        log.task("a", depend=[omp.out(("x",))])
        log.task("b", depend=[omp.in_(("x",))])
        omp.taskwait()
        log.task("c")
    dsk = graph.__dask_graph__()
    assert dask.is_dask_collection(graph)
    assert list(dsk) == graph.__dask_keys__() == [node.key for node in graph.tasks]
    assert all(type(task) is DaskTask and task.key == key for key, task in dsk.items())
    assert {(before, key) for key, task in dsk.items() for before in task.dependencies} == {
        (edge.source.key, edge.target.key) for edge in graph.edges
    }


def test_order_and_values(sim, compute):
    """Dependences and a taskwait order the bodies; values come by key; a second computation runs them again."""
    log = Log()
    with omp.record(execute=False) as graph:
        log.task("a", 1, depend=[omp.out(("x",))])
        log.task("b", 2, depend=[omp.in_(("x",))])
        log.task("c", 3)
        omp.taskwait()
        log.task("d", 4)
    for _ in range(2):
        log.entries.clear()
        values = compute(graph)
        assert list(values) == [node.key for node in graph.tasks]
        assert list(values.values()) == [1, 2, 3, None, 4]
        assert sorted(log.entries) == ["a", "b", "c", "d"]
        assert log.before("a", "b")
        assert log.entries[-1] == "d"
        assert all(node.state == "complete" for node in graph.tasks if node.directive == "task")


def test_wide_graph(sim, compute):
    """Many more nodes than workers, in chains, all run in order."""
    counts = dict.fromkeys(range(8), 0)

    @omp.task
    def add(chain, expected):
        assert counts[chain] == expected
        counts[chain] += 1

    with omp.record(execute=False) as graph:
        for turn in range(10):
            for chain in counts:
                add.options(depend=[omp.inout(("chain", chain))])(chain, turn)
    compute(graph)
    assert set(counts.values()) == {10}


def test_empty_graph(sim, compute):
    """A graph without nodes has no values."""
    with omp.record() as graph:
        pass
    assert compute(graph) == {}


def test_computed_after_it_ran(sim, compute):
    """A graph that was recorded while it ran is computed once what was recorded is complete, its events armed again."""
    event = omp.Event()
    runs = []

    @omp.task(detach=event, depend=[omp.out(("x",))])
    def first():
        runs.append("first")

    @omp.task(depend=[omp.in_(("x",))])
    def second():
        runs.append("second")

    with omp.record() as graph:
        first()
        second()
        omp.task(event.fulfill)()
    compute(graph)
    compute(graph)
    assert runs == ["first", "second"] * 3


# -- events ----------------------------------------------------------------------------------------


def test_event_fulfilled_by_a_node_that_runs_before(sim, compute):
    """An event that an earlier node fulfils counts, though its task starts later; also the second time."""
    event = omp.Event()
    log = Log()
    with omp.record(execute=False) as graph:
        omp.task(depend=[omp.out(("x",))])(event.fulfill)()
        log.task("detached", detach=event, depend=[omp.inout(("x",))])
        log.task("after", depend=[omp.in_(("x",))])
    compute(graph)
    compute(graph)
    assert log.entries == ["detached", "after"] * 2


def test_event_fulfilled_by_the_body(sim, compute):
    """A body may fulfil its own event."""
    event = omp.Event()
    log = Log()
    with omp.record(execute=False) as graph:
        omp.task(detach=event, depend=[omp.out(("x",))])(event.fulfill)()
        log.task("after", depend=[omp.in_(("x",))])
    compute(graph)
    assert log.entries == ["after"]


def test_event_fulfilled_by_a_foreign_thread(sim, compute):
    """What depends on a detached node runs after the event, which a thread that Dask does not know fulfils."""
    event = omp.Event()
    log = Log()
    threads = []

    @omp.task(detach=event, depend=[omp.out(("x",))])
    def body():
        def fulfill():
            log.entries.append("fulfilled")
            event.fulfill()

        threads.append(threading.Thread(target=fulfill))
        threads[-1].start()

    with omp.record(execute=False) as graph:
        body()
        log.task("after", depend=[omp.in_(("x",))])
    for _ in range(2):
        compute(graph)
    for thread in threads:
        thread.join()
    assert log.entries == ["fulfilled", "after"] * 2


def open_gates(n, log):
    """Record n detached tasks, which independent later ones fulfil, the last first, once all n are open."""
    events, all_open, opened = [omp.Event() for _ in range(n)], omp.Event(), itertools.count(1)

    def opens():
        if next(opened) % n == 0:  # in one step: no two threads see the same number
            all_open.fulfill()

    def fulfills(number):
        log.entries.append(("fulfil", number))
        events[number].fulfill()

    with omp.record(execute=False) as graph:
        for number, event in enumerate(events):
            omp.task(detach=event, depend=[omp.out(("gate", number))])(opens)()
        omp.task(detach=all_open, depend=[omp.out(("chain",))])(lambda: None)()
        for number in reversed(range(n)):
            omp.task(depend=[omp.inout(("chain",))])(fulfills)(number)
        for number in range(n):
            log.task(f"after {number}", depend=[omp.in_(("gate", number))])
    return graph


def test_open_gates_hold_no_worker(sim, parallel):
    """With many more gates open than there are workers, the nodes that open them still run."""
    log = Log()
    graph = open_gates(20, log)
    parallel(graph)
    assert [entry for entry in log.entries if isinstance(entry, tuple)] == [("fulfil", n) for n in reversed(range(20))]
    assert sum(isinstance(entry, str) for entry in log.entries) == 20


def test_open_gate_does_not_hold_the_one_thread(sim, compute):
    """Even on one thread, a node that is ready fulfils the gate of one that has started."""
    event = omp.Event()
    log = Log()
    with omp.record(execute=False) as graph:
        log.task("gate", detach=event, depend=[omp.out(("x",))])
        omp.task(event.fulfill)()
        log.task("after", depend=[omp.in_(("x",))])
    compute(graph)
    assert log.before("gate", "after")


def test_synchronous_runs_every_body_on_the_calling_thread(sim):
    """Under the synchronous scheduler host and device bodies run where `compute` was called."""
    x = np.ones(4)
    where = []

    @omp.target(nowait=True)
    def body(x):
        where.append(threading.get_ident())
        x += 1

    with omp.record(execute=False) as graph:
        for _ in range(3):
            omp.task(lambda: where.append(threading.get_ident()))()
            body.options(depend=[omp.inout(("x",))])(x)
    graph.compute("synchronous")
    assert set(where) == {threading.get_ident()}
    assert len(where) == 6
    assert (x == 4).all()


# -- devices ---------------------------------------------------------------------------------------


def test_device_work(runtime, compute):
    """Data constructs, regions and rectangular copies are nodes that complete with their stream."""
    x, y, back = np.arange(64.0).reshape(8, 8), np.zeros((8, 8)), np.zeros((8, 8))

    @omp.target(nowait=True, map=[omp.to("x"), omp.tofrom("y")])
    def axpy(x, y):
        y += 2 * x

    d = omp.target_alloc((8, 8), "f8")
    with omp.record(execute=False) as graph:
        omp.target_enter_data(map=[omp.to(x, y)], nowait=True, depend=[omp.out(x), omp.out(y)])
        axpy.options(depend=[omp.in_(x), omp.inout(y)])(x, y)
        axpy.options(depend=[omp.in_(x), omp.inout(y)])(x, y)
        omp.target_exit_data(map=[omp.from_(y), omp.release(x)], nowait=True, depend=[omp.inout(x), omp.inout(y)])
        omp.target_memcpy_rect_async(d, y, depend=[omp.in_(y), omp.out(d)])
        omp.target_memcpy_rect_async(back, d, (4, 8), depend=[omp.in_(d), omp.out(back)])
        omp.task(depend=[omp.in_(back)])(lambda: float(back[:4].sum()))()
    for turn in (1, 2):
        values = compute(graph)
        assert (y == 4 * x * turn).all()
        assert (back[:4] == y[:4]).all()
        assert (back[4:] == 0).all()
        assert list(values.values())[-1] == back.sum()
    omp.target_free(d)


def test_event_fulfilled_on_a_stream(runtime, compute):
    """A detached task whose event is fulfilled by a stream completes when the stream has got there."""
    event = omp.Event()
    host, log = np.zeros(8), Log()
    d = omp.target_alloc(8, "f8")

    @omp.task(detach=event, depend=[omp.out(("d",))])
    def body():
        log.entries.append("body")
        event.fulfill_on(omp.current_stream())

    with omp.record(execute=False) as graph:
        body()
        omp.target_memcpy_rect_async(d, host, depend=[omp.inout(("d",))])
        log.task("after", depend=[omp.in_(("d",))])
    compute(graph)
    compute(graph)
    assert log.entries == ["body", "after"] * 2
    omp.target_free(d)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_a_runtime_without_workers(scheduler):
    """Device bodies and nested tasks run though the runtime has no threads of its own."""
    x, ran = np.ones(4), []

    @omp.task
    def outer():
        omp.task(ran.append)("inner")

    with omp.Runtime("sim:1", num_threads=0, check=True):
        with omp.record(execute=False) as graph:
            outer()
            omp.target(nowait=True)(lambda x: x.__iadd__(1) is None)(x)
        graph.compute(scheduler)
    assert (x == 2).all()
    assert ran == ["inner"]


# -- nested tasks ----------------------------------------------------------------------------------


def test_nested_tasks_end_before_compute_returns(sim, compute):
    """Tasks that bodies generate and do not wait for, and their children, are complete when `compute` returns."""
    latch = threading.Event()
    ran = []

    @omp.task
    def innermost():
        wait_for(latch)
        ran.append("innermost")

    @omp.task
    def inner():
        innermost()

    @omp.task
    def outer():
        inner()
        ran.append(omp.current_task().name)

    with omp.record(execute=False) as graph:
        outer()
        omp.task(latch.set)()
    compute(graph)
    assert sorted(ran) == ["innermost", "outer"]


def test_a_failing_nested_task_is_a_group(sim, compute):
    """A failure of a task that a body generated and nobody has seen is raised at the end."""

    @omp.task
    def outer():
        omp.task(lambda: 1 / 0)()

    with omp.record(execute=False) as graph:
        outer()
    with pytest.raises(ExceptionGroup) as caught:
        compute(graph)
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


# -- failures --------------------------------------------------------------------------------------


def test_failing_body(sim, compute):
    """The exception comes out as raised, dependents do not run, open gates and independent nodes end first."""
    event, error, log = omp.Event(), ValueError("mine"), Log()

    @omp.task(depend=[omp.out(("x",))])
    def fails():
        raise error

    with omp.record(execute=False) as graph:
        log.task("gate", detach=event, depend=[omp.out(("gate",))])
        fails()
        log.task("dependent", depend=[omp.in_(("x",))])
        log.task("dependent of it", depend=[omp.in_(("x",))])
        omp.task(name="opens")(event.fulfill)()
        log.task("after gate", depend=[omp.in_(("gate",))])
    for _ in range(2):
        log.entries.clear()
        with pytest.raises(ValueError, match="mine") as caught:
            compute(graph)
        assert caught.value is error
        assert any("fails" in note and "test_dask.py" in note for note in error.__notes__)
        assert log.entries == ["gate", "after gate"]


def test_two_failures(sim, compute):
    """The second failure is a note on the first; nobody meets either again."""

    @omp.task
    def fails(number):
        raise [ValueError, KeyError][number](number)

    with omp.record(execute=False) as graph:
        fails(0)
        fails(1)
    with pytest.raises((ValueError, KeyError)) as caught:
        compute(graph)
    other = "KeyError" if isinstance(caught.value, ValueError) else "ValueError"
    assert any(other in note for note in caught.value.__notes__)


def test_failing_device_task(runtime, compute):
    """A target whose body fails fails the computation and leaves nothing mapped; another graph runs afterwards."""
    x = np.ones(4)

    @omp.target(nowait=True)
    def body(x):
        x += 1
        raise ValueError(int(x.size))

    with omp.record(execute=False) as graph:
        body.options(depend=[omp.inout(x)])(x)
        body.options(depend=[omp.inout(x)])(x)
    with pytest.raises(ValueError, match="4"):
        compute(graph)
    assert (x == 1).all()


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["processes", "multiprocessing", "no such thing", 7, None])
def test_other_schedulers_are_refused(sim, scheduler):
    """A scheduler of other processes, or none at all, is an UnsupportedError, and nothing runs."""
    log = Log()
    with omp.record(execute=False) as graph:
        log.task("a")
    with pytest.raises(omp.UnsupportedError):
        graph.compute(scheduler)
    assert not log.entries
    graph.compute()
    assert log.entries == ["a"]


def test_what_is_no_specification(client):
    """A list is a ClauseError, and so is a cluster without a client."""
    with pytest.raises(omp.ClauseError, match="is not a string"):
        omp.Runtime(["sim"])
    with pytest.raises(omp.ClauseError, match="is not a client"):
        omp.Runtime(client.cluster)


def test_a_client_of_this_process_has_devices(client):
    """The workers of a client may be in this process; their devices are this runtime's all the same."""
    x = np.zeros(3)
    with omp.Runtime(client, check=True):
        assert omp.device(0).kind == "dask"
        omp.target(lambda x: x.fill(1))(x)
    assert (x == 1).all()


def test_dask_refuses_a_client_of_other_processes(sim):
    """Dask's own compute cannot move a graph to a worker that is a process of its own: UnsupportedError."""
    log = Log()
    with omp.record(execute=False) as graph:
        log.task("a")
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(omp.UnsupportedError, match=r"graph\.compute\(client\)"),
    ):
        dask.compute(graph, scheduler=client)
    assert not log.entries


def test_a_graph_is_computed_once_at_a_time(sim, compute):
    """A second computation of the same graph during the first is a UsageError."""
    seen = []

    def body():
        with pytest.raises(omp.UsageError) as caught:
            graph.compute("threads")
        seen.append(caught.value)

    with omp.record(execute=False) as graph:
        omp.task(body)()
    compute(graph)
    assert len(seen) == 1


def test_a_graph_inside_a_graph(sim, compute):
    """A body may compute another graph."""
    log = Log()
    with omp.record(execute=False) as inner:
        log.task("inner", 5)
    with omp.record(execute=False) as outer:
        omp.task(lambda: list(inner.compute("threads", num_workers=1).values()))()
    assert list(compute(outer).values()) == [[5]]


# -- through Dask ----------------------------------------------------------------------------------


def test_dask_compute_holds_no_worker(sim):
    """`dask.compute(graph)` has the values by key, and opens more gates than it has threads."""
    log = Log()
    graph = open_gates(6, log)
    (values,) = dask.compute(graph, num_workers=2)
    assert list(values) == graph.__dask_keys__()
    assert sum(isinstance(entry, str) for entry in log.entries) == 6


def test_dask_compute_of_two_graphs(sim):
    """Two collections are computed together."""
    log = Log()
    graphs = []
    for name in "ab":
        with omp.record(execute=False) as graph:
            log.task(name, name)
        graphs.append(graph)
    first, second = dask.compute(*graphs)
    assert [*first.values(), *second.values()] == ["a", "b"]


@pytest.mark.parametrize("is_first", [True, False])
def test_dask_compute_with_another_collection(sim, is_first):
    """A graph is computed together with a collection of Dask's, without a scheduler."""
    log = Log()
    with omp.record(execute=False) as graph:
        log.task("a", "a")
    collections = [graph, dask.delayed(sum)([1, 2])]
    values = dask.compute(*(collections if is_first else reversed(collections)))
    assert [*values] == ([{graph.nodes[0].key: "a"}, 3] if is_first else [3, {graph.nodes[0].key: "a"}])
    (persisted,) = dask.persist(graph)
    assert dask.compute(persisted, dask.delayed(7)) == (values[0 if is_first else 1], 7)


def test_dask_compute_of_two_graphs_with_waits(sim):
    """The waits of two graphs are nodes of their own."""
    log = Log()
    graphs = []
    for name in "ab":
        with omp.record(execute=False) as graph:
            log.task(f"{name} before")
            omp.taskwait()
            log.task(f"{name} after")
        graphs.append(graph)
    assert not set(graphs[0].__dask_keys__()) & set(graphs[1].__dask_keys__())
    dask.compute(*graphs)
    assert log.before("a before", "a after")
    assert log.before("b before", "b after")


def named(graph):
    """Return what the only task of a graph returns: the name of a thread."""
    return next(iter(graph.compute().values()))


def test_the_active_client_is_used(sim):
    """Without a scheduler the active client computes a graph, or the configured scheduler, as it does in Dask."""
    with omp.record(execute=False) as graph:
        omp.task(lambda: threading.current_thread().name)()
    assert named(graph).startswith("offload-dask")
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        assert "Dask-Default-Threads" in named(graph)
        values, seven = dask.compute(graph, dask.delayed(7))
        assert all("Dask-Default-Threads" in value for value in values.values())
        assert seven == 7
        assert next(iter(graph.compute("threads").values())).startswith("offload-dask")
        with dask.config.set(scheduler="synchronous"):
            assert named(graph) == threading.current_thread().name
        with omp.record(execute=False) as outer:
            omp.task(lambda: named(graph))()
        assert named(outer).startswith("offload-dask")  # the client has one slot, which the outer task holds
    with dask.config.set(scheduler=dask.get):
        assert named(graph) == threading.current_thread().name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_active_client_of_other_processes(sim):
    """graph.compute moves the graph to its workers. Dask's own compute says so, and which scheduler it can use."""
    with omp.record(execute=False) as graph:
        omp.target(os.getpid).options(nowait=True)()
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for compute in (lambda: dask.compute(graph), lambda: dask.compute(graph, dask.delayed(7))):
            with pytest.raises(omp.UnsupportedError, match=r"scheduler='threads'"):
                compute()
        assert [*graph.compute("threads").values()] == [os.getpid()]
        assert [*graph.compute().values()] == [*client.run(os.getpid).values()] != [os.getpid()]


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "client"])
def test_dask_compute_with_an_explicit_scheduler(sim, request, scheduler):
    """Under a scheduler given to Dask a node completes with its event, its device work and its descendants."""
    event, log, x = omp.Event(), Log(), np.ones(4)
    threads = []

    @omp.task(detach=event, depend=[omp.out(("x",))])
    def body():
        threads.append(threading.Thread(target=event.fulfill))
        threads[-1].start()

    with omp.record(execute=False) as graph:
        body()
        log.task("after", 7, depend=[omp.in_(("x",))])
        omp.target(nowait=True)(lambda x: x.__iadd__(1) is None)(x)
        omp.task(lambda: log.task("nested") and None)()
    scheduler = request.getfixturevalue("client") if scheduler == "client" else scheduler
    for turn in (1, 2):
        (values,) = dask.compute(graph, scheduler=scheduler)
        assert list(values.values())[1] == 7
        assert (x == 1 + turn).all()
    for thread in threads:
        thread.join()
    assert sorted(log.entries) == ["after"] * 2 + ["nested"] * 2


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_dask_compute_raises_the_body_s_own_exception(sim, scheduler):
    """A failing body comes out of an explicit scheduler as it was raised."""
    error = ValueError("mine")

    @omp.task
    def fails():
        raise error

    with omp.record(execute=False) as graph:
        fails()
    with pytest.raises(ValueError, match="mine") as caught:
        dask.compute(graph, scheduler=scheduler)
    assert caught.value is error


def test_a_gate_that_only_the_single_thread_could_open_is_an_error(sim):
    """Under Dask's synchronous scheduler a gate that a node after it fulfils is a UsageError, not a hang."""
    first, second = omp.Event(), omp.Event()
    with omp.record(execute=False) as graph:  # whichever Dask runs first waits for the other
        omp.task(detach=first)(second.fulfill)()
        omp.task(detach=second)(first.fulfill)()
        omp.taskwait()
    with pytest.raises(omp.UsageError):
        dask.compute(graph, scheduler="synchronous")
    dask.compute(graph, scheduler="threads", num_workers=2)
    graph.compute("synchronous")


class Door:
    """An event inside of an object."""

    def __init__(self):
        self.event = omp.Event()

    def open(self):
        self.event.fulfill()


@pytest.mark.parametrize("how", ["method", "variable", "in a list", "argument"])
def test_a_node_that_refers_to_the_event_is_found(sim, how):
    """The error comes at once however the later node refers to the event."""
    doors = [Door(), Door()]

    def opener(door):
        event, held = door.event, [None, door.event]

        def by_variable():
            event.fulfill()

        def by_list():
            held[-1].fulfill()

        def by_argument(event):
            event.fulfill()

        return {
            "method": (door.open,),
            "variable": (by_variable,),
            "in a list": (by_list,),
            "argument": (by_argument, event),
        }[how]

    with omp.record(execute=False) as graph:
        for door, other in (doors, doors[::-1]):
            body, *arguments = opener(other)
            omp.task(detach=door.event)(body)(*arguments)
    with pytest.raises(omp.UsageError):
        dask.compute(graph, scheduler="synchronous")


def test_an_interrupt_ends_the_computation(sim):
    """What interrupts the computing thread comes out once nothing runs any more; what has not begun does not begin."""
    log = Log()
    with omp.record(execute=False) as graph:
        log.task("first", depend=[omp.out(("x",))])
        log.task("second", depend=[omp.inout(("x",))])

    def interrupt(*_):
        raise KeyboardInterrupt

    with dask.callbacks.Callback(posttask=interrupt), pytest.raises(KeyboardInterrupt):
        graph.compute("threads")
    assert log.entries == ["first"]
    graph.compute("threads")
    assert log.entries == ["first", "first", "second"]


def test_open_gates_hold_no_slot_under_a_client_given_to_dask(sim, client):
    """Through a client even an explicit `dask.compute` holds no worker for a gate."""
    log = Log()
    graph = open_gates(6, log)
    dask.compute(graph, scheduler=client)
    assert sum(isinstance(entry, str) for entry in log.entries) == 6


@pytest.mark.parametrize("how", [dask.persist, dask.optimize])
def test_persist_and_optimize(sim, how):
    """A persisted graph holds values, an optimised one nodes; both compute to the same dictionary."""
    log = Log()
    with omp.record(execute=False) as graph:
        log.task("a", 1)
    (kept,) = how(graph)
    assert dask.is_dask_collection(kept)
    assert dask.compute(kept) == ({graph.tasks[0].key: 1},)
    assert log.entries == ["a"]


def test_visualize(sim, tmp_path):
    """`dask.visualize` draws the graph, where Graphviz is installed."""
    pytest.importorskip("graphviz")
    log = Log()
    with omp.record(execute=False) as graph:
        log.task("a")
    dask.visualize(graph, filename=str(tmp_path / "g"), format="svg")
    assert (tmp_path / "g.svg").exists()


# -- what else a directive may be ------------------------------------------------------------------


class Overlap:
    """How many bodies are at work at a time."""

    def __init__(self):
        self.inside, self.most = [], []

    def body(self):
        self.inside.append(1)
        self.most.append(len(self.inside))
        threading.Event().wait(0.001)  # a chance for others to come in
        self.inside.pop()


def test_exclusion(sim, compute):
    """Nodes with mutexinoutset of an item run one at a time, in any order; those that stand in line hold no worker."""
    overlap, log = Overlap(), Log()
    with omp.record(execute=False) as graph:
        log.task("before", depend=[omp.out(("x",))])
        for number in range(12):
            items = [("x",)] if number % 3 else [("x",), ("y",)]
            omp.task(depend=[omp.mutexinoutset(*items)])(overlap.body)()
        log.task("after", depend=[omp.in_(("x",))])
    assert {edge.kind for edge in graph.edges} == {"set"}
    for _ in range(2):
        overlap.most.clear()
        compute(graph)
        assert overlap.most == [1] * 12
    assert log.entries == ["before", "after"] * 2


def test_exclusion_while_an_event_is_open(sim, parallel):
    """A detached node has the others' mutex until its event is fulfilled, by a node that is free to run."""
    event, log = omp.Event(), Log()
    with omp.record(execute=False) as graph:
        log.task("gate", detach=event, depend=[omp.mutexinoutset(("x",))])
        for _ in range(8):
            log.task("other", depend=[omp.mutexinoutset(("x",))])

        def fulfill():
            log.entries.append("fulfil")
            event.fulfill()

        omp.task(fulfill)()
    for _ in range(2):
        log.entries.clear()
        parallel(graph)
        entries = log.entries
        assert len(entries) == 10
        between = entries[entries.index("gate") + 1 : entries.index("fulfil")]  # none if it was fulfilled before
        assert "other" not in between


def test_inoutset(sim):
    """Nodes with inoutset of an item are not ordered among each other, and are towards others."""
    meeting, log = threading.Barrier(2, timeout=PATIENCE_S), Log()
    with omp.record(execute=False) as graph:
        log.task("before", depend=[omp.out(("x",))])
        for _ in range(2):
            omp.task(depend=[omp.inoutset(("x",))])(meeting.wait)()
        log.task("after", depend=[omp.in_(("x",))])
    graph.compute("threads", num_workers=2)
    assert log.entries == ["before", "after"]
    assert {(edge.source.index, edge.target.index) for edge in graph.edges} == {(0, 1), (0, 2), (1, 3), (2, 3)}


def test_all_memory_depend_objects_and_empty_tasks(sim, compute):
    """all_memory, a depobj as it was at the call, and taskwait(nowait=True) order nodes."""
    log, item = Log(), omp.depobj(omp.out(("x",)))
    with omp.record(execute=False) as graph:
        log.task("a", depend=[item])
        log.task("b", depend=[omp.out(("y",))])
        log.task("all", depend=[omp.out(omp.all_memory)])
        item.update("in")
        omp.taskwait(depend=[omp.in_(("y",)), omp.out(("z",))], nowait=True)
        log.task("c", depend=[omp.in_(("z",))])
        log.task("d", depend=[item])
    item.destroy()
    for _ in range(2):
        log.entries.clear()
        compute(graph)
        assert sorted(log.entries[:2]) == ["a", "b"]
        assert log.entries[2] == "all"
        assert sorted(log.entries[3:]) == ["c", "d"]


def test_the_end_of_a_taskgroup_waits_for_descendants(sim, compute):
    """What follows a taskgroup runs after all that its tasks have generated; what is beside it does not wait."""
    latch, log = threading.Event(), Log()

    @omp.task
    def inner():
        wait_for(latch)
        log.entries.append("inner")

    @omp.task
    def outer():
        omp.task(inner)()

    with omp.record(execute=False) as graph:
        omp.task(depend=[omp.out(("x",))])(lambda: None)()
        with omp.taskgroup():
            outer()
            with omp.taskgroup():
                log.task("first")
            log.task("second")
            omp.task(latch.set)()
        log.task("after")
    for _ in range(2):
        latch.clear()
        log.entries.clear()
        compute(graph)
        assert log.entries[-1] == "after"
        assert sorted(log.entries) == ["after", "first", "inner", "second"]
        assert log.before("first", "second")


def test_a_failure_under_a_taskgroup(sim, compute):
    """If what a task of a taskgroup generated fails, what follows the group does not run, and the failure is raised."""
    log = Log()
    with omp.record(execute=False) as graph:
        with omp.taskgroup():
            omp.task(lambda: omp.task(lambda: 1 / 0)() and None)()
        log.task("after")
    with pytest.raises(ExceptionGroup) as caught:
        compute(graph)
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]
    assert log.entries == []


def test_cancelling_a_taskgroup(compute):
    """A node that cancels its taskgroup discards the others of it that have not begun; what follows the group runs."""
    log = Log()

    def cancel():
        log.entries.append("cancels")
        omp.cancel("taskgroup")

    with omp.Runtime("none", num_threads=2, check=True, env={"OMP_CANCELLATION": "true"}):
        with omp.record(execute=False) as graph:
            with omp.taskgroup():
                omp.task(depend=[omp.out(("x",))])(cancel)()
                log.task("discarded", depend=[omp.in_(("x",))])
            log.task("after")
        for _ in range(2):
            log.entries.clear()
            compute(graph)
            assert log.entries == ["cancels", "after"]
    assert [node.state for node in graph.tasks if node.name == "discarded"] == ["cancelled"]
    assert "1 not run" in summary(graph)


def test_final_tasks_and_priorities(sim, compute):
    """A final node's tasks run at once, on its thread; a priority changes nothing that can be seen."""
    log = []

    @omp.task(final=True, priority=3)
    def last():
        omp.task(lambda: log.append((omp.in_final(), threading.get_ident())))()
        log.append((omp.in_final(), threading.get_ident()))

    with omp.record(execute=False) as graph:
        last()
    compute(graph)
    assert len({ident for _, ident in log}) == 1
    assert [final for final, _ in log] == [True, True]


def test_the_synchronous_scheduler_waits_for_a_future(sim):
    """Under Dask's own synchronous scheduler an event that a future fulfils is waited for, whoever refers to it."""
    event, future, log = omp.Event(), Future(), Log()

    @omp.task(detach=event, depend=[omp.out(("x",))])
    def gate():
        event.fulfill_on(future)
        threading.Timer(0.01, future.set_result, [None]).start()

    with omp.record(execute=False) as graph:
        gate()
        omp.task(depend=[omp.in_(("x",))])(lambda: log.entries.append(event.is_fulfilled))()
    dask.compute(graph, scheduler="synchronous")
    assert log.entries == [True]


# -- how soon --------------------------------------------------------------------------------------


def device_work(ended_s):
    """Return a target whose work on the stream notes when it ended."""

    @omp.target(nowait=True)
    def work(x):
        omp.current_stream().launch(lambda: ended_s.append(time.perf_counter()))

    return work


def follow(x, ended_s, late_s):
    """Generate device work, and a host task after it that notes how late it begins."""
    device_work(ended_s).options(depend=[omp.inout(x)])(x)
    omp.task(depend=[omp.inout(x)])(lambda: late_s.append(time.perf_counter() - ended_s[-1]))()


def soon_s(x):
    """Return a millisecond, or on a slow or busy machine ten times what a host task takes to follow without Dask."""
    late_s, ended_s = [], []
    for _ in range(30):
        follow(x, ended_s, late_s)
        omp.taskwait()
    return max(1e-3, 10 * statistics.median(late_s))


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_a_host_task_follows_device_work_soon(sim, scheduler):
    """A host task that depends on device work begins within a millisecond of its end, as it does without Dask."""
    x, ended_s, late_s = np.zeros(4), [], []

    def follows_soon():
        late_s.clear()
        for _ in range(30):
            graph.compute(scheduler)
        return statistics.median(late_s) < soon_s(x)

    with omp.target_data(map=[omp.tofrom(x)]):
        with omp.record(execute=False) as graph:
            follow(x, ended_s, late_s)
        until(follows_soon)  # a machine may be busy while the one is measured, and not while the other is


@pytest.mark.parametrize("explicit", [False, True], ids=["compute", "scheduler given to Dask"])
def test_the_end_of_device_work_is_noticed_soon_while_a_body_runs(sim, explicit):
    """Device work that a body generates is known to be complete soon, also while the computing thread runs the body."""
    x, ended_s, late_s = np.zeros(4), [], []
    work = device_work(ended_s)

    @omp.task
    def body():
        late_s.clear()
        for _ in range(40):
            generated = work(x)
            while not generated.done():  # and no wait, which would see to it
                time.sleep(0)
            late_s.append(time.perf_counter() - ended_s[-1])

    def is_noticed_soon():
        dask.compute(graph, scheduler="synchronous") if explicit else graph.compute("synchronous")
        return statistics.median(late_s) < soon_s(x)

    with omp.target_data(map=[omp.tofrom(x)]):
        with omp.record(execute=False) as graph:
            body()
        until(is_noticed_soon)  # see above
