"""Futures that fulfil events: of threads, of asyncio, of Dask."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import itertools
import subprocess
import sys
import threading
import weakref
from typing import ClassVar

import numpy as np
import pytest
from distributed import Client, Future, LocalCluster

import offload as omp
from offload import in_, out
from offload.devices.sim.device import SimEvent
from tests.patience import until, until_gone

pytestmark = pytest.mark.timeout(60)

KINDS = ["concurrent", "asyncio", "asyncio task", "distributed"]


# -- sources that a test completes ------------------------------------------------------------------
class Concurrent:
    """Futures of `concurrent.futures`."""

    described = "concurrent.futures"

    def make(self):
        return concurrent.futures.Future()

    def complete(self, future):
        future.set_result(5)

    def fail(self, future, error):
        future.set_exception(error)

    def cancel(self, future):
        assert future.cancel()

    def end(self):
        pass


class Loop:
    """An event loop on a thread of its own, and futures of it."""

    described = "asyncio"

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def make(self):
        return self.loop.create_future()

    def complete(self, future):
        self.loop.call_soon_threadsafe(future.set_result, 5)

    def fail(self, future, error):
        self.loop.call_soon_threadsafe(future.set_exception, error)

    def cancel(self, future):
        self.loop.call_soon_threadsafe(future.cancel)

    def end(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class LoopTasks(Loop):
    """Tasks on an event loop, each of which waits for a future."""

    def __init__(self):
        super().__init__()
        self.awaited = {}

    def make(self):
        awaited = super().make()

        async def body():
            return await awaited

        async def start():
            return self.loop.create_task(body())

        task = asyncio.run_coroutine_threadsafe(start(), self.loop).result()
        self.awaited[task] = awaited
        return task

    def complete(self, task):
        super().complete(self.awaited[task])

    def fail(self, task, error):
        super().fail(self.awaited[task], error)

    def end(self):
        async def cancel():
            for task in self.awaited:
                task.cancel()
            await asyncio.gather(*self.awaited, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancel(), self.loop).result()
        super().end()


class Dask:
    """Futures of `distributed`, whose functions wait in the worker's threads, in this process."""

    described = "distributed"
    outcomes: ClassVar = {}  # by a number, since a future of this process cannot be sent
    numbers = itertools.count()

    def __init__(self, client):
        self.client = client
        self.number_of = {}

    @staticmethod
    def wait(number):
        return Dask.outcomes[number].result()

    def make(self):
        number = next(self.numbers)
        self.outcomes[number] = concurrent.futures.Future()
        future = self.client.submit(self.wait, number, pure=False)
        self.number_of[future.key] = number
        return future

    def complete(self, future):
        self.outcomes[self.number_of[future.key]].set_result(5)

    def fail(self, future, error):
        self.outcomes[self.number_of[future.key]].set_exception(error)

    def cancel(self, future):
        future.cancel()

    def end(self):
        for number in self.number_of.values():
            outcome = self.outcomes.pop(number)
            if not outcome.done():
                outcome.set_result(None)


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(params=KINDS)
def kind(request):
    """What makes futures of one kind, and ends them."""
    if request.param == "distributed":
        kind = Dask(request.getfixturevalue("client"))
    else:
        kind = {"concurrent": Concurrent, "asyncio": Loop, "asyncio task": LoopTasks}[request.param]()
    yield kind
    kind.end()


@pytest.fixture
def loop():
    """An event loop that runs on a thread of its own."""
    loop = Loop()
    yield loop
    loop.end()


@pytest.fixture
def idle_loop():
    """An event loop that does not run."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def detached(kind, moment, ends):
    """Generate a task whose source ends before its body, in it, or after it."""
    event, future, log = omp.Event(), kind.make(), []

    def end():
        ends(future)
        until(future.done)

    def body():
        log.append("body")
        if moment != "before":
            event.fulfill_on(future)
        if moment == "during":
            end()
            until(lambda: event.is_fulfilled)

    if moment == "before":
        end()
        event.fulfill_on(future)
    task = omp.task(detach=event, depend=[out(("x",))], name="detached")(body)()
    omp.task(depend=[in_(("x",))])(lambda: log.append("after"))()
    if moment == "after":
        until(lambda: task.state == "detached")
        assert not task.done()
        end()
    return task, log


# -- the three ends of a future ---------------------------------------------------------------------
def test_a_future_completes_its_task(sim, kind, moment):
    """The task is complete when its body has ended and the future has a result; then its dependents run."""
    task, log = detached(kind, moment, kind.complete)
    omp.taskwait()
    assert task.done()
    assert task.exception() is None
    assert log == ["body", "after"]


def test_a_future_that_fails_fails_its_task(sim, kind, moment):
    """The task fails with the future's error, which says which task it was, and no dependent runs."""
    error = ValueError("mine")
    task, log = detached(kind, moment, lambda future: kind.fail(future, error))
    with pytest.raises(ExceptionGroup) as caught:
        omp.taskwait()
    (failure,) = caught.value.exceptions
    assert failure is task.exception()
    assert failure is error or kind.described == "distributed"  # which sends it
    assert (type(failure), failure.args) == (ValueError, ("mine",))
    if moment == "after":
        assert any("'detached'" in note for note in failure.__notes__)
    assert log == ["body"]


def test_a_future_that_is_cancelled_fails_its_task(sim, kind, moment):
    """The task fails with an error that is an Exception, also where asyncio's is none and stays its cause."""
    task, log = detached(kind, moment, kind.cancel)
    with pytest.raises(ExceptionGroup) as caught:
        omp.taskwait()
    assert type(caught.value) is ExceptionGroup
    assert caught.value.exceptions == (task.exception(),)
    assert isinstance(task.exception(), concurrent.futures.CancelledError)
    if kind.described == "asyncio":
        assert isinstance(task.exception().__cause__, asyncio.CancelledError)
    assert log == ["body"]


def test_a_base_exception_stays_what_it_is(sim):
    """An error that is no Exception arrives as it was raised, in a BaseExceptionGroup."""
    event, future, error = omp.Event(), concurrent.futures.Future(), SystemExit(3)
    event.fulfill_on(future)
    omp.task(detach=event)(lambda: None)()
    future.set_exception(error)
    with pytest.raises(BaseExceptionGroup) as caught:
        omp.taskwait()
    assert caught.value.exceptions == (error,)


def test_one_future_for_several_events(sim, kind):
    """A future fulfils as many events as name it; its one failure is in the group once."""
    good, bad = kind.make(), kind.make()
    tasks = []
    for future in (good, good, bad, bad):
        event = omp.Event()
        event.fulfill_on(future)
        tasks.append(omp.task(detach=event)(lambda: None)())
    kind.complete(good)
    kind.fail(bad, ValueError("mine"))
    with pytest.raises(ExceptionGroup) as caught:
        omp.taskwait()
    assert {type(error) for error in caught.value.exceptions} == {ValueError}
    assert kind.described == "distributed" or len(caught.value.exceptions) == 1
    assert [task.state for task in tasks] == ["complete"] * 2 + ["failed"] * 2


def test_no_worker_is_held(kind):
    """Tasks that wait for futures hold no worker."""
    with omp.Runtime("sim", num_threads=1, check=True):
        futures = [kind.make() for _ in range(2)]
        for future in futures:
            event = omp.Event()
            omp.task(detach=event)(event.fulfill_on)(future)
        assert omp.task(lambda: 5)().result(timeout=50) == 5
        for future in futures:
            kind.complete(future)


# -- once, and in its round -------------------------------------------------------------------------
def test_a_source_is_named_once(sim, kind):
    """While a future is to fulfil an event, and after it has, nobody else may."""
    event, future, other = omp.Event(), kind.make(), kind.make()
    event.fulfill_on(future)
    claims = (event.fulfill, lambda: event.fulfill_on(future), lambda: event.fulfill_on(other))
    for claim in claims:
        with pytest.raises(omp.EventError, match=kind.described):
            claim()
    assert not event.is_fulfilled
    kind.complete(future)
    until(lambda: event.is_fulfilled)
    for claim in claims:
        with pytest.raises(omp.EventError):
            claim()


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_a_body_that_fails_first(sim, kind, end, caplog):
    """Where the body has failed the future's end is ignored in silence, and counts as the one fulfil."""
    event, future = omp.Event(), kind.make()

    def body():
        event.fulfill_on(future)
        raise KeyError("body")

    task = omp.task(detach=event)(body)()
    assert isinstance(task.exception(), KeyError)
    kind.fail(future, ValueError("mine")) if end == "fail" else getattr(kind, end)(future)
    until(lambda: event.is_fulfilled)
    with pytest.raises(omp.EventError):
        event.fulfill()
    omp.taskwait()
    assert isinstance(task.exception(), KeyError)
    assert not [record for record in caplog.records if not record.name.startswith("distributed")]


@pytest.mark.parametrize("how", ["call", "source"])
def test_a_body_that_fails_first_and_somebody_else_fulfils(sim, how):
    """In place of the future that a failed body named, one call or source is accepted; the future is ignored."""
    event, future, other = omp.Event(), concurrent.futures.Future(), concurrent.futures.Future()

    def body():
        event.fulfill_on(future)
        raise KeyError("body")

    assert isinstance(omp.task(detach=event)(body)().exception(), KeyError)
    event.fulfill() if how == "call" else event.fulfill_on(other)
    with pytest.raises(omp.EventError):
        event.fulfill()
    future.set_exception(ValueError("late"))
    assert event.is_fulfilled == (how == "call")
    other.set_result(None)
    assert event.is_fulfilled
    assert event.failure is None


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_source_of_an_earlier_round(sim, kind, end):
    """A future named in one computation of a graph, and complete in the next, has no effect there."""
    event, futures, log = omp.Event(), [kind.make(), kind.make()], []

    def body():
        event.fulfill_on(futures[len(log)])
        log.append("body")
        if len(log) == 1:
            raise KeyError("body")
        kind.fail(futures[0], ValueError("late")) if end == "fail" else kind.complete(futures[0])
        until(futures[0].done)

    def end_second():
        until(lambda: log.count("body") == 2)
        until(futures[0].done)
        seen = omp.Event()  # the same thread calls back for it, after it has for the old round
        seen.fulfill_on(futures[0])
        until(lambda: seen.is_fulfilled)
        log.append(event.is_fulfilled)
        kind.complete(futures[1])

    with omp.record(execute=False) as graph:
        omp.task(detach=event, depend=[out(("x",))])(body)()
        omp.task(depend=[in_(("x",))])(lambda: log.append("after"))()
    with pytest.raises(KeyError):
        graph.compute()
    thread = threading.Thread(target=end_second)
    thread.start()
    graph.compute()
    thread.join()
    assert log == ["body", "body", False, "after"]


def test_a_stream_of_an_earlier_round(sim):
    """The same for a stream that stands still until the next computation."""
    event, log = omp.Event(), []
    place = sim.places[0]
    streams = [omp.stream(1), omp.stream(2)]
    latches = [SimEvent(place.device) for _ in streams]
    for stream, latch in zip(streams, latches, strict=True):
        stream.wait_event(latch)

    def body():
        event.fulfill_on(streams[len(log)])
        log.append("body")
        if len(log) == 1:
            raise KeyError("body")
        latches[0].fire()

    def end_second():
        until(lambda: log.count("body") == 2)
        seen = omp.Event()
        seen.fulfill_on(streams[0])
        until(lambda: seen.is_fulfilled)
        log.append(event.is_fulfilled)
        latches[1].fire()

    with omp.record(execute=False) as graph:
        omp.task(detach=event, depend=[out(("x",))])(body)()
        omp.task(depend=[in_(("x",))])(lambda: log.append("after"))()
    with pytest.raises(KeyError):
        graph.compute()
    thread = threading.Thread(target=end_second)
    thread.start()
    graph.compute()
    thread.join()
    assert log == ["body", "body", False, "after"]


# -- event loops ------------------------------------------------------------------------------------
def test_named_on_the_thread_of_the_loop(sim):
    """On the loop's own thread a future is named, completed there, and the task awaited there."""

    async def main():
        event, future = omp.Event(), asyncio.get_running_loop().create_future()
        event.fulfill_on(future)
        task = omp.task(detach=event)(lambda: 7)()
        future.set_result(None)
        return await task

    assert asyncio.run(main()) == 7


def test_named_in_a_body_that_the_loop_waits_for(sim):
    """A body on a worker names a future of a loop that meanwhile awaits the task."""

    async def main():
        loop = asyncio.get_running_loop()
        event, future = omp.Event(), loop.create_future()

        def body():
            event.fulfill_on(future)
            loop.call_soon_threadsafe(future.set_result, None)
            return 7

        return await omp.task(detach=event)(body)()

    assert asyncio.run(main()) == 7


def test_a_loop_that_stops_at_once(sim, idle_loop):
    """A loop that stops with the coroutine that completed the future has fulfilled the event."""
    event = omp.Event()

    async def main():
        future = idle_loop.create_future()
        event.fulfill_on(future)
        future.set_result(None)

    idle_loop.run_until_complete(main())
    assert event.is_fulfilled


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_loop_that_does_not_run_yet(sim, idle_loop, where):
    """A future may be named while its loop stands still; the loop fulfils the event when it runs."""
    event, future = omp.Event(), idle_loop.create_future()
    if where == "here":
        event.fulfill_on(future)
    else:
        omp.task(event.fulfill_on)(future).result(timeout=50)

    async def main():
        future.set_result(None)

    assert not event.is_fulfilled
    idle_loop.run_until_complete(main())
    assert event.is_fulfilled


@pytest.mark.parametrize("end", ["result", "error"])
def test_a_loop_that_is_closed(sim, end):
    """A future of a closed loop fulfils the event if it is done, else it is refused and the event stays open."""
    loop = asyncio.new_event_loop()
    done, pending = loop.create_future(), loop.create_future()
    done.set_result(None) if end == "result" else done.set_exception(ValueError("mine"))
    loop.close()
    event = omp.Event()
    with pytest.raises(omp.EventError, match="closed"):
        event.fulfill_on(pending)
    event.fulfill_on(done)
    task = omp.task(detach=event)(lambda: None)()
    assert (task.exception() is None) == (end == "result")


def test_an_event_keeps_its_asyncio_task_alive(sim, loop):
    """An asyncio task to which nobody else refers, as a loop does not, is not collected before it is done."""
    event, awaited = omp.Event(), []

    async def main():
        async def wait():
            future = loop.loop.create_future()
            awaited.append(weakref.ref(future))
            await future

        event.fulfill_on(loop.loop.create_task(wait()))

    asyncio.run_coroutine_threadsafe(main(), loop.loop).result()
    until(lambda: awaited)
    task = omp.task(detach=event)(lambda: 7)()
    until(lambda: task.state == "detached")
    gc.collect()
    loop.complete(awaited[0]())
    assert task.result() == 7


# -- Dask -------------------------------------------------------------------------------------------
def test_a_released_future(sim, client):
    """The task of a future that is released before it is done fails; nothing hangs."""
    dask = Dask(client)
    event, future = omp.Event(), dask.make()
    event.fulfill_on(future)
    task = omp.task(detach=event)(lambda: None)()
    future.release()
    assert isinstance(task.exception(), concurrent.futures.CancelledError)
    dask.end()


def test_a_client_that_is_closed(sim, client):
    """Closing the client fails the task of a future that it had; such a future named afterwards fails its task too."""
    with Client(client.cluster, set_as_default=False) as other:
        dask = Dask(other)
        before, after, future = omp.Event(), omp.Event(), dask.make()
        before.fulfill_on(future)
        first = omp.task(detach=before)(lambda: None)()
        other.close()
        assert isinstance(first.exception(), concurrent.futures.CancelledError)
        after.fulfill_on(future)
        second = omp.task(detach=after)(lambda: None)()
        assert isinstance(second.exception(), concurrent.futures.CancelledError)
        dask.end()


def test_a_future_whose_result_is_lost(sim):
    """A future whose worker has gone with its result fails the task that names it."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        future = client.submit(int, 5, pure=False)
        future.result()
        cluster.scale(0)
        until(lambda: future.status == "lost")
        event = omp.Event()
        event.fulfill_on(future)
        task = omp.task(detach=event)(lambda: None)()
        assert isinstance(task.exception(), concurrent.futures.CancelledError)


def test_a_future_without_a_client(sim):
    """A future that belongs to no client here is refused, and the event stays open."""
    event = omp.Event()
    with pytest.raises(omp.EventError, match="client"):
        event.fulfill_on(Future("elsewhere"))
    event.fulfill()


# -- what it is called, what is refused -------------------------------------------------------------
def test_an_event_names_its_source(sim, kind):
    """The event says which future will fulfil it, and in which state that is; afterwards it does not refer to it."""
    event, future = omp.Event(), kind.make()
    event.fulfill_on(future)
    assert kind.described in repr(event)
    assert "pending" in repr(event)
    kind.complete(future)
    until(lambda: event.is_fulfilled)
    assert repr(event) == "<Event fulfilled>"


def test_a_closed_loop_is_named():
    """An event whose loop was closed before the future was done says so."""
    loop, event = asyncio.new_event_loop(), omp.Event()
    event.fulfill_on(loop.create_future())
    loop.close()
    assert "closed event loop" in repr(event)


def test_a_hang_names_the_source(monkeypatch):
    """A wait that nothing moves says which future it waits for."""
    future, written = concurrent.futures.Future(), []

    class Spy:
        def write(self, text):
            written.append(text)
            if not future.done():
                future.set_result(None)

        def flush(self):
            pass

    with omp.Runtime("sim", check=True, env={"OFFLOAD_HANG_S": "0.1"}):
        event = omp.Event()
        task = omp.task(detach=event)(event.fulfill_on)(future)
        until(lambda: task.state == "detached")  # a worker that comes late would be a hang without a source
        monkeypatch.setattr(sys, "stderr", Spy())
        omp.taskwait()
        monkeypatch.undo()
    assert "concurrent.futures <Future at" in "".join(written)


def test_finished_sources_keep_nothing_alive(sim):
    """A future that is kept after its end keeps neither the event nor the task, without a collection."""
    gc.collect()
    gc.disable()
    try:
        event, future = omp.Event(), concurrent.futures.Future()
        event.fulfill_on(future)
        task = omp.task(detach=event)(lambda: None)()
        future.set_result(None)
        task.result()
        alive = [weakref.ref(event), weakref.ref(task)]
        omp.taskwait()
        del event, task
        until_gone(*alive)  # the worker lets go of the task in its time
    finally:
        gc.enable()


def test_what_is_no_source(sim, monkeypatch):
    """What cannot fulfil an event is refused, with a word on what can, and the event stays open."""
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)  # where it is loaded, () is a list of requests

    async def body():
        pass

    coroutine = body()
    task = omp.task(lambda: None)()
    future = concurrent.futures.Future()
    refused = [
        (coroutine, omp.EventError, "ensure_future"),
        ([future, future], omp.EventError, "gather"),
        ((), omp.EventError, "one source"),
        (task, omp.EventError, "as_future"),
        (object(), omp.EventError, "stream"),
        (np.zeros(3), omp.EventError, "future"),
        (None, omp.EventError, "future"),
    ]
    for source, error, word in refused:
        event = omp.Event()
        with pytest.raises(error, match=word):
            event.fulfill_on(source)
        assert repr(event) == "<Event open>"
        event.fulfill()
    coroutine.close()


def test_a_task_by_its_future(sim):
    """A task is a source through its future; its failure is the other's then, and is raised once."""
    gate = omp.Event()

    @omp.task(detach=gate)
    def fails():
        raise ValueError("mine")

    event, open_ = omp.Event(), omp.Event()
    held = omp.task(detach=open_, depend=[out(("x",))])(lambda: None)()
    source = fails.options(depend=[in_(("x",))])()
    event.fulfill_on(source.as_future())
    omp.task(detach=event)(lambda: None)()
    open_.fulfill()
    with pytest.raises(ExceptionGroup) as caught:
        omp.taskwait()
    assert caught.value.exceptions == (source.exception(),)
    assert held.done()


def test_nothing_is_imported_to_recognise_a_source():
    """A program that uses streams alone loads no module of futures."""
    program = """
import sys
import offload as omp
before = set(sys.modules)
with omp.Runtime("sim", check=True):
    event = omp.Event()
    event.fulfill_on(omp.stream())
    omp.task(detach=event)(lambda: None)().result()
    try:
        omp.Event().fulfill_on(object())
    except omp.EventError:
        pass
print(sorted({"asyncio", "concurrent.futures", "distributed"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "[]\n"
