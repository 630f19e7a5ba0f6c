"""Everything at once, for a long time: many producers, every construct, failures, cancels, events from other threads.

Eight threads generate tasks in one runtime. Each has arrays of its own, so that what it computes must be what a serial
run of the same operations computes. `OFFLOAD_SOAK_S` says for how long; a few seconds of it run with every test run.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, inoutset, mutexinoutset, out, tofrom
from tests.conftest import check_nothing_left
from tests.profiles import few

N_PRODUCERS, N_ARRAYS = 8, 4
ROUND = 60  # operations between two waits
HANG_S = 60
STATM = Path("/proc/self/statm")


class InjectedError(Exception):
    """Raised by bodies that are to fail."""


def resident_nbytes():
    """Return what the process has in memory; 0 where the system does not tell."""
    return int(STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") if STATM.exists() else 0


def scale(y, a, c):
    y[...] = (a * y + c) % 1_000_003


class Fulfiller:
    """A thread that runs what it is given: fulfils events, from outside of the runtime."""

    def __init__(self):
        self.jobs = SimpleQueue()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while (job := self.jobs.get()) is not None:
            job()

    def end(self):
        self.jobs.put(None)
        self.thread.join()


class Producer:
    """One thread's program: operations at random, done by tasks and once more serially."""

    def __init__(self, number, fulfiller):
        self.rng = random.Random(number)
        self.number = number
        self.fulfiller = fulfiller
        self.arrays = [np.arange(8, dtype=np.int64) for _ in range(N_ARRAYS)]
        self.serial = [array.copy() for array in self.arrays]
        self.lock = threading.Lock()
        self.n_generated = self.n_ran = self.n_cancelled = self.n_failed = 0
        self.replayed = omp.taskgraph(self.recorded)

    def counted(self, body):
        """Return a body that counts its runs."""
        self.n_generated += 1

        def run(*args):
            with self.lock:
                self.n_ran += 1
            return body(*args)

        return run

    def recorded(self, y, z):
        omp.task(depend=[inout(y)])(scale)(y, 2, 1)
        omp.task(depend=[in_(y), inout(z)])(lambda: scale(z, 3, int(y[0])))()

    def round(self):
        for _ in range(ROUND):
            kind = self.rng.choice(self.kinds)
            getattr(self, kind)(self.rng.randrange(N_ARRAYS), self.rng.randint(1, 9), self.rng.randint(0, 99))
        omp.taskwait()
        for mine, serial in zip(self.arrays, self.serial, strict=True):
            np.testing.assert_array_equal(mine, serial)
        assert self.n_ran + self.n_cancelled == self.n_generated

    kinds = ("task", "task", "task", "undeferred", "target", "detach", "member", "parts", "reader", "edge", "nested")
    kinds += ("group", "fails", "cancelled", "replay", "wait", "yields")

    def task(self, k, a, c):
        y = self.arrays[k]
        omp.task(depend=[inout(y)])(self.counted(scale))(y, a, c)
        scale(self.serial[k], a, c)

    def undeferred(self, k, a, c):
        y = self.arrays[k]
        omp.task(depend=[inout(y)], if_=False)(self.counted(scale))(y, a, c)
        scale(self.serial[k], a, c)

    def target(self, k, a, c):
        y = self.arrays[k]
        device = a % omp.get_num_devices()
        omp.target(map=[tofrom(y)], depend=[inout(y)], nowait=True, device=device)(
            self.counted(lambda y: scale(y, a, c))
        )(y)
        scale(self.serial[k], a, c)

    def detach(self, k, a, c):
        y = self.arrays[k]
        event = omp.Event()

        def rest():
            scale(y, 1, c)
            event.fulfill()

        def body():
            scale(y, a, 0)
            self.fulfiller.jobs.put(rest)

        omp.task(depend=[inout(y)], detach=event)(self.counted(body))()
        scale(self.serial[k], a, c)

    def member(self, k, a, c):
        """Add to two items, which needs both."""
        both = [self.arrays[k], self.arrays[k - 1]]

        def add():
            for y in both:
                scale(y, 1, c)

        omp.task(depend=[mutexinoutset(*both)])(self.counted(add))()
        for y in (self.serial[k], self.serial[k - 1]):
            scale(y, 1, c)

    def parts(self, k, a, c):
        y = self.arrays[k]
        omp.taskwait(nowait=True, depend=[inout(y)])
        for half in (y[:4], y[4:]):
            omp.task(depend=[inoutset(y)])(self.counted(scale))(half, a, c)
        scale(self.serial[k], a, c)

    def reader(self, k, a, c):
        """Read one array and write a token, which the next one like this follows."""
        seen = self.arrays[k]
        expected = self.serial[k].copy()

        def read():
            np.testing.assert_array_equal(seen, expected)

        omp.task(depend=[in_(seen), out(("token", self.number, a))])(self.counted(read))()

    def edge(self, k, a, c):
        omp.taskwait(nowait=True, depend=[inout(self.arrays[k]), inout(self.arrays[k - 1])])

    def nested(self, k, a, c):
        y = self.arrays[k]
        first, second = self.counted(scale), self.counted(scale)

        def body():
            omp.task(depend=[inout(y)])(first)(y, a, 1)
            omp.task(depend=[inout(y)])(second)(y, 1, c)
            omp.taskwait()

        omp.task(depend=[inout(y)])(self.counted(body))()
        scale(self.serial[k], a, 1)
        scale(self.serial[k], 1, c)

    def group(self, k, a, c):
        with omp.taskgroup():
            self.task(k, a, c)
            self.target(k - 1, a, c)

    def fails(self, k, a, c):
        """Fail, and have what depends on that not run; the group tells of the one failure."""
        token = ("fails", self.number)
        ran = []

        def fail():
            raise InjectedError(c)

        with pytest.raises(ExceptionGroup) as caught, omp.taskgroup():
            omp.task(depend=[out(token), in_(self.arrays[k])])(self.counted(fail))()
            poisoned = omp.task(depend=[in_(token)])(ran.append)(1)
        assert [type(error) for error in caught.value.exceptions] == [InjectedError]
        assert poisoned.state == "not run"
        assert not ran
        self.n_failed += 1

    def cancelled(self, k, a, c):
        """Cancel a group at some time while its tasks run."""
        mine = []
        x = np.zeros(2)
        with omp.taskgroup():
            for number in range(a):
                mine.append(omp.task(self.counted(lambda: None))())
                mine.append(omp.target(nowait=True)(self.counted(lambda x: None))(x))
                if number == a // 2:
                    omp.task(lambda: omp.cancel("taskgroup"))()
        for task in mine:
            if task.state == "cancelled":
                self.n_cancelled += 1
                with pytest.raises(CancelledError):
                    task.result()
            else:
                assert task.state == "complete"

    def replay(self, k, a, c):
        omp.taskwait()
        self.replayed(self.arrays[k], self.arrays[k - 1])
        scale(self.serial[k], 2, 1)
        scale(self.serial[k - 1], 3, int(self.serial[k][0]))

    def wait(self, k, a, c):
        omp.taskwait(depend=[in_(self.arrays[k])])

    def yields(self, k, a, c):
        omp.taskyield()


def soak(duration_s):
    """Run the producers with a thread that fulfils their events, all of which take turns often."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    fulfiller = Fulfiller()
    try:
        return run(duration_s, fulfiller)
    finally:
        fulfiller.end()
        sys.setswitchinterval(interval_s)


def run(duration_s, fulfiller):
    """Run the producers for so long; return them, and by how much the process grew after the first quarter."""
    stop, errors, samples = threading.Event(), [], [resident_nbytes()]
    producers = []
    progress = [0] * N_PRODUCERS

    def produce(number):
        try:
            while not (stop.is_set() and progress[number]):  # a thread may begin late
                producers[number].round()
                progress[number] += 1
        except BaseException as error:
            errors.append(error)
            stop.set()

    env = {"OMP_CANCELLATION": "true", "OFFLOAD_HANG_S": str(HANG_S / 2)}
    with omp.Runtime("sim:2", num_threads=4, check=True, env=env) as runtime:
        producers += [Producer(number, fulfiller) for number in range(N_PRODUCERS)]
        threads = [threading.Thread(target=produce, args=(number,), daemon=True) for number in range(N_PRODUCERS)]
        for thread in threads:
            thread.start()
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s and not stop.wait(min(5.0, duration_s / 20)):
            samples.append(resident_nbytes())
        stop.set()
        end_s = time.monotonic() + HANG_S
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        hung = [number for number, thread in enumerate(threads) if thread.is_alive()]
        if hung:
            faulthandler.dump_traceback(all_threads=True)
            os.write(2, f"producers {hung} hang; {runtime.engine.ready!r:.2000}\n".encode())
            pytest.exit(f"producers {hung} hang", returncode=3)  # the runtime's own end would wait for ever
        if errors:
            raise BaseExceptionGroup("producers failed", errors)
    gc.collect()
    check_nothing_left(runtime)
    assert min(progress) > 0
    settled = max(samples[: max(1, len(samples) // 4)])
    return producers, max(samples) - settled


def report(producers, growth, duration_s):
    print(
        f"{duration_s:g} s: {sum(producer.n_generated for producer in producers):,} tasks, "
        f"{sum(producer.n_cancelled for producer in producers):,} cancelled, "
        f"{sum(producer.n_failed for producer in producers):,} failures; grew by {growth / 2**20:.1f} MiB"
    )


@pytest.mark.parametrize("seconds", few(1, [0.5, 2]))
def test_a_few_seconds(seconds):
    """Nothing hangs, no task is lost, results are the serial run's, nothing is left."""
    report(*soak(seconds), seconds)


@pytest.mark.soak
@pytest.mark.timeout(0)  # it has a watchdog of its own
def test_for_long():
    """The same for `OFFLOAD_SOAK_S` seconds, and the process grows by no more than 8 MiB after the first quarter."""
    duration_s = float(os.environ.get("OFFLOAD_SOAK_S", "600"))
    producers, growth = soak(duration_s)
    report(producers, growth, duration_s)
    assert growth < 8 << 20
