"""Everything that goes to a device at once, for a long time: launches, copies, callbacks, memory, garbage collection.

Four threads generate work for one device, each on data of its own, so that what the device computes must be what NumPy
computes beside it. Others collect garbage, and allocate and free. `OFFLOAD_SOAK_S` says for how long; a few seconds of
it run with every test run, on the simulated device as well.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import sys
import threading
import time

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out, release, to, tofrom
from tests.conftest import check_nothing_left
from tests.gpu.conftest import cupy, cupyx

N_PRODUCERS, N_ARRAYS = 4, 3
SHAPE = (16, 64)
ROUND = 40  # operations between two waits
HANG_S = 60


@pytest.fixture(params=[pytest.param("cuda:0", marks=pytest.mark.gpu), "sim:1"])
def kind(request):
    """The device of the runtime, as it takes it."""
    return request.param


def scale(y, a, c):
    y[...] = (a * y + c) % 1_000_003


def add(y, x):
    y += x


def add_scaled(y, x):
    scale(y, 1, 0)
    y += x


class Cycle:
    """Owns a device array, and itself: only the garbage collector frees it."""

    def __init__(self, array):
        self.array = array
        self.me = self


class Producer:
    """One thread's program: operations at random, on the device and once more by NumPy."""

    kinds = ("mapped", "resident", "resident", "upload", "download", "box", "memset", "update", "temporary", "cycle")
    kinds += ("detached", "called_back", "on_host", "allocate", "own_stream", "read_only", "section")

    def __init__(self, number, *, is_cuda):
        self.rng = random.Random(number)
        self.is_cuda = is_cuda
        self.number = number
        self.n_called = self.n_callbacks = self.n_operations = 0
        self.lock = threading.Lock()
        self.own = cupy.cuda.Stream(non_blocking=True) if is_cuda else None
        start = [np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE) + number * k for k in range(N_ARRAYS)]
        # Of each kind of memory there are arrays, and beside them what they must hold.
        self.host = [self.host_array(values, pinned=k % 2 == 0) for k, values in enumerate(start)]
        self.host_serial = [values.copy() for values in start]
        self.device = [omp.target_alloc(SHAPE, np.int64) for _ in start]
        self.device_serial = [values.copy() for values in start]
        for array, values in zip(self.device, start, strict=True):
            omp.target_memcpy(array, values)
        self.present = self.host_array(start[0], pinned=True)
        self.present_serial = start[0].copy()  # on the device
        self.updated_serial = start[0].copy()  # on the host
        omp.target_enter_data(map=[to(self.present)])

    def host_array(self, values, *, pinned):
        array = cupyx.empty_pinned(SHAPE, np.int64) if pinned and self.is_cuda else np.empty(SHAPE, np.int64)
        array[...] = values
        return array

    def round(self):
        for _ in range(ROUND):
            operation = getattr(self, self.rng.choice(self.kinds))
            operation(self.rng.randrange(N_ARRAYS), self.rng.randint(1, 9), self.rng.randint(0, 99))
            self.n_operations += 1
        omp.taskwait()
        self.verify()

    def verify(self):
        for mine, serial in zip(self.host, self.host_serial, strict=True):
            np.testing.assert_array_equal(mine, serial)
        np.testing.assert_array_equal(self.present, self.updated_serial)
        back = np.empty(SHAPE, np.int64)
        for mine, serial in zip(self.device, self.device_serial, strict=True):
            omp.target_memcpy(back, mine)
            np.testing.assert_array_equal(back, serial)
        assert self.n_called == self.n_callbacks

    def end(self):
        omp.target_exit_data(map=[release(self.present)])
        while self.device:
            omp.target_free(self.device.pop())

    def called(self, _):
        with self.lock:
            self.n_called += 1

    # -- operations: on array k, with the numbers a and c ----------------------------------------------
    def mapped(self, k, a, c):
        y = self.host[k]
        omp.target(map=[tofrom(y)], depend=[inout(y)], nowait=True)(scale)(y, a, c)
        scale(self.host_serial[k], a, c)

    def section(self, k, a, c):
        """Map some columns, which are packed on the device."""
        y = self.host[k][:, 3:40:2]
        omp.target(map=[tofrom(y)], depend=[inout(y)], nowait=True)(scale)(y, a, c)
        scale(self.host_serial[k][:, 3:40:2], a, c)

    def resident(self, k, a, c):
        y = self.device[k]
        self.n_callbacks += 1
        omp.target(depend=[inout(y)], nowait=True)(scale)(y, a, c).add_done_callback(self.called)
        scale(self.device_serial[k], a, c)

    def read_only(self, k, a, c):
        """Many that read, beside each other, each into memory of its own."""
        y = self.device[k]
        for part in range(a):
            omp.target(depend=[in_(y), out(("sum", self.number, part))], nowait=True)(lambda y: y + 1)(y)

    def upload(self, k, a, c):
        y, x = self.device[k], self.host[k - 1]
        omp.target_memcpy_async(y, x, depend=[in_(x), inout(y)])
        self.device_serial[k][...] = self.host_serial[k - 1]

    def download(self, k, a, c):
        y, x = self.host[k], self.device[k - 1]
        omp.target_memcpy_async(y, x, depend=[in_(x), inout(y)])
        self.host_serial[k][...] = self.device_serial[k - 1]

    def box(self, k, a, c):
        """Copy a box between strided views: to the device, from it, or inside."""
        box = np.s_[a : a + 5, c % 20 : c % 20 + 30]
        ends = [(self.device, self.host), (self.host, self.device), (self.device, self.device)]
        serial = [(self.device_serial, self.host_serial), (self.host_serial, self.device_serial)]
        serial += [(self.device_serial, self.device_serial)]
        y, x = ends[a % 3][0][k], ends[a % 3][1][k - 1]
        omp.target_memcpy_rect_async(y[box], x[box], depend=[in_(x), inout(y)])
        serial[a % 3][0][k][box] = serial[a % 3][1][k - 1][box]

    def memset(self, k, a, c):
        y = self.device[k]
        omp.target_memset_async(y, a % 4, depend=[inout(y)])
        self.device_serial[k].view("u1")[...] = a % 4

    def update(self, k, a, c):
        """Change what is present, and copy every second row of it back, or all of it there."""
        y = self.present
        omp.target(map=[tofrom(y)], depend=[inout(y)], nowait=True)(scale)(y, a, c)
        scale(self.present_serial, a, c)
        if a % 2:
            omp.target_update(from_=[y[::2]], depend=[inout(y)], nowait=True)
            self.updated_serial[::2] = self.present_serial[::2]
        else:
            omp.target_update(to=[y], depend=[inout(y)], nowait=True)
            self.present_serial[...] = self.updated_serial

    def temporary(self, k, a, c):
        """Pass on an array that a body has made, and drop it at once."""
        y = self.device[k]
        made = omp.target(depend=[in_(y)], nowait=True)(lambda y: y + a)(y).result()
        omp.target(depend=[inout(y)], nowait=True)(add_scaled)(y, made)
        del made
        serial = self.device_serial[k]
        before = serial + a
        scale(serial, 1, 0)
        serial += before

    def own_stream(self, k, a, c):
        """The same with an array that the thread's own stream makes."""
        y = self.device[k]
        if self.is_cuda:
            with self.own:
                made = cupy.full(SHAPE, a, np.int64)
                omp.target(depend=[inout(y)], nowait=True)(add)(y, made)
            del made
        else:
            omp.target(depend=[inout(y)], nowait=True)(add)(y, a)
        self.device_serial[k] += a

    def cycle(self, k, a, c):
        y = self.device[k]
        Cycle(omp.target(depend=[in_(y)])(lambda y: y + 1)(y))

    def allocate(self, k, a, c):
        block = omp.target_alloc((a, 100), np.int64)
        omp.target_memset_async(block, 0, depend=[out(block)])
        omp.taskwait(depend=[in_(block)])
        omp.target_free(block)

    def on_host(self, k, a, c):
        y = self.host[k]
        omp.task(depend=[inout(y)])(scale)(y, a, c)
        scale(self.host_serial[k], a, c)

    def detached(self, k, a, c):
        """Work on a stream that the task is not complete before, as an event says."""
        y = self.device[k]
        event = omp.Event()

        def body():
            stream = omp.current_stream()
            if self.is_cuda:
                with stream:
                    scale(y, a, c)
            else:
                stream.launch(scale, y, a, c)
            event.fulfill_on(stream)

        omp.task(depend=[inout(y)], detach=event)(body)()
        scale(self.device_serial[k], a, c)

    def called_back(self, k, a, c):
        """A host task that is complete when the callback of a target has come."""
        y = self.host[k]
        event = omp.Event()
        first = omp.target(map=[tofrom(y)], depend=[inout(y)], nowait=True)(scale)(y, a, c)
        omp.task(depend=[inout(y)], detach=event)(scale)(y, 1, c)
        first.add_done_callback(lambda _: event.fulfill())
        scale(self.host_serial[k], a, c)
        scale(self.host_serial[k], 1, c)


def collect(stop):
    """Collect garbage all the time, in a thread that does nothing else."""
    while not stop.wait(2e-3):
        gc.collect()


def take_and_give(stop):
    """Allocate and free device memory from a thread that waits for nothing."""
    rng = random.Random(0)
    blocks = []
    while not stop.wait(1e-3):
        blocks.append(omp.target_alloc(rng.randint(1, 1 << 16)))
        while len(blocks) > rng.randint(0, 8):
            omp.target_free(blocks.pop(rng.randrange(len(blocks))))
    for block in blocks:
        omp.target_free(block)


def stress(kind, duration_s):
    """Run the threads for so long, which take turns often; return the producers, and how much device memory grew."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    gc.freeze()  # what is older would take most of the time of each collection
    stop, errors, samples = threading.Event(), [], []

    def guarded(function, *args):
        try:
            function(*args)
        except BaseException as error:
            errors.append(error)
            stop.set()

    def produce(producer):
        while not stop.is_set():
            producer.round()
        producer.end()

    try:
        with omp.Runtime(kind, num_threads=3, check=True, env={"OFFLOAD_HANG_S": str(HANG_S / 2)}) as runtime:
            producers = [Producer(number, is_cuda=kind.startswith("cuda")) for number in range(N_PRODUCERS)]
            jobs = [(produce, producer) for producer in producers] + [(collect, stop), (take_and_give, stop)]
            threads = [threading.Thread(target=guarded, args=job, daemon=True) for job in jobs]
            for thread in threads:
                thread.start()
            end_s = time.monotonic() + duration_s
            while time.monotonic() < end_s and not stop.wait(min(2.0, duration_s / 20)):
                samples.append(omp.device(0).memory_info()[0])
            stop.set()
            end_s = time.monotonic() + HANG_S
            for thread in threads:
                thread.join(max(0.0, end_s - time.monotonic()))
            if any(thread.is_alive() for thread in threads):
                faulthandler.dump_traceback(all_threads=True)
                pytest.exit("threads hang; see the stacks above", returncode=3)  # the runtime's own end would too
            if errors:
                raise BaseExceptionGroup("threads failed", errors)
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval_s)
    gc.collect()
    check_nothing_left(runtime)
    settled_nbytes = min(samples[: max(1, len(samples) // 4)])
    return producers, settled_nbytes - min(samples)


def report(kind, producers, growth_nbytes, duration_s):
    n_operations = sum(producer.n_operations for producer in producers)
    print(
        f"{kind}, {duration_s:g} s: {n_operations:,} operations; grew by {growth_nbytes / 2**20:.1f} MiB of the device"
    )
    assert min(producer.n_operations for producer in producers) > 0


@pytest.mark.slow
def test_a_few_seconds(kind):
    """Nothing hangs, results are NumPy's, every callback comes once, nothing is left."""
    report(kind, *stress(kind, 3), 3)


@pytest.mark.soak
@pytest.mark.timeout(0)  # it has a watchdog of its own
def test_for_long(kind):
    """The same for `OFFLOAD_SOAK_S` seconds, and no more device memory is in use than after the first quarter."""
    duration_s = float(os.environ.get("OFFLOAD_SOAK_S", "480"))
    producers, growth_nbytes = stress(kind, duration_s)
    report(kind, producers, growth_nbytes, duration_s)
    assert growth_nbytes < 32 << 20
