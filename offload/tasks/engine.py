"""The eager engine: runs tasks in this process as soon as their predecessors allow.

Theory of operation
-------------------
*Counting.* A task with n unfinished predecessors counts n + 1 calls of an `itertools.count`: one from each
predecessor, one from its producer. The call that returns 0 is the last, whoever makes it, and makes the
task ready. No lock is held: under the GIL ``next`` of a count is one step.

*Releasing.* The producer appends a task to its predecessor's list and then looks whether the predecessor
has finished; a predecessor first says that it has finished and then empties its list. Both take from the
list by ``pop``, which is one step, so each edge is released exactly once, whichever order these happen in.

*Running.* Ready tasks stand in one deque. A thread that has finished a body runs the first successor that
this made ready itself, and puts the others into the deque. A thread without work parks on a lock of its own
and is woken only when parked. Whoever waits for tasks runs ready ones meanwhile.

*Undeferred tasks* have an owner, the thread that encountered them: when ready they wake it.

*Where not to run.* The completer and threads that fulfil events only enqueue and wake (`finish_elsewhere`).

Rejected: a lock and a condition for each task (2 µs); a heap of ready tasks (priorities are a hint); running
successors by recursion (a chain of 10,000 tasks is normal).

All this leans on the GIL, so that a free-threaded build is refused at import until tests cover it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

from offload.errors import RuntimeClosedError, UnsupportedError, UsageError
from offload.tasks.scope import current_scope
from offload.tasks.task import Frame, Task, TaskState, run_callbacks

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from offload.tasks.scope import Parker, Scope
    from offload.tasks.task import TaskSet

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise UnsupportedError("offload needs the GIL; on a free-threaded build of Python, start it with PYTHON_GIL=1")


def _nothing() -> None:
    """Do nothing."""


class Engine:
    """Ready tasks, the threads that run them, and those who wait."""

    def __init__(
        self, num_threads: int, rng: random.Random | None, hang_s: float, make_scope: Callable[[], Scope]
    ) -> None:
        self.ready: deque[Task] = deque()
        self.parked: deque[Parker] = deque()
        self.nested: list[Parker] = []
        self.frames: list[Frame] = []
        self.closed: str = ""
        self.activity = 0
        self.gives_up = self.gave_up = False  # for the end of the process: a wait that nothing moves ends
        self.hurry: Callable[[], None] = _nothing  # called while a thread is parked in a wait: let completions be
        self.relax: Callable[[], None] = _nothing  # noticed soon
        self.hang_s = hang_s
        self._rng = rng
        self._lock = threading.Lock()  # for what happens seldom, and in several steps
        self._make_scope = make_scope
        self._threads = [
            threading.Thread(target=self._work, name=f"offload-worker-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    # -- making tasks --------------------------------------------------------------------------------
    def submit(self, task: Task, dependences: Sequence[Any]) -> bool:
        """Enter a task; return whether it is ready already, and the caller's to `make_ready`, `launch` or run."""
        if self.closed:
            raise RuntimeClosedError(self.closed)
        frame = task.frame
        frame.children.live.add(task)
        if task.group is not None:
            task.group.live.add(task)
        if dependences:
            task.dependences = dependences
            found = frame.tracker.add(task, dependences)
            if found:
                unfinished = [other for other in found if not other.finished]
                if len(unfinished) < len(found):  # type: ignore[arg-type]  # a dict
                    task.poison = next((other for other in found if other.failure is not None and not other.seen), None)
                if unfinished:
                    return self._follow(task, unfinished)
        return True

    def _follow(self, task: Task, predecessors: list[Task]) -> bool:
        task.predecessors = predecessors
        countdown = task.countdown = count(-len(predecessors)).__next__
        for other in predecessors:
            if task.waits_in_stream_order and other.orders(task):
                early: list[Task] = other.early  # type: ignore[assignment]  # `orders` says that it is a list
                early.append(task)
                if other.launched or other.finished:
                    self._release(early, other)
            else:
                other.successors.append(task)
                if other.finished:
                    self._release(other.successors, other)
                elif other.early is not None:
                    other.watch()
        return countdown() == 0

    def make_ready(self, task: Task) -> None:
        """Hand a task, all of whose predecessors allow it, to a thread."""
        if task.owner is not None:
            with self._lock:
                owner = task.owner
                task.is_ready = True
            if owner is not None:
                owner.unpark()
                return
        self.ready.append(task)
        if self.parked:
            self._wake_one()
        if self.nested:
            for parker in tuple(self.nested):
                parker.unpark()

    def disown(self, task: Task) -> None:
        """Take an undeferred task from its owner, who was interrupted; others run it."""
        with self._lock:
            task.owner = None
            is_ready, task.is_ready = task.is_ready, False
        if is_ready:
            self.make_ready(task)

    def _wake_one(self) -> None:
        try:
            self.parked.popleft().unpark()
        except IndexError:
            return

    # -- running -------------------------------------------------------------------------------------
    def _work(self) -> None:
        scope = self._make_scope()
        current_scope.set(scope)
        parker = scope.parker
        while True:
            task = self._take()
            if task is not None:
                self.execute(task, scope)
                del task  # a parked thread keeps nothing alive
                continue
            if self.closed:
                return
            self.parked.append(parker)
            if not self.ready and not self.closed:
                parker.park()
            self._unlist(parker)

    def _unlist(self, parker: Parker) -> None:
        """Take a thread that has woken off the list of the parked."""
        try:
            self.parked.remove(parker)
        except ValueError:
            return  # whoever woke it took it off

    def _take(self) -> Task | None:
        """Take a ready task: the oldest, or under a seed any."""
        ready = self.ready
        if self._rng is not None and len(ready) > 1:
            ready.rotate(self._rng.randrange(len(ready)))
        try:
            return ready.popleft()
        except IndexError:
            return None

    def _take_descendant(self, frame: Frame) -> Task | None:
        """Take a ready task that a wait inside of the region may run; leave the others where they are."""
        for task in self.ready.copy():
            if _may_help_with(task, frame):
                try:
                    self.ready.remove(task)
                except ValueError:
                    continue  # somebody else took it
                return task
        return None

    def execute(self, task: Task | None, scope: Scope) -> None:
        """Run a ready task, and whatever that makes ready first, on this thread."""
        while task is not None:
            self.activity += 1
            task = task.advance(self, scope)

    def launch(self, task: Task | None, scope: Scope) -> None:
        """Launch a ready device task, and what becomes ready by it, on the encountering thread.

        A body that blocks never runs here.
        """
        while task is not None:
            self.activity += 1
            task = task.advance(self, scope)
            if task is not None and not task.launches_inline:
                self.make_ready(task)
                return

    # -- completing ----------------------------------------------------------------------------------
    def finish(
        self, task: Task, failure: BaseException | None = None, failed: TaskState = TaskState.FAILED
    ) -> Task | None:
        """Complete a task; return the first task that this makes ready, for this thread to run."""
        if task.run is not None:
            task.run.end()
        task.failure = failure
        task.state_ = TaskState.COMPLETE if failure is None else failed
        task.finished = True
        following = self._release(task.successors, task, keep=True) if task.successors else None
        if task.early:
            self._release(task.early, task)
        if failure is None:
            task.dependences = None  # else they keep the address of their storage from naming something new
        task.body = task.predecessors = task.kwargs = None
        task.args = ()
        children = task.frame.children
        group = task.group
        owner = task.owner
        if failure is not None and (owner is None or task.event is not None):  # else its owner raises it
            self._note_failure(children, task)
            if group is not None:
                self._note_failure(group, task)
        children.leave(task)
        if group is not None:
            group.leave(task)
        if owner is not None:
            owner.unpark()
        if task.callbacks:
            run_callbacks(task)
        return following

    def _note_failure(self, tasks: TaskSet, task: Task) -> None:
        """Keep a failure for whoever waits; those that have been seen meanwhile are let go."""
        with self._lock:
            tasks.failures.append(task)
            if len(tasks.failures) & 63 == 0:
                tasks.failures[:] = [kept for kept in tasks.failures if not kept.seen]

    def take_failures(self, tasks: TaskSet) -> list[Task]:
        """Return the failures of a task set, which forgets them."""
        with self._lock:
            failures, tasks.failures = tasks.failures, []
        return failures

    def finish_elsewhere(self, task: Task, failure: BaseException | None = None) -> None:
        """Complete a task on a thread that runs none: a completer's, or one that fulfils an event."""
        self.activity += 1
        following = self.finish(task, failure)
        if following is not None:
            self.make_ready(following)

    def release_early(self, task: Task) -> Task | None:
        """Release the successors that only wait for the task's work to be on its stream."""
        task.launched = True
        return self._release(task.early, task, keep=True) if task.early else None

    def _release(self, successors: list[Task], task: Task, *, keep: bool = False) -> Task | None:
        """Count down the successors of a task; return the first that is ready, if one may be kept."""
        released = []
        while successors:
            try:
                released.append(successors.pop())
            except IndexError:
                break  # the producer took the rest
        following = None
        failed = task.failure is not None
        for successor in reversed(released):
            if failed:
                successor.poison = task
            if successor.countdown() == 0:  # type: ignore[misc]  # a task with predecessors counts
                if keep and following is None and successor.owner is None:
                    following = successor
                else:
                    self.make_ready(successor)
        return following

    # -- waiting -------------------------------------------------------------------------------------
    def wait(
        self,
        scope: Scope,
        done: Callable[[], bool],
        sets: Sequence[TaskSet],
        what: str,
        *,
        awaited: Sequence[Task] = (),
        helps: bool = True,
    ) -> None:
        """Block until ``done()``, running ready tasks meanwhile.

        Parameters
        ----------
        done : callable
            The condition; whatever makes it true unparks ``scope.parker``.
        sets : sequence of TaskSet
            Task sets whose emptying is part of the condition.
        what : str
            What waits, for the message that says so when nothing has moved for ``hang_s`` seconds.
        awaited : sequence of Task
            Tasks that the condition is about, for the same message.
        helps : bool
            Whether this thread may run tasks: inside of a task only what the region generated. Without workers
            it always does.
        """
        if scope.is_completer:
            raise UsageError(
                f"{what} in a callback of a task: the thread that it runs on must not wait; start a task there"
            )
        parker = scope.parker
        within = scope.frame(what) if scope.task is not None else None
        helps = helps or not self._threads
        waiting: Any = self.parked if within is None else self.nested
        with self._lock:
            for tasks in sets:
                tasks.waiters = (*tasks.waiters, parker)
        try:
            while not done():
                task = None
                if helps:
                    task = self._take() if within is None else self._take_descendant(within)
                if task is not None:
                    self._help(task, scope, within)
                    del task
                    continue
                if helps:
                    waiting.append(parker)
                try:
                    # Again: what came between the last look and being listed has woken nobody.
                    if not done() and not (helps and self._has_work(within)):
                        self._park(parker, what, sets, awaited)
                finally:
                    if helps:
                        self._unlist(parker) if within is None else self.nested.remove(parker)
        finally:
            with self._lock:
                for tasks in sets:
                    remaining = list(tasks.waiters)
                    remaining.remove(parker)
                    tasks.waiters = tuple(remaining)
            if self.ready and self.parked:
                self._wake_one()  # a wake-up that was meant for a task, not for the condition

    def _help(self, task: Task, scope: Scope, within: Frame | None) -> None:
        """Run a ready task, and what that makes ready first if this thread may run that too."""
        following: Task | None = task
        while following is not None:
            self.activity += 1
            following = following.advance(self, scope)
            if following is not None and within is not None and not _may_help_with(following, within):
                self.make_ready(following)
                return

    def _has_work(self, within: Frame | None) -> bool:
        """Tell whether there is a ready task for a thread that waits, or that waits inside of a region."""
        if within is None:
            return bool(self.ready)
        return any(_may_help_with(task, within) for task in self.ready.copy())

    def _park(self, parker: Parker, what: str, sets: Sequence[TaskSet], awaited: Sequence[Task]) -> None:
        self.hurry()
        try:
            self._park_patiently(parker, what, sets, awaited)
        finally:
            self.relax()

    def _park_patiently(self, parker: Parker, what: str, sets: Sequence[TaskSet], awaited: Sequence[Task]) -> None:
        while True:
            before = self.activity
            if parker.park(self.hang_s):
                return
            if self.activity == before:
                lines = [f"offload: {what} has waited for {self.hang_s:g} s in which no task ran. It waits for:"]
                waits = [*awaited, *(task for tasks in sets for task in tasks.live.copy())]
                lines += [f"  {task.story()}" for task in waits if not task.finished][:20]
                sys.stderr.write("\n".join([*lines, ""]))
                if self.gives_up:
                    self.gave_up = True
                    raise UsageError(f"{what} was given up: nothing had moved for {self.hang_s:g} s")

    def adopt(self, frame: Frame) -> None:
        """Keep the region of a body that has ended before its children, until somebody waits for all."""
        with self._lock:
            self.frames.append(frame)
            if len(self.frames) & 63 == 0:
                self.frames[:] = [kept for kept in self.frames if kept.children.live or kept.children.failures]

    def close(self, why: str) -> None:
        """Stop the workers; tasks that are still in the deque do not run."""
        self.closed = why
        for thread in self._threads:
            while self.parked:
                self._wake_one()
            thread.join()


def _may_help_with(task: Task, frame: Frame) -> bool:
    """Tell whether a thread that waits inside of a region may run the task meanwhile.

    It may if the region generated the task, directly or not; and any device task, whose body can neither wait nor
    generate, and which may be what others wait for: it holds memory.
    """
    if task.waits_in_stream_order:
        return True
    ancestor: Frame | None = task.frame
    while ancestor is not None and ancestor is not frame:
        ancestor = ancestor.task.frame if ancestor.task is not None else None
    return ancestor is frame
