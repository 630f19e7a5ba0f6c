"""The failures of tasks: notes, tracebacks, groups; `offload.tasks.troubles` is about the tasks that follow.

Theory of operation
-------------------
The regions and taskgroups keep a failure until it has been seen, and nothing does afterwards, so that it goes
when its handler has ended, with all that its frames refer to. It must be in no cycle for that. The frames of bodies
refer to those that called them, ours, which had the task; so those are cleared where they have ended. Those through
which a failure is raised delete their names for it.
"""

from __future__ import annotations

import inspect
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from offload.errors import DependError, OffloadError
from offload.interrupts.frames import is_own

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from offload.tasks.region import AnyTask

_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Code whose frames may go on after they have been left."""

_NEAREST = 16
"""The causes of an exception that are looked at, one behind the other: a program that tries again makes long chains."""


def see(task: AnyTask) -> None:
    """Note that somebody has been told of the task's failure, and forget it: from now on it is theirs."""
    task.seen = True
    task.frame.children.failures.pop(task, None)
    group = task.inherited.group
    while group is not None:  # the end of a replayed group has told those around it
        group.failures.pop(task, None)
        group = group.outer
    run = task.run() if task.run is not None else None
    if run is not None:
        run.forget()
    recorder = task.frame.recorder
    if recorder is not None:
        recorder.forget(task)
    if task.trouble is not None:
        task.trouble.end()
    if task.frame.task is not None:
        task.frame = task.frame.orphan()  # its parent may have returned it
    if task.failure is not None:
        clear_own_frames(task.failure)


def clear_own_frames(error: BaseException) -> None:
    """Clear the frames of ours that an exception refers to, of calls that have ended.

    Their names refer to tasks and waits: the exception would be in a cycle, or keep others. So do those of its causes,
    and of the exceptions in a group: when they were seen, the wait in which their bodies ran may not have ended.
    """
    visited: set[FrameType] = set()
    errors, known = [(error, 0)], {id(error)}
    for one, depth in errors:  # which grows
        trace = one.__traceback__
        while trace is not None:
            _clear_from(trace.tb_frame, visited)
            trace = trace.tb_next
        others = [(part, depth) for part in one.exceptions] if isinstance(one, BaseExceptionGroup) else []
        if depth < _NEAREST:
            others += [(cause, depth + 1) for cause in (one.__cause__, one.__context__) if cause is not None]
        for other in others:
            if id(other[0]) not in known:
                known.add(id(other[0]))
                errors.append(other)


def _clear_from(frame: FrameType | None, visited: set[FrameType]) -> None:
    while frame is not None and frame not in visited:
        visited.add(frame)
        if is_own(frame.f_globals.get("__name__")) and not frame.f_code.co_flags & _SUSPENDS:
            try:
                frame.clear()
            except RuntimeError:
                break  # it has not ended, and so have not those that it was called from
        frame = frame.f_back


def note_task(error: BaseException, task: AnyTask, step: str) -> None:
    """Add two notes to an exception: the construct with its file and line, and the task with its last steps.

    ``step`` says which step failed. An exception that passes through several tasks of one construct gets the notes of
    the first, in which it was raised.
    """
    where = f"in {task.construct.directive} {task.name!r} ({task.construct.location})"
    with suppress(Exception):  # an exception that takes no attributes, a frozen dataclass for one
        if where not in getattr(error, "__notes__", ()):
            error.add_note(where)
            error.add_note(f"{task.key}: {task.steps(step)}")


def without_engine_frames(error: BaseException) -> BaseException:
    """Return the exception with a traceback that begins at the user's code.

    Our frames refer to the task, and the task to its failure: such a cycle would keep the objects of the body's frame,
    such as device arrays, until the cyclic collector runs.
    """
    trace = error.__traceback__
    while trace is not None and is_own(trace.tb_frame.f_globals.get("__name__")):
        trace = trace.tb_next
    if trace is not None or isinstance(error, OffloadError):
        with suppress(Exception):  # as above
            error.__traceback__ = trace
    return error


def show(error: BaseException) -> None:
    """Show an exception that has nobody to go to, as one that ends a thread is."""
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )


def raise_failures(tasks: Iterable[AnyTask], where: object) -> None:
    """Raise the failures that nobody has seen yet, as a group.

    Raises
    ------
    BaseExceptionGroup
        An `ExceptionGroup` where every failure is an `Exception`. Errors of tasks that did not run are left
        out where the group holds their cause.
    """
    unseen = [task for task in list(tasks) if not task.seen]
    if not unseen:
        return
    failures = list({id(task.failure): task.failure for task in unseen if task.failure is not None}.values())
    roots = set(map(id, failures))
    kept = [error for error in failures if not (isinstance(error, DependError) and id(error.__cause__) in roots)]
    for task in unseen:
        see(task)
    try:
        raise BaseExceptionGroup(f"{len(kept)} task{'s' * (len(kept) != 1)} failed before {where}", kept)
    finally:
        del tasks, unseen, task, failures, kept  # the group has what it holds, and nothing else does
