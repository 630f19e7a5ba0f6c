"""How a ready task ends: whether it may begin at all, what is released at its end, and who hears of a failure.

Theory of operation
-------------------
*Hindrances.* A ready task that is poisoned or discarded ends without having begun, but not before what it follows in
stream order. One that has to have mutexes and cannot stands in line, and is made ready again.

*The order of an end.* The state and the trouble are noted, then that the task has finished, then its successors are
released, then it leaves its region and its group. So whoever sees a region without live tasks sees the failures too.

*Where not to run what follows.* The completer and threads that fulfil events only enqueue and wake
(`finish_elsewhere`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.tasks.callbacks import run_callbacks
from offload.tasks.exclusion import give_back_mutexes, take_mutexes
from offload.tasks.links import Links
from offload.tasks.states import TaskState
from offload.tasks.task import LeaveRegion, discarded
from offload.tasks.troubles import Trouble, poisoned

if TYPE_CHECKING:
    import random

    from offload.tasks.region import AnyTask, TaskSet
    from offload.tasks.task import Task

_COMPLETE = TaskState.COMPLETE


class Completion(Links):
    """The beginning of tasks, as far as something may be against it, and their ends.

    Parameters
    ----------
    rng, max_priority
        As for `ReadyTasks`.
    can_cancel : bool
        Whether taskgroups can be cancelled.
    """

    def __init__(self, rng: random.Random | None, max_priority: int, *, can_cancel: bool) -> None:
        super().__init__(rng, max_priority)
        self.can_cancel = can_cancel

    def hinders(self, task: Task) -> bool:
        """Tell whether a ready task may not begin: it is poisoned, discarded, or excluded for the time being."""
        if task.cut_short is not None:
            cut, task.cut_short = task.cut_short, None
            self.finish_elsewhere(task, *((task.failure, task.state_) if task.finished else (cut,)))
            return True
        if task.finished:
            return True  # `mend` has taken it out
        if task.poison is not None and not task.survives:
            self.end_in_turn(task, poisoned(task, task.poison), TaskState.NOT_RUN)
            return True
        group = task.inherited.group
        if (
            self.can_cancel
            and group is not None
            and (cancelled := group.cancelled_by) is not None
            and not task.ends_region
        ):
            if task.event is not None:
                task.event.abandon()
            task.seen = True  # nobody needs to be told, and nothing that follows is poisoned
            # An undeferred construct is a cancellation point: it has no value to go on with.
            why = discarded(task) if task.owner is None else LeaveRegion(cancelled)
            self.end_in_turn(task, why, TaskState.CANCELLED)
            return True
        if task.mutexes and task.mutexes[0].holder is not task:
            with self.lock:
                if not take_mutexes(task):
                    return True
        return False

    def end_in_turn(self, task: Task, failure: BaseException, state: TaskState) -> None:
        """Complete a task that has not begun, but not before what it follows in stream order.

        Others follow this task only, and rely on its coming after those.
        """
        unfinished = [other for other in task.predecessors if not other.finished]
        counters = bytearray(b"\1" + bytes(len(unfinished)))

        def count(_: Task | None) -> None:
            if counters.pop():
                self.finish_elsewhere(task, failure, state)

        for other in unfinished:
            other.add_done_callback(count)
        count(None)

    def finish(
        self, task: Task, failure: BaseException | None = None, failed: TaskState = TaskState.FAILED
    ) -> Task | None:
        """Complete a task; return the first task that this makes ready, for this thread to run."""
        if task.special and failure is None and task.poison is not None:
            self._note_trouble(task)  # it has run all the same
        if failure is None:
            task.state_ = _COMPLETE
        else:
            task.failure = failure
            if task.state_ is not failed:  # else these steps were cut short before
                task.state_ = failed
            if failed is not TaskState.CANCELLED:
                self._note_trouble(task)
        task.finished = True
        following = self._release(task.successors, task) if task.successors else None
        if task.special or failure is not None:
            self._finish_special(task)
        if failure is None:
            task.dependences = None  # else they keep the address of their storage from naming something new
        task.body = task.kwargs = None
        task.args = ()
        children = task.frame.children
        children.live.discard(task)
        if children.waiters:
            children.leave(task)
        group = task.inherited.group
        if group is not None:
            group.leave(task)
        if task.special:
            if task.owner is not None:
                task.owner.unpark()
            if task.callbacks:
                if following is not None:  # a callback may wait for it
                    self.make_ready(following)
                self.leave_work()  # one may block
                run_callbacks(task)
                return None
        return following

    def finish_elsewhere(
        self, task: Task, failure: BaseException | None = None, failed: TaskState = TaskState.FAILED
    ) -> None:
        """Complete a task on a thread that is not to run what this makes ready: one that fulfils an event, for one."""
        self.activity += 1
        following = self.finish(task, failure, failed)
        if following is not None:
            self.make_ready(following)

    def _finish_special(self, task: Task) -> None:
        """Release what few tasks have, and note a failure before anybody hears that the task is complete."""
        if task.predecessors:
            task.predecessors = ()
        if task.early:
            self._release_all(task.early, task)
        if task.mutexes:
            with self.lock:
                granted = give_back_mutexes(task)
            for other in granted:
                self.make_ready(other)
        if task.failure is None:
            return
        if task.state_ is TaskState.CANCELLED:
            task.dependences = None
        elif task.owner is None or task.event is not None:  # else its owner raises it
            self._note_failure(task.frame.children, task)
            if task.inherited.group is not None:
                self._note_failure(task.inherited.group, task)

    def _note_trouble(self, task: Task) -> None:
        """Have the region know what is wrong with a task that others may follow, before anybody hears of its end."""
        trouble = Trouble.of(task)
        if task.dependences is None:
            return
        trouble.storage = task.dependences
        children = task.frame.children
        with self.lock:
            if not children.troubles:
                children.troubles = {}
            trouble.home = children.troubles
            trouble.home[id(trouble.reference)] = trouble

    def _note_failure(self, tasks: TaskSet, task: Task) -> None:
        """Keep a failure for whoever waits, unless somebody has seen it meanwhile."""
        with self.lock:
            tasks.failures[task] = None
        if task.seen:  # perhaps before it was in there
            tasks.failures.pop(task, None)

    def take_failures(self, tasks: TaskSet) -> list[AnyTask]:
        """Return the failures of a task set, which forgets them."""
        with self.lock:
            failures, tasks.failures = tasks.failures, {}
        return list(failures)
