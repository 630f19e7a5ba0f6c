"""Ctrl-C wherever the main thread is: it ends a wait or a body, and leaves a runtime that works."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from tests.profiles import few

_PREAMBLE = """
import faulthandler, itertools, os, random, signal, sys, threading, time
import numpy as np
import offload as omp
from offload import *
from offload.interrupts.frames import frames_of_threads
faulthandler.dump_traceback_later(50, exit=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been inherited as ignored
def strike(): signal.raise_signal(signal.SIGINT)
def strike_when_parked():
    "Have Ctrl-C come once the calling thread sleeps in a wait."
    def follow(main=threading.get_ident()):
        while frames_of_threads()[main].f_code.co_name != "park": time.sleep(0.001)
        time.sleep(0.01)  # a signal that comes before the thread sleeps does not wake it
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=follow).start()
def regions(runtime): return [*runtime._roots, *runtime.engine.frames]
def check(runtime):
    "What has to hold when an interrupt has been caught."
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ran, q = [], object()
    for i in range(50): task(ran.append, depend=[inout((q,))])(i)
    taskwait()
    assert ran == list(range(50)), ran
    x = np.zeros(3)
    target(lambda x: np.add(x, 1, out=x) is None)(x)
    assert (x == 1).all()
    with taskgroup(): task(lambda: None)()
    assert task(lambda: 5)().result() == 5
    barrier()
    assert not [t for frame in regions(runtime) for t in frame.children.live]
    print("usable", flush=True)
"""


def python(program: str, *, status: int = 0, **env: str) -> tuple[str, str]:
    """Run a program in a fresh interpreter and return what it wrote to stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-c", _PREAMBLE + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "OFFLOAD_DEVICES": "sim", **env},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


# -- bodies -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("wait", few(2, ["taskwait()", "struck.result()", "barrier()", "taskyield()"]))
def test_an_interrupt_in_a_body_ends_body_and_wait(wait: str) -> None:
    """A body that a wait runs on the main thread is interrupted, and with it the wait; its dependents do not run."""
    stdout, _ = python(f"""
        with Runtime("sim", num_threads=0, check=True) as runtime:
            ran = []
            struck = task(strike, depend=[inout(("q",))])()
            after = task(lambda: ran.append("after"), depend=[inout(("q",))])()
            other = task(lambda: ran.append("other"))()
            try: {wait}
            except KeyboardInterrupt: print("interrupted")
            assert isinstance(struck.exception(), KeyboardInterrupt)
            assert isinstance(after.exception(), DependError)
            taskwait()
            print(ran)
            check(runtime)
    """)
    assert stdout == "interrupted\n['other']\nusable\n"


def test_an_interrupt_in_a_nested_wait_ends_all_of_them() -> None:
    """A wait inside of a body is interrupted, which ends the body and the waits around it."""
    stdout, _ = python("""
        def leaf():
            print("x")
            strike_when_parked()
        def outer(depth):
            if depth: task(outer)(depth - 1)
            else: task(leaf, detach=event)()
            taskwait()
            print("not reached")
        with Runtime("none", num_threads=0) as runtime:
            event = Event()
            task(outer)(3)
            try: taskwait()
            except KeyboardInterrupt: print("interrupted")
            event.fulfill()
            taskwait()
        with Runtime("sim") as runtime: check(runtime)
    """)
    assert stdout == "x\ninterrupted\nusable\n"


def test_a_body_may_handle_its_interrupt() -> None:
    """A body that catches the interrupt, its own or that of its wait, goes on, and so does the wait around it."""
    stdout, _ = python("""
        def careful(act):
            try: act()
            except KeyboardInterrupt: return "caught"
        def wait():
            task(strike)()
            taskwait()
        with Runtime("sim", num_threads=0, check=True) as runtime:
            for act in (strike, wait):
                t = task(careful)(act)
                taskwait()
                print(t.result())
            check(runtime)
    """)
    assert stdout == "caught\ncaught\nusable\n"


def test_undeferred_bodies() -> None:
    """An interrupt in the body of a synchronous construct comes out of the construct, and its mappings are released."""
    stdout, _ = python("""
        with Runtime("sim", num_threads=1, check=True) as runtime:
            a = np.zeros(3)
            for call in (lambda: target(lambda a: strike())(a), lambda: task(strike, if_=False)(),
                         lambda: task(strike, final=True)()):
                try: call()
                except KeyboardInterrupt as error: print("interrupted", bool(error.__notes__))
                assert runtime.places[0].table.entries() == ()
                taskwait()
            check(runtime)
    """)
    assert stdout == "interrupted True\n" * 3 + "usable\n"


def test_a_worker_has_no_interrupts() -> None:
    """A `KeyboardInterrupt` that a body raises by itself on a worker is the failure of its task, no more."""
    stdout, _ = python("""
        def body(): raise KeyboardInterrupt("mine")
        with Runtime("sim", num_threads=1, check=True) as runtime:
            held = threading.Event()
            t = task(body)()
            assert isinstance(t.exception(timeout=20), KeyboardInterrupt)
            t = task(body)()
            while not t.done(): time.sleep(0.001)
            try: taskwait()
            except BaseExceptionGroup as group: print(group.exceptions[0].args, not isinstance(group, ExceptionGroup))
            check(runtime)
    """)
    assert stdout == "('mine',) True\nusable\n"


# -- handlers ---------------------------------------------------------------------------------------
def test_the_handler_of_the_program_is_left_alone() -> None:
    """A handler that the program installed is called, where it raises nothing the wait goes on, and it stays."""
    stdout, _ = python("""
        event = Event()
        def mine(number, frame):
            print("mine", flush=True)
            event.fulfill()
        with Runtime("sim", num_threads=1, check=True) as runtime:
            signal.signal(signal.SIGINT, mine)
            t = task(detach=event)(lambda: 7)()
            strike_when_parked()
            taskwait()
            print(t.result(), signal.getsignal(signal.SIGINT) is mine)
            def install(): signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            task(install, if_=False)()
            print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            check(runtime)
    """)
    assert stdout == "mine\n7 True\nTrue\nusable\n"


def test_handlers_after_failures() -> None:
    """Python's handler is back after waits that raise, nested ones too, and at the end of the runtime."""
    stdout, _ = python("""
        default = lambda: signal.getsignal(signal.SIGINT) is signal.default_int_handler
        def outer():
            task(lambda: 1 / 0)()
            taskwait()
        with Runtime("sim", num_threads=0) as runtime:
            task(outer)()
            try: taskwait()
            except ExceptionGroup: print(default())
            try: target(lambda: 1 / 0)()
            except ZeroDivisionError: print(default())
        print(default())
    """)
    assert stdout == "True\n" * 3


# -- the end ----------------------------------------------------------------------------------------
def test_an_interrupted_end_closes_the_runtime() -> None:
    """Ctrl-C at the end of a runtime ends its wait; the runtime is closed, and process and other runtimes go on."""
    stdout, stderr = python("""
        try:
            with Runtime("sim", num_threads=1) as runtime:
                event = Event()
                task(detach=event, name="open")(lambda: None)()
                a = np.zeros(3)
                target(nowait=True)(lambda a: None)(a).result()
                strike_when_parked()
        except KeyboardInterrupt: print("interrupted")
        try:
            with runtime: pass
        except RuntimeClosedError: print("closed")
        event.fulfill()
        with Runtime("sim", num_threads=1) as runtime: check(runtime)
    """)
    assert stdout == "interrupted\nclosed\nusable\n"
    assert "the end of the runtime was interrupted. It waits for:\n  open-" in stderr


def test_an_interrupted_entry_leaves_nothing_mapped() -> None:
    """A ``target_data`` whose entry is interrupted while it waits has mapped nothing in the end."""
    stdout, _ = python("""
        with Runtime("sim", num_threads=1, check=True) as runtime:
            a, event = np.zeros(3), Event()
            task(detach=event, depend=[inout(a)])(lambda: None)()
            strike_when_parked()
            try:
                with target_data(map=[tofrom(a)], depend=[inout(a)]): print("not reached")
            except KeyboardInterrupt: print("interrupted")
            event.fulfill()
            taskwait()
            print(runtime.places[0].table.entries())
            check(runtime)
    """)
    assert stdout == "interrupted\n()\nusable\n"


def test_a_computed_graph_is_interrupted() -> None:
    """Ctrl-C during `compute` ends it once what was started is complete; the graph can be computed again."""
    stdout, _ = python("""
        with Runtime("sim", num_threads=1, check=True) as runtime:
            strikes = [True]
            def body():
                if not recording and strikes and strikes.pop(): strike()
            recording = True
            with record() as graph:
                for _ in range(3): task(body, depend=[inout(("q",))])()
            taskwait()
            recording = False
            try: graph.compute(scheduler="synchronous")
            except KeyboardInterrupt: print("interrupted")
            print(len(graph.compute(scheduler="synchronous")))
            check(runtime)
    """)
    assert stdout.startswith("interrupted\n")
    assert stdout.endswith("usable\n")


# -- anywhere ---------------------------------------------------------------------------------------
_STORM = """
rnd, end, caught, n_run, events = random.Random({seed}), time.monotonic() + {seconds}, 0, 0, []
ready, over = threading.Event(), threading.Event()
order, tick, a = {{i: [] for i in range(4)}}, itertools.count(), np.zeros(64)
runtime = Runtime("sim", num_threads={num_threads})

@task
def plain():
    global n_run
    n_run += 1
@task
def note(i, n): order[i].append(n)
@task
def nested(n):
    for _ in range(n): plain()
    taskwait()
@target
def add(a): a += 1

def chain(n=20):
    for _ in range(n):
        i = rnd.randrange(4)
        note.options(depend=[inout((i,))])(i, next(tick))
def waiting(): chain(); taskwait()
def independent():
    for _ in range(30): plain()
    taskwait()
def inside():
    for _ in range(4): nested(5)
    taskwait()
def grouped():
    with taskgroup(): chain(8); nested(3)
def results(): plain().result(); nested(4).result(); plain().result(timeout=30)
def everything(): nested(4); chain(4); barrier()
def undeferred(): chain(4); note.options(depend=[inout((1,))], if_=False)(1, next(tick))
def device():
    add(a)
    for _ in range(2): add.options(nowait=True, depend=[inout(a)])(a)
    taskwait()
def mapped():
    with target_data(map=[tofrom(a)]): add(a)
def throttled():
    for _ in range(1200): plain()
    taskwait()
def detached():
    event = Event(); events.append(event)
    t = task(detach=event)(lambda: None)()
    event.fulfill()
    t.result()

def storm():
    ready.wait()  # nobody catches them before
    while time.monotonic() < end or caught < {least}:
        time.sleep(rnd.random() * 0.006)
        os.kill(os.getpid(), signal.SIGINT)
    over.set()
def play():
    global caught
    ready.set()
    while not over.is_set():  # CPython 3.11 can take a thread for dead if an interrupt falls into is_alive()
        try: rnd.choice([{play}])()
        except KeyboardInterrupt: caught += 1
        except (BaseExceptionGroup, DependError): pass  # dependents of bodies that were interrupted

def outlast(depth):  # an interrupt between two turns of this loop is for the loop around it
    while True:
        try:
            outlast(depth - 1) if depth else play()
            time.sleep(0.02)
            return
        except KeyboardInterrupt: pass

class Quiet:
    def write(self, text): return len(text)
    def flush(self): pass

with runtime:
    shown, sys.stderr = sys.stderr, Quiet()
    thread = threading.Thread(target=storm)
    thread.start()
    outlast(3)
    sys.stderr = shown
    for event in events:
        if not event.is_fulfilled: event.fulfill()
    try: barrier()  # the children of bodies that were interrupted too
    except BaseExceptionGroup: pass
    for i, seen in order.items(): assert seen == sorted(seen), (i, seen)
    before = n_run
    for _ in range(100): plain()
    taskwait()
    assert n_run == before + 100
    check(runtime)
thread.join()
print(threading.active_count())
"""

_PLAYS = {
    "generation": "waiting, independent, throttled",
    "waits": "inside, grouped, results, everything",
    "devices": "device, undeferred, detached",
    "all": "waiting, independent, inside, grouped, results, everything, undeferred, device, throttled, detached",
}


@pytest.mark.parametrize(
    ("play", "num_threads"), few(1, [("all", 0), ("generation", 2), ("waits", 2), ("devices", 1)], are_rows=True)
)
def test_a_storm_of_interrupts(play: str, num_threads: int) -> None:
    """Interrupts every few milliseconds, wherever they fall, lose no task and no dependence, and nothing hangs."""
    values: dict[str, Any] = {"seed": 1, "seconds": 1.0, "least": 50, "num_threads": num_threads, "play": _PLAYS[play]}
    stdout, _ = python(_STORM.format(**values))
    assert stdout == "usable\n1\n"


# -- handlers that raise ------------------------------------------------------------------------------
def test_what_other_handlers_raise_loses_no_completion() -> None:
    """A handler that raises while the main thread looks ends its wait; all device work completes, Ctrl-C works."""
    stdout, _ = python("""
        import contextlib
        import offload.runtime.runtime
        from tests.null_device import NullDevice, NullEvent

        class Held(NullEvent):
            def __init__(self): pass
            done = property(lambda self: not is_held)
        class Device(NullDevice):
            def record(self, stream): return Held()
        offload.runtime.runtime.open_devices = lambda *_, **__: [Device(0)]
        is_held = is_waiting = False
        n_struck = 0

        def raises(*_):
            global n_struck, is_waiting
            if is_waiting:
                n_struck += 1
                is_waiting = False
                raise TimeoutError
        signal.signal(signal.SIGALRM, raises)
        with Runtime("null", num_threads=1, check=True) as runtime:
            runtime.engine.look = runtime.gate.look  # as with CUDA
            work = target(lambda: None)
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            while n_struck < 200:
                is_held = True
                tasks = [work.options(nowait=True, depend=[inout((i % 7,))])() for i in range(100)]
                is_held = False
                while not all(t.done() for t in tasks):
                    with contextlib.suppress(TimeoutError):
                        is_waiting = True
                        taskwait()
                        is_waiting = False
                is_waiting = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            try: strike()
            except KeyboardInterrupt: print("interrupted")
            taskwait()
            print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    """)
    assert stdout == "interrupted\nTrue\n"


@pytest.mark.parametrize(
    ("cut", "acts"),
    [
        ("raise_shield(runtime.scope())", "plain, wait, plain"),
        ("raise_shield(runtime.scope())", "wait, plain, wait"),
    ],
)
def test_a_shield_that_was_cut_short(cut: str, acts: str) -> None:
    """Where code in C has raised in the library's steps, so that a shield stays up, the next Ctrl-C makes up for it."""
    stdout, _ = python(f"""
        from offload.interrupts import shields
        with Runtime("none", num_threads=0) as runtime:
            def plain(): strike()
            def wait(): task(strike)(); taskwait()
            shields.{cut}
            for act in ({acts}):
                try: act()
                except KeyboardInterrupt: print("interrupted")
            check(runtime)
    """)
    assert stdout == "interrupted\n" * 3 + "usable\n"


def test_a_handler_installed_in_a_body_stays() -> None:
    """One that calls the handler it found ends a body, whatever frame it hands on, and what is no body as well."""
    stdout, _ = python("""
        def install(frame_of):
            old = signal.getsignal(signal.SIGINT)
            def mine(number, frame): old(number, frame_of(frame))
            signal.signal(signal.SIGINT, mine)
            return mine
        with Runtime("none", num_threads=0) as runtime:
            def body():
                outer = signal.getsignal(signal.SIGINT)
                install(lambda frame: None)
                try: strike()
                finally: signal.signal(signal.SIGINT, outer)
            task(body)()
            try: taskwait()
            except KeyboardInterrupt: print("interrupted")
            t = task(install)(lambda frame: frame)
            taskwait()
            for _ in range(2):
                try: strike()
                except KeyboardInterrupt: print("interrupted", signal.getsignal(signal.SIGINT) is t.result())
    """)
    assert stdout == "interrupted\n" + "interrupted True\n" * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_a_body_forked_is_interrupted() -> None:
    """A child forked by a worker while the main thread waits has left that wait behind."""
    stdout, _ = python("""
        with Runtime("none", num_threads=1) as runtime:
            begun = threading.Event()
            def body():
                begun.set()
                time.sleep(0.1)  # until the main thread waits
                child = os.fork()
                if not child:
                    try:
                        strike()
                    except KeyboardInterrupt:
                        os._exit(7)
                    os._exit(0)
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            t = task(body)()
            begun.wait()
            taskwait()
            print(t.result())
    """)
    assert stdout == "7\n"
