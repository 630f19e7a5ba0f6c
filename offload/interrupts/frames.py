"""Which lines are the library's own, and which the program's: for sites, messages, warnings and Ctrl-C.

The one rule is `is_own`, by the names of modules: all of the package is the library, except the parts that only use it
as a program does: the command line, its demos and its benchmarks. The examples that a wheel has within the package are
loaded under names of their own, and programs too.
"""

from __future__ import annotations

import gc
import sys
import warnings
from functools import lru_cache, partial
from operator import call
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

Steps = TypeVar("Steps", bound="Callable[..., object]")

_PACKAGE = __name__.partition(".")[0]
_USERS = tuple(f"{_PACKAGE}.{name}" for name in ("__main__", "cli"))
# Packages whose frames lie between a program and the library: of a ``with`` block, a pool, a loop.
_CARRIERS = frozenset(
    {"asyncio", "concurrent", "contextlib", "dask", "distributed", "functools", "multiprocessing", "threading"}
)

_MODULES = 1024  # Modules that are remembered: a program has few, unless it makes them


_calling_program: set[CodeType] = set()


def calls_program(function: Steps) -> Steps:
    """Mark a function of the library that calls the program's code in the library's own steps: a body or a callback."""
    # There the program's code begins anew: what is further out on the stack has no part in what it does.
    _calling_program.add(function.__code__)
    return function


def is_calling_program(frame: FrameType) -> bool:
    """Tell whether a frame is that of a function so marked."""
    return frame.f_code in _calling_program


@lru_cache(maxsize=_MODULES)
def is_own(module: object) -> bool:
    """Tell whether a frame's ``__name__`` is a module of the library, not of a program that uses it."""
    if not isinstance(module, str) or module.partition(".")[0] != _PACKAGE:
        return False
    return not any(module == user or module.startswith(f"{user}.") for user in _USERS)


def caller(depth: int = 1) -> FrameType:
    """Return where the program has called the library: the innermost frame that is the program's."""
    # If there is none, as in a callback of a loop, in a thread of a pool and at the interpreter's end, return the
    # outermost frame. A ``depth`` of 1 begins at the function that calls this one.
    frame = sys._getframe(depth)  # noqa: SLF001  # what `inspect` and `logging` use
    try:  # every construct that is a call comes by here: to ask `is_between` of each frame takes twice as long
        while _passages[frame.f_globals["__name__"]] and (outer := frame.f_back) is not None:
            frame = outer
    except KeyError:  # a module that nothing has come through before
        while is_between(frame) and (outer := frame.f_back) is not None:
            frame = outer
    return frame


def frames_of_threads() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by the thread's identifier.

    CPython before 3.12 holds a lock of the interpreter meanwhile, which the end of a `threading.local` takes too. If
    the collector came to one then, the process would hang.
    """
    return _while_collector_rests(sys._current_frames)  # type: ignore[no-any-return]  # noqa: SLF001  # as `faulthandler`


def of_any_thread(frame: FrameType, name: str) -> Any:
    """Return an attribute of a frame that another thread may be about to leave.

    CPython before 3.12 may collect while it makes the value. Another thread could run then and leave the frame, whose
    memory the interpreter still reads.
    """
    return _while_collector_rests(partial(getattr, frame, name))


def _while_collector_rests(function: Callable[[], Any]) -> Any:
    """Call a function that is written in C, and not in Python."""
    calls: tuple[Any, ...] = gc.isenabled, gc.disable, function
    was_on, _, found = map(call, calls)  # without a return to Python's code, so that no other thread comes in between
    if was_on:
        gc.enable()
    return found


def warn(message: str, category: type[Warning], location: str = "") -> None:
    """Issue a warning at the line of the program that has called the library.

    ``location`` is a ``file:line`` to name if no line of the program is running; the default is ``sys:1``, as in
    Python.
    """
    frame = caller()
    if is_between(frame):
        path, _, line = location.rpartition(":")
        warnings.warn_explicit(message, category, path or "sys", int(line) if path else 1)
        return
    names = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno or 1,
        names.get("__name__") or "<string>",
        names.setdefault("__warningregistry__", {}),
    )


def is_between(frame: FrameType) -> bool:
    """Tell whether a frame is the library's, or of a module through which library and program call each other."""
    module = frame.f_globals.get("__name__")
    found = _passages.get(module)
    if found is None:
        if len(_passages) >= _MODULES:
            _passages.clear()
        carries = isinstance(module, str) and module.partition(".")[0] in _CARRIERS
        found = _passages[module] = carries or is_own(module)
    return found


_passages: dict[object, bool] = {}  # What `is_between` has found, by the names of modules
