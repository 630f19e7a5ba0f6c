"""The states of tasks, and the changes between them.

Theory of operation
-------------------
A host task runs its body and is complete, or *detached* until its event is fulfilled. A device task runs its body,
where it has one, and is *launched* until the gate says that its work has passed. A task that never begins goes from
*waiting* to its end: it has failed (its launch, or its event loop is gone), did not run, or was discarded. A task
whose device plans may turn out not to have run after its launch. Ends are
final, and so is *recorded*: other tasks are made where the graph is computed. `MAY_FOLLOW` is the whole of it. The
tests hold every change of every task against it, and a program pays nothing.
"""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """The state of a task."""

    WAITING = "waiting"  # for predecessors, or for a worker
    RUNNING = "running"  # its body
    LAUNCHED = "launched"  # its work is on a stream, which has not finished it
    DETACHED = "detached"  # its body has finished, its event is not fulfilled
    COMPLETE = "complete"
    FAILED = "failed"
    NOT_RUN = "not run"  # since one that it depends on failed
    CANCELLED = "cancelled"  # discarded, since its taskgroup was cancelled before it began
    RECORDED = "recorded"  # only: it does not run before its graph is computed


ENDS = frozenset({TaskState.COMPLETE, TaskState.FAILED, TaskState.NOT_RUN, TaskState.CANCELLED})
"""The states of tasks that are complete, one way or another."""

MAY_FOLLOW: dict[TaskState | None, frozenset[TaskState]] = {
    None: frozenset({TaskState.WAITING}),  # it has just been made
    TaskState.WAITING: frozenset({TaskState.RUNNING, TaskState.LAUNCHED, TaskState.RECORDED}) | ENDS,
    TaskState.RUNNING: frozenset({TaskState.LAUNCHED, TaskState.DETACHED, TaskState.COMPLETE, TaskState.FAILED}),
    TaskState.LAUNCHED: frozenset({TaskState.COMPLETE, TaskState.FAILED, TaskState.NOT_RUN}),
    TaskState.DETACHED: frozenset({TaskState.COMPLETE, TaskState.FAILED}),
    **dict.fromkeys((*ENDS, TaskState.RECORDED), frozenset()),
}
"""Which states may follow one."""
