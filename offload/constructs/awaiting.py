"""How a construct that is not deferred waits in a coroutine: it lets the loop run."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from offload.tasks.aio.wait import outcome
from offload.tasks.states import TaskState
from offload.tasks.task import LeaveRegion

if TYPE_CHECKING:
    from offload.tasks.task import Task


async def ended(task: Task) -> None:
    """Wait for a task as a construct does that is not deferred: raise its failure, or leave a cancelled group."""
    try:
        await outcome(task)
    except CancelledError:
        group = task.inherited.group
        if task.state_ is not TaskState.CANCELLED or group is None or (cancelled := group.cancelled_by) is None:
            raise
        raise LeaveRegion(cancelled) from None
    finally:
        del task  # the traceback of its failure would refer to the task, and the task to it
