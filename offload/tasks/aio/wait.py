"""Waiting for tasks in a coroutine: the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from offload.interrupts.finalizers import put_off
from offload.tasks.goals import TaskEnd
from offload.tasks.stories import tell

if TYPE_CHECKING:
    from offload.tasks.goals import Goal
    from offload.tasks.handle import Handle
    from offload.tasks.protocols import Crew
    from offload.tasks.scope import Scope


class Bell:
    """Wakes a coroutine, from any thread; to the engine it is a parker."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def unpark(self, _: object = None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Wait for `unpark`, which may have come before."""
        await self._event.wait()
        self._event.clear()


class AsyncWait:
    """A coroutine that waits until a goal is reached, and does not block its loop.

    In a runtime without workers it runs ready tasks meanwhile, one a turn of the loop. Any task, also in a body: unlike
    a thread that waits, a coroutine has nothing on the stack that they would hold up.

    Parameters
    ----------
    engine, scope, goal
        As for `offload.tasks.waiting.Wait`.
    """

    def __init__(self, engine: Crew, scope: Scope, goal: Goal) -> None:
        self._engine = engine
        self._scope = scope
        self._goal = goal
        self._helps = not engine.threads

    async def run(self) -> None:
        """Wait until the goal is reached; a cancellation ends the wait and changes nothing else."""
        if self._goal.done():
            return
        engine = self._engine
        bell = Bell()
        self._goal.call(bell.unpark, engine.lock)
        blocked: Any = None
        if engine.coroutines is not None:
            blocked = engine.coroutines.wait(self._scope, self._goal, blocks=False)
        patience = _Patience(engine, self._goal)
        engine.hurry()
        try:
            await self._loop(bell)
        finally:
            engine.relax()
            patience.cancel()
            if blocked is not None:
                blocked.end()
            self._goal.leave(bell.unpark, engine.lock)
            # A failure refers to the frames that its body was called from, these for one.
            self._goal = patience = blocked = None  # type: ignore[assignment]  # it has waited
            if engine.ready and engine.parked:
                engine.wake_one()  # a wake-up that was meant for a task, not for the goal

    async def _loop(self, bell: Bell) -> None:
        engine = self._engine
        while not self._goal.done():
            if put_off.calls:
                put_off.carry_out()
            if self._helps and engine.ready and engine.execute(None, self._scope):
                await asyncio.sleep(0)
                continue
            if self._helps:
                engine.parked.append(bell)  # type: ignore[arg-type]  # unpark is all that is asked of it
            try:
                # Again: what came between the last look and being listed has woken nobody.
                if not self._goal.done() and not (self._helps and (engine.ready or put_off.is_due)):
                    await bell.wait()
            finally:
                if self._helps:
                    engine.unlist(bell)  # type: ignore[arg-type]  # the same


class _Patience:
    """Reports the wait of a coroutine each time that no task has run for ``hang_s`` seconds."""

    def __init__(self, engine: Crew, goal: Goal) -> None:
        self._engine = engine
        self._goal = goal
        self._activity = engine.activity
        self._timer = asyncio.get_running_loop().call_later(engine.hang_s, self._look)

    def _look(self) -> None:
        engine = self._engine
        if engine.activity == self._activity:
            tell(self._goal, f"has waited for {engine.hang_s:g} s in which no task ran")
        self._activity = engine.activity
        self._timer = asyncio.get_running_loop().call_later(engine.hang_s, self._look)

    def cancel(self) -> None:
        self._timer.cancel()


async def wait_for(scope: Scope, goal: Goal) -> None:
    """Wait for tasks, and raise their failures as a group."""
    engine = scope.runtime.engine
    try:
        while goal.is_left():
            await AsyncWait(engine, scope, goal).run()
        goal.raise_failures(engine.take_failures)
    finally:
        goal.let_go()


async def nothing() -> None:
    """Wait for nothing: the region is only recorded."""


async def outcome(task: Handle) -> Any:
    """Wait until a task is complete and return its ``result()``."""
    runtime = task.construct.runtime
    if not task.finished:
        scope = runtime.check_wait(task)
        await AsyncWait(runtime.engine, scope, TaskEnd(task)).run()
    try:
        return task.result()
    finally:
        del task  # the traceback of its failure would refer to the task, and the task to it
