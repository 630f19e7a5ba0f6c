"""Nothing waits for ever, and nothing is kept: what stress found, each as small as it could be made."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

import offload as omp
from offload import in_, out, to, tofrom


@omp.target
def increment(x: Any) -> None:
    """Add one."""
    x += 1


@omp.task
def nothing() -> int:
    """Return something."""
    return 1


def test_an_undeferred_task_inside_a_task_helps_with_its_predecessor() -> None:
    """The only worker, which waits in a task for a sibling, runs that sibling itself."""

    @omp.task
    def outer() -> tuple[int, int]:
        first = nothing.options(depend=[out(("x",))])()
        second = nothing.options(depend=[in_(("x",))], if_=False)()
        return first.result(), second.result()

    with omp.Runtime("none", num_threads=1):
        assert outer().result(timeout=20) == (1, 1)


def test_a_wait_inside_a_task_runs_target_bodies_of_others() -> None:
    """A launch that was put off for memory waits for a body of another region, which the waiting worker runs."""

    @omp.task
    def outer(y: Any) -> None:
        increment(y)

    x, y = np.zeros(60_000, "u1"), np.zeros(60_000, "u1")
    with omp.Runtime("sim", num_threads=1, env={"OFFLOAD_SIM_MEMORY": "100000"}):
        increment.options(nowait=True)(x)
        outer(y).result(timeout=20)
    assert x.all()
    assert y.all()


def test_targets_that_fit_one_at_a_time_take_turns() -> None:
    """Three threads whose regions each fit the device alone get no memory error."""
    failures: list[BaseException] = []

    def run() -> None:
        a = np.zeros(64)
        try:
            for _ in range(60):
                increment(a)
        except BaseException as error:  # told below
            failures.append(error)

    with omp.Runtime("sim", num_threads=1, env={"OFFLOAD_SIM_MEMORY": "700"}):
        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_recorded_graph_holds_no_device_memory() -> None:
    """The tasks of a graph are complete, so that their mappings leave room for others while the graph lives."""
    with omp.Runtime("sim", env={"OFFLOAD_SIM_MEMORY": "1000"}) as runtime:
        with omp.record() as graph:
            for _ in range(3):
                increment.options(nowait=True)(np.zeros(50)).result()
        assert runtime.places[0].device.live_nbytes() == 0
        assert len(graph.tasks) >= 3


def test_a_failure_that_somebody_holds_does_not_hold_the_memory() -> None:
    """After a body has failed there is room again, also while its exception is being handled."""

    @omp.target
    def fail(x: Any) -> None:
        raise ValueError("on purpose")

    x = np.zeros(100)
    with omp.Runtime("sim", env={"OFFLOAD_SIM_MEMORY": "1000"}):
        with pytest.raises(ValueError, match="on purpose"):
            fail(x)
        increment(x)
    assert (x == 1).all()


def test_the_exit_of_a_region_whose_entry_failed_leaves_others_alone() -> None:
    """A deferred region that found no memory removes nothing that an outer region has mapped."""
    x, big = np.zeros(50), np.zeros(500)
    with omp.Runtime("sim", env={"OFFLOAD_SIM_MEMORY": "1000"}, check=True), omp.target_data(map=[tofrom(x)]):
        with pytest.raises(ExceptionGroup), omp.target_data(map=[to(x), to(big)], nowait=True):
            omp.taskwait()
        increment(x)
        with pytest.raises(omp.DeviceMemoryError):
            omp.target_enter_data(map=[to(big)])
    assert (x == 1).all()


def test_the_exit_of_a_deferred_region_follows_its_entry() -> None:
    """An entry that has to wait for memory is not overtaken by the exit of its own region."""
    holds, release = threading.Event(), threading.Event()

    @omp.target(nowait=True)
    def hold(z: Any) -> None:
        holds.set()
        release.wait(20)

    z, x = np.zeros(100), np.zeros(100)
    with omp.Runtime("sim", env={"OFFLOAD_SIM_MEMORY": "1000"}, check=True):
        hold(z)
        assert holds.wait(20)
        with omp.target_data(map=[tofrom(x)], nowait=True, nogroup=True):
            release.set()
        omp.taskwait()


def test_a_stream_that_never_moves_does_not_hold_the_end() -> None:
    """An event that no task waits for, promised on a stream that hangs, is a warning at the end of the runtime."""
    release = threading.Event()

    def let_go() -> None:
        while not (caught.list or release.wait(0.01)):
            pass
        release.set()

    def leave() -> None:
        thread = threading.Thread(target=let_go)
        thread.start()
        try:
            with omp.Runtime("sim") as runtime:
                runtime.gate.close_s = 0.05
                stream = omp.stream(0)
                stream.launch(release.wait, 20)
                omp.Event().fulfill_on(stream)
        finally:
            release.set()
            thread.join()

    with pytest.warns(omp.CleanupWarning, match="never reached the point") as caught:
        leave()


def test_failures_that_were_seen_are_let_go() -> None:
    """A thousand failures, each handled, do not pile up in the region."""

    @omp.task
    def fail() -> None:
        raise ValueError("on purpose")

    with omp.Runtime("none") as runtime:
        for _ in range(1000):
            with pytest.raises(ValueError, match="on purpose"):
                fail().result()
        assert len(runtime.scope().region.children.failures) < 200  # type: ignore[union-attr]  # a thread has one


def test_callbacks_cannot_stop_the_completer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback that leaves the interpreter, or waits, is reported, and device tasks go on completing."""
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    x = np.zeros(3)
    with omp.Runtime("sim"):
        task = increment.options(nowait=True)
        task(x).add_done_callback(lambda _: sys.exit())
        omp.taskwait()
        task(x).add_done_callback(lambda _: task(x).result())
        omp.taskwait()
    assert {args.exc_type for args in shown} <= {SystemExit, omp.UsageError}


def test_polling_leaves_nothing_behind() -> None:
    """A result that is asked for again and again with a timeout adds no callbacks."""
    event = omp.Event()
    with omp.Runtime("none"):
        task = nothing.options(detach=event)()
        for _ in range(50):
            with pytest.raises(TimeoutError):
                task.result(timeout=0)
        assert not task.callbacks
        event.fulfill()


def test_foreign_streams_are_forgotten() -> None:
    """A stream of the user's own is known as long as something on it is waited for, and no longer."""
    with omp.Runtime("sim") as runtime:
        for _ in range(20):
            event = omp.Event()
            event.fulfill_on(runtime.places[0].device.new_stream())
            nothing.options(detach=event)().result()
            del event
        assert len(runtime.places[0]._adopted) < 5  # there is no other way to see it
