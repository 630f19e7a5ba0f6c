"""The view of a thread that works for a runtime: its scope, and no event loop. Imports no asyncio."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from offload.tasks.scope import current_scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.tasks.scope import Scope


scope_in_context = current_scope.get
"""To look up a method of what is imported takes 30 to 50 ns."""

_look: Callable[[], Any] | None = None
"""What tells which event loop runs on the calling thread, once asyncio has been imported."""


def running_loop() -> Any:
    """Return the event loop that runs on the calling thread; None where there is none."""
    global _look  # noqa: PLW0603  # found once
    if _look is None:
        if "asyncio.events" not in sys.modules:
            return None
        _look = getattr(sys.modules["asyncio.events"], "_get_running_loop", None)  # None while a thread imports it
        if _look is None:
            return None
    return _look()


class Entered:
    """The calling thread works for a scope's runtime: that is current, and no event loop is to be seen.

    The thread may help a runtime that is not its current one. And a plain body runs on a worker, or on a thread that
    waits; the rules for it must not depend on which. So where a loop stands still below it, the body does not see it:
    it may call `asyncio.run`, and the coroutines that it starts as tasks run on the runtime's own loop, since they
    could not on the one that stands still.
    """

    __slots__ = ("_current", "_loop", "_scope")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._current = scope_in_context()
        current_scope.set(self._scope)
        self._loop = running_loop()
        if self._loop is not None:
            sys.modules["asyncio.events"]._set_running_loop(None)  # noqa: SLF001  # in its __all__

    def __exit__(self, *_: object) -> None:
        if self._loop is not None:
            sys.modules["asyncio.events"]._set_running_loop(self._loop)  # noqa: SLF001  # in its __all__
        current_scope.set(self._current)
