"""Waits that nothing moves say so, and processes end whatever is outstanding."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time

import pytest

from tests.profiles import few


def python(program: str, *, status: int = 0, **env: str) -> tuple[str, str]:
    """Run a program in a fresh interpreter and return what it wrote to stdout and stderr."""
    preamble = "import os, signal, sys, threading, time\nimport numpy as np\nfrom offload import *\n"
    done = subprocess.run(
        [sys.executable, "-c", preamble + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "OFFLOAD_DEVICES": "sim", **env},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


# -- messages ---------------------------------------------------------------------------------------
def test_the_message_tells_the_story_of_each_task() -> None:
    """It has one line a task: key, directive, place, state, and what it waits for: tasks, events with their source."""
    _, stderr = python("""
        from concurrent.futures import Future
        class Spy:  # ends the wait when the message has come
            def write(self, text):
                sys.__stderr__.write(text)
                if not open_event.is_fulfilled:
                    open_event.fulfill()
                    future.set_result(None)
                    running.set()
            def flush(self): pass
        open_event, promised, future, running, began = Event(), Event(), Future(), threading.Event(), threading.Event()
        promised.fulfill_on(future)
        def body():
            began.set()
            running.wait(20)
        with Runtime("sim", num_threads=2, env={"OFFLOAD_HANG_S": "0.2"}):
            detached = [
                task(detach=open_event, name="opened", depend=[inout(("a",))])(lambda: None)(),
                task(detach=promised, name="promised")(lambda: None)(),
            ]
            task(name="successor", depend=[in_(("a",))])(lambda: None)()
            task(body, name="holder", depend=[mutexinoutset(("m",))])()
            began.wait(20)
            while {one.state for one in detached} != {"detached"}: taskyield()
            task(lambda: None, name="excluded", depend=[mutexinoutset(("m",))])()
            sys.stderr = Spy()
            taskwait()
            sys.stderr = sys.__stderr__
    """)
    lines = stderr.splitlines()
    assert lines[0] == "offload: taskwait has waited for 0.2 s in which no task began or ended. It waits for:"
    story = {re.split(r"-\d+ ", line.strip())[0]: line for line in lines[1:]}
    assert set(story) == {"opened", "promised", "successor", "holder", "excluded"}
    assert re.search(r"\(task, .*:\d+\): detached; waits for its event, <Event open>$", story["opened"])
    assert re.search(r"detached; waits for its event, <Event to be fulfilled by .*Future at ", story["promised"])
    assert re.search(r": waiting; waits for opened-\d+$", story["successor"])
    assert story["holder"].endswith(": running; waits for nothing")
    assert re.search(r": waiting; waits for holder-\d+, which excludes it$", story["excluded"])


def test_the_message_names_a_construct_that_is_not_deferred() -> None:
    """It has the directive, the name and the line of the call that blocks."""
    _, stderr = python("""
        class Spy:  # ends the wait when the message has come
            def write(self, text):
                sys.__stderr__.write(text)
                if not event.is_fulfilled: event.fulfill()
            def flush(self): pass
        with Runtime("none", env={"OFFLOAD_HANG_S": "0.1"}):
            event = Event()
            task(detach=event, name="held", depend=[out(("a",))])(lambda: None)()
            sys.stderr = Spy()
            task(lambda: None, name="here", depend=[in_(("a",))], if_=False)()
            sys.stderr = sys.__stderr__
    """)
    assert re.search(r"^offload: task 'here' at <string>:14 has waited for 0.1 s in which no task", stderr)


def test_the_message_comes_again_at_an_interrupt() -> None:
    """Ctrl-C in a wait that hangs prints what it waits for once more, and ends it."""
    _, stderr = python("""
        told = threading.Event()
        class Spy:
            def write(self, text):
                sys.__stderr__.write(text)
                told.set()
            def flush(self): pass
        def strike():
            told.wait(20)
            os.kill(os.getpid(), signal.SIGINT)
        with Runtime("none", env={"OFFLOAD_HANG_S": "0.1"}):
            event = Event()
            task(detach=event, name="held")(lambda: None)()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.stderr = Spy()
            threading.Thread(target=strike).start()
            try: taskwait()
            except KeyboardInterrupt: event.fulfill()
            sys.stderr = sys.__stderr__
    """)
    assert stderr.count("has waited for 0.1 s in which no task began or ended. It waits for:\n  held-") >= 1
    assert stderr.count("taskwait was interrupted. It waits for:\n  held-") == 1


def test_nothing_is_printed_while_tasks_run() -> None:
    """A wait longer than ``OFFLOAD_HANG_S`` in which tasks begin now and then says nothing."""
    stdout, stderr = python("""
        from offload.tasks.parker import Parker
        park, n_timeouts = Parker.park, 0
        def until_something_moves(parker, timeout_s=-1):
            "Have the time of a wait be over when a task has begun or ended, however long that takes."
            global n_timeouts
            if timeout_s != 1000: return park(parker, timeout_s)
            before = runtime.engine.activity
            while True:
                is_woken = park(parker, 0.01)
                if runtime.engine.activity == before:
                    if is_woken: return True
                    continue
                if is_woken: parker.unpark()
                n_timeouts += 1
                return False
        Parker.park = until_something_moves
        with Runtime("none", num_threads=1, env={"OFFLOAD_HANG_S": "1000"}) as runtime:
            def step(n):
                time.sleep(0.02)
                if n: task(step)(n - 1)
                else: last.fulfill()
            last = Event()
            t = task(detach=last)(lambda: None)()
            task(step)(9)
            t.result()
            last = Event()
            t = task(detach=last)(lambda: None)()
            worker = threading.Thread(target=lambda: task(step)(9))
            worker.start()
            taskwait()
            worker.join()
            while not n_timeouts:  # the main thread may have run all by itself
                event = Event()
                t = task(detach=event)(lambda: None)()
                threading.Timer(0.1, event.fulfill).start()
                t.result()
        print("moved")
    """)
    assert (stdout, stderr) == ("moved\n", "")


# -- the end of the process -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("program", "status"),
    few(
        2,
        [
            ("task(detach=Event(), name='abandoned')(lambda: None)(); sys.exit(3)", 3),
            ("task(lambda: task(detach=Event(), name='abandoned')(lambda: None)().result())(); time.sleep(0.1)", 0),
            ("task(detach=Event(), name='abandoned')(lambda: None)()", 0),
            (
                """
                task(detach=Event(), name='abandoned', depend=[out(1)])(lambda: None)()
                task(depend=[in_(1)])(print)()
                """,
                0,
            ),
        ],
        are_rows=True,
    ),
)
def test_the_default_runtime_gives_up(program: str, status: int) -> None:
    """With tasks that nothing moves the process ends after ``OFFLOAD_HANG_S``, names them, and keeps its status."""
    start = time.monotonic()
    _, stderr = python(program, status=status, OFFLOAD_HANG_S="0.3")
    assert time.monotonic() - start < 20
    assert "abandoned" in stderr
    assert "given up" in stderr


def test_the_default_runtime_waits_for_bodies() -> None:
    """A body that runs longer than ``OFFLOAD_HANG_S`` at the end of the process is not given up."""
    stdout, _ = python(
        """
        began = threading.Event()
        task(lambda: (began.set(), time.sleep(1), print("ran", flush=True)))()
        began.wait()
        """,
        OFFLOAD_HANG_S="0.2",
    )
    assert stdout == "ran\n"


_BEGUN = """
begun = threading.Event()
def sleep():
    begun.set()  # on a worker: else the end of the process would wait in this body
    time.sleep(1000)
"""


@pytest.mark.parametrize(
    "program",
    [
        f"{_BEGUN}\nRuntime('sim').__enter__(); task(sleep)(); begun.wait()",
        *few(
            0,
            [
                "Runtime('sim').__enter__(); task(detach=Event())(lambda: None)()",
                "runtime = Runtime('sim', num_threads=4)\nwith runtime: task(lambda: None)()",
                f"{_BEGUN}\nRuntime('sim').__enter__(); target(nowait=True)(sleep)(); begun.wait()",
            ],
        ),
        """
        def produce():
            while True: task(lambda: None)()
        threading.Thread(target=produce, daemon=True).start()
        time.sleep(0.3)
        """,
        """
        runtime = Runtime("sim")
        with runtime:
            def produce():
                while True: task(lambda: None)().result()
            threading.Thread(target=produce, daemon=True).start()
            time.sleep(0.2)
            os._exit(0)
        """,
    ],
)
def test_the_process_ends(program: str) -> None:
    """Nothing that is outstanding keeps the interpreter from its end: open runtimes, workers, threads that go on."""
    python(program, OFFLOAD_HANG_S="0.3")


def test_leaving_inside_of_a_region() -> None:
    """``sys.exit`` inside of a ``with`` waits for the tasks, closes the runtime, and keeps its status."""
    stdout, stderr = python(
        """
        with Runtime("sim", check=True):
            task(lambda: (time.sleep(0.1), print("ran", flush=True)))()
            sys.exit(3)
        """,
        status=3,
    )
    assert stdout == "ran\n"
    assert not stderr


def test_unseen_failures_are_printed_once() -> None:
    """What failed and nobody saw is printed at the end of the process, once each; what was seen is not."""
    _, stderr = python(
        """
        def fail(text): raise ValueError(text)
        seen = task(fail)("seen")
        task(fail)("unseen")
        seen.exception()
        """,
        status=1,
    )
    assert stderr.count("ValueError: unseen") == 1
    assert "ValueError: seen" not in stderr


def test_a_forked_child_ends() -> None:
    """A child that was forked while tasks ran ends without a wait for them, and so does the parent with it."""
    stdout, _ = python("""
        event = Event()
        task(detach=event)(lambda: None)()
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            event.fulfill()
            print("parent", flush=True)
        else:
            print(task(lambda: "child")().result(), flush=True)
    """)
    assert stdout == "child\nparent\n"


def test_a_forked_child_waits_for_no_lock_of_its_parent() -> None:
    """Locks that another thread of the parent has at the fork are free in the child."""
    stdout, _ = python("""
        import contextlib
        from offload import atomic
        from offload.constructs.clauses import reductions
        from offload.devices.sim.stream import SimEvent
        from offload.tasks import task as tasks
        def locks(): return atomic._lock, reductions._adding, SimEvent._listening, tasks._adding_callback
        held, is_over = threading.Event(), threading.Event()
        def hold():
            with contextlib.ExitStack() as stack:
                for lock in locks(): stack.enter_context(lock)
                held.set()
                is_over.wait(50)
        threading.Thread(target=hold).start()
        held.wait()
        child = os.fork()
        if not child: os._exit(sum(not lock.acquire(timeout=1) for lock in locks()))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        is_over.set()
    """)
    assert stdout == "0\n"


def test_one_failure_of_a_thousand() -> None:
    """The dependents of one task of a thousand do not run, all others do, and the group names task, file and line."""
    stdout, _ = python("""
        ran = []
        @task
        def body(i):
            if i == 500: raise ValueError("on purpose")
            ran.append(i)
        with Runtime("sim"):
            for i in range(1000): body.options(depend=[inout((i // 10,))])(i)
            try: taskwait()
            except ExceptionGroup as group:
                (error,) = group.exceptions
                print(repr(error), error.__notes__[0], sep="; ")
        print(sorted(set(range(1000)) - set(ran)))
    """)
    first, second = stdout.splitlines()
    assert re.fullmatch(r"ValueError\('on purpose'\); in task 'body' \(<string>:\d+\)", first)
    assert second == str(list(range(500, 510)))
