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
        raise UsageError(
            f"{directive}: no taskgroup encloses this call; put the tasks into `with offload.taskgroup():`"
        )
    return group


def _leave_if_cancelled(group: Group) -> None:
    cancelled = group.cancelled_by
    if cancelled is not None:
        raise LeaveRegion(cancelled)
