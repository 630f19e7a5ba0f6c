"""What a program may do to the engine: odd exceptions, waits in callbacks, deep recursion, closing at a bad moment."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, mutexinoutset, out
from offload.tasks.depend import Tracker
from tests.conftest import checked
from tests.patience import until
from tests.profiles import few


@dataclass(frozen=True)
class FrozenError(Exception):
    """Takes no attributes, so no notes."""

    code: int


class UnprintableError(Exception):
    """Cannot be shown."""

    def __str__(self):
        raise AttributeError("no text")


def fail(error):
    raise error


@pytest.fixture(params=[0, 2], ids=["no worker", "two workers"])
def host(request):
    """A runtime without devices."""
    with omp.Runtime("none", num_threads=request.param) as runtime:
        yield runtime
        assert all(thread.is_alive() for thread in runtime.engine.threads)


@pytest.mark.parametrize("error", [FrozenError(1), UnprintableError()], ids=["frozen", "unprintable"])
def test_exceptions_of_any_kind_are_failures(host, error):
    """An exception that takes no notes, or cannot be shown, is its task's failure and keeps dependents from running."""
    first = omp.task(fail).options(depend=[out(("a",))])(error)
    second = omp.task(lambda: None).options(depend=[in_(("a",))])()
    assert first.exception() is error
    assert second.exception().__cause__ is error


def test_a_callback_may_wait_for_a_dependent(host):
    """A callback that waits for what its task has made ready is no deadlock."""
    got = []
    latch = threading.Event()
    waits = latch.wait if host.engine.threads else bool  # else it would run below only
    first = omp.task(waits, depend=[out(("a",))])(10)
    second = omp.task(lambda: 5, depend=[in_(("a",))])()
    first.add_done_callback(lambda _: got.append(second.result()))
    latch.set()
    omp.taskwait()
    until(lambda: got)  # a callback comes after the completion that it tells of
    assert got == [5]


def test_a_chain_of_events_in_callbacks_is_no_recursion(host):
    """Two thousand tasks, each of which completes the next in a callback, all complete."""
    events = [omp.Event() for _ in range(2000)]
    for event, following in zip(events, [*events[1:], None], strict=True):
        task = omp.task(lambda: None, detach=event)()
        if following is not None:
            task.add_done_callback(lambda _, following=following: following.fulfill())
    events[0].fulfill()
    omp.taskwait()
    assert all(event.is_fulfilled for event in events)


def test_a_future_nobody_asks_has_not_seen_the_failure(host):
    """``as_future`` alone does not make a failure seen; to ask the future does."""
    task = omp.task(fail)(ValueError("unseen"))
    future = task.as_future()
    with pytest.raises(ExceptionGroup):
        omp.taskwait()
    task = omp.task(fail)(ValueError("seen"))
    future = task.as_future()
    assert isinstance(future.exception(), ValueError)
    omp.taskwait()


def test_an_unseen_root_still_poisons(host):
    """What names a location after a seen `DependError` does not run while nobody has seen the failure behind it."""
    first = omp.task(fail).options(depend=[out(("a",))])(ValueError("root"))
    second = omp.task(lambda: None).options(depend=[in_(("a",))])()
    assert isinstance(second.exception(), omp.DependError)
    third = omp.task(lambda: None).options(depend=[out(("a",))])()
    assert isinstance(third.exception(), omp.DependError)
    assert isinstance(first.exception(), ValueError)
    assert omp.task(lambda: "ran").options(depend=[out(("a",))])().result() == "ran"


def in_a_group(generate):
    with omp.taskgroup():
        generate()


WAITS = {
    "taskwait": lambda generate: (generate(), omp.taskwait()),
    "taskgroup": in_a_group,
    "result": lambda generate: generate().result(),
}


@pytest.mark.parametrize(
    ("wait", "n_helpers", "step"),
    few(
        1,
        [
            ("taskgroup", 0, 5),
            ("result", 7, 6),
            ("taskwait", 0, 3),
            ("result", 0, 5),
            ("taskwait", 7, 6),
            ("taskgroup", 7, 6),
        ],
        are_rows=True,
    ),
)
def test_deep_nesting_is_an_error_of_the_body(host, wait, n_helpers, step):
    """Tasks that wait for tasks end in `RecursionError` before anything is lost, wherever on the stack they began."""

    def helped(n_left, generate):
        if n_left:
            helped(n_left - 1, generate)
        else:
            WAITS[wait](generate)

    def nested(depth):
        if depth:
            helped(n_helpers, lambda: omp.task(nested)(depth - 1))

    def pad(n_frames):
        if n_frames:
            return pad(n_frames - 1)
        omp.task(nested)(sys.getrecursionlimit())
        with pytest.raises(ExceptionGroup):
            omp.taskwait()
        return None

    for n_frames in range(0, 16, step):
        pad(n_frames)
    with pytest.raises(ExceptionGroup):  # the innermost tasks, which nobody has waited for
        omp.barrier()
    assert omp.task(lambda: 3)().result() == 3


@omp.task(if_=False)
def undeferred(n):
    undeferred(n + 1)


@omp.task(final=True)
def included(n):
    included(n + 1)


@omp.target
def region(n):
    return n


def regions(n):
    region(n)
    regions(n + 1)


@pytest.mark.parametrize("is_in_task", [False, True])
@pytest.mark.parametrize("recursion", [undeferred, included, regions], ids=["undeferred", "final", "target"])
@pytest.mark.parametrize("n_frames", range(0, 10, 3))
def test_the_limit_of_recursion_is_reported_once(recursion, is_in_task, n_frames):
    """Constructs that end by it, wherever on the stack, raise it to whoever encounters them, and no wait does again."""

    def pad(n_left):
        if n_left:
            pad(n_left - 1)
        elif is_in_task:
            omp.task(lambda: recursion(0))()
        else:
            recursion(0)

    gc.collect()  # not there
    with checked("sim:1", num_threads=0):
        with pytest.raises((RecursionError, ExceptionGroup)) as caught:
            pad(n_frames)
            omp.taskwait()
        errors = caught.value.exceptions if isinstance(caught.value, ExceptionGroup) else [caught.value]
        assert [type(error) for error in errors] == [RecursionError]
        omp.barrier()
        assert omp.task(lambda: 3)().result() == 3


def test_a_runtime_is_not_closed_by_its_task(host):
    """A task that closes its own runtime is refused: it would wait for itself."""
    task = omp.task(host.close)()
    assert isinstance(task.exception(), omp.UsageError)
    assert omp.task(lambda: 3)().result() == 3


@pytest.fixture
def rash_switching():
    """Threads that take turns as often as can be."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("rash_switching", "host")  # the other runtime is where the thread goes on
def test_closing_loses_no_task():
    """A thread that generates while the runtime closes gets an error or a task that runs."""
    for _ in range(50):
        runtime = omp.Runtime("none", num_threads=2)
        tasks = []
        begun = threading.Event()

        def generate(runtime=runtime, tasks=tasks, begun=begun):
            with contextlib.suppress(omp.RuntimeClosedError):
                for _ in range(200):
                    tasks.append(body())
                    begun.set()

        with runtime:

            @omp.task
            def body():
                return 1

            thread = threading.Thread(target=generate)
            thread.start()
            begun.wait()
        thread.join()
        assert all(task.done() for task in tasks if task.construct.runtime is runtime)


def test_leaving_a_detachable_body_completes_the_task():
    """A body that leaves its cancelled taskgroup before it has promised its event is complete."""
    with omp.Runtime("none", num_threads=1, env={"OMP_CANCELLATION": "true"}):
        with omp.taskgroup():
            task = omp.task(lambda: omp.cancel("taskgroup"), detach=omp.Event())()
        assert task.done()


def test_seen_failures_of_regions_are_let_go(host):
    """Bodies that ended before their failing tasks are forgotten once those failures have been seen."""

    def body():
        omp.task(fail)(ValueError("inner"))

    for _ in range(500):
        with pytest.raises(ExceptionGroup), omp.taskgroup():
            omp.task(body)()
    assert len(host.engine.frames) < 200


def test_mutexes_of_dropped_locations_go(monkeypatch):
    """A location that stays keeps no mutex for each of the fresh ones that overlapped it."""
    monkeypatch.setitem(Tracker.__init__.__globals__, "_FIRST_SWEEP", 64)
    x = np.zeros(20_000)
    tracker = Tracker(lambda handle: handle != "kept")
    tracker.add("kept", [inout(x)])
    for k in range(len(x)):
        tracker.add(k, [mutexinoutset(x[k : k + 1])])
        tracker.exclusive = []
    assert len(tracker._cells[inout(x).keys[0]].mutexes) < 1000
    gc.collect()


def test_methods_have_options():
    """A decorated method has ``options``, bound to its object."""

    class Counter:
        def __init__(self):
            self.n = 0

        @omp.task
        def add(self, n):
            self.n += n

    with omp.Runtime("none"):
        counter = Counter()
        counter.add(2)
        assert counter.add.options(name="named", depend=[inout(("n",))])(3).name == "named"
        omp.taskwait()
    assert counter.n == 5
