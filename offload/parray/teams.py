"""Bodies over thread arrays: one task for each thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.constructs.clauses.maps import check_name
from offload.constructs.groups import taskgroup
from offload.constructs.task import task
from offload.errors import ClauseError, LayoutError, UsageError
from offload.parray.types import ArrayType
from offload.runtime.keywords import takes_clauses
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.tasks.task import Task


@takes_clauses
def for_each(
    P: ArrayType,  # noqa: N803  # as the manual writes it
    body: Callable[..., Any],
    /,
    *args: Any,
    nowait: bool = False,
    name: str | None = None,
) -> Any:
    """Call a body once for each thread of a thread array, each in a task.

    Parameters
    ----------
    P : ArrayType
        A thread array of this process, or a sub-dimension of one.
    body : callable
        Called with the number of the element, 0 to ``P.size - 1``, and the arguments.
    *args
        Arguments after the number.
    nowait : bool
        Return at once.
    name : str, optional
        What graphs and errors call the tasks; the body's name by default.

    Returns
    -------
    list
        What the bodies return, by number; with ``nowait`` the tasks. None where tasks are only recorded.

    Raises
    ------
    LayoutError
        ``P`` is no thread array.
    UsageError
        It is one of ranks: an SPMD program launches nothing. Or in a target body.
    ClauseError
        The body is not callable.

    Notes
    -----
    *Blocks* until the bodies and what they generate are complete, as a ``taskgroup`` does; not with ``nowait``.
    """
    team: object = P
    if not isinstance(team, ArrayType) or team.kind != "threads":
        raise LayoutError(f"for_each over {P!r:.60}, which is not a thread array; create one with threads(…)")
    if P.comm is not None:
        raise UsageError(
            f"for_each over {P!r:.60}: the ranks of an SPMD program are already running, so nothing can be launched on "
            "them; call the body yourself, or use threads(…)"
        )
    if not callable(body):
        raise ClauseError(f"for_each: {body!r:.60} is not callable; pass a function that takes the thread number")
    made = task(name=check_name(name))(body)
    if nowait:
        return [made(k, *args) for k in range(P.size)]
    tasks: list[Task] = []
    with taskgroup():
        tasks += [made(k, *args) for k in range(P.size)]
    return None if any(one.state_ is TaskState.RECORDED for one in tasks) else [one.result() for one in tasks]
