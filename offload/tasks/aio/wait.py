"""Waiting for tasks in a coroutine: the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from offload.interrupts.finalizers import put_off
from offload.tasks.stories import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.tasks.protocols import Crew, Handle
    from offload.tasks.region import TaskSet
    from offload.tasks.scope import Scope


class Bell:
    """Wakes a coroutine, from any thread; to the engine it is a parker."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def unpark(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Wait for `unpark`, which may have come before."""
        await self._event.wait()
        self._event.clear()


class AsyncWait:
    """A coroutine that waits until ``done()``, and does not block its loop.

    In a runtime without workers it runs ready tasks meanwhile, one a turn of the loop. Any task, also in a body: unlike
    a thread that waits, a coroutine has nothing on the stack that they would hold up.

    Parameters
    ----------
    engine, scope, done, sets, what, awaited
        As for `offload.tasks.waiting.Wait`; each of ``awaited`` wakes the coroutine.
    """

    def __init__(
        self,
        engine: Crew[Any],
        scope: Scope,
        done: Callable[[], bool],
        sets: Sequence[TaskSet],
        what: str,
        *,
        awaited: Sequence[Handle] = (),
    ) -> None:
        self._engine = engine
        self._scope = scope
        self._done = done
        self._sets = sets
        self._what = what
        self._awaited = awaited
        self._helps = not engine.threads

    async def run(self) -> None:
        """Wait until the condition holds; a cancellation ends the wait and changes nothing else."""
        if self._done():
            return
        engine, sets = self._engine, self._sets
        bell = Bell()
        wake = bell.unpark

        def tell_end(_: Handle) -> None:
            wake()

        with engine.lock:
            for tasks in sets:
                tasks.waiters = (*tasks.waiters, wake)
        for task in self._awaited:
            task.add_done_callback(tell_end)
        blocked: Any = None
        if engine.coroutines is not None:
            blocked = engine.coroutines.wait(self._what, self._scope, sets, self._awaited, blocks=False)
        patience = self._be_patient()
        engine.hurry()
        try:
            await self._loop(bell)
        finally:
            engine.relax()
            patience.cancel()
            if blocked is not None:
                blocked.end()
            for task in self._awaited:
                with suppress(ValueError):  # it has been called
                    (task.callbacks or []).remove(tell_end)
            with engine.lock:
                for tasks in sets:
                    remaining = list(tasks.waiters)
                    remaining.remove(wake)
                    tasks.waiters = tuple(remaining)
            # A failure refers to the frames that its body was called from, these for one.
            self._awaited, self._sets, self._done = (), (), None  # type: ignore[assignment]  # it has waited
            task = patience = blocked = None  # type: ignore[assignment]  # the same
            if engine.ready and engine.parked:
                engine.wake_one()  # a wake-up that was meant for a task, not for the condition

    async def _loop(self, bell: Bell) -> None:
        engine = self._engine
        while not self._done():
            if put_off.calls:
                put_off.carry_out()
            task = engine.take() if self._helps else None
            if task is not None:
                engine.execute(task, self._scope)
                del task
                await asyncio.sleep(0)
                continue
            if self._helps:
                engine.parked.append(bell)  # type: ignore[arg-type]  # unpark is all that is asked of it
            try:
                # Again: what came between the last look and being listed has woken nobody.
                if not self._done() and not (self._helps and (engine.ready or put_off.is_due)):
                    await bell.wait()
            finally:
                if self._helps:
                    engine.unlist(bell)  # type: ignore[arg-type]  # the same

    def _be_patient(self) -> _Patience:
        return _Patience(self._engine, lambda what_happened: tell(self._what, what_happened, self._sets, self._awaited))


class _Patience:
    """Tells what a coroutine waits for, each time that nothing has moved for ``hang_s`` seconds."""

    def __init__(self, engine: Crew[Any], tell_it: Callable[[str], None]) -> None:
        self._engine = engine
        self._tell = tell_it
        self._activity = engine.activity
        self._timer = asyncio.get_running_loop().call_later(engine.hang_s, self._look)

    def _look(self) -> None:
        engine = self._engine
        if engine.activity == self._activity:
            self._tell(f"has waited for {engine.hang_s:g} s in which no task ran")
        self._activity = engine.activity
        self._timer = asyncio.get_running_loop().call_later(engine.hang_s, self._look)

    def cancel(self) -> None:
        self._timer.cancel()


async def outcome(task: Handle) -> Any:
    """Wait until a task is complete and return what ``result()`` does."""
    runtime = task.construct.runtime
    if not task.finished:
        scope = runtime.check_wait(task)
        task.watch()
        await AsyncWait(runtime.engine, scope, task.done, (), f"the wait for {task.key}", awaited=(task,)).run()
    try:
        return task.result()
    finally:
        del task  # the traceback of its failure would refer to the task, and the task to it
