"""Recorded regions with host tasks, events and several devices between or in their graphs, on CUDA."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, tofrom
from tests.conftest import checked
from tests.gpu.conftest import cupy, cupyx, warm

pytestmark = pytest.mark.gpu
N = 1024


@pytest.fixture
def two():
    """A runtime on two GPUs; afterwards nothing may be left of it."""
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    with checked("cuda:0,cuda:1") as runtime:
        for number in (0, 1):
            with cupy.cuda.Device(number):
                warm()
        yield runtime


@omp.target(nowait=True, depend=[inout("y")])
def double(y):
    y *= 2


def test_host_tasks_see_what_comes_before(gpu):
    """A host task between two graphs reads what the first has copied back, and the second what it writes."""
    y, host = np.ones(N), cupyx.zeros_pinned(N)
    seen = []

    @omp.task(depend=[inout(host)])
    def between():
        seen.append(host[0])
        host[:] += 1

    @omp.taskgraph
    def region(y):
        double(y)
        double(y)
        omp.target(nowait=True, map=[tofrom(host)], depend=[in_(y), inout(host)])(lambda y, h: h.__setitem__(..., y))(
            y, host
        )
        between()
        omp.target(nowait=True, map=[tofrom(host)], depend=[inout(y), in_(host)])(lambda y, h: y.__setitem__(..., h))(
            y, host
        )
        double(y)

    expected, found = 1.0, []
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(5):
            region(y)
            found.append(expected * 4)
            expected = (expected * 4 + 1) * 2
        (record,) = region.records
        assert (record.is_captured, record.why_not, record.n_captured) == (True, "", 2)
    assert seen == found
    assert (y == expected).all()


def test_events_between_graphs(gpu):
    """A detached task between graphs holds the second back until its event is fulfilled, at each replay."""
    y, event, order = np.ones(N), omp.Event(), []

    @omp.taskgraph
    def region(y):
        double(y)
        double(y)
        omp.task(detach=event, depend=[inout(y)])(order.append)("detached")
        omp.task(event.fulfill)()
        double(y)
        double(y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(4):
            region(y)
        assert region.records[0].is_captured
        assert region.records[0].n_captured == 2
    assert order == ["detached"] * 4
    assert (y == 16.0**4).all()


def test_a_failure_between_graphs(gpu):
    """What depends on a failed host task does not run, and the next replay does."""
    y, fails = np.ones(N), []

    def check():
        if fails:
            raise ZeroDivisionError("between")

    @omp.taskgraph
    def region(y):
        double(y)
        double(y)
        omp.task(depend=[inout(y)])(check)()
        double(y)
        double(y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
        fails.append(True)
        with pytest.raises(ExceptionGroup):
            region(y)
        fails.clear()
    assert (y == 16.0**3 * 4).all()


def test_two_devices_are_one_graph(two):
    """Kernels of two devices with copies both ways between them are one graph, whose results are those of the tasks."""
    x, y = (omp.target_alloc(N, dtype="f8", device=number) for number in (0, 1))
    for array in (x, y):
        omp.target_memcpy(array, np.ones(N))
    add = omp.target(nowait=True)(lambda a: a.__iadd__(1) is None)

    @omp.taskgraph
    def region(n):
        for _ in range(n):
            add.options(device=0, depend=[inout(x)])(x)
            omp.target_memcpy_async(y, x, depend=[in_(x), inout(y)])
            add.options(device=1, depend=[inout(y)])(y)
            omp.target_memcpy_async(x, y, depend=[in_(y), inout(x)])

    for _ in range(4):
        region(50)
    (record,) = region.records
    assert (record.is_captured, record.why_not, record.n_captured) == (True, "", 1)
    found = np.zeros(N)
    omp.target_memcpy(found, x)
    assert (found == 1 + 4 * 100).all()
    omp.target_free(x)
    omp.target_free(y)


def test_mapped_storage_of_two_devices(two):
    """Storage that is mapped on both devices is ordered with what uses it before and behind the graph."""
    y, z = np.ones(N), np.ones(N)

    @omp.taskgraph
    def region(y, z):
        for _ in range(10):
            double.options(device=0)(y)
            double.options(device=1)(z)
        omp.task(depend=[in_(y, z)])(lambda: None)()
        double.options(device=0)(y)
        double.options(device=1)(z)

    with omp.target_data(map=[tofrom(y)], device=0), omp.target_data(map=[tofrom(z)], device=1):
        for n in range(1, 5):
            region(y, z)
            double.options(device=1)(z)
            omp.target_update(from_=[z], device=1)
            assert (z == 2.0 ** (12 * n)).all()
        assert region.records[0].is_captured, region.records[0].why_not
    assert (y == 2.0**44).all()
