"""Graphs recorded on local devices and computed on the workers of a client: the same results, and what is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import numpy as np
import pytest

import offload as omp
from offload import acc, from_, in_, inout, out, tofrom
from tests import cluster
from tests.dask.programs import Program


@omp.target
def add(x, value):
    x += value
    return float(x[0])


@omp.target(map=[from_("y"), omp.to("x")])
def double(y, x):
    y[...] = 2 * x


@omp.target_loop(map=[tofrom("x")])
def ramp(x, step):
    for i in range(x.shape[0]):
        x[i] += i * step


@pytest.fixture
def sim2():
    """Two local devices, on which the graphs are recorded."""
    with omp.Runtime("sim:2", check=True) as runtime:
        yield runtime


@pytest.fixture
def compute(client):
    """Compute on the workers; afterwards nothing is left there."""
    yield lambda graph, **kwargs: graph.compute(client, **kwargs)
    cluster.until_no_lease(client)


class OfALibrary:
    """An array of a GPU, which its library would pickle by its elements."""

    __cuda_array_interface__ = np.ones(3).__array_interface__ | {"data": (512, False), "version": 3}


# Dask's threads never make the task of a node that they skip.
STATES = {"recorded": "not run"}


def both(compute, make):
    """Return the results of ``make``'s graph on the local devices and on the workers: values, arrays and states."""
    ends = []
    for run in (lambda graph: graph.compute("threads"), compute):
        arrays = []
        with omp.record(execute=False) as graph:
            make(arrays)
        try:
            values = [*run(graph).values()]
        except Exception as error:
            values = [repr(error)]
        states = [STATES.get(node.state, node.state) for node in graph.tasks]
        ends.append((values, [array.tolist() for array in arrays], states))
    return ends


# -- the same results ------------------------------------------------------------------------------------


def test_maps_updates_and_host_tasks(sim2, compute):
    """Data regions, updates, regions on two devices, and host tasks between them."""

    def make(arrays):
        x, y, seen = np.arange(8.0), np.ones(8), np.zeros(3)
        arrays += x, y, seen
        with omp.target_data(map=[tofrom(x)], device=0), omp.target_data(map=[tofrom(y)], device=1):
            for value in range(4):
                add.options(nowait=True, device=0, depend=[inout(x)])(x, value)
                add.options(nowait=True, device=1, depend=[inout(y)])(y, 2)
            omp.target_update(from_=[x[2:5]], device=0, depend=[inout(x)], nowait=True)
            omp.task(depend=[inout(x)])(lambda: seen.__iadd__(x[2:5]) is None)()
            omp.target_update(to=[x[2:5]], device=0, depend=[inout(x)], nowait=True)
        double.options(nowait=True, device=1, depend=[out(x), in_(y)])(x, y)
        double.options(nowait=True, device=0, depend=[out(y), in_(x)])(y, x)

    here, there = both(compute, make)
    assert here == there


def test_values_pass_between_tasks(sim2, compute):
    """A region receives the value of a host task and of a region on another device."""

    def make(arrays):
        x, y = np.zeros(4), np.zeros(4)
        arrays += x, y
        first = omp.task(lambda: 5)()
        second = add.options(nowait=True, device=0)(x, first)
        third = add.options(nowait=True, device=1)(y, second)
        omp.task(lambda value: value * 2)(third)
        made = omp.task(lambda: np.arange(4.0))()
        omp.target(lambda z: float(z.sum())).options(nowait=True)(made)

    (here, *states), (there, *others) = both(compute, make)
    assert here[:4] == there[:4] == [5, 5.0, 5.0, 10.0]
    assert here[5] == there[5] == 6.0
    assert states == others


def test_several_devices_copy_from_each_other(sim2, compute):
    """Replicas on both devices: what one writes, the other reads."""

    def make(arrays):
        x = np.arange(16.0)
        arrays.append(x)
        omp.target_enter_data(map=[omp.to(x)], devices="all", depend=[inout(x)], nowait=True)
        for device in (0, 1, 0):
            add.options(nowait=True, device=device, depend=[inout(x)])(x, 1 + device)
        omp.target_exit_data(map=[from_(x)], devices="all", depend=[inout(x)], nowait=True)

    here, there = both(compute, make)
    assert here == there
    assert there[1] == [(np.arange(16.0) + 4).tolist()]


def test_detach_and_coroutines(sim2, compute):
    """Events complete tasks, and coroutines run in this process, once for each computation."""
    event, x, log = omp.Event(), np.zeros(4), []

    @omp.task(detach=event, depend=[inout(x)])
    def later():
        threading.Timer(0.05, lambda: (log.append(x[0]), event.fulfill())).start()

    @omp.task(depend=[inout(x)])
    async def sleeps():
        await asyncio.sleep(0.01)
        log.append(os.getpid())

    with omp.record(execute=False) as graph:
        add.options(nowait=True, depend=[inout(x)])(x, 3)
        later()
        sleeps()
        add.options(nowait=True, device=1, depend=[inout(x)])(x, 4)
    for _ in range(2):
        compute(graph)
    assert (x == 14).all()
    assert log == [3, os.getpid(), 10, os.getpid()]


def test_loops_and_queues(sim2, compute):
    """Loop functions, and operations of OpenACC's queues in their order."""

    def make(arrays):
        x, y = np.zeros(6), np.zeros(6)
        arrays += x, y
        ramp.options(nowait=True, device=1, depend=[inout(x)])(x, 2)
        with acc.data(copy=[y]):
            for value in (1, 3):
                acc.parallel(lambda y, value: y.__imul__(value) is None or y.__iadd__(1) is None).options(async_=1)(
                    y, value
                )
            acc.update(self_=[y], async_=1)
            acc.wait(1)

    here, there = both(compute, make)
    assert here == there
    assert there[1] == [[0, 2, 4, 6, 8, 10], [4.0] * 6]


def test_failures(sim2, compute):
    """The failure of a body is raised, what depends on it does not run, and the rest does."""

    def make(arrays):
        x, y = np.zeros(4), np.zeros(4)
        arrays += x, y

        def breaks(x):
            raise KeyError("here")

        omp.target(breaks).options(nowait=True, depend=[inout(x)])(x)
        add.options(nowait=True, depend=[inout(x)])(x, 1)
        omp.task(depend=[inout(x)])(lambda: x.fill(7))()
        add.options(nowait=True, device=1)(y, 1)

    here, there = both(compute, make)
    assert here == there
    assert there == (["KeyError('here')"], [[0.0] * 4, [1.0] * 4], ["failed", "not run", "not run", "complete"])


def test_bodies_generate_tasks(sim2, compute):
    """A host task's constructs are for the devices of the workers, and the computation waits for them."""
    x = np.zeros(4)

    def generates():
        assert omp.device(1).kind == "dask"
        assert omp.get_default_device() == 1
        add.options(nowait=True)(x, 2)

    with omp.record(execute=False) as graph:
        omp.set_default_device(1)
        omp.task(generates)()
        omp.set_default_device(omp.get_initial_device())
        omp.task(lambda: omp.target(lambda x: x.fill(x[0] + os.getpid()))(x), depend=[inout(x)])
    compute(graph)
    assert (x == 2).all()
    assert omp.device(1).kind == "sim"


def test_taskgroups_wait_for_descendants(sim2, compute):
    """Tasks after a taskgroup follow the tasks that its tasks have generated, also regions, also in inner groups."""

    def make(arrays):
        x, log = np.zeros(4), np.zeros(4)
        arrays += x, log

        def generates():
            @omp.task(depend=[inout(x)])
            def child():
                time.sleep(0.1)
                x[...] += 1

            child()
            add.options(nowait=True, depend=[inout(x)])(x, 2)

        with omp.taskgroup():
            with omp.taskgroup():
                add.options(nowait=True, device=1, depend=[inout(x)])(x, 4)
                omp.task(generates, depend=[inout(x)])()
            omp.task(lambda: log.__setitem__(0, x[0]))()
            add.options(nowait=True, device=1)(np.zeros(3), 1)
        omp.task(lambda: log.__setitem__(1, x[0]))()

    here, there = both(compute, make)
    assert here[1:] == there[1:]
    assert there[1][1] == [7, 7, 0, 0]


def test_a_failure_in_a_taskgroup(sim2, compute):
    """What comes after the group does not run; a failure of a descendant is raised in an exception group."""
    x = np.zeros(4)

    def fails():
        @omp.task
        def child():
            raise KeyError("child")

        child()

    with omp.record(execute=False) as graph:
        with omp.taskgroup():
            omp.task(fails)()
            add.options(nowait=True)(x, 1)
        add.options(nowait=True)(x, 1)
    for run in (compute, lambda graph: graph.compute("threads")):
        x[...] = 0
        with pytest.raises(BaseExceptionGroup) as caught:
            run(graph)
        assert [repr(error) for error in caught.value.exceptions] == ["KeyError('child')"]
        assert x[0] == 1


def test_a_cancelled_taskgroup(client):
    """The tasks of the group that have not begun do not run; all others do."""
    log, is_cancelled = [], threading.Event()

    @omp.task
    def cancels():
        is_cancelled.set()
        omp.cancel("taskgroup")

    with omp.Runtime("sim:2", env={"OMP_CANCELLATION": "true"}):
        with omp.record(execute=False) as graph:
            with omp.taskgroup():
                first = cancels.options(depend=[out(("x",))])()
                omp.task(lambda: log.append("in the group"), depend=[in_(("x",))])()
            omp.task(lambda: log.append("after"))()
        del first
        for run in (lambda: graph.compute("threads"), lambda: graph.compute(client)):
            log.clear()
            run()
            assert log == ["after"]


def test_the_runtime_of_the_recording_may_be_closed(compute):
    """A graph outlives its runtime, whose devices it does not need."""
    x = np.zeros(4)
    with omp.Runtime("sim:2"), omp.record(execute=False) as graph:
        add.options(nowait=True, device=1)(x, 1)
    assert [*compute(graph).values()] == [1.0]
    assert (x == 1).all()


def test_a_graph_that_has_run(sim2, compute):
    """A graph of tasks that ran while it was recorded; it moves once its data is no longer present."""
    x = np.zeros(4)
    with omp.record() as graph:
        omp.target_enter_data(map=[omp.to(x)], nowait=True, depend=[inout(x)])
        add.options(nowait=True, depend=[inout(x)])(x, 1)
        omp.target_exit_data(map=[from_(x)], nowait=True, depend=[inout(x)])
    compute(graph)
    assert (x == 2).all()
    graph.compute("threads")
    assert (x == 3).all()


def generated(compute, seed):
    """Compare a program made from a seed: its steps that need nothing on the devices, around a data region."""
    kinds = {"add", "mix", "total", "host", "breaks", "section", "first"}
    steps = [step for step in Program(seed, n_steps=20).steps if step[0] in kinds]
    # After a failure Dask's threads skip the end of a data region too, and its data stays there.
    has_region = all(step[0] != "breaks" for step in steps)

    def make(arrays):
        arrays += [np.arange(24.0) + 100 * k for k in range(4)]
        for number, step in enumerate(steps):
            if has_region and number == seed % 5 * len(steps) // 5:
                region(arrays[0])
            Program(seed)._step(step, arrays, (), set())

    def region(x):
        omp.taskwait()
        with omp.target_data(map=[tofrom(x)], device=seed % 2):
            for value in range(3):
                device = (seed + value) % 2
                add.options(nowait=True, device=device, depend=[inout(x)])(x, value)
                update = {"from_" if device else "to": [x]}
                omp.target_update(**update, device=seed % 2, depend=[inout(x)], nowait=True)

    here, there = both(compute, make)
    assert here[1:] == there[1:]


@pytest.mark.parametrize("seed", range(6))
def test_generated_programs(sim2, compute, seed):
    """Programs made from a seed leave the same in memory, recorded here and carried out there."""
    generated(compute, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_generated_programs(sim2, compute):
    """The same with many seeds."""
    for seed in range(6, 106):
        generated(compute, seed)


# -- a lost worker ---------------------------------------------------------------------------------------


def test_a_moved_graph_runs_again():
    """With ``retries`` the loss of a worker is survived, and each region counts once; without, it is an error."""
    x, to_kill = np.zeros(4), []

    def kills():
        if to_kill:
            os.kill(to_kill.pop(), signal.SIGKILL)

    with cluster.local_cluster() as client, omp.Runtime("sim:2"):
        with omp.record(execute=False) as graph:
            for device in (0, 1):
                add.options(nowait=True, device=device, depend=[inout(x)])(x, 1)
            omp.task(kills, depend=[inout(x)])()
            for device in (0, 1):
                add.options(nowait=True, device=device, depend=[inout(x)])(x, 1)
        for retries in (2, 0):
            address = cluster.wait_for_workers(client)[0]
            to_kill.append(client.run(os.getpid)[address])
            if retries:
                graph.compute(client, retries=retries)
                assert (x == 4).all()
            else:
                with pytest.raises(omp.errors.DeviceLostError):
                    graph.compute(client)


# -- what is refused -------------------------------------------------------------------------------------


def refused(compute, graph, *words, error=omp.UnsupportedError):
    """Compute, which raises an error with these words before anything has run."""
    with pytest.raises(error) as caught:
        compute(graph)
    for word in words:
        assert word in str(caught.value)
    assert all(node.state in ("recorded", "complete") for node in graph.tasks)


@pytest.fixture
def ran():
    """What host tasks log; nothing may have run."""
    log = []
    yield log
    assert not log


def test_present_data(sim2, compute, ran):
    """Data that is present on a local device would not move."""
    x = np.zeros(4)
    with omp.target_data(map=[tofrom(x)], device=1):
        with omp.record(execute=False) as graph:
            omp.task(lambda: ran.append(1))()
            add.options(nowait=True, device=1)(x, 1)
        refused(compute, graph, "add-", "float64[4]", "present on device 1")


def test_device_arrays(sim2, compute, ran):
    """Arrays of target_alloc: as an argument, in a copy, in a container, in a closure, of a host task."""
    x, there = np.zeros(4), omp.target_alloc(4, "f8", device=1)

    def closes_over(x):
        x += there

    of_a_library = OfALibrary()
    made = [
        lambda: omp.target(lambda x: x.set(of_a_library)).options(nowait=True)(x),
        lambda: omp.target(lambda a: a.fill(1)).options(nowait=True)(there),
        lambda: omp.copy(there, x, nowait=True),
        lambda: omp.copy(x, there, nowait=True),
        lambda: omp.target(lambda a: a[0].fill(1)).options(nowait=True, device=1)([there]),
        lambda: omp.target(closes_over).options(nowait=True, device=1)(x),
        lambda: omp.task(lambda a: None)(there),
    ]
    for make in made:
        with omp.record(execute=False) as graph:
            omp.task(lambda: ran.append(1))()
            make()
        refused(compute, graph, graph.tasks[1].key, "workers")
    omp.target_free(there)


def test_unpicklable_bodies_and_arguments(sim2, compute, ran):
    """A body or an argument that pickle does not take; a body that takes 2 MB along."""
    x, lock, big = np.zeros(4), threading.Lock(), np.zeros(250_000)
    made = [
        lambda: omp.target(lambda x: lock.acquire()).options(nowait=True)(x),
        lambda: omp.target(lambda x, a: None).options(nowait=True)(x, lock),
        lambda: omp.target(lambda x: x.__iadd__(big[0]) is None).options(nowait=True)(x),
    ]
    for make in made:
        with omp.record(execute=False) as graph:
            omp.task(lambda: ran.append(1))()
            make()
        refused(compute, graph, graph.tasks[1].key, "pickle" if make is not made[2] else "big")


def test_loops_that_a_cluster_lacks(sim2, compute, ran):
    """Loops with ``speculate=`` or on several devices are refused here as they are there."""

    @omp.target_loop(speculate=True)
    def scatter(x, at):
        for i in range(at.shape[0]):
            x[at[i]] = i

    made = [
        lambda: scatter.options(nowait=True)(np.zeros(4), np.arange(4)),
        lambda: ramp.options(nowait=True, devices="all")(np.zeros(4), 1),
    ]
    for make in made:
        with omp.record(execute=False) as graph:
            omp.task(lambda: ran.append(1))()
            make()
        refused(compute, graph, graph.tasks[1].key, "speculate= and several devices")


def test_too_few_devices(client, compute, ran):
    """A graph that uses a device which the cluster does not have."""
    with omp.Runtime("sim:3"):
        with omp.record(execute=False) as graph:
            omp.task(lambda: ran.append(1))()
            add.options(nowait=True, device=2)(np.zeros(4), 1)
        refused(compute, graph, "device 2", error=omp.errors.DeviceUnavailableError)


def test_arguments_and_clients(sim2, client, compute):
    """Keywords of other schedulers, a negative number of retries, and a client that is closed."""
    from distributed import Client

    with omp.record(execute=False) as graph:
        omp.task(lambda: 1)()
    with pytest.raises(omp.errors.ClauseError, match="num_workers"):
        compute(graph, num_workers=2)
    with pytest.raises(omp.errors.UsageError, match="retries"):
        compute(graph, retries=-1)
    other = Client(client.scheduler.address, set_as_default=False)
    other.close()
    with pytest.raises(omp.errors.UsageError, match="closed"):
        graph.compute(other)


def test_data_that_stays_there(sim2, compute):
    """A graph that leaves data on the workers has run, and raises a LeakError: nobody could use the data."""
    x = np.zeros(4)
    with omp.record(execute=False) as graph:
        omp.target_enter_data(map=[omp.to(x)], nowait=True)
    with pytest.raises(omp.errors.LeakError, match=r"float64\[4\]"):
        compute(graph)


def test_a_computation_at_a_time(sim2, compute):
    """A second computation of the graph meanwhile is a UsageError, wherever it is."""
    seen = []

    def again():
        for run in (compute, lambda graph: graph.compute("threads")):
            with pytest.raises(omp.errors.UsageError):
                run(graph)
            seen.append(1)

    with omp.record(execute=False) as graph:
        omp.task(again)()
    compute(graph)
    assert seen == [1, 1]
