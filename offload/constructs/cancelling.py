"""Constructs that cancel taskgroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.errors import ClauseError, UnsupportedError, UsageError
from offload.runtime.current import current_runtime, here
from offload.runtime.keywords import takes_clauses
from offload.tasks.task import LeaveRegion

if TYPE_CHECKING:
    from offload.tasks.region import Group


@takes_clauses
def cancel(construct: str, if_: bool = True) -> None:
    """Cancel the innermost taskgroup, if cancellation is enabled (``OMP_CANCELLATION``); otherwise do nothing.

    The runtime discards tasks of the group that have not begun, and tasks generated later. Their state is
    ``"cancelled"``, ``result()`` raises `concurrent.futures.CancelledError`, and tasks that depend on them can run.
    Running tasks continue to their end or to the next `cancellation_point`.

    Parameters
    ----------
    construct : {"taskgroup"}
        The construct to cancel.
    if_ : bool
        False: only a cancellation point.

    Raises
    ------
    BaseException
        If cancellation is enabled: an exception that leaves the body, or the block of the taskgroup. Do not catch it.
    UsageError
        The call is not in a taskgroup.
    UnsupportedError
        The argument names another construct of OpenMP.
    ClauseError
        The argument is not the name of a construct.

    Notes
    -----
    OpenMP 5.2, 11.2 "cancel Construct".

    Examples
    --------
    >>> @omp.task
    ... def search(values, wanted):
    ...     if wanted in values:
    ...         omp.cancel("taskgroup")  # the other tasks need not search
    >>> with omp.Runtime("sim:1", env={"OMP_CANCELLATION": "true"}):
    ...     with omp.taskgroup():
    ...         for first in range(0, 100, 10):
    ...             task = search(range(first, first + 10), 42)
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

    Examples
    --------
    >>> def search(values, wanted):
    ...     for value in values:
    ...         omp.cancellation_point("taskgroup")
    ...         if value == wanted:
    ...             omp.cancel("taskgroup")
    >>> with omp.Runtime("sim:1", env={"OMP_CANCELLATION": "true"}):
    ...     with omp.taskgroup():
    ...         for first in range(0, 100, 10):
    ...             task = omp.task(search)(range(first, first + 10), 42)
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
        raise UsageError(
            f"{directive}: no taskgroup encloses this call; put the tasks into `with offload.taskgroup():`"
        )
    return group


def _leave_if_cancelled(group: Group) -> None:
    cancelled = group.cancelled_by
    if cancelled is not None:
        raise LeaveRegion(cancelled)
