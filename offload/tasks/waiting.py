"""Waiting for tasks, and running ready ones meanwhile.

An interrupt (Ctrl-C) ends a wait between two tasks, or the body that is running and then the wait, never the engine's
own steps (`offload.interrupts.shields`).
"""

from __future__ import annotations

import select
from contextlib import suppress
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from offload.errors import UsageError
from offload.interrupts.finalizers import put_off
from offload.interrupts.shields import make_room
from offload.tasks.stories import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.interrupts.shields import Shielded
    from offload.tasks.goals import Goal
    from offload.tasks.protocols import Pool
    from offload.tasks.region import AnyTask
    from offload.tasks.scope import Scope
    from offload.tasks.task import Task


_FRAMES = 50
"""Python's frames that a nested wait must have left: its limit is told before a task is taken, which would be lost."""

_SOON_S = 50e-6
"""How long a thread asks for the ends of launched tasks, before it waits as for everything else."""

_TAKEN_S = 10e-6
"""How long a pause of no length takes at least in which another thread had the GIL; it takes 1 µs otherwise."""


class Wait:
    """A thread that blocks until a goal is reached, running ready tasks meanwhile.

    The thread has entered its scope (`offload.tasks.presence.Entered`), and its shield is up.

    Parameters
    ----------
    engine : Engine
        The engine of the tasks.
    scope : Scope
        The scope of the calling thread.
    goal : Goal
        The goal. If no task has moved for ``hang_s`` seconds, a message reports the wait.
    thread : Shielded
        The calling thread, as far as interruptions concern it.
    helps : bool
        Whether this thread may run tasks: inside of a task only tasks that the region generated. Without workers
        it always does.
    """

    def __init__(
        self,
        engine: Pool[Task],
        scope: Scope,
        goal: Goal,
        thread: Shielded,
        *,
        helps: bool,
    ) -> None:
        if scope.is_completer:
            raise UsageError(
                f"{goal} in a callback of a task is not allowed, because the callback's thread must not wait; start a "
                "task there"
            )
        self._engine = engine
        self._scope = scope
        self._goal = goal
        self._within = scope.frame(goal) if scope.task is not None else None
        self._helps = helps or not engine.threads
        self._is_attended = False  # there was no use in it, just now
        self._thread = thread
        self._blocked: Any = None  # while there are coroutines: what sees that the wait can end

    def run(self) -> None:
        """Block until the goal is reached.

        Raises
        ------
        BaseException
            An interruption raises it: Ctrl-C, a signal handler of the program, an exception that was sent.
        RecursionError
            The thread is in too many waits.
        UsageError
            The goal depends on coroutines of a loop that this thread runs. At the end of the process, where
            nothing has moved for ``hang_s`` seconds.
        """
        engine, scope, goal = self._engine, self._scope, self._goal
        if scope.depth:
            self._make_room()
        wake = scope.parker.unpark
        is_told = goal.calls or goal.sets
        try:
            if engine.look is not None and self._attend_first():
                return
            if is_told:
                goal.call(wake, engine.lock)
            if engine.coroutines is not None:
                self._blocked = engine.coroutines.wait(scope, goal, blocks=True)
            scope.depth += 1
            try:
                if self._blocked is not None:
                    self._look()
                self._loop()
            finally:
                scope.depth -= 1
                if self._blocked is not None:
                    self._blocked.end()
                if is_told:
                    goal.leave(wake, engine.lock)
                if scope.depth:
                    wake()  # the wait around this one, where a signal handler has this: it may have taken its wake-up
        finally:
            if engine.ready or engine.takers:  # by a wake-up that was meant for a task, or a task left to this thread
                engine.leave_work()

    def _make_room(self) -> None:
        try:
            make_room(_FRAMES)
        except RecursionError:
            raise RecursionError(
                f"{self._goal}: {self._scope.depth} tasks wait for tasks that the same thread runs; nest fewer, or "
                "raise sys.setrecursionlimit"
            ) from None

    def _attend_first(self) -> bool:
        """Attend before there is anything to undo, unless there are tasks to run; return whether the wait is over."""
        if self._goal.done():
            return True
        engine = self._engine
        if self._helps and engine.has_work(self._within):
            return False
        self._scope.depth += 1  # callbacks may wait
        try:
            self._is_attended = not self._attend()
        finally:
            self._scope.depth -= 1
        return self._goal.done()

    def _loop(self) -> None:
        engine, within, parker, done = self._engine, self._within, self._scope.parker, self._goal.done
        waiting: Any = engine.parked if within is None else engine.nested
        thread = self._thread
        while not done():
            if thread.pending:
                thread.check()
            if not self._helps:
                self._park()
                continue
            if put_off.calls and put_off.is_due:
                put_off.carry_out()
                continue
            if not engine.run(self._scope, None, n_more=1, within=within, pending=thread.pending):
                continue
            try:
                waiting.append(parker)
                # Again: what came between the last look and being listed has woken nobody.
                if not (done() or (put_off.calls and put_off.is_due) or engine.has_work(within)):
                    self._park()
            finally:
                engine.unlist(parker) if within is None else engine.nested.remove(parker)

    def _park(self) -> None:
        engine = self._engine
        is_attended, self._is_attended = self._is_attended, False
        if engine.look is not None and not is_attended and self._attend():
            return
        hurries = self._goal.hurries
        if hurries:
            engine.hurry()
        try:
            while True:
                if self._blocked is not None:
                    self._look()
                before = engine.activity
                if self._scope.parker.park(engine.hang_s):
                    if self._thread.pending and (interruption := self._thread.caught()) is not None:
                        self._tell("was interrupted")
                        try:
                            raise interruption
                        finally:
                            del interruption
                    return
                if engine.activity == before:
                    self._tell(f"has waited for {engine.hang_s:g} s in which no task began or ended")
                    if engine.gives_up and (engine.gives_up_bodies or not engine.is_busy):
                        error = UsageError(f"{self._goal} was given up: nothing had moved for {engine.hang_s:g} s")
                        engine.given_up.append(error)
                        raise error
        finally:
            if hurries:
                engine.relax()

    def _attend(self) -> bool:
        """Look for completions for a moment, as to be woken takes longer; return whether something has come of it."""
        engine, done, thread = self._engine, self._goal.done, self._thread
        look = engine.look
        if look is None:  # another thread has just ended what there was to look for
            return False
        takes = self._helps and self._within is None
        ready, takers = engine.ready if takes else (), engine.takers
        glimpse = select.poll().poll  # Windows has none, and no devices that are looked after so
        pause: Any = glimpse  # in each turn, whoever needs the GIL gets it; `sleep(0)` would take 56 µs
        now_s = perf_counter()
        until_s = now_s + engine.attends_s
        if takes:
            takers.append(self)
        try:
            while now_s < until_s and not engine.staging:
                look()
                if done() or ready or thread.pending:
                    return True
                before_s = perf_counter()
                pause(0)
                now_s = perf_counter()
                pause = sleep if pause is glimpse and now_s - before_s > _TAKEN_S else glimpse
        finally:
            if takes:
                with suppress(ValueError):  # a task has been left to it
                    takers.remove(self)
        return bool(ready)  # not before: it may have been left to this thread at the last moment

    def _look(self) -> None:
        """Raise `UsageError` if the wait cannot end, since it blocks a loop that it depends on."""
        if not self._goal.done():
            self._blocked.check()

    def _tell(self, what_happened: str) -> None:
        tell(self._goal, what_happened)


def wait_within(thread: Shielded, engine: Pool[Any], scope: Scope, goal: Goal, *, helps: bool = True) -> None:
    """Block until a goal is reached, running ready tasks meanwhile; see `Wait`, also for the caller's steps before."""
    if engine.look is not None and (launched := goal.launched()):
        attend(engine, scope, launched, helps=helps)
        if goal.done():
            return
    Wait(engine, scope, goal, thread, helps=helps).run()


def attend(engine: Pool[Any], scope: Scope, tasks: Sequence[AnyTask], *, helps: bool) -> bool:
    """Ask for the ends of launched tasks, if this thread has nothing else to do meanwhile; return whether all are over.

    Kernels and small copies end so soon that preparing a `Wait` would take longer. If waits look, the thread asks for a
    moment, else once. The `Wait` does the rest, and all of it if there is more to do: tasks with which it ``helps``,
    requests of finalizers, copies that need the GIL.
    """
    if engine.staging or put_off.calls or scope.depth or scope.is_completer:
        return False
    if engine.ready and (helps or not engine.threads):
        return False
    arrives: Any = engine.arrives  # something finds out about device work, or no task would be launched
    scope.depth = 1  # callbacks may wait
    try:
        until_s = perf_counter() + _SOON_S if engine.look is not None else 0.0
        for task in tasks:
            while not (task.finished or arrives(task.point)):
                if not until_s or perf_counter() >= until_s:
                    return False
    finally:
        scope.depth = 0
    return True
