"""The eager engine: runs tasks in this process as soon as their predecessors allow.

Theory of operation
-------------------
*Counting.* A task for which the tracker found n predecessors has n + 1 counters in a `bytearray`: one for each, one for
its producer. Each takes its own by ``pop``, the producer those of predecessors that have finished; the last of them,
whoever takes it, is a 1 and makes the task ready. No lock is held: under the GIL ``pop`` is one step. (A bytearray is
half the size of an `itertools.count` with its bound ``__next__``, and the cyclic collector does not look at it.)

*Releasing.* The producer appends a task to its predecessor's list and then looks whether the predecessor
has finished; a predecessor first says that it has finished and then empties its list. Both take from the
list by ``pop``, which is one step, so each edge is released exactly once, whichever order these happen in.

*Running.* Ready tasks stand in one deque. A thread that has finished a body runs the first successor that
this made ready itself, and puts the others into the deque. A thread without work parks on a lock of its own
and is woken only when parked. Whoever waits for tasks runs ready ones meanwhile (`offload.tasks.waiting`).

*Keeping.* The set of live tasks of the generating region is what keeps a task alive; the tracker has weak
references, and successors are referred to, not predecessors that have finished. A finished task that nobody
else holds is gone at once.

*Excluding.* A task of a ``mutexinoutset`` takes all mutexes that it needs in one step when it is about to begin, or
stands in line at one that is taken. Whoever gives one back hands it to the first in line that can have all that
it needs; one that cannot goes over to the line where it is held up. Nobody waits with something in hand, so nothing
deadlocks, and no worker is held.

*Throttling.* A thread that generates a task while very many of its tasks are live runs another one first, or gives the
others a moment if none is ready. It never waits for a certain one, which might wait for this thread.

*Undeferred tasks* have an owner, the thread that encountered them: when ready they wake it.

*Where not to run.* The completer and threads that fulfil events only enqueue and wake (`finish_elsewhere`).

Rejected: a lock and a condition for each task (2 µs); a heap of ready tasks (priorities are a hint, and
few use them); running successors by recursion (a chain of 10,000 tasks is normal).

All this leans on the GIL, so that a free-threaded build is refused at import until tests cover it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.errors import RuntimeClosedError, UnsupportedError
from offload.finalizers import put_off
from offload.interrupts import Shield, raise_shield
from offload.tasks.failures import Trouble, poison, poisoned
from offload.tasks.loops import Entered, is_entered
from offload.tasks.ready import ByPriority
from offload.tasks.scope import current_scope
from offload.tasks.task import LeaveRegion, Task, TaskState, discarded, run_callbacks
from offload.tasks.waiting import Wait, may_help_with

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from offload.tasks.region import Frame, TaskSet
    from offload.tasks.scope import Parker, Scope

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise UnsupportedError("offload needs the GIL; on a free-threaded build of Python, start it with PYTHON_GIL=1")

MANY_LIVE = 256
"""Live tasks of one region from which on it is throttled: a few hundred KB, about what a core's own cache holds.
libgomp throttles at 64 a thread, libomp at 256."""

_AT_ONCE = 64
"""Tasks that a throttled thread runs before it goes on generating; it costs something to begin."""

_PAUSE_S = 1e-3
"""What a throttled thread leaves to the others when nothing is ready."""

_FEW = 32
_COUNTERS = [b"\1" + bytes(n) for n in range(_FEW)]
"""What the counters of a task with few predecessors begin as."""

_COMPLETE = TaskState.COMPLETE


def _nothing() -> None:
    """Do nothing."""


class Engine:
    """Ready tasks, the threads that run them, and those who wait.

    Parameters
    ----------
    num_threads : int
        Workers, at least 0.
    rng : random.Random or None
        Chooses among ready tasks; None: the oldest first.
    hang_s : float
        Seconds without progress after which a wait says what it waits for.
    max_priority : int
        Higher priorities of tasks count as this one; 0: there are none.
    can_cancel : bool
        Whether taskgroups can be cancelled.
    make_scope : callable
        Returns what the calling thread does for the runtime.
    """

    def __init__(
        self,
        num_threads: int,
        rng: random.Random | None,
        hang_s: float,
        make_scope: Callable[[], Scope],
        *,
        max_priority: int = 0,
        can_cancel: bool = False,
    ) -> None:
        self.ready: Any = ByPriority() if max_priority else deque()
        self.max_priority = max_priority
        self.can_cancel = can_cancel
        self.parked: deque[Parker] = deque()
        self.woken: set[Parker] = set()  # threads that have been told that there is work, and are not awake yet
        self.nested: list[Parker] = []
        self.frames: list[Frame] = []
        self.closed: str = ""  # why no task can be made any more
        self.last_region: Frame | None = None  # at the end of the process: the only host thread's that still makes some
        self._is_stopped = False
        self.activity = 0
        self.gives_up = False  # for the end of the process: a wait that nothing moves ends
        self.gives_up_bodies = False  # also where a body runs all the time
        self.hurry: Callable[[], None] = _nothing  # called while a thread is parked in a wait: let completions be
        self.relax: Callable[[], None] = _nothing  # noticed soon
        self.look: Callable[[], object] | None = None  # lets a waiting thread look for completions itself
        self.staging: set[Any] = set()  # what threads copy: a thread that waits leaves the GIL to them
        self.coroutines: Any = None  # what is known of them, once there is one
        self.hang_s = hang_s
        self.lock = threading.Lock()  # for what happens seldom, and in several steps
        self._rng = rng
        self._paused_at = -1
        self._make_scope = make_scope
        self.threads = [
            threading.Thread(target=self._work, name=f"offload-worker-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self.threads:
            thread.start()

    # -- making tasks --------------------------------------------------------------------------------
    def submit(self, task: Task, dependences: Sequence[Any]) -> bool:
        """Enter a task; return whether it is ready already, and the caller's to `make_ready`, `launch` or run."""
        frame = task.frame
        frame.children.live.add(task)
        group = task.inherited.group
        if group is not None:
            group.live.add(task)
        if self.closed and self.refuses(frame):  # not before: whoever closes looks what is live then
            frame.children.leave(task)
            if group is not None:
                group.leave(task)
            raise RuntimeClosedError(self.closed)
        orderings = task.orderings
        if not (dependences or orderings):
            return True
        try:
            task.dependences = dependences
            tracker = frame.tracker
            found = tracker.add(ref(task), dependences)
            if orderings:
                others = tracker.add(ref(task), orderings)
                task.ordered_after = [other for other in others if other not in found]
                found += task.ordered_after
            if tracker.exclusive:
                task.mutexes, tracker.exclusive = tuple(dict.fromkeys(tracker.exclusive)), []
                task.special = True
            if found:
                return self._follow(task, found)
        except BaseException:  # others must not wait for a task that never runs
            self.mend(task)
            raise
        return True

    def refuses(self, frame: Frame) -> bool:
        """Tell whether a region may not generate tasks any more, and ``closed`` says why."""
        last = self.last_region
        return bool(self.closed) and (last is None or (frame.task is None and frame.children is not last.children))

    @property
    def is_closed(self) -> bool:
        """Whether no region may."""
        return bool(self.closed) and self.last_region is None

    def follow(self, task: Task, predecessors: Sequence[Task]) -> bool:
        """Have a task counted down by its predecessors; return whether it is ready."""
        return self._follow(task, [ref(other) for other in predecessors])

    def _follow(self, task: Task, found: list[Any]) -> bool:
        """Have a task counted down by its predecessors, given by weak references; return whether it is ready."""
        if task.waits_in_stream_order and self._follows_launched(task, found):
            return True
        n = len(found)
        counters = task.counters = bytearray(_COUNTERS[n] if n < _FEW else b"\1" + bytes(n))
        for reference in found:
            other = reference()
            if other is None or other.finished or other is task:
                counters.pop()
                # Not before: it has noted its trouble, and then that it has finished.
                if other is not None and other.failure is not None:  # perhaps it is of another region
                    if not (other.past or _is_only_ordered(task, reference)):
                        poison(task, other, Trouble.of(other))
                elif troubles := task.frame.children.troubles:
                    _heed(task, reference, troubles.get(id(reference)))
                continue
            if other.special or other.waits_in_stream_order:
                self._follow_special(task, other)
                continue
            successors = other.successors
            if successors is None:
                other.successors = [task]
            elif task in successors[-1:]:  # found by another item before; the list may be emptied meanwhile
                counters.pop()
            else:
                successors.append(task)
            if other.finished:
                self._release_all(other.successors, other)
        return counters.pop() == 1

    def _follows_launched(self, task: Task, found: list[Any]) -> bool:
        """Tell whether all that a device task follows is on a stream that it can wait for, or complete."""
        predecessors: tuple[Task, ...] = ()
        for reference in found:
            other = reference()
            if other is None or other is task:
                continue
            if other.failure is not None:
                return False
            if not other.finished:
                if not (other.launched and other.orders(task)) or (other.special and other.poison is not None):
                    return False
                predecessors += (other,)
        if task.frame.children.troubles:
            return False  # perhaps of one of them
        task.predecessors = predecessors
        return True

    def _follow_special(self, task: Task, other: Task) -> None:
        """Have a task counted down by a predecessor that may be on a stream, or have its event promised there."""
        if task.waits_in_stream_order:
            task.predecessors = (*task.predecessors, other)  # for its point on the stream
            if other.orders(task):
                if other.launched:
                    if other.failure is not None or other.poison is not None:
                        _heed(task, ref(other), Trouble.of(other))
                    task.counters.pop()
                    return
                if other.early is None:
                    other.early = []
                other.early.append(task)
                if other.launched or other.finished:  # type: ignore[redundant-expr]  # by another thread, since above
                    self._release_all(other.early, other)
                return
        if other.waits_in_stream_order or other.event is not None:
            other.watch()
        if other.successors is None:
            other.successors = []
        other.successors.append(task)
        if other.finished:
            self._release_all(other.successors, other)

    def mend(self, task: Task) -> None:
        """Take out a task whose `submit`, or `make_ready` after it, was interrupted; keep one that was through.

        The tracker may have lost whom the task was to follow, and what was being entered. So it is cleared, and what
        comes follows an empty task, which follows all that had dependences.
        """
        with Shield():
            frame = task.frame
            live, tracker = frame.children.live, frame.tracker
            if task not in live or task.state_ is not TaskState.WAITING:
                return
            try:
                self.ready.remove(task)
            except (ValueError, KeyError):
                task.finished = task.special = True
            else:
                self.make_ready(task)  # perhaps nobody has been woken
                return
            task.body = _nothing  # its predecessors may know it, and make it ready
            task.args, task.kwargs = (), None
            frame.children.leave(task)
            if task.inherited.group is not None:
                task.inherited.group.leave(task)
            before = [ref(other) for other in live.copy() if other.dependences is not None]
            before += [trouble.reference for trouble in list(frame.children.troubles.values())]
            fence = Task(task.construct, _nothing, (), None, frame)
            fence.label = f"in place of {task.name}"
            fence.inherited = frame.inherited.within(None)  # its group cannot discard it
            fence.dependences = tracker.exclusive = []
            tracker.clear((ref(fence),))
            live.add(fence)
            if self._follow(fence, before):
                self.make_ready(fence)

    def make_ready(self, task: Task) -> None:
        """Hand a task, all of whose predecessors allow it, to a thread."""
        if task.special:
            if task.owner is not None:
                with self.lock:
                    owner = task.owner
                    task.is_ready = True
                if owner is not None:
                    owner.unpark()
                    return
            if task.hand_over():
                return
        self.ready.append(task)
        if self.parked:
            self.wake_one()
        if self.nested:
            for parker in tuple(self.nested):
                parker.unpark()

    def make_all_ready(self, tasks: Sequence[Task], *, helps: bool) -> None:
        """Do the same for many tasks without an owner, of which the caller runs one if it ``helps``."""
        self.ready.extend(tasks)
        for _ in range(min(len(tasks) - helps, len(self.parked))):
            self.wake_one()
        if self.nested:
            for parker in tuple(self.nested):
                parker.unpark()

    def disown(self, task: Task) -> None:
        """Take an undeferred task from its owner, who was interrupted; others run it."""
        with self.lock:
            task.owner = None
            is_ready, task.is_ready = task.is_ready, False
        if is_ready:
            self.make_ready(task)

    def wake_one(self) -> None:
        """Wake a thread without work, if there is one."""
        try:
            parker = self.parked.popleft()
        except IndexError:
            return
        self.woken.add(parker)
        try:
            parker.unpark()
        except BaseException:
            self.woken.discard(parker)
            self.parked.append(parker)  # somebody else has to wake it
            raise

    def stir(self) -> None:
        """Have a thread that has nothing to do look around, or those that wait in tasks. Takes no lock."""
        if self.parked:
            self.wake_one()
        for parker in tuple(self.nested):
            parker.unpark()

    def throttle(self, scope: Scope, frame: Frame) -> None:
        """Run a ready task, as very many are live; if none is ready, give the others a moment to get on.

        Where that was of no use, as it is behind an event which this thread will fulfil, it is not tried again before
        the number of live tasks has changed by an eighth: so a few dozen times, however many tasks are generated.
        """
        children = frame.children
        n_live = len(children.live)
        if abs(n_live - children.n_stuck) < n_live >> 3 or self._help(scope, frame, _AT_ONCE):
            return
        if self._paused_at != self.activity:  # else nothing has run since
            self._paused_at = self.activity
            scope.parker.park(_PAUSE_S)
            if len(children.live) < n_live:
                return
        children.n_stuck = n_live

    def help_once(self, scope: Scope, frame: Frame) -> bool:
        """Run a ready task, inside of a task only a descendant; return whether there was one."""
        return self._help(scope, frame, 1)

    def _help(self, scope: Scope, frame: Frame, n_tasks: int) -> bool:
        """Run a few ready tasks as `help_once` does; return whether there was one."""
        n_run = 0
        with Shield(scope) as shield, Entered(scope):
            signs = shield.signs
            while n_run < n_tasks and not signs.is_struck:
                task = self.take() if scope.task is None else self.take_descendant(frame)
                if task is None:
                    break
                n_run += 1
                self._run(task, scope, signs)
                del task  # a failure refers to the frames that its body was called from
        return n_run > 0

    # -- running -------------------------------------------------------------------------------------
    def _work(self) -> None:
        scope = self._make_scope()
        current_scope.set(scope)
        raise_shield(scope)  # for good: what runs here is the engine's own, but in bodies
        parker, root = scope.parker, scope.region
        while True:
            if put_off.is_urgent:
                put_off.carry_out()
            task = self.take() if not self._is_stopped else None
            if task is not None:
                while task is not None:
                    self.activity += 1
                    try:
                        task = task.advance(self, scope)
                    except BaseException as error:  # noqa: BLE001  # no step of ours may end the worker
                        scope.task, scope.region = None, root
                        self.keep(task, error)  # type: ignore[arg-type]  # the assignment did not happen
                        task = None
                continue
            if self._is_stopped:
                return
            self.parked.append(parker)
            if not (self.ready or (put_off.is_urgent and put_off.is_due) or self._is_stopped):
                parker.park()
            self.unlist(parker)

    @property
    def is_busy(self) -> bool:
        """Whether a worker runs a body that does not wait for tasks; for a thread that is parked in a wait itself."""
        return len(self.threads) >= len(self.parked) + len(self.nested)

    def unlist(self, parker: Parker) -> None:
        """Take a thread that has woken off the list of the parked."""
        try:
            self.parked.remove(parker)
        except ValueError:  # whoever woke it took it off
            self.woken.discard(parker)

    def take(self) -> Task | None:
        """Take a ready task: the oldest, or under a seed any."""
        ready = self.ready
        if self._rng is not None and (n_ready := len(ready)) > 1:  # once: others take tasks meanwhile
            ready.rotate(self._rng.randrange(n_ready))
        try:
            task: Task = ready.popleft()
        except IndexError:
            return None
        return task

    def take_descendant(self, frame: Frame) -> Task | None:
        """Take a ready task that a wait inside of the region may run; leave the others where they are."""
        for task in self.ready.copy():
            if may_help_with(task, frame):
                try:
                    self.ready.remove(task)
                except ValueError:
                    continue  # somebody else took it
                return task  # type: ignore[no-any-return]  # tasks stand there
        return None

    def execute(self, task: Task | None, scope: Scope) -> None:
        """Run a ready task, and whatever that makes ready first, on this thread."""
        with Shield(scope) as shield, Entered(scope):
            self._run(task, scope, shield.signs)

    def _run(self, task: Task | None, scope: Scope, signs: Any) -> None:
        outer = scope.task, scope.region
        while task is not None:
            self.activity += 1
            try:
                task = task.advance(self, scope)
            except BaseException as error:
                scope.task, scope.region = outer
                self.keep(task, error)  # type: ignore[arg-type]  # the same
                raise
            if task is not None and signs.is_struck:
                self.make_ready(task)
                return

    def keep(self, task: Task, error: BaseException) -> None:
        """See that a task ends although the engine's own steps for it were cut short.

        Bodies raise into their task; what comes here is the limit of recursion, or a signal handler that raises.
        """
        if task.state_ in (TaskState.LAUNCHED, TaskState.DETACHED):
            return  # what it waits for will complete it
        if task.state_ is not TaskState.WAITING or task.waits_in_stream_order:
            task.cut_short = error
            task.special = True
        self.ready.append(task)
        if self.parked:
            self.wake_one()

    def launch(self, task: Task | None, scope: Scope) -> None:
        """Launch a ready device task, and what becomes ready by it, on the encountering thread.

        A body that blocks never runs here.
        """
        if is_entered(scope):
            self._launch(task, scope)
        else:
            with Entered(scope):
                self._launch(task, scope)

    def _launch(self, task: Task | None, scope: Scope) -> None:
        while task is not None:
            self.activity += 1
            try:
                task = task.advance(self, scope)
            except BaseException as error:
                self.keep(task, error)  # type: ignore[arg-type]  # the assignment did not happen
                raise
            if task is not None and not task.launches_inline:
                self.make_ready(task)
                return

    def begin_undeferred(self, task: Task, scope: Scope) -> None:
        """Do the next thing that an undeferred task has to do, on the thread that encountered it."""
        with Entered(scope):
            try:
                following = task.advance(self, scope)
            except BaseException as error:
                self.keep(task, error)
                raise
        if following is not None:
            self.make_ready(following)

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
                if not _take_mutexes(task):
                    return True
        if task.run is not None:
            task.run.start()
        return False

    # -- completing ----------------------------------------------------------------------------------
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
        if task.special:
            if task.run is not None:
                task.run.end()
            if failure is None and task.poison is not None:
                self._note_trouble(task)  # it has run all the same
        if failure is None:
            task.state_ = _COMPLETE
        else:
            task.failure = failure
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
                run_callbacks(task)
                return None
        return following

    def _finish_special(self, task: Task) -> None:
        """Release what few tasks have, and note a failure before anybody hears that the task is complete."""
        if task.predecessors:
            task.predecessors = ()
        if task.early:
            self._release_all(task.early, task)
        if task.mutexes:
            with self.lock:
                granted = _give_back_mutexes(task)
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

    def take_failures(self, tasks: TaskSet) -> list[Task]:
        """Return the failures of a task set, which forgets them."""
        with self.lock:
            failures, tasks.failures = tasks.failures, {}
        return list(failures)

    def finish_elsewhere(
        self, task: Task, failure: BaseException | None = None, failed: TaskState = TaskState.FAILED
    ) -> None:
        """Complete a task on a thread that is not to run what this makes ready: one that fulfils an event, for one."""
        self.activity += 1
        following = self.finish(task, failure, failed)
        if following is not None:
            self.make_ready(following)

    def release_early(self, task: Task) -> Task | None:
        """Release the successors that only wait for the task's work to be on its stream."""
        task.launched = True
        return self._release(task.early, task) if task.early else None

    def _release(self, successors: list[Task], task: Task) -> Task | None:
        """Count down the successors of a task; return the first that is ready, for this thread to run."""
        following = None
        failed = task.failure is not None and task.state_ is not TaskState.CANCELLED
        if task.special and task.poison is not None:
            failed = True  # also of one that has run all the same
        successors.reverse()  # the oldest first
        while successors:
            try:
                successor = successors.pop()
            except IndexError:
                break  # the producer took the rest
            if failed and not _is_only_ordered(successor, ref(task)):
                poison(successor, task, Trouble.of(task))
            if successor.counters.pop():
                if following is None and not self.max_priority and not (successor.special and successor.owner):
                    following = successor
                else:
                    self.make_ready(successor)
        return following

    def pass_on(self, stand_in: Task) -> None:
        """Release the successors of what stands for something else, which is over."""
        self.activity += 1
        if stand_in.successors:
            self._release_all(stand_in.successors, stand_in)

    def _release_all(self, successors: list[Task], task: Task) -> None:
        """Count down the successors of a task, and hand those that are ready to other threads."""
        following = self._release(successors, task)
        if following is not None:
            self.make_ready(following)

    def wait(
        self,
        scope: Scope,
        done: Callable[[], bool],
        sets: Sequence[TaskSet],
        what: object,
        *,
        awaited: Sequence[Task] = (),
        helps: bool = True,
    ) -> None:
        """Block until ``done()``, running ready tasks meanwhile; `Wait` says how."""
        Wait(self, scope, done, sets, what, awaited=awaited, helps=helps).run()

    # -- life ----------------------------------------------------------------------------------------
    def adopt(self, frame: Frame) -> None:
        """Keep the region of a body that has ended before its children, until somebody waits for all."""
        orphan = frame.orphan()  # the body's task may have failed
        frames = self.frames  # what is let go may run code of the user's, which must not find the lock taken
        with self.lock:
            self.frames.append(orphan)
            if len(self.frames) & 63 == 0:
                frames, self.frames = self.frames, [kept for kept in self.frames if kept.children.is_of_interest]
        del frames

    def close_for(self, why: str, last_region: Frame | None = None) -> None:
        """Refuse new tasks; of ``last_region``, if given, and of what is inside of tasks they are still taken."""
        self.closed, self.last_region = why, last_region

    def close(self, why: str) -> None:
        """Stop the workers; tasks that are still in the deque do not run."""
        self.abandon(why)
        for thread in self.threads:
            thread.join()
        if self.coroutines is not None:
            self.coroutines.join()

    def abandon(self, why: str) -> None:
        """Let the workers, which are daemons, end when the bodies have that they run."""
        self.close_for(why)
        self._is_stopped = True
        while self.parked:
            self.wake_one()
        if self.coroutines is not None:
            self.coroutines.stop()


def _heed(task: Task, reference: ref[Task], trouble: Trouble | None) -> None:
    """Keep a task from running that follows one with this trouble, unless all of that is over."""
    source = trouble.unseen() if trouble is not None else None
    if source is not None and not _is_only_ordered(task, reference):
        poison(task, source, trouble)  # type: ignore[arg-type]  # it has a source


def _is_only_ordered(task: Task, reference: ref[Task]) -> bool:
    """Tell whether a task follows another one, which may be gone, in a way along which no failure goes."""
    return bool(task.ordered_after) and reference in task.ordered_after


def _take_mutexes(task: Task) -> bool:
    """Take all that a task needs, or stand in line at the first that is taken; under the engine's lock."""
    for mutex in task.mutexes:
        if mutex.holder is not None:
            mutex.waiting.append(task)
            return False
    for mutex in task.mutexes:
        mutex.holder = task
    return True


def _give_back_mutexes(task: Task) -> list[Task]:
    """Return the tasks in line that get what they need when this one gives back what it has; under the lock."""
    granted = []
    held = [mutex for mutex in task.mutexes if mutex.holder is task]
    for mutex in held:
        mutex.holder = None
    for mutex in held:
        while mutex.holder is None and mutex.waiting:
            other = mutex.waiting.popleft()
            if _take_mutexes(other):
                granted.append(other)
    return granted
