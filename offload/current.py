"""Which runtime is current, and what the calling thread is doing for it.

The runtime whose ``with`` the caller is in; elsewhere, in foreign threads too, the most recently entered one that is
open; else one made from the environment at first use, which ends with the process.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from offload.errors import RuntimeClosedError, UsageError
from offload.events import sources
from offload.finalizers import catch_up, collector, is_finalizing, is_inside, put_off
from offload.interrupts import is_at_work
from offload.tasks.scope import Scope, current_scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.runtime import Runtime

    Construct = TypeVar("Construct", bound=Callable[..., Any])

_open: list[Any] = []  # the runtimes that are open, the most recently entered last
_lock = threading.RLock()
_default: Any = None
_is_ending = False


def note_open(runtime: Runtime) -> None:
    """Note that a runtime has been made or entered: it stands last now."""
    put_off.stirs.add(runtime.engine.stir)
    with _lock:
        if runtime in _open:
            _open.remove(runtime)
        _open.append(runtime)


def note_closed(runtime: Runtime) -> None:
    """Note that a runtime has been closed."""
    put_off.stirs.discard(runtime.engine.stir)
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
    if scope is not None and (scope.thread == threading.get_ident() or not scope.runtime.engine.is_closed):
        return scope.runtime  # type: ignore[no-any-return]  # Scope does not know Runtime
    with _lock:
        if _open:
            return _open[-1]  # type: ignore[no-any-return]  # nor does this list
        refuse_at_end()
        from offload.runtime import Runtime  # which builds on this file

        _default = Runtime()
        return _default  # type: ignore[no-any-return]  # nor does this name


sources.current_runtime = current_runtime


# -- finalizers ------------------------------------------------------------------------------------


def for_finalizers(construct: Construct) -> Construct:
    """Make a construct one that finalizers may call: where it must not run, it is put off and gives None.

    `offload.finalizers` says where, and until when. The beginning and the end of the construct are safe points.
    """

    @functools.wraps(construct)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (collector.thread or is_at_work()) and is_inside(sys._getframe(1)):  # noqa: SLF001  # what `inspect` uses
            return _put_off(construct, args, kwargs)
        if put_off.calls:
            catch_up()
        try:
            return construct(*args, **kwargs)
        except UsageError:
            if here().may_generate or not is_finalizing(sys._getframe(1)):  # noqa: SLF001  # the same
                raise
            return _put_off(construct, args, kwargs)
        finally:
            if put_off.calls:
                catch_up()

    return call  # type: ignore[return-value]  # it has the signature of what it wraps


def put_off_here(scope: Scope, construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Put off the call of a construct if `for_finalizers` would; return whether. For what is called often."""
    caller = sys._getframe(1)  # noqa: SLF001  # as above
    if not (
        ((collector.thread or is_at_work()) and is_inside(caller))
        or (scope.region is None and not scope.may_generate and is_finalizing(caller))
    ):
        return False
    _put_off(construct, args, kwargs)
    return True


def refuse_inside(what: str) -> None:
    """Refuse what waits or answers in a finalizer that came where `for_finalizers` would put it off.

    Raises
    ------
    UsageError
        The cyclic collector runs the finalizer, or it came in the middle of the library's own steps.
    """
    if (collector.thread or is_at_work()) and is_inside(sys._getframe(1)):  # noqa: SLF001  # as above
        raise UsageError(
            f"{what} in a finalizer that the cyclic collector runs, or that came in the middle of the library's own "
            "steps: it could wait for ever there; release what the object holds, and do the rest elsewhere"
        )


def _put_off(construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scope = current_scope.get()
    runtime = scope.runtime if scope is not None else _open[-1] if _open else None
    put_off.add(functools.partial(_carry_out, runtime, construct, args, kwargs), runtime)


def _carry_out(
    runtime: Runtime | None, construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Call a construct on behalf of a finalizer, with the runtime current that was so there."""
    if runtime is None or runtime is current_runtime():
        construct(*args, **kwargs)
        return
    outer = current_scope.set(runtime.scope())
    try:
        construct(*args, **kwargs)
    finally:
        current_scope.reset(outer)


# -- the end of the process ------------------------------------------------------------------------


def refuse_at_end() -> None:
    """Refuse a runtime that nobody would close any more.

    Raises
    ------
    RuntimeClosedError
        The process ends.
    """
    if _is_ending:
        raise RuntimeClosedError("the process ends, and its runtimes have been closed; do this before")


@atexit.register
def _end() -> None:
    """End the runtimes that are open as a `with` would, but print failures, as there is nobody to catch them.

    One that the program has made itself, and should have closed, is not waited for while nothing but a body runs.
    """
    global _is_ending  # noqa: PLW0603  # the process's one end
    _is_ending = True
    while _open:
        runtime = _open[-1]
        try:
            runtime.close_at_end(waits_for_bodies=runtime is _default)
        except BaseException as error:  # noqa: BLE001  # the interpreter is ending
            if runtime is not _default:
                error.add_note("a runtime that the program made and did not close: use it in a `with`, or close() it")
            sys.excepthook(type(error), error, error.__traceback__)
        note_closed(runtime)  # also one that could not be closed
    put_off.has_ended = True


def _after_fork() -> None:
    """Refuse the parent's runtimes in a forked child: their threads and driver contexts did not come along."""
    global _lock  # noqa: PLW0603  # the lock of the parent
    _lock = threading.RLock()
    for runtime in _open:
        runtime.disown()
    _open.clear()
    put_off.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
