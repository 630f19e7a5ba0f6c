"""What a thread is doing for a runtime: the task that it runs, the region that generates tasks, and how it sleeps."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from offload.errors import UsageError
from offload.tasks.task import Frame

if TYPE_CHECKING:
    from offload.tasks.task import Task

current_scope: ContextVar[Scope | None] = ContextVar("offload_scope", default=None)
"""What the running code does: set by ``with runtime``, by a worker, and wherever a body begins."""


COMPLETER = "offload-completer"
"""The name of the thread that finds out what has passed on the streams; nothing on it may wait."""


class Parker:
    """Lets one thread sleep until somebody has something for it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def park(self, timeout_s: float = -1) -> bool:
        """Block until `unpark`, which may have come before; return false at a timeout."""
        return self._lock.acquire(timeout=timeout_s)

    def unpark(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            return  # awake already


class Scope:
    """What one thread is doing for one runtime: the task that it runs and the region that generates tasks.

    Attributes
    ----------
    task : Task or None
        The task whose body is running on this thread.
    device, stream : object or None
        Where the array operations of a target body go.
    """

    __slots__ = ("_frame", "device", "is_completer", "lane", "parker", "root", "runtime", "task", "thread")

    def __init__(self, runtime: Any, root: Frame | None) -> None:
        self.runtime = runtime
        self.thread = threading.get_ident()
        self.is_completer = threading.current_thread().name == COMPLETER
        self.parker = Parker()
        self.root = root
        self._frame = root
        self.task: Task | None = None
        self.device: Any = None
        self.lane: Any = None

    def frame(self, what: str) -> Frame:
        """Return the region that ``what`` is encountered in; make it if the running body has none yet."""
        frame = self._frame
        if frame is None:
            task = self.task
            if task is None:
                raise UsageError(f"{what} on a thread of the runtime itself")
            if task.construct.directive == "target":
                raise UsageError(
                    f"{what} inside of the target body {task.name!r}: a body only enqueues device work; "
                    "move it before or after the region"
                )
            frame = self._frame = Frame(task, task.default_device, task.group)
        return frame

    @property
    def recorder(self) -> Any:
        """What keeps the graph of the region, while ``record`` is on; None elsewhere."""
        return None if self._frame is None else self._frame.recorder

    @property
    def default_device(self) -> int:
        """The default-device-var of what runs here."""
        frame = self._frame
        if frame is None and self.task is not None:
            return self.task.default_device
        return frame.default_device if frame is not None else 0

    def enter(self, task: Task) -> tuple[Any, ...]:
        """Begin the body of a task; return what `leave` needs."""
        current = current_scope.get()
        if current is not self:
            current_scope.set(self)  # the thread helps a runtime that is not its current one
        outer = (self.task, self._frame, self.device, self.lane, current)
        self.task = task
        self._frame = self.device = self.lane = None
        return outer

    def leave(self, outer: tuple[Any, ...]) -> None:
        """End the body; tasks that it generated and did not wait for go on."""
        frame = self._frame
        if frame is not None and (frame.children.live or frame.children.failures):
            self.runtime.engine.adopt(frame)
        self.task, self._frame, self.device, self.lane, current = outer
        if current is not self:
            current_scope.set(current)
