"""Ready tasks, and the threads that have nothing to do until there is one.

Theory of operation
-------------------
Ready tasks stand in one deque; where there are priorities, in one for each. A thread without work parks on a lock of
its own and is woken only when parked. Threads that wait inside of a task may run its descendants only: they stand in a
list of their own, and all of them are woken.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from offload.tasks.parker import Parker
    from offload.tasks.region import Region
    from offload.tasks.task import Task


class ReadyTasks:
    """Ready tasks, the threads that take them, and those who wait inside of tasks.

    Parameters
    ----------
    rng : random.Random or None
        Chooses among ready tasks; None: the oldest first.
    max_priority : int
        Higher priorities of tasks count as this one; 0: there are none.

    Attributes
    ----------
    ready : deque or ByPriority
        The ready tasks that nobody has taken.
    parked : deque of Parker
        Threads without work.
    woken : set of Parker
        Threads that have been told that there is work, and are not awake yet.
    nested : list of Parker
        Threads that wait inside of a task.
    takers : list of object
        Threads that are awake, look for completions and take what these make ready, one task each: for that nobody
        needs to be woken. One that goes without having looked at ``ready`` again wakes somebody itself.
    activity : int
        How many tasks have begun or ended, about: a wait that sees it stand still says so.
    lock : Lock
        For what happens seldom, and in several steps.
    """

    def __init__(self, rng: random.Random | None, max_priority: int) -> None:
        self.ready: Any = ByPriority() if max_priority else deque()
        self.max_priority = max_priority
        self.parked: deque[Parker] = deque()
        self.woken: set[Parker] = set()
        self.nested: list[Parker] = []
        self.takers: list[object] = []
        self.activity = 0
        self.lock = threading.Lock()
        self._rng = rng

    def make_ready(self, task: Task) -> None:
        """Hand a task, all of whose predecessors allow it, to a thread."""
        if task.special:
            if task.owner is not None:
                with self.lock:
                    owner = task.owner
                    task.is_ready = True
                if owner is not None:
                    owner.unpark()
                    return
            if task.hand_over():
                return
        self.ready.append(task)
        if self.parked and not (self.takers and self._is_taken()):
            self.wake_one()
        if self.nested:
            for parker in tuple(self.nested):
                parker.unpark()

    def _is_taken(self) -> bool:
        """Tell whether a thread that is awake takes a task that has just been made ready."""
        try:
            self.takers.pop()
        except IndexError:
            return False  # it takes another
        return True

    def leave_work(self) -> None:
        """Have somebody else take what is ready: the calling thread does not, who may have been relied on."""
        self.takers.clear()
        if self.ready and self.parked:
            self.wake_one()

    def make_all_ready(self, tasks: Sequence[Task], *, helps: bool) -> None:
        """Do the same for many tasks without an owner, of which the caller runs one if it ``helps``."""
        self.ready.extend(tasks)
        for _ in range(min(len(tasks) - helps, len(self.parked))):
            self.wake_one()
        if self.nested:
            for parker in tuple(self.nested):
                parker.unpark()

    def disown(self, task: Task) -> None:
        """Take an undeferred task from its owner, who was interrupted; others run it."""
        with self.lock:
            task.owner = None
            is_ready, task.is_ready = task.is_ready, False
        if is_ready:
            self.make_ready(task)

    def wake_one(self) -> None:
        """Wake a thread without work, if there is one."""
        try:
            parker = self.parked.popleft()
        except IndexError:
            return
        self.woken.add(parker)
        try:
            parker.unpark()
        except BaseException:
            self.woken.discard(parker)
            self.parked.append(parker)  # somebody else has to wake it
            raise

    def stir(self) -> None:
        """Have a thread that has nothing to do look around, or those that wait in tasks. Takes no lock."""
        if self.parked:
            self.wake_one()
        for parker in tuple(self.nested):
            parker.unpark()

    def unlist(self, parker: Parker) -> None:
        """Take a thread that has woken off the list of the parked."""
        try:
            self.parked.remove(parker)
        except ValueError:  # whoever woke it took it off
            self.woken.discard(parker)

    def take(self) -> Task | None:
        """Take a ready task: the oldest, or under a seed any."""
        ready = self.ready
        if self._rng is not None and (n_ready := len(ready)) > 1:  # once: others take tasks meanwhile
            ready.rotate(self._rng.randrange(n_ready))
        try:
            task: Task = ready.popleft()
        except IndexError:
            return None
        return task

    def take_descendant(self, frame: Region) -> Task | None:
        """Take a ready task that a wait inside of the region may run; leave the others where they are."""
        for task in self.ready.copy():
            if may_help_with(task, frame):
                try:
                    self.ready.remove(task)
                except ValueError:
                    continue  # somebody else took it
                return task  # type: ignore[no-any-return]  # tasks stand there
        return None


class ByPriority:
    """A deque for each priority; what a `collections.deque` of ready tasks does for the engine, this does.

    Every change is one step under the GIL, as it is for a deque.
    """

    __slots__ = ("_levels", "_queues")

    def __init__(self) -> None:
        self._queues: dict[int, deque[Task]] = {0: deque()}
        self._levels: tuple[deque[Task], ...] = (self._queues[0],)  # highest priority first

    def append(self, task: Task) -> None:
        queue = self._queues.get(task.priority)
        if queue is None:
            queue = self._queues.setdefault(task.priority, deque())
            while len(self._levels) < len(self._queues):  # again, if another thread has added one meanwhile
                self._levels = tuple(queue for _, queue in sorted(self._queues.copy().items(), reverse=True))
        queue.append(task)

    def extend(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self.append(task)

    def popleft(self) -> Task:
        for queue in self._levels:
            if queue:
                try:
                    return queue.popleft()
                except IndexError:
                    continue  # somebody else took it
        raise IndexError("no task is ready")

    def remove(self, task: Task) -> None:
        self._queues[task.priority].remove(task)

    def rotate(self, n: int) -> None:
        for queue in self._levels:
            queue.rotate(n)

    def copy(self) -> list[Task]:
        return [task for queue in self._levels for task in queue.copy()]

    def __len__(self) -> int:
        return sum(map(len, self._levels))


def may_help_with(task: Task, frame: Region) -> bool:
    """Tell whether a thread that waits inside of a region may run the task meanwhile.

    It may if the region generated the task, directly or not; and any device task, whose body can neither wait nor
    generate, and which may be what others wait for: it holds memory.
    """
    if task.waits_in_stream_order:
        return True
    ancestor: Region | None = task.frame
    while ancestor is not None and ancestor.children is not frame.children:
        ancestor = ancestor.task.frame if ancestor.task is not None else None
    return ancestor is not None
