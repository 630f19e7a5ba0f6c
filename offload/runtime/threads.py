"""The host threads of a runtime: the regions that generate tasks outside of any body, and their waits."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from offload.errors import UsageError
from offload.interrupts.finalizers import put_off, refuse_inside
from offload.interrupts.shields import Shield
from offload.runtime.places import Places
from offload.tasks.goals import Goal, TaskEnd
from offload.tasks.parker import Parker
from offload.tasks.region import Inherited, Region
from offload.tasks.scope import Scope, current_scope
from offload.tasks.states import TaskState
from offload.tasks.waiting import wait_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from offload.devices.base import Device
    from offload.events.gate import Gate
    from offload.runtime.settings import Settings
    from offload.tasks.protocols import AnyRuntime
    from offload.tasks.region import AnyTask, TaskSet
    from offload.tasks.task import Task


R = TypeVar("R", bound="AnyRuntime")


class RuntimeScope(Scope, Generic[R]):
    """A scope whose runtime is of the class ``R``, where `offload.tasks.scope.Scope` knows what tasks ask of it.

    Every scope is one: a runtime makes the first of each thread, and `Scope.beside` the others.
    """

    __slots__ = ()

    runtime: R


class Threads(Places):
    """What host threads do for a runtime.

    Attributes
    ----------
    default_device : int
        The default-device-var ICV that a thread begins with.
    defers : bool
        Whether host threads defer tasks outside of bodies; where nobody would wait for those they run at once.
    gate : Gate
        Finds out which device work has passed.
    """

    defers = True

    default_device: int
    gate: Gate

    def __init__(self, settings: Settings, devices: Sequence[Device]) -> None:
        super().__init__(settings, devices)
        self._local = threading.local()
        self._roots: dict[Region, threading.Thread] = {}

    def scope(self) -> RuntimeScope[Self]:
        """Return what the calling thread is doing for this runtime."""
        scope: RuntimeScope[Self] | None = getattr(self._local, "scope", None)
        if scope is None:
            frame = Region(None, Inherited(self.default_device, is_final=not self.defers))
            scope = RuntimeScope(self, frame)
            self._roots[frame] = threading.current_thread()  # first: the end of the runtime waits for these
            self._local.scope = scope
            if len(self._roots) & 63 == 0:
                self._forget_threads()
        return scope

    def here(self) -> RuntimeScope[Self]:
        """Return what the running code is doing for this runtime, which need not be the current one."""
        scope = current_scope.get()
        if scope is not None and scope.runtime is self and scope.thread == threading.get_ident():
            return scope  # type: ignore[return-value]  # its runtime is this one
        return self.scope()

    def _forget_threads(self) -> None:
        """Drop the regions of threads that have ended and left nothing."""
        for frame, thread in list(self._roots.items()):
            if not (thread.is_alive() or frame.children.live or frame.children.failures):
                self._roots.pop(frame, None)

    def check_wait(self, task: Task) -> RuntimeScope[Self]:
        """Return what the caller is doing, who may wait for the task.

        Raises
        ------
        UsageError
            The task has not run and does not, or it would wait for itself.
        """
        if task.state_ is TaskState.RECORDED:
            raise UsageError(f"{task.key} was only recorded, it has not run; compute the graph")
        refuse_inside(TaskEnd(task))
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
        goal = TaskEnd(task)
        if timeout_s is None:
            self.engine.wait(scope, goal)
            return
        if self.engine.coroutines is not None:
            self.engine.coroutines.refuse(goal)
        parker = Parker()  # an interrupt leaves it usable, which it does not a `threading.Event`
        goal.call(parker.unpark, self.engine.lock)
        try:
            if not parker.park(max(0.0, timeout_s)) and not task.finished:
                raise TimeoutError(f"{task.key} is not complete after {timeout_s:g} s; it is {task.state_}")
        finally:
            goal.leave(parker.unpark, self.engine.lock)

    def note_wait(self, task: Task) -> None:
        """Tell the recorder of the calling region, if there is one, that the region has waited for a task."""
        scope = current_scope.get()  # a coroutine has its own
        if scope is None or scope.runtime is not self or scope.thread != threading.get_ident():
            scope = getattr(self._local, "scope", None)
        recorder = scope.recorder if scope is not None else None
        if recorder is not None:
            recorder.note_wait(task)

    def wait_for(self, scope: Scope, goal: Goal) -> None:
        """Wait for tasks, and raise what failed among them, as a group."""
        with Shield(scope) as shield:  # also for failures that nobody else will raise
            try:
                while goal.is_left() or (put_off.calls and put_off.is_due):
                    wait_within(shield, self.engine, scope, goal)
                    if put_off.calls:
                        put_off.carry_out()  # what the last task held, and what that asked for
                shield.check()  # before the failures count as seen
                goal.raise_failures(self.engine.take_failures)
            finally:
                goal.let_go()

    def regions(self) -> list[Region]:
        """Return every region that may have generated tasks: host threads, and bodies that ended before their tasks."""
        return [*self._roots, *self.engine.frames]


class Everything(Goal):
    """All tasks of a runtime, whoever generates them."""

    __slots__ = ("_regions", "_runtime")

    def __init__(self, runtime: Threads, what: str) -> None:
        super().__init__(what)
        self._runtime = runtime
        self._regions: Sequence[Region] = ()

    def done(self) -> bool:
        return not any(members.live for members in self.sets)

    def is_left(self) -> bool:
        regions = self._regions = self._runtime.regions()
        self.sets = [region.children for region in regions if region.children.live]
        return bool(self.sets or set(self._runtime.regions()) - set(regions))  # bodies that ended before their tasks

    def failures(self, take: Callable[[TaskSet], Iterable[AnyTask]]) -> Iterable[AnyTask]:
        return [task for region in self._regions for task in take(region.children)]
