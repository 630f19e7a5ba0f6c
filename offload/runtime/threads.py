"""The host threads of a runtime: the regions that generate tasks outside of any body, and their waits."""

from __future__ import annotations

import threading
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

from offload.errors import (
    UsageError,
)
from offload.interrupts.finalizers import put_off, refuse_inside
from offload.interrupts.shields import Shield
from offload.tasks.entered import is_entered
from offload.tasks.failures import raise_failures
from offload.tasks.region import Inherited, Region
from offload.tasks.scope import Parker, Scope, current_scope
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.events.gate import Gate
    from offload.tasks.engine import Engine
    from offload.tasks.task import Task


_SOON_S = 50e-6
"""How long a thread looks for the end of one task, before it waits as for everything else."""


class Threads:
    """What host threads do for a runtime.

    Attributes
    ----------
    engine : Engine
        Runs the tasks.
    default_device : int
        The default-device-var ICV that a thread begins with.
    gate : Gate
        Finds out which device work has passed.
    """

    engine: Engine
    default_device: int
    gate: Gate

    def __init__(self) -> None:
        self._local = threading.local()
        self._roots: dict[Region, threading.Thread] = {}

    def scope(self) -> Scope:
        """Return what the calling thread is doing for this runtime."""
        scope: Scope | None = getattr(self._local, "scope", None)
        if scope is None:
            frame = Region(None, Inherited(self.default_device))
            scope = Scope(self, frame)
            self._roots[frame] = threading.current_thread()  # first: the end of the runtime waits for these
            self._local.scope = scope
            if len(self._roots) & 63 == 0:
                self._forget_threads()
        return scope

    def here(self) -> Scope:
        """Return what the running code is doing for this runtime, which need not be the current one."""
        scope = current_scope.get()
        if scope is not None and scope.runtime is self and scope.thread == threading.get_ident():
            return scope
        return self.scope()

    def _forget_threads(self) -> None:
        """Drop the regions of threads that have ended and left nothing."""
        for frame, thread in list(self._roots.items()):
            if not (thread.is_alive() or frame.children.live or frame.children.failures):
                self._roots.pop(frame, None)

    def check_wait(self, task: Task) -> Scope:
        """Return what the caller is doing, who may wait for the task.

        Raises
        ------
        UsageError
            The task has not run and does not, or it would wait for itself.
        """
        if task.state_ is TaskState.RECORDED:
            raise UsageError(f"{task.key} was only recorded, it has not run; compute the graph")
        refuse_inside(f"the wait for {task.key}")
        scope = self.here()
        scope.frame("a wait for a task")  # refuses one where nobody may wait
        running = scope.task
        while running is not None:
            if running is task:
                raise UsageError(
                    f"{task.key} waits for itself; a task cannot wait for its own end, nor for its ancestors'"
                )
            running = running.frame.task
        return scope

    def wait_for_task(self, task: Task, timeout_s: float | None) -> None:
        """Block until a task is complete; `Task.result` says how."""
        scope = self.check_wait(task)
        if task.launched and timeout_s is None:
            with Shield(scope):
                self.attend(scope, task, helps=True)
            if task.finished:
                return
        task.watch()
        if timeout_s is not None:
            if self.engine.coroutines is not None:
                self.engine.coroutines.refuse(f"the wait for {task.key}", (), (task,))
            parker = Parker()  # an interrupt leaves it usable, which it does not a `threading.Event`

            def tell(_: Task) -> None:
                parker.unpark()

            task.add_done_callback(tell)
            try:
                if not parker.park(max(0.0, timeout_s)) and not task.finished:
                    raise TimeoutError(f"{task.key} is not complete after {timeout_s:g} s; it is {task.state_}")
            finally:
                with suppress(ValueError):  # it is complete, or is so at this very moment
                    (task.callbacks or []).remove(tell)
            return
        task.add_done_callback(lambda _: scope.parker.unpark())
        self.engine.wait(scope, lambda: task.finished, (), f"the wait for {task.key}", awaited=(task,))

    def attend(self, scope: Scope, task: Task, *, helps: bool) -> None:
        """Look for the end of a launched task, for a moment, if this thread has nothing else to do meanwhile.

        A kernel and a small copy end so soon that what `Engine.wait` prepares would take longer. That does the rest,
        and all of it where there is more to do: tasks with which the wait ``helps``, what finalizers ask for, copies
        that need the GIL.
        """
        engine, arrives, point = self.engine, self.gate.arrives, task.point
        if engine.look is None or engine.staging or put_off.calls or scope.depth or scope.is_completer:
            return
        if (engine.ready and (helps or not engine.threads)) or point is None or not is_entered(scope):
            return
        scope.depth = 1  # callbacks may wait
        try:
            until_s = perf_counter() + _SOON_S
            while not arrives(point) and perf_counter() < until_s:
                pass
        finally:
            scope.depth = 0

    def note_wait(self, task: Task) -> None:
        """Tell the recorder of the calling region, if there is one, that the region has waited for a task."""
        scope = current_scope.get()  # a coroutine has its own
        if scope is None or scope.runtime is not self or scope.thread != threading.get_ident():
            scope = getattr(self._local, "scope", None)
        recorder = scope.recorder if scope is not None else None
        if recorder is not None:
            recorder.note_wait(task)

    def wait_for_children(self, scope: Scope, frame: Region, where: str) -> None:
        """Wait for the tasks that a region has generated, and raise what failed among them."""
        children = frame.children
        with Shield(scope):  # also for failures that nobody else will raise
            while children.live or put_off.is_due:
                if children.live:
                    self.engine.wait(scope, lambda: not children.live, (children,), where)
                put_off.carry_out()  # what the last task held, and what that asked for
            raise_failures(self.engine.take_failures(children), where)

    def wait_for_all(self, where: str) -> None:
        """Wait for every task of the runtime, and raise what failed among them."""
        scope = self.scope()
        with Shield(scope):  # also for failures that nobody else will raise
            while True:
                put_off.carry_out()
                regions = self.regions()
                busy = [frame.children for frame in regions if frame.children.live]
                if busy:
                    self.engine.wait(scope, lambda: not any(tasks.live for tasks in busy), busy, where)  # noqa: B023  # used in this turn only
                elif not (set(self.regions()) - set(regions) or put_off.is_due):
                    break  # no body that ended meanwhile has left a region with tasks
            self._raise_unseen(regions, where)

    def _raise_unseen(self, regions: Sequence[Region], where: str) -> None:
        raise_failures([task for frame in regions for task in self.engine.take_failures(frame.children)], where)

    def regions(self) -> list[Region]:
        """Return every region that may have generated tasks: host threads, and bodies that ended before their tasks."""
        return [*self._roots, *self.engine.frames]
