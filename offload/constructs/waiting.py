"""Constructs that wait for tasks, or give way to them."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any, Never, overload

from offload.constructs.clauses.dependences import Dependence, check_depend_now
from offload.constructs.clauses.following import awaited
from offload.errors import ClauseError, DependError, UsageError
from offload.interrupts.finalizers import refuse_inside
from offload.runtime.current import encounter, here
from offload.runtime.everything import Everything
from offload.runtime.generate import generate
from offload.runtime.keywords import refuse_unknown
from offload.runtime.sites import call_site
from offload.tasks.depend import DependType
from offload.tasks.goals import Emptied, Goal
from offload.tasks.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import Literal

    from offload.constructs.clauses.signatures import Depends
    from offload.runtime.current import Scope
    from offload.tasks.region import Region
    from offload.tasks.task import Task


_ALL = ()
"""The ``depend`` of a `taskwait` that waits for all."""


@overload
def taskwait(depend: Depends, nowait: Literal[True]) -> Task[None]: ...
@overload
def taskwait(depend: Depends = ..., nowait: bool = False) -> Any: ...
def taskwait(depend: Depends = _ALL, nowait: bool = False, **unknown: Never) -> Any:
    """Wait for the tasks that the current task, or host thread, has generated.

    Parameters
    ----------
    depend : list of dependences, optional
        Wait only for the tasks that a task with these dependences would follow. ``mutexinoutset`` is not allowed.
    nowait : bool
        True: do not wait, but generate an empty task with these dependences. Later tasks can depend on it.

    Returns
    -------
    Task, coroutine or None
        The task, with ``nowait``. In a coroutine, the call returns a coroutine, which waits when you await it, and lets
        the event loop run: ``await taskwait()``.

    Raises
    ------
    ExceptionGroup
        Some of these tasks failed, and their failures have not been retrieved.
    ClauseError
        ``nowait`` without ``depend``.
    DependError
        A dependence has the type ``mutexinoutset``.

    Notes
    -----
    The call blocks. The waiting thread may run other tasks, so hold no lock. It does not wait for the children of these
    tasks. OpenMP 5.2, 15.5 "taskwait Construct".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> task = omp.task(lambda: x.fill(2))()
    >>> omp.taskwait()
    >>> x
    array([2., 2., 2.])
    """
    if unknown:
        refuse_unknown(taskwait, unknown)
    dependences = check_depend_now("taskwait", depend) if depend is not _ALL else ()
    if dependences and any(dependence.type is DependType.MUTEXINOUTSET for dependence in dependences):
        raise DependError("taskwait: mutexinoutset excludes other tasks, but a taskwait has no body; use inout")
    refuse_inside("taskwait")
    scope, frame = encounter("taskwait")
    if nowait:
        return _edges(scope, frame, dependences)
    caller = sys._getframe(1)  # noqa: SLF001  # as `caller` does
    waits: Any = _front(caller) if caller.f_code.co_flags & _COROUTINE else None
    recorder = frame.recorder
    if recorder is not None:
        recorder.add_wait(call_site("taskwait", scope.runtime), dependences)
        if not recorder.executes:
            # A coroutine awaits the result of the call, also where nothing is to be waited for.
            return None if waits is None else waits.nothing()
    notify = scope.runtime.notify
    if notify is not None:
        notify.wait("taskwait")
    goal = Goal("taskwait", _followed(frame, dependences)) if dependences else Emptied("taskwait", frame.children)
    return (waits or scope.runtime).wait_for(scope, goal)


def _front(caller: FrameType) -> Any:
    """Return the module that waits for a caller that is a coroutine; None for others, for which the runtime waits."""
    if not caller.f_code.co_flags & _COROUTINE:
        return None
    from offload.tasks.aio import wait  # imports asyncio

    return wait


# Code that can await: an ``async def``, or a generator that `types.coroutine` has marked.
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def _edges(scope: Scope, frame: Region, dependences: Sequence[Dependence]) -> Task:
    """Generate an empty task."""
    if not dependences:
        raise ClauseError(
            "taskwait: nowait without depend has no effect; add depend=[…] to say which tasks later tasks wait for"
        )
    runtime = scope.runtime
    site = call_site("taskwait", runtime)
    return generate(scope, frame, Recipe(site), dependences, wait=False)


def _followed(frame: Region, dependences: Sequence[Dependence]) -> list[Task]:
    """Return the tasks that one with these dependences would follow."""
    handles = frame.tracker.latest(dependences)
    found = [awaited(task) for handle in handles if (task := handle()) is not None]
    return list(dict.fromkeys(task for task in found if not task.past))


def barrier() -> Any:
    """Wait for every task of the runtime, from any thread.

    Returns
    -------
    coroutine or None
        In a coroutine, the call returns a coroutine, which waits when you await it: ``await barrier()``.

    Raises
    ------
    ExceptionGroup
        Tasks failed, and their failures have not been retrieved.
    UsageError
        The call is in a task, for which the barrier would have to wait.

    Notes
    -----
    The call blocks; the waiting thread may run other tasks. OpenMP 5.2, 15.3.1 "barrier Construct".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> outer = omp.task(lambda: omp.task(lambda: x.fill(2))())()
    >>> omp.barrier()  # also for the task in the task
    >>> x
    array([2., 2., 2.])
    """
    refuse_inside("barrier")
    scope, frame = encounter("barrier")
    if scope.task is not None:
        raise UsageError(
            f"barrier in the task {scope.task.name!r} would wait for that task itself; use taskwait or taskgroup"
        )
    waits: Any = _front(sys._getframe(1))  # noqa: SLF001  # as `caller` does
    if frame.recorder is not None:
        frame.recorder.add_wait(call_site("barrier", scope.runtime), ())
        if not frame.recorder.executes:
            return None if waits is None else waits.nothing()
    notify = scope.runtime.notify
    if notify is not None:
        notify.wait("barrier")
    return (waits or scope.runtime).wait_for(scope, Everything(scope.runtime, "the barrier"))


def taskyield() -> None:
    """Let the current thread run another ready task, if there is one; inside of a task, only one of its own tasks.

    Notes
    -----
    The call blocks while that task runs. OpenMP 5.2, 12.7 "taskyield Construct".

    Examples
    --------
    >>> task = omp.task(lambda: 3)()
    >>> omp.taskyield()  # may run the task
    >>> task.result()
    3
    """
    scope = here()
    scope.runtime.engine.help(scope, scope.frame("taskyield"))
