"""Coroutines: `async def` bodies, awaited tasks, `await taskwait()`, `async with taskgroup()`, loops that end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import gc
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout, mutexinoutset, out, tofrom
from offload.tasks.aio.deadlocks import Coroutines
from tests.conftest import checked, our_threads

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=[0, 1, 4], ids=["alone", "one", "four"])
def workers(request):
    """A current runtime with no worker, one, and four."""
    with checked("sim:1", num_threads=request.param) as runtime:
        yield runtime


@pytest.fixture
def one():
    with checked("none", num_threads=1) as runtime:
        yield runtime


@pytest.fixture(params=[0, 4], ids=["alone", "four"])
def cancelling(request):
    with checked("none", num_threads=request.param, env={"OMP_CANCELLATION": "true"}) as runtime:
        yield runtime


def in_loop(test):
    """Run a test, a coroutine function, in a loop of its own on the main thread."""

    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(test(**fixtures))

    return run


def on_thread(function):
    """Run a function on a thread of its own and return what it returns."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@omp.task
async def double(value):
    await asyncio.sleep(0)
    return 2 * value


def blocking_taskwait():
    omp.taskwait()


def here():
    return threading.current_thread().name


async def where():
    return here(), asyncio.get_running_loop()


# -- where a body runs -----------------------------------------------------------------------------
def test_without_a_loop_a_body_runs_on_the_loop_thread_of_the_runtime(workers):
    """Called from plain code, bodies share one loop, which ends with the runtime."""
    tasks = [omp.task(where)() for _ in range(3)]
    ran = [task.result() for task in tasks]
    assert {name for name, _ in ran} == {"offload-loop"}
    loop = ran[0][1]
    assert all(other is loop for _, other in ran)
    workers.close()
    assert loop.is_closed()
    assert not our_threads()


def test_with_a_loop_a_body_runs_there(workers):
    """Called from a coroutine, a body runs on that coroutine's loop, and what it calls does too."""

    async def outer():
        return await omp.task(where)()

    async def main():
        loop = asyncio.get_running_loop()
        assert await omp.task(where)() == (here(), loop)
        assert await omp.task(outer)() == (here(), loop)

    asyncio.run(main())
    on_thread(lambda: asyncio.run(main()))
    assert omp.task(outer)().result()[0] == "offload-loop"


def test_a_plain_body_has_no_loop_wherever_it_runs(workers):
    """A plain body may wait for coroutines, and run a loop, also where a thread with a loop runs it in a wait."""

    def body():
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        name, _ = omp.task(where)().result()
        return name, asyncio.run(asyncio.sleep(0, "ran"))

    async def main():
        tasks = [omp.task(body)() for _ in range(8)]
        blocking_taskwait()
        assert {task.result() for task in tasks} == {("offload-loop", "ran")}
        assert omp.task(body, if_=False)().result() == ("offload-loop", "ran")
        omp.task(body)()
        await omp.taskwait()

    asyncio.run(main())


def test_the_context_of_a_body_is_a_copy_of_the_callers(workers):
    """Context variables are those of the call, and what the body sets stays there."""
    variable = contextvars.ContextVar("variable", default="none")

    async def body():
        found = variable.get()
        variable.set("body")
        await asyncio.sleep(0)
        return found, omp.current_runtime(), omp.current_task(), omp.in_explicit_task()

    variable.set("caller")
    task = omp.task(body)()
    variable.set("later")
    assert task.result() == ("caller", workers, task, True)
    assert variable.get() == "later"


@pytest.mark.parametrize("decorate", [omp.task, omp.target])
def test_what_can_be_a_body(one, decorate):
    """An async def and an object with an async ``__call__`` can be task bodies; no target bodies, nor generators."""

    class Callable:
        async def __call__(self, value):
            return value + 1

    async def generator():
        yield

    async def plain():
        return 1

    with pytest.raises(omp.UnsupportedError, match="generator"):
        decorate(generator)
    if decorate is omp.target:
        for body in (plain, Callable(), functools.partial(plain)):
            with pytest.raises(omp.UnsupportedError, match="async def"):
                decorate(body)
        return
    assert decorate(Callable())(2).result() == 3
    assert decorate(functools.partial(plain))().result() == 1
    assert decorate(plain, name="label")().name == "label"

    class Holder:
        @omp.task
        async def method(self, value):
            return self, value

    holder = Holder()
    assert holder.method(3).result() == (holder, 3)


# -- awaiting --------------------------------------------------------------------------------------
@in_loop
async def test_await_of_tasks_of_every_kind(workers):
    """A coroutine awaits host tasks, target tasks and coroutines, complete or not, once or again."""
    x = np.ones(4)

    @omp.target(nowait=True, map=[tofrom("x")])
    def bump(x):
        x += 1

    tasks = [double(1), omp.task(lambda: 2)(), bump(x)]
    assert [await task for task in tasks] == [2, 2, None]
    assert [await task for task in tasks] == [2, 2, None]
    assert (x == 2).all()


def test_an_async_body_awaits_a_target(workers):
    """A body generates a target task, awaits it, and reads what it copied back."""
    x = np.arange(4.0)

    @omp.task
    async def body():
        await omp.target(lambda x: np.multiply(x, 2, out=x) is None, nowait=True)(x)
        return x.sum()

    assert body().result() == 12.0

    async def main():
        return await body()

    assert asyncio.run(main()) == 24.0


@in_loop
async def test_await_raises_the_failure_which_is_seen_then(workers):
    """An awaited failure is the body's own exception with the task's name, and no group has it any more."""

    async def fail():
        await asyncio.sleep(0)
        raise KeyError("mine")

    for body in (fail, lambda: {}["mine"]):
        task = omp.task(body)()
        with pytest.raises(KeyError) as caught:
            await task
        assert any("task" in note for note in caught.value.__notes__)
        await omp.taskwait()


@in_loop
async def test_taskwait_waits_for_children_and_raises_what_failed(workers):
    """`await taskwait()` ends when all is complete, and raises the group of failures."""

    async def fail():
        raise ValueError

    tasks = [double(1), omp.task(lambda: 1)(), omp.task(fail)(), omp.task(lambda: 1 / 0)()]
    with pytest.raises(ExceptionGroup) as caught:
        await omp.taskwait()
    assert {type(error) for error in caught.value.exceptions} == {ValueError, ZeroDivisionError}
    assert all(task.done() for task in tasks)
    assert await omp.taskwait() is None


@in_loop
async def test_taskwait_with_depend_waits_for_what_it_names(one):
    """Only the tasks that the dependence follows are waited for; ``nowait`` makes a task, as in plain code."""
    gate = asyncio.Event()
    held = omp.task(gate.wait, depend=[out(("a",))])()
    named = double.options(depend=[out(("b",))])(1)
    await omp.taskwait(depend=[in_(("b",))])
    assert named.done()
    assert not held.done()
    edge = omp.taskwait(depend=[in_(("a",))], nowait=True)
    assert isinstance(edge, omp.Task)
    gate.set()
    await edge
    assert held.done()


@in_loop
async def test_barrier_waits_for_other_threads_tasks(workers):
    """`await barrier()` waits for what any thread has generated; in a body it is refused."""
    gate = omp.Event()
    held = on_thread(omp.task(lambda: None, detach=gate))

    async def body():
        with pytest.raises(omp.UsageError, match="taskwait or taskgroup"):
            omp.barrier()
        gate.fulfill()

    omp.task(body)()
    await omp.barrier()
    assert held.done()


@in_loop
async def test_a_foreign_thread_completes_what_is_awaited(workers):
    """An event fulfilled on another thread wakes the coroutine."""
    event, reached = omp.Event(), threading.Event()

    def fulfil():
        reached.wait()
        event.fulfill()

    thread = threading.Thread(target=fulfil)
    thread.start()
    task = omp.task(lambda: 3, detach=event)()
    waits = asyncio.create_task(omp.taskwait())
    await asyncio.sleep(0)
    reached.set()
    assert await task == 3
    await waits
    thread.join()


@in_loop
async def test_a_timeout_ends_the_wait_and_not_the_task(workers):
    """What waits can be cancelled: the task goes on, can be awaited again, and nothing is left that calls back."""
    event = omp.Event()
    task = omp.task(lambda: 4, detach=event)()

    async def taskwait(**clauses):
        await omp.taskwait(**clauses)

    for wait in (awaited(task), taskwait(), taskwait(depend=[in_(("x",))])):
        other = omp.Event()
        omp.task(lambda: None, depend=[inout(("x",))], detach=other)()
        waiting = asyncio.create_task(wait)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        other.fulfill()
    assert not task.callbacks
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, 0)
    event.fulfill()
    assert await task == 4


def test_a_wait_whose_loop_is_closed_leaves_nothing_that_fails(one):
    """A loop that is closed while a coroutine waits, without a chance to end, breaks neither task nor runtime."""
    event = omp.Event()
    task = omp.task(lambda: 5, detach=event)()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(awaited(task))
    loop.run_until_complete(asyncio.sleep(0))
    waiting._log_destroy_pending = False
    loop.close()
    event.fulfill()
    assert task.result() == 5


async def awaited(task):
    return await task


def test_a_forgotten_await_is_what_python_warns_of(one):
    """`taskwait()` in a coroutine is a coroutine, which Python reports where nobody awaits it."""

    async def main():
        omp.taskwait()
        gc.collect()

    with pytest.warns(RuntimeWarning, match="never awaited"):
        asyncio.run(main())


@in_loop
async def test_a_body_cannot_await_itself(one):
    """To await one's own end, or that of an ancestor, is an error and no hang."""

    async def outer():
        me = omp.current_task()
        with pytest.raises(omp.UsageError, match="waits for itself"):
            await me
        await omp.task(inner)([me])

    async def inner(held):
        (ancestor,) = held
        with pytest.raises(omp.UsageError, match="waits for itself"):
            await ancestor

    await omp.task(outer)()


# -- holding no worker -----------------------------------------------------------------------------
def test_a_thousand_bodies_hold_no_worker(one):
    """1,000 bodies that await are under way at a time with one worker, which is free for a plain task."""
    loop_gate = []

    async def body(i, begun, n):
        begun.append(i)
        if len(begun) == n:
            loop_gate[0].set()
        await loop_gate[0].wait()
        return i

    async def main():
        loop_gate[:] = [asyncio.Event()]
        begun = []
        tasks = [omp.task(body)(i, begun, 1001) for i in range(1000)]
        assert await omp.task(lambda: "free")() == "free"
        while len(begun) < 1000:  # noqa: ASYNC110  # they are on the loop already, which takes a turn or two
            await asyncio.sleep(0)
        tasks.append(omp.task(body)(1000, begun, 1001))
        assert [await task for task in tasks] == list(range(1001))

    asyncio.run(main())


def test_a_busy_worker_holds_no_body_up(one):
    """A body, and one that depends on it, run while the only worker is busy."""
    go = threading.Event()
    busy = omp.task(go.wait)()
    first = double.options(depend=[out(("x",))])(1)
    second = double.options(depend=[in_(("x",))])(2)
    assert second.result(timeout=30) == 4
    assert first.done()
    assert not busy.done()
    go.set()


# -- what tasks have -------------------------------------------------------------------------------
def test_dependences_order_coroutines_and_plain_tasks(workers):
    """A chain through plain, asynchronous and device tasks runs in its order."""
    x = np.zeros(3)
    log = []

    async def note(word):
        await asyncio.sleep(0)
        log.append((word, x[0]))

    def plain(word):
        log.append((word, x[0]))

    chain = [inout(x)]
    for i in range(5):
        omp.task(note, depend=chain)(f"async {i}")
        omp.target(lambda x: np.add(x, 1, out=x) is None, nowait=True, depend=chain)(x)
        omp.task(plain, depend=chain)(f"plain {i}")
    omp.taskwait()
    assert log == [entry for i in range(5) for entry in ((f"async {i}", i), (f"plain {i}", i + 1))]


def test_a_failure_poisons_what_depends_on_it(workers):
    """What depends on a coroutine that failed does not run, itself a coroutine or not."""

    async def fail():
        raise KeyError

    async def never():
        raise AssertionError

    failed = omp.task(fail, depend=[out(("x",))])()
    others = [omp.task(body, depend=[inout(("x",))])() for body in (never, lambda: 1 / 0, never)]
    for task in others:
        with pytest.raises(omp.DependError) as caught:
            task.result()
        assert isinstance(caught.value.__cause__, KeyError)
        assert task.state == "not run"
    assert failed.state == "failed"
    assert isinstance(failed.exception(), KeyError)


@pytest.mark.parametrize("fails", [False, True])
def test_detach(workers, moment, fails):
    """The task is complete when body and event are; a body that fails does not wait for its event."""
    event, go = omp.Event(), threading.Event()
    begun = threading.Event()

    async def body():
        begun.set()
        await asyncio.to_thread(go.wait)
        if fails:
            raise KeyError
        return 1

    if moment == "before":
        event.fulfill()
    task = omp.task(body, detach=event)()
    begun.wait()
    if moment == "during":
        event.fulfill()
    go.set()
    if fails:
        assert isinstance(task.exception(), KeyError)
    if moment == "after":
        event.fulfill()
    if not fails:
        assert task.result() == 1


def test_detach_with_an_asyncio_future(one):
    """A body names a future of its own loop, which then completes the task."""
    event = omp.Event()

    async def body():
        future = asyncio.get_running_loop().create_future()
        event.fulfill_on(future)
        asyncio.get_running_loop().call_soon(future.set_result, None)
        return 2

    assert omp.task(body, detach=event)().result() == 2


def test_mutexes_hold_over_an_await(workers):
    """Tasks of a mutexinoutset never overlap, also where they await in it."""
    inside, overlaps = [0], []

    async def body():
        inside[0] += 1
        overlaps.append(inside[0])
        await asyncio.sleep(0)
        inside[0] -= 1

    def plain():
        inside[0] += 1
        overlaps.append(inside[0])
        inside[0] -= 1

    for _ in range(10):
        omp.task(body, depend=[mutexinoutset(("m",))])()
        omp.task(plain, depend=[mutexinoutset(("m",))])()
    omp.taskwait()
    assert overlaps == [1] * 20


@pytest.mark.parametrize("clauses", [{"if_": False}, {"final": True}], ids=str)
def test_undeferred_bodies_block_the_caller(workers, clauses):
    """From a thread without a loop the call returns when the body has ended, after its predecessors, or raises."""
    log = []

    async def body(word, error=None):
        await asyncio.sleep(0)
        log.append(word)
        if error is not None:
            raise error

    omp.task(body, depend=[out(("x",))])("first")
    task = omp.task(body, depend=[inout(("x",))], **clauses)("second")
    assert log == ["first", "second"]
    assert task.done()
    with pytest.raises(KeyError):
        omp.task(body, **clauses)("third", KeyError())
    event = omp.Event()
    if "final" not in clauses:
        held = omp.task(body, detach=event, **clauses)("fourth")
        assert held.state == "detached"
        event.fulfill()
        assert held.done()


def test_in_reduction(workers):
    """A coroutine adds to its private array across an await; the group combines."""
    total = np.zeros(())

    @omp.task(in_reduction={"+": [total]})
    async def add(value, total):
        total += value
        await asyncio.sleep(0)
        total += value

    with omp.taskgroup(task_reduction={"+": [total]}):
        for i in range(10):
            add(i, total)
    assert total == 90

    async def main():
        async with omp.taskgroup(task_reduction={"+": [total]}):
            for i in range(10):
                add(i, total)

    asyncio.run(main())
    assert total == 180


def test_tasks_left_by_a_body_are_waited_for_at_the_end():
    """What a body generates and does not wait for is complete when the runtime ends, as are its children's failures."""
    ran = []

    async def outer():
        double(1)
        omp.task(ran.append)("child")
        omp.task(lambda: 1 / 0)()

    with pytest.raises(ExceptionGroup, match="end of the runtime"), checked("none", num_threads=1):
        omp.task(outer)()
    assert ran == ["child"]


def test_what_a_body_leaves_running_generates_for_the_thread(one):
    """A coroutine that outlives the body that started it generates tasks of the loop's thread."""
    kept = []

    async def main():
        go = asyncio.Event()

        async def late():
            await go.wait()
            assert omp.current_task() is None
            return await double(4)

        async def body():
            kept.append(asyncio.create_task(late()))

        await omp.task(body)()
        go.set()
        assert await kept[0] == 8

    asyncio.run(main())


def test_complete_bodies_are_freed(one):
    """Nothing keeps what a body was given, once it is complete, without a collection, also if it failed."""

    class Payload:
        pass

    async def consume(payload):
        await asyncio.sleep(0)

    async def fail(payload):
        await asyncio.sleep(0)
        raise KeyError

    async def main():
        payloads = [Payload() for _ in range(10)]
        alive = weakref.WeakSet(payloads)
        for payload in payloads:
            omp.task(consume)(payload)
            with contextlib.suppress(KeyError):
                await omp.task(fail)(payload)
        del payload
        payloads.clear()
        await omp.taskwait()
        await asyncio.sleep(0)
        return alive

    gc.disable()
    try:
        assert not asyncio.run(main())
    finally:
        gc.enable()


# -- groups ----------------------------------------------------------------------------------------
@in_loop
async def test_a_group_waits_for_descendants(workers):
    """`async with taskgroup()` ends after what its tasks generate; other coroutines run meanwhile."""
    log = []

    async def inner():
        await asyncio.sleep(0)
        log.append("inner")

    async def outer():
        omp.task(inner)()
        omp.task(log.append)("plain")

    turned = asyncio.create_task(asyncio.sleep(0, "turned"))
    async with omp.taskgroup():
        omp.task(outer)()
    assert sorted(log) == ["inner", "plain"]
    assert await turned == "turned"


@in_loop
async def test_groups_of_two_coroutines_are_their_own(workers):
    """While a group is open, what another coroutine generates does not belong to it, nor to that one's inner groups."""
    gates = {name: asyncio.Event() for name in ("a", "b", "outside")}
    both = asyncio.Barrier(3)
    ended = []

    async def grouped(name):
        async with omp.taskgroup():
            async with omp.taskgroup():
                await both.wait()
                task = omp.task(gates[name].wait)()
                await both.wait()
            assert task.done()
            ended.append(name)

    async def outside():
        await both.wait()
        omp.task(gates["outside"].wait)()
        await both.wait()

    running = [asyncio.create_task(coroutine) for coroutine in (grouped("a"), grouped("b"), outside())]
    await running[2]
    gates["b"].set()
    await running[1]
    assert ended == ["b"]
    gates["a"].set()
    await running[0]
    gates["outside"].set()
    await omp.taskwait()


@in_loop
async def test_failures_in_groups(workers):
    """The group raises its tasks' failures; a block's own exception goes on, with them as a note."""

    async def fail():
        raise ValueError

    with pytest.raises(ExceptionGroup, match="taskgroup") as caught:
        async with omp.taskgroup():
            omp.task(fail)()
            omp.task(lambda: 1 / 0)()
    assert len(caught.value.exceptions) == 2
    with pytest.raises(KeyError) as caught:
        async with omp.taskgroup():
            omp.task(fail)()
            raise KeyError
    assert "ValueError" in "".join(caught.value.__notes__)
    await omp.taskwait()


@in_loop
async def test_a_group_in_a_body_and_the_default_device(workers):
    """A group in a body has the body's children; a default device set inside stays set, for this coroutine's region."""

    async def body():
        async with omp.taskgroup():
            omp.set_default_device(omp.get_initial_device())
            task = omp.task(omp.get_default_device)()
        return task.result(), omp.get_default_device()

    host = omp.get_initial_device()
    assert await omp.task(body)() == (host, host)
    assert omp.get_default_device() == 0


@in_loop
async def test_cancelling_a_group(cancelling):
    """`cancel` leaves the block, or the body; tasks that have not begun are discarded, and awaiting one says so."""
    gate = omp.Event()
    async with omp.taskgroup():
        omp.task(lambda: None, depend=[out(("x",))], detach=gate)()
        late = double.options(depend=[in_(("x",))])(1)
        gate.fulfill()
        omp.cancel("taskgroup")
        raise AssertionError
    assert late.state == "cancelled"
    with pytest.raises(concurrent.futures.CancelledError):
        await late

    async def body():
        await asyncio.sleep(0)
        omp.cancel("taskgroup")
        raise AssertionError

    async with omp.taskgroup():
        async with omp.taskgroup():
            leaves = omp.task(body)()
        assert leaves.state == "complete"
        kept = double(2)
    assert await kept == 4


@in_loop
async def test_a_cancelled_end_of_a_group_leaves_its_tasks(one):
    """An asyncio cancellation ends the wait at a group's end, also after an error in the block; the tasks go on."""
    gate = omp.Event()
    tasks = []

    async def grouped(fails):
        async with omp.taskgroup():
            tasks.append(omp.task(lambda: 6, detach=gate)() if not tasks else tasks[0])
            omp.taskwait(depend=[inout(("x",))], nowait=True)
            if fails:
                omp.task(gate_two.wait)()
                raise KeyError

    gate_two = asyncio.Event()
    for fails in (False, True):
        running = asyncio.create_task(grouped(fails))
        for _ in range(3):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    gate_two.set()
    gate.fulfill()
    assert await tasks[0] == 6
    await omp.taskwait()


# -- blocking a loop -------------------------------------------------------------------------------
def blocking_waits():
    """Waits of plain code; each is given a task that is not complete."""

    def group(task):
        with omp.taskgroup():
            double(1)

    return {
        "result": lambda task: task.result(),
        "result with a timeout": lambda task: task.result(timeout=30),
        "exception": lambda task: task.exception(),
        "taskwait": lambda task: blocking_taskwait(),
        "taskwait depend": lambda task: omp.taskwait(depend=[in_(("x",))]),
        "barrier": lambda task: omp.barrier(),
        "undeferred task": lambda task: omp.task(lambda: None, if_=False, depend=[in_(("x",))])(),
        "target": lambda task: omp.target(lambda: None, depend=[in_(("x",))])(),
        "undeferred coroutine": lambda task: double.options(if_=False)(1),
        "final coroutine": lambda task: double.options(final=True)(1),
        "taskgroup": group,
    }


@pytest.mark.parametrize("through", ["itself", "a plain task", "a chain"])
@pytest.mark.parametrize("wait", blocking_waits())
@in_loop
async def test_a_wait_that_blocks_its_own_bodies_is_refused(workers, wait, through):
    """On a loop's thread a blocking wait for the loop's bodies names await, has changed nothing, and all goes on."""
    gate = asyncio.Event()
    task = omp.task(gate.wait, depend=[inout(("x",))])()
    if through != "itself":
        task = omp.task(lambda: 1, depend=[inout(("x",))])()
    if through == "a chain":
        task = omp.task(lambda: 2, depend=[inout(("x",))])()
    with pytest.raises(omp.UsageError, match="await"):
        blocking_waits()[wait](task)
    gate.set()
    await task
    await omp.taskwait()


@in_loop
async def test_a_mutex_that_a_body_holds_is_told_too(one):
    """A blocking wait for a task that stands in line behind a body of the loop is refused."""
    gate, begun = asyncio.Event(), asyncio.Event()

    async def holds():
        begun.set()
        await gate.wait()

    omp.task(holds, depend=[mutexinoutset(("m",))])()
    await begun.wait()
    other = omp.task(lambda: 1, depend=[mutexinoutset(("m",))])()
    marker = omp.task(lambda: 2)()
    assert await marker == 2  # by then the worker has put the other one in line
    with pytest.raises(omp.UsageError, match="await"):
        other.result()
    gate.set()
    assert await other == 1


@in_loop
async def test_a_wait_for_one_of_several_queues_needs_one_of_them(workers):
    """It is refused where each holds something behind a body of the loop, and waits where another queue gets on."""
    gate = asyncio.Event()
    first, second = omp.task(gate.wait)(), omp.task(gate.wait)()
    a, b = np.zeros(3), np.zeros(3)
    increment = acc.parallel(lambda x: x.__iadd__(1) is None)
    increment.options(async_=1, depend=[in_(first)])(a)
    increment.options(async_=2)(b)
    assert acc.wait_any([1, 2]) == 1
    increment.options(async_=2, depend=[in_(second)])(b)
    for queues in ([1], [1, 2], [2, 1]):
        with pytest.raises(omp.UsageError, match="await"):
            acc.wait_any(queues)
    gate.set()
    await omp.taskwait()
    assert acc.wait_any([1, 2]) == 0
    assert (a == 1).all()
    assert (b == 2).all()


def test_a_blocked_loop_of_the_runtime_is_not_used(workers):
    """Where a body blocks the runtime's loop for a plain task, the coroutines of that task run on another one."""

    def plain():
        return double(3).result()

    async def body():
        return omp.task(plain)().result(), omp.task(plain, if_=False)().result()

    assert omp.task(body)().result() == (6, 6)


def test_waits_of_other_threads_are_seen(one):
    """A body that blocks the runtime's loop for a plain task that waits for another body there is refused."""
    ready = threading.Event()

    async def body():
        gate = asyncio.Event()

        def plain():
            held = omp.task(gate.wait)()
            ready.set()
            return held.result()

        task = omp.task(plain)()
        await asyncio.to_thread(ready.wait)
        with pytest.raises(omp.UsageError, match="await"):
            task.result()
        gate.set()
        return await task

    assert omp.task(body)().result() is True


def test_waits_that_begin_at_once_know_of_each_other():
    """A wait that begins while another thread's is noted finds that one, or is told to look again."""
    found, told = [], []

    class Noted(list):
        def copy(self):
            copied = super().copy()
            if not found:  # another thread comes in between here
                found.append(None)
                outer = SimpleNamespace(task=None, parker=SimpleNamespace(unpark=lambda: told.append(outer)))
                coroutines.wait(outer, None, blocks=True)
                found[:] = [wait.task for wait in self]
            return copied

    coroutines = Coroutines(None)
    coroutines._blocked = Noted()
    coroutines.wait(SimpleNamespace(task="inner"), None, blocks=True)
    assert "inner" in found or told


@in_loop
async def test_plain_code_in_a_loop_may_wait_for_plain_tasks(workers):
    """As in a notebook: blocking waits work below a running loop, for all that does not need that loop."""
    x = np.zeros(3)
    keeps = asyncio.Event()
    other = omp.task(keeps.wait)()

    def cell():
        with omp.taskgroup():
            omp.task(lambda: None)()
        omp.target(lambda x: np.add(x, 1, out=x) is None)(x)
        assert omp.task(lambda: 1, depend=[inout(("y",))])().result() == 1
        omp.taskwait(depend=[in_(("y",))])
        assert on_thread(lambda: double(2).result()) == 4

    cell()
    assert (x == 1).all()
    assert not other.done()
    keeps.set()
    await other
    blocking_taskwait()


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_a_runtime_with_bodies_of_the_same_loop(fails):
    """It is refused, or noted on an error in flight; the runtime is open then, and can be waited for and closed."""

    async def main():
        gate = asyncio.Event()
        expected = pytest.raises(KeyError if fails else omp.UsageError)
        with expected as caught, omp.Runtime("none", num_threads=1, check=True) as runtime:
            task = omp.task(gate.wait)()
            if fails:
                raise KeyError
        assert "await omp.taskwait()" in str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
        assert omp.current_runtime() is runtime
        gate.set()
        assert await double(1) == 2
        await omp.taskwait()
        assert task.done()
        runtime.close()
        with pytest.raises(omp.RuntimeClosedError), runtime:
            pass

    asyncio.run(main())
    assert not our_threads()


def test_a_runtime_ends_in_a_coroutine_when_all_is_awaited():
    """`with Runtime` in a coroutine works as long as its bodies are complete at the end."""

    async def main():
        with omp.Runtime("none", num_threads=1, check=True):
            double(1)
            await omp.taskwait()

    asyncio.run(main())


def test_a_runtime_is_not_closed_on_its_own_loop(one):
    """A body of the runtime's loop cannot close the runtime."""

    async def body():
        one.close()

    with pytest.raises(omp.UsageError, match="own event loop"):
        omp.task(body)().result()


# -- loops that end --------------------------------------------------------------------------------
def test_bodies_that_a_loops_end_cancels(workers):
    """What `asyncio.run` cancels at its end fails with CancelledError, an Exception, whose cause is asyncio's."""
    forever = []

    async def body():
        await asyncio.Event().wait()

    async def main():
        forever[:] = [omp.task(body)() for _ in range(3)]
        await asyncio.sleep(0)

    asyncio.run(main())
    failure = forever[0].exception()
    assert isinstance(failure, concurrent.futures.CancelledError)
    assert isinstance(failure.__cause__, asyncio.CancelledError)
    with pytest.raises(ExceptionGroup) as caught:
        omp.taskwait()
    assert len(caught.value.exceptions) == 2


def test_bodies_that_had_no_turn_before_their_loop_ended(workers):
    """A body whose loop ends first, or whose predecessors take longer than the loop, fails and says why."""
    gate = omp.Event()
    tasks = []

    async def main():
        omp.task(lambda: None, depend=[out(("x",))], detach=gate)()
        tasks.append(double.options(depend=[inout(("x",))])(1))
        tasks.append(double.options(depend=[inout(("x",))])(1))
        tasks.append(double(2))

    asyncio.run(main())
    gate.fulfill()
    failures = [task.exception() for task in tasks]
    assert isinstance(failures[0], omp.UsageError)
    assert isinstance(failures[1], omp.DependError)
    assert failures[2] is None or isinstance(failures[2], (omp.UsageError, concurrent.futures.CancelledError))


@pytest.mark.parametrize("begins", [False, True])
def test_a_loop_that_is_closed_and_not_shut_down(one, begins):
    """Bodies of a loop that was just closed fail at the next wait; none hangs."""
    tasks = []
    log = []

    async def body():
        try:
            await asyncio.Event().wait()
        finally:
            log.append("cleaned up")

    async def main():
        tasks.append(omp.task(body)())
        if begins:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    assert isinstance(tasks[0].exception(), omp.UsageError)
    assert log == ["cleaned up"] * begins

    async def again():
        return await double(1)

    assert asyncio.run(again()) == 2


def test_a_loop_that_stands_still_is_not_waited_for_by_its_thread(one):
    """A wait on the thread that could run the loop again is refused instead of hanging."""
    loop = asyncio.new_event_loop()
    tasks = []

    async def main():
        tasks.append(double(1))

    loop.run_until_complete(main())
    with pytest.raises(omp.UsageError, match="await"):
        omp.taskwait()
    assert loop.run_until_complete(awaited(tasks[0])) == 2
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_a_body_that_is_cancelled_before_its_first_step(one):
    """A task fails also where its coroutine never ran."""

    async def main():
        loop, made = asyncio.get_running_loop(), []

        def cancelled(loop, coroutine):
            made.append(asyncio.Task(coroutine, loop=loop))
            made[0].cancel()
            return made[0]

        task = omp.task(never)()
        loop.set_task_factory(cancelled)
        await asyncio.sleep(0)
        loop.set_task_factory(None)
        with pytest.raises(concurrent.futures.CancelledError):
            await task
        assert made

    async def never():
        raise AssertionError

    asyncio.run(main())


def test_a_task_factory_that_raises(one):
    """What the loop's task factory raises is the task's failure, and the body does not run."""

    async def main():
        def refuse(loop, coroutine):
            raise KeyError("refused")

        task = double(1)
        asyncio.get_running_loop().set_task_factory(refuse)
        await asyncio.sleep(0)
        asyncio.get_running_loop().set_task_factory(None)
        with pytest.raises(KeyError, match="refused"):
            await task

    asyncio.run(main())


def test_exceptions_that_are_none_are_kept_too(one):
    """SystemExit in a body goes to whoever waits, and does not end the loop."""

    async def leave():
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        omp.task(leave)().result()
    assert double(1).result() == 2


def test_an_interrupt_in_a_body_on_the_main_thread_ends_its_loop(one):
    """KeyboardInterrupt on the main thread is asyncio's matter, and no task's."""

    async def strike():
        raise KeyboardInterrupt

    async def main():
        omp.task(strike)()
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    omp.taskwait()


# -- recorded --------------------------------------------------------------------------------------
def test_recorded_coroutines(workers):
    """A recorded run shows when a body ran; one only recorded is computed on the runtime's loop, in any scheduler."""
    names = []

    async def body(word):
        await asyncio.sleep(0)
        names.append((word, here()))
        return word

    def build():
        omp.task(body, depend=[inout(("x",))])("a")
        omp.task(body, depend=[inout(("x",))])("b")

    with omp.record() as graph:
        build()
        omp.taskwait()
    assert all(node.duration_s >= 0 for node in graph.tasks[:2])
    assert [word for word, _ in names] == ["a", "b"]
    names.clear()

    async def main():
        with omp.record(execute=False) as graph:
            build()
            assert await omp.taskwait() is None
            assert await omp.barrier() is None
            with pytest.raises(omp.UsageError, match="recorded"):
                await omp.task(body)("c")
            double.options(if_=False)(1)
        return graph

    graph = asyncio.run(main())
    assert not names
    for scheduler in ("synchronous", "threads"):
        assert {"a", "b"} <= set(graph.compute(scheduler=scheduler).values())
        assert [entry for entry in names if entry[0] != "c"] == [("a", "offload-loop"), ("b", "offload-loop")]
        names.clear()


def test_waits_of_coroutines_are_recorded(one):
    """An awaited task, a taskwait and a group in a coroutine order what follows them."""

    async def main():
        with omp.record() as graph:
            await double(1)
            double(2)
            await omp.taskwait()
            async with omp.taskgroup():
                double(3)
            double(4)
        await omp.taskwait()
        return graph

    graph = asyncio.run(main())
    tasks = [node for node in graph.tasks if node.name == "double"]
    waits = [node for node in graph.tasks if node.name != "double"]
    assert [node.name for node in waits] == ["result", "taskwait", "taskgroup"]
    for wait, task in zip(waits, tasks[1:], strict=True):
        assert wait in graph.predecessors(task)
