"""What runs before what on the GPU: streams, the host behind them, the caller's own streams, freed memory."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out
from tests.gpu.conftest import cupy, cupyx, device_array, device_of

pytestmark = pytest.mark.gpu

# More work than this behind a kernel that does not end would fill the driver's queue, and block whoever launches.
N_QUEUED = 200


@omp.target(nowait=True)
def add(x, k=1):
    x += k


# -- the host behind a stream -----------------------------------------------------------------------
def test_a_host_successor_of_an_early_kernel(gpu, latch):
    """The host successor of kernel 2 of 1,000 on one stream runs although kernel 1,000 holds the stream."""
    d = device_array(np.zeros(8))
    ran = threading.Event()

    @omp.target(nowait=True)
    def last(x):
        latch.hold(omp.current_stream())
        x += 1

    add.options(depend=[inout(d)])(d)
    add.options(depend=[inout(d), out(("second",))])(d)
    after = omp.task(depend=[in_(("second",))])(ran.set)()
    for _ in range(997):
        add.options(depend=[inout(d)])(d)
    end = last.options(depend=[inout(d)])(d)
    assert ran.wait(20)
    assert after.result(timeout=20) is None
    assert not end.done()
    latch.release()
    omp.taskwait()
    assert (d.get() == 1000).all()
    omp.target_free(d)


def test_how_soon_a_host_successor_begins(gpu, latch, record_property):
    """It begins some tenths of a millisecond after its predecessor, though more work follows; the test allows 2 ms."""
    d = device_array(np.zeros(8))
    took_s = []
    opened = threading.Event()

    @omp.target(nowait=True)
    def held(x):
        latch.hold(omp.current_stream())

    for _ in range(30):
        latch.again()
        opened.clear()
        began_s = []
        held.options(depend=[inout(d)])(d)
        add.options(depend=[inout(d), out(("second",))])(d)
        omp.task(depend=[in_(("second",))])(lambda began_s=began_s: began_s.append(time.perf_counter()))()
        for _ in range(N_QUEUED):
            add.options(depend=[inout(d)])(d)
        time.sleep(2e-3)  # what launched these has come to rest
        start_s = time.perf_counter()
        latch.release()
        omp.taskwait()
        took_s.append(began_s[0] - start_s)
    median_s = statistics.median(took_s)
    record_property("median_us", round(median_s * 1e6))
    print(f"host successor in the middle of a stream: median {median_s * 1e6:.0f} us, least {min(took_s) * 1e6:.0f} us")
    assert median_s < 2e-3
    omp.target_free(d)


def test_a_callback_comes_when_its_task_has_passed(gpu, latch):
    """Done-callbacks of tasks early in a stream come while later work holds it, and not those of what is held."""
    d = device_array(np.zeros(8))
    told = []
    first = [threading.Event() for _ in range(5)]

    @omp.target(nowait=True)
    def held(x):
        latch.hold(omp.current_stream())

    tasks = [add.options(depend=[inout(d)])(d) for _ in first]
    stuck = held.options(depend=[inout(d)])(d)
    later = add.options(depend=[inout(d)])(d)
    for task, event in zip(tasks, first, strict=True):
        task.add_done_callback(lambda _, event=event: event.set())
    later.add_done_callback(told.append)
    assert all(event.wait(20) for event in first)
    assert not told
    assert not stuck.done()
    latch.release()
    omp.taskwait()
    assert told == [later]
    omp.target_free(d)


# -- the caller's own stream ------------------------------------------------------------------------
def by_target(d, host):
    got = {}

    @omp.target(nowait=True)
    def read(x):
        got["sum"] = x.sum()

    task = read(d)
    return task, lambda: np.full(d.shape, float(got["sum"]) / d.size)


def by_pointer(d, host):
    got = {}

    @omp.target(nowait=True, is_device_ptr=["x"])
    def read(x):
        got["copy"] = x + 0

    task = read(d)
    return task, lambda: cupy.asnumpy(got["copy"])


def by_memcpy(d, host):
    return omp.target_memcpy_async(host, d), lambda: host


def by_rectangle(d, host):
    return omp.target_memcpy_rect_async(host, d), lambda: host


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize("read", [by_target, by_pointer, by_memcpy, by_rectangle])
def test_the_callers_stream_comes_first(gpu, latch, read, memory):
    """A device array that the caller's own stream has yet to make is read only after that, by whatever construct."""
    host = cupyx.zeros_pinned(1000) if memory == "pinned" else np.zeros(1000)
    own = cupy.cuda.Stream(non_blocking=True)
    outcome = {}

    def generate():  # a thread of its own: a copy of pageable memory may block whoever launches it
        with own:
            d = cupy.zeros(1000)
            latch.hold(own)
            d.fill(3)
            outcome["task"], outcome["value"] = read(d, host)
            del d
        outcome["task"].result()

    thread = threading.Thread(target=generate)
    thread.start()
    thread.join(0.2)
    assert not host.any()
    latch.release()
    thread.join(20)
    assert (outcome["value"]() == 3).all()


def test_what_is_deleted_stays_until_it_was_used(gpu, latch):
    """``del`` right after a ``nowait`` call is safe: nobody gets the memory of an array that a held task will read."""
    n = N_QUEUED // 2
    total = cupy.zeros(n)
    own = cupy.cuda.Stream(non_blocking=True)

    @omp.target(nowait=True)
    def held(total):
        latch.hold(omp.current_stream())

    @omp.target(nowait=True)
    def read(x, total, k):
        total[k] = x[0]

    read(cupy.ones(1000), total, 0)
    cupy.ones(1000).fill(0)
    omp.taskwait()
    total.fill(0)
    cupy.cuda.Device().synchronize()
    held.options(depend=[inout(total)])(total)
    with own:
        for k in range(n):
            x = cupy.empty(1000)
            x.fill(k + 1.0)
            read.options(depend=[inout(total)])(x, total, k)
            del x
            for garbage in (cupy.empty(1000), cupy.empty(1000)):  # what the memory would be used for
                garbage.fill(-1)
            del garbage
    latch.release()
    omp.taskwait()
    assert (total.get() == np.arange(1, n + 1)).all()


# -- several threads, several streams ---------------------------------------------------------------
def test_two_host_threads(gpu):
    """Chains that two threads generate at a time, each on device arrays of its own stream, are as if run serially."""
    errors = []

    def generate(seed):
        try:
            own = cupy.cuda.Stream(non_blocking=True)
            with own:
                x = cupy.zeros(100)
                for k in range(500):
                    y = cupy.full(100, float(k * seed))
                    omp.target(nowait=True, depend=[inout(x)])(lambda x, y: cupy.add(x, y, out=x))(x, y)
                    del y
                omp.taskwait()
                assert (x.get() == seed * 499 * 500 / 2).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=generate, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_a_fan_out_keeps_order(gpu, latch):
    """What many tasks read, on several streams, is what the one before them wrote; what joins them has all of it."""
    n = 64
    d, parts, total = device_array(np.zeros(1000)), device_array(np.zeros((n, 1000))), device_array(np.zeros(1000))
    streams = set()

    @omp.target(nowait=True)
    def write(x):
        latch.hold(omp.current_stream())
        x.fill(3)

    @omp.target(nowait=True)
    def spread(x, parts, k):
        streams.add(omp.current_stream().ptr)
        parts[k] = x * k

    @omp.target(nowait=True)
    def join(parts, total):
        cupy.sum(parts, axis=0, out=total)

    def run():
        write.options(depend=[inout(d)])(d)
        for k in range(n):
            spread.options(depend=[in_(d), out(parts[k])])(d, parts, k)
        return join.options(depend=[in_(parts), inout(total)])(parts, total)

    latch.release()
    run().result()  # loads the code
    omp.target_memset(d.view("u1"), 0)
    latch.again()
    joined = run()
    assert not joined.done()
    latch.release()
    omp.taskwait()
    assert (total.get() == 3 * n * (n - 1) / 2).all()
    assert len(streams) > 1
    for array in (d, parts, total):
        omp.target_free(array)


# -- waits ------------------------------------------------------------------------------------------
@pytest.fixture
def waits(gpu, monkeypatch):
    """The (stream, event) of each wait that the runtime has a stream of the device enqueue."""
    found = []
    kind = type(device_of(gpu))
    wait_event = kind.wait_event

    def spy(self, stream, event):
        found.append((stream.ptr, event.ptr))
        wait_event(self, stream, event)

    monkeypatch.setattr(kind, "wait_event", spy)
    return found


def test_a_chain_needs_no_wait(waits, latch):
    """Kernels that follow each other stay on one stream, which needs no events to keep them in order."""
    d = device_array(np.zeros(8))
    streams = set()

    @omp.target(nowait=True)
    def step(x):
        streams.add(omp.current_stream().ptr)
        x += 1

    @omp.target(nowait=True)
    def held(x):
        latch.hold(omp.current_stream())

    omp.taskwait()
    waits.clear()
    held.options(depend=[inout(d)])(d)
    for _ in range(100):
        step.options(depend=[inout(d)])(d)
    latch.release()
    omp.taskwait()
    assert (d.get() == 100).all()
    assert waits == []
    assert len(streams) == 1
    omp.target_free(d)


def test_each_stream_waits_for_another_once(waits, latch):
    """Of many readers of what one has written each stream waits for it once, and their join once for each stream."""
    n = 64
    d, slots = device_array(np.zeros(8)), device_array(np.zeros((n, 8)))
    streams = []

    @omp.target(nowait=True)
    def write(x):
        latch.hold(omp.current_stream())
        x += 1

    @omp.target(nowait=True)
    def read(x, slots, k):
        streams.append(omp.current_stream().ptr)
        slots[k] = x

    @omp.target(nowait=True)
    def join(x, slots):
        streams.append(omp.current_stream().ptr)
        x += slots[0]

    omp.taskwait()
    waits.clear()
    write.options(depend=[inout(d)])(d)
    for k in range(n):
        read.options(depend=[in_(d), out(slots[k])])(d, slots, k)
    before_join = len(waits)
    join.options(depend=[in_(slots), inout(d)])(d, slots)
    latch.release()
    omp.taskwait()
    assert (d.get() == 2).all()
    n_streams = len(set(streams))
    assert n_streams > 1
    assert max(Counter(stream for stream, _ in waits[:before_join]).values()) == 1
    assert before_join <= n_streams
    assert 1 <= len(waits) - before_join <= n_streams
    for array in (d, slots):
        omp.target_free(array)
