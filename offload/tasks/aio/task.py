"""Tasks whose bodies are coroutines, and the event loops that these run on.

Theory of operation
-------------------
*Running.* A task that is ready is handed to its loop by ``call_soon_threadsafe``, from whichever thread makes it ready:
no worker is needed, and none is held while the body awaits. The loop's thread checks mutexes and other obstacles right
before the body begins. So a mutex is not held while the loop is busy, and a chain of tasks that do not run is a chain
of callbacks, not of calls. The loop's thread completes the task and enqueues its successors.

*Which loop.* The one that runs on the calling thread at the call, else that of the runtime's own thread, which begins
at first use. A plain body that runs inside of a wait on a loop's thread has no loop (`offload.tasks.presence`). The
coroutines that it calls must not run on a loop that is blocked below it, so the runtime starts another loop if its own
is blocked.

*Scopes.* Each body has its own `Scope`, since the coroutines of a loop take turns on one thread. The scope is in a
context variable of the body's own context, which is a copy of the caller's.

*The end of a loop.* ``asyncio.run`` cancels the running bodies, shuts the asynchronous generators down and closes the
loop. A `Home` has such a generator, so it notices: it cancels bodies that have begun since, and fails the other tasks.
If a loop is closed in another way, the next hand-over or the next wait notices.

*Deadlocks.* A thread that blocks while its loop has to run a body that the wait depends on would never wake. If there
are coroutines, each wait therefore searches from the loop's bodies along successors, mutexes and the waits of other
tasks. The search must not reach the goal of the wait (`Blocked`).
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any

from offload.errors import UsageError
from offload.interrupts.frames import calls_program
from offload.interrupts.shields import Shield
from offload.tasks import hooked
from offload.tasks.aio.deadlocks import Coroutines
from offload.tasks.aio.loops import home_of
from offload.tasks.failures import note_task, without_engine_frames
from offload.tasks.presence import running_loop
from offload.tasks.recipe import ClauseRecipe
from offload.tasks.scope import Scope, current_scope
from offload.tasks.states import TaskState
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from offload.tasks.aio.loops import Home
    from offload.tasks.protocols import AnyRuntime, Runner
    from offload.tasks.region import Region
    from offload.tasks.site import Site


class CoroutineTask(Task):
    """A task whose body is a coroutine."""

    __slots__ = ("_begun", "_context", "_handed", "_has_ended", "_home", "_scope")

    is_coroutine = True

    def __init__(
        self,
        construct: Site,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        frame: Region,
        home: Home,
    ) -> None:
        super().__init__(construct, body, args, kwargs, frame)
        self.special = True
        self._home = home
        self._context: Any = copy_context()
        self._handed: list[None] = []  # whoever takes what is in it begins the task, or fails it
        self._begun: asyncio.Task[None] | None = None
        self._scope: Scope | None = None
        self._has_ended = False
        home.add(self)

    def story(self) -> str:
        story = super().story()
        return f"{story}; its coroutine runs on {self._home.loop!r}" if self._begun is not None else story

    # -- beginning -----------------------------------------------------------------------------------
    def hand_over(self) -> bool:
        """Have the loop begin the task, which is ready; return false if the loop has ended."""
        home = self._home
        self._handed.append(None)
        if not home.is_over:
            with suppress(RuntimeError):  # it is closed
                home.loop.call_soon_threadsafe(self._begin, context=self._context)
                self.construct.runtime.engine.coroutines.wake_blocked(home.thread)
                return True
        return not self._claim()

    def _claim(self) -> bool:
        try:
            self._handed.pop()
        except IndexError:
            return False
        return True

    def advance(self, engine: Runner[Task], scope: Scope) -> Task | None:
        """Hand the task to its loop; fail it if that has ended."""
        if self.hand_over() or engine.hinders(self):
            return None
        return self._end(engine, self._lost())

    def _begin(self) -> None:
        """Begin the body, on the loop's thread and in the body's context."""
        if not self._claim():
            return
        runtime = self.construct.runtime
        with Shield():
            if runtime.engine.hinders(self):
                return
            if self._home.is_over:
                self._complete(self._lost())
                return
        runtime.engine.activity += 1
        self._scope = runtime.scope().beside(None, self)
        current_scope.set(self._scope)
        self.state_ = TaskState.RUNNING
        coroutine = self._drive()
        try:
            begun = self._home.loop.create_task(coroutine, name=self.key)  # its context is a copy of this one
        except BaseException as error:  # noqa: BLE001  # a task factory of the user's; kept for whoever waits
            coroutine.close()
            self._complete(self.failed(error))
            return
        if not self._has_ended:  # as it may have, where tasks are eager
            self._begun = begun
            begun.add_done_callback(self._ended_early)

    @calls_program
    async def _drive(self) -> None:
        failure = interrupt = None
        self.start_s = perf_counter()
        try:
            kwargs = self.kwargs
            self.value = await (self.body(*self.args, **kwargs) if kwargs else self.body(*self.args))  # type: ignore[misc]  # the body goes when it has run
        except BaseException as error:  # noqa: BLE001  # kept for whoever waits
            failure = self.failed(error)
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                self.seen = True
                interrupt = error  # ends the loop, as asyncio has it
        try:
            self._complete(failure)
        finally:
            del self, failure  # the failure has the frame of the body, whose caller this is: no cycle by way of that
        if interrupt is not None:
            raise interrupt

    # -- ending --------------------------------------------------------------------------------------
    def failed(self, error: BaseException) -> BaseException | None:
        if isinstance(error, asyncio.CancelledError):  # no `Exception`, and asyncio's alone
            failure = CancelledError(f"{self.key}: its coroutine was cancelled")
            failure.__cause__ = without_engine_frames(error)
            error = failure
        elif isinstance(error, GeneratorExit):
            return self._lost()
        return super().failed(error)

    def _lost(self) -> BaseException:
        error = UsageError(
            f"{self.key}: the event loop that should run this async def body has ended; `await` the task, or `await "
            "omp.taskwait()`, before the loop ends"
        )
        note_task(error, self, "its event loop ended")
        return error

    def _ended_early(self, begun: asyncio.Task[None]) -> None:
        """Complete the task if its coroutine was cancelled before its first step."""
        error = asyncio.CancelledError() if begun.cancelled() else begun.exception()  # so that asyncio reports none
        if not self._has_ended:
            self._complete(self.failed(error) if error is not None else None)

    def _complete(self, failure: BaseException | None) -> None:
        with Shield():
            engine = self.construct.runtime.engine
            engine.activity += 1
            following = self._end(engine, failure)
            if following is not None:
                engine.make_ready(following)

    def _end(self, engine: Runner[Task], failure: BaseException | None) -> Task | None:
        """Finish the task after its body, however it ends; return a task that became ready."""
        self.end_s = perf_counter()
        self._has_ended = True
        self._home.forget(self)
        self._begun = self._context = None
        scope, self._scope = self._scope, None
        if scope is not None:
            frame = scope.region
            if frame is not None and (frame.children.live or frame.children.failures):
                engine.adopt(frame)
            # What the body has left running on its loop belongs to the thread from now on.
            scope.task, scope.region = None, self.construct.runtime.scope().region
        following = self.body_ended(engine, failure)
        owner = self.owner
        if owner is not None:
            owner.unpark()  # it waits for the body's end, not for the event
        return following

    def leave_loop(self) -> asyncio.Task[None] | None:
        """Fail the task if its body has not begun, since its loop ends; else return the asyncio task of the body."""
        if self._begun is None and self._claim():
            self._complete(self._lost())
        return self._begun

    def abandon(self) -> None:
        """Fail the task, whose loop is closed; on any thread."""
        begun = self.leave_loop()
        if begun is None:
            return
        begun._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  # the failure says it
        coroutine: Any = begun.get_coro()  # None from Python 3.12 on, where that is so
        if coroutine is None:
            return  # it was over before the loop had a turn
        try:
            coroutine.close()
        except ValueError:
            return  # another thread is at it
        except RuntimeError:
            pass  # it goes on awaiting, in vain
        if not self._has_ended:  # or it had not taken its first step
            self._complete(self._lost())


def _observed_begin(plain: Callable[[CoroutineTask], None]) -> Callable[[CoroutineTask], None]:
    def begin(self: CoroutineTask) -> None:
        hooked.tell_start(self)
        plain(self)

    return begin


hooked.register(CoroutineTask, "_begin", _observed_begin, "starts")


def _noted_begin(plain: Callable[[CoroutineTask], None]) -> Callable[[CoroutineTask], None]:
    def begin(self: CoroutineTask) -> None:
        if (orders := hooked.orders.get(self.construct.runtime)) is not None:
            orders.begins(self)
        plain(self)

    return begin


hooked.register(CoroutineTask, "_begin", _noted_begin, "sanitize")


class CoroutineRecipe(ClauseRecipe):
    """The recipe of the tasks of a call whose body is a coroutine.

    The first one is for the loop of the caller, if there is one. Later ones are those of a recorded graph that is run
    again, which may block the caller's thread meanwhile.

    Parameters
    ----------
    blocks : bool
        Whether the call waits for the body.
    others
        As for `ClauseRecipe`.

    Raises
    ------
    UsageError
        It would wait on the thread of the body's loop.
    """

    __slots__ = ("_coroutines", "_home")

    def __init__(
        self,
        site: Site,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        label: str | None,
        priority: int,
        *,
        blocks: bool,
    ) -> None:
        super().__init__(site, body, args, kwargs, label, priority)
        self._coroutines = Coroutines.of(site.runtime.engine)
        loop = running_loop()
        if blocks and loop is not None:
            raise UsageError(
                f"{site.directive} {site.name!r} is an async def body in a call that waits for it (if_=False, or "
                "final), on the thread of the event loop that has to run it; leave that clause out and `await` the task"
            )
        self._home = None if loop is None else home_of(loop)

    def moved(self, runtime: AnyRuntime) -> Self:
        other = super().moved(runtime)
        other._coroutines = Coroutines.of(runtime.engine)  # noqa: SLF001  # of this class
        return other

    def _new(self, frame: Region) -> Task:
        home, self._home = self._home, None
        task = CoroutineTask(self.site, self.body, self.args, self.kwargs, frame, home or self._coroutines.own_home())
        self._mark(task)
        return task
