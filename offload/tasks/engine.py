"""The eager engine: runs tasks in this process as soon as their predecessors allow.

Theory of operation
-------------------
*Running.* A thread that has finished a body runs the first successor that this made ready itself, and leaves the others
to the rest. A thread that waits for tasks runs ready ones meanwhile (`offload.tasks.waiting`). `Engine.run` is the
only loop that drives `Task.advance`, for all of these threads.

*Waking.* Ready tasks stand in one deque; where there are priorities, in one for each. A thread without work parks on a
lock of its own and is woken only when parked. Threads that wait inside of a task may run its descendants only: they
stand in a list of their own, and all of them are woken.

*The order of an end.* The state and the trouble are noted, then that the task has finished, then its successors are
released (`offload.tasks.links`), then it leaves its region and its group. So a thread that sees a region without live
tasks sees the failures too. The completer and threads that fulfil events only enqueue and wake
(`Engine.finish_elsewhere`).

*Keeping.* The set of live tasks of the generating region keeps a task alive. The tracker has weak references, and
successors are referred to, not predecessors that have finished. A finished task that nobody else holds is gone at once.

*Throttling.* A thread that generates a task while very many of its tasks are live runs another one first, or gives the
others a moment if none is ready. It never waits for a certain one, which might wait for this thread.

*Undeferred tasks* have an owner, the thread that encountered them: when ready they wake it.

All this leans on the GIL, so that a free-threaded build is refused at import until tests cover it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.errors import RuntimeClosedError, UnsupportedError
from offload.interrupts.finalizers import put_off
from offload.interrupts.shields import Shield, raise_shield
from offload.tasks.callbacks import run_callbacks
from offload.tasks.exclusion import give_back_mutexes, take_mutexes
from offload.tasks.links import follow, follows_launched, order, release, release_all
from offload.tasks.mending import mend
from offload.tasks.presence import Entered, running_loop, scope_in_context
from offload.tasks.priorities import ByPriority
from offload.tasks.recipe import nothing
from offload.tasks.scope import current_scope
from offload.tasks.states import TaskState
from offload.tasks.task import LeaveRegion, Task, discarded
from offload.tasks.troubles import poisoned
from offload.tasks.waiting import wait_within

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence, Sized

    from offload.tasks.goals import Goal
    from offload.tasks.parker import Parker
    from offload.tasks.protocols import Completions
    from offload.tasks.region import AnyTask, Region, TaskSet
    from offload.tasks.scope import Scope

if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise UnsupportedError("offload needs the GIL; on a free-threaded build of Python, start it with PYTHON_GIL=1")

MANY_LIVE = 256
"""Live tasks of one region from which on it is throttled: a few hundred KB, about what a core's own cache holds.
libgomp throttles at 64 a thread, libomp at 256."""

_AT_ONCE = 64
"""Tasks that a throttled thread runs before it goes on generating; it costs something to begin."""

_PAUSE_S = 1e-3
"""What a throttled thread leaves to the others when nothing is ready."""

_COMPLETE = TaskState.COMPLETE  # to look one up costs 0.15 µs

_ONLY_ENQUEUES = attrgetter("launches_inline")
"""Says whether the encountering thread may run a task that its launches make ready."""


def _all_of(looks: Sequence[Callable[[], object]]) -> Callable[[], object] | None:
    """Return a function that calls each of them; None for none."""
    if len(looks) <= 1:
        return looks[0] if looks else None

    def look() -> None:
        for one in looks:
            one()

    return look


def stays(_: Task) -> bool:
    """Say that the thread runs nothing else."""
    return False


def _may_help_with(task: Task, frame: Region) -> bool:
    """Tell whether a thread that waits inside of a region may run the task meanwhile.

    It may run tasks that the region has generated. It may run any device task: its body can neither wait nor generate,
    and others may wait for it, since it holds memory.
    """
    return task.waits_in_stream_order or frame.has_generated(task)


class Engine:
    """Ready tasks, the threads that run them, and those who wait.

    Parameters
    ----------
    num_threads : int
        Workers, at least 0.
    rng : random.Random or None
        Chooses among ready tasks; None: the oldest first.
    hang_s : float
        Seconds without progress after which a wait reports its goal.
    make_scope : callable
        Returns the scope of the calling thread for the runtime.
    max_priority : int
        Higher priorities of tasks count as this one; 0: there are none.
    can_cancel : bool
        Whether taskgroups can be cancelled.
    completions : Completions, optional
        The object that finds out that device work has passed; without it there is no device work.
    waits_look : bool
        Whether a thread that waits looks for completions itself, before it sleeps.
    attends_s : float
        How long it looks before it sleeps; to be woken takes 0.1 to 0.3 ms.
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
        completions: Completions | None = None,
        waits_look: bool = False,
        attends_s: float = 2e-3,
    ) -> None:
        # -- ready tasks, and the threads that take them
        # The ready tasks that no thread has taken. Each change is one step under the GIL.
        self.ready: Any = ByPriority() if max_priority else deque()
        self.max_priority = max_priority
        self._rng = rng
        # Threads without work. A thread lists itself, and then looks at `ready` once more before it sleeps.
        self.parked: deque[Parker] = deque()
        # Threads that have been told that there is work, and are not awake yet.
        self.woken: set[Parker] = set()
        # Threads that wait inside of a task, and may run its descendants only.
        self.nested: list[Parker] = []
        # Threads that are awake, look for completions and take one task each of those that become ready: for that
        # nobody needs to be woken. A thread that goes without having looked at `ready` again wakes another one itself.
        self.takers: list[object] = []
        # About how many tasks have begun or ended: a wait that sees it stand still says so.
        self.activity = 0
        # Held for steps that are rare and touch several fields; never while a body or a callback runs.
        self.lock = threading.Lock()
        self.can_cancel = can_cancel
        # How a task follows those that the tracker has found; an observed runtime notes the edges here.
        self.follow, self.follows_launched = follow, follows_launched
        # -- waits
        self.hang_s = hang_s
        self.attends_s = attends_s
        # Called while a thread is parked in a wait, so that completions are noticed soon.
        self.hurry: Callable[[], None] = nothing
        self.relax: Callable[[], None] = nothing
        # Lets a waiting thread look for completions itself, as long as it likes; None where it is to sleep.
        self.look: Callable[[], object] | None = None
        # Lets it ask whether one launched task has got to its end.
        self.arrives: Callable[[Any], bool] | None = None
        if completions is not None:
            self.hurry, self.relax, self.arrives = completions.hurry, completions.relax, completions.arrives
            if waits_look:
                self.look = completions.look
        self._looks: Sequence[Callable[[], object]] = () if self.look is None else (self.look,)
        # What threads copy at the moment: a thread that waits leaves the GIL to them.
        self.staging: set[Any] = set()
        # What is known of coroutines; None until there is one.
        self.coroutines: Any = None
        # `activity` when a throttled thread last paused.
        self._paused_at = -1
        # -- life
        # Regions of bodies that have ended before their children.
        self.frames: list[Region] = []
        # Why no task can be made any more; empty while tasks can be made.
        self.closed = ""
        # At the end of the process: the only host thread's region that still makes some.
        self.last_region: Region | None = None
        self._is_stopped = False
        # At the end of the process: whether a wait that nothing moves ends, also while a body runs all the time.
        self.gives_up = self.gives_up_bodies = False
        # What those waits have raised.
        self.given_up: list[BaseException] = []
        self._make_scope = make_scope
        # What the workers park on.
        self.parkers: list[Parker] = []
        self.threads = [
            threading.Thread(target=self._work, name=f"offload-worker-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self.threads:
            thread.start()

    # -- entering tasks ------------------------------------------------------------------------------
    def submit(
        self, task: Task, dependences: Sequence[Any], orderings: Sequence[Any] = (), follows: Sequence[Any] = ()
    ) -> bool:
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
        if not (dependences or orderings or follows):
            return True
        try:
            task.dependences = dependences
            tracker = frame.tracker
            found = tracker.add(ref(task), dependences) if dependences else []
            if follows:
                found += follows
            if orderings:
                others = order(task, orderings)
                task.ordered_after = [other for other in others if other not in found]
                found += task.ordered_after
            if tracker.exclusive:
                task.mutexes, tracker.exclusive = tuple(dict.fromkeys(tracker.exclusive)), []
                task.special = True
            if found:
                if task.__class__ is not Task and task.waits_in_stream_order and self.follows_launched(task, found):
                    return True
                return self.follow(self, task, found)
        except BaseException:  # others must not wait for a task that never runs
            self.mend(task)
            raise
        return True

    def refuses(self, frame: Region) -> bool:
        """Tell whether a region may not generate tasks any more, and ``closed`` says why."""
        last = self.last_region
        return bool(self.closed) and (last is None or (frame.task is None and frame.children is not last.children))

    @property
    def is_closed(self) -> bool:
        """Whether no region may."""
        return bool(self.closed) and self.last_region is None

    @property
    def is_stopped(self) -> bool:
        """Whether tasks that have not begun will not run any more."""
        return self._is_stopped

    def mend(self, task: Task) -> None:
        """Take out a task whose `submit`, or `make_ready` after it, was cut short; keep one that was through."""
        mend(self, task)

    def throttle(self, scope: Scope, frame: Region) -> None:
        """Run a ready task, as very many are live; if none is ready, give the others a moment to get on.

        If that was of no use, for example because all tasks follow an event that this thread will fulfil, it is not
        tried again before the number of live tasks has changed by an eighth: a few dozen times in all.
        """
        children = frame.children
        n_live = len(children.live)
        if abs(n_live - children.n_stuck) < n_live >> 3 or self.help(scope, frame, _AT_ONCE):
            return
        if self._paused_at != self.activity:  # else nothing has run since
            self._paused_at = self.activity
            scope.parker.park(_PAUSE_S)
            if len(children.live) < n_live:
                return
        children.n_stuck = n_live

    # -- ready tasks ---------------------------------------------------------------------------------
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
        if self.parked and not (self.takers and self._is_taken()):
            self.wake_one()
        if self.nested:
            for parker in tuple(self.nested):
                parker.unpark()

    def _is_taken(self) -> bool:
        """Tell whether a thread that is awake takes a task that has just been made ready."""
        try:
            self.takers.pop()
        except IndexError:
            return False  # it takes another
        return True

    def leave_work(self) -> None:
        """Have another thread take the ready tasks: the calling thread, which may have been expected to, does not."""
        self.takers.clear()
        if self.ready and self.parked:
            self.wake_one()

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
            self.parked.append(parker)  # another thread has to wake it
            raise

    def stir(self) -> None:
        """Have a thread that has nothing to do look around, or those that wait in tasks. Takes no lock."""
        if self.parked:
            self.wake_one()
        for parker in tuple(self.nested):
            parker.unpark()

    def unlist(self, parker: Parker) -> None:
        """Take a thread that has woken off the list of the parked."""
        try:
            self.parked.remove(parker)
        except ValueError:  # whoever woke it took it off
            self.woken.discard(parker)

    def has_work(self, within: Region | None = None) -> bool:
        """Tell whether a task is ready that a thread may take that waits, inside of a region if one is given."""
        if within is None:
            return bool(self.ready)
        return any(_may_help_with(task, within) for task in self.ready.copy())

    def _choose(self, within: Region | None) -> Task:
        """Take a ready task: under a seed any, ``within`` a region the oldest that belongs there; or `IndexError`."""
        ready = self.ready
        if within is None:
            if (n_ready := len(ready)) > 1:  # once: others take tasks meanwhile
                ready.rotate(self._rng.randrange(n_ready))  # type: ignore[union-attr]  # there is a seed
            return ready.popleft()  # type: ignore[no-any-return]  # tasks stand there
        for task in ready.copy():
            if _may_help_with(task, within):
                with suppress(ValueError):  # another thread took it
                    ready.remove(task)
                    return task  # type: ignore[no-any-return]  # the same
        raise IndexError

    # -- running -------------------------------------------------------------------------------------
    def run(
        self,
        scope: Scope,
        task: Task | None,
        goes_on: Callable[[Task], object] | None = None,
        n_more: int = 0,
        *,
        within: Region | None = None,
        pending: Sized = (),
    ) -> int:
        """Advance a task on this thread, and each time the first task that becomes ready by it; then ready tasks.

        Parameters
        ----------
        scope : Scope
            The thread's scope for the runtime, which it has entered (`Entered`).
        task : Task or None
            The first task, if it is not a ready one.
        goes_on : callable, optional
            Says whether this thread runs a task that has become ready; else another thread does.
        n_more : int
            How many ready tasks to take after that.
        within : Region, optional
            The thread waits inside of this region, and runs tasks that it has generated.
        pending : sized
            The interruptions that the thread is to deliver: as soon as there is one, other threads go on.

        Returns
        -------
        int
            How many of the ``n_more`` tasks it has not taken.
        """
        outer = scope.task, scope.region
        while True:
            if task is None:
                if not n_more:
                    return 0
                try:
                    task = self.ready.popleft() if within is None and self._rng is None else self._choose(within)
                except IndexError:
                    return n_more
                n_more -= 1
            self.activity += 1
            try:
                task = task.advance(self, scope)
            except BaseException as error:
                scope.task, scope.region = outer
                self._keep(task, error)  # type: ignore[arg-type]  # the assignment did not happen
                raise
            if task is not None and (
                pending
                or (within is not None and not _may_help_with(task, within))
                or (goes_on is not None and not goes_on(task))
            ):
                self.make_ready(task)
                task = None
            if pending:
                return n_more

    def _keep(self, task: Task, error: BaseException) -> None:
        """See that a task ends although the engine's own steps were cut short; bodies raise into their tasks."""
        if task.state_ in (TaskState.LAUNCHED, TaskState.DETACHED):
            return  # what it waits for will complete it
        if task.state_ is not TaskState.WAITING or task.waits_in_stream_order:
            task.cut_short = error
            task.special = True
            task.seen = task.owner is not None and not task.finished  # whoever encountered it has the error raised
        self.ready.append(task)
        if self.parked:
            self.wake_one()

    def _work(self) -> None:
        """Be a worker: run tasks until the engine stops."""
        scope = self._make_scope()
        current_scope.set(scope)
        thread, _, _ = raise_shield(scope)  # for good: all that runs here is the engine's own steps, but bodies
        thread.is_library = True
        parker = scope.parker
        self.parkers.append(parker)
        while not self._is_stopped:
            if put_off.is_urgent:
                put_off.carry_out()
            try:
                is_done = self.run(scope, None, n_more=1) == 0
            except BaseException:  # noqa: BLE001  # no step of ours may end the worker; the task has the error
                is_done = True
            if is_done:
                continue
            self.parked.append(parker)
            if not (self.ready or (put_off.is_urgent and put_off.is_due) or self._is_stopped):
                parker.park()
            self.unlist(parker)

    @property
    def is_busy(self) -> bool:
        """Whether a worker runs a body that does not wait for tasks; for a thread that is parked in a wait itself."""
        return len(self.threads) >= len(self.parked) + len(self.nested)

    def help(self, scope: Scope, frame: Region, n_tasks: int = 1) -> bool:
        """Run a few ready tasks, inside of a task only descendants; return whether there was one."""
        with Shield(scope) as shield, Entered(scope):
            pending = shield.thread.pending
            if pending:
                return False
            within = frame if scope.task is not None else None
            return self.run(scope, None, n_more=n_tasks, within=within, pending=pending) < n_tasks

    def execute(self, task: Task | None, scope: Scope) -> bool:
        """Run a task, or a ready one, and the first that each makes ready; return whether there was one."""
        with Shield(scope) as shield, Entered(scope):
            return not self.run(scope, task, n_more=int(task is None), pending=shield.thread.pending)

    def launch(self, task: Task, scope: Scope) -> None:
        """Launch a ready device task, and tasks that become ready by it, on the encountering thread.

        A body that blocks never runs here.
        """
        if task.body is None and task.early is None:  # a copy, for example: no code of the program runs
            self.run(scope, task, stays)
        elif scope_in_context() is scope and running_loop() is None:  # `Entered` would change nothing
            self.run(scope, task, _ONLY_ENQUEUES)
        else:
            with Entered(scope):
                self.run(scope, task, _ONLY_ENQUEUES)

    # -- the ends of tasks ---------------------------------------------------------------------------
    def hinders(self, task: Task) -> bool:
        """Tell whether a ready task may not begin: it is poisoned, discarded, or excluded for the time being.

        A task that is poisoned or discarded ends without having begun. One that cannot have its mutexes stands in line,
        and is made ready again.
        """
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
        """Complete a task that has not begun, after those that it follows in stream order: others follow it alone."""
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
            task.frame.children.note_trouble(task, self.lock)  # it has run all the same
        if failure is None:
            task.state_ = _COMPLETE
        else:
            task.failure = failure
            if task.state_ is not failed:  # else these steps were cut short before
                task.state_ = failed
            if failed is not TaskState.CANCELLED:
                task.frame.children.note_trouble(task, self.lock)
        task.finished = True
        following = release(self, task.successors, task) if task.successors else None
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
            group.live.discard(task)
            if group.waiters:
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
        """Complete a task on a thread that must not run its successors, such as one that fulfils an event."""
        self.activity += 1
        following = self.finish(task, failure, failed)
        if following is not None:
            self.make_ready(following)

    def release_early(self, task: Task) -> Task | None:
        """Release the successors and threads that only wait for the task's work to be on its stream."""
        task.launched = True
        for wake in task.launch_calls:
            wake()
        return release(self, task.early, task) if task.early else None

    def pass_on(self, stand_in: Task) -> None:
        """Release the successors of a task that stands for something else, which is over."""
        self.activity += 1
        if stand_in.successors:
            release_all(self, stand_in.successors, stand_in)

    def _finish_special(self, task: Task) -> None:
        """Release early successors and mutexes, and note a failure before any thread sees the task complete."""
        if task.predecessors:
            task.predecessors = ()
        if task.early:
            release_all(self, task.early, task)
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
            task.frame.children.note_failure(task, self.lock)
            if task.inherited.group is not None:
                task.inherited.group.note_failure(task, self.lock)

    def take_failures(self, tasks: TaskSet) -> list[AnyTask]:
        """Return the failures of a task set, which forgets them."""
        with self.lock:
            failures, tasks.failures = tasks.failures, {}
        return list(failures)

    # -- waits ---------------------------------------------------------------------------------------
    def wait(self, scope: Scope, goal: Goal, *, helps: bool = True) -> None:
        """Block until a goal is reached, running ready tasks meanwhile; `Wait` says how."""
        with Shield(scope) as shield, Entered(scope):
            wait_within(shield.thread, self, scope, goal, helps=helps)

    def attend_to(self, look: Callable[[], object]) -> None:
        """Have threads that wait call ``look`` as well, until `forgo`."""
        with self.lock:
            self._looks = (*self._looks, look)
            self.look = _all_of(self._looks)

    def forgo(self, look: Callable[[], object]) -> None:
        """Have them call it no more."""
        with self.lock:
            self._looks = tuple(other for other in self._looks if other != look)
            self.look = _all_of(self._looks)

    # -- life ----------------------------------------------------------------------------------------
    def adopt(self, frame: Region) -> None:
        """Keep the region of a body that has ended before its children, until somebody waits for all."""
        orphan = frame.orphan()  # the body's task may have failed
        frames = self.frames  # what is let go may run code of the user's, which must not find the lock taken
        with self.lock:
            self.frames.append(orphan)
            if len(self.frames) & 63 == 0:
                frames, self.frames = self.frames, [kept for kept in self.frames if kept.children.is_of_interest]
        del frames

    def close_for(self, why: str, last_region: Region | None = None) -> None:
        """Refuse new tasks, except those of ``last_region``, if given, and those generated inside of tasks."""
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
