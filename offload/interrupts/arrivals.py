"""How interruptions arrive: one handler for all signals, and one way to send an exception to a thread.

`Signals` replaces ``_signal`` in the module `signal` when the main thread first uses the library. CPython then calls
`_arrive` for every signal with a handler of the program. `signal.getsignal` and `signal.signal` still return the
program's handlers. `install` replaces ``ctypes.pythonapi.PyThreadState_SetAsyncExc``: an exception for a thread under a
shield waits. Code in C goes past both. See docs/design/theory.md, "Shields".
"""

from __future__ import annotations

import ctypes
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from offload.interrupts import shields
from offload.interrupts.forks import in_forked_child
from offload.interrupts.frames import caller, calls_program, is_between, is_own
from offload.interrupts.shields import Shielded, current, note_raised, threads

if TYPE_CHECKING:
    from types import FrameType

# Modules whose functions CPython calls where an object goes, and drops their exceptions.
_DROPPING: Final = frozenset({"weakref", "_weakrefset"})

_SENT: Final = "sent"  # The key of `Shielded.pending` for an exception that was sent; signals have their numbers


class Signals:
    """Replaces ``_signal`` in the module `signal`."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.handlers: dict[int, Any] = {}  # the program's handlers, which `_arrive` calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def signal(self, number: int, handler: Any) -> Any:
        """Set a handler as `signal.signal` does; return the former one."""
        before = self.handlers.get(number)
        if callable(handler):
            self.handlers[number] = handler  # first: the signal may come at once
        try:
            found = self._real.signal(number, _arrive if callable(handler) else handler)
        except BaseException:
            if before is None:
                self.handlers.pop(number, None)
            else:
                self.handlers[number] = before
            raise
        if not callable(handler):
            self.handlers.pop(number, None)
        return before if found is _arrive else found

    def getsignal(self, number: int) -> Any:
        """Return a handler as `signal.getsignal` does."""
        found = self._real.getsignal(number)
        return self.handlers.get(number) if found is _arrive else found

    def take_over(self) -> None:
        """Install `_arrive` for every signal that has a handler; on the main thread."""
        for number in map(int, self._real.valid_signals()):
            handler = self._real.getsignal(number)
            if callable(handler) and handler is not _arrive:
                self.signal(number, handler)


def _arrive(number: int, frame: FrameType | None) -> None:
    """Deliver a signal, or note it where the library's own steps are under way."""
    thread = current()
    if thread.is_open:
        if _is_in_one_piece(frame):
            thread.pending[number] = partial(_handle, number)
            shields.late.is_due = True
            return
    elif frame is None or _is_library_on(frame):
        thread.pending[number] = partial(_handle, number)
        thread.place.parker.unpark()
        return
    else:
        thread.place = None  # code in C has raised in the library's steps: no shield is up any more
    _handle(number, frame)


@calls_program
def _handle(number: int, frame: FrameType | None = None) -> None:
    """Call the program's handler of a signal, unless it has gone since the signal came."""
    handler = _signals.handlers.get(number)
    if handler is None:
        return
    try:
        handler(number, caller() if frame is None else frame)
    except BaseException as error:
        note_raised(current(), error)
        raise


def _is_in_one_piece(frame: FrameType | None) -> bool:
    """Tell whether the library runs a function so marked, or a finalizer, whose exceptions CPython drops."""
    if frame is not None and frame.f_globals.get("__name__") in _DROPPING:
        return True
    while frame is not None and is_between(frame):
        if frame.f_code in shields.pieces or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _is_library_on(frame: FrameType | None) -> bool:
    """Tell whether the library is on a stack."""
    while frame is not None:
        if is_own(frame.f_globals.get("__name__")):
            return True
        frame = frame.f_back
    return False


class SetAsyncExc:
    """Stands in for ``PyThreadState_SetAsyncExc`` in `ctypes.pythonapi`."""

    # Programs may set ``argtypes`` and ``restype``, as on a function of `ctypes`. They have no effect.

    def __init__(self) -> None:
        self._real = ctypes.pythonapi["PyThreadState_SetAsyncExc"]
        self._real.argtypes = ctypes.c_ulong, ctypes.py_object

    def __call__(self, ident: Any, exception: Any = None) -> int:
        """Raise an exception in the thread that has the identifier; return the number of threads found."""
        real, number = self._real, ctypes.c_ulong(getattr(ident, "value", ident))
        sent = _object_in(exception)
        thread = threads.get(number.value)
        if sent is None:
            if thread is not None:
                thread.pending.pop(_SENT, None)
                thread.sent = None
            return int(real(number, ctypes.py_object()))
        value = ctypes.py_object(sent)
        if thread is None:
            return int(real(number, value))
        place = thread.place
        if place is None or place.in_body:  # the other thread does not run between this look and the call
            thread.sent = sent
            found = real(number, value)
            return int(found)
        if not thread.is_library:  # else the body for which it was meant has ended
            thread.pending[_SENT] = partial(_raise, thread, sent)
            place.parker.unpark()
        return 1


def _object_in(exception: Any) -> Any:
    """Return the object in an argument for ``py_object``; None for NULL."""
    try:
        return exception.value if isinstance(exception, ctypes.py_object) else exception
    except ValueError:  # NULL
        return None


def _raise(thread: Shielded, sent: Any) -> None:
    error = sent() if isinstance(sent, type) else sent
    note_raised(thread, error)
    try:
        raise error
    finally:
        del error  # or the traceback would refer to this frame, and that to the error


def _take_over() -> None:
    """Have the signals of the program arrive here; on the main thread."""
    signal._signal = _signals  # type: ignore[attr-defined]  # noqa: SLF001  # `signal.signal` and `getsignal` look it up
    _signals.take_over()


def _forked() -> None:
    """Go on in a forked child, whose main thread is the one that forked."""
    if threading.current_thread() is threading.main_thread() and signal._signal is not _signals:  # type: ignore[attr-defined]  # noqa: SLF001  # as above
        _take_over()


_signals = Signals(signal._signal)  # type: ignore[attr-defined]  # noqa: SLF001  # `signal.signal` looks it up


def install() -> None:
    """Have interruptions arrive here: sent exceptions at once, signals when the main thread first uses the library."""
    shields.at_first = _take_over
    ctypes.pythonapi.PyThreadState_SetAsyncExc = SetAsyncExc()  # type: ignore[attr-defined]  # nobody types it
    in_forked_child(_forked)
