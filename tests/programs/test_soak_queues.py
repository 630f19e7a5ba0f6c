"""Async queues for a long time: threads that share queues, wait, test and change their default queue.

Each thread has rows of its own in one array that is present, so that what it computes on them must be what NumPy
computes: rows are changed in one queue at a time, and another one takes over by a wait on the host, a `wait` that is
asynchronous, or a wait clause. The queues are everybody's. `OFFLOAD_SOAK_S` says for how long; a few seconds of it run
with every test run.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import threading
import time

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.tasks import depend
from tests.conftest import check_nothing_left
from tests.profiles import few
from tests.programs.test_soak import resident_nbytes

N_THREADS, N_ROWS = 6, 3
QUEUES = [0, 1, 8, 9, 17, 999]
"""Some of which have a stream in common."""

ROUND = 40  # operations between two comparisons
HANG_S = 60
MODULUS = 1_000_003


class InjectedError(Exception):
    """Raised by bodies that are to fail."""


class Program:
    """One thread's operations at random, done in queues and once more by NumPy."""

    def __init__(self, number, array):
        self.rng = random.Random(number)
        self.number = number
        self.array = array
        self.rows = [array[number * N_ROWS + k] for k in range(N_ROWS)]
        self.serial = [row.copy() for row in self.rows]
        self.last = [None] * N_ROWS  # the queue that each row was last changed in
        self.default = 0
        self.n_generated = self.n_failed = 0
        acc.copyin(array)

    def queue(self):
        """Return an async-argument, and the number that it means."""
        number = self.rng.choice(QUEUES)
        return self.rng.choice([(number, number), (number, number), (True, self.default), (acc.async_default, 0)])

    def taken_over(self, k, value, number):
        """Have a queue follow the one that a row was last changed in; return the wait clause that it needs."""
        last, self.last[k] = self.last[k], number
        if last in {None, number}:
            return ()
        way = self.rng.randrange(5)
        if way == 0:
            acc.wait(last)
        elif way == 1:
            acc.wait(last, async_=value)
        elif way == 2:
            acc.wait_all_async(value)
        elif way == 3:
            while not acc.async_test(last):
                omp.taskyield()
        else:
            return [last]
        return ()

    def step(self):
        k, a, c = self.rng.randrange(N_ROWS), self.rng.randint(1, 9), self.rng.randint(0, 99)
        getattr(self, self.rng.choice(self.kinds))(k, a, c)
        self.n_generated += 1

    kinds = ("compute", "compute", "compute", "copied", "update", "synchronous", "tests", "any_of", "defaults", "fails")

    def compute(self, k, a, c):
        value, number = self.queue()
        wait = self.taken_over(k, value, number)

        @acc.parallel(present=["x"], async_=value, wait=wait)
        def scale(x):
            x[...] = (a * x + c) % MODULUS

        scale(self.rows[k])
        self.serial[k][...] = (a * self.serial[k] + c) % MODULUS

    def copied(self, k, a, c):
        """A region of its own data, which the queue copies in and back, beside the row."""
        value, number = self.queue()
        mine = np.arange(4.0)
        with acc.data(copy=[mine], async_=value):
            acc.parallel(present=["x"], async_=value)(add)(mine, a)
        acc.wait(number)
        np.testing.assert_array_equal(mine, np.arange(4.0) + a)

    def update(self, k, a, c):
        value, number = self.queue()
        wait = self.taken_over(k, value, number)
        acc.update(self_=[self.rows[k]], async_=value, wait=wait)
        acc.wait([number])
        np.testing.assert_array_equal(self.rows[k], self.serial[k])

    def synchronous(self, k, a, c):
        """An operation without a queue, which waits for the one that the row was changed in."""
        last, self.last[k] = self.last[k], None
        wait = () if last is None else last
        acc.kernels(present=["x"], wait=wait)(add)(self.rows[k], a)
        self.serial[k] += a

    def tests(self, k, a, c):
        if self.last[k] is not None and acc.async_test(self.last[k]):
            acc.update_self(self.rows[k])
            np.testing.assert_array_equal(self.rows[k], self.serial[k])
        acc.async_test_all()

    def any_of(self, k, a, c):
        queues = self.rng.sample(QUEUES, 2)
        assert acc.wait_any(queues) in {0, 1}

    def defaults(self, k, a, c):
        self.default = self.rng.choice(QUEUES)
        acc.set_default_async(self.default)
        assert acc.get_default_async() == self.default

    def fails(self, k, a, c):
        """Fail on a device that nobody else tests, in a queue of one's own: what follows there does not run."""

        def fail():
            raise InjectedError(c)

        acc.serial(async_=self.number, device=1)(fail)()
        with pytest.raises(ExceptionGroup) as caught:
            acc.wait(self.number, device=1)
        assert [type(error) for error in caught.value.exceptions] == [InjectedError]
        self.n_failed += 1

    def round(self):
        for _ in range(ROUND):
            self.step()
        for k, last in enumerate(self.last):
            if last is not None:
                acc.wait(last)
            acc.update_self(self.rows[k])
            np.testing.assert_array_equal(self.rows[k], self.serial[k])
        self.last = [None] * N_ROWS

    def end(self):
        acc.set_default_async(acc.async_default)
        acc.delete(self.array)


def add(x, a):
    x += a


def soak(duration_s, n_workers=2):
    """Do `run` with dependences that forget what is past often: a mark each operation is tens of MiB otherwise."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(depend, "_FIRST_SWEEP", 512)
        return run(duration_s, n_workers)


def run(duration_s, n_workers):
    """Run the threads for so long; return their programs, and by how much the process grew after a quarter."""
    stop, errors, programs, samples = threading.Event(), [], [], [resident_nbytes()]
    with omp.Runtime("sim:2", num_threads=n_workers, check=True, env={"OFFLOAD_HANG_S": str(HANG_S / 2)}) as runtime:
        array = np.arange(N_THREADS * N_ROWS * 8.0).reshape(N_THREADS * N_ROWS, 8)

        def work(number):
            try:
                program = Program(number, array)
                programs.append(program)
                while not stop.is_set():
                    program.round()
                program.end()
            except BaseException as error:
                errors.append(error)
                stop.set()

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(N_THREADS)]
        for thread in threads:
            thread.start()
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s and not stop.wait(min(5.0, duration_s / 20)):
            samples.append(resident_nbytes())
        stop.set()
        end_s = time.monotonic() + HANG_S
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            faulthandler.dump_traceback(all_threads=True)
            pytest.exit("a thread hangs", returncode=3)  # the runtime's own end would wait for ever
        if errors:
            raise BaseExceptionGroup("threads failed", errors)
        acc.wait_all()
        assert not acc.is_present(array)
    gc.collect()
    check_nothing_left(runtime)
    settled = max(samples[: max(1, len(samples) // 4)])
    return programs, max(samples) - settled


def report(programs, growth, duration_s):
    print(
        f"{duration_s:g} s: {sum(program.n_generated for program in programs):,} operations, "
        f"{sum(program.n_failed for program in programs):,} failures; grew by {growth / 2**20:.1f} MiB"
    )


@pytest.mark.parametrize("n_workers", few(1, [3, 0]))
def test_a_few_seconds(n_workers):
    """Nothing hangs, results are NumPy's, nothing is left, also where the threads themselves run what is ready."""
    report(*soak(1, n_workers=n_workers), 1)


@pytest.mark.soak
@pytest.mark.timeout(0)  # it has a watchdog of its own
def test_for_long():
    """The same for `OFFLOAD_SOAK_S` seconds, and the process grows by no more than 8 MiB after the first quarter."""
    duration_s = float(os.environ.get("OFFLOAD_SOAK_S", "600"))
    programs, growth = soak(duration_s)
    report(programs, growth, duration_s)
    assert growth < 8 << 20
