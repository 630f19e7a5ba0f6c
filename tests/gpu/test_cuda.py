"""What only a GPU can show: streams, the gate, copies by the driver, and errors of the device."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out, tofrom
from tests.gpu.conftest import Latch, cupy, cupyx

pytestmark = pytest.mark.gpu


def pinned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy of ``array`` in pinned memory."""
    copy = cupyx.empty_pinned(array.shape, array.dtype)
    copy[...] = array
    return copy


def test_a_chain_of_kernels_runs_in_order(gpu: omp.Runtime) -> None:
    """A thousand dependent kernels, launched by the encountering thread, give what the serial program gives."""
    step = cupy.ElementwiseKernel("float64 k", "float64 x", "x = x * 1.0000001 + k", "step")

    @omp.target(map=[tofrom("x")], depend=[inout("x")], nowait=True)
    def advance(k: float, x: Any) -> None:
        step(k, x)

    x = np.zeros(100)
    with omp.target_data(map=[tofrom(x)]):
        for k in range(1000):
            advance(float(k), x)
    expected = 0.0
    for k in range(1000):
        expected = expected * 1.0000001 + k
    assert np.allclose(x, expected, rtol=1e-12)


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize(
    "box",
    [
        np.s_[2:9, 3:20, 4:16],
        np.s_[::2, ::3, ::4],
        np.s_[::-1, :, 5:9],
        np.s_[:, 7, :],
        np.s_[1:2, :, ::-2],
        np.s_[3:3],
    ],
)
def test_boxes_arrive_as_slices_do(gpu: omp.Runtime, memory: str, box: Any) -> None:
    """A rectangular copy to the device, inside of it, and back moves what a NumPy slice assignment moves."""
    host = np.arange(20 * 30 * 40, dtype="f8").reshape(20, 30, 40)
    if memory == "pinned":
        host = pinned(host)
    whole, part = omp.target_alloc(host.shape, "f8"), omp.target_alloc(host[box].shape, "f8")
    omp.target_memcpy(whole, host)
    omp.target_memcpy_rect(part, host[box])
    assert (cupy.asnumpy(part) == host[box]).all()
    omp.target_memcpy_rect(whole[box], part * 2)
    back = np.zeros_like(host)
    omp.target_memcpy_rect(back, whole)
    expected = np.array(host)
    expected[box] *= 2
    assert (back == expected).all()
    omp.target_memcpy_rect(back[box], part)
    expected[box] = host[box]
    assert (back == expected).all()
    for array in (whole, part):
        omp.target_free(array)


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "c8", "c16", "S3", [("a", "f4"), ("b", "u1")]])
def test_every_element_size_is_copied(gpu: omp.Runtime, dtype: Any) -> None:
    """Strided copies inside of the device are right for elements of any size and alignment."""
    kind = np.dtype(dtype)
    host = np.frombuffer(np.random.default_rng(1).bytes(12 * 14 * kind.itemsize), kind).reshape(12, 14).copy()
    data = host.view("u1").reshape(12, 14 * kind.itemsize)
    a, b = omp.target_alloc(data.shape), omp.target_alloc(data.shape)
    omp.target_memcpy(a, data)
    omp.target_memcpy(b, np.zeros_like(data))
    width = 5 * kind.itemsize
    omp.target_memcpy_rect(b, a, volume=(7, width), dst_offsets=(2, kind.itemsize), src_offsets=(1, 3 * kind.itemsize))
    expected = np.zeros_like(data)
    expected[2:9, kind.itemsize : kind.itemsize + width] = data[1:8, 3 * kind.itemsize : 3 * kind.itemsize + width]
    assert (cupy.asnumpy(b) == expected).all()
    omp.target_free(a)
    omp.target_free(b)


def test_a_strided_map_leaves_its_neighbours_alone(gpu: omp.Runtime) -> None:
    """A target on a column block changes that block and nothing beside it."""

    @omp.target
    def double(x: Any) -> None:
        x *= 2

    a = np.arange(48 * 64, dtype="f4").reshape(48, 64)
    expected = a.copy()
    expected[:, 3:17] *= 2
    double(a[:, 3:17])
    assert (a == expected).all()


def test_detach_holds_a_dependent_copy(gpu: omp.Runtime, latch: Latch) -> None:
    """A copy that depends on a detached task starts when the stream that the task named has got there."""
    d = omp.target_alloc(1 << 20, "f4")
    omp.target_memcpy(d, np.zeros(1 << 20, "f4"))
    host = pinned(np.zeros(1 << 20, "f4"))
    event = omp.Event()

    @omp.task(depend=[inout(d)], detach=event)
    def library() -> None:
        stream = omp.current_stream()
        latch.hold(stream)
        with stream:
            d.fill(7)
        event.fulfill_on(stream)

    detached = library()
    copied = omp.target_memcpy_rect_async(host, d, depend=[in_(d)])
    with pytest.raises(TimeoutError):
        copied.result(timeout=0.2)
    assert not detached.done()
    assert not event.is_fulfilled
    latch.release()
    omp.taskwait()
    assert (host == 7).all()
    omp.target_free(d)


def test_leaving_out_detach_gives_a_wrong_result(gpu: omp.Runtime, latch: Latch) -> None:
    """Without the event the task is complete when its body has returned, and the copy overtakes the library."""
    d = omp.target_alloc(1 << 20, "f4")
    omp.target_memcpy(d, np.zeros(1 << 20, "f4"))
    host = pinned(np.full(1 << 20, -1, "f4"))
    used: list[Any] = []

    @omp.task(depend=[inout(d)])
    def library() -> None:
        stream = omp.current_stream()
        latch.hold(stream)
        with stream:
            d.fill(7)
        used.append(stream)

    library()
    omp.target_memcpy_rect_async(host, d, depend=[in_(d)]).result()
    assert (host == 0).all()
    latch.release()
    used[0].synchronize()
    omp.target_free(d)


def test_the_callers_stream_is_waited_for(gpu: omp.Runtime, latch: Latch) -> None:
    """A device array made on the user's own stream is read only after what that stream held at the call."""
    own = cupy.cuda.Stream(non_blocking=True)
    with own:
        d = cupy.zeros(1000)
        latch.hold(own)
        d.fill(3)

        @omp.target(nowait=True)
        def total(x: Any) -> Any:
            return x.sum()

        task = total(d)
        del d
    latch.release()
    assert float(task.result()) == 3000


def test_a_host_task_in_the_middle_of_a_stream_starts_soon(gpu: omp.Runtime, latch: Latch) -> None:
    """A host successor runs when its predecessor has passed, while work further down still holds the stream."""
    x = np.zeros(10)
    ran = threading.Event()

    @omp.target(map=[tofrom("x")], nowait=True)
    def first(x: Any) -> None:
        x += 1

    @omp.target(map=[tofrom("x")], nowait=True)
    def held(x: Any) -> None:
        latch.hold(omp.current_stream())
        x += 1

    @omp.task(depend=[in_(("one",))])
    def after() -> None:
        ran.set()

    with omp.target_data(map=[tofrom(x)]):
        first.options(depend=[inout(x), out(("one",))])(x)
        held.options(depend=[inout(x)])(x)
        after()
        assert ran.wait(20)
        latch.release()
    assert (x == 2).all()


def test_out_of_memory_changes_nothing(gpu: omp.Runtime) -> None:
    """A construct that does not fit says how much it asked for, and leaves counts as they were."""
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=64 << 20)
    try:
        a, b = np.zeros(32 << 20, "u1"), np.zeros(48 << 20, "u1")
        with omp.target_data(map=[tofrom(a)]):
            with pytest.raises(omp.DeviceMemoryError) as caught:
                omp.target_enter_data(map=[omp.to(b)])
            assert caught.value.asked_nbytes == b.nbytes
            assert gpu.places[0].table.live() == 1
    finally:
        pool.set_limit(size=0)


def test_more_mappings_than_memory_are_put_off(gpu: omp.Runtime) -> None:
    """Nowait targets whose mappings exceed the device's memory in sum run one after the other."""
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=64 << 20)

    @omp.target(nowait=True)
    def double(x: Any) -> None:
        cupy.multiply(x, 2, out=x)

    try:
        arrays = [pinned(np.full(5 << 20, k, "f4")) for k in range(16)]
        for array in arrays:
            double(array)
        omp.taskwait()
    finally:
        pool.set_limit(size=0)
    assert all((array == 2 * k).all() for k, array in enumerate(arrays))


def test_a_failing_body_copies_nothing_back(gpu: omp.Runtime) -> None:
    """A body that raises leaves the host's data as it was, and its dependents do not run."""

    @omp.target(nowait=True)
    def fail(x: Any) -> None:
        x += 1
        raise ValueError("on purpose")

    x = np.zeros(5)
    first = fail.options(depend=[inout(x)])(x)
    second = fail.options(depend=[inout(x)])(x)
    with pytest.raises(ExceptionGroup) as caught:
        omp.taskwait()
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    assert isinstance(second.exception(), omp.DependError)
    assert first.exception() is caught.value.exceptions[0]
    assert (x == 0).all()


LOST = """
import cupy, numpy as np, offload as omp
from offload import inout
bad = cupy.RawKernel('extern "C" __global__ void bad(float* x) { x[1ull << 40] = 1; }', "bad")
runtime = omp.Runtime("cuda:0").__enter__()
d = omp.target_alloc(10, "f4")
@omp.target(nowait=True, name="culprit")
def culprit(x):
    bad((1,), (1,), (x,))
@omp.target(nowait=True)
def after(x):
    x += 1
first = culprit.options(depend=[inout(d)])(d)
second = after.options(depend=[inout(d)])(d)
error = first.exception(timeout=30)
assert isinstance(error, omp.DeviceLostError) and "culprit" in str(error), error
assert isinstance(second.exception(timeout=30), (omp.DeviceLostError, omp.DependError)), second.exception()
print("named")
import os; os._exit(0)
"""


def test_an_illegal_address_fails_the_task_that_made_it() -> None:
    """After an illegal address the task fails with `DeviceLostError`, which names it, and nothing hangs."""
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.strip() == "named", done.stderr
