"""A failure that has been handled is gone, with its frames and what they refer to, without the collector."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout, tofrom
from offload.tasks import failures
from tests.patience import until, until_gone
from tests.profiles import few

N_ATTEMPTS = 12
SOME = 1_000_000  # doubles, of which a device of 64 MB has room for eight times as many

HOST = []
"""Weak references to what bodies on the host have made."""


class Temporary:
    """Something that a body holds, and a test can ask after."""


@omp.target(nowait=True)
def fails(a):
    work = omp.array_namespace(a).ones(SOME)
    raise ArithmeticError(work.size)


@omp.task(depend=[inout("token")])
def fails_on_host(token):
    work = Temporary()
    HOST.append(weakref.ref(work))
    raise ArithmeticError(type(work))


@omp.task
async def fails_in_a_coroutine():
    await asyncio.sleep(0)
    work = Temporary()
    HOST.append(weakref.ref(work))
    raise ArithmeticError(type(work))


class expected:
    """Handle what is raised, whose cause or whose group it may be; a generator's frame would refer to it."""

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        assert isinstance(error, (ArithmeticError, BaseExceptionGroup, omp.DependError)), error
        leaves = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
        roots = [leaf.__cause__ if isinstance(leaf, omp.DependError) else leaf for leaf in leaves]
        assert all(isinstance(root, ArithmeticError) for root in roots)
        return True


def by_result(a):
    with expected():
        fails(a).result()


def by_result_of_one_held(a):
    task = fails(a)
    with expected():
        task.result()
    del task


def by_exception(a):
    assert isinstance(fails(a).exception(), ArithmeticError)


def by_exception_with_a_timeout(a):
    task = fails(a)
    while not task.done():
        omp.taskyield()  # else nobody may run it
    assert isinstance(task.exception(30), ArithmeticError)
    del task


def by_future(a):
    with expected():
        fails(a).as_future().result()


def by_taskwait(a):
    fails(a)
    fails_on_host(("token",))
    with expected():
        omp.taskwait()


def by_taskwait_depend(a):
    fails.options(depend=[inout(a)])(a)
    with expected():
        omp.taskwait(depend=[in_(a)])


def by_taskgroup(a):
    with expected(), omp.taskgroup():
        fails(a)
        fails_on_host(("token",))


def by_nested_taskgroups(a):
    with expected(), omp.taskgroup():
        with omp.taskgroup():
            pass
        omp.task(lambda: fails(a))()


def by_barrier(a):
    fails(a)
    fails_on_host(("token",))
    with expected():
        omp.barrier()


def by_a_synchronous_target(a):
    with expected():
        fails.options(nowait=False)(a)


def by_an_undeferred_task(a):
    with expected():
        fails_on_host.options(if_=False)(("token",))
    with expected():
        fails.options(if_=False, nowait=False)(a)


def by_a_note(a):
    with pytest.raises(KeyError, match="first"), omp.taskgroup():
        fails(a)
        raise KeyError("first")


def by_dependents(a):
    first = fails.options(depend=[inout(a)])(a)
    second = fails.options(depend=[inout(a)])(a)
    with expected():
        fails.options(depend=[inout(a)], nowait=False)(a)
    with expected():
        second.result()
    with expected():
        first.result()
    del first, second
    omp.taskwait()


def by_the_cause_alone(a):
    """The group holds the cause, and the dependents are not asked after."""
    fails.options(depend=[inout(a)])(a)
    fails.options(depend=[inout(a)])(a)
    omp.task(depend=[in_(a)])(print)()
    with expected():
        omp.taskwait()


def by_a_child(a):
    def outer():
        fails_on_host(("token",))
        fails(a)
        omp.taskwait()

    with expected():
        omp.task(outer)().result()


def by_a_child_that_is_handled(a):
    def outer():
        with expected():
            fails(a).result()
        with expected(), omp.taskgroup():
            fails_on_host(("token",))

    omp.task(outer)().result()


def by_an_orphan(a):
    """Its parent has ended before it."""
    omp.task(lambda: fails(a) and None)()
    with expected():
        omp.barrier()


def by_taskloop(a):
    @omp.taskloop(num_tasks=2)
    def loop(k):
        work = Temporary()
        HOST.append(weakref.ref(work))
        raise ArithmeticError(k)

    with expected():
        loop(range(2))
    with expected():
        loop.options(if_=False)(range(2))


def by_a_graph(a):
    with omp.record() as graph, expected():
        fails(a).result()
    assert graph.tasks[0].state == "failed"
    for scheduler in ("threads", "synchronous"):
        with expected():
            graph.compute(scheduler=scheduler)
    return graph


def by_attempts_within_a_record(a):
    with omp.record() as graph:
        for _ in range(N_ATTEMPTS):
            with expected():
                fails(a).result()
            with expected():
                fails.options(nowait=False)(a)
    return graph


def by_a_taskgraph(a):
    @omp.taskgraph
    def region(a):
        fails(a)
        fails_on_host(("token",))

    for _ in range(3):
        with expected():
            region(a)


def by_a_taskgraph_that_failed_later(a):
    healthy = []

    @omp.taskgraph
    def region():
        def body():
            work = Temporary()
            HOST.append(weakref.ref(work))
            if len(healthy) > 1:
                raise ArithmeticError(type(work))

        with omp.taskgroup():
            omp.task(depend=[inout(("x",))])(body)()
        omp.task(depend=[inout(("x",))])(body)()

    for _ in range(2):
        region()
        healthy.append(None)
    with expected():
        region()


def by_a_data_region(a):
    with expected(), omp.target_data(map=[tofrom(a)]):
        fails(a)
    with expected(), omp.target_data(map=[tofrom(a)]):
        fails.options(nowait=False)(a)


def by_an_entry(a):
    some = np.zeros(4 * SOME)
    for nowait in (False, True):
        with pytest.raises(omp.DeviceMemoryError):
            omp.target_enter_data(map=[omp.to(np.zeros(10 * SOME))], nowait=nowait).result()
    with pytest.raises(omp.DeviceMemoryError), omp.target_data(map=[omp.to(some), omp.to(np.zeros(10 * SOME))]):
        pass


def by_acc(a):
    with expected():
        acc.parallel(fails.__wrapped__)(a)
    acc.parallel(async_=1)(fails.__wrapped__)(a)
    acc.parallel(async_=1)(fails.__wrapped__)(a)
    with expected():
        acc.wait(1)
    with expected():
        acc.parallel(async_=1)(fails.__wrapped__)(a).result()
    acc.parallel(async_=2)(fails.__wrapped__)(a)
    with expected():
        while not acc.async_test(2):
            pass
    with expected(), acc.data(copy=[a]):
        acc.parallel(fails.__wrapped__)(a)
    acc.parallel(async_=3)(fails.__wrapped__)(a)
    with expected():
        acc.wait_any([3])


class Boxed:
    """Has a mapper."""

    def __init__(self, a):
        self.a = a


omp.declare_mapper(Boxed, lambda boxed: [tofrom(boxed.a)])


def by_a_mapper(a):
    with expected():
        omp.target(lambda boxed: fails.__wrapped__(boxed.a))(Boxed(a))
    with expected():
        omp.target(nowait=True)(lambda boxed: fails.__wrapped__(boxed.a))(Boxed(a)).result()


def by_an_event(a):
    event = omp.Event()

    @omp.task(detach=event)
    def body():
        work = Temporary()
        HOST.append(weakref.ref(work))
        raise ArithmeticError(type(work))

    with expected():
        body().result()


def by_interop(a):
    fails.options(depend=[inout(a)])(a)
    with expected(), omp.interop(depend=[inout(a)]):
        raise AssertionError
    with expected():
        omp.taskwait()


def by_coroutines(a):
    async def main():
        with expected():
            await fails(a)
        with expected():
            await fails_in_a_coroutine()
        with expected():
            await fails_on_host(("token",))
        fails(a)
        fails_in_a_coroutine()
        with expected():
            await omp.taskwait()
        fails.options(depend=[inout(a)])(a)
        with expected():
            await omp.taskwait(depend=[in_(a)])
        with expected():
            async with omp.taskgroup():
                fails(a)
                fails_in_a_coroutine()
        fails(a)
        with expected():
            await omp.barrier()

    asyncio.run(main())


WAYS = [value for name, value in list(globals().items()) if name.startswith("by_")]


@pytest.fixture
def uncollected():
    """Have nothing collect garbage meanwhile."""
    gc.collect()
    gc.disable()
    HOST.clear()
    yield
    gc.enable()


def let_workers_end(done):
    """Wait for a worker that is at the last line of a failed task."""

    def are_done():
        omp.task(lambda: None)().result()
        return done()

    until(are_done)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("num_threads", few(1, [2, 0]))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failure_that_was_handled_keeps_nothing(uncollected, way, num_threads):
    """After a failure was handled, however it was heard of, nothing of its frames is left, without the collector."""
    with omp.Runtime("sim", num_threads=num_threads, check=True, env={"OFFLOAD_SIM_MEMORY": "64M"}) as runtime:
        device = runtime.places[0].device
        a = np.zeros(8)
        kept = []
        for _ in range(N_ATTEMPTS):
            kept.append(way(a))  # a graph may be kept
            omp.barrier()
            let_workers_end(lambda: device.live_nbytes() == 0)
            assert device.live_nbytes() == 0
        let_workers_end(lambda: all(reference() is None for reference in HOST))
        assert [reference() for reference in HOST if reference() is not None] == []


def in_a_group(made):
    made.clear()
    omp.taskwait()


def as_a_cause(made):
    try:
        made.pop().result()
    except ArithmeticError as error:
        raise ArithmeticError("because of another one") from error


@pytest.mark.parametrize("tells", [in_a_group, as_a_cause])
def test_a_failure_is_seen_before_the_wait_ends_in_which_its_body_ran(uncollected, tells):
    """A task fails with what its child has failed with, which the thread has run that waits for the task."""
    with omp.Runtime("none", num_threads=1, check=True):
        begun = threading.Event()

        def outer():
            begun.set()
            made = [fails_on_host(("token",))]
            until(made[0].done)  # this thread is busy, so the one that waits runs it
            tells(made)

        task = omp.task(outer)()
        assert begun.wait(60)
        with expected():
            task.result()
        del task
        assert len(HOST) == 1
        until_gone(*HOST)


def test_a_long_chain_of_causes_is_not_walked_at_each_failure(monkeypatch):
    """A failure behind many others takes as many steps as one behind some others."""
    looks, look = [], failures._clear_from
    monkeypatch.setattr(failures, "_clear_from", lambda *args: looks.append(1) or look(*args))
    with omp.Runtime("none", num_threads=0):

        def step(before):
            if not before:
                raise ArithmeticError
            as_a_cause(before)

        made, numbers = [], []
        for _ in range(100):
            looks.clear()
            task = omp.task(step)(made)  # which it empties
            assert isinstance(task.exception(), ArithmeticError)
            made.append(task)
            numbers.append(len(looks))
    assert max(numbers[-20:]) == max(numbers[20:40])


def test_a_failure_is_seen_before_the_thread_that_ran_the_body_goes_on(uncollected):
    """The thread is still at the end of the task, which has generated another one, when the failure is handled."""
    with omp.Runtime("none", num_threads=1, check=True):
        may_fail, may_go_on = threading.Event(), threading.Event()

        def body():
            work = Temporary()
            HOST.append(weakref.ref(work))
            assert may_fail.wait(60)
            omp.task(int)().result()
            raise ArithmeticError(type(work))

        task = omp.task(body)()
        task.add_done_callback(lambda _: may_go_on.wait(60))
        may_fail.set()
        until(task.done)
        assert isinstance(task.exception(), ArithmeticError)
        del task
        may_go_on.set()
        assert len(HOST) == 1
        until_gone(*HOST)
