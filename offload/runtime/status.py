"""The exit status of a process in which a task has failed and nobody has seen that: 1 in place of 0.

Theory of operation
-------------------
When the interpreter calls the functions of `atexit` it has the status already, and nothing in Python changes that.
`os._exit` there would leave out everything that comes later: functions that were registered earlier, finalizers, the
buffers of files that are open. So `fail` lets the interpreter end. It registers ``exit(1)`` with the C library, which
calls it when the interpreter has ended, and then goes on with the other functions that are registered there.

A program that ends by `sys.exit` keeps its status, unless that is 0. The interpreter forgets a `SystemExit` before it
calls the functions of `atexit`. So `sys.exit` notes the status, once the library is imported (`watch`). The status of a
`SystemExit` that is raised without it is unknown: it becomes 1.

Rejected: `os._exit` in a finalizer that runs when the interpreter clears its modules. The order there is no promise,
and the functions of the C library are left out, among them those of profilers and drivers.
"""

from __future__ import annotations

import dis
import functools
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from types import FrameType

_noted: tuple[object, FrameType] | None = None
"""What the program has last given to `sys.exit` on its main thread, and the outermost frame there."""


def watch() -> None:
    """Have `sys.exit` note the status that it is given."""
    given = sys.exit

    @functools.wraps(given)
    def exit(status: Any = None, /) -> NoReturn:  # noqa: A001  # the name is that of `sys.exit`
        if threading.current_thread() is threading.main_thread():
            _note(status)
        given(status)

    sys.exit = exit


def _note(status: object) -> None:
    global _noted  # noqa: PLW0603  # the process's one status
    frame = sys._getframe(2)  # noqa: SLF001  # what `inspect` uses
    while frame.f_back is not None:
        frame = frame.f_back
    _noted = status, frame


def forget() -> None:
    """Forget the note, in a forked child and after it has been used."""
    global _noted  # noqa: PLW0603  # the same
    _noted = None


def fail() -> None:
    """Have the process end with 1, unless the program has chosen another status, or a person is at a prompt.

    To be called while the interpreter ends. If the C library cannot be asked, this has no effect.
    """
    has_chosen = _has_chosen()
    forget()  # the frame refers to the program's names
    if has_chosen or hasattr(sys, "ps1"):
        return
    try:
        import ctypes  # 10 ms, for programs that fail

        library = ctypes.CDLL(None)
        # Others than glibc need not take an `exit` in an `exit`.
        leave = library.exit if hasattr(library, "gnu_get_libc_version") else library._exit  # noqa: SLF001  # C's name
        register = library.__cxa_atexit  # noqa: SLF001  # the same
        register(leave, ctypes.c_void_p(1), None)
        register(library.fflush, None, None)  # called first
    except (ImportError, OSError, AttributeError, TypeError):
        return


def _has_chosen() -> bool:
    """Tell whether the program ends by a `sys.exit` with another status than 0, which nobody has caught."""
    if _noted is None or _noted[0] in (None, 0):
        return False
    code, at = _noted[1].f_code, _noted[1].f_lasti
    return not dis.opname[code.co_code[at]].startswith("RETURN")  # else the program has gone on to its end
