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
from offload.tasks.presence import Entered, is_entered
from offload.tasks.stories import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.interrupts.shields import Shield
    from offload.tasks.goals import Goal
    from offload.tasks.protocols import Pool
    from offload.tasks.region import AnyTask
    from offload.tasks.scope import Scope
    from offload.tasks.task import Task


_FRAMES = 50
"""Python's frames that a nested wait must have left: its limit is told before a task is taken, which would be lost."""

_SOON_S = 50e-6
"""How long a thread looks for the ends of launched tasks, before it waits as for everything else."""

_TAKEN_S = 10e-6
"""How long a pause of no length takes at least in which another thread had the GIL; it takes 1 µs otherwise."""


class Wait:
    """A thread that blocks until a goal is reached, running ready tasks meanwhile.

    Parameters
    ----------
    engine : Engine
        Whose tasks it waits for.
    scope : Scope
        What the calling thread does.
    goal : Goal
        What it waits for; where nothing has moved for ``hang_s`` seconds, a message tells of it.
    shield : Shield
        That around the wait.
    helps : bool
        Whether this thread may run tasks: inside of a task only what the region generated. Without workers
        it always does.
    """

    def __init__(
        self,
        engine: Pool[Task],
        scope: Scope,
        goal: Goal,
        shield: Shield,
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
        self._shield = shield
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
        engine = self._engine
        if self._scope.depth:
            self._make_room()
        try:
            if not self._attend_first():
                self._run()
        finally:
            if engine.ready or engine.takers:  # by a wake-up that was meant for a task, or a task left to this thread
                engine.leave_work()

    def _run(self) -> None:
        """Block in earnest: have the goal wake this thread, and run tasks until it is reached."""
        engine, scope = self._engine, self._scope
        wake = scope.parker.unpark
        self._goal.call(wake, engine.lock)
        if engine.coroutines is not None:
            self._blocked = engine.coroutines.wait(scope, self._goal, blocks=True)
        scope.depth += 1
        try:
            with Entered(scope):
                if self._blocked is not None:
                    self._look()
                self._loop()
        finally:
            scope.depth -= 1
            if self._blocked is not None:
                self._blocked.end()
            self._goal.leave(wake, engine.lock)
            if scope.depth:
                wake()  # the wait around this one, where a signal handler has this: it may have taken its wake-up

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
        if engine.look is None or not is_entered(self._scope) or (self._helps and engine.has_work(self._within)):
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
        thread = self._shield.thread
        while not done():
            if thread.pending:
                self._shield.check()
            if self._helps and put_off.calls and put_off.is_due:
                put_off.carry_out()
                continue
            if self._helps and not engine.run(self._scope, None, 1, within=within, pending=thread.pending):
                continue
            try:
                if self._helps:
                    waiting.append(parker)
                # Again: what came between the last look and being listed has woken nobody.
                if not done() and not (self._helps and ((put_off.calls and put_off.is_due) or engine.has_work(within))):
                    self._park()
            finally:
                if self._helps:
                    engine.unlist(parker) if within is None else engine.nested.remove(parker)

    def _park(self) -> None:
        engine = self._engine
        is_attended, self._is_attended = self._is_attended, False
        if engine.look is not None and not is_attended and self._attend():
            return
        engine.hurry()
        try:
            while True:
                if self._blocked is not None:
                    self._look()
                before = engine.activity
                if self._scope.parker.park(engine.hang_s):
                    interruption = self._shield.caught()
                    if interruption is not None:
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
            engine.relax()

    def _attend(self) -> bool:
        """Look for completions for a moment, as to be woken takes longer; return whether something has come of it."""
        engine, done, thread = self._engine, self._goal.done, self._shield.thread
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


def wait_within(shield: Shield, engine: Pool[Any], scope: Scope, goal: Goal, *, helps: bool = True) -> None:
    """Block until a goal is reached, running ready tasks meanwhile, within a shield that is up; `Wait` says how."""
    if engine.arrives is not None and (launched := goal.launched()):
        attend(engine, scope, launched, helps=helps)
        if goal.done():
            return
    Wait(engine, scope, goal, shield, helps=helps).run()


def attend(engine: Pool[Any], scope: Scope, tasks: Sequence[AnyTask], *, helps: bool) -> None:
    """Look for the ends of launched tasks, for a moment, if this thread has nothing else to do meanwhile.

    Kernels and small copies end so soon that what a `Wait` prepares would take longer. That does the rest, and all of
    it where there is more to do: tasks with which the wait ``helps``, what finalizers ask for, copies that need the
    GIL. Where waits do not look there is nothing to attend to.
    """
    arrives = engine.arrives
    if arrives is None or engine.staging or put_off.calls or scope.depth or scope.is_completer:
        return
    if (engine.ready and (helps or not engine.threads)) or not is_entered(scope):
        return
    scope.depth = 1  # callbacks may wait
    try:
        until_s = perf_counter() + _SOON_S
        for task in tasks:
            while not (task.finished or arrives(task.point)):
                if perf_counter() >= until_s:
                    return
    finally:
        scope.depth = 0
