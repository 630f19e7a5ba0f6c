"""Taskgroups: regions whose end waits for the tasks generated inside, and for their descendants."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from offload.constructs.clauses.reductions import check_reduction, end_reductions, reductions_of
from offload.errors import UsageError
from offload.interrupts.finalizers import refuse_inside
from offload.interrupts.shields import Shield, in_one_piece, late
from offload.runtime.current import for_finalizers, here
from offload.runtime.keywords import takes_clauses
from offload.runtime.managers import Unentered
from offload.runtime.sites import call_site
from offload.tasks import hooked
from offload.tasks.blocks import Block
from offload.tasks.goals import Emptied
from offload.tasks.region import Group
from offload.tasks.task import LeaveRegion

if TYPE_CHECKING:
    from types import TracebackType

    from offload.constructs.clauses.reductions import Reduction
    from offload.constructs.clauses.signatures import Reductions
    from offload.runtime.current import Scope
    from offload.tasks.region import Region


class GroupRegion:
    """A taskgroup region: from its making to `end`, tasks that its block generates belong to it.

    Parameters
    ----------
    nests : bool
        As for `Block`.
    """

    __slots__ = ("_block", "_recorder", "_scope", "_where", "group")

    def __init__(
        self, scope: Scope, frame: Region, where: str, *, is_implicit: bool = False, nests: bool = False
    ) -> None:
        self._scope = scope  # of the thread that begins it
        self._where = where  # the end, for messages
        self._block = Block(scope, frame, nests=nests)
        frame = self._block.frame
        self.group = Group(frame.inherited.group, is_implicit=is_implicit)
        frame.inherit(frame.inherited.within(self.group))
        self._recorder = frame.recorder
        if self._recorder is not None:
            self._recorder.begin_group(self.group)

    def end(self, *, combines: bool = True) -> None:
        """Wait for the tasks of the group and their descendants, raise their failures, combine reductions."""
        group = self.group
        try:
            scope = self._close()
            if group.is_of_interest:
                scope.runtime.wait_for(scope, Emptied(self._where, group))
        except BaseException:
            self._end_group(combines=False)
            raise
        self._end_group(combines=combines)

    async def finish(self, *, combines: bool = True) -> None:
        """End the region as `end` does, and let the loop run meanwhile."""
        from offload.tasks.aio.wait import wait_for  # imports asyncio

        try:
            scope = self._close()
            await wait_for(scope, Emptied(self._where, self.group))
        except BaseException:
            self._end_group(combines=False)
            raise
        self._end_group(combines=combines)

    def leave_block(self) -> None:
        """Stop adding new tasks to the block; its end may be put off."""
        self._block.leave()

    def notify(self) -> None:
        """Tell of the wait at the end, under ``OFFLOAD_NOTIFY``."""
        notify, recorder = self._scope.runtime.notify, self._recorder
        if notify is not None and (recorder is None or recorder.executes):
            notify.wait(self._where)

    def _close(self) -> Scope:
        """Stop adding tasks to the group; return the scope of the calling thread after that."""
        group, frame, runtime = self.group, self._block.frame, self._scope.runtime
        self._block.leave()
        if frame.inherited.group is group:  # else a later block is open still, and looks further out at its end
            around = group.outer
            while around is not None and around.is_over:
                around = around.outer
            frame.inherit(frame.inherited.within(around))
        if self._recorder is not None:
            self._recorder.end_group(call_site("taskgroup", runtime), group)
        return self._scope if self._scope.thread == get_ident() else runtime.here()

    def _end_group(self, *, combines: bool) -> None:
        """End the reductions, and the cancellation, of a group that nobody waits for any more."""
        group = self.group
        if group.live and not combines:  # an interrupt, or a cancellation of the coroutine: they are still at work
            return
        group.is_over = True  # not before: what its tasks generate belongs to it while it is waited for
        group.is_cancelled = False  # groups in it may outlast it, where coroutines or generators take turns
        if group.reductions:
            end_reductions(group, combines=combines)


def _noted_end(plain: Any) -> Any:
    """Return `GroupRegion._end_group` for sanitized runtimes: what comes later is in order with the group's tasks."""

    def end_group(self: GroupRegion, *, combines: bool) -> None:
        orders = hooked.orders.get(self._scope.runtime)
        if orders is not None and not self.group.live:
            orders.joins_set(self.group)
        plain(self, combines=combines)

    return end_group


hooked.register(GroupRegion, "_end_group", _noted_end, "sanitize")


class Taskgroup:
    """The result of `taskgroup`: a context manager, used once."""

    __slots__ = ("_directive", "_is_implicit", "_reductions", "_region", "_unentered")

    def __init__(
        self,
        reductions: tuple[Reduction, ...] = (),
        directive: str = "taskgroup",
        unentered: Unentered | None = None,
        *,
        is_implicit: bool = False,
    ) -> None:
        self._reductions = reductions  # combined at the end
        self._directive = directive
        self._is_implicit = is_implicit  # a block of the program that is no taskgroup, so that `cancel` passes it by
        self._region: GroupRegion | None = None  # from the entry on
        self._unentered = unentered  # None for groups of the library's own

    def __enter__(self) -> None:
        if self._unentered is not None:
            self._unentered.settle()
        refuse_inside(self._directive)
        if self._region is not None:
            raise UsageError("a taskgroup can be entered once only; call taskgroup() again for each block")
        scope = here()
        try:
            with Shield():
                self._region = GroupRegion(
                    scope,
                    scope.frame(self._directive),
                    f"the end of the {self._directive}",
                    is_implicit=self._is_implicit,
                    # constructs that have an implicit one have their own `with`
                    nests=self._directive != "taskgroup" and not self._is_implicit,
                )
                self._region.group.reductions = self._reductions
        except BaseException:
            if self._region is not None:  # an interruption
                self._region.leave_block()
            raise

    @in_one_piece
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        region = self._region
        assert region is not None, "entered"
        try:
            region.leave_block()
            return bool(self._exit(region, error))
        finally:
            if late.is_due:
                late.deliver()

    @for_finalizers
    def _exit(self, region: GroupRegion, error: BaseException | None) -> bool:
        self._notify(region)
        is_left = _leaves(error, region.group)
        try:
            with Shield():
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


@takes_clauses
def taskgroup(task_reduction: Reductions = None) -> Taskgroup:
    """Wait, at the end of the block, for the tasks generated in it and all their descendants.

    Parameters
    ----------
    task_reduction : dict of str to list of arrays, optional
        Maps an operator to list items. An operator is one of ``+ * min max & | ^ and or`` or a name of
        `declare_reduction`. An item is a writeable NumPy array of any shape; use an array without dimensions for a
        number. A task of the group that names the item in ``in_reduction`` receives a private array of the same shape
        and dtype, and adds to its contents. At the end, the group combines the private arrays with the item, in place
        and in no fixed order.

    Returns
    -------
    context manager
        For ``with``; in a coroutine for ``async with``, which lets the event loop run at the end. The block belongs to
        the coroutine or generator that enters it. Tasks that other coroutines on the thread generate in the meantime
        are not part of the group.

    Raises
    ------
    ExceptionGroup
        Tasks of the group failed, and their failures have not been retrieved. If the block itself raised, its exception
        goes on, and the group is added to it as a note.
    ClauseError
        An item of ``task_reduction`` is not such an array, shares memory with another item or with itself, or has a
        dtype without this operator.

    Notes
    -----
    The end of the block blocks; the waiting thread may run other tasks. A reduction needs as many private arrays as
    tasks with the item run at the same time. If the end or the block raises, the items keep their original values. If
    the group is cancelled, it combines the contributions made so far. OpenMP 5.2, 15.4 "taskgroup Construct", 5.5.9
    "task_reduction Clause".

    Examples
    --------
    >>> total = np.zeros(())
    >>> @omp.task(in_reduction={"+": ["total"]})
    ... def add(value, total):
    ...     total += value
    >>> with omp.taskgroup(task_reduction={"+": [total]}):
    ...     tasks = [add(value, total) for value in range(5)]
    >>> float(total)
    10.0
    """
    reductions = reductions_of("task_reduction", check_reduction("task_reduction", task_reduction))
    return Taskgroup(reductions, unentered=Unentered("taskgroup"))
