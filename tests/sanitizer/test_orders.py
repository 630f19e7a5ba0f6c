"""What orders two accesses of a program, and what does not."""

import asyncio
import queue
import signal
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.pragma import directives
from offload.pragma import omp as pragma
from offload.runtime import sanitizing
from offload.sanitizer.clocks import Order
from tests.profiles import few
from tests.sanitizer.order import sanitized


@pytest.fixture(params=few(2, [None, 1, 2]), ids=["free", "seed 1", "seed 2"])
def run(request):
    with sanitized(seed=request.param) as noted:
        yield noted


def body(access, *args, **kwargs):
    """Return a function without parameters for an access."""
    return lambda *_, **__: access(*args, **kwargs)


x, y = np.zeros(8), np.zeros(8)


# -- tasks -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("first", "second", "is_ordered"),
    [
        ([omp.out(x)], [omp.in_(x)], True),
        ([omp.in_(x)], [omp.inout(x)], True),
        ([omp.out(x)], [omp.out(x)], True),
        ([omp.in_(x)], [omp.in_(x)], False),
        ([omp.out(x)], [omp.in_(y)], False),
        ([omp.out(x[:4])], [omp.in_(x[2:])], True),
        ([omp.out(x[:4])], [omp.in_(x[4:])], False),
        ([omp.inoutset(x)], [omp.in_(x)], True),
        ([omp.mutexinoutset(x)], [omp.inout(x)], True),
        ([omp.out(x)], [omp.inout(omp.all_memory)], True),
        ([omp.inout(omp.all_memory)], [omp.in_(x)], True),
        ([], [], False),
    ],
)
def test_depend(run, first, second, is_ordered):
    """Two tasks are in order exactly if their dependences say so."""
    omp.task(depend=first, name="first")(body(run.write, "a"))()
    omp.task(depend=second, name="second")(body(run.write, "a"))()
    omp.barrier()
    assert run.names == (set() if is_ordered else {"a"})


def test_depend_by_way_of_others(run):
    """A task is in order with the predecessors of its predecessors, also where these have long ended."""
    omp.task(depend=[omp.out(x)])(body(run.write, "a"))()
    omp.taskwait()
    for _ in range(5):
        omp.task(depend=[omp.inout(x)])(body(run.read, "b"))()
    omp.task(depend=[omp.in_(x)])(body(run.write, "a"))()
    omp.barrier()
    assert not run.races


def test_forgets_nothing(run):
    """A predecessor that has ended long ago is still one, also of a set that is pruned when tasks run."""
    omp.task(depend=[omp.in_(x)], name="reads")(body(run.read, "a"))().result()
    for _ in range(200):
        omp.task(depend=[omp.in_(x)])(lambda: None)().result()
    event = omp.Event()
    omp.task(depend=[omp.out(x), omp.in_(event)], name="writes")(body(run.write, "a"))()
    event.fulfill()
    omp.barrier()
    assert not run.races


def test_kinds_of_constructs(run):
    """Dependences order constructs of different kinds."""
    omp.task(depend=[omp.out(x)])(body(run.write, "a"))()
    omp.target(nowait=True, depend=[omp.inout(x)])(body(run.write, "a"))(np.zeros(3))
    omp.target_enter_data(map=[omp.to(y)], depend=[omp.inout(x)], nowait=True)
    omp.target_update(to=[y], depend=[omp.inout(x)], nowait=True)
    omp.taskwait(depend=[omp.inout(x)], nowait=True)
    omp.target_exit_data(map=[omp.release(y)], depend=[omp.inout(x)], nowait=True)
    omp.task(depend=[omp.in_(x)])(body(run.write, "a"))()
    omp.barrier()
    assert not run.races


def test_parent_and_child(run):
    """A child comes after what its parent has done before, and not before what it does later."""

    def parent():
        run.write("before")
        run.write("later")

        def child():
            run.read("before")
            run.write("after")

        omp.task(child)()
        run.read("before")
        run.write("after")
        omp.taskwait()
        run.read("after")

    run.write("later")
    omp.task(parent)()
    omp.taskwait()
    run.write("later")
    omp.barrier()
    assert run.names == {"after"}


def test_grandchild(run):
    """A taskwait of the host is no wait for the children of its tasks, and a barrier is one."""

    def parent():
        omp.task(body(run.write, "a"))()
        omp.task(body(run.write, "b"))()

    omp.task(parent)()
    omp.taskwait()
    run.write("a")
    omp.barrier()
    run.write("b")
    omp.barrier()
    assert run.names == {"a"}


def test_one_thread_runs_two_tasks():
    """Tasks that happen to run on one thread, one after the other, are not in order."""
    with sanitized(num_threads=1) as run:
        omp.task(body(run.write, "a"), name="first")().result()
        omp.task(body(run.write, "b"), name="second")()
        omp.task(body(run.write, "b"), name="third")()
        omp.barrier()
    assert run.races == {("b", "second", "third")}


def test_taskwait(run):
    """What follows a taskwait is in order with the tasks before, and what stands before it is not."""
    omp.task(body(run.write, "a"))()
    omp.task(body(run.write, "b"))()
    run.write("a")
    omp.taskwait()
    run.write("b")
    omp.barrier()
    assert run.names == {"a"}


def test_taskwait_depend(run):
    """A taskwait with depend orders the tasks that it names, and no others."""
    omp.task(depend=[omp.out(x)])(body(run.write, "a"))()
    omp.task(depend=[omp.out(y)])(body(run.write, "b"))()
    omp.taskwait(depend=[omp.in_(x)])
    run.write("a")
    run.write("b")
    omp.barrier()
    assert run.names == {"b"}


def test_taskwait_depend_that_has_ended(run):
    """A taskwait with depend orders tasks that had ended before, too."""
    task = omp.task(depend=[omp.out(x)])(body(run.write, "a"))()
    other = omp.task(depend=[omp.in_(task)])(lambda: None)()
    other.result()
    omp.taskwait(depend=[omp.in_(x)])
    run.write("a")
    omp.barrier()
    assert not run.races


def test_taskgroup(run):
    """The end of a taskgroup orders the tasks in it with their descendants, and no earlier ones."""
    omp.task(body(run.write, "outside"))()
    with omp.taskgroup():
        omp.task(omp.task(body(run.write, "descendant")))()
        omp.task(body(run.write, "child"))()
    run.write("descendant")
    run.write("child")
    run.write("outside")
    omp.barrier()
    assert run.names == {"outside"}


def test_empty_taskgroup(run):
    """The end of a taskgroup orders tasks that had ended before it."""
    with omp.taskgroup():
        omp.task(body(run.write, "a"), name="a")()
        while omp.current_runtime().engine.takers is None:
            pass
        omp.taskwait()
        omp.task(body(run.write, "b"))().add_done_callback(lambda _: None)
    run.write("a")
    run.write("b")
    omp.barrier()
    assert not run.races


def test_target_data(run):
    """The end of target_data orders the tasks in it; with nogroup it does not."""
    with omp.target_data(map=[omp.to(x)]):
        omp.task(body(run.write, "a"))()
    run.write("a")
    with omp.target_data(map=[omp.to(x)], nogroup=True):
        omp.task(body(run.write, "b"))()
    run.write("b")
    omp.barrier()
    assert run.names == {"b"}


def test_results(run):
    """result, exception, a done that is true, the future of a task and await order what follows."""
    for ask in (
        lambda task: task.result(),
        lambda task: task.exception(),
        lambda task: task.as_future().result(),
        lambda task: task.result(timeout=30),
    ):
        task = omp.task(body(run.write, "a"))()
        ask(task)
        run.write("a")
    task = omp.task(body(run.write, "b"))()
    while not task.done():
        omp.taskyield()
    run.write("b")
    omp.barrier()
    assert not run.races


def test_failed_task(run):
    """A task that has failed is in order with what follows the error."""

    def fail():
        run.write("a")
        raise ValueError

    task = omp.task(fail)()
    with pytest.raises(ValueError):
        task.result()
    run.write("a")
    omp.barrier()
    assert not run.races


def test_result_of_another(run):
    """The result of one task says nothing of another."""
    omp.task(body(run.write, "a"), name="other")()
    omp.task(lambda: None)().result()
    run.write("a")
    omp.barrier()
    assert run.names == {"a"}


def test_values(run):
    """A task that is passed is in order with the task that receives its value."""
    first = omp.task(body(run.write, "a"))()
    omp.task(lambda value: run.write("a"))(first)
    omp.barrier()
    assert not run.races


def test_undeferred(run):
    """An undeferred construct is in order with the code after it."""
    omp.task(if_=False)(body(run.write, "a"))()
    omp.target(body(run.write, "a"))(np.zeros(3))
    omp.task(final=True)(omp.task(body(run.write, "a")))()
    run.write("a")
    omp.barrier()
    assert not run.races


def test_deferred_target(run):
    """A deferred target region is not in order with the code after it."""
    task = omp.target(nowait=True)(body(run.write, "a"))(np.zeros(3))
    run.write("a")
    task.result()
    omp.barrier()
    assert run.names == {"a"}


def test_regions_on_one_lane(run):
    """Regions that happen to have the same lane are not in order; a dependence orders them."""
    for name, depend in (("a", []), ("b", [omp.inout(x)])):
        region = omp.target(nowait=True, depend=depend)(body(run.write, name))
        for _ in range(3):
            region(np.zeros(3))
        omp.barrier()
    assert run.names == {"a"}


def test_taskloop(run):
    """The tasks of a taskloop are not in order, and the loop's end orders them with the code after it."""
    omp.taskloop(num_tasks=3)(lambda part: run.read("a"))(range(3))
    run.write("a")
    omp.taskloop(num_tasks=3)(lambda part: run.write("b"))(range(3))
    omp.barrier()
    assert run.names == {"b"}


@pytest.mark.parametrize("kind", [omp.mutexinoutset, omp.inoutset])
def test_exclusion(run, kind):
    """Tasks that exclude each other, and members of one inoutset, do not race among themselves; others do."""
    add = omp.task(depend=[kind(x)])(body(run.write, "a"))
    for _ in range(3):
        add()
    omp.task(depend=[kind(x[:2])])(body(run.write, "a"))()
    omp.barrier()
    assert not run.races
    add()
    omp.task(body(run.write, "a"), name="other")()
    omp.barrier()
    assert run.names == {"a"}


def test_exclusion_is_no_order():
    """Mutual exclusion does not order the predecessors of one task with the successors of another."""
    z = np.zeros(3)
    for seed in range(10):
        with sanitized(seed=seed) as run:
            omp.task(depend=[omp.out(y)], name="before")(body(run.write, "a"))()
            omp.task(depend=[omp.in_(y), omp.mutexinoutset(x)])(lambda: None)()
            omp.task(depend=[omp.out(z), omp.mutexinoutset(x)])(lambda: None)()
            omp.task(depend=[omp.in_(z)], name="other")(body(run.write, "a"))()
        assert run.races == {("a", "before", "other")}


def test_reduction(run):
    """Tasks that take part in a reduction are in order with the code after the group."""
    total = np.zeros(())
    add = omp.task(in_reduction={"+": ["total"]})(lambda total: run.read("a"))
    with omp.taskgroup(task_reduction={"+": [total]}):
        for _ in range(3):
            add(total)
    run.write("a")
    omp.barrier()
    assert not run.races


# -- events ----------------------------------------------------------------------------------------
def test_detach(run):
    """A task with an event ends after what was done before the fulfilment."""
    event = omp.Event()
    task = omp.task(detach=event, depend=[omp.out(x)])(lambda: None)()
    omp.task(depend=[omp.in_(x)])(lambda: [run.write("a"), run.write("b")])()
    run.write("a")
    event.fulfill()
    run.write("b")
    task.result()
    omp.barrier()
    assert run.names == {"b"}


def test_event_in_depend(run):
    """A task that names an event comes after its fulfilment, also where that came first."""
    for is_early in (False, True):
        event = omp.Event()
        if is_early:
            run.write("a")
            event.fulfill()
        omp.task(depend=[omp.in_(event)])(body(run.write, "a"))()
        if not is_early:
            run.write("a")
            event.fulfill()
        omp.barrier()
    assert not run.races


def test_event_of_a_task(run):
    """An event that a task fulfils orders what the task has done before."""
    event = omp.Event()

    def fulfil():
        run.write("a")
        event.fulfill()
        run.write("b")

    omp.task(depend=[omp.in_(event)])(lambda: [run.write("a"), run.write("b")])()
    omp.task(fulfil)()
    omp.barrier()
    assert run.names == {"b"}


def test_fulfil_on_future(run):
    """A future orders all that the host has done until it completes, on whichever thread that is."""
    event, future = omp.Event(), Future()
    event.fulfill_on(future)
    omp.task(detach=event, depend=[omp.out(x)])(lambda: None)()
    omp.task(depend=[omp.in_(x)])(lambda: [run.write("a"), run.write("b")])()
    run.write("a")
    thread = threading.Thread(target=future.set_result, args=(None,))
    thread.start()
    thread.join()
    run.write("b")
    omp.barrier()
    assert run.names == {"b"}


def test_future_of_a_pool(run):
    """A function of a pool that fulfils an event is in order with the tasks that follow."""
    with ThreadPoolExecutor(1) as pool:
        event = omp.Event()
        omp.task(detach=event, depend=[omp.out(x)])(lambda: event.fulfill_on(pool.submit(run.write, "a")))()
        omp.task(depend=[omp.in_(x)])(body(run.read, "a"))()
        omp.taskwait()
        run.read("a")
    omp.barrier()
    assert not run.races


def test_thread_fulfils(run):
    """A thread of the program may do the work of a task and fulfil its event."""
    event = omp.Event()

    def work():
        run.write("a")
        event.fulfill()

    omp.task(detach=event, depend=[omp.out(x)])(lambda: threading.Thread(target=work).start())()
    omp.task(depend=[omp.in_(x)])(body(run.read, "a"))()
    omp.taskwait()
    run.read("a")
    omp.barrier()
    assert not run.races


# -- streams ---------------------------------------------------------------------------------------
def test_stream_left_behind(run):
    """Work that a host task leaves on a stream is in order with its successors only by an event."""
    for name, is_detached in (("a", False), ("b", True)):
        event = omp.Event() if is_detached else None

        def enqueue(name=name, event=event):
            stream = omp.current_stream()
            stream.launch(run.write, name)
            if event is not None:
                event.fulfill_on(stream)

        omp.task(detach=event, depend=[omp.out(x)])(enqueue)()
        omp.task(depend=[omp.in_(x)])(body(run.read, name))()
        omp.target(nowait=True, depend=[omp.in_(x)])(body(run.read, name))(np.zeros(3))
        omp.taskwait()
        omp.devices()[0].synchronize()
    omp.barrier()
    assert run.names == {"a"}


def test_left_on_stream_is_marked(run):
    """The stretch of such work is marked."""
    marks = []

    def mark():
        marks.append(run.orders.course_of(run.orders.here()).leaver is not None)

    def enqueue():
        omp.current_stream().launch(mark)
        mark()

    omp.task(enqueue)().result()
    omp.devices()[0].synchronize()
    omp.current_stream().launch(mark)
    omp.devices()[0].synchronize()
    assert marks in ([False, True, False], [True, False, False])


def test_stream_order(run):
    """Work on one stream is in order, and with the code before the launch; streams are not in order with each other."""
    one, other = (omp.devices()[0].new_stream() for _ in range(2))
    run.write("before")
    one.launch(run.write, "a")
    one.launch(run.write, "a")
    one.launch(run.read, "before")
    one.launch(run.write, "b", "one")
    other.launch(run.write, "b", "other")
    one.launch(run.write, "c", "one")
    run.write("c", "host")
    for stream in (one, other):
        stream.synchronize()
    run.write("a")
    run.write("before")
    omp.barrier()
    assert run.races == {("b", "one", "other"), ("c", "host", "one")}


def test_stream_events(run):
    """record and wait_event order the work on two streams; an event has the work before it alone."""
    one, other = (omp.devices()[0].new_stream() for _ in range(2))
    one.launch(run.write, "a")
    event = one.record()
    one.launch(run.write, "b")
    other.wait_event(event)
    other.launch(run.write, "a")
    other.launch(run.write, "b")
    event.synchronize()
    run.read("c")
    other.synchronize()
    one.synchronize()
    run.write("a")
    omp.barrier()
    assert run.names == {"b"}


def test_event_synchronize(run):
    """A host that has synchronised with an event, or found it done, comes after the work before it."""
    stream = omp.devices()[0].new_stream()
    stream.launch(run.write, "a")
    event = stream.record()
    stream.launch(run.write, "b")
    event.synchronize()
    run.write("a")
    stream.launch(run.write, "a")
    event = stream.record()
    while not event.done:
        pass
    run.write("a")
    omp.barrier()
    assert not run.races


def test_body_and_its_stream(run):
    """Work that the body of a region launches on its stream is a part of the region."""

    def region(_):
        omp.current_stream().launch(run.write, "a")
        run.write("a")
        omp.current_stream().launch(run.write, "a")

    omp.target(nowait=True, depend=[omp.inout(x)])(region)(np.zeros(3))
    omp.target(nowait=True, depend=[omp.inout(x)])(region)(np.zeros(3))
    omp.taskwait()
    run.write("a")
    omp.barrier()
    assert not run.races


def test_wait_on(run):
    """Work on a stream after wait_on comes after the task."""
    stream = omp.devices()[0].new_stream()
    for name, waits in (("a", True), ("b", False)):
        task = omp.target(nowait=True)(body(run.write, name))(np.zeros(3))
        if waits:
            task.wait_on(stream)
        stream.launch(run.write, name)
        stream.synchronize()
        omp.barrier()
    assert run.names == {"b"}


def test_interop(run):
    """Work in a block of interop comes after the tasks before it, and before those after it."""
    omp.task(depend=[omp.out(x)])(body(run.write, "a"))()
    with omp.interop(depend=[omp.inout(x)]) as block:
        block.stream.launch(run.write, "a")
        block.use()
        omp.task(depend=[omp.inout(x)])(body(run.write, "a"))()
        block.stream.launch(run.write, "b")
    omp.target(nowait=True, depend=[omp.in_(x)])(lambda _: [run.write("a"), run.write("b")])(np.zeros(3))
    omp.barrier()
    assert not run.races


def test_outside_of_interop(run):
    """Work on a block's stream is not in order with tasks that the block does not name."""
    with omp.interop(depend=[omp.inout(x)]) as block:
        block.stream.launch(run.write, "a")
    omp.task(depend=[omp.in_(y)])(body(run.read, "a"))()
    omp.taskwait()
    block.stream.synchronize()
    omp.barrier()
    assert run.names == {"a"}


# -- queues ----------------------------------------------------------------------------------------
def test_queue(run):
    """Operations of one queue are in order, those of two are not."""
    for name, second in (("a", 1), ("b", 2)):
        acc.parallel(async_=1)(body(run.write, name))(np.zeros(3))
        acc.parallel(async_=second)(body(run.write, name))(np.zeros(3))
        acc.wait_all()
    omp.barrier()
    assert run.names == {"b"}


def test_queue_waits(run):
    """acc.wait orders the host with the queues that it names, of its device."""
    for device in (0, 1):
        acc.parallel(async_=1, device=device)(body(run.write, f"one {device}"))(np.zeros(3))
        acc.parallel(async_=2, device=device)(body(run.write, f"two {device}"))(np.zeros(3))
    acc.wait(1, device=0)
    for name in ("one 0", "two 0", "one 1"):
        run.write(name)
    acc.wait_all(device=1)
    run.write("two 1")
    acc.wait_all()
    omp.barrier()
    assert run.names == {"two 0", "one 1"}


def test_wait_async(run):
    """A queue that waits for others comes after them, and wait clauses do the same."""
    acc.parallel(async_=1)(body(run.write, "a"))(np.zeros(3))
    acc.parallel(async_=2)(body(run.write, "b"))(np.zeros(3))
    acc.wait_async(1, 3)
    acc.parallel(async_=3)(body(run.write, "a"))(np.zeros(3))
    acc.parallel(async_=3, wait=[2])(body(run.write, "b"))(np.zeros(3))
    acc.parallel(wait=[3])(lambda _: [run.write("a"), run.write("b")])(np.zeros(3))
    run.write("a")
    acc.wait_all()
    omp.barrier()
    assert not run.races


def test_wait_clause_of_another_device(run):
    """A queue of one device is not that of another with the same number."""
    acc.parallel(async_=1, device=0)(body(run.write, "a"))(np.zeros(3))
    acc.parallel(async_=1, device=1)(body(run.write, "a"))(np.zeros(3))
    acc.wait_all(device=0)
    acc.wait_all(device=1)
    omp.barrier()
    assert run.names == {"a"}


def test_async_test(run):
    """A queue that was found complete is in order with the host."""
    acc.parallel(async_=1)(body(run.write, "a"))(np.zeros(3))
    while not acc.async_test(1):
        pass
    run.write("a")
    omp.barrier()
    assert not run.races


def test_wait_any(run):
    """wait_any orders the queue that it returns."""
    acc.parallel(async_=1)(body(run.write, "a"))(np.zeros(3))
    acc.wait_any([1])
    run.write("a")
    omp.barrier()
    assert not run.races


def test_stream_of_a_queue(run):
    """The program's work on the stream of a queue is part of the queue."""
    acc.parallel(async_=1)(body(run.write, "a"))(np.zeros(3))
    stream = acc.get_cuda_stream(1)
    stream.launch(run.write, "a")
    acc.parallel(async_=1)(body(run.write, "a"))(np.zeros(3))
    stream.launch(run.write, "a")
    acc.wait(1)
    run.write("a")
    omp.barrier()
    assert not run.races


def test_own_stream_of_a_queue(run):
    """A stream of the program's own is part of the queue that it is given to."""
    own = omp.devices()[0].new_stream()
    own.launch(run.write, "a")
    acc.set_cuda_stream(1, own)
    acc.parallel(async_=1)(body(run.write, "a"))(np.zeros(3))
    own.launch(run.write, "a")
    acc.wait(1)
    run.write("a")
    omp.barrier()
    assert not run.races


def test_threads_on_one_queue(run):
    """Several host threads may use one queue: their operations are in order."""

    def work():
        acc.parallel(async_=1)(body(run.write, "a"))(np.zeros(3))

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        work()
        thread.join()
    acc.wait(1)
    run.write("a")
    omp.barrier()
    assert not run.races


# -- coroutines, threads ---------------------------------------------------------------------------
def test_coroutines(run):
    """await, taskwait and taskgroup in coroutines order what follows."""

    async def main():
        task = omp.task(body(run.write, "a"))()
        await task
        run.write("a")
        omp.task(body(run.write, "b"))()
        await omp.taskwait()
        run.write("b")
        async with omp.taskgroup():
            omp.task(body(run.write, "c"))()
        run.write("c")
        omp.task(body(run.write, "d"))()
        run.write("d")
        await omp.barrier()

    asyncio.run(main())
    omp.barrier()
    assert run.names == {"d"}


def test_coroutine_bodies(run):
    """The body of a task may be a coroutine, which takes turns with others."""

    async def work(name):
        run.write(name)
        await asyncio.sleep(0)
        await omp.task(body(run.write, name))()
        run.write(name)

    async def main():
        tasks = [omp.task(work)(name) for name in ("a", "b")]
        for task in tasks:
            await task
        run.write("a")
        run.write("b")
        omp.task(depend=[omp.out(x)])(work)("c")
        await omp.task(depend=[omp.in_(x)])(work)("c")
        one, other = omp.task(work)("d"), omp.task(work)("d")
        await one
        await other

    asyncio.run(main())
    omp.barrier()
    assert run.names == {"d"}


def test_tasks_of_asyncio(run):
    """Coroutines that are no tasks of ours are the code of their thread."""

    async def work():
        run.write("a")
        await asyncio.sleep(0)
        run.write("a")

    async def main():
        await asyncio.gather(work(), work())

    asyncio.run(main())
    omp.barrier()
    assert not run.races


def test_threads_are_not_compared(run):
    """The code of two host threads is not compared, nor are the tasks that they generate."""
    handed = queue.SimpleQueue()

    def work():
        run.write("a")
        omp.task(body(run.write, "a"))().result()
        handed.put(None)
        omp.taskwait()

    thread = threading.Thread(target=work)
    thread.start()
    handed.get()
    run.write("a")
    omp.task(body(run.write, "a"))()
    thread.join()
    omp.barrier()
    assert not run.races


def test_callback(run):
    """A callback of a task may fulfil an event: what follows comes after the task."""
    event = omp.Event()
    omp.task(body(run.write, "a"))().add_done_callback(lambda _: event.fulfill())
    omp.task(depend=[omp.in_(event)])(body(run.write, "a"))()
    omp.barrier()
    assert not run.races


# -- graphs ----------------------------------------------------------------------------------------
def test_taskgraph(run):
    """A taskgraph that runs again has the order of its recording."""
    graph = omp.taskgraph
    names = {"name": ""}

    @graph
    def region():
        omp.task(depend=[omp.out(x)])(lambda: run.write(names["name"]))()
        omp.task(depend=[omp.out(x)])(lambda: run.write(names["name"]))()
        omp.task(lambda: [run.read(names["name"] + " free"), run.write(names["name"] + " racing")])()
        omp.task(lambda: run.write(names["name"] + " racing"))()
        with omp.taskgroup():
            omp.task(omp.task(lambda: run.write(names["name"] + " group")))()
        omp.task(lambda: run.write(names["name"] + " group"))()

    for names["name"] in ("recorded", "again", "once more"):
        run.write(names["name"] + " free")
        region()
        run.write(names["name"])
        run.write(names["name"] + " group")
    omp.barrier()
    assert run.names == {"recorded racing", "again racing", "once more racing"}


class LockOfEngine:
    """The engine's lock; it lets a function run before the first time that a function of this name takes it."""

    def __init__(self, lock, name, before):
        self.lock, self.name, self.before = lock, name, before

    def __enter__(self):
        frame = sys._getframe(1)
        if frame.f_code.co_qualname == self.name:
            self.before(frame.f_locals)
        return self.lock.__enter__()

    def __exit__(self, *raised):
        return self.lock.__exit__(*raised)


def test_group_of_a_taskgraph_that_ends_meanwhile(monkeypatch):
    """What follows a taskgroup in a replay follows its tasks, also those that end while its end begins."""
    with sanitized("sim:1", num_threads=2) as run:
        has_begun, may_end = threading.Event(), threading.Event()

        def last():
            has_begun.set()
            may_end.wait()
            run.write("group")

        def begins(names):
            has_begun.wait()
            may_end.set()
            while names["group"].live:
                pass

        @omp.taskgraph
        def region():
            with omp.taskgroup():
                omp.task(omp.task(last))()
            omp.task(body(run.write, "group"))()

        may_end.set()
        region()
        omp.barrier()
        has_begun.clear()
        may_end.clear()
        engine = run.runtime.engine
        monkeypatch.setattr(engine, "lock", LockOfEngine(engine.lock, "Rest.advance", begins))
        region()
        omp.barrier()
    assert not run.races


def test_computed_graph(run):
    """A recorded graph that is computed has the order of its recording, also through waits."""

    def group():
        omp.task(lambda: run.write("group"))()

    with omp.record(execute=False) as graph:
        omp.task(depend=[omp.out(x)])(body(run.write, "a"))()
        omp.task(depend=[omp.out(x)])(body(run.write, "a"))()
        omp.taskwait()
        omp.task(body(run.write, "a"))()
        with omp.taskgroup():
            omp.task(group)()
        omp.task(body(run.write, "group"))()
        omp.task(body(run.write, "racing"))()
        omp.task(body(run.write, "racing"))()
    for _ in range(2):
        run.write("a")
        graph.compute()
        run.write("a")
        run.write("group")
    omp.barrier()
    assert run.names == {"racing"}


# -- mappings --------------------------------------------------------------------------------------
def test_present_item(run, monkeypatch):
    """A map that finds its item present comes after the copy that made it present."""
    z, place = np.zeros(3), type(run.runtime.places[0])
    plain = place.copy

    def copy(self, dst, src, *args, **kwargs):
        run.copy("storage", "copy", writes=True)
        return plain(self, dst, src, *args, **kwargs)

    monkeypatch.setattr(place, "copy", copy)
    omp.target_enter_data(map=[omp.to(z)], nowait=True)
    while not omp.target_is_present(z):
        omp.taskyield()
    omp.target(nowait=True)(body(run.read, "storage"))(z)
    omp.target(nowait=True, map=[omp.alloc(y)], name="other")(body(run.read, "storage"))(y)
    omp.taskwait()
    omp.target_exit_data(map=[omp.delete(z)])
    omp.barrier()
    assert run.races == {("storage", "copy", "other")}


# -- critical --------------------------------------------------------------------------------------
def test_critical(run):
    """Blocks of critical of one name are in order, those of two names are not."""
    from offload.pragma.teams import critical

    def work(name, place):
        with critical(place):
            run.write(name)

    for name, places in (("a", "p p p"), ("b", "p q p")):
        for place in places.split():
            omp.task(work)(name, place)
        omp.barrier()
    assert run.names == {"b"}


@pytest.mark.parametrize("directive", ["critical", "atomic"])
def test_directive_strings(run, directive):
    """Blocks of critical and atomic of directive strings are in order, and tasks without them are not."""

    @directives
    def guarded():
        for _ in range(3):
            with pragma("task"):
                with pragma("critical"):
                    run.write("critical")
                with pragma("atomic"):
                    run.write("atomic")
                run.write("neither")
        pragma("taskwait")

    guarded()
    assert run.names == {"neither"}


# -- the end ---------------------------------------------------------------------------------------
def test_end_of_the_runtime():
    """The end of the runtime orders all tasks with what follows."""
    with omp.Runtime("sim:1") as runtime:
        orders, found = sanitizing.begin(runtime), []
        omp.task(omp.task(lambda: found.append(orders.here())))()
    found.append(orders.here())
    sanitizing.end(runtime)
    assert orders.order.is_before(*found)


def test_two_runtimes():
    """Each of two runtimes has an order of its own, also where the body of one uses the other."""
    with sanitized("sim:1") as outer, sanitized("sim:1") as inner:

        def body():
            outer.write("a")
            with inner.runtime:
                omp.task(lambda: inner.write("b"))().result()
                inner.write("b")
                outer.write("a")

        with outer.runtime:
            omp.task(body)()
            omp.taskwait()
        outer.write("a")
        omp.barrier()
    assert not outer.races
    assert not inner.races


def test_interruption(monkeypatch):
    """An interruption in the middle of a note leaves the order whole."""
    shown = sys.unraisablehook
    # Python drops what is raised in a function of gc.callbacks.
    monkeypatch.setattr(sys, "unraisablehook", lambda args: args.exc_type is KeyboardInterrupt or shown(args))
    with sanitized("sim:1") as run:
        n_interrupted, is_due = 0, False

        def interrupt(*_):
            nonlocal is_due
            if is_due:  # else the loop has been left, if only just now
                is_due = False
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for _ in range(200):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 2e-4, 0.1)  # again, if a callback has swallowed the first
                    while True:
                        is_due = True
                        run.write("a")
                        run.orders.joins(run.orders.here())
                        omp.task(lambda: None)().done()
                except KeyboardInterrupt:
                    n_interrupted += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert n_interrupted == 200
        omp.taskwait()
        orders = run.orders
        assert len(orders.order) == len(orders._course_of)
        assert orders.here() == len(orders.order) - 1
    assert not run.races


# -- cost ------------------------------------------------------------------------------------------
def test_plain_when_nobody_asks():
    """Without a sanitized runtime, the methods are the plain ones."""
    with sanitized():
        assert "_noted" in omp.Task.done.__qualname__
    assert omp.Task.done.__qualname__ == "Task.done"
    assert isinstance(Order(), Order)
