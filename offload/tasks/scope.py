"""The scope of a thread for a runtime: the task that it runs, the region that generates tasks, and its sleep."""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from offload.errors import UsageError
from offload.tasks.parker import Parker
from offload.tasks.region import Inherited, Region
from offload.tasks.stack import in_blocks, owned

if TYPE_CHECKING:
    from typing import Self

    from offload.tasks.protocols import AnyRuntime
    from offload.tasks.region import AnyTask

current_scope: ContextVar[Scope | None] = ContextVar("offload_scope", default=None)
"""What the running code does: set by ``with runtime``, by a worker, and wherever a body begins."""


_COMPLETERS = {"offload-completer", "offload-requests"}
"""The names of the threads that find out what has passed on the streams, and which requests of MPI are complete.

Nothing on them may wait."""


class Scope:
    """The work of one thread, or of one coroutine on it, for one runtime."""

    __slots__ = ("depth", "in_body", "is_completer", "parker", "region", "runtime", "task", "thread", "user_lane")

    def __init__(self, runtime: AnyRuntime, region: Region | None, task: AnyTask | None = None) -> None:
        self.runtime = runtime
        # The `get_ident` of the thread: a context may be copied to another one, whose scope this is not.
        self.thread = threading.get_ident()
        # Whether the thread must not wait, as it finds out what others wait for.
        self.is_completer = threading.current_thread().name in _COMPLETERS
        # What the thread sleeps on.
        self.parker = Parker()
        # The region that generates tasks; None in a body that has generated none yet.
        self.region = region
        # The task whose body is running; None outside of any body.
        self.task = task
        # Where the body of a host task, or the thread outside of any body, has been given a stream.
        self.user_lane: Any = None
        # Whether the code that runs is a body's, and not the engine's: an interruption is delivered only there.
        self.in_body = False
        # How many waits the thread is in; each but the first is in a task that the wait around it runs.
        self.depth = 0

    def beside(self, region: Region | None, task: AnyTask | None) -> Self:
        """Return the thread's scope for another region or task of the same runtime."""
        return type(self)(self.runtime, region, task)

    def frame(self, what: object) -> Region:
        """Return the region that ``what`` is encountered in; make it if the running body has none yet."""
        region = self.region
        if region is None:
            task = self.task
            if task is None:
                raise UsageError(
                    f"{what} on a thread of the runtime itself is not allowed; call it from a task or from your own "
                    "thread"
                )
            if task.construct.is_target:
                raise UsageError(
                    f"{what} inside of the target body {task.name!r} is not allowed: a body only enqueues device work; "
                    "move it before or after the region"
                )
            inherited = task.inherited
            if task.is_final and not inherited.is_final:
                inherited = Inherited(inherited.default_device, inherited.group, is_final=True)
            region = self.region = Region(task, inherited)
        return _as_seen(region)

    @property
    def device(self) -> Any:
        """The device that the array operations of a target body go to; None elsewhere."""
        place = self.task.place if self.task is not None else None
        return None if place is None else place.device

    @property
    def may_generate(self) -> bool:
        """Whether constructs are allowed where the thread is: not in a target body."""
        return self.region is not None or self.task is None or not self.task.construct.is_target

    @property
    def recorder(self) -> Any:
        """The recorder of the region, while ``record`` is on; None elsewhere."""
        return None if self.region is None else _as_seen(self.region).recorder

    @property
    def inherited(self) -> Inherited | None:
        """The inherited values of the code that runs here; None on a thread of the runtime itself that runs nothing."""
        task = self.task
        if self.region is None and (task is None or task.construct.is_target or not owned):
            return None if task is None else task.inherited
        return self.frame("a look at the region").inherited


def _as_seen(region: Region) -> Region:
    """Return a region as the code that runs sees it, in the blocks that it is in."""
    while region.is_over:
        region = region.whole
    return in_blocks(region, sys._getframe(2)) if owned else region  # noqa: SLF001  # as `call_site` does
