"""A task as a `concurrent.futures.Future`, for libraries that require one."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from offload.interrupts.frames import calls_program
from offload.tasks.failures import see

if TYPE_CHECKING:
    from offload.tasks.handle import Handle


class TaskFuture(Future[Any]):
    """Ends as its task does; who asks it for the failure has seen that of the task."""

    def __init__(self, task: Handle) -> None:
        super().__init__()
        self._task = task

    def result(self, timeout: float | None = None) -> Any:
        try:
            self._wait(timeout)
            return super().result()
        finally:
            del self  # or the traceback would refer to the future, and the future to the failure

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            self._wait(timeout)
            return super().exception()
        finally:
            del self  # the body may have run in the wait

    def _wait(self, timeout: float | None) -> None:
        """Wait as the task does, which may run others meanwhile; its callback then ends the future, or has done so."""
        task = self._task
        if not self.done() and not task.finished:
            task.construct.runtime.wait_for_task(task, timeout)
        try:
            if task.failure is not None:
                see(task)
        finally:
            del self, task  # as above


def future_of(task: Handle) -> Future[Any]:
    """Return a future that ends as the task does; it cannot be cancelled."""
    future = TaskFuture(task)
    future.set_running_or_notify_cancel()

    @calls_program  # what has been added to the future
    def end(task: Handle) -> None:
        if task.failure is None:
            future.set_result(task.value)
        else:
            future.set_exception(task.failure)

    task.add_done_callback(end)
    return future
