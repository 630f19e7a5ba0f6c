"""Constructs that wait for tasks, group them, or cancel them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.current import current_runtime, here
from offload.dependences import Dependence, check_depend_now
from offload.errors import ClauseError, DependError, UnsupportedError, UsageError
from offload.sites import call_site
from offload.tasks.depend import DependType
from offload.tasks.failures import raise_failures
from offload.tasks.region import Group
from offload.tasks.task import LeaveRegion, Task

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from offload.tasks.region import Frame
    from offload.tasks.scope import Scope


# -- taskgroup -------------------------------------------------------------------------------------


class GroupRegion:
    """A taskgroup region: from its making to `end`, what its frame generates belongs to it."""

    __slots__ = ("_frame", "_outer", "_scope", "_where", "group")

    def __init__(self, scope: Scope, frame: Frame, where: str) -> None:
        self._scope = scope
        self._frame = frame
        self._where = where
        self._outer = frame.inherited
        self.group = Group(frame.inherited.group)
        frame.inherited = frame.inherited.within(self.group)
        if frame.recorder is not None:
            frame.recorder.begin_group()

    def end(self) -> None:
        """Wait for the tasks of the group and their descendants, and raise what failed among them."""
        frame, group = self._frame, self.group
        frame.inherited = frame.inherited.within(self._outer.group)
        if frame.recorder is not None:
            frame.recorder.end_group(call_site("taskgroup", self._scope.runtime))
        if group.live:
            self._scope.runtime.engine.wait(self._scope, lambda: not group.live, (group,), self._where)
        raise_failures(group.failures, self._where)


class Taskgroup:
    """What `taskgroup` returns: a context manager, used once."""

    __slots__ = ("_region",)

    def __init__(self) -> None:
        self._region: GroupRegion | None = None

    def __enter__(self) -> None:
        scope = here()
        self._region = GroupRegion(scope, scope.frame("taskgroup"), "the end of the taskgroup")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        region = self._region
        assert region is not None, "entered"
        is_left = isinstance(error, LeaveRegion) and error.group is region.group
        try:
            region.end()
        except BaseException as later:
            if error is None or is_left:
                raise
            error.add_note(f"then, at the end of the taskgroup: {later!r}")
        return is_left


def taskgroup() -> Taskgroup:
    """Wait, at the end of the block, for the tasks generated in it and all their descendants.

    Returns
    -------
    context manager
        For ``with``.

    Raises
    ------
    ExceptionGroup
        Tasks of the group failed, and nobody has seen it. If the block raised, its exception goes on and the group
        is added to it as a note.

    Notes
    -----
    *Blocks* at the end; the waiting thread may run other tasks. OpenMP 5.2, 15.4 "taskgroup Construct".
    """
    return Taskgroup()


# -- waiting ---------------------------------------------------------------------------------------


def taskwait(depend: Any = (), nowait: bool = False) -> Task | None:
    """Wait for the tasks that the current task, or host thread, has generated.

    Parameters
    ----------
    depend : list of dependences, optional
        Wait only for the tasks that one with these dependences would follow; ``mutexinoutset`` is not allowed.
    nowait : bool
        True: wait for nothing, but generate an empty task with these dependences, which later tasks can follow.

    Returns
    -------
    Task or None
        The task, with ``nowait``.

    Raises
    ------
    ExceptionGroup
        Tasks that were waited for failed, and nobody has seen it.
    ClauseError
        ``nowait`` without ``depend``.
    DependError
        A dependence of type ``mutexinoutset``.

    Notes
    -----
    *Blocks*; the waiting thread may run other tasks, so hold no lock. Does not wait for descendants.
    OpenMP 5.2, 15.5 "taskwait Construct".
    """
    dependences = check_depend_now("taskwait", depend)
    if any(dependence.type is DependType.MUTEXINOUTSET for dependence in dependences):
        raise DependError("taskwait: mutexinoutset excludes tasks, and a taskwait runs nothing; use inout")
    scope = here()
    frame = scope.frame("taskwait")
    if nowait:
        return _edges(scope, frame, dependences)
    recorder = frame.recorder
    if recorder is not None:
        recorder.add_wait(call_site("taskwait", scope.runtime), dependences)
        if not recorder.executes:
            return None
    if dependences:
        _wait_for(scope, frame, dependences)
    else:
        scope.runtime.wait_for_children(scope, frame, "taskwait")
    return None


def _edges(scope: Scope, frame: Frame, dependences: Sequence[Dependence]) -> Task:
    """Generate an empty task."""
    if not dependences:
        raise ClauseError("taskwait: nowait without depend says nothing; name what later tasks are to follow")
    runtime = scope.runtime
    site = call_site("taskwait", runtime)
    return runtime.encounter(  # type: ignore[no-any-return]  # Scope does not know Runtime
        scope, frame, lambda frame: Task(site, _nothing, (), None, frame), dependences, deferred=True
    )


def _wait_for(scope: Scope, frame: Frame, dependences: Sequence[Dependence]) -> None:
    """Wait for the tasks that one with these dependences would follow."""
    handles = frame.tracker.latest(dependences)
    waited = list(dict.fromkeys(task for handle in handles if (task := handle()) is not None and not task.past))
    for task in waited:
        task.add_done_callback(lambda _: scope.parker.unpark())
    scope.runtime.engine.wait(scope, lambda: all(task.finished for task in waited), (), "taskwait", awaited=waited)
    raise_failures([task for task in waited if task.failure is not None], "taskwait")


def barrier() -> None:
    """Wait for every task of the runtime, whoever generated it.

    Raises
    ------
    ExceptionGroup
        Tasks failed, and nobody has seen it.
    UsageError
        In a task, which the barrier would wait for.

    Notes
    -----
    *Blocks*; the waiting thread may run other tasks. OpenMP 5.2, 15.3.1 "barrier Construct".
    """
    scope = here()
    frame = scope.frame("barrier")
    if scope.task is not None:
        raise UsageError(f"barrier in the task {scope.task.name!r}, which it would wait for; use taskwait or taskgroup")
    if frame.recorder is not None:
        frame.recorder.add_wait(call_site("barrier", scope.runtime), ())
        if not frame.recorder.executes:
            return
    scope.runtime.wait_for_all("the barrier")


def taskyield() -> None:
    """Let the current thread run another ready task, if there is one; inside of a task only what that generated.

    Notes
    -----
    *Blocks* as long as that takes. OpenMP 5.2, 12.7 "taskyield Construct".
    """
    scope = here()
    scope.runtime.engine.help_once(scope, scope.frame("taskyield"))


def _nothing() -> None:
    """Do nothing: the body of an empty task."""


# -- cancelling ------------------------------------------------------------------------------------


def cancel(construct: str, if_: bool = True) -> None:
    """Cancel the innermost taskgroup, where cancellation is on (``OMP_CANCELLATION``); else do nothing.

    Tasks of the group that have not begun, with those generated later, are discarded: their state is ``"cancelled"``,
    ``result()`` raises `concurrent.futures.CancelledError`, and what depends on them is released. Tasks that run go on
    to their end or to the next `cancellation_point`.

    Parameters
    ----------
    construct : {"taskgroup"}
        What to cancel.
    if_ : bool
        False: only a cancellation point.

    Raises
    ------
    BaseException
        Where cancellation is on: one that leaves the body, or the taskgroup's block. Let it pass.
    UsageError
        No taskgroup encloses the caller.
    UnsupportedError
        Another construct of OpenMP.
    ClauseError
        No construct at all.

    Notes
    -----
    OpenMP 5.2, 11.2 "cancel Construct".
    """
    group = _group_of("cancel", construct)
    if not current_runtime().engine.can_cancel:
        return
    if if_:
        group.cancel()
    _leave_if_cancelled(group)


def cancellation_point(construct: str) -> None:
    """Leave the body if the innermost taskgroup, or one around it, is cancelled. Parameters and errors: as `cancel`.

    Notes
    -----
    OpenMP 5.2, 11.3 "cancellation point Construct".
    """
    _leave_if_cancelled(_group_of("cancellation_point", construct))


def _group_of(directive: str, construct: str) -> Group:
    if construct in ("parallel", "for", "do", "sections"):
        raise UnsupportedError(f"{directive}: there is no {construct!r} region here; only 'taskgroup' can be cancelled")
    if construct != "taskgroup":
        raise ClauseError(f"{directive}: {construct!r:.40} is not a construct; write 'taskgroup'")
    scope = here()
    if scope.task is not None and scope.task.construct.directive == "target":
        scope.frame(directive)  # refuses it
    inherited = scope.inherited
    if inherited is None or inherited.group is None:
        raise UsageError(f"{directive}: no taskgroup encloses this; put the tasks into `with offload.taskgroup():`")
    return inherited.group


def _leave_if_cancelled(group: Group) -> None:
    cancelled = group.cancelled_by
    if cancelled is not None:
        raise LeaveRegion(cancelled)
