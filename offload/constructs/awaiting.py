"""What the constructs that wait do in a coroutine: they give way to the loop."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from offload.tasks.aio.wait import AsyncWait, outcome
from offload.tasks.failures import raise_failures
from offload.tasks.states import TaskState
from offload.tasks.task import LeaveRegion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.runtime.runtime import Runtime
    from offload.tasks.region import Region
    from offload.tasks.scope import Scope
    from offload.tasks.task import Task


async def nothing() -> None:
    """Wait for nothing: the region is only recorded."""


async def children(scope: Scope, frame: Region, where: str) -> None:
    """Wait for the tasks that a region has generated, and raise what failed among them."""
    engine, tasks = scope.runtime.engine, frame.children
    await AsyncWait(engine, scope, lambda: not tasks.live, (tasks,), where).run()
    raise_failures(engine.take_failures(tasks), where)


async def some(scope: Scope, waited: Sequence[Task], where: str) -> None:
    """Wait for certain tasks, and raise what failed among them."""
    engine = scope.runtime.engine
    try:
        await AsyncWait(engine, scope, lambda: all(task.finished for task in waited), (), where, awaited=waited).run()
        raise_failures([task for task in waited if task.failure is not None], where)
    finally:
        waited = ()  # a failure refers to the frames that its body was called from


async def everything(runtime: Runtime, scope: Scope, where: str) -> None:
    """Wait for every task of a runtime, and raise what failed among them."""
    engine = runtime.engine
    while True:
        regions = runtime.regions()
        busy = [frame.children for frame in regions if frame.children.live]
        if busy:
            await AsyncWait(engine, scope, lambda: not any(tasks.live for tasks in busy), busy, where).run()  # noqa: B023  # used in this turn only
        elif not set(runtime.regions()) - set(regions):
            break  # no body that ended meanwhile has left a region with tasks
    raise_failures([task for frame in regions for task in engine.take_failures(frame.children)], where)


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
