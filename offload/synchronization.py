"""Constructs that wait for tasks, group them, or cancel them."""

from __future__ import annotations

import inspect
import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any

from offload.current import current_runtime, current_scope_of, for_finalizers, here, refuse_inside
from offload.dependences import Dependence, check_depend_now
from offload.errors import ClauseError, DependError, UnsupportedError, UsageError
from offload.following import awaited
from offload.reductions import check_reduction, end_reductions, reductions_of
from offload.sites import call_site
from offload.tasks.blocks import Block
from offload.tasks.depend import DependType
from offload.tasks.failures import raise_failures
from offload.tasks.region import Group
from offload.tasks.task import LeaveRegion, Task

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType, TracebackType

    from offload.reductions import Reduction
    from offload.tasks.region import Frame
    from offload.tasks.scope import Scope


# -- taskgroup -------------------------------------------------------------------------------------


class GroupRegion:
    """A taskgroup region: from its making to `end`, what its block generates belongs to it.

    Parameters
    ----------
    nests : bool
        As for `Block`.
    """

    __slots__ = ("_block", "_recorder", "_scope", "_where", "group")

    def __init__(
        self, scope: Scope, frame: Frame, where: str, *, is_implicit: bool = False, nests: bool = False
    ) -> None:
        self._scope = scope
        self._where = where
        self._block = Block(scope, frame, nests=nests)
        frame = self._block.frame
        self.group = Group(frame.inherited.group, is_implicit=is_implicit)
        frame.inherited = frame.inherited.within(self.group)
        self._recorder = frame.recorder
        if self._recorder is not None:
            self._recorder.begin_group(self.group)

    def end(self, *, combines: bool = True) -> None:
        """Wait for the tasks of the group and their descendants, raise what failed among them, combine reductions."""
        group = self.group
        try:
            scope = self._close()
            if group.live:
                scope.runtime.engine.wait(scope, lambda: not group.live, (group,), self._where)
            raise_failures(group.failures, self._where)
        except BaseException:
            self._end_group(combines=False)
            raise
        self._end_group(combines=combines)

    async def finish(self, *, combines: bool = True) -> None:
        """Do what `end` does, and let the loop run meanwhile."""
        from offload.tasks.awaiting import AsyncWait  # imports asyncio

        group = self.group
        try:
            scope = self._close()
            await AsyncWait(scope.runtime.engine, scope, lambda: not group.live, (group,), self._where).run()
            raise_failures(group.failures, self._where)
        except BaseException:
            self._end_group(combines=False)
            raise
        self._end_group(combines=combines)

    def leave_block(self) -> None:
        """Have what is generated from now on not belong to the block; its end may be put off."""
        self._block.leave()

    def notify(self) -> None:
        """Tell of the wait at the end, under ``OFFLOAD_NOTIFY``."""
        notify, recorder = self._scope.runtime.notify, self._recorder
        if notify is not None and (recorder is None or recorder.executes):
            notify.wait(self._where)

    def _close(self) -> Scope:
        """Have nothing more belong to the group; return what the calling thread is doing, as it is then."""
        group, frame, runtime = self.group, self._block.frame, self._scope.runtime
        self._block.leave()
        if frame.inherited.group is group:  # else a later block is open still, and looks further out at its end
            around = group.outer
            while around is not None and around.is_over:
                around = around.outer
            frame.inherited = frame.inherited.within(around)
        if self._recorder is not None:
            self._recorder.end_group(call_site("taskgroup", runtime), group)
        return self._scope if self._scope.thread == get_ident() else current_scope_of(runtime)

    def _end_group(self, *, combines: bool) -> None:
        """End the reductions, and the cancellation, of a group that nobody waits for any more."""
        group = self.group
        if group.live and not combines:  # an interrupt, or a cancellation of the coroutine: they are still at work
            return
        group.is_over = True  # not before: what its tasks generate belongs to it while it is waited for
        group.is_cancelled = False  # groups in it may outlast it, where coroutines or generators take turns
        if group.reductions:
            end_reductions(group, combines=combines)


class Taskgroup:
    """What `taskgroup` returns: a context manager, used once."""

    __slots__ = ("_directive", "_reductions", "_region")

    def __init__(self, reductions: tuple[Reduction, ...] = (), directive: str = "taskgroup") -> None:
        self._reductions = reductions
        self._directive = directive
        self._region: GroupRegion | None = None

    def __enter__(self) -> None:
        refuse_inside(self._directive)
        if self._region is not None:
            raise UsageError("a taskgroup is entered once; call taskgroup() for each block")
        scope = here()
        self._region = GroupRegion(
            scope,
            scope.frame(self._directive),
            f"the end of the {self._directive}",
            nests=self._directive != "taskgroup",  # constructs that have an implicit one: their own `with`
        )
        self._region.group.reductions = self._reductions

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        region = self._region
        assert region is not None, "entered"
        region.leave_block()
        return bool(self._exit(region, error))

    @for_finalizers
    def _exit(self, region: GroupRegion, error: BaseException | None) -> bool:
        self._notify(region)
        is_left = _leaves(error, region.group)
        try:
            region.end(combines=error is None or is_left)
        except BaseException as later:
            if error is None or is_left:
                raise
            error.add_note(f"then, at the end of the {self._directive}: {later!r}")
        return is_left

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        region = self._region
        assert region is not None, "entered"
        self._notify(region)
        is_left = _leaves(error, region.group)
        try:
            await region.finish(combines=error is None or is_left)
        except BaseException as later:
            if error is None or is_left or not isinstance(later, (Exception, BaseExceptionGroup)):
                raise  # a cancellation must not get lost
            error.add_note(f"then, at the end of the {self._directive}: {later!r}")
        return is_left

    def _notify(self, region: GroupRegion) -> None:
        """Tell of the wait at the end, under ``OFFLOAD_NOTIFY``; a construct that has an implicit group does not."""
        if self._directive == "taskgroup":
            region.notify()


def _leaves(error: BaseException | None, group: Group) -> bool:
    """Tell whether an error is that of a `cancel`, which leaves the block; a group of such, from tasks of asyncio."""
    if isinstance(error, BaseExceptionGroup):
        return all(_leaves(one, group) for one in error.exceptions)
    return isinstance(error, LeaveRegion) and error.group is group


def taskgroup(task_reduction: Any = None) -> Taskgroup:
    """Wait, at the end of the block, for the tasks generated in it and all their descendants.

    Parameters
    ----------
    task_reduction : dict of str to list of arrays, optional
        By operator, ``+ * min max & | ^ and or`` or a name given to `declare_reduction`, writeable NumPy arrays of any
        shape, one without dimensions for a number. Each task of the group that has such an item in ``in_reduction``
        receives a private array of the same shape and dtype for it, and adds to what that holds. At the end the private
        arrays are combined with the item, in place and in no fixed order.

    Returns
    -------
    context manager
        For ``with``; in a coroutine for ``async with``, which lets the loop run at the end. The block is the
        coroutine's or the generator's own that enters it: what others on its thread generate meanwhile does not belong
        to the group.

    Raises
    ------
    ExceptionGroup
        Tasks of the group failed, and nobody has seen it. If the block raised, its exception goes on and the group
        is added to it as a note.
    ClauseError
        An item of ``task_reduction`` is no such array, shares memory with another one or with itself, or its dtype has
        no such operator.

    Notes
    -----
    *Blocks* at the end; the waiting thread may run other tasks. *Costs* of a reduction: as many private arrays as tasks
    with that item have been under way at a time. Where the end or the block raises, the items are what they were; where
    the group is cancelled, what its tasks have put in until then is combined. OpenMP 5.2, 15.4 "taskgroup Construct",
    5.5.9 "task_reduction Clause".
    """
    return Taskgroup(reductions_of("task_reduction", check_reduction("task_reduction", task_reduction)))


# -- waiting ---------------------------------------------------------------------------------------


def taskwait(depend: Any = (), nowait: bool = False) -> Any:
    """Wait for the tasks that the current task, or host thread, has generated.

    Parameters
    ----------
    depend : list of dependences, optional
        Wait only for the tasks that one with these dependences would follow; ``mutexinoutset`` is not allowed.
    nowait : bool
        True: wait for nothing, but generate an empty task with these dependences, which later tasks can follow.

    Returns
    -------
    Task, coroutine or None
        The task, with ``nowait``. Called in a coroutine a coroutine, which waits when it is awaited, and lets the loop
        run: ``await taskwait()``.

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
    refuse_inside("taskwait")
    scope = here()
    frame = scope.frame("taskwait")
    if nowait:
        return _edges(scope, frame, dependences)
    waits: Any = _front(sys._getframe(1))  # noqa: SLF001  # as `caller` does
    recorder = frame.recorder
    if recorder is not None:
        recorder.add_wait(call_site("taskwait", scope.runtime), dependences)
        if not recorder.executes:
            return None if waits is None else waits.nothing()
    if scope.runtime.notify is not None:
        scope.runtime.notify.wait("taskwait")
    if dependences:
        if waits is not None:
            return waits.some(scope, _followed(frame, dependences), "taskwait")
        return _wait_for(scope, _followed(frame, dependences))
    if waits is not None:
        return waits.children(scope, frame, "taskwait")
    scope.runtime.wait_for_children(scope, frame, "taskwait")
    return None


def _front(caller: FrameType) -> Any:
    """Return what waits for a caller that is a coroutine; None for any other."""
    if not caller.f_code.co_flags & _COROUTINE:
        return None
    from offload import awaiting  # imports asyncio

    return awaiting


_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def _edges(scope: Scope, frame: Frame, dependences: Sequence[Dependence]) -> Task:
    """Generate an empty task."""
    if not dependences:
        raise ClauseError("taskwait: nowait without depend says nothing; name what later tasks are to follow")
    runtime = scope.runtime
    site = call_site("taskwait", runtime)
    return runtime.encounter(  # type: ignore[no-any-return]  # Scope does not know Runtime
        scope, frame, lambda frame: Task(site, _nothing, (), None, frame), dependences, deferred=True
    )


def _followed(frame: Frame, dependences: Sequence[Dependence]) -> list[Task]:
    """Return the tasks that one with these dependences would follow."""
    handles = frame.tracker.latest(dependences)
    found = [awaited(task) for handle in handles if (task := handle()) is not None]
    return list(dict.fromkeys(task for task in found if not task.past))


def _wait_for(scope: Scope, waited: Sequence[Task]) -> None:
    """Wait for certain tasks, and raise what failed among them."""
    try:
        for task in waited:
            task.add_done_callback(lambda _: scope.parker.unpark())
        scope.runtime.engine.wait(scope, lambda: all(task.finished for task in waited), (), "taskwait", awaited=waited)
        raise_failures([task for task in waited if task.failure is not None], "taskwait")
    finally:
        waited = task = None  # type: ignore[assignment]  # a failure refers to the frames that its body was called from


def barrier() -> Any:
    """Wait for every task of the runtime, whoever generated it.

    Returns
    -------
    coroutine or None
        Called in a coroutine a coroutine, which waits when it is awaited: ``await barrier()``.

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
    refuse_inside("barrier")
    scope = here()
    frame = scope.frame("barrier")
    if scope.task is not None:
        raise UsageError(f"barrier in the task {scope.task.name!r}, which it would wait for; use taskwait or taskgroup")
    waits: Any = _front(sys._getframe(1))  # noqa: SLF001  # as `caller` does
    if frame.recorder is not None:
        frame.recorder.add_wait(call_site("barrier", scope.runtime), ())
        if not frame.recorder.executes:
            return None if waits is None else waits.nothing()
    if scope.runtime.notify is not None:
        scope.runtime.notify.wait("barrier")
    if waits is not None:
        return waits.everything(scope.runtime, scope, "the barrier")
    scope.runtime.wait_for_all("the barrier")
    return None


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
    if scope.task is not None and scope.task.construct.is_target:
        scope.frame(directive)  # refuses it
    inherited = scope.inherited
    group = None if inherited is None else inherited.group
    while group is not None and group.is_implicit:
        group = group.outer
    if group is None:
        raise UsageError(f"{directive}: no taskgroup encloses this; put the tasks into `with offload.taskgroup():`")
    return group


def _leave_if_cancelled(group: Group) -> None:
    cancelled = group.cancelled_by
    if cancelled is not None:
        raise LeaveRegion(cancelled)
