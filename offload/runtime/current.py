"""The current runtime, and the scope of the calling thread for it.

The runtime whose ``with`` the caller is in; elsewhere, in foreign threads too, the most recently entered one that is
open; else one made from the environment at first use, which ends with the process.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any, TypeVar, cast

from offload.errors import UsageError
from offload.events import sources
from offload.interrupts.finalizers import catch_up, collector, is_finalizing, is_inside, put_off
from offload.interrupts.shields import is_at_work
from offload.runtime import registry
from offload.runtime.keywords import refuse_unknown
from offload.runtime.runtime import Runtime
from offload.tasks import scope as scopes
from offload.tasks.stack import owned

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import ContextVar

    from offload.runtime.runtime import RuntimeScope
    from offload.tasks.region import Region

    Scope = RuntimeScope
    """What a thread is doing for a runtime of which all is known: the scope that constructs take."""

    Construct = TypeVar("Construct", bound=Callable[..., Any])

current_scope = cast("ContextVar[Scope | None]", scopes.current_scope)
"""The variable of `offload.tasks.scope`, typed for constructs: every scope in it was made by a `Runtime`."""

scope_in_context = current_scope.get
"""Return what is in it, which may be another thread's. To look up a method of what is imported takes 30 to 50 ns."""


def here() -> Scope:
    """Return the scope of the calling thread for the current runtime."""
    scope = scope_in_context()
    if scope is not None and scope.thread == threading.get_ident():
        return scope
    return elsewhere(scope)


def elsewhere(scope: Scope | None) -> Scope:
    """Return the result of `here` if the context has no scope, or ``scope``, which is another thread's."""
    if scope is not None and not scope.runtime.engine.is_closed:
        return scope.runtime.scope()
    try:
        runtime: Any = registry.runtimes[-1]  # as `latest` does, whose call each construct would pay for
    except IndexError:
        runtime = registry.latest(Runtime)
    try:
        return runtime.local.scope  # type: ignore[no-any-return]  # of a runtime
    except AttributeError:  # the thread has not used the runtime
        return runtime.scope()  # type: ignore[no-any-return]  # of a runtime


def encounter(what: str) -> tuple[Scope, Region]:
    """Return what the calling thread is doing for the current runtime, and the region that ``what`` is encountered in.

    Raises
    ------
    UsageError
        Nothing can be encountered here, as in a target body.
    """
    scope = scope_in_context()
    if scope is None or scope.thread != threading.get_ident():
        scope = elsewhere(scope)
    region = scope.region
    if region is None or region.mode or owned:
        region = scope.frame(what)
    return scope, region


def current_runtime() -> Runtime:
    """Return the runtime that module-level functions act on.

    Inside of the ``with`` block of a `Runtime` it is that runtime. Elsewhere it is the open runtime that was entered
    last. If no runtime is open, the function makes one from the environment variables; it ends with the process.

    Returns
    -------
    Runtime
        The current runtime.

    Examples
    --------
    >>> with omp.Runtime("sim:1") as runtime:
    ...     print(omp.current_runtime() is runtime)
    True
    """
    scope = scope_in_context()
    if scope is not None and (scope.thread == threading.get_ident() or not scope.runtime.engine.is_closed):
        return scope.runtime
    return registry.latest(Runtime)


sources.look_in(current_runtime)


# -- finalizers ------------------------------------------------------------------------------------


def for_finalizers(construct: Construct) -> Construct:
    """Make a construct one that finalizers may call: where it must not run, it is put off and gives None.

    `offload.interrupts.finalizers` says where, and until when. The beginning and the end of the construct are safe
    points.
    """

    @functools.wraps(construct)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (collector.start or is_at_work()) and is_inside(sys._getframe(1)):  # noqa: SLF001  # what `inspect` uses
            return _put_off(construct, args, kwargs)
        if put_off.calls:
            catch_up()
        try:
            return construct(*args, **kwargs)
        except UsageError:
            if here().may_generate or not is_finalizing(sys._getframe(1)):  # noqa: SLF001  # the same
                raise
            return _put_off(construct, args, kwargs)
        except TypeError:
            refuse_unknown(construct, kwargs)
            raise
        finally:
            if put_off.calls:
                catch_up()

    return call  # type: ignore[return-value]  # it has the signature of what it wraps


def put_off_here(scope: Scope, construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Put off the call of a construct if `for_finalizers` would; return whether. For frequent calls."""
    caller = sys._getframe(1)  # noqa: SLF001  # as above
    if not (
        ((collector.start or is_at_work()) and is_inside(caller))
        or (scope.region is None and not scope.may_generate and is_finalizing(caller))
    ):
        return False
    _put_off(construct, args, kwargs)
    return True


def _put_off(construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    scope = scope_in_context()
    runtime = scope.runtime if scope is not None else registry.runtimes[-1] if registry.runtimes else None
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
