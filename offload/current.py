"""Which runtime is current, and what the calling thread is doing for it.

The runtime whose ``with`` the caller is in; elsewhere, in foreign threads too, the most recently entered one that is
open; else one made from the environment at first use, which ends with the process.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from offload.events import sources
from offload.tasks.scope import Scope, current_scope

if TYPE_CHECKING:
    from offload.runtime import Runtime

_open: list[Any] = []  # the runtimes that are open, the most recently entered last
_lock = threading.RLock()
_default: Any = None


def note_open(runtime: Runtime) -> None:
    """Note that a runtime has been made or entered: it stands last now."""
    with _lock:
        if runtime in _open:
            _open.remove(runtime)
        _open.append(runtime)


def note_closed(runtime: Runtime) -> None:
    """Note that a runtime has been closed."""
    with _lock:
        if runtime in _open:
            _open.remove(runtime)


def here() -> Scope:
    """Return what the calling thread is doing for the current runtime."""
    scope = current_scope.get()
    if scope is not None and scope.thread == threading.get_ident():
        return scope
    return current_runtime().scope()


def current_scope_of(runtime: Runtime) -> Scope:
    """Return what the calling thread is doing for ``runtime``."""
    scope = here()
    return scope if scope.runtime is runtime else runtime.scope()


def current_runtime() -> Runtime:
    """Return the runtime that module-level functions act on; the head of this file says which."""
    global _default  # noqa: PLW0603  # the process's one default runtime
    scope = current_scope.get()
    if scope is not None and (scope.thread == threading.get_ident() or not scope.runtime.engine.closed):
        return scope.runtime  # type: ignore[no-any-return]  # Scope does not know Runtime
    with _lock:
        if _open:
            return _open[-1]  # type: ignore[no-any-return]  # nor does this list
        from offload.runtime import Runtime  # which builds on this file

        _default = Runtime()
        return _default  # type: ignore[no-any-return]


sources.current_runtime = current_runtime


@atexit.register
def _close_default() -> None:
    """End the default runtime as a `with` would, but print failures, as there is nobody to catch them."""
    if _default is None:
        return
    try:
        _default.engine.gives_up = True
        _default.close()
    except BaseException as error:  # noqa: BLE001  # the interpreter is ending
        sys.excepthook(type(error), error, error.__traceback__)


def _after_fork() -> None:
    """Refuse the parent's runtimes in a forked child: their threads and driver contexts did not come along."""
    global _default, _lock  # noqa: PLW0603  # the process's one default runtime, and the lock of the parent
    _lock = threading.RLock()
    for runtime in _open:
        runtime.disown()
    _open.clear()
    _default = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
