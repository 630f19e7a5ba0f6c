"""Mending: a task that was entered in part, since an exception from outside came in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.interrupts.shields import Shield
from offload.tasks.links import follow
from offload.tasks.recipe import Recipe, nothing
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from offload.tasks.protocols import Runner
    from offload.tasks.task import Task


def mend(engine: Runner[Task], task: Task) -> None:
    """Take out a task whose `submit`, or `make_ready` after it, was cut short; keep one that was through.

    An exception that is sent to a thread does that outside of a shield, and the limit of recursion anywhere.

    The tracker may have lost the predecessors of the task, and the task itself. So it is cleared, and later tasks
    follow an empty task, which follows all tasks that had dependences.
    """
    with Shield():
        for parker in engine.parkers:  # one may have been taken off the list of the parked and not been woken
            parker.unpark()
        frame = task.frame
        live, tracker = frame.children.live, frame.tracker
        if task not in live or task.state_ is not TaskState.WAITING:
            return
        try:
            engine.ready.remove(task)
        except (ValueError, KeyError):
            task.finished = task.special = True
        else:
            engine.make_ready(task)  # perhaps nobody has been woken
            return
        task.body = nothing  # its predecessors may know it, and make it ready
        task.args, task.kwargs = (), None
        frame.children.leave(task)
        if task.inherited.group is not None:
            task.inherited.group.leave(task)
        before: list[Any] = [ref(other) for other in live.copy() if other.dependences is not None]
        before += [trouble.reference for trouble in list(frame.children.troubles.values())]
        fence = Recipe(task.construct, label=f"in place of {task.name}").make(frame)
        fence.inherited = frame.inherited.within(None)  # its group cannot discard it
        fence.dependences = tracker.exclusive = []
        tracker.clear(ref(fence))
        live.add(fence)
        if follow(engine, fence, before):
            engine.make_ready(fence)
