"""Constructs that block: who notices that they are complete, and what a failure of theirs keeps."""

from __future__ import annotations

import gc
import threading
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

import offload as omp
from offload import acc, from_, in_, inout, to, tofrom
from offload.devices.sim.device import SimDevice
from tests.conftest import checked
from tests.patience import until_gone

N = 8


@pytest.fixture(params=[False, True], ids=["sleep", "look"])
def runtime(request, monkeypatch):
    """A runtime on a simulated device whose waits sleep, or look."""
    monkeypatch.setattr(SimDevice, "waits_look", request.param)
    with checked("sim", num_threads=1) as runtime:
        yield runtime


@pytest.fixture
def looking_runtime(monkeypatch):
    """A runtime on a simulated device whose waits look."""
    monkeypatch.setattr(SimDevice, "waits_look", True)
    with checked("sim", num_threads=1) as runtime:
        yield runtime


@contextmanager
def zeros():
    """Four zeros on the device."""
    array = omp.target_alloc(4, np.float64)
    omp.target_memcpy(array, np.zeros(4))
    try:
        yield array
    finally:
        omp.target_free(array)


def test_a_blocking_region_returns_what_its_body_does(runtime):
    """With device arrays, with arrays that are mapped, with a clause, with dependences: the value, and the writes."""
    with zeros() as d:
        x = np.ones(4)

        @omp.target
        def add(a, value):
            a += value
            return float(a.sum())

        assert add(d, 1) == 4
        assert add.options(depend=inout(d))(d, 1) == 8
        assert add(x, 1) == 8
        assert add.options(map=tofrom(x), name="named")(x, 1) == 12
        assert np.array_equal(x, [3, 3, 3, 3])
        assert omp.target(lambda: "nothing")() == "nothing"


def test_a_blocking_region_follows_what_it_depends_on(runtime):
    """A blocking region begins after a deferred one and after a task of the host."""
    with zeros() as d:
        seen = []
        held = threading.Event()
        omp.task(depend=inout(d))(lambda: seen.append(held.wait(60)))()
        later = omp.target(depend=inout(d), nowait=True)(lambda a: seen.append("region"))(d)
        held.set()
        omp.target(depend=inout(d))(lambda a: seen.append("blocking"))(d)
        assert seen == [True, "region", "blocking"]
        assert later.result() is None


def test_a_thread_that_waits_for_few_tasks_asks_for_their_ends(monkeypatch, looking_runtime):
    """Where waits look, whatever waits for few launched tasks has the waiting thread ask for their ends."""
    with zeros() as d, zeros() as other:
        asked = []
        engine = looking_runtime.engine
        arrives = engine.arrives
        monkeypatch.setattr(engine, "arrives", lambda point: asked.append(threading.current_thread()) or arrives(point))

        def group():
            with omp.taskgroup():
                omp.target_memset_async(d, 0)

        for wait in (
            lambda: omp.target(lambda a: None)(d),
            lambda: omp.target_memcpy(d, np.zeros(4)),
            lambda: omp.target_memset_async(d, 0).result(),
            lambda: omp.target_memset_async(d, 0) and omp.taskwait(),
            lambda: omp.target_memset_async(d, 0, depend=[omp.out(d)]) and omp.taskwait(depend=[in_(d)]),
            group,
            lambda: acc.memcpy_device_async(d, other, async_=1) and acc.wait(1),
        ):
            asked.clear()
            for _ in range(100):  # the completer may be quicker
                wait()
            assert set(asked) == {threading.main_thread()}


class Payload:
    """What a body has."""


def failing():
    """Return a body that raises an exception with a payload in it, and a weak reference to that."""
    payload = Payload()

    def body(a):
        raise LookupError(payload)

    return body, weakref.ref(payload)


@pytest.mark.parametrize("clauses", [{}, {"if_": True}], ids=["the short way", "the long way"])
def test_the_failure_of_a_blocking_region_is_let_go(runtime, clauses):
    """When its caller has handled the exception, nothing refers to it, without the cyclic collector."""
    with zeros() as d:
        body, alive = failing()
        region = omp.target(**clauses)(body)
        gc.disable()
        try:
            for _ in range(2):  # the second call knows its site
                try:
                    region(d)
                except LookupError as error:
                    assert any("target" in note for note in error.__notes__)  # noqa: PT017  # pytest would keep it
            del region, body
            until_gone(alive)
        finally:
            gc.enable()


def test_a_blocking_region_cannot_follow_its_own_task(runtime):
    """A blocking region in a task that depends on that task would wait for itself."""
    with zeros() as d:
        told = threading.Event()

        @omp.task
        def body():
            assert told.wait(60)
            omp.task(lambda: None)()
            region = omp.target(lambda a: None)
            region(d)
            with pytest.raises(omp.UsageError, match="waits for itself"):
                region.options(depend=in_(own))(d)

        own = body()
        told.set()
        own.result()


def test_a_region_follows_the_copy_of_what_it_shares_and_no_kernel():
    """A region that shares an array with another, which has mapped it and computes yet, is complete before that is."""
    may_end, computes = threading.Event(), threading.Event()

    def work():
        computes.set()
        assert may_end.wait(60)

    @omp.target(map=[to("x"), from_("y")], nowait=True)
    def slow(x, y):
        omp.current_stream().launch(work)
        y[...] = x

    @omp.target(map=[to("x"), from_("y")], nowait=True)
    def quick(x, y):
        y[...] = x + 1

    with omp.Runtime("sim:1", num_threads=2):
        x, y, z = np.ones(N), np.zeros(N), np.zeros(N)
        first = slow(x, y)
        try:
            assert computes.wait(60)
            quick(x, z).result(timeout=20)
            assert (z == 2).all()
            assert not first.done()
        finally:
            may_end.set()
        first.result()
        assert (y == 1).all()
