"""The event loops that bodies run on; `offload.tasks.aio.task` says how."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from offload.tasks.region import AnyTask
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_homes: dict[asyncio.AbstractEventLoop, Home] = {}
"""The loops of the process that bodies run on; a closed one may stay until the next comes."""


class Guest(AnyTask, Protocol):
    """A task as the home of its loop knows it."""

    def leave_loop(self) -> asyncio.Task[None] | None:
        """Fail the task if its body has not begun, since its loop ends; else return the asyncio task of the body."""

    def abandon(self) -> None:
        """Fail the task, whose loop is closed."""


class Home:
    """An event loop that bodies run on; made on its thread, while it runs.

    Attributes
    ----------
    loop : asyncio.AbstractEventLoop
    thread : int
        The identifier of the loop's thread.
    is_over : bool
        Whether it is being shut down: no body begins there any more.
    """

    __slots__ = ("_guard", "_tasks", "is_over", "loop", "thread")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = get_ident()
        self.is_over = False
        self._tasks: dict[int, ref[Guest]] = {}  # until their bodies end
        self._guard = self._until_shutdown()
        with suppress(StopIteration):  # it yields
            self._guard.__anext__().send(None)

    def add(self, task: Guest) -> None:
        key, tasks = id(task), self._tasks
        tasks[key] = ref(task, lambda _: tasks.pop(key, None))

    def forget(self, task: Guest) -> None:
        self._tasks.pop(id(task), None)

    def unfinished(self) -> list[Guest]:
        """Return the tasks that run here, or will."""
        found = [reference() for reference in tuple(self._tasks.values())]
        return [
            task for task in found if task is not None and not task.finished and task.state_ is not TaskState.RECORDED
        ]

    async def _until_shutdown(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await self._shut_down()

    async def _shut_down(self) -> None:
        self.is_over = True
        running = [begun for task in self.unfinished() if (begun := task.leave_loop()) is not None]
        for begun in running:
            begun.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def home_of(loop: asyncio.AbstractEventLoop) -> Home:
    """Return the home that the loop of this thread is."""
    home = _homes.get(loop)
    if home is None:
        abandon_closed()
        for other in tuple(_homes):
            if other.is_closed():
                _homes.pop(other, None)
        home = _homes[loop] = Home(loop)
    return home


def homes_of_thread() -> list[Home]:
    """Return the open loops that run on the calling thread, or did last."""
    me = get_ident()
    return [home for home in tuple(_homes.values()) if home.thread == me and not home.loop.is_closed()]


def abandon_closed() -> None:
    """Fail the tasks of loops that were closed before the bodies had ended."""
    for home in tuple(_homes.values()):
        if home.loop.is_closed():
            home.is_over = True
            for task in home.unfinished():
                task.abandon()


class LoopThread:
    """A thread that runs a loop for bodies without one."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()
        self._begun: Future[Home] = Future()
        self._thread = threading.Thread(target=self._run, name="offload-loop", daemon=True)
        self._thread.start()
        self.home = self._begun.result()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._begun.done():
                raise
            self._begun.set_exception(error)

    async def _serve(self) -> None:
        self._begun.set_result(home_of(asyncio.get_running_loop()))
        await self._stop.wait()

    def stop(self) -> None:
        """Cancel the bodies that run on the loop, and end it."""
        with suppress(RuntimeError):  # it has ended by itself
            self.home.loop.call_soon_threadsafe(self._stop.set)

    def join(self) -> None:
        """Wait for the end of the thread, on another one."""
        self._thread.join()
        _homes.pop(self.home.loop, None)
