"""A program that is interrupted at random moments, and compares every call after that with what it must give.

    python tests/interrupts/storm.py --source alarm --calls 20000 [--devices cuda:0] [--plays target,loop]

The sources: ``alarm``, a signal handler of the program that raises; ``ctrlc``, Python's own; ``sent``, an exception
that another thread sends by ``PyThreadState_SetAsyncExc``. An undisturbed call follows each disturbed one. The program
prints a summary. Its status is 1 if a result was wrong, an entry or device memory was left, or a thread or a finalizer
has failed. A call that hangs ends it with the stacks.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import random
import signal
import sys
import threading
import time

import numpy as np

import offload as omp
from offload import acc, delete, from_, in_, inout, to, tofrom

N = 256


class LimitError(Exception):
    """What the program's handler raises, and what is sent."""


@omp.target(map=[to("x"), tofrom("y")])
def saxpy(k, x, y):
    y += k * x


@omp.target_loop(map=[to("x"), tofrom("y")])
def saxpy_loop(k, x, y):
    for i in range(x.shape[0]):
        y[i] += k * x[i]


@omp.parallel_loop
def saxpy_host(k, x, y):
    for i in range(x.shape[0]):
        y[i] += k * x[i]


@acc.parallel(copyin=["x"], copy=["y"])
def saxpy_acc(k, x, y):
    y += k * x


@omp.task
def saxpy_task(k, x, y):
    y += k * x


@omp.taskgraph
def graph(x, y):
    later = saxpy.options(nowait=True, depend=[in_(x), inout(y)])
    later(1.0, x, y)
    later(2.0, x, y)


class Plays:
    """The calls: each takes arrays x and y, and leaves y + 3 x in the one that it returns.

    What a call has entered or allocated by hand is noted, so that `clean` can undo it where an exception came between
    the call that entered it and the one that was to leave it.
    """

    def __init__(self):
        self.entered, self.blocks, self.fixed = [], [], (np.zeros(N), np.zeros(N))

    def target(self, x, y):
        saxpy(3.0, x, y)
        return y

    def loop(self, x, y):
        saxpy_loop(3.0, x, y)
        return y

    def host(self, x, y):
        saxpy_host(3.0, x, y)
        return y

    def nowait(self, x, y):
        later = saxpy.options(nowait=True, depend=[in_(x), inout(y)])
        later(1.0, x, y)
        later(2.0, x, y)
        omp.taskwait()
        return y

    def data(self, x, y):
        with omp.target_data(map=[to(x), tofrom(y)]):
            saxpy(1.0, x, y)
            saxpy_loop(2.0, x, y)
        return y

    def enter(self, x, y):
        self.entered += [x, y]
        omp.target_enter_data(map=[to(x), to(y)])
        saxpy(3.0, x, y)
        omp.target_exit_data(map=[from_(y), delete(x)])
        self.entered.clear()
        return y

    def update(self, x, y):
        z = np.zeros(N)
        with omp.target_data(map=[tofrom(z)]):
            z[:] = x
            omp.target_update(to=[z])
            saxpy(3.0, z, y)
        return y

    def acc(self, x, y):
        saxpy_acc(3.0, x, y)
        return y

    def queue(self, x, y):
        with acc.data(copyin=[x], copy=[y]):
            saxpy_acc.options(async_=1)(1.0, x, y)
            saxpy_acc.options(async_=1)(2.0, x, y)
            acc.wait(1)
        return y

    def task(self, x, y):
        saxpy_task.options(depend=[inout(y)])(1.0, x, y)
        saxpy_task.options(depend=[inout(y)])(2.0, x, y)
        omp.taskwait()
        return y

    def group(self, x, y):
        with omp.taskgroup():
            saxpy_task(3.0, x, y)
        return y

    def memcpy(self, x, y):
        self.blocks.append(omp.target_alloc(N, "f8"))
        omp.target_memcpy(self.blocks[0], x)
        z = np.empty(N)
        omp.target_memcpy(z, self.blocks[0])
        self.clean()
        return y + 3.0 * z

    def buffers(self, x, y):
        with omp.buffers(2, N) as ring:
            omp.target_memcpy(ring[0], x)
            z = np.empty(N)
            omp.target_memcpy(z, ring[0])
        return y + 3.0 * z

    def strided(self, x, y):
        z = np.zeros((N, 3))
        with omp.target_data(map=[tofrom(z)]):
            z[:, 1] = x
            omp.target_update(to=[z[:, 1]])
            saxpy(3.0, z[:, 1], y)
        return y

    def interop(self, x, y):
        with omp.interop(depend=[inout(y)]):
            pass
        saxpy(3.0, x, y)
        return y

    def taskloop(self, x, y):
        omp.taskloop(range(N), lambda part: [y.__setitem__(i, y[i] + 3.0 * x[i]) for i in part], num_tasks=4)
        return y

    def record(self, x, y):
        with omp.record(execute=False) as recorded:
            saxpy.options(nowait=True, depend=[in_(x), inout(y)])(1.0, x, y)
            saxpy.options(nowait=True, depend=[in_(x), inout(y)])(2.0, x, y)
        recorded.compute()
        return y

    def runtime(self, x, y):
        with omp.Runtime("sim:1", num_threads=1):
            saxpy(3.0, x, y)
        return y

    def graph(self, x, y):
        a, b = self.fixed
        a[:], b[:] = x, y
        graph(a, b)
        return b

    def clean(self):
        while self.entered:
            while omp.target_is_present(self.entered[-1]):
                omp.target_exit_data(map=[delete(self.entered[-1])])
            self.entered.pop()
        while self.blocks:
            with contextlib.suppress(omp.UsageError):  # freed before
                omp.target_free(self.blocks[-1])
            self.blocks.pop()


PLAYS = [name for name in vars(Plays) if name[0] != "_" and name != "clean"]


class Alarm:
    """Raises in the main thread by a handler of SIGALRM."""

    error = LimitError

    def __init__(self):
        def handler(number, frame):
            raise LimitError

        signal.signal(signal.SIGALRM, handler)

    def arm(self, after_s):
        signal.setitimer(signal.ITIMER_REAL, max(after_s, 1e-6))

    def disarm(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


class Striker(threading.Thread):
    """Interrupts the main thread from another one, by Ctrl-C or by what it sends."""

    def __init__(self, error):
        super().__init__(daemon=True)
        self.error = error
        self._main = threading.main_thread().ident
        self._go = threading.Semaphore(0)
        self._after_s = 0.0
        self._n_armed = self._n_struck = 0
        if error is KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been inherited as ignored
        self.start()

    def run(self):
        while self._go.acquire():
            until_s = time.perf_counter() + self._after_s
            while time.perf_counter() < until_s:
                if self._after_s > 3e-4:
                    time.sleep(2e-5)
            if self.error is KeyboardInterrupt:
                signal.pthread_kill(self._main, signal.SIGINT)
            else:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._main), ctypes.py_object(self.error))
            self._n_struck += 1

    def arm(self, after_s):
        self._after_s = after_s
        self._n_armed += 1
        self._go.release()

    def disarm(self):
        """Wait until it has struck, and for what it has raised."""
        try:
            self._wait()
        except self.error:
            self._wait()
            raise

    def _wait(self):
        while self._n_struck < self._n_armed:
            time.sleep(1e-4)
        for _ in range(100):
            pass


SOURCES = {"alarm": Alarm, "ctrlc": lambda: Striker(KeyboardInterrupt), "sent": lambda: Striker(LimitError)}


class Storm:
    """The disturbed calls, and the undisturbed ones after them."""

    def __init__(self, names, source, seed):
        self.plays, self.names, self.random = Plays(), names, random.Random(seed)
        self.source = SOURCES[source]()
        self.n_hits, self.wrong = 0, []
        self.typical_s = {name: self._typical_s(name) for name in names}

    def call(self, name):
        """Make a call, and tell whether it gave what it must."""
        x = np.arange(N, dtype=float) + self.random.random()
        y = np.full(N, self.random.random())
        expected = y + 3.0 * x
        return np.allclose(getattr(self.plays, name)(x, y), expected)

    def _typical_s(self, name):
        times = []
        for _ in range(8):
            before_s = time.perf_counter()
            assert self.call(name), name
            times.append(time.perf_counter() - before_s)
        return sorted(times[3:])[2]

    def disturb(self, name):
        """Make a call that is interrupted, in it or soon after."""
        error = self.source.error
        try:
            try:
                self.source.arm(1.2 * self.random.random() * self.typical_s[name])
                self.call(name)
            finally:
                self.source.disarm()
        except BaseException as raised:
            if not (isinstance(raised, error) or error.__name__ in repr(raised)):  # else in a group, or as a cause
                raise
            self.n_hits += 1

    def clean(self):
        """Wait for what the disturbed call has left under way, and undo what it has entered."""
        while True:
            try:
                omp.taskwait()
                self.plays.clean()
            except (BaseExceptionGroup, omp.DependError, self.source.error):
                continue
            return

    def run(self, n_calls):
        for number in range(n_calls):
            name = self.random.choice(self.names)
            self.disturb(name)
            self.clean()
            try:
                is_right = self.call(name)
            except Exception as error:  # shown with the others
                self.wrong.append(f"call {number}, {name}: {error!r:.300}")
                continue
            if not is_right:
                self.wrong.append(f"call {number}, {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", choices=SOURCES, default="alarm")
    parser.add_argument("--plays", default=",".join(PLAYS))
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--devices", default="sim:1")
    parser.add_argument("--hang-s", type=float, default=100)
    given = parser.parse_args()
    faulthandler.dump_traceback_later(given.hang_s, exit=True)
    failed = []
    sys.unraisablehook = lambda failure: failed.append(f"{failure.exc_value!r} in {failure.object!r}")
    threading.excepthook = lambda failure: failed.append(f"{failure.exc_value!r} in {failure.thread!r}")
    with omp.Runtime(given.devices, num_threads=2) as runtime:
        storm = Storm(given.plays.split(","), given.source, given.seed)
        gc.collect()
        before = omp.device(0).memory_info()[0]
        storm.run(given.calls)
        gc.collect()
        left = [entry for place in runtime.places for entry in place.table.entries()]
        lost = before - omp.device(0).memory_info()[0] if given.devices.startswith("sim") else 0
    faulthandler.cancel_dump_traceback_later()
    print(
        f"{given.source}: {given.calls} calls, {storm.n_hits} interrupted; {len(storm.wrong)} wrong {storm.wrong[:5]}, "
        f"{len(left)} entries left, {lost} bytes lost, {len(failed)} failures elsewhere {failed[:3]}"
    )
    sys.exit(bool(storm.wrong or left or lost or failed))


if __name__ == "__main__":
    main()
