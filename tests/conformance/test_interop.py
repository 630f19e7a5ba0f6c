"""`interop`, `Task.wait_on` and `set_stream`: work that a program enqueues by itself, in order with tasks.

The public suites have no case of ``interop`` that shows an order. These say what OpenMP 5.2, 14.1 does: what was
enqueued before a construct is done before its task, what is enqueued after it follows that.
"""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, inoutset, out
from offload.devices.sim.device import SimDevice, SimEvent
from tests.conftest import checked


class SimLatch:
    """Holds streams of simulated devices until `release`."""

    def __init__(self):
        self._latches = []

    def hold(self, stream):
        self._latches.append(SimEvent(stream.device))
        stream.wait_event(self._latches[-1])

    def release(self):
        for latch in self._latches:
            latch.fire()


@pytest.fixture
def latch(runtime):
    """What holds a stream of the runtime's devices until ``latch.release()``, or the end of the test."""
    if omp.device(0).kind == "sim":
        latch = SimLatch()
    else:
        from tests.gpu.conftest import Latch, warm

        warm()
        latch = Latch()
    yield latch
    latch.release()
    omp.device(0).synchronize()


def enqueue(stream, d, factor, term=0.0):
    """Enqueue ``d = d * factor + term`` on a stream, as a library would; ``d`` is a device array of f8."""
    if hasattr(stream, "launch"):
        storage = d.unwrap()
        stream.launch(np.multiply, storage, factor, storage)
        stream.launch(np.add, storage, term, storage)
    else:
        with stream:
            d *= factor
            d += term


def has_run(task):
    """Wait until the body of a task with an event has run, and return the task."""
    while task.state in ("waiting", "running"):
        omp.taskyield()
    return task


def new_stream():
    """Return a stream of the program's own on device 0."""
    return omp.device(0).new_stream()


@pytest.fixture
def d(request, runtime):
    """A device array of four elements, all 1."""
    array = omp.target_alloc(4, "f8")
    omp.target_memcpy(array, np.ones(4))
    yield array
    omp.taskwait()
    omp.target_free(array)
    del request.node.funcargs["d"]  # the runtime looks for memory that is left


def add_one(d):
    """Generate a region that adds 1 to ``d``."""
    return omp.target(nowait=True, depend=[inout(d)])(lambda d: d.__iadd__(1) is None)(d)


def host_array(value=-1.0):
    """Return four elements in memory that a device copies by itself; make it before a stream is held."""
    if omp.device(0).kind == "sim":
        return np.full(4, value)
    import cupyx

    array = cupyx.empty_pinned(4)
    array[...] = value
    return array


def values(d, host=None):
    """Return a host array that a deferred copy of ``d`` fills, and that copy."""
    host = host_array() if host is None else host
    return host, omp.target_memcpy_async(host, d, depend=[in_(d)])


# -- the order -------------------------------------------------------------------------------------


def test_block_between_regions(d):
    """The stream follows the region before, the region and the copy after follow the stream."""
    for _ in range(5):
        add_one(d)
        with omp.interop(depend=[inout(d)]) as library:
            enqueue(library.stream, d, 10)
        add_one(d)
    host, _ = values(d)
    omp.taskwait()
    expected = 1.0
    for _ in range(5):
        expected = (expected + 1) * 10 + 1
    assert host.tolist() == [expected] * 4


def test_entry_is_in_stream_order(alone):
    """With every stream held, the block is entered and left all the same, and what follows is in order after."""
    d, host, first = omp.target_alloc(4, "f8"), np.zeros(4), np.arange(4.0)
    omp.target_memcpy_async(d, first, depend=[out(d)])
    with omp.interop(depend=[inout(d)]) as library:
        enqueue(library.stream, d, 10)
    copied = omp.target_memcpy_async(host, d, depend=[in_(d)])
    assert omp.device(0).kind != "sim" or not copied.done()
    alone.go()
    omp.taskwait()
    assert (host == first * 10).all()
    omp.target_free(d)


def test_entry_waits_for_a_host_task(streams):
    """A host task that the entry follows is complete in the block, where it was not before."""
    streams.go()
    x, go = np.zeros(4), threading.Event()

    @omp.task(depend=[out(x)])
    def produce():
        assert go.wait(30)
        x[:] = 1

    task = produce()
    assert not task.done()
    timer = threading.Timer(0.01, go.set)
    timer.start()
    with omp.interop(depend=[in_(x)]) as library:
        assert task.done()
        assert library.stream is not None
    timer.join()


def test_entry_without_workers_runs_what_it_follows(alone):
    """Where the encountering thread is the only one, it runs the host task itself."""
    log = []
    alone.go()
    omp.task(depend=[out(("x",))])(log.append)("before")
    with omp.interop(depend=[inout(("x",))]):
        log.append("block")
    omp.task(depend=[in_(("x",))])(log.append)("after")
    omp.taskwait()
    assert log == ["before", "block", "after"]


@pytest.mark.parametrize("wait", ["result", "taskwait", "taskgroup", "barrier"])
def test_what_follows_waits_for_the_stream(runtime, latch, d, wait):
    """A host task with a conflicting dependence, and every wait, comes after what the block has enqueued."""
    log = []
    timer = threading.Timer(0.02, lambda: (log.append("release"), latch.release()))
    with omp.taskgroup() if wait == "taskgroup" else contextlib.nullcontext():
        with omp.interop(depend=[in_(d)]) as library:
            latch.hold(library.stream)
            enqueue(library.stream, d, 5)
        after = omp.task(depend=[inout(d)])(log.append)("after")
        assert not after.done()
        timer.start()
        {"result": after.result, "taskwait": omp.taskwait, "barrier": omp.barrier}.get(wait, lambda: None)()
    assert log == ["release", "after"]
    timer.join()


def test_items_are_not_held_in_the_block(runtime, latch, d):
    """A task of the block with a conflicting dependence follows the entry, not what the stream has been given."""
    with omp.interop(depend=[inout(d)]) as library:
        latch.hold(library.stream)
        enqueue(library.stream, d, 5)
        assert omp.task(depend=[inout(d)])(lambda: 7)().result(30) == 7
    later = omp.task(depend=[inout(d)])(lambda: 8)()
    assert not later.done()
    latch.release()
    assert later.result() == 8


@pytest.mark.parametrize("kind", [in_, inoutset])
def test_types_of_dependence(runtime, latch, d, kind):
    """Blocks whose dependences do not conflict are not ordered; a writer follows both."""
    with omp.interop(depend=[kind(d)]) as first:
        latch.hold(first.stream)
    with omp.interop(depend=[kind(d)]) as second:
        assert second.stream is not first.stream
    second.stream.synchronize()
    writer = omp.task(depend=[inout(d)])(lambda: 1)()
    assert not writer.done()
    latch.release()
    assert writer.result() == 1


def test_use_orders_both_ways(runtime, latch, d):
    """`use`: a task generated before it comes before what the stream is given next, one after it after what it held."""
    host = host_array()
    with omp.interop(depend=[inout(d)]) as library:
        enqueue(library.stream, d, 10)  # 10
        library.use()
        add_one(d)  # 11
        library.use()
        enqueue(library.stream, d, 10)  # 110
        latch.hold(library.stream)
        library.use()
        _, copied = values(d, host)
        assert not copied.done()
        latch.release()
        copied.result()
    assert host.tolist() == [110] * 4


def test_use_with_its_own_dependences(runtime, latch, d):
    """`use(depend=…)` orders by those in place of the construct's."""
    token = ("other",)
    with omp.interop(depend=[inout(d)]) as library:
        latch.hold(library.stream)
        library.use(depend=[out(token)])
        other = omp.task(depend=[in_(token)])(lambda: 1)()
        assert omp.task(depend=[in_(d)])(lambda: 2)().result(30) == 2
        assert not other.done()
        latch.release()
        assert other.result() == 1


def test_a_stream_of_ones_own(runtime, latch, d):
    """``stream=``: what is on the program's own stream in the block is ordered, and the object has that stream."""
    landing = host_array()
    own = new_stream()
    add_one(d)
    with omp.interop(stream=own, depend=[inout(d)]) as library:
        assert library.stream is own
        assert library.device is omp.device(0)
        enqueue(own, d, 10)
        latch.hold(own)
    host, copied = values(d, landing)
    assert not copied.done()
    latch.release()
    copied.result()
    assert host.tolist() == [20] * 4


@pytest.mark.parametrize("devices", ["sim:2"], indirect=True)
def test_two_devices(devices):
    """Blocks on each device, in turns, on data of the host: each gets what the one before has left."""

    def program():
        x = np.ones(4)
        blocks = [omp.target_alloc(4, "f8", device=number) for number in (0, 1)]
        for turn in range(6):
            block, number = blocks[turn % 2], turn % 2
            omp.target_memcpy_async(block, x, depend=[in_(x), out(block)])
            with omp.interop(device=number, depend=[inout(block)]) as library:
                assert library.device.number == number
                assert library.stream.device is omp.device(number)
                enqueue(library.stream, block, 2, 1)
            omp.target_memcpy_async(x, block, depend=[in_(block), out(x)])
        omp.taskwait()
        assert x.tolist() == [127] * 4
        for block in blocks:
            omp.target_free(block)

    with checked(devices):
        program()


def test_in_a_task(streams):
    """In a task body the block is ordered with the tasks that the body has generated, and the body's end covers it."""
    streams.go()
    found = []

    @omp.task
    def body():
        d = omp.target_alloc(4, "f8")
        omp.target_memcpy_async(d, np.ones(4), depend=[out(d)])
        with omp.interop(depend=[inout(d)]) as library:
            enqueue(library.stream, d, 3)
        host, _ = values(d)
        omp.taskwait()
        found.append(host.tolist())
        omp.target_free(d)

    body().result()
    omp.task(final=True)(body)().result()
    assert found == [[3] * 4] * 2


@pytest.mark.parametrize("devices", ["sim:1"], indirect=True)
def test_any_seed_gives_the_serial_result(devices):
    """Where the order of ready tasks and streams is random, the result is that of the serial program."""

    def program():
        d = omp.target_alloc(4, "f8")
        omp.target_memcpy(d, np.ones(4))
        for k in range(4):
            add_one(d)
            with omp.interop(depend=[inout(d)]) as library:
                enqueue(library.stream, d, k + 2)
            omp.task(depend=[inout(d)])(lambda: None)()
        host, copied = values(d)
        copied.wait_on(omp.stream(1))
        omp.taskwait()
        assert host.tolist() == [(((2 * 2 + 1) * 3 + 1) * 4 + 1) * 5] * 4
        omp.target_free(d)

    for seed in range(30):
        with checked(devices, seed=seed):
            program()


# -- without a stream ------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [None, -1, 0])
def test_on_the_host(number):
    """Without a device there is no stream; the entry waits for the tasks that it follows, and later ones follow."""
    log = []
    with omp.Runtime("none", num_threads=1):
        omp.task(depend=[out(("x",))])(log.append)(1)
        made = omp.interop(device=number, depend=[inout(("x",))]) if number is not None else _with_warning()
        with made as library:
            log.append(2)
            assert library.stream is None
            assert (library.device.kind, library.device.number) == ("host", 0)
            library.use()
        omp.task(depend=[inout(("x",))])(log.append)(3)
        omp.taskwait()
    assert log == [1, 2, 3]


def _with_warning():
    with pytest.warns(omp.HostFallbackWarning):
        return omp.interop(depend=[inout(("x",))])


def test_the_host_as_device_among_others(runtime):
    """The host's numbers give the host, without a warning, also where there are devices."""
    for number in (-1, omp.get_initial_device()):
        with omp.interop(device=number, depend=[inout(("x",))]) as library:
            assert library.stream is None
            assert library.device.number == omp.get_initial_device()


def test_without_targetsync(runtime):
    """``targetsync=False`` gives the device alone, and generates nothing."""
    log = []
    omp.task(depend=[inout(("x",))])(log.append)(1)
    with omp.interop(targetsync=False) as library:
        assert library.stream is None
        assert library.device is omp.device(0)
        with pytest.raises(omp.ClauseError, match="targetsync"):
            library.use()
    omp.taskwait()


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "error"),
    [
        ({"targetsync": "yes"}, omp.ClauseError),
        ({"targetsync": False, "depend": [inout(("x",))]}, omp.ClauseError),
        ({"device": 77}, omp.ClauseError),
        ({"device": "gpu"}, omp.ClauseError),
        ({"depend": [("x",)]}, omp.DependError),
        ({"depend": [inout("x")]}, omp.ClauseError),
        ({"stream": 5}, omp.ClauseError),
        ({"stream": object(), "device": 0}, omp.ClauseError),
        ({"stream": "own", "device": -1}, omp.ClauseError),
        ({"stream": "own", "targetsync": False}, omp.ClauseError),
    ],
)
def test_wrong_clauses(runtime, clauses, error):
    """What cannot mean anything is an error of the call, and nothing has been generated."""
    own = new_stream()
    given = {name: own if value == "own" else value for name, value in clauses.items()}
    with pytest.raises(error):
        omp.interop(**given)
    omp.taskwait()


@pytest.mark.parametrize("devices", ["sim:1", "sim:2"], indirect=True)
def test_a_stream_of_another_runtime(runtime):
    """A simulated stream belongs to its runtime."""
    with omp.Runtime("sim") as other:
        foreign = omp.stream(0)
        made = omp.interop()
    with pytest.raises(omp.ClauseError, match="not a stream"):
        omp.interop(stream=foreign)
    with pytest.raises(omp.UsageError, match="runtime that it was made in"):
        made.__enter__()
    assert other is not runtime


def test_blocks_are_entered_once_and_left_where_they_were(runtime):
    """An object serves one block; outside of it, and from another thread, its methods are errors."""
    library = omp.interop()
    with pytest.raises(omp.UsageError, match="outside"):
        library.use()
    with library, pytest.raises(omp.UsageError, match="once"):
        library.__enter__()
    with pytest.raises(omp.UsageError, match="once"):
        library.__enter__()
    with pytest.raises(omp.UsageError, match="outside"):
        library.use()
    caught = []

    def elsewhere(method, *args):
        try:
            method(*args)
        except omp.UsageError as error:
            caught.append(str(error))

    with omp.interop() as library:
        for call in ((library.use,), (library.__exit__, None, None, None)):
            thread = threading.Thread(target=elsewhere, args=call)
            thread.start()
            thread.join()
    assert len(caught) == 2
    assert all("another thread" in text for text in caught)


def test_in_a_target_body(runtime):
    """A body only enqueues: a construct inside of it is an error."""
    with pytest.raises(omp.UsageError, match="target body"):
        omp.target(omp.interop)()


def test_a_failure_before_the_block(runtime):
    """If a task that the entry follows has failed, the entry raises, the block does not run, and nothing is left."""
    entered = []
    failing = omp.task(depend=[out(("x",))])(lambda: 1 / 0)()
    with pytest.raises(omp.DependError) as caught, omp.interop(depend=[inout(("x",))]):
        entered.append(1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not entered
    assert isinstance(failing.exception(), ZeroDivisionError)
    omp.taskwait()
    with omp.interop(depend=[inout(("x",))]):
        entered.append(2)
    assert entered == [2]


def test_a_block_that_raises_releases_all_the_same(runtime, latch, d):
    """The block's exception goes on, and what follows comes after what the block has enqueued."""
    landing = host_array()
    with pytest.raises(ValueError, match="on purpose"), omp.interop(depend=[inout(d)]) as library:
        latch.hold(library.stream)
        enqueue(library.stream, d, 5)
        raise ValueError("on purpose")
    host, copied = values(d, landing)
    assert not copied.done()
    latch.release()
    copied.result()
    assert host.tolist() == [5] * 4


@pytest.mark.parametrize("devices", ["sim:1"], indirect=True)
def test_work_that_fails_loses_the_device(devices):
    """What fails on the stream is a failure of the exit, so that a wait raises it and what follows does not run."""
    ran = []
    with pytest.raises(ExceptionGroup) as caught, omp.Runtime(devices, num_threads=1):
        with omp.interop(depend=[inout(("x",))]) as library:
            library.stream.launch(lambda: 1 / 0)
        omp.task(depend=[in_(("x",))])(lambda: ran.append(1))()
    assert not ran
    (lost,) = caught.value.exceptions
    assert isinstance(lost, omp.DeviceLostError)
    assert any("interop" in note and __file__ in note for note in lost.__notes__)  # where the block stands


def test_while_a_graph_is_recorded(runtime):
    """What the stream is given is no task, so that the graph would lack it: an error that says what to do instead."""
    with omp.record(), pytest.raises(omp.UnsupportedError, match="current_stream"):
        omp.interop().__enter__()

    @omp.taskgraph
    def recorded():
        with omp.interop():
            pass

    with pytest.raises(omp.UnsupportedError, match="current_stream"):
        recorded()


def test_in_a_cancelled_taskgroup(devices):
    """The entry is a cancellation point; the exit is not discarded, so that what comes later follows the stream."""
    log = []

    def program():
        d = omp.target_alloc(4, "f8")
        omp.target_memcpy(d, np.ones(4))
        with omp.taskgroup(), omp.interop(depend=[inout(d)]) as library:
            log.append("first")
            enqueue(library.stream, d, 5)
            omp.cancel("taskgroup")
        host, copied = values(d)
        copied.result()
        assert host.tolist() == [5] * 4
        with omp.taskgroup():
            with contextlib.suppress(BaseException):
                omp.cancel("taskgroup")
            with omp.interop(depend=[inout(d)]):
                log.append("never")
        omp.target_free(d)

    with checked(devices, env={"OMP_CANCELLATION": "true"}):
        program()
    assert log == ["first"]


def test_coroutines_of_the_same_loop(runtime):
    """A host task that needs this thread's loop is no deadlock but an error that names the wait."""

    @omp.task(depend=[out(("x",))])
    async def produce():
        return 1

    @omp.task
    async def consume():
        first = produce()
        with pytest.raises(omp.UsageError), omp.interop(depend=[in_(("x",))]):
            raise AssertionError
        await first

    consume().result()


# -- streams that wait for tasks -------------------------------------------------------------------


def test_wait_on_launched_work(runtime, latch, d):
    """What is enqueued after ``wait_on`` comes after the task, and the call does not wait for the device."""
    landing, host = host_array(), host_array(2.0)
    own, held = new_stream(), new_stream()
    latch.hold(held)
    with omp.interop(stream=held, depend=[inout(d)]):
        pass
    task = omp.target_memcpy_async(d, host, depend=[out(d)])
    task.wait_on(own)
    assert not task.done()
    enqueue(own, d, 10)
    assert not own.done
    latch.release()
    own.synchronize()
    host, copied = values(d, landing)
    copied.result()
    assert host.tolist() == [20] * 4


def test_wait_on_work_behind_a_host_task(runtime, latch, d):
    """The call waits until a worker has launched the task, and does not wait for the device."""
    landing, host = host_array(), host_array(2.0)
    own, held = new_stream(), new_stream()
    latch.hold(held)
    with omp.interop(stream=held, depend=[inout(d)]):
        pass
    go = threading.Event()
    omp.task(depend=[out(("x",))])(go.wait)(60)
    task = omp.target_memcpy_async(d, host, depend=[in_(("x",)), out(d)])
    threading.Timer(0.01, go.set).start()
    task.wait_on(own)
    assert not task.done()
    enqueue(own, d, 10)
    latch.release()
    own.synchronize()
    host, copied = values(d, landing)
    copied.result()
    assert host.tolist() == [20] * 4


def test_wait_on_a_region(d):
    """A region with a body, launched or not, is done before what is enqueued next."""
    own = new_stream()
    for _ in range(5):
        add_one(d).wait_on(own)
        enqueue(own, d, 2)
        own.synchronize()
    host, copied = values(d)
    copied.result()
    assert host.tolist() == [94] * 4


def test_wait_on_a_host_task(streams, devices):
    """A host task is complete on return, and so is the host task that a region follows."""
    streams.go()
    log, own = [], new_stream()
    task = omp.task(depend=[out(("x",))])(log.append)(1)
    task.wait_on(own)
    assert log == [1]
    go = threading.Event()
    threading.Timer(0.01, go.set).start()
    omp.task(depend=[out(("x",))])(lambda: go.wait(30) and log.append(2))()
    region = omp.target(nowait=True, depend=[in_(("x",))])(lambda: None)()
    region.wait_on(own)
    assert log == [1, 2]


def test_wait_on_a_detached_task(runtime, latch, d):
    """A task whose event a stream will fulfil is followed there, without waiting for it on the host."""
    landing = host_array()
    own, library, event = new_stream(), new_stream(), omp.Event()

    @omp.task(detach=event)
    def body():
        latch.hold(library)
        enqueue(library, d, 3)
        event.fulfill_on(library)

    task = has_run(body())
    task.wait_on(own)
    enqueue(own, d, 10)
    assert not task.done()
    assert not own.done
    latch.release()
    own.synchronize()
    host, copied = values(d, landing)
    copied.result()
    assert host.tolist() == [30] * 4


def test_wait_on_a_failed_task(runtime):
    """The failure is raised, as ``result()`` does; then it has been seen."""
    own = new_stream()
    for task in (omp.task(lambda: 1 / 0)(), omp.target(nowait=True)(lambda: 1 / 0)()):
        with pytest.raises(ZeroDivisionError):
            task.wait_on(own)
    omp.taskwait()


def test_wait_on_errors(runtime):
    """No stream, the task's own body, and a task that was only recorded are errors."""
    task = omp.task(lambda: None)()
    for wrong in (None, 5, object(), runtime):
        with pytest.raises(omp.EventError, match="not a stream"):
            task.wait_on(wrong)
    with pytest.raises(omp.UsageError, match="itself"):
        omp.task(lambda: omp.current_task().wait_on(omp.stream()))().result()
    with omp.record(execute=False):
        recorded = omp.task(lambda: None)()
    with pytest.raises(omp.UsageError, match="recorded"):
        recorded.wait_on(new_stream())


# -- streams that fulfil an event ------------------------------------------------------------------


class ByProtocol:
    """Another library's stream, which says whatever it was made with."""

    def __init__(self, found):
        self._found = found

    def __cuda_stream__(self):
        return self._found


@pytest.mark.parametrize("found", [None, 7, (0,), (0, "1"), [0, 1], (1, 1)])
def test_wrong_protocol(runtime, found):
    """An object whose ``__cuda_stream__`` does not give (0, handle) is an error; the event stays open."""
    event = omp.Event()
    with pytest.raises(omp.EventError, match="__cuda_stream__"):
        event.fulfill_on(ByProtocol(found))
    event.fulfill_on(omp.stream())


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_stream_that_takes_no_event(monkeypatch, is_lost):
    """Where the device is sound the stream is to blame, by an `EventError`; the event stays open."""

    def refuse(*_):
        raise omp.DeviceLostError("on purpose")

    with checked("sim:1"):
        event, stream = omp.Event(), omp.stream()
        with monkeypatch.context() as patch:
            patch.setattr(SimDevice, "record", refuse)
            if is_lost:
                patch.setattr(SimDevice, "check", refuse)
            with pytest.raises(omp.DeviceLostError if is_lost else omp.EventError, match="on purpose"):
                event.fulfill_on(stream)
        event.fulfill_on(stream)


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize(("at", "method"), [("entry", "wait_event"), ("use", "record"), ("exit", "record")])
def test_a_block_on_a_stream_that_takes_no_event(monkeypatch, at, method, is_lost):
    """As `fulfill_on`: the stream is to blame where the device is sound, which works on afterwards."""
    with checked("sim:1"):
        depend, stream, go = [inout(("turn",))], new_stream(), SimLatch()
        if at == "entry":  # what it follows has not passed, so that the stream has to wait
            omp.target(nowait=True, depend=depend)(lambda: go.hold(omp.current_stream()))()
        real = getattr(SimDevice, method)

        def refuse(device, its, *args):
            if its is stream:
                raise omp.DeviceLostError("on purpose")
            return real(device, its, *args)

        def refuse_all(*_):
            raise omp.DeviceLostError("on purpose")

        block = omp.interop(depend=depend, stream=stream)
        if at != "entry":
            block.__enter__()
        with monkeypatch.context() as patch:
            patch.setattr(SimDevice, method, refuse)
            if is_lost:
                patch.setattr(SimDevice, "check", refuse_all)
            with pytest.raises(omp.DeviceLostError if is_lost else omp.EventError, match="on purpose"):
                {"entry": block.__enter__, "use": block.use, "exit": lambda: block.__exit__(None, None, None)}[at]()
        go.release()
        if at == "use":
            block.__exit__(None, None, None)
        ran = []
        omp.target(nowait=True, depend=depend)(lambda: ran.append(1))()
        omp.taskwait()
        assert ran == [1]


def test_a_stream_that_captures(monkeypatch):
    """A stream that a device refuses to adopt is refused before anything is put there, and the runtime works on."""
    with checked("sim:1"):
        depend, stream = [inout(("turn",))], new_stream()
        task, real = omp.task(lambda: None)(), SimDevice.adopt

        def refuse(device, its):
            if its is stream:
                raise omp.EventError("it is capturing")
            return real(device, its)

        block, entered = (omp.interop(depend=depend, stream=stream) for _ in range(2))
        entered.__enter__()
        marks = []
        with monkeypatch.context() as patch:
            patch.setattr(SimDevice, "adopt", refuse)
            patch.setattr(type(stream), "record", marks.append)
            patch.setattr(type(stream), "wait_event", lambda *args: marks.append(args))
            for call in (
                lambda: omp.interop(depend=depend, stream=stream),
                block.__enter__,
                entered.use,
                lambda: entered.__exit__(None, None, None),
                lambda: task.wait_on(stream),
                lambda: omp.Event().fulfill_on(stream),
                lambda: omp.set_stream(1, stream),
            ):
                with pytest.raises(omp.EventError, match="capturing"):
                    call()
        assert marks == []
        order = []
        with block as library:
            library.stream.launch(order.append, "block")
        omp.target(nowait=True, depend=depend)(lambda: omp.current_stream().launch(order.append, "region"))()
        omp.taskwait()
        assert order == ["block", "region"]


# -- queues ----------------------------------------------------------------------------------------


def test_set_stream(runtime):
    """A queue is the stream that it was given until it is given back, and no other queue is."""
    own, others = new_stream(), [omp.stream(number) for number in range(20)]
    omp.set_stream(3, own)
    assert omp.stream(3) is own
    assert [omp.stream(number) for number in range(20) if number != 3] == [*others[:3], *others[4:]]
    omp.set_stream(11, own)
    omp.set_stream(3, None)
    assert omp.stream(3) is others[3]
    assert omp.stream(11) is own
    omp.set_stream(3, None)  # it has its own already
    assert omp.stream(3) is others[3]


def test_a_queue_keeps_its_stream_and_is_ordered(runtime, latch, d):
    """The runtime refers to the stream; work there takes part in dependences as on any other queue."""
    landing = host_array()
    omp.set_stream(0, new_stream())
    event = omp.Event()

    @omp.task(depend=[inout(d)], detach=event)
    def body():
        latch.hold(omp.stream(0))
        enqueue(omp.stream(0), d, 7)
        event.fulfill_on(omp.stream(0))

    has_run(body())
    host, copied = values(d, landing)
    assert not copied.done()
    latch.release()
    copied.result()
    assert host.tolist() == [7] * 4


@pytest.mark.parametrize("devices", ["sim:2"], indirect=True)
def test_queues_belong_to_a_device(devices):
    """A stream set for one device is no other's, nor can it be set there; a later runtime begins anew."""
    with checked(devices):
        own = omp.device(1).new_stream()
        with pytest.raises(omp.ClauseError, match="not a stream of device 0"):
            omp.set_stream(2, own)
        omp.set_stream(2, own, device=1)
        assert omp.stream(2, device=1) is own
        assert omp.stream(2) is not own
    with checked(devices):
        assert omp.stream(2, device=1) is not own


@pytest.mark.parametrize(
    "args", [(-1, None), (True, None), ("0", None), (1.0, None), (0, None, 77), (0, None, -1), (0, 5), (0, object())]
)
def test_set_stream_errors(runtime, args):
    """A wrong queue, device or stream is an error, and the queue is what it was."""
    before = omp.stream(0)
    with pytest.raises(omp.ClauseError):
        omp.set_stream(*args)
    assert omp.stream(0) is before


def test_set_stream_in_a_target_body(runtime):
    """A body may not change what queues are."""
    with pytest.raises(omp.UsageError, match="target body"):
        omp.target(lambda: omp.set_stream(0, None))()
