"""Beginning and end of runtimes, threads, processes, signals, memory over time."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref

import numpy as np
import pytest

import offload as omp
from offload import (
    CleanupWarning,
    DependError,
    LeakError,
    RuntimeClosedError,
    UsageError,
    alloc,
    from_,
    in_,
    inout,
    to,
    tofrom,
)
from offload.devices.sim.device import SimEvent
from tests.conftest import our_threads
from tests.profiles import few


def python(program, *, status=0, timeout_s=60, **env):
    """Run a program in a fresh interpreter and return what it wrote to stdout and stderr."""
    preamble = "import os, signal, sys, threading\nimport numpy as np\nimport offload as omp\nfrom offload import *\n"
    done = subprocess.run(
        [sys.executable, "-c", preamble + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "OFFLOAD_DEVICES": "sim", **env},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


# -- the end of a runtime ---------------------------------------------------------------------------
@pytest.mark.parametrize("num_threads", [0, 1, 4])
def test_exit_waits_for_tasks(num_threads):
    """The end of a runtime waits for all tasks, those of bodies that nobody waited for as well."""
    ran = []

    @omp.task
    def inner():
        ran.append("inner")

    @omp.task
    def outer():
        inner()
        inner()
        ran.append("outer")

    a = np.zeros(4)
    with omp.Runtime("sim", num_threads=num_threads, check=True):
        outer()
        omp.target(nowait=True)(lambda a: (np.add(a, 1, out=a), None)[1])(a)
    assert sorted(ran) == ["inner", "inner", "outer"]
    assert (a == 1).all()
    assert not our_threads()


def test_exit_waits_for_events():
    """A task whose event is open is outstanding; a foreign thread ends the wait."""
    event, reached = omp.Event(), threading.Event()

    def fulfil():
        reached.wait()
        event.fulfill()

    thread = threading.Thread(target=fulfil)
    thread.start()
    with omp.Runtime("sim", check=True):
        task = omp.task(detach=event)(reached.set)()
    assert task.state == "complete"
    thread.join()


def test_leaks_are_reported():
    """What is left mapped or allocated is a warning, and with ``check`` an error; the device is closed all the same."""
    a = np.zeros(10)
    with pytest.warns(CleanupWarning, match=r"float64\[10\] mapped on device 0"), omp.Runtime("sim"):
        omp.target_enter_data(map=[to(a)])
    with pytest.raises(LeakError, match="target_alloc"), omp.Runtime("sim", check=True) as runtime:
        omp.target_alloc(8)
    gc.collect()
    assert not our_threads()
    assert runtime.places[0].device.live_nbytes() == 0


def test_errors_in_flight_are_not_replaced():
    """An exception in flight goes on, with failures and leaks as notes."""
    with pytest.raises(KeyError) as caught, omp.Runtime("sim", check=True):
        omp.target_enter_data(map=[alloc(np.zeros(10))])
        omp.task(lambda: 1 / 0)()
        raise KeyError("mine")
    notes = "\n".join(caught.value.__notes__)
    assert "float64[10]" in notes
    assert "ZeroDivisionError" in notes or "1 task failed" in notes


def test_failures_nobody_saw_are_raised_at_the_end():
    """Failures of tasks, and of tasks that those generated, reach whoever closes the runtime."""

    @omp.task
    def outer():
        omp.task(lambda: (0,).index(1))()

    with pytest.raises(ExceptionGroup) as caught, omp.Runtime("sim", check=True):
        outer()
        omp.task(lambda: 1 / 0)()
    assert {type(error) for error in caught.value.exceptions} == {ValueError, ZeroDivisionError}


def test_failures_that_were_seen_are_not_raised_again():
    """``result`` and ``exception`` make a failure seen."""
    with omp.Runtime("sim", check=True):
        first, second = omp.task(lambda: 1 / 0)(), omp.task(lambda: 1 / 0)()
        with pytest.raises(ZeroDivisionError):
            first.result()
        assert isinstance(second.exception(), ZeroDivisionError)


def test_a_closed_runtime_refuses_everything():
    """After the end every construct and routine says that the runtime is closed, and creates nothing."""
    a, event = np.zeros(4), omp.Event()
    with omp.Runtime("sim", check=True) as runtime:
        runtime.close()
        calls = [
            omp.task(lambda: None),
            lambda: omp.target(lambda a: None)(a),
            lambda: omp.target(lambda a: None, nowait=True)(a),
            lambda: omp.target_enter_data(map=[to(a)]),
            lambda: omp.target_alloc(4),
            lambda: omp.target_memcpy(a, np.ones(4)),
            lambda: omp.target_memcpy_rect_async(a, np.ones(4)),
            omp.task(lambda: None, detach=event),
            omp.current_stream,
            omp.stream,
        ]
        for call in calls:
            with pytest.raises(RuntimeClosedError):
                call()
    with pytest.raises(RuntimeClosedError), runtime:
        pass
    runtime.close()
    with omp.Runtime("sim", check=True):
        event.fulfill()
        omp.task(lambda: None, detach=event)().result()


def test_runtimes_are_isolated():
    """Two runtimes have their own devices and data; bodies run in the runtime that their construct belongs to."""
    a = np.zeros(4)
    with omp.Runtime("sim:2", check=True, num_threads=1) as outer:
        omp.target_enter_data(map=[to(a)], device=1)
        waiting = omp.task(lambda: (omp.current_runtime(), omp.get_num_devices(), omp.current_task()))()
        with omp.Runtime("sim:1", check=True, num_threads=0) as inner:
            assert inner.places[0].table.entries() == ()
            assert omp.get_num_devices() == 1
            late = omp.task(omp.current_runtime)()
            assert waiting.result() == (outer, 2, waiting)
            assert late.result() is inner
        assert omp.current_runtime() is outer
        assert omp.get_num_devices() == 2
        omp.target_exit_data(map=[from_(a)], device=1)


def test_foreign_threads_generate_for_themselves():
    """A thread outside of the ``with`` uses the last entered runtime; dependences and waits concern its own tasks."""
    log = []
    with omp.Runtime("sim", check=True, num_threads=1) as runtime:
        gate = omp.Event()
        token = ("x",)
        blocked = omp.task(depend=[inout(token)], detach=gate)(lambda: log.append("first"))()

        def other():
            assert omp.current_runtime() is runtime
            omp.task(depend=[inout(token)])(lambda: log.append("foreign"))()
            omp.taskwait()
            log.append("waited")

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not blocked.done()
        gate.fulfill()
    assert [word for word in log if word != "first"] == ["foreign", "waited"]


def test_threads_that_ended_are_forgotten():
    """A program that makes threads without end keeps no region for each."""
    with omp.Runtime("sim", check=True, num_threads=1) as runtime:
        for _ in range(300):
            thread = threading.Thread(target=omp.get_num_devices)
            thread.start()
            thread.join()
        for _ in range(300):
            thread = threading.Thread(target=omp.taskwait)
            thread.start()
            thread.join()
        assert len(runtime._roots) < 150


def test_default_devices_are_inherited_when_a_task_is_generated():
    """A task's default device is what it was at its generation, and setting it there is seen there alone."""
    with omp.Runtime("sim:2", check=True, num_threads=1):
        event = omp.Event()
        omp.task(depend=[inout(("t",))], detach=event)(lambda: None)()
        omp.set_default_device(1)

        def body():
            before = omp.get_default_device()
            omp.set_default_device(0)
            return before, omp.get_default_device(), omp.target(omp.get_device_num)()

        task = omp.task(depend=[in_(("t",))])(body)()
        region = omp.target(depend=[in_(("t",))], nowait=True)(omp.get_device_num)()
        omp.set_default_device(0)
        event.fulfill()
        assert task.result() == (1, 0, 0)
        assert region.result() == 1
        assert omp.get_default_device() == 0


# -- the process ------------------------------------------------------------------------------------
def test_default_runtime_ends_with_the_interpreter():
    """At the script's end the default runtime waits, prints failures that nobody saw, and ends the process with 1."""
    stdout, stderr = python(
        """
        a = np.zeros(4)
        @target(nowait=True)
        def work(a):
            a += 1
        work(a)
        task(lambda: print("ran", flush=True))()
        task(lambda: 1 / 0)()
        import atexit
        """,
        status=1,
    )
    assert stdout == "ran\n"
    assert "ZeroDivisionError" in stderr


def test_default_runtime_gives_up():
    """At the script's end a wait that nothing moves ends after ``OFFLOAD_HANG_S``, and says what it waited for."""
    _, stderr = python(
        """
        @task(detach=Event(), name="abandoned")
        def body(): pass
        body()
        """,
        OFFLOAD_HANG_S="0.2",
    )
    assert "abandoned" in stderr
    assert "given up" in stderr


def test_hang_message_names_the_waiting_tasks():
    """A wait without progress prints the tasks that it waits for, and goes on waiting."""
    _, stderr = python(
        """
        with Runtime("sim", env={"OFFLOAD_HANG_S": "0.1"}) as runtime:
            class Spy:
                def write(self, text):
                    sys.__stderr__.write(text)
                    if not event.is_fulfilled: event.fulfill()
                def flush(self): pass
            for wait in ("result", "taskwait", "depend", "sync", "group"):
                event = Event()
                sys.stderr = Spy()
                held = task(detach=event, name=f"held-by-{wait}", depend=[inout(("q",))])(lambda: None)
                if wait == "group":
                    with taskgroup():
                        held()
                else:
                    t = held()
                    if wait == "result": t.result()
                    elif wait == "taskwait": taskwait()
                    elif wait == "depend": taskwait(depend=[in_(("q",))])
                    else: task(lambda: None, if_=False, depend=[in_(("q",))])()
        """
    )
    for wait in ("result", "taskwait", "depend", "sync", "group"):
        assert f"held-by-{wait}" in stderr, stderr


def test_fork():
    """A forked child cannot use its parent's runtime, learns so at once, can make its own, and ends without a hang."""
    stdout, _ = python("""
        with Runtime("sim", check=True) as runtime:
            event = Event()
            held = task(detach=event)(lambda: None)()
            child = os.fork()
            if not child:
                for call in (task(lambda: None), lambda: target_alloc(4)):
                    try:
                        call()
                    except RuntimeClosedError as error:
                        print("forked" in str(error), flush=True)
                with Runtime("sim", check=True):
                    print(target(get_device_num)(), flush=True)
            else:
                assert os.waitpid(child, 0)[1] == 0
                event.fulfill()
        if child: print("parent", flush=True)
    """)
    assert stdout == "True\nTrue\n0\nparent\n"


@pytest.mark.parametrize(
    "wait",
    few(
        3,
        [
            "taskwait()",
            "held.result(timeout=100)",
            "target(lambda: None, depend=[in_(('q',))])()",
            "held.result()",
            "task(lambda: None, if_=False, depend=[in_(('q',))])()",
            "taskwait(depend=[in_(('q',))])",
            "group()",
        ],
    ),
)
def test_interrupted_waits_leave_the_runtime_usable(wait):
    """Ctrl-C ends a wait with KeyboardInterrupt; everything generated still runs, and later waits work."""
    stdout, _ = python(f"""
        import time
        from offload.interrupts.frames import frames_of_threads
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been inherited as ignored
        def group():
            with taskgroup():
                task(lambda: None, depend=[in_(("q",))])()
        with Runtime("sim", check=True, num_threads=1) as runtime:
            event = Event()
            held = task(detach=event, depend=[inout(("q",))])(lambda: None)()
            main, armed = threading.get_ident(), []
            def interrupt():
                while not armed or frames_of_threads()[main].f_code.co_name not in ("park", "wait"): os.sched_yield()
                time.sleep(0.01)  # a signal that comes before the thread sleeps does not wake it
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            try:
                armed.append(True)
                {wait}
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            event.fulfill()
            taskwait()
            a = np.zeros(3)
            target(lambda a: np.add(a, 1, out=a) is None)(a)
            after = task(lambda: 5, depend=[inout(("q",))])()
            print(after.result(), a)
    """)
    assert stdout == "interrupted\n5 [1. 1. 1.]\n"


# -- memory -----------------------------------------------------------------------------------------
def test_long_chains_run_in_constant_memory():
    """A chain of 100,000 tasks with a wait every 10,000 keeps no task that is complete."""
    count = [0]

    def bump():
        count[0] += 1

    def n_tasks():
        return sum(isinstance(thing, omp.Task) for thing in gc.get_objects())

    gc.collect()
    n_before = n_tasks()  # of other tests
    with omp.Runtime("sim", check=True, num_threads=1):
        bump_task = omp.task(depend=[inout(("chain",))])(bump)
        peaks = []
        for _ in range(10):
            last = None
            for _ in range(10_000):
                last = bump_task()
            omp.taskwait()
            del last
            peaks.append(n_tasks() - n_before)
    assert count[0] == 100_000
    assert max(peaks) < 10


def test_finished_tasks_are_freed():
    """Nothing keeps a complete task, nor what it was given, without a collection, but the last of each location."""

    class Payload:
        pass

    with omp.Runtime("sim", check=True, num_threads=1):
        payloads = [Payload() for _ in range(20)]
        alive = weakref.WeakSet(payloads)
        gc.disable()
        try:
            consume = omp.task(lambda payload: None)
            for payload in payloads:
                consume(payload)
                consume.options(depend=[inout(("p",))])(payload)
            del payload
            payloads.clear()
            omp.taskwait()
            assert not alive
        finally:
            gc.enable()


@pytest.mark.parametrize("num_threads", few(1, [4, 0, 1]))
def test_launches_wait_for_memory(num_threads):
    """Deferred regions whose mappings exceed the device's memory together are put off, and all run."""
    with omp.Runtime("sim", check=True, num_threads=num_threads, env={"OFFLOAD_SIM_MEMORY": "64K"}):
        bump = omp.target(nowait=True)(lambda a: a.__iadd__(1) is None)
        arrays = [np.zeros(2048) for _ in range(200)]
        for a in arrays:
            bump(a)
        omp.taskwait()
    assert all((a == 1).all() for a in arrays)


def test_too_little_memory_is_an_error_that_changes_nothing():
    """What never fits fails, names sizes, and leaves neither mapping nor memory, also while the error is alive."""
    small, big = np.zeros(4096, "u1"), np.zeros(100_000, "u1")
    with omp.Runtime("sim", check=True, env={"OFFLOAD_SIM_MEMORY": "64K"}) as runtime:
        for nowait in (False, True):
            region = omp.target(map=[to(small), to(big)], nowait=nowait)(lambda a, b: None)
            with pytest.raises(omp.DeviceMemoryError) as caught:
                task = region(small, big)
                task.result()
            assert caught.value.asked_nbytes == 100_000
            assert runtime.places[0].device.live_nbytes() == 0
            assert runtime.places[0].table.entries() == ()


def test_memory_that_has_gone_back_is_free_though_the_program_has_arrays_there():
    """What was freed, or was a mapping's, is free on a simulated device while variables still refer to it."""
    host = np.zeros(3072, "u1")
    kept = []
    with omp.Runtime("sim", check=True, env={"OFFLOAD_SIM_MEMORY": "4K"}) as runtime:
        for _ in range(2):
            d = omp.target_alloc(3072)
            omp.target_free(d)
            with omp.buffers(2, 1536, "u1") as ring:
                kept += ring
            with omp.target_data(map=[to(host)], use_device_ptr=(host,)) as mapped:
                kept += mapped
            assert omp.device(0).memory_info() == (4096, 4096)
        assert runtime.places[0].device.live_nbytes() > 4096
        for array in (d, *kept):
            with pytest.raises(omp.RegionClosedError):
                array.get()
        del array, d, mapped, ring
        kept.clear()
        assert runtime.places[0].device.live_nbytes() == 0
        assert omp.device(0).memory_info() == (4096, 4096)


def test_two_tasks_share_an_entry():
    """The second task that maps an array waits for the first one's copy in, though the entry is there already."""
    a = np.arange(8.0)
    with omp.Runtime("sim", check=True, num_threads=2) as runtime:
        latch = SimEvent(runtime.places[0].device)
        for number in range(8):
            runtime.places[0].pool.numbered(number).stream.wait_event(latch)
        entered = omp.target_enter_data(map=[to(a)], nowait=True)
        total = omp.target(map=[to(a)], nowait=True)(lambda a: float(a.sum()))(a)
        assert not total.done()
        latch.fire()
        assert total.result() == 28
        assert entered.done()
        omp.target_exit_data(map=[from_(a)])


def test_an_exit_follows_whoever_uses_the_entry(monkeypatch):
    """A copy back waits, also without any dependence, for work launched before that still uses the storage."""
    a = np.zeros(4)
    with omp.Runtime("sim", check=True, num_threads=1) as runtime:
        latch = SimEvent(runtime.places[0].device)
        omp.target_enter_data(map=[to(a)])

        def body(a):
            stream, storage = omp.current_stream(), a.unwrap()
            stream.wait_event(latch)
            stream.launch(np.add, storage, 1, storage)

        user = omp.target(nowait=True, map=[alloc("a")])(body)(a)
        while user.state != "launched":
            os.sched_yield()
        device, held = runtime.places[0].device, []
        plain = device.wait_event
        monkeypatch.setattr(device, "wait_event", lambda stream, event: (held.append(stream), plain(stream, event)))
        left = omp.target_exit_data(map=[from_(a)], nowait=True)
        latch.fire()
        assert left.lane.stream in held
        left.result()
        assert (a == 1).all()
        user.result()


def test_maps_are_atomic_for_each_item():
    """Threads that map one array without any order lose no update: counting and transfers are one step."""
    a, n = np.zeros(4), 50
    with omp.Runtime("sim", check=True, num_threads=1):

        @omp.target(map=[tofrom("a")])
        def bump(a, i):
            a[i] += 1

        def work(i):
            for _ in range(n):
                bump(a, i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (a == n).all()


def test_counts_under_threads():
    """Entries and exits of four threads leave a count of zero, whatever interleaves."""
    a = np.arange(64.0)
    with omp.Runtime("sim:2", check=True, num_threads=2) as runtime:

        def work(seed):
            device = seed % 2
            for _ in range(40):
                omp.target_enter_data(map=[to(a)], device=device)
                with omp.target_data(map=[to(a[8:16])], device=device):
                    assert omp.target(device=device, map=[to(a)])(lambda a: float(a[8]))(a) == 8
                omp.target_exit_data(map=[omp.release(a)], device=device)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(place.table.entries() == () for place in runtime.places)
    assert (a == np.arange(64.0)).all()


# -- bad input --------------------------------------------------------------------------------------
def test_partial_overlap_changes_nothing():
    """A ``map`` item that partly overlaps what is present is an error; counts and tables are as before."""
    a = np.arange(100)
    with omp.Runtime("sim", check=True) as runtime, omp.target_data(map=[to(a[0:50])]):
        table = runtime.places[0].table
        before = [(entry.section, entry.count) for entry in table.entries()]
        for construct in (
            lambda: omp.target_enter_data(map=[alloc(np.zeros(3)), to(a[40:60])]),
            lambda: omp.target_enter_data(map=[to(a)]),
            lambda: omp.target(map=[to(a[40:60])])(lambda x: None)(a[40:60]),
            lambda: omp.target(lambda x: None)(a),
            lambda: omp.target(nowait=True)(lambda x: None)(a).result(),
            lambda: omp.target_data(map=[to(a)]).__enter__(),
        ):
            with pytest.raises(omp.ExtensionError, match=r"present on device 0"):
                construct()
            assert [(entry.section, entry.count) for entry in table.entries()] == before
        with contextlib.suppress(ExceptionGroup):
            omp.taskwait()


def test_device_numbers_out_of_range():
    """A device number that does not exist is an error at the call, of every construct and routine."""
    a = np.zeros(3)
    with omp.Runtime("sim:2", check=True):
        for number in (3, 17, -2, omp.invalid_device):
            for call in (
                lambda n: omp.target(device=n, nowait=True)(lambda a: None)(a),
                lambda n: omp.target_enter_data(map=[to(a)], device=n, nowait=True),
                lambda n: omp.target_exit_data(map=[from_(a)], device=n),
                lambda n: omp.target_enter_data(map=[to(a)], device=n, if_=False),
                lambda n: omp.target_data(map=[to(a)], device=n).__enter__(),
                lambda n: omp.target_alloc(3, device=n),
                omp.set_default_device,
                lambda n: omp.stream(device=n),
                omp.device,
                lambda n: omp.target_memcpy(a, np.ones(3), dst_device=n),
            ):
                with pytest.raises(omp.ClauseError, match=str(number)):
                    call(number)


def test_events_are_fulfilled_once():
    """A second fulfil is an error, whoever tries it and when; one event for two tasks is one as well."""
    with omp.Runtime("sim", check=True):
        event = omp.Event()
        omp.task(detach=event)(lambda: None)()
        event.fulfill()
        for again in (event.fulfill, lambda: omp.fulfill_event(event), lambda: event.fulfill_on(omp.stream())):
            with pytest.raises(omp.EventError):
                again()
        with pytest.raises(omp.EventError):
            omp.task(detach=event)(lambda: None)()
        named = omp.Event()
        named.fulfill_on(omp.stream())
        with pytest.raises(omp.EventError):
            named.fulfill()
        omp.task(detach=named)(lambda: None)().result()
        with pytest.raises(omp.EventError):
            omp.Event().fulfill_on(object())


def test_bodies_that_raise():
    """The dependents of a failed body do not run, the others finish; each failure says where it comes from."""
    ran = []
    with omp.Runtime("sim", check=True, num_threads=2):
        a = np.arange(4.0)

        @omp.target(map=[tofrom("a")], depend=[inout("a")], nowait=True)
        def fails(a):
            a += 100
            raise OverflowError("body")

        failed = fails(a)
        second = omp.task(depend=[in_(a)])(lambda: ran.append("dependent"))()
        third = omp.target(depend=[inout(a)], nowait=True)(lambda a: ran.append("device dependent"))(a)
        other = omp.task(lambda: ran.append("other"))()
        with pytest.raises(ExceptionGroup) as caught:
            omp.taskwait()
        (error,) = caught.value.exceptions
        assert isinstance(error, OverflowError)
        assert any("fails" in note and "test_lifecycle.py" in note for note in error.__notes__)
        for task in (second, third):
            assert isinstance(task.exception(), DependError)
            assert task.exception().__cause__ is error
        assert other.done()
        assert failed.exception() is error
        assert ran == ["other"]
        assert (a == np.arange(4.0)).all()
        omp.task(depend=[inout(a)])(lambda: ran.append("later"))()
        omp.taskwait()
        assert ran == ["other", "later"]


def test_constructs_inside_of_target_bodies():
    """A construct or a wait inside of a target body is a UsageError, which fails the region only."""
    with omp.Runtime("sim", check=True) as runtime:
        a = np.zeros(4)
        done = omp.task(lambda: None)()
        done.result()
        pending = omp.Event()
        waiting = omp.task(detach=pending)(lambda: None)()
        for call in (
            omp.taskwait,
            omp.task(lambda: None),
            omp.target(lambda: None),
            lambda: omp.target_enter_data(map=[to(a)]),
            lambda: omp.taskgroup().__enter__(),
            waiting.result,
            lambda: omp.target_memcpy(a, np.ones(4)),
        ):
            for nowait in (False, True):
                with pytest.raises(UsageError, match="target body"):
                    result = omp.target(nowait=nowait)(lambda a, call=call: call())(a)
                    result.result()
        pending.fulfill()
        assert runtime.places[0].table.entries() == ()


def test_bodies_see_where_they_are():
    """Every kind of body, on whatever thread, knows its task, its device and its runtime."""

    def where():
        return omp.get_device_num(), omp.is_initial_device(), omp.current_task().name

    for num_threads in (0, 2):
        with warnings.catch_warnings(), omp.Runtime("sim:2", check=True, num_threads=num_threads):
            warnings.simplefilter("error")
            assert omp.current_task() is None
            assert omp.task(name="t")(where)().result() == (2, True, "t")
            for device in (0, 1):
                call = omp.target(name="r", device=device)(where)
                assert call() == (device, False, "r")
                assert call.options(nowait=True)().result() == (device, False, "r")
                assert call.options(if_=False)() == (2, True, "r")
                assert call.options(if_=False, nowait=True)().result() == (2, True, "r")
            assert omp.target(device=-1)(where)() == (2, True, "where")
            assert omp.get_device_num() == 2
