"""What the constructs that wait do in a coroutine: they give way to the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.reductions import end_reductions
from offload.synchronization import GroupRegion
from offload.tasks.awaiting import AsyncWait
from offload.tasks.failures import raise_failures
from offload.tasks.scope import Scope, current_scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.runtime import Runtime
    from offload.tasks.region import Frame
    from offload.tasks.task import Task


class GroupPart(GroupRegion):
    """A taskgroup region of one coroutine: what others on its thread generate does not belong to it.

    So it is no change of the frame but a part of it, which the coroutine's context has in place of the frame.
    """

    __slots__ = ("_former", "_part", "_whole")

    def __init__(self, scope: Scope, frame: Frame, where: str) -> None:
        self._whole = frame
        self._part = frame.part(frame.inherited)
        inner = Scope(scope.runtime, self._part, scope.task)
        super().__init__(inner, self._part, where)
        self._former = scope
        current_scope.set(inner)

    async def finish(self, *, combines: bool = True) -> None:
        """Do what `end` does, and let the loop run meanwhile."""
        group = self.group
        current_scope.set(self._former)
        default_device = self._part.inherited.default_device
        if default_device != self._outer.default_device:  # set inside; the setting outlasts the group, as in any other
            self._whole.inherited = self._part.inherited.within(self._whole.inherited.group)
        self._close()
        try:
            await AsyncWait(
                self._scope.runtime.engine, self._former, lambda: not group.live, (group,), self._where
            ).run()
            raise_failures(group.failures, self._where)
        except BaseException:
            if not group.live:  # else a cancellation: they are still at work
                end_reductions(group, combines=False)
            raise
        if group.reductions:
            end_reductions(group, combines=combines)


async def nothing() -> None:
    """Wait for nothing: the region is only recorded."""


async def children(scope: Scope, frame: Frame, where: str) -> None:
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
