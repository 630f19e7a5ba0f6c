"""How signals and sent exceptions reach a thread: what the program sees of its handlers, what waits for a shield."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import gc
import signal
import threading
import time

import numpy as np
import pytest

import offload as omp
from offload import acc, tofrom
from offload.constructs import memory
from offload.interrupts.frames import frames_of_threads
from offload.interrupts.shields import Shield
from offload.tasks.scope import current_scope
from tests.patience import until


class LimitError(Exception):
    pass


def send(error, thread=None):
    ident = (thread or threading.current_thread()).ident
    return ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


_LIBRARY = {"__name__": "offload.steps", "Shield": Shield}
exec("def in_steps(act):\n    with Shield():\n        act()", _LIBRARY)
in_steps = _LIBRARY["in_steps"]
"""Carries out a function of the test in the middle of the library's own steps."""

_STRUCK = """
def struck(make):
    def steps(*args):
        made = make(*args)
        strike()
        return made
    return steps
"""
exec(_STRUCK, _LIBRARY)
_LIBRARY["strike"] = lambda: signal.raise_signal(signal.SIGUSR1)
struck = _LIBRARY["struck"]
"""Returns a function of the library after which SIGUSR1 comes, in the library's own steps."""


@contextlib.contextmanager
def struck_when_parked():
    """Have SIGUSR1 come once the calling thread sleeps in a wait."""
    waiting, is_over = threading.get_ident(), threading.Event()

    def strike():
        while frames_of_threads()[waiting].f_code.co_name != "park":
            if is_over.wait(1e-3):
                return
        time.sleep(0.01)  # a signal that comes before the thread sleeps does not wake it
        signal.pthread_kill(waiting, signal.SIGUSR1)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.fixture
def _used():
    """The library is in use on the main thread."""
    with omp.Runtime("none", num_threads=0):
        omp.taskwait()
        yield


@pytest.fixture
def former():
    """SIGUSR1 has the same handler before and after."""
    found = signal.getsignal(signal.SIGUSR1)
    yield found
    signal.signal(signal.SIGUSR1, found)


@pytest.mark.usefixtures("_used")
class TestHandlers:
    def test_the_program_sees_its_own_handlers(self, former):
        """`getsignal` and `signal` give what the program has installed, also by functions imported before."""

        def one(number, frame): ...
        def two(number, frame): ...

        assert signal.signal(signal.SIGUSR1, one) is former
        assert signal.getsignal(signal.SIGUSR1) is one
        assert signal.signal(signal.SIGUSR1, two) is one
        assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) is two
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        assert signal.signal(signal.SIGUSR1, former) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_what_is_refused_changes_nothing(self, former):
        """A handler that is none, a number that is none and another thread are Python's own errors."""

        def handler(number, frame): ...

        signal.signal(signal.SIGUSR1, handler)
        with pytest.raises(TypeError):
            signal.signal(signal.SIGUSR1, "no handler")
        with pytest.raises(ValueError, match="out of range"):
            signal.signal(12345, handler)
        refused = []

        def elsewhere():
            try:
                signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            except ValueError as error:
                refused.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(refused) == 1
        assert signal.getsignal(signal.SIGUSR1) is handler

    def test_a_handler_gets_number_and_frame(self, former):
        """Outside of the library it is called at once, with the frame that it came in; under a shield, soon after."""
        seen = []
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append((number, frame.f_code.co_name)))
        signal.raise_signal(signal.SIGUSR1)

        def act():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
            assert len(seen) == 1

        in_steps(act)
        name = "test_a_handler_gets_number_and_frame"
        assert seen == [(signal.SIGUSR1, name)] * 2  # signals of one number that wait are one

    def test_a_handler_that_has_gone_is_not_called(self, former):
        """A signal whose handler the program has taken away before it is delivered does nothing."""
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))

        def act():
            signal.raise_signal(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, former)

        in_steps(act)
        assert seen == []

    def test_every_signal_that_waits_is_delivered(self, former):
        """Where the first handler raises, the others are called all the same."""
        seen, before = [], signal.getsignal(signal.SIGUSR2)

        def raises(number, frame):
            raise LimitError

        signal.signal(signal.SIGUSR1, raises)
        signal.signal(signal.SIGUSR2, lambda *_: seen.append(1))

        def act():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR2)

        with pytest.raises(LimitError):
            in_steps(act)
        signal.signal(signal.SIGUSR2, before)
        assert seen == [1]

    def test_asyncio_ends_by_ctrl_c(self):
        """`asyncio.run` finds Python's handler, installs its own, and cancels the main coroutine."""

        async def main():
            assert isinstance(signal.getsignal(signal.SIGINT), functools.partial)
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(20)

        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_wait_ends_by_what_a_handler_raises(self, former):
        """A time limit ends a wait, and one that comes in a body ends body and wait; the runtime goes on."""

        def limit(number, frame):
            raise LimitError

        signal.signal(signal.SIGUSR1, limit)
        with omp.Runtime("sim:1", num_threads=0) as runtime:
            event = omp.Event()
            omp.task(detach=event)(lambda: None)()
            with pytest.raises(LimitError), struck_when_parked():
                omp.taskwait()
            event.fulfill()
            struck = omp.task(lambda: signal.raise_signal(signal.SIGUSR1))()
            with pytest.raises(LimitError) as caught:
                omp.taskwait()
            assert struck.exception() is caught.value
            omp.taskwait()
            a = np.zeros(3)
            with pytest.raises(LimitError):
                omp.target(lambda a: signal.raise_signal(signal.SIGUSR1))(a)
            assert runtime.places[0].table.entries() == ()

    def test_a_limit_ends_what_a_finalizer_has_asked_for(self, former):
        """What a handler raises in the body of a construct that was put off goes on to the program."""

        class Held:
            def __init__(self):
                self.me = self

            def __del__(self):
                omp.task(if_=False)(lambda: signal.raise_signal(signal.SIGUSR1))()

        def limit(number, frame):
            raise LimitError

        signal.signal(signal.SIGUSR1, limit)
        Held()
        gc.collect()
        with pytest.raises(LimitError):
            omp.taskwait()
        omp.taskwait()

    def test_an_interrupted_entry_is_undone(self, former):
        """A data construct that an interruption leaves has mapped nothing, whichever class of exception it is."""

        def limit(number, frame):
            raise LimitError

        a, event = np.zeros(3), omp.Event()
        signal.signal(signal.SIGUSR1, limit)
        with omp.Runtime("sim:1", num_threads=1) as runtime:
            omp.task(detach=event, depend=[omp.inout(a)])(lambda: None)()
            for enter in (
                lambda: omp.target_data(map=[tofrom(a)], depend=[omp.inout(a)]).__enter__(),
                lambda: omp.target_enter_data(map=[omp.to(a)], depend=[omp.inout(a)]),
            ):
                with pytest.raises(LimitError), struck_when_parked():
                    enter()
            event.fulfill()
            omp.taskwait()
            assert runtime.places[0].table.entries() == ()

    @pytest.mark.parametrize(("allocation", "module"), [(omp.target_alloc, memory), (acc.malloc, acc.memory)])
    def test_an_interrupted_allocation_is_given_back(self, former, allocation, module, monkeypatch):
        """An interruption before the array is returned leaves nothing allocated, though the array has been made."""

        def limit(number, frame):
            raise LimitError

        signal.signal(signal.SIGUSR1, limit)
        monkeypatch.setattr(module, "allocate", struck(module.allocate))
        with omp.Runtime("sim:1", num_threads=0, check=True), pytest.raises(LimitError):
            allocation(8)


@pytest.mark.usefixtures("_used")
class TestSent:
    def test_it_waits_for_a_shield(self):
        """Under a shield nothing is raised, at its end it is; the last one that was sent counts."""
        done = []
        with pytest.raises(LimitError), Shield():
            assert send(ValueError) == 1
            assert send(LimitError) == 1
            done.append(1)
        assert done == [1]

    def test_it_can_be_taken_back(self):
        """NULL takes back what has not been raised."""
        with Shield() as shield:
            send(LimitError)
            assert shield.thread.pending
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
            assert not shield.thread.pending
        with pytest.raises(LimitError):  # CPython 3.11 looks out until something comes: `sys.setprofile` would hang
            send(LimitError)
            pytest.fail("went on")

    @pytest.mark.parametrize("is_used", [False, True], ids=["new", "used"])
    def test_other_threads(self, is_used):
        """It reaches any thread: one that never used the library, and one that waits in it."""
        caught, sent, ready, event = [], [], threading.Event(), omp.Event()

        def wait():
            try:
                if is_used:
                    omp.task(detach=event)(lambda: None)()
                ready.set()
                omp.taskwait() if is_used else until(
                    lambda: sent
                )  # an exception breaks the wait of a `threading.Event`
                for _ in range(1000):
                    pass
            except LimitError:
                caught.append(1)

        thread = threading.Thread(target=wait)
        thread.start()
        ready.wait()
        assert send(LimitError, thread) == 1
        sent.append(1)
        thread.join(20)
        assert caught == [1]
        event.fulfill()

    def test_a_body_gets_it_at_once(self):
        """In a body it is raised there; the task fails by it, and the wait that runs the body ends by it."""
        with omp.Runtime("none", num_threads=0):

            def body():
                send(LimitError)
                pytest.fail("went on")

            task = omp.task(body)()
            with pytest.raises(LimitError):
                omp.taskwait()
            assert isinstance(task.exception(), LimitError)
            assert not current_scope.get().in_body

    def test_no_such_thread(self):
        """An identifier that no thread has gives 0, as in CPython."""
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(1), ctypes.py_object(LimitError)) == 0

    def test_types_may_be_declared(self):
        """Programs declare argument types on the function; plain arguments work then, too."""
        function = ctypes.pythonapi.PyThreadState_SetAsyncExc
        function.argtypes, function.restype = (ctypes.c_ulong, ctypes.py_object), ctypes.c_int
        with pytest.raises(LimitError), Shield():
            assert function(threading.get_ident(), LimitError) == 1
