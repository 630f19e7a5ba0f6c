"""The runtimes of the process that are open, and their end where the process ends.

A runtime made from the environment, at first use, ends with the process; so does one that the program never closes.
"""

from __future__ import annotations

import atexit
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from offload.errors import RuntimeClosedError
from offload.interrupts.finalizers import put_off
from offload.interrupts.forks import in_forked_child
from offload.interrupts.frames import frames_of_threads
from offload.runtime import status
from offload.runtime.settings import Settings, Unseen

if TYPE_CHECKING:
    from collections.abc import Callable


class Opened(Protocol):
    """A runtime, `offload.runtime.runtime.Runtime`, which is built on this file."""

    defers: bool
    engine: Any
    settings: Settings

    def close_at_end(self, *, waits_for_bodies: bool) -> None:
        """Close it at the end of the process."""

    def disown(self) -> None:
        """Refuse it in a forked child."""


_Runtime = TypeVar("_Runtime", bound=Opened)

runtimes: list[Any] = []
"""The runtimes that are open, the most recently entered last."""

at_end: list[Callable[[], None]] = []
"""What is called at the end of the process, when all runtimes have ended: reports write their files."""

_lock = threading.RLock()
_default: Any = None


def _is_at_end() -> bool:
    """Tell whether the interpreter calls the functions of `atexit` already, so that it does not call a new one.

    Before that it waits in `threading._shutdown` for the program's threads.
    """
    main = threading.main_thread()
    if main.is_alive():
        return False
    frame = frames_of_threads().get(main.ident or 0)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame is None or frame.f_code is not threading._shutdown.__code__  # type: ignore[attr-defined]  # noqa: SLF001  # CPython's


status.watch()

_is_ending = False
_is_late = _is_at_end()
"""Whether the program imports the library so late that `_end` is never called."""


def note_open(runtime: Opened) -> None:
    """Note that a runtime has been made or entered: it stands last now."""
    put_off.stirs.add(runtime.engine.stir)
    with _lock:
        runtimes[:] = [*(other for other in runtimes if other is not runtime), runtime]  # in one step, for `latest`


def set_aside(runtime: Opened) -> None:
    """Keep a runtime from being the current one outside of its own threads: it belongs to another process's program."""
    with _lock:
        if runtime in runtimes:
            runtimes.remove(runtime)


def note_closed(runtime: Opened) -> None:
    """Note that a runtime has been closed."""
    put_off.stirs.discard(runtime.engine.stir)
    with _lock:
        if runtime in runtimes:
            runtimes.remove(runtime)


def latest(make: Callable[..., _Runtime]) -> _Runtime:
    """Return the runtime entered last that is open; where there is none, make the process's default one.

    If the library is first imported while the interpreter ends, that one runs each task at once.
    """
    global _default  # noqa: PLW0603  # the process's one default runtime
    try:
        return runtimes[-1]  # type: ignore[no-any-return]  # one of those made
    except IndexError:
        pass
    with _lock:
        if runtimes:
            return runtimes[-1]  # type: ignore[no-any-return]  # another thread has made it meanwhile
        refuse_at_end()
        if _is_at_end():
            _default = make(num_threads=0)  # since 3.12 CPython starts no threads then
            _default.defers = not _is_late  # else nobody would wait for the tasks
        else:
            _default = make()
        return _default  # type: ignore[no-any-return]  # the same


def refuse_at_end() -> None:
    """Refuse a runtime that nobody would close any more.

    Raises
    ------
    RuntimeClosedError
        The process ends.
    """
    if _is_ending:
        raise RuntimeClosedError("the process ends, and its runtimes have been closed; do this earlier")


@atexit.register
def _end() -> None:
    """End the runtimes that are open as a `with` would, but print failures, as there is nobody to catch them.

    The process ends with 1 then (`offload.runtime.status`), unless ``OFFLOAD_UNSEEN`` says ``report``. A runtime that
    the program has made itself, and should have closed, is not waited for while nothing but a body runs.
    """
    global _is_ending  # noqa: PLW0603  # the process's one end
    _is_ending = True
    has_failed = False
    while runtimes:
        runtime = runtimes[-1]
        try:
            runtime.close_at_end(waits_for_bodies=runtime is _default)
        except BaseException as error:  # noqa: BLE001  # the interpreter is ending
            if runtime is not _default:
                error.add_note(
                    "the program created a runtime and did not close it; use it in a `with` block, or call close()"
                )
            sys.excepthook(type(error), error, error.__traceback__)
            has_failed |= runtime.settings.unseen is Unseen.FAIL and _has_failures(error, runtime.engine.given_up)
        note_closed(runtime)  # also one that could not be closed
    progress = sys.modules.get("offload.events.progress")  # imported with the first
    if progress is not None:
        progress.progress.end()  # before the interpreter ends, and then MPI
    put_off.has_ended = True
    for call in at_end:
        call()
    if has_failed:
        status.fail()


def _has_failures(error: BaseException, given_up: list[BaseException]) -> bool:
    """Tell whether the error at the end of a runtime has failures of tasks besides those of waits that it gave up."""
    return isinstance(error, BaseExceptionGroup) and any(one not in given_up for one in error.exceptions)


@in_forked_child
def _after_fork() -> None:
    """Refuse the parent's runtimes in a forked child: their threads and driver contexts did not come along."""
    global _lock  # noqa: PLW0603  # the lock of the parent
    _lock = threading.RLock()
    for runtime in runtimes:
        runtime.disown()
    runtimes.clear()
    at_end.clear()
    put_off.forget()
    status.forget()
