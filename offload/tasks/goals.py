"""Goals: the values that waits wait for, of threads that block and of coroutines that await.

A goal knows when it is reached, which tasks call back then, its text for messages, and the device work that a thread
may look at before it prepares a wait. Tasks that are to end are a `Goal`, a task set that is to be empty is an
`Emptied`; any other goal is a subclass, in the file of the code that waits for it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from operator import not_, truth
from typing import TYPE_CHECKING

from offload.tasks.failures import raise_failures

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Sequence

    from offload.tasks.handle import Handle
    from offload.tasks.region import AnyTask, TaskSet

_FEW = 8
"""Tasks up to which a thread looks for their ends one by one; of more, what a wait prepares is a small part."""


class Goal:
    """The ends of some tasks.

    Parameters
    ----------
    what : object
        The waiting construct; ``str(what)`` names it.
    tasks : sequence of Task
        Those that are waited for.

    Attributes
    ----------
    sets : sequence of TaskSet
        Those that have to be empty.
    """

    __slots__ = ("sets", "tasks", "what")

    calls = True
    """Whether the tasks wake the waiting thread; else code that reaches the goal does, and messages name the tasks."""
    hurries = True
    """Whether the ends of all device work must be noticed soon meanwhile: the goal may wait for any of them."""

    def __init__(self, what: object, tasks: Sequence[Handle] = ()) -> None:
        self.what = what
        self.tasks = tasks
        self.sets: Sequence[TaskSet] = ()

    def __str__(self) -> str:
        return str(self.what)

    def done(self) -> bool:
        """Tell whether the goal is reached."""
        for task in self.tasks:  # noqa: SIM110  # a call of `all` takes longer than most of these
            if not task.finished:
                return False
        return True

    def is_left(self) -> bool:
        """Take in the tasks that belong to the goal by now; return whether any is left. Not during a wait."""
        return not self.done()

    def raise_failures(self, take: Callable[[TaskSet], Iterable[AnyTask]]) -> None:
        """Raise the failures among all tasks of the goal as a group; ``take`` empties the failures of a task set.

        Raises
        ------
        BaseExceptionGroup
            As `offload.tasks.failures.raise_failures`.
        """
        raise_failures(self.failures(take), self)

    def failures(self, take: Callable[[TaskSet], Iterable[AnyTask]]) -> Iterable[AnyTask]:
        """Return the failed tasks of the goal, for `raise_failures`."""
        return [task for task in self.tasks if task.failure is not None]

    def launched(self) -> Sequence[AnyTask]:
        """Return the tasks that are left, the last launched first, if they are few and all of them are launched."""
        return _launched(self.tasks) if self.calls else ()

    def concerns(self, task: AnyTask, held: Collection[AnyTask]) -> bool:
        """Tell whether the goal cannot be reached before a task ends, nor any of those that are ``held`` up with it."""
        return task in self.tasks or any(task in members.live for members in self.sets)

    def call(self, wake: Callable[..., None], lock: threading.Lock) -> None:
        """Have ``wake`` called, with a task or without, whenever the goal may have been reached."""
        for members in self.sets:
            with lock:
                members.waiters = (*members.waiters, wake)
        if self.calls:
            for task in self.tasks:
                task.add_done_callback(wake)

    def leave(self, wake: Callable[..., None], lock: threading.Lock) -> None:
        """Undo `call`."""
        if self.calls:
            for task in self.tasks:
                with suppress(ValueError):  # it has been called, or is at this very moment
                    (task.callbacks or []).remove(wake)
        for members in self.sets:
            with lock:
                remaining = list(members.waiters)
                remaining.remove(wake)
                members.waiters = tuple(remaining)

    def let_go(self) -> None:
        """Forget the tasks: a failed one refers to the frames that its body was called from, and they to this."""
        self.tasks = self.sets = ()


class TaskEnd(Goal):
    """The end of one task."""

    __slots__ = ()

    def __init__(self, task: Handle) -> None:
        self.tasks = (task,)
        self.sets = ()

    def __str__(self) -> str:
        return f"the wait for {self.tasks[0].key}"

    def done(self) -> bool:
        return self.tasks[0].finished

    def launched(self) -> Sequence[AnyTask]:
        return self.tasks if self.calls and self.tasks[0].launched else ()


class Launches(Goal):
    """The launches of some tasks, or the ends of those that are never launched.

    From then on a stream can wait for the tasks, and the present table has their mappings.
    """

    __slots__ = ()

    def done(self) -> bool:
        return all(task.launched or task.finished for task in self.tasks)

    def call(self, wake: Callable[..., None], lock: threading.Lock) -> None:
        with lock:
            for task in self.tasks:
                task.launch_calls = (*task.launch_calls, wake)
        super().call(wake, lock)

    def leave(self, wake: Callable[..., None], lock: threading.Lock) -> None:
        super().leave(wake, lock)
        with lock:
            for task in self.tasks:
                remaining = list(task.launch_calls)
                remaining.remove(wake)
                task.launch_calls = tuple(remaining)


class Emptied(Goal):
    """The ends of all the tasks in a task set."""

    __slots__ = ("_members", "done", "is_left")

    def __init__(self, what: object, members: TaskSet) -> None:
        self.what = what
        self.tasks = ()
        self.sets = (members,)
        self._members = members
        live = members.live  # of which who waits asks half a dozen times
        self.done, self.is_left = partial(not_, live), partial(truth, live)  # type: ignore[method-assign]  # of this one

    def raise_failures(self, take: Callable[[TaskSet], Iterable[AnyTask]]) -> None:
        if self._members.failures:
            super().raise_failures(take)

    def failures(self, take: Callable[[TaskSet], Iterable[AnyTask]]) -> Iterable[AnyTask]:
        return take(self._members)

    def launched(self) -> Sequence[AnyTask]:
        live = self._members.live
        return _launched(live.copy()) if len(live) <= _FEW else ()


class Until(Goal):
    """A condition; the code that makes it true unparks the waiting thread, and so does each set that becomes empty."""

    __slots__ = ("done",)

    calls = False

    def __init__(
        self,
        what: object,
        done: Callable[[], bool],
        tasks: Sequence[Handle] = (),
        sets: Sequence[TaskSet] = (),
    ) -> None:
        super().__init__(what, tasks)
        self.sets = sets
        self.done = done  # type: ignore[method-assign]  # a method of this one


def _launched(tasks: Collection[AnyTask]) -> Sequence[AnyTask]:
    """Return the tasks that have not ended, in the order to ask for their ends; none if some are not launched."""
    if len(tasks) > _FEW:
        return ()
    left = []
    for task in tasks:
        if not task.finished:
            if not task.launched:
                return ()
            left.append(task)
    if len(left) > 1:
        left.sort(key=_place, reverse=True)  # the end of one is that of those before it on its lane
    return left


def _place(task: AnyTask) -> int:
    sequence: int = task.point.sequence
    return sequence
