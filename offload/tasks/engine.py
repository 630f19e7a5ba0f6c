"""The eager engine: runs tasks in this process as soon as their predecessors allow.

Theory of operation
-------------------
The engine is built in layers, each of which knows those before: `offload.tasks.ready` (ready tasks and idle threads),
`offload.tasks.links` (who follows whom), `offload.tasks.completion` (hindrances and ends), and this one: entering
tasks, running them, and the life of the workers. These are layers of one object: a task costs 3 µs, in which each call
that one object would make of another is seen.

*Running.* A thread that has finished a body runs the first successor that this made ready itself, and leaves the others
to the rest. A thread that waits for tasks runs ready ones meanwhile (`offload.tasks.waiting`).

*Keeping.* The set of live tasks of the generating region is what keeps a task alive; the tracker has weak
references, and successors are referred to, not predecessors that have finished. A finished task that nobody
else holds is gone at once.

*Throttling.* A thread that generates a task while very many of its tasks are live runs another one first, or gives the
others a moment if none is ready. It never waits for a certain one, which might wait for this thread.

*Undeferred tasks* have an owner, the thread that encountered them: when ready they wake it.

All this leans on the GIL, so that a free-threaded build is refused at import until tests cover it.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.errors import RuntimeClosedError, UnsupportedError
from offload.interrupts.finalizers import put_off
from offload.interrupts.shields import Shield, raise_shield
from offload.tasks.completion import Completion
from offload.tasks.entered import Entered, is_entered
from offload.tasks.scope import current_scope
from offload.tasks.states import TaskState
from offload.tasks.task import Task
from offload.tasks.waiting import wait_within

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from offload.interrupts.shields import Shielded
    from offload.tasks.goals import Goal
    from offload.tasks.parker import Parker
    from offload.tasks.protocols import Completions
    from offload.tasks.region import Region
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


def _all_of(looks: Sequence[Callable[[], object]]) -> Callable[[], object] | None:
    """Return what calls each of them; None for none."""
    if len(looks) <= 1:
        return looks[0] if looks else None

    def look() -> None:
        for one in looks:
            one()

    return look


def _nothing() -> None:
    """Do nothing."""


class Engine(Completion):
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
    completions : Completions, optional
        What finds out that device work has passed; without it there is none.
    waits_look : bool
        Whether a thread that waits looks for completions itself, before it sleeps.
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
    ) -> None:
        super().__init__(rng, max_priority, can_cancel=can_cancel)
        self.frames: list[Region] = []
        self.closed: str = ""  # why no task can be made any more
        self.last_region: Region | None = (
            None  # at the end of the process: the only host thread's that still makes some
        )
        self._is_stopped = False
        self.gives_up = False  # for the end of the process: a wait that nothing moves ends
        self.gives_up_bodies = False  # also where a body runs all the time
        self.given_up: list[BaseException] = []  # what those waits have raised
        self.hurry: Callable[[], None] = _nothing  # called while a thread is parked in a wait: let completions be
        self.relax: Callable[[], None] = _nothing  # noticed soon
        self.look: Callable[[], object] | None = None  # lets a waiting thread look for completions itself
        self.arrives: Callable[[Any], bool] | None = None  # or for one
        if completions is not None:
            self.hurry, self.relax = completions.hurry, completions.relax
            if waits_look:
                self.look, self.arrives = completions.look, completions.arrives
        self._looks: Sequence[Callable[[], object]] = () if self.look is None else (self.look,)
        self.staging: set[Any] = set()  # what threads copy: a thread that waits leaves the GIL to them
        self.coroutines: Any = None  # what is known of them, once there is one
        self.hang_s = hang_s
        self._paused_at = -1
        self._make_scope = make_scope
        self._parkers: list[Parker] = []  # the workers'
        self.threads = [
            threading.Thread(target=self._work, name=f"offload-worker-{number}", daemon=True)
            for number in range(num_threads)
        ]
        for thread in self.threads:
            thread.start()

    # -- making tasks --------------------------------------------------------------------------------
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
                others = self.order(task, orderings)
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
        """Whether what has not begun does not run any more."""
        return self._is_stopped

    def mend(self, task: Task) -> None:
        """Take out a task whose `submit`, or `make_ready` after it, was cut short; keep one that was through.

        An exception that is sent to a thread does that outside of a shield, and the limit of recursion anywhere.

        The tracker may have lost whom the task was to follow, and what was being entered. So it is cleared, and what
        comes follows an empty task, which follows all that had dependences.
        """
        with Shield():
            for parker in self._parkers:  # one may have been taken off the list of the parked and not been woken
                parker.unpark()
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
            before: list[Any] = [ref(other) for other in live.copy() if other.dependences is not None]
            before += [trouble.reference for trouble in list(frame.children.troubles.values())]
            fence = Task(task.construct, _nothing, (), None, frame)
            fence.label = f"in place of {task.name}"
            fence.inherited = frame.inherited.within(None)  # its group cannot discard it
            fence.dependences = tracker.exclusive = []
            tracker.clear(ref(fence))
            live.add(fence)
            if self._follow(fence, before):
                self.make_ready(fence)

    def throttle(self, scope: Scope, frame: Region) -> None:
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

    def help_once(self, scope: Scope, frame: Region) -> bool:
        """Run a ready task, inside of a task only a descendant; return whether there was one."""
        return self._help(scope, frame, 1)

    def _help(self, scope: Scope, frame: Region, n_tasks: int) -> bool:
        """Run a few ready tasks as `help_once` does; return whether there was one."""
        with Shield(scope) as shield, Entered(scope):
            if shield.thread.pending:
                return False
            within = frame if scope.task is not None else None
            return self._run(None, scope, shield.thread, n_tasks, within) < n_tasks

    # -- running -------------------------------------------------------------------------------------
    def _work(self) -> None:
        scope = self._make_scope()
        current_scope.set(scope)
        thread, _, _ = raise_shield(scope)  # for good: all that runs here is the engine's own steps, but bodies
        thread.is_library = True
        parker, root = scope.parker, scope.region
        self._parkers.append(parker)
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

    def execute(self, task: Task | None, scope: Scope) -> None:
        """Run a ready task, and whatever that makes ready first, on this thread."""
        with Shield(scope) as shield, Entered(scope):
            self._run(task, scope, shield.thread)

    def _run(
        self, task: Task | None, scope: Scope, thread: Shielded, n_more: int = 0, within: Region | None = None
    ) -> int:
        """Run a task, if one is given, and ``n_more`` that are ready; each time also whatever becomes ready first.

        Those that are taken are descendants of a region, where one is given. Return how many were not there.
        """
        outer = scope.task, scope.region
        while True:
            if task is None:
                if not n_more:
                    return 0
                task = self.take() if within is None else self.take_descendant(within)
                if task is None:
                    return n_more
                n_more -= 1
            self.activity += 1
            try:
                task = task.advance(self, scope)
            except BaseException as error:
                scope.task, scope.region = outer
                self.keep(task, error)  # type: ignore[arg-type]  # the assignment did not happen
                raise
            if thread.pending:
                if task is not None:
                    self.make_ready(task)
                return n_more

    def keep(self, task: Task, error: BaseException) -> None:
        """See that a task ends although the engine's own steps for it were cut short.

        Bodies raise into their task; what comes here is the limit of recursion.
        """
        if task.state_ in (TaskState.LAUNCHED, TaskState.DETACHED):
            return  # what it waits for will complete it
        if task.state_ is not TaskState.WAITING or task.waits_in_stream_order:
            task.cut_short = error
            task.special = True
            task.seen = task.owner is not None and not task.finished  # whoever encountered it has the error raised
        self.ready.append(task)
        if self.parked:
            self.wake_one()

    def launch(self, task: Task | None, scope: Scope) -> None:
        """Launch a ready device task, and what becomes ready by it, on the encountering thread.

        A body that blocks never runs here.
        """
        if not is_entered(scope):
            with Entered(scope):
                self.launch(task, scope)
            return
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
        if not is_entered(scope):
            with Entered(scope):
                self.begin_undeferred(task, scope)
            return
        try:
            following = task.advance(self, scope)
        except BaseException as error:
            self.keep(task, error)
            raise
        if following is not None:
            self.make_ready(following)

    # -- completing ----------------------------------------------------------------------------------
    def wait(self, scope: Scope, goal: Goal, *, helps: bool = True) -> None:
        """Block until a goal is reached, running ready tasks meanwhile; `Wait` says how."""
        with Shield(scope) as shield:
            wait_within(shield, self, scope, goal, helps=helps)

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
