"""Blocks of coroutines and generators: whose tasks belong to them. `test_blocks_rules.py` draws programs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading

import numpy as np
import pytest

import offload as omp
from offload import acc, inout, out, tofrom
from tests.conftest import checked

pytestmark = pytest.mark.timeout(60)

CANCELLING = {"OMP_CANCELLATION": "true"}


opened = []
"""The events of tasks that `held` has made."""


@contextlib.contextmanager
def ending():
    """Have a runtime end though events are open, which only a failure leaves."""
    try:
        yield
    finally:
        for event in opened:
            if not event.is_fulfilled:
                event.fulfill()
        opened.clear()


@pytest.fixture(params=[0, 2], ids=["alone", "two"])
def cancelling(request):
    with checked("sim:2", num_threads=request.param, env=CANCELLING) as runtime, ending():
        yield runtime


@pytest.fixture
def each_kind(runtime):
    """A current runtime on each kind of device."""
    with ending():
        yield runtime


@omp.target(nowait=True, map=[tofrom("x")])
def add_one(x):
    x += 1


def held(event, *depend):
    opened.append(event)
    return omp.task(lambda: None, detach=event, depend=depend)()


def stands_in_no_group():
    with pytest.raises(omp.UsageError, match="no taskgroup encloses"):
        omp.cancel("taskgroup")


# -- coroutines ------------------------------------------------------------------------------------
@pytest.mark.parametrize("construct", [lambda x: omp.target_data(map=[tofrom(x)]), lambda x: omp.taskgroup()])
def test_the_coroutine_that_ends_first_leaves_the_others_region(each_kind, construct):
    """Of two coroutines, each in a block of its own, the later one waits for its tasks, and has its array then."""
    arrays = np.zeros(4), np.zeros(4)
    events = omp.Event(), omp.Event()
    tasks = {}

    async def one(number, waits, tells):
        with construct(arrays[number]):
            tells.set()
            await waits.wait()
            held(events[number], out(arrays[number]))
            tasks[number] = add_one.options(depend=[inout(arrays[number])])(arrays[number])
            events[number].fulfill()
        tells.set()
        assert tasks[number].done()
        assert (arrays[number] == 1).all()

    async def main():
        first, second = asyncio.Event(), asyncio.Event()
        await asyncio.gather(one(0, second, first), one(1, first, second))
        stands_in_no_group()

    asyncio.run(main())


@pytest.mark.parametrize("construct", [lambda x: omp.target_data(map=[tofrom(x)]), lambda x: omp.taskgroup()])
def test_what_is_generated_after_anothers_end_is_waited_for(each_kind, construct):
    """A coroutine whose block outlasts another's waits for what it generates after that one's end."""
    arrays = np.zeros(4), np.zeros(4)

    async def main():
        entered, begun, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def short():
            with construct(arrays[0]):
                entered.set()
                await begun.wait()
            ended.set()

        async def long():
            await entered.wait()
            with construct(arrays[1]):
                begun.set()
                await ended.wait()
                never = threading.Event()
                omp.task(never.wait, depend=[out(arrays[1])])(0.2)  # a while, in which the end must not go on
                task = add_one.options(depend=[inout(arrays[1])])(arrays[1])
            assert task.done()
            assert (arrays[1] == 1).all()

        await asyncio.gather(short(), long())
        stands_in_no_group()

    asyncio.run(main())


def test_a_cancel_leaves_the_block_of_its_own_coroutine(cancelling):
    """Of two coroutines in groups one cancels: its tasks are discarded, the other's run, and the loop's run returns."""
    event = omp.Event()

    async def other(begun, go):
        with omp.taskgroup():
            task = held(event)
            begun.set()
            await go.wait()
            later = omp.task(lambda: "ran")()
            event.fulfill()
        return task, later

    async def main():
        begun, go = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(other(begun, go))
        await begun.wait()
        with omp.taskgroup():
            with contextlib.suppress(BaseException):  # so that a task is generated in a group that is cancelled
                omp.cancel("taskgroup")
            discarded = omp.task(lambda: None)()
            omp.cancel("taskgroup")
            pytest.fail("not left")
        assert discarded.state == "cancelled"
        go.set()
        task, later = await running
        assert (task.state, later.result()) == ("complete", "ran")

    asyncio.run(main())


def test_a_cancel_in_a_child_of_asyncio_leaves_the_block_that_awaits_it(cancelling):
    """asyncio's tasks made in a block belong to it: a cancel there ends them, and what awaits them leaves the block."""

    async def child():
        omp.cancel("taskgroup")

    async def main():
        with omp.taskgroup():
            await asyncio.create_task(child())
            pytest.fail("not left")
        async with omp.taskgroup(), asyncio.TaskGroup() as tasks:
            tasks.create_task(child())
            tasks.create_task(child())

    asyncio.run(main())


def test_what_outlives_a_block_belongs_to_what_is_around(cancelling):
    """A task of asyncio made in a block belongs to it, and when that has ended to the block around, or to none."""
    event = omp.Event()

    async def child(turns):
        await turns.get()
        omp.task(lambda: None)()
        held(event)  # of the outer block
        await turns.get()
        stands_in_no_group()
        assert omp.task(lambda: "ran")().result() == "ran"

    async def main():
        turns = asyncio.Queue()
        with omp.taskgroup():
            with omp.taskgroup():
                running = asyncio.create_task(child(turns))
                await asyncio.sleep(0)
            turns.put_nowait(None)
            while not turns.empty():  # noqa: ASYNC110  # one turn of the loop after the other
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not event.is_fulfilled
            event.fulfill()
        turns.put_nowait(None)
        await running

    asyncio.run(main())


# -- generators ------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("how", ["taskgroup", "managed", "stack"])
def test_generators_end_in_any_order(cancelling, order, how):
    """Each of two suspended generators waits for its own tasks; outside of them there is no group."""
    events = omp.Event(), omp.Event()

    @contextlib.contextmanager
    def managed():
        with omp.taskgroup():
            yield

    def one(number):
        with contextlib.ExitStack() as stack:
            stack.enter_context(managed() if how == "managed" else omp.taskgroup())
            if how == "stack":
                stack.enter_context(contextlib.ExitStack()).enter_context(omp.taskgroup())
            yield
            yield held(events[number])

    ones = [one(0), one(1)]
    for each in ones:
        next(each)
    tasks = [next(each) for each in ones]
    for number in order:
        stands_in_no_group()
        events[number].fulfill()
        ones[number].close()
        assert tasks[number].done()
    stands_in_no_group()


def test_a_cancel_in_a_generator_is_its_own(cancelling):
    """A cancel in one generator leaves its block; the other goes on, and what it has generated runs."""

    def one(cancels):
        with omp.taskgroup():
            yield
            if cancels:
                omp.cancel("taskgroup")
            yield omp.task(lambda: "ran")()
        yield "left"

    first, second = one(True), one(False)
    next(first)
    next(second)
    assert next(first) == "left"
    task = next(second)
    assert next(second) == "left"
    assert task.result() == "ran"


def test_asynchronous_generators(cancelling):
    """An asynchronous generator's block is its own, not that of the coroutine that iterates over it."""
    events = omp.Event(), omp.Event()

    @contextlib.asynccontextmanager
    async def managed():
        async with omp.taskgroup():
            yield

    async def one(number):
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(managed() if number else omp.taskgroup())
            yield
            yield held(events[number])

    async def main():
        ones = [one(0), one(1)]
        for each in ones:
            await anext(each)
        for number, each in enumerate(ones):
            task = await anext(each)
            stands_in_no_group()
            events[number].fulfill()
            await each.aclose()
            assert task.done()
        stands_in_no_group()

    asyncio.run(main())


def test_a_generator_that_is_advanced_elsewhere(cancelling):
    """What a generator generates on another thread, or in the body of a task, belongs to its block all the same."""

    def one():
        with omp.taskgroup():
            yield
            for _ in range(2):
                event = omp.Event()
                events.append(event)
                yield held(event)

    events, tasks = [], []
    each = one()
    next(each)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        tasks.append(pool.submit(next, each).result())
    omp.task(lambda: tasks.append(next(each)), if_=False)()
    for event in events:
        event.fulfill()
    each.close()
    assert [task.done() for task in tasks] == [True, True]
    stands_in_no_group()


def test_a_body_begins_anew():
    """A body that runs while a generator waits at the end of its block does not generate in that block."""
    event = omp.Event()

    def one():
        with omp.taskgroup():
            yield
            omp.task(lambda: None)()

    with checked("none", num_threads=0), ending():
        omp.task(lambda: held(event))()
        each = one()
        next(each)
        assert next(each, "ended") == "ended"  # it has run the body first
        assert not event.is_fulfilled
        event.fulfill()


def test_a_function_that_a_generator_calls(cancelling):
    """The block of a function is in that of the generator which calls it, and ends before that goes on."""
    event = omp.Event()

    def call():
        with omp.taskgroup():
            inner = omp.task(lambda: None)()
        return inner, held(event)

    def one():
        with omp.taskgroup():
            yield
            yield call()

    each = one()
    next(each)
    inner, outer = next(each)
    assert inner.done()
    assert not outer.done()
    event.fulfill()
    each.close()
    assert outer.done()


def test_the_default_device_that_a_generator_sets(cancelling):
    """A default device set in a generator's block holds there, and outlasts it, as in any other block."""

    def one():
        with omp.taskgroup():
            omp.set_default_device(1)
            yield omp.get_default_device()
            yield omp.get_default_device()

    each = one()
    assert next(each) == 1
    assert omp.get_default_device() == 0
    assert next(each) == 1
    each.close()
    assert omp.get_default_device() == 1


def test_a_generator_that_records(cancelling):
    """``record`` in a generator keeps what the generator generates, and a record around it what all of them do."""

    def one(name):
        with omp.record() as graph, omp.taskgroup():
            yield graph
            omp.task(lambda: None, name=name)()
            yield graph

    first, second = one("first"), one("second")
    next(first)
    next(second)
    graphs = next(first), next(second)
    first.close()
    second.close()
    names = [[node.name for node in graph.tasks if node.directive == "task"] for graph in graphs]
    assert names == [["first"], ["second"]]


def test_interop_around_a_group(cancelling):
    """The block of an interop is left where it was entered, though groups of the generator begin in it."""

    def one():
        with omp.interop() as foreign, omp.taskgroup():
            yield
            foreign.use()

    assert list(one()) == [None]


def test_defaults_in_regions_of_openacc(cancelling):
    """``default(none)`` asks for what is in no data clause around the code of the generator, whatever others are in."""
    arrays = np.zeros(4), np.zeros(4)

    @acc.parallel(default="none")
    def region(x):
        x += 1

    def one(number):
        with acc.data(copy=[arrays[number]]):
            yield
            region(arrays[number])
            with pytest.raises(omp.ClauseError):
                region(arrays[1 - number])
            yield

    ones = one(0), one(1)
    for each in ones:
        next(each)
    with pytest.raises(omp.ClauseError):
        region(arrays[0])
    for each in ones:
        next(each)
    for each in ones:
        each.close()
    assert (arrays[0] == 1).all()
    assert (arrays[1] == 1).all()


def test_operations_of_queues_in_a_group(cancelling):
    """An asynchronous region of OpenACC's belongs to the group that the generator is in, whose end waits for it."""
    a = np.zeros(4)

    @acc.parallel(present=["x"], async_=1)
    def region(x):
        x += 1

    def one():
        with omp.taskgroup():
            task = region(a)
            yield
        assert task.done()

    acc.enter_data(copyin=[a])
    assert list(one()) == [None]
    acc.exit_data(copyout=[a])
    assert (a == 1).all()


def test_regions_that_are_left_in_another_order_than_entered(cancelling):
    """A group that has ended is not the current one again when one that was entered in it ends later."""
    first, second = omp.taskgroup(), omp.taskgroup()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    task = omp.task(lambda: None)()
    second.__exit__(None, None, None)
    assert task.done()
    stands_in_no_group()


def test_runtimes_of_generators():
    """A runtime whose block has ended is not current again when one that was entered in it ends later."""

    def one():
        with omp.Runtime("none", num_threads=0) as runtime:
            yield runtime

    with checked("none", num_threads=0) as around:
        first, second = one(), one()
        next(first)
        last = next(second)
        first.close()
        assert omp.current_runtime() is last
        second.close()
        assert omp.current_runtime() is around


# -- async with target_data ------------------------------------------------------------------------
def test_the_loop_runs_while_data_is_entered_and_left(each_kind):
    """At the end, which a task holds up, and at an entry that has to wait, other coroutines run."""
    x = np.zeros(4)
    first, last = omp.Event(), omp.Event()

    async def main():
        held(first, out(("entry",)))
        running = asyncio.create_task(inside())
        for event in (first, last):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not running.done()
            event.fulfill()
        assert await running == 1

    async def inside():
        async with omp.target_data(map=[tofrom(x)], use_device_ptr=[x], depend=[omp.in_(("entry",))]) as (on_device,):
            assert on_device is not x
            add_one.options(depend=[inout(x)])(x)
            held(last)
        assert not omp.target_is_present(x)
        return x[0]

    asyncio.run(main())


def test_errors_of_asynchronous_data(sim):
    """The entry raises what a plain one does; a failure in the block and one at the end come as in a plain one."""
    x = np.zeros(4)

    async def enter_wrongly():
        async with omp.target_data(map=[tofrom(x, present=True)]):
            pytest.fail("entered")

    async def fail(error):
        async with omp.target_data(map=[tofrom(x)]):
            omp.task(lambda: 1 / 0)()
            if error is not None:
                raise error

    def plainly(error):
        with omp.target_data(map=[tofrom(x)]):
            omp.task(lambda: 1 / 0)()
            if error is not None:
                raise error

    with pytest.raises(omp.NotPresentError):
        asyncio.run(enter_wrongly())
    for failing in (lambda error: asyncio.run(fail(error)), plainly):
        with pytest.raises(ExceptionGroup, match="the end of target data") as group:
            failing(None)
        assert isinstance(group.value.exceptions[0], ZeroDivisionError)
        with pytest.raises(KeyError) as raised:
            failing(KeyError("block"))
        assert "then, at the end of target data: ExceptionGroup" in raised.value.__notes__[0]
    assert not omp.target_is_present(x)


@pytest.mark.parametrize("where", ["entry", "block", "end"])
def test_a_cancellation_releases_the_data(each_kind, where):
    """A coroutine that is cancelled at the entry, in the block or at the end leaves nothing mapped."""
    x = np.zeros(4)
    first, last = omp.Event(), omp.Event()

    async def inside():
        async with omp.target_data(map=[tofrom(x)], depend=[omp.in_(("entry",))]):
            if where == "block":
                await asyncio.Event().wait()
            held(last)

    async def main():
        if where == "entry":
            held(first, out(("entry",)))
        running = asyncio.create_task(inside())
        while where != "entry" and not omp.target_is_present(x):  # noqa: ASYNC110  # as above
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    first.fulfill()
    last.fulfill()
    omp.barrier()
    assert not omp.target_is_present(x)


def test_a_cancelled_group_is_left_at_the_entry(cancelling):
    """An entry in a cancelled group leaves the group's block, as one that is not awaited does."""
    x = np.zeros(4)

    async def main():
        async with omp.taskgroup():
            with contextlib.suppress(BaseException):
                omp.cancel("taskgroup")
            async with omp.target_data(map=[tofrom(x)]):
                pytest.fail("entered")
        assert not omp.target_is_present(x)

    asyncio.run(main())


def test_data_is_entered_once(sim):
    """A second entry of the same object is refused; a function that it decorates has its own at each call."""
    x = np.zeros(4)
    region = omp.target_data(map=[tofrom(x)])
    with region:
        assert omp.target_is_present(x)
    with pytest.raises(omp.UsageError, match="entered once"), region:
        pass

    @omp.target_data(map=[tofrom(x)])
    def inside():
        return omp.target_is_present(x)

    assert [inside(), inside(), omp.target_is_present(x)] == [True, True, False]


# -- asyncio's own functions -----------------------------------------------------------------------
def test_asyncio_wait_is_refused_at_once(cancelling):
    """`asyncio.wait` says what to write, and takes it; all that awaits takes tasks as they are."""

    async def main():
        event = omp.Event()
        open_one = held(event)
        with pytest.raises(omp.UsageError, match=r"asyncio\.ensure_future\(task\)"):
            await asyncio.wait([open_one])
        assert not asyncio.isfuture(open_one)
        event.fulfill()

        def three():
            return [omp.task(lambda value=value: value)() for value in range(3)]

        done, pending = await asyncio.wait([asyncio.ensure_future(task) for task in three()])
        assert sorted(future.result() for future in done) == [0, 1, 2]
        assert not pending
        assert await asyncio.gather(*three()) == [0, 1, 2]
        assert sorted([await one for one in asyncio.as_completed(three())]) == [0, 1, 2]
        assert [await asyncio.wait_for(task, 30) for task in three()] == [0, 1, 2]
        assert [await asyncio.shield(task) for task in three()] == [0, 1, 2]
        if cancelling.engine.threads:  # a future runs no tasks while it is waited for
            assert [await asyncio.wrap_future(task.as_future()) for task in three()] == [0, 1, 2]

    asyncio.run(main())


def test_callbacks_are_called_on_whichever_thread(cancelling):
    """``add_done_callback`` in a coroutine is that of concurrent.futures: the thread that completes the task calls."""
    threads = []

    async def main():
        event = omp.Event()
        task = held(event)
        while not event._is_awaited:  # the task is "detached" a moment before, when its own thread may still end it
            omp.taskyield()
            await asyncio.sleep(0)
        task.add_done_callback(lambda _: threads.append(threading.current_thread().name))
        with concurrent.futures.ThreadPoolExecutor(1, "fulfils") as pool:
            pool.submit(event.fulfill).result()

    asyncio.run(main())
    assert threads == ["fulfils_0"]


# -- generators that only help ---------------------------------------------------------------------


def _delegates(x):
    with omp.target_data(map=[tofrom(x)]):
        yield x


@contextlib.contextmanager
def by_yield_from(x):
    yield from _delegates(x)


@contextlib.contextmanager
def by_a_loop(x):
    for one in _delegates(x):  # noqa: UP028  # what is tested
        yield one


@contextlib.contextmanager
def by_a_generator_expression(x):
    with contextlib.ExitStack() as stack:
        tuple(stack.enter_context(omp.target_data(map=[tofrom(one)])) for one in [x])
        yield x


@pytest.mark.parametrize("block", [by_yield_from, by_a_loop, by_a_generator_expression])
def test_generators_that_help_enter_blocks_for_their_caller(each_kind, block):
    """A generator that contextlib's generator drives, or an expression, enters a block for whoever enters that."""
    x = np.zeros(4)
    with block(x):
        omp.task(threading.Event().wait, depend=[out(x)])(0.1)
        task = add_one.options(depend=[inout(x)])(x)
    assert task.done()
    assert (x == 1).all()
    stands_in_no_group()
