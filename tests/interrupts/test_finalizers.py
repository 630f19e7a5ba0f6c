"""Finalizers that use the library, wherever they come: put off where they must not run, refused at the end."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest

import offload as omp
from offload import acc, from_, inout, release, to, tofrom
from tests.patience import until
from tests.profiles import few

PROGRAM = """
import atexit, gc, sys, threading
import numpy as np
import offload as omp
from offload import release, to, tofrom

class Held:
    def __init__(self):
        self.x = np.ones(1000)
        omp.target_enter_data(map=[to(self.x)])

    def __del__(self):
        omp.target_exit_data(map=[release(self.x)])

class HeldInCycle(Held):
    def __init__(self):
        super().__init__()
        self.me = self
"""


def run(program: str, *, status: int = 0, limit_s: float = 60, **env: str) -> tuple[str, str]:
    """Run a program in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        env={**os.environ, "OFFLOAD_DEVICES": "sim", **env},
    )
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


class Held:
    """Maps an array for as long as it lives; in a cycle, so that the collector ends it."""

    def __init__(self, *, in_cycle=True):
        self.x = np.ones(100)
        omp.target_enter_data(map=[to(self.x)])
        self.me = self if in_cycle else None

    def __del__(self):
        omp.target_exit_data(map=[release(self.x)])


@pytest.fixture
def runtime():
    with omp.Runtime("sim", num_threads=2, check=True) as runtime:
        yield runtime
        gc.collect()


@omp.target
def increment(a):
    a += 1


# -- the end of the process ------------------------------------------------------------------------


def test_a_cycle_does_not_keep_the_process_from_its_end():
    """Garbage whose finalizer unmaps is neither a leak nor a hang at the end of the process."""
    stdout, stderr = run("HeldInCycle() and print('done', flush=True)")
    assert stdout == "done\n"
    assert not stderr


def test_a_finalizer_after_the_end_is_refused():
    """An object that lives until the interpreter's end is told that the runtimes are closed."""
    _, stderr = run("held = Held()")
    assert "RuntimeClosedError: the process ends" in stderr
    assert "ImportError" not in stderr


def test_a_task_of_a_late_exit_function_is_refused():
    """A task that is made when the process's runtimes have been closed raises, and is not lost."""
    program = """
    import atexit
    def late():
        import offload as omp
        try:
            omp.task(print)("ran")
        except omp.RuntimeClosedError:
            print("refused")
        try:
            omp.Runtime("sim")
        except omp.RuntimeClosedError:
            print("refused")
    atexit.register(late)
    import offload as omp
    omp.get_num_devices()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "refused\nrefused\n"
    assert not done.stderr


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_runtime_that_nobody_closes_loses_nothing(num_threads):
    """Tasks of a runtime that was only made run before the process ends, and their failures are printed."""
    program = f"""
    runtime = omp.Runtime("sim", num_threads={num_threads})
    omp.task(print)("ran")
    omp.task(lambda: 1 / 0)()
    """
    stdout, stderr = run(program, status=1)
    assert stdout == "ran\n"
    assert stderr.count("ZeroDivisionError") == 1


@pytest.mark.parametrize("construct", ["task(lambda: None)()", "target(nowait=True)(lambda a: None)(np.zeros(3))"])
def test_a_daemon_thread_that_goes_on_does_not_keep_the_process(construct):
    """Tasks that another thread goes on generating at the end of the process are refused, not waited for."""
    stdout, _ = run(f"""
    began = threading.Event()
    def produce():
        while True:
            omp.{construct}
            began.set()
    threading.Thread(target=produce, daemon=True).start()
    began.wait()
    @omp.task
    def outer():
        omp.task(print)("inner")
    outer()
    """)
    assert stdout == "inner\n"


# -- the collector, anywhere -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "seconds", [*few(1, [0.5, 2]), pytest.param(600, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
def test_the_collector_at_any_moment(seconds):
    """A program with finalizers that map and unmap goes on however often the collector runs, and leaves nothing."""
    stdout, stderr = run(
        f"""
        import faulthandler, time
        from concurrent.futures import Future
        from offload import acc, inout, from_
        faulthandler.dump_traceback_later({seconds} + 50, exit=True)
        gc.set_threshold(70, 5, 5)
        until_s = time.monotonic() + {seconds}

        class Frees(Held):
            def __init__(self):
                self.d = omp.target_alloc(100)
                self.x = np.ones(10)
                self.event = omp.Event()
                acc.enter_data(copyin=[self.x])
                self.me = self
                self.task = omp.task(detach=self.event)(lambda: None)()
            def __del__(self):
                omp.target_free(self.d)
                acc.exit_data(delete=[self.x])
                self.event.fulfill()
                omp.task(lambda: None)()

        @omp.target(map=[tofrom("a")])
        def increment(a):
            junk()
            a += 1

        @omp.task
        def add_one(a):
            junk()
            a += 1

        def junk():
            for i in range(20):
                cycle = [i]
                cycle.append(cycle)
            HeldInCycle() if omp.current_task() is None else None

        def work():
            a, b, n = np.zeros(100), np.zeros(10), 0
            while n == 0 or time.monotonic() < until_s:  # a thread may begin late
                HeldInCycle()
                Frees()
                with omp.target_data(map=[tofrom(a)]):
                    increment(a)
                    increment.options(nowait=True, depend=[inout(a)])(a)
                with omp.taskgroup():
                    add_one.options(depend=[inout(b)])(b)
                with acc.data(copy=[b]):
                    acc.update(self_=[b])
                omp.target_update(to=[a], from_=[b])
                n += 1
            assert (a == 2 * n).all(), (a[0], n)
            assert (b == n).all(), (b[0], n)
            counts.append(n)

        counts = []
        with omp.Runtime("sim", check=True, num_threads=2):
            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            work()
            for thread in threads:
                thread.join()
            gc.collect()  # the last objects, whose events tasks wait for
        print(min(counts) > 0)
        """,
        limit_s=seconds + 60,
        OFFLOAD_HANG_S="10",
    )
    assert stdout == "True\n"
    assert not stderr


def test_a_finalizer_in_a_target_body_is_put_off(runtime):
    """What an object asks for that dies in a target body is done after the region, whoever ends it."""
    held = [Held(), Held(in_cycle=False)]
    arrays = [one.x for one in held]

    @omp.target
    def body(a):
        held.clear()
        gc.collect()
        a += 1

    a = np.zeros(3)
    body(a)
    assert (a == 1).all()
    assert not any(omp.target_is_present(array) for array in arrays)


def test_a_construct_in_a_target_body_is_still_refused(runtime):
    """A construct that no finalizer calls remains an error in a target body."""
    x = np.ones(3)
    with pytest.raises(omp.UsageError, match="inside of the target body"):
        omp.target(lambda: omp.target_exit_data(map=[release(x)]))()


@pytest.mark.parametrize("deferred", ["task", "target"])
def test_an_argument_that_dies_with_its_task(runtime, deferred):
    """An object that a task held last is unmapped, whichever thread completes the task."""
    construct = omp.task if deferred == "task" else omp.target(nowait=True)
    arrays = []

    @construct
    def body(held):
        pass

    for _ in range(20):
        held = Held(in_cycle=False)
        arrays.append(held.x)
        body(held)
        del held
    omp.taskwait()
    assert not any(omp.target_is_present(array) for array in arrays)


def test_a_thousand_objects_die_with_their_tasks(runtime):
    """Finalizers do not nest: as many objects as there are may die in the waits of each other's finalizers."""
    gate = omp.Event()
    token = ("gate",)
    omp.task(detach=gate, depend=[omp.out(token)])(lambda: None)()
    run_one = omp.task(depend=[omp.in_(token)])(lambda held: None)
    arrays = []
    for _ in range(1000):
        held = Held(in_cycle=False)
        arrays.append(held.x)
        run_one(held)
        del held
    gate.fulfill()
    omp.taskwait()
    assert not any(omp.target_is_present(array) for array in arrays)


def test_a_weak_reference_unmaps(runtime):
    """``weakref.finalize`` is a finalizer as ``__del__`` is."""

    class Owner:
        pass

    owner, x = Owner(), np.ones(3)
    owner.me = owner
    omp.target_enter_data(map=[to(x)])
    weakref.finalize(owner, omp.target_exit_data, map=[release(x)])
    del owner
    omp.target(lambda a: gc.collect() and None)(np.zeros(3))
    assert not omp.target_is_present(x)


def test_a_finalizer_of_the_program_runs_at_once(runtime):
    """Where the program drops the last reference itself, what the finalizer asks for is done on return."""
    a = np.zeros(3)
    d = np.ones(3)

    class Copies:
        def __init__(self):
            omp.target_enter_data(map=[to(d)])

        def __del__(self):
            omp.target_exit_data(map=[from_(d)])

    copies = Copies()
    increment(d)
    assert (d == 1).all()
    del copies
    assert (d == 2).all()
    assert (a == 0).all()


def test_an_event_fulfilled_by_the_collector(runtime):
    """A finalizer that the collector runs fulfils an event that another thread waits for."""

    class Fulfils:
        def __init__(self, event):
            self.event, self.me = event, self

        def __del__(self):
            self.event.fulfill()

    event = omp.Event()
    task = omp.task(detach=event)(lambda: None)()
    Fulfils(event)
    thread = threading.Thread(target=gc.collect)
    thread.start()
    task.result()
    thread.join()
    assert task.done()


def test_a_wait_in_a_collected_finalizer_is_refused(runtime, monkeypatch):
    """A wait cannot be put off: it raises, and the interpreter shows that as for every finalizer."""
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: shown.append(args.exc_value))

    class Waits:
        def __init__(self):
            self.me = self

        def __del__(self):
            omp.taskwait()

    Waits()
    gc.collect()
    assert [type(error) for error in shown] == [omp.UsageError]


def test_memory_held_by_garbage_is_found(tmp_path):
    """A launch that finds no memory collects, and what finalizers then unmap makes room for it."""
    with omp.Runtime("sim", num_threads=1, check=True, env={"OFFLOAD_SIM_MEMORY": "1000000"}):

        class Large:
            def __init__(self):
                self.x = np.ones(100_000)
                omp.target_enter_data(map=[to(self.x)])
                self.me = self

            def __del__(self):
                omp.target_exit_data(map=[release(self.x)])

        gc.disable()
        try:
            for _ in range(5):
                Large()
                a = np.zeros(100_000)
                increment(a)
                assert (a == 1).all()
        finally:
            gc.enable()


def test_garbage_is_no_leak():
    """At the end of a runtime a mapping of an object that nobody can reach is not left over."""
    with omp.Runtime("sim", check=True):
        Held()


def test_the_order_of_what_is_put_off(runtime):
    """What one finalizer asks for is done in the order in which it asked."""
    x = np.zeros(3)

    class Moves:
        def __init__(self):
            self.me = self

        def __del__(self):
            omp.target_enter_data(map=[to(x)])
            increment(x)
            omp.target_exit_data(map=[from_(x)])

    Moves()
    gc.collect()
    omp.task(lambda: None, depend=[inout(x)])()
    omp.taskwait()
    assert not omp.target_is_present(x)
    assert (x == 1).all()


def test_openacc_has_finalizers_too(runtime):
    """Operations of OpenACC are put off as OpenMP's constructs are."""

    class Enters:
        def __init__(self):
            self.x = np.ones(10)
            acc.enter_data(copyin=[self.x])
            self.me = self

        def __del__(self):
            acc.exit_data(delete=[self.x])

    x = Enters().x
    acc.parallel(lambda a: gc.collect() and None)(np.zeros(3))
    assert not acc.is_present(x)


@pytest.mark.parametrize("where", ["program", "target body", "another thread"])
def test_a_suspended_generator_is_collected(runtime, where):
    """A generator that dies in a ``target_data`` block leaves it, with its copy back, wherever it is collected."""

    def pieces(a):
        with omp.target_data(map=[tofrom(a)]):
            increment(a)
            yield

    a = np.zeros(3)
    cycle = [pieces(a)]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    if where == "program":
        gc.collect()
    elif where == "target body":
        omp.target(lambda b: gc.collect() and None)(np.zeros(3))
    else:
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()
    assert not omp.target_is_present(a)
    assert (a == 1).all()
    with pytest.raises(omp.UsageError, match="no taskgroup"):
        omp.cancel("taskgroup")


# -- what is no finalizer, and what comes in one ---------------------------------------------------


def test_a_finalizer_that_generates_and_then_waits(runtime):
    """What a finalizer in the library's own steps asks for runs after them, and a block there is refused."""
    ran, errors = [], []
    log = omp.task(lambda: ran.append("log"))
    s = np.zeros(8)

    class Buffer:
        def __del__(self):
            log()
            try:
                with omp.target_data(map=[tofrom(s)]):
                    pass
            except omp.UsageError as error:
                errors.append(str(error))

    omp.task(lambda buffer: None)(Buffer())
    omp.taskwait()
    omp.barrier()
    assert ran == ["log"]
    assert len(errors) <= 1
    assert all("finalizer" in error for error in errors)


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_runtime_closed_by_what_a_put_off_call_helps_with(num_threads):
    """A put-off call may wait, help with a task, and that may close another runtime."""
    x = np.ones(10)

    def other(x):
        with omp.Runtime("sim", num_threads=0):
            pass

    class Leaves:
        def __init__(self):
            self.me = self
            omp.target_enter_data(map=[to(x)])

        def __del__(self):
            omp.target_exit_data(map=[release(x)], depend=[inout(x)])

    with omp.Runtime("sim", num_threads=num_threads, check=True):
        Leaves()
        omp.task(other, depend=[inout(x)])(x)
        gc.collect()
        omp.taskwait()
        assert not omp.target_is_present(x)


@pytest.mark.parametrize("num_threads", [0, 2])
def test_callbacks_of_a_future_are_the_programs(num_threads):
    """A callback of a task's future generates a task as any code does."""
    event, made = omp.Event(), []
    with omp.Runtime("sim", num_threads=num_threads):
        task = omp.task(detach=event)(lambda: None)()
        task.as_future().add_done_callback(lambda _: made.append(omp.task(lambda: 1)()))
        event.fulfill()
        task.result()
        until(lambda: made)  # a callback comes after the completion that it tells of
        omp.barrier()
        assert [one.result() for one in made] == [1]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
def test_a_signal_handler_is_no_finalizer(runtime):
    """A handler that comes in a wait asks and maps as any code does."""
    a, event, seen = np.zeros(3), omp.Event(), []

    def handler(number, frame):
        with omp.target_data(map=[tofrom(a)]):
            seen.append(omp.target_is_present(a))
            increment(a)
        event.fulfill()

    former = signal.signal(signal.SIGALRM, handler)
    try:
        task = omp.task(detach=event)(lambda: None)()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        task.result()
    finally:
        signal.signal(signal.SIGALRM, former)
    assert seen == [True]
    assert (a == 1).all()


COLLECTING = """
import ctypes, gc, signal, sys, threading, time
import offload as omp

class LimitError(Exception):
    pass

def limit(number, frame):
    raise LimitError

def send(main=threading.get_ident()):
    time.sleep(0.002)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(LimitError))

if sys.argv[1] == "used":
    omp.taskwait()
signal.signal(signal.SIGALRM, limit)
large, n_raised = [[i] for i in range(500_000)], 0
for _ in range(20):
    until_s = time.perf_counter() + 30  # the exception ends it
    try:
        if sys.argv[2] == "sent":
            threading.Thread(target=send).start()
        else:
            signal.setitimer(signal.ITIMER_REAL, 0.002)
        gc.collect()
        while time.perf_counter() < until_s:
            pass
        break
    except LimitError:
        n_raised += 1
print(n_raised)
"""


@pytest.mark.parametrize("source", few(1, ["signal", "sent"]))
@pytest.mark.parametrize("use", few(1, ["used", "imported"]))
def test_an_interruption_that_comes_during_a_collection(use, source):
    """Nothing of the library lies in between the collection and the program's code, where CPython would drop it."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECTING, use, source], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("20", "")
