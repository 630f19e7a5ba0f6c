"""Constructs that finalizers call: the library carries them out later, when none of its steps is half done.

A construct of a finalizer is *put off* if the collector runs on the thread, the thread is at work for the library
(`offload.interrupts.shields.is_at_work`), or it runs a target body. Safe points carry out these calls in order: the
beginning and the end of a construct, a thread that looks for a task, a routine that asks, the end of a runtime. A
block, a wait and a query cannot be put off; they are refused. See docs/design/theory.md, "Finalizers".
"""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING

from offload.errors import RuntimeClosedError, UsageError
from offload.interrupts.frames import calls_program, is_calling_program, is_own
from offload.interrupts.shields import Shield, current, is_at_work, is_free, pass_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


_MOMENT_S = 0.01  # Between two looks whether another thread has got further


class Collector:
    """The thread on which the cyclic collector runs, if it does.

    CPython tells ``gc.callbacks`` of the start and of the stop of each collection. A callback in Python could raise an
    exception of a signal handler, or one that another thread has sent, and CPython drops exceptions of such callbacks.
    So `setattr` is the callback, which is C: a start sets the attribute ``start``, here and for the thread. A stop sets
    the attribute ``stop``, which is the whole of ``__dict__``, so that ``start`` is the class's again.
    """

    start: object = None  # What CPython says of the collection that runs; None while none does
    stop: object

    def watch(self) -> None:
        """Have CPython tell of the collections from now on."""
        gc.callbacks.extend((partial(setattr, _of_thread), partial(setattr, self)))

    @property
    def is_here(self) -> bool:
        """Whether it runs on the calling thread."""
        start = self.start
        return start is not None and getattr(_of_thread, "start", None) is start


Collector.stop = Collector.__dict__["__dict__"]
_of_thread = threading.local()
collector = Collector()
collector.watch()


class PutOff:
    """The calls of finalizers that no thread has carried out yet."""

    # One thread at a time carries them out, so they keep their order, and none runs in the middle of another.

    __slots__ = ("_is_taken", "_running", "calls", "has_ended", "is_urgent", "stirs")

    def __init__(self) -> None:
        # the oldest first, each with the runtime that it is for, if any
        self.calls: deque[tuple[Callable[[], object], object]] = deque()
        self._running: tuple[int, object] = (0, None)  # the thread that is at it, and for which runtime
        self.has_ended = False  # whether the process ends, so that there is no later
        self.is_urgent = False  # whether a thread that does not pass here may wait for one of them
        self.stirs: set[Callable[[], None]] = set()  # each wakes a thread of a runtime that has nothing to do
        self._is_taken = threading.Lock()

    @property
    def is_due(self) -> bool:
        """Whether the calling thread would find something to do in `carry_out`."""
        return bool(self.calls) and not self._is_taken.locked()

    def add(self, call: Callable[[], object], runtime: object = None, *, is_urgent: bool = False) -> None:
        """Put off a call; if it is urgent, wake a thread that carries it out.

        Raise `RuntimeClosedError` if the process ends, because there is no later.
        """
        if self.has_ended:
            raise RuntimeClosedError("the process ends, so constructs in finalizers are no longer carried out")
        self.calls.append((call, runtime))
        if is_urgent:
            self.is_urgent = True
            for stir in tuple(self.stirs):
                stir()

    def carry_out(self) -> None:
        """Carry out the calls, unless another call is doing so; show a failure as a thread's."""
        # An interruption of the program that ends one of them is raised; the others remain to be carried out.
        calls, taken = self.calls, self._is_taken
        with Shield():
            while calls and not collector.is_here and taken.acquire(blocking=False):
                try:
                    while calls:
                        self._running = get_ident(), calls[0][1]  # first: nobody must see it nowhere
                        _carry_out(calls.popleft()[0])
                    self.is_urgent = False
                finally:
                    self._running = 0, None
                    taken.release()  # then again: who came meanwhile has left it to this thread

    def forget(self) -> None:
        """Begin anew, in a forked child."""
        self.calls.clear()
        self.is_urgent = False
        self._running = 0, None
        self.stirs.clear()
        self._is_taken = threading.Lock()

    def wait(self, runtime: object) -> None:
        """Carry out the pending calls, and wait until another thread has finished its call for this runtime."""
        self.carry_out()
        while True:
            thread, other = self._running
            if other is not runtime or thread == get_ident():
                return
            if self._is_taken.acquire(timeout=_MOMENT_S):  # what holds it up says so by itself
                self._is_taken.release()


@calls_program
def _carry_out(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001  # shown as an exception of a finalizer is: nobody is there to catch it
        if not current().is_library:
            pass_on(error)
        with suppress(Exception):  # an exception that takes no attributes
            error.add_note(f"in a construct that a finalizer requested: {call!r:.200}")
        threading.excepthook(
            threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
        )


put_off = PutOff()


def is_inside(caller: FrameType) -> bool:
    """Tell whether a construct must be put off, whose call comes from ``caller`` or one of its callers."""
    return collector.is_here or (is_at_work() and _comes_from_steps(caller))


def _comes_from_steps(frame: FrameType | None) -> bool:
    """Tell whether the program's code that has called the library was itself called by the library's own steps."""
    while frame is not None and is_own(frame.f_globals.get("__name__")):
        if is_calling_program(frame):
            return False  # the library's own call, of what has been put off
        frame = frame.f_back
    while frame is not None and not is_own(frame.f_globals.get("__name__")):
        frame = frame.f_back
    return frame is not None and not is_calling_program(frame)


def is_finalizing(frame: FrameType | None) -> bool:
    """Tell whether the program's code that has called the library is a finalizer's: a ``__del__``, or `weakref`'s."""
    while frame is not None and is_own(frame.f_globals.get("__name__")):
        frame = frame.f_back
    while frame is not None and not is_own(frame.f_globals.get("__name__")):
        if frame.f_code.co_name == "__del__" or frame.f_globals.get("__name__") == "weakref":
            return True
        frame = frame.f_back
    return False


def catch_up() -> None:
    """Carry out the postponed calls, unless the caller is inside steps of the library."""
    if put_off.calls and is_free():
        put_off.carry_out()


def refuse_inside(what: object) -> None:
    """Refuse a wait or an answer in a finalizer that came where a construct would be put off.

    Raise `UsageError` if the cyclic collector runs the finalizer, or it came in the middle of the library's own steps.
    """
    if not (collector.start or is_at_work()):
        return
    if is_inside(sys._getframe(1)):  # noqa: SLF001  # the same
        raise UsageError(
            f"{what} in a finalizer that the cyclic garbage collector runs, or that interrupts the library's own code, "
            "could wait forever; release the object's resources there, and do the rest elsewhere"
        )
