"""Waits that could never end, since they block the event loop that they depend on; see `offload.tasks.aio.task`."""

from __future__ import annotations

import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any

from offload.errors import RuntimeClosedError, UsageError
from offload.tasks.aio.loops import Home, LoopThread, abandon_closed, homes_of_thread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from offload.tasks.goals import Goal
    from offload.tasks.protocols import Pool
    from offload.tasks.region import AnyTask
    from offload.tasks.scope import Scope


class Coroutines:
    """The coroutines of an engine: its own loops, and the waits while there are coroutines."""

    def __init__(self, engine: Pool[Any]) -> None:
        self._engine = engine
        self._blocked: list[Blocked] = []  # threads
        self._awaiting: set[Blocked] = set()  # coroutines
        self._lock = threading.Lock()
        self._own: list[LoopThread] = []

    @staticmethod
    def of(engine: Pool[Any]) -> Coroutines:
        """Return those of an engine, which has none until its first coroutine."""
        with engine.lock:
            found: Coroutines | None = engine.coroutines
            if found is None:
                found = engine.coroutines = Coroutines(engine)
        return found

    def own_home(self) -> Home:
        """Return the loop of the runtime's own thread; of another one while that is blocked."""
        blocked = {get_ident(), *(wait.thread for wait in self._blocked.copy())}
        with self._lock:
            if self._engine.is_closed:
                raise RuntimeClosedError(self._engine.closed)
            for own in self._own:
                if own.home.thread not in blocked and not own.home.is_over:  # a body may have stopped it
                    return own.home
            self._own.append(LoopThread())
            return self._own[-1].home

    def is_own_thread(self) -> bool:
        """Tell whether the caller runs on a loop of the runtime's own."""
        return any(own.home.thread == get_ident() for own in self._own)

    def wait(self, scope: Scope, goal: Goal, *, blocks: bool) -> Blocked:
        """Note that a thread waits, or without ``blocks`` a coroutine, until `end`."""
        blocked = Blocked(self, scope, goal)
        if blocks:
            self._blocked.append(blocked)
        else:
            self._awaiting.add(blocked)
        if scope.task is not None:  # else nobody waits for whoever waits here
            for other in self._blocked.copy():  # after that: a wait that is not there yet will find this one
                if other is not blocked:
                    other.look_again()
        return blocked

    def end(self, blocked: Blocked) -> None:
        """Take back a `wait`."""
        if blocked in self._awaiting:
            self._awaiting.remove(blocked)
        else:
            self._blocked.remove(blocked)

    def wake_blocked(self, thread: int) -> None:
        """Have the waits on a thread look again."""
        for blocked in self._blocked.copy():
            if blocked.thread == thread:
                blocked.look_again()

    def refuse(self, goal: Goal) -> None:
        """Raise if the calling thread is about to wait for bodies of its own loop.

        Raises
        ------
        UsageError
            If it is, directly or through other tasks.
        """
        abandon_closed()
        homes = homes_of_thread()
        front: list[tuple[AnyTask, AnyTask]] = [(task, task) for home in homes for task in home.unfinished()]
        found: set[Any] = set()
        while front:
            task, root = front.pop()
            if task in found or task.finished:
                continue
            found.add(task)
            if goal.concerns(task, found):
                through = "" if task is root else f", through {task.key}"
                raise UsageError(
                    f"{goal} would block the thread of the event loop that has to run {root.key}, an async def body, "
                    f"for which it waits{through}; `await` the task, `await omp.taskwait()` or "
                    "`async with omp.taskgroup()` instead, or first"
                )
            front += [(other, root) for other in self._held_up_by(task, found)]

    def _held_up_by(self, task: AnyTask, held: Collection[AnyTask]) -> Iterable[AnyTask]:
        """Return the tasks that cannot end before this one and those ``held`` up with it, as far as one step shows."""
        yield from (*(task.successors or ()), *(task.early or ()))
        for mutex in task.mutexes:
            if mutex.holder is task:
                yield from mutex.waiting.copy()
        for blocked in (*self._blocked, *self._awaiting):
            if blocked.task is not None and blocked.waits_for(task, held):
                yield blocked.task

    def stop(self) -> None:
        """End the runtime's own loops; cancel the bodies that run there."""
        with self._lock:
            for own in self._own:
                own.stop()

    def join(self) -> None:
        """Wait for the end of their threads."""
        for own in self._own:
            own.join()


class Blocked:
    """A wait, of a thread or of a coroutine, while there are coroutines.

    Attributes
    ----------
    task : Task or None
        The task whose body waits.
    thread : int
        The identifier of the thread.
    """

    __slots__ = ("_coroutines", "_goal", "_scope", "task", "thread")

    def __init__(self, coroutines: Coroutines, scope: Scope, goal: Goal) -> None:
        self._coroutines = coroutines
        self._scope = scope
        self._goal = goal
        self.task = scope.task
        self.thread = get_ident()

    def waits_for(self, task: AnyTask, held: Collection[AnyTask]) -> bool:
        return self._goal.concerns(task, held)

    def check(self) -> None:
        """Raise `UsageError` if the wait, of this thread, cannot end."""
        self._coroutines.refuse(self._goal)

    def look_again(self) -> None:
        self._scope.parker.unpark()

    def end(self) -> None:
        self._coroutines.end(self)
